"""Hold the result of `efficiency`: a count compared with a peak, with the parts that were
requested.
"""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.provenance import RequestRecord
from crossflops.ir.roofline import Roofline
from crossflops.report.report import SCHEMA, Report


class PrecisionShare(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one example that runs in one precision: `flops` of the model's FLOPs."""

    precision: str
    flops: int
    peak: float | None


class OtherPeak(msgspec.Struct, frozen=True, kw_only=True):
    """A second denominator, such as the best measured matrix product. `ratio` is rate / peak."""

    name: str
    peak: float
    ratio: float | None
    source: str


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """The score and value products within the MACs of one example.

    `full_macs` are those over the full square of queries and keys (or the window), `half_macs`
    those that a causal mask leaves, `counted` says which of the two are in the work.
    `full_ratio` and `half_ratio` are the shares of the peak either way.
    """

    counted: str
    full_macs: int
    half_macs: int
    full_ratio: float | None = None
    half_ratio: float | None = None


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of a run: data x tensor x pipeline parallel.

    `rate` is the FLOP/s of all devices, `macs` are of one micro-batch on one device, `bubble` is
    the share of a step in which a stage of the pipeline waits.
    """

    devices: int
    data_parallel: int
    tensor_parallel: int
    pipeline_parallel: int
    rate: float | None
    examples_per_second: float | None
    bubble: float | UnsetType = UNSET


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a training step on one device: its work, its time, and its rates."""

    name: str
    seconds: float
    flops: int
    rate: float
    ratio: float | None


class TimedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A timed training step. `macs` are of one forward pass on one device."""

    batch: int
    macs: int
    phases: tuple[Phase, ...]
    seconds: float
    examples_per_second: float
    params: int | None = None


class ModuleTime(msgspec.Struct, frozen=True, kw_only=True):
    """A timed forward pass of a module, with all nested modules: its work and its rate."""

    path: str
    seconds: float
    flops: int
    rate: float
    ratio: float | None


class MovedBytes(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes that a pass must move, their byte model, and the use of memory bandwidth.

    `mbu` is bytes / (seconds x bandwidth), of one device. `seconds` is the time of the pass,
    `bound_seconds` the least that it can take: the longer of its work at the peak and its bytes
    at the bandwidth. `intensity` is in FLOP/byte, and `intensity_limit` what no batch exceeds.
    """

    model: str
    bytes: int
    weight_bytes: int
    bandwidth: float | None = None
    seconds: float | None = None
    mbu: float | None = None
    flops: int
    intensity: float | None = None
    intensity_limit: float | None = None
    ridge: float | None = None
    bound: str | None = None
    bound_seconds: float | None = None


class RunCompute(msgspec.Struct, frozen=True, kw_only=True):
    """The compute of a whole training run, with all its assumptions: to be quoted by itself.

    `flops` are the model's, `executed_flops` those with what is computed again, `optimizer_flops`
    those of its steps, which are in no other number. `device_hours` = flops / (mfu x peak) and
    `energy_kwh` (at `tdp` watts) are estimates; `hours` are those of all `devices` at once. What
    is not known is None.
    """

    tokens: int | float | None
    examples: int | float | None
    steps: int | float | None
    flops: int
    executed_flops: int | UnsetType = UNSET
    optimizer_flops: int | UnsetType = UNSET
    device: str | None
    devices: int
    precision: str
    peak: float | None
    mfu: float | None
    device_hours: float | None
    hours: float | None
    tdp: float | None
    energy_kwh: float | None
    assumptions: tuple[str, ...] = ()


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """Recomputed work of one unit, with the reason, and its share of the peak."""

    reason: str
    flops: int
    ratio: float | None


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """A required rate, and its share of a peak. `assumptions` are printed with every ratio.

    `work` is in FLOPs for one `unit` (2 per MAC, times `multiplier` passes), `rate` the FLOP/s
    that `examples_per_second` need on one device, `ratio` = rate / peak: in training the MFU.
    `executed` is the work with what is computed again, `hfu` its share; `repeats` are what stands
    between, part by part. The numerator is named
    in `numerator` ("native MACs", "thop", "given"). Of several precisions `peak` is the harmonic
    mean by work, and `precisions` has the parts. `line` is that of a table of runs.
    """

    numerator: str
    macs: int
    multiplier: int | float
    examples_per_second: float | None
    precision: str
    work: int
    rate: float | None
    device: str | None
    peak: float | None
    ratio: float | None
    intensity: float | None = None
    ridge: float | None = None
    bound: str | None = None
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unit: str = "example"
    batch: int | UnsetType = UNSET
    line: int | UnsetType = UNSET
    tokens_per_second: float | UnsetType = UNSET
    executed: int | UnsetType = UNSET
    hfu: float | UnsetType | None = UNSET
    repeats: tuple[Repeat, ...] | UnsetType = UNSET
    precisions: tuple[PrecisionShare, ...] | UnsetType = UNSET
    others: tuple[OtherPeak, ...] | UnsetType = UNSET
    attention: Attention | UnsetType = UNSET
    world: World | UnsetType = UNSET
    step: TimedStep | UnsetType = UNSET
    moved: MovedBytes | UnsetType = UNSET
    modules: tuple[ModuleTime, ...] | UnsetType = UNSET
    roofline: Roofline | UnsetType = UNSET
    run: RunCompute | UnsetType = UNSET


class PhaseEfficiency(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of generated text against a device: the prefill, the decoding, or the request.

    `tokens` are those of the prompts in a prefill, and new ones elsewhere, of all requests
    together; `passes` of the model make them. With a draft model, `prefill` and `decode` are the
    first and the later passes of the model that checks its tokens, two more phases are those of
    the draft, and the `tokens` of all four are those that their passes take in. `macs` and `flops`
    (2 per MAC) are of the whole phase. What begins with `device_` is of one of the `devices` that
    share the model: its FLOPs, and the bytes that it must move: weights once a pass, the cache
    read and appended to, and under the byte model "unfused" also `device_activation_bytes`, which
    operators move beyond these where each runs separately.

    `bound_seconds` is the least time of the phase: the longer of its FLOPs at the `peak` and its
    bytes at the `bandwidth`, of which `bound` names the longer; `bound_tokens_per_second` is the
    speed at that time. `seconds` and `tokens_per_second` were measured; `rate` (FLOP/s) and
    `byte_rate` (bytes/s) are what they require of one device, and `mfu` and `mbu` the shares.
    What is unknown is None. `request` has all phases one after the other, and new tokens alone.
    """

    phase: Literal["prefill", "decode", "draft-prefill", "draft-decode", "request"]
    device: str | None
    devices: int
    precision: str
    cache_dtype: str
    tokens: int
    passes: int
    macs: int
    flops: int
    device_flops: int | float
    device_weight_bytes: int | float
    device_cache_read: int | float
    device_cache_written: int | float
    device_activation_bytes: int | float
    byte_model: Literal["weights-once", "unfused"]
    device_bytes: int | float
    intensity: float | None
    ridge: float | None
    bound: str | None
    bound_seconds: float | None
    bound_tokens_per_second: float | None
    seconds: float | None
    tokens_per_second: float | None
    rate: float | None
    byte_rate: float | None
    peak: float | None
    bandwidth: float | None
    mfu: float | None
    mbu: float | None
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class EfficiencyReport(msgspec.Struct, frozen=True, kw_only=True):
    """One efficiency for every numerator and device, and the report of the MACs.

    `report` is None where the MACs were given without a model. After `--compare` it says why the
    numerators differ. Of generated text `phases` has the rows, at most five for each device, and
    `efficiency` has none.
    """

    schema: str = SCHEMA
    efficiency: tuple[Efficiency, ...]
    phases: tuple[PhaseEfficiency, ...] | UnsetType = UNSET
    report: Report | None = None
    request: RequestRecord | UnsetType = UNSET
    made_with: dict[str, str] | UnsetType = UNSET

    def to_json(self) -> str:
        """Return the report as indented JSON, with exact integers."""
        plain: dict[str, Any] = {
            "schema": self.schema,
            "efficiency": self.efficiency,
            "report": None if self.report is None else self.report.to_dict(),
        }
        if self.phases is not UNSET:
            plain["phases"] = self.phases
        origin: dict[str, Any] = {"request": self.request, "made_with": self.made_with}
        plain |= {key: value for key, value in origin.items() if value is not UNSET}
        return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "EfficiencyReport":
        """Return the report that `to_json` wrote; raise msgspec.ValidationError for another
        text.
        """
        return msgspec.json.decode(text, type=cls)


def rooflines(report: EfficiencyReport) -> tuple[Roofline, ...]:
    """Return the rooflines of a report, one for each device and each kind of work (native or of a
    tool).
    """
    return tuple(row.roofline for row in report.efficiency if isinstance(row.roofline, Roofline))
