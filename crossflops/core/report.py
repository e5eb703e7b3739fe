"""Everything that a renderer may know: the JSON contract `crossflops/1`, as values."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.core.formulas import Formulas
from crossflops.core.profile import Amount, Failure, Profile
from crossflops.core.reconciliation import Reconciliation
from crossflops.core.trace import Setting

SCHEMA = "crossflops/1"


class InputInfo(msgspec.Struct, frozen=True):
    """An input of the model."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Which model was counted. `digest` identifies the structure, not the weights."""

    name: str
    digest: str
    inputs: tuple[InputInfo, ...]
    opset: dict[str, int]


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The whole model. `constant_macs` are the part of `macs` that depends on no input.

    `active_params` are the most of `params` that one call can use; unset where that is all.
    """

    macs: int
    flops: int
    params: int
    adds: int
    muls: int
    divs: int
    compares: int
    specials: int
    bytes_read: int
    bytes_written: int
    constant_macs: int
    active_params: int | UnsetType = UNSET


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """The model counted by a tool's convention, without the tool.

    `assumed` is true when the tool could not have run this model, or when the calls that it
    looks at were inferred from the graph.
    """

    tool: str
    edition: str
    total: int
    assumed: bool


class UncountedRow(msgspec.Struct, frozen=True):
    """A node that was not counted."""

    node: str
    op: str
    reason: str


class BranchRow(msgspec.Struct, frozen=True):
    """An If of which one branch, or the sum of both, was counted, and why."""

    node: str
    counted: str


class OpRow(msgspec.Struct, frozen=True):
    """All nodes of one operator."""

    op: str
    count: int
    macs: int
    flops: int


class ModuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A module and everything beneath it."""

    path: str
    class_: str = msgspec.field(name="class")
    macs: int
    flops: int
    params: int


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    node: str
    op: str
    path: str
    macs: int
    flops: int
    bytes_read: int
    bytes_written: int
    precision: str
    exactness: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A count, and after `compare` also what the tools printed and why they differ.

    Round-trips through JSON; derived values (`delta`, `residual`) are written, and recomputed
    when read.
    """

    schema: str = SCHEMA
    model: ModelInfo
    totals: Totals
    macs_by_precision: dict[str, int]
    as_: Folded | None = msgspec.field(name="as", default=None)
    uncounted: tuple[UncountedRow, ...]
    by_op: tuple[OpRow, ...]
    modules: tuple[ModuleRow, ...]
    nodes: tuple[NodeRow, ...]
    setting: Setting | UnsetType = UNSET
    profiles: tuple[Profile | Failure, ...] | UnsetType = UNSET
    reconciliations: tuple[Reconciliation, ...] | UnsetType = UNSET
    branches: tuple[BranchRow, ...] = ()
    formulas: Formulas | UnsetType = UNSET

    @property
    def macs(self) -> int:
        """The native MACs."""
        return self.totals.macs

    @property
    def flops(self) -> int:
        """The native FLOPs: a count, not a rate."""
        return self.totals.flops

    @property
    def params(self) -> int:
        """Parameters, each storage once."""
        return self.totals.params

    @property
    def residuals(self) -> dict[str, Amount]:
        """The residual of every tool that answered."""
        found = self.reconciliations or ()
        return {one.tool: one.residual for one in found}

    def reconciliation(self, tool: str) -> Reconciliation:
        """The reconciliation of one tool. Raises KeyError when it did not answer."""
        for one in self.reconciliations or ():
            if one.tool == tool:
                return one
        raise KeyError(tool)

    def to_dict(self) -> dict[str, Any]:
        """The contract `crossflops/1` as plain values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for row, one in zip(
            plain.get("reconciliations", ()), self.reconciliations or (), strict=True
        ):
            row["delta"] = one.delta
            row["residual"] = one.residual
        return plain

    def to_json(self) -> str:
        """The contract as indented JSON, counts as exact integers."""
        return msgspec.json.format(msgspec.json.encode(self.to_dict()), indent=2).decode() + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "Report":
        """The report that `to_json` wrote. Raises msgspec.ValidationError on anything else."""
        return msgspec.json.decode(text, type=cls)

    def _repr_html_(self) -> str:
        from crossflops.render.html import html  # the one upward look: notebooks ask the noun

        return html(self)
