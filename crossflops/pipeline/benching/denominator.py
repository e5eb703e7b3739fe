"""What this machine can do, as the denominator of what ran on it."""

from crossflops.core.bench import Peak
from crossflops.errors import CrossflopsError

_DTYPES = {  # precision of a peak -> that of the count
    "fp32": "float32",
    "fp64": "float64",
    "fp16": "float16",
    "bf16": "bfloat16",
    "int8": "int8",  # with signs and without
}


def own_peak(threads: int, again: bool = False) -> Peak | str:
    """The measured peak with so many threads, or why there is none.

    Measured with all CPUs, and its FP32 rate with one: with fewer than all, and more than one, the
    rate of one times their number is taken, which is the most that they can do. `again` measures
    anew what was kept.
    """
    from crossflops.measure.machine.peaks import measured

    try:
        found = measured(again=again)
    except CrossflopsError as error:
        return error.message
    rates = {_DTYPES[name]: rate for name, rate in found.peaks.items() if name in _DTYPES}
    source = f"measured on this machine with {found.threads} threads: {found.how}"
    if threads < found.threads:
        if found.one_thread is None:
            return f"it was measured with {found.threads} threads alone"
        share = found.one_thread * threads / rates["float32"]
        rates = {name: rate * share for name, rate in rates.items()}
        source = f"measured on this machine with one thread, times {threads}: {found.how}"
    return Peak(rates=rates, bandwidth=found.bandwidth, source=source, is_peak=found.is_peak)


def higher(one: Peak, other: Peak) -> Peak:
    """The higher of both, by precision: a machine that was busy once can do more."""
    rates = {name: max(rate, other.rates.get(name, 0.0)) for name, rate in one.rates.items()}
    return Peak(rates=rates, bandwidth=one.bandwidth, source=one.source, is_peak=one.is_peak)
