"""Models that everybody has, written in Flax NNX: what XLA counts, explained to the last one."""

from functools import partial

import pytest
from crossflops_jax import CompiledProgram, LoweredProgram

from crossflops.frontends import normalize
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.reconcile.walk import reconcile
from crossflops.rules.prediction import predict
from crossflops.targets import source_from_object
from crossflops.tools.registry import find_convention

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")
nnx = pytest.importorskip("flax.nnx")

pytestmark = pytest.mark.jax
TOOLS = (LoweredProgram(), CompiledProgram())


def spec(*shape, dtype="float32"):
    """An input of this shape."""
    return jax.ShapeDtypeStruct(shape, dtype)


def explained(model, *specs):
    """The reconciliations of both tools; every node has a count, and the residual is 0."""
    conventions = [find_convention(tool.convention) for tool in TOOLS]
    source = source_from_object(model, (specs, {}))
    views = [convention.view(Setting()) for convention in conventions]
    graph, trace = normalize(source, Setting(), views)
    ledger = count(graph)
    assert not ledger.uncounted
    accounts = []
    for tool, convention in zip(TOOLS, conventions, strict=True):
        prediction = predict(convention, trace, Setting(), ledger)
        answer = tool.profile(source.model, source.args, source.kwargs, Setting())
        accounts.append(reconcile(prediction, trace, ledger, answer))
        assert accounts[-1].residual == 0
        assert accounts[-1].predicted == answer.total
    return accounts


def causes(account):
    """Amount by cause."""
    return {explanation.cause: explanation.amount for explanation in account.explanations}


class Bottleneck(nnx.Module):
    """Three convolutions, the second one strided, beside a projection where sizes change."""

    def __init__(self, channels, width, stride, rngs):
        conv = partial(nnx.Conv, use_bias=False, rngs=rngs)
        self.convs = nnx.List(
            [
                conv(channels, width, (1, 1)),
                conv(width, width, (3, 3), strides=stride, padding=1),
                conv(width, 4 * width, (1, 1)),
            ]
        )
        self.norms = nnx.List(
            [nnx.BatchNorm(features, rngs=rngs) for features in (width, width, 4 * width)]
        )
        self.projects = stride > 1 or channels != 4 * width
        if self.projects:
            self.projection = conv(channels, 4 * width, (1, 1), strides=stride)
            self.norm = nnx.BatchNorm(4 * width, rngs=rngs)

    def __call__(self, x):
        y = nnx.relu(self.norms[0](self.convs[0](x)))
        y = nnx.relu(self.norms[1](self.convs[1](y)))
        y = self.norms[2](self.convs[2](y))
        return nnx.relu(y + (self.norm(self.projection(x)) if self.projects else x))


