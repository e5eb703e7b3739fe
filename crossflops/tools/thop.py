"""Define the convention of thop, which hooks each module whose exact class has a rule
(github.com/Lyken17).

Two editions: 0.0.31, which printed 4.112 G for ResNet-50, and 0.1.1. They differ in biases, batch
norm, average pooling, and in whether the root's own rule counts. Sources: thop/profile.py
(`register_hooks`, `profile`, `dfs_count`), thop/vision/basic_hooks.py, thop/vision/calc_func.py,
thop/rnn_hooks.py of each release.
"""

from math import prod
from typing import Any

from msgspec.structs import replace

from crossflops.ir.trace import ALONG_CHAINS_SQUARED
from crossflops.rules.conditions import (
    HOOKS,
    VMAP,
    Site,
    as_root,
    by_forward,
    called,
    has,
    input_elements,
    inside,
    output_elements,
    padding_dropped,
    registered,
    setting,
    subclass_of,
    through,
    under,
)
from crossflops.rules.rule import (
    Convention,
    Parameters,
    Rules,
    Teaching,
    Tool,
    with_formula,
)
from crossflops.tools import layers

_HOOKS, _RNN, _PROFILE = "thop/vision/basic_hooks.py", "thop/rnn_hooks.py", "thop/profile.py"
_NN = layers.NN
_FILTERS = (*layers.CONVOLUTIONS, *layers.TRANSPOSED)
_DROPPED = "attention.padding-skipped"


def _thop_tool(edition: str, verified: str) -> Tool:
    """Return the description of one thop version as a tool; `verified` is the release with which
    it was checked.
    """
    return Tool(
        "thop",
        edition=edition,
        verified=(verified,),
        prefix=f"thop@{edition}",
        prints="MACs",
        per_mac=1,
        level="module",
        unseen="functional.invisible",
        runs={"training": False, "grad": False, "hooked": True},
        counts_dead_work=True,
        source=_PROFILE,
        teaching=Teaching(
            mechanism="custom_ops of thop.profile",
            takes="module",
            level="module",
            times=lambda classes: ALONG_CHAINS_SQUARED,
            root_adds=edition == "0.1.1",
            source=f"{_PROFILE}: profile",
        ),
    )


v0_1_1 = _thop_tool("0.1.1", "0.1.1.post2209072238")
v0_0_31 = _thop_tool("0.0.31", "0.0.31.post2005241907")

# A module is hooked once along each chain of parents, and the tree is summed along each of them
# (`model.apply(add_hooks)`, `dfs_count`). 0.0.31 forgets what the rule of the root itself counts.
_hooked: dict[str, Any] = {
    "times": ALONG_CHAINS_SQUARED,
    "source": _HOOKS,
    "stands_for": layers.operators_of_layers,
}
both = Rules("module", called(), **_hooked)
new, old = Rules("module", called(), **_hooked), Rules("module", called(), **_hooked)
unseen = Rules("operator", source=f"{_PROFILE}: register_hooks")
v0_1_1.include(new, both, unseen)
v0_0_31.include(old, both, where=(as_root(False),))
v0_0_31.include(unseen)


# Convolutions and linear layers; under `torch.vmap` a hook sees one example of many.


def _thop_kernel_positions(call: Site) -> int:
    """Return the number of kernel positions of a convolution, the product of its kernel sizes.

    They are read from the weight, or from the setting if the weight is computed.
    """
    weights = [parameter.shape for parameter in call.module.params if parameter.name == "weight"]
    if weights:
        return prod(weights[0][2:])
    # weight_norm and its kin leave no parameter "weight"
    return prod(call.extents("kernel_size"))


