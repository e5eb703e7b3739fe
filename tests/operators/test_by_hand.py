"""One-node cases with answers derived by hand."""

import pytest

from crossflops.errors import OperandError
from crossflops.ir.ledger import ZERO, Cost, UncountedNode
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.operators.scalars import work

NAMED = [
    # 8 * 14 * 14 outputs, 3 * 9 products each; the bias is not a product.
    ("conv 3x3", to_node("Conv", [(1, 3, 14, 14), (8, 3, 3, 3), (8,)], [(1, 8, 14, 14)]), 42336),
    (
        "depthwise",
        to_node("Conv", [(1, 8, 14, 14), (8, 1, 3, 3)], [(1, 8, 14, 14)], group=8),
        14112,
    ),
    ("conv 1d", to_node("Conv", [(1, 4, 16), (6, 4, 3)], [(1, 6, 14)]), 1008),
    # 8 * 16 * 16 inputs, 4 * 16 products each, whatever the stride.
    (
        "convT s2 k4",
        to_node("ConvTranspose", [(1, 8, 16, 16), (8, 4, 4, 4)], ["1x4x34x34"]),
        131072,
    ),
    ("convT g4", to_node("ConvTranspose", [(1, 8, 16, 16), (8, 1, 4, 4)], ["1x4x34x34"]), 32768),
    ("transB", to_node("Gemm", [(4, 16), (8, 16), (8,)], [(4, 8)], transB=1), 512),
    ("transA", to_node("Gemm", [(16, 4), (16, 8)], [(4, 8)], transA=1), 512),
    ("broadcast", to_node("MatMul", [(5, 1, 4, 16), (6, 16, 8)], [(5, 6, 4, 8)]), 15360),
    ("vec@mat", to_node("MatMul", [(16,), (16, 8)], [(8,)]), 128),
    ("mat@vec", to_node("MatMul", [(8, 16), (16,)], [(8,)]), 128),
    ("vec@vec", to_node("MatMul", [(16,), (16,)], [()]), 16),
    (
        "einsum",
        to_node("Einsum", [(2, 3, 4), (2, 4, 5)], [(2, 3, 5)], equation="bij,bjk->bik"),
        120,
    ),
    # 10 steps * 2 sequences * 4 gates * 16 units * (8 + 16).
    ("LSTM", to_node("LSTM", [(10, 2, 8), (1, 64, 8), (1, 64, 16)], [(10, 1, 2, 16)]), 30720),
    (
        "GRU",
        to_node(
            "GRU",
            [(10, 2, 8), (2, 48, 8), (2, 48, 16)],
            [(10, 2, 2, 16)],
            direction="bidirectional",
        ),
        46080,
    ),
    # 2 sequences * 8 heads * 5 queries * 5 keys * (16 + 16).
    (
        "grouped queries",
        to_node(
            "Attention",
            [(2, 5, 128), (2, 5, 32), (2, 5, 32)],
            [(2, 5, 128)],
            q_num_heads=8,
            kv_num_heads=2,
        ),
        12800,
    ),
    # 2 sequences * 8 heads * 1 query * (1 + 9) keys * 32.
    (
        "past keys",
        to_node("Attention", [*["2x8x1x16"] * 3, None, *["2x8x9x16"] * 2], [(2, 8, 1, 16)]),
        5120,
    ),
    # 3 * 8 * 8 outputs, 2 * 9 products each.
    ("ConvInteger", to_node("ConvInteger", ["1x2x8x8:uint8", "3x2x3x3:int8"], ["1x3x8x8"]), 3456),
    ("MatMulInteger", to_node("MatMulInteger", ["4x16:uint8", "16x8:int8"], ["4x8:int32"]), 512),
    ("AffineGrid", to_node("AffineGrid", [(1, 2, 3), "4:int64"], [(1, 5, 7, 2)]), 210),
    ("causal conv", to_node("CausalConvWithState", [(2, 3, 5), (3, 1, 4)], [(2, 3, 5)]), 120),
]


@pytest.mark.parametrize(("one", "macs"), [row[1:] for row in NAMED], ids=[r[0] for r in NAMED])
def test_macs_of_contractions(one, macs):
    """A contraction of length K counts K MACs per result."""
    assert work(one).macs == macs


X = (2, 3)  # six elements

