"""ONNX operators on elements, and reductions, as the TensorFlow operations that Keras
would write.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from crossflops.load.payload import ELEMENT_TYPES
from crossflops.rebuild.tensorflow.given import (
    NodeInputs,
    Result,
    Rule,
    UnfitError,
    constant_in_dtype_of,
    definite_shape,
    tensor_rank,
    to_channels_first,
    to_channels_last,
)


def input_function_rule(function: Callable[..., Any]) -> Rule:
    """Return a rule that calls `function` with the inputs of a node, for operators without
    attributes.
    """
    return lambda provided: function(*provided.inputs)


def _chain_rule(function: Callable[[Any, Any], Any]) -> Rule:
    """Return a rule that combines all inputs of a node by `function(a, b)`, from left to right."""
    return lambda provided: functools.reduce(function, provided.inputs)


def _compute_mean(inputs: NodeInputs) -> Result:
    """Return the elementwise mean of the inputs (ONNX Mean)."""
    total = functools.reduce(tf.add, inputs.inputs)
    return total / constant_in_dtype_of(len(inputs.inputs), total)


def _compute_quotient(a: Any, b: Any) -> Any:
    """Return a / b, with the quotient of integers rounded toward zero (ONNX Div)."""
    return tf.truncatediv(a, b) if a.dtype.is_integer else tf.divide(a, b)


def _compute_modulo(inputs: NodeInputs) -> Result:
    """Return the elementwise remainder of two inputs (ONNX Mod)."""
    config = tf.truncatemod if inputs.attribute("fmod", 0) else tf.math.floormod
    return config(*inputs.inputs)


def _compute_power(x: Any, y: Any) -> Any:
    """Return x to the power y, in the element type of x (ONNX Pow)."""
    return tf.pow(x, tf.cast(y, x.dtype))


def _compute_clip(inputs: NodeInputs) -> Result:
    """Return the input clipped to bounds from inputs or, before opset 11, attributes; bounds 0 and
    6 become ReLU6 (ONNX Clip).
    """
    x = inputs.inputs[0]
    low, high = inputs.input(1), inputs.input(2)
    if inputs.since < 11:
        low, high = (
            constant_in_dtype_of(inputs.attributes[name], x) if name in inputs.attributes else None
            for name in ("min", "max")
        )
    ends: list[Any] = [
        None if bound is None else tf.get_static_value(bound) for bound in (low, high)
    ]
    if x.dtype.is_floating and [np.ravel(end)[0] for end in ends] == [0, 6]:
        return tf.nn.relu6(x)
    if low is not None:
        x = tf.maximum(x, tf.reshape(low, []))
    return x if high is None else tf.minimum(x, tf.reshape(high, []))


def _compute_cast(inputs: NodeInputs) -> Result:
    """Return the input in another element type (ONNX Cast); raise UnfitError for strings."""
    name = ELEMENT_TYPES.get(inputs.attribute("to", 1), "")
    try:
        requested = tf.as_dtype(name)
    except TypeError as error:
        raise UnfitError(f"to the type {name}") from error
    if requested == tf.string or inputs.inputs[0].dtype == tf.string:
        raise UnfitError("of texts")
    return tf.cast(inputs.inputs[0], requested)


def _compute_leaky_relu(inputs: NodeInputs) -> Result:
    """Return the input with negative elements scaled by alpha (ONNX LeakyRelu)."""
    return tf.nn.leaky_relu(inputs.inputs[0], inputs.attribute("alpha", 0.01))


def _compute_prelu(inputs: NodeInputs) -> Result:
    """Return x where it is positive, else slope * x (ONNX PRelu), as Keras computes it."""
    x, slope = inputs.inputs
    return tf.nn.relu(x) - slope * tf.nn.relu(-x)


def _compute_elu(inputs: NodeInputs) -> Result:
    """Return alpha (exp(x) - 1) where x is below 0, and x elsewhere (ONNX Elu)."""
    x, alpha = inputs.inputs[0], inputs.attribute("alpha", 1.0)
    y = tf.nn.elu(x)
    return (
        y
        if alpha == 1
        else tf.where(x > constant_in_dtype_of(0, x), x, constant_in_dtype_of(alpha, x) * y)
    )


def _compute_selu(inputs: NodeInputs) -> Result:
    """Return the scaled exponential linear unit of the input (ONNX Selu)."""
    x = inputs.inputs[0]
    alpha, gamma = inputs.attribute("alpha", 1.67326319), inputs.attribute("gamma", 1.05070102)
    if (round(alpha, 4), round(gamma, 4)) == (1.6733, 1.0507):
        return tf.nn.selu(x)
    return constant_in_dtype_of(gamma, x) * tf.where(
        x > constant_in_dtype_of(0, x), x, constant_in_dtype_of(alpha, x) * tf.nn.elu(x)
    )


def _compute_celu(inputs: NodeInputs) -> Result:
    """Return the continuous exponential linear unit of the input (ONNX Celu)."""
    x, alpha = (
        inputs.inputs[0],
        constant_in_dtype_of(inputs.attribute("alpha", 1.0), inputs.inputs[0]),
    )
    return tf.nn.relu(x) + tf.minimum(constant_in_dtype_of(0, x), alpha * tf.math.expm1(x / alpha))


def _compute_hard_sigmoid(inputs: NodeInputs) -> Result:
    """Return alpha * x + beta, clipped to [0, 1] (ONNX HardSigmoid)."""
    x = inputs.inputs[0]
    line = constant_in_dtype_of(inputs.attribute("alpha", 0.2), x) * x + constant_in_dtype_of(
        inputs.attribute("beta", 0.5), x
    )
    return tf.clip_by_value(line, constant_in_dtype_of(0, x), constant_in_dtype_of(1, x))


def _compute_hard_swish(inputs: NodeInputs) -> Result:
    """Return x ReLU6(x + 3) / 6, as keras.activations.hard_swish does (ONNX HardSwish)."""
    x = inputs.inputs[0]
    return x * (tf.nn.relu6(x + constant_in_dtype_of(3, x)) * constant_in_dtype_of(1 / 6, x))


def _compute_gelu(inputs: NodeInputs) -> Result:
    """Return the GELU of the input, exact or by tanh (ONNX Gelu)."""
    return tf.nn.gelu(
        inputs.inputs[0], approximate=inputs.attribute("approximate", "none") == "tanh"
    )


def _compute_swish(inputs: NodeInputs) -> Result:
    """Return x * sigmoid(alpha * x) (ONNX Swish)."""
    x, alpha = inputs.inputs[0], inputs.attribute("alpha", 1.0)
    return tf.nn.silu(x, alpha)


def _compute_mish(inputs: NodeInputs) -> Result:
    """Return x * tanh(softplus(x)) (ONNX Mish)."""
    x = inputs.inputs[0]
    return x * tf.tanh(tf.nn.softplus(x))


def _compute_thresholding_relu(inputs: NodeInputs) -> Result:
    """Return x where it exceeds alpha, else 0 (ONNX ThresholdedRelu)."""
    x = inputs.inputs[0]
    return tf.where(
        x > constant_in_dtype_of(inputs.attribute("alpha", 1.0), x), x, constant_in_dtype_of(0, x)
    )


def _compute_shrink(inputs: NodeInputs) -> Result:
    """Return x moved by `bias` toward 0, and 0 where x is between -lambd and lambd (ONNX
    Shrink).
    """
    x, bias = (
        inputs.inputs[0],
        constant_in_dtype_of(inputs.attribute("bias", 0.0), inputs.inputs[0]),
    )
    edge, nothing = (
        constant_in_dtype_of(inputs.attribute("lambd", 0.5), x),
        constant_in_dtype_of(0, x),
    )
    return tf.where(x > edge, x - bias, tf.where(x < -edge, x + bias, nothing))


def _compute_is_inf(inputs: NodeInputs) -> Result:
    """Return a boolean tensor: whether each element is infinite, with one sign if the node
    requests it (ONNX IsInf).
    """
    x = inputs.inputs[0]
    ends = [
        x == constant_in_dtype_of(sign * math.inf, x)
        for name, sign in (("detect_negative", -1), ("detect_positive", 1))
        if inputs.attribute(name, 1)
    ]
    return functools.reduce(tf.logical_or, ends, tf.zeros(definite_shape(x), tf.bool))


def _softmax_rule(function: Callable[..., Any]) -> Rule:
    """Return a rule that applies `function`, such as softmax, along one axis; before opset 13,
    over that axis and all behind it.
    """

    def compute_softmax_along_axis(inputs: NodeInputs) -> Result:
        """Return `function` of the input along the axis; before opset 13, over that axis and all
        behind it.
        """
        x = inputs.inputs[0]
        if inputs.since >= 13:
            return function(x, axis=inputs.attribute("axis", -1))
        sizes = definite_shape(x)
        axis = inputs.attribute("axis", 1) % len(sizes)
        return tf.reshape(function(tf.reshape(x, [math.prod(sizes[:axis]), -1])), sizes)

    return compute_softmax_along_axis


def _compute_bit_shift(inputs: NodeInputs) -> Result:
    """Return the first input with bits shifted by the second (ONNX BitShift)."""
    left = inputs.attribute("direction", "LEFT") == "LEFT"
    return (tf.bitwise.left_shift if left else tf.bitwise.right_shift)(*inputs.inputs)


_ELEMENTWISE_RULES: dict[str, Rule] = {
    **{
        name: input_function_rule(function)
        for name, function in {
            "Abs": tf.abs, "Acos": tf.acos, "Acosh": tf.acosh, "Add": tf.add,
            "And": tf.logical_and,
            "Asin": tf.asin, "Asinh": tf.asinh, "Atan": tf.atan, "Atanh": tf.atanh,
            "BitwiseAnd": tf.bitwise.bitwise_and, "BitwiseNot": tf.bitwise.invert,
            "BitwiseOr": tf.bitwise.bitwise_or, "BitwiseXor": tf.bitwise.bitwise_xor,
            "Ceil": tf.math.ceil, "Cos": tf.cos, "Cosh": tf.cosh, "Div": _compute_quotient,
            "Equal": tf.equal, "Erf": tf.math.erf, "Exp": tf.exp, "Floor": tf.floor,
            "Greater": tf.greater, "GreaterOrEqual": tf.greater_equal, "IsNaN": tf.math.is_nan,
            "Less": tf.less, "LessOrEqual": tf.less_equal, "Log": tf.math.log,
            "Mul": tf.multiply, "Neg": tf.negative, "Not": tf.logical_not, "Or": tf.logical_or,
            "Pow": _compute_power, "Reciprocal": tf.math.reciprocal, "Relu": tf.nn.relu,
            "Round": tf.round, "Sigmoid": tf.sigmoid, "Sign": tf.sign, "Sin": tf.sin,
            "Sinh": tf.sinh, "Softplus": tf.nn.softplus, "Softsign": tf.nn.softsign,
            "Sqrt": tf.sqrt, "Sub": tf.subtract, "Tan": tf.tan, "Tanh": tf.tanh,
            "Where": tf.where, "Xor": tf.math.logical_xor,
        }.items()
    },
    "Max": _chain_rule(tf.maximum), "Min": _chain_rule(tf.minimum), "Sum": _chain_rule(tf.add),
    "Mean": _compute_mean,
    "Mod": _compute_modulo, "Clip": _compute_clip, "Cast": _compute_cast,
    "LeakyRelu": _compute_leaky_relu, "PRelu": _compute_prelu, "Elu": _compute_elu,
    "Selu": _compute_selu, "Celu": _compute_celu, "HardSigmoid": _compute_hard_sigmoid,
    "HardSwish": _compute_hard_swish, "Gelu": _compute_gelu, "Swish": _compute_swish,
    "Mish": _compute_mish, "ThresholdedRelu": _compute_thresholding_relu,
    "Shrink": _compute_shrink, "IsInf": _compute_is_inf,
    "Softmax": _softmax_rule(tf.nn.softmax), "LogSoftmax": _softmax_rule(tf.nn.log_softmax),
    "BitShift": _compute_bit_shift,
    "CastLike": input_function_rule(lambda x, y: tf.cast(x, y.dtype)),
}  # fmt: skip


# Reductions and normalizations, in the words in which Keras writes them.


def _reduction_rule(function: Callable[..., Any]) -> Rule:
    """Return a rule that reduces a node's axes by `function(x, axes, keepdims)`; the axes are an
    input or an attribute.
    """

    def compute_reduction(inputs: NodeInputs) -> Result:
        """Return the input reduced over the axes of the node (ONNX ReduceSum, ReduceMax ...)."""
        x = inputs.inputs[0]
        axes = inputs.integer_list(1, "axes")
        if not axes:
            if inputs.attribute("noop_with_empty_axes", 0):
                return tf.identity(x)
            axes = list(range(tensor_rank(x)))
        return function(x, axes, keepdims=bool(inputs.attribute("keepdims", 1)))

    return compute_reduction


def _extreme_rule(function: Callable[..., Any], boolean_function: Callable[..., Any]) -> Rule:
    """Return a rule of a minimum or maximum that reduces by `function`, and booleans by
    `boolean_function`.
    """

    def reduce_by_dtype(x: Any, axes: list[int], keepdims: bool) -> Any:
        """Return `x` reduced over the axes, by the function for its element type."""
        return (boolean_function if x.dtype == tf.bool else function)(x, axes, keepdims=keepdims)

    return _reduction_rule(reduce_by_dtype)


def _sum_of_absolute_values(x: Any, axes: list[int], keepdims: bool) -> Any:
    """Return the sum of absolute values over axes (ONNX ReduceL1)."""
    return tf.reduce_sum(tf.abs(x), axes, keepdims=keepdims)


def _sum_of_squares(x: Any, axes: list[int], keepdims: bool) -> Any:
    """Return the sum of squares over axes (ONNX ReduceSumSquare)."""
    return tf.reduce_sum(tf.square(x), axes, keepdims=keepdims)


def _euclidean_norm(x: Any, axes: list[int], keepdims: bool) -> Any:
    """Return the square root of the sum of squares over axes (ONNX ReduceL2)."""
    return tf.sqrt(_sum_of_squares(x, axes, keepdims))


def _log_of_sum(x: Any, axes: list[int], keepdims: bool) -> Any:
    """Return the logarithm of the sum over axes (ONNX ReduceLogSum)."""
    return tf.math.log(tf.reduce_sum(x, axes, keepdims=keepdims))


def _extreme_index_rule(function: Callable[..., Any]) -> Rule:
    """Return a rule for the index of the extreme that `function` (argmin or argmax) finds, the
    first or the last one.
    """

    def compute_extreme_index(inputs: NodeInputs) -> Result:
        """Return the index of the extreme element along an axis (ONNX ArgMax or ArgMin)."""
        x, axis = inputs.inputs[0], inputs.attribute("axis", 0)
        if inputs.attribute("select_last_index", 0):
            y = constant_in_dtype_of(definite_shape(x)[axis] - 1, tf.zeros((), tf.int64))
            y = y - function(tf.reverse(x, [axis % tensor_rank(x)]), axis, tf.int64)
        else:
            y = function(x, axis, tf.int64)
        return tf.expand_dims(y, axis) if inputs.attribute("keepdims", 1) else y

    return compute_extreme_index


def _compute_batch_norm(inputs: NodeInputs) -> Result:
    """Return the batch-normalized input as keras.layers.BatchNormalization does (ONNX
    BatchNormalization).
    """
    x, scale, bias, mean, variance = inputs.inputs
    wide = [-1, *(1,) * (tensor_rank(x) - 2)]
    if not inputs.attribute("training_mode", 0):
        mean, variance = tf.reshape(mean, wide), tf.reshape(variance, wide)
        return _normalize_with_scale(
            x, mean, variance, tf.reshape(bias, wide), tf.reshape(scale, wide), inputs
        )
    axes = [0, *range(2, tensor_rank(x))]
    variance_mean, spread = tf.nn.moments(x, axes, keepdims=True)
    y = _normalize_with_scale(
        x, variance_mean, spread, tf.reshape(bias, wide), tf.reshape(scale, wide), inputs
    )
    old = constant_in_dtype_of(inputs.attribute("momentum", 0.9), mean)
    events = (
        before * old + tf.reshape(now, [-1]) * (constant_in_dtype_of(1, old) - old)
        for before, now in ((mean, variance_mean), (variance, spread))
    )
    return [y, *events][: inputs.outputs]


def _normalize_with_scale(
    x: Any, mean: Any, variance: Any, bias: Any, scale: Any, inputs: NodeInputs
) -> Any:
    """Return `x` normalized by mean and variance, times `scale` plus `bias`."""
    return tf.nn.batch_normalization(
        x, mean, variance, bias, scale, inputs.attribute("epsilon", 1e-5)
    )


def _compute_layer_norm(inputs: NodeInputs) -> Result:
    """Return the input normalized as keras.layers.LayerNormalization does (ONNX
    LayerNormalization).
    """
    x = inputs.inputs[0]
    axes = list(range(inputs.attribute("axis", -1) % tensor_rank(x), tensor_rank(x)))
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    y = _normalize_with_scale(x, mean, variance, inputs.input(2), inputs.inputs[1], inputs)
    if inputs.outputs == 1:
        return y
    inverse = tf.math.rsqrt(variance + constant_in_dtype_of(inputs.attribute("epsilon", 1e-5), x))
    return [y, mean, inverse][: inputs.outputs]


def _compute_group_norm(inputs: NodeInputs) -> Result:
    """Return the group-normalized input as keras.layers.GroupNormalization does (ONNX
    GroupNormalization).

    Before opset 21 there is a scale for each group.
    """
    x, scale, bias = inputs.inputs
    sizes, groups = definite_shape(x), inputs.attribute("num_groups", 1)
    separate = tf.reshape(x, [sizes[0], groups, sizes[1] // groups, *sizes[2:]])
    if inputs.since < 21:
        scale, bias = (tf.repeat(operand, sizes[1] // groups) for operand in (scale, bias))
    wide = [1, groups, sizes[1] // groups, *(1,) * (len(sizes) - 2)]
    mean, variance = tf.nn.moments(separate, list(range(2, len(sizes) + 1)), keepdims=True)
    scale, bias = tf.reshape(scale, wide), tf.reshape(bias, wide)
    return tf.reshape(_normalize_with_scale(separate, mean, variance, bias, scale, inputs), sizes)


def _compute_instance_norm(inputs: NodeInputs) -> Result:
    """Return each channel of each sample normalized over its spatial axes (ONNX
    InstanceNormalization).
    """
    x, scale, bias = inputs.inputs
    wide = [-1, *(1,) * (tensor_rank(x) - 2)]
    mean, variance = tf.nn.moments(x, list(range(2, tensor_rank(x))), keepdims=True)
    return _normalize_with_scale(
        x, mean, variance, tf.reshape(bias, wide), tf.reshape(scale, wide), inputs
    )


def _compute_rms_norm(inputs: NodeInputs) -> Result:
    """Return the input normalized as keras.layers.RMSNormalization does (ONNX
    RMSNormalization).
    """
    x, scale = inputs.inputs
    axes = list(range(inputs.attribute("axis", -1) % tensor_rank(x), tensor_rank(x)))
    square = tf.reduce_mean(tf.square(x), axes, keepdims=True)
    return (
        x
        * tf.math.rsqrt(square + constant_in_dtype_of(inputs.attribute("epsilon", 1e-5), x))
        * scale
    )


def _compute_lp_norm(inputs: NodeInputs) -> Result:
    """Return x divided by its norm along an axis; 0 where the norm is 0 (ONNX LpNormalization)."""
    x, axis = inputs.inputs[0], inputs.attribute("axis", -1)
    size = (_euclidean_norm if inputs.attribute("p", 2) == 2 else _sum_of_absolute_values)(
        x, [axis], keepdims=True
    )
    return tf.math.divide_no_nan(x, size)


def _compute_local_response(inputs: NodeInputs) -> Result:
    """Return x divided by a power of the sum of squares of neighbouring channels (ONNX LRN).

    TensorFlow supports odd sizes.
    """
    x, size = inputs.inputs[0], inputs.attribute("size", 1)
    if size % 2 == 0 or tensor_rank(x) != 4:
        raise UnfitError(f"over {size} channels")
    alpha, beta = inputs.attribute("alpha", 1e-4), inputs.attribute("beta", 0.75)
    bias = inputs.attribute("bias", 1.0)
    y = tf.nn.local_response_normalization(
        to_channels_last(x), size // 2, bias, alpha / size, beta
    )
    return to_channels_first(y)


def _compute_cumsum(inputs: NodeInputs) -> Result:
    """Return the running sums along an axis (ONNX CumSum)."""
    axis, flags = inputs.number_or_default(1, 0), ("exclusive", "reverse")
    return tf.cumsum(inputs.inputs[0], axis, *(bool(inputs.attribute(flag, 0)) for flag in flags))


def _compute_mean_variance_norm(inputs: NodeInputs) -> Result:
    """Return (x - mean) / sqrt(variance + 1e-9) over axes (ONNX MeanVarianceNormalization)."""
    x, axes = inputs.inputs[0], list(inputs.attribute("axes", (0, 2, 3)))
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + constant_in_dtype_of(1e-9, x))


_REDUCTIONS_RULES: dict[str, Rule] = {
    "ReduceSum": _reduction_rule(tf.reduce_sum),
    "ReduceMean": _reduction_rule(tf.reduce_mean),
    "ReduceMax": _extreme_rule(tf.reduce_max, tf.reduce_any),
    "ReduceMin": _extreme_rule(tf.reduce_min, tf.reduce_all),
    "ReduceProd": _reduction_rule(tf.reduce_prod),
    "ReduceL1": _reduction_rule(_sum_of_absolute_values),
    "ReduceL2": _reduction_rule(_euclidean_norm),
    "ReduceSumSquare": _reduction_rule(_sum_of_squares),
    "ReduceLogSum": _reduction_rule(_log_of_sum),
    "ReduceLogSumExp": _reduction_rule(tf.reduce_logsumexp),
    "ArgMax": _extreme_index_rule(tf.argmax),
    "ArgMin": _extreme_index_rule(tf.argmin),
    "CumSum": _compute_cumsum,
    "BatchNormalization": _compute_batch_norm,
    "LayerNormalization": _compute_layer_norm,
    "GroupNormalization": _compute_group_norm,
    "InstanceNormalization": _compute_instance_norm,
    "RMSNormalization": _compute_rms_norm,
    "LpNormalization": _compute_lp_norm,
    "LRN": _compute_local_response,
    "MeanVarianceNormalization": _compute_mean_variance_norm,
}


RULES: dict[str, Rule] = {**_ELEMENTWISE_RULES, **_REDUCTIONS_RULES}
