"""The experts that a token chooses, among those of a module, as its calls show them.

Two forms are known by what they are called with. Experts in one module have weights with an axis
for the expert in front, and get rows of tokens beside the numbers of the experts that each chose.
Experts that are modules of one list have weights of the same shapes, stand beside a module that
gives a score for each of them, and get the rows of those tokens that chose them.

Other forms get rows that are sorted by expert already, or no numbers of experts at all. They are
known by the `topk` over the scores of all experts, in the same module or in one beside them.

Experts of one neuron are rows of two tables, one for its weights and one for what it adds: a token
looks up those that a `topk` gave it.
"""

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple, TypeAlias

from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Call, Module, Parameter, Trace

# The storage of a weight, and how many of its elements a token does not use.
StorageAndIdleElements: TypeAlias = tuple[int, int]
# How many experts a token chooses, and how many there are.
ChosenAndAllExperts: TypeAlias = tuple[int, int]

_CHOICE = "aten.topk.default"
_EMBEDDING = "torch.nn.modules.sparse.Embedding"
_BATCHED = (
    "aten.bmm.default",
    "aten.baddbmm.default",
    "aten.matmul.default",
    "aten.einsum.default",
)


def idle_parameter_count(trace: Trace) -> int:
    """Return the number of parameter elements in experts that a token does not choose.

    A parameter of several modules is counted once, by its storage. Where some tokens choose more
    experts than others (with a limit for each expert) the mean counts, rounded up.
    """
    calls = _calls_by_module(trace, "module")
    modules = {module.id: module for module in trace.modules}
    idle = _topk_idle_weights(trace, modules, calls)
    for module in trace.modules:
        idle.update(_expert_stack_idle_weights(module, calls[module.id]))
    idle.update(_expert_list_idle_weights(trace, modules, calls))
    idle.update(_expert_table_idle_weights(trace, modules, calls))
    return sum(idle.values())


def _calls_by_module(trace: Trace, level: str) -> Mapping[int, Sequence[Call]]:
    """Return the calls of a level by the id of their module: the called one, or the one that
    encloses them.
    """
    calls = defaultdict[int, list[Call]](list)
    for call in trace.calls:
        if call.level == level:
            calls[call.module].append(call)
    return calls


