"""Peaks of this machine: measured, stored, and compared with the data of its system.

It is measured by loops that keep nothing busy but the registers, or the memory: compiled on the
spot, and run. `load_or_measure_peak()` is the denominator that others ask for. It is kept in a
file of the user's cache and taken from there as long as the processor, its flags and the CPUs of
this process are the same.
"""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from math import ceil
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from crossflops.errors import CrossflopsError
from crossflops.files import write_file
from crossflops.hardware.machine import AMX, SVE, NoCpuError, memory_bytes, read_cpu
from crossflops.report.machine import Cpu, MachinePeak

Kind: TypeAlias = Literal["fma32", "fma64", "dot16", "dot8", "clock", "triad"]
_COMPILERS = ("cc", "gcc", "clang")
# what a compiler calls "the processor on which you run": -march on x86, -mcpu elsewhere
_NATIVE: tuple[list[str], ...] = (["-march=native"], ["-mcpu=native"], [])
_COMPILING = 60.0  # seconds
_BEYOND = 30.0  # seconds that a loop may take longer than it was asked to


class NoLoopError(CrossflopsError):
    """An error of loops that cannot be compiled or run here."""


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a loop: `work` (FLOPs, additions or bytes) in each of `rounds`.

    `best` are the seconds of the fastest round, `total` those of all; `width` the bits of the
    registers, `fused` whether multiply and add are one instruction. `dot16` and `dot8` say whether
    there are loops of dot products of BF16 and of bytes.
    """

    work: float
    best: float
    total: float
    rounds: int
    width: int
    fused: bool
    dot16: bool = False
    dot8: bool = False

    @property
    def rate(self) -> float:
        """FLOP/s (or bytes/s) of the fastest round."""
        return self.work / self.best

    @property
    def mean_rate(self) -> float:
        """FLOP/s (or bytes/s) of all rounds together."""
        return self.work * self.rounds / self.total


class PeakLoops(msgspec.Struct, frozen=True):
    """The compiled loops, and the command that compiled them."""

    path: str
    command: str

    def run(self, kind: Kind, seconds: float, threads: int = 1, nbytes: int = 0) -> Loop:
        """Run a measuring loop for about `seconds`; return its work, times and width.

        Raises NoLoopError where it fails, or computes something wrong.
        """
        parts = {"clock": [str(seconds)], "triad": [str(threads), str(seconds), str(nbytes)]}
        provided = parts.get(kind, [str(threads), str(seconds)])
        try:
            done = subprocess.run(
                [self.path, kind, *provided], capture_output=True, timeout=seconds + _BEYOND
            )
            if done.returncode:
                raise _loop_failure_error(kind, f"it ended with {done.returncode}")
            return msgspec.convert(json.loads(done.stdout), Loop)
        except subprocess.TimeoutExpired as error:
            raise _loop_failure_error(kind, "it did not finish in time") from error
        except (OSError, ValueError) as error:
            raise _loop_failure_error(kind, str(error)) from error


def find_c_compiler() -> str | None:
    """Return the path of the C compiler: $CC, or the first of cc, gcc and clang; or None."""
    named = os.environ.get("CC", "").split()
    return next(filter(None, map(shutil.which, (*named[:1], *_COMPILERS))), None)


@contextmanager
def compiling_peak_loops() -> Iterator[PeakLoops]:
    """Compile the program of measuring loops, yield it, and delete it when the block ends. Raises
    NoLoopError without a compiler.
    """
    command = find_c_compiler()
    if command is None or platform.system() == "Windows":
        raise NoLoopError(
            "no C compiler was found",
            "install gcc or clang, or set the environment variable CC to a compiler",
        )
    source = files("crossflops.hardware").joinpath("peak.c")
    with tempfile.TemporaryDirectory(prefix="crossflops-") as folder, as_file(source) as path:
        yield _compile_peak_loops(command, path, Path(folder) / "peak")


def _compile_peak_loops(cc: str, source: Path, target: Path) -> PeakLoops:
    """Compile the C program of the measuring loops to `target`; raise NoLoopError if the compiler
    `cc` fails.
    """
    complaint = ""
    for native in _NATIVE:
        command = [cc, "-O2", *native, "-ffp-contract=fast", "-pthread"]
        try:
            done = subprocess.run(
                [*command, str(source), "-o", str(target)],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_COMPILING,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoLoopError(
                f"cannot run {cc}: {error}",
                "set the environment variable CC to another compiler, such as CC=clang",
            ) from error
        if done.returncode == 0:
            return PeakLoops(str(target), " ".join([Path(cc).name, *command[1:]]))
        complaint = (done.stderr.strip().splitlines() or ["no error message"])[0]
    raise NoLoopError(
        f"{cc} cannot compile the test loops that measure the speed of this machine: {complaint}",
        "set the environment variable CC to another compiler, such as CC=clang",
    )


def _loop_failure_error(kind: str, why: str) -> NoLoopError:
    """Return the error that a measuring loop failed, with its reason."""
    return NoLoopError(
        f"the loop that measures {kind} failed: {why}",
        "set the environment variable CC to another compiler, such as CC=clang",
    )


# Where nothing can be compiled: numpy. A matrix product is a lower bound, and no peak.
#
# numpy's sgemm was seen at half of what convolutions of another library reached on one machine, so
# a share of this rate may be above 100 % with nothing wrong.

_SIDE = 1024  # of the matrices: 4 MiB each, and 2 x 1024^3 FLOPs
_LEAST = 3  # repetitions


def numpy_product_rate(dtype: str, seconds: float) -> float:
    """Return the FLOP/s of NumPy's product of two square matrices of `dtype`, measured for
    `seconds`.
    """
    import numpy as np

    left = np.ones((_SIDE, _SIDE), dtype)
    out = np.empty_like(left)
    return 2 * _SIDE**3 / _fastest_run_seconds(lambda: np.matmul(left, left, out=out), seconds)


def numpy_sum_bandwidth(nbytes: int, seconds: float) -> float:
    """Return the bytes/s of a = b + c over three arrays of `nbytes` in NumPy, measured for
    `seconds`.
    """
    import numpy as np

    first = np.ones(max(1, nbytes // 8))
    second, out = np.ones_like(first), np.empty_like(first)
    out.fill(0)  # its pages exist before they are timed
    return 3 * first.nbytes / _fastest_run_seconds(lambda: np.add(first, second, out=out), seconds)


def _fastest_run_seconds(action: Callable[[], object], seconds: float) -> float:
    """Run an action repeatedly for `seconds`; return the seconds of the fastest run."""
    action()
    fastest, count, begun = float("inf"), 0, time.perf_counter()
    while count < _LEAST or time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        action()
        fastest, count = min(fastest, time.perf_counter() - start), count + 1
    return fastest


# Where a measurement and the system's own words contradict each other.

_CLOCK = 0.05  # by how much a clock may differ: it moves with load
_SCALES = 0.75  # of the speed that cores should add up to
_BUSY = 0.6  # of the best round's rate that all rounds together should have
_ABOVE = 1.1  # of what units should do in a clock


def contradiction_sentences(peak: MachinePeak, system_cpu: Cpu | None) -> tuple[str, ...]:
    """Return a sentence for each figure of the measured peak that contradicts the system's data of
    the CPU.
    """
    busy = _busy_sentence(peak)
    if system_cpu is None:
        nothing = (
            "the system reports nothing about its processor, so the measurement cannot be checked"
        )
        return tuple(filter(None, (nothing, busy)))
    checks = (
        _clock_sentence(peak, system_cpu),
        _cores_sentence(peak, system_cpu),
        *_unit_sentences(peak, system_cpu),
        busy,
    )
    return tuple(filter(None, checks))


def _busy_sentence(peak: MachinePeak) -> str:
    """Return the sentence that the machine was busy or throttled during the measurement, else
    "".
    """
    best = peak.peaks.get("fp32", 0.0)
    if peak.sustained is None or peak.sustained >= _BUSY * best:
        return ""
    share = f"the average of all rounds is {100 * peak.sustained / best:.0f} % of the best round"
    return f"{share}: the machine is busy or throttled; measure again when it is idle"


def _clock_sentence(peak: MachinePeak, system_cpu: Cpu) -> str:
    """Return the sentence that the measured clock differs from that of the system, else ""."""
    if peak.clock is None or system_cpu.clock is None:
        return ""
    if abs(peak.clock / system_cpu.clock - 1) <= _CLOCK:
        return ""
    claim_of_clock = f"{system_cpu.clock / 1e9:.3f} GHz ({system_cpu.clock_source})"
    return f"the system reports {claim_of_clock}, but a core runs at {peak.clock / 1e9:.3f} GHz"


def _cores_sentence(peak: MachinePeak, system_cpu: Cpu) -> str:
    """Return the sentence that all cores together are slower than their number x one core, else
    "".
    """
    if peak.one_thread is None or system_cpu.usable_cores < 1:
        return ""
    times = peak.peaks["fp32"] / peak.one_thread
    if times >= _SCALES * system_cpu.usable_cores:
        return ""
    cores = f"{system_cpu.usable_cores:g} cores are {times:.2f} x as fast as one"
    return f"{cores}: they are shared, throttled or busy"


def _unit_sentences(peak: MachinePeak, system_cpu: Cpu) -> tuple[str, ...]:
    """Return the sentence that the measured FLOPs per clock of a core are not those of its vector
    units, in a tuple; () if they agree.
    """
    rate = system_cpu.flops_per_clock.get("fp32")
    if peak.clock is None or peak.one_thread is None or not peak.is_peak:
        return ()
    done = peak.one_thread / peak.clock
    if rate is None:
        return (f"{system_cpu.isa}; measured: {done:.1f} FP32 FLOPs per clock and core",)
    if done > _ABOVE * rate:
        return (f"{system_cpu.isa} should do {rate} FP32 FLOPs per clock, but did {done:.1f}",)
    if done < _SCALES * rate:
        return (
            f"{system_cpu.isa} should do {rate} FP32 FLOPs per clock; the loop did {done:.1f}",
        )
    return ()


_FILE = "machine-peak.json"
_EDITION = "2"  # of the loops: another one measures again
_ARRAY = 64 << 20  # bytes of each of the three arrays of the triad, at least
_LARGEST = 256 << 20
_SECONDS = 0.4  # of a loop


def load_or_measure_peak(*, measure_anew: bool = False) -> MachinePeak:
    """Return the peak of this machine, stored or measured now (in about two seconds).

    `measure_anew` measures in any case. Raises CrossflopsError where nothing can be measured.
    """
    kept = None if measure_anew else load_machine_peak()
    return kept or store_machine_peak(measure_machine_peak())


def load_machine_peak() -> MachinePeak | None:
    """Return the stored peak of this machine, or None if there is none or its CPU, compiler or
    loops have changed since.
    """
    try:
        kept = msgspec.json.decode(_peak_cache_path().read_bytes(), type=MachinePeak)
    except (OSError, msgspec.DecodeError):
        return None
    return kept if kept.fingerprint == measurement_fingerprint() else None


def store_machine_peak(peak: MachinePeak) -> MachinePeak:
    """Write the measured peak to the cache file, if that is possible; return the same peak."""
    file = _peak_cache_path()
    with contextlib.suppress(OSError, CrossflopsError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, msgspec.json.format(msgspec.json.encode(peak), indent=2))
    return peak


def measure_machine_peak() -> MachinePeak:
    """Measure the peak of this machine by compiled loops, or by NumPy without a compiler; return
    it.
    """
    system_cpu = read_cpu_or_none()
    threads = measuring_thread_count(system_cpu)
    try:
        with compiling_peak_loops() as program:
            peak = _measure_by_loops(program, threads, system_cpu)
    except NoLoopError as error:
        peak = _measure_by_numpy(threads, str(error.message), system_cpu)
    return replace(peak, contradictions=contradiction_sentences(peak, system_cpu))


def read_cpu_or_none() -> Cpu | None:
    """Return the system's description of its CPU, or None if it gives none."""
    try:
        return read_cpu()
    except NoCpuError:
        return None


