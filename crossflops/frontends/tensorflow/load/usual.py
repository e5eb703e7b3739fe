"""The inputs that a model of Keras, or a SavedModel, says of itself."""

import sys
from collections.abc import Mapping
from typing import Any

from crossflops.frontends.inputs import DTYPES
from crossflops.frontends.named import Named
from crossflops.frontends.tensorflow.load.function import active_signature, inputs_struct
from crossflops.ir.graph import TensorSpec


def usual_input(model: Any) -> Named | None:
    """The inputs by their names, an open batch as 1; None where another size or a type is open."""
    wanted = _model_input_tensors(model)
    specs = [_usual_input_spec(name, tensor) for name, tensor in wanted.items()]
    whole = tuple(spec for spec in specs if spec is not None)
    if not whole or len(whole) < len(specs):
        return None
    open_batch = any(tuple(tensor.shape)[:1] == (None,) for tensor in wanted.values())
    origin = "the model itself" + (", with 1 for its open batch" if open_batch else "")
    return Named(model=model, specs=whole, origin=origin)


def _model_input_tensors(model: Any) -> Mapping[str, Any]:
    """What has the shape and the type of each input; nothing where the model does not tell."""
    keras = sys.modules.get("keras")
    layer: Any = getattr(keras, "Layer", ())
    if isinstance(model, layer):
        wanted = inputs_struct(model)
        if wanted is None:
            return {}
        if isinstance(wanted, dict):
            return wanted
        tensors = {tensor.name: tensor for tensor in model.inputs}
        return tensors if len(tensors) == len(model.inputs) else {}
    if getattr(model, "signatures", None) and (name := active_signature(model)) is not None:
        return dict(model.signatures[name].structured_input_signature[1])
    return {}


def _usual_input_spec(name: str, tensor: Any) -> TensorSpec | None:
    shape = getattr(tensor, "shape", None)
    if shape is None or getattr(shape, "rank", 0) is None:
        return None
    sizes = tuple(1 if place == 0 and size is None else size for place, size in enumerate(shape))
    dtype = getattr(tensor.dtype, "name", tensor.dtype)
    if dtype not in DTYPES or not all(isinstance(size, int) for size in sizes):
        return None
    return TensorSpec(name, dtype, sizes, "input")
