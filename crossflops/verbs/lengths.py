"""Fit exact polynomials to counts that depend on a length, piece by piece, and sum them exactly.

A piece is made from the fewest points, and holds at its end and at a random length between, which
were counted as well. Where a polynomial ends (a window is full), the next one begins.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import msgspec

from crossflops.errors import InputError
from crossflops.verbs.vary import Powers, interpolate_on_grid, polynomial_degree

HIGHEST = 3  # the degree beyond which nothing is tried
SPAN = HIGHEST + 2  # lengths that determine a polynomial of this degree, and check it
MOST_PIECES = 16
Terms = Mapping[Powers, Fraction]
Counter = Callable[[int], tuple[int, ...]]


class PolynomialPiece(msgspec.Struct, frozen=True):
    """Polynomials in a length, one for each kind of count, which hold for lengths from `first` to
    `last`.
    """

    first: int
    last: int
    terms: tuple[Terms, ...]

    @property
    def degree(self) -> int:
        """The highest power of the length in any of the polynomials."""
        return max((powers[0] for terms in self.terms for powers in terms), default=0)


def polynomial_value(terms: Terms, *sizes: int) -> int:
    """Return the value of a polynomial at these sizes; raise ValueError if it is not an
    integer.
    """
    total = Fraction(0)
    for powers, coefficient in terms.items():
        product = coefficient
        for size, power in zip(sizes, powers, strict=True):
            product *= size**power
        total += product
    if total.denominator != 1:
        raise ValueError(f"a count of {total} is not a whole number")
    return total.numerator


def prefix_sum_polynomial(terms: Terms) -> Terms:
    """Return the polynomial S(n) = f(1) + f(2) + ... + f(n), for a polynomial f in one length.

    It has one degree more (Faulhaber), so that degree + 2 points determine it.
    """
    top = max((powers[0] for powers in terms), default=0)
    total = Fraction(0)
    values: dict[tuple[int, ...], Fraction] = {(0,): total}
    for n in range(1, top + 2):
        total += sum((c * n ** powers[0] for powers, c in terms.items()), Fraction(0))
        values[n,] = total
    return interpolate_on_grid([range(top + 2)], values)


def sum_pieces_over_lengths(
    pieces: Sequence[PolynomialPiece], kind: int, first: int, last: int
) -> int:
    """Return the sum of one kind of count over all lengths from `first` to `last`."""
    total = 0
    for piece in pieces:
        low, high = max(first, piece.first), min(last, piece.last)
        if low <= high:
            sums = prefix_sum_polynomial(piece.terms[kind])
            total += polynomial_value(sums, high) - polynomial_value(sums, low - 1)
    return total


def fit_polynomial_pieces(
    count: Counter, first: int, last: int, hints: Sequence[int], subject: str
) -> tuple[PolynomialPiece, ...]:
    """Return polynomial pieces that together cover all lengths from `first` to `last`; raise
    InputError if too many are needed.

    Args:
        count: The counts of every kind at a length. It is asked for few lengths, some repeatedly.
        first: The smallest length.
        last: The largest length.
        hints: Lengths at which a polynomial may end.
        subject: The thing that is counted, for a message.

    Raises:
        InputError: There are too many pieces.
    """
    pieces: list[PolynomialPiece] = []
    rng = random.Random(0)
    while first <= last:
        if len(pieces) == MOST_PIECES:
            ends = ", ".join(str(piece.last) for piece in pieces[:4])
            raise InputError(
                f"no single polynomial of the length gives the cost of {subject}: a new one "
                f"begins after the lengths {ends} and others",
                "count one length at a time: give --seq N instead of --prompt and --generate",
            )
        piece = _fit_piece(count, first, last, hints, rng)
        pieces.append(piece)
        first = piece.last + 1
    return tuple(pieces)


def _fit_piece(
    count: Counter, first: int, last: int, hints: Sequence[int], rng: random.Random
) -> PolynomialPiece:
    """Return the longest polynomial piece that begins at the length `first`."""
    if (piece := _fit_piece_up_to(count, first, last, rng)) is not None:
        return piece
    beyond = last  # the smallest length that is known to lie on no polynomial from here
    for end in sorted({hint for hint in hints if first <= hint < last}, reverse=True):
        if (piece := _fit_piece_up_to(count, first, end, rng)) is None:
            beyond = end
            continue
        return _extend_piece(count, piece, beyond)
    neighbors = range(first, min(first + HIGHEST + 2, last))
    values = [count(size) for size in neighbors]
    for enough in range(len(neighbors), 2, -1):
        degrees = [
            polynomial_degree(neighbors[:enough], column, 1)
            for column in _values_by_kind(values[:enough])
        ]
        if None not in degrees:
            short = _interpolate_piece(
                neighbors[:enough], values[:enough], first, neighbors[enough - 1]
            )
            return _extend_piece(count, short, beyond)
    return _interpolate_piece([first], values[:1], first, first)


def _fit_piece_up_to(
    count: Counter, first: int, last: int, rng: random.Random
) -> PolynomialPiece | None:
    """Return the piece of lowest degree that holds from `first` to `last`, checked at further
    lengths; None if none does.
    """
    checked_sizes = {last, rng.randint(first, last)} if last - first > HIGHEST else {last}
    for order in range(1, HIGHEST + 1):
        sizes = range(first, min(first + order, last) + 1)
        piece = _interpolate_piece(sizes, [count(size) for size in sizes], first, last)
        if all(_piece_holds(count, piece, size) for size in checked_sizes):
            return piece
        if first + order >= last:
            break
    return None


def _interpolate_piece(
    sizes: Sequence[int], values: Sequence[tuple[int, ...]], first: int, last: int
) -> PolynomialPiece:
    """Return the piece whose polynomials go through these values at these sizes; `values` has one
    tuple of counts for each size.
    """
    terms = tuple(
        interpolate_on_grid(
            [sizes], {(size,): value for size, value in zip(sizes, column, strict=True)}
        )
        for column in _values_by_kind(values)
    )
    return PolynomialPiece(first, last, terms)


def _values_by_kind(values: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the values by kind of count: one tuple for each kind, with a value for each size."""
    return list(zip(*values, strict=True))


