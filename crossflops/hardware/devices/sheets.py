"""Reports on devices: the sheet of one device, and lists of several."""

from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import device_ids_by_shared_name, find_device
from crossflops.hardware.devices.peaks import (
    EMULATIONS,
    attainable_peak,
    parse_peak_tflops,
    peak_rows,
)
from crossflops.ir.device import Derivation, Device, DeviceList, DeviceShare, DeviceSheet, Factor
from crossflops.report.report import SCHEMA

_BITS = 8  # of a byte
_COMMON = ("bf16", "fp16", "tf32", "int8", "fp32")  # by which devices are compared unless asked


def device_sheet(device: Device) -> DeviceSheet:
    """Return the data sheet of a device: its peaks, those derived from its clock, and the names
    that it shares.
    """
    emulated = {
        name: attainable_peak(device, name) for name in EMULATIONS if "bf16" in device.peaks
    }
    several = {name: ids for name, ids in device_ids_by_shared_name().items() if len(ids) > 1}
    return DeviceSheet(
        schema=SCHEMA,
        device=device,
        peaks=peak_rows(device),
        emulated={} if "fp32" in device.peaks and device.kind == "cpu" else emulated,
        families={name: ids for name, ids in several.items() if device.label in ids},
        also=_devices_of_same_name(device),
    )


def _devices_of_same_name(device: Device) -> tuple[DeviceShare, ...]:
    """Return the other devices that have a name of this one, with their peaks relative to its
    peak.
    """
    others = tuple(find_device(label) for label in device.also)
    chosen = _common_precision((device, *others))
    reference = _peak_or_none(device, chosen)
    rates = ((other, _peak_or_none(other, chosen)) for other in others)
    return tuple(
        DeviceShare(
            device=other, peak=rate, ratio=rate / reference if rate and reference else None
        )
        for other, rate in rates
    )


def build_device_list(devices: tuple[Device, ...], about: str, precision: str = "") -> DeviceList:
    """Return the devices, each with its peak in a precision and the ratio to the highest of these
    peaks.

    Raises UnknownNameError for a precision that none of them has.
    """
    chosen = precision or _common_precision(devices)
    rates = tuple(_peak_or_none(device, chosen) for device in devices)
    if precision and not any(rates):
        every = dict.fromkeys(name for device in devices for name in device.peaks)
        raise UnknownNameError(
            f"no listed device has a {precision} peak", f"choose one of {', '.join(every)}"
        )
    highest = max((rate for rate in rates if rate is not None), default=0.0)
    return DeviceList(
        schema=SCHEMA,
        about=about,
        precision=chosen,
        devices=tuple(
            DeviceShare(device=device, peak=rate, ratio=rate / highest if rate else None)
            for device, rate in zip(devices, rates, strict=True)
        ),
    )


def _common_precision(devices: tuple[Device, ...]) -> str:
    """Return the precision by which to compare devices: the first usual one that all of them have,
    else the first that one of them has.
    """
    by_all = (name for name in _COMMON if all(name in device.peaks for device in devices))
    by_some = (name for name in _COMMON if any(name in device.peaks for device in devices))
    return next(by_all, None) or next(by_some, "fp32")


def _peak_or_none(device: Device, precision: str) -> float | None:
    """Return the peak of a precision in FLOP/s, sparse or emulated ones included; None if there is
    none.
    """
    try:
        return attainable_peak(device, precision)
    except UnknownNameError:
        return None


def derive_peak(clock: float, units: float, fma_per_clock: float) -> Derivation:
    """Return the peak in FLOP/s with its factors: clock (Hz) x units x FMA per clock and unit x 2.

    Source: NVIDIA, A100 whitepaper: 1.41 GHz x 108 SMs x 64 x 2 = 19.49 TFLOP/s.
    """
    factors = (
        Factor("clock", clock, "Hz"),
        Factor("units", units),
        Factor("FMA per clock and unit", fma_per_clock),
        Factor("FLOPs per FMA", 2),
    )
    return _build_derivation("peak", factors, clock * units * fma_per_clock * 2, "FLOP/s")


def derive_bandwidth(clock: float, bus: float, channels: float, transfers: float) -> Derivation:
    """Return the bandwidth in bytes/s with its factors: clock (Hz) x transfers per clock x bus
    width (bits) / 8 x channels.

    Memory of double data rate transfers twice in a clock: 2000 MHz x 2 x 32 / 8 x 2 channels is
    32 GB/s, and 1215 MHz x 2 x 5120 / 8, as in an A100 40GB, 1555.2 GB/s.
    """
    factors = (
        Factor("memory clock", clock, "Hz"),
        Factor("transfers per clock", transfers),
        Factor("bytes of the bus", bus / _BITS),
        Factor("channels", channels),
    )
    return _build_derivation(
        "bandwidth", factors, clock * transfers * (bus / _BITS) * channels, "B/s"
    )


def _build_derivation(
    name: str, factors: tuple[Factor, ...], rate: float, unit: str
) -> Derivation:
    """Build the derivation of a figure: its `name`, its factors and its value `rate` in `unit`;
    raise InputError if a factor is not positive.
    """
    for factor in factors:
        quantity = factor.what
        if not 0 < factor.value < float("inf"):
            raise InputError(
                f"{quantity} must be a positive number, got {factor.value:g}",
                "give a positive number",
            )
    return Derivation(schema=SCHEMA, what=name, factors=factors, rate=rate, unit=unit)


def device_from_options(peaks: tuple[str, ...], bandwidth: float | None) -> Device:
    """Build a device from --peak-tflops texts and --bandwidth in GB/s.

    Raises InputError for what is no rate.
    """
    return Device(
        id="given",
        name="a device described by options",
        peaks={name or "any": rate for name, rate in map(parse_peak_tflops, peaks)},
        bandwidth=None if bandwidth is None else bandwidth * 1e9,
        source=("the command line",),
        confidence="given",
    )
