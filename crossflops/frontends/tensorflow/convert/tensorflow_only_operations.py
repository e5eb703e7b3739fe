"""Replace TensorFlow operations that ONNX lacks: by tables, or by values of a TensorFlow run.

A frozen function takes its tables as arguments. For the converter each is a table that the graph
makes, so that it is no input of the model and results have the shapes of their keys. For a run of
the ONNX model, what operations make that ONNX has not comes from a run of TensorFlow.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from crossflops.frontends.decided import Runnable
from crossflops.load.order import node_subgraphs
from crossflops.load.protobuf import parse_model_proto

_TABLE = "MutableHashTableV2"  # of whose values TensorFlow knows the shape: each is one number
_WORD = "a"  # a text that is made up
_TEXT = 8  # TensorProto.STRING


def create_lookup_tables(graph: Any) -> None:
    """Change a GraphDef, in place, so that it creates its lookup tables itself instead of taking
    them as inputs.

    So does every function that looks values up: TensorFlow does not know the types of a table that
    is passed to it. All other inputs with a handle are constants in a frozen graph.
    """
    from tensorflow.core.framework import types_pb2

    inside = [node for function in graph.library.function for node in function.node_def]
    readers = [node for node in (*graph.node, *inside) if _is_table_lookup(node)]
    for node in graph.node:
        if node.op == "Placeholder" and node.attr["dtype"].type == types_pb2.DT_RESOURCE:
            own = [reader for reader in readers if reader.input[0].partition(":")[0] == node.name]
            _turn_into_table_creation(node, next(iter(own or readers), None))
    for function in graph.library.function:
        for reader in [node for node in function.node_def if _is_table_lookup(node)]:
            table = function.node_def.add(name=f"{reader.name}/table")
            _turn_into_table_creation(table, reader)
            reader.input[0] = f"{table.name}:table_handle:0"


def _turn_into_table_creation(node: Any, reader: Any) -> None:
    """Change a node, in place, so that it creates a lookup table with its reader's types."""
    from tensorflow.core.framework import attr_value_pb2, types_pb2

    node.op = _TABLE
    node.attr.clear()
    for name, provided, usual in (
        ("key_dtype", "Tin", types_pb2.DT_STRING),
        ("value_dtype", "Tout", types_pb2.DT_INT64),
    ):
        dtype = reader.attr[provided].type if reader is not None else usual
        node.attr[name].CopyFrom(attr_value_pb2.AttrValue(type=dtype))


def _is_table_lookup(node: Any) -> bool:
    """Return whether a node of a GraphDef looks up keys in a table."""
    return node.op.startswith("LookupTable") and "Tin" in node.attr and bool(node.input)


def input_tensors_without_tables(function: Any) -> list[Any]:
    """Return the input tensors of a frozen function, without the lookup tables it captures."""
    return [tensor for tensor in function.inputs if tensor.dtype.name != "resource"]


def with_tensorflow_results_as_inputs(
    data: bytes, domain: str, frozen: Any, source: Any, provided: Mapping[str, Any]
) -> Runnable:
    """Return an ONNX model in which operations only TensorFlow can run are inputs, and values.

    Results of operations on text become inputs as well. The values are those of one run of the
    `frozen` function, on the inputs `provided` by name, otherwise on made-up numbers and words.
    `source` is the function that was frozen, which has the tables.
    """
    model = parse_model_proto(data)
    outside = list(_nodes_that_need_tensorflow(model.graph, domain, frozen.graph))
    if not outside:
        return data, provided
    for node in outside:
        model.graph.node.remove(node)
    read = {name for node in model.graph.node for name in _all_read_names(node)}
    # the shapes of others follow, and the converter may have made another tensor of the name
    made = {
        name
        for node in outside
        for name in node.output
        if name in read or _has_domain(node, domain)
    }
    requested = [tensor for tensor in _tensors_with_values(frozen.graph) if tensor.name in made]
    feeds = {
        tensor.name: _value_or_random(tensor, provided)
        for tensor in input_tensors_without_tables(frozen)
    }
    tables = {inner.name: outer for outer, inner in source.graph.captures}
    values = _fetch_values(frozen, requested, {**tables, **feeds})
    _make_values_inputs(model.graph, values)
    inputs = {value.name for value in model.graph.input}
    known = {name: value for name, value in {**feeds, **values}.items() if name in inputs}
    return bytes(model.SerializeToString()), known