def _piece_holds(count: Counter, piece: PolynomialPiece, size: int) -> bool:
    """Return whether the polynomials of the piece give the counts at this size."""
    counted = count(size)
    return all(
        sum(c * size ** powers[0] for powers, c in terms.items()) == value
        for terms, value in zip(piece.terms, counted, strict=True)
    )


def _extend_piece(count: Counter, piece: PolynomialPiece, beyond: int) -> PolynomialPiece:
    """Return a copy of the piece that extends to the last length before `beyond` at which it still
    holds.
    """
    low, high = piece.last, beyond
    if high > low + 1 and not _piece_holds(count, piece, low + 1):
        high = low + 1
    while high > low + 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _piece_holds(count, piece, middle) else (low, middle)
    return msgspec.structs.replace(piece, last=low)


def fit_prompt_polynomials(count: Counter, first: int, last: int) -> tuple[Terms | None, ...]:
    """Return for each kind of count its polynomial in the prompt length, None for a kind that has
    none.

    A sort of tokens has none, since it compares n log n times. Five lengths are counted, of which
    at least one is a check.
    """
    sizes = sorted({first, first + 1, first + 2, (first + last) // 2, last} & {*range(last + 1)})
    columns = _values_by_kind([count(size) for size in sizes])
    return tuple(
        interpolate_on_grid(
            [sizes], {(size,): value for size, value in zip(sizes, column, strict=True)}
        )
        if polynomial_degree(sizes, column, 1) is not None
        else None
        for column in columns
    )


def fit_two_length_polynomials(
    count: Callable[[int, int], tuple[int, ...]], piece: PolynomialPiece, largest: int
) -> tuple[Terms | None, ...]:
    """Return for each kind of count its polynomial in two lengths, the other length first; None
    for a kind that has none.

    The piece holds at the `largest` of that length. None for a kind of count that has no
    polynomial in both; the others hold at one size that they were not made from.
    """
    sizes = range(piece.first, min(piece.first + piece.degree, piece.last) + 1)
    others = sorted({2, largest // 2 + 1, largest} - {1})
    others += range(others[-1] + 1, others[-1] + 4 - len(others))  # a check needs three
    grid = {(other, size): count(other, size) for other in others for size in sizes}
    terms: list[Terms | None] = []
    for kind in range(len(piece.terms)):
        lines = [tuple(grid[other, size][kind] for other in others) for size in sizes]
        if any(polynomial_degree(others, line, 1) is None for line in lines):
            terms.append(None)
        else:
            values: dict[tuple[int, ...], int | Fraction] = {
                at: counts[kind] for at, counts in grid.items()
            }
            terms.append(interpolate_on_grid([others, sizes], values))
    return tuple(terms)
