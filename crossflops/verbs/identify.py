"""Run the verb `identify`: find which tool, unit, setting, input size or rounding prints a figure.

The model is counted as requested. If no number of it prints the figure, it is counted at other
inputs and in other settings, where these can reach the figure at all.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import msgspec

from crossflops.errors import CrossflopsError
from crossflops.frontends.inputs import input_option_text
from crossflops.frontends.named import SIZES
from crossflops.ir.graph import TensorSpec
from crossflops.ir.profile import Amount
from crossflops.report.identification import Candidate, Identification
from crossflops.report.model_numbers import NATIVE, PER_TOKEN, ModelNumbers
from crossflops.report.published import PublishedFigure, parse_figure
from crossflops.report.readings import PARAMS, FigureReading, find_near_readings, find_readings
from crossflops.targets.request import Request
from crossflops.verbs.identify_runs import NO_RUN, RunOptions, identify_run_figure, is_about_a_run
from crossflops.verbs.model_numbers import (
    choose_conventions_and_formulas,
    predict_model_numbers,
    with_alternative_arguments,
)

IMAGE_SIDES = (224, 160, 176, 192, 240, 256, 288, 299, 320, 384, 448, 512)
BATCHES = (2, 4, 8, 16, 32, 64, 128, 256)
NEAR = Fraction(1, 2)  # relative distance of a number that is worth a cause
_BATCH_SLACK = Fraction(1, 50)
# Work grows at least with the pixels, and with attention at most with their square; the borders of
# convolutions shift both.
_LESS, _MORE = Fraction(17, 20), Fraction(23, 20)
_WEAK = ("coarse", "binary")


class _Trial(NamedTuple):
    """Another request that may print the figure, and a text that says what is different in it."""

    request: Request
    words: str


def identify_figure(
    text: str,
    request: Request,
    convention_texts: Sequence[str] = (),
    is_thorough: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
    run: RunOptions = NO_RUN,
) -> Identification:
    """Return the numbers of a model that print as the figure, the most plausible first, and those
    that nearly do.

    Other inputs and settings are tried where none does, or if `is_thorough`. A figure of a
    training `run` is searched for in the formulas over the config.

    Raises InputError for a text that is not a figure, UnknownNameError for a convention that there
    is not, and what counting raises.
    """
    if is_about_a_run(text, run):
        return identify_run_figure(text, request, run, convention_texts, is_thorough, on_progress)
    figure = parse_figure(text)
    conventions = choose_conventions_and_formulas(convention_texts)
    on_progress(f"counting {request.target or 'the model'}")
    model = predict_model_numbers(request, conventions)
    exact = [(reading, request, model, True) for reading in find_readings(figure, model)]
    tried, untried = [", ".join(model.inputs)], list[str]()
    if is_thorough or not any(_is_convincing_reading(reading) for reading, *_ in exact):
        for trial in _request_trials(figure, request, model, untried):
            on_progress(f"counting {trial.words}")
            try:
                other = predict_model_numbers(trial.request, conventions)
            except CrossflopsError as error:
                untried.append(f"{trial.words}: {error.message}")
                continue
            tried.append(trial.words)
            readings = find_readings(figure, other)
            exact += [
                (reading, trial.request, other, False)
                for reading in readings
                if _reading_identity(reading)
                not in {_reading_identity(known) for known, *_ in exact}
            ]
    exact.sort(key=lambda entry: (not _is_convincing_reading(entry[0]), not entry[3]))
    return Identification(
        figure=figure.text,
        target=model.target,
        inputs=model.inputs,
        macs=model.macs,
        flops=model.flops,
        params=model.params,
        candidates=(
            *(_reading_candidate(*entry) for entry in exact),
            *_near_candidates(figure, request, model, [reading for reading, *_ in exact]),
        ),
        tried=tuple(tried),
        untried=tuple(untried),
        refused=model.refused,
        uncounted=model.uncounted,
        made_with=model.made_with,
    )


def _reading_identity(reading: FigureReading) -> str:
    """Return a text that is equal for the same number of the same convention, also in another
    setting.
    """
    return f"{reading.convention} {reading.amount}"


def _is_convincing_reading(reading: FigureReading) -> bool:
    """Return whether a reading is convincing: the number counts work or parameters, and its
    rounding is usual.
    """
    counts_work = bool(reading.number.per_mac) or reading.number.unit == PARAMS
    return counts_work and reading.rounding not in _WEAK


def _near_candidates(
    figure: PublishedFigure, request: Request, model: ModelNumbers, exact: Sequence[FigureReading]
) -> Iterator[Candidate]:
    """Yield for each convention that does not print the figure the nearest reading without one or
    two of its causes.
    """
    known = {(reading.number.tool, reading.number.edition) for reading in exact}
    for reading in find_near_readings(figure, model, NEAR):
        name = (reading.number.tool, reading.number.edition)
        if name not in known:
            known.add(name)
            yield _reading_candidate(reading, request, model, True)


def _reading_candidate(
    reading: FigureReading, request: Request, model: ModelNumbers, is_given: bool
) -> Candidate:
    """Return the candidate for a figure that a reading gives, with the command that prints its
    number.
    """
    number = reading.number
    return Candidate(
        tool=number.tool,
        edition=number.edition,
        unit=number.unit,
        prints=_command_amount(reading),
        command=command_line_of_reading(reading, request),
        missing=reading.missing,
        factor=str(reading.factor),
        gives=_integer_or_float_amount(reading.amount),
        rounding=reading.rounding,
        inputs=model.inputs,
        given=is_given,
    )


def _command_amount(reading: FigureReading) -> Amount:
    """Return the number that the command of a reading prints, without the reading's factor."""
    if reading.switch:
        return _integer_or_float_amount(reading.amount / reading.factor)
    return reading.number.total


