"""What reads and writes elements by their places, and resizes."""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from crossflops.normalize.rebuilt.tensorflow.rules.given import (
    Given,
    Result,
    Rule,
    UnfitError,
    rank,
    shape,
)


def _positive(places: Any, known: Any, size: int) -> Any:
    """Places of which those that are known count from the beginning: TensorFlow has no others."""
    if known is None:
        return places
    return tf.constant(np.where(known < 0, known + size, known), places.dtype)


def _gather(given: Given) -> Result:
    x, axis = given.inputs[0], given.get("axis", 0)
    return tf.gather(x, _positive(given.inputs[1], given.known[1], shape(x)[axis]), axis=axis)


def _coordinates(places: Any, axis: int) -> Any:
    """The full index of each element of `places`, which stand for those along one axis."""
    sizes = shape(places)
    grid = list(np.indices(sizes))
    parts = [tf.constant(one, places.dtype) for one in grid]
    parts[axis] = places
    return tf.stack(parts, -1)


def _gather_elements(given: Given) -> Result:
    x = given.inputs[0]
    axis = given.get("axis", 0) % rank(x)
    places = _positive(given.inputs[1], given.known[1], shape(x)[axis])
    return tf.gather_nd(x, _coordinates(places, axis))


def _gather_nd(given: Given) -> Result:
    return tf.gather_nd(*given.inputs, batch_dims=given.get("batch_dims", 0))


def _written(x: Any, places: Any, updates: Any, how: str) -> Any:
    writers = {
        "none": tf.tensor_scatter_nd_update,
        "add": tf.tensor_scatter_nd_add,
        "max": tf.tensor_scatter_nd_max,
        "min": tf.tensor_scatter_nd_min,
    }
    if how not in writers:
        raise UnfitError(f"that reduces by {how}")
    return writers[how](x, places, updates)


def _scatter_nd(given: Given) -> Result:
    x, places, updates = given.inputs
    return _written(x, places, updates, given.get("reduction", "none"))


def _scatter_elements(given: Given) -> Result:
    x, _, updates = given.inputs
    axis = given.get("axis", 0) % rank(x)
    places = _positive(given.inputs[1], given.known[1], shape(x)[axis])
    return _written(x, _coordinates(places, axis), updates, given.get("reduction", "none"))


def _one_hot(given: Given) -> Result:
    off_on, depth = given.inputs[2], int(given.number(1, 0))
    places = tf.cast(_positive(given.inputs[0], given.known[0], depth), tf.int64)
    axis = given.get("axis", -1) % (rank(places) + 1)
    axis = -1 if axis == rank(places) else axis
    return tf.one_hot(places, depth, off_on[1], off_on[0], axis, off_on.dtype)


def _largest(given: Given) -> Result:
    """The k largest or smallest along an axis, in order."""
    x, k = given.inputs[0], given.number(1, given.get("k", 1))
    axis = given.get("axis", -1) % rank(x)
    order = [*(at for at in range(rank(x)) if at != axis), axis]
    back = list(np.argsort(order))
    moved = tf.transpose(x, order)
    largest = given.get("largest", 1)
    values, places = tf.math.top_k(moved if largest else -moved, k)
    values = values if largest else -values
    return [tf.transpose(values, back), tf.cast(tf.transpose(places, back), tf.int64)]


def _resize(given: Given) -> Result:
    """Nearest by the places that are known, linear by TensorFlow's own or from its taps."""
    x, mode = given.inputs[0], given.get("mode", "nearest")
    sizes, scales = _resized(given, shape(x))
    axes = [at for at, (old, new) in enumerate(zip(shape(x), sizes, strict=True)) if old != new]
    if given.get("antialias", 0) and any(sizes[at] < shape(x)[at] for at in axes):
        raise UnfitError("with antialias")
    own = given.get("coordinate_transformation_mode", "half_pixel")
    own = "asymmetric" if given.since < 11 else own
    if own == "tf_crop_and_resize" or mode == "cubic":
        raise UnfitError(f"of the kind {mode}, {own}")
    where = {
        at: _sources(own, shape(x)[at], sizes[at], scales[at])
        for at in range(rank(x))
        if sizes[at] != shape(x)[at] or scales[at] != 1
    }
    if mode == "linear" and (bilinear := _bilinear(x, sizes, scales, own)) is not None:
        return bilinear
    for axis, source in where.items():
        if mode == "nearest":
            places = _nearest(source, given.get("nearest_mode", "round_prefer_floor"), given.since)
            x = tf.gather(x, np.clip(places, 0, shape(x)[axis] - 1).astype(int), axis=axis)
        else:
            x = _between(x, source, axis)
    return x


def _resized(given: Given, old: list[int]) -> tuple[list[int], list[float]]:
    """Sizes after, and scales, of every axis."""
    if given.since < 11:
        scales = [float(one) for one in np.ravel(given.value(1))]
        return [math.floor(n * s) for n, s in zip(old, scales, strict=True)], scales
    axes = [one % len(old) for one in given.get("axes", ())] or list(range(len(old)))
    sizes, scales = list(old), [1.0] * len(old)
    wanted, factors = given.value(3), given.value(2)
    if given.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise UnfitError("that keeps the aspect ratio")
    for at, axis in enumerate(axes):
        if wanted is not None and wanted.size:
            sizes[axis] = int(wanted[at])
            scales[axis] = sizes[axis] / old[axis]
        else:
            scales[axis] = float(factors[at])
            sizes[axis] = math.floor(old[axis] * scales[axis])
    return sizes, scales


def _sources(mode: str, old: int, new: int, scale: float) -> Any:
    """Where each element lies in the old axis."""
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


def _nearest(source: Any, mode: str, since: int) -> Any:
    if mode == "floor" or since < 11:
        return np.floor(source)
    if mode == "ceil":
        return np.ceil(source)
    if mode == "round_prefer_ceil":
        return np.floor(source + 0.5)
    return np.ceil(source - 0.5)


def _bilinear(x: Any, sizes: list[int], scales: list[float], mode: str) -> Any:
    """TensorFlow's own operation, where it means the same: two axes, scales that are ratios."""
    old = shape(x)
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


def _between(x: Any, source: Any, axis: int) -> Any:
    """Between the neighbours of every place along one axis, by how near they are."""
    size = shape(x)[axis]
    before = np.floor(source)
    wide = [-1, *(1,) * (rank(x) - 1 - axis)]
    share = tf.reshape(tf.constant(source - before, x.dtype), wide)
    first, second = (
        tf.gather(x, np.clip(before + more, 0, size - 1).astype(int), axis=axis) for more in (0, 1)
    )
    return first + (second - first) * share


def _upsample(given: Given) -> Result:
    """The operator before Resize: scales are input 1, or an attribute, and places are floored."""
    scales = given.value(1) if given.since >= 9 else given.get("scales", ())
    given = Given(
        (given.inputs[0], tf.constant(scales)), (None, np.asarray(scales)), given.attributes, 1, 10
    )
    return _resize(given)


RULES: dict[str, Rule] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterND": _scatter_nd,
    "ScatterElements": _scatter_elements,
    "OneHot": _one_hot,
    "TopK": _largest,
    "Resize": _resize,
    "Upsample": _upsample,
}
