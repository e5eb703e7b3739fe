"""Two hundred counts from eight threads and from two processes: each is what it is by hand."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

import crossflops
from crossflops.errors import InputError
from tests.models import nn, torch

pytestmark = pytest.mark.torch

WIDTHS = [3 + number % 20 for number in range(200)]


def count_macs(width: int) -> int:
    """Count a network of this width on four rows of six numbers."""
    return int(crossflops.count(network(width), torch.rand(4, 6)).macs)


def count_a_misfit(width: int) -> int:
    """Count the network on rows that are too long."""
    return int(crossflops.count(network(width), torch.rand(4, 7)).macs)


def network(width: int) -> nn.Module:
    """Two linear layers."""
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 5))


def by_hand(width: int) -> int:
    """Four rows through 6 x width and width x 5 weights."""
    return 4 * (6 * width + width * 5)


def test_threads():
    """Eight take turns."""
    with ThreadPoolExecutor(8) as pool:
        macs = list(pool.map(count_macs, WIDTHS))
    assert macs == [by_hand(width) for width in WIDTHS]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forks beside threads, from 3.12 on
@pytest.mark.parametrize("method", {"fork", "spawn"} & {*multiprocessing.get_all_start_methods()})
def test_processes(method):
    """Two count side by side, however they were started; and hand on what a count raises."""
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        macs = list(pool.map(count_macs, WIDTHS, chunksize=20))
        refused = pool.submit(count_a_misfit, 4).exception()
    assert macs == [by_hand(width) for width in WIDTHS]
    assert isinstance(refused, InputError)
    assert "7" in refused.message
