"""What is known about an operator: what it costs, in which equation, and where that stands."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

import msgspec

from crossflops.errors import OperandError
from crossflops.ir.cost import Cost
from crossflops.ir.graph import Node, Op

Formula: TypeAlias = Callable[[Node], Cost]
# What is wrong with the operands of a node, in one line, or "": `crossflops.operators.operands`.
Constraint: TypeAlias = Callable[[Node], str]
Traffic: TypeAlias = Literal["touch", "view", "gather"]
Exactness: TypeAlias = Literal["exact", "bound", "estimate"]

ML = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"
PREVIEW = "ai.onnx.preview"
MICROSOFT = "com.microsoft"
NCHWC = "com.microsoft.nchwc"
NHWC = "com.ms.internal.nhwc"
TORCH = "torch.ops"
TORCH_PAGES = "https://docs.pytorch.org/docs/stable/generated/torch."

_ONNX = "https://onnx.ai/onnx/operators/onnx_"
_RUNTIME = "https://github.com/microsoft/onnxruntime/blob/main/"
_SCHEMAS = f"{_RUNTIME}onnxruntime/core/graph/contrib_ops/"
_HINT = (
    "give other sizes (--input, --dim); if they are right, the file is damaged: export it again"
)
# Where the operators of a domain are described, by the operator's name.
_PAGES: dict[str, str] = {
    "": f"{_ONNX}_{{}}.html",
    ML: f"{_ONNX}aionnxml_{{}}.html",
    TRAINING: f"{_ONNX}aionnxpreviewtraining_{{}}.html",
    PREVIEW: f"{_ONNX}aionnxpreview_{{}}.html",
    MICROSOFT: f"{_RUNTIME}docs/ContribOperators.md#com.microsoft.{{}}",
    NCHWC: f"{_SCHEMAS}nchwc_schema_defs.cc",
    NHWC: f"{_SCHEMAS}internal_nhwc_onnx_schemas.cc",
}
# The schemas that ai.onnx dropped, and those that onnxruntime adds to it.
EXTINCT = f"{_SCHEMAS}onnx_deprecated_operators.cc"
ADDED = f"{_SCHEMAS}contrib_defs.cc"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """How one operator is counted.

    `formula` gives the kinds of work and never sets bytes: those follow from `traffic`.
    "touch" reads every input byte and writes every output byte; "view" moves nothing; "gather"
    reads its index inputs (all but the first) and as many data bytes as it writes. `tables` are
    inputs of a "touch" of which only as many bytes are read as the first output has.
    `equation` is the formula in the letters of the specification, `page` where that stands.
    `operand` is the input in whose element type the node computes. `doubt` says for a node
    whether the count is exact; a rule with none is always exact. `requires` says which operands
    the operator can take.
    """

    formula: Formula
    equation: str
    page: str
    traffic: Traffic = "touch"
    operand: int = 0
    tables: tuple[int, ...] = ()
    doubt: Callable[[Node], Exactness] | None = None
    requires: tuple[Constraint, ...] = ()

    def exactness(self, node: Node) -> Exactness:
        """How far the count of this node can be trusted."""
        return self.doubt(node) if self.doubt is not None else "exact"

    def check(self, node: Node) -> None:
        """Raises OperandError where the node has operands that the operator cannot take."""
        check(node, self.requires)


def check(node: Node, constraints: Iterable[Constraint]) -> None:
    """Raises OperandError where a constraint says that something is wrong with a node's operands.

    What is not known is no contradiction, and of an attribute that is not what it should be the
    formula says so. Where no constraint does, ONNX's inference may have found what is wrong.
    """
    for constraint in (*constraints, _objection):
        try:
            wrong = constraint(node)
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
            continue
        if wrong:
            raise OperandError(f"node {node.key!r} ({node.op}) cannot run: {wrong}", _HINT)


def _objection(node: Node) -> str:
    return node.objection


Entry: TypeAlias = tuple[Op, Rule]


def entry(
    type: str,
    formula: Formula,
    equation: str,
    *,
    domain: str = "",
    since: int = 1,
    page: str = "",
    traffic: Traffic = "touch",
    operand: int = 0,
    tables: tuple[int, ...] = (),
    doubt: Callable[[Node], Exactness] | None = None,
    requires: Constraint | tuple[Constraint, ...] = (),
) -> Entry:
    """One row of a family: an operator from schema version `since` on, and its rule.

    The page is that of its domain: for ai.onnx the operator's on onnx.ai, at that version where
    `since` is above 1; for com.microsoft its section of onnxruntime's ContribOperators.md.
    """
    anchor = f"#{type.lower()}-{since}" if since > 1 and not domain else ""
    rule = Rule(
        formula=formula,
        equation=equation,
        page=page or _PAGES[domain].format(type) + anchor,
        traffic=traffic,
        operand=operand,
        tables=tables,
        doubt=doubt,
        requires=requires if isinstance(requires, tuple) else (requires,),
    )
    return Op(domain, type, since), rule


def assemble(families: Iterable[Iterable[Entry]]) -> Mapping[Op, Rule]:
    """All rows as one mapping. Raises ValueError when an operator version has two rules."""
    rules: dict[Op, Rule] = {}
    for family in families:
        for op, rule in family:
            if op in rules:
                raise ValueError(f"two rules for {op} since version {op.since}")
            rules[op] = rule
    return MappingProxyType(rules)


def estimated(_node: Node) -> Exactness:
    """The operator does not fix the algorithm: an estimate, always."""
    return "estimate"


def bounded(_node: Node) -> Exactness:
    """The work depends on values: an upper bound, always."""
    return "bound"


def bound_by_input(index: int) -> Callable[[Node], Exactness]:
    """An upper bound where the input of that index is given: its values may save work."""

    def judge(node: Node) -> Exactness:
        given = len(node.inputs) > index and node.inputs[index] is not None
        return "bound" if given else "exact"

    return judge
