"""What a rule is, and how the file of a tool writes its rules down.

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
    """An amount that is a weight for each kind of work in the native count."""

    weights: Mapping[str, int]

    def cost_amount(self, cost: Cost) -> int:
        """The weighted sum."""
        return sum(int(getattr(cost, kind)) * weight for kind, weight in self.weights.items())


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a tool does, to the calls of one level that are among its targets.

    A "core" rule says how the contraction work of a call is counted, in MACs: the first core rule
    that matches a call holds, and stands for what the call does: for every operator beneath it, or
    those that `stands_for` names, but not for what hooks do. On the function level nothing else
    is booked beneath it. A "part" rule adds something, in the tool's own unit; all that match
    hold. An "unseen" rule, on the operator or the node level, names why contraction work that no
    core rule covers is not seen; the first that matches holds. A "fails" rule says that the tool
    raises: on every call that matches or, with an amount, on those for which that is not zero.
    Without an amount nothing is booked.

    `again`, of a core or a part rule on the function level, is the cause under which a call is
    booked that the tool has counted already by a rule about the module around it: beside what
    that rule stands for, not in its place. By `batch` the tool divides the sum of all that is
    booked so. `in_total_only` says that a tool that reports by module does not report this.
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
    """What a rule books for one call in the tool's own unit, and what it will be divided by."""

    rule: Rule
    amount: Amount
    call: Call
    divisor: int = 1


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Which parameters a tool counts, and how often.

    Every parameter of a registered module once, unless something is said. With `modules` the tool
    goes down from the root, and counts all that is beneath a module of exactly such a class,
    once along each chain of parents; with `leaves` it counts those that modules without modules in
    them hold themselves, each module once. With `called` only where that module was called by
    `__call__`. With `trainable` frozen ones are left out. `extra` gives further elements by cause.

    A tool that counts files takes initializers: `stored` says whether "all" or those that a node
    of the graph "used", `scalar` how many elements it sees in one without axes.
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

    `verified` lists the tool versions on which the rules were held against the tool; it is empty
    for a convention that is no tool. `unit` is what the tool counts for one MAC, 0 if it counts
    none. `forces` are the parts of the setting that the tool imposes, whatever the caller asks.
    `sees` is the level on which it stands; of nodes, `opens` says whether it looks into functions,
    loops and branches, and `shapes` gives a graph the shapes that the tool infers, where these are
    its own. `counts_dead` says whether work whose result nothing uses is counted, `counts_stored`
    whether it is where that result is written into a buffer, a parameter or an input. `rules_add`
    says that a rule about a module is added to those about the modules in it, and does not stand
    in their place. `unseen` is the cause of contraction work that no rule is about. `parameters`
    says which parameters it counts, if any. `adds_up` is how the tool makes its number of all that
    is booked, where it is not their exact sum, and `rounds` is the cause of what it loses or wins
    so. `reads` gives the calls of a real run as the tool has them, where that is not what was
    recorded. `framework` is that of the models whose calls the rules are about. `step` says what
    the tool makes of a training step: it "runs" the backward pass, and its rules are about that as
    well, it takes the forward pass "thrice", or, "", it counts none.
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
        """The setting under which the tool runs when the caller asks for this one."""
        return msgspec.structs.replace(setting, **self.forces)

    def view(self, setting: Setting) -> View | None:
        """The real run without which the tool's number cannot be predicted; None for none."""
        forced = msgspec.structs.asdict(self.setting(setting))
        if self.sees in OBSERVED:
            return View(**forced, level=self.sees)
        watched = {condition.watched for rule in self.rules for condition in rule.where}
        level = next((level for level in ("operator", "module") if level in watched), None)
        return View(**forced, level=level) if level else None


class Rules:
    """A group of rules on one level, and what each of them has in common.

    `where` are conditions of each, `times` and `batch` as in a Rule, `stands_for` gives the
    operators that a core rule stands for from its targets. A declaration with `formula` says what
    pages print for its function, whose docstring is then a sentence.
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
        """The function counts MACs of these calls; `cause` is why they may differ from ours."""
        return self._rule("core", about, cause, more)

    def adds(self, *about: "About", cause: str, **more: Any) -> Callable[[_Function], _Function]:
        """The function counts something beside MACs, in the tool's own unit."""
        return self._rule("part", about, cause, more)

    def fails(self, *about: "About", cause: str, **more: Any) -> Callable[[_Function], _Function]:
        """The tool raises where the function is not 0, or raises itself, to say more."""
        return self._rule("fails", about, cause, more)

    def hides(self, name: str, *about: "About", cause: str, **more: Any) -> None:
        """The tool counts nothing of these calls, nor of what is beneath them."""
        self._add("core", about, cause, {"name": name, **more})

    def misses(self, name: str, *about: "About", cause: str, **more: Any) -> None:
        """Why the tool does not see contraction work; the most particular reason comes first."""
        self._add("unseen", about, cause, {"name": f"unseen.{name}", **more})

    def refuses(self, name: str, *about: "About", cause: str, **more: Any) -> None:
        """The tool raises on all of these calls."""
        self._add("fails", about, cause, {"name": name, **more})

    def _rule(
        self, kind: Kind, about: "tuple[About, ...]", cause: str, more: dict[str, Any]
    ) -> Callable[[_Function], _Function]:
        formula = more.pop("formula", "")

        def declare(function: _Function) -> _Function:
            if formula:
                with_formula(formula)(function)
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
    """A tool in one edition, as its file writes it down: what is true of the whole, and groups.

    The names are those of `Convention`, but for `prints` (its word for the number), `per_mac`
    (what it counts for one MAC) and `runs` (the setting that it imposes).
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
        """A new group of rules, behind those that are there."""
        group = Rules(level, *where, **shared)
        self.include(group)
        return group

    def include(
        self, *groups: Rules, where: tuple[Condition, ...] = (), source: str = "", **changed: Any
    ) -> None:
        """Rules that other tools, or other editions, have too; here under these conditions.

        `source` is the file in which this tool has what they refer to, `changed` are fields of a
        Rule that have another value here.
        """
        self._groups += [(group, where, source, changed) for group in groups]

    @property
    def convention(self) -> Convention:
        """The tool as a value: the rules of all groups, in their order."""
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


def with_formula(text: str) -> Callable[[_Function], _Function]:
    """Declare what a page prints as the formula of a function: `2 * max(n(x_i))`.

    A declaration of a rule has it as `formula=`. Without it the first paragraph of the docstring
    is the formula.
    """

    def declare(function: _Function) -> _Function:
        function.formula = text  # type: ignore[union-attr]
        return function

    return declare


def formula_equation(formula: object) -> str:
    """Return the words of a formula: what it was declared with, or its docstring's beginning."""
    declared = getattr(formula, "formula", "")
    return declared or (getdoc(formula) or "").partition("\n\n")[0].replace("\n", " ")
