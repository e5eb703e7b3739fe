"""The devices whose peaks are known, found by their whole name and by nothing less.

The figures stand in `devices/`, in SI units, every row with its source and with how far it was
checked. Devices of one's own may be added (`crossflops.hardware.devices.additions`).
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from crossflops.core.device import Device
from crossflops.errors import UnknownNameError
from crossflops.hardware.devices.names import Words, contains, labels, sized, spellings, words
from crossflops.hardware.devices.package import one_of
from crossflops.hardware.devices.slices import cut

MATRIX = frozenset({"tf32", "bf16", "fp16", "fp8", "fp6", "fp4", "int8", "int4"})
_NEAR = 4  # names that a refusal shows
_FAMILIES = "families.json"


class AmbiguousDeviceError(UnknownNameError):
    """A `name` that several devices bear. `candidates` are these devices."""

    def __init__(self, name: str, candidates: tuple[Device, ...]) -> None:
        ids = " | ".join(device.label for device in candidates)
        super().__init__(
            f"{name!r} names {len(candidates)} devices with peaks of their own",
            f"say which one it is: --device {ids}",
        )
        self.name = name
        self.candidates = candidates


def devices(additions: tuple[Device, ...] = ()) -> tuple[Device, ...]:
    """All known devices, in the order of the catalogue, and then those that were added."""
    return (*_catalogue(), *additions)


@cache
def families() -> dict[str, tuple[str, ...]]:
    """Names that say less than which device it is, each with the labels of those that bear it."""
    text = files("crossflops.hardware.devices").joinpath(_FAMILIES).read_bytes()
    return msgspec.json.decode(text, type=dict[str, tuple[str, ...]])


def search(text: str, additions: tuple[Device, ...] = ()) -> tuple[Device, ...]:
    """Every device with the text in one of its names. It lists; it says nothing of a peak."""
    return tuple(one for one in devices(additions) if contains(one, text))


def find(name: str, additions: tuple[Device, ...] = ()) -> Device:
    """The device of that id, name, alias or family, compared as a whole.

    Case does not matter, nor whether words are set apart by spaces, hyphens or underscores; the
    vendor may be left out; the size of the memory may be added, and has to be the device's. There
    is no search for a part of a name, so that a device which is not in the catalogue never gets
    the peak of a neighbour. An alias of one device that drivers print for others as well ("Orin")
    is that device, and `also` names the others. A slice of a device ("A100-SXM4-40GB MIG 1g.5gb")
    has its share of the peak, where that follows from its name.

    Raises AmbiguousDeviceError where several devices bear the name (`V100`), and
    UnknownNameError where none does.
    """
    return cut(name, lambda whole: _whole(whole, additions))


def peak(device: Device, precision: str) -> float:
    """The dense peak in FLOP/s (OP/s for integers).

    Raises UnknownNameError where the device has no peak for the precision, which is never
    replaced by the peak for another one.
    """
    if precision not in device.peaks:
        raise UnknownNameError(
            f"{device.label} has no {precision} peak",
            f"it has {', '.join(device.peaks)}; --peak-tflops sets a peak of your own",
        )
    return device.peaks[precision]


def derived(device: Device, precision: str) -> float | None:
    """The peak in FLOP/s a second time: clock x units x FMA per clock and unit x 2.

    None where the catalogue does not hold all of the factors. It finds a slip in the figures,
    not a common source that is wrong. Source of the formula: NVIDIA, A100 whitepaper,
    108 SMs x 64 FMA x 2 x 1.41 GHz = 19.5 TFLOP/s in FP32.
    """
    fma, clock = device.fma_per_clock.get(precision), clock_of(device, precision)
    if clock is None or device.units is None or fma is None:
        return None
    return clock * device.units * fma * 2


def clock_of(device: Device, precision: str) -> float | None:
    """The clock in Hz on which the sheet's peak rests: some have another one for matrix units."""
    own = device.matrix_clock if precision in MATRIX else None
    return own or device.clock


def deviation(device: Device, precision: str) -> float | None:
    """How far the derived peak is from the published one, as a fraction of the latter."""
    second = derived(device, precision)
    return None if second is None else second / peak(device, precision) - 1


