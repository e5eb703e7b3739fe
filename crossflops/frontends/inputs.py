"""`--input 1x3x224x224`, `--input input_ids=1x128:int64` -> specs -> tensors."""

import inspect
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from crossflops.errors import InputError
from crossflops.ir.tensor import DIGITS, TensorSpec

_HINT = "write --input 1x3x224x224, or --input input_ids=1x128:int64"
_TEXT = re.compile(r"(?:(?P<name>.+)=)?(?P<shape>scalar|\d+(?:x\d+)*)(?::(?P<dtype>\w+))?")
# A shape as Python prints one, or with commas: (1, 3, 32, 32), [1, 3], 1,3,224,224, 1 x 3
_DIMS = r"\d+(?:(?:\s*[x×*,]\s*|\s+)\d+)*"
_LISTED = re.compile(
    rf"(?:^|(?<==))\s*(?:torch\.size\()?"
    rf"(?:\(\s*({_DIMS})?\s*,?\s*\)|\[\s*({_DIMS})?\s*,?\s*\]|({_DIMS}))\)?\s*(?=:|$)",
    re.IGNORECASE,
)
_DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
    "bool", "complex64", "complex128", "string",
)  # fmt: skip

MADE_UP = "random floats (seed 0), and zeros of other types"


def parse(texts: Sequence[str]) -> tuple[TensorSpec, ...]:
    """The inputs that a command line names. One without a name gets its place: "0", "1" ...

    Raises InputError.
    """
    specs = tuple(_parse(place, text) for place, text in enumerate(texts))
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"the input {name!r} is given twice", _HINT)
    return specs


def _parse(place: int, text: str) -> TensorSpec:
    found = _TEXT.fullmatch(_LISTED.sub(_with_crosses, text).strip())
    if not found:
        raise InputError(f"cannot read the input {text!r}", _HINT)
    dtype = found["dtype"] or "float32"
    if dtype not in _DTYPES:
        known = ", ".join(_DTYPES)
        raise InputError(f"unknown type {dtype!r} in the input {text!r}", f"types: {known}")
    scalar = found["shape"] == "scalar"
    if any(len(size) > DIGITS for size in found["shape"].split("x")):
        raise InputError(f"a size in the input {text!r} has more than {DIGITS} digits", _HINT)
    shape = () if scalar else tuple(map(int, found["shape"].split("x")))
    return TensorSpec(found["name"] or str(place), dtype, shape, "input")


def _with_crosses(found: re.Match[str]) -> str:
    """A shape as 1x3x224x224; that without dimensions is a scalar."""
    dims = next((one for one in found.groups() if one), "")
    return "x".join(re.findall(r"\d+", dims)) or "scalar"


def make(model: Any, specs: Sequence[TensorSpec]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments for a PyTorch model: random floats, zeros of other types.

    They have no data where the model's weights have none (PyTorch's device "meta"). The caller's
    random state is not used. Raises InputError when a tensor cannot be made.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    weights = list(model.parameters()) if hasattr(model, "parameters") else []
    bare = bool(weights) and all(weight.is_meta for weight in weights)
    values = {spec.name: _tensor(spec, None if bare else generator) for spec in specs}
    return split(values)


def _tensor(spec: TensorSpec, generator: Any) -> Any:
    """A tensor of this spec, without data where there is no generator."""
    import torch

    dtype = getattr(torch, spec.dtype, None)
    if dtype is None:
        raise InputError(f"PyTorch has no tensors of the type {spec.dtype}", _HINT)
    size = math.prod(spec.shape or ()) * dtype.itemsize
    if size > _largest():
        raise InputError(
            f"the input {spec.name!r} would take {size / 2**30:.3g} GiB",
            "give a smaller one; convolutions cost in proportion to the area",
        )
    try:
        if generator is None:
            return torch.empty(spec.shape or (), dtype=dtype, device="meta")
        if dtype.is_floating_point or dtype.is_complex:
            return torch.randn(spec.shape or (), generator=generator).to(dtype)
        return torch.zeros(spec.shape or (), dtype=dtype)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"cannot make the input {spec.name!r}: {error}", _HINT) from error


def check(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Whether a PyTorch model takes so many inputs, by these names: told before it is run.

    Raises InputError, also for tensors that no run can take. A model with hooks, which may change
    what forward is given, is not asked.
    """
    _refuse_fakes((*model.parameters(), *args, *kwargs.values()))
    if model._forward_pre_hooks:
        return
    try:
        signature = inspect.signature(model.forward)
    except (ValueError, TypeError):
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        taken = ", ".join(signature.parameters)
        name = next((name for name in signature.parameters if name not in kwargs), "x")
        raise InputError(
            f"the inputs do not fit {type(model).__name__}.forward({taken}): {error}",
            f"give one --input for each, such as --input {name}=1x3x224x224",
        ) from error


def _refuse_fakes(tensors: Iterable[Any]) -> None:
    for one in tensors:
        if getattr(one, "is_nested", False):
            raise InputError(
                "a nested tensor has no shape to count with",
                "pad it, as torch.nested.to_padded_tensor does",
            )
        if type(one).__name__ == "FakeTensor":
            raise InputError(
                "weights or inputs are FakeTensors, which belong to the mode that made them",
                "make them under torch.device('meta') instead",
            )


def _largest() -> int:
    """A quarter of the machine's memory: each tool needs the input too, and room to work."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return 1 << 33


def split(values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Names that are places become positional arguments, in their order; the others keywords."""
    places = sorted((name for name in values if name.isdigit()), key=int)
    args = tuple(values[name] for name in places)
    return args, {name: value for name, value in values.items() if not name.isdigit()}


def from_file(path: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Real values from an .npz file, one tensor per input. Raises InputError."""
    import torch

    return from_npz(path, torch.from_numpy)


def from_npz(path: str, convert: Callable[[Any], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What `convert` makes of each array in an .npz file, by place and by name."""
    return split(from_archive(path, convert))


def from_archive(path: str, convert: Callable[[Any], Any] = lambda array: array) -> dict[str, Any]:
    """What `convert` makes of each array in an .npz file; unnamed ones are called by their place.

    Raises InputError where the file cannot be read, or an array cannot be converted.
    """
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name.removeprefix("arr_"): convert(array) for name, array in arrays.items()}
    except (OSError, ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"cannot read the inputs in {path}: {error}", "write them with numpy.savez"
        ) from error


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What Python callers give: a tensor, a tuple, a dict of keywords, or `(args, kwargs)`."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        pair = len(inputs) == 2 and isinstance(inputs[0], tuple | list)
        if pair and isinstance(inputs[1], Mapping):
            return tuple(inputs[0]), dict(inputs[1])
        return tuple(inputs), {}
    return (inputs,), {}
