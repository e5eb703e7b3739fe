"""A tool's printed number, the reason for its absence, or a count under its convention."""

from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.provenance import FormulaOrigin, WeightsKind
from crossflops.ir.trace import Kernel, Level, Setting

Amount: TypeAlias = int | float


class Entry(msgspec.Struct, frozen=True):
    """A number that a tool gives for one module and everything beneath it."""

    path: str
    amount: Amount


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """A formula of one's own that a tool was to be taught.

    `mechanism` is the tool's own way to take one, "" without any; `refused` is why the tool was
    not handed it, "" where it was. `calls` is the number of calls for which it used the formula.
    """

    formula: str
    module: str = ""
    origin: FormulaOrigin
    mechanism: str = ""
    refused: str = ""
    calls: int = 0


class Profile(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="profile"):
    """A tool's answer for one model. `printed_as` is the tool's own word for it.

    `python` is the interpreter that ran the tool, where that was another one. `kernels` are the
    fused ones that run in its setting, where the model was run in it to see. `weights` are there
    where it should have run without their numbers, and could not: why. `taught` are the formulas
    that the tool was to be taught, where that was requested.
    """

    tool: str
    version: str
    setting: Setting
    total: Amount
    printed_as: str
    params: Amount | None = None
    entries: tuple[Entry, ...] = ()
    verified: bool = False
    digest: str = ""
    seconds: float = 0.0
    python: str | UnsetType = UNSET
    kernels: tuple[Kernel, ...] | UnsetType = UNSET
    weights: WeightsKind | UnsetType = UNSET
    taught: tuple[Lesson, ...] | UnsetType = UNSET


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="failure"):
    """A tool that could not answer: the stage, the reason and the remedy. The others go on.

    At "predict" its convention raised, at "account" the way from the native count to its number.
    """

    tool: str
    stage: Literal[
        "load", "build", "run", "time", "memory", "crash", "accept", "predict", "account"
    ]
    message: str
    hint: str


# A count as a convention folds it.


class FoldedRow(msgspec.Struct, frozen=True):
    """The amount that a convention books for one call or one node, in its own unit.

    `at` is the key of the call or of the node, `path` the module under which it is booked.
    """

    at: str
    path: str
    amount: int


class ConventionCount(msgspec.Struct, frozen=True, kw_only=True):
    """The model counted by a convention, without running its tool.

    `assumed` is true when the tool could not have run this model, or when the calls that it
    looks at were inferred from the graph. `sees` says what the rows are about, and `uncounted`
    names nodes about which the convention cannot say anything.
    """

    tool: str
    edition: str
    total: Amount
    assumed: bool
    sees: Level = "module"
    rows: tuple[FoldedRow, ...] = ()
    uncounted: tuple[str, ...] = ()
