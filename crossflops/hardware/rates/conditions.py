"""Under which conditions a peak of a device can be reached: printed with every share of it."""

from crossflops.core.device import Device
from crossflops.hardware.devices.peaks import EMULATIONS, SPARSE

_DENSE = "the peak is dense: no structured sparsity, no clock above the one of the sheet"
_PARTS = ("no", "the whole", "half", "a third", "a quarter")


def conditions(device: Device, precisions: tuple[str, ...]) -> tuple[str, ...]:
    """What the peaks of these precisions take for granted, a sentence each."""
    pruned = [one for one in precisions if one.endswith(SPARSE)]
    found = [] if device.clock_basis == "measured" or pruned else [_DENSE]
    if device.clock_basis == "base":
        base = "the peak is at the base clock of one socket; cores may run faster"
        found.append(f"{device.label}: {base}")
    if pruned:
        found.append("the peak counts work that 2:4 pruned weights in a sparse kernel leave out")
    found += [
        f"{one}: a product of FP32 is {EMULATIONS[one]} products of BF16 parts"
        for one in precisions
        if one in EMULATIONS
    ]
    count = device.framework_devices_per_package
    if count > 1:
        part = _PARTS[count] if count < len(_PARTS) else f"one in {count}"
        one = f"the peak is that of one framework device, which is {part} of its package"
        found.append(f"{device.label}: {one}")
    if device.notes.startswith("A slice"):
        found.append(f"{device.label}: {device.notes.partition('. ')[0]}")
    return tuple(found)