@new.contraction(layers.TRANSPOSED, cause="conv.transpose-output-size", name="transposed")
@new.contraction(layers.CONVOLUTIONS, cause="conv.unbatched-axis", name="convolution")
@new.contraction(_FILTERS, under(VMAP), cause="function.vmap", name="convolution.vmapped")
@with_formula("n(y) x (x.shape[1] // groups) x K: the second axis is used as the channels")
def thop_convolution_macs(call: Site) -> int:
    """Return the MACs that thop counts for a convolution, transposed or not: result elements x
    (second input axis // groups) x kernel positions.

    calc_func.py: calculate_conv2d_flops.
    """
    return (
        call.result.numel
        * (call.shape("0")[1] // call.number("groups"))
        * _thop_kernel_positions(call)
    )


@old.contraction(layers.TRANSPOSED, cause="conv.transpose-output-size", name="transposed")
@old.contraction(layers.CONVOLUTIONS, cause="conv.unbatched-axis", name="convolution")
@old.contraction(_FILTERS, under(VMAP), cause="function.vmap", name="convolution.vmapped")
@with_formula("n(y) x (in_channels // groups) x K")
def thop_0_0_31_convolution_macs(call: Site) -> int:
    """Return the MACs that thop 0.0.31 counts for a convolution, transposed or not: result
    elements x input channels per group x kernel positions.

    basic_hooks.py: count_convNd.
    """
    return (
        call.result.numel
        * (call.number("in_channels") // call.number("groups"))
        * _thop_kernel_positions(call)
    )


old.adds(_FILTERS, has("bias"), cause="bias.conv", name="convolution.bias")(output_elements)


@both.contraction(layers.LINEAR, padding_dropped(), cause=_DROPPED, name="linear.nested")
@with_formula("in_features x n(y), y without what a padding mask covers")
def thop_nested_linear_macs(call: Site) -> int:
    """Return the MACs that thop counts for a linear layer on a nested tensor: input features x
    result elements without padding.

    basic_hooks.py: count_linear.
    """
    width = (call.result.shape or (0,))[-1]
    return call.number("in_features") * call.valid_positions * width


@both.contraction(layers.LINEAR, cause="matmul.leading-dims-lost", name="linear")
@both.contraction(layers.LINEAR, under(VMAP), cause="function.vmap", name="linear.vmapped")
@with_formula("in_features x n(y)")
def thop_linear_macs(call: Site) -> int:
    """Return the MACs that thop counts for a linear layer: input features x result elements.

    basic_hooks.py: count_linear.
    """
    return call.number("in_features") * call.result.numel


# Recurrent layers and their cells: x [B, T, I], g gates of H units.

_ELEMENTWISE = {
    "RNN": 1,
    "GRU": 3 + 1 + 3,
    "LSTM": 4 + 3 + 1,
}  # of each unit, _count_lstm_cell ...


def _thop_cell_kind(call: Site) -> str:
    """Return "RNN", "GRU" or "LSTM", the kind of a recurrent layer or cell."""
    return call.target.rpartition(".")[2].removesuffix("Cell")


def _thop_gate_count(call: Site) -> int:
    """Return the number of gates of a recurrent layer or cell: 1 for RNN, 3 for GRU, 4 for
    LSTM.
    """
    return {"RNN": 1, "GRU": 3, "LSTM": 4}[_thop_cell_kind(call)]


def _thop_sample_steps(call: Site) -> int:
    """Return batch size x steps of a recurrent layer's input, as thop reads them.

    For a packed one: the number of its steps times its largest batch, which is that of the state.
    """
    if call.input("0.0") is None:
        return prod(call.shape("0")[:2])
    state = next(spec for spec in reversed(call.outputs) if spec.shape)
    return call.shape("0.1")[0] * (state.shape or ())[-2]


def _thop_layer_input_widths(call: Site) -> list[int]:
    """Return the input width of a recurrent layer for each of its layers and directions, in this
    order.
    """
    sides = 2 if call.module.settings["bidirectional"] else 1
    deeper = [call.number("hidden_size") * sides] * (call.number("num_layers") - 1)
    return [size for size in (call.number("input_size"), *deeper) for _ in range(sides)]


@both.contraction(layers.RECURRENT, cause="rnn.fused", source=_RNN, name="recurrent")
@with_formula("sample-steps x the sum over layers, directions of g H (I + H)")
def thop_recurrent_macs(call: Site) -> int:
    """Return the MACs that thop counts for a recurrent layer: batch size x steps x the sum over
    layers and directions of g H (I + H), for g gates, H units and input width I.

    rnn_hooks.py: count_lstm.
    """
    hidden = call.number("hidden_size")
    products = sum(hidden * (size + hidden) for size in _thop_layer_input_widths(call))
    return _thop_sample_steps(call) * _thop_gate_count(call) * products


@both.adds(layers.RECURRENT, cause="rnn.gate-elementwise", name="recurrent.gates", source=_RNN)
@with_formula("sample-steps x directions x layers x the terms of a cell: RNN H, GRU 7H, LSTM 8H")
def thop_gate_operations(call: Site) -> int:
    """Return the elementwise operations that thop counts for a recurrent layer: batch size x steps
    x directions x layers x H (RNN), 7 H (GRU) or 8 H (LSTM) for H units.
    """
    terms = _ELEMENTWISE[_thop_cell_kind(call)] * call.number("hidden_size")
    return _thop_sample_steps(call) * len(_thop_layer_input_widths(call)) * terms


@both.adds(
    layers.RECURRENT, setting(bias=True), cause="bias.rnn", name="recurrent.bias", source=_RNN
)
@with_formula("sample-steps x directions x layers x 2 g H")
def thop_recurrent_bias_adds(call: Site) -> int:
    """Return the additions that thop counts for the biases of a recurrent layer: batch size x
    steps x directions x layers x 2 g H, for g gates and H units.
    """
    biases = 2 * _thop_gate_count(call) * call.number("hidden_size")
    return _thop_sample_steps(call) * len(_thop_layer_input_widths(call)) * biases


@both.contraction(layers.CELLS, cause="rnn.fused", source=_RNN, name="cell")
@with_formula("B x g H (I + H)")
def thop_cell_macs(call: Site) -> int:
    """Return the MACs that thop counts for a recurrent cell: batch size x g H (I + H), for g
    gates, H units and input width I.

    rnn_hooks.py: count_lstm_cell.
    """
    hidden = call.number("hidden_size")
    return (
        call.shape("0")[0] * _thop_gate_count(call) * hidden * (call.number("input_size") + hidden)
    )


@both.adds(layers.CELLS, cause="rnn.gate-elementwise", name="cell.gates", source=_RNN)
@with_formula("B x the elementwise terms of a cell: RNN H, GRU 7H, LSTM 8H")
def thop_cell_gate_operations(call: Site) -> int:
    """Return the elementwise operations that thop counts for a recurrent cell: batch size x H
    (RNN), 7 H (GRU) or 8 H (LSTM) for H units.
    """
    return call.shape("0")[0] * _ELEMENTWISE[_thop_cell_kind(call)] * call.number("hidden_size")


@both.adds(layers.CELLS, setting(bias=True), cause="bias.rnn", name="cell.bias", source=_RNN)
@with_formula("B x 2 g H")
def thop_cell_bias_adds(call: Site) -> int:
    """Return the additions that thop counts for the biases of a recurrent cell: batch size x 2 g
    H, for g gates and H units.
    """
    return call.shape("0")[0] * 2 * _thop_gate_count(call) * call.number("hidden_size")


# Norms, activations, pools and upsampling: the release of 2022 knows more of them.

for name, cause, classes, flag in (
    ("batch_norm", "norm.batch", layers.BATCH_NORMS, "affine"),
    ("instance_norm", "norm.instance", layers.INSTANCE_NORMS, "affine"),
    ("layer_norm", "norm.layer", layers.LAYER_NORM, "elementwise_affine"),
):
    affine, plain = setting(**{flag: True}), setting(**{flag: False})
    new.adds(classes, affine, cause=cause, name=f"{name}.affine", factor=4)(input_elements)
    new.adds(classes, plain, cause=cause, name=f"{name}.plain", factor=2)(input_elements)
old.adds(layers.BATCH_NORMS, cause="norm.batch", name="batch_norm", factor=2)(input_elements)


@new.adds(
    layers.LAYER_NORM, padding_dropped(), cause=_DROPPED, name="layer_norm.nested", factor=-4
)
@with_formula("n(positions of x that a padding mask covers)")
def thop_masked_elements(call: Site) -> int:
    """Return the number of input elements that a padding mask covers, which thop does not
    count.
    """
    shape = call.shape("0")
    return prod(shape) - call.valid_positions * shape[-1]


_PIECEWISE = "act.piecewise-other"
new.adds(f"{_NN}.activation.PReLU", cause=_PIECEWISE, name="prelu")(input_elements)
old.adds(f"{_NN}.activation.LeakyReLU", cause=_PIECEWISE, name="leaky_relu")(input_elements)


@new.adds(f"{_NN}.activation.Softmax", cause="softmax", name="softmax")
@with_formula("rows x (3 f - 1), f the features of the axis")
def thop_softmax_operations(call: Site) -> int:
    """Return the operations that thop counts for nn.Softmax: rows x (3 f - 1), for f elements in a
    row.

    calc_func.py: calculate_softmax.
    """
    shape = call.shape("0")
    features = shape[call.number("dim")]
    return prod(shape) // features * (3 * features - 1)


both.adds(layers.AVERAGE_POOLS, cause="pool.avg", name="average")(output_elements)


@new.adds(layers.ADAPTIVE_POOLS, cause="pool.adaptive", name="adaptive")
@with_formula("int((prod(in / out) + 1) x n(y)), in float64")
def thop_adaptive_average_operations(call: Site) -> int:
    """Return the operations that thop counts for an adaptive average pool: (product of input size
    / result size + 1) x result elements, as an integer.

    basic_hooks.py: count_adap_avgpool.
    """
    ratio = 1.0
    outputs = call.result.shape or ()
    for extent, target in zip(call.shape("0")[2:], outputs[2:], strict=True):
        ratio *= extent / target
    return int((ratio + 1) * call.result.numel)


@old.adds(layers.ADAPTIVE_POOLS, cause="pool.adaptive", name="adaptive")
@with_formula("(prod(in // output_size) + 1) x n(y)")
def thop_0_0_31_adaptive_average_operations(call: Site) -> int:
    """Return the operations that thop 0.0.31 counts for an adaptive average pool: (product of
    input size // output_size + 1) x result elements.

    basic_hooks.py: count_adap_avgpool.
    """
    sizes, spatial = call.module.settings["output_size"], call.shape("0")[2:]
    extents = sizes if isinstance(sizes, list) else [sizes] * len(spatial)
    kernel = prod(int(extent // size) for extent, size in zip(spatial, extents, strict=True))
    return (kernel + 1) * call.result.numel


for edition, mode, cause, factor in (
    (new, "nearest", "upsample.nearest", 1),
    (both, "linear", "upsample.linear", 5),
    (both, "bilinear", "upsample.linear", 11),
    (both, "bicubic", "upsample.linear", 259),
):
    edition.adds(
        layers.UPSAMPLINGS, setting(mode=mode), cause=cause, name=f"upsample.{mode}", factor=factor
    )(output_elements)

# Why contraction work is not seen, the most particular reason first.

_RULED = inside(*layers.CONTRACTING)
unseen.misses("hook", under(HOOKS), cause="module.hook-work")
unseen.misses("root", _RULED, as_root(), cause="module.root-rule-ignored")
unseen.misses("direct-forward", _RULED, by_forward(), cause="module.direct-forward")
unseen.misses("unregistered", _RULED, registered(False), cause="module.unregistered")
unseen.misses("subclass", subclass_of(*layers.CONTRACTING), cause="module.type-unmatched")
unseen.misses("attention", "aten.scaled_dot_product_attention.default", cause="attention.sdpa")
unseen.misses(
    "operator",
    through("torch.Tensor.__matmul__", "torch.Tensor.__rmatmul__"),
    cause="matmul.operator-invisible",
)


def _thop_convention(tool: Tool) -> Convention:
    """Return the convention of a thop version; it counts the parameters of the modules with a
    rule.
    """
    rules = tool.convention.rules
    hooked = {name for rule in rules if rule.level == "module" for name in rule.targets}
    counted = Parameters(
        modules=tuple(sorted(hooked)),
        called=True,
        reference=f"{_PROFILE}: dfs_count; {_HOOKS}: count_parameters",
    )
    return replace(tool.convention, parameters=counted)


CONVENTIONS = (_thop_convention(v0_1_1), _thop_convention(v0_0_31))
