"""FlashInfer's operators, whose names hold the settings of their build, in a model's graph."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import crossflops  # noqa: E402
from tests.operators.kernels.libraries import DECODE, PREFILL, declare_libraries  # noqa: E402

pytestmark = pytest.mark.torch

HEADS, KV_HEADS, DEPTH, PAGE = 4, 2, 4, 2
# Two sequences: 3 queries and 3 keys in 2 pages, 2 queries and 2 keys in 1 page.
QUERIES, PAGES = 5, 3
STARTS, PAGE_STARTS, LAST = [0, 3, 5], [0, 2, 3], [1, 2]
KNOWN_PAIRS = 3 * 3 + 2 * 2


class Attention(nn.Module):
    """A prefill and a decode over one cache, [pages, tokens, heads, D] or heads first."""

    def __init__(self, heads_first: bool, known: bool) -> None:
        super().__init__()
        self.heads_first, self.known = heads_first, known
        self.register_buffer("workspace", torch.zeros(1000))

    def _cells(self, numbers, given):
        return torch.tensor(numbers, dtype=torch.int32) if self.known else given[: len(numbers)]

    def forward(self, q, keys, values, one, counts):
        ops, layout = torch.ops.flashinfer, int(self.heads_first)
        indices = torch.arange(PAGES, dtype=torch.int32)
        starts, page_starts, last = (
            self._cells(numbers, counts) for numbers in (STARTS, PAGE_STARTS, LAST)
        )
        space, done, single = self.workspace.clone(), torch.empty_like(q), torch.empty_like(one)
        getattr(ops, PREFILL)(
            space, space, [1, 2], q, keys, values, starts, page_starts, indices, last, done, None,
            1, layout, -1, False, None, None, None, None, None, None, 0.0, 0.5, None, None, None,
            1.0, 10000.0, 0, 0,
        )  # fmt: skip
        getattr(ops, DECODE)(
            space, space, [1, 2], one, keys, values, page_starts, indices, last, single, None,
            layout, -1, False, q[0, :, 0], 0.0, 0.5, 1.0, 10000.0,
        )  # fmt: skip
        return done, single


def _count(heads_first: bool, known: bool) -> tuple[crossflops.Report, dict[str, object]]:
    """Return the report of a model, and its nodes of FlashInfer by "paged_run" and "run"."""
    declare_libraries()
    page = (KV_HEADS, PAGE) if heads_first else (PAGE, KV_HEADS)
    inputs = (
        torch.zeros(QUERIES, HEADS, DEPTH),
        *(torch.zeros(PAGES, *page, DEPTH) for _ in range(2)),
        torch.zeros(2, HEADS, DEPTH),
        torch.zeros(3, dtype=torch.int32),
    )
    report = crossflops.count(Attention(heads_first, known), inputs)
    nodes = {
        "prefill" if PREFILL in node.op else "decode": node
        for node in report.nodes
        if "flashinfer" in node.op
    }
    return report, nodes


@pytest.mark.parametrize("heads_first", [False, True])
def test_lengths_that_the_model_writes_are_exact(heads_first: bool) -> None:
    """3 queries with 3 keys and 2 with 2; 1 query with 3 and 1 with 2, in either layout."""
    report, nodes = _count(heads_first, known=True)
    assert report.uncounted == ()
    prefill, decode = nodes["prefill"], nodes["decode"]
    assert (prefill.macs, prefill.exactness) == (KNOWN_PAIRS * HEADS * 2 * DEPTH, "exact")
    assert (decode.macs, decode.exactness) == ((3 + 2) * HEADS * 2 * DEPTH, "exact")


def test_unknown_lengths_are_bounded_by_the_pages_of_the_call() -> None:
    """3 pages of 2 keys, which any of 5 queries may meet; a decode has one query a sequence."""
    _, nodes = _count(heads_first=False, known=False)
    prefill, decode = nodes["prefill"], nodes["decode"]
    assert (prefill.macs, prefill.exactness) == (5 * 6 * HEADS * 2 * DEPTH, "bound")
    assert (decode.macs, decode.exactness) == (6 * HEADS * 2 * DEPTH, "bound")


def test_the_name_says_what_is_done_with_positions() -> None:
    """Slopes are an operand of each build, and only one with posenc_2 adds their products.

    Of 5 scores of 4 heads each: a mul and an add for the slope, and the softmax: 5 - 2 compares
    for maxima, 5 subs, 5 exps, 5 - 2 adds, 5 divs; q and k are scaled, a mul an element.
    """
    _, nodes = _count(heads_first=False, known=True)
    scores, rows = 5 * HEADS, 2 * HEADS
    slopes = 2 * scores
    softmax = 4 * scores + 2 * (scores - rows) - scores
    scaled = 2 * HEADS * DEPTH + 5 * KV_HEADS * DEPTH
    assert nodes["decode"].flops == 2 * nodes["decode"].macs + slopes + softmax + scaled


def test_the_report_names_the_pattern() -> None:
    """As the formula was registered."""
    report, _ = _count(heads_first=False, known=True)
    patterns = {row.pattern for row in report.custom_operators}
    assert patterns == {
        "flashinfer::batch_prefill_with_kv_cache_*_paged_run",
        "flashinfer::batch_decode_with_kv_cache_*_run",
    }


def test_the_traffic_is_that_of_the_tokens() -> None:
    """Of q, keys and values of 5 tokens, and the result: neither workspaces nor whole pages."""
    _, nodes = _count(heads_first=False, known=True)
    tokens = 5 * KV_HEADS * DEPTH * 4
    assert nodes["decode"].bytes_read == 2 * HEADS * DEPTH * 4 + 2 * tokens
    assert nodes["decode"].bytes_written == 2 * HEADS * DEPTH * 4
