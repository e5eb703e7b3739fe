"""Names are texts: protobuf hands out bytes where a file holds what is no UTF-8."""

from collections.abc import Iterable
from typing import Any

from crossflops.errors import TargetError

_HINT = "the file is damaged or was made by hand: export the model again"


def check(model: Any) -> None:
    """Raise TargetError, which says where, for a name that is no text, or none of an operator."""
    _texts("the model", (one.domain for one in model.opset_import))
    _graph(model.graph, "the graph")
    for number, function in enumerate(model.functions):
        where = f"function {number}"
        _texts(where, (function.name, function.domain, function.overload))
        _texts(where, (*function.input, *function.output, *function.attribute))
        _texts(where, (one.domain for one in function.opset_import))
        _attributes(function.attribute_proto, where)
        _nodes(function.node, where)


def _graph(graph: Any, where: str) -> None:
    _texts(where, (graph.name, *(tensor.name for tensor in graph.initializer)))
    _texts(where, (tensor.values.name for tensor in graph.sparse_initializer))
    for values in (graph.input, graph.output, graph.value_info):
        _texts(where, (value.name for value in values))
        for value in values:
            _texts(where, (dim.dim_param for dim in value.type.tensor_type.shape.dim))
    _nodes(graph.node, where)


def _nodes(nodes: Iterable[Any], where: str) -> None:
    for number, node in enumerate(nodes):
        _texts(
            f"node {number} of {where}",
            (node.op_type, node.domain, node.overload, node.name, *node.input, *node.output),
        )
        if not node.op_type:
            raise TargetError(f"node {number} of {where} has no operator", _HINT)
        if node.metadata_props:
            notes = (text for one in node.metadata_props for text in (one.key, one.value))
            _texts(f"node {number} of {where}", notes)
        _attributes(node.attribute, f"node {number} of {where}")


def _attributes(attributes: Iterable[Any], where: str) -> None:
    for one in attributes:
        _texts(where, (one.name, one.ref_attr_name))
        for body in (*((one.g,) if one.HasField("g") else ()), *one.graphs):
            _graph(body, f"a subgraph of {where}")


def _texts(where: str, texts: Iterable[Any]) -> None:
    try:
        "".join(texts)
    except TypeError:
        raise TargetError(f"{where} has a name that is no text", _HINT) from None
