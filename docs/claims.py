"""Figures that others published, and what `crossflops efficiency` makes of each.

A row of published.json has the model, what is claimed of it, the figure as it is printed, its
source, and the options of `crossflops efficiency` that compute it. A number among the options that
the source prints in few digits is `rounded`: it lies between `low` and `high`. Where the figure
does not come out, `ours` is what does, and `why` says what the difference is.
"""

import io
import json
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Any

import msgspec

from crossflops.cli import main

FILE = Path(__file__).with_name("published.json")


class RoundedOption(msgspec.Struct, frozen=True):
    """An option whose value the source rounds or cuts off."""

    option: str
    low: str
    high: str


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published figure: see above."""

    model: str
    claim: str
    printed: str
    figure: str
    options: str
    source: str
    rounded: RoundedOption | None = None
    ours: str = ""
    why: str = ""
    note: str = ""


def claims() -> list[Claim]:
    """All of them."""
    return msgspec.json.decode(FILE.read_bytes(), type=list[Claim])


# Where a figure stands in what `efficiency --json` writes, in the unit in which it is printed.
FIGURES: dict[str, Callable[[dict[str, Any]], float]] = {
    "mfu": lambda row: 100 * row["ratio"],
    "hfu": lambda row: 100 * row["hfu"],
    "mbu": lambda row: 100 * row["moved"]["mbu"],
    "flops": lambda row: row["run"]["flops"],
    "hours": lambda row: row["run"]["device_hours"],
    "days": lambda row: row["run"]["hours"] / 24,
    "tflops": lambda row: row["rate"] / 1e12,
    "gb_per_s": lambda row: row["moved"]["bytes"] / row["moved"]["seconds"] / 1e9,
    "forward_tflops": lambda row: row["step"]["phases"][0]["rate"] / 1e12,
    "both_tflops": lambda row: row["step"]["phases"][2]["rate"] / 1e12,
    "examples_per_second": lambda row: row["step"]["examples_per_second"],
}


def computed(claim: Claim, options: str = "") -> Decimal:
    """The figure as `crossflops efficiency` computes it. Raises ValueError where it ends badly."""
    out = io.StringIO()
    with redirect_stdout(out):
        status = main(["efficiency", *shlex.split(options or claim.options), "--json"])
    if status:
        raise ValueError(f"efficiency {options or claim.options} ended with {status}")
    (row,) = json.loads(out.getvalue())["efficiency"]
    return Decimal(FIGURES[claim.figure](row))


def digits(text: str) -> Decimal:
    """One unit of the last digit of a printed number.

    >>> digits("46.2"), digits("3.14e23") == Decimal("1e21")
    (Decimal('0.1'), True)
    """
    exponent = Decimal(text).as_tuple().exponent
    assert isinstance(exponent, int)
    return Decimal(1).scaleb(exponent)


def is_printed(text: str, *values: Decimal) -> bool:
    """Whether one of the values, or one between them, is rounded to this text."""
    half = digits(text) / 2
    return min(values) <= Decimal(text) + half and max(values) >= Decimal(text) - half


def shown(value: Decimal, text: str) -> str:
    """The value in as many digits as the text has.

    >>> shown(Decimal("46.2289"), "46.2"), shown(Decimal("3.1428e23"), "3.14e23")
    ('46.2', '3.14e23')
    """
    mantissa, is_power, _ = text.partition("e")
    places = len(mantissa.partition(".")[2])
    with localcontext(rounding=ROUND_HALF_UP):
        written = f"{value:.{places}{'e' if is_power else 'f'}}"
    return written.replace("e+", "e")


def outcome(claim: Claim) -> tuple[str, str]:
    """Return the computed figure in the digits of the printed one, and how it is to be taken."""
    value = computed(claim)
    ours = shown(value, claim.ours or claim.printed)
    if claim.why:
        return ours, claim.why
    if claim.rounded is None:
        return ours, "; ".join(filter(None, ("as printed", claim.note)))
    held = claim.rounded
    return ours, (
        f"as printed for some {held.option} from {held.low} to {held.high}, which the "
        "source rounds"
    )


def bounds(claim: Claim) -> list[Decimal]:
    """The figures at both ends of what is rounded."""
    held = claim.rounded
    if held is None:
        return [computed(claim)]
    words = shlex.split(claim.options)
    place = words.index(held.option) + 1
    return [
        computed(claim, shlex.join([*words[:place], end, *words[place + 1 :]]))
        for end in (held.low, held.high)
    ]
