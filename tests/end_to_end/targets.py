"""Targets for the command line: models that are built in this process and in the workers."""

import os
import subprocess
import sys
import time

import torch
from torch import nn
from torch.nn import functional


class MyConv(nn.Conv2d):
    """A convolution that a tool which looks at exact classes does not know."""


class Odd(nn.Module):
    """An LSTM, a shared module called twice, F.conv2d, @, a residual +, a dead and a subclassed
    convolution, on an input of 1x8x8x8.

    MACs: `same` 8*72*64 = 36864, called twice; F.conv2d with `kernel` 4*8*64 = 2048; `mine` 2048;
    `dead` 36864, unused; the LSTM 64 steps of 4*4*(4+4) = 128; the product (64, 4) @ (4, 64)
    16384. Native: all but `dead`.
    """

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
        y = functional.conv2d(x, self.kernel) + self.mine(x)
        steps, _ = self.lstm(y.flatten(2).permute(2, 0, 1))
        return steps.squeeze(1) @ y.flatten(2)[0]


def encoder():
    """Four layers of width 64 with 4 heads and 256 features, on 1x16x64."""
    layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


def linear():
    """4*3 MACs a row."""
    return nn.Linear(4, 3)


def talkative():
    """Prints while it is built."""
    print("building")
    return nn.Linear(4, 3)


def raises():
    """Raises."""
    raise ValueError("no weights\nhere")


class Captioner(nn.Module):
    """Five inputs of different shapes and types, the integers looked up in a table."""

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


class Loud(nn.Module):
    """Prints in every way there is while it runs."""

    def forward(self, x):
        print("from Python")
        os.write(1, b"from C\n")
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
        return x @ x.transpose(-1, -2)


def loud():
    """Prints in every way there is while it is built."""
    Loud().forward(torch.ones(1, 2))
    return Loud()


class SleepsWhenRun(nn.Linear):
    def forward(self, x):
        return sleeps() if type(x) is torch.Tensor else super().forward(x)


def sleeps_when_run():
    """A layer that does as `sleeps` where it is run with values."""
    return SleepsWhenRun(4, 3)


def sleeps():
    """Leaves its process id, and takes its time."""
    with open(os.environ["PIDS"], "a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(600)
