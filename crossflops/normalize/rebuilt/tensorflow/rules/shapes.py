"""Shapes: what moves, cuts and joins elements, and computes nothing."""

from math import prod

import numpy as np
import tensorflow as tf

from crossflops.load.payload import ELEMENT_TYPES
from crossflops.normalize.rebuilt.tensorflow.rules.given import (
    Given,
    Result,
    Rule,
    UnfitError,
    like,
    rank,
    shape,
)


def _reshape(given: Given) -> Result:
    """0 keeps a size unless `allowzero`, -1 takes what is left."""
    x, sizes = given.inputs[0], given.numbers(1, "shape") or []
    keeps = not given.get("allowzero", 0)
    kept = [shape(x)[at] if size == 0 and keeps else size for at, size in enumerate(sizes)]
    return tf.reshape(x, kept)


def _flatten(given: Given) -> Result:
    x, axis = given.inputs[0], given.get("axis", 1)
    sizes = shape(x)
    axis = axis if axis >= 0 else axis + len(sizes)
    return tf.reshape(x, [prod(sizes[:axis]), prod(sizes[axis:])])


def _squeeze(given: Given) -> Result:
    axes = given.numbers(1, "axes")
    x = given.inputs[0]
    if axes is None:
        axes = [at for at, size in enumerate(shape(x)) if size == 1]
    return tf.squeeze(x, axes) if axes else tf.identity(x)


def _unsqueeze(given: Given) -> Result:
    x, axes = given.inputs[0], given.numbers(1, "axes") or []
    whole = rank(x) + len(axes)
    for axis in sorted(one % whole for one in axes):
        x = tf.expand_dims(x, axis)
    return x


def _transpose(given: Given) -> Result:
    x = given.inputs[0]
    return tf.transpose(x, given.get("perm", ()) or list(range(rank(x)))[::-1])


def _expand(given: Given) -> Result:
    x, sizes = given.inputs[0], given.numbers(1) or []
    return tf.broadcast_to(x, np.broadcast_shapes(tuple(shape(x)), tuple(sizes)))


def _tile(given: Given) -> Result:
    return tf.tile(given.inputs[0], given.numbers(1) or [])


def _concat(given: Given) -> Result:
    return tf.concat(given.inputs, given.get("axis", 1))


