"""Fit a count as exact polynomials in named dimensions: count at some sizes, interpolate, and
check at others.

Polynomials go through counted points in whole numbers and fractions alone.
"""

import itertools
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import msgspec

from crossflops.errors import CrossflopsError, CrossflopsWarning, InputError
from crossflops.frontends.onnx import OnnxFile
from crossflops.ir.polynomial import (
    Dimension,
    Formulas,
    Polynomial,
    evaluate_polynomial,
    polynomial,
)
from crossflops.report.report import Totals
from crossflops.targets.request import Request
from crossflops.verbs.varied_counts import PointCounter, Sampling, file_counter, model_counter

KINDS = {
    "macs": "MACs",
    "flops": "FLOPs",
    "bytes_read": "bytes read",
    "bytes_written": "bytes written",
    "params": "parameters",
}
MULTIPLES = (1, 2, 4, 8, 16, 32, 64)
_FAR = 1024  # multiples, which a file is counted at in addition
_ENDLESS = (1 << 14, 1 << 15)  # beyond any table of positions


class _Line(NamedTuple):
    """A dimension, the sizes at which it was counted, and the degree if it has one."""

    dimension: Dimension
    sizes: tuple[int, ...]
    degree: int | None


def fit_request_polynomials(
    request: Request, on_progress: Callable[[str], None] = lambda _: None
) -> Formulas:
    """Return the totals of the requested model as exact polynomials in the dimensions of --vary; a
    dimension without one has a reason. `on_progress` gets a line about each count.

    A polynomial is made from the fewest points and holds at further random ones, or it is none.
    Sizes with a stride have none: then it is tried on the multiples of 2, 4, ... 64.
    Raises InputError for an unknown name, and what counting raises where no size can be counted.
    """
    if request.observe:
        message = "--vary counts at many sizes and cannot be combined with --observe"
        raise InputError(message, "leave out one of the two")
    names = tuple(dict.fromkeys(request.vary))
    model = request.source().model if request.is_file else None
    if isinstance(model, OnnxFile) and not request.named_inputs:
        counter = file_counter(model, names, request.dims, request.setting, on_progress)
    else:
        counter = model_counter(request, names, on_progress)
    return _fit_polynomials(counter, names)


def _fit_polynomials(counter: PointCounter, names: tuple[str, ...]) -> Formulas:
    """Return the totals that a counter counts as exact polynomials in these dimensions."""
    rng = random.Random(0)
    lines = [_fit_dimension_line(counter, name, rng) for name in names]
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
        at={
            line.dimension.name: size
            for line in lines
            if (size := counter.size_of_tables(line.dimension.name, line.sizes)) is not None
        },
        points=counter.point_count,
        **together,
    )


def check_formulas_of_tables(formulas: Formulas, totals: Totals) -> None:
    """Warn if the polynomials give other totals at the sizes of the tables than were counted
    there.
    """
    names = [dimension.name for dimension in formulas.dimensions]
    if formulas.macs is None or any(name not in formulas.at for name in names):
        return
    for kind in KINDS:
        total: int = getattr(totals, kind)
        value = evaluate_polynomial(getattr(formulas, kind) or (), formulas.at)
        if value != total:
            sizes = ", ".join(f"{name}={formulas.at[name]}" for name in names)
            warnings.warn(
                f"the polynomials do not hold at {sizes}: they give {value} {KINDS[kind]}, and "
                f"the count has {total}; they hold for the sizes from which they were made",
                CrossflopsWarning,
                stacklevel=2,
            )
            return


def _without_polynomial(dimension: Dimension, reason: str) -> Dimension:
    """Return a copy of the dimension that has no polynomial, with the reason."""
    return msgspec.structs.replace(dimension, multiple_of=None, reason=reason)


def _fit_dimension_line(counter: PointCounter, name: str, rng: random.Random) -> _Line:
    """Return the degree of the totals along one dimension and the sizes that were counted, with
    the other dimensions at their base.

    A polynomial on the multiples of 8 is one on those of 16. So the smallest step that has one is
    found by bisection.
    """
    search = _StepSearch(counter, name, rng)
    line = search.line_with_step(1)
    if line is None:
        line = search.line_with_step(MULTIPLES[-1])
        failed, holds = 0, len(MULTIPLES) - 1
        while line is not None and holds - failed > 1:
            middle = (failed + holds) // 2
            finer = search.line_with_step(MULTIPLES[middle])
            line, failed, holds = (
                (line, middle, holds) if finer is None else (finer, failed, middle)
            )
    if line is not None:
        return line
    if search.problem is not None and not search.node:
        raise InputError(
            f"--vary {name}: the model cannot be counted at any size of {name} that was tried, "
            f"the last from {min(search.sizes)} on: {search.problem.message}",
            search.problem.hint,
        ) from search.problem
    record = _dimension_record(name, None, search.sizes, search.node, search.reason)
    return _Line(record, search.sizes, None)


