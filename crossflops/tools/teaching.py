"""Give formulas of a user to a tool, by the tool's own mechanism.

A tool takes formulas for modules or for operators. What it then prints for a call is the formula's
count in the unit of the tool: the MACs, or all FLOPs where the tool counts 2 for a MAC. The rules
of the tool get one more for each formula, ahead of the others.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from crossflops.ir.graph import Node, Op, TensorSpec
from crossflops.ir.ledger import ZERO, Cost
from crossflops.ir.profile import Lesson
from crossflops.ir.trace import Module, Trace
from crossflops.ir.training import gradient_call_key, rerun_call_key, score_rerun_key
from crossflops.rules.conditions import Condition, Site, as_root, called
from crossflops.rules.rule import Convention, Rule, Teaching, with_formula

if TYPE_CHECKING:
    from crossflops.operators.formula import Formula

CAUSE = "operator.taught"
_PREFIX = "taught."
_DERIVED = gradient_call_key(""), score_rerun_key(""), rerun_call_key("")
_NO_MECHANISM = "the tool has no mechanism for formulas of users"
_NO_ADAPTER = "the tool has such a mechanism, but its plugin does not use it"


def lesson_for_each_formula(
    convention: Convention, formulas: Iterable["Formula"], *, is_able: bool
) -> tuple[Lesson, ...]:
    """Return one lesson for each formula: whether the tool takes it, and if not, the reason.

    Args:
        convention: the rules of the tool.
        formulas: the formulas.
        is_able: whether the adapter of the tool hands formulas to it.
    """
    return tuple(
        Lesson(
            formula=formula.name,
            module=formula.module,
            origin=formula.origin,
            mechanism=convention.teaching.mechanism if convention.teaching else "",
            refused=_reason_formula_is_refused(convention.teaching, formula, is_able),
        )
        for formula in formulas
    )


def _reason_formula_is_refused(
    teaching: Teaching | None, formula: "Formula", is_able: bool
) -> str:
    """Return why the tool does not take this formula, as a text, or "" if it takes it."""
    if teaching is None:
        return _NO_MECHANISM
    if not is_able:
        return _NO_ADAPTER
    if teaching.takes == "module" and not formula.module:
        return f"{teaching.mechanism} accepts only modules, but this formula is for an operator"
    if teaching.takes == "operator" and formula.module:
        return f"{teaching.mechanism} accepts only operators, but this formula is for a module"
    if teaching.takes == "operator" and formula.pattern is not None:
        return f"{teaching.mechanism} accepts the names of operators, not a pattern for names"
    if teaching.takes == "operator" and "." in formula.name.partition("::")[2]:
        return f"{teaching.mechanism} accepts all overloads of an operator, not a single one"
    return ""


def convention_with_formulas(convention: Convention, formulas: Sequence["Formula"]) -> Convention:
    """Return a copy of the convention with rules for these formulas of a user."""
    teaching = convention.teaching
    if teaching is None or not formulas:
        return convention
    classes = frozenset(formula.module.replace(":", ".") for formula in formulas if formula.module)
    rules = tuple(
        rule
        for formula in formulas
        for rule in _rules_of_formula(convention, teaching, formula, classes)
    )
    return replace(convention, rules=(*rules, *convention.rules))


def count_taught_calls(bookings: Iterable[Any], formula: str) -> int:
    """Return the number of calls that the tool counts by this formula of a user."""
    name = _PREFIX + formula
    return len({booking.call for booking in bookings if booking.rule.id == name})


def _rules_of_formula(
    convention: Convention, teaching: Teaching, formula: "Formula", classes: frozenset[str]
) -> Iterator[Rule]:
    """Yield the rules by which the tool counts with this formula of a user."""

    def formula_macs(site: Site) -> int:
        """Return the MACs of the formula for one call."""
        return _site_cost(formula, site, teaching.keywords).macs

    def flops_beyond_macs(site: Site) -> int:
        """Return the FLOPs of the formula for one call without 2 FLOPs for each of its MACs."""
        cost = _site_cost(formula, site, teaching.keywords)
        return cost.flops - 2 * cost.macs

    shared: dict[str, Any] = {
        "cause": CAUSE,
        "level": teaching.level,
        "reference": teaching.source,
        "times": teaching.times(classes) if teaching.times else None,
        "batch": teaching.batch,
        "again": CAUSE,
        "whole": bool(formula.module),
    }
    with_formula(f"MACs of {formula.text_for_messages}")(formula_macs)
    with_formula(f"FLOPs of {formula.text_for_messages} beyond 2 for each MAC")(flops_beyond_macs)
    where: tuple[Condition, ...] = (_formula_call_condition(formula, teaching),)
    name = _PREFIX + formula.name
    if formula.module and teaching.root_adds:
        yield Rule(
            id=name, kind="part", amount=formula_macs, where=(*where, as_root(True)), **shared
        )
        where = (*where, as_root(False))
    yield Rule(id=name, kind="core", amount=formula_macs, where=where, **shared)
    if convention.unit > 1:
        yield Rule(
            id=f"{name}.beyond", kind="part", amount=flops_beyond_macs, where=where, **shared
        )


def _formula_call_condition(formula: "Formula", teaching: Teaching) -> Condition:
    """Return a condition that holds for calls of the formula's module class or operator."""
    if formula.module:
        from crossflops.operators.formula import plain_class_name

        name, seen = formula.module.replace(":", "."), called()
        return Condition(
            "a call of",
            lambda site: plain_class_name(site.target) == name and seen.holds(site),
            (name,),
            whom=True,
        )
    if teaching.level == "operator":
        prefix = f"{formula.key}."
        return Condition(
            "a call of",
            lambda site: (
                site.target.startswith(prefix)
                and not site.key.endswith(_DERIVED[:2])
                and not site.call.composite
            ),
            (formula.name,),
            whom=True,
        )
    name = formula.name
    return Condition("a node", lambda site: site.target == name, (name,), whom=True)


