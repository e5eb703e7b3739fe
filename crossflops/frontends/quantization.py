"""Find the dtypes in which a quantized graph stores values that it declares as floats.

A runtime works DequantizeLinear into the kernels that read its result, and QuantizeLinear into the
kernel that makes its operand: the floats between are never in memory (ADR 12). So

    f = DequantizeLinear(q)   f is held as q, also behind nodes that only move it
    q = QuantizeLinear(f)     f is held as q, where nothing else reads f

Floats that a graph or a function returns, or hands to a loop, are floats in memory, too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from crossflops.ir.graph import Graph, Node, TensorSpec
from crossflops.operators import find_operator_rule

# Those marked so far, by identity and by the storage of their operands.
Functions: TypeAlias = dict[tuple[int, tuple[tuple[str, str], ...]], Graph]
_TO_FLOAT, _FROM_FLOAT = "DequantizeLinear", "QuantizeLinear"


def mark_value_storage_dtypes(graph: Graph) -> Graph:
    """Return a quantized graph with the stored dtype of each value, and marks on folded nodes."""
    return _with_value_storage(graph, {}, {}) if _is_quantized(graph) else graph


def mark_weight_storage_dtypes(graph: Graph, types: Mapping[str, str]) -> Graph:
    """Return the graph with weights stored in these types, by name, also behind data movement."""
    return _with_value_storage(graph, types, {}) if types else graph


def _is_quantized(graph: Graph) -> bool:
    """Return whether a node of the graph, or of its bodies, quantizes values."""
    pending, visited = [graph], set()
    while pending:
        current = pending.pop()
        if id(current) in visited:
            continue
        visited.add(id(current))
        for node in current.nodes:
            if node.op.type in (_TO_FLOAT, _FROM_FLOAT):
                return True
            pending += node.bodies
    return False


class _StorageScope(NamedTuple):
    """Facts about one graph: dtypes of values that are stored in another one, and folded nodes.

    `scales` are the scale and the zero point of values that still equal a DequantizeLinear's
    result.
    """

    storage: dict[str, str]
    folded: set[int]
    scales: dict[str, tuple[str, ...]]


def _with_value_storage(graph: Graph, outer: Mapping[str, str], functions: Functions) -> Graph:
    """Return the graph with the stored dtypes of its values; `outer` has those of outer values."""
    scope = _StorageScope(dict(outer), set(), {})
    floats = set(_names_of_values_stored_as_declared(graph))
    for index, node in enumerate(graph.nodes):
        _note_result_storage(index, node, floats, scope)
    _note_quantizer_input_storage(graph, floats, scope)
    nodes = tuple(
        _with_operand_storage(node, index in scope.folded, scope.storage, functions)
        for index, node in enumerate(graph.nodes)
    )
    return msgspec.structs.replace(graph, nodes=nodes)


def _names_of_values_stored_as_declared(graph: Graph) -> Iterator[str]:
    """Yield the names of values that are stored in their declared type, also where they are
    computed from quantized ones: what the graph returns, and what a loop or
    branch reads or returns.
    """
    yield from (spec.name for spec in graph.outputs)
    for node in graph.nodes:
        if node.bodies and node.choice != "function":
            yield from (spec.name for spec in node.inputs if spec is not None)
        for body in node.bodies if node.choice != "function" else ():
            yield from _names_of_values_stored_as_declared(body)


def _note_result_storage(index: int, node: Node, floats: set[str], scope: _StorageScope) -> None:
    """Note in `scope` that a node's results are stored in the dtype of its quantized input."""
    data = node.inputs[0] if node.inputs else None
    results = [spec.name for spec in node.outputs if spec is not None]
    if data is None or not results or not floats.isdisjoint(results):
        return
    if node.op.type == _TO_FLOAT:
        if not data.dtype:
            return
        scope.folded.add(index)
        scope.scales[results[0]] = _scale_and_zero_point_names(node)
        scope.storage[results[0]] = data.dtype
    elif data.name in scope.storage and (known := find_operator_rule(node.op)) and known.keeps:
        scope.storage.update(dict.fromkeys(results, scope.storage[data.name]))
        if known.traffic == "alias" and data.name in scope.scales:
            scope.scales[results[0]] = scope.scales[data.name]


def _scale_and_zero_point_names(node: Node) -> tuple[str, ...]:
    """Return the names of a quantization node's scale and, if it has one, its zero point."""
    return tuple(spec.name if spec is not None else "" for spec in node.inputs[1:])


def _note_quantizer_input_storage(graph: Graph, floats: set[str], scope: _StorageScope) -> None:
    """Note in `scope` that inputs of QuantizeLinear are stored in the dtype of its results.

    A different scale for a dequantized value is separate work, which no kernel folds.
    """
    reads = Counter(name for node in graph.nodes for name in _node_input_names(node))
    makers = {
        spec.name: node for node in graph.nodes if not node.bodies for spec in node.outputs if spec
    }
    for index, node in enumerate(graph.nodes):
        data = node.inputs[0] if node.inputs else None
        if node.op.type != _FROM_FLOAT or node.constant or data is None:
            continue
        result = node.outputs[0]
        if data.name not in makers or data.name in floats or reads[data.name] > 1:
            continue
        is_same = scope.scales.get(
            data.name, _scale_and_zero_point_names(node)
        ) == _scale_and_zero_point_names(node)
        if is_same and result is not None and result.dtype:
            scope.storage[data.name] = result.dtype
            scope.folded.add(index)


def _node_input_names(node: Node) -> Iterable[str]:
    """Yield the names of a node's inputs, also those in its bodies, except function bodies."""
    yield from (spec.name for spec in node.inputs if spec is not None)
    for body in node.bodies if node.choice != "function" else ():
        for inner in body.nodes:
            yield from _node_input_names(inner)


def _with_operand_storage(
    node: Node, in_kernel: bool, storage: Mapping[str, str], functions: Functions
) -> Node:
    """Return the node with the stored dtypes of its inputs and outputs, also in its bodies."""

    def with_stored_dtype(spec: TensorSpec | None) -> TensorSpec | None:
        """Return the tensor's spec with the dtype that it is stored in, if that is another one."""
        if spec is None or spec.name not in storage or storage[spec.name] == spec.dtype:
            return spec
        return msgspec.structs.replace(spec, storage=storage[spec.name])

    return msgspec.structs.replace(
        node,
        inputs=tuple(map(with_stored_dtype, node.inputs)),
        outputs=tuple(map(with_stored_dtype, node.outputs)),
        bodies=tuple(_body_with_storage(node, body, storage, functions) for body in node.bodies),
        folded=in_kernel,
    )


def _body_with_storage(
    node: Node, body: Graph, storage: Mapping[str, str], functions: Functions
) -> Graph:
    """Return a body of a node with the stored dtypes of its values; `functions` is a cache."""
    if node.choice == "function":  # one graph for all calls whose operands are held alike
        operands = zip(node.inputs, body.inputs, strict=False)
        provided = {
            own.name: storage[spec.name]
            for spec, own in operands
            if spec is not None and spec.name in storage
        }
        key = id(body), tuple(provided.items())
        if key not in functions:
            functions[key] = _with_value_storage(body, provided, functions)
        return functions[key]
    own = {spec.name for spec in body.inputs}
    own |= {spec.name for inner in body.nodes for spec in inner.outputs if spec is not None}
    enclosing = {name: kind for name, kind in storage.items() if name not in own}
    return _with_value_storage(body, enclosing, functions)
