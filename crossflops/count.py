"""From a graph to its ledger: every node gets a cost, or the reason why it has none."""

from collections.abc import Iterable, Iterator

import msgspec

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Graph, Node
from crossflops.core.ledger import Counted, Ledger, Uncounted
from crossflops.core.tensor import TensorSpec
from crossflops.ops import Rule, missing, rule

Counts = tuple[Counted | Uncounted, ...]
_BRANCHES, _LOOPS = ("If",), ("Loop", "Scan")


def count(graph: Graph) -> Ledger:
    """Counts every node of a graph, and those in the bodies of its nodes.

    A node without a rule, or with a shape that its rule needs and nobody knows, is uncounted
    and says so. Bytes are those of the unfused model: each node reads its inputs, the same
    tensor once, and writes its outputs.

    The nodes of a body stand behind the node that holds it, with its key before theirs, and cost
    what all its runs cost: a Loop or a Scan runs its body `trips` times, an If the branch with
    more FLOPs. The node itself costs nothing more, and says what was done.
    """
    return Ledger(graph.digest, tuple(_counts(graph.nodes)))


def count_node(node: Node) -> Counted | Uncounted:
    """Counts one node that has no body."""
    if node.bodies:
        return Uncounted(node, f"{node.op}: a node with a body is counted as part of a graph")
    known = rule(node.op)
    if known is None:
        return Uncounted(node, missing(node.op))
    try:
        return Counted(
            node=node,
            cost=_with_bytes(known.formula(node), known, node),
            formula=known.equation,
            precision=_precision(known, node),
            exactness=known.exactness(node),
        )
    except ValueError as error:
        return Uncounted(node, str(error))


def _counts(nodes: Iterable[Node]) -> Iterator[Counted | Uncounted]:
    for node in nodes:
        if not node.bodies:
            yield count_node(node)
        elif not node.op.domain and node.op.type in _LOOPS:
            yield from _loop(node)
        elif not node.op.domain and node.op.type in _BRANCHES:
            yield from _branches(node)
        else:
            yield Uncounted(node, missing(node.op))


def _loop(node: Node) -> Counts:
    if node.trips is None:
        reason = f"how often it runs depends on data: give --trips {node.key}=N"
        return (Uncounted(node, f"{node.op}: {reason}"),)
    return (
        _held(node, f"{node.trips} x the body", exact=True),
        *_inside(node, tuple(_counts(node.bodies[0].nodes)), node.trips),
    )


def _branches(node: Node) -> Counts:
    """The branch with more FLOPs; with more uncounted nodes where these are equal."""
    found = [tuple(_counts(body.nodes)) for body in node.bodies]
    sizes = [
        (_total(counts).flops, sum(isinstance(c, Uncounted) for c in counts)) for counts in found
    ]
    largest = sizes.index(max(sizes))
    told = ", ".join(
        f"{body.name} {size[0]} FLOPs" for body, size in zip(node.bodies, sizes, strict=True)
    )
    exact = len(node.bodies) == 1
    why = "the condition is constant" if exact else f"the larger of {told}"
    return (
        _held(node, f"{node.bodies[largest].name}: {why}", exact),
        *_inside(node, found[largest], 1),
    )


def _held(node: Node, formula: str, exact: bool) -> Counted:
    """The node that holds a body: its work is that of the nodes inside."""
    return Counted(
        node=node,
        cost=ZERO,
        formula=formula,
        precision="",
        exactness="exact" if exact else "bound",
    )


def _inside(holder: Node, counts: Counts, times: int) -> Counts:
    return tuple(_repeated(holder, one, times) for one in counts)


def _repeated(holder: Node, one: Counted | Uncounted, times: int) -> Counted | Uncounted:
    node = msgspec.structs.replace(
        one.node,
        key=f"{holder.key}/{one.node.key}",
        call=one.node.call or holder.call,
        path=one.node.path or holder.path,
        constant=one.node.constant or holder.constant,
    )
    if isinstance(one, Uncounted):
        return Uncounted(node, one.reason)
    formula = one.formula if times == 1 else f"{times} x ({one.formula})"
    return msgspec.structs.replace(one, node=node, cost=one.cost * times, formula=formula)


def _total(counts: Counts) -> Cost:
    return sum((one.cost for one in counts if isinstance(one, Counted)), ZERO)


def _with_bytes(work: Cost, known: Rule, node: Node) -> Cost:
    # What computes is no view: Dropout is one in inference only.
    moved = known.traffic != "view" or work != ZERO
    read, written = _traffic(known, node) if moved else (0, 0)
    return msgspec.structs.replace(work, bytes_read=read, bytes_written=written)


def _traffic(known: Rule, node: Node) -> tuple[int, int]:
    written = _nbytes(node.outputs)
    if known.traffic == "gather":
        return written + _nbytes(node.inputs[1:]), written
    whole = (spec for i, spec in enumerate(node.inputs) if i not in known.tables)
    tables = [i for i in known.tables if i < len(node.inputs) and node.inputs[i] is not None]
    return _nbytes(tuple(whole)) + len(tables) * _nbytes(node.outputs[:1]), written


def _nbytes(specs: tuple[TensorSpec | None, ...]) -> int:
    """Bytes of the tensors that are there, those of one name once."""
    return sum({spec.name: spec.nbytes for spec in specs if spec is not None}.values())


def _precision(known: Rule, node: Node) -> str:
    """The element type in which the node computes: that of the operand that its rule names."""
    operand = node.inputs[known.operand] if known.operand < len(node.inputs) else None
    specs = (operand, *node.inputs, *node.outputs)
    return next((spec.dtype for spec in specs if spec is not None), "")
