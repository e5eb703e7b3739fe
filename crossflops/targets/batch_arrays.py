"""The values that --inputs names for an ONNX file, as arrays of NumPy."""

from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.inputs import arrays_from_npz, to_call_arguments
from crossflops.targets.target import call_batch_function, is_batch_function


def arrays_of_inputs(text: str) -> dict[str, Any]:
    """Return the arrays that the text of --inputs names, by input name (or index): those of an
    .npz file, or of the batch that a function returns. Raises InputError, TargetError.
    """
    if not is_batch_function(text):
        return arrays_from_npz(text)
    args, kwargs = to_call_arguments(call_batch_function(text))
    named = {**{str(index): value for index, value in enumerate(args)}, **kwargs}
    return {name: _array_of_value(value, name, text) for name, value in named.items()}


def _array_of_value(value: Any, name: str, text: str) -> Any:
    """Return a value of a batch as an array of NumPy. Raises InputError if it is not one array."""
    import numpy as np

    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"--inputs {text} returns no array for the input {name}: {error}",
            "return a dict of arrays, or of tensors of a type that NumPy has",
        ) from error
    if array.dtype == object:
        raise InputError(
            f"--inputs {text} returns no array for the input {name}, but a {type(value).__name__}",
            "return a dict of arrays by the names of the inputs",
        )
    return array
