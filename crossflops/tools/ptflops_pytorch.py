"""Define the convention of ptflops' backend "pytorch": hooks on modules of known classes, and
functions that it replaces.

A hook sits on a module of exactly a known type, and sees `__call__` only: what it counts is
divided by the length of the model's input. A replaced function is seen where it is called by its
attribute; what it counts is not divided. A module that calls a replaced function is counted by
both. Sources: ptflops/pytorch_ops.py and ptflops/pytorch_engine.py of 0.7.5.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from crossflops.ir.profile import Amount
from crossflops.ir.trace import Call, Modules, Times, Trace, child_paths, path_counts_by_ancestor
from crossflops.rules.conditions import (
    HOOKS,
    VMAP,
    Condition,
    Site,
    as_root,
    by_forward,
    by_name,
    called,
    captured,
    has,
    inside,
    of_complex,
    output_elements,
    padding_dropped,
    registered,
    setting,
    subclass_of,
    through,
    under,
)
from crossflops.rules.rule import Parameters, Rules, Share, Teaching, Tool, with_formula
from crossflops.tools import layers
from crossflops.tools.contractions import (
    OPERATORS,
    exact_attention_macs,
    exact_linear_macs,
    exact_matmul_macs,
)

_NN = layers.NN
_ACTIVATIONS = {
    "act.relu": (f"{_NN}.activation.ReLU",),
    "act.piecewise-other": tuple(
        f"{_NN}.activation.{name}" for name in ("PReLU", "LeakyReLU", "ReLU6")
    ),
    "act.transcendental": tuple(f"{_NN}.activation.{name}" for name in ("ELU", "GELU")),
}
_NORMS = {
    "norm.batch": tuple(name for name in layers.BATCH_NORMS if "Sync" not in name),
    "norm.instance": layers.INSTANCE_NORMS,
    "norm.group": (f"{_NN}.normalization.GroupNorm",),
    "norm.layer": layers.LAYER_NORM,
}
_POOLS = {
    "pool.max": tuple(
        f"{_NN}.pooling.{kind}Pool{d}d" for kind in ("Max", "AdaptiveMax") for d in (1, 2, 3)
    ),
    "pool.avg": layers.AVERAGE_POOLS,
    "pool.adaptive": layers.ADAPTIVE_POOLS,
}
_UPSAMPLE = f"{_NN}.upsampling.Upsample"
ATTENTION = (f"{_NN}.activation.MultiheadAttention",)
# timm up to 0.9 has it in the file of its vision transformer
TIMM = ("timm.layers.attention.Attention", "timm.models.vision_transformer.Attention")

# Hooks that read their first input, and those that read their result alone.
_READERS = tuple(
    sorted(
        {
            *(*layers.CONTRACTING, *ATTENTION, *TIMM),
            *(name for table in (_NORMS, _POOLS) for names in table.values() for name in names),
        }
    )
)
_OTHERS = tuple(name for names in _ACTIVATIONS.values() for name in names)
_SUPPORTED = frozenset({*_READERS, *_OTHERS, _UPSAMPLE})


@with_formula(
    "Once for every chain of parents without a rule: pytorch_engine.py: accumulate_flops"
)
def ptflops_chain_counts(modules: Modules) -> dict[int, int]:
    """Return how often ptflops counts each module, as {module index: count}: once for each chain
    of parents without a rule.
    """
    return child_paths(modules, _SUPPORTED)


@with_formula("The same chains from every module: print_model_with_flops shows the sum of each")
def _module_chain_counts(modules: Modules) -> dict[int, dict[int, int]]:
    """Return how often ptflops counts each module below each other one, as {module index: {index
    below it: count}}.
    """
    return path_counts_by_ancestor(modules, _SUPPORTED)


def _times_with_user_formulas(classes: frozenset[str]) -> Times:
    """Return how often ptflops counts each module if it also has user formulas for `classes`:
    modules below these are not counted.
    """
    ends = _SUPPORTED | classes
    return Times(
        lambda modules: child_paths(modules, ends),
        lambda modules: path_counts_by_ancestor(modules, ends),
    )


def _has_single_positional_input(call: Call) -> bool:
    """Return whether the call has a single input, a tensor that is given by position."""
    return (call.arity, call.keywords) == (1, 0) and call.input("0") is not None


@with_formula(
    "len(x), x the first positional input of the model, or 1 without one; summed over its calls"
)
def ptflops_batch_size(trace: Trace) -> int:
    """Return the batch size by which ptflops divides its sum: the first axis of the model's first
    positional input, or 1 without one, added up over all calls of the model.

    pytorch_engine.py: batch_counter_hook. All but a single tensor goes by keyword, out of an
    `input_constructor`. Raises LookupError for a scalar, which has no length.
    """
    examples = 0
    for call in trace.calls:
        if call.level == "module" and call.module == 0 and call.via == "call":
            alone = call.parent is not None or _has_single_positional_input(call)
            provided = call.input("0")
            shape = provided.shape if provided else None
            examples += shape[0] if alone and shape is not None else 1
    return examples


_SOURCE = "ptflops/pytorch_ops.py: MODULES_MAPPING"
failing = Rules("module", source=_SOURCE)
hooked = Rules(
    "module",
    called(),
    times=Times(ptflops_chain_counts, _module_chain_counts),
    batch=ptflops_batch_size,
    stands_for=layers.operators_of_layers,
    source=_SOURCE,
)

# Hooks that look at what they are given, and are given nothing, or what has no shape: an encoder
# makes nested tensors of a padding mask where no gradients are asked for.
failing.refuses(
    "fails.nested", _READERS, called(), padding_dropped(), cause="op.unregistered-zero"
)


@hooked.adds(
    _READERS,
    as_root(),
    cause="op.unregistered-zero",
    name="fails.keywords",
    formula="0; the tool fails if no input of the model is positional",
)
def reject_model_without_positional_input(call: Site) -> int:
    """Return 0; raise LookupError if the model has no positional input, because the tool then
    fails.

    pytorch_engine.py: get_flops_pytorch. Raises LookupError where all inputs go by keyword.
    """
    if call.call.parent is None and not _has_single_positional_input(call.call):
        raise LookupError("its inputs go by keyword, which hooks are not given")
    return 0


# Convolutions and linear layers: their products, under `torch.vmap` too, and their bias.
# Pruning and weight_norm put "bias_orig" or "bias_g" in place of the parameter.

_BIASED = has("bias*")


def _ptflops_result_shape(call: Site) -> tuple[int, ...]:
    """Return the shape of a call's result; raise LookupError if it is unknown."""
    shape = call.result.shape
    if shape is None:
        raise LookupError(f"the shape of the result of {call.key} is not known")
    return shape


