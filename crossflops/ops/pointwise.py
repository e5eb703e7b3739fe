"""Pointwise operators: rows of data, the work of one output element each.

Operands broadcast, so the count is that of the output. An operator of the four basic kinds or a
comparison is one of its kind; an elementary function (exp, log, sqrt, tanh, sigmoid, erf,
rounding ...) is one special, as ONNX defines it by no simpler one. Logic is counted with the
comparisons, a negation as a subtraction from zero.
"""

from typing import TypeAlias

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import out_size
from crossflops.ops.operands import broadcast, single
from crossflops.ops.rule import Entry, Formula, entry

Row: TypeAlias = tuple[str, int, Cost, str]

ADD, MUL, DIV = Cost(adds=1), Cost(muls=1), Cost(divs=1)
COMPARE, SPECIAL = Cost(compares=1), Cost(specials=1)

# Name, first version, work per output element, equation.
BASIC: tuple[Row, ...] = (
    ("Add", 1, ADD, "A + B"),
    ("Sub", 1, ADD, "A - B"),
    ("Mul", 1, MUL, "A * B"),
    ("Div", 1, DIV, "A / B"),
    ("Mod", 10, DIV, "the remainder of A / B"),
    ("Neg", 1, ADD, "0 - X"),
    ("Abs", 1, COMPARE, "|X|"),
    ("Sign", 9, Cost(compares=2), "(X > 0) - (X < 0)"),
    ("Reciprocal", 1, DIV, "1 / X"),
    ("BitShift", 11, MUL, "X * 2^Y, or the other way"),
    ("Equal", 1, COMPARE, "A == B"),
    ("Greater", 1, COMPARE, "A > B"),
    ("Less", 1, COMPARE, "A < B"),
    ("GreaterOrEqual", 12, COMPARE, "A >= B"),
    ("LessOrEqual", 12, COMPARE, "A <= B"),
    ("And", 1, COMPARE, "A and B"),
    ("Or", 1, COMPARE, "A or B"),
    ("Xor", 1, COMPARE, "A xor B"),
    ("Not", 1, COMPARE, "not X"),
    ("BitwiseAnd", 18, COMPARE, "A and B, bitwise"),
    ("BitwiseOr", 18, COMPARE, "A or B, bitwise"),
    ("BitwiseXor", 18, COMPARE, "A xor B, bitwise"),
    ("BitwiseNot", 18, COMPARE, "not X, bitwise"),
    ("IsNaN", 9, COMPARE, "X != X"),
    ("IsInf", 10, COMPARE, "|X| == inf"),
    ("Range", 11, Cost(muls=1, adds=1), "start + i * delta"),
)

# Elementary functions: one special per output element.
ELEMENTARY: tuple[tuple[str, int], ...] = (
    *(("Exp", 1), ("Log", 1), ("Sqrt", 1), ("Pow", 1), ("Erf", 9), ("Sigmoid", 1), ("Tanh", 1)),
    *(("Sin", 7), ("Cos", 7), ("Tan", 7), ("Asin", 7), ("Acos", 7), ("Atan", 7)),
    *(("Sinh", 9), ("Cosh", 9), ("Asinh", 9), ("Acosh", 9), ("Atanh", 9)),
    *(("Floor", 1), ("Ceil", 1), ("Round", 11)),
)

# k operands: k - 1 times the first work per output element, and the second once.
VARIADIC: tuple[tuple[str, Cost, Cost], ...] = (
    ("Sum", ADD, ZERO),
    ("Mean", ADD, DIV),
    ("Max", COMPARE, ZERO),
    ("Min", COMPARE, ZERO),
)


def per_element(work: Cost) -> Formula:
    """The formula that does this work for each element of the first output."""

    def formula(node: Node) -> Cost:
        return work * out_size(node)

    return formula


def variadic(work: Cost, last: Cost) -> Formula:
    """The formula that combines k operands with k - 1 pieces of work per output element."""

    def formula(node: Node) -> Cost:
        operands = sum(spec is not None for spec in node.inputs)
        return (work * max(operands - 1, 0) + last) * out_size(node)

    return formula


def joined(node: Node) -> str:
    """Operands broadcast as in numpy, which they do since version 7 (8 where they are many)."""
    return broadcast(node) if node.op.since >= 7 else ""


def describe(work: Cost) -> str:
    """Work in words: "2 muls, 1 add"."""
    kinds = ("muls", "adds", "divs", "compares", "specials")
    found = ((getattr(work, kind), kind) for kind in kinds)
    return ", ".join(f"{n} {kind if n > 1 else kind[:-1]}" for n, kind in found if n)


def rows(table: tuple[Row, ...]) -> tuple[Entry, ...]:
    """The rules of a table of pointwise operators."""
    return tuple(
        entry(
            name,
            per_element(work),
            f"n(Y)*({describe(work)}): Y = {equation}",
            since=since,
            requires=single(0, 1, 2) if name == "Range" else joined,
        )
        for name, since, work, equation in table
    )


ENTRIES: tuple[Entry, ...] = (
    *rows(BASIC),
    *rows(tuple((name, since, SPECIAL, f"{name.lower()}(X)") for name, since in ELEMENTARY)),
    *(
        entry(
            name,
            variadic(work, last),
            f"n(Y)*((k-1)*({describe(work)})" + (f" + {describe(last)})" if last.flops else ")"),
            requires=joined,
        )
        for name, work, last in VARIADIC
    ),
)
