"""What torch.ao has quantized: the MACs of the float model, at the precision of whole numbers."""

import pytest

import crossflops
from tests.models import F, nn, torch

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
quantization = pytest.importorskip("torch.ao.quantization")
IMAGE = torch.randn(1, 3, 8, 8)


class Wrapped(nn.Module):
    """Layers between the places where torch.ao quantizes."""

    def __init__(self, *layers):
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.dequant(self.layers(self.quant(x)))


def dynamic(model, *kinds):
    """The model with the weights of these modules packed."""
    return quantization.quantize_dynamic(model.eval(), set(kinds))


def static(model, example, engine="fbgemm", aware=False):
    """The model with weights and activations quantized, after training for it or not."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine
    try:
        model.train(aware)
        choose = "get_default_qat_qconfig" if aware else "get_default_qconfig"
        model.qconfig = getattr(quantization, choose)(engine)
        (quantization.prepare_qat if aware else quantization.prepare)(model, inplace=True)
        model(example)
        return quantization.convert(model.eval(), inplace=True)
    finally:
        torch.backends.quantized.engine = before


def fused():
    """A convolution with its normalization and activation in one, and a linear layer."""
    layers = Wrapped(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
    ).eval()
    quantization.fuse_modules(layers.layers, [["0", "1", "2"]], inplace=True)
    return static(layers, IMAGE)


class Functions(nn.Module):
    """Sums and products of quantized tensors."""

    def __init__(self):
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.plus, self.times, self.join = (nn.quantized.FloatFunctional() for _ in range(3))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.quant(x)
        y = self.plus.add(x, x)
        return self.dequant(self.head(self.join.cat([y, self.times.mul(y, x)], 1)))


# The model, its input, the MACs of the float model, and its parameters.
STATIC = {
    "fused": (fused, IMAGE, 36 * 4 * 27 + 1440, 108 + 4 + 1450),
    "conv1d": (
        lambda: static(Wrapped(nn.Conv1d(3, 4, 3)), torch.randn(1, 3, 8)),
        torch.randn(1, 3, 8),
        6 * 4 * 9,
        40,
    ),
    "grouped": (
        lambda: static(
            Wrapped(nn.Conv2d(4, 4, 3, groups=4, stride=2, padding=1)), torch.randn(1, 4, 8, 8)
        ),
        torch.randn(1, 4, 8, 8),
        16 * 4 * 9,
        40,
    ),
    "transposed": (
        lambda: static(Wrapped(nn.ConvTranspose2d(3, 4, 2, stride=2)), IMAGE, "qnnpack"),
        IMAGE,
        64 * 3 * 4 * 4,
        52,
    ),
    "aware": (
        lambda: static(Wrapped(nn.Conv2d(3, 4, 3), nn.ReLU()), IMAGE, aware=True),
        IMAGE,
        36 * 4 * 27,
        112,
    ),
    "functions": (lambda: static(Functions(), torch.randn(2, 4)), torch.randn(2, 4), 64, 36),
    "norms": (
        lambda: static(
            Wrapped(
                nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4), nn.Hardswish(), nn.Sigmoid(), nn.ELU(),
                nn.LeakyReLU(), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                nn.LayerNorm(4), nn.Linear(4, 3),
            ),
            IMAGE,
        ),
        IMAGE,
        64 * 12 + 12,
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STATIC)
def test_static_and_aware(name):
    """Each product is one of int8, and packed parameters are counted."""
    build, example, macs, params = STATIC[name]
    report = crossflops.count(build(), (example,))
    assert report.macs == macs
    assert not report.uncounted
    assert report.macs_by_precision == {"int8": macs}
    assert params is None or report.params == params


@pytest.mark.parametrize(
    ("model", "kind", "example", "macs"),
    [
        (nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)), nn.Linear, (2, 16), 1280),
        (nn.Sequential(nn.LSTM(4, 5)), nn.LSTM, (7, 2, 4), 14 * 20 * 9),
        (nn.Sequential(nn.GRU(4, 5)), nn.GRU, (7, 2, 4), 14 * 15 * 9),
        (nn.Sequential(nn.LSTMCell(4, 5)), nn.LSTMCell, (2, 4), 2 * 20 * 9),
    ],
    ids=["linear", "lstm", "gru", "cell"],
)
def test_dynamic(model, kind, example, macs):
    """Weights are whole numbers, activations are rounded on the way."""
    report = crossflops.count(dynamic(model, kind), (torch.randn(*example),))
    assert report.macs_by_precision == {"int8": macs}
    assert not report.uncounted
    assert report.params == sum(parameter.numel() for parameter in model.parameters())


def test_a_graph_that_torch_ao_has_quantized():
    """36 * 4 * 27 of the convolution and 1440 of the linear layer."""
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)).eval()
    prepared = prepare_fx(model, quantization.get_default_qconfig_mapping("fbgemm"), (IMAGE,))
    prepared(IMAGE)
    report = crossflops.count(convert_fx(prepared), (IMAGE,))
    assert report.macs_by_precision == {"int8": 36 * 4 * 27 + 1440}


def test_tools_beside_quantized_modules():
    """They see classes that they do not know, and packed weights that are no parameters."""
    report = crossflops.compare(
        fused(), (IMAGE,), isolate=False, tools=["thop", "torch-flop-counter", "torch-profiler"]
    )
    assert set(report.residuals.values()) == {0}


class Rounding(nn.Module):
    """A linear layer behind what a forward does to its input: 3 rows of 4 become 3 of 8."""

    def __init__(self, quantize):
        super().__init__()
        self.quantize, self.layer = quantize, nn.Linear(4, 8)

    def forward(self, x):
        return self.layer(self.quantize(x))


# Of 12 numbers each: to whole numbers a division, rounding, two comparisons and the zero point;
# back the zero point and a product. The operators of PyTorch do the same in one.
ROUND_TRIP, TO_WHOLE, BACK = 12 * 7, 12 * 5, 12 * 2
CHANNELS = torch.full((3,), 0.1), torch.zeros(3, dtype=torch.int64)
IN_FORWARD = {
    "tensor": (
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize(),
        ROUND_TRIP,
    ),
    "keywords": (
        lambda x: torch.dequantize(
            torch.quantize_per_tensor(x, scale=0.1, zero_point=0, dtype=torch.quint8)
        ),
        ROUND_TRIP,
    ),
    "int32": (
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint32).dequantize(),
        ROUND_TRIP,
    ),
    "channel": (
        lambda x: torch.quantize_per_channel(x, *CHANNELS, 0, torch.quint8).dequantize(),
        ROUND_TRIP,
    ),
    "numbers": (
        lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).int_repr().float(),
        ROUND_TRIP + TO_WHOLE,
    ),
    "fake": (
        lambda x: torch.fake_quantize_per_channel_affine(
            x, CHANNELS[0], torch.zeros(3), 0, -128, 127
        ),
        ROUND_TRIP,
    ),
}


@pytest.mark.parametrize("name", IN_FORWARD)
def test_a_forward_that_quantizes(name):
    """3 * 4 * 8 MACs, their biases, and the rounding."""
    quantize, rounding = IN_FORWARD[name]
    report = crossflops.count(Rounding(quantize), (torch.ones(3, 4),))
    assert not report.uncounted
    assert report.macs == 96
    assert report.flops == 2 * 96 + 3 * 8 + rounding


def test_a_function_imported_by_its_name_is_refused_with_a_remedy():
    """Nothing stands between it and PyTorch."""
    function = torch.quantize_per_tensor
    model = Rounding(lambda x: function(x, 0.1, 0, torch.qint8).dequantize())
    with pytest.raises(crossflops.errors.NormalizeError) as refused:
        crossflops.count(model, (torch.ones(3, 4),))
    assert "imported by name" in refused.value.hint


class Holding(nn.Module):
    """A product with a weight that the model has quantized by itself, and keeps."""

    def __init__(self, quantize, is_buffer, multiply):
        super().__init__()
        self.multiply = multiply
        weight = quantize(torch.randn(8, 4))
        if is_buffer:
            self.register_buffer("weight", weight)
        else:
            self.weight = weight

    def forward(self, x):
        return self.multiply(x, self.weight)


def by_channel(weight):
    """One scale for each row."""
    return torch.quantize_per_channel(
        weight, torch.full((8,), 0.1), torch.zeros(8), 0, torch.qint8
    )


def by_hand(x, weight):
    """The whole numbers times their scales."""
    scales = weight.q_per_channel_scales().float()
    return x @ (weight.int_repr().float() * scales[:, None]).T


HELD = {
    "tensor": lambda weight: torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8),
    "channels": by_channel,
}
READ = {
    "product": lambda x, weight: x @ weight.dequantize().T,
    "linear": lambda x, weight: F.linear(x, weight.dequantize()),
    "by hand": by_hand,
}


@pytest.mark.parametrize("is_buffer", [True, False])
@pytest.mark.parametrize(
    ("held", "read"), [(h, r) for h in HELD for r in READ if (h, r) != ("tensor", "by hand")]
)
def test_a_quantized_tensor_that_a_model_holds(held, read, is_buffer):
    """3 rows of 8 x 4 MACs, however it is quantized, kept and read; the model is left as it is."""
    model = Holding(HELD[held], is_buffer, READ[read])
    report = crossflops.count(model, (torch.ones(3, 4),))
    assert not report.uncounted
    assert report.macs == 3 * 8 * 4
    assert model.weight.is_quantized