def _ptflops_macs_per_position(call: Site) -> int:
    """Return the MACs that ptflops counts per position of a convolution: kernel positions x input
    channels x (output channels // groups).
    """
    filters = call.number("out_channels") // call.number("groups")
    return prod(call.extents("kernel_size")) * call.number("in_channels") * filters


@hooked.contraction(layers.CONVOLUTIONS, cause="conv.unbatched-axis", name="convolution")
@hooked.contraction(
    layers.CONVOLUTIONS, under(VMAP), cause="function.vmap", name="convolution.vmapped"
)
@with_formula("x.shape[0] x prod(y.shape[2:]) x K x in_channels x (out_channels // groups)")
def ptflops_convolution_macs(call: Site) -> int:
    """Return the MACs that ptflops counts for a convolution layer: batch size x output positions x
    MACs per position.

    pytorch_ops.py: conv_flops_counter_hook. The first axis is taken for the batch.
    """
    return (
        call.shape("0")[0]
        * prod(_ptflops_result_shape(call)[2:])
        * _ptflops_macs_per_position(call)
    )


@hooked.contraction(layers.TRANSPOSED, cause="conv.unbatched-axis", name="transposed")
@hooked.contraction(
    layers.TRANSPOSED, under(VMAP), cause="function.vmap", name="transposed.vmapped"
)
@with_formula("x.shape[0] x prod(x.shape[2:]) x K x in_channels x (out_channels // groups)")
def ptflops_transposed_macs(call: Site) -> int:
    """Return the MACs that ptflops counts for a transposed convolution layer: batch size x input
    positions x MACs per position.

    pytorch_ops.py: conv_flops_counter_hook with transpose=True.
    """
    source = call.shape("0")
    return source[0] * prod(source[2:]) * _ptflops_macs_per_position(call)


