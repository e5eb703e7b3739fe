"""ONNX operators that move, cut, join, read and write elements, as TensorFlow operations."""

import math
from math import prod
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
)


def _compute_reshape(inputs: NodeInputs) -> Result:
    """Return the input in a new shape; 0 keeps a size unless `allowzero`, -1 is the remaining size
    (ONNX Reshape).
    """
    x, sizes = inputs.inputs[0], inputs.integer_list(1, "shape") or []
    keeps = not inputs.attribute("allowzero", 0)
    kept = [
        definite_shape(x)[at] if size == 0 and keeps else size for at, size in enumerate(sizes)
    ]
    return tf.reshape(x, kept)


def _compute_flatten(inputs: NodeInputs) -> Result:
    """Return the input as a matrix, split at an axis (ONNX Flatten)."""
    x, axis = inputs.inputs[0], inputs.attribute("axis", 1)
    sizes = definite_shape(x)
    axis = axis if axis >= 0 else axis + len(sizes)
    return tf.reshape(x, [prod(sizes[:axis]), prod(sizes[axis:])])


def _compute_squeeze(inputs: NodeInputs) -> Result:
    """Return the input without axes of size 1 (ONNX Squeeze)."""
    axes = inputs.integer_list(1, "axes")
    x = inputs.inputs[0]
    if axes is None:
        axes = [at for at, size in enumerate(definite_shape(x)) if size == 1]
    return tf.squeeze(x, axes) if axes else tf.identity(x)


def _compute_unsqueeze(inputs: NodeInputs) -> Result:
    """Return the input with new axes of size 1 (ONNX Unsqueeze)."""
    x, axes = inputs.inputs[0], inputs.integer_list(1, "axes") or []
    full = tensor_rank(x) + len(axes)
    for axis in sorted(axis % full for axis in axes):
        x = tf.expand_dims(x, axis)
    return x


def _compute_transpose(inputs: NodeInputs) -> Result:
    """Return the input with permuted axes, reversed by default (ONNX Transpose)."""
    x = inputs.inputs[0]
    return tf.transpose(x, inputs.attribute("perm", ()) or list(range(tensor_rank(x)))[::-1])


def _compute_expand(inputs: NodeInputs) -> Result:
    """Return the input broadcast to a shape (ONNX Expand)."""
    x, sizes = inputs.inputs[0], inputs.integer_list(1) or []
    return tf.broadcast_to(x, np.broadcast_shapes(tuple(definite_shape(x)), tuple(sizes)))


def _compute_tile(inputs: NodeInputs) -> Result:
    """Return the input repeated along each axis (ONNX Tile)."""
    return tf.tile(inputs.inputs[0], inputs.integer_list(1) or [])


def _compute_concat(inputs: NodeInputs) -> Result:
    """Return the inputs concatenated along an axis (ONNX Concat)."""
    return tf.concat(inputs.inputs, inputs.attribute("axis", 1))