def _integer_or_float_amount(amount: Fraction) -> Amount:
    """Return the amount as an integer, or as a float if it is not whole."""
    return amount.numerator if amount.denominator == 1 else float(amount)


def command_line_of_reading(reading: FigureReading, request: Request) -> str:
    """Return the command line that prints the number of a reading, as one text."""
    is_share = reading.number.tool != NATIVE and reading.number.unit.endswith(PER_TOKEN)
    verb = "compare" if is_share else "count"  # the page of a formula has its number per token
    words = ["crossflops", verb, request.target or "MODEL", *request_command_words(request)]
    if reading.number.tool != NATIVE:
        words += ["--as", f"{reading.number.tool}@{reading.number.edition}"]
    return " ".join(([reading.switch] if reading.switch else []) + [*map(shlex.quote, words)])


def request_command_words(request: Request) -> list[str]:
    """Return the options of a request as words of a command line."""
    words: list[str] = []
    for spec in request.specs:
        words += ["--input", input_option_text(spec)]
    if request.inputs_file:
        words += ["--inputs", request.inputs_file]
    for name, size in request.sizes.items():
        words += [SIZES[name], str(size)]
    for name, value in request.arguments.items():
        words += ["--arg", f"{name}={json.dumps(value)}"]
    named = (("--dim", request.dims), ("--trips", request.trips), ("--branch", request.branches))
    for flag, values in named:
        for name, chosen in values.items():
            words += [flag, f"{name}={chosen}"]
    words += [] if request.setting.grad else ["--no-grad"]
    words += ["--train-mode"] if request.setting.training else []
    words += ["--weights", request.weights] if request.weights else []
    return words


# Other inputs and settings that can reach the figure.


