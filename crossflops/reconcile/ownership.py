"""Under which module a tool sees a call."""

from collections.abc import Container

from crossflops.conventions.operators import PRE_HOOK
from crossflops.core.trace import Call, Module, Trace


def home_of(call: Call, trace: Trace) -> Module:
    """The module that a tool with hooks sees it in: one in the model, by its `__call__`.

    What runs by `.forward`, or in a module that is registered nowhere, is its caller's.
    """
    for one in (call, *trace.ancestors(call)):
        if one.storey == "module" and one.via == "call":
            module = trace.modules[one.module]
            if module.names:
                return module
    return trace.modules[0]


def collector_of(call: Call, trace: Trace, ruled: Container[str]) -> Module | None:
    """The module at which a tool that replaces functions adds this call up; None: nowhere.

    A hook of the tool's own begins and ends the list of a module. Pre-hooks that the model had
    before run ahead of it, and belong to the module around; calls with a rule (`ruled`, by key)
    have no list. deepspeed/profiling/flops_profiler/profiler.py: start_profile.
    """
    early = passed = False
    for one in trace.ancestors(call):
        if one.target == PRE_HOOK:
            early = True
        elif one.storey == "module" and one.via == "call":
            module = trace.modules[one.module]
            if module.names and not early and one.key not in ruled:
                return module
            passed |= bool(module.names)
            early = False
    return None if passed else trace.modules[0]
