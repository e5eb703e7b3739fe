"""Pooling, normalization, softmax and reductions against loops on counted scalars."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.testing.graphs import to_node
from tests.operators.scalars import (
    Number,
    Tally,
    few,
    largest,
    numbers,
    reference,
    small,
    softmax,
    total,
    values,
    work,
)


def windows(tally, x, kernel, stride, pad, fill):
    """The windows of an array [N, C, d...], padding filled with a number."""
    dims = len(kernel)
    out = [(x.shape[2 + i] + 2 * pad - kernel[i]) // stride + 1 for i in range(dims)]
    for n, c, *at in np.ndindex(*x.shape[:2], *out):
        window = []
        for k in np.ndindex(*kernel):
            where = [at[i] * stride + k[i] - pad for i in range(dims)]
            inside = all(0 <= where[i] < x.shape[2 + i] for i in range(dims))
            window.append(x[(n, c, *where)] if inside else tally.number(fill))
        yield (n, c, *at), window


def lp_norm(row, p):
    """(sum |x|^p)^(1/p) for p = 1 and 2."""
    if p == 1:
        return total([x.max(-x.value) for x in row])
    return total([x * x for x in row]).sqrt()


POOLS = {
    "MaxPool": (largest, {}, -1e9),
    "AveragePool": (lambda row: total(row) / len(row), {"count_include_pad": 1}, 0.0),
    "LpPool": (lambda row: lp_norm(row, 2), {"p": 2}, 0.0),
}


@pytest.mark.parametrize("op", list(POOLS))
@few
@given(small, st.integers(1, 3), st.integers(1, 2), st.integers(0, 1), st.data())
def test_pooling_is_its_loop(op, dims, extent, stride, pad, data):
    """A pool counts what the loop does in each window, padding included."""
    kernel = [data.draw(st.integers(pad + 1, 2)) for _ in range(dims)]
    x = numbers(data.draw, 2, 2, *(extent + k for k in kernel))
    combine, attrs, fill = POOLS[op]
    tally = Tally()
    by_place = dict(windows(tally, tally.array(x), kernel, stride, pad, fill))
    y = np.empty(np.max(list(by_place), axis=0) + 1, dtype=object)
    for at, row in by_place.items():
        y[at] = combine(row)
    attrs = {"kernel_shape": kernel, "strides": [stride] * dims, "pads": [pad] * 2 * dims, **attrs}
    if op == "AveragePool" or (op == "MaxPool" and pad == 0):  # as far as the reference goes
        assert np.allclose(values(y), reference(op, [x], **attrs), atol=1e-4)
    attrs = {"kernel_shape": tuple(kernel), **({"p": 2} if op == "LpPool" else {})}
    assert work(to_node(op, [x.shape], [y.shape], **attrs)) == tally.cost


def standardized(row):
    """Zero mean and unit variance by the equations of LayerNormalization's page."""
    mean = total(row) / len(row)
    centred = [x - mean for x in row]
    variance = total([d * d for d in centred]) / len(row)
    inverse = 1 / (variance + 1e-5).sqrt()
    return [d * inverse for d in centred]


def root_mean_square(row):
    """RMSNormalization without its scale."""
    rms = (total([x * x for x in row]) / len(row) + 1e-5).sqrt()
    return [x / rms for x in row]


def grouped(x, axis, function):
    """A function of the elements from an axis on, for each group of them."""
    flat = x.reshape(int(np.prod(x.shape[:axis])), -1)
    return np.array([function(list(row)) for row in flat], dtype=object).reshape(x.shape)


@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
@few
@given(small, small, st.integers(2, 4), st.integers(-2, 2), st.booleans(), st.data())
def test_layer_normalization_is_its_loop(op, a, b, c, axis, biased, data):
    """Normalizing over the last dimensions counts what the loop does."""
    rms = op == "RMSNormalization"
    x = numbers(data.draw, a, b, c) + np.arange(c)
    tail = x.shape[axis:]
    scale, bias = numbers(data.draw, *tail), numbers(data.draw, *tail)
    tally = Tally()
    y = grouped(tally.array(x), axis % 3, root_mean_square if rms else standardized)
    y = y * tally.array(scale)
    y = y + tally.array(bias) if biased and not rms else y
    arrays = [x, scale, bias] if biased and not rms else [x, scale]
    assert np.allclose(values(y), reference(op, arrays, axis=axis), atol=1e-2)
    shapes = [array.shape for array in arrays]
    assert work(to_node(op, shapes, [y.shape], axis=axis)) == tally.cost


