"""BERT for pre-training as DeepSpeed counted it in 2021, on a small one with the same parts."""

import importlib

import pytest

import crossflops
from crossflops.frontends import load_with_retry

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.tools

LAYERS, HIDDEN, HEADS, VOCABULARY, MASKED, BATCH, TOKENS = 2, 64, 4, 96, 7, 3, 16


class Pretraining(torch.nn.Module):
    """BERT with NVIDIA's heads: the one for masked words sees the masked positions alone."""

    def __init__(self):
        super().__init__()
        transformers = load_with_retry(lambda: importlib.import_module("transformers"))
        sizes = {"num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "vocab_size": VOCABULARY}
        config = transformers.BertConfig(
            num_attention_heads=HEADS,
            intermediate_size=4 * HIDDEN,
            attn_implementation="eager",
            **sizes,
        )
        self.bert = load_with_retry(lambda: transformers.BertModel(config))
        self.transform = torch.nn.Linear(HIDDEN, HIDDEN)
        self.norm = torch.nn.LayerNorm(HIDDEN)
        self.decoder = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.next = torch.nn.Linear(HIDDEN, 2)

    def forward(self, ids):
        hidden = self.bert(ids)
        words = self.norm(torch.nn.functional.gelu(self.transform(hidden.last_hidden_state)))
        return self.decoder(words.flatten(0, 1)[:MASKED]), self.next(hidden.pooler_output)


@pytest.fixture(scope="module")
def efficiency():
    """A step of training, by the convention of 2021."""
    return crossflops.efficiency(
        Pretraining(),
        torch.zeros(BATCH, TOKENS, dtype=torch.int64),
        as_="deepspeed@2021",
        train=True,
        batch=BATCH,
        fwd_ms=1.0,
        bwd_ms=2.0,
        step_ms=0.5,
        peak_tflops=1.0,
    )


def by_hand():
    """MACs of a pass: of a layer's linears, its two products and its softmax, of the heads."""
    tokens, pairs = BATCH * TOKENS, BATCH * TOKENS**2
    heads = HIDDEN**2 * tokens + MASKED * HIDDEN * VOCABULARY + BATCH * HIDDEN * (HIDDEN + 2)
    return 12 * HIDDEN**2 * tokens, 2 * pairs * HIDDEN, HEADS * pairs, heads


def test_the_count_of_2021_and_the_native_one(efficiency):
    """The convention leaves out both products of attention; a softmax element is a MAC."""
    linears, products, softmax, heads = by_hand()
    (utilization,) = efficiency.efficiency
    assert utilization.step.macs == LAYERS * (linears + softmax) + heads
    assert efficiency.report.macs == LAYERS * (linears + products) + heads


def test_every_difference_has_its_cause(efficiency):
    """The way from the native count to that of 2021 is explained without running DeepSpeed."""
    _, products, softmax, _ = by_hand()
    (account,) = efficiency.report.reconciliations
    amounts = {explanation.cause: explanation.amount for explanation in account.explanations}
    assert account.residual == 0
    assert sorted(amounts.values()) == [-LAYERS * products, LAYERS * softmax]


def test_the_rates_of_a_step(efficiency):
    """2 FLOPs per MAC forward, twice as many backward, over their latencies; samples a second."""
    (utilization,) = efficiency.efficiency
    macs = utilization.step.macs
    rates = [2 * macs / 1e-3, 4 * macs / 2e-3, 6 * macs / 3e-3]
    assert [phase.rate for phase in utilization.step.phases] == pytest.approx(rates)
    assert [phase.ratio for phase in utilization.step.phases] == pytest.approx(
        [rate / 1e12 for rate in rates]
    )
    assert utilization.step.examples_per_second == pytest.approx(BATCH / 3.5e-3)