def _request_trials(
    figure: PublishedFigure, request: Request, model: ModelNumbers, out_of_reach: list[str]
) -> Iterator[_Trial]:
    """Yield requests with other image sizes, settings and batch sizes that may print the figure;
    add those that cannot to `out_of_reach`.
    """
    far: list[str] = []
    for side in IMAGE_SIDES:
        trial = _resize_trial(request, model, side)
        if trial is None:
            continue
        ratio = Fraction(side, _square_image_pixels(model) or side) ** 2
        low, high = min(ratio, ratio**2) * _LESS, max(ratio, ratio**2) * _MORE
        if any(low <= factor <= high for factor in _figure_ratios(figure, model)):
            yield trial
        else:
            far.append(str(side))
    if far:
        out_of_reach.append(
            f"image sizes {', '.join(far)}, because the figure is outside of the possible range "
            "there (work grows at least with the number of pixels, and at most with its square)"
        )
    if not request.is_file:
        for other, words in with_alternative_arguments(request):
            yield _Trial(other, f"with {words}")
        yield from _setting_trials(request)
    for batch in BATCHES:
        if any(
            abs(factor / batch - 1) <= _BATCH_SLACK for factor in _figure_ratios(figure, model)
        ):
            batched = _batch_trial(request, model, batch)
            if batched is not None:
                yield batched


def _figure_ratios(figure: PublishedFigure, model: ModelNumbers) -> list[Fraction]:
    """Return the ratios figure / number and figure / (2 x number), for each number of the model
    that counts work.
    """
    totals = [
        Fraction(number.total)
        for number in model.numbers
        if number.per_mac and number.total and not number.unit.endswith(PER_TOKEN)
    ]
    return [figure.value / (total * factor) for total in totals for factor in (1, 2)]


def _square_image_pixels(model: ModelNumbers) -> int | None:
    """Return the height of the model's square input image in pixels; None for other inputs."""
    shape = model.inputs[0].split("x") if len(model.inputs) == 1 else []
    return int(shape[-1]) if len(shape) == 4 and shape[-1] == shape[-2] else None


def _resize_trial(request: Request, model: ModelNumbers, side: int) -> _Trial | None:
    """Return the request with square images of this side; None if it already has that size or its
    input cannot be changed.
    """
    if _square_image_pixels(model) in (None, side):
        return None
    words = f"at image size {side}"
    if request.specs:
        shape = (*(request.specs[0].shape or ())[:-2], side, side)
        return _Trial(_reshape_request(request, shape), words)
    if not _library_chooses_input(request):
        return None
    sizes = {**request.sizes, "image_size": side}
    return _Trial(msgspec.structs.replace(request, sizes=sizes), words)


def _batch_trial(request: Request, model: ModelNumbers, batch: int) -> _Trial | None:
    """Return the request with this batch size; None if its batch is not 1 or its input cannot be
    changed.
    """
    words = f"at batch {batch}"
    if len(request.specs) == 1 and (request.specs[0].shape or ())[:1] == (1,):
        return _Trial(
            _reshape_request(request, (batch, *(request.specs[0].shape or ())[1:])), words
        )
    if (
        request.specs
        or not _library_chooses_input(request)
        or not model.inputs[0].startswith("1x")
    ):
        return None
    sizes = {**request.sizes, "batch": batch}
    return _Trial(msgspec.structs.replace(request, sizes=sizes), words)


def _reshape_request(request: Request, shape: tuple[int, ...]) -> Request:
    """Return a copy of the request whose first input has this shape."""
    spec: TensorSpec = msgspec.structs.replace(request.specs[0], shape=shape)
    return msgspec.structs.replace(request, specs=(spec,))


def _library_chooses_input(request: Request) -> bool:
    """Return whether a model library chooses the input, so that it can also choose another
    size.
    """
    return request.given is None and not request.is_file and not request.inputs_file


def _setting_trials(request: Request) -> Iterator[_Trial]:
    """Yield the request with --no-grad and with --train-mode, each if it is not set yet."""
    setting = request.setting
    if request.given is not None:
        return
    if setting.grad:
        changed = msgspec.structs.replace(setting, grad=False)
        yield _Trial(msgspec.structs.replace(request, setting=changed), "with --no-grad")
    if not setting.training:
        changed = msgspec.structs.replace(setting, training=True)
        yield _Trial(msgspec.structs.replace(request, setting=changed), "with --train-mode")
