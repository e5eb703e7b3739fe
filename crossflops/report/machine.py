"""Describe a machine: what its system states about it, and what was measured on it."""

import msgspec

from crossflops.ir.device import Device
from crossflops.report.report import SCHEMA


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """The processor as this process may use it.

    `logical` CPUs are those of the affinity mask, `cores` the unique cores among them, `quota`
    how many CPUs' time the control group grants (None: all). `clock` is in Hz, as `clock_source`
    has it. `flops_per_clock` is for one core, by precision, 2 per FMA, and empty where neither
    the flags nor the model tell; `isa` says which units were taken for granted.
    """

    model: str
    architecture: str
    logical: int
    cores: int
    sockets: int
    quota: float | None
    clock: float | None
    clock_source: str
    isa: str
    flops_per_clock: dict[str, int]

    @property
    def usable_cores(self) -> float:
        """The number of cores that this process can use, a fraction if a CPU quota limits it."""
        return self.cores if self.quota is None else min(float(self.cores), self.quota)

    def peak(self, precision: str) -> float | None:
        """Return the peak in FLOP/s for an element type: cores x clock x FLOPs per clock; None if
        one of them is unknown.
        """
        rate = self.flops_per_clock.get(precision)
        return (
            None if rate is None or self.clock is None else self.usable_cores * self.clock * rate
        )


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as its driver describes it; None for missing figures.

    `memory` is in bytes, `clock` and `memory_clock` are the highest ones in Hz, `bus` is in bits,
    `power` in watts, `lanes` are FP32 units. `profile` and `units` are there for a slice (MIG).
    """

    name: str
    driver: str
    memory: float | None = None
    clock: float | None = None
    memory_clock: float | None = None
    bus: int | None = None
    power: float | None = None
    lanes: int | None = None
    profile: str = ""
    units: int | None = None


class MachinePeak(msgspec.Struct, frozen=True, kw_only=True):
    """The rates of loops on this machine: a second denominator beside the one of the system.

    `peaks` are in FLOP/s by precision, with all `threads`; `one_thread` is the FP32 rate of one.
    `sustained` is the FP32 rate over the whole time, pauses included. `bandwidth` is in bytes/s
    (three streams), `clock` in Hz. `is_peak` says that registers alone were busy: a matrix
    product is a lower bound. `how` says what ran. `contradictions` is where the system says
    otherwise.
    """

    cpu: str
    threads: int
    peaks: dict[str, float]
    one_thread: float | None
    sustained: float | None
    bandwidth: float
    clock: float | None
    width: int | None
    is_peak: bool
    how: str
    fingerprint: str
    contradictions: tuple[str, ...] = ()

    def device(self) -> Device:
        """Return this machine as a device with the id "measured", whose peaks are the measured
        rates.
        """
        kind = "measured peak" if self.is_peak else "measured matrix product (not the peak)"
        return Device(
            id="measured",
            name=f"this machine ({self.cpu}), measured",
            vendor="",
            kind="cpu",
            peaks=self.peaks,
            bandwidth=self.bandwidth,
            source=(f"{kind}: {self.how}",),
            confidence="measured",
            clock_basis="measured",
            notes="; ".join(self.contradictions),
        )


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """This machine. `known` are the catalogue devices of driver names, `peaks` their dense peaks
    in FLOP/s, and `notes` what could not be read, or does not agree, and why.
    """

    schema: str = SCHEMA
    cpu: Cpu | None
    gpus: tuple[Gpu, ...] = ()
    known: dict[str, str] = {}
    peaks: dict[str, dict[str, float]] = {}
    measured: MachinePeak | None = None
    notes: tuple[str, ...] = ()
