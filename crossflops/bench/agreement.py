"""Run an exported file and its model on the same inputs, and compare their outputs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crossflops.bench.session import PROVIDERS, build_session_options, import_onnxruntime
from crossflops.frontends import ModelRun
from crossflops.ir.agreement import Agreement, OutputAgreement

# What is noise: as many times what one rounding of weights and inputs makes of the model itself,
# or one step of its type. Of 524 outputs of models none was further apart than 4.1 times that.
_ROUNDINGS = 16
_KINDS = "biufc"  # the kinds of NumPy's numbers
_WHOLE = "biu"


def compare_with_onnxruntime(file: Path, ran: ModelRun) -> Agreement:
    """Run an exported file on the inputs of a model run, and return how far its outputs agree with
    those of the model.

    Raises MissingExtraError where onnxruntime is not installed.
    """
    module = import_onnxruntime()
    name = f"onnxruntime {module.__version__}"
    chosen = build_session_options(module, str(file.parent), 1, "all")
    try:
        session = module.InferenceSession(str(file), chosen, providers=PROVIDERS)
        values = [value.name for value in session.get_inputs()]
        results = session.run(None, _inputs_by_name(values, ran.inputs))
    except Exception as error:  # of classes that onnxruntime makes up
        return Agreement(runtime=name, problem=_onnxruntime_message(error))
    names = [value.name for value in session.get_outputs()]
    if len(results) != len(ran.outputs):
        problem = f"outputs of the file: {len(results)}, of the model: {len(ran.outputs)}"
        return Agreement(runtime=name, problem=problem)
    rows = zip(names, ran.outputs, results, ran.drawn, ran.rounding, strict=True)
    return Agreement(runtime=name, outputs=tuple(_compare_output(*row) for row in rows))


def _inputs_by_name(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return the inputs of a file by name, from values in their order. Raises ValueError if the
    numbers of both differ.
    """
    if len(names) != len(values):
        raise ValueError(
            f"the file has {len(names)} inputs, but the model was given {len(values)}"
        )
    return dict(zip(names, values, strict=True))


def _compare_output(
    name: str, requested: Any, result: Any, drawn: bool, rounding: float
) -> OutputAgreement:
    """Return how far one output of the file agrees with that of the model (`requested`):
    differences and a verdict.
    """
    import numpy as np

    result = np.asarray(result)
    form, other = (f"{array.dtype}{list(array.shape)}" for array in (requested, result))
    if form != other:
        problem = f"it is {other} in the file, but {form} in the model"
        return OutputAgreement(name=name, agrees=False, problem=problem)
    if drawn:
        return OutputAgreement(name=name, drawn=True)
    if requested.dtype.kind not in _KINDS:
        return OutputAgreement(name=name, agrees=bool((requested == result).all()))
    absolute, relative = _largest_absolute_and_relative_difference(requested, result)
    is_whole = requested.dtype.kind in _WHOLE
    step = 0.0 if is_whole else float(np.finfo(requested.dtype).eps)
    noise = _ROUNDINGS * max(rounding, step)
    return OutputAgreement(
        name=name,
        absolute=absolute,
        relative=relative,
        rounding=rounding,
        whole=is_whole,
        agrees=relative <= noise,
        tells=noise < 1 or relative <= _ROUNDINGS * step,
    )


def _largest_absolute_and_relative_difference(requested: Any, result: Any) -> tuple[float, float]:
    """Return the largest absolute difference of two arrays, and the same relative to the largest
    element of the first.

    Of whole numbers and truth values the share of the elements that differ.
    """
    import numpy as np

    wide = [array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
            for array in (requested, result)]  # fmt: skip
    same = (wide[0] == wide[1]) | (np.isnan(wide[0]) & np.isnan(wide[1]))
    with np.errstate(all="ignore"):
        gaps = np.where(same, 0.0, np.abs(wide[0] - wide[1]))
    absolute = float(gaps.max(initial=0.0))
    if requested.dtype.kind in _WHOLE:
        return absolute, float((~same).mean()) if same.size else 0.0
    finite = np.abs(wide[0][np.isfinite(wide[0])])
    largest = float(finite.max(initial=0.0))
    return absolute, absolute / largest if largest else absolute


def _onnxruntime_message(error: Exception) -> str:
    """Return the message of an onnxruntime error on one line, without its error code."""
    line = " ".join(str(error).split())
    return line.rpartition("[ONNXRuntimeError] : ")[2].partition(" : ")[2] or line
