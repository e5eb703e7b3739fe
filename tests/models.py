"""Small models whose numbers can be derived by hand, and what crossflops makes of them.

Importing this needs PyTorch: a test module that does so is skipped without it.
"""

import functools

import pytest

from crossflops.ir.trace import Setting
from crossflops.ledger.count import count

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn, F = torch.nn, torch.nn.functional
captured_relu = F.relu
EVAL = Setting()


class Apply(nn.Module):
    """A model whose forward is a function of itself and the inputs."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


class MyConv(nn.Conv2d):
    """A convolution that a tool which looks at exact classes does not know."""


class Holder(nn.Module):
    """A parent of a module that it calls."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class Odd(nn.Module):
    """Everything that one counter or the other does not see, on an input of 1x8x8x8.

    MACs: `same` 8*8*9*64 = 36864, called twice; F.conv2d with `kernel` 4*8*64 = 2048; `mine`
    4*8*64 = 2048; `dead` 36864, unused; the LSTM 64 steps of 4*4*(4+4) = 128; the product of
    (64, 4) and (4, 64) 16384.
    """

    MACS = 2 * 36864 + 2048 + 2048 + 64 * 128 + 16384

    def __init__(self):
        super().__init__()
        self.same = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.kernel = nn.Parameter(torch.randn(4, 8, 1, 1))
        self.mine = MyConv(8, 4, 1, bias=False)
        self.dead = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.lstm = nn.LSTM(4, 4)

    def forward(self, x):
        x = self.same(self.same(x)) + x
        self.dead(x)
        y = F.conv2d(x, self.kernel) + self.mine(x)
        steps, _ = self.lstm(y.flatten(2).permute(2, 0, 1))
        return steps.squeeze(1) @ y.flatten(2)[0]


class AuxiliaryHead(nn.Module):
    """Two layers in training, one in evaluation: 2*4*8 = 64 MACs each on a 2x4 input."""

    def __init__(self):
        super().__init__()
        self.main = nn.Linear(4, 8, bias=False)
        self.auxiliary = nn.Linear(4, 8, bias=False)

    def forward(self, x):
        if self.training:
            return self.main(x), self.auxiliary(x)
        return self.main(x)


class Captioner(nn.Module):
    """Five inputs of different shapes and types, the integers looked up in a table.

    MACs: features 50*2048*64, boxes 50*4*64, second features 49*2048*64, positions 49*50*64,
    the product of words (19) with places (50 + 49) over 64.
    """

    MACS = 64 * (50 * 2048 + 50 * 4 + 49 * 2048 + 49 * 50 + 19 * 99)
    SHAPES = {
        "features": (1, 50, 2048),
        "boxes": (1, 50, 4),
        "grid": (1, 49, 2048),
        "mask": (1, 49, 50),
        "words": (1, 19),
    }

    def __init__(self):
        super().__init__()
        self.region = nn.Linear(2048, 64)
        self.box = nn.Linear(4, 64)
        self.cell = nn.Linear(2048, 64)
        self.near = nn.Linear(50, 64)
        self.word = nn.Embedding(100, 64)

    def forward(self, features, boxes, grid, mask, words):
        regions = self.region(features) + self.box(boxes)
        cells = self.cell(grid) + self.near(mask)
        places = torch.cat([regions, cells], dim=1)
        return torch.matmul(self.word(words), places.transpose(1, 2))

    @classmethod
    def inputs(cls):
        """The five inputs by name."""
        made = {name: torch.randn(shape) for name, shape in cls.SHAPES.items()}
        return made | {"words": torch.zeros(cls.SHAPES["words"], dtype=torch.int64)}


def block():
    """A 3x3 convolution from 3 to 8 channels without bias, batch norm and a ReLU in place."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
    )


def encoder_layer():
    """An encoder layer of width 32 with 4 heads and 64 features inside."""
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)


def traced(model, *args, setting=EVAL, observed=(), **kwargs):
    """The trace of a run, without the ONNX graph."""
    from crossflops.frontends.pytorch.program import record_torch_run

    return record_torch_run(model, args, kwargs, setting, observed).trace


def exported(model, *args, setting=EVAL, observed=(), **kwargs):
    """The graph, the trace and the ledger of a run."""
    from crossflops.frontends.pytorch.program import record_and_convert_torch

    _, graph, trace = record_and_convert_torch(model, args, kwargs, setting, observed)
    return graph, trace, count(graph)


def operators(trace, target):
    """The operator calls of an operator."""
    return [
        call for call in trace.calls if call.level == "operator" and call.target.startswith(target)
    ]


@functools.cache
def zoo():
    """A dozen small models with an input each: all that tools disagree about."""
    image, wide, words = torch.randn(1, 3, 16, 16), torch.randn(1, 8, 8, 8), torch.randn(2, 10, 32)
    shared = nn.Conv2d(8, 8, 3, padding=1, bias=False)
    return {
        "block": (block(), (image,)),
        "transposed": (Holder(nn.ConvTranspose2d(3, 4, 3, 2, 1, 1)), (image,)),
        "grouped": (Holder(nn.Conv2d(8, 16, 3, padding=1, groups=4)), (wide,)),
        "string padding": (Holder(nn.Conv2d(3, 8, 4, padding="same")), (image,)),
        "linear on three axes": (nn.Sequential(nn.Linear(32, 5), nn.LayerNorm(5)), (words,)),
        "pooled": (
            nn.Sequential(nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(3), nn.Flatten()), (image,)
        ),
        "upsampled": (nn.Sequential(nn.Upsample(scale_factor=2), nn.PReLU()), (image,)),
        "encoder layer": (encoder_layer(), (words,)),
        "recurrent": (Apply(lambda s, x: s.gru(x)[0], gru=nn.GRU(32, 8, 2)), (words,)),
        "shared by two parents": (
            Apply(lambda s, x: s.b(s.a(x)), a=Holder(shared), b=Holder(shared)), (wide,)
        ),
        "einsum": (
            Apply(lambda s, x: torch.einsum("bij,bkj->bik", x, x).softmax(-1) @ x), (words,)
        ),
        "odd": (Odd(), (wide,)),
    }  # fmt: skip
