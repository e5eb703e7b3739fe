"""Totals that the tools themselves printed for small models, predicted without them.

Printed by thop 0.1.1.post2209072238, fvcore 0.1.5.post20221221 (with gradients) and
FlopCounterMode of torch 2.13.0+cpu (without) on Python 3.11, and, in the second table, by thop
0.0.31.post2005241907.
"""

import pytest

from crossflops.ir.trace import Setting
from crossflops.rules.prediction import predict
from crossflops.tools.registry import find_convention
from tests.models import (
    Apply,
    F,
    Holder,
    MyConv,
    block,
    captured_relu,
    encoder_layer,
    nn,
    torch,
    traced,
)

pytestmark = pytest.mark.torch
TOOLS = ("thop", "fvcore", "torch-flop-counter")
VIEWS = [find_convention(tool).view(Setting(grad=tool == "fvcore")) for tool in TOOLS[1:]]
IMAGE, WIDE = torch.randn(1, 3, 16, 16), torch.randn(1, 8, 16, 16)
ROWS, WORDS = torch.randn(2, 10, 64), torch.randn(2, 10, 32)
STEPS = torch.randn(5, 2, 16)


def first(layer):
    """A model that gives the first result of a recurrent layer."""
    return Apply(lambda s, x: s.layer(x)[0], layer=layer)


def attention(weights):
    """Self-attention of width 32 with 4 heads, with or without returning its weights."""
    return Apply(
        lambda s, x: s.m(x, x, x, need_weights=weights)[0],
        m=nn.MultiheadAttention(32, 4, batch_first=True),
    )


def of(layer):
    """A model with one layer."""
    return nn.Sequential(layer)


def two_parents():
    """One convolution that two modules hold."""
    shared = nn.Conv2d(8, 8, 3, padding=1, bias=False)
    return Apply(lambda s, x: s.b(s.a(x)), a=Holder(shared), b=Holder(shared))


def same(**options):
    """A convolution from 3 to 8 channels that keeps 16x16."""
    return nn.Conv2d(3, 8, 3, padding=1, **options)


def wide(**options):
    """A convolution of 8 channels that keeps 16x16."""
    return nn.Conv2d(8, 8, 3, padding=1, bias=False, **options)


