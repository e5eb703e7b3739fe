"""Masks of encoders and decoders, whose values decide what runs."""

import pytest

from crossflops.ir.trace import Setting
from tests.models import Apply, exported, nn, operators, torch

pytestmark = pytest.mark.torch
TOKENS = torch.randn(2, 5, 16)
CAUSAL = nn.Transformer.generate_square_subsequent_mask(5)
BANDED = torch.triu(torch.ones(5, 5), 3).bool()
# 10 tokens of width 16: four projections, two products of 5 x 5, two layers to and from 32
ATTENTION = 4 * 10 * 16 * 16 + 2 * 2 * 5 * 5 * 16
FEED_FORWARD = 2 * 10 * 16 * 32


def encoder(**options):
    """Two layers without dropout."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def causal(model, *inputs):
    """MACs, and of every attention whether it was told that its mask is causal."""
    _, trace, ledger = exported(model, *inputs)
    attention = operators(trace, "aten.scaled_dot_product_attention")
    return ledger.total.macs, [call.settings.get("is_causal", False) for call in attention]


@pytest.mark.parametrize(("mask", "said"), [(CAUSAL, True), (BANDED, False)])
def test_an_encoder_compares_its_mask_with_a_causal_one(mask, said):
    """torch/nn/modules/transformer.py: _detect_is_causal_mask, for the encoder as a whole."""
    model = Apply(lambda s, x: s.a(x, mask=mask), a=encoder())
    assert causal(model, TOKENS) == (2 * (ATTENTION + FEED_FORWARD), [said, said])


def test_a_mask_that_is_made_while_the_model_runs():
    """Its values are known to nobody when the model is traced."""
    model = Apply(
        lambda s, x: s.a(x, mask=torch.triu(torch.full((5, 5), float("-inf")), diagonal=1)),
        a=encoder(),
    )
    assert causal(model, TOKENS) == (2 * (ATTENTION + FEED_FORWARD), [True, True])


def test_a_mask_among_the_inputs():
    """What it holds decides, and a decoder asks for both of its masks."""
    layer = nn.TransformerDecoderLayer(16, 4, 32, batch_first=True)
    decoder = nn.TransformerDecoder(layer, 1)
    model = Apply(lambda s, x, m: s.a(x, x, tgt_mask=m), a=decoder)
    macs = 2 * ATTENTION + FEED_FORWARD
    assert causal(model, TOKENS, CAUSAL) == (macs, [True, False])
    assert causal(model, TOKENS, torch.zeros(5, 5)) == (macs, [False, False])


def test_the_model_is_asked_in_the_mode_in_which_it_is_traced():
    """In training, too; and its own function is in its place again."""
    from torch.nn.modules import transformer

    before = transformer._detect_is_causal_mask
    model = Apply(lambda s, x: s.a(x, mask=CAUSAL), a=encoder())
    _, trace, _ = exported(model, TOKENS, setting=Setting(training=True))
    assert [
        call.settings.get("is_causal", False)
        for call in operators(trace, "aten.scaled_dot_product_attention")
    ] == [True, True]
    assert transformer._detect_is_causal_mask is before
