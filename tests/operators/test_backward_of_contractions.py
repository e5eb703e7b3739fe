"""Gradients of contractions against loops run backward on counted scalars, and against PyTorch.

The loops are those of the forward tests. What multiplies and adds in them has a gradient by the
chain rule, one scalar after the other (`Tally.back`), for every choice of operands that want one.
"""

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators import all_operator_rules, find_operator_rule
from crossflops.operators.gradient import no_gradient
from crossflops.operators.sparse import PRODUCTS
from crossflops.testing.graphs import to_node
from tests.operators.scalars import Number, Tally, few, numbers, values
from tests.operators.test_attention_against_loop import attention_loop
from tests.operators.test_contractions_against_loops import (
    conv_loop,
    conv_transpose_loop,
    convolutions,
    matmul_loop,
)
from tests.operators.test_convolution_and_pooling_against_loops import deform_loop
from tests.operators.test_einsum_against_loop import SIZES, einsum_pair
from tests.operators.test_recurrent_against_loops import GATES, Step, sequence
from tests.operators.test_state_against_loops import linear_attention_loop

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


def ragged(draw):
    """As grouped rows, in JAX."""
    _, *case = grouped("")(draw)
    return "jax::ragged_dot_general", *case


def sum_of_product(op, parts):
    """beta * C + alpha * A B, of complex numbers where there are two parts."""

    def case(draw):
        batch = [draw(sizes)] * ("baddbmm" in op)
        m, k, n = (draw(sizes) for _ in range(3))
        alpha, beta = draw(st.sampled_from([1.0, 0.5])), draw(st.sampled_from([1.0, 2.0]))
        arrays = tuple(numbers(draw, *batch, *dims, *parts) for dims in ((m, n), (m, k), (k, n)))

        def loop(tally, c, a, b):
            y = (complex_product if parts else matmul_loop)(tally, a, b)
            y = y.reshape(c.shape)
            return (y * alpha if alpha != 1 else y) + (c * beta if beta != 1 else c)

        return f"torch.ops::aten.{op}.default", arrays, {"alpha": alpha, "beta": beta}, loop

    return case


def complex_sum(draw):
    """An Einstein sum of complex numbers: a product of matrices."""
    _, arrays, _, loop = complex_case("mm", "mk", "kn")(draw)
    assume(arrays[0].shape[1] > 1)  # or nothing is summed
    equation = {"equation": "mk,kn->mn"}
    return "torch.ops::aten.einsum.default", arrays, equation, loop


def filter_gradient(op, depthwise):
    """dW [2, 2, C, K] of a window that slides by 1 in x [N, H, W, C], from dY [N, H', W', K]."""

    def case(draw):
        batch, channels, outs, height, width = (draw(sizes) for _ in range(5))
        outs = channels if depthwise else outs
        arrays = (
            numbers(draw, batch, height + 1, width + 1, channels),
            None,
            numbers(draw, batch, height, width, outs),
        )

        def loop(tally, x, _, dy):
            made = np.empty((2, 2, channels, 1 if depthwise else outs), dtype=object)
            for i, j, c, k in np.ndindex(*made.shape):
                seen = x[:, i : i + height, j : j + width, c]
                made[i, j, c, k] = tally.dot(seen.flat, dy[..., c if depthwise else k].flat)
            return made

        return f"tensorflow::{op}", arrays, {}, loop

    return case


def filter_gradient_of_volumes(draw):
    """As of images, with a window of 1 along the third axis."""
    _, (x, _, dy), attrs, loop = filter_gradient("", depthwise=False)(draw)

    def in_volumes(tally, x, _, dy):
        made = loop(tally, x[:, 0], None, dy[:, 0])
        return made.reshape(1, *made.shape)

    return "tensorflow::Conv3DBackpropFilterV2", (x[:, None], None, dy[:, None]), attrs, in_volumes


