"""The GPUs of this machine as their drivers describe them: NVML, and rocm-smi.

What is not there is said in a sentence, and nothing fails: a machine without a driver has no GPU
to set a count against.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from crossflops.report.machine import Gpu

Found = tuple[tuple[Gpu, ...], tuple[str, ...]]
_WAIT = 20.0  # seconds for rocm-smi
_MEBI = 1 << 20
_ROCM = ("--showproductname", "--showmeminfo", "vram", "--showmaxpower", "--json")


def gpus() -> Found:
    """All GPUs, and a sentence for what could not be looked at."""
    nvidia, amd = _nvidia(), _amd()
    return (*nvidia[0], *amd[0]), (*nvidia[1], *amd[1])


def _nvidia() -> Found:
    try:
        import pynvml
    except ImportError:
        missing = "NVIDIA GPUs are not looked for: pip install 'crossflops[hw]'"
        return (), (missing,)
    try:
        pynvml.nvmlInit()
    except Exception as error:  # NVMLError has a class for every code, made when it is imported
        return (), (f"NVML answers: {_line(error)}; there is no GPU of NVIDIA, or no driver",)
    try:
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        return tuple(gpu for handle in handles for gpu in _of_nvml(pynvml, handle)), ()
    except Exception as error:
        return (), (f"NVML answers: {_line(error)}",)
    finally:
        with suppress(Exception):
            pynvml.nvmlShutdown()


def _of_nvml(nvml: Any, handle: Any) -> list[Gpu]:
    """A GPU, or its slices where it is cut into slices."""
    device = Gpu(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        driver="NVML",
        memory=_asked(lambda: float(nvml.nvmlDeviceGetMemoryInfo(handle).total)),
        clock=_asked(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6),
        memory_clock=_asked(
            lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6
        ),
        bus=_asked(lambda: int(nvml.nvmlDeviceGetMemoryBusWidth(handle))),
        power=_asked(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
        lanes=_asked(lambda: int(nvml.nvmlDeviceGetNumGpuCores(handle))),
    )
    mode = _asked(lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
    return [device] if not mode else _slices(nvml, handle, device)


def _slices(nvml: Any, handle: Any, device: Gpu) -> list[Gpu]:
    slices = []
    for index in range(_asked(lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
        with suppress(Exception):  # there are fewer than there may be
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            facts = nvml.nvmlDeviceGetAttributes(part)
            name = _text(nvml.nvmlDeviceGetName(part))
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


def _amd() -> Found:
    program = shutil.which("rocm-smi")
    if program is None:
        return (), ()  # most machines have no GPU of AMD, and need not hear of it
    try:
        done = subprocess.run([program, *_ROCM], capture_output=True, text=True, timeout=_WAIT)
        cards = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return (), (f"rocm-smi does not answer: {_line(error)}",)
    rows = [facts for name, facts in sorted(cards.items()) if name.startswith("card")]
    return tuple(_of_rocm(card) for card in rows if isinstance(card, dict)), ()


def _of_rocm(facts: dict[str, Any]) -> Gpu:
    """A card; the keys have changed their case from release to release."""
    plain = {key.casefold(): str(value) for key, value in facts.items()}
    names = [plain.get(key, "") for key in ("card series", "card model", "device name")]
    return Gpu(
        name=next((name for name in names if name and not name.startswith("0x")), "GPU of AMD"),
        driver="rocm-smi",
        memory=_asked(lambda: float(plain["vram total memory (b)"])),
        power=_asked(lambda: float(plain["max graphics package power (w)"])),
    )


def _asked(question: Callable[[], Any]) -> Any:
    """An answer of the driver; None where it has none, as not every GPU knows everything."""
    try:
        return question()
    except Exception:
        return None


def _text(name: str | bytes) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
