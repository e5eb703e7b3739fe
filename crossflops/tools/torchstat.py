"""Define the conventions of torchstat 0.0.7: it prints a table of leaf modules, and each column is
one tool here.

Its "Flops" are MACs and more, its "MAdd" are operations: 2K - 1 for a sum of K products. MemRead
and MemWrite are bytes, `torchstat-memory` is its column "memory" before it becomes megabytes.
Every column stands for the last call of each registered module without children, on an image
that torchstat makes itself: a batch of one; MAdd leaves the first axis out. All columns are filled
in one run, so that what fails in one of them leaves none: an assertion of the tool is a
LookupError here. The totals here are the sums of the columns; in the tool's own last line, MemRead
and MemWrite are those of the last layer. Sources: compute_flops.py (compute_Conv2d_flops ...),
compute_madd.py (compute_Conv2d_madd ...), compute_memory.py (compute_Conv2d_memory ...),
model_hook.py (wrap_call, ModelHook) and statistics.py (ModelStat).
"""

from math import prod

from crossflops.ir.trace import ONCE, Modules, Times
from crossflops.rules.conditions import (
    Condition,
    Site,
    as_root,
    called,
    has,
    input_elements,
    kind_of,
    leaf,
    output_elements,
    setting,
)
from crossflops.rules.rule import Parameters, Rules, Tool, with_formula
from crossflops.tools.layers import NN

_FLOPS, _MADD = "torchstat/compute_flops.py", "torchstat/compute_madd.py"
_MEMORY, _HOOK = "torchstat/compute_memory.py", "torchstat/model_hook.py"
_EXPORT, _TRAFFIC = "graph.export-decomposition", "memory.layer-traffic"
_FIRST, _FAILS = "unit.first-add-omitted", "op.unregistered-zero"


def _any_class_condition(*kinds: Condition) -> Condition:
    """Return a condition that holds for modules of all classes that at least one of the given
    conditions names.
    """
    return kind_of(*(name for kind in kinds for name in kind.names))


# A rule holds for a class and for what inherits from it (`isinstance`).
_CONV, _TRANSPOSED = kind_of(f"{NN}.conv.Conv2d"), kind_of(f"{NN}.conv.ConvTranspose2d")
_LINEAR, _BILINEAR = kind_of(f"{NN}.linear.Linear"), kind_of(f"{NN}.linear.Bilinear")
_BATCH_NORM = kind_of(f"{NN}.batchnorm.BatchNorm2d")
_MAX, _AVERAGE = kind_of(f"{NN}.pooling.MaxPool2d"), kind_of(f"{NN}.pooling.AvgPool2d")
_RELU = kind_of(f"{NN}.activation.ReLU", f"{NN}.activation.ReLU6")
_PRELU = kind_of(f"{NN}.activation.PReLU")
_ELU = kind_of(f"{NN}.activation.ELU", f"{NN}.activation.LeakyReLU")
_SOFTMAX, _UPSAMPLE = kind_of(f"{NN}.activation.Softmax"), kind_of(f"{NN}.upsampling.Upsample")
_CONTRACTING = _any_class_condition(_CONV, _TRANSPOSED, _LINEAR, _BILINEAR)
_KNOWN = _any_class_condition(
    _CONTRACTING, _BATCH_NORM, _MAX, _AVERAGE, _RELU, _PRELU, _ELU, _SOFTMAX, _UPSAMPLE
)
_BY_ELEMENT = _any_class_condition(_RELU, _ELU, _PRELU)
_OF_IMAGES = {"Conv2d", "ConvTranspose2d", "BatchNorm2d", "MaxPool2d", "AvgPool2d"}


def last_call_condition(expected: bool = True) -> Condition:
    """Return a condition that holds for the last call of a module, or, if `expected` is false, for
    its earlier calls, whose numbers torchstat overwrites.
    """

    def is_last_call_as_expected(site: Site) -> bool:
        """Return whether the nearest module call is the last one of its module, or an earlier one
        if `expected` is false.
        """
        owner = next((call for call in site.around if call.level == "module"), site.call)
        return (owner.key in site.trace.last_call_keys) == expected

    return Condition(
        "only its last call" if expected else "all calls except the last", is_last_call_as_expected
    )


