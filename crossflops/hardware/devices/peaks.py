"""What a device can do at most, beside the dense peak of its sheet.

    sparse = dense x sparse factor    where weights are pruned so, and a sparse kernel runs
    bf16xN = bf16 / N                 FP32 as N products of BF16 parts

Sources: OpenXLA, `PrecisionConfig.Algorithm` (BF16_BF16_F32_X3, _X6 and _X9: 3, 6 and 9
products); Henry, Tang, Heinecke, Leveraging the bfloat16 Artificial Intelligence Datatype (2019).
"""

from crossflops.errors import UnknownNameError
from crossflops.hardware.devices.catalogue import MATRIX, clock_of, derived, deviation, peak
from crossflops.ir.device import Device, PeakRow

EMULATIONS = {"bf16x3": 3, "bf16x6": 6, "bf16x9": 9}  # products of BF16 parts for one of FP32
SPARSE = "_sparse"  # the end of a precision whose weights are pruned
_OTHERS = "default"


def sparse(device: Device, precision: str) -> float | None:
    """The peak in FLOP/s with structured sparsity; None where the device has none for it.

    It is reached only where the weights are pruned so and a sparse kernel ran.
    """
    factor = device.sparse_factor.get(precision, device.sparse_factor.get(_OTHERS, 1.0))
    plain = precision in MATRIX and precision in device.peaks
    return device.peaks[precision] * factor if plain and factor != 1.0 else None


def sparse_peak(device: Device, precision: str) -> float:
    """As `sparse`. Raises UnknownNameError where there is none."""
    top = sparse(device, precision)
    if top is None:
        peak(device, precision)
        raise UnknownNameError(
            f"{device.label} does not compute {precision} faster when it is sparse",
            "set the count against the dense peak",
        )
    return top


def attainable(device: Device, precision: str) -> float:
    """The peak in FLOP/s of a precision of the sheet, or one that follows from it.

    `bf16_sparse` is that of BF16 with structured sparsity, `bf16x3` that of FP32 by products of
    BF16 parts. Raises UnknownNameError where the device has no such peak.
    """
    if precision.endswith(SPARSE):
        return sparse_peak(device, precision.removesuffix(SPARSE))
    if precision in EMULATIONS and precision not in device.peaks:
        return peak(device, "bf16") / EMULATIONS[precision]
    return peak(device, precision)


def peak_rows(device: Device) -> tuple[PeakRow, ...]:
    """Every peak of the device, in the order of its sheet."""
    count = device.framework_devices_per_package
    return tuple(
        PeakRow(
            precision=precision,
            peak=value,
            package_peak=value * count,
            derived=derived(device, precision),
            deviation=deviation(device, precision),
            sparse=sparse(device, precision),
            clock=clock_of(device, precision),
            fma_per_clock=device.fma_per_clock.get(precision),
            ridge=value / device.bandwidth if device.bandwidth else None,
        )
        for precision, value in device.peaks.items()
    )
