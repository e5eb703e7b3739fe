"""From a question of `efficiency` to what its roofline is asked of."""

from fractions import Fraction
from functools import partial
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from crossflops.core.bench import Bench
from crossflops.core.efficiency import Efficiency
from crossflops.core.roofline import Ceiling, Roofline
from crossflops.errors import CrossflopsError, InputError, UnknownNameError
from crossflops.hardware.devices.peaks import EMULATIONS
from crossflops.hardware.rates import terms
from crossflops.hardware.rates.denominators import ANY, Peaks
from crossflops.hardware.rates.numerators import Numerator, quantity
from crossflops.hardware.rates.parts import Run
from crossflops.hardware.rates.question import Question
from crossflops.hardware.roofline.what_if import byte_model
from crossflops.pipeline.devices import look
from crossflops.pipeline.rating.roofing import Roofing, roofline
from crossflops.pipeline.rating.work import Studied

_HINT = "give a file that `crossflops bench MODEL -o FILE.json` wrote"


def with_bench(question: Question) -> tuple[Question, Bench | None]:
    """The question with the time of a run that was measured, and that run.

    Raises CrossflopsError for a file that cannot be read or has no measurement.
    """
    if question.roof.bench is None:
        return question, None
    found = _read(Path(question.roof.bench))
    one = found.measurement
    if one is None:
        raise CrossflopsError(f"nothing ran in {question.roof.bench}", "bench a batch that fits")
    if question.speed.latency_ms is not None or question.speed.examples_per_second is not None:
        raise InputError("--bench has the time of the run, and another is given", "leave one out")
    batch = question.speed.batch or one.batch
    if batch != one.batch:
        raise InputError(
            f"the run of --bench has a batch of {one.batch}, and --batch is {batch}",
            "leave --batch out",
        )
    speed = replace(question.speed, latency_ms=1e3 * one.p50, batch=batch)
    return replace(question, speed=speed), found


def _read(path: Path) -> Bench:
    try:
        return Bench.from_json(path.read_bytes())
    except OSError as error:
        raise CrossflopsError(f"{path} cannot be read: {error.strerror}", _HINT) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CrossflopsError(f"{path} is not what `bench` writes: {error}", _HINT) from error


def refuse(question: Question, target: object) -> None:
    """Raises InputError where a roofline is asked for that nobody can draw."""
    roof, work, layout = question.roof, question.work, question.parallel
    if not roof.asked:
        return
    if question.against.device is None and not (
        question.against.peak_tflops and question.against.bandwidth
    ):
        raise InputError(
            "a roofline has a peak and a bandwidth",
            "give --device D, or --peak-tflops X and --bandwidth Y",
        )
    if layout.tp * layout.pp > 1:
        raise InputError("a roofline is that of one device", "leave --tp and --pp out")
    if roof.bytes_ and roof.bytes_per_example:
        raise InputError("--bytes and --bytes-per-example contradict each other", "leave one out")
    if roof.bytes_per_example is not None:
        return
    if target is None and roof.bytes_ not in (None, "weights-once"):
        raise InputError(
            f"no sizes tell the bytes of {roof.bytes_}",
            "give the model, or leave --bytes out: weights and cache once",
        )
    if target is None and question.language.params is None:
        raise InputError(
            "nobody knows the bytes of MACs that are given",
            "add --bytes-per-example N, or give the model",
        )
    if work.compare or question.precisions.mix:
        flag = "--compare" if work.compare else "--mix"
        raise InputError(
            f"a roofline looks at nodes, which {flag} does not tell apart",
            "leave it out; --precision-of PATTERN=P gives nodes a precision",
        )


def roof(
    found: Efficiency,
    run: Run,
    work: Studied,
    numerator: Numerator,
    against: Peaks | None,
    bench: Bench | None,
) -> Roofline | UnsetType:
    """The roofline of one device, where it is asked for."""
    question = run.question
    if not question.roof.asked or against is None:
        return UNSET
    precision = question.precisions.precision
    asked = Roofing(
        ceiling=_ceiling(against, precision),
        precision="" if precision == terms.GRAPH else precision,
        model=byte_model(question.roof.bytes_ or "unfused"),
        batch=question.speed.batch or 1,
        counted=work.examples,
        passes=Fraction(found.multiplier).limit_denominator(10**6),
        macs=numerator.macs * run.units,
        what_if=question.roof.what_if,
        look=partial(look, catalogue=question.against.catalogue),
        seconds=_seconds(run),
        kernels=bench.profile.kernels if bench and bench.profile else (),
        precision_of=terms.kinds(question.precisions),
    )
    if question.roof.bytes_per_example is not None:
        asked = replace(asked, moved=quantity(question.roof.bytes_per_example))
    elif work.counted is None and work.transfer is not None:
        moved = work.transfer
        asked = replace(
            asked,
            model="weights-once",
            formula=moved.model,
            moved=moved.each,
            weights=moved.weights,
            param_bytes=question.language.param_bytes,
            cache_bytes=question.language.cache_bytes,
        )
    return roofline(asked, work.counted)


def _ceiling(against: Peaks, precision: str) -> Ceiling:
    """All peaks of the device, with the one of a precision that it computes from others.

    Raises UnknownNameError where nobody knows the bandwidth.
    """
    device = against.device
    name = device.label if device else "given peaks"
    if against.bandwidth is None:
        raise UnknownNameError(
            f"the memory bandwidth of {name} is not known", "give it in GB/s by --bandwidth"
        )
    peaks = {**(device.peaks if device else {}), **against.given}
    if device is not None:
        peaks.pop(ANY, None)
        peaks |= {name: against.top(name) for name in EMULATIONS if name == precision}
    tdp = device.tdp if device else None
    return Ceiling(name=name, peaks=peaks, bandwidth=against.bandwidth, tdp=tdp)


def _seconds(run: Run) -> float | None:
    """What a step of one device took."""
    pace = run.pace
    if pace is None:
        return None
    batch = run.question.speed.batch or 1
    return pace.seconds or batch * run.units * run.world.dp / pace.per_second
