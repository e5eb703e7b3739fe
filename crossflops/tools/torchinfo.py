"""Define the convention of torchinfo 1.8.0, which hooks each module and multiplies parameter
elements by result sizes.

Only modules without children are summed. A layer is a convolution where its class is called so;
any other parameter named "weight" or "bias" counts once for each element of the first axis, and
one whose name only contains these words once for each of the first two. So it knows the elements
of parameters and one shape, that of the module's result. Sources: torchinfo/layer_info.py
(`calculate_size`, `calculate_macs`), torchinfo/model_statistics.py, torchinfo/torchinfo.py.
"""

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import (
    ONCE,
    Module,
    Modules,
    Parameter,
    Times,
    Trace,
    child_paths,
    subtree_parameters,
)
from crossflops.rules.conditions import (
    HOOKS,
    VMAP,
    Condition,
    Site,
    by_forward,
    called,
    has,
    kind_of,
    leaf,
    matches_any_pattern,
    padding_dropped,
    registered,
    through,
    under,
)
from crossflops.rules.rule import Parameters, Tool, with_formula
from crossflops.tools import layers

_LAYER, _SUM = "torchinfo/layer_info.py", "torchinfo/model_statistics.py"
_HOOKS = "torchinfo/torchinfo.py: apply_hooks"
_MACS = f"{_LAYER}: calculate_macs"
_NN = layers.NN


# The leaves, which alone are summed.


@with_formula(
    "Once for a registered module without children, or whose children are empty containers"
)
def torchinfo_leaf_counts(modules: Modules) -> dict[int, int]:
    """Return how often torchinfo counts each module, as {module index: count}: 1 for a registered
    module without children (empty containers are not children), else 0.

    torchinfo/layer_info.py: `not any(module.children())`, and an empty container is false.
    """
    filled = {row.id: not _is_empty_container(row) for row in modules}
    leaves = {row.id: not any(filled[child] for _, child in row.children) for row in modules}
    return {module: int(leaves[module] and n > 0) for module, n in child_paths(modules).items()}


def _is_empty_container(row: Module) -> bool:
    """Return whether a module is a container, such as a Sequential, without children and
    parameters.
    """
    return not (row.children or row.params or _CONTAINERS.isdisjoint(row.bases))


_CONTAINERS = {
    f"{_NN}.container.{name}"
    for name in ("Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict")
}


# Which parameters are counted: as many as the lines of the summary show.

_SCRIPTED = "torch.jit._script.ScriptModule"


class _SummaryLine(NamedTuple):
    """A line of torchinfo's summary: a module, its depth, and whether it has an earlier line."""

    module: int
    depth: int
    is_repeated: bool


@with_formula("weights that layers share, again for each of these layers")
def parameter_count_differences(trace: Trace) -> dict[str, int]:
    """Return the parameters that torchinfo counts more than once, and those that it leaves out
    because they are pruned, as {cause: number, negative if left out}.

    Of a pruned weight it counts what the mask keeps (`get_param_count`).

    torchinfo/model_statistics.py: each leaf that was called gives all of its parameters, each
    other module what its descendants did not give, if that is not negative (`leftover_params`).
    So a tied weight counts twice, less what stands in no leaf.
    """
    lines = _torchinfo_summary_lines(trace)
    sizes = {
        module: sum(map(_torchinfo_parameter_elements, subtree_parameters(module, trace.modules)))
        for module in {module for module, _, _ in lines}
    }
    provided = [0] * len(lines)
    total = 0
    for index, (module, _, again) in reversed(list(enumerate(lines))):
        provided[index] = sizes[module]
        if trace.modules[module].children:
            below = _lines_beneath_module(lines, index)
            provided[index] -= sum(
                provided[other] for other in below if not lines[other].is_repeated
            )
        total += 0 if again else max(provided[index], 0)
    stored = subtree_parameters(0, trace.modules)
    masked = sum(
        _torchinfo_parameter_elements(parameter) - parameter.numel for parameter in stored
    )
    return {"params.pruned": masked, "params.counted-again": total - sizes.get(0, 0)}


