"""Find errors of a measurement: numbers that cannot be true."""

from collections.abc import Iterator

from crossflops.report.bench import Bench, BenchPeak, KernelProfile

_REASONS = (
    "possible reasons: the peak was measured on a busier machine or with fewer threads, the "
    "time is only that of a launch, or the run skipped counted work"
)


def batch_rate_errors(content: Bench) -> Iterator[str]:
    """Yield a message for each measured batch size, and each phase of a training step, with a rate
    above the peak.
    """
    for row in content.above_peak:
        share_of_peak = 100 * (content.share(row) or 0)
        yield f"batch {row.batch} ran at {share_of_peak:.0f} % of the peak: {_REASONS}"
    for phase in (
        content.step.phases if content.step and content.peak and content.peak.is_peak else ()
    ):
        if (phase.share or 0) > 1:
            yield f"{phase.phase}: {100 * (phase.share or 0):.0f} % of the peak: {_REASONS}"


def kernel_time_errors(profile: KernelProfile, peak: BenchPeak | None) -> Iterator[str]:
    """Yield a message for each impossible time: a kernel above the peak, or kernels that take
    longer than the run.
    """
    for row in profile.above_peak if peak is not None and peak.is_peak else ():
        yield f"{row.kernel} ran at {100 * (row.share or 0):.0f} % of the peak: {_REASONS}"
    if profile.outside_seconds < 0:
        over = -100 * profile.outside_seconds / profile.run_seconds
        yield (
            f"the kernels took {over:.1f} % longer than the whole run: they ran in parallel, "
            "or the device was not synchronized"
        )