class ResNet50(nnx.Module):
    """The one with the stride in the 3x3 convolutions."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 64, (7, 7), strides=2, padding=3, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(64, rngs=rngs)
        blocks, channels = [], 64
        for width, depth in ((64, 3), (128, 4), (256, 6), (512, 3)):
            for place in range(depth):
                stride = 2 if width > 64 and place == 0 else 1
                blocks.append(Bottleneck(channels, width, stride, rngs))
                channels = 4 * width
        self.blocks = nnx.List(blocks)
        self.head = nnx.Linear(2048, 1000, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x)))
        x = nnx.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


def valid(size, kernel, stride, padding):
    """Taps along one axis that meet the image, of all that there are."""
    result = (size + 2 * padding - kernel) // stride + 1
    places = [at * stride - padding + tap for at in range(result) for tap in range(kernel)]
    return sum(0 <= place < size for place in places) ** 2, (result * kernel) ** 2


def taps_on_padding():
    """The MACs of the 17 padded convolutions that fall on padding."""
    convs = [(224, 7, 2, 3, 3 * 64)]
    for size, width, depth in ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3)):
        first = (size, 3, 1, 1) if width == 64 else (2 * size, 3, 2, 1)
        convs.append((*first, width * width))
        convs += [(size, 3, 1, 1, width * width)] * (depth - 1)
    pairs = [(valid(*conv[:4]), conv[4]) for conv in convs]
    return sum((every - met) * channels for (met, every), channels in pairs)


def test_resnet50():
    """3 n and 2 per channel for batch norm, ReLU, sums, a pool, a mean; 2 per MAC off padding."""
    lowered, compiled = explained(ResNet50(nnx.Rngs(0)), spec(1, 224, 224, 3))
    assert (lowered.theirs, compiled.theirs) == (7_946_727_424, 7_997_334_528)
    assert lowered.ours == 4_089_184_256
    normalized, channels = 11_113_984, 26_560
    sums = 5_519_360
    exact = {
        "conv.padding-valid-taps": -taps_on_padding(),
        "unit.mac-vs-flop": lowered.ours - taps_on_padding(),
        "norm.batch": 3 * normalized + 2 * channels,
        "act.relu": normalized - sums + 4_014_080,
        "elementwise.add-function": sums + 2048,
        "bias.linear": 1000,
        "pool.max": 8 * 56 * 56 * 64,
        "reduce.mean": 48 * 2048,
    }
    amounts = causes(lowered)
    assert amounts.pop("precision.float32") == 7_946_727_424 - lowered.ours - sum(exact.values())
    assert amounts == exact
    changed = {cause for cause in causes(compiled) if cause.startswith("xla.")}
    assert changed == {"xla.computed-again"}


class Block(nnx.Module):
    """A transformer block that normalizes first."""

    def __init__(self, width, heads, rngs):
        self.first, self.second = (nnx.LayerNorm(width, rngs=rngs) for _ in range(2))
        self.attention = nnx.MultiHeadAttention(heads, width, decode=False, rngs=rngs)
        self.up = nnx.Linear(width, 4 * width, rngs=rngs)
        self.down = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.first(x))
        return x + self.down(nnx.gelu(self.up(self.second(x))))


def test_a_transformer_block():
    """Four projections and two products of attention, two layers, and their biases."""
    lowered, compiled = explained(Block(64, 4, nnx.Rngs(0)), spec(2, 20, 64))
    rows, products = 40, 2 * 2 * 20 * 20 * 64
    assert lowered.ours == rows * (4 * 64 * 64 + 2 * 64 * 256) + products
    assert causes(lowered)["unit.mac-vs-flop"] == lowered.ours
    assert causes(lowered)["bias.linear"] == rows * (4 * 64 + 256 + 64)
    assert "norm.layer" in causes(lowered)
    assert not any(cause.startswith("xla.") for cause in causes(lowered))
    assert any(cause.startswith("xla.") for cause in causes(compiled))


@pytest.mark.parametrize(
    ("options", "channels", "total", "taps"),
    [  # 16 x 3 taps along each side, of which 2 fall on padding
        ({"padding": "SAME"}, (3, 8), 101_568, 48 * 48 - 46 * 46),
        ({"padding": "VALID"}, (3, 8), 84_672, 0),
        ({"padding": "SAME", "use_bias": True}, (3, 8), 103_616, 48 * 48 - 46 * 46),
        ({"feature_group_count": 4}, (8, 16), 135_424, 48 * 48 - 46 * 46),
    ],
)
def test_single_convolutions(options, channels, total, taps):
    """Only the taps on padding differ, and the unit; a bias is one for each element."""
    given = {"use_bias": False, **options}
    conv = nnx.Conv(*channels, (3, 3), **given, rngs=nnx.Rngs(0))
    lowered, compiled = explained(conv, spec(1, 16, 16, channels[0]))
    assert lowered.theirs == compiled.theirs == total
    pairs = channels[0] * channels[1] // given.get("feature_group_count", 1)
    amounts = causes(lowered)
    assert amounts.pop("conv.padding-valid-taps", 0) == -taps * pairs
    assert amounts.pop("unit.mac-vs-flop") == lowered.ours - taps * pairs
    assert amounts == ({"bias.conv": 256 * 8} if given["use_bias"] else {})


def test_a_loop():
    """The product in it counts once, whatever the number of steps."""

    def run(x, w):
        return jax.lax.scan(lambda c, _: (c @ w, None), x, None, length=5)[0]

    lowered, _ = explained(run, spec(4, 16), spec(16, 16))
    assert lowered.ours == 5 * 4 * 16 * 16
    assert causes(lowered)["control.loop-body-once"] == -4 * 4 * 16 * 16


def test_a_condition():
    """The most expensive branch, which is also the one that the native count takes."""

    def run(x, w):
        return jax.lax.cond(x.sum() > 0, lambda x: x @ w @ w, lambda x: x @ w, x)

    lowered, _ = explained(run, spec(4, 16), spec(16, 16))
    assert lowered.ours == 2 * 4 * 16 * 16
    assert causes(lowered) == {
        "unit.mac-vs-flop": lowered.ours,
        "reduce.mean": 63,
        "elementwise.native": 1,
        "elementwise.type-conversion": 1,
    }