def measuring_thread_count(system_cpu: Cpu | None) -> int:
    """Return the number of threads to measure with: the logical CPUs, limited by the CPU quota."""
    if system_cpu is None:
        return os.cpu_count() or 1
    return min(system_cpu.logical, ceil(system_cpu.quota or system_cpu.logical))


def measurement_fingerprint() -> str:
    """Return a hash of what a measurement depends on: host, CPU, compiler and version of the
    loops.
    """
    system_cpu = read_cpu_or_none()
    facts = (
        _EDITION,
        platform.node(),
        platform.machine(),
        str(find_c_compiler()),
        "" if system_cpu is None else msgspec.json.encode(system_cpu.flops_per_clock).decode(),
        ""
        if system_cpu is None
        else f"{system_cpu.model} {system_cpu.logical} {system_cpu.quota}",
    )
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _measure_by_loops(program: PeakLoops, threads: int, system_cpu: Cpu | None) -> MachinePeak:
    """Measure peak FLOP/s, bandwidth and clock of this machine by compiled loops; return them."""
    clock = program.run("clock", _SECONDS / 2).rate
    single = program.run("fma32", _SECONDS)
    all_ = single if threads == 1 else program.run("fma32", _SECONDS, threads)
    double = program.run("fma64", _SECONDS, threads)
    loops = {
        "fp32": all_,
        "fp64": double,
        **_measure_dot_products(program, single, threads, system_cpu),
    }
    triad = program.run("triad", _SECONDS, threads, _array_bytes())
    granted = _usable_time_share(threads, system_cpu)
    share = "" if granted == 1 else f"; times {100 * granted:.0f} %, the CPU quota"
    lanes = f"{single.width}-bit {'FMA' if single.fused else 'multiply and add'}"
    return MachinePeak(
        cpu=_cpu_model_name(system_cpu),
        threads=threads,
        peaks={name: loop.rate * granted for name, loop in loops.items()},
        one_thread=single.rate,
        sustained=all_.mean_rate * granted,
        bandwidth=triad.rate,
        clock=clock,
        width=single.width,
        is_peak=True,
        how=f"{lanes} loop in registers, and a triad of three streams; {program.command}{share}"
        f"{_missing_units_note(system_cpu)}",
        fingerprint=measurement_fingerprint(),
    )


