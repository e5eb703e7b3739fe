"""Define the convention of the TensorFlow profiler, which counts the `float_ops` of a frozen
graph.

tf.compat.v1.profiler sums over the operations of a graph what the functions registered for them
compute from static shapes; an operation without such a function, or with an open shape, is 0
(tensorflow/python/profiler/tfprof_logger.py: _get_logged_ops).
It sees the graph that TensorFlow would run: loops and branches taken apart, each once.
Source: tensorflow/python/profiler/internal/flops_registry.py, tensorflow/python/ops/nn_ops.py.
"""

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import cast

from crossflops.ir.training import GRADIENTS
from crossflops.rules.conditions import Condition, Site, of_type, recorded_as, setting
from crossflops.rules.rule import Tool, with_formula

_REGISTRY = "tensorflow/python/profiler/internal/flops_registry.py"
_NN_OPS = "tensorflow/python/ops/nn_ops.py"

tensorflow = Tool(
    "tensorflow",
    edition="2.21",
    verified=("2.21.0",),
    prints="float_ops",
    per_mac=2,
    level="operator",
    unseen="op.unregistered-zero",
    counts_dead_work=True,
    source=_REGISTRY,
    framework="tensorflow",
    step="runs",
)
rules = tensorflow.rules("operator", source=_REGISTRY)

Shape = tuple[int, ...]


class _OpenShapeError(Exception):
    """A shape has an open size."""


def _zero_if_shape_unknown(amount: Callable[[Site], int]) -> Callable[[Site], int]:
    """Return a formula that gives 0 for a call with a shape that is not fully known, and else what
    `amount` gives.

    There the registered function raises an error.
    """

    @functools.wraps(amount)
    def amount_or_zero_if_shape_unknown(call: Site) -> int:
        """Return what `amount` gives for the call, or 0 if it reads a shape that is not fully
        known.
        """
        try:
            return amount(call)
        except _OpenShapeError:
            return 0

    return amount_or_zero_if_shape_unknown


def _tensorflow_input_shape(call: Site, index: int) -> Shape:
    """Return the shape of the input at `index`; raise _OpenShapeError if it is not fully known."""
    shape = call.inputs[index].shape
    if shape is None:
        raise _OpenShapeError
    return shape


def _tensorflow_result_shape(call: Site) -> Shape:
    """Return the shape of the first result; raise _OpenShapeError if it is not fully known."""
    shape = call.outputs[0].shape
    if shape is None:
        raise _OpenShapeError
    return shape


def _tensorflow_setting_sizes(call: Site, name: str) -> Sequence[int]:
    """Return the setting `name` of a call, which is a list of sizes."""
    return cast(Sequence[int], call.settings[name])


# Contractions. Of those in a loop or a branch, and of those that TensorFlow cuts up, the causes
# are others: the more particular conditions come first, since the first rule that fits holds.

_CONVOLUTIONS, _DEPTHWISE = ("Conv2D", "Conv3D"), ("DepthwiseConv2dNative",)
_PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")


@_zero_if_shape_unknown
@with_formula("n(out) x filter area x filter[in], which belongs to one group")
def tensorflow_convolution_macs(call: Site) -> int:
    """Return the MACs that TensorFlow counts for a convolution: result elements x filter positions
    x input channels of one group.
    """
    _tensorflow_input_shape(call, 0)
    return prod(_tensorflow_input_shape(call, 1)[:-1]) * prod(_tensorflow_result_shape(call))


@_zero_if_shape_unknown
@with_formula("n(out) x filter height x width")
def tensorflow_depthwise_macs(call: Site) -> int:
    """Return the MACs that TensorFlow counts for a depthwise convolution: result elements x filter
    positions.
    """
    _tensorflow_input_shape(call, 0)
    return prod(_tensorflow_input_shape(call, 1)[:2]) * prod(_tensorflow_result_shape(call))


@_zero_if_shape_unknown
@with_formula("K x n(out), K an axis of the first operand")
def tensorflow_matmul_macs(call: Site) -> int:
    """Return the MACs that TensorFlow counts for a matrix product: result elements x one axis of
    the first operand.
    """
    first = _tensorflow_input_shape(call, 0)
    # a batched product has adj_x instead of transpose_a, which is not looked at
    return first[-2 if call.settings.get("transpose_a") else -1] * prod(
        _tensorflow_result_shape(call)
    )


