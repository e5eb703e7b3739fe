"""The phases of generated text against a device: prefill, decoding, and both one after the other.

With a draft model (speculative decoding) its prefill and its decoding are two phases more.

Of a phase with `passes` of the model on N devices that share it (tensor parallel), one device has

    FLOPs = 2 x MACs / N
    bytes = passes x weights / N + cache x c,    c = ceil(heads / N) / heads

Every matrix and every head of attention is divided among the devices. A head of keys and values
is not: with fewer of them than devices some are kept twice, so c is at least 1 / heads (Shoeybi et
al., Megatron-LM, section 3; Pope et al., Efficiently Scaling Transformer Inference, section 3.3).
What every device repeats (norms, routers, projections of heads that are kept twice) and what the
devices send each other is not added, so both are the least that a device does.

    bound time = max(FLOPs / peak, bytes / bandwidth)
    MFU = FLOPs / (time x peak),    MBU = bytes / (time x bandwidth)
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

import msgspec

from crossflops.hardware.devices.peaks import Peaks
from crossflops.hardware.step_traffic import BITS, PRECISIONS, storage_precision
from crossflops.ir.workload import GenerationPhase, Workload
from crossflops.report.efficiency import PhaseEfficiency

PhaseName = Literal["prefill", "decode", "draft-prefill", "draft-decode", "request"]
_FLOATS = ("float64", "float32", "float16", "bfloat16")


class GenerationRun(msgspec.Struct, frozen=True, kw_only=True):
    """How a workload ran: the devices that share the model, and its formats in memory.

    `precision` is that of the products, and of weights that the graph has as floats. `cache` is
    that of keys and values, `draft_cache` that of a draft model's, "" for the same. `seconds` are
    measured times of phases.
    """

    devices: int
    precision: str
    cache: str
    draft_cache: str = ""
    byte_model: Literal["weights-once", "unfused"] = "weights-once"
    seconds: Mapping[str, float] = {}


class _DeviceWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a phase, of which FLOPs and bytes are those of one device."""

    tokens: int
    passes: int
    macs: int
    flops: Fraction
    weights: Fraction
    cache_read: Fraction
    cache_written: Fraction
    activations: Fraction

    def byte_total(self, byte_model: str) -> Fraction:
        """Return the bytes that the device must move under a byte model."""
        least = self.weights + self.cache_read + self.cache_written
        return least + self.activations if byte_model == "unfused" else least


def bytes_relative_to_stored_type(stored_type: str, precision: str) -> Fraction:
    """Return the bytes of a value in a precision, as a share of those in its stored type.

    Integers, and floats of 8 bits or fewer, stay as they are stored, and so do values of several
    types ("").

    >>> bytes_relative_to_stored_type("float32", "bf16")
    Fraction(1, 2)
    >>> bytes_relative_to_stored_type("bfloat16", "fp8")
    Fraction(1, 2)
    """
    if stored_type not in _FLOATS or storage_precision(precision) not in BITS:
        return Fraction(1)
    return Fraction(BITS[storage_precision(precision)], BITS[PRECISIONS[stored_type]])