def _split(given: Given) -> Result:
    """Of given sizes, else of equal ones, of which the last may be smaller."""
    x, axis = given.inputs[0], given.get("axis", 0)
    sizes = given.numbers(1, "split")
    if sizes is None:
        size, parts = shape(x)[axis], given.outputs
        each = -(-size // parts)
        sizes = [each] * (parts - 1) + [size - each * (parts - 1)]
    return tf.split(x, sizes, axis)


def _slice(given: Given) -> Result:
    x = given.inputs[0]
    starts, ends = given.numbers(1, "starts") or [], given.numbers(2, "ends") or []
    axes = given.numbers(3, "axes")
    strides = given.numbers(4) or [1] * len(starts)
    cuts = [slice(None)] * rank(x)
    for axis, begin, end, step in zip(
        axes or range(len(starts)), starts, ends, strides, strict=True
    ):
        first, last, _ = slice(begin, end, step).indices(shape(x)[axis])
        # a step back that ends before the first element has no end
        cuts[axis] = slice(first, last if last >= 0 else None, step)
    return x[tuple(cuts)]


def _pad(given: Given) -> Result:
    x, mode = given.inputs[0], given.get("mode", "constant")
    flat = given.numbers(1, "pads") or []
    axes = given.numbers(3) or list(range(rank(x)))
    both = [(0, 0)] * rank(x)
    for at, axis in enumerate(axes):
        both[axis] = (flat[at], flat[at + len(axes)])
    if any(min(pair) < 0 for pair in both):  # a negative pad cuts
        ends = zip(shape(x), both, strict=True)
        x = x[tuple(slice(max(0, -a), size - max(0, -b)) for size, (a, b) in ends)]
        both = [(max(0, a), max(0, b)) for a, b in both]
    if mode == "constant":
        value = given.input(2)
        filler = like(given.get("value", 0), x) if value is None else tf.reshape(value, [])
        return tf.pad(x, both, constant_values=filler)
    if mode == "reflect":
        return tf.pad(x, both, "REFLECT")
    for axis, (before, after) in enumerate(both):  # an edge that goes on, or the other end
        places = np.arange(-before, shape(x)[axis] + after)
        size = shape(x)[axis]
        places = places % size if mode == "wrap" else np.clip(places, 0, size - 1)
        x = tf.gather(x, places, axis=axis) if before or after else x
    return x


def _filled(given: Given) -> Result:
    """A constant of a shape; zeros of float32 where no value is given."""
    value = given.attributes.get("value", np.zeros(1, np.float32))
    return tf.fill(given.numbers(0) or [], tf.constant(np.ravel(value)[0]))


def _shape(given: Given) -> Result:
    sizes = shape(given.inputs[0])
    return tf.constant(sizes[given.get("start", 0) : given.get("end", None)], tf.int64)


def _size(given: Given) -> Result:
    return tf.constant(prod(shape(given.inputs[0])), tf.int64)


def _range(given: Given) -> Result:
    return tf.range(*(given.number(at, 0) for at in range(3)), dtype=given.inputs[0].dtype)


def _eye(given: Given) -> Result:
    x = given.inputs[0]
    rows, columns = shape(x)
    dtype = tf.as_dtype(ELEMENT_TYPES[given.get("dtype", 0)]) if given.get("dtype", 0) else x.dtype
    return tf.constant(np.eye(rows, columns, k=given.get("k", 0)), dtype)


def _triangle(given: Given) -> Result:
    """What is on one side of a diagonal stays."""
    x, k = given.inputs[0], given.number(1, 0)
    rows, columns = shape(x)[-2:]
    ones = np.ones((rows, columns), bool)
    kept = np.triu(ones, k) if given.get("upper", 1) else np.tril(ones, k)
    return tf.where(tf.constant(kept), x, tf.zeros((), x.dtype))


def _to_space(given: Given) -> Result:
    """Channels to blocks; in the order CRD rows of a block are within a channel."""
    x, block = given.inputs[0], given.get("blocksize", 1)
    n, c, h, w = shape(x)
    less = c // block**2
    if given.get("mode", "DCR") == "DCR":
        x = tf.transpose(tf.reshape(x, [n, block, block, less, h, w]), [0, 3, 4, 1, 5, 2])
    else:
        x = tf.transpose(tf.reshape(x, [n, less, block, block, h, w]), [0, 1, 4, 2, 5, 3])
    return tf.reshape(x, [n, less, h * block, w * block])


def _to_depth(given: Given) -> Result:
    x, block = given.inputs[0], given.get("blocksize", 1)
    n, c, h, w = shape(x)
    x = tf.reshape(x, [n, c, h // block, block, w // block, block])
    order = [3, 5, 1] if given.get("mode", "DCR") == "DCR" else [1, 3, 5]
    x = tf.transpose(x, [0, *order, 2, 4])
    return tf.reshape(x, [n, c * block**2, h // block, w // block])


def _same(given: Given) -> Result:
    return tf.identity(given.inputs[0])


def _dropout(given: Given) -> Result:
    """Nothing is dropped outside training."""
    if given.input(2) is not None and given.number(2, False):
        raise UnfitError("in training")
    x = given.inputs[0]
    return [tf.identity(x), tf.ones(shape(x), tf.bool)][: given.outputs]


RULES: dict[str, Rule] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Expand": _expand,
    "Tile": _tile,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "ConstantOfShape": _filled,
    "Shape": _shape,
    "Size": _size,
    "Range": _range,
    "EyeLike": _eye,
    "Trilu": _triangle,
    "DepthToSpace": _to_space,
    "SpaceToDepth": _to_depth,
    "Identity": _same,
    "Dropout": _dropout,
}