_CONTRACTIONS = (
    ("convolution", tensorflow_convolution_macs, _CONVOLUTIONS, f"{_NN_OPS}: _calc_conv_flops"),
    ("depthwise", tensorflow_depthwise_macs, _DEPTHWISE, f"{_NN_OPS}: _calc_depthwise_conv_flops"),
    ("matmul", tensorflow_matmul_macs, _PRODUCTS, f"{_REGISTRY}: _calc_mat_mul_flops"),
)


def _has_unknown_shape(call: Site) -> bool:
    """Return whether a shape that TensorFlow's FLOP formula reads is unknown: of the result, the
    first operand, or the filter of a convolution.

    For a product that is not the second operand's.
    """
    read = call.inputs[: 1 if call.target in _PRODUCTS else 2]
    return any(spec.shape is None for spec in (*read, *call.outputs))


_LOOPED = recorded_as("in the body of a loop", in_loop=True)
_BRANCHED = recorded_as("in a branch", in_branch=True)
_DILATED = recorded_as("dilated through SpaceToBatch", cut=True)
_ADJOINT = setting(adj_x=True)
for suffix, cause, condition, formulas in (
    (
        ".in-loop",
        "control.loop-body-once",
        _LOOPED,
        (tensorflow_convolution_macs, tensorflow_depthwise_macs, tensorflow_matmul_macs),
    ),
    (
        ".in-branch",
        "control.branch",
        _BRANCHED,
        (tensorflow_convolution_macs, tensorflow_depthwise_macs, tensorflow_matmul_macs),
    ),
    (
        ".dilated",
        "conv.dilation-by-batches",
        _DILATED,
        (tensorflow_convolution_macs, tensorflow_depthwise_macs),
    ),
    (".adjoint", "matmul.adjoint-ignored", _ADJOINT, (tensorflow_matmul_macs,)),
    (
        "",
        "graph.export-decomposition",
        None,
        (tensorflow_convolution_macs, tensorflow_depthwise_macs, tensorflow_matmul_macs),
    ),
):
    if condition is None:
        every = (*_CONVOLUTIONS, *_DEPTHWISE, *_PRODUCTS)
        where = Condition("with an unknown shape", _has_unknown_shape)
        rules.hides("open", every, where, cause="graph.unknown-shape", source=_REGISTRY)
    for rule_name, formula, operations, source in _CONTRACTIONS:
        if formula in formulas:
            only_where = [] if condition is None else [condition]
            name = f"{rule_name}{suffix}"
            rules.contraction(operations, *only_where, cause=cause, name=name, source=source)(
                formula
            )


_CHANNELS_LAST = setting(data_format="NHWC")
# Of a training step, or of the model itself, which may compute gradients, too.
_BACKWARD = recorded_as("in the backward pass", gradient=True)
_FORWARD = recorded_as("in the forward pass", gradient=False)
_TRANSPOSED = {"cause": "conv.transpose-output-size"} | {
    "source": f"{_REGISTRY}: _conv_2d_backprop_input_flops"
}


def _tensorflow_transposed_flops(call: Site) -> int:
    """Return the FLOPs that TensorFlow counts for a transposed convolution: int(2 x result
    elements x filter elements / (output channels x strides)).
    """
    out, weights, strides = (
        _tensorflow_result_shape(call),
        _tensorflow_input_shape(call, 1),
        _tensorflow_setting_sizes(call, "strides"),
    )
    return int(2 * prod(out) * prod(weights) / (out[-1] * (strides[1] * strides[2])))


def _has_gradient_of_unknown_shape(call: Site) -> bool:
    """Return whether the result of a convolution's gradient, or the operand that TensorFlow's FLOP
    formula reads, has an unknown shape.
    """
    index = 1 if call.target == "Conv2DBackpropInput" else 0
    return call.inputs[index].shape is None or call.outputs[0].shape is None