def depthwise_input_gradient(draw):
    """dX of a depthwise convolution: each gradient meets its filter [2, 2, C, 1]."""
    batch, channels, height, width = (draw(sizes) for _ in range(4))
    filter_, dy = numbers(draw, 2, 2, channels, 1), numbers(draw, batch, height, width, channels)

    def loop(tally, _, filter_, dy):
        made = tally.array(np.zeros((batch, height + 1, width + 1, channels)))
        for b, h, w, c in np.ndindex(*dy.shape):
            for i, j in np.ndindex(2, 2):
                at = (b, h + i, w + j, c)
                made[at] = tally.mac(made[at], filter_[i, j, c, 0], dy[b, h, w, c])
        return made

    return "tensorflow::DepthwiseConv2dNativeBackpropInput", (None, filter_, dy), {}, loop


def deformed(draw):
    """Windows whose places are moved, with a mask or none."""
    group, per_group, k, extent = draw(st.integers(1, 2)), draw(st.integers(1, 2)), 2, 2
    channels, outs = group * per_group, group * 2
    arrays = (
        numbers(draw, 1, channels, 3, 3),
        numbers(draw, outs, per_group, k, k),
        numbers(draw, 1, 2 * k * k, extent, extent) + 0.005,  # nowhere on an element
        None,
        numbers(draw, 1, k * k, extent, extent) if draw(st.booleans()) else None,
    )

    def loop(tally, x, w, offset, _, mask):
        return deform_loop(tally, x, w, offset, mask, groups=1, group=group)

    return "DeformConv", arrays, {"group": group, "kernel_shape": (k, k)}, loop


def linear_attention(rule):
    """Token after token, by one of the update rules."""

    def case(draw):
        batch, length, kv_heads, share, depth, wide = (draw(sizes) for _ in range(6))
        heads = kv_heads * share
        rows = {"q": (heads, depth), "k": (kv_heads, depth), "v": (kv_heads, wide)}
        q, k, v = (numbers(draw, batch, length, *dims) for dims in rows.values())
        gated, delta = "gated" in rule, "delta" in rule
        decay = -abs(numbers(draw, batch, length, kv_heads, depth)) if gated else None
        beta = numbers(draw, batch, length, kv_heads) if delta else None
        whole = [q, k, v, None, decay, beta]
        flat = [None if a is None else a.reshape(batch, length, -1) for a in whole]

        def loop(tally, *arrays):
            q, k, v, _, decay, beta = (
                None if there is None else there.reshape(like.shape)
                for there, like in zip(arrays, whole, strict=True)
            )
            y = linear_attention_loop(tally, q, k, v, decay, beta, rule, scale=0.5)
            return y.reshape(batch, length, -1)

        attrs = {"q_num_heads": heads, "kv_num_heads": kv_heads, "update_rule": rule}
        return "LinearAttention", flat, attrs, loop

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
    "jax.ragged_dot_general": ragged,
    "torch.ops.aten.addmm.default": sum_of_product("addmm", (2,)),
    "torch.ops.aten.baddbmm.default": sum_of_product("baddbmm", (2,)),
    "torch.ops.aten._sparse_addmm.default": sum_of_product("_sparse_addmm", ()),
    "torch.ops.aten.einsum.default": complex_sum,
    "tensorflow.Conv2DBackpropFilter": filter_gradient("Conv2DBackpropFilter", depthwise=False),
    "tensorflow.Conv3DBackpropFilterV2": filter_gradient_of_volumes,
    "tensorflow.DepthwiseConv2dNativeBackpropFilter": filter_gradient(
        "DepthwiseConv2dNativeBackpropFilter", depthwise=True
    ),
    "tensorflow.DepthwiseConv2dNativeBackpropInput": depthwise_input_gradient,
    "AffineGrid": affine_grid,
    "DeformConv": deformed,
    "Attention": attention,
    **{
        f"LinearAttention {rule}": linear_attention(rule)
        for rule in ("linear", "gated", "delta", "gated_delta")
    },
    "LSTM": recurrent("LSTM"),
    "GRU": recurrent("GRU"),
    "RNN": recurrent("RNN"),
}
# Of these the loop says the MACs alone: functions of single numbers have laws of their own.
MACS_ALONE = {"Attention", "LSTM", "GRU", "RNN", "DeformConv"}
MACS_ALONE |= {name for name in LOOPS if name.startswith("LinearAttention")}
# What PyTorch derives in a way of its own is held against what it runs.
AS_PYTORCH_RUNS = {"torch.ops.aten.lstm.input", "torch.ops.aten._euclidean_dist.default"} | {
    f"torch.ops.aten.{kind}.data" for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")
}
# In tests/frontends/test_backward_of_operators.py.
AS_PYTORCH_RUNS |= {"torch.ops.aten._trilinear.default"}
# By hand: sparse factors in tests/frontends/test_sparse_products.py, functions of matrices in
# tests/frontends/test_contractions.py.
AS_PYTORCH_RUNS |= {f"torch.ops.{name}" for name in PRODUCTS}
AS_PYTORCH_RUNS |= {"tensorflow.SparseTensorDenseMatMul"}  # by hand below
# In tests/frontends/jax/test_sparse_arrays.py.
AS_PYTORCH_RUNS |= {
    "jax.bcoo_dot_general",
    "jax.bcoo_dot_general_sampled",
    "jax.bcsr_dot_general",
}
AS_PYTORCH_RUNS |= {f"torch.ops.aten.linalg_matrix_{name}.default" for name in ("exp", "power")}


