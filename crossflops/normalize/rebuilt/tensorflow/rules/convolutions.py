"""Convolutions, with channels last, as TensorFlow's kernels for the CPU take them."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from crossflops.normalize.rebuilt.tensorflow.rules.given import (
    Given,
    Result,
    Rule,
    UnfitError,
    channels_first,
    channels_last,
    rank,
    shape,
)

Pads = list[tuple[int, int]]


def pads(given: Given, sizes: Sequence[int], kernel: Sequence[int]) -> Pads:
    """(before, after) for every axis of an image, from `pads` or `auto_pad`."""
    axes, how = len(kernel), given.get("auto_pad", "NOTSET")
    if how in ("NOTSET", ""):
        flat = given.get("pads", (0,) * 2 * axes)
        return list(zip(flat[:axes], flat[axes:], strict=True))
    found: Pads = []
    for size, extent, stride, step in zip(
        sizes, kernel, steps(given, "strides", axes), steps(given, "dilations", axes), strict=True
    ):
        reach = (extent - 1) * step + 1
        total = max(0, (-(-size // stride) - 1) * stride + reach - size) if how != "VALID" else 0
        less, more = total // 2, total - total // 2
        found.append((less, more) if how != "SAME_LOWER" else (more, less))
    return found


def steps(given: Given, name: str, axes: int) -> list[int]:
    """Strides or dilations: an attribute with a number for every axis, 1 where it is left out."""
    return list(given.get(name, ()) or (1,) * axes)


def _convolution(given: Given) -> Result:
    """Y = X * W + B: Conv2D, DepthwiseConv2dNative for a group for each channel, or Conv3D."""
    x, weights = given.inputs[:2]
    axes = rank(x) - 2
    image, kernel = shape(x)[2:], shape(weights)[2:]
    padding = pads(given, image, kernel)
    strides, dilations = steps(given, "strides", axes), steps(given, "dilations", axes)
    group = given.get("group", 1)
    if axes == 1:  # as tf.nn.conv1d: an image of one row
        x, weights = tf.expand_dims(x, 2), tf.expand_dims(weights, 2)
        padding, strides, dilations = [(0, 0), *padding], [1, *strides], [1, *dilations]
    x = channels_last(x)
    if axes > 2:
        y = _in_space(x, weights, padding, strides, dilations, group)
    else:
        y = _in_plane(x, weights, padding, strides, dilations, group)
    y = _biased(y, given.input(2))
    return channels_first(tf.squeeze(y, [1]) if axes == 1 else y)


def _biased(y: Any, bias: Any) -> Any:
    return y if bias is None else tf.nn.bias_add(y, bias)


def _in_plane(
    x: Any, weights: Any, padding: Pads, strides: list[int], dilations: list[int], group: int
) -> Any:
    explicit = _explicit(padding)
    out, per_group, *kernel = shape(weights)
    depthwise = per_group == 1 and group == shape(x)[-1] and strides[0] == strides[1]
    if group > 1 and depthwise and dilations == [1, 1]:
        filters = tf.reshape(weights, [group, out // group, *kernel])
        filters = tf.transpose(filters, [2, 3, 0, 1])
        return tf.nn.depthwise_conv2d(x, filters, [1, *strides, 1], explicit)
    filters = tf.transpose(weights, [2, 3, 1, 0])
    return tf.nn.conv2d(x, filters, strides, explicit, "NHWC", dilations)


def _explicit(padding: Pads) -> Any:
    if not any(map(any, padding)):
        return "VALID"
    return [[0, 0], *map(list, padding), [0, 0]]


def _in_space(
    x: Any, weights: Any, padding: Pads, strides: list[int], dilations: list[int], group: int
) -> Any:
    """A convolution in three dimensions for each group: the kernel for the CPU has no groups."""
    if len(strides) > 3:
        raise UnfitError(f"in {len(strides)} dimensions")
    if any(map(any, padding)):
        x = tf.pad(x, [[0, 0], *map(list, padding), [0, 0]])
    found = [
        tf.nn.conv3d(
            one,
            tf.transpose(filters, [2, 3, 4, 1, 0]),
            [1, *strides, 1],
            "VALID",
            dilations=[1, *dilations, 1],
        )
        for one, filters in zip(_parts(x, group, -1), _parts(weights, group, 0), strict=True)
    ]
    return _together(found)


def _parts(tensor: Any, group: int, axis: int) -> list[Any]:
    return [tensor] if group == 1 else list(tf.split(tensor, group, axis))


def _together(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else tf.concat(parts, -1)


def _transposed(given: Given) -> Result:
    """The transposed convolution: Conv2DBackpropInput or Conv3DBackpropInputV2 for each group."""
    x, weights = given.inputs[:2]
    axes, group = rank(x) - 2, given.get("group", 1)
    strides, kernel = steps(given, "strides", axes), shape(weights)[2:]
    if any(one > 1 for one in steps(given, "dilations", axes)):
        raise UnfitError("with dilations, which TensorFlow has no kernel for")
    sizes, padding = _enlarged(given, shape(x)[2:], kernel, strides)
    if axes == 1:
        x, weights = tf.expand_dims(x, 2), tf.expand_dims(weights, 2)
        sizes, padding, strides = [1, *sizes], [(0, 0), *padding], [1, *strides]
    found = []
    x = channels_last(x)
    for one, filters in zip(_parts(x, group, -1), _parts(weights, group, 0), strict=True):
        last = tf.transpose(filters, [*range(2, rank(filters)), 1, 0])
        whole = [shape(x)[0], *sizes, shape(last)[-2]]
        if axes < 3:
            y = tf.nn.conv2d_transpose(one, last, whole, strides, _explicit(padding))
        else:
            whole[1:-1] = [size + sum(pair) for size, pair in zip(sizes, padding, strict=True)]
            y = tf.nn.conv3d_transpose(one, last, whole, [1, *strides, 1], "VALID")
            y = tf.slice(y, [0, *(pair[0] for pair in padding), 0], [-1, *sizes, -1])
        found.append(y)
    y = _biased(_together(found), given.input(2))
    return channels_first(tf.squeeze(y, [1]) if axes == 1 else y)


def _enlarged(
    given: Given, image: list[int], kernel: list[int], strides: list[int]
) -> tuple[list[int], Pads]:
    """The sizes of the result, and what is cut off on either side of each axis.

    stride (size - 1) + output_padding + kernel - cut; with `output_shape` the cut follows.
    """
    more = given.get("output_padding", ()) or (0,) * len(image)
    full = [s * (n - 1) + m + k for s, n, m, k in zip(strides, image, more, kernel, strict=True)]
    how, asked = given.get("auto_pad", "NOTSET"), given.get("output_shape", ())
    if not asked and how in ("NOTSET", "", "VALID"):
        cut = pads(given, image, kernel)
        return [size - sum(pair) for size, pair in zip(full, cut, strict=True)], cut
    sizes = list(asked)[-len(image) :] or [n * s for n, s in zip(image, strides, strict=True)]
    cut = []
    for size, wanted in zip(full, sizes, strict=True):
        total = max(0, size - wanted)
        half = total // 2
        cut.append((half, total - half) if how == "SAME_UPPER" else (total - half, half))
    return sizes, cut


RULES: dict[str, Rule] = {"Conv": _convolution, "ConvTranspose": _transposed}
