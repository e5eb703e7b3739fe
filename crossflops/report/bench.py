"""Hold the results of `bench`: how fast a model ran at each batch size, and the time and work of
each kernel.
"""

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.measurement import Measurement, Unfit
from crossflops.ir.provenance import RequestRecord, report_title
from crossflops.report.report import SCHEMA, ModelInfo


class BenchPeak(msgspec.Struct, frozen=True, kw_only=True):
    """The peaks of the machine: FLOP/s by element type, bytes/s, and their sources.

    One that is no peak (a matrix product) may be exceeded.
    """

    rates: dict[str, float]
    bandwidth: float | None = None
    source: str
    is_peak: bool = True


class KernelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that ran, or several that cannot be distinguished, with the nodes they stand for.

    `seconds` are those of one run of the model, kernels inside it left out; `calls` how often it
    ran in one. `nodes` are keys of the count, none for a kernel that the runtime put in; `does`
    are their operators. `rate` is 2 x `macs` / `seconds` in FLOP/s, `share` its part of the peak;
    None where there are no MACs, or no peak of that `precision`.
    """

    kernel: str
    op: str
    seconds: float
    calls: float
    nodes: tuple[str, ...]
    does: str
    macs: int
    flops: int
    bytes: int
    precision: str = ""
    rate: float | None = None
    share: float | None = None


class Aside(msgspec.Struct, frozen=True, kw_only=True):
    """Counted nodes that no kernel executes, and the reason; their work is in the sum all the
    same.
    """

    why: str
    nodes: tuple[str, ...]
    macs: int
    flops: int


class KernelProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The time of one run, split into kernels.

    Means over the `runs` runs nearest to the median one. `run_seconds` are those of the whole
    run, which are those of all kernels and `outside_seconds`. Of the kernels, `named_seconds`
    are of those that stand for counted nodes, `added_seconds` of those that the runtime put in.
    `profiler_seconds` are those outside of kernels by which a run takes longer than one without a
    profiler, which are its own.
    """

    source: str
    runs: int
    run_seconds: float
    outside_seconds: float
    named_seconds: float
    added_seconds: float
    profiler_seconds: float = 0.0
    kernels: tuple[KernelRow, ...]
    aside: tuple[Aside, ...] = ()

    @property
    def macs(self) -> int:
        """The MACs of all kernels, and of nodes that no kernel executes."""
        return _sum_kernel_macs(self.kernels) + _sum_kernel_macs(self.aside)

    @property
    def covered(self) -> float:
        """The share of the run time in kernels of counted nodes, from 0 to 1, without the
        profiler's own time.
        """
        seconds = self.run_seconds - self.profiler_seconds
        return self.named_seconds / seconds if seconds > 0 else 0.0

    @property
    def above_peak(self) -> tuple[KernelRow, ...]:
        """The kernels with a rate above the peak."""
        return tuple(row for row in self.kernels if row.share is not None and row.share > 1)

    def largest(self, top: int) -> tuple[KernelRow, ...]:
        """Return the `top` kernels that take the most time, the longest first."""
        return tuple(sorted(self.kernels, key=lambda row: -row.seconds)[:top])

    def slowest(self, top: int, least: float = 0.01) -> tuple[KernelRow, ...]:
        """Return the `top` kernels with the lowest FLOP/s, the slowest first, among those with at
        least the share `least` of the run time.
        """
        floor = least * self.run_seconds
        able = [row for row in self.kernels if row.rate is not None and row.seconds >= floor]
        return tuple(sorted(able, key=lambda row: row.rate or 0.0)[:top])


def _sum_kernel_macs(rows: Iterable[KernelRow | Aside]) -> int:
    """Return the sum of the MACs of these kernels or nodes."""
    return sum(row.macs for row in rows)


class PhaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of a training step: its work, its time, and its share of the peak.

    The work of a backward pass are the gradients, without what is computed again. An optimizer
    has no MACs; its `flops` are None where its equations are not known. `rate` is 2 x MACs /
    seconds; `share` is None where there are no MACs, or no peak for their precision.
    """

    phase: str
    macs: int
    flops: int | None
    seconds: float
    rate: float | None = None
    share: float | None = None


class BenchStep(msgspec.Struct, frozen=True, kw_only=True):
    """One training step, the median of the timed ones, phase by phase.

    The `optimizer` ran the model `passes` times in it. The step has `rest_seconds` beside its
    phases. `mfu` is of the work that the model needs, `hfu` of that with what is computed again
    (`recomputed_macs`); None without a peak.
    """

    optimizer: str
    passes: int
    phases: tuple[PhaseRow, ...]
    rest_seconds: float
    recomputed_macs: int = 0
    mfu: float | None = None
    hfu: float | None = None


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `bench`.

    `macs` and `flops` are the native count of one run at `batch`, which is the batch that was
    chosen by `goal` or asked for; where it was trained, those of a `step`, without the optimizer.
    `curve` has every batch that was tried. `errors` are what cannot be true of a sound
    measurement, `warnings` what should be known about it.
    """

    schema: str = SCHEMA
    model: ModelInfo
    batch: int
    macs: int
    flops: int
    macs_by_precision: dict[str, int]
    runtime: str
    device: str
    threads: int
    optimization: str = ""
    goal: str = ""
    curve: tuple[Measurement | Unfit, ...]
    largest: int | None = None
    peak: BenchPeak | None = None
    profile: KernelProfile | None = None
    step: BenchStep | None = None
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    request: RequestRecord | UnsetType = UNSET
    made_with: dict[str, str] | UnsetType = UNSET

    @property
    def name(self) -> str:
        """The name of the model in titles, with its digest or target."""
        return report_title(self.model.name, self.model.digest, self.request)

    @property
    def measurement(self) -> Measurement | None:
        """The measurement of the chosen batch size, or None if that was not run."""
        return next(
            (m for m in self.curve if isinstance(m, Measurement) and m.batch == self.batch), None
        )

    @property
    def above_peak(self) -> tuple[Measurement, ...]:
        """The measurements with a rate above the peak; () if the peak is not a specified one."""
        timed = (row for row in self.curve if isinstance(row, Measurement))
        is_peak = self.peak is not None and self.peak.is_peak
        return tuple(row for row in timed if is_peak and (self.share(row) or 0.0) > 1)

    def rate(self, timing: Measurement) -> float | None:
        """Return the FLOP/s of a measurement: 2 x MACs of one example x examples per second; None
        for an empty batch.

        None where the batch is empty.
        """
        return 2 * self.macs / self.batch * timing.examples_per_second if self.batch else None

    def share(self, timing: Measurement) -> float | None:
        """Return the share of the peak that a measurement reaches, 1 for the peak itself; None
        without MACs or without a peak.
        """
        rates = self.peak.rates if self.peak is not None else {}
        peaks = [rates.get(name, 0.0) for name in self.macs_by_precision]
        if not self.macs or not self.batch or not all(peaks):
            return None
        pairs = zip(self.macs_by_precision.values(), peaks, strict=True)
        least = sum(2 * macs / peak for macs, peak in pairs)
        return least / self.batch * timing.examples_per_second

    def to_json(self) -> str:
        """Return the result as indented JSON, with counts as exact integers and with derived
        numbers such as rates.
        """
        plain = msgspec.to_builtins(self)
        for row, timing in zip(plain["curve"], self.curve, strict=True):
            if isinstance(timing, Measurement):
                row |= {
                    "runs": timing.runs,
                    "rate": self.rate(timing),
                    "share": self.share(timing),
                }
        if self.profile is not None:
            plain["profile"] |= {
                "macs": self.profile.macs,
                "covered": self.profile.covered,
            }
        return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "Bench":
        """Return the result that `to_json` wrote; raise msgspec.ValidationError for another
        text.
        """
        return msgspec.json.decode(text, type=cls)