rules.hides(
    "open-gradient",
    ("Conv2DBackpropInput", "Conv2DBackpropFilter"),
    _BACKWARD,
    Condition("with an unknown shape", _has_gradient_of_unknown_shape),
    cause="graph.unknown-shape",
    source=f"{_REGISTRY}: graph_util.tensor_shape_from_node_def_name, assert_is_fully_defined",
)


@rules.contraction(
    "Conv2DBackpropInput",
    _CHANNELS_LAST,
    _BACKWARD,
    name="image-gradient",
    cause="conv.backward-by-strides",
    source=f"{_REGISTRY}: _conv_2d_backprop_input_flops",
)
@rules.contraction(
    "Conv2DBackpropInput", _CHANNELS_LAST, _FORWARD, name="transposed-convolution", **_TRANSPOSED
)
@_zero_if_shape_unknown
@with_formula("int(2 n(out) n(filter) / (out channels x strides)) // 2")
def tensorflow_transposed_macs(call: Site) -> int:
    """Return the MACs that TensorFlow counts for a transposed convolution: half of its FLOPs,
    rounded down.
    """
    return _tensorflow_transposed_flops(call) // 2


@rules.adds("Conv2DBackpropInput", _CHANNELS_LAST, name="transposed-odd", **_TRANSPOSED)
@_zero_if_shape_unknown
@with_formula("int(2 n(out) n(filter) / (out channels x strides)) mod 2")
def tensorflow_transposed_remainder(call: Site) -> int:
    """Return the FLOP that is left if the FLOPs of a transposed convolution are halved: 1 for an
    odd number, else 0.
    """
    return _tensorflow_transposed_flops(call) % 2


_OF_FILTER = {"cause": "conv.backward-by-strides"} | {
    "source": f"{_REGISTRY}: _conv_2d_backprop_filter_flops"
}


def _tensorflow_filter_gradient_flops(call: Site) -> int:
    """Return the FLOPs that TensorFlow counts for the filter gradient of a convolution: int(2 x
    input elements x filter elements / (input channels x strides)).
    """
    image, weights, strides = (
        _tensorflow_input_shape(call, 0),
        _tensorflow_result_shape(call),
        _tensorflow_setting_sizes(call, "strides"),
    )
    return int(2 * prod(image) * prod(weights) / (image[-1] * (strides[1] * strides[2])))


@rules.contraction(
    "Conv2DBackpropFilter", _CHANNELS_LAST, _BACKWARD, name="filter-gradient", **_OF_FILTER
)
@_zero_if_shape_unknown
@with_formula("int(2 n(in) n(filter) / (channels x strides)) // 2")
def tensorflow_filter_gradient_macs(call: Site) -> int:
    """Return the MACs that TensorFlow counts for the filter gradient of a convolution: half of its
    FLOPs, rounded down.
    """
    return _tensorflow_filter_gradient_flops(call) // 2


@rules.adds(
    "Conv2DBackpropFilter", _CHANNELS_LAST, _BACKWARD, name="filter-gradient-odd", **_OF_FILTER
)
@_zero_if_shape_unknown
@with_formula("int(2 n(in) n(filter) / (channels x strides)) mod 2")
def tensorflow_filter_gradient_remainder(call: Site) -> int:
    """Return the FLOP that is left if the FLOPs of a filter gradient are halved: 1 for an odd
    number, else 0.
    """
    return _tensorflow_filter_gradient_flops(call) % 2


# Elementwise operations and reductions: one formula for each kind of operation, and a cause for
# the layer of Keras around it, as the trace notes it ("" where it is none of these).


def tensorflow_elementwise_flops(call: Site) -> int:
    """Return the FLOPs that TensorFlow counts for an operation of two operands: the number of
    result elements, twice that for SquaredDifference, four times for RsqrtGrad.

    In the tool: _binary_per_element_op_flops.
    """
    return {"SquaredDifference": 2, "RsqrtGrad": 4}.get(call.target, 1) * prod(
        _tensorflow_result_shape(call)
    )


