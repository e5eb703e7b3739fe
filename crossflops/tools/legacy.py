"""Conventions that are still written as clauses, as rules. To be removed."""

import functools
from typing import Any

from crossflops.ir import convention as old
from crossflops.ir.modules import Times
from crossflops.rules import site as when
from crossflops.rules.rule import Convention, OfCost, Parameters, Rule
from crossflops.rules.site import fits
from crossflops.tools import multiplicity
from crossflops.tools.formulas import formulas, node_formulas, offered, views


@functools.cache
def times_of(name: str) -> Times:
    """The multiplicity of that name."""
    return Times(multiplicity.multiplicities()[name], multiplicity.within().get(name))


@functools.cache
def amount_of(name: str, level: str) -> Any:
    """The formula of that name."""
    if level in ("node", "graph"):
        return node_formulas()[name]
    formula = formulas()[name]

    @functools.wraps(formula)
    def amount(site: Any) -> Any:
        return formula(site.call, site.module)

    return amount


_CONDITIONS = {
    "bases": when.subclass_of,
    "entry": when.through,
    "within": when.inside,
    "under": when.under,
    "has": when.has,
    "lacks": when.lacks,
    "fused": when.run_as,
    "dtypes": when.of_type,
    "isa": when.kind_of,
    "but": when.any_but,
}
_FLAGS = {"registered": when.registered, "root": when.as_root, "leaf": when.leaf}


def where(match: old.Match) -> tuple[when.Condition, ...]:
    """The conditions of a match."""
    found = []
    for name in ("isa", "but"):
        if getattr(match, name):
            found.append(_CONDITIONS[name](*getattr(match, name)))
    if match.named:
        named = match.named
        found.append(
            when.Condition(
                "of a class named", lambda site: fits(site.module.class_name, named), named
            )
        )
    if match.via:
        found.append({"call": when.called, "forward": when.by_forward}[match.via]())
    if match.bases:
        found.append(when.subclass_of(*match.bases))
    if match.reached:
        found.append({"attribute": when.by_name, "reference": when.captured}[match.reached]())
    for name in ("entry", "within"):
        if getattr(match, name):
            found.append(_CONDITIONS[name](*getattr(match, name)))
    if match.outside:
        found.append(outside(match.outside))
    if match.nested is not None:
        found.append(nested(match.nested))
    if match.under:
        found.append(when.under(*match.under))
    if match.registered is not None:
        found.append(when.registered(match.registered))
    if match.settings:
        found.append(when.setting(**match.settings))
    for name in ("has", "lacks", "fused", "dtypes"):
        if getattr(match, name):
            found.append(_CONDITIONS[name](*getattr(match, name)))
    for name in ("root", "leaf"):
        if getattr(match, name) is not None:
            found.append(_FLAGS[name](getattr(match, name)))
    if match.last is not None:
        found.append(last(match.last))
    return tuple(found)


def last(expected: bool) -> when.Condition:
    """The last call of its module."""

    def holds(site: Any) -> bool:
        home = next((one for one in site.around if one.level == "module"), site.call)
        return (home.key in site.trace.last_calls) == expected

    return when.Condition("its last call alone" if expected else "but the last call", holds)


_TRANSPARENT = {
    "einops.einsum",
    "torch.autograd.Function.apply",
    "torch.nn.Module.hook",
    when.PRE_HOOK,
    "torch.vmap",
}


def nested(expected: bool) -> when.Condition:
    """A function is around."""

    def holds(site: Any) -> bool:
        functions = [one for one in site.around if one.level == "function"]
        outer = functions[1:] if site.call.level == "function" else functions
        return any(one.target not in _TRANSPARENT for one in outer) == expected

    return when.Condition(
        "called by a function" if expected else "not called by a function", holds
    )


def outside(classes: tuple[str, ...]) -> when.Condition:
    """No module of these is around."""

    def holds(site: Any) -> bool:
        early = False
        for one in site.around:
            if one.target == when.PRE_HOOK:
                early = True
            elif one.level == "module":
                row = site.trace.modules[one.module]
                known = one.via == "call" and row.names and not early
                if known and not set(classes).isdisjoint(row.bases):
                    return False
                early = False
        return True

    return when.Condition("outside of layers with a rule", holds, classes)


def rule_of(clause: old.Clause) -> Rule:
    """A clause as a rule."""
    level = "graph" if "(graph)" in clause.match.targets else clause.level
    amount: Any = OfCost(clause.weights) if clause.weights else None
    if clause.formula:
        amount = amount_of(clause.formula, level)
    return Rule(
        id=clause.id,
        cause=clause.cause,
        level=level,
        kind=clause.kind,
        targets=clause.match.targets,
        where=where(clause.match),
        amount=amount,
        factor=clause.factor,
        times=times_of(clause.times) if clause.times else None,
        stands_for=clause.stands_for,
        reference=clause.reference,
        again=clause.again,
        batch=offered("BATCHES")[clause.batch] if clause.batch else None,
        in_total_only=clause.in_total_only,
    )


def convention_of(one: old.Convention | Convention) -> Convention:
    """A convention with rules."""
    if isinstance(one, Convention):
        return one
    fields = {name: getattr(one, name) for name in one.__struct_fields__ if name != "clauses"}
    fields["rules"] = tuple(map(rule_of, one.clauses))
    if one.parameters is not None:
        own = {name: getattr(one.parameters, name) for name in one.parameters.__struct_fields__}
        fields["parameters"] = Parameters(**own)
    fields["adds_up"] = offered("SUMS")[one.adds_up] if one.adds_up else None
    if one.shapes:
        from crossflops.rules.prediction import as_given

        fields["shapes"] = (
            as_given if one.shapes == "onnx.shape_inference" else views()[one.shapes]
        )
    return Convention(**fields)
