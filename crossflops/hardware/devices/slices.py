"""A part of a GPU that is a device for its framework: MIG slices have their share of the peak.

Drivers name them after the whole: `NVIDIA A100-SXM4-40GB MIG 1g.5gb` has one of seven compute
slices and 5 GB. On GA100 a compute slice is 14 SMs, of 108 in an A100 and 56 in an A30 (NVIDIA,
MIG User Guide, "Supported MIG profiles": 14, 28, 42, 56 and 98 SMs), and memory comes with its
channels, so that bandwidth is shared as memory is. On other chips slices are not equally large:
there the driver has to be asked.
"""

import re
from collections.abc import Callable

from msgspec.structs import replace

from crossflops.core.device import Device
from crossflops.errors import UnknownNameError

_SLICE = re.compile(
    r"(?P<whole>.+?)[\s_-]+MIG[\s_-]+"
    r"(?:(?P<part>[0-9]{1,3})c\.)?(?P<slices>[0-9]{1,3})g\.(?P<gb>[0-9]{1,4})gb(?:\+\S+)?",
    re.IGNORECASE,
)
_SHARED = re.compile(r"(?:NVIDIA\s+)?(?:GRID\s+)?\S+-\d+[ABCQ]", re.IGNORECASE)
_UNITS = {"Ampere GA100": 14}  # SMs of a compute slice
_SLICES = 7
GB = 1e9


def cut(name: str, find: Callable[[str], Device]) -> Device:
    """The device of the name, by `find`; of a slice, its share of the device that is sliced.

    Raises UnknownNameError where the share does not follow from the name, and what `find` raises.
    """
    found = _SLICE.fullmatch(name.strip())
    if not found:
        return _uncut(name, find)
    device, slices = find(found["whole"]), int(found["slices"])
    per_slice = _UNITS.get(device.architecture)
    if per_slice is None or device.units is None or not device.memory:
        raise _unknown(name, f"a slice of {device.label}", "its number of SMs is not in its name")
    units, memory = per_slice * int(found["part"] or slices), int(found["gb"]) * GB
    fits = 0 < units <= device.units and slices <= _SLICES and 0 < memory <= max(device.memory)
    if not fits or int(found["part"] or 1) > slices:
        raise _unknown(name, f"no slice of {device.label}", f"that has {device.units} SMs")
    return sliced(device, name.strip().casefold().rpartition("mig")[2].strip(" -_"), units, memory)


def sliced(device: Device, profile: str, units: int, memory: float) -> Device:
    """The share of a device that has `units` of its units and `memory` bytes of its memory.

    Raises ValueError where these are unknown of the device itself.
    """
    if device.units is None or not device.memory:
        raise ValueError(f"the units or the memory of {device.label} are not known")
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
        memory=(memory,),
        tdp=None,
        units=units,
        measured_matmul={},
        measured_matmul_source="",
        notes=f"A slice: {share}. {device.notes}".strip(),
    )


def _uncut(name: str, find: Callable[[str], Device]) -> Device:
    try:
        return find(name)
    except UnknownNameError:
        if _SHARED.fullmatch(name.strip()):
            raise _unknown(name, "a virtual GPU", "its share is not in its name") from None
        raise


def _unknown(name: str, what: str, why: str) -> UnknownNameError:
    hint = "give --peak-tflops: the whole peak x the SMs that the driver reports / all SMs"
    return UnknownNameError(f"no peak is known for {name!r}: it is {what}, and {why}", hint)
