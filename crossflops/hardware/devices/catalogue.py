"""The devices whose peaks are known, the reading of their names, and slices of devices.

The figures stand in `devices/`, in SI units, every row with its source and with how far it was
checked.

Devices of one's own are added from TOML: a file, and `crossflops.toml` or `pyproject.toml`. A
table for each, with the fields of `crossflops.ir.device.Device` in SI units, of the whole package
as its sheet has them::

    [devices.my-card]
    name = "Example X1"
    aliases = ["ACME X1"]
    peaks = {fp16 = 112e12, fp32 = 14e12}
    bandwidth = 900e9
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from itertools import accumulate
from math import isclose
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from crossflops.errors import InputError, UnknownNameError, nearest_name_hint
from crossflops.hardware.devices.machines import reject_machine_name
from crossflops.ir.device import Device
from crossflops.plugins.elsewhere import find_config_table

# How the name of a device is read: as words, with and without its vendor.

Words = tuple[str, ...]
_BRANDS = {"NVIDIA": "tesla"}  # words that drivers put between the vendor and the product
_MARKS = re.compile(r"\((?:r|tm|c)\)|[®™©]", re.IGNORECASE)
# What drivers write behind a name: the clock of a processor, the bus of a GPU in OpenGL, the
# revision of a board.
_TAILS = re.compile(r"(?: CPU)? ?@ ?[0-9.]+ ?GHz$|/PCIe(?:/SSE2)?$| Rev [0-9.]+$", re.IGNORECASE)
_SIZE = re.compile(r"([0-9]{1,4})gb")


@lru_cache(4096)
def device_name_words(name: str) -> Words:
    """Return the words of a name, in lower case, split at spaces, hyphens and underscores.

    Marks such as (R) are none of them, nor is what drivers write behind a name, and a slash binds
    what stands around it.

    >>> device_name_words("Intel(R) Xeon(R) CPU @ 2.70GHz"), device_name_words("MI250X / MI250")
    (('intel', 'xeon'), ('mi250x/mi250',))
    """
    plain = re.sub(r"[\s_-]+", " ", _MARKS.sub(" ", name)).strip()
    return tuple(re.sub(r" ?/ ?", "/", _TAILS.sub("", plain)).casefold().split())


def device_name_spellings(name: str, vendor: str) -> Iterator[Words]:
    """Yield the words of a device name in each accepted form: with and without vendor and
    brand.
    """
    maker, brand = vendor.casefold(), _BRANDS.get(vendor, "")
    plain = device_name_words(name)
    while len(plain) > 1 and plain[0] in (maker, brand):
        plain = plain[1:]
    yield from (plain, (maker, *plain)) if maker else (plain,)
    if brand:
        yield from ((brand, *plain), (maker, brand, *plain))


def split_memory_size(spelled: Words) -> tuple[Words, float] | None:
    """Split a memory size ("80gb") off a device name: return the other words and the bytes, or
    None if the name does not have exactly one size.

    >>> split_memory_size(("a100", "80gb", "sxm"))
    (('a100', 'sxm'), 80000000000.0)
    """
    sizes = [
        (index, size) for index, word in enumerate(spelled) if (size := _SIZE.fullmatch(word))
    ]
    if len(sizes) != 1 or len(spelled) < 2:
        return None
    index, size = sizes[0]
    return (*spelled[:index], *spelled[index + 1 :]), int(size[1]) * 1e9


def device_labels(device: Device) -> tuple[str, ...]:
    """Return all names of the device: its label (the id), its name and its aliases."""
    return device.label, device.name, *device.aliases


def matches_search_text(device: Device, text: str) -> bool:
    """Return True if the text is a part of a name of the device, or the beginning of a word of its
    vendor, kind or architecture.
    """
    requested = " ".join(device_name_words(text))
    traits = (device.vendor, device.kind, device.architecture)
    return any(
        requested in " ".join(device_name_words(label)) for label in device_labels(device)
    ) or any(f" {requested}" in " ".join(("", *device_name_words(trait))) for trait in traits)


# From the figures of a package to those of one framework device, and back.


def single_device_of_package(package: Device) -> Device:
    """Return one of the equal devices in a package: each figure divided by their number, except
    clocks.

    A package with one framework device is that device. Raises InputError where the units
    cannot be shared.
    """
    count = package.framework_devices_per_package
    if count == 1:
        return package
    if count < 1:
        raise InputError(
            f"{package.id}: framework_devices_per_package must be at least 1, got {count}",
            "correct it in your device table, or leave it out for one device",
        )
    if (package.units or 0) % count:
        raise InputError(
            f"{package.id}: its {package.units} units cannot be divided equally among {count} "
            "framework devices",
            "in your device table, correct units or framework_devices_per_package",
        )
    return replace(
        package,
        peaks=_scale_figures(package.peaks, 1 / count),
        measured_matmul=_scale_figures(package.measured_matmul, 1 / count),
        bandwidth=package.bandwidth and package.bandwidth / count,
        memory_bus=package.memory_bus and package.memory_bus / count,
        memory=tuple(size / count for size in package.memory),
        tdp=package.tdp and package.tdp / count,
        units=package.units and package.units // count,
    )


def _scale_figures(figures: Mapping[str, float], factor: float) -> dict[str, float]:
    """Return the figures of a device (peaks in FLOP/s by precision), each times the factor."""
    return {name: _round_to_twelve_digits(value * factor) for name, value in figures.items()}


def _round_to_twelve_digits(value: float) -> float:
    """Return the number rounded to twelve digits if that differs only by float error."""
    short = float(f"{value:.12g}")
    return short if isclose(short, value, rel_tol=1e-13) else value


# A part of a GPU that is a device for its framework: MIG slices have their share of the peak.
#
# Drivers name them after the whole: `NVIDIA A100-SXM4-40GB MIG 1g.5gb` has one of seven compute
# slices and 5 GB. On GA100 a compute slice is 14 SMs, of 108 in an A100 and 56 in an A30 (NVIDIA,
# MIG User Guide, "Supported MIG profiles": 14, 28, 42, 56 and 98 SMs), and memory comes with its
# channels, so that bandwidth is shared as memory is. On other chips slices are not equally large:
# there the driver has to be asked.

_SLICE = re.compile(
    r"(?P<whole>.+?)[\s_-]+MIG[\s_-]+"
    r"(?:(?P<part>[0-9]{1,3})c\.)?(?P<slices>[0-9]{1,3})g\.(?P<gb>[0-9]{1,4})gb(?:\+\S+)?",
    re.IGNORECASE,
)
_SHARED = re.compile(r"(?:NVIDIA\s+)?(?:GRID\s+)?\S+-\d+[ABCQ]", re.IGNORECASE)
_UNITS = {"Ampere GA100": 14}  # SMs of a compute slice
_SLICES = 7
GB = 1e9


def find_device_or_slice(name: str, find: Callable[[str], Device]) -> Device:
    """Return the device that `find` gives for a name; for a MIG slice ("MIG 1g.5gb") its share of
    it.

    Raises UnknownNameError where the share does not follow from the name, and what `find` raises.
    """
    match = _SLICE.fullmatch(name.strip())
    if not match:
        return _find_unsliced_device(name, find)
    device, slices = find(match["whole"]), int(match["slices"])
    per_slice = _UNITS.get(device.architecture)
    if per_slice is None or device.units is None or not device.memory:
        raise _unknown_slice_error(
            name, f"a slice of {device.label}", "its name does not contain the number of SMs"
        )
    units, memory = per_slice * int(match["part"] or slices), int(match["gb"]) * GB
    fits = 0 < units <= device.units and slices <= _SLICES and 0 < memory <= max(device.memory)
    if not fits or int(match["part"] or 1) > slices:
        raise _unknown_slice_error(
            name, f"not a slice of {device.label}", f"{device.label} has {device.units} SMs"
        )
    return slice_device(
        device, name.strip().casefold().rpartition("mig")[2].strip(" -_"), units, memory
    )


def slice_device(device: Device, profile: str, units: int, memory: float) -> Device:
    """Return a part of a device (a MIG slice) with `units` of its units and `memory` of its bytes;
    peaks and bandwidth are scaled by the same share.

    Raises ValueError where these are unknown of the device itself.
    """
    if device.units is None or not device.memory:
        raise ValueError(f"the units or the memory of {device.label} are unknown")
    part, of_memory = units / device.units, memory / max(device.memory)
    share = f"{units} of {device.units} {device.unit_kind}s, {100 * of_memory:.3g} % of the memory"
    return replace(
        device,
        id=f"{device.label}-mig-{profile}",
        variant="",
        also=(),
        name=f"{device.name} MIG {profile}",
        aliases=(),
        peaks={precision: value * part for precision, value in device.peaks.items()},
        bandwidth=device.bandwidth and device.bandwidth * of_memory,
        memory_bus=device.memory_bus and device.memory_bus * of_memory,
        memory=(memory,),
        tdp=None,
        units=units,
        measured_matmul={},
        measured_matmul_source="",
        notes=f"A slice: {share}. {device.notes}".strip(),
    )


def _find_unsliced_device(name: str, find: Callable[[str], Device]) -> Device:
    """Return the device that `find` gives for a name that is not a MIG slice; raise
    UnknownNameError for a virtual GPU, whose share of the device is unknown.
    """
    try:
        return find(name)
    except UnknownNameError:
        if _SHARED.fullmatch(name.strip()):
            raise _unknown_slice_error(
                name, "a virtual GPU", "its name does not contain its share"
            ) from None
        raise


def _unknown_slice_error(name: str, part: str, why: str) -> UnknownNameError:
    """Return the error that the peak of `name` is unknown; `part` says what it is, `why` the
    reason.
    """
    hint = (
        "give --peak-tflops X, with X = peak of the whole device x SMs that the driver reports / "
        "all SMs"
    )
    return UnknownNameError(f"the peak of {name!r} is unknown: it is {part}, and {why}", hint)


MATRIX = frozenset({"tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8", "int4"})
_NEAR = 4  # names that a refusal shows
_FAMILIES = "families.json"


class AmbiguousDeviceError(UnknownNameError):
    """An error of a `name` that several devices have; `candidates` are these devices."""

    def __init__(self, name: str, candidates: tuple[Device, ...]) -> None:
        ids = " | ".join(device.label for device in candidates)
        super().__init__(
            f"{name!r} is the name of {len(candidates)} devices with different peaks",
            f"write one of these names: {ids}",
        )
        self.name = name
        self.candidates = candidates


def catalogue_devices(additions: tuple[Device, ...] = ()) -> tuple[Device, ...]:
    """Return all known devices: those of the catalogue in its order, then the added ones."""
    return (*_read_catalogue(), *additions)


@cache
def device_ids_by_shared_name() -> dict[str, tuple[str, ...]]:
    """Return for each name that several devices have the ids of these devices."""
    text = files("crossflops.hardware.devices").joinpath(_FAMILIES).read_bytes()
    return msgspec.json.decode(text, type=dict[str, tuple[str, ...]])


def search_devices(text: str, additions: tuple[Device, ...] = ()) -> tuple[Device, ...]:
    """Return every device of which the text is a part of a name, or begins a word of its vendor,
    kind or architecture.
    """
    return tuple(
        device for device in catalogue_devices(additions) if matches_search_text(device, text)
    )


def find_device(name: str, additions: tuple[Device, ...] = ()) -> Device:
    """Return the device with this id, name or alias, or a MIG slice of it. Raises if it is
    unknown.

    Case does not matter, nor whether words are set apart by spaces, hyphens or underscores; the
    vendor may be left out; the size of the memory may be added, and has to be the device's. There
    is no search for a part of a name, so that a device which is not in the catalogue never gets
    the peak of a neighbour. An alias of one device that drivers print for others as well ("Orin")
    is that device, whose `also` names the others. A slice of a device ("A100-SXM4-40GB MIG
    1g.5gb") has its share of the peak, where that follows from its name.

    Raises AmbiguousDeviceError where several devices bear the name (`V100`), and
    UnknownNameError where none does.
    """
    return find_device_or_slice(name, lambda of: _find_whole_device(of, additions))


def dense_peak_rate(device: Device, precision: str) -> float:
    """Return the dense peak of the device for a precision, in FLOP/s (OP/s for integers).

    Raises UnknownNameError where the device has no peak for the precision, which is never
    replaced by the peak for another one.
    """
    if precision not in device.peaks:
        raise UnknownNameError(
            f"{device.label} has no {precision} peak",
            f"it has {', '.join(device.peaks)}; use --peak-tflops for any other peak",
        )
    return device.peaks[precision]


def peak_from_clock(device: Device, precision: str) -> float | None:
    """Return the peak in FLOP/s as clock x units x FMA per clock x 2, a check of the published
    one; None if a factor is unknown.

    It finds a slip in the figures, not a common source that is wrong. Source of the formula:
    NVIDIA, A100 whitepaper, 108 SMs x 64 FMA x 2 x 1.41 GHz = 19.5 TFLOP/s in FP32.
    """
    fma, clock = device.fma_per_clock.get(precision), peak_clock_hertz(device, precision)
    if clock is None or device.units is None or fma is None:
        return None
    return clock * device.units * fma * 2


def peak_clock_hertz(device: Device, precision: str) -> float | None:
    """Return the clock in Hz on which the peak of a precision is based, or None if it is
    unknown.
    """
    clock = device.matrix_clock if precision in MATRIX else None
    return clock or device.clock


def clock_peak_deviation(device: Device, precision: str) -> float | None:
    """Return (peak from the clock) / (published peak) - 1 for a precision, or None if the first is
    unknown.
    """
    second = peak_from_clock(device, precision)
    return None if second is None else second / dense_peak_rate(device, precision) - 1


def bandwidth_from_memory_bus(device: Device) -> float | None:
    """Return the bandwidth in bytes/s as memory bus x transfers / 8, a check of the published one;
    None if a factor is unknown.
    """
    if device.memory_bus is None or device.memory_transfers is None:
        return None
    return device.memory_bus * device.memory_transfers / 8


@cache
def _read_catalogue() -> tuple[Device, ...]:
    """Return all devices of the JSON files of the catalogue; they are read once."""
    folder = files("crossflops.hardware.devices")
    catalogue: list[Device] = []
    for name in _catalogue_file_names():
        rows = msgspec.json.decode(folder.joinpath(name).read_bytes(), type=tuple[Device, ...])
        catalogue += map(single_device_of_package, rows)
    return tuple(catalogue)


def _catalogue_file_names() -> tuple[str, ...]:
    """Return the names of the JSON files of the catalogue, in their order."""
    return tuple(
        f"{name}.json"
        for name in (
            "nvidia_datacentre", "nvidia_desktop", "jetson", "amd", "intel", "google", "aws",
            "apple", "edge", "cpus",
        )
    )  # fmt: skip


def _find_whole_device(name: str, additions: tuple[Device, ...]) -> Device:
    """Return the device with a name that is not the name of a slice; raise an error if several
    devices or none have it.
    """
    spelled = device_name_words(name)
    bearers = _devices_with_name_or_size(spelled, additions)
    if len(bearers) > 1:
        raise AmbiguousDeviceError(name, bearers)
    if not bearers:
        reject_machine_name(
            name, lambda part: _devices_with_name_or_size(device_name_words(part), additions)
        )
        raise UnknownNameError(
            f"the peak of device {name!r} is unknown", _unknown_device_hint(name)
        )
    return bearers[0]


def _devices_with_name_or_size(
    spelled: Words, additions: tuple[Device, ...]
) -> tuple[Device, ...]:
    """Return the devices with this name, or with this name and a memory size ("a100 80gb"); () if
    none.
    """
    return _devices_with_name(spelled, additions) or _devices_with_memory_size(spelled, additions)


def _devices_with_name(spelled: Words, additions: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the devices with this name: the one whose own name it is, else all that share it; ()
    if none.
    """
    by_name = (*_devices_by_name().get(spelled, ()), *_additions_with_name(spelled, additions))
    shared = _devices_by_family().get(spelled, ())
    if not by_name and not shared and (separate := _split_joined_words(spelled, additions)):
        return _devices_with_name(separate, additions)
    if len(by_name) != 1:
        return by_name or shared
    return (
        replace(by_name[0], also=tuple(device.label for device in shared if device != by_name[0])),
    )


def _split_joined_words(spelled: Words, additions: tuple[Device, ...]) -> Words | None:
    """Return the words of the known name that is equal to the text without spaces ("rtx4090"), or
    None.

    Only where all of it is there, and never with a word of the name cut: "L4 0" is no L40.
    """
    ends = _word_end_positions(spelled)
    known = [*_devices_by_name(), *_devices_by_family()]
    known += [
        words
        for device in additions
        for name in device_labels(device)
        for words in device_name_spellings(name, device.vendor)
    ]
    text = "".join(spelled)
    return next(
        (name for name in known if "".join(name) == text and ends <= _word_end_positions(name)),
        None,
    )


def _word_end_positions(spelled: Words) -> set[int]:
    """Return the positions at which the words end when they are joined without spaces."""
    return set(accumulate(map(len, spelled)))


def _devices_with_memory_size(spelled: Words, additions: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the devices that a name with a memory size means, such as "a100 80gb"; () if none."""
    named_size = split_memory_size(spelled)
    if named_size is None:
        return ()
    rest, size = named_size
    return tuple(
        device
        for device in _devices_with_name(rest, additions)
        if size in device.memory or size / device.framework_devices_per_package in device.memory
    )


def _additions_with_name(spelled: Words, additions: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the devices among `additions`, of the user's files, that have the name in any
    spelling.
    """
    return tuple(
        device
        for device in additions
        if any(
            spelled in device_name_spellings(label, device.vendor)
            for label in device_labels(device)
        )
    )


@cache
def _devices_by_name() -> dict[Words, tuple[Device, ...]]:
    """Return the devices of the catalogue by each spelling of their labels, names and aliases."""
    return _devices_by_spelling(
        {device.label: device_labels(device) for device in catalogue_devices()}
    )


@cache
def _devices_by_family() -> dict[Words, tuple[Device, ...]]:
    """Return the devices that have a name in common, by each spelling of this name."""
    return _devices_by_spelling(
        {
            device.label: tuple(
                name for name, ids in device_ids_by_shared_name().items() if device.label in ids
            )
            for device in catalogue_devices()
        }
    )


def _devices_by_spelling(names: Mapping[str, tuple[str, ...]]) -> dict[Words, tuple[Device, ...]]:
    """Return the devices of the catalogue by each spelling of their names; `names` has the names
    of a device by its label.
    """
    owners: dict[Words, tuple[Device, ...]] = {}
    for device in catalogue_devices():
        spelt = {
            spelling
            for name in names[device.label]
            for spelling in device_name_spellings(name, device.vendor)
        }
        for spelling in spelt:
            owners[spelling] = (*owners.get(spelling, ()), device)
    return owners


def _unknown_device_hint(name: str) -> str:
    """Return the hint of the error for an unknown device name, with similar names if there are
    any.
    """
    advice = (
        "give the dense peak in TFLOP/s with --peak-tflops, or describe the device in a TOML file"
    )
    numbered = [
        word for word in device_name_words(name) if any(letter.isdigit() for letter in word)
    ]
    near = [device.label for word in numbered if len(word) > 1 for device in search_devices(word)]
    if not near:
        return f"{advice}; `crossflops devices` lists the known devices"
    return (
        f"{advice}; similar names of other devices, with other peaks: "
        f"{', '.join(dict.fromkeys(near[:_NEAR]))}"
    )


_TABLE = "devices"
_LEAST = 1e6  # FLOP/s or bytes/s: less is TFLOP/s or GB/s by mistake
_EXAMPLE = (
    "write, for example, [devices.my-card] with peaks = {fp16 = 112e12} and bandwidth = 900e9"
)
_OURS = ("variant", "also")
RESERVED = "measured"  # the device that stands for what was measured here


def user_devices(file: str | Path | None = None, folder: Path | None = None) -> tuple[Device, ...]:
    """Return the devices that the user added: in the nearest configuration file, then in `file`.

    Raises InputError for a file that cannot be understood, and for names that are taken.
    """
    added: list[Device] = []
    index, table = find_config_table(_TABLE, folder)
    for source, tables in ((index, table), *_read_device_file(file)):
        for key, row in tables.items():
            device = _device_from_table(key, row, str(source))
            _reject_taken_names(device, tuple(added), str(source))
            added.append(device)
    return tuple(added)


def _read_device_file(file: str | Path | None) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return (path, tables of devices by key) of a TOML file in a tuple of one, or () if `file` is
    None.
    """
    if file is None:
        return ()
    try:
        content = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"cannot read {file}: {error.strerror}", "give the path of a TOML file"
        ) from error
    except ValueError as error:  # no UTF-8, or no TOML
        raise InputError(
            f"{file} is not valid TOML: {error}", "correct it at that place, and save it in UTF-8"
        ) from error
    tables = content.get(_TABLE)
    if not isinstance(tables, dict) or not tables:
        raise InputError(f"{file} has no table [devices.NAME]", _EXAMPLE)
    return ((str(file), tables),)


def _device_from_table(key: str, row: Any, source: str) -> Device:
    """Build a device from its TOML table; raise an error for a wrong key or value."""
    if not isinstance(row, dict):
        raise InputError(f"{key} in {source} must be a table", _EXAMPLE)
    plain = {"name": key, "source": [source], "confidence": "own", **row, "id": key}
    fields = [name for name in Device.__struct_fields__ if name not in _OURS]
    strays = sorted(set(plain) - set(fields))
    if strays:
        known = ", ".join(fields)
        raise InputError(
            f"device {key} in {source} has the unknown key {strays[0]}",
            nearest_name_hint(strays[0], fields, f"allowed: {known}"),
        )
    try:
        device = msgspec.convert(plain, Device)
    except msgspec.ValidationError as error:
        raise InputError(f"{key} in {source}: {error}", _EXAMPLE) from error
    _reject_small_peaks(device, source)
    return single_device_of_package(device)


def _reject_small_peaks(device: Device, source: str) -> None:
    """Raise InputError if a device of the user has no peaks, or a peak or bandwidth below 1e6 or
    infinite.
    """
    if not device.peaks:
        raise InputError(f"{device.id} in {source} has no peaks", _EXAMPLE)
    figures = {**device.peaks, "bandwidth": device.bandwidth or _LEAST}
    for name, value in figures.items():
        if not _LEAST <= value < float("inf"):
            raise InputError(
                f"{name} of {device.id} in {source} must be finite and at least 1e6, "
                f"got {value:g}",
                "write it in FLOP/s or bytes/s: 112e12 for 112 TFLOP/s, 900e9 for 900 GB/s",
            )


def _reject_taken_names(device: Device, before: tuple[Device, ...], source: str) -> None:
    """Raise InputError if a name of the device is already a name of a known device or of one in
    `before`.
    """
    for name in device_labels(device):
        try:
            owner = find_device(name, before).label
        except AmbiguousDeviceError as error:
            owner = error.candidates[0].label
        except UnknownNameError:
            if name.casefold() != RESERVED:
                continue
            owner = RESERVED
        raise InputError(
            f"{name!r} in {source} is already a name of {owner}", "choose another name"
        )
