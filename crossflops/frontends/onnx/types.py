"""Read and write types, shapes and attributes of a file as plain values."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from crossflops.ir.graph import Attribute
from crossflops.load.protobuf import onnx_message_module

Shape: TypeAlias = tuple[int, ...] | None


class Type(NamedTuple):
    """A tensor's element type (a number of ONNX) and its shape, None if a size is unknown."""

    dtype: int
    shape: Shape


def shape_from_proto(proto: Any) -> Shape:
    """Return the shape in a TypeProto, or None if one of its sizes is not a number."""
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return None
    sizes = []
    for dim in tensor.shape.dim:
        if not dim.HasField("dim_value"):
            return None
        sizes.append(dim.dim_value)
    return tuple(sizes)


def is_tensor_type(proto: Any) -> bool:
    """Return whether a TypeProto is the type of a tensor, or has no type."""
    return proto.WhichOneof("value") in (None, "tensor_type")


def tensor_type(proto: Any) -> Type | None:
    """Return the type in a TypeProto, or None if it is the type of another value than a tensor."""
    return _decode_type(proto.SerializeToString())


@lru_cache(maxsize=4096)
def _decode_type(written: bytes) -> Type | None:
    """Return the type in a serialized TypeProto, or None if it is not of a tensor."""
    proto = onnx_message_module().TypeProto.FromString(written)
    return (
        Type(proto.tensor_type.elem_type, shape_from_proto(proto))
        if is_tensor_type(proto)
        else None
    )


def graph_value_types(graph: Any) -> dict[str, Type]:
    """Return by name the types of all values that a graph declares or stores."""
    types = {
        value.name: stated
        for values in (graph.value_info, graph.output, graph.input)
        for value in values
        if (stated := tensor_type(value.type)) is not None
    }
    return types | initializer_types(graph)


def initializer_types(graph: Any) -> dict[str, Type]:
    """Return the types of the tensors that a graph stores, by name."""
    return {
        tensor.name: Type(tensor.data_type, tuple(tensor.dims[:])) for tensor in graph.initializer
    }


def write_tensor_type(proto: Any, shape: tuple[int, ...], dtype: int) -> None:
    """Write a shape into a TypeProto, in place, and the element type unless it is 0."""
    tensor = proto.tensor_type
    if dtype:
        tensor.elem_type = dtype
    tensor.shape.Clear()
    tensor.shape.SetInParent()
    for size in shape:
        tensor.shape.dim.add().dim_value = size


def remove_shape(proto: Any) -> None:
    """Remove the shape from the TypeProto of a tensor, in place."""
    proto.tensor_type.ClearField("shape")


# Attributes of a node as plain values.

# By AttributeProto.AttributeType.
_READ: dict[int, Callable[[Any], Attribute]] = {
    1: lambda attribute: attribute.f,
    2: lambda attribute: attribute.i,
    3: lambda attribute: attribute.s.decode(errors="replace"),
    6: lambda attribute: tuple(attribute.floats[:]),
    7: lambda attribute: tuple(attribute.ints[:]),
    8: lambda attribute: tuple(text.decode(errors="replace") for text in attribute.strings),
}


def attribute_values(written: Iterable[Any]) -> dict[str, Attribute]:
    """Return a node's attributes by name that are numbers or texts, or lists of these."""
    values: dict[str, Attribute] = {}
    for attribute in written:
        read = _READ.get(attribute.type)
        if read is not None:
            values[attribute.name] = read(attribute)
    return values