KINDS = [
    (to_node("Conv", [(1, 3, 14, 14), (8, 3, 3, 3), (8,)], [(1, 8, 14, 14)]), {"adds": 1568}),
    (to_node("Add", [X, (3,)], [X]), {"adds": 6}),
    (to_node("Sub", [(2, 1), (3,)], [X]), {"adds": 6}),
    (to_node("Mul", [X, X], [X]), {"muls": 6}),
    (to_node("Div", [X, X], [X]), {"divs": 6}),
    (to_node("Pow", [X, ()], [X]), {"specials": 6}),
    (to_node("Exp", [X], [X]), {"specials": 6}),
    (to_node("Neg", [X], [X]), {"adds": 6}),
    (to_node("Greater", [X, X], ["2x3:bool"]), {"compares": 6}),
    (to_node("Sum", [X, X, X], [X]), {"adds": 12}),
    (to_node("Mean", [X, X, X], [X]), {"adds": 12, "divs": 6}),
    (to_node("Max", [X], [X]), {}),
    (to_node("Clip", [X, (), ()], [X]), {"compares": 12}),
    (to_node("Clip", [X, None, ()], [X]), {"compares": 6}),
    (to_node("Clip-6", [X], [X], max=6.0), {"compares": 6}),
    (to_node("Range", [(), (), ()], [(6,)]), {"muls": 6, "adds": 6}),
    (to_node("Relu", [X], [X]), {"compares": 6}),
    (to_node("Sigmoid", [X], [X]), {"specials": 6}),
    (to_node("HardSwish", [X], [X]), {"muls": 12, "adds": 6, "compares": 12}),
    (to_node("Gelu", [X], [X]), {"divs": 6, "specials": 6, "adds": 6, "muls": 12}),
    (to_node("Gelu", [X], [X], approximate="tanh"), {"specials": 12, "adds": 12, "muls": 24}),
    (to_node("Swish", [X], [X]), {"specials": 6, "muls": 6}),
    (to_node("SwiGLU", [X, X], [X], alpha=2.0), {"specials": 6, "muls": 18}),
    (to_node("MaxPool", [(1, 1, 4, 4)], [(1, 1, 2, 2)], kernel_shape=(2, 2)), {"compares": 12}),
    (to_node("GlobalMaxPool", [(1, 2, 3, 3)], [(1, 2, 1, 1)]), {"compares": 16}),
    (to_node("GlobalAveragePool", [(1, 2, 3, 3)], [(1, 2, 1, 1)]), {"adds": 16, "divs": 2}),
    (to_node("GlobalLpPool", [(1, 2, 3, 3)], [(1, 2, 1, 1)], p=1), {"adds": 16, "compares": 18}),
    (to_node("CumSum", [X, ()], [X]), {"adds": 6}),
    (
        to_node("LRN", [(1, 6, 1, 1)], [(1, 6, 1, 1)], size=5),
        {"muls": 12, "adds": 30, "specials": 6, "divs": 6},
    ),
    (
        to_node("LpNormalization", [X], [X], axis=0),
        {"muls": 6, "adds": 3, "specials": 3, "divs": 6},
    ),
    # scale * data * mask of 6 elements, and the compare that makes the mask
    (to_node("Dropout", [X, (), ":bool"], [X], training_mode=1), {"muls": 12, "compares": 6}),
    (to_node("Dropout", [X, (), ":bool"], [X], training_mode=0), {}),
    # training: n=6, C=3: stats 2*3 adds, 6 muls, 6 divs; running 12 muls, 6 adds.
    (
        to_node("BatchNormalization", [X, *[(3,)] * 4], [X, (3,), (3,)], training_mode=1),
        {"adds": 12 + 3 + 6 + 6, "muls": 12 + 6 + 12, "divs": 3 + 6, "specials": 3},
    ),
    (to_node("Resize", [(1, 2, 4, 4)], [(1, 2, 8, 8)]), {}),
    # two dimensions change: 4 neighbours for each of 128 results.
    (
        to_node("Resize", [(1, 2, 4, 4)], [(1, 2, 8, 8)], mode="linear"),
        {"muls": 512, "adds": 384},
    ),
    (to_node("Resize", [(1, 1, 4, 4)], [(1, 1, 4, 8)], mode="cubic"), {"muls": 128, "adds": 96}),
    (to_node("Upsample-9", [(1, 1, 4)], [(1, 1, 8)], mode="linear"), {"muls": 16, "adds": 8}),
    # shrinking by 2 with antialias: 2 - 2 * (floor(-2) + 1) = 4 neighbours.
    (
        to_node("Resize", [(1, 1, 8)], [(1, 1, 4)], mode="linear", antialias=1),
        {"muls": 16, "adds": 12},
    ),
    # 15 places * 2 (mul, add); 45 results with 4 neighbours.
    (
        to_node("GridSample", [(1, 3, 4, 4), (1, 3, 5, 2)], [(1, 3, 3, 5)]),
        {"muls": 30 + 180, "adds": 30 + 135},
    ),
    # 4 samples of 4 neighbours for each of 8 results, then their mean.
    (
        to_node("RoiAlign", [(1, 2, 8, 8), (1, 4), "1:int64"], [(1, 2, 2, 2)], sampling_ratio=2),
        {"muls": 128, "adds": 96 + 24, "divs": 8},
    ),
    (
        to_node("QuantizeLinear", [X, (), ":uint8"], ["2x3:uint8"]),
        {"divs": 6, "specials": 6, "compares": 12, "adds": 6},
    ),
    (to_node("DequantizeLinear", ["2x3:int8", ()], [X]), {"muls": 6}),
    (
        to_node("QLinearMatMul", [(2, 4), (), (), (4, 3), (), (), (), ()], [X]),
        {"adds": 8 + 12 + 6, "muls": 6, "specials": 6, "compares": 12},
    ),
    (
        to_node("QLinearConv", [(1, 1, 3), (), (), (1, 1, 2), (), (), (), (), (1,)], [(1, 1, 2)]),
        {"adds": 2 + 3 + 2 + 2, "muls": 2, "specials": 2, "compares": 4},
    ),
    # no bias; with zero points every element of both operands is shifted once.
    (to_node("ConvInteger", [(1, 1, 3), (1, 1, 2)], [(1, 1, 2)]), {}),
    (to_node("ConvInteger", [(1, 1, 3), (1, 1, 2), (), ()], [(1, 1, 2)]), {"adds": 3 + 2}),
    (to_node("MatMulInteger", [(2, 4), (4, 3), None, ()], [X]), {"adds": 12}),
    (to_node("ScatterND", [X, (1, 1), (1, 3)], [X], reduction="add"), {"adds": 3}),
    (to_node("ScatterND", [X, (1, 1), (1, 3)], [X]), {}),
    (to_node("Col2Im", [(1, 4, 6), "2:int64", "2:int64"], [(1, 1, 3, 4)]), {"adds": 24}),
    # a heap of 4: 2 halvings per element.
    (to_node("TopK", [(1, 10), "1:int64"], [(1, 4), "1x4:int64"]), {"compares": 20}),
    (to_node("TopK", [(1, 10), "1:int64"], [(1, 1), "1x1:int64"]), {"compares": 10}),
    # d=2, C=2, G=1, P = 4 outputs * 1: 8 samples (4 muls, 3 adds) + 4 (6 adds, 2 floors, 4 muls).
    (
        to_node("DeformConv", [(1, 2, 2, 2), (1, 2, 1, 1), (1, 2, 2, 2)], [(1, 1, 2, 2)]),
        {"muls": 32 + 16, "adds": 24 + 24, "specials": 8},
    ),
]


