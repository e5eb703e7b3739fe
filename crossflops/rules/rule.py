"""The definition of a rule, and the form in which the module of a tool declares its rules.

A tool's file makes one `Tool` for each edition, and groups of rules in it. A rule is a function
that gives the amount of one call; the decorator above it says which calls it is about, under which
conditions, for which cause, and where the tool's source has it. Rules hold in the order in which
they are written: with two decorators over one function, the lower one comes first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import getdoc
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from crossflops.ir.ledger import Cost
from crossflops.ir.profile import Amount
from crossflops.ir.trace import OBSERVED, Call, Level, Setting, Times, Trace, View
from crossflops.rules.conditions import Condition

Kind: TypeAlias = Literal["core", "part", "unseen", "fails"]
CountsSteps: TypeAlias = Literal["", "runs", "thrice"]
Formula: TypeAlias = Callable[[Any], Amount]  # of a Site or, on the node level, of a Node
Batch: TypeAlias = Callable[[Trace], int]
_Function = TypeVar("_Function", bound="Callable[..., Any] | OfCost")


class OfCost(msgspec.Struct, frozen=True):
    """An amount that weighs each kind of work of the native count."""

    weights: Mapping[str, int]

    def cost_amount(self, cost: Cost) -> int:
        """Return the weighted sum of a native cost."""
        return sum(int(getattr(cost, kind)) * weight for kind, weight in self.weights.items())


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a tool does with the calls of one level that match `targets` and conditions.

    The kinds of rules:

    * "core": how the contraction work of a call is counted, in MACs. The first core rule that
      matches a call applies. It covers every operator inside the call (or those in
      `stands_for`), except for calls of hooks. On the function level nothing else is booked
      inside the call.
    * "part": an additional amount, in the tool's own unit. All matching rules apply.
    * "unseen": the cause why the tool does not see contraction work that no core rule covers, on
      the operator or the node level. The first matching rule applies.
    * "fails": the tool raises, on every matching call or, with an amount, where that is not zero.

    Without an amount nothing is booked.

    Attributes:
        again: For a core or a part rule on the function level: the cause under which a call is
            booked that a rule about the enclosing module has counted already. It is booked in
            addition to that rule.
        batch: The divisor of the sum of all bookings with this divisor.
        in_total_only: Whether a tool that reports by module leaves this amount out there.
    """

    id: str
    cause: str
    level: Level
    kind: Kind
    targets: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    amount: Formula | OfCost | None = None
    factor: int = 1
    times: Times | None = None
    stands_for: tuple[str, ...] = ()
    reference: str = ""
    again: str = ""
    batch: Batch | None = None
    in_total_only: bool = False


