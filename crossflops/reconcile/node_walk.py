"""From our MACs to the number of a tool that counts a graph, node by node.

The steps are those of `walk`, in the same order. Should the tool have been given another file than
the graph that is counted, the difference between the two comes first.
"""

from collections.abc import Iterable, Iterator, Mapping

from crossflops.core.ledger import Ledger
from crossflops.core.profile import Amount, Profile
from crossflops.core.reconciliation import Reconciliation
from crossflops.core.trace import Trace
from crossflops.reconcile.nodes import NodeBooking, NodePrediction, matching
from crossflops.reconcile.paths import Step, around, by_cause, rows
from crossflops.reconcile.walk import CONVERTER, PER_MAC, WRITTEN, Stage, explanations

OTHER_FILE = "graph.other-file"


def reconcile_nodes(
    prediction: NodePrediction, trace: Trace, profile: Profile, base: Ledger
) -> Reconciliation:
    """Explain the predicted total from the native count, and set it beside what was printed.

    `base` is the native count, that of the graph or of another one, and `trace` belongs to it.
    The entries of the profile are amounts by node; the rows are those of the modules that the
    nodes belong to.
    """
    convention = prediction.convention
    found = [*_other_file(prediction, base), *steps(prediction)]
    booked = [step for step in found if step.amount]
    homes = {one.node.key: one.node.path for one in prediction.ledger.counts}
    worths = ((one.node.key, prediction.worth(one)) for one in prediction.bookings)
    printed = ((entry.path, entry.amount) for entry in profile.entries)
    return Reconciliation(
        tool=convention.tool,
        edition=convention.edition,
        unit=convention.unit,
        ours=base.total.macs,
        theirs=profile.total,
        predicted=prediction.total,
        explanations=explanations(booked),
        by_path=rows(
            trace,
            base,
            _by_module(homes, worths),
            by_cause(booked),
            _by_module(homes, printed),
        ),
    )


def steps(prediction: NodePrediction) -> Iterator[Step]:
    """Every step from the native MACs of these nodes, in the order of the nodes."""
    macs = {}
    for one in prediction.ledger.counted:
        node, more = one.node, one.converter_macs
        macs[node.key] = one.cost.macs + more
        yield Step(Stage.GRAPH, CONVERTER, more, node.key, WRITTEN, node.path, more)
    for booking in prediction.bookings:
        clause, node = booking.clause, booking.node
        if clause.kind == "core":
            yield from _core(prediction, booking, macs.pop(node.key, 0))
        else:
            stage, amount = Stage.COMPONENT, booking.amount
            yield Step(stage, clause.cause, amount, node.key, clause.reference, node.path)
    yield from _invisible(prediction, macs)


def _core(prediction: NodePrediction, booking: NodeBooking, ours: int) -> Iterator[Step]:
    clause, node, counted = booking.clause, booking.node, booking.amount
    wrong = counted - ours
    yield Step(Stage.FORMULA, clause.cause, wrong, node.key, clause.reference, node.path, wrong)
    convention = prediction.convention
    unit = (convention.unit - 1) * counted
    yield Step(Stage.UNIT, PER_MAC, unit, node.key, convention.source, node.path)


def _invisible(prediction: NodePrediction, macs: dict[str, int]) -> Iterator[Step]:
    """`macs` are those of the nodes that no core clause is about.

    What is not known of a node is left as it is natively.
    """
    convention = prediction.convention
    for one in prediction.ledger.counted:
        node, amount = one.node, -macs.get(one.node.key, 0)
        if node.key in prediction.unknown:
            unit = -(convention.unit - 1) * amount
            yield Step(Stage.UNIT, PER_MAC, unit, node.key, convention.source, node.path)
            continue
        told = next((c for c in matching(convention, node) if c.kind == "unseen"), None)
        cause = told.cause if told else convention.unseen
        reference = told.reference if told else convention.source
        yield Step(Stage.VISIBILITY, cause, amount, node.key, reference, node.path, amount)


def _other_file(prediction: NodePrediction, base: Ledger) -> Iterator[Step]:
    """Module by module, what the file of the tool has more than ours."""
    more: dict[str, int] = {}
    for sign, ledger in ((1, prediction.ledger), (-1, base)):
        for one in ledger.counted:
            more[one.node.path] = more.get(one.node.path, 0) + sign * one.cost.macs
    for path, amount in more.items():
        told = "the file that the tool was given"
        yield Step(Stage.GRAPH, OTHER_FILE, amount, path, told, path, amount)


def _by_module(
    homes: Mapping[str, str], amounts: Iterable[tuple[str, Amount]]
) -> dict[str, Amount]:
    """Amounts by node, added up for all beneath each module."""
    found: dict[str, Amount] = {}
    for node, amount in amounts:
        for path in around(homes.get(node, "")):
            found[path] = found.get(path, 0) + amount
    return found
