"""Formulas of a user: a function that gives the cost of an operator for which ONNX has no form.

    @crossflops.operator("mylib::flash", source="FlashAttention, section 3")
    def flash(call):
        batch, heads, queries, size = call.input("q").shape
        keys = call.input("k").shape[2]
        return crossflops.Cost(macs=2 * batch * heads * queries * keys * size)

A formula sees one call: its operands and results by position and by name, and its plain arguments.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import prod
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from crossflops.errors import CrossflopsError, FormulaError
from crossflops.ir.graph import Node, TensorSpec
from crossflops.ir.ledger import ZERO, Cost, Exactness
from crossflops.ir.provenance import FormulaOrigin
from crossflops.operators.gradient import NOT_YET, Gradient, no_gradient
from crossflops.operators.rule import OperatorRule, Traffic

WORK = ("macs", "adds", "muls", "divs", "compares", "specials")
TRAFFIC: tuple[Traffic, ...] = ("touch", "view", "alias", "gather")
DOUBTS: tuple[Exactness, ...] = ("exact", "bound", "estimate")
WILDCARD = "*"  # in the name of a formula, for the part that differs between operators


# What a formula sees: one call of its operator.


class UncountedCallError(ValueError):
    """An error of a formula that cannot tell the work of a call: the node is uncounted."""


class CallTensor:
    """A tensor of a call: its shape and element type, and no values.

    Raises UncountedCallError, which makes the node uncounted, where its shape is not known.
    """

    __slots__ = ("spec",)

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec

    @property
    def name(self) -> str:
        """The name of the tensor in the graph."""
        return self.spec.name

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        if self.spec.shape is None:
            raise UncountedCallError(f"the shape of {self.spec.name!r} is not known")
        return self.spec.shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> str:
        """The element type, such as "float32" or "bfloat16"."""
        return self.spec.dtype

    @property
    def numel(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of the tensor in bytes."""
        self.shape  # noqa: B018  says which shape is missing
        return self.spec.nbytes

    def __repr__(self) -> str:
        sizes = "?" if self.spec.shape is None else "x".join(map(str, self.spec.shape))
        return f"{self.spec.dtype}[{sizes}]"


