"""A device and its peaks."""

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