@cache
def _catalogue() -> tuple[Device, ...]:
    folder = files("crossflops.hardware.devices")
    found: list[Device] = []
    for name in _files():
        rows = msgspec.json.decode(folder.joinpath(name).read_bytes(), type=tuple[Device, ...])
        found += map(one_of, rows)
    return tuple(found)


def _files() -> tuple[str, ...]:
    """The files with devices, those of data centres first."""
    return tuple(
        f"{name}.json"
        for name in (
            "nvidia_datacentre", "nvidia_desktop", "jetson", "amd", "intel", "google", "aws",
            "apple", "edge", "cpus",
        )
    )  # fmt: skip


def _whole(name: str, additions: tuple[Device, ...]) -> Device:
    spelled = words(name)
    found = _bearing(spelled, additions) or _of_size(spelled, additions)
    if len(found) > 1:
        raise AmbiguousDeviceError(name, found)
    if not found:
        raise UnknownNameError(f"no peak is known for the device {name!r}", _advice(name))
    return found[0]


def _bearing(spelled: Words, additions: tuple[Device, ...]) -> tuple[Device, ...]:
    """The devices of that name; one alone where it is its own, whoever else bears it."""
    own = (*_by_name().get(spelled, ()), *_named(spelled, additions))
    shared = _by_family().get(spelled, ())
    if not own and not shared and (apart := _apart(spelled, additions)):
        return _bearing(apart, additions)
    if len(own) != 1:
        return own or shared
    return (replace(own[0], also=tuple(one.label for one in shared if one != own[0])),)


def _apart(spelled: Words, additions: tuple[Device, ...]) -> Words | None:
    """The name whose words these are, some of them written together: rtx4090, a10080gb.

    Only where all of it is there, and never with a word of the name cut: "L4 0" is no L40.
    """
    ends = _ends(spelled)
    known = [*_by_name(), *_by_family()]
    known += [
        words for one in additions for name in labels(one) for words in spellings(name, one.vendor)
    ]
    whole = "".join(spelled)
    return next((one for one in known if "".join(one) == whole and ends <= _ends(one)), None)


def _ends(spelled: Words) -> set[int]:
    """Where words end, in letters from the start."""
    return set(accumulate(map(len, spelled)))


def _of_size(spelled: Words, additions: tuple[Device, ...]) -> tuple[Device, ...]:
    """The devices of the name without the size of a memory, as far as theirs is of that size."""
    found = sized(spelled)
    if found is None:
        return ()
    rest, size = found
    return tuple(
        one
        for one in _bearing(rest, additions)
        if size in one.memory or size / one.framework_devices_per_package in one.memory
    )


def _named(spelled: Words, additions: tuple[Device, ...]) -> tuple[Device, ...]:
    return tuple(
        one
        for one in additions
        if any(spelled in spellings(label, one.vendor) for label in labels(one))
    )


@cache
def _by_name() -> dict[Words, tuple[Device, ...]]:
    """Every spelling of every name, in words, with the devices whose own it is."""
    return _spelled({one.label: labels(one) for one in devices()})


@cache
def _by_family() -> dict[Words, tuple[Device, ...]]:
    """Every spelling of every name that says less, in words, with the devices that bear it."""
    return _spelled(
        {
            one.label: tuple(name for name, ids in families().items() if one.label in ids)
            for one in devices()
        }
    )


def _spelled(names: Mapping[str, tuple[str, ...]]) -> dict[Words, tuple[Device, ...]]:
    found: dict[Words, tuple[Device, ...]] = {}
    for device in devices():
        own = {one for name in names[device.label] for one in spellings(name, device.vendor)}
        for spelling in own:
            found[spelling] = (*found.get(spelling, ()), device)
    return found


def _advice(name: str) -> str:
    """What to do about a name that is unknown, with the names that are nearest to it."""
    own = "give the dense peak in TFLOP/s by --peak-tflops, or describe the device in a TOML file"
    numbered = [word for word in words(name) if any(letter.isdigit() for letter in word)]
    near = [one.label for word in numbered if len(word) > 1 for one in search(word)]
    if not near:
        return f"{own}; `crossflops devices` lists what is known"
    return f"{own}; other devices, with other peaks, are {', '.join(dict.fromkeys(near[:_NEAR]))}"
