"""Transforms, random numbers, losses, boxes, optimizers and old operators, derived by hand."""

import pytest

from crossflops.errors import OperandError
from crossflops.ir.ledger import Cost, CountedNode, UncountedNode
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.operators.scalars import work

X = (2, 3)  # six elements
TRAIN = "ai.onnx.preview.training::"

CASES = [
    # 8 complex elements: 8*3 steps of 2 muls and 3 adds; 2 rows of them.
    (to_node("DFT-17", [(2, 8, 2)], [(2, 8, 2)]), {"muls": 96, "adds": 144}),
    # real, onesided, 3 rows of 8 along axis 1: half of it.
    (
        to_node("DFT-17", [(1, 8, 3, 1)], [(1, 5, 3, 2)], onesided=1),
        {"muls": 72, "adds": 108},
    ),
    (to_node("DFT-17", [(1, 4, 2)], [(1, 4, 2)], inverse=1), {"muls": 16, "adds": 24, "divs": 8}),
    # the default axis of version 20 is the last but the parts: 3 rows of 8.
    (to_node("DFT", [(1, 3, 8, 1)], [(1, 3, 8, 2)]), {"muls": 72, "adds": 108}),
    # dft_length: the output's extent 16 counts, 16*4 steps, real.
    (to_node("DFT", [(1, 8, 1), ":int64"], [(1, 16, 2)]), {"muls": 64, "adds": 96}),
    # 3 frames of 8: 8 muls by the window, 24 steps, real.
    (
        to_node("STFT", [(1, 12, 1), ":int64", (8,)], [(1, 3, 5, 2)]),
        {"muls": 3 * (8 + 24), "adds": 3 * 36},
    ),
    (
        to_node("HannWindow", [":int64"], [(10,)]),
        {"muls": 20, "specials": 10, "adds": 10, "divs": 1},
    ),
    (to_node("MelWeightMatrix", [":int64"] * 3, [X]), {"adds": 12, "divs": 12, "compares": 12}),
    (to_node("com.microsoft::Rfft", [(3, 8)], [(3, 5, 2)]), {"muls": 72, "adds": 108}),
    # along 4 and along 8: 4*2*8 + 8*3*4 steps.
    (
        to_node("com.microsoft::Rfft", [(4, 8)], [(4, 5, 2)], signal_ndim=2),
        {"muls": 160, "adds": 12 * 8 + 36 * 4},
    ),
    (
        to_node("com.microsoft::Irfft", [(3, 5, 2)], [(3, 8)], signal_ndim=1),
        {"muls": 72, "adds": 108, "divs": 24},
    ),
    (to_node("RandomUniform", [], [X]), {"muls": 6, "adds": 6}),
    (to_node("RandomNormalLike", [X], [X]), {"muls": 24, "adds": 6, "specials": 18}),
    (to_node("Bernoulli", [X], [X]), {"muls": 6, "adds": 6, "compares": 6}),
    # 2 rows of 5: 10 exps, 8 adds; 6 samples of one mul and 3 halvings.
    (
        to_node("Multinomial", [(2, 5)], ["2x3:int64"], sample_size=3),
        {"specials": 10, "adds": 8, "muls": 6, "compares": 18},
    ),
    (to_node("NegativeLogLikelihoodLoss", [(4, 3), "4:int64"], [()]), {"adds": 7, "divs": 1}),
    (
        to_node("NegativeLogLikelihoodLoss", [(4, 3), "4:int64", (3,)], [()]),
        {"adds": 4 + 6, "muls": 4, "divs": 1},
    ),
    (
        to_node(
            "NegativeLogLikelihoodLoss",
            [(4, 3), "4:int64"],
            [(4,)],
            reduction="none",
            ignore_index=0,
        ),
        {"adds": 4, "compares": 4},
    ),
    # LogSoftmax of 12 in 4 groups: 8 compares, 12 + 8 + ... adds, 12 exps and 4 logs.
    (
        to_node("SoftmaxCrossEntropyLoss", [(4, 3), "4:int64"], [()], reduction="sum"),
        {"compares": 8, "adds": 12 + 8 + 12 + 4 + 3, "specials": 16},
    ),
    # 5 boxes: sorting 5*3 compares, 10 pairs, 5 areas; the scores meet a threshold.
    (
        to_node("NonMaxSuppression", [(1, 5, 4), (1, 1, 5)], ["9x3:int64"]),
        {"compares": 15 + 70, "adds": 40 + 10, "muls": 10 + 5, "divs": 10},
    ),
    (
        to_node(
            "NonMaxSuppression",
            [(1, 5, 4), (1, 2, 5), None, None, ()],
            ["9x3:int64"],
            center_point_box=1,
        ),
        {"compares": 10 + 30 + 140, "adds": 80 + 30, "muls": 20 + 15, "divs": 20},
    ),
    # windows of at most 5 // 2 + 2 = 4 by 4 elements; 8 results, 2 boxes of 4 corners.
    (
        to_node("MaxRoiPool", [(1, 1, 5, 5), (2, 5)], [(2, 1, 2, 2)], pooled_shape=(2, 2)),
        {"compares": 8 * 15, "muls": 8, "specials": 8},
    ),
    (
        to_node("com.microsoft::CropAndResize", [(1, 2, 9, 9), (1, 4)], [(1, 2, 2, 2)]),
        {"muls": 32, "adds": 24},
    ),
    (
        to_node(
            "com.microsoft::CropAndResize", [(1, 2, 9, 9), (1, 4)], [(1, 2, 2, 2)], mode="nearest"
        ),
        {},
    ),
    # 3x3: 2 + 1 divs, 4 + 1 products taken away, 2 muls along the diagonal.
    (to_node("Det", [(2, 3, 3)], [(2,)]), {"divs": 6, "muls": 2 * (5 + 2), "adds": 10}),
    (to_node("com.microsoft::Inverse", [(3, 3)], [(3, 3)]), {"divs": 9, "muls": 12, "adds": 12}),
    (
        to_node(f"{TRAIN}Momentum", ["", ""] + [X] * 3, [X], mode="standard"),
        {"muls": 24, "adds": 18},
    ),
    (
        to_node(f"{TRAIN}Momentum", ["", ""] + [X] * 3, [X], mode="nesterov"),
        {"muls": 30, "adds": 24},
    ),
    (
        to_node(f"{TRAIN}Adagrad", ["", "", X, (4,)] + [X, (4,)] * 2, [X]),
        {"muls": 31, "adds": 41, "specials": 10, "divs": 11},
    ),
    (
        to_node(f"{TRAIN}Adam", ["", ""] + [X] * 4, [X], norm_coefficient_post=0.5),
        {"muls": 48, "adds": 30, "specials": 6, "divs": 6},
    ),
    (to_node("Affine-1", [X], [X]), {"muls": 6, "adds": 6}),
    (to_node("ThresholdedRelu-1", [X], [X]), {"compares": 6}),
    # 2 rows of 3: mean 4 adds 2 divs, 6 subs, 6 squares, 4 adds 2 divs, 2 (add, sqrt, div).
    (
        to_node("LayerNormalization-1", [X, (3,)], [X]),
        {"adds": 4 + 6 + 4 + 2, "divs": 6, "muls": 18, "specials": 2},
    ),
    (
        to_node("SimplifiedLayerNormalization", [X, (3,)], [X]),
        {"muls": 12, "adds": 4 + 2, "divs": 2 + 6, "specials": 2},
    ),
    (to_node("Crop-1", [X], [(1, 2)]), {}),
    # versions of before 7: a slope and a norm as they were, statistics that are not per channel.
    (
        to_node("LpPool-1", [(1, 1, 4)], [(1, 1, 2)], kernel_shape=(2,), p=2.0),
        {"muls": 4, "adds": 2, "specials": 2},
    ),
    (to_node("GlobalLpPool-1", [(1, 1, 4)], [(1, 1, 1)], p=1.0), {"compares": 4, "adds": 3}),
    (
        to_node(
            "BatchNormalization-6", [(2, 3, 4), *[(3, 4)] * 4], [(2, 3, 4)], spatial=0, is_test=1
        ),
        {"adds": 48 + 12, "muls": 48, "specials": 12, "divs": 12},
    ),
    (to_node("Add-6", [(2, 3), (2,)], [(2, 3)], axis=0, broadcast=1), {"adds": 6}),
    (
        to_node("Upsample-1", [(1, 1, 2, 2)], [(1, 1, 4, 4)], mode="bilinear"),
        {"muls": 64, "adds": 48},
    ),
    (to_node("Scatter-9", [X, "1x3:int64", (1, 3)], [X]), {}),
    (to_node("Dropout-1", [X], [X], is_test=1), {}),
    # Q, K and V [1, 2, 3, 4]: 2*3*3 scores of 4 + 4; 6 rows.
    (
        to_node("ai.onnx.preview::FlexAttention", [(1, 2, 3, 4)] * 3, [(1, 2, 3, 4)]),
        {"macs": 144, "muls": 18, "compares": 12, "adds": 30, "specials": 18, "divs": 18},
    ),
]