def backward_of(op, arrays, results, wanted, attrs, known_values=None):
    """The work of the rule: of all gradients, and of what is run again.

    `results` is one, or all of which the operator makes several.
    """
    results = results if isinstance(results, list) else [results]
    given_ = to_node(
        op, [None if a is None else a.shape for a in arrays], [y.shape for y in results], **attrs
    )
    given_ = msgspec.structs.replace(given_, values=known_values or {})
    known = find_operator_rule(given_.op)
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
    slope = 0.0
    for at, way in ways.items():
        slopes = np.vectorize(lambda number: number.gradient, otypes=[float])(scalars[at])
        slope += (slopes * way).sum()
    assert np.isclose((moved[0] - moved[1]) / (2 * step), slope, rtol=1e-4, atol=1e-5)


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


# By the function of torch.linalg: its operands, and what else it takes.
FACTORED = {
    "cholesky": (["3x3"], {}),
    "inv": (["3x3"], {}),
    "det": (["3x3"], {}),
    "solve_triangular": (["3x3", "3x4"], {"upper": False}),
    "lu_factor": (["3x3"], {}),
    "qr": (["5x3", "3x5", "3x3"], {}),
    "svd": (["5x3", "3x5", "3x3"], {"full_matrices": False}),
    "svdvals": (["5x3", "3x5", "3x3"], {}),
    "eigh": (["3x3"], {}),
    "eigvalsh": (["3x3"], {}),
}
_OF_TORCH = {
    "cholesky": ("linalg_cholesky", "linalg_cholesky_ex"),
    "inv": ("linalg_inv", "linalg_inv_ex"),
    "solve_triangular": ("linalg_solve_triangular",),
    "lu_factor": ("linalg_lu_factor_ex",),
    "qr": ("linalg_qr",),
    "svd": ("linalg_svd", "_linalg_svd"),
    "svdvals": ("linalg_svdvals",),
    "eigh": ("linalg_eigh", "_linalg_eigh"),
}
_ELSEWHERE = {
    "cholesky": ("jax.cholesky", "jax.numpy/linalg.cholesky", "tensorflow.Cholesky"),
    "inv": ("tensorflow.MatrixInverse", "com.microsoft.Inverse"),
    "det": ("jax.numpy/linalg.det", "Det"),
    "solve_triangular": ("jax.triangular_solve", "tensorflow.MatrixTriangularSolve"),
    "lu_factor": ("jax.lu", "tensorflow.Lu"),
    "qr": ("jax.qr", "jax.numpy/linalg.qr", "tensorflow.Qr"),
    "svd": ("jax.svd", "tensorflow.Svd"),
    "svdvals": (),
    "eigh": ("jax.eigh", "jax.numpy/linalg.eigh", "tensorflow.SelfAdjointEigV2"),
    "eigvalsh": (),
}
ALGEBRA_OF = {
    name: (
        *(f"torch.ops.aten.{op}.default" for op in _OF_TORCH.get(name, ())),
        *_ELSEWHERE[name],
    )
    for name in FACTORED
}
ALGEBRA = {op for ops in ALGEBRA_OF.values() for op in ops}
ATTRS = {
    "svdvals": {"compute_uv": 0},
    "eigvalsh": {"compute_v": 0},
}


