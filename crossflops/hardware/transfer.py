"""The bytes that a pass has to move at least, between a device's memory and its units.

    bytes(batch) = weights + batch x (inputs + outputs of the model, and rows looked up)

Every weight is read once, activations stay on the chip. A table from which rows are gathered
(an embedding) is read by its rows. With the cache of keys and values among the inputs this is the
headline of decoding: memory bandwidth utilization, MBU = bytes / (time x bandwidth).
"""

import msgspec

from crossflops.core.graph import Graph, Node
from crossflops.hardware.scopes import scopes

_LOOKED_UP = ("Gather", "GatherND", "GatherElements", "EmbedLayerNormalization")


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one pass: of the weights once, and of each example. `model` says of what."""

    model: str
    weights: int
    each: int


def of_graph(graph: Graph, examples: int = 1) -> Transfer:
    """The bytes of a graph that is one pass over so many examples. Unknown sizes count nothing."""
    weights: dict[str, int] = {}
    rows = 0
    for _, scope in scopes(graph):
        for node in scope.nodes:
            for place, spec in enumerate(node.inputs):
                if spec is None or spec.role != "parameter" or spec.shape is None:
                    continue
                if place == 0 and node.op.type in _LOOKED_UP:
                    rows += _results(node)
                else:
                    weights[spec.name] = spec.nbytes
    ends = sum(one.nbytes for one in (*graph.inputs, *graph.outputs) if one.shape is not None)
    return Transfer(
        model="weights once, inputs and outputs of the model, rows of tables that are looked up",
        weights=sum(weights.values()),
        each=(rows + ends) // examples,
    )


def _results(node: Node) -> int:
    return sum(one.nbytes for one in node.outputs if one and one.shape is not None)