def _torchstat_class_positions(modules: Modules) -> dict[str, int]:
    """Return {class name: position in torchstat's list of classes}, for the classes of modules
    without children.

    By first appearance.
    """
    indices: dict[str, int] = {}
    for module in modules:
        if module.names and not module.children:
            indices.setdefault(module.bases[0], len(indices))
    return indices


@with_formula("Once for a module whose class is the class of a registered module without children")
def torchstat_wrapper_counts(modules: Modules) -> dict[int, int]:
    """Return {module index: 1 or 0}: 1 if the module's class is one that torchstat wraps, because
    a registered module without children has it.

    model_hook.py: wrap_call stands in the place of such a class's `__call__`.
    """
    classes = _torchstat_class_positions(modules)
    return {module.id: int(module.bases[0] in classes) for module in modules}


@with_formula(
    "Once for a module with a base class whose `__call__` was replaced before that of its own "
    "class, or alone"
)
def torchstat_base_wrapper_counts(modules: Modules) -> dict[int, int]:
    """Return {module index: 1 or 0}: 1 if torchstat wraps a base of the module's class before that
    class itself, or never wraps that class.

    model_hook.py: wrap_call takes what it finds at the class for the original.
    """
    indices = _torchstat_class_positions(modules)

    def position_in_torchstat_class_list(name: str) -> int:
        """Return the position of a class in torchstat's list of classes, the length of the list if
        it is not in there.
        """
        return indices.get(name, len(indices))

    return {
        module.id: int(
            any(
                position_in_torchstat_class_list(base)
                < position_in_torchstat_class_list(module.bases[0])
                for base in module.bases[1:]
            )
        )
        for module in modules
    }


# Where the tool ends without a number, whatever the column.

_WRAPPED = Times(torchstat_wrapper_counts)
failures = Rules("module", source=f"{_HOOK}: ModelHook._sub_module_call_hook")


@failures.fails(
    as_root(),
    cause=_FAILS,
    name="fails.image",
    source="torchstat/statistics.py: ModelStat",
    formula="the input is not one float32 image (1, C, H, W)",
)
def reject_other_than_one_image(call: Site) -> int:
    """Return 0, or raise LookupError unless the model has one float32 image of shape (1, C, H, W)
    as its input.
    """
    first = call.inputs[0]
    shape = first.shape or ()
    if len(call.inputs) > 1 or len(shape) != 4 or shape[0] != 1 or first.dtype != "float32":
        raise LookupError("torchstat runs a model on one image that it makes, 1xCxHxW float32")
    return 0


@failures.fails(
    called(),
    cause=_FAILS,
    name="fails.leaf",
    times=_WRAPPED,
    formula="not exactly one positional input tensor and one output",
)
def reject_other_than_one_tensor(call: Site) -> int:
    """Return 0, or raise LookupError unless the module has a tensor as its first positional input,
    and one result.
    """
    call.shape("0")
    if len(call.outputs) != 1:
        raise LookupError(f"{call.key} returns {len(call.outputs)} tensors, not one")
    return 0


@failures.fails(
    *(_KNOWN, called()),
    cause=_FAILS,
    name="fails.arguments",
    times=_WRAPPED,
    source=f"{_FLOPS}, {_MADD}, {_MEMORY}: assert",
    formula="an assertion of the rule of the layer does not hold",
)
def reject_unsupported_arguments(call: Site) -> int:
    """Return 0, or raise LookupError if an assertion in torchstat's rule for this layer fails."""
    first, second = call.shape("0"), call.input("1")
    bases = {name.rpartition(".")[2] for name in call.module.bases}
    if "Bilinear" in bases:
        ranks = [len(first), len(call.shape("1")), len(_torchstat_result_shape(call))]
        if ranks != [2, 2, 2]:
            raise LookupError(f"torchstat asserts two axes, and {call.key} has {ranks}")
    elif second is not None:
        raise LookupError(f"torchstat has no rule for the second input of {call.key}")
    elif not bases.isdisjoint(_OF_IMAGES) or "Linear" in bases:
        rank = 2 if bases.isdisjoint(_OF_IMAGES) else 4
        if len(first) != rank or len(_torchstat_result_shape(call)) != rank:
            raise LookupError(f"torchstat asserts {rank} axes, and {call.key} has {len(first)}")
    elif len(first) < (2 if "Softmax" in bases else 1):
        raise LookupError(f"torchstat asserts more axes than {call.key} has")
    return 0


