"""The processor, read from files that a test lays out: what Linux says on several machines."""

import os

import pytest

from crossflops.hardware import machine as detection
from crossflops.hardware.machine import (
    Core,
    NoCpuError,
    core_flops_per_clock,
    memory_bytes,
    read_cpu,
)
from crossflops.report.machine import Cpu

EPYC = """processor\t: {n}
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC 9755 128-Core Processor
cpu MHz\t\t: 2596.128
flags\t\t: fma avx avx2 avx512f avx512_bf16 avx512_vnni
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Lays out files below a root, for so many logical CPUs that are all allowed."""
    monkeypatch.setattr(detection.platform, "machine", lambda: "x86_64")

    def make(texts, allowed):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(allowed), raising=False)
        for name, text in texts.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return read_cpu(tmp_path)

    return make


def cpuinfo(count):
    """`/proc/cpuinfo` of so many logical CPUs."""
    return "\n".join(EPYC.format(n=n) for n in range(count)) + "\n"


def topology(cores):
    """Files for logical CPUs, each on the core (socket, core) that is given."""
    base = "sys/devices/system/cpu/cpu{}/topology/{}"
    files = {}
    for number, (socket, core) in enumerate(cores):
        files[base.format(number, "physical_package_id")] = str(socket)
        files[base.format(number, "core_id")] = str(core)
    return files


def test_siblings_count_once(machine):
    """Four logical CPUs on two cores of a socket: two cores."""
    processor = machine(
        {"proc/cpuinfo": cpuinfo(4), **topology([(0, 0), (0, 1), (0, 0), (0, 1)])}, range(4)
    )
    assert (processor.logical, processor.cores, processor.sockets) == (4, 2, 1)
    # 2 cores x 2.596128 GHz x 64 = 332 GFLOP/s
    assert processor.peak("fp32") == pytest.approx(2 * 2.596128e9 * 64)
    assert processor.peak("bf16") == pytest.approx(2 * 2.596128e9 * 128)
    assert processor.peak("tf32") is None


def test_only_allowed_cpus_count(machine):
    """An affinity mask of one of four."""
    processor = machine({"proc/cpuinfo": cpuinfo(4), **topology([(0, n) for n in range(4)])}, {2})
    assert (processor.logical, processor.cores) == (1, 1)


def test_cores_of_two_sockets_are_apart(machine):
    """Core 0 of socket 0 is not core 0 of socket 1."""
    processor = machine({"proc/cpuinfo": cpuinfo(2), **topology([(0, 0), (1, 0)])}, range(2))
    assert (processor.cores, processor.sockets) == (2, 2)


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"sys/fs/cgroup/cpu.max": "150000 100000"}, 1.5),
        ({"sys/fs/cgroup/cpu.max": "max 100000"}, None),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "50000 100000",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
            },
            0.5,  # of the group above
        ),
        (
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            2.0,
        ),
        (
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            None,
        ),
        ({}, None),
    ],
)
def test_a_quota_bounds_the_cores(machine, files, quota):
    """Version 2, the tightest of the groups above, or version 1."""
    processor = machine({"proc/cpuinfo": cpuinfo(4), **files}, range(4))
    assert processor.quota == quota
    assert processor.usable_cores == (4 if quota is None else quota)


def test_the_memory_is_that_of_the_control_group(tmp_path, monkeypatch):
    """A container of 2 GB on a machine of 64 GB; "max" is no bound."""
    monkeypatch.setattr(detection, "physical_memory_bytes", lambda: 64 * 10**9)
    assert memory_bytes(tmp_path) == 64 * 10**9
    file = tmp_path / "sys/fs/cgroup/memory.max"
    file.parent.mkdir(parents=True)
    file.write_text("max\n")
    assert memory_bytes(tmp_path) == 64 * 10**9
    file.write_text("2000000000\n")
    assert memory_bytes(tmp_path) == 2 * 10**9


def test_the_clock_is_that_of_cpufreq(machine):
    """The base frequency before the highest, and both before `cpu MHz`."""
    folder = "sys/devices/system/cpu/cpu0/cpufreq"
    files = {"proc/cpuinfo": cpuinfo(1), f"{folder}/cpuinfo_max_freq": "4100000"}
    assert machine(files, {0}).clock == 4.1e9
    processor = machine({**files, f"{folder}/base_frequency": "2700000"}, {0})
    assert (processor.clock, processor.clock_source) == (2.7e9, "cpufreq/base_frequency")


