"""Define the report as values: everything that pages show and that the JSON contract
`crossflops/1` has.
"""

import math
from math import prod
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.formula_account import FormulaReport
from crossflops.ir.ledger import InputInfo as InputInfo
from crossflops.ir.ledger import Memory
from crossflops.ir.ledger import ModelInfo as ModelInfo
from crossflops.ir.ledger import Totals as Totals
from crossflops.ir.measurement import Run
from crossflops.ir.polynomial import Formulas
from crossflops.ir.profile import Amount, ConventionCount, Failure, Profile
from crossflops.ir.provenance import FormulaOrigin, RequestRecord, WeightsKind, report_title
from crossflops.ir.reconciliation import Reconciliation
from crossflops.ir.trace import Setting
from crossflops.ir.training import OptimizerStep, Training
from crossflops.ir.workload import Workload
from crossflops.report.comparison import (
    Against,
    Consensus,
    Contrast,
    add_account_differences,
    add_contrast_differences,
    add_model_differences,
    contrast_accounts,
)
from crossflops.report.llm import add_formula_differences

SCHEMA = "crossflops/1"


class UncountedRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node that was not counted. `path` is its module, "" in the model itself.

    `inputs` are the shapes that its work depends on, "?" where one is not known. `stub` are the
    lines of a formula for it, where one can be written.
    """

    node: str
    op: str
    reason: str
    path: str = ""
    inputs: tuple[str, ...] = ()
    stub: str = ""


class CustomOperatorRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An operator that the package has no rule for, and what it was counted by.

    That is a formula (its function, its source and its `origin`, with the digest of the file), or
    what its own body runs, in a `run` on "fake" or "real" tensors. `pattern` is the name of the
    formula where that has a "*" and so is not the operator's own.
    """

    op: str
    by: Literal["formula", "body"]
    calls: int
    macs: int
    flops: int
    exactness: str = "exact"
    formula: str = ""
    source: str = ""
    origin: FormulaOrigin | UnsetType = UNSET
    run: str = ""
    pattern: str = ""


class BranchRow(msgspec.Struct, frozen=True):
    """An If of which one branch, or the sum of both, was counted, with the reason."""

    node: str
    counted: str


class ThumbRow(msgspec.Struct, frozen=True):
    """MACs by which a training step differs from 3 x forward, for one cause."""

    cause: str
    macs: int


class TrainingReport(Training, frozen=True, kw_only=True):
    """A training step without the optimizer's: see `crossflops.ir.training.TrainingStep`.

    `three_forward_macs` is the rule of thumb, and `differences` lead from there to the MACs of
    the step. Of a model of tokens 6 N D is the other one, with what leads from there to 3 x
    forward. `uncounted` names the nodes whose backward pass has no count: they are in no sum.
    `optimizer` is its step, where one was named: it is in no other number.
    """

    three_forward_macs: int
    differences: tuple[ThumbRow, ...]
    six_n_d_macs: int | UnsetType = UNSET
    six_n_d_differences: tuple[ThumbRow, ...] = ()
    uncounted: tuple[UncountedRow, ...]
    optimizer: OptimizerStep | UnsetType = UNSET


class OpRow(msgspec.Struct, frozen=True):
    """All nodes of one operator."""

    op: str
    count: int
    macs: int
    flops: int
    training: Training | UnsetType = UNSET


Shape: TypeAlias = tuple[int, ...] | None  # None: not known


class ModuleShapes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The inputs and outputs of a module's first call, and its own parameters by name."""

    inputs: tuple[Shape, ...] = ()
    outputs: tuple[Shape, ...] = ()
    weights: dict[str, tuple[int, ...]] = {}

    @property
    def kernel(self) -> tuple[int, ...]:
        """The shape of the module's own parameter with the most elements; () without
        parameters.
        """
        return max(self.weights.values(), key=prod, default=())


class ModuleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A module and everything beneath it. Its shapes are present on request."""

    path: str
    class_: str = msgspec.field(name="class")
    macs: int
    flops: int
    params: int
    training: Training | UnsetType = UNSET
    shapes: ModuleShapes | UnsetType = UNSET


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node.

    `class` is that of the module that it belongs to. `kind` and `target` say how the call that it
    came from reads in a traced graph of PyTorch (call_module, call_function, call_method); a file
    has no calls, and its nodes have neither. `depends_on_inputs` is there, and true, where other
    values of the inputs would give the node other sizes, or leave it out.
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
    depends_on_inputs: bool | UnsetType = UNSET
    training: Training | UnsetType = UNSET


class PerToken(msgspec.Struct, frozen=True):
    """The work for one token: the average over the `tokens` of the inputs."""

    tokens: int
    macs: int | float
    flops: int | float

    @classmethod
    def from_totals(cls, inputs: tuple[InputInfo, ...], totals: Totals) -> "PerToken | None":
        """Return MACs and FLOPs per token, if the model's inputs are token ids of shape [batch,
        tokens], else None.
        """
        shapes = [
            spec.shape
            for spec in inputs
            if spec.name == "input_ids" and "int" in spec.dtype and len(spec.shape) == 2
        ]
        tokens = math.prod(shapes[0]) if shapes else 0
        if not tokens:
            return None
        macs, flops = (
            total // tokens if total % tokens == 0 else total / tokens
            for total in (totals.macs, totals.flops)
        )
        return cls(tokens, macs, flops)


class PipelinePart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a pipeline, with the amounts of one of its `times` runs.

    `target` is what the pipeline's file names, and `inputs` are those of a run, as on the command
    line. A part with the same model as an earlier one, by target and arguments, has the name of
    that in `weights_of`: its `params` are those of the earlier part. `uncounted` is the number of
    nodes that have no count.
    """

    name: str
    target: str
    times: int
    inputs: tuple[str, ...]
    macs: int
    flops: int
    bytes_read: int
    bytes_written: int
    params: int
    uncounted: int
    weights_of: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A count, and after `compare` also the tools' numbers and the reasons of their differences.

    Round-trips through JSON; derived values (`delta`, `residual`) are written, and recomputed
    when read. `module` is the one that the rows are about, where that is not the model;
    `request` is what was asked, `made_with` are versions of what made the count, `weights` say
    whether the model had any. `custom_operators` are those that formulas of one's own, or their
    own bodies, count. `parts` are those of a pipeline: the other rows have all of their runs.
    `warnings` are sentences: what the reader of the count should know of the
    model, such as sizes that override those of a file.
    """

    schema: str = SCHEMA
    model: ModelInfo
    totals: Totals
    macs_by_precision: dict[str, int]
    as_: ConventionCount | None = msgspec.field(name="as", default=None)
    as_also: tuple[ConventionCount, ...] | UnsetType = UNSET
    uncounted: tuple[UncountedRow, ...]
    by_op: tuple[OpRow, ...]
    modules: tuple[ModuleRow, ...]
    nodes: tuple[NodeRow, ...]
    memory: Memory | UnsetType = UNSET
    per_token: PerToken | UnsetType = UNSET
    setting: Setting | UnsetType = UNSET
    profiles: tuple[Profile | Failure, ...] | UnsetType = UNSET
    reconciliations: tuple[Reconciliation, ...] | UnsetType = UNSET
    branches: tuple[BranchRow, ...] = ()
    formulas: Formulas | UnsetType = UNSET
    observed: Run | UnsetType = UNSET
    between: Contrast | UnsetType = UNSET
    module: ModuleRow | UnsetType = UNSET
    consensus: Consensus | UnsetType = UNSET
    request: RequestRecord | UnsetType = UNSET
    made_with: dict[str, str] | UnsetType = UNSET
    weights: WeightsKind | UnsetType = UNSET
    against: Against | UnsetType = UNSET
    against_modules: tuple[ModuleRow, ...] | UnsetType = UNSET
    against_nodes: tuple[NodeRow, ...] | UnsetType = UNSET
    training: TrainingReport | UnsetType = UNSET
    custom_operators: tuple[CustomOperatorRow, ...] | UnsetType = UNSET
    llm: FormulaReport | UnsetType = UNSET
    workload: Workload | UnsetType = UNSET
    parts: tuple[PipelinePart, ...] | UnsetType = UNSET
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the model in titles, with its digest or target."""
        return report_title(self.model.name, self.model.digest, self.request)

    @property
    def scope(self) -> ModuleRow | Totals:
        """The row of the module to which the report is restricted, or the totals of the model."""
        return self.module if isinstance(self.module, ModuleRow) else self.totals

    @property
    def compared(self) -> int:
        """The native MACs with which tools are compared: those of the training step if there is
        one, else of the forward pass.
        """
        step = self.training
        return step.macs if isinstance(step, TrainingReport) else self.scope.macs

    @property
    def macs(self) -> int:
        """The native MACs of the model."""
        return self.totals.macs

    @property
    def flops(self) -> int:
        """The native FLOPs: a count, not a rate."""
        return self.totals.flops

    @property
    def params(self) -> int:
        """The number of parameters of the model; a shared parameter counts once."""
        return self.totals.params

    @property
    def folds(self) -> tuple[ConventionCount, ...]:
        """The totals by each tool convention that was requested."""
        return ((self.as_,) if self.as_ is not None else ()) + (self.as_also or ())

    @property
    def residuals(self) -> dict[str, Amount]:
        """The part of each tool's total that no cause explains, as {tool: amount}."""
        accounts = self.reconciliations or ()
        return {account.tool: account.residual for account in accounts}

    def reconciliation(self, tool: str) -> Reconciliation:
        """Return the explanation of one tool's total by causes; raise KeyError if the report does
        not have the tool.
        """
        for account in self.reconciliations or ():
            if account.tool == tool:
                return account
        raise KeyError(tool)

    def contrast(self, first: str, second: str) -> Contrast:
        """Return the explanation of the difference between two tools' totals; raise KeyError if
        the report does not have one of them.
        """
        return contrast_accounts(self.reconciliation(first), self.reconciliation(second))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts and lists, by the schema `crossflops/1`."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        add_account_differences(plain.get("reconciliations", ()), self.reconciliations or ())
        if isinstance(self.between, Contrast):
            add_contrast_differences(plain["between"], self.between)
        if isinstance(self.against, Against):
            add_model_differences(plain["against"], self.against)
        if isinstance(self.llm, FormulaReport):
            add_formula_differences(plain["llm"], self.llm)
        return plain

    def to_json(self) -> str:
        """Return the report as indented JSON, with counts as exact integers."""
        return msgspec.json.format(msgspec.json.encode(self.to_dict()), indent=2).decode() + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "Report":
        """Return the report that `to_json` wrote; raise msgspec.ValidationError for another
        text.
        """
        return msgspec.json.decode(text, type=cls)
