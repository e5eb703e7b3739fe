"""Targets of published per-node and per-layer tables."""

from torch import nn


class Pointwise(nn.Module):
    """ReLU then Sigmoid."""

    def __init__(self):
        super().__init__()
        self.relu = nn.ReLU()
        self.sigmoid = nn.Sigmoid()

    def forward(self, x):
        return self.sigmoid(self.relu(x))


def first_layer():
    """A convolution of seven by seven without bias, in a model."""
    return nn.Sequential(nn.Conv2d(3, 2, 7, stride=2, padding=3, bias=False))


def linear():
    """Linear(5, 4) with its bias."""
    return nn.Linear(5, 4)
