"""Score and value products are found in a graph, and what a causal mask leaves of them."""

from fractions import Fraction

import pytest

from crossflops.hardware.rates.terms import AttentionScores, attention_scores_by_node
from tests.onnx_files import graph_of, parsed, saved, with_weights

PLAIN = """
g (float[2,4,6,8] q, float[2,4,8,6] k, float[2,4,6,8] v, float[8,8] w) => (float[2,4,6,8] y) {
  qk = MatMul(q, k) a = Softmax <axis = -1> (qk) c = MatMul(a, v) y = MatMul(c, w)
}
"""
MASKED = """
g (float[2,4,6,8] q, float[2,4,8,6] k, float[2,4,6,8] v, float[6,6] m) => (float[2,4,6,8] y) {
  qk = MatMul(q, k) t = Mul(qk, qk) s = Add(t, m) a = Softmax <axis = -1> (s)
  d = Identity(a) y = MatMul(d, v)
}
"""
CLASSIFIER = """
g (float[2,6,8] x, float[8,8] w) => (float[2,6,8] y)
{ h = MatMul(x, w) y = Softmax <axis = -1> (h) }
"""
FUSED = """
g (float[2,4,6,8] q, float[2,4,6,8] k, float[2,4,6,8] v, float[2,4,3,8] pk, float[2,4,3,8] pv)
  => (float[2,4,6,8] y)
{ y = Attention <is_causal = %d> (q, k, v%s) }
"""


def found(tmp_path, model):
    """The scores, by the operator of their node."""
    graph = graph_of(saved(tmp_path, model))
    ops = {node.key: node.op.type for node in graph.nodes}
    return [(ops[key], score) for key, score in attention_scores_by_node(graph).items()]


def test_two_products_around_a_softmax(tmp_path):
    """Both are found, and the projection behind them, which has a weight, is not."""
    square = AttentionScores(queries=6, keys=6, causal="no")
    assert found(tmp_path, with_weights(PLAIN, "w")) == [("MatMul", square), ("MatMul", square)]


def test_a_mask_may_be_causal(tmp_path):
    """Through scaling and a mask; what the mask holds nobody reads."""
    square = AttentionScores(queries=6, keys=6, causal="masked")
    assert found(tmp_path, parsed(MASKED)) == [("MatMul", square), ("MatMul", square)]


def test_a_classifier_is_no_attention(tmp_path):
    """A softmax behind a product with a weight has no score products."""
    assert found(tmp_path, with_weights(CLASSIFIER, "w")) == []


@pytest.mark.parametrize(
    ("causal", "more", "expected"),
    [
        (0, "", AttentionScores(queries=6, keys=6, causal="no")),
        (1, "", AttentionScores(queries=6, keys=6, causal="declared")),
        (1, ", , pk, pv", AttentionScores(queries=6, keys=9, causal="declared")),
    ],
)
def test_attention_of_one_node(tmp_path, causal, more, expected):
    """Its attributes tell; keys of the past are keys."""
    model = parsed(FUSED % (causal, more), opset=23)
    assert found(tmp_path, model) == [("Attention", expected)]


def remaining_share(queries, keys, *, half, width):
    """Return the share of the scores that remain, counted one by one.

    The last query stands at the last key. The diagonal of a causal mask is half.
    """
    kept = Fraction(0)
    for row in range(queries):
        own = keys - queries + row
        if half:
            seen = [key for key in range(keys) if own - width < key <= own]
            kept += len(seen) - Fraction(1, 2)
            # what leaves a window at its other end is half as well
            kept += Fraction(1, 2) if own >= width else 0
        else:
            kept += min(width, keys)
    return kept / (queries * keys)


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 9, 50])
@pytest.mark.parametrize(("queries", "keys"), [(8, 8), (2, 8), (5, 7), (2, 2)])
@pytest.mark.parametrize("is_own", [False, True])
def test_causal_attention_keeps_a_triangle_and_a_band(queries, keys, width, is_own):
    """Of its own or asked for: a window of many keys leaves the triangle of the causal mask."""
    declared = AttentionScores(
        queries=queries, keys=keys, causal="declared", window=width if is_own else 0
    )
    asked_for = None if is_own else width
    for half in (False, True):
        expected = remaining_share(queries, keys, half=half, width=width)
        assert declared.share_of_remaining_scores(half, asked_for) == expected


def test_the_window_of_a_mask_is_left_out_with_the_mask():
    """4 keys of 8 where the mask is left out; a narrower window that is asked for holds."""
    scores = AttentionScores(queries=8, keys=8, causal="masked", masked_window=4)
    assert scores.share_of_remaining_scores(half=False) == 1
    assert scores.share_of_remaining_scores(half=True) == remaining_share(8, 8, half=True, width=4)
    assert scores.share_of_remaining_scores(half=True, window=2) == remaining_share(
        8, 8, half=True, width=2
    )
    assert scores.share_of_remaining_scores(half=True, window=6) == remaining_share(
        8, 8, half=True, width=4
    )


@pytest.mark.parametrize(
    ("scores", "half", "window"),
    [
        (AttentionScores(queries=8, keys=8, causal="masked"), Fraction(1, 2), Fraction(1, 4)),
        (AttentionScores(queries=8, keys=8, causal="no"), 1, 1),  # every query sees all keys
        (AttentionScores(queries=2, keys=8, causal="masked"), 1, 1),  # across, for all one knows
        (AttentionScores(queries=1, keys=8, causal="declared"), 1, Fraction(1, 4)),
        (AttentionScores(queries=1, keys=8, causal="no"), 1, Fraction(1, 4)),  # the newest token
    ],
)
def test_masks_and_windows_act_where_attention_may_be_causal(scores, half, window):
    """A masked square is taken as causal; the newest token sees every key of its window."""
    assert scores.share_of_remaining_scores(half=True) == half
    assert scores.share_of_remaining_scores(half=False, window=2) == window
    assert scores.share_of_remaining_scores(half=False) == 1


def test_half_of_a_square_by_counting():
    """Below the diagonal of n x n there are n (n - 1) / 2, and n on it, each of them half."""
    for size in (2, 5, 8):
        below = [(row, key) for row in range(size) for key in range(size) if key < row]
        kept = len(below) + Fraction(size, 2)
        square = AttentionScores(queries=size, keys=size, causal="declared")
        assert square.share_of_remaining_scores(half=True) == kept / size**2