@failures.fails(
    called(),
    cause=_FAILS,
    name="fails.recursion",
    times=Times(torchstat_base_wrapper_counts),
    formula="the wrapper of a class calls itself",
)
def reject_endless_wrapper(call: Site) -> int:
    """Raise LookupError, because torchstat's wrapper of this class calls itself without end.

    model_hook.py: wrap_call.
    """
    raise LookupError(f"torchstat wraps a base of {call.target}, and is lost in its own wrapper")


earlier = Rules("operator", last_call_condition(expected=False), source=f"{_HOOK}: wrap_call")
earlier.misses("earlier", _CONTRACTING, cause="module.reused")


def _report_column_tool(tool: str, prints: str, per_mac: int, file: str) -> Tool:
    """Return the description of one column of torchstat's table as a tool."""
    return Tool(
        tool,
        edition="0.0.7",
        verified=("0.0.7",),
        prints=prints,
        per_mac=per_mac,
        level="module",
        unseen="op.unregistered-zero",
        runs={"training": False},
        counts_dead_work=True,
        source=file,
        parameters=Parameters(leaves=True, called=True, reference=f"{_HOOK}: wrap_call"),
    )


def _torchstat_rule_group(source: str) -> Rules:
    """Return a new, empty group of rules for the last call of each leaf module."""
    return Rules("module", called(), leaf(), last_call_condition(), source=source, times=ONCE)


columns = (
    _report_column_tool("torchstat", "Flops", 1, _FLOPS),
    _report_column_tool("torchstat-madd", "MAdd", 2, _MADD),
    _report_column_tool("torchstat-memread", "MemRead", 0, _MEMORY),
    _report_column_tool("torchstat-memwrite", "MemWrite", 0, _MEMORY),
    _report_column_tool("torchstat-memory", "memory", 0, _HOOK),
)
flops, madd, read, write = (
    _torchstat_rule_group(file) for file in (_FLOPS, _MADD, _MEMORY, _MEMORY)
)
hook_rules = _torchstat_rule_group(f"{_HOOK}: wrap_call")
for column, rules in zip(columns, (flops, madd, read, write, hook_rules), strict=True):
    column.include(failures, rules)
for column in columns[:2]:
    column.include(earlier)


def _torchstat_result_shape(call: Site) -> tuple[int, ...]:
    """Return the shape of a call's result, or () if it is unknown."""
    return call.result.shape or ()


def _torchstat_window_positions(call: Site) -> int:
    """Return the number of kernel positions of a two-dimensional window; a single number applies
    to both axes.
    """
    sizes = call.extents("kernel_size")
    return prod(sizes) if isinstance(call.module.settings["kernel_size"], list) else sizes[0] ** 2


@with_formula("n(x) / N")
def input_elements_per_example(call: Site) -> int:
    """Return the number of input elements of one example."""
    return prod(call.shape("0")[1:])


@with_formula("n(y) / N")
def output_elements_per_example(call: Site) -> int:
    """Return the number of result elements of one example."""
    return prod(_torchstat_result_shape(call)[1:])


# Convolutions and products.


