"""Check the names, order and sizes of a model before it is counted. Nothing is guessed."""

import warnings
from collections.abc import Iterable
from typing import Any

from crossflops.errors import CrossflopsWarning, TargetError
from crossflops.load import payload
from crossflops.load.order import (
    attribute_subgraphs,
    node_subgraphs,
    onnx_node_label,
    sort_topologically,
    value_names_read_by_node,
)
from crossflops.load.payload import replace_sparse_initializers

_AGAIN = "the file is damaged or was not written by an exporter; export the model again"
_EXTERNAL = 1  # TensorProto.DataLocation
_PAYLOADS = (("float_data", payload.FLOAT_DATA, 4), ("double_data", payload.DOUBLE_DATA, 8))


def validate_and_sort_model(model: Any) -> None:
    """Check names, order and sizes of a parsed ONNX model, and sort its nodes, in place.

    Sparse initializers become dense ones, a Constant keeps the first of several values, and the
    operators of ONNX get the one name of their domain that is used here: "".

    Negative sizes of values are left open.

    Raises TargetError, which names the node or the tensor: no graph, a name that is no text, or
    none of an operator, a value that is made twice or not at all, a cycle, an overflowing shape, a
    negative one of a stored tensor, a payload of another size.
    """
    if not model.graph.node:
        raise TargetError("the model has no nodes", "export the model again")
    _check_names_are_text("the model", (imported.domain for imported in model.opset_import))
    _normalize_default_domain(model.opset_import)
    _check_graph(model.graph, set(), "the graph")
    for number, function in enumerate(model.functions):
        where = f"function {number}"
        _check_names_are_text(where, (function.name, function.domain, function.overload))
        _check_names_are_text(where, (*function.input, *function.output, *function.attribute))
        _check_names_are_text(where, (imported.domain for imported in function.opset_import))
        _normalize_default_domain((function, *function.opset_import))
        _check_names_are_text(where, (default.name for default in function.attribute_proto))
        names = _check_nodes(function.node, set(function.input), set(), where)
        for body in attribute_subgraphs(function.attribute_proto):
            _check_graph(body, names, f"a subgraph of {where}")
        _check_outputs_defined(function.output, names, function.name)


def _check_graph(graph: Any, outer: set[str], where: str) -> None:
    """Check names, types, order and tensors of a graph and its subgraphs. Raises TargetError."""
    stored = [tensor.name for tensor in graph.initializer]
    stored += [tensor.values.name for tensor in graph.sparse_initializer]
    provided = [value.name for value in graph.input]
    others = (value.name for value in (*graph.output, *graph.value_info))
    _check_names_are_text(where, (graph.name, *stored, *provided, *others))
    _check_unique_names(provided, f"graph {graph.name!r}")
    _check_unique_names(stored, f"graph {graph.name!r}")
    for tensor in graph.initializer:
        if wrong := _tensor_problem(tensor):
            raise TargetError(f"initializer {tensor.name!r} {wrong}", _AGAIN)
    replace_sparse_initializers(graph)
    sound: set[bytes] = set()  # most values have one of a few types
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type
        written = kind.SerializeToString()
        if written not in sound:
            clear_negative_sizes(kind)
            _check_declared_sizes(value)
            if kind.SerializeToString() == written:
                sound.add(written)
    names = _check_nodes(graph.node, {*stored, *provided}, outer, where)
    _check_outputs_defined((value.name for value in graph.output), names, graph.name)


def _check_nodes(nodes: Any, provided: set[str], outer: set[str], where: str) -> set[str]:
    """Check the nodes of a graph and sort them in run order, in place; return the names of all
    values that they can read.

    `provided` are those that no node makes, `outer` those that it sees around itself.
    """
    made = {*provided, ""}
    in_order, number = True, 0
    holders = []
    try:
        for number, node in enumerate(nodes):
            operator, domain = node.op_type, node.domain
            # each look at a field of a message makes an object: one for each field
            read, results, attributes = node.input[:], node.output[:], node.attribute[:]
            texts = [operator, domain, node.overload, node.name, *read, *results]
            for entry in node.metadata_props[:]:
                texts += (entry.key, entry.value)
            for attribute in attributes:
                texts += (attribute.name, attribute.ref_attr_name)
            "".join(texts)
            if domain == "ai.onnx":
                node.domain = ""
            if not operator:
                raise TargetError(f"node {number} of {where} has no operator", _AGAIN)
            if attributes:
                if operator == "Constant" and len(attributes) > 1:
                    _keep_first_constant_value(node, number)
                    del attributes[1:]
                _check_attribute_tensors(node, number, attributes)
                if attribute_subgraphs(attributes):
                    holders.append((number, node))
                    read = list(value_names_read_by_node(node))
            in_order = in_order and (made.issuperset(read) or made.issuperset({*read} - outer))
            for name in results:
                if name in made and name:
                    who = onnx_node_label(node, number)
                    raise TargetError(
                        f"node {who!r} produces {name!r} a second time in {where}", _AGAIN
                    )
                made.add(name)
    except TypeError:
        raise _invalid_text_error(f"node {number} of {where}") from None
    names = (outer | made) - {""}
    for number, node in holders:
        for body in node_subgraphs(node):
            _check_graph(body, names, f"a subgraph of node {number} of {where}")
    if not in_order:
        copies = [
            type(node).FromString(node.SerializeToString())
            for node in sort_topologically(list(nodes), provided | outer)
        ]
        del nodes[:]
        nodes.extend(copies)
    return names