def _torchinfo_parameter_elements(parameter: Parameter) -> int:
    """Return the number of elements of a parameter; of a pruned one, those that are kept."""
    return parameter.numel if parameter.kept is None else parameter.kept


def _lines_beneath_module(lines: list[_SummaryLine], index: int) -> Iterator[int]:
    """Yield the positions of the lines below the line at `index` in torchinfo's summary that
    belong to its module.
    """
    for below in range(index + 1, len(lines)):
        if lines[below].depth <= lines[index].depth:
            return
        yield below


def _torchinfo_summary_lines(trace: Trace) -> list[_SummaryLine]:
    """Return the lines of torchinfo's summary.

    A container that is inserted twice is marked at both.

    Its lines are one object (`add_missing_container_layers`), unlike those of calls.
    """
    lines = list(_lines_and_whether_inserted(trace))
    twice = {module for (module, _, again), inserted in lines if inserted and again}
    return [
        _SummaryLine(module, depth, again or (inserted and module in twice))
        for (module, depth, again), inserted in lines
    ]


def _lines_and_whether_inserted(trace: Trace) -> Iterator[tuple[_SummaryLine, bool]]:
    """Yield each line of torchinfo's summary in the order of calls, and whether the line is a
    container that torchinfo adds after the run.

    TorchScript takes no hooks: those modules exist before any call. torchinfo/torchinfo.py:
    `apply_hooks` (`WRAPPER_MODULES`), `add_missing_container_layers`.
    """
    chains = dict(_ancestors_by_module(trace.modules))
    scripted = [module for module in chains if _SCRIPTED in trace.modules[module].bases]
    hooked = chains.keys() - scripted
    calls = (call for call in trace.calls if call.level == "module" and call.via == "call")
    run = [*scripted, *(call.module for call in calls if call.module in hooked)]
    begun: set[int] = set()
    listed = set(run)  # containers are added when the model has run
    current: dict[int, int] = {}
    for module in run:
        chain = chains[module]
        for depth, container in enumerate(chain[1:], start=1):
            if current.get(depth) != container:
                yield _SummaryLine(container, depth, container in listed), True
                listed.add(container)
                current[depth] = container
        yield _SummaryLine(module, len(chain), module in begun), False
        begun.add(module)
        current = {d: other for d, other in current.items() if d < len(chain)}
        current[len(chain)] = module


