"""The windows of ultralytics-thop's pools, against a loop over their elements."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from crossflops.tools.ultralytics_thop import (
    ultralytics_adaptive_average_operations,
    ultralytics_average_pool_operations,
)
from tests.tools.amounts import amount

POOL = "torch.nn.modules.pooling.AvgPool2d"


@given(st.integers(3, 9), st.integers(1, 3), st.integers(1, 3), st.integers(0, 1), st.booleans())
def test_windows_of_an_average(size, kernel, stride, padding, padded):
    """Each position of each window that is in the input, or its padding; and one per result."""
    count = (size + 2 * padding - kernel) // stride + 1
    low, high = (-padding, size + padding) if padded else (0, size)
    places = [
        (row, column)
        for top, left in product(range(count), repeat=2)
        for row in range(top * stride - padding, top * stride - padding + kernel)
        for column in range(left * stride - padding, left * stride - padding + kernel)
        if low <= row < high and low <= column < high
    ]
    settings = {"kernel_size": kernel, "stride": stride, "padding": padding}
    source, result = (2, 3, size, size), (2, 3, count, count)
    windows = amount(
        ultralytics_average_pool_operations,
        POOL,
        {"0": source},
        [result],
        **settings,
        count_include_pad=padded,
    )
    assert windows == 6 * len(places) + 6 * count**2


@given(st.integers(1, 9), st.integers(1, 9))
def test_windows_of_an_adaptive_average(size, count):
    """Window j has the positions that overlap with [j I / O, (j + 1) I / O)."""
    overlapping = sum(
        1
        for j, i in product(range(count), range(size))
        if i < (j + 1) * size / count and i + 1 > j * size / count
    )
    windows = amount(
        ultralytics_adaptive_average_operations, POOL, {"0": (2, 3, size)}, [(2, 3, count)]
    )
    assert windows == 6 * overlapping + 6 * count