def _check_attribute_tensors(node: Any, number: int, attributes: Iterable[Any]) -> None:
    """Raise TargetError if a tensor in a node's attributes has a bad size or type."""
    for attribute in attributes:
        if attribute.HasField("t") and (wrong := _tensor_problem(attribute.t)):
            where = f"attribute {attribute.name!r} of node {onnx_node_label(node, number)!r}"
            raise TargetError(f"{where} {wrong}", _AGAIN)


def _keep_first_constant_value(node: Any, number: int) -> None:
    """Remove all attributes but the first of a Constant node, in place, as onnxruntime does.

    Source: onnxruntime/core/framework/tensorprotoutils.cc (ConstantNodeProtoToTensorProto).
    """
    first = node.attribute[0].name
    del node.attribute[1:]
    who = f"node {onnx_node_label(node, number)!r} (Constant) has more than one value"
    warnings.warn(f"{who}; the first, {first!r}, is used", CrossflopsWarning, stacklevel=2)


def _check_unique_names(names: list[str], where: str) -> None:
    """Raise TargetError if two inputs or initializers have the same name."""
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise TargetError(f"{where} has two inputs or initializers {double!r}", _AGAIN)


def _check_outputs_defined(outputs: Iterable[str], known: set[str], where: str) -> None:
    """Raise TargetError if an output of a graph is not among the known values."""
    for name in outputs:
        if name and name not in known:
            raise TargetError(f"no node produces the output {name!r} of {where!r}", _AGAIN)


def _check_declared_sizes(value: Any) -> None:
    """Raise TargetError if a value is declared with an invalid dimension name or size."""
    dims = value.type.tensor_type.shape.dim
    _check_names_are_text(f"the type of {value.name!r}", (dim.dim_param for dim in dims))
    if wrong := payload.tensor_dims_problem(tuple(dim.dim_value for dim in dims)):
        raise TargetError(f"the tensor {value.name!r} {wrong}", _AGAIN)


def clear_negative_sizes(kind: Any) -> None:
    """Clear negative sizes in a TypeProto, in place, so that they are unknown.

    Exporters write -1 for a size that they do not know, and onnxruntime takes any negative size
    for one.
    """
    stored = kind.WhichOneof("value")
    if stored in ("sequence_type", "optional_type"):
        clear_negative_sizes(getattr(kind, stored).elem_type)
    elif stored in ("tensor_type", "sparse_tensor_type"):
        for dim in getattr(kind, stored).shape.dim:
            if dim.dim_value < 0:
                dim.ClearField("dim_value")


def _tensor_problem(tensor: Any) -> str:
    """Return a text on what is wrong with the shape or the data of a tensor, or ""."""
    dims = tuple(tensor.dims[:])
    if wrong := payload.tensor_dims_problem(dims):
        return wrong
    if tensor.data_location == _EXTERNAL:
        return ""
    stored = [(payload.RAW_DATA, len(tensor.raw_data))] if tensor.HasField("raw_data") else []
    stored += [
        (number, len(values) * width)
        for name, number, width in _PAYLOADS
        if (values := getattr(tensor, name))
    ]
    wrongs = (payload.data_size_problem(dims, tensor.data_type, number, n) for number, n in stored)
    return next(filter(None, wrongs), "")


def _normalize_default_domain(protos: Iterable[Any]) -> None:
    """Replace the domain "ai.onnx" of nodes or operator sets by its short form "", in place."""
    for proto in protos:
        if proto.domain == "ai.onnx":
            proto.domain = ""


# Names are texts: protobuf hands out bytes where a file holds what is no UTF-8.


def _check_names_are_text(where: str, texts: Iterable[Any]) -> None:
    """Raise TargetError if one of the names is not valid UTF-8 text."""
    try:
        "".join(texts)
    except TypeError:
        raise _invalid_text_error(where) from None


def _invalid_text_error(where: str) -> TargetError:
    """Return the error for a name that is not valid UTF-8 text."""
    return TargetError(f"{where} has a name that is not valid UTF-8 text", _AGAIN)