class _StepSearch:
    """Looks for a polynomial on the multiples of a step, and keeps why others had none.

    `node` is the first one whose cost is no polynomial, `problem` the last error at a size that
    the model does not take.
    """

    def __init__(self, counter: PointCounter, name: str, rng: random.Random) -> None:
        self._counter = counter
        self._name = name
        self._rng = rng
        self.node = self.reason = ""
        self.problem: CrossflopsError | None = None
        self.sizes: tuple[int, ...] = ()

    def line_with_step(self, step: int) -> _Line | None:
        """Return the line through counts at multiples of `step`; None if they are no
        polynomial.
        """
        counter, name = self._counter, self._name
        for start, far in counter.sampling.starts:
            self.sizes = _sample_sizes(counter.sampling, step, start, far, self._rng)
            try:
                highest = _degree_in_dimension(counter, name, self.sizes)
            except CrossflopsError as error:
                self.problem, self.reason = error, self.reason or error.message
                continue
            if highest is not None:
                reason = self.reason if step > 1 or self.node else ""
                record = _dimension_record(name, step, self.sizes, self.node, reason)
                return _Line(record, self.sizes, highest)
            if not self.node:
                self.node = _first_non_polynomial_node(counter, name, self.sizes)
                self.reason = self.reason or "its cost is not a polynomial in the size"
            self.problem = None
            if not (far and _has_saturated_cost(counter, name, self.node)):
                break
        return None


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


def _sample_sizes(
    sampling: Sampling, step: int, start: int, far: bool, rng: random.Random
) -> tuple[int, ...]:
    """Return sizes at which to count: multiples of `step` from `start` on, near ones and, with
    `far`, distant ones.
    """
    first = -(-start // step)
    beyond = range(first + 3 + sampling.reach, first + _FAR)
    between = range(first + 3, first + 3 + sampling.reach)
    chosen = [first, first + 1, first + 2, *(rng.sample(beyond, 2) if far else ())]
    chosen += rng.sample(between, sampling.highest + 1 + sampling.spare - len(chosen))
    return tuple(step * size for size in chosen)


def _degree_in_dimension(counter: PointCounter, name: str, sizes: tuple[int, ...]) -> int | None:
    """Return the highest degree of the totals in this dimension; None if they are not polynomials
    at these sizes.
    """
    spare = counter.sampling.spare
    for enough in range(2 + spare, len(sizes) + 1):
        points = [
            counter.point_at_sizes({**counter.base, name: size}).totals for size in sizes[:enough]
        ]
        degrees = [
            polynomial_degree(sizes[:enough], values, spare)
            for values in zip(*points, strict=True)
        ]
        known = [value for value in degrees if value is not None]
        if len(known) == len(degrees):
            return max(known)
    return None


def _first_non_polynomial_node(counter: PointCounter, name: str, sizes: tuple[int, ...]) -> str:
    """Return the key of the first node whose cost is not a polynomial in this dimension, "" if
    there is none.
    """
    points = [counter.point_at_sizes({**counter.base, name: size}).nodes for size in sizes]
    for key in points[0]:
        costs = [point[key] for point in points if key in point]
        values = zip(*costs, strict=True)
        if len(costs) < len(points) or any(
            polynomial_degree(sizes, v, counter.sampling.spare) is None for v in values
        ):
            return key
    return ""


def _has_saturated_cost(counter: PointCounter, name: str, node: str) -> bool:
    """Return whether the cost of the node is the same at two very large sizes of this dimension.

    Then there may be a polynomial up to that end. A stride bends again and again.
    """
    try:
        cost, other = (
            counter.point_at_sizes({**counter.base, name: size}).nodes.get(node)
            for size in _ENDLESS
        )
    except CrossflopsError:
        return False
    return cost is not None and cost == other


def _fit_joint_polynomials(
    counter: PointCounter, lines: Sequence[_Line], rng: random.Random
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
            _has_matching_totals(
                counter, polynomials, _random_sizes(lines, counter.sampling.reach, rng)
            )
            for _ in range(counter.sampling.elsewhere)
        ):
            return polynomials
    return {}


def _random_sizes(lines: Sequence[_Line], reach: int, rng: random.Random) -> dict[str, int]:
    """Return a random size for each dimension, a multiple of the dimension's step."""
    sizes = {}
    for line in lines:
        step = line.dimension.multiple_of or 1
        first = line.dimension.smallest // step
        sizes[line.dimension.name] = step * rng.randrange(first, first + 3 + reach)
    return sizes


def _has_matching_totals(
    counter: PointCounter, polynomials: Mapping[str, Polynomial], sizes: Mapping[str, int]
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
