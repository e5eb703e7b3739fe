"""Pools, with channels last."""

from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from crossflops.normalize.rebuilt.tensorflow.rules.convolutions import Pads, pads, steps
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


def _maximum(given: Given) -> Result:
    """The largest of every window; what pads is smaller than anything."""
    if given.outputs > 1:
        raise UnfitError("with indices")
    x = given.inputs[0]
    lowest = x.dtype.min if not x.dtype.is_floating else -np.inf
    return _pooled(given, lowest, tf.nn.max_pool)


def _average(given: Given) -> Result:
    """The mean of every window; times window / elements where what pads is not to be counted."""
    x = given.inputs[0]
    kernel, image = list(given.get("kernel_shape", ())), shape(x)[2:]
    padding = _whole(given, image, kernel)
    y = _pooled(given, 0, tf.nn.avg_pool)
    own = pads(given, image, kernel)
    inside = own if given.get("count_include_pad", 0) else [(0, 0)] * len(image)
    counts = _counts(image, kernel, steps(given, "strides", len(kernel)), padding, inside)
    if (counts == prod(kernel)).all():
        return y
    return y * like(prod(kernel) / counts, y)


def _counts(
    image: list[int], kernel: list[int], strides: list[int], padding: Pads, inside: Pads
) -> Any:
    """How many elements of each window count: those of the image, and of the pads `inside`."""
    found = np.ones(())
    for size, extent, stride, pad, counted in zip(
        image, kernel, strides, padding, inside, strict=True
    ):
        line = np.zeros(size + sum(pad))
        line[pad[0] - counted[0] : pad[0] + size + counted[1]] = 1
        begins = range(0, len(line) - extent + 1, stride)
        found = np.multiply.outer(found, [line[at : at + extent].sum() for at in begins])
    return found


def _whole(given: Given, image: list[int], kernel: list[int]) -> Pads:
    """The pads and, with `ceil_mode`, what the last windows reach beyond them.

    A window that would begin in the pad behind the image is left out, as PyTorch does.
    """
    found: Pads = []
    strides = steps(given, "strides", len(kernel))
    for size, extent, stride, (before, after) in zip(
        image, kernel, strides, pads(given, image, kernel), strict=True
    ):
        windows = (size + before + after - extent) // stride + 1
        if given.get("ceil_mode", 0):
            windows = -(-(size + before + after - extent) // stride) + 1
            windows -= (windows - 1) * stride >= size + before
        found.append((before, max(after, (windows - 1) * stride + extent - size - before)))
    return found


def _pooled(given: Given, filler: Any, pool: Any) -> Any:
    x = given.inputs[0]
    kernel = list(given.get("kernel_shape", ()))
    axes = rank(x) - 2
    if any(one > 1 for one in steps(given, "dilations", axes)):
        raise UnfitError("with dilations")
    strides = steps(given, "strides", axes)
    padding = _whole(given, shape(x)[2:], kernel)
    x = channels_last(x)
    if any(map(any, padding)):
        x = tf.pad(x, [[0, 0], *map(list, padding), [0, 0]], constant_values=like(filler, x))
    if axes == 1:  # as tf.nn.pool: an image of one row
        y = pool(tf.expand_dims(x, 1), [1, *kernel], [1, *strides], "VALID")
        return channels_first(tf.squeeze(y, [1]))
    if axes > 3:
        raise UnfitError(f"in {axes} dimensions")
    return channels_first(pool(x, kernel, strides, "VALID"))


def _over_all(reduce: Any) -> Rule:
    def rule(given: Given) -> Result:
        x = given.inputs[0]
        return reduce(x, list(range(2, rank(x))), keepdims=True)

    return rule


RULES: dict[str, Rule] = {
    "MaxPool": _maximum,
    "AveragePool": _average,
    "GlobalAveragePool": _over_all(tf.reduce_mean),
    "GlobalMaxPool": _over_all(tf.reduce_max),
}
