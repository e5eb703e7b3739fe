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


class Sorted(nn.Module):
    """Experts in one weight that get rows sorted by expert, and how many each has to take."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(COUNT, width, DIM))

    def forward(self, rows, sizes):
        """One expert after the other."""
        parts = zip(rows.split(sizes), self.weight, strict=True)
        return torch.cat([F.linear(part, weight) for part, weight in parts])


class Dense(nn.Module):
    """Experts in one weight that multiply all rows, of which most are zero."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(COUNT, DIM, INNER))

    def forward(self, x):
        """The rows of each expert in turn."""
        return torch.bmm(x.view(COUNT, -1, DIM), self.weight).view(-1, INNER)


class Below(nn.Module):
    """Experts that are rows of one matrix, one below the other, in a module of its own."""

    def __init__(self):
        super().__init__()
        self.held = nn.Linear(DIM, COUNT * INNER, bias=False)

    def forward(self, x, chosen):
        """Every expert on the rows of those tokens that chose it."""
        weight = self.held.weight.view(COUNT, INNER, DIM)
        out = x.new_zeros(len(x), INNER)
        for expert in range(COUNT):
            rows = (chosen == expert).any(-1).nonzero().squeeze(-1)
            out = out.index_add(0, rows, F.linear(x[rows], weight[expert]))
        return out


class Padded(Stacked):
    """Numbers of experts that have no weights are chosen, too: those rows stay as they are."""

    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.randn(2 * COUNT, INNER, DIM))
        self.bias = nn.Parameter(torch.zeros(COUNT, INNER))


