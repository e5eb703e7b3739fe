"""Whose MACs a rate is computed from: the native ones, a tool's, or a number that was given.

A tool's total is divided by what the tool counts for one MAC, so that the 2 FLOPs per MAC of a
rate are not applied twice.
"""

import re
from fractions import Fraction
from math import isfinite

import msgspec

from crossflops import conventions
from crossflops.core.profile import Amount, Profile
from crossflops.core.reconciliation import Reconciliation
from crossflops.core.report import Report
from crossflops.errors import InputError
from crossflops.hardware.rates.pieces import Piece, whole

NATIVE = "native MACs"
GIVEN = "given"

_QUANTITY = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)\s?([kKMGTP]?)")
_POWERS = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}


class Numerator(msgspec.Struct, frozen=True, kw_only=True):
    """MACs of one unit (example or token): whose, how many, what was assumed, what to beware of.

    `pieces` add up to them; () where nothing is known but their number.
    """

    label: str
    macs: int
    unit: str = "example"
    pieces: tuple[Piece, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def split(self) -> tuple[Piece, ...]:
        """The pieces; all of it is one, where nothing is known but the number."""
        return self.pieces or whole(self.macs)


def quantity(text: str) -> int:
    """A count as people write it, exactly: digits and perhaps one of k, M, G, T, P.

    >>> quantity("4.112G"), quantity("57")
    (4112000000, 57)

    Raises InputError for anything else, and for a number that is not whole.
    """
    found = _QUANTITY.fullmatch(text.strip())
    if not found:
        raise InputError(f"{text!r} is no count", "write for example 4.112G or 4111514624")
    power: int = 10 ** _POWERS[found[2]]
    value = Fraction(found[1]) * power
    if value.denominator != 1:
        raise InputError(f"{text} is not a whole number", "give every digit of the count")
    return value.numerator


def given(macs: int, report: Report | None = None) -> Numerator:
    """A number from elsewhere, beside the native count where the model is at hand."""
    if report is None:
        return Numerator(label=GIVEN, macs=macs, notes=("the MACs are given, not counted",))
    native = report.macs
    off = f" ({float(100 * Fraction(macs - native, native)):+.2f} % to these)" if native else ""
    note = f"the MACs are given; {report.name} has {_spelled(native)}, counted natively{off}"
    return Numerator(label=GIVEN, macs=macs, notes=(note, *_example(report)))


def native(report: Report) -> Numerator:
    """The count of crossflops."""
    return Numerator(
        label=NATIVE,
        macs=report.macs,
        notes=(*_example(report), *_exactness(report), *_experts(report)),
        warnings=(*_batch(report), *_uncounted(report)),
    )


def folded(report: Report) -> Numerator:
    """The total of the convention that was asked for. Raises ValueError where none was.

    Raises InputError for a convention that counts bytes, or nothing of contractions.
    """
    if report.as_ is None:
        raise ValueError("the report was not counted by a convention")
    tool, edition = report.as_.tool, report.as_.edition
    unit = _unit(tool, edition)
    if not unit:
        raise InputError(
            f"{tool} counts no multiply-accumulates", "give --as a tool that does, such as thop"
        )
    macs, notes = _as_macs(f"{tool}@{edition}", report.as_.total, unit)
    assumed = f"{tool} could not have run this model: its total is inferred from the graph"
    return Numerator(
        label=f"{tool}@{edition}",
        macs=macs,
        notes=(*notes, *_example(report)),
        warnings=(*([assumed] if report.as_.assumed else []), *_batch(report)),
    )


def by_tool(report: Report) -> tuple[Numerator, ...]:
    """The native count, then every tool that answered, in the order of the report.

    A tool whose total cannot be turned into MACs is named in the warnings of the native count.
    """
    found, left = [], []
    for profile in report.profiles or ():
        if isinstance(profile, Profile):
            why = _unusable(report, profile)
            if why:
                left.append(f"{profile.tool} is left out: {why}")
            else:
                found.append(_of_tool(report, profile))
    ours = native(report)
    return (msgspec.structs.replace(ours, warnings=(*ours.warnings, *left)), *found)


def _of_tool(report: Report, profile: Profile) -> Numerator:
    edition = report.reconciliation(profile.tool).edition
    macs, notes = _as_macs(profile.tool, profile.total, _unit(profile.tool, edition))
    return Numerator(label=profile.tool, macs=macs, notes=notes)


def _unusable(report: Report, profile: Profile) -> str:
    if not isfinite(profile.total) or profile.total < 0:
        return f"it printed {profile.total}"
    if _reconciliation(report, profile.tool) is None:
        return "what it counts for one MAC is not known"
    return ""


def _reconciliation(report: Report, tool: str) -> Reconciliation | None:
    return next((one for one in report.reconciliations or () if one.tool == tool), None)


def _unit(tool: str, edition: str) -> int:
    return conventions.find(tool, edition).unit


def _as_macs(label: str, total: Amount, unit: int) -> tuple[int, tuple[str, ...]]:
    exact = Fraction(total) / unit
    macs = round(exact)
    how = f"counts {unit} per MAC: its total of {_spelled(total)} is divided by that"
    if unit == 1:
        how = f"counts 1 per MAC: all of its {_spelled(total)} are taken as MACs"
    rounded = () if exact == macs else (f"{label}: rounded to whole MACs",)
    return macs, (f"{label} {how}", *rounded)


def _spelled(amount: Amount) -> str:
    return f"{amount:,}".replace(",", " ")


def _example(report: Report) -> tuple[str, ...]:
    inputs = [
        f"{one.name} {'x'.join(map(str, one.shape)) or 'scalar'}" for one in report.model.inputs
    ]
    return (f"one example is one pass on {', '.join(inputs) or 'no input'}",)


def _batch(report: Report) -> tuple[str, ...]:
    first = next((one.shape[0] for one in report.model.inputs if one.shape), 1)
    if first == 1:
        return ()
    what = f"the first dimension of the input is {first}: if that is a batch"
    return (f"{what}, count with 1, or the rate comes out {first} times too high",)


def _exactness(report: Report) -> tuple[str, ...]:
    found = {node.exactness for node in report.nodes} - {"exact"}
    return (f"some nodes are counted as {' and '.join(sorted(found))}",) if found else ()


def _experts(report: Report) -> tuple[str, ...]:
    active = report.totals.active_params
    if not isinstance(active, int) or active == report.params:
        return ()
    return (
        f"the MACs are those of the experts that are chosen: {_spelled(active)} of "
        f"{_spelled(report.params)} parameters are active; memory holds all of them",
    )


def _uncounted(report: Report) -> tuple[str, ...]:
    if not report.uncounted:
        return ()
    return (f"uncounted nodes: {len(report.uncounted)}, so the rate is a lower bound",)
