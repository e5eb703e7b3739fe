"""Passes of training by where gradients flow: by hand, and against what PyTorch really did."""

import pytest

from crossflops.errors import InputError
from crossflops.hardware.backward import Gradients, matches
from crossflops.pipeline.native import native_count
from tests.onnx_files import saved, with_weights

WEIGHTS = ("first", "second", "third")
CHAIN = """
g (float[2,4] x, float[4,4] first, float[4,4] second, float[4,4] third) => (float[2,4] y)
{ a = MatMul(x, first) r = Relu(a) b = MatMul(r, second) y = MatMul(b, third) }
"""
LOOP = """
g (float[2,4] x, float[4,4] weight) => (float[2,4] y)
<int64 trips = {3}, bool go = {1}>
{
  y = Loop(trips, go, x) <body = one (int64 i, bool c, float[2,4] h) => (bool d, float[2,4] k) {
    d = Identity(c)
    k = MatMul(h, weight)
  }>
}
"""


@pytest.fixture
def passes(tmp_path):
    """Passes of the products of a graph, in its order."""

    def found(text, weights=WEIGHTS, **asked):
        _, counted = native_count(saved(tmp_path, with_weights(text, *weights)))
        by_key = Gradients(**asked).of(counted.graph)
        return [by_key[one.node.key] for one in counted.ledger.counted if one.cost.macs]

    return found


@pytest.mark.parametrize(
    ("frozen", "trainable", "expected"),
    [
        ((), (), [2, 3, 3]),  # the input of the network needs no gradient
        (("first",), (), [1, 2, 3]),  # nothing is trained below
        (("first", "second"), (), [1, 1, 2]),
        (("second", "third"), (), [2, 2, 2]),  # frozen above what is trained
        (("second",), (), [2, 2, 3]),
        (("*",), ("second",), [1, 2, 2]),
        (("*",), (), [1, 1, 1]),
    ],
)
def test_a_chain_of_products(passes, frozen, trainable, expected):
    """One pass forward, one for each operand that needs a gradient."""
    assert passes(CHAIN, frozen=frozen, trainable=trainable) == expected


def test_what_a_loop_hands_on_needs_a_gradient(passes):
    """After the first run the state depends on the weight: both operands have gradients."""
    assert passes(LOOP, ("weight",)) == [3]
    assert passes(LOOP, ("weight",), frozen=("weight",)) == [1]


def test_a_pattern_that_matches_nothing_is_refused(passes):
    """Freezing what is not there would change nothing, silently."""
    with pytest.raises(InputError, match="'fourth' matches no weight"):
        passes(CHAIN, frozen=("fourth",))


@pytest.mark.parametrize(
    ("name", "pattern", "whether"),
    [
        ("layer1.0.weight", "layer1", True),
        ("layer10.0.weight", "layer1", False),
        ("layer1.0.weight", "layer1*", True),
        ("layer1.0.weight", "*.weight", True),
        ("", "*", False),
    ],
)
def test_patterns_are_globs_of_names_or_of_modules_around_them(name, pattern, whether):
    """A module stands for all that is in it."""
    assert matches(name, pattern) is whether


def network(torch):
    """A convolution, attention in pieces, and two linears with an adapter beside one of them."""
    nn = torch.nn

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, padding=1)
            self.norm = nn.BatchNorm2d(8)
            self.body = nn.Conv2d(8, 8, 3, padding=1)
            self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
            self.wide = nn.Linear(8, 32)
            self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 32, bias=False)
            self.head = nn.Linear(32, 5)

        def forward(self, x):
            h = self.body(self.norm(self.stem(x)).relu()).flatten(2).transpose(1, 2)
            scores = (self.query(h) @ self.key(h).transpose(1, 2)).softmax(-1)
            h = scores @ self.value(h)
            return self.head(self.wide(h) + self.up(self.down(h)))

    return Network()


@pytest.fixture(scope="module")
def counted():
    """The network and its input, and both as they are counted."""
    torch = pytest.importorskip("torch")
    model, x = network(torch), torch.zeros(2, 3, 4, 4)
    return model, x, native_count(model, x)[1]


@pytest.mark.parametrize(
    ("frozen", "trainable"),
    [
        ((), ()),
        (("stem", "norm"), ()),
        (("stem", "norm", "body", "query", "key", "value"), ()),
        (("*",), ("down", "up")),
        (("*",), ("query",)),
        (("*",), ("value",)),
        (("*",), ("norm",)),
        (("head", "wide"), ()),
    ],
)
def test_pytorch_does_as_many(counted, frozen, trainable):
    """FLOPs of a real forward and backward pass, counted by PyTorch, are 2 x MACs x passes."""
    from torch.utils.flop_counter import FlopCounterMode

    model, x, own = counted
    by_key = Gradients(frozen, trainable).of(own.graph)
    ours = [2 * one.cost.macs * by_key[one.node.key] for one in own.ledger.counted]
    for name, weight in model.named_parameters():
        off = any(matches(name, one) for one in frozen)
        weight.requires_grad = not off or any(matches(name, one) for one in trainable)
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    assert sum(ours) == counter.get_total_flops()
    assert 2 * own.ledger.total.macs < sum(ours) < 6 * own.ledger.total.macs
