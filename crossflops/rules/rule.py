"""Rules, and how the file of a tool writes them down.

A tool's file makes one `Tool` for each edition, and groups of rules in it. A rule is a function
that gives the amount of one call; the decorator above it says which calls it is about, under which
conditions, for which cause, and where the tool's source has it. Rules hold in the order in which
they are written: with two decorators over one function, the lower one comes first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import getdoc
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from crossflops.ir.architecture import FormulaTraits
from crossflops.ir.ledger import Cost
from crossflops.ir.profile import Amount
from crossflops.ir.trace import OBSERVED, Call, Level, Setting, Times, Trace, View
from crossflops.rules.conditions import Condition, input_elements, output_elements

Kind: TypeAlias = Literal["core", "part", "unseen", "fails"]
CountsSteps: TypeAlias = Literal["", "runs", "thrice"]
Formula: TypeAlias = Callable[[Any], Amount]  # of a Site or, on the node level, of a Node
Batch: TypeAlias = Callable[[Trace], int]
_Function = TypeVar("_Function", bound="Callable[..., Any] | CostWeights")


class CostWeights(msgspec.Struct, frozen=True):
    """An amount that is a weight for each kind of work in the native count."""

    weights: Mapping[str, int]

    def cost_amount(self, cost: Cost) -> int:
        """Return the operations of a cost, each kind multiplied by its weight, as one sum."""
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
        whole: Whether a core rule about a module covers the operators of modules in it, too.
    """

    id: str
    cause: str
    level: Level
    kind: Kind
    targets: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    amount: Formula | CostWeights | None = None
    factor: int = 1
    times: Times | None = None
    stands_for: tuple[str, ...] = ()
    reference: str = ""
    again: str = ""
    batch: Batch | None = None
    in_total_only: bool = False
    whole: bool = False


class Share(msgspec.Struct, frozen=True):
    """The amount of a rule for one call in the tool's own unit, and its divisor."""

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


class Teaching(msgspec.Struct, frozen=True, kw_only=True):
    """The tool's own mechanism for formulas of a user.

    Attributes:
        mechanism: Its name: "custom_ops of thop.profile".
        takes: What such a formula may be about: "module" or "operator".
        level: The level of the calls on which the tool uses it.
        times: Returns how often a call is booked, of the classes that have formulas.
        batch: The divisor of all that hooks count.
        root_adds: Whether the formula of the root is added to what the modules in it have.
        keywords: Whether the tool gives a formula the arguments by keyword of an operator.
        source: The place in the tool.
    """

    mechanism: str
    takes: Literal["module", "operator"]
    level: Level
    times: Callable[[frozenset[str]], Times] | None = None
    batch: Batch | None = None
    root_adds: bool = False
    keywords: bool = True
    source: str = ""


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
    well, it takes the forward pass "thrice", or, "", it counts none. `formula` is there where the
    tool is one over an architecture: its rules are what leads there from the native count.
    `teaching` is the tool's mechanism for formulas of a user, if it has one.
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
    formula: FormulaTraits | None = None
    teaching: Teaching | None = None

    @property
    def has_native_cost_weights(self) -> bool:
        """Whether the amount of some rule is a weighted sum of a call's native cost."""
        return any(isinstance(rule.amount, CostWeights) for rule in self.rules)

    def setting(self, setting: Setting) -> Setting:
        """Return the requested setting with the parts that the tool forces on it."""
        return msgspec.structs.replace(setting, **self.forces)

    def view(self, setting: Setting) -> View | None:
        """Return the real run that must be recorded for a prediction, or None if no real run is
        needed.
        """
        forced = msgspec.structs.asdict(self.setting(setting))
        if self.sees in OBSERVED:
            return View(**forced, level=self.sees)
        watched = {condition.watched for rule in self.rules for condition in rule.where}
        level = next((level for level in ("operator", "module") if level in watched), None)
        return View(**forced, level=level) if level else None