def cache_share_per_device(heads: int, devices: int) -> Fraction:
    """Return the share of the cache that one device keeps. With unknown `heads` it keeps all.

    >>> [str(cache_share_per_device(8, devices)) for devices in (1, 4, 6, 16)]
    ['1', '1/4', '1/4', '1/8']
    """
    return Fraction(-(-heads // devices), heads) if heads else Fraction(1)


def phase_seconds(
    workload: Workload, rates: Mapping[str, float | None], devices: int, per_device: bool
) -> dict[str, float]:
    """Return the measured seconds of the phases whose tokens per second are given.

    The rates are those of all devices, or `per_device`. The time of a request is the sum of its
    phases if both are known.
    """
    tokens = {
        "prefill": workload.prefill.tokens,
        "decode": workload.decode.tokens if workload.decode else 0,
        "request": workload.batch * workload.generate,
    }
    every = devices if per_device else 1
    seconds = {
        phase: tokens[phase] / (rate * every) for phase, rate in rates.items() if rate is not None
    }
    both = ("prefill", "decode") if workload.decode else ("prefill",)
    if "request" not in seconds and all(phase in seconds for phase in both):
        seconds["request"] = sum(seconds[phase] for phase in both)
    return seconds


def phase_efficiencies(
    workload: Workload, run: GenerationRun, against: Peaks | None
) -> tuple[PhaseEfficiency, ...]:
    """Return the phases of the model, those of its draft model if it has one, and the request, on
    one device each.
    """
    works: dict[PhaseName, _DeviceWork] = {}
    runs: dict[PhaseName, GenerationRun] = {}
    for names, own, own_run in model_runs(workload, run):
        for name, phase in zip(names, (own.prefill, own.decode), strict=True):
            if phase is not None:
                works[name], runs[name] = _phase_work(own, phase, own_run), own_run
    rows = [_work_efficiency(phase, work, runs[phase], against) for phase, work in works.items()]
    request = _work_efficiency("request", _request_work(workload, works), run, against)
    return *rows, _with_sequential_bound(request, rows)


def model_runs(
    workload: Workload, run: GenerationRun
) -> tuple[tuple[tuple[PhaseName, PhaseName], Workload, GenerationRun], ...]:
    """Return (names of its phases, workload, run) of the model, and of its draft model if it has
    one.
    """
    names: tuple[PhaseName, PhaseName] = ("prefill", "decode")
    own = (names, workload, run)
    if workload.speculation is None:
        return (own,)
    drafting: tuple[PhaseName, PhaseName] = ("draft-prefill", "draft-decode")
    draft_run = msgspec.structs.replace(run, cache=run.draft_cache or run.cache)
    return own, (drafting, workload.speculation.draft, draft_run)


def _phase_work(workload: Workload, phase: GenerationPhase, run: GenerationRun) -> _DeviceWork:
    """Return the work of a phase on one of the devices that share it."""
    amounts, part = phase.amounts, Fraction(1, run.devices)
    caches = amounts.cache_read + amounts.cache_written
    weights = phase.moved_bytes - caches  # rounds of a draft model read different weights
    activations = amounts.bytes_read + amounts.bytes_written - weights - caches
    floats = bytes_relative_to_stored_type(workload.weight_dtype, run.precision)
    kept = bytes_relative_to_stored_type(workload.cache_dtype, run.cache)
    kept *= cache_share_per_device(workload.cache_heads, run.devices)
    return _DeviceWork(
        tokens=phase.tokens,
        passes=phase.passes,
        macs=amounts.macs,
        flops=2 * amounts.macs * part,
        weights=weights * floats * part,
        cache_read=amounts.cache_read * kept,
        cache_written=amounts.cache_written * kept,
        activations=activations * floats * part,
    )


def _request_work(workload: Workload, works: Mapping[PhaseName, _DeviceWork]) -> _DeviceWork:
    """Return the work of all phases together."""

    def sum_over_prefill_and_steps(name: str) -> Fraction:
        """Return the sum of the amount of this name over prefill and steps."""
        return sum((getattr(work, name) for work in works.values()), Fraction(0))

    return _DeviceWork(
        tokens=workload.batch * workload.generate,
        passes=int(sum_over_prefill_and_steps("passes")),
        macs=workload.macs,
        flops=sum_over_prefill_and_steps("flops"),
        weights=sum_over_prefill_and_steps("weights"),
        cache_read=sum_over_prefill_and_steps("cache_read"),
        cache_written=sum_over_prefill_and_steps("cache_written"),
        activations=sum_over_prefill_and_steps("activations"),
    )


def _work_efficiency(
    phase: PhaseName, work: _DeviceWork, run: GenerationRun, against: Peaks | None
) -> PhaseEfficiency:
    """Return the work of a phase against the peak and the bandwidth of a device."""
    byte_count, seconds = work.byte_total(run.byte_model), run.seconds.get(phase)
    has_peak = against is not None and bool(against.given or against.device)
    peak = against.peak_of_precision(run.precision) if against is not None and has_peak else None
    bandwidth = against.bandwidth if against else None
    bound, least = _roofline_bound(work.flops, byte_count, peak, bandwidth)
    rate = None if seconds is None else float(work.flops) / seconds
    byte_rate = None if seconds is None else float(byte_count) / seconds
    return PhaseEfficiency(
        phase=phase,
        device=against.device.label if against and against.device else None,
        devices=run.devices,
        precision=run.precision,
        cache_dtype=run.cache,
        tokens=work.tokens,
        passes=work.passes,
        macs=work.macs,
        flops=2 * work.macs,
        device_flops=_integer_or_float(work.flops),
        device_weight_bytes=_integer_or_float(work.weights),
        device_cache_read=_integer_or_float(work.cache_read),
        device_cache_written=_integer_or_float(work.cache_written),
        device_activation_bytes=_integer_or_float(work.activations),
        byte_model=run.byte_model,
        device_bytes=_integer_or_float(byte_count),
        intensity=float(work.flops / byte_count) if byte_count else None,
        ridge=peak / bandwidth if peak and bandwidth else None,
        bound=bound,
        bound_seconds=least,
        bound_tokens_per_second=work.tokens / least if least else None,
        seconds=seconds,
        tokens_per_second=None if seconds is None else work.tokens / seconds,
        rate=rate,
        byte_rate=byte_rate,
        peak=peak,
        bandwidth=bandwidth,
        mfu=rate / peak if rate is not None and peak else None,
        mbu=byte_rate / bandwidth if byte_rate is not None and bandwidth else None,
    )


def _roofline_bound(
    flops: Fraction, byte_count: Fraction, peak: float | None, bandwidth: float | None
) -> tuple[str | None, float | None]:
    """Return which of compute and memory takes longer, and its seconds."""
    if not peak or not bandwidth:
        return None, None
    computing, moving = float(flops) / peak, float(byte_count) / bandwidth
    return "compute" if computing >= moving else "memory", max(computing, moving)


def _with_sequential_bound(
    request: PhaseEfficiency, phases: list[PhaseEfficiency]
) -> PhaseEfficiency:
    """Return a request with the bound of its phases, which run one after the other."""
    times = [row.bound_seconds for row in phases if row.bound_seconds is not None]
    if len(times) < len(phases):
        return request
    names = dict.fromkeys(row.bound or "" for row in phases)
    return msgspec.structs.replace(
        request,
        bound=" + ".join(names),
        bound_seconds=sum(times),
        bound_tokens_per_second=request.tokens / sum(times),
    )


def _integer_or_float(value: Fraction) -> int | float:
    """Return an integer where the fraction is one."""
    return value.numerator if value.denominator == 1 else float(value)
