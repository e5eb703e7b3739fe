"""Sparse and emulated peaks of a device, and the peaks with which a rate is compared.

    sparse = dense x sparse factor    where weights are pruned so, and a sparse kernel runs
    bf16xN = bf16 / N                 FP32 as N products of BF16 parts

Sources: OpenXLA, `PrecisionConfig.Algorithm` (BF16_BF16_F32_X3, _X6 and _X9: 3, 6 and 9
products); Henry, Tang, Heinecke, Leveraging the bfloat16 Artificial Intelligence Datatype (2019).
"""

import msgspec

from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import (
    MATRIX,
    AmbiguousDeviceError,
    clock_peak_deviation,
    dense_peak_rate,
    find_device,
    peak_clock_hertz,
    peak_from_clock,
)
from crossflops.hardware.rates.question import PeakSelection
from crossflops.ir.device import Device, PeakRow

EMULATIONS = {"bf16x3": 3, "bf16x6": 6, "bf16x9": 9}  # products of BF16 parts for one of FP32
SPARSE = "_sparse"  # the end of a precision whose weights are pruned
_OTHERS = "default"


def find_sparse_peak(device: Device, precision: str) -> float | None:
    """Return the peak in FLOP/s with structured sparsity; None if the device has none.

    It is reached only where the weights are pruned so and a sparse kernel ran.
    """
    factor = device.sparse_factor.get(precision, device.sparse_factor.get(_OTHERS, 1.0))
    plain = precision in MATRIX and precision in device.peaks
    return device.peaks[precision] * factor if plain and factor != 1.0 else None


def sparse_peak(device: Device, precision: str) -> float:
    """Return the peak in FLOP/s with structured sparsity. Raises UnknownNameError if there is
    none.
    """
    top = find_sparse_peak(device, precision)
    if top is None:
        dense_peak_rate(device, precision)
        raise UnknownNameError(
            f"{device.label} has no sparse peak for {precision}",
            f"use the dense peak: write {precision}, without {SPARSE}",
        )
    return top


def attainable_peak(device: Device, precision: str) -> float:
    """Return the peak of a precision in FLOP/s: dense ("bf16"), sparse ("bf16_sparse") or emulated
    by products of BF16 ("bf16x3").

    `bf16_sparse` is that of BF16 with structured sparsity, `bf16x3` that of FP32 by products of
    BF16 parts. Raises UnknownNameError where the device has no such peak.
    """
    if precision.endswith(SPARSE):
        return sparse_peak(device, precision.removesuffix(SPARSE))
    if precision in EMULATIONS and precision not in device.peaks:
        return dense_peak_rate(device, "bf16") / EMULATIONS[precision]
    return dense_peak_rate(device, precision)


def peak_rows(device: Device) -> tuple[PeakRow, ...]:
    """Return for each precision of the device its peak (FLOP/s), the peak from its clock and their
    deviation, and the ridge point (FLOP/byte).
    """
    count = device.framework_devices_per_package
    return tuple(
        PeakRow(
            precision=precision,
            peak=value,
            package_peak=value * count,
            derived=peak_from_clock(device, precision),
            deviation=clock_peak_deviation(device, precision),
            sparse=find_sparse_peak(device, precision),
            clock=peak_clock_hertz(device, precision),
            fma_per_clock=device.fma_per_clock.get(precision),
            ridge=value / device.bandwidth if device.bandwidth else None,
        )
        for precision, value in device.peaks.items()
    )


# The peaks that a question names.

ANY = ""  # the precision of a peak that is given for all


class Peaks(msgspec.Struct, frozen=True, kw_only=True):
    """The peaks in FLOP/s by precision: those of a device of the catalogue, or `given` ones.

    `bandwidth` is in bytes/s: the device's, unless one is given.
    """

    device: Device | None = None
    given: dict[str, float] = {}
    bandwidth: float | None = None

    def peak_of_precision(self, precision: str) -> float:
        """Return the peak of a precision in FLOP/s: the given one, else that of the device. Raises
        UnknownNameError if there is none.
        """
        if precision in self.given:
            return self.given[precision]
        if self.device is not None:
            return attainable_peak(self.device, precision)
        if ANY in self.given:
            return self.given[ANY]
        raise UnknownNameError(
            f"no peak is given for {precision or 'this run'}",
            f"add --peak-tflops {precision or 'PRECISION'}=X; "
            f"given: {', '.join(self.given) or 'none'}",
        )