def _measure_dot_products(
    program: PeakLoops, single: Loop, threads: int, system_cpu: Cpu | None
) -> dict[str, Loop]:
    """Run the loops of BF16 and INT8 dot products, if the CPU has the instructions; return their
    results by precision.

    Not where there is AMX: its units do many times as much, and are not in the loops.
    """
    if system_cpu is not None and AMX in system_cpu.isa:
        return {}
    kinds: dict[str, Kind] = {"bf16": "dot16", "int8": "dot8"}
    there = {"bf16": single.dot16, "int8": single.dot8}
    return {
        name: program.run(kind, _SECONDS, threads) for name, kind in kinds.items() if there[name]
    }


def _missing_units_note(system_cpu: Cpu | None) -> str:
    """Return the note that AMX or SVE units of the CPU were not measured, or "" if it has
    neither.
    """
    isa = "" if system_cpu is None else system_cpu.isa
    amx = "; AMX is not measured, so BF16 and INT8 have no peak" if AMX in isa else ""
    sve = "; SVE is not measured: units wider than 128 bits may be faster" if SVE in isa else ""
    return amx + sve


def _usable_time_share(threads: int, system_cpu: Cpu | None) -> float:
    """Return the share of the time of `threads` CPUs that the quota grants, at most 1."""
    quota = system_cpu.quota if system_cpu else None
    return 1.0 if quota is None else min(1.0, quota / threads)


