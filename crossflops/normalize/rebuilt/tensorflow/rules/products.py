"""Matrix products, and attention written as its two."""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from crossflops.normalize.rebuilt.tensorflow.rules.given import (
    Given,
    Result,
    Rule,
    UnfitError,
    like,
    rank,
    shape,
)


def _matmul(given: Given) -> Result:
    """As numpy.matmul: a vector is a row on the left, a column on the right."""
    a, b = given.inputs
    left, right = rank(a) == 1, rank(b) == 1
    y = tf.matmul(a[None] if left else a, b[:, None] if right else b)
    if right:
        y = tf.squeeze(y, [-1])
    return tf.squeeze(y, [-1 if right else -2]) if left else y


def _gemm(given: Given) -> Result:
    """alpha A B + beta C; C of one row is a bias."""
    a, b = given.inputs[:2]
    c = given.input(2)
    y = tf.matmul(
        a, b, transpose_a=bool(given.get("transA", 0)), transpose_b=bool(given.get("transB", 0))
    )
    alpha, beta = given.get("alpha", 1.0), given.get("beta", 1.0)
    if alpha != 1:
        y *= like(alpha, y)
    if c is None or beta == 0:
        return y
    if beta != 1:
        c *= like(beta, c)
    return tf.nn.bias_add(y, c) if shape(c) == shape(y)[-1:] else y + c


def _einsum(given: Given) -> Result:
    return tf.einsum(given.get("equation", "").replace(" ", ""), *given.inputs)


def _attention(given: Given) -> Result:
    """softmax(scale Q K' + mask) V, with heads apart. Keys and values of few heads are repeated.

    Q, K and V are (batch, heads, tokens, size), or (batch, tokens, heads x size).
    """
    windows = (given.get(f"{side}_window_size", -1) for side in ("left", "right"))
    if given.input(6) is not None or max(windows) >= 0:
        raise UnfitError("with a window, or with numbers of keys that are no padding")
    q, flat = given.inputs[0], rank(given.inputs[0]) == 3
    queries, heads = given.get("q_num_heads", 0), given.get("kv_num_heads", 0)
    k, v = given.inputs[1:3]
    if flat:
        q, k, v = _heads(q, queries), _heads(k, heads), _heads(v, heads)
    if given.input(4) is not None:
        k, v = tf.concat([given.input(4), k], 2), tf.concat([given.input(5), v], 2)
    present = [k, v]
    times = shape(q)[1] // shape(k)[1]
    if times > 1:
        k, v = tf.repeat(k, times, axis=1), tf.repeat(v, times, axis=1)
    scale = given.get("scale", 0) or 1 / math.sqrt(shape(q)[-1])
    product = capped = tf.matmul(q, k, transpose_b=True) * like(scale, q)
    cap = given.get("softcap", 0.0)
    if cap:
        capped = like(cap, q) * tf.tanh(product / like(cap, q))
    masked = _masked(given, capped)
    weights = tf.nn.softmax(masked)
    y = tf.matmul(weights, v)
    if flat:
        y = tf.transpose(y, [0, 2, 1, 3])
        y = tf.reshape(y, [*shape(y)[:2], -1])
    seen = (product, capped, masked, weights)
    return [y, *present, seen[given.get("qk_matmul_output_mode", 0)]][: given.outputs]


def _heads(x: Any, heads: int) -> Any:
    batch, tokens, width = shape(x)
    return tf.transpose(tf.reshape(x, [batch, tokens, heads, width // heads]), [0, 2, 1, 3])


def _masked(given: Given, scores: Any) -> Any:
    """Scores of minus infinity where a key is not to be looked at.

    A causal query i looks at keys up to i, and at all of the past.
    """
    lowest, mask = like(-math.inf, scores), given.input(3)
    queries, keys = shape(scores)[-2:]
    if given.get("is_causal", 0):
        past = shape(given.input(4))[2] if given.input(4) is not None else 0
        allowed = np.arange(keys)[None] <= np.arange(queries)[:, None] + past
        scores = tf.where(tf.constant(allowed), scores, lowest)
    if mask is None:
        return scores
    whole = mask.dtype == tf.bool
    if missing := keys - shape(mask)[-1]:  # what it does not reach is not looked at
        ends = [[0, 0]] * (rank(mask) - 1) + [[0, missing]]
        mask = tf.pad(mask, ends, constant_values=like(False if whole else -math.inf, mask))
    return tf.where(mask, scores, lowest) if whole else scores + tf.cast(mask, scores.dtype)


RULES: dict[str, Rule] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Attention": _attention,
}