def dispatched_work(function, operands, **options):
    """The work of what PyTorch runs backward: products, triangles, and what is elementwise."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    kinds = {"add": "adds", "sub": "adds", "neg": "adds", "mul": "muls", "div": "divs"}
    spent = []

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            name = str(func).split(".")[1].rstrip("_")
            if name == "bmm":
                spent.append(Cost(macs=args[0].numel() * args[1].shape[-1]))
            elif name in ("linalg_solve_triangular", "linalg_lu_solve"):
                triangle = args[0]
                n = triangle.shape[-1]
                right = args[-1] if name == "linalg_lu_solve" else args[1]
                columns = right.numel() // n
                unit = bool((kwargs or {}).get("unitriangular"))
                inner = n * (n - 1) // 2 * columns
                times = 2 if name == "linalg_lu_solve" else 1
                spent.append(
                    Cost(muls=times * inner, adds=times * inner, divs=0 if unit else n * columns)
                )
            elif name in kinds:
                spent.append(Cost(**{kinds[name]: out.numel()}))
            return out

    made = function(*operands, **options)
    made = [made] if isinstance(made, torch.Tensor) else [y for y in made if y.requires_grad]
    with Watched():
        torch.autograd.backward(made, [torch.ones_like(y) for y in made])
    return sum(spent, ZERO)


@pytest.mark.torch
@pytest.mark.parametrize("name", list(FACTORED))
def test_gradients_of_factors_are_what_pytorch_runs(name):
    """Stacks of two matrices, tall, wide and square, with gradients of all results."""
    torch = pytest.importorskip("torch")
    shapes, options = FACTORED[name]
    function = getattr(torch.linalg, name)
    pairs = [shapes] if name == "solve_triangular" else [[shape] for shape in shapes]
    for operands in pairs:
        extents = [(2, *map(int, text.split("x"))) for text in operands]
        torch.manual_seed(0)
        given_ = [torch.rand(*dims, dtype=torch.float64) for dims in extents]
        if extents[0][1] == extents[0][2]:
            given_[0] = given_[0] @ given_[0].mT + 3 * torch.eye(3, dtype=torch.float64)
        leaves = [tensor.requires_grad_() for tensor in given_]
        spent = dispatched_work(function, leaves, **options)
        results = function(*leaves, **options)
        made = [results] if isinstance(results, torch.Tensor) else list(results)
        ops = ALGEBRA_OF[name] or {"svdvals": ("jax.svd",), "eigvalsh": ("jax.eigh",)}[name]
        for op in ops:
            domain = op[: -len(op.partition("aten.")[1] + op.partition("aten.")[2])].rstrip(".")
            plain = op
            if domain == "torch.ops":
                plain = f"torch.ops::{op.removeprefix('torch.ops.')}"
            elif op.startswith(("jax.", "tensorflow.")):
                plain = op.replace(".", "::", 1)
            elif op.startswith("com.microsoft."):
                plain = op.replace("com.microsoft.", "com.microsoft::")
            arrays = [np.zeros(dims) for dims in extents]
            attrs = dict(ATTRS.get(name, {})) if not op.endswith("svdvals.default") else {}
            work, again = backward_of(
                plain,
                arrays,
                [np.zeros(tuple(y.shape)) for y in made],
                set(range(len(arrays))),
                attrs,
            )
            assert (work, again) == (spent, ZERO), op


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["projected", "LSTM", "GRU", "RNN", "RNN relu"])
@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("wanted", ["all", "upper", "lower", "input", "biases", "state"])
def test_gradients_of_cells_are_those_that_pytorch_runs(kind, ways, wanted):
    """Two layers on 3 sequences, padded and projected or packed; the lower or upper one frozen."""
    torch = pytest.importorskip("torch")
    from tests import executed

    name, _, function = kind.partition(" ")
    options = {"num_layers": 2, "bidirectional": ways == 2}
    options |= {"nonlinearity": function} if function else {}
    if kind == "projected":
        name, options = "LSTM", {**options, "proj_size": 2}
    layer = getattr(torch.nn, name)(4, 3, **options)
    for path, parameter in layer.named_parameters():
        upper = "_l1" in path
        trained = {"all": True, "upper": upper, "lower": not upper, "biases": "bias" in path}
        parameter.requires_grad_(trained.get(wanted, False))
    carried = 2 if kind == "projected" else 3
    x = torch.rand(5, 3, 4, requires_grad=wanted == "input")
    states = [torch.rand(2 * ways, 3, carried, requires_grad=wanted == "state")]
    states += [torch.rand(2 * ways, 3, 3, requires_grad=wanted == "state")] * (name == "LSTM")
    hx = tuple(states) if name == "LSTM" else states[0]
    weights = [w for row in layer.all_weights for w in row]
    attrs = {"num_layers": 2, "bidirectional": ways == 2, "has_biases": True}
    if kind == "projected":
        op, given_, data = "aten.lstm.input", [x, *states, *weights], x
    else:
        lengths = torch.tensor([5, 3, 2])
        data = torch.nn.utils.rnn.pack_padded_sequence(x, lengths)
        kinds = {"RNN": "rnn_tanh", "RNN relu": "rnn_relu"}
        op = f"aten.{kinds.get(kind, name.lower())}.data"
        given_ = [data.data, data.batch_sizes.float(), *states, *weights]
    _, backward = executed.step(layer, (data, hx))
    places = {at for at, tensor in enumerate(given_) if tensor.requires_grad}
    arrays = [np.zeros(tuple(tensor.shape)) for tensor in given_]
    y = np.zeros((len(given_[0]), carried * ways))
    batches = {1: (3, 3, 2, 1, 1)}  # of three sequences of 5, 3 and 2
    costs = backward_of(f"torch.ops::{op}", arrays, y, places, attrs, batches)
    assert costs[0].macs == backward


@pytest.mark.torch
@pytest.mark.parametrize("wanted", [{0}, {1}, {0, 1}])
@pytest.mark.parametrize("rows", [(26, 3), (2, 26), (30, 30)])
def test_gradients_of_distances_are_those_that_pytorch_runs(rows, wanted):
    """Of more than 25 rows on a side torch.cdist is a product, and backward two of them."""
    torch = pytest.importorskip("torch")
    from tests import executed

    points = [torch.rand(2, n, 5, requires_grad=at in wanted) for at, n in enumerate(rows)]
    _, backward = executed.step(Function(torch.cdist), points)
    operands = [np.zeros((2, n, 5)) for n in rows]
    work, again = backward_of(
        "torch.ops::aten._euclidean_dist.default", operands, np.zeros((2, *rows)), wanted, {}
    )
    assert (work.macs, again) == (backward, ZERO)


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
        for op, known in all_operator_rules().items()
        if "MAC" in known.equation
        and callable(known.backward)
        and known.backward is not no_gradient
    }
    assert contractions == {name.split()[0] for name in LOOPS} | {"Einsum"} | AS_PYTORCH_RUNS


@pytest.mark.parametrize(("place", "macs"), [(1, 5 * 3), (3, 5 * 3)])
def test_gradients_of_a_sparse_product_of_tensorflow(place, macs):
    """5 stored values, 3 columns: each value meets a row of dY, or adds to one of dB."""
    product = to_node(
        "tensorflow::SparseTensorDenseMatMul",
        ["5x2:int64", (5,), "2:int64", (4, 3)],
        [(6, 3)],
    )
    known = find_operator_rule(product.op)
    gradient = known.backward(product, frozenset({place}), known.formula(product))
    assert sum(cost.macs for cost in gradient.operands.values()) == macs
