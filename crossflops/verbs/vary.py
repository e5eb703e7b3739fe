"""Fit a count as exact polynomials in named dimensions: count at some sizes, interpolate, and
check at others.

Polynomials go through counted points in whole numbers and fractions alone.
"""

import itertools
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import msgspec

from crossflops.errors import CrossflopsError, InputError
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.reading import OpenedFile
from crossflops.ir.graph import Graph
from crossflops.ir.ledger import CountedNode, Ledger
from crossflops.ir.polynomial import (
    Dimension,
    Formulas,
    Polynomial,
    evaluate_polynomial,
    polynomial,
)
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets.request import Request
from crossflops.threads import filter_warnings

KINDS = ("macs", "flops", "bytes_read", "bytes_written", "params")
HIGHEST = 6  # the degree beyond which nothing is tried
MULTIPLES = (1, 2, 4, 8, 16, 32, 64)
_SPARE = 4  # points that must lie on a polynomial beside those that make it
# The smallest size, and whether two are far beyond: a model may need more, or take less.
_STARTS = ((17, True), (17, False), (67, False), (259, False))
_REACH, _FAR = 64, 1024  # random sizes are up to so many multiples further
_ENDLESS = (1 << 14, 1 << 15)  # beyond any table of positions
_ELSEWHERE = 5  # random points at which all dimensions differ


class _Point(NamedTuple):
    """One count: its totals, and the cost of each node."""

    totals: tuple[int, ...]
    nodes: dict[str, tuple[int, ...]]


class _Line(NamedTuple):
    """A dimension, the sizes at which it was counted, and the degree if it has one."""

    dimension: Dimension
    sizes: tuple[int, ...]
    degree: int | None


class _Counter:
    """Counts one file at many sizes, each combination of sizes once."""

    def __init__(self, file: OnnxFile, fixed: Mapping[str, int], setting: Setting) -> None:
        self._opened = OpenedFile(msgspec.structs.replace(file, dims={}))
        self._fixed = dict(fixed)
        self._setting = setting
        self._known: dict[tuple[tuple[str, int], ...], _Point] = {}

    def point_at_sizes(self, sizes: Mapping[str, int]) -> _Point:
        """Return the totals and the node costs for these sizes of named dimensions."""
        key = tuple(sorted(sizes.items()))
        if key not in self._known:
            with filter_warnings("ignore"):  # the report's own count tells them, once
                graph, _ = self._opened.graph_with_dims({**self._fixed, **sizes}, self._setting)
                self._known[key] = _point_of_count(graph, count(graph))
        return self._known[key]

    @property
    def point_count(self) -> int:
        """The number of combinations of sizes that were counted."""
        return len(self._known)


def _point_of_count(graph: Graph, ledger: Ledger) -> _Point:
    """Return the totals of a count, and MACs, FLOPs, bytes read and bytes written of each node."""
    total = ledger.total
    sums = (total.macs, total.flops, total.bytes_read, total.bytes_written, graph.params)
    costs: dict[str, tuple[int, ...]] = {
        counted.node.key: (
            counted.cost.macs,
            counted.cost.flops,
            counted.cost.bytes_read,
            counted.cost.bytes_written,
        )
        for counted in ledger.counts
        if isinstance(counted, CountedNode)
    }
    return _Point(sums, costs)


def fit_request_polynomials(request: Request) -> Formulas:
    """Return the totals of an ONNX file as polynomials in the dimensions of --vary; raise
    InputError for another target.
    """
    if request.observe:
        message = "--vary counts at many sizes and cannot be combined with --observe"
        raise InputError(message, "leave out one of the two")
    model = request.source().model if request.is_file else None
    if not isinstance(model, OnnxFile):
        raise InputError(
            "--vary requires an ONNX file with named dimensions",
            "export the model with dynamic dimensions, and give the file",
        )
    return fit_file_polynomials(model, request.vary, request.dims, request.setting)


def fit_file_polynomials(
    file: OnnxFile, names: Sequence[str], dims: Mapping[str, int], setting: Setting = Setting()
) -> Formulas:
    """Return the totals of an ONNX file as exact polynomials in the named dimensions; a dimension
    without one has a reason.

    A polynomial is made from the fewest points and holds at further random ones, or it is none.
    Sizes with a stride have none: then it is tried on the multiples of 2, 4, ... 64.
    Raises InputError for an unknown name, and what counting raises where no size can be counted.
    """
    names = tuple(dict.fromkeys(names))
    counter = _Counter(file, {k: v for k, v in dims.items() if k not in names}, setting)
    rng = random.Random(0)
    base = dict.fromkeys(names, MULTIPLES[-1])
    lines = [_fit_dimension_line(counter, name, base, rng) for name in names]
    together = (
        _fit_joint_polynomials(counter, lines, rng)
        if all(line.degree is not None for line in lines)
        else {}
    )
    if not together and all(line.degree is not None for line in lines):
        reason = f"no polynomial in {' and '.join(names)} together was found"
        lines = [
            line._replace(dimension=_without_polynomial(line.dimension, reason)) for line in lines
        ]
    return Formulas(
        dimensions=tuple(line.dimension for line in lines),
        at={line.dimension.name: dims.get(line.dimension.name, line.sizes[0]) for line in lines},
        points=counter.point_count,
        **together,
    )