def tensorflow_one_operand_flops(call: Site) -> int:
    """Return the FLOPs that TensorFlow counts for an operation of one operand with n elements: n,
    2 n for Rsqrt, 5 n for Softmax, 3 n - 1 for L2Loss.

    In the tool: _unary_op_flops, _l2_loss_flops.
    """
    elements = prod(_tensorflow_input_shape(call, 0))
    if call.target == "L2Loss":
        return 3 * elements - 1
    return {"Rsqrt": 2, "Softmax": 5}.get(call.target, 1) * elements


def tensorflow_reduction_flops(call: Site) -> int:
    """Return the FLOPs that TensorFlow counts for a reduction: input elements - result elements,
    or input elements for Mean.

    In the tool: _reduction_op_flops.
    """
    elements, results = (
        prod(_tensorflow_input_shape(call, 0)),
        prod(_tensorflow_result_shape(call)),
    )
    return elements if call.target == "Mean" else elements - results


def tensorflow_add_n_flops(call: Site) -> int:
    """Return the FLOPs that TensorFlow counts for AddN of k inputs: (k - 1) x elements of the
    first input.

    In the tool: _add_n_flops.
    """
    return (len(call.inputs) - 1) * prod(_tensorflow_input_shape(call, 0)) if call.inputs else 0


_UNARY = ("Reciprocal", "Square", "Rsqrt", "Log", "Neg", "AssignSub", "AssignAdd", "L2Loss")
_BINARY = (
    "Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "Pow", "RsqrtGrad",
    "SquaredDifference", "GreaterEqual", "Greater", "LessEqual", "Less", "Equal", "NotEqual",
)  # fmt: skip
_REDUCTIONS = ("Mean", "Sum", "ArgMax", "ArgMin", "BiasAddGrad")
KINDS: dict[str, Callable[[Site], int]] = {
    **dict.fromkeys(_UNARY, tensorflow_one_operand_flops),
    **dict.fromkeys(_BINARY, tensorflow_elementwise_flops),
    **dict.fromkeys(_REDUCTIONS, tensorflow_reduction_flops),
    "AddN": tensorflow_add_n_flops,
}


@_zero_if_shape_unknown
@with_formula(
    "n(in) for one operand, n(out) for two, n(in) - n(out) for a reduction; more for a few"
)
def tensorflow_arithmetic_flops(call: Site) -> int:
    """Return the FLOPs that TensorFlow counts for an elementwise operation or a reduction."""
    return KINDS[call.target](call)


_FLOATS = of_type("float32", "float64", "float16", "bfloat16", "complex64", "complex128")
_WHOLE = of_type(
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("bool", "string", "resource", "variant"),
)
for cause, layer in (
    ("norm.batch", "BatchNormalization"),
    ("norm.layer", "LayerNormalization"),
    ("norm.group", "GroupNormalization"),
    ("norm.rms", "RMSNormalization"),
    ("rnn.gate-elementwise", "RNN cell"),
):
    rules.adds(
        tuple(KINDS),
        recorded_as(f"in a layer {layer}", layer=layer),
        _FLOATS,
        _FORWARD,
        cause=cause, name=cause
    )(tensorflow_arithmetic_flops)  # fmt: skip
for name, cause, kinds in (
    ("unary", "elementwise.native", _UNARY),
    ("binary", "elementwise.add-function", (*_BINARY, "AddN")),
    ("reduce", "reduce.mean", _REDUCTIONS),
):
    rules.adds(
        tuple(kinds),
        recorded_as("in no layer with its own cause", layer=""),
        _FLOATS,
        _FORWARD,
        cause=cause, name=name
    )(tensorflow_arithmetic_flops)  # fmt: skip
rules.adds(
    tuple(KINDS), _FLOATS, _BACKWARD, cause="scope.backward", name="gradient-arithmetic"
)(tensorflow_arithmetic_flops)  # fmt: skip
rules.adds(
    tuple(KINDS), _WHOLE, cause="graph.shape-arithmetic-counted", name="whole-numbers"
)(tensorflow_arithmetic_flops)  # fmt: skip

# Biases, softmax, pools and gradients.


@_zero_if_shape_unknown
@with_formula("n(in), 5 n(in) for Softmax")
def tensorflow_unary_flops(call: Site) -> int:
    """Return the FLOPs that TensorFlow counts for a bias or a softmax: the number of input
    elements, five times that for Softmax.
    """
    return tensorflow_one_operand_flops(call)