@few
@given(st.integers(1, 2), small, small, small, st.data())
def test_group_and_instance_normalization_are_their_loop(batch, groups, per_group, length, data):
    """Normalizing groups of channels counts what the loop does; one channel is an instance."""
    channels = groups * per_group
    x = numbers(data.draw, batch, channels, length) + np.arange(length)
    scale, bias = numbers(data.draw, channels), numbers(data.draw, channels)
    tally = Tally()
    grouped_x = tally.array(x).reshape(batch * groups, per_group * length)
    y = grouped(grouped_x, 1, standardized).reshape(x.shape)
    y = y * tally.array(scale)[:, None] + tally.array(bias)[:, None]
    expected = reference("GroupNormalization", [x, scale, bias], num_groups=groups)
    assert np.allclose(values(y), expected, atol=1e-2)
    shapes = [x.shape, (channels,), (channels,)]
    assert work(to_node("GroupNormalization", shapes, [x.shape], num_groups=groups)) == tally.cost
    if per_group == 1:
        assert work(to_node("InstanceNormalization", shapes, [x.shape])) == tally.cost


@few
@given(st.integers(1, 2), small, small, st.data())
def test_batch_normalization_is_its_loop(batch, channels, length, data):
    """Inference takes 4 operations per element and 3 per channel."""
    x = numbers(data.draw, batch, channels, length)
    scale, bias, mean = (numbers(data.draw, channels) for _ in range(3))
    var = np.abs(numbers(data.draw, channels)) + 0.5
    tally = Tally()
    s, b, m, v = (tally.array(array)[:, None] for array in (scale, bias, mean, var))
    inverse = 1 / np.vectorize(Number.sqrt, otypes=[object])(v + 1e-5)
    y = (tally.array(x) - m) * inverse * s + b
    arrays = [x, scale, bias, mean, var]
    assert np.allclose(values(y), reference("BatchNormalization", arrays), atol=1e-3)
    shapes = [array.shape for array in arrays]
    assert work(to_node("BatchNormalization", shapes, [x.shape])) == tally.cost


def log_softmax(row):
    """LogSoftmax of one row, as ONNX's function body does it."""
    top = largest(row)
    shifted = [x - top for x in row]
    bottom = total([x.exp() for x in shifted]).log()
    return [x - bottom for x in shifted]


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@few
@given(small, small, small, st.integers(-3, 2), st.data())
def test_softmax_is_its_loop(op, a, b, c, axis, data):
    """Softmax along an axis, or of the rows of a flattened input before version 13."""
    function = softmax if op == "Softmax" else log_softmax
    x = numbers(data.draw, a, b, c)
    tally = Tally()
    y = np.moveaxis(grouped(np.moveaxis(tally.array(x), axis, -1), 2, function), -1, axis)
    assert np.allclose(values(y), reference(op, [x], axis=axis), atol=1e-4)
    assert work(to_node(op, [x.shape], [x.shape], axis=axis)) == tally.cost
    flat = Tally()
    grouped(flat.array(x), axis % 3, function)
    assert work(to_node(f"{op}-11", [x.shape], [x.shape], axis=axis % 3)) == flat.cost


REDUCERS = {
    "ReduceSum": total,
    "ReduceMean": lambda row: total(row) / len(row),
    "ReduceMax": largest,
    "ReduceMin": largest,
    "ReduceProd": lambda row: reduce(lambda p, x: p * x, row),
    "ReduceL1": lambda row: lp_norm(row, 1),
    "ReduceL2": lambda row: lp_norm(row, 2),
    "ReduceSumSquare": lambda row: total([x * x for x in row]),
    "ReduceLogSumExp": lambda row: total([x.exp() for x in row]).log(),
    "ArgMax": largest,
}


@pytest.mark.parametrize("op", list(REDUCERS))
@given(small, small, small, st.integers(0, 2))
def test_reduction_is_its_loop(op, a, b, c, axis):
    """A reduction of n elements to m combines n - m times."""
    tally = Tally()
    rows = np.moveaxis(tally.array(np.ones((a, b, c))), axis, -1)
    for at in np.ndindex(*rows.shape[:-1]):
        REDUCERS[op](list(rows[at]))
    out = tuple(1 if i == axis else d for i, d in enumerate((a, b, c)))
    assert work(to_node(op, [(a, b, c)], [out])) == tally.cost