class Mixture(nn.Module):
    """A router, experts of one of these forms, and a convolution that is none."""

    def __init__(self, experts, count=COUNT):
        super().__init__()
        self.router = nn.Linear(DIM, count, bias=False)
        self.conv = nn.Conv1d(COUNT, COUNT, 1, bias=False)
        self.experts = experts

    def forward(self, x):
        """The tokens of each expert together, where it wants them so."""
        scores = self.router(x)
        chosen = scores.topk(CHOSEN).indices
        if isinstance(self.experts, Sorted):
            sizes = [len(x) * CHOSEN // COUNT] * COUNT
            rows = x[chosen.flatten().argsort() // CHOSEN]
            return self.experts(rows, sizes)
        if isinstance(self.experts, Dense):
            kept = torch.zeros_like(scores).scatter(1, chosen, 1)
            return self.experts((kept.T.unsqueeze(-1) * x).reshape(-1, DIM))
        return self.experts(x, chosen)


# Of COUNT experts a token uses CHOSEN; of Padded, where half of those chosen have no weights, 1.
_EACH = INNER * DIM


@pytest.mark.parametrize(
    ("experts", "count", "used"),
    [
        (Sorted(INNER), COUNT, CHOSEN * _EACH),
        (Dense(), COUNT, CHOSEN * _EACH),
        (Below(), COUNT, CHOSEN * _EACH),
        (Padded(), 2 * COUNT, 2 * _EACH + INNER),
    ],
    ids=["sorted", "dense", "below", "padded"],
)
def test_experts_that_get_no_numbers(experts, count, used):
    """The choice among the scores tells: 2 of 4, and of 8 of which 4 have no last product."""
    report = crossflops.count(Mixture(experts, count), torch.randn(TOKENS + 3, DIM))
    conv = COUNT * COUNT
    assert report.totals.active_params == DIM * count + conv + used
    assert report.params == DIM * count + conv + sum(p.numel() for p in experts.parameters())


class Everywhere(nn.Module):
    """Experts in one weight, each of which multiplies all tokens, in one of several spellings."""

    def __init__(self, product):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(COUNT, DIM, INNER))
        self.product = product

    def forward(self, x, kept):
        """The sum over experts, of which those that were not chosen weigh nothing."""
        return (self.product(x, self.weight) * kept.T.unsqueeze(-1)).sum(0)


class Weighed(nn.Module):
    """A router, and experts that all run."""

    def __init__(self, product):
        super().__init__()
        self.router = nn.Linear(DIM, COUNT, bias=False)
        self.experts = Everywhere(product)

    def forward(self, x):
        """Scores of the chosen ones, and zeros."""
        best = self.router(x).topk(CHOSEN)
        return self.experts(x, x.new_zeros(len(x), COUNT).scatter(1, best.indices, best.values))


@pytest.mark.parametrize(
    "product",
    [
        lambda x, w: torch.bmm(x.repeat(COUNT, 1, 1), w),
        lambda x, w: torch.einsum("th,ehi->eti", x, w),
        lambda x, w: (w.transpose(1, 2) @ x.T).transpose(1, 2),
    ],
    ids=["bmm", "einsum", "turned"],
)
def test_experts_that_run_without_being_chosen(product):
    """Every token meets 4 experts of 8 x 6, of which it chose 2."""
    report = crossflops.count(Weighed(product), torch.randn(TOKENS, DIM))
    assert report.macs == TOKENS * (ROUTER + COUNT * _EACH)
    assert report.totals.unchosen_macs == TOKENS * (COUNT - CHOSEN) * _EACH
    assert report.totals.active_params == ROUTER + CHOSEN * _EACH
    assert "experts that a token did not choose" in " ".join(str(report).split())


class Masked(Listed):
    """Every expert gets all rows, and the results of those that were not chosen are dropped."""

    def forward(self, x):
        """The sum over experts, by a mask."""
        chosen = self.router(x).topk(self.chosen).indices
        masks = [(chosen == number).any(-1, keepdim=True) for number in range(len(self.experts))]
        return sum(mask * run(x) for mask, run in zip(masks, self.experts, strict=True))


def test_experts_in_a_list_that_all_run():
    """5 tokens meet 4 layers of 8 x 8, and choose 3."""
    report = crossflops.count(Masked(3), torch.randn(TOKENS, DIM))
    assert report.macs == TOKENS * (ROUTER + COUNT * DIM * DIM)
    assert report.totals.unchosen_macs == TOKENS * DIM * DIM
    assert report.totals.active_params == 3 * DIM * DIM + ROUTER


class Twice(Listed):
    """All rows go to one expert twice and to another once: a token uses two of four.

    Among the experts is a module that has no weights.
    """

    def __init__(self):
        super().__init__()
        self.experts.append(nn.Dropout())

    def forward(self, x):
        """The scores decide nothing."""
        first, second, *_ = self.experts
        return first(torch.cat([x, x])).view(2, *x.shape).sum(0) + second(x) + self.router(x).sum()


def test_a_token_uses_no_more_experts_than_run():
    """3 products for each token, by 2 of 4 layers of 8 x 8."""
    report = crossflops.count(Twice(), torch.randn(TOKENS, DIM))
    assert report.macs == TOKENS * (ROUTER + 3 * DIM * DIM)
    assert report.totals.active_params == 2 * DIM * DIM + ROUTER


def test_experts_that_run_where_they_are_chosen():
    """None of their products is of another expert."""
    report = crossflops.count(Routed(), torch.randn(TOKENS, DIM))
    assert report.totals.unchosen_macs is msgspec.UNSET


class Neurons(nn.Module):
    """Experts of one neuron each, as rows of two tables, chosen by two halves of a query."""

    def __init__(self, keys=4, heads=2, words=True):
        super().__init__()
        self.keys, self.heads = keys, heads
        self.words = nn.Embedding(16, DIM) if words else None
        self.query = nn.Linear(DIM, heads * 2 * keys, bias=False)
        self.down = nn.Embedding(keys * keys, DIM)
        self.up = nn.Embedding(keys * keys, DIM)

    def forward(self, x):
        """Of keys x keys experts each head chooses CHOSEN, of the best pairs of keys."""
        x = self.words(x) if self.words is not None else x
        halves = self.query(x).view(len(x), self.heads, 2, self.keys)
        scores, places = halves.topk(CHOSEN)
        pairs = (scores[:, :, 0, :, None] + scores[:, :, 1, None]).flatten(-2)
        numbers = (places[:, :, 0, :, None] * self.keys + places[:, :, 1, None]).flatten(-2)
        best, chosen = pairs.topk(CHOSEN)
        numbers = numbers.gather(-1, chosen)
        inner = torch.einsum("td,thkd->thk", x, self.down(numbers)).relu() * best
        return torch.einsum("thk,thkd->td", inner, self.up(numbers))


@pytest.mark.parametrize("words", [True, False])
def test_experts_that_are_rows_of_tables(words):
    """2 heads of 2 rows each of 16 in two tables of DIM; the table of words is used whole."""
    given = torch.arange(TOKENS) if words else torch.randn(TOKENS, DIM)
    report = crossflops.count(Neurons(words=words), given)
    tables, query = 2 * 16 * DIM, DIM * 16
    assert report.params == tables + query + words * 16 * DIM
    assert report.totals.active_params == report.params - tables * (16 - 2 * CHOSEN) // 16
    assert report.macs == TOKENS * (query + 2 * 2 * CHOSEN * DIM)


class Searching(nn.Module):
    """A table of words, which looks up those words that a `topk` found best."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(16, DIM)
        self.again = nn.Embedding(16, DIM)

    def forward(self, x):
        """The mean of the best two continuations."""
        best = (self.words(x) @ self.words.weight.T).topk(CHOSEN).indices
        return self.words(best).mean(1) + self.again(x)


def test_tables_of_words_are_no_experts():
    """They are looked up by tokens as well as by choices."""
    report = crossflops.count(Searching(), torch.arange(TOKENS))
    assert report.totals.active_params is msgspec.UNSET
