"""Weights that are in a model by shape alone: one number, which nobody has to write out to count.

Such a tensor says that its data lie in a file, "(one number)", which there never is.
"""

from collections.abc import Iterator
from typing import Any

NUMBER = 0.5  # all elements of such weights: no bias of zeros, no scale of ones
_PLACE = "(one number)"
_LARGE = 1024  # elements from which on it is worth it


def is_uniform(array: Any) -> bool:
    """Whether an array of NumPy is large and all of its elements are `NUMBER`."""
    if array.dtype.kind != "f" or array.size <= _LARGE:
        return False
    if not any(array.strides):
        return bool(array.flat[0] == NUMBER)
    return bool(array.flat[0] == NUMBER and array.flat[-1] == NUMBER and (array == NUMBER).all())


def hollow(tensor: Any) -> Any:
    """A TensorProto that has its name, type and shape, made one without data."""
    tensor.ClearField("raw_data")
    tensor.data_location = tensor.EXTERNAL
    del tensor.external_data[:]
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", _PLACE
    return tensor


def densify(graph: Any) -> None:
    """Make the sparse initializers of a graph dense, in place, as runtimes do that load them.

    ONNX's shape inference takes no operator's word for a sparse one.
    """
    for sparse in graph.sparse_initializer:
        dense = graph.initializer.add(name=sparse.values.name, dims=sparse.dims)
        dense.data_type = sparse.values.data_type
        hollow(dense)
    del graph.sparse_initializer[:]


def is_hollow(tensor: Any) -> bool:
    """Whether a TensorProto is one without data."""
    return any(one.key == "location" and one.value == _PLACE for one in tensor.external_data)


def filled(data: bytes) -> bytes:
    """The bytes of a model with these weights written out, for whoever loads it as a file."""
    if _PLACE.encode() not in data:
        return data
    from crossflops.load.protobuf import parse

    model = parse(data)
    for tensor in _tensors(model.graph):
        if is_hollow(tensor):
            _fill(tensor)
    written: bytes = model.SerializeToString()
    return written


def _fill(tensor: Any) -> None:
    import numpy as np
    from onnx import helper

    one = np.array(NUMBER, helper.tensor_dtype_to_np_dtype(tensor.data_type)).tobytes()
    del tensor.external_data[:]
    tensor.ClearField("data_location")
    tensor.raw_data = one * int(np.prod(tensor.dims, dtype=np.int64))


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else ():
                yield from _tensors(body)
