"""Find the formula that prints a figure of a training run: its FLOPs, its speed, or its MFU.

Each formula over the config of a language model has a number for one token, which the run
multiplies (`crossflops.report.run_figures`). Formulas are closed, so other lengths of sequences
cost nothing: they are tried where no formula prints the figure at the requested one.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING

import msgspec

from crossflops.errors import InputError
from crossflops.hardware.devices.peaks import peak_denominators
from crossflops.hardware.rates.numerators import parse_count
from crossflops.hardware.rates.question import PeakSelection, parse_rate
from crossflops.ir.architecture import LanguageArchitecture, TokenSequence
from crossflops.ir.formula_account import FormulaReport
from crossflops.ir.ledger import UncountedNode
from crossflops.ir.profile import Amount
from crossflops.reconcile.formulas import reconcile_formulas
from crossflops.report.identification import (
    MFU,
    RUN_FLOPS,
    RUN_SPEED,
    Candidate,
    Identification,
)
from crossflops.report.model_numbers import NATIVE, PER_TOKEN, ConventionNumber, ModelNumbers
from crossflops.report.readings import FigureReading, find_near_readings, find_readings
from crossflops.report.run_figures import Quantity, RunFigure, names_a_run, parse_run_figure
from crossflops.targets.request import Request
from crossflops.tools.registry import conventions_from_texts, formula_conventions
from crossflops.verbs import count
from crossflops.verbs.devices import additional_devices
from crossflops.verbs.formulas import read_source_architecture
from crossflops.verbs.provenance import framework_versions

if TYPE_CHECKING:
    from crossflops.rules.rule import Convention

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)  # tokens of a sequence
_NEAR = Fraction(1, 2)
_TRAINING = 6  # FLOPs of a MAC: three passes
_UNITS: Mapping[Quantity, str] = {"compute": RUN_FLOPS, "speed": RUN_SPEED, "mfu": MFU}
_ALL_PARAMETERS = "6nd"  # the formula whose N papers round to the name of the model
# Equally good formulas in the order in which papers name them for each quantity.
_USUAL: Mapping[Quantity, tuple[str, ...]] = {
    "compute": ("6nd", "palm", "kaplan", "chinchilla"),
    "speed": ("megatron-bridge", "megatron-lm", "torchtitan", "palm"),
    "mfu": ("palm", "6nd", "megatron-bridge", "megatron-lm", "torchtitan"),
}
_ROUNDINGS = ("exact", "rounded", "truncated", "coarse", "binary")


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a figure is about, as texts of options: its tokens, or its speed and devices.

    `tokens_per_second` is that of all `devices` together.
    """

    run_tokens: str | None = None
    tokens_per_second: str | None = None
    devices: int | None = None
    device: str | None = None
    precision: str | None = None
    peak_tflops: tuple[str, ...] = ()

    @property
    def flags(self) -> list[str]:
        """The options that are given, as flags."""
        values = msgspec.structs.asdict(self)
        return [f"--{name.replace('_', '-')}" for name, value in values.items() if value]

    @property
    def words(self) -> list[str]:
        """The options as words of a command line of `efficiency`."""
        words = []
        for name, value in msgspec.structs.asdict(self).items():
            for text in value if isinstance(value, tuple) else (value,) * (value is not None):
                words += [f"--{name.replace('_', '-')}", str(text)]
        return words


NO_RUN = RunOptions()


def is_about_a_run(text: str, run: RunOptions) -> bool:
    """Return whether a figure is one of a training run: by its unit, or by the options."""
    return bool(run.flags) or names_a_run(text)


_USED_OPTIONS: Mapping[Quantity, tuple[str, ...]] = {
    "compute": ("--run-tokens",),
    "speed": ("--tokens-per-second", "--devices"),
    "mfu": ("--tokens-per-second", "--devices", "--device", "--precision", "--peak-tflops"),
}
_QUANTITY_TEXTS: Mapping[Quantity, str] = {
    "compute": "a number of FLOPs", "speed": "a speed", "mfu": "a share of the peak",
}  # fmt: skip
_REQUIRED = {
    "compute": ("--run-tokens", "add --run-tokens N, such as 300B"),
    "speed": (
        "--tokens-per-second",
        "add --tokens-per-second R, of all devices together, and --devices N",
    ),
}


