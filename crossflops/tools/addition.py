"""How a tool makes one number of all that it books: what it divides by, and how it adds up."""

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction

import msgspec

from crossflops.ir.convention import Clause
from crossflops.ir.profile import Amount
from crossflops.ir.trace import Call, Trace
from crossflops.tools.formulas import offered


class Share(msgspec.Struct, frozen=True):
    """What a clause books for one call in the tool's own unit, and what it will be divided by."""

    clause: Clause
    amount: Amount
    call: Call
    divisor: int = 1


Batch = Callable[[Trace], int]
Sum = Callable[[Sequence[Share]], Amount]


def exact_sum(shares: Sequence[Share]) -> Amount:
    """The exact sum, each share divided; the nearest float where that is no integer."""
    total = sum((Fraction(one.amount) / one.divisor for one in shares), start=Fraction())
    if total.denominator == 1:
        return total.numerator
    nearest = float(total)
    return int(nearest) if nearest.is_integer() else nearest


@functools.cache
def batches() -> dict[str, Batch]:
    """All formulas of what a tool divides by, by name."""
    return offered("BATCHES")


@functools.cache
def sums() -> dict[str, Sum]:
    """All ways of adding up that are not exact, by name."""
    return offered("SUMS")
