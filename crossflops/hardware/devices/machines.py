"""Names of several devices: machines of clouds and vendors, counts ("8xH100"), slices of TPUs.

A peak is that of one device. A name that stands for several gets no peak: the error says which
device it is, and how many of them.
"""

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

from crossflops.errors import UnknownNameError
from crossflops.ir.device import Device

_FILE = "machines.json"
_COUNTED = (
    re.compile(r"(?P<count>\d+) ?[x×*] ?(?P<device>\S.*)", re.IGNORECASE),
    re.compile(r"(?P<device>.*\S) ?[x×*] ?(?P<count>\d+)", re.IGNORECASE),
)
_TPU = re.compile(r"(?:(?:cloud )?tpu[ -]?)?v(?P<kind>\d\w*?)(?:litepod)?-(?P<size>\d+)", re.I)
# What the number behind a TPU's name counts: cores, two to a chip, or chips.
_BY_CORE = ("2", "3", "4", "5p")
_TPUS = {kind: f"tpu-v{kind}" for kind in (*_BY_CORE, "5e", "6e")} | {"5": "tpu-v5e"}


class NamedMachine(NamedTuple):
    """A machine by its name: the number of its `chips`, and the names that these have in the
    catalogue, `devices`.

    Where it may be one of several devices, all of them are named.
    """

    name: str
    chips: int
    devices: tuple[str, ...]


def reject_machine_name(name: str, find: Callable[[str], tuple[Device, ...]]) -> None:
    """Raise UnknownNameError if the name means a machine of several devices, such as "8xH100"; the
    error names the device and their number.

    Args:
        name: as it was given.
        find: gives the devices of a name, none where it is unknown.
    """
    machine = (
        _machine_by_name(name) or _machine_from_count(name, find) or _machine_from_tpu_slice(name)
    )
    if machine is None:
        return
    bearers = [device for label in machine.devices for device in find(label)]
    if not bearers:
        return
    # a chip may be several devices to its framework, by each of which a share is
    count = machine.chips * bearers[0].framework_devices_per_package
    labels = " | ".join(device.label for device in bearers)
    devices = f"; `crossflops efficiency` takes --devices {count} with it" if count > 1 else ""
    chips = "1 chip" if machine.chips == 1 else f"{machine.chips} chips"
    raise UnknownNameError(
        f"{name!r} is a machine, not a device: it has {chips}, "
        f"{' or '.join(d.label for d in bearers)}",
        f"name the device: {labels}{devices}",
    )


@cache
def _read_machines() -> dict[str, NamedMachine]:
    """Return the machines of the catalogue (clouds and vendors) by name."""
    text = files("crossflops.hardware.devices").joinpath(_FILE).read_bytes()
    by_source = msgspec.json.decode(text, type=dict[str, dict[str, tuple[int, str]]])
    return {
        _plain_machine_name(name): NamedMachine(name, count, (device,))
        for rows in by_source.values()
        for name, (count, device) in rows.items()
    }


def _plain_machine_name(name: str) -> str:
    """Return the name of a machine in lower case, with single spaces and no vendor."""
    return re.sub(r"[\s_-]+", " ", name).strip().casefold().removeprefix("nvidia ")


def _machine_by_name(name: str) -> NamedMachine | None:
    """Return the machine with this name, or the common chips and devices of all machines whose
    names begin with it; None if there are none or their chip counts differ.
    """
    known, plain = _read_machines(), _plain_machine_name(name)
    for requested in (plain, f"standard {plain}"):
        if requested in known:
            return known[requested]
    if " " not in plain:  # a4 is no name of a4-highgpu-8g
        return None
    similar = [row for other, row in known.items() if other.startswith(f"{plain} ")]
    counts = {row.chips for row in similar}
    if len(counts) != 1:
        return None
    devices = dict.fromkeys(device for row in similar for device in row.devices)
    return NamedMachine(name, counts.pop(), tuple(devices))


def _machine_from_count(
    name: str, find: Callable[[str], tuple[Device, ...]]
) -> NamedMachine | None:
    """Return the machine that a name with a count means, such as "8xH100", or None for another
    name.
    """
    for form in _COUNTED:
        match = form.fullmatch(name.strip())
        if match is None or int(match["count"]) < 2:
            continue
        bearers = find(match["device"])
        if bearers:
            packages = bearers[0].framework_devices_per_package
            labels = tuple(device.label for device in bearers)
            return NamedMachine(name, max(int(match["count"]) // packages, 1), labels)
    return None


def _machine_from_tpu_slice(name: str) -> NamedMachine | None:
    """Return the machine that the name of a TPU slice means, such as "v4-8", or None for another
    name.
    """
    match = _TPU.fullmatch(name.strip())
    if match is None:
        return None
    kind, size = match["kind"].casefold(), int(match["size"])
    if kind not in _TPUS or size < 1:
        return None
    chips = max(size // 2, 1) if kind in _BY_CORE else size
    return NamedMachine(name, chips, (_TPUS[kind],))