class Share(msgspec.Struct, frozen=True):
    """The amount that a rule books for one call in the tool's own unit, and its divisor."""

    rule: Rule
    amount: Amount
    call: Call
    divisor: int = 1


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters that a tool counts, and how often.

    By default every parameter of a registered module is counted once.

    Attributes:
        modules: Classes of modules. The tool goes down from the root, and counts all parameters
            inside a module of exactly such a class, once along each chain of parents.
        leaves: Count only parameters held directly by modules without submodules, each module
            once.
        called: Count only modules that were called by `__call__`.
        trainable: Leave frozen parameters out.
        extra: Returns further elements by cause.
        stored: For a tool that counts files: "all" initializers, or those "used" by a node.
        scalar: The number of elements that the tool sees in an initializer without axes.
    """

    modules: tuple[str, ...] = ()
    leaves: bool = False
    called: bool = False
    trainable: bool = False
    extra: Callable[[Trace], dict[str, int]] | None = None
    reference: str = ""
    stored: Literal["", "all", "used"] = ""
    scalar: int = 1


class Convention(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's rules in one edition.

    Attributes:
        verified: The tool versions with which the rules were compared; empty for a convention
            that belongs to no tool.
        unit: The tool's count for one MAC, 0 if it counts none.
        forces: The parts of the setting that the tool imposes, whatever the caller asks for.
        sees: The level of the calls that the tool looks at.
        opens: For nodes: whether the tool looks into functions, loops and branches.
        shapes: For nodes: returns a graph with the tool's own inferred shapes.
        counts_dead: Whether work with an unused result is counted.
        counts_stored: Whether it is counted where that result is written into a buffer, a
            parameter or an input.
        rules_add: Whether a rule about a module is added to those about the modules in it,
            instead of replacing them.
        unseen: The cause of contraction work that no rule is about.
        parameters: The parameters that the tool counts, if any.
        adds_up: The tool's own way to sum all bookings, where it is not the exact sum.
        rounds: The cause of what that way loses or gains.
        reads: Returns the calls of a real run as the tool has them, where they differ from the
            recorded ones.
        framework: The framework of the models that the rules are about.
        step: How the tool counts a training step: it "runs" the backward pass, and its rules are
            about that as well; it counts the forward pass "thrice"; or "", it counts none.
    """

    tool: str
    edition: str
    verified: tuple[str, ...]
    unit: int
    printed_as: str
    sees: Level
    rules: tuple[Rule, ...]
    counts_dead: bool
    unseen: str
    counts_stored: bool = False
    opens: bool = True
    shapes: Callable[[Any], Any] | None = None
    forces: dict[str, bool | str] = {}
    rules_add: bool = False
    source: str = ""
    parameters: Parameters | None = None
    adds_up: Callable[[Sequence[Share]], Amount] | None = None
    rounds: str = "precision.rounded"
    reads: Callable[[Sequence[Call], Trace], Iterable[Call]] | None = None
    framework: str = "torch"
    step: CountsSteps = ""

    @property
    def weighs(self) -> bool:
        """Whether a rule weighs the native cost of a call."""
        return any(isinstance(rule.amount, OfCost) for rule in self.rules)

    def setting(self, setting: Setting) -> Setting:
        """Return the setting under which the tool runs when the caller asks for this one."""
        return msgspec.structs.replace(setting, **self.forces)

    def view(self, setting: Setting) -> View | None:
        """Return the real run that must be observed to predict the tool's number, or None."""
        forced = msgspec.structs.asdict(self.setting(setting))
        if self.sees in OBSERVED:
            return View(**forced, level=self.sees)
        watched = {condition.watched for rule in self.rules for condition in rule.where}
        level = next((level for level in ("operator", "module") if level in watched), None)
        return View(**forced, level=level) if level else None


class Rules:
    """A group of rules on one level with common fields.

    `where` are conditions of each rule, `times` and `batch` are as in a Rule, `stands_for` gives
    the operators that a core rule covers from its targets.
    """

    def __init__(
        self,
        level: Level,
        *where: Condition,
        source: str = "",
        stands_for: Callable[[tuple[str, ...]], tuple[str, ...]] | None = None,
        **shared: Any,
    ) -> None:
        self.level = level
        self._where = where
        self._source = source
        self._stands_for = stands_for
        self._shared = shared
        self.rules: list[Rule] = []

    def contraction(
        self, *about: "About", cause: str, **more: Any
    ) -> Callable[[_Function], _Function]:
        """Declare that the decorated function gives the MACs of these calls; `cause` is why they
        may differ from ours.
        """
        return self._rule("core", about, cause, more)

    def adds(self, *about: "About", cause: str, **more: Any) -> Callable[[_Function], _Function]:
        """Declare that the decorated function gives an amount beside the MACs, in the tool's own
        unit.
        """
        return self._rule("part", about, cause, more)

    def fails(self, *about: "About", cause: str, **more: Any) -> Callable[[_Function], _Function]:
        """Declare that the tool raises where the decorated function is not 0, or raises with a
        message of its own.
        """
        return self._rule("fails", about, cause, more)

    def hides(self, name: str, *about: "About", cause: str, **more: Any) -> None:
        """Declare that the tool counts nothing for these calls, nor for the calls inside them."""
        self._add("core", about, cause, {"name": name, **more})

    def misses(self, name: str, *about: "About", cause: str, **more: Any) -> None:
        """Declare why the tool does not see contraction work. Declare the most specific reason
        first.
        """
        self._add("unseen", about, cause, {"name": f"unseen.{name}", **more})

    def refuses(self, name: str, *about: "About", cause: str, **more: Any) -> None:
        """Declare that the tool raises on all of these calls."""
        self._add("fails", about, cause, {"name": name, **more})

    def _rule(
        self, kind: Kind, about: "tuple[About, ...]", cause: str, more: dict[str, Any]
    ) -> Callable[[_Function], _Function]:
        def declare(function: _Function) -> _Function:
            named = {"name": getattr(function, "__name__", ""), **more}
            self._add(kind, about, cause, {**named, "amount": function})
            return function

        return declare

    def _add(
        self, kind: Kind, about: "tuple[About, ...]", cause: str, more: dict[str, Any]
    ) -> None:
        fields = {**self._shared, **more}
        targets = _rule_targets(about)
        conditions = (*(part for part in about if isinstance(part, Condition)), *self._where)
        classes = targets or _condition_classes(conditions)
        if kind == "core" and self._stands_for is not None:
            fields.setdefault("stands_for", self._stands_for(classes))
        self.rules.append(
            Rule(
                id=fields.pop("name"),
                cause=cause,
                level=self.level,
                kind=kind,
                targets=targets,
                where=conditions,
                reference=fields.pop("source", self._source),
                **fields,
            )
        )