@pytest.mark.parametrize(("one", "kinds"), CASES, ids=lambda v: str(getattr(v, "op", "")))
def test_work_by_kind(one, kinds):
    """Each operation is counted once, by its kind."""
    assert work(one) == Cost(**kinds)


@pytest.mark.parametrize(
    ("one", "exactness"),
    [
        (to_node("RandomUniform", [], [X]), "estimate"),
        (to_node("DFT", [(1, 8, 1)], [(1, 8, 2)]), "estimate"),
        (to_node("NonMaxSuppression", [(1, 5, 4), (1, 1, 5)], ["9x3:int64"]), "bound"),
        (to_node("NegativeLogLikelihoodLoss", [(4, 3), "4:int64"], [()]), "exact"),
    ],
)
def test_what_is_not_exact_says_so(one, exactness):
    """Work that depends on data is a bound, work of an algorithm that is ours an estimate."""
    counted = count_node(one)
    assert isinstance(counted, CountedNode)
    assert counted.exactness == exactness


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (to_node("MaxRoiPool", [(1, 1, 5, 5), (2, 5)], [(2, 1, 2, 2)]), "pooled_shape"),
        (to_node("com.microsoft::CropAndResize", [(1, 1, 2, 2)], [X], mode="fractal"), "fractal"),
        (to_node(f"{TRAIN}Adam", ["", "", X, X], [X]), "4 inputs"),
        (to_node(f"{TRAIN}Gradient", [X], [X]), "another part of the graph"),
    ],
)
def test_what_cannot_be_known_is_uncounted_with_a_reason(one, words):
    """A node that leaves its work open gets a reason that names what is missing."""
    gap = count_node(one)
    assert isinstance(gap, UncountedNode)
    assert words in gap.reason


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (to_node("Det", [(2, 3)], [()]), "3 at axis 1, but 2 is needed"),
    ],
)
def test_operands_that_contradict_each_other_are_refused(one, words):
    """No runtime takes them, so there is nothing to count."""
    with pytest.raises(OperandError, match=words):
        count_node(one)
