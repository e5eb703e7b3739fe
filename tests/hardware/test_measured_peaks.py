"""The measured peak: kept for the same machine, and set beside what the system says."""

from contextlib import nullcontext

import pytest
from msgspec.structs import replace

from crossflops.hardware import peaks as machine
from crossflops.hardware.peaks import Loop, NoLoopError, contradiction_sentences
from crossflops.report.machine import Cpu, MachinePeak

CPU = Cpu(
    model="AMD EPYC", architecture="x86_64", logical=2, cores=2, sockets=1, quota=None,
    clock=2.596e9, clock_source="cpu MHz", isa="AVX-512, two 512-bit FMA units",
    flops_per_clock={"fp32": 64},
)  # fmt: skip
PEAK = MachinePeak(  # as was once measured on a virtual machine with two CPUs
    cpu="AMD EPYC", threads=2, peaks={"fp32": 276e9, "fp64": 138e9}, one_thread=266e9,
    sustained=270e9, bandwidth=42.4e9, clock=4.149e9, width=512, is_peak=True, how="a loop",
    fingerprint="f",
)  # fmt: skip


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own, and a measurement that counts how often it was made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []

    def measure():
        made.append(1)
        return replace(PEAK, fingerprint=machine.measurement_fingerprint())

    monkeypatch.setattr(machine, "measure_machine_peak", measure)
    return made


def test_a_measurement_is_kept(cache):
    """The second time it comes from the file, unless it is asked for again."""
    first = machine.load_or_measure_peak()
    assert machine.load_or_measure_peak() == first == machine.load_machine_peak()
    assert len(cache) == 1
    machine.load_or_measure_peak(measure_anew=True)
    assert len(cache) == 2


def test_another_machine_is_measured_again(cache, monkeypatch):
    """Other CPUs than those of the file: it does not hold."""
    machine.load_or_measure_peak()
    monkeypatch.setattr(machine, "read_cpu_or_none", lambda: replace(CPU, logical=64))
    assert machine.load_machine_peak() is None
    machine.load_or_measure_peak()
    assert len(cache) == 2


def test_a_file_that_is_broken_is_no_measurement(cache, tmp_path):
    """It is measured again, and written again."""
    machine.load_or_measure_peak()
    file = tmp_path / "crossflops" / "machine-peak.json"
    file.write_text("{")
    assert machine.load_machine_peak() is None
    assert machine.load_or_measure_peak() == machine.load_machine_peak()


def test_a_cache_that_cannot_be_written_is_no_trouble(cache, tmp_path, monkeypatch):
    """The measurement is returned all the same."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert machine.load_or_measure_peak().peaks == PEAK.peaks


def test_without_a_compiler_it_is_a_product(monkeypatch):
    """It is labelled: a matrix product is no peak, and why it stands here."""

    def none():
        raise NoLoopError("no C compiler was found", "install one")

    monkeypatch.setattr(machine, "compiling_peak_loops", none)
    monkeypatch.setattr(machine, "_SECONDS", 0.01)
    monkeypatch.setattr(machine, "_ARRAY", 1 << 16)
    peak = machine.measure_machine_peak()
    assert not peak.is_peak
    assert "lower bound of the peak" in peak.how
    assert "no C compiler" in peak.how
    assert peak.device().source[0].startswith("measured matrix product (not the peak)")


def test_it_is_a_device_to_set_a_count_against():
    """With the measured rates, and not a figure of a catalogue."""
    device = PEAK.device()
    assert (device.id, device.peaks, device.bandwidth) == ("measured", PEAK.peaks, 42.4e9)
    assert device.confidence == "measured"


def test_a_shared_core_and_a_hidden_clock_are_found():
    """Two CPUs deliver 276 where one does 266, at 4.149 GHz where 2.596 are claimed."""
    doubts = contradiction_sentences(PEAK, CPU)
    assert len(doubts) == 2
    assert "2.596 GHz" in doubts[0]
    assert "4.149 GHz" in doubts[0]
    assert "2 cores are 1.04 x as fast" in doubts[1]


def test_what_agrees_is_not_mentioned():
    """Two cores that do twice one, at the clock that is claimed."""
    sound = replace(PEAK, peaks={"fp32": 530e9}, clock=4.149e9, sustained=500e9)
    assert contradiction_sentences(sound, replace(CPU, clock=4.149e9)) == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"one_thread": 532e9, "peaks": {"fp32": 1064e9}, "sustained": 1e12}, "but did 128.2"),
        ({"one_thread": 133e9, "peaks": {"fp32": 266e9}, "sustained": 2e11}, "did 32.1"),
        ({"peaks": {"fp32": 530e9}, "sustained": 100e9}, "19 % of the best"),
    ],
)
def test_units_and_other_work_are_checked(changes, said):
    """More or less than the units can do, and a machine that is busy."""
    doubts = contradiction_sentences(replace(PEAK, **changes), replace(CPU, clock=4.149e9))
    assert len(doubts) == 1
    assert said in doubts[0]


def test_a_quota_is_no_contradiction():
    """Half of a CPU's time: the cores are not expected to add up to two."""
    granted = replace(CPU, clock=4.149e9, quota=1.0)
    slow = replace(PEAK, peaks={"fp32": 250e9}, sustained=250e9)
    assert contradiction_sentences(slow, granted) == ()


def test_a_quota_bounds_the_threads_and_the_peak(monkeypatch):
    """One and a half CPUs' time of four: two threads, three quarters of what they reach."""
    granted = replace(CPU, logical=4, cores=4, quota=1.5)
    assert machine.measuring_thread_count(granted) == 2
    asked = []

    class Program:
        command = "cc"

        def run(self, kind, seconds, threads=1, nbytes=0):
            asked.append((kind, threads))
            rate = {"fma32": 100e9, "fma64": 50e9, "dot8": 400e9}.get(kind, 4e9) * threads
            return Loop(work=rate, best=1, total=3, rounds=3, width=512, fused=True, dot8=True)

    monkeypatch.setattr(machine, "compiling_peak_loops", lambda: nullcontext(Program()))
    monkeypatch.setattr(machine, "read_cpu_or_none", lambda: granted)
    peak = machine.measure_machine_peak()
    assert ("fma32", 2) in asked
    assert peak.peaks == {"fp32": 150e9, "fp64": 75e9, "int8": 600e9}
    assert peak.one_thread == 100e9
    assert "times 75 %, the CPU quota" in peak.how


def test_vector_dots_are_no_peak_beside_matrix_units(monkeypatch):
    """With AMX the loops of BF16 and INT8 would be a tenth of what there is: left out."""
    cpus = (CPU, replace(CPU, isa=f"{CPU.isa}, AMX"))
    loop = Loop(work=1, best=1, total=3, rounds=3, width=512, fused=True, dot16=True, dot8=True)

    class Program:
        def run(self, kind, seconds, threads=1):
            return loop

    kinds = [set(machine._measure_dot_products(Program(), loop, 2, cpu)) for cpu in cpus]
    assert kinds == [{"bf16", "int8"}, set()]
    assert "AMX is not measured" in machine._missing_units_note(cpus[1])
    assert machine._missing_units_note(cpus[0]) == machine._missing_units_note(None) == ""
    assert "SVE" in machine._missing_units_note(replace(CPU, isa="A64FX, two 512-bit SVE units"))


def test_nothing_claimed_is_said():
    """Without /proc there is nothing to compare with."""
    assert "reports nothing" in contradiction_sentences(PEAK, None)[0]
