"""A rate of a count of which nothing more is known, with its sentences."""

from msgspec.structs import replace

from crossflops.hardware.devices.peaks import ANY, Peaks
from crossflops.hardware.rates.mfu import efficiency_of_terms
from crossflops.hardware.rates.numerators import external_numerator
from crossflops.hardware.rates.question import Causality, Precisions, TrainingOptions
from crossflops.hardware.rates.remarks import peak_share_remarks
from crossflops.hardware.rates.terms import single_piece, work_terms
from crossflops.ir.device import Device


def efficiency(macs, examples_per_second, *, precision, training, against=None):
    """`against` is a device, a peak in FLOP/s, or None."""
    asked, peaks = TrainingOptions(train=training), None
    if against is not None:
        known = isinstance(against, Device)
        peaks = Peaks(device=against) if known else Peaks(given={ANY: against})
    parts = work_terms(single_piece(macs), asked, Causality(), Precisions(precision=precision))
    answer = efficiency_of_terms(
        parts, external_numerator(macs), examples_per_second, against=peaks
    )
    assumptions, warnings = peak_share_remarks(answer, parts, (), asked, peaks)
    return replace(answer, assumptions=assumptions, warnings=warnings)