def _ancestors_by_module(modules: Modules) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield each module index with the indices of its ancestors, the model first; once for each
    chain of parents.

    Of several chains the last one counts.
    """
    todo: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    while todo:
        module, enclosing = todo.pop()
        yield module, enclosing
        inside = (*enclosing, module)
        todo += [(child, inside) for _, child in reversed(modules[module].children)]


tool = Tool(
    "torchinfo",
    edition="1.8.0",
    verified=("1.8.0",),
    prints="mult-adds",
    per_mac=1,
    level="module",
    unseen="functional.invisible",
    runs={"grad": False, "hooked": True},
    counts_dead_work=True,
    source=_MACS,
    parameters=Parameters(
        extra=parameter_count_differences, reference=f"{_SUM}; {_LAYER}: leftover_params"
    ),
)
# Hooks see `__call__`, and a shared module has one of them.
hooked = tool.rules("module", source=f"{_LAYER}: calculate_size")
leaves = tool.rules(
    "module",
    called(),
    times=Times(torchinfo_leaf_counts),
    stands_for=layers.operators_of_layers,
    source=_MACS,
)
unseen = tool.rules("operator", source=_MACS)


# What a line of the summary counts for the parameters of its layer.


def _torchinfo_multiply_adds_by_parameter(call: Site) -> Iterator[tuple[str, int]]:
    """Yield the name and the multiply-adds that torchinfo counts for each parameter of a
    module.
    """
    shape = _torchinfo_result_shape(call)
    # one parameter under two names stands under the first
    distinct = {parameter.storage: parameter for parameter in reversed(call.module.params)}
    for parameter in distinct.values():
        pruned, elements = parameter.kept is not None, _torchinfo_parameter_elements(parameter)
        name = parameter.name.removesuffix("_orig") if pruned else parameter.name
        if name not in ("weight", "bias"):
            if "weight" in name or "bias" in name:
                yield name, elements * prod(shape[:2])
        elif "Conv" in call.module.class_name:
            yield name, elements * prod(shape[:1] + shape[2:])
        elif shape:
            yield name, elements * shape[0]
        else:
            raise LookupError(f"the result of {call.key} has no axes")


def _torchinfo_result_shape(call: Site) -> tuple[int, ...]:
    """Return the result shape that torchinfo uses: of the first tensor of a sequence, or the last
    of a mapping.

    Of a nested sequence or mapping it is the first. `calculate_size`, `nested_list_size`.
    """
    specs = call.outputs
    if call.call.returns == "sequence":
        specs = tuple(spec for spec in specs if _top_level_name(spec) == "0")
    elif call.call.returns == "mapping" and specs:
        specs = tuple(
            spec for spec in specs if _top_level_name(spec) == _top_level_name(specs[-1])
        )
    return (specs[0].shape or ()) if specs else ()


def _top_level_name(spec: TensorSpec) -> str:
    """Return the part of a tensor's name before the first dot: the argument or the list to which
    it belongs.
    """
    return spec.name.partition(".")[0]


# Where torchinfo fails.


@hooked.fails(
    called(),
    cause="op.unregistered-zero",
    times=ONCE,
    formula="a result that is not a tensor, a sequence or a mapping",
    name="readable",
)
def reject_unreadable_result(call: Site) -> int:
    """Return 0, or raise TypeError for a module result that is neither a tensor, a sequence nor a
    mapping, because torchinfo fails on it.

    torchinfo fails, too, on a result without axes where a parameter is named "weight" or "bias",
    and on a kernel_size that is neither a number nor a sequence (`get_kernel_size`).
    """
    if call.call.returns == "object":
        raise TypeError(f"{call.key} returns neither tensors nor a collection of them")
    size = call.module.settings.get("kernel_size", 0)
    if size is None or isinstance(size, float):
        raise TypeError(f"kernel_size of {call.key} is {size!r}")
    list(_torchinfo_multiply_adds_by_parameter(call))  # it raises without an axis
    return 0


@hooked.fails(
    called(),
    under(VMAP),
    cause="op.unregistered-zero",
    times=ONCE,
    name="under_vmap",
    formula="the first tensor is inside torch.vmap, which does not allow reading `.data`",
)
def reject_vmap_calls(call: Site) -> int:
    """Return 0, or raise ValueError if torchinfo reads `.data` of a tensor inside torch.vmap,
    which does not allow it.

    Of a layer's inputs by position and of a sequence that it returns: `calculate_size`.
    """
    results = call.outputs if call.call.returns == "sequence" else ()
    if any(spec.name == "0" for spec in (*call.inputs, *results)):
        raise ValueError(f"{call.key} runs under torch.vmap, which hides .data")
    return 0


# An encoder makes a nested tensor of a padding mask, and that has no size.
hooked.refuses("nested", called(), padding_dropped(), cause="op.unregistered-zero")


# Layers whose weights are their work, and their biases, which are told apart.


def class_name_condition(*patterns: str) -> Condition:
    """Return a condition that holds for modules whose class name, without its package, fits one of
    the patterns.
    """
    return Condition(
        "of a class named",
        lambda site: matches_any_pattern(site.module.class_name, patterns),
        patterns,
    )


@with_formula("n(weights) N S_out for a convolution, n(weights) N T for an RNN, else n(weights) N")
def torchinfo_weight_multiply_adds(call: Site) -> int:
    """Return the multiply-adds that torchinfo counts for the weights of a module: their elements x
    batch size x output positions (convolution) or steps (RNN).

    Where the name of a parameter only contains "weight", its factor is the product of the first
    two axes of the result.
    """
    return sum(
        amount for name, amount in _torchinfo_multiply_adds_by_parameter(call) if "weight" in name
    )


@with_formula("n(biases) N S_out for a convolution, n(biases) N T for an RNN, else n(biases) N")
def torchinfo_bias_multiply_adds(call: Site) -> int:
    """Return the multiply-adds that torchinfo counts for the biases of a module: their elements x
    batch size x output positions (convolution) or steps (RNN).
    """
    return sum(
        amount
        for name, amount in _torchinfo_multiply_adds_by_parameter(call)
        if "weight" not in name
    )


@with_formula("n(parameters) N S_out for a convolution, else n(parameters) N")
def torchinfo_parameter_multiply_adds(call: Site) -> int:
    """Return the multiply-adds that torchinfo counts for all parameters of a module: their
    elements x batch size x output positions (convolution).
    """
    return sum(amount for _, amount in _torchinfo_multiply_adds_by_parameter(call))


_CONV, _FILTERS = class_name_condition("*Conv*"), kind_of(*layers.CONVOLUTIONS, *layers.TRANSPOSED)
_LINEAR = kind_of(*layers.LINEAR)
for name, cause, conditions in (
    ("transposed", "conv.transpose-output-size", (kind_of(*layers.TRANSPOSED), _CONV)),
    ("convolution", "conv.unbatched-axis", (kind_of(*layers.CONVOLUTIONS), _CONV)),
    ("unnamed", "conv.by-class-name", (_FILTERS,)),
    ("linear", "matmul.leading-dims-lost", (_LINEAR,)),
    ("recurrent", "rnn.fused", (kind_of(*layers.RECURRENT),)),
    ("cell", "rnn.fused", (kind_of(*layers.CELLS),)),
):
    leaves.contraction(*conditions, cause=cause, name=name)(torchinfo_weight_multiply_adds)
for cause, condition in (
    ("bias.conv", _FILTERS),
    ("bias.linear", _LINEAR),
    ("bias.rnn", kind_of(*layers.RECURRENT, *layers.CELLS)),
):
    leaves.adds(condition, cause=cause, name=cause)(torchinfo_bias_multiply_adds)

# Layers whose parameters are no work, or not all of it.

_EMBEDDINGS = tuple(f"{_NN}.sparse.{name}" for name in ("Embedding", "EmbeddingBag"))
_BY_NAME, _ODD = "conv.by-class-name", "module.parameter-elements"
for name, cause, conditions in (
    ("batch_norm", "norm.batch", (kind_of(f"{_NN}.batchnorm._BatchNorm"),)),
    ("instance_norm", "norm.instance", (kind_of(f"{_NN}.instancenorm._InstanceNorm"),)),
    ("layer_norm", "norm.layer", (class_name_condition("*LayerNorm*"),)),
    ("group_norm", "norm.group", (class_name_condition("*GroupNorm*"),)),
    ("rms_norm", "norm.rms", (class_name_condition("*RMSNorm*"),)),
    ("embedding", "embedding.lookup", (kind_of(*_EMBEDDINGS),)),
    ("prelu", "act.piecewise-other", (kind_of(f"{_NN}.activation.PReLU"),)),
    ("conv.weight", _BY_NAME, (_CONV, has("*weight*"))),
    ("other.weight", _ODD, (has("*weight*"),)),
    ("conv.bias", _BY_NAME, (_CONV, has("*bias*"))),
    ("other.bias", _ODD, (has("*bias*"),)),
):
    leaves.contraction(*conditions, cause=cause, name=name)(torchinfo_parameter_multiply_adds)

# Why contraction work is not seen, the most particular reason first.

unseen.misses("hook", under(HOOKS), cause="module.hook-work", source=_HOOKS)
unseen.misses("direct-forward", by_forward(), cause="module.direct-forward", source=_HOOKS)
unseen.misses("unregistered", registered(False), cause="module.unregistered", source=_HOOKS)
unseen.misses("attention", "aten.scaled_dot_product_attention.default", cause="attention.sdpa")
unseen.misses(
    "operator",
    through("torch.Tensor.__matmul__", "torch.Tensor.__rmatmul__"),
    cause="matmul.operator-invisible",
)
unseen.misses("own", has("weight"), leaf(False), cause="module.nonleaf-own-work", source=_SUM)

CONVENTIONS = (tool.convention,)
