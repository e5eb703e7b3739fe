"""What a step moves to and from memory, under a byte model that is named.

Three models, each a sum over the nodes i of a graph that depend on its input. Nodes that do not
(a transposed weight, a folded scale) run once, before the step; what they make is a weight.

unfused         sum_i (read_i + written_i)
                every node reads its inputs, the same tensor once, and writes its outputs.
                Nothing stays in a cache between two nodes; each node that uses a weight reads it.
weights-once    W + sum over caches (read + appended)
                each weight is read once in a step, whatever the batch, and each cache read and
                appended to; activations, inputs and outputs stay on the chip. Two users of one
                weight share it; of a table that is looked up, the rows that are taken.
fused-ideal     weights-once + inputs + outputs of the model, once each
                as if the whole model were one kernel with room for all that is between.

A cache is an input that an output continues: `present = Concat(past, new)`, a scatter into it, or
an attention operator with past and present. It is read as a whole and only what is new is written.

In training each of the k passes moves what the forward pass does: the gradient of the input reads
dY and W and writes dX, that of the weight reads X and dY and writes dW, which for a contraction is
the forward pass's X + W + Y again. For other nodes it is an estimate: 3 x 2 elements of a ReLU
are really 5, of a batch norm on batch statistics 8. The optimizer's own traffic is not in it.
"""

from collections.abc import Iterable, Mapping

from crossflops.core.graph import Graph
from crossflops.core.ledger import Counted, Ledger
from crossflops.core.roofline import ByteModel, Load
from crossflops.core.tensor import TensorSpec
from crossflops.hardware.roofline.dataflow import Flow, flow
from crossflops.hardware.roofline.formats import Formats, nbytes
from crossflops.hardware.roofline.fused import charges
from crossflops.ops import rule
from crossflops.ops.traffic import Size, traffic

FORMULAS: Mapping[str, str] = {
    "unfused": "every node reads its inputs and writes its outputs",
    "weights-once": "each weight once a step, caches read and appended to; nothing else",
    "fused-ideal": "weights once, caches, inputs and outputs of the model; nothing in between",
    "given": "as told, not counted",
}


def loads(graph: Graph, ledger: Ledger, model: ByteModel, formats: Formats) -> tuple[Load, ...]:
    """What each node computes and moves, in the order of the ledger.

    `ledger` is that of the whole nodes of the graph for the fused models, and may go into the
    bodies of loops and functions for the unfused one. Uncounted nodes are left out; the caller
    says so. Raises ValueError for a model that does not exist.
    """
    if model not in ("unfused", "weights-once", "fused-ideal"):
        raise ValueError(model)
    found = flow(graph, ledger)
    if model == "unfused":
        rows = (_unfused(one, found, formats) for one in _working(ledger))
        return tuple(row for row in rows if row.bytes or row.operations)
    split = charges(graph, found, formats, ends=model == "fused-ideal")
    rows = (_load(one, found, *split.get(one.node.key, (0, 0, 0))) for one in _working(ledger))
    return tuple(row for row in rows if row.bytes or row.operations)


def _working(ledger: Ledger) -> Iterable[Counted]:
    return (one for one in ledger.counted if not one.node.constant)


def _load(one: Counted, found: Flow, weights: int, cache: int, activations: int) -> Load:
    return Load(
        node=one.node.key,
        op=str(one.node.op),
        path=one.node.path,
        precision=one.precision,
        macs=one.cost.macs,
        operations=one.cost.flops,
        weights=weights,
        cache=cache,
        activations=activations,
        weighted=any(map(found.is_layer, one.node.inputs)),
    )


def _unfused(one: Counted, found: Flow, formats: Formats) -> Load:
    """The node's own traffic, apart by what the tensors hold."""
    node = next(iter(one.node.meant), None)
    known = rule(node.op) if node is not None else None
    if node is None or known is None or node.bodies:  # a body's nodes have rows of their own
        return _load(one, found, 0, 0, 0)
    works = one.cost.flops > 0

    def moved(size: Size) -> int:
        return sum(traffic(known, node, works, size)) * one.times

    def weights(spec: TensorSpec) -> int:
        return nbytes(spec, formats.of_weights()) if found.is_weight(spec) else 0

    def cache(spec: TensorSpec) -> int:
        return nbytes(spec, formats.of_cache()) if found.is_cache(spec) else 0

    def rest(spec: TensorSpec) -> int:
        apart = found.is_weight(spec) or found.is_cache(spec)
        return 0 if apart else nbytes(spec, formats.activations)

    return _load(one, found, moved(weights), moved(cache), moved(rest))
