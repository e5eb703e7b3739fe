"""What TensorFlow computes that ONNX has not: lookup tables, and values for a run beside it.

A frozen function takes its tables as arguments. For the converter each is a table that the graph
makes, so that it is no input of the model and results have the shapes of their keys. For a run of
the ONNX model, what operations make that ONNX has not comes from a run of TensorFlow.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from crossflops.load.protobuf import parse

_TABLE = "MutableHashTableV2"  # of whose values TensorFlow knows the shape: each is one number
_WORD = "a"  # a text that is made up
_TEXT = 8  # TensorProto.STRING


def make_tables(graph: Any) -> None:
    """Let the GraphDef make the lookup tables that it is given, in place."""
    from tensorflow.core.framework import attr_value_pb2, types_pb2

    kinds = {node.input[0].partition(":")[0]: node for node in graph.node if _looks_up(node)}
    for node in graph.node:
        reader = kinds.get(node.name)
        if node.op != "Placeholder" or reader is None:
            continue
        node.op = _TABLE
        node.attr.clear()
        for name, given in (("key_dtype", "Tin"), ("value_dtype", "Tout")):
            dtype = reader.attr[given].type or types_pb2.DT_INT64
            node.attr[name].CopyFrom(attr_value_pb2.AttrValue(type=dtype))


def _looks_up(node: Any) -> bool:
    return node.op.startswith("LookupTable") and "Tin" in node.attr and bool(node.input)


def model_inputs(function: Any) -> list[Any]:
    """The inputs of a frozen function, without the tables that it captured."""
    return [tensor for tensor in function.inputs if tensor.dtype.name != "resource"]


def with_values(
    data: bytes, domain: str, frozen: Any, source: Any, given: Mapping[str, Any]
) -> tuple[bytes, Mapping[str, Any]]:
    """The ONNX model in which results of operations of the domain are inputs, and their values.

    So are results of what works on text. The values are those of one run of the `frozen` function, on what is `given` by name, else on numbers
    and words that are made up. `source` is the function that was frozen, which has the tables.
    """
    model = parse(data)
    outside = list(_outside(model.graph, domain, frozen.graph))
    if not outside:
        return data, given
    for node in outside:
        model.graph.node.remove(node)
    made = {name for node in outside for name in node.output}
    wanted = sorted(made & _read(model.graph))
    feeds = {tensor.name: _value(tensor, given) for tensor in model_inputs(frozen)}
    tables = {inner.name: outer for outer, inner in source.graph.captures}
    values = _fetched(frozen, wanted, {**tables, **feeds}) if wanted else []
    feeds |= {name: value.numpy() for name, value in zip(wanted, values, strict=True)}
    _declare(model.graph, {name: feeds[name] for name in wanted})
    left = {value.name for value in model.graph.input}
    return bytes(model.SerializeToString()), {n: v for n, v in feeds.items() if n in left}


def _outside(graph: Any, domain: str, source: Any) -> Iterator[Any]:
    """The nodes of the domain, those that work on text, and those that lead back to TensorFlow.

    A node that the converter wrote between such has a result that TensorFlow's graph has not.
    """
    tensors = {tensor.name: tensor for op in source.get_operations() for tensor in op.outputs}
    texts = {name for name, tensor in tensors.items() if tensor.dtype.name == "string"}
    texts |= {stored.name for stored in graph.initializer if stored.data_type == _TEXT}
    for node in graph.node:
        if node.domain == domain or not texts.isdisjoint(_names_inside(node)):
            texts.update(name for name in node.output if name not in tensors)
            yield node


def _fetched(frozen: Any, names: list[str], given: Mapping[str, Any]) -> list[Any]:
    """The values of these tensors in one run of a frozen function."""
    import tensorflow as tf

    part = frozen.prune(
        list(frozen.inputs), [frozen.graph.as_graph_element(name) for name in names]
    )
    arguments = {
        tensor.op.name: tf.convert_to_tensor(given[tensor.name]) for tensor in frozen.inputs
    }
    return list(part(**arguments))


def _read(graph: Any) -> set[str]:
    """What nodes and outputs of a graph read, the results of nodes included."""
    inside = (name for node in graph.node for name in _names_inside(node))
    return {*inside, *(value.name for value in graph.output)}


def _names_inside(node: Any) -> Iterator[str]:
    yield from node.input
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                yield from _names_inside(inner)
            yield from (value.name for value in attribute.g.output)


def _value(tensor: Any, given: Mapping[str, Any]) -> Any:
    """What is given for an input, else what is made up: floats are random, texts one word."""
    if tensor.name in given:
        return given[tensor.name]
    shape, kind = tensor.shape.as_list(), tensor.dtype.as_numpy_dtype
    if tensor.dtype.name == "string":
        return np.full(shape, _WORD)
    if tensor.dtype.is_floating:
        return np.random.default_rng(0).standard_normal(shape).astype(kind)
    return np.zeros(shape, kind)


def _declare(graph: Any, values: Mapping[str, Any]) -> None:
    """Make inputs of these values, and leave out what no output needs any more."""
    from onnx import helper

    for name, value in values.items():
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        graph.input.append(helper.make_tensor_value_info(name, kind, value.shape))
    needed = {value.name for value in graph.output}
    for node in reversed(list(graph.node)):
        if needed.isdisjoint(node.output):
            graph.node.remove(node)
        else:
            needed.update(_names_inside(node))
    for value in [value for value in graph.input if value.name not in needed]:
        graph.input.remove(value)
