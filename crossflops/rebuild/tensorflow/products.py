"""Matrix products, convolutions and pools of ONNX as TensorFlow operations, with channels last."""

import math
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

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


def _compute_matmul(inputs: NodeInputs) -> Result:
    """Return the product as numpy.matmul does: a vector is a row on the left, a column on the
    right (ONNX MatMul).
    """
    a, b = inputs.inputs
    left, right = tensor_rank(a) == 1, tensor_rank(b) == 1
    y = tf.matmul(a[None] if left else a, b[:, None] if right else b)
    if right:
        y = tf.squeeze(y, [-1])
    return tf.squeeze(y, [-1 if right else -2]) if left else y


def _compute_gemm(inputs: NodeInputs) -> Result:
    """Return alpha A B + beta C, with C as a bias if it is one row (ONNX Gemm)."""
    a, b = inputs.inputs[:2]
    c = inputs.input(2)
    y = tf.matmul(
        a,
        b,
        transpose_a=bool(inputs.attribute("transA", 0)),
        transpose_b=bool(inputs.attribute("transB", 0)),
    )
    alpha, beta = inputs.attribute("alpha", 1.0), inputs.attribute("beta", 1.0)
    if alpha != 1:
        y *= constant_in_dtype_of(alpha, y)
    if c is None or beta == 0:
        return y
    if beta != 1:
        c *= constant_in_dtype_of(beta, c)
    return tf.nn.bias_add(y, c) if definite_shape(c) == definite_shape(y)[-1:] else y + c


def _compute_einsum(inputs: NodeInputs) -> Result:
    """Return the Einstein sum of the inputs (ONNX Einsum)."""
    return tf.einsum(inputs.attribute("equation", "").replace(" ", ""), *inputs.inputs)


