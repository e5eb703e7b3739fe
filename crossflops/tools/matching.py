"""Whether a clause is about a call."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from crossflops.ir.convention import Clause, Match
from crossflops.ir.trace import Call, Module, Trace
from crossflops.tools.operators import PRE_HOOK

# Around functions of PyTorch, and none itself: they hide nothing from who looks at functions.
_TRANSPARENT = {
    "einops.einsum",
    "torch.autograd.Function.apply",
    "torch.nn.Module.hook",
    PRE_HOOK,
    "torch.vmap",
}


def matches(clause: Clause, call: Call, trace: Trace, setting: str) -> bool:
    """Whether the clause speaks of this call when the tool runs in this setting (an id)."""
    match = clause.match
    if call.level != clause.level or not one_of(call.target, match.targets):
        return False
    if match.fused and not (setting in call.fused and one_of(call.fused[setting], match.fused)):
        return False
    if match.last is not None and match.last != _is_last(call, trace):
        return False
    module = trace.modules[call.module]
    return _own(match, call, module) and _around(match, call, trace)


def _is_last(call: Call, trace: Trace) -> bool:
    """Whether the call of the module, or the one around it, is the module's last."""
    around = (call, *trace.ancestors(call))
    home = next((one for one in around if one.level == "module"), call)
    return home.key in trace.last_calls


def _own(match: Match, call: Call, module: Module) -> bool:
    if call.level == "module":
        names = {parameter.name for parameter in module.params}
        settings = module.settings
    else:
        names = {spec.name for spec in call.inputs}
        settings = call.settings
    return (
        all(any(one_of(name, (wanted,)) for name in names) for wanted in match.has)
        and not (match.lacks and any(one_of(name, match.lacks) for name in names))
        and all(
            name in settings and settings[name] == value for name, value in match.settings.items()
        )
        and (not match.dtypes or (bool(call.inputs) and call.inputs[0].dtype in match.dtypes))
        and match.root in {None, module.id == 0}
        and match.registered in {None, bool(module.names)}
        and match.leaf in {None, not module.children}
        and (not match.bases or not set(match.bases).isdisjoint(module.bases[1:]))
        and (not match.isa or not set(match.isa).isdisjoint(module.bases))
        and (not match.named or one_of(module.class_name, match.named))
    )


def _around(match: Match, call: Call, trace: Trace) -> bool:
    asks = match.via, match.reached, match.nested
    if all(one is None for one in asks) and not (
        match.entry or match.within or match.under or match.outside
    ):
        return True
    calls = (call, *trace.ancestors(call))
    modules = [one for one in calls if one.level == "module"]
    if match.via is not None and (not modules or modules[0].via != match.via):
        return False
    functions = [one for one in calls if one.level == "function"]
    if match.entry and not one_of(functions[0].target if functions else "", match.entry):
        return False
    if match.reached is not None and (not functions or functions[0].via != match.reached):
        return False
    outer = functions[1:] if call.level == "function" else functions
    if match.nested not in {None, any(one.target not in _TRANSPARENT for one in outer)}:
        return False
    return (
        _any_of(modules, match.within)
        and _any_of(functions, match.under)
        and not (match.outside and _is_inside(match.outside, calls, trace))
    )


def _is_inside(classes: tuple[str, ...], calls: Iterable[Call], trace: Trace) -> bool:
    """Whether a registered module of these classes was called, by `__call__`.

    A module's own pre-hook runs ahead of the hook by which a tool knows that the module runs.
    """
    early = False
    for one in calls:
        if one.target == PRE_HOOK:
            early = True
        elif one.level == "module":
            row = trace.modules[one.module]
            known = one.via == "call" and row.names and not early
            if known and not set(classes).isdisjoint(row.bases):
                return True
            early = False
    return False


def _any_of(calls: list[Call], patterns: tuple[str, ...]) -> bool:
    return not patterns or any(one_of(one.target, patterns) for one in calls)


def one_of(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a pattern fits the name; no patterns fit everything."""
    return not patterns or any(
        name == pattern or ("*" in pattern and fnmatchcase(name, pattern)) for pattern in patterns
    )