@flops.contraction(_CONV, cause=_EXPORT, name="conv2d")
@with_formula("N Ho Wo x kh kw x C x (Co // groups)")
def torchstat_convolution_macs(call: Site) -> int:
    """Return the MACs that the column Flops has for a convolution: batch size x output positions x
    kernel positions x input channels x (output channels // groups).
    """
    batch, channels = call.shape("0")[:2]
    out_channels, height, width = _torchstat_result_shape(call)[1:]
    window = _torchstat_window_positions(call) * channels * (out_channels // call.number("groups"))
    return window * batch * height * width


def _torchstat_macs_per_output_element(call: Site) -> int:
    """Return kernel positions x input channels per group of a convolution."""
    return _torchstat_window_positions(call) * (call.shape("0")[1] // call.number("groups"))


def _torchstat_elements_of_whole_groups(call: Site, indices: tuple[int, ...]) -> int:
    """Return the product of `indices` (sizes of axes) x output channels, with the channels rounded
    down to a multiple of the groups.
    """
    groups = call.number("groups")
    return prod(indices) * (_torchstat_result_shape(call)[1] // groups) * groups


@madd.contraction(_CONV, cause=_EXPORT, name="conv2d")
@with_formula("Ho Wo x Co x kh kw x (C // groups)")
def torchstat_convolution_macs_per_example(call: Site) -> int:
    """Return the MACs in the column MAdd for a convolution of one example: output positions x
    output channels x kernel positions x input channels per group.
    """
    return _torchstat_elements_of_whole_groups(
        call, _torchstat_result_shape(call)[2:]
    ) * _torchstat_macs_per_output_element(call)


flops.adds(_CONV, has("bias"), cause="bias.conv", name="conv2d.bias")(output_elements)
madd.adds(_CONV, cause=_FIRST, name="conv2d.first", factor=-1)(output_elements_per_example)
madd.adds(_CONV, has("bias"), cause="bias.conv", name="conv2d.bias")(output_elements_per_example)


@madd.contraction(_TRANSPOSED, cause=_EXPORT, name="transposed")
@with_formula("H W x Co x kh kw x (C // groups), H, W of the input")
def torchstat_transposed_macs_per_example(call: Site) -> int:
    """Return the MACs in the column MAdd for a transposed convolution of one example: input
    positions x output channels x kernel positions x input channels per group.
    """
    return torchstat_transposed_sums_per_example(call) * _torchstat_macs_per_output_element(call)


@madd.adds(_TRANSPOSED, has("bias"), cause="bias.conv", name="transposed.bias")
@madd.adds(_TRANSPOSED, cause=_FIRST, name="transposed.first", factor=-1)
@with_formula("H W x Co, one sum for each position of the input")
def torchstat_transposed_sums_per_example(call: Site) -> int:
    """Return the number of sums in the column MAdd for a transposed convolution of one example:
    input positions x output channels.
    """
    return _torchstat_elements_of_whole_groups(call, call.shape("0")[2:])


@flops.contraction(_LINEAR, cause=_EXPORT, name="linear")
@with_formula("N x in x out, of two axes")
def torchstat_linear_macs(call: Site) -> int:
    """Return the MACs that the column Flops has for a linear layer: batch size x input features x
    output features.
    """
    return prod(call.shape("0")) * _torchstat_result_shape(call)[1]


@madd.contraction(_LINEAR, cause=_EXPORT, name="linear")
@with_formula("in x out, of two axes")
def torchstat_linear_macs_per_example(call: Site) -> int:
    """Return the MACs in the column MAdd for a linear layer and one example: input features x
    output features.
    """
    return call.shape("0")[1] * _torchstat_result_shape(call)[1]


madd.adds(_LINEAR, cause=_FIRST, name="linear.first", factor=-1)(output_elements_per_example)


@madd.contraction(_BILINEAR, cause=_EXPORT, name="bilinear")
@with_formula("out x (in1 x in2 + in2), of two axes")
def torchstat_bilinear_macs_per_example(call: Site) -> int:
    """Return the MACs in the column MAdd for nn.Bilinear and one example: output features x (in1 x
    in2 + in2), the sizes of the two inputs.
    """
    first, second = call.shape("0")[1], call.shape("1")[1]
    return _torchstat_result_shape(call)[1] * (first * second + second)


madd.adds(_BILINEAR, cause=_FIRST, name="bilinear.first", factor=-1)(output_elements_per_example)

# Norms, pools, activations and upsampling.

for kind, affine, factor in (("affine", True, 2), ("plain", False, 1)):
    flops.adds(
        *(_BATCH_NORM, setting(affine=affine)),
        cause="norm.batch",
        name=f"batch_norm.{kind}",
        factor=factor,
    )(input_elements)
for name, cause, about in (
    ("max_pool", "pool.max", _MAX),
    ("avg_pool", "pool.avg", _AVERAGE),
    ("relu", "act.relu", _RELU),
    ("other", "act.piecewise-other", _any_class_condition(_PRELU, _ELU)),
):
    flops.adds(about, cause=cause, name=name)(input_elements)
madd.adds(_BATCH_NORM, cause="norm.batch", name="batch_norm", factor=4)(input_elements_per_example)


@madd.adds(_AVERAGE, cause="pool.avg", name="avg_pool")
@madd.adds(_MAX, cause="pool.max", name="max_pool")
@with_formula("kh kw x n(y) / N")
def torchstat_pool_operations_per_example(call: Site) -> int:
    """Return the operations in the column MAdd for a pool of one example: window positions x
    result elements.
    """
    return _torchstat_window_positions(call) * output_elements_per_example(call)


madd.adds(_MAX, cause="pool.max", name="max_pool.first", factor=-1)(output_elements_per_example)
madd.adds(_RELU, cause="act.relu", name="relu")(input_elements_per_example)
madd.adds(_SOFTMAX, cause="softmax", name="softmax", factor=3)(input_elements_per_example)


@madd.adds(_SOFTMAX, cause="softmax", name="softmax.first", factor=-1)
@with_formula("1, since a sum of n terms has n - 1 additions")
def torchstat_missing_softmax_adds(call: Site) -> int:
    """Return 1, the addition less in the sum of a softmax: a sum of n terms has n - 1
    additions.
    """
    return 1


@flops.adds(_UPSAMPLE, cause="upsample.nearest", name="upsample")
@with_formula("N Ho Wo: the channels are ignored")
def torchstat_upsample_positions(call: Site) -> int:
    """Return the operations in the column Flops for nn.Upsample: batch size x output positions,
    without the channels.
    """
    return call.shape("0")[0] * prod(_torchstat_result_shape(call)[2:])


# Bytes that are read, written and held.


def _torchstat_tensor_bytes(call: Site, elements: int) -> int:
    """Return `elements` in bytes, with the element size of the call's first input."""
    spec = call.input("0")
    if spec is None or not spec.numel:
        raise LookupError(f"{call.key} has no input 0")
    return elements * (spec.nbytes // spec.numel)


@read.adds(_LINEAR, cause=_TRAFFIC, name="row")
@read.adds(_any_class_condition(_CONV, _BATCH_NORM, _MAX, _AVERAGE), cause=_TRAFFIC, name="image")
@read.adds(_BY_ELEMENT, cause=_TRAFFIC, name="input")
@write.adds(_BATCH_NORM, cause=_TRAFFIC, name="batch_norm")
@write.adds(_BY_ELEMENT, cause=_TRAFFIC, name="input")
@with_formula("n(x), in bytes")
def torchstat_input_bytes(call: Site) -> int:
    """Return the size of the first input in bytes."""
    return _torchstat_tensor_bytes(call, prod(call.shape("0")))


@write.adds(_LINEAR, cause=_TRAFFIC, name="row")
@write.adds(_any_class_condition(_CONV, _MAX, _AVERAGE), cause=_TRAFFIC, name="image")
@with_formula("n(y), in bytes")
def torchstat_output_bytes(call: Site) -> int:
    """Return the size of the result in bytes, with the element size of the input."""
    return _torchstat_tensor_bytes(call, prod(_torchstat_result_shape(call)))


@read.adds(_any_class_condition(_CONV, _LINEAR, _PRELU), cause=_TRAFFIC, name="parameters")
@with_formula("N x trainable parameters, in bytes of the input's type")
def torchstat_parameter_bytes(call: Site) -> int:
    """Return batch size x size of the trainable parameters in bytes, with the element size of the
    input.
    """
    sizes = {part.storage: part.numel for part in call.module.params if part.trainable}
    return _torchstat_tensor_bytes(call, call.shape("0")[0] * sum(sizes.values()))


@read.adds(_BATCH_NORM, cause=_TRAFFIC, name="batch_norm", factor=2)
@with_formula("N x C, in bytes")
def torchstat_channel_bytes(call: Site) -> int:
    """Return batch size x channels in bytes, with the element size of the input."""
    return _torchstat_tensor_bytes(call, prod(call.shape("0")[:2]))


hook_rules.adds(cause=_TRAFFIC, name="output", factor=4)(output_elements_per_example)

CONVENTIONS = tuple(column.convention for column in columns)
