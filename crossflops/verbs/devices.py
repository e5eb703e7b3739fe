"""Find devices: of the catalogue, of the user's own catalogue, and this machine."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from crossflops.errors import UnknownNameError
from crossflops.hardware.devices.catalogue import (
    RESERVED,
    AmbiguousDeviceError,
    additions,
    find_device,
    slice_device,
)
from crossflops.hardware.machine import NoCpuError, cpu, gpus
from crossflops.hardware.peaks import load_or_measure_peak
from crossflops.ir.device import Device
from crossflops.report.machine import Gpu, Machine

_CLOCK = 0.05  # by how much FP32 units x clock may differ from the sheet


def additional_devices(
    name: str | None, catalogue: str | Path | None = None
) -> tuple[Device, ...]:
    """Return the devices of the user's catalogue; if `name` is the id of this machine, with this
    machine as measured.

    To measure this machine takes some seconds, unless it was measured before. Raises InputError
    for a file that cannot be understood.
    """
    additional = additions(catalogue)
    if (name or "").strip().casefold() != RESERVED:
        return additional
    return (*additional, load_or_measure_peak().device())


def look_up_device(name: str, catalogue: str | Path | None = None) -> Device:
    """Return the device with this name, of the catalogue or of the user's own; raise
    UnknownNameError if there is none.
    """
    return find_device(name, additional_devices(name, catalogue))


def this_machine(
    catalogue: str | Path | None = None, *, measure: bool = False, folder: Path = Path("/")
) -> Machine:
    """Return a description of this machine: CPU, GPUs, the catalogue devices that match, and, with
    `measure`, its measured peaks.

    Raises NoCpuError where the system says nothing and nothing is measured.
    """
    additional = additions(catalogue)
    notes: list[str] = []
    try:
        processor = cpu(folder)
    except NoCpuError as error:
        if not measure:
            raise
        processor = None
        notes.append(error.message)
    graphics, missing = gpus()
    notes += missing
    ways: dict[str, Callable[[], Device]] = {
        gpu.name: partial(slice_of, gpu, additional) for gpu in graphics
    }
    if processor is not None:
        ways[processor.model] = partial(find_device, processor.model, additional)
    devices = {name: _device(look) for name, look in ways.items()}
    for gpu in graphics:
        notes += _driver_peak_doubts(gpu, additional)
    return Machine(
        cpu=processor,
        gpus=graphics,
        known={name: _device_display_name(device) for name, device in devices.items()},
        peaks={
            name: device.peaks for name, device in devices.items() if isinstance(device, Device)
        },
        measured=load_or_measure_peak(measure_anew=True) if measure else None,
        notes=tuple(notes),
    )


def _device(look: Callable[[], Device]) -> Device | str:
    """Return the device that `look` finds, or a text why it finds none."""
    try:
        return look()
    except AmbiguousDeviceError as error:
        return f"ambiguous: {', '.join(device.label for device in error.candidates)}"
    except UnknownNameError:
        return "unknown name"


def _device_display_name(device: Device | str) -> str:
    """Return the name of a device and of those that it may be as well, joined by ", or "; a text
    unchanged.
    """
    if isinstance(device, str):
        return device
    return ", or ".join((device.label, *device.also))


def _driver_peak_doubts(gpu: Gpu, additional: tuple[Device, ...]) -> list[str]:
    """Return a list with one warning if units x clock of the driver contradict the peak of the
    catalogue, else [].

    2 FLOPs x FP32 units x highest clock, as vendors print it.
    """
    try:
        device = slice_of(gpu, additional)
    except UnknownNameError:
        return []
    sheet = device.peaks.get("fp32")
    if sheet is None or gpu.lanes is None or gpu.clock is None:
        return []
    rate = 2 * gpu.lanes * gpu.clock
    if abs(rate / sheet - 1) <= _CLOCK:
        return []
    product = f"{gpu.lanes} FP32 units x {gpu.clock / 1e6:g} MHz x 2 = {rate / 1e12:.4g} TFLOP/s"
    return [f"{gpu.name}: {product}, but the data sheet of {device.label} has {sheet / 1e12:.4g}"]


def slice_of(gpu: Gpu, additional: tuple[Device, ...] = ()) -> Device:
    """Return the catalogue device of a GPU; for a MIG slice, a device with its share of the peaks.

    Raises UnknownNameError where it is not in the catalogue.
    """
    if gpu.units is None or gpu.memory is None:
        return find_device(gpu.name, additional)
    board = gpu.name.rpartition(" MIG ")[0] or gpu.name
    return slice_device(find_device(board, additional), gpu.profile, gpu.units, gpu.memory)
