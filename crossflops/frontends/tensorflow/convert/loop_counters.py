"""Give the loop counters and limits that tf2onnx writes one integer type.

tf2onnx makes int64 of the greatest number of runs, as a Loop of ONNX wants it
(tf2onnx/onnx_opset/controlflow.py: While), leaves the counter that the condition compares with it
as the int32 that it is in TensorFlow, and compares both as floats. Of whole numbers the runs of a
loop follow (`converter.compare_integers_without_casts` takes the casts away), and no runtime
compares two types.
"""

from collections.abc import Mapping
from typing import Any

_COMPARED = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")
_INT32, _INT64 = 6, 7  # TensorProto.DataType


def compare_counters_as_int64(graph: Any, enclosing: Mapping[str, int] = {}) -> None:
    """Let nodes that compare int32 with int64 compare int64 values, also in bodies, in place.

    `enclosing` are the types of the outer values that the graph sees.
    """
    types = {**enclosing, **_element_types_by_name(graph)}
    for node in list(graph.node):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                compare_counters_as_int64(attribute.g, types)
        kinds = [types.get(name) for name in node.input]
        if node.op_type in _COMPARED and set(kinds) == {_INT32, _INT64}:
            index = kinds.index(_INT32)
            node.input[index] = _add_int64_copy(graph, node, node.input[index])


def _element_types_by_name(graph: Any) -> dict[str, int]:
    """Return the element types (ONNX numbers) of a graph's values by name."""
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    values = (*graph.input, *graph.value_info)
    types |= {value.name: value.type.tensor_type.elem_type for value in values}
    for node in graph.node:
        if node.op_type == "Cast":
            types[node.output[0]] = next(a.i for a in node.attribute if a.name == "to")
    return types


def _add_int64_copy(graph: Any, node: Any, name: str) -> str:
    """Add an int64 copy of a value to the graph, by a Cast or a constant; return its name."""
    from onnx import helper, numpy_helper

    wide = f"{node.name or node.output[0]}/{name}"
    for tensor in graph.initializer:
        if tensor.name == name:
            numbers = numpy_helper.to_array(tensor).astype("int64")
            graph.initializer.append(numpy_helper.from_array(numbers, wide))
            return wide
    index = list(graph.node).index(node)
    graph.node.insert(index, helper.make_node("Cast", [name], [wide], name=wide, to=_INT64))
    return wide
