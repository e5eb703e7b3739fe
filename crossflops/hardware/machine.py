"""The processor and the GPUs of this machine, as Linux and the drivers describe them.

Of the processor also how much one core computes in a clock. Affinity, then the quota of the
control group, then unique cores: siblings of one core share its units. The clock is that of
cpufreq where there is one; in a virtual machine `cpu MHz` is the time stamp counter, and may be
far from what the core does.

GPUs are asked of NVML, and of rocm-smi. What is not there is said in a sentence, and nothing
fails: a machine without a driver has no GPU to set a count against.
"""

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from crossflops.errors import CrossflopsError
from crossflops.limits import physical_memory_bytes
from crossflops.report.machine import Cpu, Gpu

# How much one core computes in a clock, from its instruction set and its model.
#
# FLOPs per clock and core, 2 per FMA. A flag says which instructions there are, not how many units
# execute them: where that depends on the product, family and model decide, and where they do not
# tell, nothing is said. FP64 is half of FP32.
#
# Sources: Intel, 64 and IA-32 Optimization Reference Manual (ports of each microarchitecture) and
# ARK ("# of AVX-512 FMA Units"); AMD, Software Optimization Guides for families 17h, 19h and 1Ah;
# Arm, Software Optimization Guides of Neoverse N1, V1, N2, V2 and of Cortex-A72 and A76; Fujitsu,
# A64FX Microarchitecture Manual.

AMX = "AMX"
SVE = "SVE"
_ONE_UNIT = re.compile(r"\b(?:bronze|silver|gold 5\d\d\d)\b", re.IGNORECASE)
_TWO_512 = {85, 87, 106, 108, 143, 173, 174, 207}  # SKX to GNR, and Xeon Phi
_ONE_512 = {102, 125, 126, 140, 141, 167}  # client: Cannon, Ice, Tiger and Rocket Lake
_ATOMS = {0x86, 0x96, 0x9C, 0xBE, 0xAF}  # two 128-bit units, where they have AVX2
_HALF_ZEN5 = (*range(0x20, 0x30), *range(0x60, 0x70))  # Strix and Krackan Point: 256-bit paths
_ARM = {  # (implementer, part): name, FP32, and where they are known BF16 and INT8
    (0x41, 0xD03): ("Cortex-A53, one 64-bit unit or one 128-bit unit of half rate", 8, 0, 0),
    (0x41, 0xD07): ("Cortex-A57, one 128-bit unit", 8, 0, 0),
    (0x41, 0xD08): ("Cortex-A72, one 128-bit unit", 8, 0, 0),
    (0x41, 0xD0B): ("Cortex-A76, two 128-bit units", 16, 0, 64),
    (0x41, 0xD0C): ("Neoverse N1, two 128-bit units", 16, 0, 64),
    (0x41, 0xD0D): ("Cortex-A77, two 128-bit units", 16, 0, 64),
    (0x41, 0xD41): ("Cortex-A78, two 128-bit units", 16, 0, 64),
    (0x41, 0xD40): ("Neoverse V1, two 256-bit SVE units", 32, 128, 256),
    (0x41, 0xD44): ("Cortex-X1, four 128-bit units", 32, 0, 128),
    (0x41, 0xD49): ("Neoverse N2, two 128-bit units", 16, 0, 0),
    (0x41, 0xD4F): ("Neoverse V2, four 128-bit units", 32, 128, 256),
    (0x46, 0x001): ("A64FX, two 512-bit SVE units", 64, 0, 256),
    (0xC0, 0xAC3): ("AmpereOne, two 128-bit units", 16, 0, 0),
}


class Core(msgspec.Struct, frozen=True):
    """A core as its system describes it. `family` and `model` are those of x86, or None."""

    architecture: str
    vendor: str
    family: int | None
    model: int | None
    name: str
    flags: frozenset[str]
    implementer: int | None = None
    part: int | None = None