class Rules:
    """A group of rules on one level, with their common fields.

    A declaration with `formula` says what pages print for its function, whose docstring is then a
    sentence.

    Args:
        level: The level of the calls: "module", "function", "operator" or "node".
        where: Conditions of every rule.
        source: The file of the tool in which it has the rules.
        stands_for: A function from the targets of a core rule to the operators that it stands for.
        shared: Other fields of every `Rule`, such as `times` and `batch`.

    Example:
        >>> from crossflops.rules.conditions import as_root
        >>> group = Rules("module", as_root(False), source="count.py")
        >>> @group.adds("torch.nn.modules.activation.ReLU", cause="act.relu", formula="n(y)")
        ... def relu(call):
        ...     return call.result.numel
        >>> [rule] = group.rules
        >>> rule.id, rule.kind, rule.cause, rule.reference
        ('relu', 'part', 'act.relu', 'count.py')
        >>> formula_equation(rule.amount)
        'n(y)'
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
        """Return a decorator: the decorated function gives the MACs that the tool counts for these
        calls.

        Args:
            about: The calls: names or patterns of classes, functions or operators, and conditions.
            cause: Why the number may differ from ours.
            more: Other fields of the `Rule`: `factor`, `times`, `name`, `source` (the place in the
                tool).

        Returns:
            The decorator of the function, which takes a `Site` (a `Node` on the node level).

        Example:
            >>> group = Rules("module")
            >>> @group.contraction("torch.nn.modules.linear.Linear", cause="linear.rule")
            ... def linear(call):
            ...     return call.result.numel * call.module.settings["in_features"]
            >>> group.rules[0].kind, group.rules[0].amount is linear
            ('core', True)
        """
        return self._rule_decorator("core", about, cause, more)

    def adds(self, *about: "About", cause: str, **more: Any) -> Callable[[_Function], _Function]:
        """Return a decorator: the decorated function returns what the tool counts for these calls
        in addition to MACs, in the tool's unit.

        Args:
            about: The calls: names or patterns of classes, functions or operators, and conditions.
            cause: Why the native count does not have it.
            more: Other fields of the `Rule`: `factor`, `times`, `name`, `source` (the place in the
                tool).

        Returns:
            The decorator of the function, which takes a `Site` (a `Node` on the node level).

        Example:
            >>> group = Rules("operator")
            >>> @group.adds("aten.relu.default", cause="act.relu", factor=2)
            ... def relu(call):
            ...     return call.result.numel
            >>> group.rules[0].kind, group.rules[0].factor
            ('part', 2)
        """
        return self._rule_decorator("part", about, cause, more)

    def fails(self, *about: "About", cause: str, **more: Any) -> Callable[[_Function], _Function]:
        """Return a decorator: the tool raises an error on those of these calls for which the
        decorated function does not return 0, or raises an error.

        Args:
            about: The calls: names or patterns of classes, functions or operators, and conditions.
            cause: Why the tool fails.
            more: Other fields of the `Rule`: `factor`, `times`, `name`, `source` (the place in the
                tool).

        Returns:
            The decorator of the function, which takes a `Site` (a `Node` on the node level).

        Example:
            >>> group = Rules("operator")
            >>> @group.fails("aten.einsum.default", cause="error.einsum")
            ... def three_operands(call):
            ...     return int(len(call.inputs) > 2)
            >>> group.rules[0].kind
            'fails'
        """
        return self._rule_decorator("fails", about, cause, more)

    def hides(self, name: str, *about: "About", cause: str, **more: Any) -> None:
        """Declare that the tool counts neither these calls nor any call inside them.

        Args:
            name: The id of the rule.
            about: The calls: names or patterns of classes, functions or operators, and conditions.
            cause: Why it does not.
            more: Other fields of the `Rule`: `factor`, `times`, `name`, `source` (the place in the
                tool).

        Example:
            >>> group = Rules("module")
            >>> group.hides("head", "models.Head", cause="uncovered.module")
            >>> group.rules[0].kind, group.rules[0].amount
            ('core', None)
        """
        self._add_rule("core", about, cause, {"name": name, **more})

    def misses(self, name: str, *about: "About", cause: str, **more: Any) -> None:
        """Declare that the tool does not see the contractions (MACs) of these calls, and name the
        cause. If several declarations match a call, the first one applies.

        Args:
            name: The id of the rule.
            about: The calls: names or patterns of classes, functions or operators, and conditions.
            cause: The cause of the difference.
            more: Other fields of the `Rule`: `factor`, `times`, `name`, `source` (the place in the
                tool).

        Example:
            >>> group = Rules("operator")
            >>> group.misses("bmm", "aten.bmm.default", cause="uncovered.function")
            >>> group.rules[0].id, group.rules[0].kind
            ('unseen.bmm', 'unseen')
        """
        self._add_rule("unseen", about, cause, {"name": f"unseen.{name}", **more})

    def refuses(self, name: str, *about: "About", cause: str, **more: Any) -> None:
        """Declare that the tool raises an error on every one of these calls.

        Args:
            name: The id of the rule.
            about: The calls: names or patterns of classes, functions or operators, and conditions.
            cause: Why the tool fails.
            more: Other fields of the `Rule`: `factor`, `times`, `name`, `source` (the place in the
                tool).

        Example:
            >>> group = Rules("operator")
            >>> group.refuses("sparse", "aten.mm.default", cause="error.sparse")
            >>> group.rules[0].kind
            'fails'
        """
        self._add_rule("fails", about, cause, {"name": name, **more})

    def _rule_decorator(
        self, kind: Kind, about: "tuple[About, ...]", cause: str, more: dict[str, Any]
    ) -> Callable[[_Function], _Function]:
        """Return a decorator that adds a rule of this kind, with the decorated function as its
        amount.
        """
        formula = more.pop("formula", "")

        def add_rule_for_function(function: _Function) -> _Function:
            """Add a rule whose amount is this function, and return the function."""
            if formula:
                with_formula(formula)(function)
            named = {"name": getattr(function, "__name__", ""), **more}
            self._add_rule(kind, about, cause, {**named, "amount": function})
            return function

        return add_rule_for_function

    def _add_rule(
        self, kind: Kind, about: "tuple[About, ...]", cause: str, more: dict[str, Any]
    ) -> None:
        """Add a rule of this kind, with targets and conditions, to the group."""
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
    """Return the names among the arguments of a rule, without its conditions."""
    names: list[str] = []
    for part in about:
        if isinstance(part, str):
            names.append(part)
        elif isinstance(part, tuple):
            names += part
    return tuple(names)


def _condition_classes(conditions: Iterable[Condition]) -> tuple[str, ...]:
    """Return the class names in those conditions that name the classes of the calls themselves
    (`Condition.whom`).
    """
    return tuple(name for condition in conditions if condition.whom for name in condition.names)


class Tool:
    """A tool in one edition, as its file writes it down: facts of the whole, and groups of rules.

    Args:
        tool: The id of the tool.
        edition: The first version of the tool for which the rules hold.
        prints: The tool's word for its number.
        per_mac: What it counts for one MAC, 0 if it counts none.
        level: The level on which it stands.
        unseen: The cause of contraction work that no rule is about.
        verified: The versions for which the rules were compared with the tool.
        runs: The parts of the setting that the tool imposes.
        counts_dead_work: Whether it counts work whose result nothing uses.
        more: Other fields of `Convention`, and `prefix`, which begins the ids of the rules.

    Example:
        >>> tool = Tool("counter", edition="1.0", prints="MACs", per_mac=1, level="module",
        ...             unseen="uncovered.module")
        >>> group = tool.rules("module", source="count.py")
        >>> group.hides("head", "models.Head", cause="uncovered.module")
        >>> [rule.id for rule in tool.convention.rules]
        ['counter.head']
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
        """Add a new group of rules behind the present ones, and return it.

        Args:
            level: The level of the calls.
            where: Conditions of every rule.
            shared: Other arguments of `Rules`.

        Returns:
            The group, empty.
        """
        group = Rules(level, *where, **shared)
        self.include(group)
        return group

    def include(
        self, *groups: Rules, where: tuple[Condition, ...] = (), source: str = "", **changed: Any
    ) -> None:
        """Add groups of rules that were made for other tools or editions, under these further
        conditions.

        Args:
            groups: The groups of rules.
            where: Further conditions of every rule.
            source: The file in which this tool has the places that the rules refer to.
            changed: Fields of a `Rule` with another value here.
        """
        self._groups += [(group, where, source, changed) for group in groups]

    @property
    def convention(self) -> Convention:
        """The convention: the fields of the tool, and the rules of all its groups in
        their order.
        """
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
    """Return a decorator that sets the text which pages print as the formula of a function, such
    as `2 * max(n(x_i))`.

    A declaration of a rule has it as `formula=`. Without it the first paragraph of the docstring
    is the formula.
    """

    def set_formula_text(function: _Function) -> _Function:
        """Set the printed formula of a function, and return the function."""
        function.formula = text  # type: ignore[union-attr]
        return function

    return set_formula_text


def formula_equation(formula: object) -> str:
    """Return the printed text of a formula: the declared text, or else the first paragraph of its
    docstring.
    """
    declared = getattr(formula, "formula", "")
    return declared or (getdoc(formula) or "").partition("\n\n")[0].replace("\n", " ")


# The functions are defined in a module that this one imports, so they cannot be decorated there.
with_formula("n(x)")(input_elements)
with_formula("n(y)")(output_elements)
