"""Recurrences, positions, layouts and what is left, by hand and against plain operators."""

import pytest

from crossflops.errors import OperandError
from crossflops.ir.ledger import Cost, UncountedNode
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.operators.scalars import work

MS, NHWC, NCHWC = "com.microsoft::", "com.ms.internal.nhwc::", "com.microsoft.nchwc::"
X = (2, 3, 4)  # 24 elements, 6 rows of 4
SILU = Cost(specials=1, muls=1)
REQUANTIZED = Cost(muls=1, specials=1, adds=1, compares=2)
Q, S, Z = "2x3x4:uint8", (), ":uint8"
IMAGE = (2, 6, 3, 3)

LSTM = work(to_node("LSTM", [(5, 2, 3), (1, 16, 3), (1, 16, 4)], [(5, 1, 2, 4)], hidden_size=4))
OTHERS = [
    # 5 steps of a state of 2 * 4: X has 30 elements; 40 unit steps of 4 gates.
    (
        to_node(
            f"{MS}DynamicQuantizeLSTM",
            [(5, 2, 3), "1x3x16:int8", "1x4x16:int8", None, None, None, None, None, S, S, S, S],
            [(5, 1, 2, 4)],
            hidden_size=4,
        ),
        LSTM
        + work(to_node("DynamicQuantizeLinear", [(30,)], ["30:uint8"]))
        + work(to_node("DynamicQuantizeLinear", [(8,)], ["8:uint8"])) * 5
        + Cost(muls=2 * 4 * 40),
    ),
    *(
        (
            to_node(f"{domain}LinearAttention", [(1, 2, 12), (1, 2, 6), (1, 2, 10), None,
                 (1, 2, 2), (1, 2, 2)], [(1, 2, 20)], q_num_heads=4, kv_num_heads=2,
                 update_rule=rule),
            work(to_node("LinearAttention", [(1, 2, 12), (1, 2, 6), (1, 2, 10), None,
                 (1, 2, 2), (1, 2, 2)], [(1, 2, 20)], q_num_heads=4, kv_num_heads=2,
                 update_rule=rule)),
        )
        for domain in (MS,)
        for rule in ("linear", "gated", "delta", "gated_delta")
    ),
    # one query head reads for 2 states: 2 * 2 * 15 * (2 + 2) MACs.
    (
        to_node(f"{MS}LinearAttention", [(1, 2, 3), (1, 2, 6), (1, 2, 10)], [(1, 2, 10)],
             q_num_heads=1, kv_num_heads=2, update_rule="linear"),
        Cost(macs=2 * 15 * 4, muls=20),
    ),
    # 4 tokens, 2 key heads of 3, 4 value heads of 5: update, read and retrieve 4*60 each.
    (
        to_node(f"{MS}GatedDeltaNet", [(4, 2, 3), (4, 2, 3), (4, 4, 5), None, (4, 4), (4, 4)],
             [(4, 4, 5)], update_rule="delta"),
        Cost(macs=3 * 4 * 60, muls=4 * 20 + 4 * 20, adds=4 * 20),
    ),
    # packed: 2 * 2 * 3 + 4 * 5 = 32. 16 rows of 3 normalized; 16 gates; 16 betas.
    (
        to_node(f"{MS}GatedDeltaNet", [(4, 32), None, None, None, (4, 4), (4, 4), (1, 4, 5, 3),
             (4,), (4,)], [(4, 4, 5)], update_rule="delta", qk_l2_norm=1, gate_activation="qwen",
             beta_activation="sigmoid"),
        Cost(macs=3 * 4 * 60, muls=160, adds=80)
        + Cost(muls=48, adds=32, specials=16, divs=48)
        + Cost(adds=32, specials=32, muls=16)
        + Cost(specials=4 + 16),
    ),
    (
        to_node(f"{MS}LinearAttentionGate", [X, (4,), (4,), X], [X, X]),
        Cost(adds=48, specials=48 + 24, muls=24),
    ),
    (
        to_node(f"{MS}CausalConvWithState", [(2, 4, 5), (4, 1, 3), (4,)], [(2, 4, 5), None],
             activation="silu"),
        Cost(macs=120, adds=40) + SILU * 40,
    ),
    (
        to_node(f"{MS}VarlenCausalConvWithState", [(5, 4), (4, 1, 3), "3:int32", (4,)], [(5, 4)]),
        Cost(macs=60, adds=20),
    ),
    # 8 sines and cosines; 16 queries and 16 keys of 2 muls and an add.
    (
        to_node(f"{MS}GemmaRotaryEmbedding", [(1, 2, 4), *[(1, 2, 2, 4)] * 4], [(1, 2, 2, 4)] * 2),
        Cost(specials=16, muls=64, adds=32),
    ),
    (
        to_node(f"{MS}RotaryEmbedding", [(2, 5, 24), "2x5:int64", (9, 2), (9, 2)], [(2, 5, 24)],
             num_heads=3, rotary_embedding_dim=4, scale=2.0),
        Cost(muls=6, adds=2) * (2 * 5 * 3 * 2),
    ),
    (
        to_node(f"{MS}RelativePositionBias", [(32, 2), ":int64", ":int64"], [(1, 2, 3, 3)]),
        Cost(adds=2, compares=3, divs=1, specials=1, muls=1) * 9,
    ),
    # B 2, S 3, N 2, D 4, G 8: 12 rows.
    (
        to_node(f"{MS}GatedRelativePositionBias", [(2, 3, 8), (8,), (1, 2, 3, 3), (4, 8), (8,),
             (1, 2, 1, 1)], [(2, 2, 3, 3)], num_heads=2),
        Cost(macs=32, adds=8 + 6 + 2, specials=2, muls=2) * 12 + Cost(adds=48, muls=36),
    ),
    (to_node(f"{MS}ComplexMul", [(3, 2), (3, 2)], [(3, 2)]), Cost(muls=12, adds=6)),
    (to_node(f"{MS}ComplexMulConj", [(3, 2), (1, 2)], [(3, 2)]), Cost(muls=12, adds=6)),
    (to_node(f"{MS}CDist", [(3, 5), (2, 5)], [(3, 2)]), Cost(adds=54, muls=30)),
    (
        to_node(f"{MS}CDist", [(3, 5), (2, 5)], [(3, 2)], metric="euclidean"),
        Cost(adds=54, muls=30, specials=6),
    ),
    (to_node(f"{MS}IsAllFinite", [X, (4,)], [":bool"]), Cost(compares=28)),
    (
        to_node(f"{MS}MaxpoolWithMask", [(1, 1, 4, 4), (1, 1, 4, 4)], [(1, 1, 2, 2)],
             kernel_shape=(2, 2)),
        Cost(compares=12 + 16),
    ),
    (to_node(f"{MS}DynamicTimeWarping", [(3, 4)], ["2x5:int32"]), Cost(compares=24, adds=12)),
    (to_node(f"{MS}Range", [S, S, S], [(7,)]), Cost(muls=7, adds=7)),
    (
        to_node(f"{MS}ConvTransposeWithDynamicPads", [(1, 2, 4, 4), (2, 3, 3, 3), "4:int64", (3,)],
             [(1, 3, 6, 6)]),
        Cost(macs=32 * 27, adds=108),
    ),
    *((to_node(f"{MS}{name}", [X], [X]), Cost()) for name in ("Trilu", "Pad", "SampleOp")),
    (to_node(f"{MS}BitmaskDropout", [X], [X]), Cost()),
]  # fmt: skip