@hooked.adds(layers.TRANSPOSED, _BIASED, cause="bias.conv", name="transposed.bias")
@hooked.adds(layers.CONVOLUTIONS, _BIASED, cause="bias.conv", name="convolution.bias")
@with_formula("x.shape[0] x prod(y.shape[1:])")
def ptflops_convolution_bias_adds(call: Site) -> int:
    """Return the additions that ptflops counts for the bias of a convolution layer: batch size x
    result elements of one example.
    """
    return call.shape("0")[0] * prod(_ptflops_result_shape(call)[1:])


@hooked.contraction(layers.LINEAR, cause="matmul.leading-dims-lost", name="linear")
@hooked.contraction(layers.LINEAR, under(VMAP), cause="function.vmap", name="linear.vmapped")
@with_formula("prod(x.shape[:-1]) x in x out")
def ptflops_linear_macs(call: Site) -> int:
    """Return the MACs that ptflops counts for a linear layer: number of input elements x output
    features.

    pytorch_ops.py: linear_flops_counter_hook.
    """
    return prod(call.shape("0")) * _ptflops_result_shape(call)[-1]


@hooked.adds(layers.LINEAR, _BIASED, cause="bias.linear", name="linear.bias")
@with_formula("prod(x.shape[:-1]) x out")
def ptflops_linear_bias_adds(call: Site) -> int:
    """Return the additions that ptflops counts for the bias of a linear layer: input rows x output
    features.
    """
    return prod(call.shape("0")[:-1]) * _ptflops_result_shape(call)[-1]


# RNN, GRU, LSTM and their cells; batch and steps are read off the first two axes.


def _ptflops_parameter_elements(call: Site, name: str) -> int:
    """Return the number of elements of a module's parameter; raise LookupError without it."""
    for parameter in call.module.params:
        if parameter.name == name:
            return parameter.numel
    raise LookupError(f"{call.module.path or 'the model'} has no parameter {name}")


def _ptflops_layer_elements(call: Site, *prefixes: str) -> int:
    """Return the number of elements of the parameters that begin with `prefixes`, over all layers
    of the forward direction.
    """
    numbers = range(call.number("num_layers"))
    return sum(
        _ptflops_parameter_elements(call, f"{prefix}_l{n}") for prefix in prefixes for n in numbers
    )


def _ptflops_sample_steps(call: Site) -> int:
    """Return batch size x steps of a recurrent layer, from the first two axes of its input; twice
    that if it is bidirectional.
    """
    shape = call.shape("0")
    return shape[0] * shape[1] * (2 if call.module.settings["bidirectional"] else 1)


def _ptflops_cell_operations_per_sample_step(call: Site) -> int:
    """Return the elementwise operations that ptflops counts for one step of one sample with H
    units: RNN H, GRU 7 H, LSTM 10 H.
    """
    kind = call.target.rpartition(".")[2].removesuffix("Cell")
    return {"RNN": 1, "GRU": 7, "LSTM": 10}[kind] * call.number("hidden_size")


@hooked.contraction(layers.RECURRENT, cause="rnn.fused", name="recurrent")
@with_formula("sample-steps x directions x the sum over layers of n(w_ih) + n(w_hh)")
def ptflops_recurrent_macs(call: Site) -> int:
    """Return the MACs that ptflops counts for a recurrent layer: batch size x steps x directions x
    number of elements of the weights of the forward direction.

    pytorch_ops.py: rnn_flops_counter_hook. The weights are those of the forward direction.
    """
    return _ptflops_sample_steps(call) * _ptflops_layer_elements(call, "weight_ih", "weight_hh")


