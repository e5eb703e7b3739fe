"""Reductions along axes. n = n(data), m = n(reduced): combining takes n - m operations."""

from typing import TypeAlias

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import folded, integer, out_size, size
from crossflops.ops.operands import axes, axis, dims_of, label, listed, out_of_range, single
from crossflops.ops.pointwise import ADD, COMPARE, DIV, MUL, SPECIAL
from crossflops.ops.rule import Entry, Formula, entry

Row: TypeAlias = tuple[str, Cost, Cost, Cost, str]


def reduction(element: Cost, combination: Cost, result: Cost) -> Formula:
    """The formula that works on n elements, combines them with n - m pieces, and ends m times."""

    def formula(node: Node) -> Cost:
        before, after = size(node), out_size(node)
        return element * before + combination * folded(before, after) + result * after

    return formula


def cumulative(work: Cost) -> Formula:
    """CumSum, CumProd: y[i] = y[i-1] + x[i] from an empty start, one operation per element.

    The axis is a value, not a shape, so the operation that the first element spares is not
    known.
    """

    def formula(node: Node) -> Cost:
        return work * size(node)

    return formula


# Name; work per element, per combination, per result; equation.
REDUCTIONS: tuple[Row, ...] = (
    ("ReduceSum", ZERO, ADD, ZERO, "n-m adds"),
    ("ReduceMean", ZERO, ADD, DIV, "n-m adds, m divs"),
    ("ReduceMax", ZERO, COMPARE, ZERO, "n-m compares"),
    ("ReduceMin", ZERO, COMPARE, ZERO, "n-m compares"),
    ("ReduceProd", ZERO, MUL, ZERO, "n-m muls"),
    ("ReduceL1", COMPARE, ADD, ZERO, "n abs, n-m adds"),
    ("ReduceL2", MUL, ADD, SPECIAL, "n muls, n-m adds, m sqrts"),
    ("ReduceSumSquare", MUL, ADD, ZERO, "n muls, n-m adds"),
    ("ReduceLogSum", ZERO, ADD, SPECIAL, "n-m adds, m logs"),
    ("ReduceLogSumExp", SPECIAL, ADD, SPECIAL, "n exps, n-m adds, m logs"),
    ("ArgMax", ZERO, COMPARE, ZERO, "n-m compares"),
    ("ArgMin", ZERO, COMPARE, ZERO, "n-m compares"),
)


def _not_empty(node: Node) -> str:
    """There is something to choose from along the axis."""
    dims, place = dims_of(node, 0), integer(node, "axis", 0)
    if dims is None or dims[place]:
        return ""
    return f"{label(node, 0)} has 0 at axis {place % len(dims)}, and at least 1 is needed"


def _along(node: Node) -> str:
    """The axis, the value of input 1, is one of the operand."""
    place = node.values.get(1, ())
    known = len(place) == 1 and dims_of(node, 0) is not None
    return out_of_range(node, place[0]) if known else ""


ENTRIES: tuple[Entry, ...] = (
    *(
        entry(
            name,
            reduction(element, combination, end),
            f"{equation}; n = n(data), m = n(reduced)",
            requires=(axis(default=0), _not_empty)
            if name.startswith("Arg")
            else (listed(1), axes()),
        )
        for name, element, combination, end, equation in REDUCTIONS
    ),
    entry(
        "CumSum",
        cumulative(ADD),
        "n(x) adds",
        since=11,
        requires=(single(1), _along),
    ),
    entry(
        "CumProd",
        cumulative(MUL),
        "n(x) muls",
        since=26,
        requires=(single(1), _along),
    ),
)