About: TypeAlias = str | tuple[str, ...] | Condition


def _rule_targets(about: Iterable[About]) -> tuple[str, ...]:
    names: list[str] = []
    for part in about:
        if isinstance(part, str):
            names.append(part)
        elif isinstance(part, tuple):
            names += part
    return tuple(names)


def _condition_classes(conditions: Iterable[Condition]) -> tuple[str, ...]:
    return tuple(name for condition in conditions if condition.whom for name in condition.names)


class Tool:
    """A tool in one edition, as its file declares it: global facts, and groups of rules.

    The names are those of `Convention`, except `prints` (its word for the number), `per_mac` (what
    it counts for one MAC) and `runs` (the setting that it imposes).
    """

    def __init__(
        self,
        tool: str,
        *,
        edition: str,
        prints: str,
        per_mac: int,
        level: Level,
        unseen: str,
        verified: tuple[str, ...] = (),
        runs: Mapping[str, bool | str] = {},
        counts_dead_work: bool = False,
        **more: Any,
    ) -> None:
        self.level = level
        self._groups: list[tuple[Rules, tuple[Condition, ...], str, dict[str, Any]]] = []
        self._prefix = more.pop("prefix", tool)
        self._fields: dict[str, Any] = {
            "tool": tool,
            "edition": edition,
            "printed_as": prints,
            "unit": per_mac,
            "sees": level,
            "unseen": unseen,
            "verified": verified,
            "forces": dict(runs),
            "counts_dead": counts_dead_work,
            **more,
        }

    def rules(self, level: Level, *where: Condition, **shared: Any) -> Rules:
        """Add a new, empty group of rules behind the existing ones, and return it."""
        group = Rules(level, *where, **shared)
        self.include(group)
        return group

    def include(
        self, *groups: Rules, where: tuple[Condition, ...] = (), source: str = "", **changed: Any
    ) -> None:
        """Add rules of other tools, or of other editions, under these conditions.

        `source` is the file in which this tool has the code that they refer to; `changed` are
        fields of a Rule that have another value here.
        """
        self._groups += [(group, where, source, changed) for group in groups]

    @property
    def convention(self) -> Convention:
        """The convention of the tool, with the rules of all groups in their order."""
        rules = (
            msgspec.structs.replace(
                rule,
                id=f"{self._prefix}.{rule.id}",
                where=(*rule.where, *where),
                reference=f"{source}: {rule.reference}" if source else rule.reference,
                **changed,
            )
            for group, where, source, changed in self._groups
            for rule in group.rules
        )
        return Convention(rules=tuple(rules), **self._fields)


def formula_equation(formula: object) -> str:
    """Return the description of a formula: the first paragraph of its docstring."""
    return (getdoc(formula) or "").partition("\n\n")[0].replace("\n", " ")
