"""Frameworks beside PyTorch, each in a folder of its own, and which of them made a model.

Such a folder has `kinds.is_model`, which imports no framework; `inputs.make`, `.from_file` and
`.given` (arguments from specs, from an .npz file, from what Python callers give); `require`, which
raises MissingExtraError; and `program`. All but the first are imported when such a model is there.
"""

import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from crossflops.frontends.inputs import arguments, from_npz
from crossflops.frontends.jax.kinds import is_model as is_jax
from crossflops.frontends.sklearn.kinds import is_model as is_sklearn
from crossflops.frontends.tensorflow.kinds import is_model as is_tensorflow
from crossflops.frontends.tensorflow.kinds import is_path
from crossflops.ir.tensor import TensorSpec

Given: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
NAMES = "PyTorch, Keras, TensorFlow, JAX or scikit-learn"
_KINDS: Mapping[str, Callable[[object], bool]] = {
    "tensorflow": is_tensorflow,
    "sklearn": is_sklearn,
    "jax": is_jax,  # last: where JAX is loaded, anything callable may be a function of it
}
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
CONTROLLED = ("jax", "tensorflow")  # whose loops and branches have names that a caller can use
_ROOTS = ("tensorflow", "keras", "sklearn", "jax", "flax", "skl2onnx")


def is_pytorch(model: object) -> bool:
    """Whether this is a torch.nn.Module; asks only what has been imported already."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def opened(model: Any) -> tuple[Any, Any]:
    """The module in a torch.export.ExportedProgram, and the inputs that it was exported with.

    Any other model as it is, and None.
    """
    export = sys.modules.get("torch.export")
    if export is None or not isinstance(model, export.ExportedProgram):
        return model, None
    module = model.module()
    for name in ("train", "eval"):  # which raise there; the nodes stay in the mode that they have
        vars(module).pop(name, None)
    return module, model.example_inputs


def framework_of(model: object) -> str | None:
    """The name of the folder, None for a model of PyTorch and for what is no model."""
    if is_pytorch(model):
        return None
    return next((name for name, is_model in _KINDS.items() if is_model(model)), None)


def package(name: str) -> ModuleType:
    """The folder of a framework."""
    return importlib.import_module(f"crossflops.frontends.{name}")


def arguments_for(
    name: str, specs: Sequence[TensorSpec], inputs_file: str | None, own: Any
) -> Given:
    """Inputs from a file, from specs, or those that came with the model. Raises InputError."""
    inputs = importlib.import_module(f"crossflops.frontends.{name}.inputs")
    found: Given
    if inputs_file is not None:
        found = inputs.from_file(inputs_file)
    elif specs or own is None:
        found = inputs.make(specs)
    else:
        found = inputs.given(own)
    return found


def arrays_for(inputs_file: str | None, specs: Sequence[TensorSpec], own: Any) -> Given | None:
    """What `arguments_for` made shapes of, as it was given; None where only shapes were."""
    if inputs_file is not None:
        return from_npz(inputs_file, lambda array: array)
    if specs or own is None:
        return None
    found = arguments(own)
    return found if _hold_values(found) else None


def _hold_values(given: Any) -> bool:
    """Whether any of these is more than a shape, or a number that the model is traced for."""
    if isinstance(given, Mapping):
        return any(map(_hold_values, given.values()))
    if isinstance(given, list | tuple):
        return any(map(_hold_values, given))
    if isinstance(given, _PLAIN):
        return False
    return hasattr(given, "__array__") or not hasattr(given, "shape")


def make(name: str, specs: Sequence[TensorSpec]) -> Any:
    """Inputs of these specs, as Python callers would give them."""
    return importlib.import_module(f"crossflops.frontends.{name}.inputs").make(specs)


def may_be_of(target: str) -> bool:
    """Whether a target may be a model of one of these: a guess by its words, nothing is run."""
    path = Path(target.rpartition(":")[0] or target)
    if path.suffix != ".py":
        return is_path(target) or path.name.partition(".")[0] in _ROOTS
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(rf"^\s*(?:import|from)\s+(?:{'|'.join(_ROOTS)})\b", text, re.M) is not None
