"""Nodes that do the same in modules that are alike, as one row of a table."""

import re
from collections.abc import Iterable

from crossflops.core.roofline import KindBound, Load, NodeBound, Side

_PRODUCTS = frozenset(("MatMul", "Gemm", "Einsum"))


def kind(load: Load) -> str:
    """The operator, and the sort of module around: numbers in its path are any number.

    A node that reads weights stands in the module that owns them (a layer), and it is what is
    around this that tells sorts apart: q_proj and o_proj are both of self_attn. A product of two
    activations beside them is a sort of its own.

    >>> kind(_example("MatMul", "model.layers.3.mlp.up_proj", weighted=True))
    'MatMul (mlp)'
    >>> kind(_example("MatMul", "model.layers.3.self_attn"))
    'MatMul of activations (self_attn)'
    >>> kind(_example("Conv", "fc", weighted=True)), kind(_example("Relu", ""))
    ('Conv (fc)', 'Relu')
    """
    names = [name for name in re.split(r"[./]", load.path) if name]
    if load.weighted and len(names) > 1:
        names.pop()
    names = [name for name in names if not name.isdigit()] or names
    apart = load.op in _PRODUCTS and not load.weighted
    op = f"{load.op} of activations" if apart else load.op
    return f"{op} ({re.sub(r'[0-9]+', '*', names[-1])})" if names else op


def kind_bounds(nodes: Iterable[NodeBound]) -> tuple[KindBound, ...]:
    """The nodes by kind, those that take the longest first."""
    found: dict[str, list[NodeBound]] = {}
    for one in nodes:
        found.setdefault(one.kind, []).append(one)
    rows = (_together(name, rows) for name, rows in found.items())
    return tuple(sorted(rows, key=lambda row: (-row.seconds, row.kind)))


def _together(name: str, rows: list[NodeBound]) -> KindBound:
    return KindBound(
        kind=name,
        nodes=len(rows),
        work=sum(row.work for row in rows),
        bytes=sum(row.bytes for row in rows),
        cache=sum(row.cache for row in rows),
        seconds=sum(row.seconds for row in rows),
        bound=_mostly(rows),
    )


def _mostly(rows: list[NodeBound]) -> Side:
    """The side on which most of the time is."""
    sides: dict[Side, float] = {}
    for row in rows:
        sides[row.bound] = sides.get(row.bound, 0.0) + row.seconds
    return max(sides, key=lambda one: sides[one])


def _example(op: str, path: str, weighted: bool = False) -> Load:
    counts = dict.fromkeys(("macs", "operations", "weights", "cache", "activations"), 1)
    return Load(node="", op=op, path=path, precision="float32", weighted=weighted, **counts)