def test_without_proc_there_is_one_error(tmp_path):
    """What is wrong, and what can be done all the same."""
    with pytest.raises(NoCpuError, match="cannot read") as caught:
        read_cpu(tmp_path)
    assert "--measure" in caught.value.hint


def test_an_arm_machine(machine, monkeypatch):
    """A Neoverse N1 names itself by numbers, and has no clock in /proc/cpuinfo."""
    monkeypatch.setattr(detection.platform, "machine", lambda: "aarch64")
    text = (
        "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd asimddp\n"
        "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"
    )
    processor = machine({"proc/cpuinfo": text}, {0})
    assert processor.flops_per_clock == {"fp32": 16, "fp64": 8, "int8": 64}
    assert processor.clock is None
    assert processor.peak("fp32") is None


def x86(vendor, family, model, flags, name=""):
    """A core of x86."""
    return Core("x86_64", vendor, family, model, name, frozenset(flags.split()))


AVX512 = "avx avx2 fma avx512f"


@pytest.mark.parametrize(
    ("core", "rates"),
    [
        (x86("GenuineIntel", 6, 42, "sse sse2"), {"fp32": 8, "fp64": 4}),
        (x86("GenuineIntel", 6, 42, "avx"), {"fp32": 16, "fp64": 8}),
        (x86("GenuineIntel", 6, 151, "avx avx2 fma avx_vnni"), {"fp32": 32, "int8": 128}),
        (x86("AuthenticAMD", 23, 1, "avx avx2 fma"), {"fp32": 16}),  # Zen: 2 x 128
        (x86("AuthenticAMD", 23, 49, "avx avx2 fma"), {"fp32": 32}),  # Zen 2
        (
            x86("AuthenticAMD", 25, 17, f"{AVX512} avx512_bf16 avx512_vnni"),  # Zen 4
            {"fp32": 32, "fp64": 16, "bf16": 64, "int8": 128},
        ),
        (
            x86("AuthenticAMD", 26, 2, f"{AVX512} avx512_bf16 avx512_vnni"),  # Zen 5, server
            {"fp32": 64, "fp64": 32, "bf16": 128, "int8": 256},
        ),
        (x86("AuthenticAMD", 26, 0x24, AVX512), {"fp32": 32}),  # Zen 5, mobile
        (x86("GenuineIntel", 6, 85, AVX512, "Intel(R) Xeon(R) Silver 4210"), {"fp32": 32}),
        (x86("GenuineIntel", 6, 85, AVX512, "Intel(R) Xeon(R) Gold 6248"), {"fp32": 64}),
        (x86("GenuineIntel", 6, 85, AVX512, "Intel(R) Xeon(R) Gold 5218"), {"fp32": 32}),
        (x86("GenuineIntel", 6, 140, f"{AVX512} avx512_vnni"), {"fp32": 32, "int8": 128}),
        (
            x86("GenuineIntel", 6, 143, f"{AVX512} avx512_vnni amx_tile amx_bf16 amx_int8"),
            {"fp32": 64, "bf16": 1024, "int8": 2048},
        ),
        (x86("GenuineIntel", 6, 250, AVX512), {}),  # one unit or two: nobody says
        (Core("riscv64", "", None, None, "", frozenset()), {}),
        (Core("aarch64", "", None, None, "", frozenset(), 0x41, 0xFFF), {}),
        (
            Core("aarch64", "", None, None, "", frozenset({"bf16", "i8mm"}), 0x41, 0xD40),
            {"fp32": 32, "fp64": 16, "bf16": 128, "int8": 256},
        ),
        (Core("aarch64", "", None, None, "", frozenset(), 0x46, 0x001), {"fp32": 64}),
    ],
)
def test_units_by_flags_and_model(core, rates):
    """FLOPs per clock and core, of the vendors' optimization guides."""
    text, per_clock = core_flops_per_clock(core)
    assert text
    assert {name: per_clock.get(name) for name in rates} == rates
    assert bool(per_clock) == bool(rates)


def test_a_peak_needs_a_clock():
    """Cores x clock x FLOPs per clock, or nothing."""
    processor = Cpu(
        model="x", architecture="x86_64", logical=2, cores=2, sockets=1, quota=None,
        clock=2.596e9, clock_source="", isa="", flops_per_clock={"fp32": 64},
    )  # fmt: skip
    assert processor.peak("fp32") == pytest.approx(332.288e9)