# A formula on a call, as rules and as tools see it.


def cost_of_call(
    formula: "Formula",
    inputs: Iterable[TensorSpec],
    outputs: Iterable[TensorSpec],
    settings: Any,
) -> Cost:
    """Return the cost that a formula gives for a call with these operands and settings; a call
    that it leaves uncounted costs nothing.

    "xs.0" is the first tensor of the list "xs". A call that the formula leaves uncounted costs
    nothing, as the tool is told nothing of it. Raises FormulaError.
    """
    from crossflops.operators.formula import UncountedCallError, operator_rule_of_formula

    specs = tuple(inputs)
    domain, _, kind = formula.name.partition("::")
    node = Node(
        key=formula.name,
        op=Op(domain, kind, 1),
        inputs=specs,
        outputs=tuple(outputs),
        attrs={
            name: tuple(value) if isinstance(value, list) else value
            for name, value in settings.items()
            if value is not None
        },
        operand_names=tuple(spec.name.partition(".")[0] for spec in specs)
        if not formula.module
        else tuple(spec.name for spec in specs),
    )
    try:
        return operator_rule_of_formula(formula).formula(node)
    except UncountedCallError:
        return ZERO


def name_module_operands(
    formula: "Formula", positional: Iterable[TensorSpec], weights: Iterable[TensorSpec]
) -> list[TensorSpec]:
    """Return the operands of a module's call: its positional inputs, named as the parameters of
    `forward`, then its weights.
    """
    from crossflops.operators.formula import forward_argument_names

    names = forward_argument_names(formula, skip_count=1)
    named = [replace(spec, name=names.get(spec.name, spec.name)) for spec in positional]
    return [*named, *weights]


def _site_cost(formula: "Formula", site: Site, with_keywords: bool) -> Cost:
    """Return the cost that a formula gives for this call; without the keywords of an operator,
    for the defaults of its schema.
    """
    from crossflops.operators.formula import module_call_attributes

    call = site.call
    if not formula.module:
        hidden = {} if with_keywords else call.keyword_only
        seen = [spec for spec in call.inputs if spec.name.partition(".")[0] not in hidden]
        return cost_of_call(formula, seen, call.outputs, {**call.settings, **hidden})
    positional = [spec for spec in call.inputs if spec.name[:1].isdigit()]
    weights = _module_weights(site.module, site.trace)
    operands = name_module_operands(formula, positional, weights)
    # a hook of a tool is given no arguments by keyword
    plain = {name: value for name, value in call.arguments.items() if name[:1].isdigit()}
    attributes = module_call_attributes(formula, site.module.settings, plain)
    return cost_of_call(formula, operands, call.outputs, attributes)


def _module_weights(module: Module, trace: Trace) -> list[TensorSpec]:
    """Return the parameters of a module and of the modules in it, each storage once, named by
    their paths.
    """
    weights: dict[int, TensorSpec] = {}

    def collect_module_weights(row: Module, prefix: str) -> None:
        """Add the parameters of `row` and of its children to `weights`."""
        for parameter in row.params:
            spec = TensorSpec(prefix + parameter.name, parameter.dtype, parameter.shape)
            weights.setdefault(parameter.storage, spec)
        for name, child in row.children:
            collect_module_weights(trace.modules[child], f"{prefix}{name}.")

    collect_module_weights(module, "")
    return list(weights.values())