LAYOUTS = [
    (to_node(f"{NCHWC}ReorderInput", [IMAGE], [(2, 8, 3, 3)]), Cost()),
    (
        to_node(f"{NCHWC}MaxPool", [(1, 8, 4, 4)], [(1, 8, 2, 2)], kernel_shape=(2, 2)),
        Cost(compares=96),
    ),
    (to_node(f"{NCHWC}GlobalAveragePool", [(1, 8, 4, 4)], [(1, 8, 1, 1)]), Cost(adds=120, divs=8)),
    (to_node(f"{NCHWC}Upsample", [(1, 8, 2, 2)], [(1, 8, 4, 4)], scales=(1, 1, 2, 2)), Cost()),
    (
        to_node(f"{NCHWC}Upsample", [(1, 8, 2, 2)], [(1, 8, 4, 4)], mode="linear"),
        Cost(muls=4 * 128, adds=3 * 128),
    ),
    # 2 * 6 groups of 9, whichever dimension is last.
    (
        to_node(f"{NHWC}InstanceNormalization", [(2, 3, 3, 6), (6,), (6,)], [(2, 3, 3, 6)]),
        work(to_node("InstanceNormalization", [IMAGE, (6,), (6,)], [IMAGE])),
    ),
    (
        to_node(f"{NHWC}BatchNormalization-15", [(2, 3, 3, 6), *[(6,)] * 4], [(2, 3, 3, 6)],
             activation="Relu"),
        work(to_node("BatchNormalization", [IMAGE, *[(6,)] * 4], [IMAGE])) + Cost(compares=108),
    ),
    (
        to_node(f"{NHWC}ConvTranspose", [(1, 4, 4, 2), (2, 3, 3, 3), (3,)], [(1, 6, 6, 3)]),
        work(to_node("ConvTranspose", [(1, 2, 4, 4), (2, 3, 3, 3), (3,)], [(1, 3, 6, 6)])),
    ),
    (
        to_node(f"{NHWC}QLinearConvTranspose", ["1x4x4x2:uint8", S, Z, "2x3x3x3:uint8",
             S, Z, S, Z], ["1x6x6x3:uint8"]),
        Cost(macs=32 * 27, adds=32 + 54) + REQUANTIZED * 108,
    ),
    (to_node(f"{NHWC}DepthToSpace", [(1, 2, 2, 4)], [(1, 4, 4, 1)], blocksize=2), Cost()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "expected"), OTHERS + LAYOUTS, ids=lambda v: str(getattr(v, "op", ""))
)
def test_work_by_kind(one, expected):
    """Each operation is counted once, by its kind."""
    assert work(one) == expected


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (to_node(f"{MS}CDist", [(3, 5), (2, 5)], [(3, 2)], metric="cosine"), "cosine"),
        (to_node(f"{MS}GatedDeltaNet", [(4, 31), *[None] * 5, (1, 4, 5, 3)], [X]), "divide"),
        (to_node(f"{MS}HyperConnectionPreMix", [(2, 0, 4), X], [X]), "branches"),
        (to_node(f"{MS}BeamSearch", [X], [X]), "length of the generated text"),
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
        (to_node(f"{MS}QLinearSoftmax", [Q, S, Z, S, Z], [Q], axis=3), "axis 3 is out of range"),
        (
            to_node(f"{MS}LinearAttention", [X, X, X], [X], q_num_heads=0, kv_num_heads=1),
            "multiple",
        ),
    ],
)
def test_operands_that_contradict_each_other_are_refused(one, words):
    """No runtime takes them, so there is nothing to count."""
    with pytest.raises(OperandError, match=words):
        count_node(one)
