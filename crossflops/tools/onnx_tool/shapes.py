"""The graph as onnx-tool 1.0.1 sees it: in its order, with the shapes that it infers.

Sources: `Graph.topsort_nodes` in onnx_tool/graph.py; `shape_infer` and `value_infer` of the
classes in onnx_tool/node.py. An operator that `operators` does not name is taken to be inferred as
ONNX says, as long as the shapes it comes from are. The values of the graph's inputs, which a
caller would give, are zeros to the tool. Raises LookupError where the tool raises; where it is not
known what a wrong shape or value leads to, the result has none.
"""

from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from crossflops.ir.graph import Graph, Node, Op
from crossflops.ir.tensor import TensorSpec
from crossflops.tools.onnx_tool.operators import ALWAYS, ASTRAY, OF_ZEROS, Shape, shape_of, values

LOST = Op("", "(lost)", 0)  # stands for the operators of nodes that the tool loses
# What of a wrong shape has other values or sizes, as far as is known here.
_OF_VALUES = ("Shape", "Upsample")
# Other inputs than the first are looked at for their values.
_OF_FIRST = ("Reshape", "Expand")


def seen(graph: Graph) -> Graph:
    """The graph with the shapes of the tool in place of the true ones, None for unknown ones."""
    wrong: dict[str, Shape | None] = {}
    given = {spec.name for spec in graph.inputs}
    gone = _lost(graph.nodes)
    nodes = tuple(
        msgspec.structs.replace(node, op=LOST) if place in gone else _seen(node, wrong, given)
        for place, node in enumerate(graph.nodes)
    )
    return msgspec.structs.replace(graph, nodes=nodes) if wrong or gone else graph


def _seen(node: Node, wrong: dict[str, Shape | None], given: set[str]) -> Node:
    """The node as the tool sees it. `wrong` are the shapes that it got wrong so far; it grows."""
    node = msgspec.structs.replace(node, inputs=tuple(_with(spec, wrong) for spec in node.inputs))
    first = node.outputs[0] if node.outputs else None
    if first is None or not first.name:
        return node
    try:
        shape = _inferred(node, wrong, given)
    except ValueError:
        wrong |= {spec.name: None for spec in node.outputs if spec}
    else:
        if shape != first.shape:
            wrong[first.name] = shape
    outputs = tuple(_with(spec, wrong) for spec in node.outputs)
    return msgspec.structs.replace(node, outputs=outputs)


def _with(spec: TensorSpec | None, wrong: Mapping[str, Shape | None]) -> TensorSpec | None:
    if spec is None or spec.name not in wrong:
        return spec
    return msgspec.structs.replace(spec, shape=wrong[spec.name])


def _inferred(node: Node, wrong: Mapping[str, Shape | None], given: set[str]) -> Shape | None:
    """The shape of the first result. ValueError where it is not known what the tool makes of it.

    `given` are the names of what a caller gives, whose values the tool takes for zeros.
    """
    op, inputs, places = node.op.type, node.inputs, values(node)
    if _any_of(node, places, given):
        if op not in OF_ZEROS:
            raise ValueError(f"what {node.op} makes of zeros is not known")
        return OF_ZEROS[op](node, [shape_of(spec) for spec in inputs])
    astray = _any_of(node, range(len(inputs)), wrong)
    if _any_of(node, places, wrong) or (astray and op in _OF_VALUES):
        raise ValueError(f"what {node.op} makes of other values is not known")
    rule = ALWAYS.get(op) or (ASTRAY.get(op) if astray else None)
    if rule is not None:
        known = inputs[:1] if op in _OF_FIRST else inputs
        return rule(node, [shape_of(spec) for spec in known])
    if astray:
        raise ValueError(f"what {node.op} makes of a wrong shape is not known")
    return node.outputs[0].shape if node.outputs[0] else None


def _any_of(node: Node, places: Iterable[int], names: Container[str]) -> bool:
    """Whether one of these inputs bears one of the names."""
    specs = (node.inputs[place] for place in places if place < len(node.inputs))
    return any(spec is not None and spec.name in names for spec in specs)


# The order in which the tool puts the nodes. A tensor that is left out is one of the name "" to
# it: a node that leaves out a result makes it, and a node that leaves out an input waits for it.
# A node that does both waits for itself, and is lost with all that depends on it.


def _lost(nodes: Sequence[Node]) -> frozenset[int]:
    """The places of the nodes that are lost. ValueError where it is not known what one sees."""
    inputs = [_names(node.inputs) for node in nodes]
    outputs = [_names(node.outputs) for node in nodes]
    made = {name for names in outputs for name in names}
    if "" not in made:
        return frozenset()
    takers: dict[str, list[int]] = {}
    waiting = []
    for place, names in enumerate(inputs):
        waited = [name for name in names if name in made]
        waiting.append(len(waited))
        for name in waited:
            takers.setdefault(name, []).append(place)
    order: list[int] = []
    while ready := [place for place, count in enumerate(waiting) if count == 0]:
        for place in ready:
            waiting[place] -= 1
        for place in ready:
            for name in outputs[place]:
                for taker in takers.get(name, ()):
                    waiting[taker] -= 1
        order += ready
    _check(nodes, order, inputs, outputs)
    return frozenset(range(len(nodes))) - frozenset(order)


def _check(
    nodes: Sequence[Node],
    order: Sequence[int],
    inputs: Sequence[Sequence[str]],
    outputs: Sequence[Sequence[str]],
) -> None:
    """A node that takes the tensor without a name takes the shape that was last made of it."""
    made = {name for names in outputs for name in names if name}
    there: set[str] = set()
    for place in order:
        if "" in inputs[place]:
            raise ValueError(
                f"{nodes[place].key} takes a tensor without a name that another makes"
            )
        if any(name in made and name not in there for name in inputs[place]):
            raise ValueError(f"{nodes[place].key} comes before its inputs")
        there.update(outputs[place])


def _names(specs: Sequence[TensorSpec | None]) -> list[str]:
    return [spec.name if spec is not None else "" for spec in specs]