def _tensors_with_values(graph: Any) -> Iterator[Any]:
    """Yield the tensors of a TensorFlow graph that have values (no handles of resources)."""
    for operation in graph.get_operations():
        for tensor in operation.outputs:
            if tensor.dtype.name not in ("resource", "variant"):
                yield tensor


def _nodes_that_need_tensorflow(graph: Any, domain: str, source: Any) -> Iterator[Any]:
    """Yield the ONNX nodes that only TensorFlow can run: of its domain, on text, or between.

    A node that the converter wrote between two of these has a result that TensorFlow's graph does
    not have.
    """
    tensors = {tensor.name: tensor for tensor in _tensors_with_values(source)}
    texts = {name for name, tensor in tensors.items() if tensor.dtype.name == "string"}
    texts |= {stored.name for stored in graph.initializer if stored.data_type == _TEXT}
    for node in graph.node:
        if _has_domain(node, domain) or not texts.isdisjoint(_all_read_names(node)):
            texts.update(name for name in node.output if name not in tensors)
            yield node


def _has_domain(node: Any, domain: str) -> bool:
    """Return whether a node, or a node in its bodies, has an operator of this domain."""
    inner = [inner for body in node_subgraphs(node) for inner in body.node]
    return node.domain == domain or any(_has_domain(stored, domain) for stored in inner)


def _fetch_values(frozen: Any, tensors: list[Any], provided: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of these tensors by name, from one run of a frozen function."""
    import tensorflow as tf

    if not tensors:
        return {}
    arguments = {
        tensor.op.name: tf.convert_to_tensor(provided[tensor.name]) for tensor in frozen.inputs
    }
    values = frozen.prune(list(frozen.inputs), list(tensors))(**arguments)
    return {
        tensor.name: _to_fixed_length_array(value)
        for tensor, value in zip(tensors, values, strict=True)
    }


def _to_fixed_length_array(tensor: Any) -> Any:
    """Return a tensor as a NumPy array; texts have a fixed length in it."""
    values = np.asarray(tensor.numpy())
    texts = values.dtype == object
    return np.char.decode(values.astype(bytes), errors="replace") if texts else values


def _all_read_names(node: Any) -> Iterator[str]:
    """Yield the names of the values that a node reads, also in its bodies."""
    yield from node.input
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                yield from _all_read_names(inner)
            yield from (value.name for value in attribute.g.output)


def _value_or_random(tensor: Any, provided: Mapping[str, Any]) -> Any:
    """Return the value of an input that the caller gives, or a random one."""
    if tensor.name in provided:
        return provided[tensor.name]
    shape, kind = tensor.shape.as_list(), tensor.dtype.as_numpy_dtype
    if tensor.dtype.name == "string":
        return np.full(shape, _WORD)
    if tensor.dtype.is_floating:
        return np.random.default_rng(0).standard_normal(shape).astype(kind)
    return np.zeros(shape, kind)


def _make_values_inputs(graph: Any, values: Mapping[str, Any]) -> None:
    """Make these values inputs of a graph, and results that no node reads outputs, in place.

    A graph without a node passes the values on.
    """
    from onnx import helper

    for name, value in values.items():
        kind = _TEXT if value.dtype.kind in "US" else helper.np_dtype_to_tensor_dtype(value.dtype)
        graph.input.append(helper.make_tensor_value_info(name, kind, value.shape))
    if not graph.node:
        graph.node.extend(
            helper.make_node("Identity", [name], [f"{name}/given"], name=name) for name in values
        )
    read = {name for node in graph.node for name in _all_read_names(node)}
    made = [name for node in graph.node for name in node.output if name]
    del graph.output[:]
    for name in made:
        if name not in read:
            graph.output.add(name=name)
    for value in [value for value in graph.input if value.name not in {*read, *values}]:
        graph.input.remove(value)
