"""BERT-Large as it was published with DeepSpeed's profiler, through the views of this one."""

import json
from pathlib import Path

import pytest

import crossflops

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

GOLDEN = json.loads((Path(__file__).parents[1] / "golden_efficiency.json").read_text())
CASES = {case["id"]: case for case in GOLDEN["cases"]}
SIZES = CASES["deepspeed-bert-large-macs"]["inputs"]
MACS = CASES["deepspeed-bert-large-macs"]["expect"]
RUN = CASES["deepspeed-bert-large-readme"]["inputs"]
WIDTH, HEADS = SIZES["hidden"], SIZES["heads"]


class Layer(torch.nn.Module):
    """Attention by two products and a softmax, and the feed-forward layers."""

    def __init__(self):
        super().__init__()
        linear = torch.nn.Linear
        self.query, self.key, self.value, self.out = (linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = linear(WIDTH, 4 * WIDTH), linear(4 * WIDTH, WIDTH)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))

    def heads(self, x):
        """B x T x H to B x heads x T x H / heads."""
        return x.view(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)

    def forward(self, x):
        query, key, value = (self.heads(part(x)) for part in (self.query, self.key, self.value))
        scores = torch.matmul(query, key.transpose(-1, -2)) / 8
        mixed = torch.matmul(torch.nn.functional.softmax(scores, dim=-1), value)
        x = self.norms[0](x + self.out(mixed.transpose(1, 2).reshape(x.shape)))
        return self.norms[1](x + self.down(torch.nn.functional.gelu(self.up(x))))


class BertLarge(torch.nn.Module):
    """NVIDIA's model for pre-training, whose decoder is tied and sees masked positions alone."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(SIZES["vocab_padded"], WIDTH)
        self.places, self.kinds = torch.nn.Embedding(512, WIDTH), torch.nn.Embedding(2, WIDTH)
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(SIZES["layers"]))
        self.pooler, self.next = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 2)
        self.transform, self.last = torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH)
        self.decoder = torch.nn.Linear(WIDTH, SIZES["vocab_padded"])
        self.decoder.weight = self.words.weight

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device)
        kinds = self.kinds(torch.zeros_like(ids))
        x = self.norm(self.words(ids) + self.places(places) + kinds)
        for layer in self.layers:
            x = layer(x)
        words = self.last(torch.nn.functional.gelu(self.transform(x)))
        masked = words.flatten(0, 1)[: SIZES["mlm_positions"]]
        return self.decoder(masked), self.next(torch.tanh(self.pooler(x[:, 0])))


@pytest.fixture(scope="module")
def published():
    """The count, without weights, and the published times."""
    with torch.device("meta"):
        model, ids = BertLarge(), torch.zeros(SIZES["batch"], SIZES["seq"], dtype=torch.int64)
    return crossflops.profile(
        model,
        ids,
        as_="deepspeed@2021",
        fwd_ms=1e3 * RUN["fwd_s"],
        bwd_ms=1e3 * RUN["bwd_s"],
        step_ms=1e3 * RUN["step_s"],
        device="a100-sxm4-40gb",
        precision="fp16",
    )


def test_the_published_count_is_a_convention(published):
    """Every digit of it, beside the right one."""
    (row,) = published.conventions
    assert row.macs == MACS["deepspeed_total"]
    assert published.work.forward_macs == MACS["correct_matmul_total"]
    assert f"{published.params / 1e6:.2f} M" == "336.23 M"


def test_the_difference_is_named(published):
    """Products of attention that the tool left out, and elements of softmax taken for MACs."""
    (row,) = published.conventions
    products = SIZES["layers"] * MACS["attention_matmuls_per_layer_OMITTED"]
    softmax = SIZES["layers"] * MACS["softmax_elements_counted_as_macs_per_layer"]
    assert sorted(cause.amount for cause in row.differences) == [-products, softmax]
    assert row.residual == 0


def test_the_published_page_is_there(published):
    """The figures of the README, as it rounds them, and the right ones."""
    (row,) = published.conventions
    times = published.latencies
    rates = {
        "fwd_TFLOPS": published.rate(row.macs, times.forward),
        "bwd_TFLOPS": published.rate(2 * row.macs, times.backward),
        "fwd_bwd_TFLOPS": published.rate(3 * row.macs, times.forward + times.backward),
    }
    case = CASES["deepspeed-bert-large-readme"]
    for name, rate in rates.items():
        assert rate / 1e12 == pytest.approx(case["expect"][name], rel=case["tolerance_rel"])
    seconds = published.seconds
    assert 1e3 * seconds == pytest.approx(case["expect"]["iter_ms"], rel=5e-4)
    assert published.examples_per_second == pytest.approx(433.07, rel=5e-4)
    page = str(published)
    for text in ("3.140 TMACs", "6.280 T", "81.91 TFLOP/s", "116.3 TFLOP/s", "102.0 TFLOP/s"):
        assert text in page, text
    assert "3.204 T" in page
    assert any("cannot be an update of 336.2 M" in text for text in published.warnings)


def test_the_tree_of_the_convention_adds_up(published):
    """24 layers, each with its linears and the elements of its softmax."""
    (row,) = published.conventions
    layer = MACS["layer_linears"] + MACS["softmax_elements_counted_as_macs_per_layer"]
    assert row.by_module["layers.0"] == layer
    assert row.by_module["layers"] == SIZES["layers"] * layer
    assert row.by_module[""] == row.macs
