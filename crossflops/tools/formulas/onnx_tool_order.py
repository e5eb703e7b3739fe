"""Which nodes of a graph onnx-tool 1.0.1 keeps when it puts them into an order.

Source: `Graph.topsort_nodes` in onnx_tool/graph.py. A tensor that is left out is one of the name
"" to it: who leaves out a result makes it, and whoever leaves out an input waits for it. A node
that does both waits for itself, and is lost with all that depends on it.
"""

from collections.abc import Sequence

from crossflops.ir.graph import Node
from crossflops.ir.tensor import TensorSpec


def lost(nodes: Sequence[Node]) -> frozenset[int]:
    """The places of the nodes that are lost. ValueError where nobody knows what one sees."""
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
    _check(nodes, order, inputs, outputs, made)
    return frozenset(range(len(nodes))) - frozenset(order)


def _check(
    nodes: Sequence[Node],
    order: Sequence[int],
    inputs: Sequence[Sequence[str]],
    outputs: Sequence[Sequence[str]],
    made: set[str],
) -> None:
    """Who takes the tensor without a name takes the shape that was last made of that name."""
    there: set[str] = set()
    for place in order:
        if "" in inputs[place]:
            raise ValueError(
                f"{nodes[place].key} takes a tensor without a name that another makes"
            )
        if any(name and name in made and name not in there for name in inputs[place]):
            raise ValueError(f"{nodes[place].key} comes before its inputs")
        there.update(outputs[place])


def _names(specs: Sequence[TensorSpec | None]) -> list[str]:
    return [spec.name if spec is not None else "" for spec in specs]