FIGURES = {
    "conv_nobias": (of(same(bias=False)), (IMAGE,), 55296, 55296, 110592),
    "conv_bias": (of(same()), (IMAGE,), 55296, 55296, 110592),
    "conv_bias_batch4": (of(same()), (torch.randn(4, 3, 16, 16),), 221184, 221184, 442368),
    "conv_group4": (
        of(nn.Conv2d(8, 16, 3, padding=1, groups=4)), (WIDE,), 73728, 73728, 147456,
    ),
    "conv_dil2": (
        of(nn.Conv2d(3, 8, 3, padding=2, dilation=2)), (IMAGE,), 55296, 55296, 110592,
    ),
    "conv_same_even": (of(nn.Conv2d(3, 8, 4, padding="same")), (IMAGE,), 98304, 0, 196608),
    "conv1d": (of(nn.Conv1d(4, 8, 3, padding=1)), (torch.randn(1, 4, 40),), 3840, 3840, 7680),
    "conv3d": (
        of(nn.Conv3d(3, 8, 3, padding=1)), (torch.randn(1, 3, 2, 6, 6),), 46656, 46656, 93312,
    ),
    "convT_bias_s2": (
        of(nn.ConvTranspose2d(8, 4, 3, 2, 1, 1)), (torch.randn(1, 8, 8, 8),),
        73728, 18432, 36864,
    ),
    "convT_g2_nobias": (
        of(nn.ConvTranspose2d(8, 4, 3, 2, 1, 1, groups=2, bias=False)),
        (torch.randn(1, 8, 8, 8),), 36864, 9216, 18432,
    ),
    "unbatched conv": (of(same(bias=False)), (torch.randn(3, 16, 16),), 294912, 55296, 110592),
    "linear_bias_2d": (of(nn.Linear(64, 32)), (torch.randn(4, 64),), 8192, 8192, 16384),
    "linear_bias_3d": (of(nn.Linear(64, 32)), (ROWS,), 40960, 40960, 81920),
    "F.linear": (
        Apply(lambda s, x: F.linear(x, s.w.weight), w=nn.Linear(64, 32)),
        (torch.randn(4, 64),), 0, 8192, 16384,
    ),
    "F.conv2d": (
        Apply(lambda s, x: F.conv2d(x, s.w.weight, padding=1), w=same()), (IMAGE,),
        0, 55296, 110592,
    ),
    "bn2d": (of(nn.BatchNorm2d(8)), (WIDE,), 8192, 4096, 0),
    "layernorm": (of(nn.LayerNorm(64)), (ROWS,), 5120, 6400, 0),
    "groupnorm": (of(nn.GroupNorm(4, 8)), (WIDE,), 0, 10240, 0),
    "instnorm_affine": (of(nn.InstanceNorm2d(8, affine=True)), (WIDE,), 8192, 10240, 0),
    "rmsnorm": (of(nn.RMSNorm(64)), (ROWS,), 0, 0, 0),
    "nn.LeakyReLU": (of(nn.LeakyReLU()), (WIDE,), 0, 0, 0),
    "nn.PReLU": (of(nn.PReLU()), (WIDE,), 2048, 0, 0),
    "F.relu_captured": (Apply(lambda s, x: captured_relu(x)), (WIDE,), 0, 0, 0),
    "nn.Softmax": (of(nn.Softmax(-1)), (ROWS,), 3820, 0, 0),
    "F.softmax": (Apply(lambda s, x: F.softmax(x, -1)), (ROWS,), 0, 0, 0),
    "AvgPool2": (of(nn.AvgPool2d(2)), (WIDE,), 512, 0, 0),
    "AdaptAvg1": (of(nn.AdaptiveAvgPool2d(1)), (WIDE,), 2056, 2048, 0),
    "AdaptAvg5": (of(nn.AdaptiveAvgPool2d(5)), (WIDE,), 2248, 2048, 0),
    "Up_nearest2": (of(nn.Upsample(scale_factor=2)), (WIDE,), 8192, 8192, 0),
    "Up_bilinear2": (of(nn.Upsample(scale_factor=2, mode="bilinear")), (WIDE,), 90112, 32768, 0),
    "F.interp_bilin_size": (
        Apply(lambda s, x: F.interpolate(x, size=(32, 32), mode="bilinear")), (WIDE,),
        0, 32768, 0,
    ),
    "MHA_noweights": (attention(False), (WORDS,), 0, 81920, 0),
    "MHA_weights": (attention(True), (WORDS,), 0, 94720, 0),
    "SDPA": (
        Apply(lambda s, x: F.scaled_dot_product_attention(x, x, x)),
        (torch.randn(2, 4, 10, 8),), 0, 0, 0,
    ),
    "LSTM_1l": (first(nn.LSTM(16, 32)), (STEPS,), 66560, 0, 0),
    "LSTM_2l_bi": (first(nn.LSTM(16, 32, 2, bidirectional=True)), (STEPS,), 389120, 0, 0),
    "GRU_1l": (first(nn.GRU(16, 32)), (STEPS,), 50240, 0, 92160),
    "RNN_1l": (first(nn.RNN(16, 32)), (STEPS,), 16320, 0, 30720),
    "a@b_batched": (
        Apply(lambda s, a, b: a @ b), (torch.randn(4, 10, 8), torch.randn(4, 8, 20)),
        0, 6400, 12800,
    ),
    "torch.matmul_bcast": (
        Apply(lambda s, a, b: torch.matmul(a, b)),
        (torch.randn(6, 8), torch.randn(2, 4, 8, 10)), 0, 480, 7680,
    ),
    "torch.bmm": (
        Apply(lambda s, a, b: torch.bmm(a, b)),
        (torch.randn(2, 10, 8), torch.randn(2, 8, 10)), 0, 1600, 3200,
    ),
    "einsum": (
        Apply(lambda s, a, b: torch.einsum("bij,bjk->bik", a, b)),
        (torch.randn(2, 10, 8), torch.randn(2, 8, 10)), 0, 1600, 3200,
    ),
    "shared_called_twice": (
        Apply(lambda s, x: s.c(s.c(x)), c=wide()), (WIDE,), 294912, 294912, 589824,
    ),
    "shared_two_parents": (two_parents(), (WIDE,), 1179648, 294912, 589824),
    "unused_submodule": (
        Apply(lambda s, x: s.c(x), c=wide(), d=wide()), (WIDE,), 147456, 147456, 294912,
    ),
    "direct_forward": (
        Apply(lambda s, x: s.c.forward(x), c=wide()), (WIDE,), 0, 147456, 294912,
    ),
    "dead conv": (
        Apply(lambda s, x: (s.c(x), s.d(x))[0], c=wide(), d=wide()), (WIDE,),
        294912, 147456, 589824,
    ),
    "py_loop3": (
        Apply(lambda s, x: s.l(s.l(s.l(x))), l=nn.Linear(8, 8)), (torch.randn(4, 8),),
        768, 768, 1536,
    ),
    "subclassed_conv": (of(MyConv(3, 8, 3, padding=1)), (IMAGE,), 0, 55296, 110592),
    "conv_bn_relu": (block(), (IMAGE,), 63488, 59392, 110592),
    "TransformerEncLayer": (encoder_layer(), (WORDS,), 87040, 170240, 0),
}  # fmt: skip
CASES = [
    (probe, tool, figure)
    for probe, (_, _, *figures) in FIGURES.items()
    for tool, figure in zip(TOOLS, figures, strict=True)
]


