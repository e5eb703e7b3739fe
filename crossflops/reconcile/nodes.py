"""A convention that looks at graph nodes, applied to a ledger. It needs no calls, so files do."""

from collections.abc import Iterator

import msgspec

from crossflops.ir.convention import Clause, Convention
from crossflops.ir.graph import Graph, Node, Op
from crossflops.ir.ledger import Counted, Ledger, Uncounted
from crossflops.ir.profile import FoldedRow
from crossflops.reconcile.prediction import PredictionError
from crossflops.tools.formulas import node_formulas, views
from crossflops.tools.matching import one_of

TOLD = "onnx.shape_inference"  # the shapes of a graph that whoever calls has put into it
WHOLE = "(graph)"  # the target of clauses about the graph itself


class NodeBooking(msgspec.Struct, frozen=True):
    """What a clause books for a node: MACs of a core clause, the tool's unit of a part."""

    clause: Clause
    node: Node
    amount: int


class NodePrediction(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool that counts a graph should print, and where it comes from.

    `ledger` has one count for each node that the tool sees, with all in it that it does not. Of
    the nodes in `unknown` nobody can say what the tool counts: they stand for their native MACs.
    """

    convention: Convention
    ledger: Ledger
    bookings: tuple[NodeBooking, ...]
    unknown: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """The number that the tool should print."""
        left = sum(one.cost.macs for one in self.ledger.counted if one.node.key in self.unknown)
        return sum(map(self.worth, self.bookings)) + self.convention.unit * left

    def worth(self, booking: NodeBooking) -> int:
        """A booking in the tool's own unit."""
        return booking.amount * (self.convention.unit if booking.clause.kind == "core" else 1)


def predict_nodes(convention: Convention, graph: Graph, ledger: Ledger) -> NodePrediction:
    """Book what every clause says of every node of the graph, as `ledger` counts them.

    Raises PredictionError where the tool itself would fail.
    """
    return _predicted(convention, graph, ledger)


def fold_nodes(
    convention: Convention, graph: Graph, ledger: Ledger
) -> tuple[tuple[FoldedRow, ...], tuple[str, ...]]:
    """What the convention books for every node, zeros left out; and the nodes it cannot book.

    These are nodes with a shape that a formula needs and nobody knows, with contraction work
    about which no clause says anything and, of a convention that is no tool, those without a
    native count. Raises PredictionError where the tool itself would fail.
    """
    prediction = _predicted(convention, graph, ledger)
    totals: dict[str, FoldedRow] = {}
    for booking in prediction.bookings:
        key, before = booking.node.key, totals.get(booking.node.key)
        amount = prediction.worth(booking) + (before.amount if before else 0)
        totals[key] = FoldedRow(key, booking.node.path, amount)
    return tuple(row for row in totals.values() if row.amount), prediction.unknown


def _predicted(convention: Convention, graph: Graph, ledger: Ledger) -> NodePrediction:
    _check(convention, graph)
    ledger = _as_seen(convention, graph, ledger)
    bookings: list[NodeBooking] = []
    unknown: list[str] = []
    results = {spec.name for spec in graph.outputs}
    for one in ledger.counts:
        try:
            bookings += _bookings(convention, _with_roles(one, results))
        except ValueError:
            unknown.append(one.node.key)
    return NodePrediction(
        convention=convention, ledger=ledger, bookings=tuple(bookings), unknown=tuple(unknown)
    )


def _as_seen(convention: Convention, graph: Graph, ledger: Ledger) -> Ledger:
    """The counts of the nodes with the shapes that the tool infers."""
    if convention.shapes is None:
        return ledger
    try:
        nodes = graph.nodes
        if convention.shapes != TOLD:
            nodes = views()[convention.shapes](graph).nodes
    except LookupError as error:
        what = f"{convention.tool} infers shapes of its own, and fails: {error}"
        raise PredictionError(what, f"see {convention.shapes}") from error
    pairs = zip(ledger.counts, nodes, strict=True)
    counts = tuple(msgspec.structs.replace(one, node=node) for one, node in pairs)
    return Ledger(ledger.digest, counts)


def _with_roles(one: Counted | Uncounted, results: set[str]) -> Counted | Uncounted:
    """Formulas see which results of a node are outputs of the graph, by their role."""
    node = one.node
    if not any(spec is not None and spec.name in results for spec in node.outputs):
        return one
    outputs = tuple(
        msgspec.structs.replace(spec, role="output") if spec and spec.name in results else spec
        for spec in node.outputs
    )
    return msgspec.structs.replace(one, node=msgspec.structs.replace(node, outputs=outputs))


def _check(convention: Convention, graph: Graph) -> None:
    """Whether the tool fails on the graph as a whole, which is matched as if it were a node."""
    whole = Node(key=graph.name, op=Op("", WHOLE, 0), inputs=graph.inputs, outputs=graph.outputs)
    for clause in convention.clauses:
        if WHOLE in clause.match.targets and _booked(convention, clause, Uncounted(whole, "")):
            raise _failing(convention, clause, whole)


def _bookings(convention: Convention, one: Counted | Uncounted) -> list[NodeBooking]:
    """In the order of the clauses. Raises ValueError where the convention does not know."""
    if isinstance(one, Uncounted) and not convention.verified:
        raise ValueError(one.reason)
    clauses = list(matching(convention, one.node))
    spoken_for = any(clause.kind in ("core", "unseen") for clause in clauses)
    if isinstance(one, Counted) and one.cost.macs and not spoken_for and not convention.verified:
        raise ValueError(f"{convention.tool} has no clause for {one.node.op}")
    found = []
    for clause in clauses:
        amount = _booked(convention, clause, one)
        if clause.kind == "fails" and amount:
            raise _failing(convention, clause, one.node)
        if clause.kind in ("core", "part"):
            found.append(NodeBooking(clause, one.node, amount))
    return found


def matching(convention: Convention, node: Node) -> Iterator[Clause]:
    """The clauses about a node: of the core clauses, and of the unseen, the first."""
    taken: set[str] = set()
    for clause in convention.clauses:
        if clause.kind in taken or not _matches(clause, node):
            continue
        if clause.kind in ("core", "unseen"):
            taken.add(clause.kind)
        yield clause


def _matches(clause: Clause, node: Node) -> bool:
    match, name = clause.match, str(node.op)
    return (
        one_of(name, match.targets)
        and not (match.but and one_of(name, match.but))
        and all(
            key in node.attrs and node.attrs[key] == value for key, value in match.settings.items()
        )
    )


def _booked(convention: Convention, clause: Clause, one: Counted | Uncounted) -> int:
    if clause.kind == "unseen":
        return 0
    times = one.times if isinstance(one, Counted) else 1
    if clause.formula is None:
        if clause.kind == "fails":
            return 1
        if isinstance(one, Uncounted):
            raise ValueError(one.reason)
        work: int = sum(getattr(one.cost, kind) * n for kind, n in clause.weights.items())
        return clause.factor * work
    try:
        # A formula knows one run of the node; the cost is that of all.
        return clause.factor * node_formulas()[clause.formula](one.node) * times
    except (LookupError, TypeError, ArithmeticError) as error:
        raise _failing(convention, clause, one.node) from error


def _failing(convention: Convention, clause: Clause, node: Node) -> PredictionError:
    return PredictionError(
        f"{convention.tool} cannot count {node.key}, which is a {node.op}",
        f"see its rule {clause.id} ({clause.reference})",
    )
