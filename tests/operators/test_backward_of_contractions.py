"""Gradients of contractions against loops run backward on counted scalars, and against PyTorch.

The loops are those of the forward tests. What multiplies and adds in them has a gradient by the
chain rule, one scalar after the other (`Tally.back`), for every choice of operands that want one.
"""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crossflops.ir.cost import ZERO, Cost
from crossflops.operators import rule, rules
from crossflops.operators.gradient import no_gradient
from crossflops.testing.graphs import node
from tests.operators.scalars import Number, Tally, few, numbers, values
from tests.operators.test_attention_against_loop import attention_loop
from tests.operators.test_contractions_against_loops import (
    conv_loop,
    conv_transpose_loop,
    convolutions,
    matmul_loop,
)
from tests.operators.test_einsum_against_loop import SIZES, einsum_pair
from tests.operators.test_recurrent_against_loops import GATES, Step, sequence

sizes = st.integers(1, 3)


def joined(tally, *parts):
    """Operands that are one in the gradient: of all of them it is made, or of none."""
    if not any(number.graded for part in parts if part is not None for number in part.flat):
        return parts
    known = np.vectorize(
        lambda number: number if number.graded else tally.number(number.value, graded=True),
        otypes=[object],
    )
    return [None if part is None else known(part) for part in parts]


def convolution(op, loop, transposed):
    """A case of Conv or ConvTranspose."""

    def case(draw):
        arrays, attrs = draw(convolutions(transposed=transposed))
        strides, pads, dilations, group = (tuple(v) if isinstance(v, list) else v for v in attrs)
        named = {"strides": strides, "pads": pads * 2, "dilations": dilations, "group": group}
        return op, arrays, named, lambda tally, x, w, b: loop(tally, x, w, b, *attrs)

    return case


def causal_convolution(draw):
    """Every channel by itself; the state is in front of the first token."""
    batch, channels, length, k = (draw(sizes) for _ in range(4))
    x, w = numbers(draw, batch, channels, length), numbers(draw, channels, 1, k)
    bias = numbers(draw, channels) if draw(st.booleans()) else None
    past = numbers(draw, batch, channels, k - 1) if k > 1 else None

    def loop(tally, x, w, bias, past):
        x, past = joined(tally, x, past)
        wide = x if past is None else np.concatenate([past, x], 2)
        y = np.empty(x.shape, dtype=object)
        for b, c, t in np.ndindex(*x.shape):
            y[b, c, t] = tally.dot(wide[b, c, t : t + k], w[c, 0])
            y[b, c, t] = y[b, c, t] if bias is None else y[b, c, t] + bias[c]
        return y

    return "CausalConvWithState", (x, w, bias, past), {}, loop


def product(op):
    """A product of two matrices, or of stacks of them that broadcast."""

    def case(draw):
        m, k, n = (draw(sizes) for _ in range(3))
        left = [draw(sizes) for _ in range(draw(st.integers(0, 2)))]
        right = [draw(st.sampled_from([extent, 1])) for extent in left]
        return op, (numbers(draw, *left, m, k), numbers(draw, *right, k, n)), {}, matmul_loop

    return case


flipped = np.vectorize(Number.flipped, otypes=[object])


def complex_product(tally, a, b):
    """Of numbers in two parts, the last axis: 4 MACs for each pair."""
    (real_a, imag_a), (real_b, imag_b) = np.moveaxis(a, -1, 0), np.moveaxis(b, -1, 0)
    along = max(real_b.ndim - 2, 0)
    rows = real_a if real_a.ndim > 1 else real_a[None]
    turned = imag_a if imag_a.ndim > 1 else imag_a[None]
    real, imag = (
        matmul_loop(tally, np.concatenate(left, -1), np.concatenate(right, along))
        for left, right in (
            ((rows, flipped(turned)), (real_b, imag_b)),
            ((rows, turned), (imag_b, real_b)),
        )
    )
    y = np.stack([np.asarray(real, dtype=object), np.asarray(imag, dtype=object)], -1)
    return y if a.ndim > 2 else y[0]


def complex_case(op, left, right):
    """A complex product of operands with these axes, k among them."""

    def case(draw):
        extents = {axis: draw(sizes) for axis in "bmkn"}
        shapes = ([extents[axis] for axis in axes] for axes in (left, right))
        arrays = tuple(numbers(draw, *shape, 2) for shape in shapes)
        return f"torch.ops::aten.{op}.default", arrays, {}, complex_product

    return case


