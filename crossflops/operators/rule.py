"""The facts about an operator, and how a module declares its operators.

A file has one `operator = Operators(domain)`, and over each formula stands `@operator(...)` with
the operator's name, its equation and all else that is known of it. Operators of one formula are
declared by calls: `operator("Identity", "0: data movement")(moved)`.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, TypeAlias, TypedDict, TypeVar, Unpack

import msgspec

from crossflops.errors import OperandError
from crossflops.ir.graph import Node, Op
from crossflops.ir.ledger import Cost
from crossflops.operators.gradient import NOT_YET, Backward

Formula: TypeAlias = Callable[[Node], Cost]
ConstantPart: TypeAlias = Callable[[Node, frozenset[int], Cost], Cost]
F = TypeVar("F", bound=Formula)
# What is wrong with the operands of a node, in one line; "" if nothing is wrong.
OperandProblem: TypeAlias = str
# A function that finds a problem of a node: `crossflops.operators.operands`.
Constraint: TypeAlias = Callable[[Node], OperandProblem]
Traffic: TypeAlias = Literal["touch", "view", "alias", "gather"]
Exactness: TypeAlias = Literal["exact", "bound", "estimate"]

ML = "ai.onnx.ml"
TRAINING = "ai.onnx.preview.training"
PREVIEW = "ai.onnx.preview"
MICROSOFT = "com.microsoft"
NCHWC = "com.microsoft.nchwc"
NHWC = "com.ms.internal.nhwc"
QONNX = "qonnx.custom_op.general"
FINN = "finn.custom_op.general"
BREVITAS = "onnx.brevitas"
TORCH = "torch.ops"
JAX = "jax"
TENSORFLOW = "tensorflow"
SCIPY = "scipy"  # what scikit-learn calls
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
# Those of its training graphs.
TRAINING_SCHEMAS = f"{_RUNTIME}orttraining/orttraining/core/graph/training_op_defs.cc"


class OperatorRule(msgspec.Struct, frozen=True, kw_only=True):
    """The rule by which one operator is counted.

    `formula` gives the kinds of work and never sets bytes: those follow from `traffic`.
    "touch" reads every input byte and writes every output byte; "view" moves nothing, since its
    result is a known value or a handle, and "alias" neither, since its result is its first input
    under another name, shape or type; "gather" reads its index inputs (all but the first) and as
    many data bytes as it writes. `tables` are inputs of a "touch" of which only as many bytes are
    read as the first output has.
    `equation` is the formula in the letters of the specification, `page` where that stands.
    `operand` is the input in whose element type the node computes. `doubt` says for a node
    whether the count is exact; a rule with none is always exact. `requires` says which operands
    the operator can take.
    `contracts` are the operands of a contraction, data first, whose element types are its
    precision (None: all inputs); `packed` is the precision of a weight that is packed into bytes.
    An operator `keeps` values where its result has elements of its first input as they are. One
    that quantizes and leaves its results real `stores` them in a precision, "" where that is not
    known; `numbers` are inputs whose floats are whole numbers to it, such as these bits.
    `parameters` says how many weights and biases a mixture of experts has, and how many of them
    a token uses; of the operands at the places of `experts`, with an axis for the expert in
    front, a token needs the part of its own experts. `constant_part` is the work that depends on
    no input of the model where the operands at these places do, of a node that costs so much.
    `backward` is the work of the gradients of its operands, or in words why that is not known;
    where it is another one `by_result`, results that miss the loss have no name in the node that
    it is given. `moved` gives the bytes that are read and written, where `traffic` does not. A
    rule that `is_own` is made of a formula of one's own.
    """

    formula: Formula
    equation: str
    page: str
    traffic: Traffic = "touch"
    operand: int = 0
    tables: tuple[int, ...] = ()
    doubt: Callable[[Node], Exactness] | None = None
    requires: tuple[Constraint, ...] = ()
    contracts: tuple[int, ...] | None = (0, 1)
    packed: Callable[[Node], str] | None = None
    keeps: bool = False
    stores: Callable[[Node], str] | None = None
    numbers: tuple[int, ...] = ()
    parameters: Callable[[Node], tuple[int, int]] | None = None
    experts: tuple[int, ...] = ()
    constant_part: ConstantPart | None = None
    backward: Backward | str = NOT_YET
    by_result: bool = False
    moved: Callable[[Node], tuple[int, int]] | None = None
    is_own: bool = False

    def exactness(self, node: Node) -> Exactness:
        """Return how exact the count of this node is: "exact", "bound" or "estimate"."""
        return self.doubt(node) if self.doubt is not None else "exact"

    def check_operands(self, node: Node) -> None:
        """Raise OperandError if the operator cannot take the operands of this node."""
        check_node_operands(node, self.requires)


def check_node_operands(node: Node, constraints: Iterable[Constraint]) -> None:
    """Raise OperandError if one of these constraints finds a problem with the operands of a node.

    An unknown shape contradicts nothing, and a malformed attribute is reported by the formula.
    Where no constraint finds a problem, ONNX's inference may have found one.
    """
    first = (
        (_reason_node_cannot_run,) if node.remedy else ()
    )  # the sizes are those of another form
    for constraint in (*first, *constraints, _reason_node_cannot_run):
        try:
            wrong = constraint(node)
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
            continue
        if wrong:
            hint = (constraint is _reason_node_cannot_run and node.remedy) or _HINT
            raise OperandError(f"node {node.key!r} ({node.op}) cannot run: {wrong}", hint)


def _reason_node_cannot_run(node: Node) -> str:
    """Return the reason, recorded at the node, why it cannot run; "" if there is none."""
    return node.objection


class Facts(TypedDict, total=False):
    """The fields of `OperatorRule` that have a default."""

    traffic: Traffic
    operand: int
    tables: tuple[int, ...]
    doubt: Callable[[Node], Exactness] | None
    contracts: tuple[int, ...] | None
    packed: Callable[[Node], str] | None
    keeps: bool
    stores: Callable[[Node], str] | None
    numbers: tuple[int, ...]
    parameters: Callable[[Node], tuple[int, int]] | None
    experts: tuple[int, ...]
    constant_part: ConstantPart | None
    backward: Backward | str
    by_result: bool


class UnruledOperator(NamedTuple):
    """An operator without a formula: why it has none, and which operands it can take."""

    why: str
    requires: tuple[Constraint, ...]


class Operators:
    """The operators of one file, most of them of one domain: `operator = Operators(domain)`.

    `rules` are the declared operators with a formula, by name and first version, `unruled` those
    without, by name.

    Args:
        domain: The ONNX domain, "" for ai.onnx.
        backward: The backward pass of operators that declare none.

    Example:
        >>> operator = Operators("my.domain")
        >>> @operator("Scale", "n(y), a product each", page="https://example.org/scale")
        ... def scale(node):
        ...     return Cost(muls=node.outputs[0].numel)
        >>> operator.declare_without_rule("Sort", "the number of comparisons depends on values")
        >>> [str(op) for op in operator.rules], list(operator.unruled)
        (['my.domain.Scale'], ['my.domain.Sort'])
    """

    def __init__(self, domain: str = "", backward: Backward | str = NOT_YET) -> None:
        self.domain = domain
        self.backward = backward
        self.rules: dict[Op, OperatorRule] = {}
        self.unruled: dict[str, UnruledOperator] = {}

    def __call__(
        self,
        types: str | Iterable[str],
        equation: str,
        *,
        since: int = 1,
        domain: str | None = None,
        page: str = "",
        requires: Constraint | Iterable[Constraint] = (),
        **facts: Unpack[Facts],
    ) -> Callable[[F], F]:
        """Declare one operator, or several with one formula, from schema version `since` on.

        Args:
            types: The name of the operator, or several names.
            equation: The formula in the letters of the specification.
            since: The first version of the schema for which it holds.
            domain: Another domain than that of the file.
            page: The page of the specification; by default that of the domain: for ai.onnx the
                operator's on onnx.ai, for com.microsoft its section of onnxruntime's
                ContribOperators.md.
            requires: Functions that say what is wrong with the operands of a node.
            facts: Other fields of `OperatorRule`.

        Returns:
            The decorator of the formula, a function from a `Node` to a `Cost`.

        Raises:
            ValueError: An operator version has a rule already.

        Example:
            >>> operator = Operators("my.domain")
            >>> @operator("Scale", "n(y)", page="https://example.org/scale")
            ... def scale(node):
            ...     return Cost(muls=node.outputs[0].numel)
            >>> operator("Shift", "n(y)", page="https://example.org/shift")(scale) is scale
            True
        """
        facts.setdefault("backward", self.backward)

        def register_formula(formula: F) -> F:
            """Return the formula, after registering it as the rule of these operators."""
            for op in self._ops_from_types(types, since, domain):
                if op in self.rules:
                    raise ValueError(_duplicate_rule_text(op))
                self.rules[op] = OperatorRule(
                    formula=formula,
                    equation=equation,
                    page=page or _operator_page(op),
                    requires=_constraint_tuple(requires),
                    **facts,
                )
            return formula

        return register_formula

    def declare_without_rule(
        self,
        types: str | Iterable[str],
        why: str,
        *,
        domain: str | None = None,
        requires: Constraint | Iterable[Constraint] = (),
    ) -> None:
        """Declare operators that have no formula in any version, so that their nodes are
        uncounted, not zero.

        Args:
            types: The name of the operator, or several names.
            why: The reason, as a report says it.
            domain: Another domain than that of the file.
            requires: Functions that say what is wrong with the operands of a node.
        """
        for op in self._ops_from_types(types, 1, domain):
            self.unruled[str(op)] = UnruledOperator(why, _constraint_tuple(requires))

    def _ops_from_types(
        self, types: str | Iterable[str], since: int, domain: str | None
    ) -> list[Op]:
        """Return an operator for each type name, with this first version and domain (None: the
        domain of the file).
        """
        domain = self.domain if domain is None else domain
        names = [types] if isinstance(types, str) else types
        return [Op(domain, name, since) for name in names]


def merge_operator_rules(families: Iterable[Operators]) -> dict[Op, OperatorRule]:
    """Return the rules of all these files by operator. Raises ValueError if one operator version
    has two rules.
    """
    rules: dict[Op, OperatorRule] = {}
    for family in families:
        for op, rule in family.rules.items():
            if op in rules:
                raise ValueError(_duplicate_rule_text(op))
            rules[op] = rule
    return rules


def _duplicate_rule_text(op: Op) -> str:
    """Return the message that an operator version has two rules."""
    return f"two rules for {op} since version {op.since}"


def _constraint_tuple(requires: Constraint | Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Return the constraints as a tuple, also if one is given alone."""
    return (requires,) if callable(requires) else tuple(requires)


