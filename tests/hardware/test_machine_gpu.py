"""GPUs as drivers describe them: a stand-in for NVML, and for rocm-smi."""

import sys
from types import SimpleNamespace

import pytest

from crossflops.hardware import machine as gpu
from crossflops.hardware.machine import find_gpus


class DriverError(Exception):
    """What NVML raises."""


def nvml(**answers):
    """A module with the functions that are given; every other one raises, as on old cards."""

    def function(name):
        def call(*arguments):
            if name not in answers:
                raise DriverError("Not Supported")
            answer = answers[name]
            return answer(*arguments) if callable(answer) else answer

        return call

    class Module(SimpleNamespace):
        NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

        def __getattr__(self, name):
            return function(name)

    return Module()


H100 = {
    "nvmlInit": None,
    "nvmlShutdown": None,
    "nvmlDeviceGetCount": 1,
    "nvmlDeviceGetHandleByIndex": "handle",
    "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=85_520_809_984),
    "nvmlDeviceGetMaxClockInfo": lambda handle, which: {1: 1980, 2: 2619}[which],
    "nvmlDeviceGetMemoryBusWidth": 5120,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetNumGpuCores": 16896,
}


@pytest.fixture
def driver(monkeypatch):
    """Puts a driver in place, and takes rocm-smi away."""
    monkeypatch.setattr(gpu.shutil, "which", lambda name: None)
    return lambda module: monkeypatch.setitem(sys.modules, "pynvml", module)


def test_a_gpu_by_nvml(driver):
    """In SI units."""
    driver(nvml(**H100))
    (card,), notes = find_gpus()
    assert notes == ()
    assert card.name == "NVIDIA H100 80GB HBM3"
    assert (card.clock, card.memory_clock, card.bus) == (1980e6, 2619e6, 5120)
    assert (card.power, card.lanes, card.memory) == (700, 16896, 85_520_809_984)


def test_what_a_card_does_not_answer_is_unknown(driver):
    """Unknown, and not zero."""
    driver(nvml(**{name: H100[name] for name in list(H100)[:5]}))
    (card,), _ = find_gpus()
    assert (card.memory, card.clock, card.bus, card.power, card.lanes) == (None,) * 5


def test_slices_stand_in_place_of_the_whole(driver):
    """With the SMs that the driver reports for each."""

    def part(handle, index):
        if index:
            raise DriverError("Not Found")
        return "slice"

    def name(handle):
        return "NVIDIA H100 80GB HBM3" + (" MIG 1g.10gb" if handle == "slice" else "")

    driver(
        nvml(
            **H100
            | {
                "nvmlDeviceGetMigMode": (1, 1),
                "nvmlDeviceGetMaxMigDeviceCount": 7,
                "nvmlDeviceGetMigDeviceHandleByIndex": part,
                "nvmlDeviceGetAttributes": SimpleNamespace(
                    memorySizeMB=9984, multiprocessorCount=16
                ),
                "nvmlDeviceGetName": name,
            }
        )
    )
    (card,), _ = find_gpus()
    assert (card.name, card.profile, card.units) == (
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "1g.10gb", 16,
    )  # fmt: skip
    assert card.memory == 9984 * 1024**2


def test_no_driver_is_one_sentence(driver):
    """NVML is there, its library is not."""

    def init():
        raise DriverError("NVML Shared Library Not Found")

    driver(nvml(**H100 | {"nvmlInit": init}))
    assert find_gpus() == (
        (),
        ("NVML reports: NVML Shared Library Not Found; there is no NVIDIA GPU or no driver",),
    )


def test_no_nvml_names_the_extra(driver):
    """Without the package nothing can be asked."""
    driver(None)
    cards, (note,) = find_gpus()
    assert cards == ()
    assert "pip install 'crossflops[hw]'" in note


def test_a_driver_that_fails_later_is_said(driver):
    """No traceback, and no half of a GPU."""

    def count():
        raise DriverError("GPU is lost")

    driver(nvml(**H100 | {"nvmlDeviceGetCount": count}))
    assert find_gpus() == ((), ("NVML reports: GPU is lost",))


@pytest.fixture
def rocm(tmp_path, monkeypatch):
    """A rocm-smi that prints a text, and no NVML."""
    monkeypatch.setitem(sys.modules, "pynvml", None)

    def make(text):
        program = tmp_path / "rocm-smi"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return find_gpus()

    return make


def test_a_gpu_by_rocm_smi(rocm):
    """As releases with other keys print it."""
    text = (
        '{"card0": {"Card Series": "AMD Instinct MI300X", "VRAM Total Memory (B)": '
        '"206141652992", "Max Graphics Package Power (W)": "750.0"},'
        ' "card1": {"Card series": "0x738c", "Card model": "0xc34"}, "system": {}}'
    )
    cards, _ = rocm(text)
    assert [card.name for card in cards] == ["AMD Instinct MI300X", "GPU of AMD"]
    assert (cards[0].memory, cards[0].power) == (206141652992, 750)
    assert cards[1].memory is None


def test_rocm_smi_that_does_not_answer(rocm):
    """A sentence."""
    cards, notes = rocm("driver not initialized")
    assert cards == ()
    assert any("rocm-smi failed" in note for note in notes)
