"""Convolutions and products against loops that perform them on counted scalars."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crossflops.testing.graphs import to_node
from tests.operators.scalars import Tally, few, numbers, reference, small, values, work


def conv_loop(tally, x, w, b, strides, pads, dilations, group):
    """Conv as its page says it, padding zeros multiplied like any other."""
    dims, (batch, _, *extent), (out_channels, per_group, *window) = len(strides), x.shape, w.shape
    out = [
        (extent[i] + 2 * pads[i] - dilations[i] * (window[i] - 1) - 1) // strides[i] + 1
        for i in range(dims)
    ]
    y = np.empty((batch, out_channels, *out), dtype=object)
    zero = tally.number(0, graded=x.flat[0].graded)
    for n, m, *at in np.ndindex(*y.shape):
        first = m // (out_channels // group) * per_group
        acc = tally.number(0)
        for c, *k in np.ndindex(per_group, *window):
            where = [at[i] * strides[i] + k[i] * dilations[i] - pads[i] for i in range(dims)]
            inside = all(0 <= where[i] < extent[i] for i in range(dims))
            value = x[(n, first + c, *where)] if inside else zero
            acc = tally.mac(acc, value, w[(m, c, *k)])
        y[(n, m, *at)] = acc + b[m] if b is not None else acc
    return y


def conv_transpose_loop(tally, x, w, b, strides, pads, dilations, group):
    """ConvTranspose: each input element adds its window to the output; a crop wastes it."""
    dims, (batch, channels, *extent), (_, per_group, *window) = len(strides), x.shape, w.shape
    out = [
        (extent[i] - 1) * strides[i] + dilations[i] * (window[i] - 1) + 1 - 2 * pads[i]
        for i in range(dims)
    ]
    y = tally.array(np.zeros((batch, per_group * group, *out)))
    for n, c, *at in np.ndindex(*x.shape):
        first = c // (channels // group) * per_group
        for m, *k in np.ndindex(per_group, *window):
            where = [at[i] * strides[i] + k[i] * dilations[i] - pads[i] for i in range(dims)]
            place = (n, first + m, *where)
            inside = all(0 <= where[i] < out[i] for i in range(dims))
            into = y[place] if inside else tally.number(0)
            made = tally.mac(into, x[(n, c, *at)], w[(c, m, *k)])
            if inside:
                y[place] = made
    return y + b.reshape(1, -1, *[1] * dims) if b is not None else y


@st.composite
def convolutions(draw, transposed):
    """Arrays x, w, b, and the attributes that fit them, in 1 to 3 dimensions."""
    dims, group = draw(small), draw(st.integers(1, 2))
    per_dim = [[draw(st.integers(low, 2)) for _ in range(dims)] for low in (1, 0, 1)]
    strides, pads, dilations = per_dim
    window = [draw(st.integers(1, 2 if dims == 3 else 3)) for _ in range(dims)]
    extent = [
        max(dilations[i] * (window[i] - 1) + 1, 1 + 2 * pads[i]) + draw(st.integers(0, 1))
        for i in range(dims)
    ]
    ins, outs = group * draw(st.integers(1, 2)), group * draw(st.integers(1, 2))
    x = numbers(draw, draw(st.integers(1, 2)), ins, *extent)
    first, second = (ins, outs // group) if transposed else (outs, ins // group)
    w = numbers(draw, first, second, *window)
    b = numbers(draw, outs) if draw(st.booleans()) else None
    return (x, w, b), (strides, pads, dilations, group)


def check_convolution(op, loop, arrays, attrs, compare):
    """The counter agrees with the loop, and the loop with ONNX where that has a reference."""
    tally = Tally()
    x, w, b = (None if array is None else tally.array(array) for array in arrays)
    y = loop(tally, x, w, b, *attrs)
    strides, pads, dilations, group = attrs
    named = {"strides": strides, "pads": pads * 2, "dilations": dilations, "group": group}
    if compare:
        assert np.allclose(values(y), reference(op, arrays, **named), atol=1e-4)
    shapes = [None if array is None else array.shape for array in arrays]
    fixed = {name: tuple(v) if isinstance(v, list) else v for name, v in named.items()}
    assert work(to_node(op, shapes, [y.shape], **fixed)) == tally.cost


@few
@given(convolutions(transposed=False))
def test_conv_is_its_loop(case):
    """Conv counts what the loop does, and the loop does what ONNX says."""
    check_convolution("Conv", conv_loop, *case, compare=True)


@few
@given(convolutions(transposed=True))
def test_conv_transpose_is_its_loop(case):
    """ConvTranspose counts what the loop does, and the loop does what ONNX says."""
    (x, _, _), attrs = case
    known = attrs[-1] == 1 and x.ndim == 4  # ONNX's reference implementation has no other
    check_convolution("ConvTranspose", conv_transpose_loop, *case, compare=known)


def matmul_loop(tally, a, b):
    """numpy.matmul, one dot product per element of the result."""
    left = a if a.ndim > 1 else a[None, :]
    right = b if b.ndim > 1 else b[:, None]
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left = np.broadcast_to(left, (*batch, *left.shape[-2:]))
    right = np.broadcast_to(right, (*batch, *right.shape[-2:]))
    y = np.empty((*batch, left.shape[-2], right.shape[-1]), dtype=object)
    for *at, i, j in np.ndindex(*y.shape):
        y[(*at, i, j)] = tally.dot(left[(*at, i)], right[(*at, slice(None), j)])
    y = y[..., 0, :] if a.ndim == 1 else y
    return y[..., 0] if b.ndim == 1 else y


@few
@given(st.lists(small, max_size=2), st.lists(small, max_size=2), small, small, small, st.data())
def test_matmul_is_its_loop(left, right, m, k, n, data):
    """MatMul counts what the loop does, for all broadcasting and for 1-D operands."""
    for i in range(1, min(len(left), len(right)) + 1):
        if left[-i] != right[-i]:
            right[-i] = 1
    a_shape = data.draw(st.sampled_from([(*left, m, k), (k,)]))
    b_shape = data.draw(st.sampled_from([(*right, k, n), (k,)]))
    a, b = numbers(data.draw, *a_shape), numbers(data.draw, *b_shape)
    tally = Tally()
    y = np.asarray(matmul_loop(tally, tally.array(a), tally.array(b)), dtype=object)
    assert np.allclose(values(y), np.matmul(a, b), atol=1e-6)
    assert work(to_node("MatMul", [a.shape, b.shape], [y.shape])) == tally.cost


@few
@given(
    *(small, small, small, st.booleans(), st.booleans()),
    *(st.sampled_from([1.0, 0.5]), st.sampled_from([1.0, 2.0])),
    st.sampled_from([None, (), (1,), "n", "mn"]),
    st.data(),
)
def test_gemm_is_its_loop(m, n, k, trans_a, trans_b, alpha, beta, c_form, data):
    """Gemm counts what the loop does: factors that are 1 multiply nothing."""
    a = numbers(data.draw, *((k, m) if trans_a else (m, k)))
    b = numbers(data.draw, *((n, k) if trans_b else (k, n)))
    c_shape = {"n": (n,), "mn": (m, n)}.get(c_form, c_form) if c_form is not None else None
    c = None if c_shape is None else numbers(data.draw, *c_shape)
    tally = Tally()
    left, right = tally.array(a), tally.array(b)
    y = matmul_loop(tally, left.T if trans_a else left, right.T if trans_b else right)
    y = y * alpha if alpha != 1 else y
    if c is not None:
        extra = tally.array(c)
        y = y + (extra * beta if beta != 1 else extra)
    attrs = {"alpha": alpha, "beta": beta, "transA": int(trans_a), "transB": int(trans_b)}
    assert np.allclose(values(y), reference("Gemm", [a, b, c], **attrs), atol=1e-4)
    assert work(to_node("Gemm", [a.shape, b.shape, c_shape], [(m, n)], **attrs)) == tally.cost
