"""Which calls collapse into a fused kernel, setting by setting."""

import pytest

from crossflops.ir.trace import Setting
from tests.models import Apply, F, encoder_layer, exported, nn, operators, torch, traced

pytestmark = pytest.mark.torch
GRAD = Setting()
NO_GRAD = Setting(grad=False)
HOOKED = Setting(grad=False, hooked=True)
WORDS = torch.randn(2, 10, 32)
FLASH = "aten._scaled_dot_product_flash_attention_for_cpu"


def fused(model, *inputs):
    """By setting: the kernel of every contraction that was swallowed, by operator."""
    trace = traced(model, *inputs, observed=(GRAD, NO_GRAD, HOOKED))
    by_setting = {}
    for setting in (GRAD, NO_GRAD, HOOKED):
        for name in ("aten.linear", "aten.scaled_dot_product_attention", "aten.lstm", "aten.gru"):
            kernels = {
                call.fused[setting.id].rpartition(".")[0]
                for call in operators(trace, name)
                if setting.id in call.fused
            }
            if kernels:
                by_setting.setdefault(setting.id, {})[name] = kernels
    return by_setting


def test_an_encoder_layer_is_one_kernel_without_gradients_and_hooks():
    """Hooks on its modules switch its own path off, but not that of the attention inside."""
    kernels = fused(encoder_layer(), WORDS)
    assert kernels == {
        "eval grad": {"aten.scaled_dot_product_attention": {FLASH}},
        "eval no_grad": {
            "aten.linear": {"aten._transformer_encoder_layer_fwd"},
            "aten.scaled_dot_product_attention": {"aten._transformer_encoder_layer_fwd"},
        },
        "eval no_grad hooked": {
            "aten.linear": {"aten._native_multi_head_attention"},
            "aten.scaled_dot_product_attention": {"aten._native_multi_head_attention"},
        },
    }


def test_the_trace_says_which_kernels_ran_and_where():
    """By setting: each kernel, how often, and the modules; nothing of a setting not looked at."""
    model = nn.Sequential(encoder_layer(), encoder_layer())
    kernels = traced(model, WORDS, observed=(NO_GRAD, HOOKED)).kernels
    assert {
        setting: [(kernel.name.rpartition(".")[0], kernel.times, kernel.modules) for kernel in ran]
        for setting, ran in kernels.items()
    } == {
        "eval no_grad": [("aten._transformer_encoder_layer_fwd", 2, ("0", "1"))],
        "eval no_grad hooked": [
            ("aten._native_multi_head_attention", 2, ("0.self_attn", "1.self_attn"))
        ],
    }
    assert traced(nn.Sequential(nn.Linear(32, 4)), WORDS, observed=(GRAD,)).kernels == {
        GRAD.id: ()
    }


def test_hooks_leave_the_feed_forward_layers_of_an_encoder_layer_alone():
    """Only what is inside of the attention module is swallowed there: not linear1 and linear2."""
    trace = traced(encoder_layer(), WORDS, observed=(HOOKED,))
    swallowed = {
        trace.modules[call.module].path: HOOKED.id in call.fused
        for call in operators(trace, "aten.linear")
    }
    assert swallowed["linear1"] is False
    assert swallowed["linear2"] is False
    assert swallowed["self_attn"] is True


def test_an_attention_module_is_one_kernel_without_gradients():
    """nn.MultiheadAttention takes its own fast path, hooks or not."""
    model = Apply(
        lambda s, x: s.m(x, x, x, need_weights=False)[0],
        m=nn.MultiheadAttention(32, 4, batch_first=True),
    )
    native = {
        "aten.linear": {"aten._native_multi_head_attention"},
        "aten.scaled_dot_product_attention": {"aten._native_multi_head_attention"},
    }
    assert fused(model, WORDS) == {
        "eval grad": {"aten.scaled_dot_product_attention": {FLASH}},
        "eval no_grad": native,
        "eval no_grad hooked": native,
    }


def test_attention_by_function_is_the_flash_kernel():
    """In every setting the CPU runs one kernel."""
    model = Apply(lambda s, x: F.scaled_dot_product_attention(x, x, x))
    only = {"aten.scaled_dot_product_attention": {FLASH}}
    assert fused(model, torch.randn(2, 4, 10, 8)) == {
        "eval grad": only,
        "eval no_grad": only,
        "eval no_grad hooked": only,
    }


def test_a_recurrent_layer_is_one_kernel():
    """An LSTM runs in oneDNN, a GRU in products that are seen."""
    kernel = {"aten.lstm": {"aten.mkldnn_rnn_layer"}}
    steps = torch.randn(5, 2, 16)
    lstm = Apply(lambda s, x: s.m(x)[0], m=nn.LSTM(16, 32, 2))
    assert fused(lstm, steps) == dict.fromkeys(
        ("eval grad", "eval no_grad", "eval no_grad hooked"), kernel
    )
    assert fused(Apply(lambda s, x: s.m(x)[0], m=nn.GRU(16, 32)), steps) == {}


def test_the_same_layer_called_twice_is_swallowed_twice():
    """Kernels are matched by the calls around them, not by the module alone."""
    model = Apply(lambda s, x: s.layer(s.layer(x)), layer=encoder_layer())
    trace = traced(model, WORDS, observed=(NO_GRAD,))
    calls = operators(trace, "aten.linear")
    assert len(calls) == 8
    assert all(NO_GRAD.id in call.fused for call in calls)


def test_nothing_is_swallowed_where_nobody_looked():
    """Without an observed setting calls say nothing of kernels."""
    assert not [call for call in traced(encoder_layer(), WORDS).calls if call.fused]


@pytest.mark.parametrize("grad", [True, False])
def test_padding_in_an_encoder_is_observed(grad):
    """Without gradients an encoder packs its rows by the mask: such tensors have no one shape.

    The count is that of the padded rows, 20 of 32: per layer projections 20*32*128, products
    2*20*10*32, feed-forward 2*20*32*64.
    """
    model = nn.TransformerEncoder(encoder_layer(), 2).eval()
    mask = torch.zeros(2, 10, dtype=torch.bool)
    mask[0, 6:] = True
    _, _, ledger = exported(
        model,
        WORDS,
        setting=Setting(grad=grad),
        observed=(Setting(grad=grad), HOOKED),
        src_key_padding_mask=mask,
    )
    assert ledger.total.macs == 2 * (20 * 32 * 128 + 2 * 20 * 10 * 32 + 2 * 20 * 32 * 64)


def test_modules_that_deal_with_nested_tensors_are_told():
    """A padding mask makes one in the encoder, for its layers alone, where no gradients are."""
    encoder = nn.TransformerEncoder(encoder_layer(), 1)
    mask = torch.zeros(2, 10, dtype=torch.bool)
    mask[:, 7:] = True
    model = Apply(lambda model, x: model.inner(x, src_key_padding_mask=mask), inner=encoder)
    trace = traced(model, WORDS, observed=(GRAD, HOOKED))
    nested = {
        (trace.modules[call.module].path, setting)
        for call in trace.calls
        for setting, kernel in call.fused.items()
        if call.level == "module" and kernel == "nested:14"  # 2 x 7
    }
    assert ("inner.layers.0", HOOKED.id) in nested
    assert ("inner", HOOKED.id) not in nested
    assert not any(setting == GRAD.id for _, setting in nested)
