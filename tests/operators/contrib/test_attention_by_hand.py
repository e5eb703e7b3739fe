"""The attentions of onnxruntime in their many forms, by hand."""

import pytest

from crossflops.errors import OperandError
from crossflops.ir.ledger import Cost, CountedNode, UncountedNode
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.operators.scalars import work

MS = "com.microsoft::"


@pytest.mark.parametrize("masked", [False, True])
def test_the_operands_of_multi_head_attention_may_be_packed(masked):
    """QKV in five dimensions, KV in five, or keys that another node has finished."""
    attrs, out = {"num_heads": 2}, (1, 3, 8)
    more = [None, None, (1, 1, 3, 3)] if masked else []
    plain = work(to_node(f"{MS}MultiHeadAttention", [(1, 3, 8)] * 3 + more, [out], **attrs))
    # scores 2*3*3 = 18: 18*(4+4) MACs, 18 muls; softmax 12 compares, 18+12 adds, 18 exps, 18 divs.
    expected = Cost(macs=144, muls=18, compares=12, adds=30, specials=18, divs=18)
    assert plain == expected + Cost(adds=18 if masked else 0)
    for operands in (
        [(1, 3, 2, 3, 4), None, None],
        [(1, 3, 8), (1, 3, 2, 2, 4), None],
        [(1, 3, 8), (1, 2, 3, 4), (1, 2, 3, 4)],
        [(1, 3, 24), None, None],
    ):
        attention = to_node(f"{MS}MultiHeadAttention", operands + more, [out], **attrs)
        assert work(attention) == plain


@pytest.mark.parametrize("past", [0, 2])
def test_the_contraction_is_that_of_onnx_attention(past):
    """MACs of MultiHeadAttention and GroupQueryAttention are those of ai.onnx Attention."""
    pasts = [(2, 4, past, 8)] * 2 if past else [None, None]
    out = (2, 3, 32)
    onnx_ = to_node(
        "Attention", [(2, 4, 3, 8)] * 3 + [None, *pasts], [(2, 4, 3, 8)] * (3 if past else 1)
    )
    ours = to_node(f"{MS}MultiHeadAttention", [out] * 3 + [None] * 3 + pasts, [out], num_heads=4)
    assert work(ours).macs == work(onnx_).macs == 2 * 4 * 3 * (3 + past) * 16
    flat = [out, (2, 3, 16), (2, 3, 16)]
    pasts = [(2, 2, past, 8)] * 2
    grouped = to_node(
        f"{MS}GroupQueryAttention",
        [*flat, *pasts, "2:int32", ":int32"],
        [out],
        num_heads=4,
        kv_num_heads=2,
    )
    assert work(grouped).macs == work(onnx_).macs


def test_a_shared_buffer_is_a_bound():
    """How much of the buffer of past and present is filled is data: all of it, at most."""
    operands = [(1, 1, 8)] * 3 + [None] * 3 + [(1, 2, 16, 4)] * 2
    grown = count_node(to_node(f"{MS}MultiHeadAttention", operands, [(1, 1, 8)], num_heads=2))
    shared = count_node(
        to_node(f"{MS}MultiHeadAttention", [*operands, ":int32"], [(1, 1, 8)], num_heads=2)
    )
    assert isinstance(grown, CountedNode)
    assert isinstance(shared, CountedNode)
    assert (grown.cost.macs, grown.exactness) == (2 * 17 * 8, "exact")
    assert (shared.cost.macs, shared.exactness) == (2 * 16 * 8, "bound")


def test_sparse_attention_counts_the_blocks_of_its_pattern():
    """Of 64 x 64 scores per head 5 blocks of 16 x 16 are there; a longer pattern is cut."""
    operands = [(1, 64, 32), (1, 64, 16), (1, 64, 16), (1, 2, 64, 8), (1, 2, 64, 8)]
    rest = [":int32", "1:int32"]
    attrs = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16}
    for blocks, scores in ((5, 5 * 256), (40, 64 * 64)):
        pattern = ["1x5:int32", f"1x{blocks}:int32"]
        counted = count_node(
            to_node(f"{MS}SparseAttention", operands + pattern + rest, [(1, 64, 32)], **attrs)
        )
        assert isinstance(counted, CountedNode)
        assert counted.cost.macs == 4 * scores * 2 * 8
        assert counted.exactness == "bound"


def test_paged_attention_is_bounded_by_its_blocks():
    """7 tokens of 4 heads meet at most 3 blocks of 16 keys."""
    operands = [(7, 32), (7, 16), (7, 16), (9, 16, 2, 8), (9, 16, 2, 8)]
    operands += ["3:int32", "2:int32", "2x3:int32"]
    attention = to_node(f"{MS}PagedAttention", operands, [(7, 32)], num_heads=4, kv_num_heads=2)
    assert work(attention).macs == 7 * 4 * 48 * (8 + 8)
    assert count_node(attention).exactness == "bound"


def test_packed_sequences_are_bounded_by_the_longest():
    """9 tokens of sequences of at most 5: 9 * 5 scores in each of 2 heads."""
    attrs = {"num_heads": 2}
    flat = [(9, 8), (8, 24), (24,), "3x5:int32", "4:int32"]
    attention = to_node(f"{MS}PackedAttention", flat, [(9, 8)], **attrs)
    assert work(attention).macs == 9 * 8 * 24 + 2 * 9 * 5 * (4 + 4)
    assert count_node(attention).exactness == "bound"
    several = [*[(9, 8)] * 3, (24,), "3x5:int32", "4:int32"]
    many = work(to_node(f"{MS}PackedMultiHeadAttention", several, [(9, 8)], **attrs))
    assert many.macs == 2 * 9 * 5 * (4 + 4)
    together = [(9, 2, 3, 4), None, None, *several[3:]]
    assert work(to_node(f"{MS}PackedMultiHeadAttention", together, [(9, 8)], **attrs)) == many


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (to_node(f"{MS}LongformerAttention", [(1, 2, 9)], [(1, 2, 9)]), "global attention"),
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
        (to_node(f"{MS}MultiHeadAttention", [(1, 2, 9)] * 3, [(1, 2, 9)], num_heads=2), "2 heads"),
        (
            to_node(f"{MS}Attention", [(1, 2, 9), (9, 28)], [(1, 2, 9)], num_heads=3),
            "28 at axis 1",
        ),
    ],
)
def test_operands_that_contradict_each_other_are_refused(one, words):
    """No runtime takes them, so there is nothing to count."""
    with pytest.raises(OperandError, match=words):
        count_node(one)
