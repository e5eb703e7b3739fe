"""Packed and quantized products of onnxruntime, by hand."""

import pytest

from crossflops.errors import OperandError
from crossflops.ir.ledger import Cost, CountedNode, UncountedNode
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.operators.scalars import work

MS = "com.microsoft::"


def dynamic(count):
    """The smallest and largest, scale and zero point, then n quantized, from ONNX's body."""
    once = Cost(compares=4, adds=2, divs=2, specials=1)
    quantized = Cost(divs=1, specials=1, adds=1, compares=2) * count
    return once + quantized + Cost(compares=2 * (count - 1))


A, B, Y = "2x3x5:uint8", "5x4:int8", (2, 3, 4)
FLOAT, SCALE, POINT = (2, 3, 5), (), ":uint8"
PRODUCT = Cost(macs=120)
ROUND = Cost(muls=1, specials=1, adds=1, compares=2)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (to_node(f"{MS}MatMulInteger16", ["2x3x5:int16", "5x4:int16"], ["2x3x4:int32"]), PRODUCT),
        (
            to_node(f"{MS}MatMulIntegerToFloat", [A, B, SCALE, SCALE], [Y]),
            PRODUCT + Cost(muls=24),
        ),
        (
            to_node(f"{MS}MatMulIntegerToFloat", [A, B, SCALE, SCALE, POINT, POINT, (4,)], [Y]),
            PRODUCT + Cost(muls=24, adds=30 + 20 + 24),
        ),
        (
            to_node(f"{MS}DynamicQuantizeMatMul", [FLOAT, B, SCALE], [Y]),
            PRODUCT + dynamic(30) + Cost(muls=24, adds=30),
        ),
        (
            to_node(f"{MS}DynamicQuantizeMatMul", [FLOAT, B, SCALE, POINT, (4,)], [Y]),
            PRODUCT + dynamic(30) + Cost(muls=24, adds=30 + 20 + 24),
        ),
        (
            to_node(
                f"{MS}QGemm",
                ["3x5:uint8", SCALE, POINT, "4x5:int8", SCALE, POINT, "4:int32", SCALE, POINT],
                ["3x4:uint8"],
                transB=1,
            ),
            Cost(macs=60, adds=15 + 20 + 12) + ROUND * 12,
        ),
        (
            to_node(
                f"{MS}QGemm", ["5x3:uint8", SCALE, POINT, B, SCALE, POINT], [(3, 4)], transA=1
            ),
            Cost(macs=60, adds=15 + 20, muls=12),
        ),
        (
            to_node(f"{MS}MatMulBnb4", [FLOAT, "10x1:uint8", (2,)], [Y], K=5, N=4),
            PRODUCT + Cost(muls=20),
        ),
        (
            to_node(f"{MS}MatMulFpQ4", [FLOAT, "16:uint8", "2:int64"], [Y]),
            PRODUCT + Cost(muls=20, adds=20),
        ),
        (
            to_node(
                f"{MS}MatMulBlockQuantizedFp8Weight",
                [FLOAT, "4x5:float8e4m3fn", (4, 1), SCALE, (4,)],
                [Y],
            ),
            PRODUCT + Cost(muls=20 + 30, divs=30, adds=24),
        ),
        (
            to_node(
                f"{MS}MatMulBlockQuantizedFp4Weight", [(2, 3, 6), "4x3:uint8", (4, 1), SCALE], [Y]
            ),
            Cost(macs=144, muls=48),
        ),
        # RMS of 6 rows of 5 (30 muls, 24 adds, 6 divs, 6 (add, sqrt), 30 divs, 30 muls), then
        # 5 * (4 + 2 + 2) weights meet 6 rows.
        (
            to_node(
                f"{MS}MatMulNBitsQkv",
                [FLOAT, None, (5,), "x:", None, None, "x:", None, None, "x:"][:3],
                [Y, (2, 3, 2), (2, 3, 2)],
                K=5,
                Nq=4,
                Nkv=2,
            ),
            Cost(macs=240, muls=60 + 40, adds=30 + 40, divs=36, specials=6),
        ),
        # two products with their weights, 24 (sigmoid, mul) and 24 muls; skip 30 adds.
        (
            to_node(f"{MS}MatMulNBitsMlp", [FLOAT, FLOAT], [Y], K=5, N=4, activation="silu"),
            Cost(macs=240, muls=40 + 48, adds=40 + 30, specials=24),
        ),
        (
            to_node(
                f"{MS}QOrderedMatMul", ["2x3x5:int8", SCALE, B, SCALE, SCALE, (4,)], ["2x3x4:int8"]
            ),
            PRODUCT + Cost(adds=24) + Cost(muls=1, specials=1, compares=2) * 24,
        ),
    ],
    ids=lambda v: str(getattr(v, "op", "")),
)
def test_products_by_hand(one, expected):
    """MACs, and what stands around them."""
    assert work(one) == expected


def test_small_integers_are_the_precision_of_a_product():
    """The contraction runs in eight bits where its operands are, whatever comes out."""
    for product, precision in (
        (to_node(f"{MS}DynamicQuantizeMatMul", [FLOAT, B, SCALE], [Y]), "int8"),
        (to_node(f"{MS}MatMulIntegerToFloat", [A, B, SCALE, SCALE], [Y]), "int8"),
        (to_node(f"{MS}MatMulNBitsMlp", [FLOAT], [Y], K=5, N=4, bits=2), "float32xint2"),
        (
            to_node(f"{MS}MatMulBlockQuantizedFp4Weight", [(3, 6), "4x3:uint8"], [(3, 4)]),
            "float32xfloat4e2m1",
        ),
        (
            to_node(
                f"{MS}MatMulBlockQuantizedFp8Weight",
                ["3x6:float16", "4x6:float8e4m3fn"],
                ["3x4:float16"],
            ),
            "float16xfloat8e4m3fn",
        ),
        (to_node(f"{MS}MatMulInteger16", ["2x3x5:int16", "5x4:int16"], [Y]), "int16"),
    ):
        counted = count_node(product)
        assert isinstance(counted, CountedNode)
        assert counted.precision == precision


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (to_node(f"{MS}MatMulNBits", [(2, 5)], [(2, 4)], K=5), "'N'"),
        (
            to_node(
                f"{MS}MoE",
                [(2, 8), (2, 4), (4, 6, 8), None, (4, 8, 6)],
                [(2, 8)],
                activation_type="x",
            ),
            "'x'",
        ),
    ],
)
def test_what_cannot_be_known_has_a_reason(one, words):
    """No silent zero."""
    gap = count_node(one)
    assert isinstance(gap, UncountedNode)
    assert words in gap.reason


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (
            to_node(f"{MS}MatMulNBits", [(2, 5)], [(2, 4)], K=6, N=4),
            "5 at axis 1, but 6 is needed",
        ),
    ],
)
def test_operands_that_contradict_each_other_are_refused(one, words):
    """No runtime takes them, so there is nothing to count."""
    with pytest.raises(OperandError, match=words):
        count_node(one)