@pytest.mark.parametrize(("one", "kinds"), KINDS, ids=lambda v: getattr(v, "key", ""))
def test_other_kinds_of_work(one, kinds):
    """Everything beside the MACs is counted by kind, once per operation."""
    cost = work(one)
    assert cost == Cost(macs=cost.macs, **kinds)


@pytest.mark.parametrize(
    "one",
    [
        to_node("Transpose", [X], [(3, 2)]),
        to_node("Gather", [X, "4:int64"], [(4, 3)]),
        to_node("Reshape", [X, "1:int64"], [(6,)]),
        to_node("Where", ["2x3:bool", X, X], [X]),
        to_node("Cast", [X], ["2x3:float16"]),
        to_node("Concat", [X, X], [(4, 3)]),
        to_node("Dropout", [X], [X]),
        to_node("Constant", [], [X]),
    ],
    ids=lambda case: case.key,
)
def test_data_movement_is_a_stated_zero(one):
    """What only moves or selects data is counted, and costs no operation."""
    assert work(one) == ZERO


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (to_node("Dropout", [X, (), ":bool"], [X]), "training_mode"),
        (to_node("RoiAlign", [(1, 2, 8, 8), (1, 4), "1:int64"], [(1, 2, 2, 2)]), "boxes"),
        (to_node("Resize", [X], [(4, 6)], mode="fractal"), "fractal"),
        (to_node("MaxPool", [(1, 1, 4)], [(1, 1, 2)]), "kernel_shape"),
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
        (to_node("Softmax", [X], [X], axis=5), "axis 5 is out of range"),
        (to_node("Einsum", [X], [X], equation="ij,jk"), "2 terms, but the node has 1 operands"),
        (to_node("Einsum", [X, X], [X], equation="ij,jk"), "2 for 'j', but .* has 3"),
        (
            to_node("Conv", [(1, 4, 9, 9), (8, 3, 3, 3)], [(1, 8, 7, 7)]),
            "3 at axis 1, but 4 is needed",
        ),
        (to_node("MatMul", [(4, 16), (17, 5)], [(4, 5)]), "17 at axis 0, but 16 is needed"),
    ],
)
def test_operands_that_contradict_each_other_are_refused(one, words):
    """No runtime takes them, so there is nothing to count."""
    with pytest.raises(OperandError, match=words):
        count_node(one)
