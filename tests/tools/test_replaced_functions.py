"""What DeepSpeed and calflops count, from figures that they printed, and from published ones.

Printed by deepspeed 0.19.8 and calflops 0.3.2 on torch 2.13.0+cpu; those of 2021 by the
profiler.py of deepspeed 0.3.13 on the same torch, each function by itself.
"""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from crossflops.ir.trace import Setting
from crossflops.rules.prediction import PredictionError, predict
from crossflops.tools.registry import find_convention
from tests.models import Apply, F, nn, torch, traced
from tests.tools.test_published_figures import FIGURES

pytestmark = pytest.mark.torch
HOOKED = Setting(hooked=True)
TOOLS = ("calflops", "calflops-macs", "deepspeed", "deepspeed-macs")
PRINTED = {
    "conv_nobias": (110592, 55296, 110592, 55296),
    "conv_bias": (112640, 55296, 112640, 55296),
    "conv_bias_batch4": (450560, 221184, 450560, 221184),
    "convT_bias_s2": (36928, 18432, 37888, 18432),
    "convT_g2_nobias": (9216, 4608, 18432, 9216),
    "linear_bias_3d": (81920, 40960, 81920, 40960),
    "F.linear": (16384, 8192, 16384, 8192),
    "bn2d": (4096, 0, 4096, 0),
    "layernorm": (6400, 0, 6400, 0),
    "groupnorm": (10240, 0, 10240, 0),
    "instnorm_affine": (10240, 0, 10240, 0),
    "rmsnorm": (0, 0, 0, 0),
    "F.relu_captured": (0, 0, 0, 0),
    "nn.Softmax": (1280, 0, 1280, 0),
    "AvgPool2": (2048, 0, 2048, 0),
    "Up_bilinear2": (2048, 0, 8192, 0),
    "F.interp_bilin_size": (1024, 0, 1024, 0),
    "MHA_noweights": (163840, 81920, 189440, 94720),
    "MHA_weights": (164640, 81920, 190240, 94720),
    "SDPA": (0, 0, 25600, 12800),
    "LSTM_1l": (126080, 0, 126080, 0),
    "LSTM_2l_bi": (750080, 0, 750080, 0),
    "GRU_1l": (94400, 0, 94400, 0),
    "RNN_1l": (31040, 0, 31040, 0),
    "a@b_batched": (0, 0, 12800, 6400),
    "torch.matmul_bcast": (960, 480, 960, 480),
    "torch.bmm": (0, 0, 3200, 1600),
    "einsum": (3201, 0, 3201, 0),
    "shared_two_parents": (1179648, 589824, 589824, 294912),
    "direct_forward": (294912, 147456, 294912, 147456),
    "subclassed_conv": (112640, 55296, 112640, 55296),
    "conv_bn_relu": (116736, 55296, 116736, 55296),
    "TransformerEncLayer": (334080, 163840, 359680, 176640),
}


@pytest.mark.parametrize("probe", PRINTED)
def test_both_tools_are_predicted(probe):
    """To the last integer, from the trace alone."""
    model, inputs, *_ = FIGURES[probe]
    trace = traced(model.eval(), *inputs, observed=(HOOKED,))
    predicted = tuple(predict(find_convention(tool), trace, Setting()).total for tool in TOOLS)
    assert predicted == PRINTED[probe]


class Layer(nn.Module):
    """A layer of BERT-Large: attention written with matmul, and softmax as a module."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(1024, 1024) for _ in range(4))
        self.wide, self.narrow = nn.Linear(1024, 4096), nn.Linear(4096, 1024)
        self.softmax = nn.Softmax(dim=-1)
        self.norm = nn.LayerNorm(1024)

    def forward(self, x):
        """Attend, and feed forward."""
        query, key, value = (
            layer(x).view(*x.shape[:2], 16, 64).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = self.softmax(torch.matmul(query, key.transpose(-1, -2)) / 8.0)
        mixed = torch.matmul(scores, value).transpose(1, 2).reshape(x.shape)
        x = self.norm(self.out(mixed) + x)
        return self.norm(self.narrow(F.gelu(self.wide(x))) + x)


class Bert(nn.Module):
    """BERT-Large with its heads, behind the embeddings; 1159 of the words are masked."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(24))
        self.transform, self.decoder = nn.Linear(1024, 1024), nn.Linear(1024, 30528)
        self.pooler, self.next = nn.Linear(1024, 1024), nn.Linear(1024, 2)

    def forward(self, x, masked):
        """Both heads."""
        for layer in self.layers:
            x = layer(x)
        words = F.gelu(self.transform(x)).reshape(-1, 1024)
        return self.decoder(words[masked]), self.next(torch.tanh(self.pooler(x[:, 0])))


