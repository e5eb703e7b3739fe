"""Find devices: of the catalogue, of the user's own catalogue, and this machine."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import (
    RESERVED,
    AmbiguousDeviceError,
    catalogue_devices,
    find_device,
    search_devices,
    slice_device,
    user_devices,
)
from crossflops.hardware.devices.sheets import build_device_list, device_from_options, device_sheet
from crossflops.hardware.machine import NoCpuError, find_gpus, read_cpu
from crossflops.hardware.peaks import load_or_measure_peak
from crossflops.ir.device import Device, DeviceList, DeviceSheet
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
    additional = user_devices(catalogue)
    if (name or "").strip().casefold() != RESERVED:
        return additional
    return (*additional, load_or_measure_peak().device())


def look_up_device(name: str, catalogue: str | Path | None = None) -> Device:
    """Return the device with this name, of the catalogue or of the user's own; raise
    UnknownNameError if there is none.
    """
    return find_device(name, additional_devices(name, catalogue))


class DeviceQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A question of `devices`: the options of the command by name."""

    name: str | None = None
    search: str | None = None
    precision: str = ""
    catalogue: str | None = None
    peak_tflops: tuple[str, ...] = ()
    bandwidth: float | None = None
    here: bool = False
    measure: bool = False

    @property
    def subject_names(self) -> tuple[str, ...]:
        """Return the names of the options that select a device: at most one, unless they
        contradict each other.
        """
        names = [name for name in _QUESTIONS if getattr(self, name)]
        return tuple(names[:1] if {"here", "measure"} >= set(names) else names)

    @property
    def progress_text(self) -> str:
        """The work for the answer, as a text of progress."""
        if self.measure:
            return "measuring this machine"
        return "looking at this machine" if self.here else "looking up"

    def refuse_contradictions(self) -> None:
        """Raise InputError if the options exclude each other or have no effect."""
        if len(self.subject_names) > 1:
            flags = (
                "NAME" if question == "name" else f"--{question.replace('_', '-')}"
                for question in self.subject_names
            )
            raise InputError(f"{' and '.join(flags)} cannot be combined", "give only one of them")
        if self.bandwidth is not None and not self.peak_tflops:
            raise InputError("--bandwidth requires --peak-tflops", "add --peak-tflops X")
        if self.peak_tflops:
            self.refuse_options(("precision", "catalogue"), "--peak-tflops describes the device")
        elif self.here or self.measure:
            self.refuse_options(("precision",), "this machine is always shown with all its peaks")

    def refuse_options(self, names: tuple[str, ...], reason: str) -> None:
        """Raise InputError if one of the options with these names is set."""
        for name in names:
            if getattr(self, name):
                raise InputError(f"--{name} has no effect here: {reason}", f"leave out --{name}")


_QUESTIONS = ("name", "search", "peak_tflops", "here", "measure")


class DeviceAnswer(NamedTuple):
    """The devices to show, and the error of a name that means several, which is raised after."""

    content: DeviceSheet | DeviceList | Machine
    trouble: UnknownNameError | None = None


def answer_device_question(question: DeviceQuestion) -> DeviceAnswer:
    """Return the devices that the options name, as one sheet, a list or this machine.

    Raises InputError for options that exclude each other, UnknownNameError for an unknown device.
    """
    question.refuse_contradictions()
    precision = question.precision.casefold()
    if question.here or question.measure:
        return DeviceAnswer(describe_this_machine(question.catalogue, measure=question.measure))
    if question.peak_tflops:
        return DeviceAnswer(
            device_sheet(device_from_options(question.peak_tflops, question.bandwidth))
        )
    additional = additional_devices(question.name, question.catalogue)
    if question.search:
        matches = search_devices(question.search, additional)
        if not matches:
            raise UnknownNameError(
                f"no device matches --search {question.search!r}",
                "`crossflops devices` lists all",
            )
        title = f"devices with {question.search!r}"
        return DeviceAnswer(build_device_list(matches, title, precision))
    if not question.name:
        every = catalogue_devices(additional)
        return DeviceAnswer(build_device_list(every, "devices", precision))
    try:
        device = find_device(question.name, additional)
    except AmbiguousDeviceError as error:
        meant = build_device_list(error.candidates, f"{question.name!r} may be", precision)
        is_settled = bool(precision) and _have_equal_peaks(meant)
        return DeviceAnswer(meant, None if is_settled else error)
    question.refuse_options(("precision",), "a single device is always shown with all its peaks")
    return DeviceAnswer(device_sheet(device))


def _have_equal_peaks(meant: DeviceList) -> bool:
    """Return whether all these devices have the same peak in the precision of the list."""
    return len({device.peak for device in meant.devices}) == 1


def describe_this_machine(
    catalogue: str | Path | None = None, *, measure: bool = False, folder: Path = Path("/")
) -> Machine:
    """Return a description of this machine: CPU, GPUs, the catalogue devices that match, and, with
    `measure`, its measured peaks.

    Raises NoCpuError where the system says nothing and nothing is measured.
    """
    additional = user_devices(catalogue)
    notes: list[str] = []
    try:
        processor = read_cpu(folder)
    except NoCpuError as error:
        if not measure:
            raise
        processor = None
        notes.append(error.message)
    graphics, missing = find_gpus()
    notes += missing
    ways: dict[str, Callable[[], Device]] = {
        gpu.name: partial(catalogue_device_of_gpu, gpu, additional) for gpu in graphics
    }
    if processor is not None:
        ways[processor.model] = partial(find_device, processor.model, additional)
    devices = {name: _device_or_reason(look) for name, look in ways.items()}
    for gpu in graphics:
        notes += _driver_peak_warnings(gpu, additional)
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


def _device_or_reason(find_device: Callable[[], Device]) -> Device | str:
    """Return the device that `find_device` finds, or a text why it finds none."""
    try:
        return find_device()
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


def _driver_peak_warnings(gpu: Gpu, additional: tuple[Device, ...]) -> list[str]:
    """Return a list with one warning if units x clock of the driver contradict the peak of the
    catalogue, else [].

    2 FLOPs x FP32 units x highest clock, as vendors print it.
    """
    try:
        device = catalogue_device_of_gpu(gpu, additional)
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


def catalogue_device_of_gpu(gpu: Gpu, additional: tuple[Device, ...] = ()) -> Device:
    """Return the catalogue device of a GPU; for a MIG slice, a device with its share of the peaks.

    Raises UnknownNameError where it is not in the catalogue.
    """
    if gpu.units is None or gpu.memory is None:
        return find_device(gpu.name, additional)
    board = gpu.name.rpartition(" MIG ")[0] or gpu.name
    return slice_device(find_device(board, additional), gpu.profile, gpu.units, gpu.memory)