def _operator_page(op: Op) -> str:
    """Return the address of the page that describes an operator."""
    anchor = f"#{op.type.lower()}-{op.since}" if op.since > 1 and not op.domain else ""
    return _PAGES[op.domain].format(op.type) + anchor


def estimate_exactness(_node: Node) -> Exactness:
    """Return "estimate" for every node, since the operator does not fix the algorithm."""
    return "estimate"


def upper_bound_exactness(_node: Node) -> Exactness:
    """Return "bound" for every node, since the work depends on values."""
    return "bound"


def constant_macs_unless_varying(*digits: int) -> ConstantPart:
    """Return a function that gives the MACs of a node if all operands at these indices are
    constant, else zero.
    """

    def macs_if_operands_constant(_node: Node, varying: frozenset[int], work: Cost) -> Cost:
        """Return the MACs of the node as a cost if none of the operands varies, else zero."""
        return Cost(macs=work.macs if varying.isdisjoint(digits) else 0)

    return macs_if_operands_constant


def input_bound_exactness(index: int) -> Callable[[Node], Exactness]:
    """Return a function that gives "bound" for a node with the optional input at this index, else
    "exact".
    """

    def exactness_by_optional_input(node: Node) -> Exactness:
        """Return "bound" if the node is given the optional input, else "exact"."""
        provided = len(node.inputs) > index and node.inputs[index] is not None
        return "bound" if provided else "exact"

    return exactness_by_optional_input
