"""Devices of one's own, from TOML: a file, and `crossflops.toml` or `pyproject.toml`.

A table for each, with the fields of `crossflops.ir.device.Device` in SI units, of the whole
package as its sheet has them::

    [devices.my-card]
    name = "Example X1"
    aliases = ["ACME X1"]
    peaks = {fp16 = 112e12, fp32 = 14e12}
    bandwidth = 900e9
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import AmbiguousDeviceError, find, labels, one_of
from crossflops.ir.device import Device
from crossflops.plugins.interpreters import settings

_TABLE = "devices"
_LEAST = 1e6  # FLOP/s or bytes/s: less is TFLOP/s or GB/s by mistake
_EXAMPLE = "write for example [devices.my-card] with peaks = {fp16 = 112e12} and bandwidth = 900e9"
_OURS = ("variant", "also")
RESERVED = "measured"  # the device that stands for what was measured here


def additions(file: str | Path | None = None, folder: Path | None = None) -> tuple[Device, ...]:
    """Devices of the configuration upwards of `folder` (the current one), and then of `file`.

    Raises InputError for a file that cannot be understood, and for names that are taken.
    """
    added: list[Device] = []
    place, table = settings(_TABLE, folder)
    for source, tables in ((place, table), *_read(file)):
        for key, row in tables.items():
            device = _device(key, row, str(source))
            _refuse_taken(device, tuple(added), str(source))
            added.append(device)
    return tuple(added)


def _read(file: str | Path | None) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    if file is None:
        return ()
    try:
        content = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}", "name a TOML file") from error
    except ValueError as error:  # no UTF-8, or no TOML
        raise InputError(f"{file} is no TOML file: {error}", "mend that line") from error
    tables = content.get(_TABLE)
    if not isinstance(tables, dict) or not tables:
        raise InputError(f"{file} has no table [devices.NAME]", _EXAMPLE)
    return ((str(file), tables),)


def _device(key: str, row: Any, source: str) -> Device:
    if not isinstance(row, dict):
        raise InputError(f"{key} in {source} is no table", _EXAMPLE)
    plain = {"name": key, "source": [source], "confidence": "own", **row, "id": key}
    fields = [name for name in Device.__struct_fields__ if name not in _OURS]
    strays = sorted(set(plain) - set(fields))
    if strays:
        known = ", ".join(fields)
        raise InputError(f"{key} in {source} sets {strays[0]}", f"a device has {known}")
    try:
        device = msgspec.convert(plain, Device)
    except msgspec.ValidationError as error:
        raise InputError(f"{key} in {source}: {error}", _EXAMPLE) from error
    _refuse_small(device, source)
    return one_of(device)


def _refuse_small(device: Device, source: str) -> None:
    if not device.peaks:
        raise InputError(f"{device.id} in {source} has no peaks", _EXAMPLE)
    figures = {**device.peaks, "bandwidth": device.bandwidth or _LEAST}
    for name, value in figures.items():
        if not _LEAST <= value < float("inf"):
            raise InputError(
                f"{name} of {device.id} in {source} is {value:g}",
                "figures are in FLOP/s and bytes/s: 112e12 for 112 TFLOP/s, 900e9 for 900 GB/s",
            )


def _refuse_taken(device: Device, before: tuple[Device, ...], source: str) -> None:
    for name in labels(device):
        try:
            owner = find(name, before).label
        except AmbiguousDeviceError as error:
            owner = error.candidates[0].label
        except UnknownNameError:
            if name.casefold() != RESERVED:
                continue
            owner = RESERVED
        raise InputError(f"{name!r} in {source} is a name of {owner} already", "choose another")
