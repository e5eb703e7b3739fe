"""The size of PyTorch models: each storage once, in its own type."""

import pytest

from crossflops.verbs.api import count
from tests.models import nn, torch

pytestmark = pytest.mark.torch


def test_ten_million_floats_are_forty_megabytes():
    """10 000 x 1000 weights of four bytes; of two in half precision."""
    report = count(nn.Linear(10_000, 1000, bias=False), torch.zeros(1, 10_000))
    assert (report.params, report.memory.param_bytes) == (10_000_000, 40_000_000)
    half = nn.Linear(100, 10, bias=False).to(torch.bfloat16)
    report = count(half, torch.zeros(1, 100, dtype=torch.bfloat16))
    assert (report.params, report.memory.param_bytes) == (1000, 2000)


def test_a_convolution_of_one_channel_has_ten_parameters():
    """3 x 3 and a bias: 40 bytes."""
    report = count(nn.Conv2d(1, 1, 3), torch.zeros(1, 1, 5, 5))
    assert (report.params, report.memory.param_bytes) == (10, 40)


def test_what_is_shared_is_stored_once():
    """Two layers with one weight."""
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    report = count(nn.Sequential(first, second), torch.zeros(1, 4))
    assert report.memory.param_bytes == 64
    # the traffic is another matter: each layer reads its weight
    assert report.memory.elements_read == 2 * (16 + 4)