class VectorUnits(NamedTuple):
    """The vector units of a core as text, and its FLOPs per clock by precision, {} if unknown."""

    text: str
    flops_per_clock: dict[str, int]


class Fp32Units(NamedTuple):
    """The vector units of a core as text, and its FP32 FLOPs per clock, 0 if unknown."""

    text: str
    flops_per_clock: int


def core_flops_per_clock(core: Core) -> VectorUnits:
    """Return the vector units of a core as text, and by precision the FLOPs that it does per clock
    ({} if unknown).
    """
    if core.architecture in ("x86_64", "AMD64", "i386", "i686"):
        return _x86_flops_per_clock(core)
    if core.architecture in ("aarch64", "arm64"):
        return _arm_flops_per_clock(core)
    return VectorUnits(f"the units of {core.architecture} are unknown", {})


def _x86_flops_per_clock(core: Core) -> VectorUnits:
    """Return the vector units of an x86 core as text, and by precision its FLOPs per clock ({} if
    unknown).
    """
    text, fp32 = _x86_fp32_per_clock(core)
    if not fp32:
        return VectorUnits(text, {})
    wide = "avx512f" in core.flags
    rates = {"fp32": fp32, "fp64": fp32 // 2}
    if wide and "avx512_bf16" in core.flags:
        rates["bf16"] = 2 * fp32
    if (wide and "avx512_vnni" in core.flags) or "avx_vnni" in core.flags:
        rates["int8"] = 4 * fp32
    if "amx_tile" in core.flags:
        amx = {"amx_bf16": ("bf16", 1024), "amx_fp16": ("fp16", 1024), "amx_int8": ("int8", 2048)}
        rates |= dict(row for flag, row in amx.items() if flag in core.flags)
        text += f", {AMX}"
    return VectorUnits(text, rates)


def _x86_fp32_per_clock(core: Core) -> Fp32Units:
    """Return the vector units of an x86 core as text, and its FP32 FLOPs per clock (0 if
    unknown).
    """
    if "avx512f" in core.flags:
        return _avx512_fp32_per_clock(core)
    if "avx2" in core.flags and "fma" in core.flags:
        first_zen = core.family == 23 and (core.model or 0) < 0x30
        if first_zen or core.family == 24:  # Hygon's is the first Zen, too
            return Fp32Units("AVX2 on two 128-bit FMA units", 16)
        if core.family == 6 and core.model in _ATOMS:
            return Fp32Units("AVX2 on two 128-bit FMA units", 16)
        return Fp32Units("AVX2, two 256-bit FMA units", 32)
    if "avx" in core.flags:
        return Fp32Units("AVX, a 256-bit multiplier and a 256-bit adder", 16)
    return Fp32Units("SSE, a 128-bit multiplier and a 128-bit adder", 8)


def _avx512_fp32_per_clock(core: Core) -> Fp32Units:
    """Return the AVX-512 units of an x86 core as text, and its FP32 FLOPs per clock (0 if
    unknown).
    """
    two = Fp32Units("AVX-512, two 512-bit FMA units", 64)
    single = Fp32Units("AVX-512, one 512-bit FMA unit", 32)
    halves = Fp32Units("AVX-512 on two 256-bit FMA units", 32)
    if core.vendor == "AuthenticAMD":
        if core.family == 25:
            return halves
        if core.family == 26:
            return halves if core.model in _HALF_ZEN5 else two
    elif core.family == 6:
        if core.model == 85 and _ONE_UNIT.search(core.name):
            return single
        if core.model in _TWO_512:
            return two
        if core.model in _ONE_512:
            return single
    return Fp32Units("AVX-512; whether on one or two units is unknown for this model", 0)


def _arm_flops_per_clock(core: Core) -> VectorUnits:
    """Return the vector units of an Arm core as text, and by precision its FLOPs per clock ({} if
    unknown).
    """
    known = _ARM.get((core.implementer or -1, core.part or -1))
    if known is None:
        scalable = f", with {SVE}" if "sve" in core.flags else ""
        return VectorUnits(f"the units of this Arm core are unknown{scalable}", {})
    text, fp32, bf16, int8 = known
    extra: Mapping[str, tuple[int, bool]] = {
        "bf16": (bf16, "bf16" in core.flags),
        "int8": (int8, bool(core.flags & {"asimddp", "i8mm"})),
    }
    more = {name: rate for name, (rate, there) in extra.items() if rate and there}
    return VectorUnits(text, {"fp32": fp32, "fp64": fp32 // 2, **more})


_NAMES = ("model name", "Model", "cpu model", "Processor")


class NoCpuError(CrossflopsError):
    """An error of a system that does not describe its processor."""


def read_cpu(root: Path = Path("/")) -> Cpu:
    """Return the CPU as the system files below `root` describe it. Raises NoCpuError if they do
    not exist.
    """
    first, *_ = records = _cpuinfo_records(root)
    core = _core_from_record(first)
    allowed = _usable_cpu_numbers(len(records))
    topology = [_socket_and_core(root, logical) for logical in allowed]
    clock, source = _cpu_clock_and_its_source(root, records[0])
    isa, rates = core_flops_per_clock(core)
    return Cpu(
        model=core.name or f"{core.architecture}, name unknown",
        architecture=core.architecture,
        logical=len(allowed),
        cores=len(set(topology)),
        sockets=len({socket for socket, _ in topology}),
        quota=_cpu_quota(root),
        clock=clock,
        clock_source=source,
        isa=isa,
        flops_per_clock=rates,
    )


def _cpuinfo_records(root: Path) -> list[dict[str, str]]:
    """Return the key and value texts of /proc/cpuinfo below `root`, in one record for each logical
    CPU. Raises NoCpuError if it cannot be read.
    """
    file = root / "proc" / "cpuinfo"
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise NoCpuError(
            f"the processor of this machine is unknown: cannot read {file}",
            "measure its peak with `crossflops devices --measure`, or name it with --device",
        ) from error
    records = [_parse_cpuinfo_record(part) for part in text.split("\n\n") if part.strip()]
    processors = [record for record in records if "processor" in record]
    rest = next((record for record in records if "processor" not in record), {})
    return [{**rest, **record} for record in processors] or [rest]


def _parse_cpuinfo_record(part: str) -> dict[str, str]:
    """Return the "key: value" lines of one part of /proc/cpuinfo as texts by key."""
    pairs = (line.partition(":") for line in part.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _core_from_record(record: dict[str, str]) -> Core:
    """Build the description of a core from its /proc/cpuinfo record."""
    flags = record.get("flags") or record.get("Features") or ""
    return Core(
        architecture=platform.machine(),
        vendor=record.get("vendor_id", ""),
        family=_parse_whole_number(record.get("cpu family")),
        model=_parse_whole_number(record.get("model")),
        name=next((record[name] for name in _NAMES if record.get(name)), ""),
        flags=frozenset(flags.split()),
        implementer=_parse_whole_number(record.get("CPU implementer")),
        part=_parse_whole_number(record.get("CPU part")),
    )


def _parse_whole_number(text: str | None) -> int | None:
    """Return the integer that a text says in base 10, or in base 16 with 0x; None for another
    text.
    """
    try:
        return int(text or "", 0)
    except ValueError:
        return None


def _usable_cpu_numbers(count: int) -> list[int]:
    """Return the numbers of the logical CPUs on which this process may run; all of `count` if
    unknown.
    """
    try:
        return sorted(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return list(range(count))


def _socket_and_core(root: Path, cpu: int) -> tuple[str, str]:
    """Return the ids of socket and core of a logical CPU, as texts."""
    folder = root / "sys/devices/system/cpu" / f"cpu{cpu}" / "topology"
    socket, core = (
        _read_system_file(folder / "physical_package_id"),
        _read_system_file(folder / "core_id"),
    )
    return (socket or "0", core if core else f"cpu{cpu}")


def _cpu_clock_and_its_source(root: Path, record: dict[str, str]) -> tuple[float | None, str]:
    """Return the clock of the CPU in Hz (the base clock if known) or None, and where it was
    read.
    """
    folder = root / "sys/devices/system/cpu/cpu0/cpufreq"
    for name in ("base_frequency", "cpuinfo_max_freq"):
        kilohertz = _parse_quota_number(_read_system_file(folder / name))
        if kilohertz:
            return kilohertz * 1e3, f"cpufreq/{name}"
    megahertz = _parse_quota_number(record.get("cpu MHz", ""))
    if megahertz:
        return megahertz * 1e6, "cpu MHz in /proc/cpuinfo"
    return None, "unknown"


def memory_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes of memory that this process may use, limited by its cgroup; None if
    unknown.
    """
    bounds = [
        _parse_quota_number(_read_system_file(group / "memory.max"))
        for group in _control_group_folders(root)
    ]
    bounds.append(
        _parse_quota_number(_read_system_file(root / "sys/fs/cgroup/memory/memory.limit_in_bytes"))
    )
    known = [int(bound) for bound in (physical_memory_bytes(), *bounds) if bound]
    return min(known) if known else None


def _cpu_quota(root: Path) -> float | None:
    """Return the number of CPUs whose time the cgroups of this process grant; None if there is no
    limit.
    """
    base = root / "sys/fs/cgroup"
    limits = [
        _quota_cpus(*_read_system_file(group / "cpu.max").split()[:2])
        for group in _control_group_folders(root)
    ]
    for v1 in (base / "cpu", base / "cpu,cpuacct"):
        limits.append(
            _quota_cpus(
                _read_system_file(v1 / "cpu.cfs_quota_us"),
                _read_system_file(v1 / "cpu.cfs_period_us"),
            )
        )
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _control_group_folders(root: Path) -> list[Path]:
    """Return the folders of this process's cgroup (version 2) and of the cgroups around it."""
    base = root / "sys/fs/cgroup"
    lines = _read_system_file(root / "proc/self/cgroup").splitlines()
    path = next((line[3:] for line in lines if line.startswith("0::")), "/")
    index = base / path.lstrip("/")
    above = (index, *index.parents)
    return [folder for folder in above if base in (folder, *folder.parents)] or [base]


def _quota_cpus(quota: str = "", period: str = "") -> float | None:
    """Return quota / period of a cgroup, the number of CPUs whose time it grants; None if there is
    no limit.
    """
    granted, out_of = _parse_quota_number(quota), _parse_quota_number(period)
    return granted / out_of if granted and out_of and granted > 0 else None


def _parse_quota_number(text: str) -> float | None:
    """Return the number that a text says, or None for another text."""
    try:
        return float(text)
    except ValueError:
        return None


def _read_system_file(file: Path) -> str:
    """Return the stripped text of a file, or an empty text if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


GpusAndNotes = tuple[tuple[Gpu, ...], tuple[str, ...]]


# GPUs, as NVML and rocm-smi describe them.

_WAIT = 20.0  # seconds for rocm-smi
_MEBI = 1 << 20
_ROCM = ("--showproductname", "--showmeminfo", "vram", "--showmaxpower", "--json")


def find_gpus() -> GpusAndNotes:
    """Return all GPUs of this machine, and a note for each driver that cannot be read."""
    nvidia, amd = _nvidia_gpus(), _amd_gpus()
    return (*nvidia[0], *amd[0]), (*nvidia[1], *amd[1])


def _nvidia_gpus() -> GpusAndNotes:
    """Return the NVIDIA GPUs that NVML reports, and a note if NVML cannot be read."""
    try:
        import pynvml
    except ImportError:
        missing = "NVIDIA GPUs cannot be detected without NVML: pip install 'crossflops[hw]'"
        return (), (missing,)
    try:
        pynvml.nvmlInit()
    except Exception as error:  # NVMLError has a class for every code, made when it is imported
        return (), (
            f"NVML reports: {_one_line_message(error)}; there is no NVIDIA GPU or no driver",
        )
    try:
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        return tuple(gpu for handle in handles for gpu in _gpus_from_nvml(pynvml, handle)), ()
    except Exception as error:
        return (), (f"NVML reports: {_one_line_message(error)}",)
    finally:
        with suppress(Exception):
            pynvml.nvmlShutdown()


def _gpus_from_nvml(nvml: Any, handle: Any) -> list[Gpu]:
    """Return the GPU of an NVML handle in a list of one, or its MIG slices if it is divided."""
    device = Gpu(
        name=_decode_gpu_name(nvml.nvmlDeviceGetName(handle)),
        driver="NVML",
        memory=_driver_result_or_none(lambda: float(nvml.nvmlDeviceGetMemoryInfo(handle).total)),
        clock=_driver_result_or_none(
            lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6
        ),
        memory_clock=_driver_result_or_none(
            lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6
        ),
        bus=_driver_result_or_none(lambda: int(nvml.nvmlDeviceGetMemoryBusWidth(handle))),
        power=_driver_result_or_none(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
        lanes=_driver_result_or_none(lambda: int(nvml.nvmlDeviceGetNumGpuCores(handle))),
    )
    mode = _driver_result_or_none(lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
    return [device] if not mode else _mig_slices(nvml, handle, device)


def _mig_slices(nvml: Any, handle: Any, device: Gpu) -> list[Gpu]:
    """Return the MIG slices of an NVIDIA GPU, each with its memory, clock and number of SMs."""
    slices = []
    for index in range(
        _driver_result_or_none(lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0
    ):
        with suppress(Exception):  # there are fewer than there may be
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            facts = nvml.nvmlDeviceGetAttributes(part)
            name = _decode_gpu_name(nvml.nvmlDeviceGetName(part))
            slices.append(
                Gpu(
                    name=name,
                    driver=device.driver,
                    memory=float(facts.memorySizeMB * _MEBI),
                    clock=device.clock,
                    profile=name.rpartition("MIG ")[2],
                    units=int(facts.multiprocessorCount),
                )
            )
    return slices


def _amd_gpus() -> GpusAndNotes:
    """Return the AMD GPUs that rocm-smi reports, and a note if it failed; nothing if it is not
    installed.
    """
    program = shutil.which("rocm-smi")
    if program is None:
        return (), ()  # most machines have no GPU of AMD, and need not hear of it
    try:
        done = subprocess.run([program, *_ROCM], capture_output=True, text=True, timeout=_WAIT)
        cards = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return (), (f"rocm-smi failed: {_one_line_message(error)}",)
    rows = [facts for name, facts in sorted(cards.items()) if name.startswith("card")]
    return tuple(_gpu_from_rocm(card) for card in rows if isinstance(card, dict)), ()


def _gpu_from_rocm(facts: dict[str, Any]) -> Gpu:
    """Build the description of an AMD GPU from the output of rocm-smi."""
    plain = {key.casefold(): str(value) for key, value in facts.items()}
    names = [plain.get(key, "") for key in ("card series", "card model", "device name")]
    return Gpu(
        name=next((name for name in names if name and not name.startswith("0x")), "GPU of AMD"),
        driver="rocm-smi",
        memory=_driver_result_or_none(lambda: float(plain["vram total memory (b)"])),
        power=_driver_result_or_none(lambda: float(plain["max graphics package power (w)"])),
    )


def _driver_result_or_none(driver_call: Callable[[], Any]) -> Any:
    """Return the result of a driver call, or None if it raises an error."""
    try:
        return driver_call()
    except Exception:
        return None


def _decode_gpu_name(name: str | bytes) -> str:
    """Return the name of a GPU as text, decoded if it is bytes."""
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def _one_line_message(error: Exception) -> str:
    """Return the message of an error on one line, or its class name if it has none."""
    return " ".join(str(error).split()) or type(error).__name__
