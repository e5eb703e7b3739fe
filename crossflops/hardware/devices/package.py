"""From the figures of a package to those of one framework device, and back."""

from collections.abc import Mapping
from math import isclose

from msgspec.structs import replace

from crossflops.core.device import Device
from crossflops.errors import InputError


def one_of(package: Device) -> Device:
    """One framework device of a package: an equal share of everything but the clocks.

    A package with one framework device is that device. Raises InputError where the units
    cannot be shared.
    """
    count = package.framework_devices_per_package
    if count == 1:
        return package
    if count < 1 or (package.units or 0) % count:
        raise InputError(
            f"{package.id} cannot be shared by {count} framework devices",
            "mend framework_devices_per_package, or units",
        )
    return replace(
        package,
        peaks=_times(package.peaks, 1 / count),
        measured_matmul=_times(package.measured_matmul, 1 / count),
        bandwidth=package.bandwidth and package.bandwidth / count,
        memory=tuple(size / count for size in package.memory),
        tdp=package.tdp and package.tdp / count,
        units=package.units and package.units // count,
    )


def package_peaks(device: Device) -> dict[str, float]:
    """The peaks of the whole package in FLOP/s, as its sheet has them."""
    return _times(device.peaks, device.framework_devices_per_package)


def _times(figures: Mapping[str, float], factor: float) -> dict[str, float]:
    return {name: _plain(value * factor) for name, value in figures.items()}


def _plain(value: float) -> float:
    """The nearest number of twelve digits, where it is as good as that one."""
    short = float(f"{value:.12g}")
    return short if isclose(short, value, rel_tol=1e-13) else value
