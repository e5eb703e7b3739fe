"""The tables of a roofline: alternatives, nodes by kind, the kernels that ran, every node."""

from crossflops.core.roofline import KindBound, NodeBound, Roofline
from crossflops.render.efficiency_parts import percent
from crossflops.render.page import Column, Row, Table
from crossflops.render.quantity import duration, exact, number, short

KINDS = 12  # rows of the table of kinds; the rest in one more
LEAST = 0.0005  # kinds of a smaller share of the time are not worth a row of their own
_MARK = " <- cache"  # a kind that reads a cache


def alternatives(roof: Roofline) -> Table:
    """The step as asked, and with something else."""
    heads = ("what if", "a step", "examples/s", "bytes", "intensity", "ridge", "bound")
    return Table(
        columns=tuple(Column(head=head, right=0 < i < 6) for i, head in enumerate(heads)),
        rows=tuple(
            Row(
                (
                    one.label,
                    duration(one.shortest),
                    pace(one.examples / one.shortest),
                    short(one.bytes, "B"),
                    ratio(one.intensity),
                    ratio(one.ridge),
                    one.bound,
                )
            )
            for one in (roof.step, *roof.what_if)
        ),
    )


def kinds(roof: Roofline) -> Table:
    """The nodes by kind, those that take the longest first."""
    heads = ("nodes", "n", "FLOP %", "bytes %", "time %", "intensity", "bound")
    timed = tuple(one for one in roof.kinds if one.seconds)
    first = tuple(one for one in timed[:KINDS] if one.seconds >= LEAST * roof.step.shortest)
    rest = timed[len(first) :]
    rows = [_kind(roof, one.kind, (one,)) for one in first]
    if rest:
        rows.append(_kind(roof, f"{number(len(rest), 'kind')} more", rest))
    if idle := tuple(one for one in roof.kinds if not one.seconds):
        rows.append(_kind(roof, "nodes that take no time", idle))
    return Table(
        columns=tuple(Column(head=head, right=0 < i < 6) for i, head in enumerate(heads)),
        rows=tuple(rows),
    )


def _kind(roof: Roofline, name: str, kinds: tuple[KindBound, ...]) -> Row:
    work, moved = sum(one.work for one in kinds), sum(one.bytes for one in kinds)
    sides = {one.bound for one in kinds}
    marked = _MARK if any(one.cache for one in kinds) else ""
    return Row(
        (
            name,
            exact(sum(one.nodes for one in kinds)),
            _share(work, roof.step.work),
            _share(moved, roof.step.bytes),
            _share(sum(one.seconds for one in kinds), roof.step.shortest),
            ratio(work / moved if moved and work else None),
            ("-" if sides == {"none"} else "/".join(sorted(sides - {"none"}))) + marked,
        )
    )


def kernels(roof: Roofline) -> Table:
    """The kernels that ran, those that lose the most time first."""
    heads = ("kernel", "intensity", "reached", "measured", "shortest", "efficiency")
    worst = sorted(roof.kernels, key=lambda one: one.seconds - one.measured)[:KINDS]
    return Table(
        columns=tuple(Column(head=head, right=i > 0) for i, head in enumerate(heads)),
        rows=tuple(
            Row(
                (
                    one.kernel,
                    ratio(one.intensity),
                    short(one.rate, "FLOP/s") if one.work else "-",
                    duration(one.measured),
                    duration(one.seconds),
                    percent(one.efficiency),
                ),
                "bad" if one.efficiency > 1 else "",
            )
            for one in worst
        ),
    )


def nodes(roof: Roofline) -> Table:
    """Every node, where there is room."""
    heads = ("node", "operator", "precision", "FLOPs", "bytes", "intensity", "seconds", "bound")
    return Table(
        columns=tuple(Column(head=head, right=2 < i < 7) for i, head in enumerate(heads)),
        rows=tuple(_node(one) for one in roof.nodes),
        detail=True,
    )


def _node(one: NodeBound) -> Row:
    figures = (exact(one.work), exact(one.bytes), ratio(one.intensity), f"{one.seconds:.4g}")
    return Row((one.node, one.op, one.precision, *figures, one.bound))


def pace(value: float) -> str:
    """Examples a second, in four digits."""
    if value >= 1e6:
        return short(value)
    return f"{value:,.0f}".replace(",", " ") if value >= 1000 else f"{value:.4g}"


def ratio(value: float | None) -> str:
    """FLOPs per byte in four digits."""
    return "-" if value is None else f"{value:.4g}" if value < 10_000 else short(value)


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"
