"""Find the default inputs that a Keras model or a SavedModel declares."""

import sys
from collections.abc import Mapping
from typing import Any

from crossflops.frontends.inputs import DTYPES
from crossflops.frontends.named import SIZES, NamedModel
from crossflops.frontends.tensorflow.load.function import active_signature, keras_input_structure
from crossflops.ir.graph import TensorSpec


def default_keras_input(model: Any, sizes: Mapping[str, int] = {}) -> NamedModel | None:
    """Return the inputs that a model declares, with batch 1 if open, and other open sizes by
    `sizes`; None if unknown.
    """
    requested = _model_input_tensors(model)
    specs = [_default_input_spec(name, tensor, sizes) for name, tensor in requested.items()]
    full = tuple(spec for spec in specs if spec is not None)
    if not full or len(full) < len(specs):
        return None
    open_batch = any(tuple(tensor.shape)[:1] == (None,) for tensor in requested.values())
    origin = "the model itself" + (", with 1 for its open batch" if open_batch else "")
    kinds = {kind for tensor in requested.values() for kind in _open_sizes(tensor) if kind}
    used = tuple(kind for kind in SIZES if kind in kinds)
    return NamedModel(model=model, specs=full, origin=origin, sizes=used)


def _open_sizes(tensor: Any) -> tuple[str, ...]:
    """Return for each axis of an input the kind of its size if it is open, "" if not: `batch`,
    `seq` of tokens or of vectors, `image_size`.
    """
    shape = tuple(tensor.shape)
    kind = {2: "seq", 3: "seq", 4: "image_size"}.get(len(shape), "")
    return tuple(
        "" if size is not None else kind if index else "batch" for index, size in enumerate(shape)
    )


def _model_input_tensors(model: Any) -> Mapping[str, Any]:
    """Return by name the input tensors or specs that a model declares; empty if it has none."""
    keras = sys.modules.get("keras")
    layer: Any = getattr(keras, "Layer", ())
    if isinstance(model, layer):
        requested = keras_input_structure(model)
        if requested is None:
            return {}
        if isinstance(requested, dict):
            return requested
        tensors = {tensor.name: tensor for tensor in model.inputs}
        return tensors if len(tensors) == len(model.inputs) else {}
    if getattr(model, "signatures", None) and (name := active_signature(model)) is not None:
        return dict(model.signatures[name].structured_input_signature[1])
    return {}


def _default_input_spec(
    name: str, tensor: Any, caller_sizes: Mapping[str, int]
) -> TensorSpec | None:
    """Return the spec of a declared input, batch 1 if open; None if sizes are open that are not
    in `caller_sizes`.
    """
    shape = getattr(tensor, "shape", None)
    if shape is None or getattr(shape, "rank", 0) is None:
        return None
    known = {"batch": 1, **caller_sizes}
    sizes = tuple(
        known.get(kind) if size is None else size
        for size, kind in zip(shape, _open_sizes(tensor), strict=True)
    )
    dtype = getattr(tensor.dtype, "name", tensor.dtype)
    full = tuple(size for size in sizes if isinstance(size, int))
    if dtype not in DTYPES or len(full) < len(sizes):
        return None
    return TensorSpec(name, dtype, full, "input")
