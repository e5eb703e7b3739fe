"""Hold the candidates for a published figure of a model: numbers that print exactly so, or nearly
so.
"""

import msgspec

from crossflops.ir.profile import Amount
from crossflops.report.report import SCHEMA

RUN_FLOPS, RUN_SPEED, MFU = "FLOPs of the run", "FLOP/s per device", "MFU"  # units of a run


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A number that prints as the figure, or would without the causes in `missing`.

    `prints` is the number of the `command`, and `factor` what the figure is of it: "2" where MACs
    are published as FLOPs, "1/2" the other way, "1" else. `gives` is the product, without the
    causes in `missing`. `rounding` is "exact", "rounded", "truncated", "coarse" (zeros at the end
    are no digits) or "binary" (a prefix of 1024). `given` says whether the input and the setting
    are those of the request.
    """

    tool: str
    edition: str
    unit: str
    prints: Amount
    command: str
    missing: tuple[str, ...] = ()
    factor: str = "1"
    gives: Amount = 0
    rounding: str = "rounded"
    inputs: tuple[str, ...] = ()
    given: bool = True


class Identification(msgspec.Struct, frozen=True, kw_only=True):
    """The candidates for a figure, best first: all that print it, then near ones.

    `tried` are the inputs and settings that were counted, `untried` others with the reason.
    `macs` and `flops` are the native count of the request. `nearest` is the number that comes
    nearest to a figure of a training run that none prints, `distance` (its number - figure) /
    figure.
    """

    figure: str
    target: str
    inputs: tuple[str, ...]
    macs: int
    flops: int
    params: int
    candidates: tuple[Candidate, ...]
    nearest: Candidate | None = None
    distance: float = 0.0
    tried: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    refused: dict[str, str] = {}
    uncounted: int = 0
    made_with: dict[str, str] = {}
    schema: str = SCHEMA

    @property
    def exact(self) -> tuple[Candidate, ...]:
        """The candidates that print the figure."""
        return tuple(candidate for candidate in self.candidates if not candidate.missing)

    @property
    def near(self) -> tuple[Candidate, ...]:
        """The candidates that one or two causes separate from the figure."""
        return tuple(candidate for candidate in self.candidates if candidate.missing)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Identification":
        """Return the identification that was written as this JSON; raise msgspec.MsgspecError if
        it is not one.
        """
        return msgspec.json.decode(text, type=cls)