def _compute_split(inputs: NodeInputs) -> Result:
    """Return the parts of the input along an axis, of given sizes or of equal ones (ONNX
    Split).
    """
    x, axis = inputs.inputs[0], inputs.attribute("axis", 0)
    sizes = inputs.integer_list(1, "split")
    if sizes is None:
        size, parts = definite_shape(x)[axis], inputs.outputs
        size_of_part = -(-size // parts)
        sizes = [size_of_part] * (parts - 1) + [size - size_of_part * (parts - 1)]
    return tf.split(x, sizes, axis)


def _compute_slice(inputs: NodeInputs) -> Result:
    """Return a slice of the input by starts, ends, axes and steps (ONNX Slice)."""
    x = inputs.inputs[0]
    starts, ends = inputs.integer_list(1, "starts") or [], inputs.integer_list(2, "ends") or []
    axes = inputs.integer_list(3, "axes")
    strides = inputs.integer_list(4) or [1] * len(starts)
    cuts = [slice(None)] * tensor_rank(x)
    for axis, begin, end, step in zip(
        axes or range(len(starts)), starts, ends, strides, strict=True
    ):
        first, last, _ = slice(begin, end, step).indices(definite_shape(x)[axis])
        # a step back that ends before the first element has no end
        cuts[axis] = slice(first, last if last >= 0 else None, step)
    return x[tuple(cuts)]


def _compute_pad(inputs: NodeInputs) -> Result:
    """Return the input padded, or cut by negative pads (ONNX Pad)."""
    x, mode = inputs.inputs[0], inputs.attribute("mode", "constant")
    flat = inputs.integer_list(1, "pads") or []
    axes = inputs.integer_list(3) or list(range(tensor_rank(x)))
    both = [(0, 0)] * tensor_rank(x)
    for at, axis in enumerate(axes):
        both[axis] = (flat[at], flat[at + len(axes)])
    if any(min(pair) < 0 for pair in both):  # a negative pad cuts
        ends = zip(definite_shape(x), both, strict=True)
        x = x[tuple(slice(max(0, -a), size - max(0, -b)) for size, (a, b) in ends)]
        both = [(max(0, a), max(0, b)) for a, b in both]
    if mode == "constant":
        value = inputs.input(2)
        filler = (
            constant_in_dtype_of(inputs.attribute("value", 0), x)
            if value is None
            else tf.reshape(value, [])
        )
        return tf.pad(x, both, constant_values=filler)
    if mode == "reflect":
        return tf.pad(x, both, "REFLECT")
    for axis, (before, after) in enumerate(both):  # an edge that goes on, or the other end
        indices = np.arange(-before, definite_shape(x)[axis] + after)
        size = definite_shape(x)[axis]
        indices = indices % size if mode == "wrap" else np.clip(indices, 0, size - 1)
        x = tf.gather(x, indices, axis=axis) if before or after else x
    return x


def _compute_constant_of_shape(inputs: NodeInputs) -> Result:
    """Return a tensor of the given shape filled with one value, float32 zero by default (ONNX
    ConstantOfShape).
    """
    value = inputs.attributes.get("value", np.zeros(1, np.float32))
    return tf.fill(inputs.integer_list(0) or [], tf.constant(np.ravel(value)[0]))


def _compute_shape(inputs: NodeInputs) -> Result:
    """Return the input's shape as a tensor of integers (ONNX Shape)."""
    sizes = definite_shape(inputs.inputs[0])
    return tf.constant(
        sizes[inputs.attribute("start", 0) : inputs.attribute("end", None)], tf.int64
    )


def _compute_size(inputs: NodeInputs) -> Result:
    """Return the number of the input's elements (ONNX Size)."""
    return tf.constant(prod(definite_shape(inputs.inputs[0])), tf.int64)


def _compute_range(inputs: NodeInputs) -> Result:
    """Return the numbers from start to limit by a step (ONNX Range)."""
    return tf.range(
        *(inputs.number_or_default(at, 0) for at in range(3)), dtype=inputs.inputs[0].dtype
    )


def _compute_eye_like(inputs: NodeInputs) -> Result:
    """Return ones on a diagonal, in a matrix of the input's shape (ONNX EyeLike)."""
    x = inputs.inputs[0]
    rows, columns = definite_shape(x)
    dtype = (
        tf.as_dtype(ELEMENT_TYPES[inputs.attribute("dtype", 0)])
        if inputs.attribute("dtype", 0)
        else x.dtype
    )
    return tf.constant(np.eye(rows, columns, k=inputs.attribute("k", 0)), dtype)


def _compute_trilu(inputs: NodeInputs) -> Result:
    """Return the upper or lower triangle of the input, zeros elsewhere (ONNX Trilu)."""
    x, k = inputs.inputs[0], inputs.number_or_default(1, 0)
    rows, columns = definite_shape(x)[-2:]
    ones = np.ones((rows, columns), bool)
    kept = np.triu(ones, k) if inputs.attribute("upper", 1) else np.tril(ones, k)
    return tf.where(tf.constant(kept), x, tf.zeros((), x.dtype))


def _compute_depth_to_space(inputs: NodeInputs) -> Result:
    """Return the input with channels moved into blocks of pixels (ONNX DepthToSpace).

    Move channels to blocks of pixels; in the order CRD the rows of a block are within a channel.
    """
    x, block = inputs.inputs[0], inputs.attribute("blocksize", 1)
    n, c, h, w = definite_shape(x)
    less = c // block**2
    if inputs.attribute("mode", "DCR") == "DCR":
        x = tf.transpose(tf.reshape(x, [n, block, block, less, h, w]), [0, 3, 4, 1, 5, 2])
    else:
        x = tf.transpose(tf.reshape(x, [n, less, block, block, h, w]), [0, 1, 4, 2, 5, 3])
    return tf.reshape(x, [n, less, h * block, w * block])


def _compute_space_to_depth(inputs: NodeInputs) -> Result:
    """Return the input with blocks of pixels moved into channels (ONNX SpaceToDepth)."""
    x, block = inputs.inputs[0], inputs.attribute("blocksize", 1)
    n, c, h, w = definite_shape(x)
    x = tf.reshape(x, [n, c, h // block, block, w // block, block])
    order = [3, 5, 1] if inputs.attribute("mode", "DCR") == "DCR" else [1, 3, 5]
    x = tf.transpose(x, [0, *order, 2, 4])
    return tf.reshape(x, [n, c * block**2, h // block, w // block])


def _compute_identity(inputs: NodeInputs) -> Result:
    """Return the input unchanged (ONNX Identity)."""
    return tf.identity(inputs.inputs[0])


def _compute_dropout(inputs: NodeInputs) -> Result:
    """Return the input unchanged, since nothing is dropped outside of training (ONNX Dropout)."""
    if inputs.input(2) is not None and inputs.number_or_default(2, False):
        raise UnfitError("in training")
    x = inputs.inputs[0]
    return [tf.identity(x), tf.ones(definite_shape(x), tf.bool)][: inputs.outputs]


_SHAPES_RULES: dict[str, Rule] = {
    "Reshape": _compute_reshape,
    "Flatten": _compute_flatten,
    "Squeeze": _compute_squeeze,
    "Unsqueeze": _compute_unsqueeze,
    "Transpose": _compute_transpose,
    "Expand": _compute_expand,
    "Tile": _compute_tile,
    "Concat": _compute_concat,
    "Split": _compute_split,
    "Slice": _compute_slice,
    "Pad": _compute_pad,
    "ConstantOfShape": _compute_constant_of_shape,
    "Shape": _compute_shape,
    "Size": _compute_size,
    "Range": _compute_range,
    "EyeLike": _compute_eye_like,
    "Trilu": _compute_trilu,
    "DepthToSpace": _compute_depth_to_space,
    "SpaceToDepth": _compute_space_to_depth,
    "Identity": _compute_identity,
    "Dropout": _compute_dropout,
}


# What reads and writes elements by their places, and resizes.


def _without_negative_indices(indices: Any, known: Any, size: int) -> Any:
    """Return the indices with each known negative index i replaced by i + size, as TensorFlow
    requires.

    TensorFlow needs that.
    """
    if known is None:
        return indices
    return tf.constant(np.where(known < 0, known + size, known), indices.dtype)


def _compute_gather(inputs: NodeInputs) -> Result:
    """Return the entries of an axis at the given indices (ONNX Gather)."""
    x, axis = inputs.inputs[0], inputs.attribute("axis", 0)
    return tf.gather(
        x,
        _without_negative_indices(inputs.inputs[1], inputs.known[1], definite_shape(x)[axis]),
        axis=axis,
    )


def _coordinates_along_axis(indices: Any, axis: int) -> Any:
    """Return the coordinates of the elements that indices along one axis select, on a new last
    axis.
    """
    sizes = definite_shape(indices)
    grid = list(np.indices(sizes))
    parts = [tf.constant(axis, indices.dtype) for axis in grid]
    parts[axis] = indices
    return tf.stack(parts, -1)


def _compute_gather_elements(inputs: NodeInputs) -> Result:
    """Return the elements that an index tensor selects along an axis (ONNX GatherElements)."""
    x = inputs.inputs[0]
    axis = inputs.attribute("axis", 0) % tensor_rank(x)
    indices = _without_negative_indices(inputs.inputs[1], inputs.known[1], definite_shape(x)[axis])
    return tf.gather_nd(x, _coordinates_along_axis(indices, axis))


def _compute_gather_nd(inputs: NodeInputs) -> Result:
    """Return the slices that coordinate vectors select (ONNX GatherND)."""
    return tf.gather_nd(*inputs.inputs, batch_dims=inputs.attribute("batch_dims", 0))


def _scatter_updates(x: Any, indices: Any, updates: Any, mode: str) -> Any:
    """Return `x` with updates written at coordinates, by `mode`: "none", "add", "max" or "min"."""
    writers = {
        "none": tf.tensor_scatter_nd_update,
        "add": tf.tensor_scatter_nd_add,
        "max": tf.tensor_scatter_nd_max,
        "min": tf.tensor_scatter_nd_min,
    }
    if mode not in writers:
        raise UnfitError(f"that reduces by {mode}")
    return writers[mode](x, indices, updates)


def _compute_scatter_nd(inputs: NodeInputs) -> Result:
    """Return the input with updates written at coordinate vectors (ONNX ScatterND)."""
    x, indices, updates = inputs.inputs
    return _scatter_updates(x, indices, updates, inputs.attribute("reduction", "none"))


def _compute_scatter_elements(inputs: NodeInputs) -> Result:
    """Return the input with updates written at indices along an axis (ONNX ScatterElements)."""
    x, _, updates = inputs.inputs
    axis = inputs.attribute("axis", 0) % tensor_rank(x)
    indices = _without_negative_indices(inputs.inputs[1], inputs.known[1], definite_shape(x)[axis])
    return _scatter_updates(
        x, _coordinates_along_axis(indices, axis), updates, inputs.attribute("reduction", "none")
    )


def _compute_one_hot(inputs: NodeInputs) -> Result:
    """Return the one-hot encoding of indices (ONNX OneHot)."""
    off_on, depth = inputs.inputs[2], int(inputs.number_or_default(1, 0))
    indices = tf.cast(
        _without_negative_indices(inputs.inputs[0], inputs.known[0], depth), tf.int64
    )
    axis = inputs.attribute("axis", -1) % (tensor_rank(indices) + 1)
    axis = -1 if axis == tensor_rank(indices) else axis
    return tf.one_hot(indices, depth, off_on[1], off_on[0], axis, off_on.dtype)


def _compute_top_k(inputs: NodeInputs) -> Result:
    """Return the k largest or smallest elements along an axis, sorted, and their indices (ONNX
    TopK).
    """
    x, k = inputs.inputs[0], inputs.number_or_default(1, inputs.attribute("k", 1))
    axis = inputs.attribute("axis", -1) % tensor_rank(x)
    order = [*(at for at in range(tensor_rank(x)) if at != axis), axis]
    back = list(np.argsort(order))
    moved = tf.transpose(x, order)
    largest = inputs.attribute("largest", 1)
    values, indices = tf.math.top_k(moved if largest else -moved, k)
    values = values if largest else -values
    return [tf.transpose(values, back), tf.cast(tf.transpose(indices, back), tf.int64)]


def _compute_resize(inputs: NodeInputs) -> Result:
    """Return the resized input: nearest by known indices, linear by TensorFlow's operator or from
    neighbours (ONNX Resize).
    """
    x, mode = inputs.inputs[0], inputs.attribute("mode", "nearest")
    sizes, scales = _output_sizes_and_scales(inputs, definite_shape(x))
    axes = [
        at
        for at, (old, new) in enumerate(zip(definite_shape(x), sizes, strict=True))
        if old != new
    ]
    if inputs.attribute("antialias", 0) and any(sizes[at] < definite_shape(x)[at] for at in axes):
        raise UnfitError("with antialias")
    moving = inputs.attribute("coordinate_transformation_mode", "half_pixel")
    moving = "asymmetric" if inputs.since < 11 else moving
    if moving == "tf_crop_and_resize" or mode == "cubic":
        raise UnfitError(f"of the kind {mode}, {moving}")
    where = {
        at: _source_coordinates(moving, definite_shape(x)[at], sizes[at], scales[at])
        for at in range(tensor_rank(x))
        if sizes[at] != definite_shape(x)[at] or scales[at] != 1
    }
    if mode == "linear" and (bilinear := _resize_bilinear(x, sizes, scales, moving)) is not None:
        return bilinear
    for axis, source in where.items():
        if mode == "nearest":
            indices = _nearest_index(
                source, inputs.attribute("nearest_mode", "round_prefer_floor"), inputs.since
            )
            x = tf.gather(
                x, np.clip(indices, 0, definite_shape(x)[axis] - 1).astype(int), axis=axis
            )
        else:
            x = _interpolate_axis(x, source, axis)
    return x


def _output_sizes_and_scales(inputs: NodeInputs, old: list[int]) -> tuple[list[int], list[float]]:
    """Return two lists for Resize: the output size and the scale of every axis."""
    if inputs.since < 11:
        scales = [float(axis) for axis in np.ravel(inputs.array_of_input(1))]
        return [math.floor(n * s) for n, s in zip(old, scales, strict=True)], scales
    axes = [axis % len(old) for axis in inputs.attribute("axes", ())] or list(range(len(old)))
    sizes, scales = list(old), [1.0] * len(old)
    requested, factors = inputs.array_of_input(3), inputs.array_of_input(2)
    if inputs.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise UnfitError("that keeps the aspect ratio")
    for at, axis in enumerate(axes):
        if requested is not None and requested.size:
            sizes[axis] = int(requested[at])
            scales[axis] = sizes[axis] / old[axis]
        else:
            scales[axis] = float(factors[at])
            sizes[axis] = math.floor(old[axis] * scales[axis])
    return sizes, scales


def _source_coordinates(mode: str, old: int, new: int, scale: float) -> Any:
    """Return, for each output element along an axis, its position on the input axis, by Resize's
    coordinate mode.
    """
    at = np.arange(new, dtype=np.float64)
    if mode == "align_corners":
        last = old * scale - 1  # of the size before it was cut to a whole number
        return at * (old - 1) / last if last else at * 0
    if mode == "asymmetric":
        return at / scale
    if mode == "pytorch_half_pixel" and new == 1:
        return at * 0
    if mode == "half_pixel_symmetric":
        shift = old / 2 * (1 - new / (old * scale))
        return shift + (at + 0.5) / scale - 0.5
    return (at + 0.5) / scale - 0.5


def _nearest_index(source: Any, mode: str, since: int) -> Any:
    """Return the positions rounded to an index, by the nearest mode of ONNX Resize."""
    if mode == "floor" or since < 11:
        return np.floor(source)
    if mode == "ceil":
        return np.ceil(source)
    if mode == "round_prefer_ceil":
        return np.floor(source + 0.5)
    return np.ceil(source - 0.5)


def _resize_bilinear(x: Any, sizes: list[int], scales: list[float], mode: str) -> Any:
    """Return the input resized by TensorFlow's own bilinear operator, or None if that would
    compute something else.
    """
    old = definite_shape(x)
    exact = all(abs(s * n - m) < 1e-9 for s, n, m in zip(scales, old, sizes, strict=True))
    if len(old) != 4 or old[:2] != sizes[:2] or not exact:
        return None
    if mode == "pytorch_half_pixel" and 1 in sizes[2:]:
        return None
    y = tf.raw_ops.ResizeBilinear(
        images=tf.transpose(x, [0, 2, 3, 1]),
        size=sizes[2:],
        align_corners=mode == "align_corners",
        half_pixel_centers=mode not in ("align_corners", "asymmetric"),
    )
    return tf.cast(tf.transpose(y, [0, 3, 1, 2]), x.dtype)


def _interpolate_axis(x: Any, source: Any, axis: int) -> Any:
    """Return `x` sampled at the positions `source` along an axis, linear between the two
    neighbours.
    """
    size = definite_shape(x)[axis]
    before = np.floor(source)
    wide = [-1, *(1,) * (tensor_rank(x) - 1 - axis)]
    share = tf.reshape(tf.constant(source - before, x.dtype), wide)
    first, second = (
        tf.gather(x, np.clip(before + more, 0, size - 1).astype(int), axis=axis) for more in (0, 1)
    )
    return first + (second - first) * share


def _compute_upsample(inputs: NodeInputs) -> Result:
    """Return the input enlarged by scales from an input or an attribute (ONNX Upsample)."""
    scales = inputs.array_of_input(1) if inputs.since >= 9 else inputs.attribute("scales", ())
    inputs = NodeInputs(
        (inputs.inputs[0], tf.constant(scales)),
        (None, np.asarray(scales)),
        inputs.attributes,
        1,
        10,
    )
    return _compute_resize(inputs)


_GATHERS_RULES: dict[str, Rule] = {
    "Gather": _compute_gather,
    "GatherElements": _compute_gather_elements,
    "GatherND": _compute_gather_nd,
    "ScatterND": _compute_scatter_nd,
    "ScatterElements": _compute_scatter_elements,
    "OneHot": _compute_one_hot,
    "TopK": _compute_top_k,
    "Resize": _compute_resize,
    "Upsample": _compute_upsample,
}


RULES: dict[str, Rule] = {**_SHAPES_RULES, **_GATHERS_RULES}
