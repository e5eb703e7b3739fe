"""How many bytes the elements of a tensor take, in each of the ways that ONNX stores them."""

from math import prod

from crossflops.core.tensor import TensorSpec

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
MOST_ELEMENTS = (1 << 63) - 1
_MOST_DIMENSIONS = 64
_LONGEST_VARINT = 10
_PACKED = {"int4": 2, "uint4": 2, "float4e2m1": 2, "int2": 4, "uint2": 4}  # elements per int32


def wrong_size(dims: tuple[int, ...], element_type: int, field: int, nbytes: int) -> str:
    """What is wrong with a payload of so many bytes in that field, or "" when it fits.

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
    held = "x".join(map(str, dims)) or "scalar"
    return f"says {held} {dtype}, which takes {least} bytes, and holds {nbytes}"


def wrong_dims(dims: tuple[int, ...]) -> str:
    """What is wrong with these dimensions, or ""."""
    if len(dims) > _MOST_DIMENSIONS:
        return f"has {len(dims)} dimensions"
    if any(extent < 0 for extent in dims):
        return f"has the negative dimension {min(dims)}"
    if prod(dims) > MOST_ELEMENTS:
        return f"has {'x'.join(map(str, dims))} elements, more than 2^63"
    return ""
