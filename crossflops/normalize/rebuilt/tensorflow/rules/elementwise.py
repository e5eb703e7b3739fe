"""Element by element: arithmetic, comparisons and activations."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from crossflops.load.payload import ELEMENT_TYPES
from crossflops.normalize.rebuilt.tensorflow.rules.given import (
    Given,
    Result,
    Rule,
    UnfitError,
    like,
    shape,
)


def plain(function: Callable[..., Any]) -> Rule:
    """The rule of an operator that is a function of its inputs alone."""
    return lambda given: function(*given.inputs)


def _chain(function: Callable[[Any, Any], Any]) -> Rule:
    return lambda given: functools.reduce(function, given.inputs)


def _mean(given: Given) -> Result:
    total = functools.reduce(tf.add, given.inputs)
    return total / like(len(given.inputs), total)


def _divide(a: Any, b: Any) -> Any:
    return tf.truncatediv(a, b) if a.dtype.is_integer else tf.divide(a, b)


def _modulo(given: Given) -> Result:
    how = tf.truncatemod if given.get("fmod", 0) else tf.math.floormod
    return how(*given.inputs)


def _power(x: Any, y: Any) -> Any:
    return tf.pow(x, tf.cast(y, x.dtype))


def _clip(given: Given) -> Result:
    """Between two bounds, inputs or (before opset 11) attributes; of 0 and 6 it is ReLU6."""
    x = given.inputs[0]
    low, high = given.input(1), given.input(2)
    if given.since < 11:
        low, high = (
            like(given.attributes[name], x) if name in given.attributes else None
            for name in ("min", "max")
        )
    ends: list[Any] = [None if one is None else tf.get_static_value(one) for one in (low, high)]
    if x.dtype.is_floating and [np.ravel(one)[0] for one in ends] == [0, 6]:
        return tf.nn.relu6(x)
    if low is not None:
        x = tf.maximum(x, tf.reshape(low, []))
    return x if high is None else tf.minimum(x, tf.reshape(high, []))


def _cast(given: Given) -> Result:
    name = ELEMENT_TYPES.get(given.get("to", 1), "")
    try:
        wanted = tf.as_dtype(name)
    except TypeError as error:
        raise UnfitError(f"to the type {name}") from error
    if wanted == tf.string or given.inputs[0].dtype == tf.string:
        raise UnfitError("of texts")
    return tf.cast(given.inputs[0], wanted)


def _leaky(given: Given) -> Result:
    return tf.nn.leaky_relu(given.inputs[0], given.get("alpha", 0.01))


def _prelu(given: Given) -> Result:
    """As keras.layers.PReLU."""
    x, slope = given.inputs
    return tf.nn.relu(x) - slope * tf.nn.relu(-x)


def _elu(given: Given) -> Result:
    """alpha (exp x - 1) where x is below 0."""
    x, alpha = given.inputs[0], given.get("alpha", 1.0)
    y = tf.nn.elu(x)
    return y if alpha == 1 else tf.where(x > like(0, x), x, like(alpha, x) * y)


def _selu(given: Given) -> Result:
    x = given.inputs[0]
    alpha, gamma = given.get("alpha", 1.67326319), given.get("gamma", 1.05070102)
    if (round(alpha, 4), round(gamma, 4)) == (1.6733, 1.0507):
        return tf.nn.selu(x)
    return like(gamma, x) * tf.where(x > like(0, x), x, like(alpha, x) * tf.nn.elu(x))


def _celu(given: Given) -> Result:
    x, alpha = given.inputs[0], like(given.get("alpha", 1.0), given.inputs[0])
    return tf.nn.relu(x) + tf.minimum(like(0, x), alpha * tf.math.expm1(x / alpha))


def _hard_sigmoid(given: Given) -> Result:
    x = given.inputs[0]
    line = like(given.get("alpha", 0.2), x) * x + like(given.get("beta", 0.5), x)
    return tf.clip_by_value(line, like(0, x), like(1, x))


def _hard_swish(given: Given) -> Result:
    """x ReLU6(x + 3) / 6, as keras.activations.hard_swish."""
    x = given.inputs[0]
    return x * (tf.nn.relu6(x + like(3, x)) * like(1 / 6, x))


def _gelu(given: Given) -> Result:
    return tf.nn.gelu(given.inputs[0], approximate=given.get("approximate", "none") == "tanh")


def _swish(given: Given) -> Result:
    x, alpha = given.inputs[0], given.get("alpha", 1.0)
    return tf.nn.silu(x, alpha)


def _mish(given: Given) -> Result:
    x = given.inputs[0]
    return x * tf.tanh(tf.nn.softplus(x))


def _thresholded(given: Given) -> Result:
    x = given.inputs[0]
    return tf.where(x > like(given.get("alpha", 1.0), x), x, like(0, x))


def _shrink(given: Given) -> Result:
    x, bias = given.inputs[0], like(given.get("bias", 0.0), given.inputs[0])
    edge, nothing = like(given.get("lambd", 0.5), x), like(0, x)
    return tf.where(x > edge, x - bias, tf.where(x < -edge, x + bias, nothing))


def _is_infinite(given: Given) -> Result:
    x = given.inputs[0]
    ends = [
        x == like(sign * math.inf, x)
        for name, sign in (("detect_negative", -1), ("detect_positive", 1))
        if given.get(name, 1)
    ]
    return functools.reduce(tf.logical_or, ends, tf.zeros(shape(x), tf.bool))


def _softmax(function: Callable[..., Any]) -> Rule:
    """Along one axis; before opset 13 over all from that axis on."""

    def rule(given: Given) -> Result:
        x = given.inputs[0]
        if given.since >= 13:
            return function(x, axis=given.get("axis", -1))
        sizes = shape(x)
        axis = given.get("axis", 1) % len(sizes)
        return tf.reshape(function(tf.reshape(x, [math.prod(sizes[:axis]), -1])), sizes)

    return rule


def _shift(given: Given) -> Result:
    left = given.get("direction", "LEFT") == "LEFT"
    return (tf.bitwise.left_shift if left else tf.bitwise.right_shift)(*given.inputs)


RULES: dict[str, Rule] = {
    **{
        name: plain(function)
        for name, function in {
            "Abs": tf.abs, "Acos": tf.acos, "Acosh": tf.acosh, "Add": tf.add,
            "And": tf.logical_and,
            "Asin": tf.asin, "Asinh": tf.asinh, "Atan": tf.atan, "Atanh": tf.atanh,
            "BitwiseAnd": tf.bitwise.bitwise_and, "BitwiseNot": tf.bitwise.invert,
            "BitwiseOr": tf.bitwise.bitwise_or, "BitwiseXor": tf.bitwise.bitwise_xor,
            "Ceil": tf.math.ceil, "Cos": tf.cos, "Cosh": tf.cosh, "Div": _divide,
            "Equal": tf.equal, "Erf": tf.math.erf, "Exp": tf.exp, "Floor": tf.floor,
            "Greater": tf.greater, "GreaterOrEqual": tf.greater_equal, "IsNaN": tf.math.is_nan,
            "Less": tf.less, "LessOrEqual": tf.less_equal, "Log": tf.math.log,
            "Mul": tf.multiply, "Neg": tf.negative, "Not": tf.logical_not, "Or": tf.logical_or,
            "Pow": _power, "Reciprocal": tf.math.reciprocal, "Relu": tf.nn.relu,
            "Round": tf.round, "Sigmoid": tf.sigmoid, "Sign": tf.sign, "Sin": tf.sin,
            "Sinh": tf.sinh, "Softplus": tf.nn.softplus, "Softsign": tf.nn.softsign,
            "Sqrt": tf.sqrt, "Sub": tf.subtract, "Tan": tf.tan, "Tanh": tf.tanh,
            "Where": tf.where, "Xor": tf.math.logical_xor,
        }.items()
    },
    "Max": _chain(tf.maximum), "Min": _chain(tf.minimum), "Sum": _chain(tf.add), "Mean": _mean,
    "Mod": _modulo, "Clip": _clip, "Cast": _cast, "LeakyRelu": _leaky, "PRelu": _prelu,
    "Elu": _elu, "Selu": _selu, "Celu": _celu, "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish, "Gelu": _gelu, "Swish": _swish, "Mish": _mish,
    "ThresholdedRelu": _thresholded, "Shrink": _shrink, "IsInf": _is_infinite,
    "Softmax": _softmax(tf.nn.softmax), "LogSoftmax": _softmax(tf.nn.log_softmax),
    "BitShift": _shift, "CastLike": plain(lambda x, y: tf.cast(x, y.dtype)),
}  # fmt: skip
