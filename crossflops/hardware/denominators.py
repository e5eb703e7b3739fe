"""The peaks that a question names: one, none, or those of every device that is meant."""

import msgspec

from crossflops.core.device import Device
from crossflops.errors import UnknownNameError
from crossflops.hardware.catalogue import AmbiguousDeviceError, find, peak
from crossflops.hardware.question import Against


class Denominators(msgspec.Struct, frozen=True, kw_only=True):
    """Devices or given peaks in FLOP/s; None alone where there is neither.

    `trouble` is the error with which to end when the device is ambiguous or unknown, `left_out`
    names devices that are meant and have no such peak.
    """

    against: tuple[Device | float | None, ...]
    trouble: UnknownNameError | None = None
    left_out: tuple[str, ...] = ()

    @property
    def unknown(self) -> bool:
        """Whether a device was named that nobody knows."""
        return self.trouble is not None and self.against == (None,)


def denominators(asked: Against) -> Denominators:
    """Looked up in the catalogue. Raises UnknownNameError for a precision that is not there."""
    if asked.peak_tflops is not None:
        return Denominators(against=(asked.peak_tflops * 1e12,))
    if asked.device is None:
        return Denominators(against=(None,))
    try:
        device = find(asked.device)
    except AmbiguousDeviceError as error:
        return _able(error, asked.precision)
    except UnknownNameError as error:
        return Denominators(against=(None,), trouble=error)
    peak(device, asked.precision)  # refused before the work begins
    return Denominators(against=(device,))


def _able(error: AmbiguousDeviceError, precision: str) -> Denominators:
    """The candidates that have such a peak."""
    able = tuple(one for one in error.candidates if precision in one.peaks)
    if not able:
        raise UnknownNameError(
            f"none of the devices that are meant has a {precision} peak",
            "give the precision that ran, or a peak by --peak-tflops",
        )
    left = tuple(
        f"{one.id} has no {precision} peak, only {', '.join(one.peaks)}"
        for one in error.candidates
        if one not in able
    )
    return Denominators(against=able, trouble=error, left_out=left)