def _without_polynomial(dimension: Dimension, reason: str) -> Dimension:
    """Return a copy of the dimension that has no polynomial, with the reason."""
    return msgspec.structs.replace(dimension, multiple_of=None, reason=reason)


def _fit_dimension_line(
    counter: _Counter, name: str, base: Mapping[str, int], rng: random.Random
) -> _Line:
    """Return the degree of the totals along one dimension and the sizes that were counted, with
    the other dimensions at `base`.
    """
    problem: CrossflopsError | None = None
    node = reason = ""
    sizes: tuple[int, ...] = ()
    for step in MULTIPLES:
        for start, far in _STARTS:
            sizes = _sample_sizes(step, start, far, rng)
            try:
                highest = _degree_in_dimension(counter, name, base, sizes)
            except CrossflopsError as error:
                problem, reason = error, reason or error.message
                continue
            if highest is not None:
                reason = reason if step > 1 or node else ""
                return _Line(_dimension_record(name, step, sizes, node, reason), sizes, highest)
            if not node:
                node = _first_non_polynomial_node(counter, name, base, sizes)
                reason = reason or "its cost is not a polynomial in the size"
            problem = None
            if not (far and _has_saturated_cost(counter, name, base, node)):
                break
    if problem is not None and not node:
        raise problem
    return _Line(_dimension_record(name, None, sizes, node, reason), sizes, None)


def _dimension_record(
    name: str, step: int | None, sizes: tuple[int, ...], node: str, reason: str
) -> Dimension:
    """Return the record of a named dimension: the step of its sizes, their range, and the node
    that limits it.
    """
    return Dimension(
        name=name,
        multiple_of=step,
        smallest=min(sizes),
        largest=max(sizes),
        node=node,
        reason=reason,
    )


