"""Models that are odd in one way each, with the tools themselves: nothing is left over.

Every amount is derived by hand. ROWS is 4x8, a square layer on it does 4 * 8 * 8 = 256 MACs.
"""

import pytest

import crossflops
from tests.models import Apply, F, nn, torch

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("three_tools")]
ROWS, IMAGE = ["4x8"], ["1x3x8x8"]
TOOLS = ["thop", "fvcore", "torch-flop-counter"]
SETTINGS = (
    crossflops.Setting(),
    crossflops.Setting(grad=False),
    crossflops.Setting(training=True),
)


class Product(torch.autograd.Function):
    """x @ w, with a backward of its own."""

    @staticmethod
    def forward(ctx, x, w):
        return x @ w

    @staticmethod
    def backward(ctx, g):
        return g, None


@torch.jit.script
def scripted(x, w):
    """A scripted product."""
    return x @ w


def square(name="layer"):
    """A square layer without a bias."""
    return {name: nn.Linear(8, 8, bias=False)}


def weight():
    """A square weight that is no layer's."""
    return {"w": nn.Parameter(torch.ones(8, 8))}


def hooked():
    """A layer, a hook of which multiplies once more."""
    model, more = nn.Sequential(nn.Linear(8, 8)), torch.ones(8, 8)
    model[0].register_forward_hook(lambda module, inputs, output: output @ more)
    return model


def spectral():
    """Power iteration on a (4, 27) weight: in evaluation W v, 108, and u . W v, 4."""
    return nn.Sequential(torch.nn.utils.spectral_norm(nn.Conv2d(3, 4, 3)))


def patched():
    """A layer with another forward, which multiplies by its own weight and by one more."""
    model, more = nn.Sequential(nn.Linear(8, 8)), nn.Parameter(torch.ones(8, 8))
    model[0].more = more
    model[0].forward = lambda x: F.linear(x, model[0].weight) @ more
    return model


def running(s, x):
    """A running product in a buffer, which no output reads."""
    s.mean.mul_(0.9).add_(x.mean(0) @ s.w)
    return s.layer(x)


def buffered():
    """The layer, and 8 x 8 for the running product."""
    model = Apply(running, **square(), **weight())
    model.register_buffer("mean", torch.zeros(8))
    return model


def compared(model, inputs, setting=SETTINGS[0], tools=TOOLS):
    """The report, with no residual."""
    report = crossflops.compare(model, inputs, tools=tools, setting=setting, isolate=False)
    assert set(report.residuals) == set(tools), report.profiles
    assert set(report.residuals.values()) == {0}
    return report


def causes(report, tool):
    """Amounts by cause."""
    return {
        explanation.cause: explanation.amount
        for explanation in report.reconciliation(tool).explanations
    }


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.id)
@pytest.mark.parametrize(
    ("model", "macs", "thop", "fvcore"),
    [
        (lambda: hooked(), 512, {"module.hook-work": -256}, {}),
        (
            lambda: Apply(lambda s, x: Product.apply(x, s.w), **weight()),
            256,
            {"matmul.operator-invisible": -256},
            {"function.opaque": -256},
        ),
        (
            # compiled, it is one call: no `@` is left in it
            lambda: Apply(lambda s, x: scripted(x, s.w), **weight()),
            256,
            {"functional.invisible": -256},
            {"function.opaque": -256},
        ),
        (
            lambda: Apply(
                lambda s, x: torch.utils.checkpoint.checkpoint(s.layer, x, use_reentrant=False),
                **square(),
            ),
            256,
            {},
            {},
        ),
        # a hook sees one example of 8 x 8, four of them run
        (
            lambda: Apply(lambda s, x: torch.vmap(s.layer)(x), **square()),
            256,
            {"function.vmap": -192},
            {},
        ),
        # 4 x 4 x 8 for the square, then x^2, x^4, x^5 of 4 x 4: three products of 64
        (
            lambda: Apply(lambda s, x: torch.linalg.matrix_power(x @ x.T, 5)),
            128 + 3 * 64,
            {"matmul.operator-invisible": -128, "functional.invisible": -192},
            {"op.unregistered-zero": -192},
        ),
        (lambda: buffered(), 256, {}, {"control.dead-code": 64}),
    ],
)
def test_every_tool_is_explained(model, macs, thop, fvcore, setting):
    """By the causes that are true of it, in every setting."""
    report = compared(model(), ROWS, setting)
    assert report.macs == macs
    assert (causes(report, "thop"), causes(report, "fvcore")) == (thop, fvcore)
    theirs = report.reconciliation("torch-flop-counter").theirs
    assert theirs == 2 * (macs + (64 if "control.dead-code" in fvcore else 0))


def test_spectral_norm_is_the_hooks_work():
    """Not a matter of the convolution's formula: 4 x 36 outputs x 27."""
    report = compared(spectral(), IMAGE)
    assert report.macs == 144 * 27 + 112
    assert causes(report, "thop") == {"module.hook-work": -112}
    assert causes(report, "fvcore") == {"op.unregistered-zero": -112}


def test_a_patched_forward_is_no_subclass():
    """The layer's own product counts, the other is an operator's; fvcore cannot trace it."""
    report = compared(patched(), ROWS, tools=["thop", "torch-flop-counter"])
    assert causes(report, "thop") == {"matmul.operator-invisible": -256}


def test_a_module_in_a_list_is_registered_nowhere():
    """fvcore cannot trace it; thop never hooks it."""
    hidden = [nn.Linear(8, 8)]
    model = Apply(lambda s, x: hidden[0](s.layer(x)), **square())
    report = compared(model, ROWS, tools=["thop", "torch-flop-counter"])
    assert causes(report, "thop") == {"module.unregistered": -256}


def test_padding_makes_a_ragged_tensor_on_the_fast_path():
    """Two encoder layers on 2 x 5 x 8, 16 features, without gradients; fvcore itself fails there.

    A layer: projections 4 * 10 * 64, products 2 * 2 * 25 * 8, features 2 * 10 * 8 * 16, two norms.
    """
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    padding = torch.zeros(2, 5, dtype=torch.bool)
    model = Apply(
        lambda s, x: s.encoder(x, src_key_padding_mask=padding),
        encoder=nn.TransformerEncoder(layer, 2),
    )
    report = compared(model, ["2x5x8"], SETTINGS[1], ["thop", "torch-flop-counter"])
    assert report.macs == 2 * (2560 + 800 + 2560)
    assert causes(report, "torch-flop-counter") == {"attention.module-fastpath": -11840}
    assert causes(report, "thop") == {
        "attention.sdpa": -1600,
        "functional.invisible": -5120,
        "norm.layer": 4 * 4 * 80,
    }


def test_a_complex_product_is_four():
    """(4, 8) @ (8, 4): 128 products of complex numbers."""
    model = Apply(lambda s, x: (x @ x.T).abs())
    report = compared(model, ["4x8:complex64"])
    assert report.macs == 4 * 128
    assert causes(report, "fvcore") == {"contraction.complex": -3 * 128}
    assert causes(report, "torch-flop-counter") == {
        "contraction.complex": -3 * 128,
        "unit.mac-vs-flop": 128,
    }