def test_the_published_figure_of_bert_large():
    """3139.93 GMACs, batch 80, 128 words: softmax counts, products of attention do not."""
    with torch.device("meta"):
        model = Bert().eval()
        words, masked = torch.randn(80, 128, 1024), torch.zeros(1159, dtype=torch.long)
    trace = traced(model, words, masked)
    total = predict(find_convention("deepspeed", "2021"), trace, Setting()).total
    rows = 80 * 128
    layer = rows * 12 * 1024**2 + 80 * 16 * 128**2
    heads = rows * 1024**2 + 1159 * 1024 * 30528 + 80 * 1024**2 + 80 * 1024 * 2
    assert total == 24 * layer + heads == 3139932356608


@pytest.mark.parametrize(
    ("model", "inputs", "figure"),
    [
        # 8 x 256 x 27 and the biases; 8 x (8 // 1) x 9 x 64, and biases of 8 x 4 x 4
        (nn.Conv2d(3, 8, 3, padding=1), (torch.randn(1, 3, 16, 16),), 55296 + 2048),
        (nn.ConvTranspose2d(8, 4, 3, 2, 1), (torch.randn(1, 8, 8, 8),), 36864 + 128),
        # two channels, 2 x 6 of 2 x 6 x 6 positions, 3 x 3 of 3 x 3 x 3 weights
        (nn.Conv3d(3, 2, 3, padding=1, bias=False), (torch.randn(1, 3, 2, 6, 6),), 2 * 12 * 27),
        (nn.BatchNorm2d(8, affine=False), (torch.randn(1, 8, 16, 16),), 4096),
        (nn.GELU(), (torch.randn(1, 8),), 0),
        # 5 x 2 x (128 x 48 + 10 x 32 + 2 x 128)
        (nn.LSTM(16, 32), (torch.randn(5, 2, 16),), 67200),
    ],
    ids=lambda value: type(value).__name__,
)
def test_in_2021_there_was_one_number(model, inputs, figure):
    """MACs and all else in one."""
    trace = traced(model.eval(), *inputs)
    assert predict(find_convention("deepspeed", "2021"), trace, Setting()).total == figure


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (nn.Conv1d(4, 8, 3), (torch.randn(1, 4, 40),)),
        (nn.LeakyReLU(), (torch.randn(1, 8),)),
        (nn.Upsample(scale_factor=2), (torch.randn(1, 2, 4, 4),)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_in_2021_it_failed_on_these(model, inputs):
    """One spatial axis, an activation with two more arguments, one scale for all axes."""
    trace = traced(model.eval(), *inputs)
    with pytest.raises(PredictionError, match="deepspeed cannot count"):
        predict(find_convention("deepspeed", "2021"), trace, Setting())


def test_a_keyword_that_the_tool_does_not_have_ends_it():
    """F.adaptive_avg_pool2d(x, output_size=1): the MACs fail with the FLOPs."""
    trace = traced(
        Apply(lambda s, x: F.adaptive_avg_pool2d(x, output_size=1)), torch.randn(1, 2, 4, 4)
    )
    for tool in TOOLS:
        with pytest.raises(PredictionError, match="no argument output_size"):
            predict(find_convention(tool), trace, Setting())


def _hooked(layer):
    """A model of one layer, with a sum of 3 x 8 ahead of both and one behind both."""
    model = nn.Sequential(layer)
    for hooked in (layer, model):
        hooked.register_forward_pre_hook(lambda module, given: (torch.add(given[0], 1),))
        hooked.register_forward_hook(lambda module, given, y: torch.add(y, y))
    return model


def test_what_hooks_do_counts_where_the_tool_begins_and_ends_its_lists():
    """Its hooks come last: the model's pre-hook is lost, that of the layer is the model's.

    DeepSpeed 0.19.8 printed 2 x 192 + 24 at the layer and 48 more in all, and so did calflops.
    """
    trace = traced(_hooked(nn.Linear(8, 8)), torch.randn(3, 8))
    for tool in ("deepspeed", "calflops"):
        prediction = predict(find_convention(tool), trace, Setting())
        assert prediction.total == 2 * 192 + 3 * 24
        assert (
            sum(booking.amount for booking in prediction.bookings if booking.path == "0")
            == 192 + 24
        )


def test_what_hooks_of_a_recurrent_layer_do_is_its_callers():
    """DeepSpeed 0.19.8 printed 11120: 11040 for the LSTM, as one hook, and 5 x 2 x 8 products."""
    layer = nn.LSTM(8, 8)
    layer.register_forward_hook(lambda module, given, y: (torch.mul(y[0], 2), y[1]))
    trace = traced(Apply(lambda s, x: s.layer(x)[0], layer=layer), torch.randn(5, 2, 8))
    prediction = predict(find_convention("deepspeed"), trace, Setting())
    assert prediction.total == 11120
    assert [booking.amount for booking in prediction.bookings if booking.path == ""] == [80]
    alone = traced(layer, torch.randn(5, 2, 8))
    assert predict(find_convention("deepspeed"), alone, Setting()).total == 11040