@pytest.fixture(scope="module")
def traces():
    """The trace of every probe, made once."""
    return {
        probe: traced(model.eval(), *inputs, observed=VIEWS)
        for probe, (model, inputs, *_) in FIGURES.items()
    }


@pytest.mark.parametrize(("probe", "tool", "figure"), CASES)
def test_a_convention_predicts_what_its_tool_printed(traces, probe, tool, figure):
    """To the last integer, from the trace alone."""
    asked = Setting(grad=tool == "fvcore")
    assert predict(find_convention(tool), traces[probe], asked).total == figure


def test_batch_norm_in_training_is_five_per_element_for_fvcore():
    """fvcore leaves the mode to its caller: 10240 for 2048 elements."""
    training = Setting(training=True)
    view = find_convention("fvcore").view(training)
    trace = traced(of(nn.BatchNorm2d(8)), WIDE, setting=training, observed=(view,))
    assert predict(find_convention("fvcore"), trace, training).total == 10240


@pytest.mark.parametrize(
    ("model", "inputs", "figure"),
    [
        (of(same()), (IMAGE,), 57344),
        (of(nn.ConvTranspose2d(8, 4, 3, 2, 1, 1)), (torch.randn(1, 8, 8, 8),), 74752),
        (of(nn.AdaptiveAvgPool2d(5)), (WIDE,), 2000),
        (of(nn.BatchNorm2d(8)), (WIDE,), 4096),
        (of(nn.LayerNorm(64)), (ROWS,), 0),
        (of(nn.Softmax(-1)), (ROWS,), 0),
        (of(nn.PReLU()), (WIDE,), 0),
        (of(nn.InstanceNorm2d(8, affine=True)), (WIDE,), 0),
        (nn.LSTM(16, 32), (STEPS,), 0),
        (of(nn.LSTM(16, 32)), (STEPS,), 66560),
    ],
    ids=lambda value: type(value).__name__,
)
def test_thop_0_0_31_counts_otherwise(model, inputs, figure):
    """Biases of convolutions, floored windows, half the batch norm, and no rule of the root."""
    trace = traced(model.eval(), *inputs)
    assert predict(find_convention("thop", "0.0.31"), trace, Setting()).total == figure