class OperatorCall:
    """One call of an operator, as its formula sees it.

    `inputs` and `outputs` are its tensors by position (lists of tensors flattened, those that
    are left out missing; in an ONNX node None), `attributes` its plain arguments by name, with
    the defaults of the schema where there is one.

    Args:
        node: The node of the graph that is the call.
        names: The names of its operands, where the node does not know them.

    Example:
        >>> import crossflops
        >>> from crossflops.ir.graph import Node, Op, TensorSpec
        >>> q = TensorSpec("q", "float32", (2, 4, 128, 64))
        >>> node = Node(key="flash", op=Op("mylib", "flash", 1), inputs=(q,), outputs=(q,))
        >>> call = crossflops.OperatorCall(node, names=("query",))
        >>> call.input("query").shape, call.result.numel, call.has_input("mask")
        ((2, 4, 128, 64), 65536, False)
    """

    def __init__(self, node: Node, names: tuple[str, ...] = ()) -> None:
        self._node = node
        self._names = node.operand_names or names

    @property
    def operator(self) -> str:
        """The name of the operator in the graph, such as "mylib.flash.default"."""
        return str(self._node.op)

    @property
    def path(self) -> str:
        """The path of the module that made the call."""
        return self._node.path

    @cached_property
    def inputs(self) -> tuple[Any, ...]:
        """The operands in their order; None for one that is not given."""
        return tuple(CallTensor(spec) if spec is not None else None for spec in self._node.inputs)

    @cached_property
    def outputs(self) -> tuple[Any, ...]:
        """The results in their order; None for one that the call does not have."""
        return tuple(CallTensor(spec) if spec is not None else None for spec in self._node.outputs)

    @property
    def result(self) -> CallTensor:
        """The first result."""
        if not self.outputs or self.outputs[0] is None:
            raise UncountedCallError(f"{self.operator} has no result")
        first: CallTensor = self.outputs[0]
        return first

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """The arguments that are not tensors, by name: numbers, texts, and tuples of them, without
        those that are None.
        """
        return {name.removesuffix("_") if name == "self_" else name: value
                for name, value in self._node.attrs.items()}  # fmt: skip

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operands by the operator's schema; () if the schema is unknown."""
        return self._names

    def input(self, name: str) -> CallTensor:
        """Return the operand with this name. Raises LookupError if the call has none."""
        operands = self.inputs_named(name)
        if not operands:
            known = f"it has {', '.join(dict.fromkeys(self._names))}" if self._names else (
                "the names of its operands are not known: take call.inputs[i]"
            )  # fmt: skip
            raise LookupError(f"this call of {self.operator} has no tensor {name!r}; {known}")
        return operands[0]

    def has_input(self, name: str) -> bool:
        """Return whether the call is given an operand with this name."""
        return bool(self.inputs_named(name))

    def inputs_named(self, name: str) -> tuple[CallTensor, ...]:
        """Return all operands with this name: several for a list of tensors, () if it is not
        given.
        """
        pairs = zip(self._names, self.inputs, strict=False)
        return tuple(operand for known, operand in pairs if known == name and operand is not None)

    def values(self, position: int) -> tuple[int, ...] | None:
        """Return the integers in the operand at this position; None if they are not known without
        a run.
        """
        return self._node.values.get(position)

    def uncounted(self, reason: str) -> UncountedCallError:
        """Return an exception for the formula to raise if the work of this call is unknown, with
        the reason.
        """
        return UncountedCallError(reason)


# What is given of a formula.

Count: TypeAlias = Callable[[OperatorCall], Cost]
# Of a call, the names (or positions) of operands whose gradients are wanted.
CountBackward: TypeAlias = Callable[[OperatorCall, frozenset[Any]], "Cost | Gradient"]
Moved: TypeAlias = Callable[[OperatorCall], tuple[int, int]]
Doubt: TypeAlias = Exactness | Callable[[OperatorCall], Exactness]
F = TypeVar("F", bound=Callable[..., Any])