@hooked.adds(layers.RECURRENT, cause="rnn.gate-elementwise", name="recurrent.gates")
@with_formula(
    "sample-steps x directions x layers x the terms of a cell: RNN H, GRU 7 H, LSTM 10 H"
)
def ptflops_gate_operations(call: Site) -> int:
    """Return the elementwise operations that ptflops counts for a recurrent layer: batch size x
    steps x directions x layers x H (RNN), 7 H (GRU) or 10 H (LSTM) for H units.
    """
    return (
        _ptflops_sample_steps(call)
        * call.number("num_layers")
        * _ptflops_cell_operations_per_sample_step(call)
    )


@hooked.adds(layers.RECURRENT, setting(bias=True), cause="bias.rnn", name="recurrent.bias")
@with_formula("sample-steps x directions x the sum over layers of n(b_ih) + n(b_hh)")
def ptflops_recurrent_bias_adds(call: Site) -> int:
    """Return the additions that ptflops counts for the biases of a recurrent layer: batch size x
    steps x directions x number of bias elements of the forward direction.
    """
    return _ptflops_sample_steps(call) * _ptflops_layer_elements(call, "bias_ih", "bias_hh")


def _ptflops_cell_batch_size(call: Site) -> int:
    """Return the batch size of a recurrent cell, the first axis of its input; raise ValueError if
    the input has only one axis.
    """
    rows, _, *_ = call.shape("0")
    return rows


@hooked.contraction(layers.CELLS, cause="rnn.fused", name="cell")
@with_formula("x.shape[0] x (n(w_ih) + n(w_hh))")
def ptflops_cell_macs(call: Site) -> int:
    """Return the MACs that ptflops counts for a recurrent cell: batch size x number of elements of
    its two weight matrices.

    pytorch_ops.py: rnn_cell_flops_counter_hook.
    """
    return _ptflops_cell_batch_size(call) * (
        _ptflops_parameter_elements(call, "weight_ih")
        + _ptflops_parameter_elements(call, "weight_hh")
    )


@hooked.adds(layers.CELLS, cause="rnn.gate-elementwise", name="cell.gates")
@with_formula("x.shape[0] x the terms of a cell: RNN H, GRU 7 H, LSTM 10 H")
def ptflops_cell_gate_operations(call: Site) -> int:
    """Return the elementwise operations that ptflops counts for a recurrent cell: batch size x H
    (RNN), 7 H (GRU) or 10 H (LSTM) for H units.
    """
    return _ptflops_cell_batch_size(call) * _ptflops_cell_operations_per_sample_step(call)


@hooked.adds(layers.CELLS, setting(bias=True), cause="bias.rnn", name="cell.bias")
@with_formula("x.shape[0] x (n(b_ih) + n(b_hh))")
def ptflops_cell_bias_adds(call: Site) -> int:
    """Return the additions that ptflops counts for the biases of a recurrent cell: batch size x
    number of bias elements.
    """
    return _ptflops_cell_batch_size(call) * (
        _ptflops_parameter_elements(call, "bias_ih") + _ptflops_parameter_elements(call, "bias_hh")
    )


# Two rules for attention: PyTorch's with its projections, timm's without them.

_SCORES = "attention.scale-or-softmax"
_PRODUCTS, _ATTENDED = OPERATORS[exact_matmul_macs], OPERATORS[exact_attention_macs]


class _PtflopsAttentionSizes(NamedTuple):
    """The sizes of an nn.MultiheadAttention: `lengths` and `widths` are of query, key and
    value.
    """

    batch_size: int
    lengths: list[int]
    widths: list[int]
    heads: int