for after, words, cause in (
    ("convolution", "on the result of a convolution", "bias.conv"),
    ("product", "on the result of a product", "bias.linear"),
    ("recurrent", "on the result of a recurrent layer", "bias.rnn"),
    ("", "on any other result", "bias.linear"),
):
    rules.adds(
        "BiasAdd",
        recorded_as(words, after=after),
        cause=cause,
        name=f"bias-{after or 'other'}",
        source=f"{_NN_OPS}: _calc_bias_add_flops",
    )(tensorflow_unary_flops)
rules.adds("Softmax", cause="softmax", name="softmax", source=f"{_REGISTRY}: _softmax_flops")(
    tensorflow_unary_flops
)

_POOL = f"{_REGISTRY}: _pool_flops"


@rules.adds("AvgPool", _CHANNELS_LAST, cause="pool.avg", name="average-pool", source=_POOL)
@rules.adds("MaxPool", _CHANNELS_LAST, cause="pool.max", name="max-pool", source=_POOL)
@_zero_if_shape_unknown
@with_formula("window x n(out)")
def tensorflow_pool_flops(call: Site) -> int:
    """Return the FLOPs that TensorFlow counts for a pool: window positions x result elements."""
    return prod(_tensorflow_setting_sizes(call, "ksize")) * prod(_tensorflow_result_shape(call))


@rules.adds(
    "Dilation2D", cause="pool.max", source=f"{_NN_OPS}: _calc_dilation2d_flops", name="dilation"
)
@_zero_if_shape_unknown
@with_formula("2 n(out) x filter height x width")
def tensorflow_dilation_flops(call: Site) -> int:
    """Return the FLOPs that TensorFlow counts for Dilation2D: 2 x result elements x filter
    positions.
    """
    _tensorflow_input_shape(call, 0)
    return 2 * prod(_tensorflow_input_shape(call, 1)[:2]) * prod(_tensorflow_result_shape(call))


@rules.adds(
    "Conv2DBackpropFilter", _CHANNELS_LAST, _FORWARD, cause="scope.backward", name="gradients"
)
@_zero_if_shape_unknown
@with_formula("int(2 n(in) n(filter) / (channels x strides))")
def tensorflow_filter_gradient_flops(call: Site) -> int:
    """Return the FLOPs that TensorFlow counts for the filter gradient of a convolution."""
    return _tensorflow_filter_gradient_flops(call)


@rules.adds(
    ("MaxPoolGrad", "AvgPoolGrad"), _CHANNELS_LAST, cause="scope.backward", name="pool-gradients"
)
@_zero_if_shape_unknown
@with_formula("(window + 1) n(result); 2 window n(result) for AvgPoolGrad")
def tensorflow_pool_gradient_flops(call: Site) -> int:
    """Return the FLOPs that TensorFlow counts for the gradient of a pool: (window positions + 1) x
    elements, or 2 x window positions x elements for AvgPoolGrad.
    """
    window = prod(_tensorflow_setting_sizes(call, "ksize"))
    per_element = 2 * window if call.target == "AvgPoolGrad" else window + 1
    return per_element * prod(_tensorflow_input_shape(call, 1))


# Why contraction work is not seen.

rules.misses(
    "channels-first",
    "Conv2DBackpropInput",
    cause="layout.nchw-unsupported",
    source=f"{_REGISTRY}: _verify_conv_data_format",
)
for name, operators, cause, reason in (
    (
        "calls",
        ("StatefulPartitionedCall", "PartitionedCall"),
        "graph.function-not-inlined",
        "nothing is registered for a call of a function",
    ),
    (
        "loops",
        ("tf2onnx.Loop",),
        "control.loop-body-once",
        "an operation in a loop is in the graph once",
    ),
    ("branches", ("tf2onnx.If",), "control.branch", "both branches are in the graph"),
):
    rules.misses(
        name,
        (*operators, *(f"{GRADIENTS}{operator}" for operator in operators)),
        cause=cause,
        source=f"{_REGISTRY}: {reason}",
    )

CONVENTIONS = (tensorflow.convention,)