def _measure_by_numpy(threads: int, why: str, system_cpu: Cpu | None) -> MachinePeak:
    """Measure FLOP/s and bandwidth of this machine by NumPy, as a lower bound of the peak; `why`
    says why there are no loops.
    """
    rates = {"fp32": "float32", "fp64": "float64"}
    return MachinePeak(
        cpu=_cpu_model_name(system_cpu),
        threads=threads,
        peaks={name: numpy_product_rate(dtype, _SECONDS) for name, dtype in rates.items()},
        one_thread=None,
        sustained=None,
        bandwidth=numpy_sum_bandwidth(_ARRAY, _SECONDS),
        clock=None,
        width=None,
        is_peak=False,
        how=f"numpy's matrix product, which is only a lower bound of the peak, since {why}; "
        "bandwidth from a sum of three streams on one thread",
        fingerprint=measurement_fingerprint(),
    )


def _cpu_model_name(system_cpu: Cpu | None) -> str:
    """Return the name of the CPU model, or its architecture if the name is unknown."""
    return system_cpu.model if system_cpu else platform.processor() or platform.machine()


def _array_bytes() -> int:
    """Return the bytes of each array of the bandwidth measurement, which exceed the caches if
    memory allows.
    """
    cache, memory = _sysconf_integer("SC_LEVEL3_CACHE_SIZE"), memory_bytes()
    requested = min(max(_ARRAY, 2 * cache), _LARGEST)
    return min(requested, max(1 << 20, memory // 16)) if memory else requested


def _sysconf_integer(name: str) -> int:
    """Return an integer of os.sysconf by its name, or 0 if it is unknown."""
    try:
        return max(0, os.sysconf(name))
    except (AttributeError, ValueError, OSError):
        return 0


def _peak_cache_path() -> Path:
    """Return the path of the file in which the measured peak of this machine is stored."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser() / "crossflops" / _FILE
    except RuntimeError as error:
        raise CrossflopsError(
            "no home folder for the cache was found",
            "set the environment variable XDG_CACHE_HOME to a folder",
        ) from error
