"""A device's peaks, and a count set against them."""

import msgspec


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One framework device of a product. Peaks are dense, in FLOP/s by precision.

    `bandwidth` is in bytes/s. `clock` (Hz), `units` and `fma_per_clock` (by precision, per
    unit) derive the peak a second time: clock x units x FMA x 2. `confidence` says how far the
    figures were checked, `source` where they are published.
    """

    id: str
    name: str
    aliases: tuple[str, ...]
    vendor: str
    peaks: dict[str, float]
    bandwidth: float | None
    clock: float | None
    units: int | None
    fma_per_clock: dict[str, float]
    source: tuple[str, ...]
    confidence: str
    notes: str = ""


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """A required rate, and its share of a peak. `assumptions` are printed with every ratio.

    `work` is in FLOPs for one example (2 per MAC, times `multiplier` passes), `rate` the
    FLOP/s that `examples_per_second` need, `ratio` = rate / peak. The numerator is named in
    `numerator` ("native MACs", "thop", "given").
    """

    numerator: str
    macs: int
    multiplier: int
    examples_per_second: float
    precision: str
    work: int
    rate: float
    device: str | None
    peak: float | None
    ratio: float | None
    intensity: float | None = None
    ridge: float | None = None
    bound: str | None = None
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
