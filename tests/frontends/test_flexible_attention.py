"""FlexAttention on a CPU: all scores are counted, and the blocks that a mask skips are stated.

Q * K^T and P * V are B x H x L x S x E MACs each.
"""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch
from torch import nn
from torch.nn.attention import flex_attention as library

import crossflops
from crossflops.bench.timing import BenchLimits
from crossflops.frontends.pytorch.load.flexible_attention import (
    AS_OPERATORS,
    FlexAttentionRunner,
    run_and_describe_masked_attention,
    sentence_on_masked_attention,
)
from crossflops.profiling.run import Recipe, time_steps
from tests import executed

pytestmark = pytest.mark.torch


def is_causal(_batch, _head, query, key):
    """Return whether the key is not behind the query."""
    return query >= key


class Residual(nn.Module):
    """Two layers of causal attention, with a bias for each score, in a residual stream."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.ModuleList(nn.Linear(16, 48, bias=False) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(2, 256))

    def forward(self, x):
        batch, length, width = x.shape
        mask = library.create_block_mask(is_causal, None, None, length, length, device="cpu")
        for layer in self.qkv:
            q, k, v = layer(x).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
            mixed = library.flex_attention(
                q, k, v, block_mask=mask, score_mod=lambda s, _b, h, i, j: s + self.bias[h][i - j]
            )
            x = x + mixed.transpose(1, 2).reshape(batch, length, width)
        return x


class Grouped(nn.Module):
    """Four heads of queries on two of keys, compiled, with the logarithms of the sums."""

    def __init__(self):
        super().__init__()
        self.attend = torch.compile(library.flex_attention)

    def forward(self, q, k, v):
        return self.attend(q, k, v, enable_gqa=True, return_lse=True)


LAYER = 256 * 16 * 48 + 2 * (2 * 256 * 256 * 8)  # the linear layer, and both products


@pytest.mark.parametrize("freeze", [False, True])
def test_masked_layers_are_counted_dense_and_their_blocks_stated(freeze):
    """All scores count, and what a kernel that skips blocks runs stands beside them."""
    model = Residual().requires_grad_(not freeze)
    report = crossflops.count(model, torch.randn(1, 256, 16), train=not freeze)
    assert report.macs == 2 * LAYER
    note = (
        "FlexAttention is counted without block sparsity, 4194304 MACs; a kernel that skips "
        "masked blocks runs 12 of 16 blocks, 3145728 MACs"
    )
    assert note in report.to_json()  # three of four blocks, of two heads in two layers


def test_scalars_make_a_tensor_after_a_mask_was_made():
    """To PyTorch a tensor class with a `__getitem__` of Python's is a sequence, for good."""
    run_and_describe_masked_attention(lambda: Residual()(torch.randn(1, 256, 16)))
    assert torch.tensor([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1.0, 2.0]


def test_every_tool_is_predicted_on_a_model_with_gradients():
    """Tools run the operators that are counted, with gradients."""
    tools = ["torch-flop-counter", "thop"]
    report = crossflops.compare(Residual(), torch.randn(1, 256, 16), tools=tools, isolate=False)
    rows = {row.tool: row for row in report.reconciliations}
    assert rows["torch-flop-counter"].theirs == 2 * 2 * LAYER
    assert [rows[tool].residual for tool in tools] == [0, 0]


def test_grouped_heads_count_for_each_head_of_queries():
    """Each head of queries counts, also of keys that are shared."""
    q, k = torch.randn(1, 4, 64, 8), torch.randn(1, 2, 96, 8)
    assert crossflops.count(Grouped(), (q, k, k)).macs == 2 * (4 * 64 * 96 * 8)


def in_window(_batch, _head, query, key):
    """Return whether the key is one of the hundred up to the query."""
    return (query >= key) & (query - key < 100)


def one_head(_batch, head, query, key):
    """Return whether the first head or a causal one attends."""
    return (head == 0) | (query >= key)


@pytest.mark.parametrize(
    ("mask", "heads", "length", "block", "kept", "blocks", "scores"),
    [
        (is_causal, None, 256, 64, 20, 32, 20 * 64 * 64),
        (is_causal, None, 256, (128, 64), 12, 16, 12 * 128 * 64),
        (is_causal, None, 200, 128, 6, 8, 2 * (200 * 200 - 128 * 72)),  # the last block is cut
        (in_window, None, 512, 128, 14, 32, 14 * 128 * 128),
        (one_head, 2, 256, 128, 7, 8, 7 * 128 * 128),
    ],
)
def test_blocks_of_a_mask(mask, heads, length, block, kept, blocks, scores):
    """The blocks follow from the mask, by hand, with the last one cut to the length."""
    q = torch.randn(1, 2, length, 8)
    given = library.create_block_mask(
        mask, None, heads, length, length, device="cpu", BLOCK_SIZE=block
    )
    (call,) = calls = run_and_describe_masked_attention(
        lambda: library.flex_attention(q, q, q, block_mask=given)
    )
    assert (call.kept, call.blocks) == (kept, blocks)
    assert (call.macs, call.kept_macs) == (2 * length * length * 16, scores * 16)
    assert f"{kept} of {blocks} blocks, {scores * 16} MACs" in sentence_on_masked_attention(calls)
    assert run_and_describe_masked_attention(lambda: library.flex_attention(q, q, q)) == []


def test_operators_give_what_pytorch_compiles():
    """The operators give softmax(score_mod(Q K^T / sqrt(E))) V."""
    q, bias = torch.randn(1, 2, 32, 8), torch.randn(2, 32)

    def attend():
        return library.flex_attention(q, q, q, lambda s, _b, h, i, j: s + bias[h, j] * (i > 3))

    results = []
    run_and_describe_masked_attention(lambda: results.append(attend()))
    scores = q @ q.transpose(-2, -1) / 8**0.5
    rows = (torch.arange(32) > 3).view(-1, 1)
    expected = (scores + bias.view(1, 2, 1, 32) * rows).softmax(-1) @ q
    torch.testing.assert_close(results[0], expected)


class Masked(nn.Module):
    """A layer of two heads under a mask: of blocks, or of scores alone."""

    def __init__(self, keeps, in_blocks):
        super().__init__()
        self.qkv, self.keeps, self.in_blocks = nn.Linear(16, 48, bias=False), keeps, in_blocks
        self.register_buffer("document", torch.arange(256) // 128)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)

        def mask(_batch, _head, i, j):
            return self.keeps(self.document, i, j)

        def score(s, b, h, i, j):
            return torch.where(mask(b, h, i, j), s, -float("inf"))

        if not self.in_blocks:
            return library.flex_attention(q, k, v, score_mod=score)
        blocks = library.create_block_mask(mask, None, None, length, length, device="cpu")
        return library.flex_attention(q, k, v, block_mask=blocks)


@pytest.mark.parametrize(
    ("keeps", "in_blocks", "blocks"),
    [
        # of 2 x 2 blocks of each head: three by a window of 100 keys, two of two documents
        (lambda _, i, j: (i >= j) & (i - j < 100), True, "6 of 8 blocks, 1572864 MACs"),
        (lambda doc, i, j: (doc[i] == doc[j]) & (i >= j), True, "4 of 8 blocks, 1048576 MACs"),
        (lambda _, i, j: (i >= j) & (i - j < 100), False, ""),
    ],
)
def test_a_step_under_a_mask_by_hand(keeps, in_blocks, blocks):
    """256 tokens: 256 * 16 * 48 and 2 * 2 * 256 * 256 * 8 MACs, and twice these backward.

    The input has no gradient. So many run where gradients are wanted on a CPU, which is said.
    """
    layer, scores = 256 * 16 * 48, 2 * 2 * 256 * 256 * 8
    model, x = Masked(keeps, in_blocks), torch.randn(1, 256, 16)
    report = crossflops.count(model, x, train=True)
    assert report.training.forward_macs == layer + scores
    assert report.training.backward_weight_macs == layer
    assert report.training.backward_input_macs == 2 * scores
    assert blocks in report.to_json()
    attending = FlexAttentionRunner(model)
    with attending.running_as_operators():
        assert executed.step(model, (x,)) == (layer + scores, layer + 2 * scores)
    assert attending.operator_run_note == AS_OPERATORS


def test_steps_are_timed_on_a_cpu():
    """With gradients as operators, which is said; PyTorch refuses them else."""
    recipe = Recipe(optimizer="sgd", limits=BenchLimits(1, 1, 1, 0.1))
    x = torch.randn(1, 256, 16)
    _, phases = time_steps(Residual(), (x,), {}, recipe)
    assert (phases.note, phases.backward > 0) == (AS_OPERATORS, True)
    plain = time_steps(nn.Linear(16, 2), (x,), {}, recipe)[1]
    assert plain.note == ""
