"""The experts that a token chooses, of those that a module holds: seen in its calls.

Two forms are known by what they are called with. Experts in one module have weights with an axis
for the expert in front, and get rows of tokens beside the numbers of the experts that each chose.
Experts that are modules of one list have weights of the same shapes, stand beside a module that
gives a score for each of them, and get the rows of those tokens that chose them.

Other forms get rows that are sorted by expert already, or no numbers of experts at all. They are
known by the `topk` over the scores of all experts, in the same module or in one beside them.
"""

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from math import prod

from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Call, Module, Parameter, Trace

_CHOICE = "aten.topk.default"


def idle_parameters(trace: Trace) -> int:
    """Return how many parameters a token does not use: those of experts that it did not choose.

    A parameter of several modules is counted once, by its storage. Experts of which some tokens
    choose more than others (with a limit for each expert) count by the mean, rounded up.
    """
    calls = defaultdict[int, list[Call]](list)
    for call in trace.calls:
        if call.level == "module":
            calls[call.module].append(call)
    modules = {module.id: module for module in trace.modules}
    idle = _routed(trace, modules, calls)
    for module in trace.modules:
        idle.update(_stacked(module, calls[module.id]))
        idle.update(_listed(module, modules, calls))
    return sum(idle.values())


def _stacked(module: Module, calls: Sequence[Call]) -> Iterator[tuple[int, int]]:
    """The idle part of each weight of experts that are one module, by its storage."""
    matrices = [held for held in module.params if len(held.shape) == 3]
    counts = {held.shape[0] if len(held.shape) > 1 else 0 for held in module.params}
    widths = {size for held in matrices for size in held.shape[1:]}
    chosen = [k for call in calls if (k := _chosen(call.inputs, widths))]
    if not 1 <= len(counts) <= 2 or not chosen:
        return
    experts, of = min(counts), max(counts)  # some of those that are chosen may have no weights
    if experts and max(chosen) < of:
        used = -(-max(chosen) * experts // of)
        for held in module.params:
            yield held.storage, _idle(held, held.shape[0], used)


def _idle(held: Parameter, experts: int, used: int) -> int:
    """The elements of a weight of so many experts that a token does not use."""
    return held.numel - held.numel // experts * used


def _chosen(inputs: Sequence[TensorSpec], widths: Container[int]) -> int:
    """How many numbers of experts stand beside each row of a call; 0 where none do."""
    if not inputs or not inputs[0].shape or "float" not in inputs[0].dtype:
        return 0
    *rows, width = inputs[0].shape
    if width not in widths:
        return 0
    for given in inputs[1:]:
        shape = given.shape or ()
        if given.dtype.startswith("int") and len(shape) > 1 and prod(shape[:-1]) == prod(rows):
            return shape[-1]
    return 0


def _routed(
    trace: Trace, modules: Mapping[int, Module], calls: Mapping[int, Sequence[Call]]
) -> dict[int, int]:
    """The idle part of the weights around each `topk` over experts, by their storage.

    Groups of experts are chosen before experts are: of several choices the largest counts.
    """
    holders = {child: module.id for module in trace.modules for _, child in module.children}
    idle: dict[int, int] = {}
    for call in trace.calls:
        if call.target != _CHOICE or not call.inputs[0].shape or not call.outputs[0].shape:
            continue
        experts, used = call.inputs[0].shape[-1], call.outputs[0].shape[-1]
        if not 0 < used < experts:
            continue
        for number in (call.module, holders.get(call.module)):
            scope = modules[number] if number is not None else None
            stacks = list(_stacks(scope, modules, calls, experts, used)) if scope else []
            for held in stacks:
                rest = _idle(held, experts, used)
                idle[held.storage] = min(rest, idle.get(held.storage, rest))
            if stacks:
                break
    return idle


def _stacks(
    module: Module,
    modules: Mapping[int, Module],
    calls: Mapping[int, Sequence[Call]],
    experts: int,
    used: int,
) -> Iterator[Parameter]:
    """The weights of so many experts in a module and in those within it.

    Each has an axis for the expert in front. A module that gets the numbers of experts may hold
    them as rows of a matrix, one expert below the other. PyTorch's own layers are no experts:
    the axis in front is one for channels there.
    """
    own = () if module.bases[:1] and module.bases[0].startswith("torch.nn.") else module.params
    if any(len(held.shape) == 3 and held.shape[0] == experts for held in own):
        yield from (held for held in own if held.shape[0] == experts and len(held.shape) > 1)
        return
    if any(_gets_numbers(call.inputs, used) for call in calls[module.id]):
        below = [held for held in _held(module, modules) if len(held.shape) == 2]
        if below and all(not held.shape[0] % experts for held in below):
            yield from below
            return
    for _, number in module.children:
        yield from _stacks(modules[number], modules, calls, experts, used)


def _gets_numbers(inputs: Sequence[TensorSpec], used: int) -> bool:
    """Whether a call has numbers of experts behind its rows, so many for each."""
    numbers = [spec.shape for spec in inputs[1:] if spec.dtype.startswith("int")]
    return any(shape is not None and len(shape) > 1 and shape[-1] == used for shape in numbers)


def _listed(
    holder: Module, modules: Mapping[int, Module], calls: Mapping[int, Sequence[Call]]
) -> Iterator[tuple[int, int]]:
    """The idle part of the weights of experts that are modules of a list, by a storage of each."""
    experts = [modules[number] for _, number in holder.children]
    weights = [list(_held(expert, modules)) for expert in experts]
    shapes = {tuple(held.shape for held in own) for own in weights}
    if len(experts) < 2 or len(shapes) != 1 or not weights[0]:
        return
    path = holder.path.rpartition(".")[0]
    around = [m for m in modules.values() if path in m.names and path != holder.path]
    routers = [number for m in around for _, number in m.children if number != holder.id]
    scored = {
        spec.shape[-1]
        for number in routers
        for call in calls[number]
        for spec in call.outputs
        if spec.shape
    }
    tokens = sum(_rows(call) for m in around for call in calls[m.id])
    rows = sum(_rows(call) for expert in experts for call in calls[expert.id])
    used = -(-rows // tokens) if tokens else 0
    if len(experts) in scored and 0 < used < len(experts):
        idle = sum(held.numel for held in weights[0]) * (len(experts) - used)
        yield weights[0][0].storage, idle


def _held(module: Module, modules: Mapping[int, Module]) -> Iterator[Parameter]:
    """The parameters of a module and of those within it."""
    yield from module.params
    for _, number in module.children:
        yield from _held(modules[number], modules)


def _rows(call: Call) -> int:
    first = call.inputs[0] if call.inputs else None
    return prod(first.shape[:-1]) if first is not None and first.shape else 0
