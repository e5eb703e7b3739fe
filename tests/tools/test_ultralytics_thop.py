"""The windows of ultralytics-thop's pools, against a loop over their elements."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from crossflops.ir.tensor import TensorSpec
from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.ultralytics_thop import adaptive_average, average


def pool(**settings):
    """An average pool."""
    return Module(
        id=0,
        names=("",),
        bases=("torch.nn.modules.pooling.AvgPool2d",),
        params=(),
        children=(),
        training=False,
        settings=settings,
    )


def call(source, result):
    """A call with an image and what comes out."""
    return Call(
        key="c",
        parent=None,
        level="module",
        target="torch.nn.modules.pooling.AvgPool2d",
        module=0,
        inputs=(TensorSpec("0", "float32", source),),
        outputs=(TensorSpec("0", "float32", result),),
        returns="tensor",
    )


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
    found = average(
        call((2, 3, size, size), (2, 3, count, count)), pool(**settings, count_include_pad=padded)
    )
    assert found == 6 * len(places) + 6 * count**2


@given(st.integers(1, 9), st.integers(1, 9))
def test_windows_of_an_adaptive_average(size, count):
    """Window j has the positions that overlap with [j I / O, (j + 1) I / O)."""
    overlapping = sum(
        1
        for j, i in product(range(count), range(size))
        if i < (j + 1) * size / count and i + 1 > j * size / count
    )
    found = adaptive_average(call((2, 3, size), (2, 3, count)), pool())
    assert found == 6 * overlapping + 6 * count
