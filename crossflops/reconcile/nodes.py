"""A convention that looks at graph nodes, applied to a ledger. It needs no calls, so files do."""

from collections.abc import Iterator

from crossflops.conventions.formulas import node_formulas
from crossflops.conventions.matching import one_of
from crossflops.core.convention import Clause, Convention
from crossflops.core.folded import FoldedRow
from crossflops.core.ledger import Counted, Ledger


def fold_nodes(
    convention: Convention, ledger: Ledger
) -> tuple[tuple[FoldedRow, ...], tuple[str, ...]]:
    """What the convention books for every node, zeros left out; and the nodes it cannot book.

    These are nodes without a native count, with a shape that a formula needs and nobody knows,
    and with contraction work about which no clause says anything.
    """
    rows, unknown = [], [one.node.key for one in ledger.uncounted]
    for one in ledger.counted:
        try:
            amount = _amount(convention, one)
        except ValueError:
            unknown.append(one.node.key)
            continue
        if amount:
            rows.append(FoldedRow(one.node.key, one.node.path, amount))
    return tuple(rows), tuple(unknown)


def _amount(convention: Convention, one: Counted) -> int:
    """In the convention's own unit. Raises ValueError where it does not know."""
    clauses = list(_matching(convention, one))
    if one.cost.macs and not any(clause.kind in ("core", "unseen") for clause in clauses):
        raise ValueError(f"{convention.tool} has no clause for {one.node.op}")
    return sum(_booked(convention, clause, one) for clause in clauses)


def _matching(convention: Convention, one: Counted) -> Iterator[Clause]:
    core = False
    for clause in convention.clauses:
        if not one_of(str(one.node.op), clause.match.targets) or (clause.kind == "core" and core):
            continue
        core = core or clause.kind == "core"
        yield clause


def _booked(convention: Convention, clause: Clause, one: Counted) -> int:
    if clause.kind == "unseen":
        return 0
    unit = convention.unit if clause.kind == "core" else 1
    if clause.formula is None:
        work: int = sum(getattr(one.cost, kind) * n for kind, n in clause.weights.items())
        return clause.factor * work * unit
    # A formula knows one run of the node; the cost is that of all.
    return clause.factor * node_formulas()[clause.formula](one.node) * one.times * unit
