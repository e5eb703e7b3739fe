"""Compute the bytes of tensors, and make weights that have a shape but no data."""

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any, BinaryIO

from crossflops.ir.graph import TensorSpec

# TensorProto.DataType, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
ELEMENT_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    8: "string", 9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
    14: "complex64", 15: "complex128", 16: "bfloat16", 17: "float8e4m3fn",
    18: "float8e4m3fnuz", 19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4",
    23: "float4e2m1", 24: "float8e8m0", 25: "uint2", 26: "int2", 27: "float6e2m3",
    28: "float6e3m2",
}  # fmt: skip

FLOAT_DATA, INT32_DATA, STRING_DATA, INT64_DATA = 4, 5, 6, 7
RAW_DATA, DOUBLE_DATA, UINT64_DATA = 9, 10, 11
FIELDS = (
    *(FLOAT_DATA, INT32_DATA, STRING_DATA, INT64_DATA),
    *(RAW_DATA, DOUBLE_DATA, UINT64_DATA),
)
# The note that a tensor keeps of a large payload that is left out, and was no row of raw bytes:
# its elements were written one by one, in the field of their type.
LISTED = "elements are listed"
MOST_ELEMENTS = (1 << 63) - 1
_MOST_DIMENSIONS = 64
_LONGEST_VARINT = 10
_PACKED = {"int4": 2, "uint4": 2, "float4e2m1": 2, "int2": 4, "uint2": 4}  # elements per int32


def data_size_problem(dims: tuple[int, ...], element_type: int, field: int, nbytes: int) -> str:
    """Return a text on why `nbytes` of data are wrong for a tensor of these dims and type, or "".

    The payload of a field of varints is not read, so for these the size has only bounds.
    """
    dtype = ELEMENT_TYPES.get(element_type, "")
    if field == STRING_DATA or not dtype or dtype == "string":
        return ""
    elements = prod(dims)
    if field == RAW_DATA:
        least = most = TensorSpec("", dtype, dims).nbytes
    elif field in (FLOAT_DATA, DOUBLE_DATA):
        width = 4 if field == FLOAT_DATA else 8
        least = most = elements * width * (2 if dtype.startswith("complex") else 1)
    else:
        least = -(-elements // _PACKED.get(dtype, 1))
        most = least * _LONGEST_VARINT
    if least <= nbytes <= most:
        return ""
    stored = "x".join(map(str, dims)) or "scalar"
    return f"declares {stored} {dtype}, which takes {least} bytes, but holds {nbytes} bytes"


@lru_cache(maxsize=4096)  # a model has few shapes
def tensor_dims_problem(dims: tuple[int, ...]) -> str:
    """Return a text on why the sizes of a tensor are wrong (negative, too large), or ""."""
    if len(dims) > _MOST_DIMENSIONS:
        return f"has {len(dims)} dimensions, more than {_MOST_DIMENSIONS}"
    if min(dims, default=0) < 0:
        return f"has the negative dimension {min(dims)}"
    if prod(dims) > MOST_ELEMENTS:
        return f"has {'x'.join(map(str, dims))} elements, more than 2^63"
    return ""


# Weights that are in a model by shape alone: one number, which a count does not write out.
#
# Such a tensor says that its data lie in a file, "(one number)", which there never is.

NUMBER = 0.5  # all elements of such weights: no bias of zeros, no scale of ones
_PLACE = "(one number)"
_LARGE = 1024  # elements from which on it is worth it
_CHUNK = 1 << 18  # elements that are written at once


def is_missing_weight_array(array: Any) -> bool:
    """Return whether a NumPy array is large and each element is `NUMBER` (a missing weight)."""
    if array.dtype.kind != "f" or array.size <= _LARGE:
        return False
    if not any(array.strides):
        return bool(array.flat[0] == NUMBER)
    return bool(array.flat[0] == NUMBER and array.flat[-1] == NUMBER and (array == NUMBER).all())


def drop_tensor_data(tensor: Any) -> Any:
    """Return a TensorProto of the same name, type and shape, without data."""
    tensor.ClearField("raw_data")
    tensor.data_location = tensor.EXTERNAL
    del tensor.external_data[:]
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", _PLACE
    return tensor


def replace_sparse_initializers(graph: Any) -> None:
    """Replace the sparse initializers of a graph by dense ones, in place.

    ONNX's shape inference takes no operator's word for a sparse one.
    """
    for sparse in graph.sparse_initializer:
        dense = graph.initializer.add(name=sparse.values.name, dims=sparse.dims)
        dense.data_type = sparse.values.data_type
        drop_tensor_data(dense)
    del graph.sparse_initializer[:]


def is_dataless_tensor(tensor: Any) -> bool:
    """Return whether a TensorProto has no data."""
    return any(entry.key == "location" and entry.value == _PLACE for entry in tensor.external_data)


def fill_model_weights(data: bytes) -> bytes:
    """Return the bytes of an ONNX model with `NUMBER` as the elements of tensors without data."""
    if _PLACE.encode() not in data:
        return data
    from crossflops.load.protobuf import parse_model_proto

    model = parse_model_proto(data)
    for tensor in all_graph_tensors(model.graph):
        if is_dataless_tensor(tensor):
            fill_tensor_data(tensor)
    written: bytes = model.SerializeToString()
    return written


def fill_tensor_data(tensor: Any) -> None:
    """Write the value `NUMBER` for every element into a TensorProto, in place."""
    weight = UniformWeight(tensor)
    del tensor.external_data[:]
    tensor.ClearField("data_location")
    tensor.raw_data = weight.element * weight.elements


class UniformWeight:
    """A weight of `nbytes` bytes with equal elements, for a tensor without data."""

    def __init__(self, tensor: Any) -> None:
        """Read the element type and the sizes of a TensorProto that has no data."""
        import numpy as np
        from onnx import helper

        kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        self.element = np.array(NUMBER, kind).tobytes()
        self.elements = prod(tensor.dims)
        self.nbytes = len(self.element) * self.elements

    def tofile(self, file: BinaryIO) -> None:
        """Write all elements to the file, as raw bytes."""
        most = self.element * _CHUNK
        for written in range(0, self.elements, _CHUNK):
            file.write(most[: len(self.element) * (self.elements - written)])


def has_typed_field_data(tensor: Any) -> bool:
    """Return whether a TensorProto has or had its elements in a typed field, not as raw bytes."""
    fields_of_types = ("int32_data", "float_data", "int64_data", "double_data", "uint64_data")
    return tensor.doc_string == LISTED or any(getattr(tensor, name) for name in fields_of_types)


def all_graph_tensors(graph: Any) -> Iterator[Any]:
    """Yield all tensors stored in a graph, also in attributes and nested graphs."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else ():
                yield from all_graph_tensors(body)
