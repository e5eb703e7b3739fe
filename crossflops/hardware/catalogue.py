"""The devices whose peaks are known, found by exact name and by nothing less.

The figures stand in `devices.json`, in SI units, every row with its source and with how far it
was checked.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

import msgspec

from crossflops.core.device import Device
from crossflops.errors import UnknownNameError

_BRANDS = {"NVIDIA": "tesla"}  # words that drivers put between the vendor and the product


class AmbiguousDeviceError(UnknownNameError):
    """A name that several devices bear. `candidates` are these devices."""

    def __init__(self, name: str, candidates: tuple[Device, ...]) -> None:
        ids = ", ".join(device.id for device in candidates)
        super().__init__(
            f"{name!r} names {len(candidates)} devices with peaks of their own",
            f"say which one it is: --device {ids.replace(', ', ' | ')}",
        )
        self.candidates = candidates


class _Catalogue(msgspec.Struct, frozen=True):
    devices: tuple[Device, ...]
    families: dict[str, tuple[str, ...]]


def devices() -> tuple[Device, ...]:
    """All known devices, in the order of the catalogue."""
    return _catalogue().devices


def find(name: str) -> Device:
    """The device of that id, name, alias or family, compared as a whole.

    Case does not matter, nor whether words are set apart by spaces, hyphens or underscores; the
    vendor may be left out. There is no search for a part of a name, so that a device which is
    not in the catalogue never gets the peak of a neighbour.

    Raises AmbiguousDeviceError where several devices bear the name (`V100`), and
    UnknownNameError where none does.
    """
    found = _by_name().get(_words(name), ())
    if not found:
        raise UnknownNameError(
            f"no peak is known for the device {name!r}",
            "give the dense peak in TFLOP/s by --peak-tflops, or one of "
            + ", ".join(device.id for device in devices()),
        )
    if len(found) > 1:
        raise AmbiguousDeviceError(name, found)
    return found[0]


def peak(device: Device, precision: str) -> float:
    """The dense peak in FLOP/s (OP/s for integers).

    Raises UnknownNameError where the device has no peak for the precision, which is never
    replaced by the peak for another one.
    """
    if precision not in device.peaks:
        raise UnknownNameError(
            f"{device.id} has no {precision} peak",
            f"it has {', '.join(device.peaks)}; --peak-tflops sets a peak of your own",
        )
    return device.peaks[precision]


def derived(device: Device, precision: str) -> float | None:
    """The peak in FLOP/s a second time: clock x units x FMA per clock and unit x 2.

    None where the catalogue does not hold all of the factors. It finds a slip in the figures,
    not a common source that is wrong. Source of the formula: NVIDIA, A100 whitepaper,
    108 SMs x 64 FMA x 2 x 1.41 GHz = 19.5 TFLOP/s in FP32.
    """
    fma = device.fma_per_clock.get(precision)
    if device.clock is None or device.units is None or fma is None:
        return None
    return device.clock * device.units * fma * 2


def deviation(device: Device, precision: str) -> float | None:
    """How far the derived peak is from the published one, as a fraction of the latter."""
    second = derived(device, precision)
    return None if second is None else second / peak(device, precision) - 1


@cache
def _catalogue() -> _Catalogue:
    text = files("crossflops.hardware").joinpath("devices.json").read_bytes()
    return msgspec.json.decode(text, type=_Catalogue)


@cache
def _by_name() -> dict[tuple[str, ...], tuple[Device, ...]]:
    """Every spelling of every name, in words, with the devices that bear it."""
    found: dict[tuple[str, ...], tuple[Device, ...]] = {}
    for device in devices():
        for label in {words for name in _names(device) for words in _spellings(name, device)}:
            found[label] = (*found.get(label, ()), device)
    return found


def _names(device: Device) -> Iterator[str]:
    yield from (device.id, device.name, *device.aliases)
    yield from (name for name, ids in _catalogue().families.items() if device.id in ids)


def _spellings(name: str, device: Device) -> Iterator[tuple[str, ...]]:
    """The name with and without the device's own vendor and brand in front of it."""
    vendor, brand = device.vendor.casefold(), _BRANDS.get(device.vendor, "")
    bare = _words(name)
    while bare and bare[0] in (vendor, brand):
        bare = bare[1:]
    yield from (bare, (vendor, *bare))
    if brand:
        yield from ((brand, *bare), (vendor, brand, *bare))


def _words(name: str) -> tuple[str, ...]:
    return tuple(re.sub(r"[\s_-]+", " ", name).casefold().split())
