"""A count set against a peak: the noun, whose parts are there where they were asked for."""

import msgspec

from crossflops.core.report import SCHEMA, Report


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


class EfficiencyReport(msgspec.Struct, frozen=True, kw_only=True):
    """One efficiency for every numerator and device, and the report that the MACs are from.

    `report` is None where the MACs were given without a model. After `--compare` it says why the
    numerators differ.
    """

    schema: str = SCHEMA
    efficiency: tuple[Efficiency, ...]
    report: Report | None = None

    def to_json(self) -> str:
        """Indented JSON, the report as it is written by itself, counts as exact integers."""
        plain = {
            "schema": self.schema,
            "efficiency": self.efficiency,
            "report": None if self.report is None else self.report.to_dict(),
        }
        return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "EfficiencyReport":
        """What `to_json` wrote. Raises msgspec.ValidationError on anything else."""
        return msgspec.json.decode(text, type=cls)
