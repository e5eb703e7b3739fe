"""How XLA's cost analysis adds up: in single precision, one function of the program at a time.

xla/service/hlo_cost_analysis.cc: Postprocess, ProcessSubcomputation. Doubles hold every number
here: the sum and the product of two single-precision numbers, rounded to single precision, are
then the very numbers that single-precision arithmetic gives.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from struct import pack, unpack
from typing import cast

from crossflops.ir.trace import Call
from crossflops.rules.rule import Share
from crossflops.tools.xla.analysis import REDUCERS, applications

_DIGITS = 24  # of a single-precision number, in binary


def nearest(value: float) -> float:
    """The single-precision number nearest to a value, the one that ends in 0 where two are.

    A whole number of any size is rounded once; by way of a double it might be twice.
    """
    extra = abs(value).bit_length() - _DIGITS if isinstance(value, int) else 0
    if extra <= 0:
        rounded: float = unpack("f", pack("f", value))[0]
        return rounded
    kept, rest = divmod(abs(int(value)), 1 << extra)
    half = 1 << (extra - 1)
    kept += rest > half or (rest == half and kept % 2)
    return float(kept << extra if value > 0 else -kept << extra)


def counted(call: Call, amount: int) -> float:
    """What XLA holds for an instruction that counts so much.

    Of a reduction it is a product of two single-precision numbers: of what the reducer counts,
    and of how often it is applied.
    """
    times = applications(call) if call.target in REDUCERS else 0
    if times and not amount % times:
        return nearest(nearest(amount // times) * nearest(times))
    return nearest(amount)


def total(shares: Sequence[Share]) -> int:
    """The sum in single precision of all that follows, in the order in which XLA visits it.

    What a function counts is added up by itself, then to what its caller has so far. Instructions
    that compilation removed stand behind the others, with nothing left of what they counted.
    """
    nest: list[str] = []
    sums = [0.0]
    for call, amount in _amounts(shares):
        around = cast(list[str], call.settings["nest"])
        kept = _alike(nest, around)
        _close(sums, len(nest) - kept)
        sums += [0.0] * (len(around) - kept)
        nest = around
        sums[-1] = nearest(sums[-1] + counted(call, amount))
    _close(sums, len(nest))
    return int(sums[0])


def _amounts(shares: Sequence[Share]) -> Iterator[tuple[Call, int]]:
    for _, group in groupby(shares, key=lambda share: share.call.key):
        own = list(group)
        yield own[0].call, sum(int(share.amount) for share in own)


def _alike(first: Sequence[str], second: Sequence[str]) -> int:
    """How many functions around are the same, from the outermost inwards."""
    pairs = zip(first, second, strict=False)
    return next(
        (place for place, (left, other) in enumerate(pairs) if left != other),
        min(len(first), len(second)),
    )


def _close(sums: list[float], times: int) -> None:
    """Add what the innermost function has to what its caller has."""
    for _ in range(times):
        inner = sums.pop()
        sums[-1] = nearest(sums[-1] + inner)
