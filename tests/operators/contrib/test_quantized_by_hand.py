"""Operators on small integers, by hand and against plain operators."""

import pytest

from crossflops.ir.ledger import Cost
from crossflops.testing.graphs import to_node
from tests.operators.scalars import work

MS, NHWC = "com.microsoft::", "com.ms.internal.nhwc::"
X = (2, 3, 4)  # 24 elements, 6 rows of 4
LAYER = work(to_node("LayerNormalization", [X, (4,), (4,)], [X]))
# div, round, 2 compares; with a zero point an add.
QUANTIZED, POINT = Cost(divs=1, specials=1, compares=2), Cost(adds=1)
FULL = QUANTIZED + POINT
DEQUANTIZED = Cost(muls=1, adds=1)
REQUANTIZED = Cost(muls=1, specials=1, adds=1, compares=2)
Q, S, Z = "2x3x4:uint8", (), ":uint8"

QUANTIZATIONS = [
    (to_node(f"{MS}QuantizeLinear", [X, S, Z], [Q]), FULL * 24),
    (to_node(f"{MS}DequantizeLinear", [Q, S, Z], [X]), DEQUANTIZED * 24),
    (to_node(f"{MS}QuantizeWithOrder", [X, S], ["2x3x4:int8"]), QUANTIZED * 24),
    (to_node(f"{MS}DequantizeWithOrder", ["2x3x4:int8", S], [X]), Cost(muls=24)),
    # B is broadcast: 4 elements are dequantized, 24 results added and quantized.
    (
        to_node(f"{MS}QLinearAdd", [Q, S, Z, "4:uint8", S, Z, S, Z], [Q]),
        DEQUANTIZED * 28 + POINT * 24 + FULL * 24,
    ),
    (
        to_node(f"{MS}QLinearAdd", [Q, S, None, "4:uint8", S, None, S], [Q]),
        Cost(muls=28, adds=24) + QUANTIZED * 24,
    ),
    (
        to_node(f"{MS}QLinearMul", [Q, S, Z, "4:uint8", S, Z, S, Z], [Q]),
        Cost(adds=28, muls=24) + REQUANTIZED * 24,
    ),
    (to_node(f"{MS}MulInteger", [Q, Z, "4:uint8", Z], ["2x3x4:int32"]), Cost(adds=28, muls=24)),
    (to_node(f"{MS}MulInteger", [Q, None, Q], ["2x3x4:int32"]), Cost(muls=24)),
    (
        to_node(f"{MS}QLinearLeakyRelu", [Q, S, Z, S, Z], [Q]),
        (DEQUANTIZED + Cost(compares=1, muls=1) + FULL) * 24,
    ),
    (
        to_node(f"{MS}QLinearSigmoid", [Q, S, Z, S, Z], [Q]),
        (DEQUANTIZED + Cost(specials=1) + FULL) * 24,
    ),
    # 6 rows of 4, or 2 rows of 12 under the old meaning.
    (
        to_node(f"{MS}QLinearSoftmax", [Q, S, Z, S, Z], [Q], opset=13),
        (DEQUANTIZED + FULL) * 24 + work(to_node("Softmax", [X], [X])),
    ),
    (
        to_node(f"{MS}QLinearSoftmax", [Q, S, Z, S, Z], [Q], opset=11, axis=1),
        (DEQUANTIZED + FULL) * 24 + work(to_node("Softmax-11", [X], [X], axis=1)),
    ),
    (
        to_node(f"{MS}QLinearWhere", ["2x3x4:bool", Q, S, Z, Q, S, Z, S, Z], [Q]),
        (DEQUANTIZED + FULL) * 24,
    ),
    (
        to_node(f"{MS}QLinearConcat", [S, Z, Q, S, Z, Q, S, Z], ["4x3x4:uint8"]),
        (DEQUANTIZED + FULL) * 48,
    ),
    # 2 * 6 * 4 windows of 9: 48 * 8 adds; 2 * 6 * 16 zero points; 48 requantized.
    *(
        (
            to_node(f"{domain}QLinearAveragePool", ["2x6x4x4:uint8", S, Z, S, Z],
                 ["2x6x2x2:uint8"], kernel_shape=(3, 3)),
            Cost(adds=48 * 8 + 192) + REQUANTIZED * 48,
        )
        for domain in (MS, NHWC)
    ),
    (
        to_node(f"{MS}QLinearGlobalAveragePool", ["2x6x4x4:uint8", S, Z, S, Z], ["2x6x1x1:uint8"]),
        Cost(adds=192 - 12 + 192) + REQUANTIZED * 12,
    ),
    (
        to_node(f"{MS}QLinearReduceMean", [Q, S, Z, S, Z], ["2x3x1:uint8"], axes=(2,)),
        DEQUANTIZED * 24 + Cost(adds=18, divs=6) + FULL * 6,
    ),
    (to_node(f"{MS}ReduceSumInteger", [Q], ["2x3x1:int32"], axes=(2,)), Cost(adds=18)),
    (to_node(f"{MS}QOrderedGelu", [Q, S, S], [Q]), (Cost(divs=1, specials=1, adds=1, muls=2)
      + Cost(muls=2, specials=1, compares=2)) * 24),
    (
        to_node(f"{MS}QOrderedLayerNormalization", [Q, S, (4,), (4,), S], [Q]),
        LAYER + Cost(muls=48, specials=24, compares=48),
    ),
    # 12 elements of 4-bit rows: dequantized with the middle of the range, or with none if signed.
    (
        to_node(f"{MS}GatherBlockQuantized", ["9x2:uint8", "3:int64", (9, 1)], [(3, 4)]),
        DEQUANTIZED * 12,
    ),
    (
        to_node(f"{MS}GatherBlockQuantized", ["9x4:int4", "3:int64", (9, 1)], [(3, 4)]),
        Cost(muls=12),
    ),
    # B 2, S 3, in 4; Q, K, V of 4 in 2 heads: 6*4*12 + 2*2*9*(2+2) MACs; scores 36.
    (
        to_node(
            f"{MS}QOrderedAttention",
            ["2x3x4:int8", *[S] * 4, *["4x4:int8"] * 3, *[S] * 3, *[(4,)] * 3],
            ["2x3x4:int8"],
            num_heads=2,
        ),
        Cost(macs=288 + 144, adds=72, muls=36)
        + Cost(compares=24, adds=36 + 24, specials=36, divs=36)
        + Cost(muls=1, specials=1, compares=2) * (72 + 24 + 72),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "expected"), QUANTIZATIONS, ids=lambda v: str(getattr(v, "op", ""))
)
def test_work_by_kind(one, expected):
    """Each operation is counted once, by its kind."""
    assert work(one) == expected
