"""Where a measurement and the system's own words contradict each other."""

from crossflops.core.machine import Cpu, MachinePeak

_CLOCK = 0.05  # by how much a clock may differ: it moves with load
_SCALES = 0.75  # of the speed that cores should add up to
_BUSY = 0.6  # of the best round's rate that all rounds together should have
_ABOVE = 1.1  # of what units should do in a clock


def contradictions(found: MachinePeak, claimed: Cpu | None) -> tuple[str, ...]:
    """What was measured otherwise than it is said, a sentence each."""
    busy = _busy(found)
    if claimed is None:
        nothing = "the system says nothing of its processor, so that nothing can be compared"
        return tuple(filter(None, (nothing, busy)))
    checks = (_clock(found, claimed), _cores(found, claimed), *_units(found, claimed), busy)
    return tuple(filter(None, checks))


def _busy(found: MachinePeak) -> str:
    """Whether other work, or a throttle, took much of the time; the best round is free of it."""
    best = found.peaks.get("fp32", 0.0)
    if found.sustained is None or found.sustained >= _BUSY * best:
        return ""
    share = f"all rounds together reached {100 * found.sustained / best:.0f} % of the best one"
    return f"{share}: the machine is busy or throttled; measure again when it is idle"


def _clock(found: MachinePeak, claimed: Cpu) -> str:
    if found.clock is None or claimed.clock is None:
        return ""
    if abs(found.clock / claimed.clock - 1) <= _CLOCK:
        return ""
    said = f"{claimed.clock / 1e9:.3f} GHz ({claimed.clock_source})"
    return f"the system says {said}, and a core runs at {found.clock / 1e9:.3f} GHz"


def _cores(found: MachinePeak, claimed: Cpu) -> str:
    """Whether all cores together do what one does, as often as there are cores."""
    if found.one_thread is None or claimed.usable < 1:
        return ""
    times = found.peaks["fp32"] / found.one_thread
    if times >= _SCALES * claimed.usable:
        return ""
    cores = f"{claimed.usable:g} cores deliver {times:.2f} x what one does"
    return f"{cores}: they are shared, throttled or busy"


def _units(found: MachinePeak, claimed: Cpu) -> tuple[str, ...]:
    """Whether a core does in a clock what its units can."""
    rate = claimed.flops_per_clock.get("fp32")
    if found.clock is None or found.one_thread is None or not found.is_peak:
        return ()
    done = found.one_thread / found.clock
    if rate is None:
        return (f"{claimed.isa}; measured are {done:.1f} FP32 FLOPs per clock and core",)
    if done > _ABOVE * rate:
        return (f"{claimed.isa} should do {rate} FP32 FLOPs per clock, and does {done:.1f}",)
    if done < _SCALES * rate:
        return (f"{claimed.isa} should do {rate} FP32 FLOPs per clock; the loop did {done:.1f}",)
    return ()
