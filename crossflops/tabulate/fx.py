"""How a call reads in a graph that torch.fx traces symbolically: kind and target.

torch/fx/_symbolic_trace.py: `Tracer.is_leaf_module` keeps modules of torch.nn whole, but for
nn.Sequential; the model itself is never a leaf.
"""

from typing import NamedTuple

from crossflops.core.trace import Call, Module, Trace

_TENSOR = "torch.Tensor."
_LEAVES = ("torch.nn.", "torch.ao.nn.")
_SEQUENTIAL = "torch.nn.modules.container.Sequential"


class Site(NamedTuple):
    """`kind` is call_module, call_method or call_function; `target` what it calls."""

    kind: str
    target: str


def site(call: Call, trace: Trace) -> Site:
    """The outermost call around an operator call that fx does not look into."""
    for around in (*reversed(trace.ancestors(call)), call):
        found = _site(around, trace.modules[around.module])
        if found is not None:
            return found
    return Site("call_function", call.target)


def _site(call: Call, module: Module) -> Site | None:
    if call.storey == "module":
        name = module.bases[0]
        whole = name.startswith(_LEAVES) and name != _SEQUENTIAL and module.id != 0
        return Site("call_module", module.path) if whole and call.via == "call" else None
    if call.storey == "function" and call.target.startswith(_TENSOR):
        name = call.target.removeprefix(_TENSOR)
        if name.startswith("__"):  # x + y: fx records the function of the module `operator`
            return Site("call_function", f"operator.{name.strip('_')}")
        return Site("call_method", name)
    return Site("call_function", call.target)
