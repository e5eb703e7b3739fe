"""Everything that a renderer may know: the JSON contract `crossflops/1`, as values."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.core.consensus import Consensus
from crossflops.core.contrast import Contrast, contrast
from crossflops.core.focus import focus
from crossflops.core.folded import Folded
from crossflops.core.formulas import Formulas
from crossflops.core.ledger import Exactness
from crossflops.core.memory import Memory
from crossflops.core.observation import Run
from crossflops.core.profile import Amount, Failure, Profile
from crossflops.core.reconciliation import ParamsReconciliation, Reconciliation
from crossflops.core.trace import Setting
from crossflops.core.view import By, View, view

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
    `exactness` says of "macs" and of "flops" how far they can be trusted: "bound" where some of
    them depend on data and are counted in full, "estimate" where some algorithm is not fixed.
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
    exactness: dict[str, Exactness] | UnsetType = UNSET


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
    """One node.

    `class` is that of the module that it belongs to. `kind` and `target` say how the call that it
    came from reads in a traced graph of PyTorch (call_module, call_function, call_method); a file
    has no calls, and its nodes have neither.
    """

    node: str
    op: str
    path: str
    macs: int
    flops: int
    bytes_read: int
    bytes_written: int
    precision: str
    exactness: str
    class_: str | UnsetType = msgspec.field(name="class", default=UNSET)
    kind: str | UnsetType = UNSET
    target: str | UnsetType = UNSET


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A count, and after `compare` also what the tools printed and why they differ.

    Round-trips through JSON; derived values (`delta`, `residual`) are written, and recomputed
    when read. `module` is the one that the rows are about, where that is not the model;
    `made_with` are versions of what made the count.
    """

    schema: str = SCHEMA
    model: ModelInfo
    totals: Totals
    macs_by_precision: dict[str, int]
    as_: Folded | None = msgspec.field(name="as", default=None)
    as_also: tuple[Folded, ...] | UnsetType = UNSET
    uncounted: tuple[UncountedRow, ...]
    by_op: tuple[OpRow, ...]
    modules: tuple[ModuleRow, ...]
    nodes: tuple[NodeRow, ...]
    memory: Memory | UnsetType = UNSET
    setting: Setting | UnsetType = UNSET
    profiles: tuple[Profile | Failure, ...] | UnsetType = UNSET
    reconciliations: tuple[Reconciliation, ...] | UnsetType = UNSET
    branches: tuple[BranchRow, ...] = ()
    formulas: Formulas | UnsetType = UNSET
    observed: Run | UnsetType = UNSET
    between: Contrast | UnsetType = UNSET
    module: ModuleRow | UnsetType = UNSET
    consensus: Consensus | UnsetType = UNSET
    made_with: dict[str, str] | UnsetType = UNSET

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
    def folds(self) -> tuple[Folded, ...]:
        """The model as every convention counts it that was asked for, in that order."""
        return ((self.as_,) if self.as_ is not None else ()) + (self.as_also or ())

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

    def at(self, path: str) -> "Report":
        """The same for one module and what is beneath it, such as "layer1.0".

        Raises UnknownNameError where there is no such module.
        """
        return focus(self, path)

    def contrast(self, first: str, second: str) -> Contrast:
        """Why two tools differ from each other. Raises KeyError when one did not answer."""
        return contrast(self.reconciliation(first), self.reconciliation(second))

    def view(
        self, by: By = "op", top: int | None = None, depth: int | None = None, unit: str = "macs"
    ) -> View:
        """One table of the report.

        By "op" (ONNX operator), "module" (the tree of modules, each with all beneath it; `depth`
        levels of it), "node" (graph nodes, in their order) or "type" (class of the innermost
        module around a node). `top` keeps the largest rows, by the first convention if one was
        asked for, else by `unit`. Raises InputError for what does not go together.
        """
        return view(self, by, top, depth, unit)

    def to_dict(self) -> dict[str, Any]:
        """The contract `crossflops/1` as plain values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for row, one in zip(
            plain.get("reconciliations", ()), self.reconciliations or (), strict=True
        ):
            row["delta"] = one.delta
            row["residual"] = one.residual
            if isinstance(one.params, ParamsReconciliation):
                row["params"] |= {"delta": one.params.delta, "residual": one.params.residual}
        if isinstance(self.between, Contrast):
            plain["between"] |= {"delta": self.between.delta, "residual": self.between.residual}
            for row, each in zip(
                plain["between"]["differences"], self.between.differences, strict=True
            ):
                row["amount"] = each.amount
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