def _compute_attention(inputs: NodeInputs) -> Result:
    """Return softmax(scale Q K' + mask) V for each head; fewer key heads than query heads are
    repeated (ONNX Attention).

    Q, K and V are (batch, heads, tokens, size), or (batch, tokens, heads x size).
    """
    windows = (inputs.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
    if inputs.input(6) is not None or max(windows) >= 0:
        raise UnfitError("with a window, or with numbers of keys that are no padding")
    q, flat = inputs.inputs[0], tensor_rank(inputs.inputs[0]) == 3
    queries, heads = inputs.attribute("q_num_heads", 0), inputs.attribute("kv_num_heads", 0)
    k, v = inputs.inputs[1:3]
    if flat:
        q, k, v = _split_heads(q, queries), _split_heads(k, heads), _split_heads(v, heads)
    if inputs.input(4) is not None:
        k, v = tf.concat([inputs.input(4), k], 2), tf.concat([inputs.input(5), v], 2)
    present = [k, v]
    times = definite_shape(q)[1] // definite_shape(k)[1]
    if times > 1:
        k, v = tf.repeat(k, times, axis=1), tf.repeat(v, times, axis=1)
    scale = inputs.attribute("scale", 0) or 1 / math.sqrt(definite_shape(q)[-1])
    product = capped = tf.matmul(q, k, transpose_b=True) * constant_in_dtype_of(scale, q)
    cap = inputs.attribute("softcap", 0.0)
    if cap:
        capped = constant_in_dtype_of(cap, q) * tf.tanh(product / constant_in_dtype_of(cap, q))
    masked = _mask_scores(inputs, capped)
    weights = tf.nn.softmax(masked)
    y = tf.matmul(weights, v)
    if flat:
        y = tf.transpose(y, [0, 2, 1, 3])
        y = tf.reshape(y, [*definite_shape(y)[:2], -1])
    results = (product, capped, masked, weights)
    return [y, *present, results[inputs.attribute("qk_matmul_output_mode", 0)]][: inputs.outputs]


def _split_heads(x: Any, heads: int) -> Any:
    """Return a tensor (batch, tokens, width) as (batch, heads, tokens, width / heads)."""
    batch, tokens, width = definite_shape(x)
    return tf.transpose(tf.reshape(x, [batch, tokens, heads, width // heads]), [0, 2, 1, 3])


def _mask_scores(inputs: NodeInputs, scores: Any) -> Any:
    """Return the scores with minus infinity where a query must not see a key, or with an additive
    mask added.

    A causal query i sees keys up to i, and all of the past.
    """
    lowest, mask = constant_in_dtype_of(-math.inf, scores), inputs.input(3)
    queries, keys = definite_shape(scores)[-2:]
    if inputs.attribute("is_causal", 0):
        past = definite_shape(inputs.input(4))[2] if inputs.input(4) is not None else 0
        allowed = np.arange(keys)[None] <= np.arange(queries)[:, None] + past
        scores = tf.where(tf.constant(allowed), scores, lowest)
    if mask is None:
        return scores
    boolean = mask.dtype == tf.bool
    if missing := keys - definite_shape(mask)[-1]:  # what it does not reach is not looked at
        ends = [[0, 0]] * (tensor_rank(mask) - 1) + [[0, missing]]
        mask = tf.pad(
            mask, ends, constant_values=constant_in_dtype_of(False if boolean else -math.inf, mask)
        )
    return tf.where(mask, scores, lowest) if boolean else scores + tf.cast(mask, scores.dtype)


_PRODUCTS_RULES: dict[str, Rule] = {
    "MatMul": _compute_matmul,
    "Gemm": _compute_gemm,
    "Einsum": _compute_einsum,
    "Attention": _compute_attention,
}


# Convolutions, with channels last, as TensorFlow's kernels for the CPU take them.

Pads = list[tuple[int, int]]


def spatial_pads(inputs: NodeInputs, sizes: Sequence[int], kernel: Sequence[int]) -> Pads:
    """Return (before, after) for every spatial axis, from the attribute `pads` or computed as
    `auto_pad` says.
    """
    axes, config = len(kernel), inputs.attribute("auto_pad", "NOTSET")
    if config in ("NOTSET", ""):
        flat = inputs.attribute("pads", (0,) * 2 * axes)
        return list(zip(flat[:axes], flat[axes:], strict=True))
    amounts: Pads = []
    for size, extent, stride, step in zip(
        sizes,
        kernel,
        axis_steps(inputs, "strides", axes),
        axis_steps(inputs, "dilations", axes),
        strict=True,
    ):
        reach = (extent - 1) * step + 1
        total = (
            max(0, (-(-size // stride) - 1) * stride + reach - size) if config != "VALID" else 0
        )
        less, more = total // 2, total - total // 2
        amounts.append((less, more) if config != "SAME_LOWER" else (more, less))
    return amounts


def axis_steps(inputs: NodeInputs, name: str, axes: int) -> list[int]:
    """Return the strides or dilations (attribute `name`), one number for every axis; all 1 if not
    given.
    """
    return list(inputs.attribute(name, ()) or (1,) * axes)


def _compute_convolution(inputs: NodeInputs) -> Result:
    """Return the convolution plus bias, by Conv2D, DepthwiseConv2dNative or Conv3D (ONNX Conv)."""
    x, weights = inputs.inputs[:2]
    axes = tensor_rank(x) - 2
    image, kernel = definite_shape(x)[2:], definite_shape(weights)[2:]
    padding = spatial_pads(inputs, image, kernel)
    strides, dilations = axis_steps(inputs, "strides", axes), axis_steps(inputs, "dilations", axes)
    group = inputs.attribute("group", 1)
    if axes == 1:  # as tf.nn.conv1d: an image of one row
        x, weights = tf.expand_dims(x, 2), tf.expand_dims(weights, 2)
        padding, strides, dilations = [(0, 0), *padding], [1, *strides], [1, *dilations]
    x = to_channels_last(x)
    if axes > 2:
        y = _convolve_3d(x, weights, padding, strides, dilations, group)
    else:
        y = _convolve_2d(x, weights, padding, strides, dilations, group)
    y = _add_channel_bias(y, inputs.input(2))
    return to_channels_first(tf.squeeze(y, [1]) if axes == 1 else y)


def _add_channel_bias(y: Any, bias: Any) -> Any:
    """Return `y` plus a bias for each channel on its last axis; `y` if the bias is None."""
    return y if bias is None else tf.nn.bias_add(y, bias)


def _convolve_2d(
    x: Any, weights: Any, padding: Pads, strides: list[int], dilations: list[int], group: int
) -> Any:
    """Return the 2-D convolution of a channels-last input with weights in the order of ONNX."""
    explicit = _explicit_pads(padding)
    out, per_group, *kernel = definite_shape(weights)
    depthwise = per_group == 1 and group == definite_shape(x)[-1] and strides[0] == strides[1]
    if group > 1 and depthwise and dilations == [1, 1]:
        filters = tf.reshape(weights, [group, out // group, *kernel])
        filters = tf.transpose(filters, [2, 3, 0, 1])
        return tf.nn.depthwise_conv2d(x, filters, [1, *strides, 1], explicit)
    filters = tf.transpose(weights, [2, 3, 1, 0])
    return tf.nn.conv2d(x, filters, strides, explicit, "NHWC", dilations)


def _explicit_pads(padding: Pads) -> Any:
    """Return the pads in TensorFlow's form for NHWC, or "VALID" if all of them are 0."""
    if not any(map(any, padding)):
        return "VALID"
    return [[0, 0], *map(list, padding), [0, 0]]


def _convolve_3d(
    x: Any, weights: Any, padding: Pads, strides: list[int], dilations: list[int], group: int
) -> Any:
    """Return the 3-D convolution of a channels-last input with weights in the order of ONNX, group
    by group.
    """
    if len(strides) > 3:
        raise UnfitError(f"in {len(strides)} dimensions")
    if any(map(any, padding)):
        x = tf.pad(x, [[0, 0], *map(list, padding), [0, 0]])
    kernels = [
        tf.nn.conv3d(
            part,
            tf.transpose(filters, [2, 3, 4, 1, 0]),
            [1, *strides, 1],
            "VALID",
            dilations=[1, *dilations, 1],
        )
        for part, filters in zip(
            _split_groups(x, group, -1), _split_groups(weights, group, 0), strict=True
        )
    ]
    return _join_groups(kernels)


def _split_groups(tensor: Any, group: int, axis: int) -> list[Any]:
    """Return the tensor cut into `group` equal parts along an axis."""
    return [tensor] if group == 1 else list(tf.split(tensor, group, axis))


def _join_groups(parts: list[Any]) -> Any:
    """Return the parts joined along the last axis."""
    return parts[0] if len(parts) == 1 else tf.concat(parts, -1)


def _compute_conv_transpose(inputs: NodeInputs) -> Result:
    """Return the transposed convolution plus bias, group by group (ONNX ConvTranspose)."""
    x, weights = inputs.inputs[:2]
    axes, group = tensor_rank(x) - 2, inputs.attribute("group", 1)
    strides, kernel = axis_steps(inputs, "strides", axes), definite_shape(weights)[2:]
    if any(step > 1 for step in axis_steps(inputs, "dilations", axes)):
        raise UnfitError("with dilations, which TensorFlow has no kernel for")
    sizes, padding = _transpose_sizes_and_cut(inputs, definite_shape(x)[2:], kernel, strides)
    if axes == 1:
        x, weights = tf.expand_dims(x, 2), tf.expand_dims(weights, 2)
        sizes, padding, strides = [1, *sizes], [(0, 0), *padding], [1, *strides]
    slices = []
    x = to_channels_last(x)
    for part, filters in zip(
        _split_groups(x, group, -1), _split_groups(weights, group, 0), strict=True
    ):
        last = tf.transpose(filters, [*range(2, tensor_rank(filters)), 1, 0])
        extents = [definite_shape(x)[0], *sizes, definite_shape(last)[-2]]
        if axes < 3:
            y = tf.nn.conv2d_transpose(part, last, extents, strides, _explicit_pads(padding))
        else:
            extents[1:-1] = [size + sum(pair) for size, pair in zip(sizes, padding, strict=True)]
            y = tf.nn.conv3d_transpose(part, last, extents, [1, *strides, 1], "VALID")
            y = tf.slice(y, [0, *(pair[0] for pair in padding), 0], [-1, *sizes, -1])
        slices.append(y)
    y = _add_channel_bias(_join_groups(slices), inputs.input(2))
    return to_channels_first(tf.squeeze(y, [1]) if axes == 1 else y)


def _transpose_sizes_and_cut(
    inputs: NodeInputs, image: list[int], kernel: list[int], strides: list[int]
) -> tuple[list[int], Pads]:
    """Return, for each spatial axis of a transposed convolution, the result size and the cut
    (before, after).

    stride (size - 1) + output_padding + kernel - cut; with `output_shape` the cut follows.
    """
    more = inputs.attribute("output_padding", ()) or (0,) * len(image)
    full = [s * (n - 1) + m + k for s, n, m, k in zip(strides, image, more, kernel, strict=True)]
    config, extents = inputs.attribute("auto_pad", "NOTSET"), inputs.attribute("output_shape", ())
    if not extents and config in ("NOTSET", "", "VALID"):
        cut = spatial_pads(inputs, image, kernel)
        return [size - sum(pair) for size, pair in zip(full, cut, strict=True)], cut
    sizes = list(extents)[-len(image) :] or [n * s for n, s in zip(image, strides, strict=True)]
    cut = []
    for size, requested in zip(full, sizes, strict=True):
        total = max(0, size - requested)
        half = total // 2
        cut.append((half, total - half) if config == "SAME_UPPER" else (total - half, half))
    return sizes, cut


_CONVOLUTIONS_RULES: dict[str, Rule] = {
    "Conv": _compute_convolution,
    "ConvTranspose": _compute_conv_transpose,
}


# Pools, with channels last.


def _compute_max_pool(inputs: NodeInputs) -> Result:
    """Return the largest element of every window (ONNX MaxPool)."""
    if inputs.outputs > 1:
        raise UnfitError("with indices")
    x = inputs.inputs[0]
    lowest = x.dtype.min if not x.dtype.is_floating else -np.inf
    return _pool_windows(inputs, lowest, tf.nn.max_pool)


def _compute_average_pool(inputs: NodeInputs) -> Result:
    """Return the mean of every window, over the elements that count (ONNX AveragePool)."""
    x = inputs.inputs[0]
    kernel, image = list(inputs.attribute("kernel_shape", ())), definite_shape(x)[2:]
    padding = _ceil_mode_pads(inputs, image, kernel)
    y = _pool_windows(inputs, 0, tf.nn.avg_pool)
    given_pads = spatial_pads(inputs, image, kernel)
    inside = given_pads if inputs.attribute("count_include_pad", 0) else [(0, 0)] * len(image)
    counts = _window_element_counts(
        image, kernel, axis_steps(inputs, "strides", len(kernel)), padding, inside
    )
    if (counts == prod(kernel)).all():
        return y
    return y * constant_in_dtype_of(prod(kernel) / counts, y)


def _window_element_counts(
    image: list[int], kernel: list[int], strides: list[int], padding: Pads, inside: Pads
) -> Any:
    """Return, for each window of an average pooling, how many of its elements count in the mean.

    Those of the image, and of the pads inside.
    """
    counts = np.ones(())
    for size, extent, stride, pad, counted in zip(
        image, kernel, strides, padding, inside, strict=True
    ):
        line = np.zeros(size + sum(pad))
        line[pad[0] - counted[0] : pad[0] + size + counted[1]] = 1
        begins = range(0, len(line) - extent + 1, stride)
        counts = np.multiply.outer(counts, [line[at : at + extent].sum() for at in begins])
    return counts


def _ceil_mode_pads(inputs: NodeInputs, image: list[int], kernel: list[int]) -> Pads:
    """Return the pads (before, after) of each axis, extended with `ceil_mode` as far as the last
    window reaches.

    A window that would begin in the pad behind the image is left out, as PyTorch does.
    """
    padding: Pads = []
    strides = axis_steps(inputs, "strides", len(kernel))
    for size, extent, stride, (before, after) in zip(
        image, kernel, strides, spatial_pads(inputs, image, kernel), strict=True
    ):
        windows = (size + before + after - extent) // stride + 1
        if inputs.attribute("ceil_mode", 0):
            windows = -(-(size + before + after - extent) // stride) + 1
            windows -= (windows - 1) * stride >= size + before
        padding.append((before, max(after, (windows - 1) * stride + extent - size - before)))
    return padding


def _pool_windows(inputs: NodeInputs, filler: Any, pool: Any) -> Any:
    """Return `pool` of all windows of the input, which is padded with `filler`. Raises UnfitError
    for dilations.
    """
    x = inputs.inputs[0]
    kernel = list(inputs.attribute("kernel_shape", ()))
    axes = tensor_rank(x) - 2
    if any(step > 1 for step in axis_steps(inputs, "dilations", axes)):
        raise UnfitError("with dilations")
    strides = axis_steps(inputs, "strides", axes)
    padding = _ceil_mode_pads(inputs, definite_shape(x)[2:], kernel)
    x = to_channels_last(x)
    if any(map(any, padding)):
        x = tf.pad(
            x,
            [[0, 0], *map(list, padding), [0, 0]],
            constant_values=constant_in_dtype_of(filler, x),
        )
    if axes == 1:  # as tf.nn.pool: an image of one row
        y = pool(tf.expand_dims(x, 1), [1, *kernel], [1, *strides], "VALID")
        return to_channels_first(tf.squeeze(y, [1]))
    if axes > 3:
        raise UnfitError(f"in {axes} dimensions")
    return to_channels_first(pool(x, kernel, strides, "VALID"))


def _global_pool_rule(reduce: Any) -> Rule:
    """Return a rule that reduces all spatial axes by `reduce`, for global pooling."""

    def compute_global_pool(inputs: NodeInputs) -> Result:
        """Return the input reduced over all its spatial axes, which keep the size 1."""
        x = inputs.inputs[0]
        return reduce(x, list(range(2, tensor_rank(x))), keepdims=True)

    return compute_global_pool


_POOLS_RULES: dict[str, Rule] = {
    "MaxPool": _compute_max_pool,
    "AveragePool": _compute_average_pool,
    "GlobalAveragePool": _global_pool_rule(tf.reduce_mean),
    "GlobalMaxPool": _global_pool_rule(tf.reduce_max),
}


RULES: dict[str, Rule] = {**_PRODUCTS_RULES, **_CONVOLUTIONS_RULES, **_POOLS_RULES}
