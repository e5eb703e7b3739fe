"""A model whose MACs are counted on the fingers."""

from tests.models import nn, torch

ROWS = torch.randn(2, 4)
MACS = 2 * 4 * 3  # of a linear layer from 4 to 3 on two rows


def linear():
    """A model of 24 MACs."""
    return nn.Sequential(nn.Linear(4, 3))
