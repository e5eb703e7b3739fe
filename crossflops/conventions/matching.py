"""Whether a clause is about a call."""

from fnmatch import fnmatchcase

from crossflops.core.convention import Clause, Match
from crossflops.core.trace import Call, Module, Trace


def matches(clause: Clause, call: Call, trace: Trace, setting: str) -> bool:
    """Whether the clause speaks of this call when the tool runs in this setting (an id)."""
    match = clause.match
    if call.storey != clause.storey or not _one_of(call.target, match.targets):
        return False
    if match.fused and not (setting in call.fused and _one_of(call.fused[setting], match.fused)):
        return False
    module = trace.modules[call.module]
    return _own(match, call, module) and _around(match, call, trace, module)


def _own(match: Match, call: Call, module: Module) -> bool:
    if call.storey == "module":
        names = {parameter.name for parameter in module.params}
        settings = module.settings
    else:
        names = {spec.name for spec in call.inputs}
        settings = call.settings
    return (
        names.issuperset(match.has)
        and names.isdisjoint(match.lacks)
        and all(
            name in settings and settings[name] == value for name, value in match.settings.items()
        )
        and match.root in {None, module.id == 0}
        and (not match.bases or not set(match.bases).isdisjoint(module.bases))
    )


def _around(match: Match, call: Call, trace: Trace, module: Module) -> bool:
    if match.via is None and not match.entry and not match.within:
        return True
    calls = (call, *trace.ancestors(call))
    modules = [one for one in calls if one.storey == "module"]
    if match.via is not None and (not modules or modules[0].via != match.via):
        return False
    if match.entry:
        entry = next((one.target for one in calls if one.storey == "function"), "")
        if not _one_of(entry, match.entry):
            return False
    return not match.within or any(_one_of(one.target, match.within) for one in modules)


def _one_of(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(
        name == pattern or ("*" in pattern and fnmatchcase(name, pattern)) for pattern in patterns
    )
