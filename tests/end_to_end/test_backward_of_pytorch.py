"""Passes of training by where gradients flow, against what PyTorch really did."""

import pytest

from crossflops.ir.training import matches
from crossflops.ledger.training import TrainedWeights, steps, total
from crossflops.targets.request import Request
from crossflops.verbs.count import native_count

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch


def network():
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
    model, x = network(), torch.zeros(2, 3, 4, 4)
    return model, x, native_count(Request.of(model, x))[1]


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
    step = total(steps(own.graph, TrainedWeights(own.trace, frozen, trainable)))
    ours = 2 * (step.forward + step.backward).macs
    for name, weight in model.named_parameters():
        off = any(matches(name, one) for one in frozen)
        weight.requires_grad = not off or any(matches(name, one) for one in trainable)
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    assert ours == counter.get_total_flops()
    assert 2 * own.ledger.total.macs < ours < 6 * own.ledger.total.macs