def check_run_options(figure: RunFigure, run: RunOptions, request: Request) -> None:
    """Raise InputError for options that are missing for a figure, or that it does not use."""
    text, quantity = figure.figure.text, figure.quantity
    strays = [flag for flag in run.flags if flag not in _USED_OPTIONS[quantity]]
    if strays:
        used = " and ".join(_USED_OPTIONS[quantity][:1])
        raise InputError(
            f"{strays[0]} has no effect here: the figure {text} is {_QUANTITY_TEXTS[quantity]}",
            f'leave out {strays[0]}, and give {used}; a speed is written as "400 TFLOP/s", an '
            'MFU as "46.2%"',
        )
    option, hint = _REQUIRED["compute" if quantity == "compute" else "speed"]
    if option not in run.flags:
        raise InputError(f"the figure {text} requires {option}", hint)
    if figure.figure.per_token or figure.figure.unit in ("macs", "params"):
        raise InputError(
            f"{option} has no effect here: the figure {text} is not one of a whole run",
            f"leave out {option}",
        )
    if request.is_file:
        raise InputError(
            f"{option} has no effect here: a file has no config that formulas of training read",
            "give a language model of transformers, such as hf:config.json",
        )
    if not request.setting.grad:
        raise InputError(
            "--no-grad cannot be combined with a figure of training", "leave out --no-grad"
        )


def token_factor(figure: RunFigure, run: RunOptions) -> Fraction:
    """Return what the run multiplies the FLOPs of a token by to give the figure.

    Raises InputError for a number that cannot be read, UnknownNameError for an unknown device or
    precision.
    """
    if figure.quantity == "compute":
        assert run.run_tokens is not None
        return Fraction(parse_count(run.run_tokens))
    per_device = _token_rate(run) / (run.devices or 1)
    return per_device if figure.quantity == "speed" else per_device / _peak_rate(run)


def _token_rate(run: RunOptions) -> Fraction:
    """Return the tokens per second of all devices; raise InputError for another text."""
    assert run.tokens_per_second is not None
    try:
        rate = parse_rate(run.tokens_per_second)
    except ValueError:
        rate = 0.0
    if not rate:
        raise InputError(
            f"--tokens-per-second must be a positive rate, got {run.tokens_per_second!r}",
            "write, for example, 1325 or 2.6M",
        )
    return Fraction(rate)


def _peak_rate(run: RunOptions) -> Fraction:
    """Return the peak in FLOP/s that the options name; raise an error without one."""
    selection = PeakSelection(device=run.device, peak_tflops=run.peak_tflops)
    extra = additional_devices(run.device) if run.device else ()
    precision = (run.precision or "").casefold()
    peaks = peak_denominators(selection, (precision,), extra)
    if peaks.trouble is not None:
        raise peaks.trouble
    if (against := peaks.against[0]) is None:
        raise InputError(
            "a figure of the MFU requires the peak of a device",
            "add --device D --precision P, or --peak-tflops X",
        )
    return Fraction(against.peak_of_precision(precision))


def choose_training_formulas(texts: Sequence[str]) -> list["Convention"]:
    """Return the formulas of training that the texts name, by default all.

    Raises UnknownNameError for one that there is not, InputError for a tool, and for a formula of
    a forward pass.
    """
    if not texts:
        return [
            convention
            for convention in formula_conventions()
            if convention.formula and convention.formula.passes == "training"
        ]
    chosen = conventions_from_texts(texts)
    for convention in chosen:
        if convention.formula is None or convention.formula.passes != "training":
            raise InputError(
                f"--as {convention.tool}@{convention.edition} is not a formula of training",
                "name one, such as --as 6nd; docs/llm.md lists them",
            )
    return chosen


