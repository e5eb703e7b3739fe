"""Normalizations that onnxruntime fuses, by hand and against plain operators."""

import pytest

from crossflops.ir.ledger import Cost, CountedNode
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.operators.scalars import work

MS = "com.microsoft::"
X = (2, 3, 4)  # 24 elements, 6 rows of 4
LAYER = work(to_node("LayerNormalization", [X, (4,), (4,)], [X]))
UNBIASED = work(to_node("LayerNormalization", [X, (4,)], [X]))
RMS = work(to_node("RMSNormalization", [X, (4,)], [X]))
GROUP = work(
    to_node("GroupNormalization", [(2, 6, 3, 3), (6,), (6,)], [(2, 6, 3, 3)], num_groups=3)
)
SILU = Cost(specials=1, muls=1)
IMAGE = (2, 6, 3, 3)

# Dequantized.
DEQUANTIZED = Cost(muls=1, adds=1)
NORMALIZATIONS = [
    (to_node(f"{MS}SkipLayerNormalization", [X, X, (4,), (4,)], [X]), LAYER + Cost(adds=24)),
    (
        to_node(f"{MS}SkipLayerNormalization", [X, X, (4,), (4,), (4,)], [X]),
        LAYER + Cost(adds=48),
    ),
    (to_node(f"{MS}SkipLayerNormalization", [X, X, (4,)], [X]), UNBIASED + Cost(adds=24)),
    (to_node(f"{MS}SkipSimplifiedLayerNormalization", [X, X, (4,)], [X]), RMS + Cost(adds=24)),
    (
        to_node(f"{MS}SkipSimplifiedLayerNormalization", [X, X, (4,), (4,)], [X]),
        RMS + Cost(adds=48),
    ),
    (to_node("SimplifiedLayerNormalization", [X, (4,)], [X]), RMS),
    # words, positions and segments of 4: 2 * 24 adds; the mask has 6 ones to add.
    (
        to_node(
            f"{MS}EmbedLayerNormalization",
            ["2x3:int32", "2x3:int32", (9, 4), (8, 4), (2, 4), (4,), (4,), "2x3:int32"],
            [X, "2:int32"],
        ),
        LAYER + Cost(adds=48 + 6),
    ),
    (
        to_node(
            f"{MS}EmbedLayerNormalization",
            ["2x3:int32", None, (9, 4), (8, 4), None, (4,), (4,)],
            [X],
        ),
        LAYER + Cost(adds=24),
    ),
    # 3 * 24 looked up and 2 * 4 of gamma and beta are dequantized.
    (
        to_node(
            f"{MS}QEmbedLayerNormalization",
            ["2x3:int32"] * 2 + ["9x4:uint8", "8x4:uint8", "2x4:uint8", "4:uint8", "4:uint8"],
            [X],
        ),
        LAYER + Cost(adds=48) + DEQUANTIZED * (72 + 8),
    ),
    (to_node(f"{MS}GroupNorm", [(2, 3, 3, 6), (6,), (6,)], [(2, 3, 3, 6)], groups=3), GROUP),
    (
        to_node(f"{MS}GroupNorm", [IMAGE, (6,), (6,)], [IMAGE], groups=3, activation=1),
        GROUP + SILU * 108,
    ),
    (
        to_node(f"{MS}SkipGroupNorm", [IMAGE, (6,), (6,), IMAGE, (6,)], [IMAGE], groups=3),
        GROUP + Cost(adds=216),
    ),
    # groups of 2: 12 of them. RMS: 24 muls, 12 adds + 12, 12 + 24 divs, 12 sqrts, 24 muls.
    (
        to_node(f"{MS}GatedRMSNorm", [X, (2,), X], [X]),
        Cost(muls=48, adds=24, divs=36, specials=12) + (SILU + Cost(muls=1)) * 24,
    ),
    (
        to_node(f"{MS}GatedRMSNorm", [X, (4,), X], [X], activation="sigmoid"),
        RMS + Cost(specials=24, muls=24),
    ),
    (to_node(f"{MS}BranchwiseRMSNorm", [X], [X]), RMS + Cost(muls=-24)),
    (
        to_node(f"{MS}BranchwiseRMSNorm", [X, (2,)], [X], num_branches=2),
        Cost(muls=48, adds=24, divs=36, specials=12),
    ),
    # 6 rows: 2 norms, 24 MACs, 6 (div, 4 compares, sqrt, sigmoid, mul), 24 muls; a third norm.
    (
        to_node(
            f"{MS}EngramGate", [(1, 2, 3, 4)] * 2 + [(1, 2, 4), (3, 4), (3, 4)], [(1, 2, 3, 4)]
        ),
        RMS * 2 + Cost(macs=24, divs=6, compares=24, specials=12, muls=30),
    ),
    (
        to_node(
            f"{MS}EngramGate",
            [(1, 2, 3, 4)] * 2 + [(1, 2, 4), (3, 4), (3, 4), (3, 4)],
            [(1, 2, 3, 4)] * 2,
        ),
        RMS * 3 + Cost(macs=24, divs=6, compares=24, specials=12, muls=30),
    ),
    (to_node(f"{MS}GatedAdd", [X, X, (2, 3, 1)], [X]), Cost(muls=24, adds=24)),
    (to_node(f"{MS}HyperConnectionPreMix", [X, (2, 3)], [(2, 4)]), Cost(macs=24)),
    (
        to_node(f"{MS}HyperConnectionPreMix", [(2, 12), (2, 3)], [(2, 4)], num_branches=3,
             reduction_scale=0.5),
        Cost(macs=24, muls=8),
    ),
    (to_node(f"{MS}HyperConnectionPostMix", [X, (2, 4), (2, 3)], [X]), Cost(muls=24, adds=24)),
    (
        to_node(f"{MS}HyperConnectionPostMix", [X, (2, 4), (2, 3), (2, 3, 3)], [X]),
        Cost(macs=72, muls=24, adds=24),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "expected"), NORMALIZATIONS, ids=lambda v: str(getattr(v, "op", ""))
)
def test_work_by_kind(one, expected):
    """Each operation is counted once, by its kind."""
    assert work(one) == expected


def test_only_the_rows_that_are_looked_up_are_read():
    """Tables of embeddings and of cosines may be as long as they like."""
    embedding = to_node(
        f"{MS}EmbedLayerNormalization",
        ["2x3:int32", None, (30000, 4), (512, 4), None, (4,), (4,)],
        [X],
    )
    counted = count_node(embedding)
    assert isinstance(counted, CountedNode)
    assert counted.cost.bytes_read == 24 + 2 * 96 + 2 * 16
    assert counted.precision == "float32"
