"""This machine and the catalogue together."""

import pytest
from msgspec.structs import replace

from crossflops.errors import UnknownNameError
from crossflops.hardware.machine import NoCpuError
from crossflops.report.machine import Cpu, Gpu, MachinePeak
from crossflops.verbs import devices
from crossflops.verbs.devices import (
    additional_devices,
    catalogue_device_of_gpu,
    describe_this_machine,
)

CPU = Cpu(
    model="AMD EPYC 9654 96-Core Processor", architecture="x86_64", logical=192, cores=96,
    sockets=1, quota=None, clock=2.4e9, clock_source="cpufreq", isa="AVX-512",
    flops_per_clock={"fp32": 32},
)  # fmt: skip
GPU = Gpu(name="NVIDIA H100 80GB HBM3", driver="NVML", clock=1980e6, lanes=16896, memory=80e9)
PEAK = MachinePeak(
    cpu="x", threads=2, peaks={"fp32": 276e9}, one_thread=266e9, sustained=270e9, bandwidth=42e9,
    clock=4e9, width=512, is_peak=True, how="a loop", fingerprint="f",
)  # fmt: skip


@pytest.fixture
def here(monkeypatch, tmp_path):
    """A machine with such GPUs, in a folder without configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(devices, "read_cpu", lambda root: CPU)
    monkeypatch.setattr(devices, "load_or_measure_peak", lambda measure_anew=False: PEAK)
    return lambda *cards: monkeypatch.setattr(devices, "find_gpus", lambda: (cards, ()))


def test_what_is_found_is_looked_up(here):
    """By the names that drivers print; what is unknown or ambiguous is said."""
    names = ("NVIDIA T400", "Orin", "Orin (nvgpu)")
    here(GPU, *(replace(GPU, name=name, clock=None) for name in names))
    machine = describe_this_machine()
    assert machine.known[CPU.model] == "epyc-9654"
    assert machine.known["NVIDIA H100 80GB HBM3"] == "h100-sxm"
    assert "unknown" in machine.known["NVIDIA T400"]
    assert "ambiguous: jetson-agx-orin-64gb" in machine.known["Orin (nvgpu)"]
    assert machine.known["Orin"].startswith("jetson-agx-orin-64gb, or jetson-orin-nx-16gb, or")
    assert machine.measured is None
    assert machine.notes == ()  # 2 x 16896 x 1980 MHz is the 66.9 of the sheet


def test_a_clock_that_contradicts_the_sheet_is_said(here):
    """A card that is held to 1 GHz."""
    here(replace(GPU, clock=1e9))
    (note,) = describe_this_machine().notes
    assert "16896 FP32 units x 1000 MHz x 2 = 33.79 TFLOP/s" in note
    assert "66.9" in note


def test_a_slice_has_the_share_that_its_driver_reports(here):
    """16 of 132 SMs."""
    mig = replace(
        GPU, name="NVIDIA H100 80GB HBM3 MIG 1g.10gb", profile="1g.10gb", units=16, memory=10e9
    )
    assert catalogue_device_of_gpu(mig).peaks["bf16"] == pytest.approx(989.4e12 * 16 / 132)
    here(mig)
    machine = describe_this_machine()
    assert machine.known[mig.name] == "h100-sxm-mig-1g.10gb"
    assert machine.peaks[mig.name]["bf16"] == pytest.approx(989.4e12 * 16 / 132)
    with pytest.raises(UnknownNameError):
        catalogue_device_of_gpu(replace(mig, name="NVIDIA T400 MIG 1g.10gb"))


def test_a_machine_without_proc_can_be_measured(here, monkeypatch):
    """One message, unless there is something to show."""

    def none(root):
        raise NoCpuError("this machine does not say what its processor is", "measure it")

    here()
    monkeypatch.setattr(devices, "read_cpu", none)
    with pytest.raises(NoCpuError):
        describe_this_machine()
    machine = describe_this_machine(measure=True)
    assert (machine.cpu, machine.measured) == (None, PEAK)
    assert "does not say" in machine.notes[0]


def test_measured_is_a_device_only_where_it_is_asked_for(here):
    """No other name starts a measurement."""
    assert additional_devices("v100") == additional_devices(None) == ()
    assert [device.id for device in additional_devices(" Measured ")] == ["measured"]