class Formula(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A formula of one's own, as it was registered.

    `name` is that of the operator: "namespace::name", of any overload, or a pattern for several
    names, in which "*" stands for any letters. With `module`, the class at "package.module:Class"
    is what is counted: a call of it is one node, which bears the name.
    `backward` is the work of the gradients, "none" where there are none, "" where it is not said.
    `bytes` is how the operator moves its tensors, or a function that returns the bytes that it
    reads and writes. `reference` computes the same in plain PyTorch, on operands of `shapes`:
    what `crossflops check-formula` holds the formula against.
    """

    name: str
    function: Count
    module: str = ""
    backward: CountBackward | Literal["", "none"] = ""
    bytes: Traffic | Moved = "touch"
    doubt: Doubt = "exact"
    source: str = ""
    reference: Callable[..., Any] | None = None
    shapes: Mapping[str, Any] | Callable[..., Any] = {}
    batch: str = ""
    names: tuple[str, ...] = ()
    origin: FormulaOrigin

    @property
    def key(self) -> str:
        """The name under which the formula of a node is found: "namespace.name"."""
        return self.name.replace("::", ".")

    @cached_property
    def pattern(self) -> re.Pattern[str] | None:
        """The regular expression for keys if the name is a pattern, in which "*" stands for any
        characters except a dot; None if it is the name of one operator.
        """
        if WILDCARD not in self.name:
            return None
        return re.compile(r"[^.]*".join(map(re.escape, self.key.split(WILDCARD))))

    def matches_any(self, keys: Iterable[str]) -> bool:
        """Return whether the name is a pattern that matches one of these keys of an operator."""
        return self.pattern is not None and any(map(self.pattern.fullmatch, keys))

    @property
    def text_for_messages(self) -> str:
        """The formula in words for messages: the name of its function, of its operator, and where
        it is defined.
        """
        return f"formula {self.function.__name__!r} of {self.name} ({self.origin})"

    @property
    def class_names(self) -> frozenset[str]:
        """The names of the class of a formula, "package.module.Class": as it is written, and as
        the class itself has it, which may be imported from another module; empty for an operator.
        """
        kind = find_loaded_class(self.module) if self.module else None
        names = {self.module.replace(":", ".")} if self.module else set()
        if isinstance(kind, type):
            names.add(plain_class_name(f"{kind.__module__}.{kind.__qualname__}"))
        return frozenset(names)

    def is_same_as(self, other: "Formula") -> bool:
        """Return whether the other one is the same formula read again: the same function from the
        same source.
        """
        own, its = self.function, other.function
        if own.__qualname__ != its.__qualname__:
            return False
        return self.origin.digest == other.origin.digest or own.__module__ == its.__module__


_COLLECTORS: list[set[str]] = []


@contextmanager
def recording_used_formula_names() -> Iterator[set[str]]:
    """Yield a set that gets the name of each formula that counts a call in the block."""
    names: set[str] = set()
    _COLLECTORS.append(names)
    try:
        yield names
    finally:
        _COLLECTORS.remove(names)


def operator_rule_of_formula(formula: Formula) -> OperatorRule:
    """Return the rule that counts an operator by this formula; it raises FormulaError if the
    formula returns no valid cost.
    """

    def cost_by_formula(node: Node) -> Cost:
        """Return the cost that the formula gives for a node."""
        for names in _COLLECTORS:
            names.add(formula.name)
        return _formula_cost(formula, formula.function, OperatorCall(node, formula.names))

    def exactness_by_formula(node: Node) -> Exactness:
        """Return how exact the formula says its cost of a node is: "exact", "bound" or
        "estimate".
        """
        if not callable(formula.doubt):
            return formula.doubt
        doubt = _call_function(formula, formula.doubt, OperatorCall(node, formula.names))
        if doubt not in DOUBTS:
            raise _formula_error(
                formula,
                f"has a function doubt= that returns {doubt!r}",
                f"return one of {_quote_values(DOUBTS)}",
            )
        judged: Exactness = doubt
        return judged

    def bytes_read_and_written(node: Node) -> tuple[int, int]:
        """Return (bytes read, bytes written) that the formula gives for a node."""
        assert callable(formula.bytes)
        pair = _call_function(formula, formula.bytes, OperatorCall(node, formula.names))
        if (
            not isinstance(pair, tuple)
            or len(pair) != 2
            or not all(map(_is_non_negative_integer, pair))
        ):
            raise _formula_error(
                formula,
                f"has a function bytes= that returns {_short_text(pair)}, not two numbers",
                "return a tuple of two whole numbers of at least 0: (bytes read, bytes written)",
            )
        return pair[0], pair[1]

    def gradient_by_formula(node: Node, trainable: frozenset[int], _forward: Cost) -> Gradient:
        """Return the cost of the gradients that the formula gives for a node."""
        return _formula_gradient(formula, OperatorCall(node, formula.names), trainable)

    return OperatorRule(
        formula=cost_by_formula,
        equation=_formula_origin_and_summary(formula),
        page=formula.source,
        traffic=formula.bytes if isinstance(formula.bytes, str) else "touch",
        moved=bytes_read_and_written if callable(formula.bytes) else None,
        doubt=exactness_by_formula,
        contracts=None,
        is_own=True,
        backward=(
            gradient_by_formula if callable(formula.backward)
            else no_gradient if formula.backward == "none"
            else f"{formula.text_for_messages} does not declare a backward pass"
            if formula.origin.kind != "crossflops"
            else NOT_YET
        ),
    )  # fmt: skip


def _formula_origin_and_summary(formula: Formula) -> str:
    """Return where the formula is defined, and the first line of its docstring, as one text."""
    first, *_ = (formula.function.__doc__ or "").strip().splitlines() or [""]
    return f"formula of {formula.origin}" + (f": {first}" if first else "")


def _call_function(formula: Formula, function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function of a formula. Raises FormulaError if the function raises an
    error.
    """
    try:
        return function(*args)
    except (UncountedCallError, CrossflopsError):
        raise
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise _formula_error(
            formula,
            f"raises {what} on {_call_text(args[0])}",
            "correct the formula; if it cannot count a call, write `raise call.uncounted(reason)`",
        ) from error


def _formula_error(formula: Formula, what: str, remedy: str) -> FormulaError:
    """Return the error with the message that a formula does `what`, and the remedy as its hint."""
    return FormulaError(f"{formula.text_for_messages} {what}", remedy)


def _call_text(call: OperatorCall) -> str:
    """Return the operands of a call as text in parentheses for a message, with "-" for one that is
    not given.
    """
    operands = ", ".join("-" if operand is None else repr(operand) for operand in call.inputs)
    return f"({operands})"


def _short_text(value: object) -> str:
    """Return the repr of a value, or the name of its type if the repr is long."""
    text = repr(value)
    return text if len(text) < 60 else f"a {type(value).__name__}"


def _is_non_negative_integer(value: object) -> bool:
    """Return whether a value is an integer, not negative and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_integer_of_numpy(value: object) -> bool:
    """Return whether a value is an integer, but not one of Python."""
    return hasattr(value, "__index__") and not isinstance(value, int)


def _formula_cost(formula: Formula, function: Callable[..., Any], *args: Any) -> Cost:
    """Return the cost that a function of a formula gives. Raises FormulaError if it is no valid
    cost.
    """
    return _require_cost(formula, _call_function(formula, function, *args))


def _require_cost(formula: Formula, cost: object) -> Cost:
    """Return the value if it is a valid Cost without bytes. Raises FormulaError otherwise."""
    if not isinstance(cost, Cost):
        raise _formula_error(
            formula,
            f"returns {_short_text(cost)}, which is not a cost",
            "return a crossflops.Cost",
        )
    for kind in cost.__struct_fields__:
        amount = getattr(cost, kind)
        if not _is_non_negative_integer(amount):
            raise _formula_error(
                formula,
                f"returns {kind}={amount!r}, which is not a count",
                "return an int of Python: put int(...) around a number of NumPy"
                if _is_integer_of_numpy(amount)
                else "return a whole number of at least 0; divide with //",
            )
    if cost.bytes_read or cost.bytes_written:
        raise _formula_error(
            formula, "returns bytes in its cost", "give the bytes with bytes= of the decorator"
        )
    return cost


def _formula_gradient(formula: Formula, call: OperatorCall, trainable: frozenset[int]) -> Gradient:
    """Return the cost of the gradients that a formula gives for a call, by the position of the
    operand.
    """
    assert callable(formula.backward)
    names = call.names
    by_name = frozenset(
        names[position] if position < len(names) else position for position in trainable
    )
    work = _call_function(formula, formula.backward, call, by_name)
    if isinstance(work, Cost):
        return Gradient(dict.fromkeys(trainable, ZERO), inner=_require_cost(formula, work))
    if not isinstance(work, Gradient):
        raise _formula_error(
            formula,
            f"returns {_short_text(work)} for its backward pass, which is not a cost",
            "return a crossflops.Cost, or a crossflops.Gradient",
        )
    operands: dict[int, Cost] = {}
    costs: Mapping[Any, Cost] = work.operands
    for operand, cost in costs.items():
        position = names.index(operand) if operand in names else operand
        if not isinstance(position, int):
            raise _formula_error(
                formula,
                f"has a gradient of {operand!r}, which is not an operand",
                f"write one of the operands: {', '.join(names)}"
                if names
                else "write the position of an operand: 0, 1, ...",
            )
        operands[position] = _require_cost(formula, cost)
    for part in (work.inner, work.recomputed):
        _require_cost(formula, part)
    return msgspec.structs.replace(work, operands=operands)


# The registry, and the decorator that registers.


class FormulaRegistry(msgspec.Struct, frozen=True, dict=True):
    """Formulas in the order in which they were registered. A value: adding makes another one."""

    formulas: tuple[Formula, ...] = ()

    def __iter__(self) -> Iterator[Formula]:
        """Return an iterator over the formulas."""
        return iter(self.formulas)

    def __len__(self) -> int:
        """Return the number of formulas."""
        return len(self.formulas)

    @cached_property
    def by_key(self) -> Mapping[str, Formula]:
        """The formulas by the name of their operator, "namespace.name"."""
        return {formula.key: formula for formula in self.formulas}

    @cached_property
    def patterns(self) -> tuple[Formula, ...]:
        """The formulas whose name is a pattern."""
        return tuple(formula for formula in self.formulas if formula.pattern is not None)

    def find_formula(self, keys: Sequence[str]) -> Formula | None:
        """Return the formula for an operator with these keys, the most specific first, or None.

        A formula with the operator's own name is preferred to one whose pattern matches. Raises
        FormulaError if the patterns of two formulas match.
        """
        for key in keys:
            if key in self.by_key:
                return self.by_key[key]
        matching = [formula for formula in self.patterns if formula.matches_any(keys)]
        if len(matching) > 1:
            first, second, *_ = matching
            raise FormulaError(
                f"two formulas match the operator {keys[0]}: {first.text_for_messages} and "
                f"{second.text_for_messages}",
                "change one pattern so that it does not match, or register a formula with the "
                "full name",
            )
        return matching[0] if matching else None

    def add(self, formula: Formula) -> "FormulaRegistry":
        """Return a registry that also has this formula, and not an older version of it.

        Raises FormulaError where another formula is about the same operator.
        """
        kept = []
        for known in self.formulas:
            if known.key != formula.key:
                same_class = bool(formula.module) and known.module == formula.module
                if same_class:
                    raise _conflicting_formulas_error(known, formula, formula.module)
                kept.append(known)
            elif not known.is_same_as(formula):
                raise _conflicting_formulas_error(known, formula, formula.name)
        return FormulaRegistry((*kept, formula))


def _conflicting_formulas_error(first: Formula, second: Formula, subject: str) -> FormulaError:
    """Return the error which says that two formulas are about the same operator or module
    (`subject`).
    """
    return FormulaError(
        f"two formulas count {subject}: {first.text_for_messages} and {second.text_for_messages}",
        "remove one of the two",
    )


def operator(
    name: str,
    *,
    module: str | None = None,
    backward: CountBackward | Literal["none"] | None = None,
    bytes: Traffic | Moved | None = None,
    doubt: Doubt = "exact",
    source: str = "",
    reference: Callable[..., Any] | None = None,
    shapes: Mapping[str, Any] | Callable[..., Any] | None = None,
    batch: str = "",
    names: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """Return a decorator that registers a function as the formula of an operator.

    The function takes an `OperatorCall` and returns a `crossflops.Cost` of whole numbers, without
    bytes. Raises `call.uncounted(reason)` where it cannot count a call.

    Args:
        name: "namespace::name", of a `torch.library` operator (any overload), of an ONNX operator
            ("domain::Op"), of JAX ("jax::primitive", or the target of a custom call), or
            "tensorflow::Op". In the part after "::" a "*" stands for any characters except a dot,
            for libraries that write settings into the names of their operators:
            "mylib::scan_*_run". A formula with the operator's own name is preferred to one with a
            pattern; two patterns that match one operator are an error.
        module: "package.module:Class" of an nn.Module or autograd.Function: each call of it is one
            node of this name.
        backward: A function of the call and the set of operands (by name, or by position where
            names are not known) whose gradients are wanted. It returns a Cost, or a
            `crossflops.Gradient` with the work by operand. "none": nothing flows back.
        bytes: How tensors are moved ("touch", each once, unless said), or a function of the call
            that returns the bytes that are read and written.
        doubt: "exact", "bound" or "estimate", or a function of the call that returns one of them.
        source: Where the formula comes from: a paper, a page, a line of code.
        reference: Computes the same in plain PyTorch, on the same arguments.
        shapes: Of the operands of the reference, by name, in letters: {"q": "b h t d"}; for
            `crossflops check-formula`.
        batch: The letter of `shapes` in which the work is linear; the first of the first operand
            unless said.
        names: Of the operands, for operators whose graph does not have them (ONNX).

    Returns:
        The decorator of the function, which returns the function itself.

    Raises:
        FormulaError: The name or an option is written wrongly, or another formula is about the
            same operator.

    Example:
        >>> import crossflops
        >>> @crossflops.operator("mylib::scan", source="a paper, section 3", backward="none")
        ... def scan(call):
        ...     return crossflops.Cost(adds=call.input("x").numel)
        >>> from crossflops.operators.formula_sources import find_formula
        >>> find_formula("mylib", "scan").source
        'a paper, section 3'
    """

    def register_operator_formula(function: F) -> F:
        """Register the function as the formula of the operator, and return it."""
        from crossflops.operators.formula_sources import add_formula, origin_of_function

        origin = origin_of_function(function)
        formula = Formula(
            name=_valid_operator_name(name, origin), function=function,
            module=_valid_class_name(module, origin, name), backward=backward or "",
            bytes=bytes or "touch", doubt=doubt, source=source, reference=reference,
            shapes=shapes or {}, batch=batch, names=tuple(names), origin=origin,
        )  # fmt: skip
        _check_formula_options(formula)
        add_formula(formula)
        return function

    return register_operator_formula


def _valid_operator_name(name: str, origin: FormulaOrigin) -> str:
    """Return the name of an operator unchanged. Raises FormulaError if it is not of the form
    "namespace::name".
    """
    domain, colons, kind = name.partition("::") if isinstance(name, str) else ("", "", "")
    if not colons or not domain or not kind or "::" in kind or name.split() != [name]:
        raise FormulaError(
            f"{name!r} is not the name of an operator ({origin})",
            'write "namespace::name", such as "mylib::flash"',
        )
    if WILDCARD in domain:
        raise FormulaError(
            f"{name!r} has a * in its namespace ({origin})",
            'write * only in the name behind "::", such as "mylib::scan_*_run"',
        )
    return name


def _valid_class_name(module: str | None, origin: FormulaOrigin, name: str) -> str:
    """Return the name of a module class, or "" for None. Raises FormulaError if it is not of the
    form "package.module:Class".
    """
    if module is None:
        return ""
    package, colon, kind = module.partition(":")
    if not package or not colon or not kind or module.split() != [module]:
        raise FormulaError(
            f"module={module!r} of {name} is not a class ({origin})",
            'write "package.module:Class", such as "mylib.layers:Attention"',
        )
    return module


def _quote_values(values: Iterable[str]) -> str:
    """Return the values in quotes, for a message."""
    return ", ".join(f'"{value}"' for value in values)


def _check_formula_options(formula: Formula) -> None:
    """Raise FormulaError if the options of a formula are not valid."""
    if not callable(formula.doubt) and formula.doubt not in DOUBTS:
        raise _formula_error(
            formula,
            f"has doubt={formula.doubt!r}, which does not say how exact its cost is",
            f"give doubt= one of {_quote_values(DOUBTS)}, or a function of the call that returns "
            "one of them",
        )
    if not callable(formula.bytes) and formula.bytes not in TRAFFIC:
        raise _formula_error(
            formula,
            f"has bytes={formula.bytes!r}, which is not a known way to move tensors",
            f"give bytes= one of {_quote_values(TRAFFIC)}, or a function of the call that returns "
            "(bytes read, bytes written)",
        )
    if not callable(formula.backward) and formula.backward not in ("", "none"):
        raise _formula_error(
            formula,
            f"has backward={formula.backward!r}, which is not a function",
            "give backward= a function of the call and of the names of its trained operands, or "
            '"none"',
        )
    if formula.module and formula.pattern is not None:
        raise _formula_error(
            formula,
            "has a * in its name, but is for a module",
            "write a name without *, since each call of the module gets this name",
        )
    if formula.shapes and formula.reference is None:
        raise _formula_error(
            formula,
            "has shapes=, but no reference=",
            "add reference=, a function in plain PyTorch that computes the same, or leave out "
            "shapes=",
        )


# A file that is a target is run under a name of its own: see `crossflops.targets.target`.
_TARGET = "crossflops_target_"
_TARGET_MODULE = re.compile(rf"{_TARGET}(?P<stem>\w+)_[0-9a-f]{{8}}")


def plain_class_name(name: str) -> str:
    """Return the name of a class as formulas write it, without the digest that a model file's
    module name has.

    >>> plain_class_name("crossflops_target_layers_0123abcd.Attention")
    'layers.Attention'
    """
    return _TARGET_MODULE.sub(lambda match: match["stem"], name)


def find_loaded_class(path: str) -> Any:
    """Return the class that "package.module:Class" names; None if its module is not imported."""
    package, _, kind = path.partition(":")
    holder: Any = sys.modules.get(package)
    if holder is None:
        names = (
            name
            for name in list(sys.modules)
            if name.startswith(_TARGET) and plain_class_name(name) == package
        )
        holder = sys.modules.get(next(names, ""))
    for part in kind.split("."):
        holder = getattr(holder, part, None)
    return holder


# What a call of a module or of an autograd function has beside tensors.


def forward_parameters(formula: Formula) -> list[inspect.Parameter]:
    """Return the parameters of `forward` of a formula's class, or of `__call__` of a class of
    Flax; [] if they are not known.

    The arguments of a layer of Keras are not recorded, so its defaults are not used either.
    """
    kind = find_loaded_class(formula.module)
    forward = getattr(kind, "forward", None)
    if forward is None and not hasattr(kind, "call"):
        forward = getattr(kind, "__call__", None)  # noqa: B004  its signature
    try:
        return list(inspect.signature(forward).parameters.values()) if forward else []
    except (TypeError, ValueError):
        return []


def forward_argument_names(formula: Formula, skip_count: int) -> dict[str, str]:
    """Return the names of forward's arguments by position ("0", ...), without the first
    `skip_count`, which are `self` or `ctx`.
    """
    parameters = forward_parameters(formula)[skip_count:]
    return {str(position): parameter.name for position, parameter in enumerate(parameters)}


def forward_argument_defaults(formula: Formula) -> dict[str, Any]:
    """Return the plain default values of forward's arguments by name."""
    defaults = {parameter.name: parameter.default for parameter in forward_parameters(formula)}
    return {
        name: value
        for name, value in defaults.items()
        if isinstance(value, bool | int | float | str)
    }


def module_call_attributes(
    formula: Formula, settings: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the attributes that the formula of a module sees of one call, by name.

    An argument of the call goes over an attribute of the module of the same name, and that over a
    default of `forward`.

    Args:
        formula: the formula, which has the class of the module.
        settings: the plain attributes of the module.
        arguments: the plain arguments of the call, by position as text or by name.
    """
    names = forward_argument_names(formula, skip_count=1)
    by_name = {names.get(name, name): value for name, value in arguments.items()}
    return {**forward_argument_defaults(formula), **settings, **by_name}
