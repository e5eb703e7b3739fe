"""torchstat's columns, as torchstat 0.0.7 itself filled them for these layers."""

import pytest

from crossflops.errors import CrossflopsError
from crossflops.verbs.api import count
from tests.models import nn, torch

pytestmark = pytest.mark.torch

COLUMNS = (
    "torchstat", "torchstat-madd", "torchstat-memread", "torchstat-memwrite", "torchstat-memory",
)  # fmt: skip


class MyConv(nn.Conv2d):
    """A subclass, which isinstance takes for a convolution."""


class Reused(nn.Module):
    """A convolution called twice, of which the last call is reported; and one never called."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.relu = nn.ReLU()
        self.bilinear = nn.Bilinear(4, 6, 5)
        self.never = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        y = self.relu(self.conv(self.conv(x)[:, :, :5]))
        return self.bilinear(y.mean((2, 3)), torch.ones(1, 6)) + y.sum()


class Direct(nn.Module):
    """The second layer is not called, its forward is: torchstat patches `__call__`."""

    def __init__(self):
        super().__init__()
        self.seen = nn.Conv2d(3, 4, 3)
        self.unseen = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        return self.unseen.forward(self.seen(x))


class Shared(nn.Module):
    """One convolution under two parents, called twice."""

    def __init__(self):
        super().__init__()
        conv = nn.Conv2d(3, 3, 3, padding=1)
        self.first = nn.Sequential(conv, nn.PReLU(3))
        self.second = nn.Sequential(conv)

    def forward(self, x):
        return self.second(self.first(x))


def frozen():
    """Parameters that need no gradient are not read, says num_params."""
    conv = nn.Conv2d(3, 4, 3)
    conv.weight.requires_grad_(False)
    return conv


def flat(*layers):
    """Layers on one row of features."""
    return nn.Sequential(nn.Flatten(), *layers)


PRINTED = [
    (lambda: nn.Conv2d(3, 2, 7, 2, 3, bias=False), (3, 500, 500),
     (18375000, 36625000, 3001176, 500000, 500000)),
    (lambda: nn.Conv2d(3, 8, 3), (3, 9, 11), (14112, 27216, 2084, 2016, 2016)),
    (lambda: nn.Conv2d(4, 8, (3, 2), 2, 1, groups=2, bias=False), (4, 9, 8),
     (2400, 4600, 1536, 800, 800)),
    (lambda: nn.Conv2d(4, 4, 3, groups=4, dilation=2), (4, 9, 9), (1000, 1800, 1456, 400, 400)),
    (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), (4, 5, 6), (0, 12960, 0, 0, 3432)),
    (lambda: nn.ConvTranspose2d(4, 6, 2, groups=2, bias=False), (4, 5, 6), (0, 2700, 0, 0, 1008)),
    (lambda: nn.BatchNorm2d(3), (3, 4, 5), (120, 240, 264, 240, 240)),
    (lambda: nn.BatchNorm2d(3, affine=False), (3, 4, 5), (60, 240, 264, 240, 240)),
    (lambda: nn.MaxPool2d(3, 2, 1), (3, 9, 9), (243, 600, 972, 300, 300)),
    (lambda: nn.MaxPool2d((2, 3)), (3, 8, 9), (216, 180, 864, 144, 144)),
    (lambda: nn.AvgPool2d(2), (3, 8, 8), (192, 192, 768, 192, 192)),
    (lambda: nn.AvgPool2d((3, 2)), (3, 9, 8), (216, 216, 864, 144, 144)),
    (lambda: nn.AdaptiveAvgPool2d(2), (3, 8, 8), (0, 0, 0, 0, 48)),
    (nn.ReLU, (3, 4, 5), (60, 60, 240, 240, 240)),
    (nn.ReLU6, (3, 4, 5), (60, 60, 240, 240, 240)),
    (nn.ELU, (3, 4, 5), (60, 0, 240, 240, 240)),
    (nn.LeakyReLU, (3, 4, 5), (60, 0, 240, 240, 240)),
    (nn.PReLU, (3, 4, 5), (60, 0, 244, 240, 240)),
    (lambda: nn.PReLU(3), (3, 4, 5), (60, 0, 252, 240, 240)),
    (nn.GELU, (3, 4, 5), (0, 0, 0, 0, 240)),
    (nn.CELU, (3, 4, 5), (0, 0, 0, 0, 240)),
    (lambda: nn.Softmax(1), (3, 4, 5), (0, 179, 0, 0, 240)),
    (lambda: nn.Upsample(scale_factor=2), (3, 4, 5), (80, 0, 0, 0, 960)),
    (lambda: nn.UpsamplingBilinear2d(scale_factor=2), (3, 4, 5), (80, 0, 0, 0, 960)),
    (lambda: flat(nn.Linear(24, 7)), (2, 3, 4), (168, 329, 796, 28, 124)),
    (lambda: flat(nn.Linear(24, 7, bias=False), nn.Softmax(-1)), (2, 3, 4),
     (168, 349, 768, 28, 152)),
    (lambda: nn.LayerNorm(5), (3, 4, 5), (0, 0, 0, 0, 240)),
    (Reused, (4, 8, 8), (6080, 11975, 1872, 1280, 1300)),
    (lambda: MyConv(3, 4, 3), (3, 8, 8), (4032, 7776, 1216, 576, 576)),
    (Direct, (3, 8, 8), (4032, 7776, 1216, 576, 576)),
    (Shared, (3, 8, 8), (5568, 10368, 1884, 1536, 1536)),
    (frozen, (3, 8, 8), (4032, 7776, 784, 576, 576)),
]  # fmt: skip


@pytest.mark.parametrize(("make", "shape", "printed"), PRINTED)
def test_every_column_is_what_torchstat_filled_in(make, shape, printed):
    """Flops, MAdd, MemRead, MemWrite, and memory in bytes."""
    report = count(make(), torch.zeros(1, *shape), as_="torchstat*")
    assert {fold.tool: fold.total for fold in report.folds} == dict(
        zip(COLUMNS, printed, strict=True)
    )


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Linear(4, 2), (1, 3, 4)),
        (nn.Conv2d(3, 4, 3), (3, 8, 8)),
        (nn.LSTM(4, 4), (5, 1, 4)),
        (nn.MaxPool2d(2, return_indices=True), (1, 3, 8, 8)),
    ],
)
def test_where_torchstat_fails_there_is_no_count(model, shape):
    """Linear of three axes and Conv2d of three fail its assertions, a tuple has no size()."""
    with pytest.raises(CrossflopsError, match="torchstat cannot count"):
        count(model, torch.zeros(shape), as_="torchstat")