def _expert_stack_idle_weights(
    module: Module, calls: Sequence[Call]
) -> Iterator[StorageAndIdleElements]:
    """Yield (storage number, elements that a token does not use) for each weight of a module that
    stacks experts.
    """
    matrices = [stored for stored in module.params if len(stored.shape) == 3]
    counts = {stored.shape[0] if len(stored.shape) > 1 else 0 for stored in module.params}
    widths = {size for stored in matrices for size in stored.shape[1:]}
    chosen = [k for call in calls if (k := _choices_per_row(call.inputs, widths))]
    if not 1 <= len(counts) <= 2 or not chosen:
        return
    experts, of = min(counts), max(counts)  # some of those that are chosen may have no weights
    if experts and max(chosen) < of:
        used = -(-max(chosen) * experts // of)
        for stored in module.params:
            yield stored.storage, _idle_elements(stored, stored.shape[0], used)


def _idle_elements(stored: Parameter, experts: int, used: int) -> int:
    """Return how many elements of a weight that stacks `experts` a token does not use, if it uses
    `used` of them.
    """
    return stored.numel - stored.numel // experts * used


def _choices_per_row(inputs: Sequence[TensorSpec], widths: Container[int]) -> int:
    """Return the number of expert indices that a call gets for each row of its first input, whose
    width must be in `widths`; 0 if it gets none.
    """
    if not inputs or not inputs[0].shape or "float" not in inputs[0].dtype:
        return 0
    *rows, width = inputs[0].shape
    if width not in widths:
        return 0
    for provided in inputs[1:]:
        shape = provided.shape or ()
        if provided.dtype.startswith("int") and len(shape) > 1 and prod(shape[:-1]) == prod(rows):
            return shape[-1]
    return 0


def _topk_idle_weights(
    trace: Trace, modules: Mapping[int, Module], calls: Mapping[int, Sequence[Call]]
) -> dict[int, int]:
    """Return how many elements a token does not use of each weight whose experts a `topk` chooses,
    by storage number.

    Groups of experts are chosen before experts are: of several choices the largest counts.
    """
    idle: dict[int, int] = {}
    for choice, stacks in _expert_choices(trace, modules, calls):
        for stored in stacks:
            rest = _idle_elements(stored, choice.experts, choice.used)
            idle[stored.storage] = min(rest, idle.get(stored.storage, rest))
    return idle


class _Choice(NamedTuple):
    """A choice of `used` experts among all `experts` by each of `tokens` tokens."""

    tokens: int
    used: int
    experts: int


def _expert_choices(
    trace: Trace, modules: Mapping[int, Module], calls: Mapping[int, Sequence[Call]]
) -> Iterator[tuple[_Choice, Sequence[Parameter]]]:
    """Yield (choice, weights that stack the experts) for each `topk` over the scores of
    experts.
    """
    holders = {child: module.id for module in trace.modules for _, child in module.children}
    for call in trace.calls:
        if call.target != _CHOICE or not call.inputs[0].shape or not call.outputs[0].shape:
            continue
        *tokens, experts = call.inputs[0].shape
        used = call.outputs[0].shape[-1]
        if not 0 < used < experts:
            continue
        for number in (call.module, holders.get(call.module)):
            scope = modules[number] if number is not None else None
            stacks = (
                list(_expert_weight_stacks(scope, modules, calls, experts, used)) if scope else []
            )
            if stacks:
                yield _Choice(prod(tokens), used, experts), stacks
                break


def expert_counts_by_call(trace: Trace) -> dict[str, ChosenAndAllExperts]:
    """Return (number of chosen experts, number of all) for each call that computes all experts for
    each token, by call key.

    Each has the number of experts that a token chose, and the number of all.
    """
    modules = {module.id: module for module in trace.modules}
    holders = {
        stored_value.storage: module.id
        for module in trace.modules
        for stored_value in module.params
    }
    calls = _calls_by_module(trace, "module")
    products = _calls_by_module(trace, "operator")
    unchosen = {}
    for choice, stacks in _expert_choices(trace, modules, calls):
        stored = [stored_value.shape for stored_value in stacks if len(stored_value.shape) == 3]
        shapes = {*stored, *((of, second, first) for of, first, second in stored)}
        for number in {holders[stored_value.storage] for stored_value in stacks}:
            for call in products[number]:
                if _multiplies_tokens_with_all_experts(call, shapes, choice):
                    unchosen[call.key] = (choice.used, choice.experts)
    for experts, used, all_run in _expert_lists(trace, modules, calls):
        within = {number for expert in experts for number in _module_tree_ids(expert, modules)}
        if all_run:
            keys = (call.key for number in within for call in products[number])
            unchosen.update(dict.fromkeys(keys, (used, len(experts))))
    return unchosen


def _multiplies_tokens_with_all_experts(
    call: Call, shapes: Container[tuple[int, ...]], choice: _Choice
) -> bool:
    """Return True if a call multiplies all tokens with the weights of every expert."""
    if call.target not in _BATCHED:
        return False
    rows = choice.experts * choice.tokens
    results = prod(call.outputs[0].shape or ())
    return any(
        (shape := tuple(spec.shape or ())) in shapes and results in (rows * n for n in shape[1:])
        for spec in call.inputs
    )


def _expert_weight_stacks(
    module: Module,
    modules: Mapping[int, Module],
    calls: Mapping[int, Sequence[Call]],
    experts: int,
    used: int,
) -> Iterator[Parameter]:
    """Yield the weights, in a module and the modules inside it, that stack this number of experts.

    Each weight has a first axis for the expert. A module that gets expert indices may hold them as
    rows of a matrix, one expert below the other. PyTorch's own layers are not experts: their first
    axis is one of channels.
    """
    own = () if module.bases[:1] and module.bases[0].startswith("torch.nn.") else module.params
    if any(len(stored.shape) == 3 and stored.shape[0] == experts for stored in own):
        yield from (
            stored for stored in own if stored.shape[0] == experts and len(stored.shape) > 1
        )
        return
    if any(_has_expert_number_input(call.inputs, used) for call in calls[module.id]):
        below = [
            stored for stored in _module_tree_parameters(module, modules) if len(stored.shape) == 2
        ]
        if below and all(not stored.shape[0] % experts for stored in below):
            yield from below
            return
    for _, number in module.children:
        yield from _expert_weight_stacks(modules[number], modules, calls, experts, used)


def _has_expert_number_input(inputs: Sequence[TensorSpec], used: int) -> bool:
    """Return True if an input after the first has `used` integers, numbers of experts, in each
    row.
    """
    numbers = [spec.shape for spec in inputs[1:] if spec.dtype.startswith("int")]
    return any(shape is not None and len(shape) > 1 and shape[-1] == used for shape in numbers)


class _ListedExperts(NamedTuple):
    """Experts that are modules of a list: a token uses some; `all_run` means that all experts run
    on it.
    """

    experts: Sequence[Module]
    used: int
    all_run: bool


def _expert_lists(
    trace: Trace, modules: Mapping[int, Module], calls: Mapping[int, Sequence[Call]]
) -> Iterator[_ListedExperts]:
    """Yield the lists of modules that are experts, each with the number of experts that a token
    uses.

    Where all experts get the rows of all tokens, the `topk` over their scores says how many.
    """
    operators = _calls_by_module(trace, "operator")
    for holder in trace.modules:
        beneath = [modules[number] for _, number in holder.children]
        experts = [child for child in beneath if any(_module_tree_parameters(child, modules))]
        shapes = {
            tuple(stored.shape for stored in _module_tree_parameters(expert, modules))
            for expert in experts
        }
        if len(experts) < 2 or len(shapes) != 1:
            continue
        path = holder.path.rpartition(".")[0]
        enclosing = [m for m in modules.values() if path in m.names and path != holder.path]
        routers = [number for m in enclosing for _, number in m.children if number != holder.id]
        scores = [spec.shape for n in routers for call in calls[n] for spec in call.outputs]
        if len(experts) not in {shape[-1] for shape in scores if shape}:
            continue
        tokens = sum(_input_row_count(call) for m in enclosing for call in calls[m.id])
        rows = [sum(_input_row_count(call) for call in calls[expert.id]) for expert in experts]
        used = min(-(-sum(rows) // tokens), sum(map(bool, rows))) if tokens else 0
        chosen = {
            call.outputs[0].shape[-1]
            for number in (*routers, *(m.id for m in enclosing))
            for call in operators[number]
            if call.target == _CHOICE and (call.inputs[0].shape or (0,))[-1] == len(experts)
            if call.outputs[0].shape
        }
        all_run = set(rows) == {tokens} and bool(chosen)
        used = max(chosen) if all_run else used
        if 0 < used < len(experts):
            yield _ListedExperts(experts, used, all_run)


def _expert_list_idle_weights(
    trace: Trace, modules: Mapping[int, Module], calls: Mapping[int, Sequence[Call]]
) -> Iterator[StorageAndIdleElements]:
    """Yield (storage number, elements that a token does not use) for each list of modules that are
    experts.
    """
    for listed in _expert_lists(trace, modules, calls):
        weights = list(_module_tree_parameters(listed.experts[0], modules))
        idle = len(listed.experts) - listed.used
        yield weights[0].storage, sum(stored.numel for stored in weights) * idle


def _expert_table_idle_weights(
    trace: Trace, modules: Mapping[int, Module], calls: Mapping[int, Sequence[Call]]
) -> Iterator[StorageAndIdleElements]:
    """Yield (storage number, elements that a token does not use) for each embedding table whose
    rows are experts.

    They are two of one shape, in the module with the `topk`, and indexed by its results alone: a
    table of words is indexed by tokens as well.
    """
    chosen: dict[int, set[int]] = defaultdict(set)
    for call in trace.calls:
        if call.target == _CHOICE and call.outputs[0].shape:
            chosen[call.module].add(call.outputs[0].shape[-1])
    for number, counts in chosen.items():
        tokens = sum(map(_call_token_count, calls[number]))
        tables: dict[tuple[int, ...], list[tuple[Parameter, int]]] = defaultdict(list)
        for _, child in modules[number].children:
            looked_up = [call.inputs[0].shape or () for call in calls[child] if call.inputs]
            stored = modules[child].params
            is_table = len(stored) == 1 and _EMBEDDING in modules[child].bases
            by_choice = all(len(shape) > 1 and shape[-1] in counts for shape in looked_up)
            if tokens and is_table and looked_up and by_choice:
                rows = sum(map(prod, looked_up)) // tokens
                tables[stored[0].shape].append((stored[0], rows))
        for (experts, *_), similar in tables.items():
            if len(similar) > 1:
                for table, used in similar:
                    yield table.storage, _idle_elements(table, experts, min(used, experts))


def _module_tree_parameters(module: Module, modules: Mapping[int, Module]) -> Iterator[Parameter]:
    """Yield the parameters of a module and of all modules inside it."""
    yield from module.params
    for _, number in module.children:
        yield from _module_tree_parameters(modules[number], modules)


def _module_tree_ids(module: Module, modules: Mapping[int, Module]) -> Iterator[int]:
    """Yield the ids of a module and of all modules inside it."""
    yield module.id
    for _, number in module.children:
        yield from _module_tree_ids(modules[number], modules)


def _input_row_count(call: Call) -> int:
    """Return the number of rows of a call's first input, the product of all axes except the last;
    0 without input.
    """
    first = call.inputs[0] if call.inputs else None
    return prod(first.shape[:-1]) if first is not None and first.shape else 0


def _call_token_count(call: Call) -> int:
    """Return the number of tokens that a call gets: token ids, or rows of features; 0 without
    input.
    """
    first = call.inputs[0] if call.inputs else None
    is_numbered = first is not None and first.dtype.startswith("int")
    return (
        prod(first.shape or (0,)) if first is not None and is_numbered else _input_row_count(call)
    )
