"""A rate of a count of which nothing more is known, with its sentences."""

from msgspec.structs import replace

from crossflops.hardware.devices.peaks import ANY, Peaks
from crossflops.hardware.rates.mfu import of_terms
from crossflops.hardware.rates.numerators import given
from crossflops.hardware.rates.question import Causality, Precisions, TrainingOptions
from crossflops.hardware.rates.remarks import of_share
from crossflops.hardware.rates.terms import terms, whole
from crossflops.ir.device import Device


def efficiency(macs, examples_per_second, *, precision, training, against=None):
    """`against` is a device, a peak in FLOP/s, or None."""
    asked, peaks = TrainingOptions(train=training), None
    if against is not None:
        known = isinstance(against, Device)
        peaks = Peaks(device=against) if known else Peaks(given={ANY: against})
    parts = terms(whole(macs), asked, Causality(), Precisions(precision=precision))
    answer = of_terms(parts, given(macs), examples_per_second, against=peaks)
    assumptions, warnings = of_share(answer, parts, (), asked, peaks)
    return replace(answer, assumptions=assumptions, warnings=warnings)
