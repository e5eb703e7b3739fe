"""Find how a published figure can be read: which tool's number it is, doubled or halved, and how
it was rounded.

A reading is exact if the number prints as the figure, or near if one or two named causes are
missing. Nothing is counted here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

import msgspec

from crossflops.ir.profile import Amount
from crossflops.report.model_numbers import (
    NATIVE,
    PER_TOKEN,
    ConventionNumber,
    ModelNumbers,
)
from crossflops.report.published import PublishedFigure, Rounding

PARAMS = "params"
HALF, ONCE, TWICE = Fraction(1, 2), Fraction(1), Fraction(2)
_MOST_CAUSES = 14  # of a convention, for pairs: the largest ones
_ROUNDINGS: tuple[Rounding, ...] = ("exact", "rounded", "truncated", "coarse", "binary")
# A difference of these causes is the unit itself, or no work at all.
_NO_WORK = ("unit.", "precision.", "scope.")


# Equally good readings in the order in which papers and model cards name their tools; formulas
# follow, in the order in which tables of training speed name them.
_USUAL = (
    "fvcore", "thop", "ptflops-pytorch", "torch-flop-counter", "ptflops-aten", "deepspeed",
    "deepspeed-macs", "calflops", "calflops-macs", "torchinfo", "torchprofile", "torchstat",
    "megatron-bridge", "megatron-lm", "torchtitan", "palm", "chinchilla", "kaplan",
)  # fmt: skip


class Switch(msgspec.Struct, frozen=True):
    """An environment variable of a model library; if it is set, a tool's number does not have this
    cause.

    It is here only for a tool that then counts this work exactly as MACs.
    """

    library: str
    variable: str
    tool: str
    cause: str


# timm then writes attention as two products and a softmax: fvcore counts the products, each as its
# MACs, and no softmax.
SWITCHES = (Switch("timm", "TIMM_FUSED_ATTN=0", "fvcore", "attention.sdpa"),)


class FigureReading(msgspec.Struct, frozen=True, kw_only=True):
    """A number that prints as a figure, or would if the `missing` causes were not there.

    `factor` is what the number is multiplied by: 2 where MACs are published as FLOPs, 1/2 the
    other way. `switch` is the environment variable under which the tool prints it.
    """

    number: ConventionNumber
    factor: Fraction
    amount: Fraction
    rounding: Rounding
    missing: tuple[str, ...] = ()
    switch: str = ""

    @property
    def convention(self) -> str:
        """The name of the reading, the same for each model, such as "2 x fvcore@0.1.5"."""
        number = self.number
        name = number.unit if number.tool == NATIVE else f"{number.tool}@{number.edition}"
        times = {HALF: "1/2 x ", TWICE: "2 x "}.get(self.factor, "")
        return f"{times}{name}" + (f" with {self.switch}" if self.switch else "")


def native_numbers(
    macs: int, flops: int, params: int, tokens: int = 0
) -> tuple[ConventionNumber, ...]:
    """Return the native MACs, FLOPs and parameters as numbers of a convention, to compare them
    with figures; with `tokens` those of one token, too.
    """
    amounts: list[tuple[str, int, Amount]] = [
        ("MACs", 1, macs), ("FLOPs", 2, flops), (PARAMS, 0, params)
    ]  # fmt: skip
    if tokens:
        for unit, per_mac, total in (("MACs", 1, macs), ("FLOPs", 2, flops)):
            share = total // tokens if total % tokens == 0 else total / tokens
            amounts.append((f"{unit}{PER_TOKEN}", per_mac, share))
    return tuple(
        ConventionNumber(tool=NATIVE, edition="", unit=unit, per_mac=per_mac, total=total)
        for unit, per_mac, total in amounts
    )


def find_readings(
    figure: PublishedFigure, model: ModelNumbers, switches: Sequence[Switch] = SWITCHES
) -> list[FigureReading]:
    """Return all readings whose number prints as the figure, the most plausible first."""
    library = model.target.partition(":")[0]
    switches = [switch for switch in switches if switch.library == library]
    readings = [
        reading
        for number, factor in _candidate_numbers(figure, model.numbers)
        for reading in _exact_readings(figure, number, factor, switches)
    ]
    return sorted(readings, key=_implausibility_key)


def find_near_readings(
    figure: PublishedFigure, model: ModelNumbers, within: Fraction
) -> list[FigureReading]:
    """Return the readings whose number would print as the figure without one or two of its causes,
    those with one cause first.

    Only numbers up to `within` (relative) of the figure are considered: 1/2 for 50 %.
    """
    ranked: list[tuple[tuple[object, ...], FigureReading]] = []
    for number, factor in _candidate_numbers(figure, model.numbers):
        if figure.distance(factor * Fraction(number.total)) > within:
            continue
        for missing in _cause_groups(number):
            amount = factor * (Fraction(number.total) - sum(Fraction(a) for a in missing.values()))
            rounding = figure.rounding_of(amount)
            if rounding in ("exact", "rounded", "truncated"):
                reading = FigureReading(
                    number=number, factor=factor, amount=amount, rounding=rounding,
                    missing=tuple(missing),
                )  # fmt: skip
                ranked.append(((len(missing), *_implausibility_key(reading)), reading))
    return [reading for _, reading in sorted(ranked, key=lambda pair: pair[0])]


def _candidate_numbers(
    figure: PublishedFigure, numbers: Iterable[ConventionNumber]
) -> Iterator[tuple[ConventionNumber, Fraction]]:
    """Yield (number, factor) for each number that the figure may be; the factor is 1, 2 or 1/2.

    Parameters are published as they are, and never as MACs.
    """
    for number in numbers:
        is_params = number.unit == PARAMS
        if figure.per_token and not number.unit.endswith(PER_TOKEN):
            continue
        if figure.unit and is_params != (figure.unit == PARAMS):
            continue
        yield number, ONCE
        if number.per_mac == 1:
            yield number, TWICE
        elif number.per_mac == 2 and number.tool != NATIVE:
            yield number, HALF


def _exact_readings(
    figure: PublishedFigure, number: ConventionNumber, factor: Fraction, switches: Sequence[Switch]
) -> Iterator[FigureReading]:
    """Yield the readings of a number times `factor` that print as the figure, as it is and under
    each switch of its tool.
    """
    amount = factor * Fraction(number.total)
    rounding = figure.rounding_of(amount)
    if rounding is not None:
        yield FigureReading(number=number, factor=factor, amount=amount, rounding=rounding)
    for switch in switches:
        if switch.tool != number.tool:
            continue
        removed: Amount = sum(
            cause.amount for cause in number.causes if cause.cause == switch.cause
        )
        amount = factor * (Fraction(number.total) - Fraction(removed))
        rounding = figure.rounding_of(amount) if removed else None
        if rounding is not None:
            yield FigureReading(
                number=number, factor=factor, amount=amount, rounding=rounding,
                switch=switch.variable,
            )  # fmt: skip


def _implausibility_key(reading: FigureReading) -> tuple[object, ...]:
    """Return a sort key for readings; a more plausible reading has a smaller key.

    A figure that is rounded comes before one that is cut off, a number as it is before a scaled
    one, the native count and real tools before other conventions.
    """
    number = reading.number
    plain = reading.factor == ONCE
    return (
        _ROUNDINGS.index(reading.rounding) // 2,  # exact and rounded; truncated, coarse; binary
        not number.is_tool,
        number.per_mac == 0 and number.unit != PARAMS,
        not plain,
        reading.factor == TWICE and number.tool != NATIVE,
        _ROUNDINGS.index(reading.rounding),
        number.unit == PARAMS,
        number.tool != NATIVE,
        _USUAL.index(number.tool) if number.tool in _USUAL else len(_USUAL),
        bool(reading.switch),
    )


def _cause_groups(number: ConventionNumber) -> Iterator[Mapping[str, Amount]]:
    """Yield {cause: amount} for each single cause whose amount is work, then for each pair of the
    largest of these causes.
    """
    amounts: dict[str, Amount] = {}
    for cause in number.causes:
        if not cause.cause.startswith(_NO_WORK):
            amounts[cause.cause] = amounts.get(cause.cause, 0) + cause.amount
    amounts = {cause: amount for cause, amount in amounts.items() if amount}
    for name, amount in amounts.items():
        yield {name: amount}
    largest = sorted(amounts, key=lambda cause: -abs(amounts[cause]))[:_MOST_CAUSES]
    for first, second in combinations(largest, 2):
        yield {first: amounts[first], second: amounts[second]}