def _sample_sizes(step: int, start: int, far: bool, rng: random.Random) -> tuple[int, ...]:
    """Return sizes at which to count: multiples of `step` from `start` on, near ones and, with
    `far`, distant ones.
    """
    first = -(-start // step)
    beyond = range(first + 3 + _REACH, first + _FAR)
    between = range(first + 3, first + 3 + _REACH)
    chosen = [first, first + 1, first + 2, *(rng.sample(beyond, 2) if far else ())]
    chosen += rng.sample(between, HIGHEST + 1 + _SPARE - len(chosen))
    return tuple(step * size for size in chosen)


def _degree_in_dimension(
    counter: _Counter, name: str, base: Mapping[str, int], sizes: tuple[int, ...]
) -> int | None:
    """Return the highest degree of the totals in this dimension; None if they are not polynomials
    at these sizes.
    """
    for enough in range(2 + _SPARE, len(sizes) + 1):
        points = [counter.point_at_sizes({**base, name: size}).totals for size in sizes[:enough]]
        degrees = [
            polynomial_degree(sizes[:enough], values, _SPARE)
            for values in zip(*points, strict=True)
        ]
        known = [value for value in degrees if value is not None]
        if len(known) == len(degrees):
            return max(known)
    return None


def _first_non_polynomial_node(
    counter: _Counter, name: str, base: Mapping[str, int], sizes: tuple[int, ...]
) -> str:
    """Return the key of the first node whose cost is not a polynomial in this dimension, "" if
    there is none.
    """
    points = [counter.point_at_sizes({**base, name: size}).nodes for size in sizes]
    for key in points[0]:
        costs = [point[key] for point in points if key in point]
        values = zip(*costs, strict=True)
        if len(costs) < len(points) or any(
            polynomial_degree(sizes, v, _SPARE) is None for v in values
        ):
            return key
    return ""


def _has_saturated_cost(counter: _Counter, name: str, base: Mapping[str, int], node: str) -> bool:
    """Return whether the cost of the node is the same at two very large sizes of this dimension.

    Then there may be a polynomial up to that end. A stride bends again and again.
    """
    try:
        cost, other = (
            counter.point_at_sizes({**base, name: size}).nodes.get(node) for size in _ENDLESS
        )
    except CrossflopsError:
        return False
    return cost is not None and cost == other


def _fit_joint_polynomials(
    counter: _Counter, lines: Sequence[_Line], rng: random.Random
) -> dict[str, Polynomial]:
    """Return {kind of count: polynomial in all dimensions together}; {} if they do not hold at
    other sizes.

    Along the lines through the base point a degree may be lower than elsewhere, so it may grow.
    """
    names = tuple(line.dimension.name for line in lines)
    for more in range(2):
        axes = [line.sizes[: (line.degree or 0) + 1 + more] for line in lines]
        grid = list(itertools.product(*axes))
        points = {
            at: counter.point_at_sizes(dict(zip(names, at, strict=True))).totals for at in grid
        }
        polynomials = {
            kind: polynomial(
                names, interpolate_on_grid(axes, {at: p[i] for at, p in points.items()})
            )
            for i, kind in enumerate(KINDS)
        }
        if all(
            _has_matching_totals(counter, polynomials, _random_sizes(lines, rng))
            for _ in range(_ELSEWHERE)
        ):
            return polynomials
    return {}


def _random_sizes(lines: Sequence[_Line], rng: random.Random) -> dict[str, int]:
    """Return a random size for each dimension, a multiple of the dimension's step."""
    sizes = {}
    for line in lines:
        step = line.dimension.multiple_of or 1
        first = line.dimension.smallest // step
        sizes[line.dimension.name] = step * rng.randrange(first, first + 3 + _REACH)
    return sizes


def _has_matching_totals(
    counter: _Counter, polynomials: Mapping[str, Polynomial], sizes: Mapping[str, int]
) -> bool:
    """Return whether the polynomials give the totals that are counted at these sizes."""
    totals = counter.point_at_sizes(sizes).totals
    return all(
        evaluate_polynomial(polynomials[kind], sizes) == total
        for kind, total in zip(KINDS, totals, strict=True)
    )


# The polynomial through counted points.

Powers = tuple[int, ...]


def polynomial_degree(
    indices: Sequence[int], values: Sequence[int], min_spare_points: int
) -> int | None:
    """Return the degree of the polynomial through the points, if at least `min_spare_points` more
    than needed confirm it; else None.

    At least `min_spare_points` points more than the degree needs must lie on it, as a check:
    Newton's divided differences of every order above the degree are zero.
    """
    top = _newton_coefficients(indices, [Fraction(value) for value in values])
    highest = max((order for order, value in enumerate(top) if value), default=0)
    return highest if highest + 1 + min_spare_points <= len(indices) else None


def _newton_coefficients(indices: Sequence[int], values: Sequence[Fraction]) -> list[Fraction]:
    """Return the coefficients of Newton's polynomial (divided differences) through these values at
    these points.
    """
    row, coefficients = list(values), []
    for order in range(len(indices)):
        coefficients.append(row[0])
        row = [
            (row[i + 1] - row[i]) / (indices[i + order + 1] - indices[i])
            for i in range(len(row) - 1)
        ]
    return coefficients


def interpolate_on_grid(
    axes: Sequence[Sequence[int]], values: Mapping[tuple[int, ...], int | Fraction]
) -> dict[Powers, Fraction]:
    """Return the polynomial through values on a grid of sizes, as {powers of the sizes:
    coefficient}.

    `axes` are the sizes of each dimension, `values` what was counted at every combination.
    Newton's form is found along one axis after the other, then multiplied out.
    """
    newton = {at: Fraction(value) for at, value in values.items()}
    for index, axis in enumerate(axes):
        lines = {(*at[:index], *at[index + 1 :]) for at in newton}
        newton = {
            (*rest[:index], axis[order], *rest[index:]): value
            for rest in lines
            for order, value in enumerate(
                _newton_coefficients(
                    axis, [newton[(*rest[:index], size, *rest[index:])] for size in axis]
                )
            )
        }
    bases = [dict(zip(axis, _newton_basis(axis), strict=True)) for axis in axes]
    polynomial: dict[Powers, Fraction] = {}
    for at, value in newton.items():
        terms: dict[Powers, Fraction] = {(): value}
        for base, size in zip(bases, at, strict=True):
            terms = {
                (*powers, power): coefficient * factor
                for powers, coefficient in terms.items()
                for power, factor in enumerate(base[size])
            }
        for powers, coefficient in terms.items():
            polynomial[powers] = polynomial.get(powers, Fraction(0)) + coefficient
    return {powers: value for powers, value in polynomial.items() if value}


def _newton_basis(indices: Sequence[int]) -> list[list[Fraction]]:
    """Return the polynomials of Newton's basis as lists of coefficients: the product of (x -
    index) over the first 0, 1, 2 ... indices.
    """
    product, basis = [Fraction(1)], []
    for index in indices:
        basis.append(product)
        shifted = [Fraction(0), *product]
        product = [
            high - index * low for high, low in zip(shifted, [*product, Fraction(0)], strict=True)
        ]
    return basis
