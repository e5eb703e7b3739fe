"""The rows of a sweep: what each tool says of each model at each input, or why it says nothing."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from crossflops.ir.profile import Amount
from crossflops.report.report import SCHEMA

NATIVE = "native"  # the tool of a row that is the count of crossflops itself
Kind = Literal["native", "run", "predicted"]


class SweepCase(msgspec.Struct, frozen=True, kw_only=True):
    """A model at one input: what is counted once, and given to each tool.

    The fields are those of the command line: `target` is what was typed, `inputs` are texts of
    shapes, `sizes` those of the usual input of a model by name. With `train` a training step is
    counted.
    """

    target: str
    inputs: tuple[str, ...] = ()
    arguments: dict[str, Any] = {}
    dims: dict[str, int] = {}
    sizes: dict[str, int] = {}
    train: bool = False

    @property
    def options_text(self) -> str:
        """The options of the case in the words of the command line, "" if there is none.

        >>> SweepCase(target="m.onnx", inputs=("2x4",), sizes={"batch": 8}).options_text
        '2x4 batch=8'
        """
        pairs = [*self.arguments.items(), *self.dims.items(), *self.sizes.items()]
        words = [*self.inputs, *(f"{name}={value}" for name, value in pairs)]
        return " ".join([*words, *(["train"] if self.train else [])])


class SweepRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The number of one tool for one case; a tool without a number has a `failure`.

    Args:
        case: the model and its input.
        tool: the id of the tool, "native" for the count of crossflops.
        kind: "native", "run" for a tool that ran, "predicted" for a convention that did not.
        family: the group of the model, as the suite names it.
        version: that of the tool, or the edition of the convention.
        unit: the tool's own word for what it counts.
        per_mac: the tool's count for one MAC.
        total: the number that the tool printed.
        macs: the native MACs that it is compared with; of a training step those of the step.
        flops: the native FLOPs of the forward pass.
        params: the native number of parameters.
        uncounted: the nodes that are in no native number.
        shapes: the shapes of the inputs that were counted.
        causes: the amounts of the difference by cause, in the unit of the tool: with `residual`
            they add up to `total - macs`.
        residual: what no cause covers; None where nothing was explained.
        stage: the step at which the tool failed.
        failure: why there is no number.
    """

    case: SweepCase
    tool: str
    kind: Kind
    family: str = ""
    version: str = ""
    unit: str = ""
    per_mac: int = 1
    total: Amount | None = None
    macs: int | None = None
    flops: int | None = None
    params: int | None = None
    uncounted: int = 0
    shapes: tuple[str, ...] = ()
    causes: dict[str, Amount] = {}
    residual: Amount | None = None
    stage: str = ""
    failure: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether the number is the exact count: the native MACs in the unit of the tool, or the
        native FLOPs of a forward pass.
        """
        if self.total is None or self.macs is None:
            return False
        flops = () if self.case.train or self.flops is None else (self.flops,)
        return self.total in (self.macs * (self.per_mac or 1), *flops)

    @property
    def ratio(self) -> float | None:
        """The number divided by the native MACs in the unit of the tool; None without both."""
        if self.total is None or not self.macs:
            return None
        return self.total / (self.macs * (self.per_mac or 1))


class SweepChange(msgspec.Struct, frozen=True, kw_only=True):
    """A number that is not the one of an earlier sweep.

    `before` and `after` are numbers, or reasons why there is none, "" where a sweep has no such
    row. The versions are those of the tool, `reason` says which distributions changed.
    """

    case: SweepCase
    tool: str
    before: Amount | str
    after: Amount | str
    version_before: str = ""
    version_after: str = ""
    reason: str = ""


class PublishedPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A published figure beside the exact count of the same model, both in `unit`."""

    target: str
    unit: Literal["macs", "flops", "params"]
    text: str
    published: float
    exact: int
    family: str = ""


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of a suite that the store has, in the order of the suite.

    `tools` are those of the rows, `left_out` the cases that --limit and --only exclude. `changes`
    is there where the sweep was compared with another store, `compared_to`.
    """

    suite: str
    rows: tuple[SweepRow, ...]
    tools: tuple[str, ...] = ()
    left_out: int = 0
    compared_to: str = ""
    changes: tuple[SweepChange, ...] = ()
    published: tuple[PublishedPoint, ...] = ()
    made_with: dict[str, str] = {}
    schema: str = SCHEMA

    @property
    def cases(self) -> tuple[SweepCase, ...]:
        """The models with their inputs, each once."""
        return tuple(row.case for row in self.rows if row.tool == NATIVE)

    @property
    def failures(self) -> tuple[SweepRow, ...]:
        """The rows without a number."""
        return tuple(row for row in self.rows if row.total is None)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Sweep":
        """Return the sweep that was written as this JSON; raise msgspec.MsgspecError if it is not
        one.
        """
        return msgspec.json.decode(text, type=cls)


def case_name(case: SweepCase) -> str:
    """Return the target of a case with its options, for a message or a table."""
    return f"{case.target} {case.options_text}".strip()


def find_changes(
    rows: Iterable[tuple[SweepRow, Mapping[str, str]]],
    earlier: Iterable[tuple[SweepRow, Mapping[str, str]]],
) -> tuple[SweepChange, ...]:
    """Return what the rows say otherwise than those of an earlier sweep, each row with the
    versions that it was made with.

    Rows of cases that these rows do not have are not looked at.
    """
    before = {_row_identity(row): (row, versions) for row, versions in earlier}
    now = {_row_identity(row): (row, versions) for row, versions in rows}
    cases = {identity[0] for identity in now}
    changes = []
    for identity, (row, versions) in now.items():
        old, old_versions = before.get(identity, (None, {}))
        if old is None or _outcome_of_row(old) != _outcome_of_row(row):
            changes.append(_sweep_change(old, row, old_versions, versions))
    for identity, (old, old_versions) in before.items():
        if identity[0] in cases and identity not in now:
            changes.append(_sweep_change(old, None, old_versions, {}))
    return tuple(changes)


def _row_identity(row: SweepRow) -> tuple[bytes, str, str]:
    """Return what a row is about, whichever version made it: case, kind and tool."""
    return msgspec.json.encode(row.case, order="sorted"), row.kind, row.tool


def _outcome_of_row(row: SweepRow) -> Amount | str:
    """Return the number of a row, or the reason why it has none."""
    return row.failure if row.total is None else row.total


def _sweep_change(
    old: SweepRow | None,
    new: SweepRow | None,
    old_versions: Mapping[str, str],
    versions: Mapping[str, str],
) -> SweepChange:
    """Return the change between two rows of the same case and tool, one of which may be absent."""
    row = new or old
    assert row is not None
    both = old is not None and new is not None
    differing = sorted(
        name
        for name in {*old_versions, *versions}
        if both and old_versions.get(name) != versions.get(name)
    )
    return SweepChange(
        case=row.case,
        tool=row.tool,
        before=_outcome_of_row(old) if old else "",
        after=_outcome_of_row(new) if new else "",
        version_before=old.version if old else "",
        version_after=new.version if new else "",
        reason=", ".join(
            f"{name} {old_versions.get(name) or 'none'} -> {versions.get(name) or 'none'}"
            for name in differing
        ),
    )