class Denominators(msgspec.Struct, frozen=True, kw_only=True):
    """The peaks with which a rate is compared, one for each device that may be meant; a single
    None without any.

    `trouble` is the error with which to end when the device is ambiguous or unknown, `left_out`
    names devices that are meant and have no such peak.
    """

    against: tuple[Peaks | None, ...]
    trouble: UnknownNameError | None = None
    left_out: tuple[str, ...] = ()

    @property
    def has_unknown_device(self) -> bool:
        """True if a device was named that is not known."""
        return self.trouble is not None and self.against == (None,)


def peak_denominators(
    requested: PeakSelection, needed: tuple[str, ...], known: tuple[Device, ...] = ()
) -> Denominators:
    """Return the peaks by which a rate is divided: of the devices that the options name, or as
    given.

    Raises UnknownNameError for a precision that is not there, and InputError where none is named.
    """
    provided = dict(map(parse_peak_tflops, requested.peak_tflops))
    bandwidth = None if requested.bandwidth is None else requested.bandwidth * 1e9
    if requested.device is None:
        if not provided and bandwidth is None:
            return Denominators(against=(None,))
        peaks = Peaks(given=provided, bandwidth=bandwidth)
        _require_peaks(peaks, needed)
        return Denominators(against=(peaks,))
    try:
        devices: tuple[Device, ...] = (find_device(requested.device, known),)
        trouble: UnknownNameError | None = None
    except AmbiguousDeviceError as error:
        devices, trouble = error.candidates, error
    except UnknownNameError as error:
        return Denominators(against=(None,), trouble=error)
    if "" in needed:
        every = dict.fromkeys(name for device in devices for name in device.peaks)
        raise InputError(
            "--device needs a precision, since each precision has its own peak",
            f"add --precision P: {', '.join(every)}, or graph for the types stored in the model",
        )
    meant = tuple(
        Peaks(device=device, given=provided, bandwidth=bandwidth or device.bandwidth)
        for device in devices
    )
    if trouble is None:
        _require_peaks(meant[0], needed)  # refused before the work begins
        return Denominators(against=meant)
    return _keep_devices_with_peaks(meant, needed, trouble)


def _keep_devices_with_peaks(
    meant: tuple[Peaks, ...], needed: tuple[str, ...], trouble: UnknownNameError
) -> Denominators:
    """Return the peaks of the devices in `meant` that have one for each precision; raise an error
    if no device has.
    """
    able, left = [], []
    for candidate in meant:
        try:
            _require_peaks(candidate, needed)
            able.append(candidate)
        except UnknownNameError as error:
            has = ", ".join(candidate.device.peaks) if candidate.device else ""
            left.append(f"{error.message}, only {has}")
    if not able:
        precisions = " and ".join(needed)
        raise UnknownNameError(
            f"no matching device has a {precisions} peak",
            "give the precision that ran, or a peak with --peak-tflops",
        )
    return Denominators(against=tuple(able), trouble=trouble, left_out=tuple(left))


def _require_peaks(peaks: Peaks, precisions: tuple[str, ...]) -> None:
    """Raise UnknownNameError if the peak of a precision is neither given nor known of the
    device.
    """
    if peaks.device is not None or peaks.given:
        for precision in precisions:
            peaks.peak_of_precision(precision)


def parse_peak_tflops(text: str) -> tuple[str, float]:
    """Parse "bf16=312" or "312" (TFLOP/s); return the precision ("" for all) and the peak in
    FLOP/s.
    """
    precision, _, value = text.rpartition("=")
    try:
        tflops = float(value)
    except ValueError:
        tflops = 0.0
    if not 1e-18 <= tflops <= 1e18:
        raise InputError(
            f"--peak-tflops must be a positive number or PRECISION=NUMBER, got {text!r}",
            "give TFLOP/s, such as 312 or bf16=989.4",
        )
    return precision.casefold(), tflops * 1e12


def peaks_at_least(device: Device, precision: str, rate: float) -> dict[str, float]:
    """Return {precision: peak in FLOP/s} for the peaks of a device that are at least `rate`,
    without those of integers; for `precision` itself only the peak with structured sparsity.
    """
    tops = {
        name: top
        for name, top in device.peaks.items()
        if name != precision and top >= rate and name[:3] != "int"
    }
    pruned = find_sparse_peak(device, precision)
    if pruned is not None and pruned >= rate:
        tops[f"{precision} with structured sparsity"] = pruned
    return tops