def identify_run_figure(
    text: str,
    request: Request,
    run: RunOptions,
    convention_texts: Sequence[str] = (),
    is_thorough: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Identification:
    """Return the formulas that print a figure of a training run, the most plausible first, and
    those that nearly do.

    Other lengths of sequences are tried where none does, or if `is_thorough`.

    Raises InputError for a text that is not a figure, for options that do not fit it, and for a
    model that formulas are not about; UnknownNameError for a formula that there is not; and what
    counting raises.
    """
    figure = parse_run_figure(text)
    check_run_options(figure, run, request)
    factor = token_factor(figure, run)
    formulas = choose_training_formulas(convention_texts)
    on_progress(f"counting {request.target or 'the model'}")
    names = tuple(f"{convention.tool}@{convention.edition}" for convention in formulas)
    named = msgspec.structs.replace(request, as_=names)
    build = count.make_model_build(named)
    report, native = count.native_count(named, build)
    assert isinstance(report.llm, FormulaReport)
    answers = report.llm
    search = RunSearch(figure, factor, run)
    shapes = tuple(
        "x".join(map(str, spec.shape or ())) or "scalar" for spec in native.graph.inputs
    )
    exact, near = search.candidates(request, answers, formulas, shapes)
    tried = [f"sequences of {answers.tokens} tokens"]
    if (is_thorough or not exact) and _takes_other_lengths(request, answers):
        architecture = build.compute_with_values_if_needed(read_source_architecture)
        for tokens in LENGTHS:
            if tokens != answers.tokens:
                other = _answers_at(formulas, architecture, answers, tokens)
                sized = msgspec.structs.replace(request, sizes={**request.sizes, "seq": tokens})
                shape = (f"{answers.sequences}x{tokens}",)
                more, _ = search.candidates(sized, other, formulas, shape, is_given=False)
                known = {(row.tool, row.edition, row.gives) for row in exact}
                exact += [row for row in more if (row.tool, row.edition, row.gives) not in known]
        tried.append(f"sequences of {', '.join(map(str, LENGTHS))} tokens, by the closed forms")
    nearest = None if exact else search.nearest(request, answers, formulas, shapes)
    totals = native.ledger.total
    return Identification(
        figure=figure.figure.text,
        target=request.target or native.graph.name,
        inputs=shapes,
        macs=totals.macs,
        flops=totals.flops,
        params=native.graph.params,
        candidates=(*exact, *near),
        nearest=nearest,
        distance=0.0 if nearest is None else search.relative_distance(nearest),
        tried=tuple(tried),
        refused={
            f"{account.tool}@{account.edition}": account.obstacle
            for account in answers.accounts
            if account.obstacle
        },
        uncounted=sum(isinstance(entry, UncountedNode) for entry in native.ledger.counts),
        made_with=framework_versions(request.is_file),
    )


def _takes_other_lengths(request: Request, answers: FormulaReport) -> bool:
    """Return whether the number of tokens can be changed: that of a usual input, without an
    encoder.
    """
    return not request.specs and not request.inputs_file and answers.target_tokens is None


def _answers_at(
    formulas: Sequence["Convention"],
    architecture: LanguageArchitecture,
    answers: FormulaReport,
    tokens: int,
) -> FormulaReport:
    """Return the numbers of the formulas for sequences of another length, from the closed form."""
    macs = TokenSequence(architecture, tokens).macs * answers.sequences
    return reconcile_formulas(formulas, architecture, tokens, answers.sequences, macs)


def run_numbers(
    answers: FormulaReport, formulas: Sequence["Convention"]
) -> Iterator[ConventionNumber]:
    """Yield the training FLOPs of a token: native, by each formula, and by 6 N with N rounded."""
    from crossflops.verbs.model_numbers import formula_numbers

    yield ConventionNumber(
        tool=NATIVE,
        edition="",
        unit=f"FLOPs{PER_TOKEN}",
        per_mac=_TRAINING,
        total=answers.per_token(_TRAINING * answers.native_macs),
    )
    for number in formula_numbers(answers, formulas):
        if number.unit.endswith(PER_TOKEN):
            yield number
            if number.tool == _ALL_PARAMETERS:
                yield from _numbers_of_rounded_parameters(number)


def _numbers_of_rounded_parameters(number: ConventionNumber) -> Iterator[ConventionNumber]:
    """Yield 6 N of a token with N as models are named: rounded to two or three digits or cut off
    there, and to one digit below 10 G or 10 M.
    """
    exact = Fraction(number.total) / _TRAINING
    power = len(str(int(exact))) - 1
    seen = {exact}
    fewest = 1 if power % 3 == 0 else 2
    for digits, shift in product(range(3, fewest - 1, -1), (Fraction(1, 2), Fraction(0))):
        step = Fraction(10) ** (power - digits + 1)
        rounded = (exact / step + shift) // 1 * step
        if rounded not in seen and rounded.denominator == 1:
            seen.add(rounded)
            yield msgspec.structs.replace(
                number,
                unit=f"N = {_parameter_text(rounded.numerator)}{PER_TOKEN}",
                total=_TRAINING * rounded.numerator,
                is_tool=False,
                causes=(),
            )


def _parameter_text(count: int) -> str:
    """Return a rounded number of parameters as it is typed: "540G", "13M"."""
    power, prefix = next(
        (power, prefix)
        for power, prefix in ((9, "G"), (6, "M"), (3, "k"), (0, ""))
        if count >= 10**power
    )
    return f"{Fraction(count, 10**power) * 1.0:.6g}{prefix}"


class RunSearch:
    """The search for one figure of one run, in the numbers of a model."""

    def __init__(self, figure: RunFigure, factor: Fraction, run: RunOptions) -> None:
        """Keep the figure, what multiplies the FLOPs of a token, and the run."""
        self._quantity = figure.quantity
        self._figure = figure.with_factor(factor)
        self._factor = factor
        self._run = run

    def candidates(
        self,
        request: Request,
        answers: FormulaReport,
        formulas: Sequence["Convention"],
        shapes: tuple[str, ...],
        *,
        is_given: bool = True,
    ) -> tuple[list[Candidate], list[Candidate]]:
        """Return (candidates that print the figure, one near candidate for each other formula)."""
        numbers = tuple(run_numbers(answers, formulas))
        model = ModelNumbers(target=request.target or "", numbers=numbers)
        exact = sorted(find_readings(self._figure, model), key=self._implausibility_key)
        known = {(reading.number.tool, reading.number.edition) for reading in exact}
        near: dict[tuple[str, str], FigureReading] = {}
        for reading in find_near_readings(self._figure, model, _NEAR):
            near.setdefault((reading.number.tool, reading.number.edition), reading)
        return (
            [self._candidate(reading, request, shapes, is_given) for reading in exact],
            [
                self._candidate(reading, request, shapes, is_given)
                for name, reading in near.items()
                if name not in known
            ],
        )

    def _implausibility_key(self, reading: FigureReading) -> tuple[int, bool, int]:
        """Return a sort key for readings; a more plausible one has a smaller key."""
        usual = _USUAL[self._quantity]
        tool = reading.number.tool
        return (
            _ROUNDINGS.index(reading.rounding) // 2,  # exact and rounded come first
            not reading.number.is_tool,
            usual.index(tool) if tool in usual else len(usual),
        )

    def nearest(
        self,
        request: Request,
        answers: FormulaReport,
        formulas: Sequence["Convention"],
        shapes: tuple[str, ...],
    ) -> Candidate:
        """Return the candidate whose number is nearest to the figure, although it does not print
        it.
        """
        number = min(
            run_numbers(answers, formulas), key=lambda number: self._figure.distance(number.total)
        )
        total = Fraction(number.total)
        reading = FigureReading(
            number=number, factor=Fraction(1), amount=total, rounding="rounded"
        )
        return self._candidate(reading, request, shapes, is_given=True)

    def _candidate(
        self, reading: FigureReading, request: Request, shapes: tuple[str, ...], is_given: bool
    ) -> Candidate:
        """Return the candidate of a reading, in the quantity of the figure."""
        number = reading.number
        rounded = number.unit.removesuffix(PER_TOKEN) if not number.is_tool else ""
        unit = _UNITS[self._quantity]
        return Candidate(
            tool=number.tool,
            edition=number.edition,
            unit=f"{unit}, {rounded}" if rounded else unit,
            prints=self._amount(Fraction(number.total)),
            command=self._command_line(reading.number, request, rounded),
            missing=reading.missing,
            gives=self._amount(reading.amount),
            rounding=reading.rounding,
            inputs=shapes,
            given=is_given,
        )

    def relative_distance(self, candidate: Candidate) -> float:
        """Return (number of a candidate - figure) / figure."""
        per_token = Fraction(candidate.prints) / self._factor
        return float(per_token / self._figure.value - 1)

    def _amount(self, per_token: Fraction) -> Amount:
        """Return the amount of the run: whole FLOPs, or a float for a speed or a share."""
        amount = per_token * self._factor
        return round(amount) if self._quantity == "compute" else float(amount)

    def _command_line(self, number: ConventionNumber, request: Request, rounded: str) -> str:
        """Return the command line that prints the number of a run."""
        from crossflops.verbs.identify import request_command_words

        words = ["crossflops", "efficiency"]
        if rounded:
            words += ["--params", rounded.removeprefix("N = ")]
        else:
            words += [request.target or "MODEL", *request_command_words(request)]
        words += ["--train", *self._run.words]
        if number.tool == NATIVE:
            words += ["--backward", "flat"]
        elif not rounded:
            words += ["--as", f"{number.tool}@{number.edition}"]
        return " ".join(map(shlex.quote, words))
