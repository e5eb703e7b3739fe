"""Parameters that a token uses, in a mixture of experts: by hand, for both forms of experts."""

import msgspec
import pytest

import crossflops
from tests.models import F, nn, torch

pytestmark = pytest.mark.torch
DIM, INNER, COUNT, TOKENS, CHOSEN = 8, 6, 4, 5, 2
ROUTER = DIM * COUNT


class Stacked(nn.Module):
    """All experts in one weight, which get tokens and the numbers of experts that these chose."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.randn(COUNT, INNER, DIM))
        self.down = nn.Parameter(torch.randn(COUNT, DIM, INNER))
        self.bias = nn.Parameter(torch.zeros(COUNT, INNER))

    def forward(self, x, chosen):
        """One expert after the other, on the rows of those tokens that chose it."""
        out = torch.zeros_like(x)
        for expert in range(COUNT):
            rows = (chosen == expert).any(-1).nonzero().squeeze(-1)
            inner = F.linear(x[rows], self.up[expert], self.bias[expert])
            out = out.index_add(0, rows, F.linear(inner, self.down[expert]))
        return out


class Listed(nn.Module):
    """Experts that are modules of a list, behind a router that may choose fewer than all."""

    def __init__(self, chosen=CHOSEN, count=COUNT):
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(DIM, count, bias=False)
        self.experts = nn.ModuleList(nn.Linear(DIM, DIM, bias=False) for _ in range(count))

    def forward(self, x):
        """Every expert gets the rows of those tokens that chose it."""
        chosen = self.router(x).topk(self.chosen).indices
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).any(-1).nonzero().squeeze(-1)
            out = out.index_add(0, rows, expert(x[rows]))
        return out


class Routed(nn.Module):
    """A router, and experts that are one module."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, COUNT, bias=False)
        self.experts = Stacked()

    def forward(self, x):
        """The scores choose, and weigh nothing here."""
        return self.experts(x, self.router(x).topk(CHOSEN).indices)


def test_experts_in_one_weight():
    """2 of 4: weights 6 x 8 and 8 x 6 and a bias of 6 each; a router of 8 x 4."""
    report = crossflops.count(Routed(), torch.randn(TOKENS, DIM))
    expert = 2 * DIM * INNER + INNER
    assert report.params == COUNT * expert + ROUTER
    assert report.totals.active_params == CHOSEN * expert + ROUTER
    assert report.macs == TOKENS * (ROUTER + CHOSEN * 2 * DIM * INNER)


@pytest.mark.parametrize("chosen", [1, 3])
def test_experts_in_a_list(chosen):
    """1 and 3 of 4 layers of 8 x 8."""
    report = crossflops.count(Listed(chosen), torch.randn(TOKENS, DIM))
    assert report.totals.active_params == chosen * DIM * DIM + ROUTER
    assert report.macs == TOKENS * (ROUTER + chosen * DIM * DIM)


class Embedded(nn.Module):
    """A table that is asked beside a mask of floats: rows of numbers, and no experts."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(64, DIM)
        self.layers = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(3))

    def forward(self, mask, ids):
        """All layers, one after the other."""
        x = self.table(ids) * mask.unsqueeze(-1)
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (Listed(COUNT), (torch.randn(TOKENS, DIM),)),
        (Embedded(), (torch.ones(1, TOKENS), torch.zeros(1, TOKENS, dtype=torch.int64))),
    ],
    ids=["all-chosen", "layers"],
)
def test_where_every_token_uses_all_nothing_is_said(model, inputs):
    """Experts that are all chosen, and layers in a row."""
    report = crossflops.count(model, inputs)
    assert report.totals.active_params is msgspec.UNSET