def complex_linear(draw):
    """Complex rows by the rows of a complex weight, and a bias."""
    m, k, n = (draw(sizes) for _ in range(3))
    bias = numbers(draw, n, 2) if draw(st.booleans()) else None

    def loop(tally, x, w, b):
        y = complex_product(tally, x, w.swapaxes(0, 1))
        return y if b is None else y + b

    arrays = numbers(draw, m, k, 2), numbers(draw, n, k, 2), bias
    return "torch.ops::aten.linear.default", arrays, {}, loop


def grouped(op):
    """Rows that meet the matrix of their group, or matrices cut along what they sum."""

    def case(draw):
        groups, k, n = (draw(sizes) for _ in range(3))
        ends = np.cumsum([draw(sizes) for _ in range(groups)])
        pieces = [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        if draw(st.booleans()):
            arrays = numbers(draw, k, ends[-1]), numbers(draw, ends[-1], n)

            def loop(tally, a, b):
                return np.stack([matmul_loop(tally, a[:, cut], b[cut]) for cut in pieces])

        else:
            arrays = numbers(draw, ends[-1], k), numbers(draw, groups, k, n)

            def loop(tally, a, b):
                made = [matmul_loop(tally, a[cut], b[at]) for at, cut in enumerate(pieces)]
                return np.concatenate(made)

        return f"torch.ops::{op}", arrays, {}, loop

    return case


def general_product(draw):
    """Gemm: factors, transposed operands and a term of any form."""
    m, n, k = (draw(sizes) for _ in range(3))
    turned, turned_too = draw(st.booleans()), draw(st.booleans())
    alpha, beta = draw(st.sampled_from([1.0, 0.5])), draw(st.sampled_from([1.0, 2.0]))
    c_shape = draw(st.sampled_from([None, (), (1,), (n,), (m, n)]))
    arrays = (
        numbers(draw, *((k, m) if turned else (m, k))),
        numbers(draw, *((n, k) if turned_too else (k, n))),
        None if c_shape is None else numbers(draw, *c_shape),
    )

    def loop(tally, a, b, c):
        y = matmul_loop(tally, a.T if turned else a, b.T if turned_too else b)
        y = y * alpha if alpha != 1 else y
        if c is None:
            return y
        return y + (np.asarray(c * beta, dtype=object) if beta != 1 else c)

    attrs = {"alpha": alpha, "beta": beta, "transA": int(turned), "transB": int(turned_too)}
    return "Gemm", arrays, attrs, loop


def affine_grid(draw):
    """theta [N, d, d + 1] by the places of a field, (x, y, 1)."""
    batch, dims = draw(sizes), draw(st.integers(2, 3))
    extents = [draw(sizes) for _ in range(dims)]
    theta = numbers(draw, batch, dims, dims + 1)

    def loop(tally, theta, _):
        places = np.array([[*at, 1.0] for at in np.ndindex(*extents)])
        y = matmul_loop(tally, tally.array(places), theta.swapaxes(1, 2))
        return y.reshape(batch, *extents, dims)

    return "AffineGrid", (theta, None), {}, loop


def attention(draw):
    """Heads that share keys, a past, and values as deep as keys or not."""
    batch, kv_heads, shared, queries, keys, depth, wide = (draw(sizes) for _ in range(7))
    past = draw(st.integers(0, 2))
    arrays = (
        numbers(draw, batch, kv_heads * shared, queries, depth),
        numbers(draw, batch, kv_heads, keys, depth),
        numbers(draw, batch, kv_heads, keys, wide),
        None,
        numbers(draw, batch, kv_heads, past, depth) if past else None,
        numbers(draw, batch, kv_heads, past, wide) if past else None,
    )

    def loop(tally, q, k, v, mask, past_k, past_v):
        (k, past_k), (v, past_v) = joined(tally, k, past_k), joined(tally, v, past_v)
        return attention_loop(tally, q, k, v, mask, past_k, past_v, 0.0, False)

    return "Attention", arrays, {}, loop


def recurrent(kind):
    """A layer of one or two directions; its first state is given, or made of zeros."""

    def case(draw):
        length, batch, inputs, hidden, ways = (draw(sizes) for _ in range(5))
        ways, rows = min(ways, 2), GATES[kind] * hidden
        first = numbers(draw, ways, batch, hidden) if draw(st.booleans()) else None
        arrays = (
            numbers(draw, length, batch, inputs),
            numbers(draw, ways, rows, inputs),
            numbers(draw, ways, rows, hidden),
            numbers(draw, ways, 2 * rows) if draw(st.booleans()) else None,
            None,
            first,
        )

        def loop(tally, x, w, r, b, _, first):
            step = Step(kind, (w, r, b, None), flag=False)
            return sequence(tally, step, x, ways, hidden, first)

        way = "bidirectional" if ways == 2 else "forward"
        return kind, arrays, {"hidden_size": hidden, "direction": way}, loop

    return case


# Each by the operator: a case is the operator, its operands, its attributes, and the loop.
LOOPS = {
    "Conv": convolution("Conv", conv_loop, transposed=False),
    "ConvTranspose": convolution("ConvTranspose", conv_transpose_loop, transposed=True),
    "CausalConvWithState": causal_convolution,
    "MatMul": product("MatMul"),
    "com.microsoft.FusedMatMul": product("com.microsoft::FusedMatMul"),
    "com.microsoft.TransposeMatMul": product("com.microsoft::TransposeMatMul"),
    "torch.ops.aten.mm.default": complex_case("mm", "mk", "kn"),
    "torch.ops.aten.bmm.default": complex_case("bmm", "bmk", "bkn"),
    "torch.ops.aten.mv.default": complex_case("mv", "mk", "k"),
    "torch.ops.aten.dot.default": complex_case("dot", "k", "k"),
    "torch.ops.aten.linear.default": complex_linear,
    "torch.ops.aten._grouped_mm.default": grouped("aten._grouped_mm.default"),
    "torch.ops.transformers.grouped_mm_fallback.default": grouped(
        "transformers.grouped_mm_fallback.default"
    ),
    "Gemm": general_product,
    "AffineGrid": affine_grid,
    "Attention": attention,
    "LSTM": recurrent("LSTM"),
    "GRU": recurrent("GRU"),
    "RNN": recurrent("RNN"),
}
# Of these the loop says the MACs alone: functions of single numbers have laws of their own.
MACS_ALONE = {"Attention", "LSTM", "GRU", "RNN"}


def backward_of(op, arrays, result, wanted, attrs):
    """The work of the rule: of all gradients, and of what is run again."""
    given_ = node(op, [None if a is None else a.shape for a in arrays], [result.shape], **attrs)
    known = rule(given_.op)
    gradient = known.backward(given_, frozenset(wanted), known.formula(given_))
    return sum(gradient.operands.values(), gradient.inner), gradient.recomputed


def run(loop, arrays, wanted=()):
    """The loop on scalars, of which those that are wanted have gradients."""
    tally = Tally()
    scalars = [
        None if array is None else tally.array(array, graded=at in wanted)
        for at, array in enumerate(arrays)
    ]
    return tally, scalars, np.asarray(loop(tally, *scalars), dtype=object)


def check_slope(loop, arrays, scalars, wanted):
    """The gradients are right: the sum of all results changes as they say."""
    step, moved = 1e-4, []
    ways = {at: np.cos(np.arange(arrays[at].size)).reshape(arrays[at].shape) for at in wanted}
    for sign in (step, -step):
        there = [a if at not in ways else a + sign * ways[at] for at, a in enumerate(arrays)]
        moved.append(values(run(loop, there)[2]).sum())
    told = 0.0
    for at, way in ways.items():
        slopes = np.vectorize(lambda number: number.gradient, otypes=[float])(scalars[at])
        told += (slopes * way).sum()
    assert np.isclose((moved[0] - moved[1]) / (2 * step), told, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", list(LOOPS))
@few
@given(st.data())
def test_gradients_are_those_of_the_loop(name, data):
    """For every choice of operands: as much work as the chain rule takes, scalar by scalar."""
    op, arrays, attrs, loop = LOOPS[name](data.draw)
    there = [at for at, array in enumerate(arrays) if array is not None]
    wanted = data.draw(st.sets(st.sampled_from(there), min_size=1))
    tally, scalars, y = run(loop, arrays, wanted)
    spent = tally.back(y.flat)
    check_slope(loop, arrays, scalars, wanted)
    work, again = backward_of(op, arrays, y, wanted, attrs)
    if name in MACS_ALONE:
        assert work.macs == spent.macs
    else:
        assert (work, again) == (spent, ZERO)


words = st.lists(st.sampled_from("abcd"), max_size=3, unique=True).map("".join)


@few
@given(st.lists(words, min_size=2, max_size=3), st.data())
def test_einsum_hands_back_through_its_pairs(terms, data):
    """A pair that sums a label is a product backward, too; what one only multiplies, muls."""
    labels = sorted({*"".join(terms)})
    out = "".join(data.draw(st.permutations(labels)))
    out = out[: data.draw(st.integers(0, len(out)))]
    arrays = [numbers(data.draw, *(SIZES[label] for label in term)) for term in terms]
    equation = f"{','.join(terms)}->{out}"

    def loop(tally, left, *others):
        rows = list(terms[0])
        for at, (right, term) in enumerate(zip(others, terms[1:], strict=True), start=2):
            needed = {*out}.union(*terms[at:])
            left, rows = einsum_pair(tally, left, rows, right, list(term), needed)
        return np.transpose(left, [rows.index(label) for label in out])

    wanted = data.draw(st.sets(st.sampled_from(range(len(terms))), min_size=1))
    tally, scalars, y = run(loop, arrays, wanted)
    spent = tally.back(y.flat)
    check_slope(loop, arrays, scalars, wanted)
    work, again = backward_of("Einsum", arrays, y, wanted, {"equation": equation})
    assert (work, again) == (spent, ZERO)


@pytest.mark.parametrize("columns", [1, 4])
def test_solving_hands_back_two_triangles_and_a_product(columns):
    """A X = B, n = 3: dB solves by both factors, dA = -dB X^T.

    A triangle of 3 rows takes 3 mul-subs a column, and 3 divs where its diagonal is not 1.
    """
    arrays = np.zeros((2, 3, 3)), np.zeros((2, 3, columns))
    solved = Cost(muls=2 * 3, adds=2 * 3, divs=3) * (2 * columns)
    op = "torch.ops::aten.linalg_solve.default"
    assert backward_of(op, arrays, arrays[1], {1}, {})[0] == solved
    product_ = Cost(macs=9 * columns, adds=9) * 2
    assert backward_of(op, arrays, arrays[1], {0, 1}, {})[0] == solved + product_


def test_a_fused_attention_makes_its_scores_again():
    """2 x 3 heads, 4 queries, 5 keys of depth 6: 120 scores; none where a mask has a gradient."""
    q, k, mask = np.zeros((2, 3, 4, 6)), np.zeros((2, 3, 5, 6)), np.zeros((4, 5))
    assert backward_of("Attention", (q, k, k), q, {0, 1, 2}, {})[1].macs == 120 * 6
    assert backward_of("Attention", (q, k, k, mask), q, {0, 1, 2, 3}, {})[1].macs == 0


class Function:
    """A function in place of a model."""

    def __init__(self, function):
        self.function = function

    def parameters(self):
        """None."""
        return ()

    def __call__(self, *args):
        return self.function(*args)


def in_pytorch(name, arrays, attrs):
    """The function of PyTorch that does the same, on tensors."""
    import torch
    from torch.nn import functional

    if name in ("Conv", "ConvTranspose"):
        dims, transposed = arrays[0].ndim - 2, "_transpose" * (name == "ConvTranspose")
        function = getattr(functional, f"conv{transposed}{dims}d")
        named = {"stride": "strides", "dilation": "dilations", "groups": "group"}
        options = {key: attrs[value] for key, value in named.items()}
        return lambda x, w, b: function(x, w, b, padding=attrs["pads"][:dims], **options)
    if name == "Gemm":
        turn = [attrs["transA"], attrs["transB"]]
        scale = {"alpha": attrs["alpha"], "beta": attrs["beta"]}

        def general(a, b, c):
            a, b = (m.T if turned else m for m, turned in zip((a, b), turn, strict=True))
            return (a @ b) * scale["alpha"] if c is None else torch.addmm(c, a, b, **scale)

        return general
    if name == "Attention":

        def attend(q, k, v, *_):
            return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

        return attend
    return torch.matmul


@pytest.mark.torch
@pytest.mark.parametrize("name", ["Conv", "ConvTranspose", "MatMul", "Gemm", "Attention"])
@few
@given(st.data())
def test_gradients_are_those_that_pytorch_runs(name, data):
    """The MACs of the operators that its backward pass dispatches, of the same operands."""
    torch = pytest.importorskip("torch")
    from tests import executed

    op, arrays, attrs, _loop = LOOPS[name](data.draw)
    if name == "Attention":
        arrays = (*arrays[:3], None, None, None)
    if name == "MatMul":  # a stack of single rows or columns is a dot product for PyTorch
        assume(arrays[0].shape[-2] > 1 and arrays[1].shape[-1] > 1)
    there = [at for at, array in enumerate(arrays) if array is not None]
    wanted = data.draw(st.sets(st.sampled_from(there), min_size=1))
    tensors = [
        None if array is None else torch.tensor(array, requires_grad=at in wanted)
        for at, array in enumerate(arrays)
    ]
    function = in_pytorch(name, arrays, attrs)
    _, backward = executed.step(Function(function), tensors)
    y = np.zeros(tuple(function(*tensors).shape))
    assert backward_of(op, arrays, y, wanted, attrs)[0].macs == backward


def test_every_contraction_has_a_loop():
    """A rule whose gradients multiply and accumulate is held against one: none is left out."""
    contractions = {
        str(op)
        for op, known in rules().items()
        if "MAC" in known.equation
        and callable(known.backward)
        and known.backward is not no_gradient
    }
    assert contractions == {*LOOPS, "Einsum"}
