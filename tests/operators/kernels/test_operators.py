"""Operators with the schemas of their libraries are found by name, and their operands too."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import crossflops  # noqa: E402
from tests.operators.kernels.libraries import declare_libraries  # noqa: E402

pytestmark = pytest.mark.torch


class Calls(nn.Module):
    """One call of each operator, on tensors without values."""

    def forward(self, q, k, cache, new, tables, codes, starts):
        ops = torch.ops
        heads = q.flatten(0, 1)
        packed, *_ = ops.flash_attn._flash_attn_varlen_forward(
            heads, heads, heads, starts, starts, 5, 5, 0.0, 0.5, False
        )
        cached, *_ = ops.flash_attn_3._flash_attn_forward(q, cache, cache, k_new=new, v_new=new)
        out = torch.empty_like(heads)
        scale = torch.ones(())
        ops._C.paged_attention_v1(
            out, heads, k, k, 2, 0.5, tables, tables[:, 0], 4, 6, None, "auto", scale, scale,
            0, 0, 0, 0, 0,
        )  # fmt: skip
        row = ops.bitsandbytes.gemv_4bit(q[0, :1, 0], codes, [5, 4], scale, scale, 64)
        return packed, cached, out, row


def _work(report, name):
    (node,) = (node for node in report.nodes if name in node.op)
    return node


@pytest.fixture(scope="module")
def report():
    """2 sequences of 4 tokens, 2 heads of 4."""
    declare_libraries()
    q, cache = torch.zeros(2, 4, 2, 4), torch.zeros(2, 6, 2, 4)
    new, pages = torch.zeros(2, 1, 2, 4), torch.zeros(3, 2, 2, 4, 2)
    tables = torch.zeros(8, 2, dtype=torch.int32)
    codes = torch.zeros(10, 1, dtype=torch.uint8)
    starts = torch.tensor([0, 3, 8], dtype=torch.int32)
    return crossflops.count(Calls(), (q, pages, cache, new, tables, codes, starts))


def test_all_of_them_are_counted(report):
    """No library is installed."""
    assert report.uncounted == ()


def test_packed_sequences_whose_lengths_are_not_recorded_are_a_bound(report):
    """8 queries of 2 heads, each with 5 keys at most, of 8 MACs each."""
    node = _work(report, "varlen_forward")
    assert (node.macs, node.exactness) == (2 * 8 * 5 * 8, "bound")


class Packed(nn.Module):
    """Packed sequences whose starts the model writes itself, or holds in a buffer."""

    def __init__(self, held):
        super().__init__()
        self.held = held
        self.register_buffer("starts", torch.tensor([0, 3, 8], dtype=torch.int32))

    def forward(self, q):
        starts = self.starts if self.held else torch.tensor([0, 3, 8], dtype=torch.int32)
        return torch.ops.flash_attn._flash_attn_varlen_forward(
            q, q, q, starts, starts, 5, 5, 0.0, 0.5, False
        )[0]


@pytest.mark.parametrize(
    ("held", "pairs", "exactness"), [(False, 3 * 3 + 5 * 5, "exact"), (True, 8 * 5, "bound")]
)
def test_starts_that_the_model_writes_are_known(held, pairs, exactness):
    """3 and 5 tokens of 2 heads of 4. A buffer may be overwritten, so its numbers are not read."""
    declare_libraries()
    report = crossflops.count(Packed(held), (torch.zeros(8, 2, 4),))
    node = _work(report, "varlen_forward")
    assert (node.macs, node.exactness) == (pairs * 2 * 8, exactness)


def test_a_constant_without_values_is_unknown(tmp_path):
    """Made on fake tensors, on which the model is built from its file: 8 tokens, 5 keys each."""
    declare_libraries()
    file = tmp_path / "packed.py"
    file.write_text(_STORED)
    for weights, macs, exactness in (("fake", 8 * 5, "bound"), ("real", 34, "exact")):
        node = _work(crossflops.count(f"{file}:Stored", ["8x2x4"], weights=weights), "varlen")
        assert (node.macs, node.exactness) == (macs * 2 * 8, exactness)


_STORED = """
import torch
from torch import nn


class Stored(nn.Module):
    def __init__(self):
        super().__init__()
        self.starts = torch.tensor([0, 3, 8], dtype=torch.int32)

    def forward(self, q):
        return torch.ops.flash_attn._flash_attn_varlen_forward(
            q, q, q, self.starts, self.starts, 5, 5, 0.0, 0.5, False
        )[0]
"""


def test_new_keys_of_a_cache_meet_every_query_of_their_sequence(report):
    """6 keys in the cache, and one more: 2 sequences, 2 heads, 4 queries, 8 MACs."""
    assert _work(report, "flash_attn_3").macs == 2 * 2 * 4 * (6 + 1) * 8


def test_pages_are_a_bound(report):
    """8 queries of 2 heads, each with 6 keys at most."""
    node = _work(report, "paged_attention_v1")
    assert (node.macs, node.exactness) == (8 * 2 * 6 * 8, "bound")


def test_a_row_meets_a_matrix_of_four_bits(report):
    """4 by 5."""
    assert _work(report, "gemv_4bit").macs == 20
