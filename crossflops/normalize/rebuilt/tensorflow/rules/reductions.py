"""Reductions and normalizations, in the words in which Keras writes them."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from crossflops.normalize.rebuilt.tensorflow.rules.given import (
    Given,
    Result,
    Rule,
    UnfitError,
    channels_first,
    channels_last,
    like,
    rank,
    shape,
)


def _reduction(function: Callable[..., Any]) -> Rule:
    """Over axes from an input or an attribute; over all, or over none, where there are none."""

    def rule(given: Given) -> Result:
        x = given.inputs[0]
        axes = given.numbers(1, "axes")
        if not axes:
            if given.get("noop_with_empty_axes", 0):
                return tf.identity(x)
            axes = list(range(rank(x)))
        return function(x, axes, keepdims=bool(given.get("keepdims", 1)))

    return rule


def _extreme(function: Callable[..., Any], of_truths: Callable[..., Any]) -> Rule:
    def chosen(x: Any, axes: list[int], keepdims: bool) -> Any:
        return (of_truths if x.dtype == tf.bool else function)(x, axes, keepdims=keepdims)

    return _reduction(chosen)


def _absolute(x: Any, axes: list[int], keepdims: bool) -> Any:
    return tf.reduce_sum(tf.abs(x), axes, keepdims=keepdims)


def _squares(x: Any, axes: list[int], keepdims: bool) -> Any:
    return tf.reduce_sum(tf.square(x), axes, keepdims=keepdims)


def _length(x: Any, axes: list[int], keepdims: bool) -> Any:
    return tf.sqrt(_squares(x, axes, keepdims))


def _log_sum(x: Any, axes: list[int], keepdims: bool) -> Any:
    return tf.math.log(tf.reduce_sum(x, axes, keepdims=keepdims))


def _place(function: Callable[..., Any]) -> Rule:
    """The place of the first extreme; of the last one, counted from the other end."""

    def rule(given: Given) -> Result:
        x, axis = given.inputs[0], given.get("axis", 0)
        if given.get("select_last_index", 0):
            y = like(shape(x)[axis] - 1, tf.zeros((), tf.int64))
            y = y - function(tf.reverse(x, [axis % rank(x)]), axis, tf.int64)
        else:
            y = function(x, axis, tf.int64)
        return tf.expand_dims(y, axis) if given.get("keepdims", 1) else y

    return rule


def _batch(given: Given) -> Result:
    """As keras.layers.BatchNormalization; in training by the moments of the batch."""
    x, scale, bias, mean, variance = given.inputs
    wide = [-1, *(1,) * (rank(x) - 2)]
    if not given.get("training_mode", 0):
        mean, variance = tf.reshape(mean, wide), tf.reshape(variance, wide)
        return _scaled(x, mean, variance, tf.reshape(bias, wide), tf.reshape(scale, wide), given)
    axes = [0, *range(2, rank(x))]
    own, spread = tf.nn.moments(x, axes, keepdims=True)
    y = _scaled(x, own, spread, tf.reshape(bias, wide), tf.reshape(scale, wide), given)
    old = like(given.get("momentum", 0.9), mean)
    news = (
        before * old + tf.reshape(now, [-1]) * (like(1, old) - old)
        for before, now in ((mean, own), (variance, spread))
    )
    return [y, *news][: given.outputs]


def _scaled(x: Any, mean: Any, variance: Any, bias: Any, scale: Any, given: Given) -> Any:
    return tf.nn.batch_normalization(x, mean, variance, bias, scale, given.get("epsilon", 1e-5))


def _layer(given: Given) -> Result:
    """As keras.layers.LayerNormalization."""
    x = given.inputs[0]
    axes = list(range(given.get("axis", -1) % rank(x), rank(x)))
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    y = _scaled(x, mean, variance, given.input(2), given.inputs[1], given)
    if given.outputs == 1:
        return y
    inverse = tf.math.rsqrt(variance + like(given.get("epsilon", 1e-5), x))
    return [y, mean, inverse][: given.outputs]


def _group(given: Given) -> Result:
    """As keras.layers.GroupNormalization: the groups apart, then a scale for each channel.

    Before opset 21 there is a scale for each group.
    """
    x, scale, bias = given.inputs
    sizes, groups = shape(x), given.get("num_groups", 1)
    apart = tf.reshape(x, [sizes[0], groups, sizes[1] // groups, *sizes[2:]])
    if given.since < 21:
        scale, bias = (tf.repeat(one, sizes[1] // groups) for one in (scale, bias))
    wide = [1, groups, sizes[1] // groups, *(1,) * (len(sizes) - 2)]
    mean, variance = tf.nn.moments(apart, list(range(2, len(sizes) + 1)), keepdims=True)
    scale, bias = tf.reshape(scale, wide), tf.reshape(bias, wide)
    return tf.reshape(_scaled(apart, mean, variance, bias, scale, given), sizes)


def _instance(given: Given) -> Result:
    x, scale, bias = given.inputs
    wide = [-1, *(1,) * (rank(x) - 2)]
    mean, variance = tf.nn.moments(x, list(range(2, rank(x))), keepdims=True)
    return _scaled(x, mean, variance, tf.reshape(bias, wide), tf.reshape(scale, wide), given)


def _root(given: Given) -> Result:
    """As keras.layers.RMSNormalization."""
    x, scale = given.inputs
    axes = list(range(given.get("axis", -1) % rank(x), rank(x)))
    square = tf.reduce_mean(tf.square(x), axes, keepdims=True)
    return x * tf.math.rsqrt(square + like(given.get("epsilon", 1e-5), x)) * scale


def _unit(given: Given) -> Result:
    """x / |x| along an axis; 0 where that is 0."""
    x, axis = given.inputs[0], given.get("axis", -1)
    size = (_length if given.get("p", 2) == 2 else _absolute)(x, [axis], keepdims=True)
    return tf.math.divide_no_nan(x, size)


def _responses(given: Given) -> Result:
    """Local response normalization over `size` channels; TensorFlow has it for an odd size."""
    x, size = given.inputs[0], given.get("size", 1)
    if size % 2 == 0 or rank(x) != 4:
        raise UnfitError(f"over {size} channels")
    alpha, beta = given.get("alpha", 1e-4), given.get("beta", 0.75)
    bias = given.get("bias", 1.0)
    y = tf.nn.local_response_normalization(channels_last(x), size // 2, bias, alpha / size, beta)
    return channels_first(y)


def _cumulative(given: Given) -> Result:
    axis, flags = given.number(1, 0), ("exclusive", "reverse")
    return tf.cumsum(given.inputs[0], axis, *(bool(given.get(one, 0)) for one in flags))


def _standardized(given: Given) -> Result:
    """(x - mean) / sqrt(variance + 1e-9)."""
    x, axes = given.inputs[0], list(given.get("axes", (0, 2, 3)))
    mean, variance = tf.nn.moments(x, axes, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + like(1e-9, x))


RULES: dict[str, Rule] = {
    "ReduceSum": _reduction(tf.reduce_sum),
    "ReduceMean": _reduction(tf.reduce_mean),
    "ReduceMax": _extreme(tf.reduce_max, tf.reduce_any),
    "ReduceMin": _extreme(tf.reduce_min, tf.reduce_all),
    "ReduceProd": _reduction(tf.reduce_prod),
    "ReduceL1": _reduction(_absolute),
    "ReduceL2": _reduction(_length),
    "ReduceSumSquare": _reduction(_squares),
    "ReduceLogSum": _reduction(_log_sum),
    "ReduceLogSumExp": _reduction(tf.reduce_logsumexp),
    "ArgMax": _place(tf.argmax),
    "ArgMin": _place(tf.argmin),
    "CumSum": _cumulative,
    "BatchNormalization": _batch,
    "LayerNormalization": _layer,
    "GroupNormalization": _group,
    "InstanceNormalization": _instance,
    "RMSNormalization": _root,
    "LpNormalization": _unit,
    "LRN": _responses,
    "MeanVarianceNormalization": _standardized,
}
