"""The processor as Linux describes it, and as this process may use it.

Affinity, then the quota of the control group, then unique cores: siblings of one core share its
units. The clock is that of cpufreq where there is one; in a virtual machine `cpu MHz` is the time
stamp counter, and may be far from what the core does.
"""

import os
import platform
from pathlib import Path

from crossflops.adapters.limits import physical_memory
from crossflops.core.machine import Cpu
from crossflops.errors import CrossflopsError
from crossflops.measure.machine.isa import Core, flops_per_clock

_NAMES = ("model name", "Model", "cpu model", "Processor")


class NoCpuError(CrossflopsError):
    """The system does not say what its processor is."""


def cpu(root: Path = Path("/")) -> Cpu:
    """The processor, by the files below `root`. Raises NoCpuError where there are none."""
    first, *_ = records = _records(root)
    core = _core(first)
    allowed = _allowed(len(records))
    topology = [_place(root, one) for one in allowed]
    clock, source = _clock(root, records[0])
    isa, rates = flops_per_clock(core)
    return Cpu(
        model=core.name or f"{core.architecture}, without a name",
        architecture=core.architecture,
        logical=len(allowed),
        cores=len(set(topology)),
        sockets=len({socket for socket, _ in topology}),
        quota=_quota(root),
        clock=clock,
        clock_source=source,
        isa=isa,
        flops_per_clock=rates,
    )


def _records(root: Path) -> list[dict[str, str]]:
    """`/proc/cpuinfo`: a record of texts for every logical CPU."""
    file = root / "proc" / "cpuinfo"
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise NoCpuError(
            f"this machine does not say what its processor is: {file} cannot be read",
            "`crossflops devices --measure` measures it all the same; or name it by --device",
        ) from error
    found = [_record(part) for part in text.split("\n\n") if part.strip()]
    processors = [one for one in found if "processor" in one]
    rest = next((one for one in found if "processor" not in one), {})
    return [{**rest, **one} for one in processors] or [rest]


def _record(part: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in part.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _core(record: dict[str, str]) -> Core:
    flags = record.get("flags") or record.get("Features") or ""
    return Core(
        architecture=platform.machine(),
        vendor=record.get("vendor_id", ""),
        family=_whole(record.get("cpu family")),
        model=_whole(record.get("model")),
        name=next((record[name] for name in _NAMES if record.get(name)), ""),
        flags=frozenset(flags.split()),
        implementer=_whole(record.get("CPU implementer")),
        part=_whole(record.get("CPU part")),
    )


def _whole(text: str | None) -> int | None:
    try:
        return int(text or "", 0)
    except ValueError:
        return None


def _allowed(count: int) -> list[int]:
    """The logical CPUs on which this process may run."""
    try:
        return sorted(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return list(range(count))


def _place(root: Path, cpu: int) -> tuple[str, str]:
    """Socket and core of a logical CPU; it is a core of its own where nobody says."""
    folder = root / "sys/devices/system/cpu" / f"cpu{cpu}" / "topology"
    socket, core = _read(folder / "physical_package_id"), _read(folder / "core_id")
    return (socket or "0", core if core else f"cpu{cpu}")


def _clock(root: Path, record: dict[str, str]) -> tuple[float | None, str]:
    """The clock in Hz, and where it is from: the base clock first, as sheets of CPUs have it."""
    folder = root / "sys/devices/system/cpu/cpu0/cpufreq"
    for name in ("base_frequency", "cpuinfo_max_freq"):
        kilohertz = _number(_read(folder / name))
        if kilohertz:
            return kilohertz * 1e3, f"cpufreq/{name}"
    megahertz = _number(record.get("cpu MHz", ""))
    if megahertz:
        return megahertz * 1e6, "cpu MHz in /proc/cpuinfo"
    return None, "nobody says"


def memory_bytes(root: Path = Path("/")) -> int | None:
    """The memory that this process may use: the machine's, or what its control group grants."""
    bounds = [_number(_read(one / "memory.max")) for one in _groups(root)]
    bounds.append(_number(_read(root / "sys/fs/cgroup/memory/memory.limit_in_bytes")))
    known = [int(one) for one in (physical_memory(), *bounds) if one]
    return min(known) if known else None


def _quota(root: Path) -> float | None:
    """CPUs' time that the control group grants: version 2, then version 1. None without bound."""
    base = root / "sys/fs/cgroup"
    limits = [_ratio(*_read(one / "cpu.max").split()[:2]) for one in _groups(root)]
    for one in (base / "cpu", base / "cpu,cpuacct"):
        limits.append(_ratio(_read(one / "cpu.cfs_quota_us"), _read(one / "cpu.cfs_period_us")))
    known = [one for one in limits if one is not None]
    return min(known) if known else None


def _groups(root: Path) -> list[Path]:
    """The folders of this process's control group, version 2, and of those above it."""
    base = root / "sys/fs/cgroup"
    own = _read(root / "proc/self/cgroup").splitlines()
    path = next((one[3:] for one in own if one.startswith("0::")), "/")
    place = base / path.lstrip("/")
    return [one for one in (place, *place.parents) if base in (one, *one.parents)] or [base]


def _ratio(quota: str = "", period: str = "") -> float | None:
    granted, out_of = _number(quota), _number(period)
    return granted / out_of if granted and out_of and granted > 0 else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