def _ptflops_attention_sizes(call: Site) -> _PtflopsAttentionSizes:
    """Return the sizes of an nn.MultiheadAttention.

    Raises where the hook of nn.MultiheadAttention fails.
    """
    if call.call.arity != 3:
        raise ValueError(f"query, key and value by position, not {call.call.arity} inputs")
    shapes = [call.shape(name) for name in "012"]
    index = 1 if call.module.settings["batch_first"] else 0
    lengths, sizes = [shape[index] for shape in shapes], [shape[2] for shape in shapes]
    if sizes[0] != call.number("embed_dim"):
        raise ValueError("the query has another size than embed_dim")
    return _PtflopsAttentionSizes(shapes[0][1 - index], lengths, sizes, call.number("num_heads"))


@hooked.contraction(
    ATTENTION,
    cause="attention.rule",
    stands_for=(*_PRODUCTS, *OPERATORS[exact_linear_macs], *_ATTENDED),
    name="attention",
)
@with_formula("B (Lq Eq^2 + Lk Ek^2 + Lv Ev^2 + h Lq Lk (Eq // h + Ev // h) + Lq Ev^2)")
def ptflops_attention_macs(call: Site) -> int:
    """Return the MACs that ptflops counts for nn.MultiheadAttention: projections, scores and
    weighted values.

    multihead_attention_counter_hook: keys and values are projected by squares of their own size.
    """
    examples, lengths, sizes, heads = _ptflops_attention_sizes(call)
    (queries, keys, _), (size, _, value_size) = lengths, sizes
    projections = sum(length * size**2 for length, size in zip(lengths, sizes, strict=True))
    products = heads * queries * keys * (size // heads + value_size // heads)
    return examples * (projections + products + queries * value_size**2)


@hooked.adds(ATTENTION, cause=_SCORES, name="attention.scores")
@with_formula("B (Lq Eq + h Lq Lk): the scale and the softmax")
def ptflops_attention_score_operations(call: Site) -> int:
    """Return the operations that ptflops counts for scale and softmax of nn.MultiheadAttention."""
    examples, (queries, keys, _), (size, _, _), heads = _ptflops_attention_sizes(call)
    return examples * queries * (size + heads * keys)


@hooked.adds(ATTENTION, cause="bias.attention-proj", name="attention.bias")
@with_formula("B ((Lq + Lk + Lv) Eq + Lq Ev), the first only with in_proj_bias")
def ptflops_attention_bias_adds(call: Site) -> int:
    """Return the additions that ptflops counts for the projection biases of
    nn.MultiheadAttention.
    """
    examples, lengths, (size, _, value_size), _ = _ptflops_attention_sizes(call)
    has_bias = any(parameter.name == "in_proj_bias" for parameter in call.module.params)
    before = sum(lengths) * size if has_bias else 0
    return examples * (before + lengths[0] * value_size)


def _timm_query_rows_and_tokens(call: Site) -> tuple[int, int]:
    """Return (batch size x heads x tokens, tokens) of timm's Attention; raise ValueError unless
    its input has three axes.
    """
    examples, tokens, _ = call.shape("0")
    return examples * call.number("num_heads") * tokens, tokens


@hooked.contraction(
    TIMM, cause="attention.rule", name="timm-attention", stands_for=(*_PRODUCTS, *_ATTENDED)
)
@with_formula("2 B h N N d: the products of timm's Attention")
def ptflops_timm_attention_macs(call: Site) -> int:
    """Return the MACs that ptflops counts for timm's Attention: the two products of attention,
    without projections.

    timm_attention_counter_hook.
    """
    rows, tokens = _timm_query_rows_and_tokens(call)
    return 2 * rows * tokens * call.number("head_dim")


@hooked.adds(TIMM, cause=_SCORES, name="timm-attention.scores")
@with_formula("B h (N d + N N): the scale and the softmax")
def ptflops_timm_score_operations(call: Site) -> int:
    """Return the operations that ptflops counts for scale and softmax of timm's Attention.

    timm_attention_counter_hook.
    """
    rows, tokens = _timm_query_rows_and_tokens(call)
    return rows * (call.number("head_dim") + tokens)


# Activations, norms, pools and nn.Upsample.


@with_formula("n(x), twice if the module has a true attribute `affine`")
def ptflops_norm_adds(call: Site) -> int:
    """Return the operations that ptflops counts for a norm layer: the number of input elements,
    twice that if its attribute `affine` is true.

    bn_flops_counter_hook.
    """
    return ptflops_first_input_elements(call) * (2 if call.module.settings.get("affine") else 1)


@with_formula("n(x), x the first positional input")
def ptflops_first_input_elements(call: Site) -> int:
    """Return the number of elements of the first positional input."""
    return prod(call.shape("0"))


@with_formula("n(y[0]): the elements of the first example of the result")
def ptflops_result_elements_per_example(call: Site) -> int:
    """Return the number of result elements of one example, which is what ptflops counts for
    nn.Upsample.

    upsample_flops_counter_hook.
    """
    output = _ptflops_result_shape(call)
    if not output or not output[0]:
        raise LookupError("the result has no first example")
    return prod(output[1:])


for table, formula in (
    (_ACTIVATIONS, output_elements),
    (_NORMS, ptflops_norm_adds),
    (_POOLS, ptflops_first_input_elements),
):
    for cause, classes in table.items():
        hooked.adds(classes, cause=cause, name=cause)(formula)
for mode in ("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear"):
    cause = "upsample.nearest" if mode.startswith("nearest") else "upsample.linear"
    hooked.adds(_UPSAMPLE, setting(mode=mode), cause=cause, name=f"upsample.{mode}")(
        ptflops_result_elements_per_example
    )


_OPS = "ptflops/pytorch_ops.py"
_AGAIN, _IN_ATTENTION = "functional.double-counted", "attention.double-counted"
_replaced: dict[str, Any] = {"again": _AGAIN, "in_total_only": True}
functional = Rules("function", by_name(), source=f"{_OPS}: FUNCTIONAL_MAPPING", **_replaced)
tensors = Rules("function", by_name(), source=f"{_OPS}: TENSOR_OPS_MAPPING", **_replaced)


# Functions of torch.nn.functional.


def _ptflops_function_names(*names: str) -> tuple[str, ...]:
    """Return each name with the prefix "torch.nn.functional."."""
    return tuple(f"torch.nn.functional.{name}" for name in names)


@with_formula("n(input)")
def ptflops_input_elements(call: Site) -> int:
    """Return the number of elements of the function's input.

    _numel_functional_flops_hook.
    """
    return prod(call.shape("0", "input"))


for cause, names in (
    ("act.relu", ("relu",)),
    ("act.piecewise-other", ("prelu", "relu6")),
    ("act.transcendental", ("elu", "gelu", "silu")),
    ("pool.max", tuple(f"{kind}max_pool{d}d" for kind in ("", "adaptive_") for d in (1, 2, 3))),
    ("pool.avg", tuple(f"avg_pool{d}d" for d in (1, 2, 3))),
    ("pool.adaptive", tuple(f"adaptive_avg_pool{d}d" for d in (1, 2, 3))),
):
    functional.adds(_ptflops_function_names(*names), cause=cause, name=f"F.{cause}")(
        ptflops_input_elements
    )
functional.adds(
    _ptflops_function_names("softmax"), cause="softmax", name="F.softmax", again=_IN_ATTENTION
)(ptflops_input_elements)


def _interpolation_mode_condition(nearest: bool) -> Condition:
    """Return a condition for the mode of an interpolation: it begins with "nearest", or it does
    not if `nearest` is false.
    """

    def has_interpolation_mode(site: Site) -> bool:
        """Return whether the mode fits: it begins with "nearest" exactly if `nearest` is true."""
        mode = site.settings.get("mode", site.settings.get("3", "nearest"))
        return str(mode).startswith("nearest") == nearest

    return Condition(
        'in a mode "nearest"' if nearest else "in any other mode", has_interpolation_mode
    )


# `upsample` calls `interpolate`, which is counted too.
@functional.adds(_ptflops_function_names("upsample"), cause=_AGAIN, name="F.upsample")
@functional.adds(
    _ptflops_function_names("interpolate"),
    _interpolation_mode_condition(nearest=False),
    cause="upsample.linear",
    name="F.interpolate.linear",
)
@functional.adds(
    _ptflops_function_names("interpolate"),
    _interpolation_mode_condition(nearest=True),
    cause="upsample.nearest",
    name="F.interpolate.nearest",
)
@with_formula("prod(size) x N C, or n(input) x scale ^ axes: a float if the scale is a float")
def ptflops_interpolation_operations(call: Site) -> Amount:
    """Return the operations that ptflops counts for an interpolation: the number of result
    elements. It is a float if one float scale is given.

    Scales that are given as a tuple are cut off to integers before they are multiplied.
    _interpolate_functional_flops_hook.
    """
    shape = call.shape("0", "input")
    axes = len(shape) - 2
    if axes < 1:
        raise ValueError("an input without spatial axes")
    size = call.settings.get("size", call.settings.get("1"))
    if isinstance(size, list):
        return prod(map(int, size)) * prod(shape[:2])
    if isinstance(size, int | float):
        return prod([int(size)] * axes) * prod(shape[:2])
    scale = call.settings.get("scale_factor", call.settings.get("2"))
    is_tuple = {"scale_factor", "2"}.isdisjoint(call.call.lists)  # the power of a list fails
    if isinstance(scale, list) and len(scale) == axes and is_tuple:
        return prod(shape) * prod(map(int, scale))
    if not isinstance(scale, int | float):
        raise TypeError(f"scale_factor is {scale!r}")
    amount: Amount = prod(shape) * scale**axes
    return amount


# Functions of torch and methods of tensors.


def _ptflops_method_names(*names: str) -> tuple[str, ...]:
    """Return each name with the prefixes "torch." and "torch.Tensor."."""
    return tuple(f"{owner}.{name}" for name in names for owner in ("torch", "torch.Tensor"))


_ADDED, _ELEMENTWISE = (
    (*_ptflops_method_names("addmm"), "torch.baddbmm"),
    _ptflops_method_names("mul", "add"),
)


@with_formula("n(A) x B.shape[-1]")
def ptflops_matmul_macs(call: Site) -> int:
    """Return the MACs that ptflops counts for a matrix product: number of elements of the first
    operand x last axis of the second.

    _matmul_tensor_flops_hook.
    """
    return prod(call.shape("0", "input")) * call.shape("1", "other")[-1]


@with_formula("n(A) x B.shape[-1] of input + A B")
def ptflops_addmm_macs(call: Site) -> int:
    """Return the MACs that ptflops counts for addmm (input + A B): number of elements of A x last
    axis of B.

    _addmm_tensor_flops_hook.
    """
    return prod(call.shape("1", "mat1")) * call.shape("2", "mat2")[-1]


for name, targets, formula in (
    ("product", _ptflops_method_names("matmul", "mm", "bmm"), ptflops_matmul_macs),
    ("added_product", _ADDED, ptflops_addmm_macs),
):
    for suffix, cause, conditions in (
        (".vmapped", "function.vmap", (under(VMAP),)),
        (".complex", "contraction.complex", (of_complex(),)),
        ("", "matmul.broadcast-batch-lost", ()),
    ):
        tensors.contraction(
            targets, *conditions, cause=cause, name=f"{name}{suffix}", again=_IN_ATTENTION
        )(formula)


@tensors.adds(_ADDED, cause="bias.linear", name="added", again=_IN_ATTENTION)
@with_formula("n(input) of input + A B, unless beta is 0")
def ptflops_addmm_adds(call: Site) -> int:
    """Return the additions that ptflops counts for addmm (input + A B): the number of elements of
    `input`, or 0 if beta is 0.

    _addmm_tensor_flops_hook.
    """
    return prod(call.shape("0", "input")) if call.settings.get("beta", 1) else 0


tensors.adds(_ELEMENTWISE, cause="elementwise.add-function", name="elementwise")(output_elements)


@tensors.adds(_ELEMENTWISE, cause="elementwise.broadcast-shape", name="elementwise.misaligned")
@with_formula("n of the shapes aligned from the left - n(y)")
def ptflops_extra_broadcast_operations(call: Site) -> int:
    """Return how many more operations ptflops counts for an elementwise function because it
    broadcasts shapes from the left: elements of that shape - elements of the true result.

    _elementwise_tensor_flops_hook. Raises LookupError without two operands.
    """
    shapes = [spec.shape for spec in call.inputs if spec.name in {"0", "1", "input", "other"}]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        raise LookupError(f"{call.key} has operands of unknown shape")
    widest = max(map(len, known), default=0)
    padded = [(*shape, *(1,) * (widest - len(shape))) for shape in known]
    # an extent of 0 is smaller than the 1 that stands for a missing one
    aligned = prod(int(max(extents)) for extents in zip(*padded, strict=True))
    return aligned - call.result.numel


_ENGINE = "ptflops/pytorch_engine.py"


@with_formula("int(modules / batch + functions + methods), in floats and in this order")
def ptflops_total_amount(shares: Sequence[Share]) -> Amount:
    """Return the total that ptflops prints: amounts of modules / batch size + amounts of functions
    + amounts of methods, added as floats in this order, as an integer.

    pytorch_engine.py: compute_average_flops_cost, get_flops_pytorch.
    """
    hooked = [share for share in shares if share.rule.batch]
    others = [share for share in shares if not share.rule.batch]
    count: Amount = sum(share.amount for share in hooked)
    count = count / hooked[0].divisor if hooked else 0.0
    count += sum(share.amount for share in others if _is_of_torch_functional(share))
    count += sum(share.amount for share in others if not _is_of_torch_functional(share))
    return int(count)


def _is_of_torch_functional(share: Share) -> bool:
    """Return whether the rule of a share is about functions of torch.nn.functional."""
    return any(target.startswith("torch.nn.functional.") for target in share.rule.targets)


tool = Tool(
    "ptflops-pytorch",
    edition="0.7.5",
    verified=("0.7.5",),
    prints="MACs",
    per_mac=1,
    level="module",
    unseen="functional.invisible",
    runs={"training": False, "hooked": True},
    counts_dead_work=True,
    source=_ENGINE,
    adds_up=ptflops_total_amount,
    parameters=Parameters(trainable=True, reference=f"{_ENGINE}: get_model_parameters_number"),
    teaching=Teaching(
        mechanism="custom_modules_hooks of get_model_complexity_info",
        takes="module",
        level="module",
        times=_times_with_user_formulas,
        batch=ptflops_batch_size,
        source=f"{_ENGINE}: start_flops_count",
    ),
)
tool.include(failing, hooked, functional, tensors)
unseen = tool.rules("operator", source=f"{_ENGINE}: start_flops_count, patch_tensor_ops")

# Why contraction work is not seen, the most particular reason first.

_CONTRACTING = (*layers.CONTRACTING, *ATTENTION)
_PATCHED = tuple(f"torch.{name}" for name in ("matmul", "mm", "bmm", "addmm", "baddbmm"))
unseen.misses("hook", under(HOOKS), cause="module.hook-work")
unseen.misses(
    "captured",
    captured(),
    through(*_PATCHED, "torch.Tensor.*mm", "torch.Tensor.matmul"),
    cause="functional.captured-reference",
)
unseen.misses("direct-forward", by_forward(), inside(*_CONTRACTING), cause="module.direct-forward")
unseen.misses(
    "unregistered", inside(*_CONTRACTING), registered(False), cause="module.unregistered"
)
unseen.misses("timm", inside(*TIMM), cause="module.rule-replaces-or-adds-children")
unseen.misses("subclass", subclass_of(*_CONTRACTING), cause="module.type-unmatched")
unseen.misses("attention", "aten.scaled_dot_product_attention.default", cause="attention.sdpa")
unseen.misses("operator", through("torch.Tensor.__matmul__"), cause="matmul.operator-invisible")

CONVENTIONS = (tool.convention,)
