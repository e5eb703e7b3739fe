"""Conventions of graph nodes: on files, against hand counts and counted scalars."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.ir.profile import FoldedRow
from crossflops.testing.graphs import to_node as make_node
from crossflops.tools import no_tool as exact
from crossflops.verbs.api import count
from tests.onnx_files import parsed, saved


def fold(tmp_path, text, tool, opset=17):
    """The model of that text, as the convention counts it."""
    return count(saved(tmp_path, parsed(text, opset)), as_=tool).as_


def test_elementwise_is_one_for_each_result(tmp_path):
    """ReLU and Sigmoid on 1x5x32x32: 5120 + 5120; what moves, reduces or contracts is nothing."""
    text = """g (float[1,5,32,32] x) => (float[5,1024] z) {
        a = Relu(x)  b = Sigmoid(a)  s = Constant<value = int64[2] {5, 1024}>()
        z = Reshape(b, s) }"""
    folded = fold(tmp_path, text, "elementwise-1")
    assert (folded.total, folded.uncounted, folded.assumed) == (10_240, (), False)
    assert folded.rows == (FoldedRow("Relu_0", "", 5120), FoldedRow("Sigmoid_1", "", 5120))


def test_contractions_are_no_elementwise_operators(tmp_path):
    """A product of matrices is nothing, and says so by no complaint."""
    text = "g (float[3,5] a, float[5,4] b) => (float[3,4] c) { m = MatMul(a, b) c = Neg(m) }"
    folded = fold(tmp_path, text, "elementwise-1")
    assert (folded.total, folded.uncounted) == (12, ())


@pytest.mark.parametrize(
    "body",
    ["y = Gemm(x, w, b)", "m = MatMul(x, w)  y = Add(m, b)"],
)
def test_a_linear_layer_with_bias_is_forty(tmp_path, body):
    """Linear(5, 4) on one row: 9 x 4 and 4 for the bias, however the graph has it."""
    text = f"g (float[1,5] x, float[5,4] w, float[4] b) => (float[1,4] y) {{ {body} }}"
    assert fold(tmp_path, text, "exact-2k-1").total == 40


def loop_sum(x, w, stride, bias):
    """Operations of a 1-D convolution, by doing it: x [C, L], w [M, C, k] as extents."""
    operations = 0
    channels, length = x
    maps, _, kernel = w
    for _ in range(maps):
        for _ in range((length - kernel) // stride + 1):
            for product in range(channels * kernel):
                operations += 1 if product == 0 else 2  # multiplied, and all but the first added
            operations += bias
    return operations


@given(st.tuples(*[st.integers(1, 3)] * 3), st.integers(0, 4), st.integers(1, 2), st.booleans())
def test_a_convolution_is_what_a_loop_does(tmp_path_factory, weight, extra, stride, bias):
    """2K - 1 for each result, and one for a bias."""
    maps, channels, kernel = weight
    length = kernel + extra
    results = (length - kernel) // stride + 1
    text = (
        f"g (float[1,{channels},{length}] x, float[{maps},{channels},{kernel}] w, "
        f"float[{maps}] b) => (float[1,{maps},{results}] y) "
        f"{{ y = Conv<strides=[{stride}]>(x, w{', b' if bias else ''}) }}"
    )
    folded = fold(tmp_path_factory.mktemp("conv"), text, "exact-2k-1")
    assert folded.total == loop_sum((channels, length), (maps, channels, kernel), stride, bias)


def test_sums_of_other_contractions():
    """By hand: attention has 2 x 3 x 4 x 5 scores and 2 x 3 x 4 x 7 results, and so on."""
    heads = make_node("Attention", [(2, 3, 4, 6), (2, 3, 5, 6), (2, 3, 5, 7)], [(2, 3, 4, 7)])
    assert exact.attention_sums(heads) == prod((2, 3, 4, 5)) + prod((2, 3, 4, 7))
    flat = make_node(
        "Attention", [(2, 4, 18), (2, 5, 18), (2, 5, 21)], [(2, 4, 21)],
        q_num_heads=3, kv_num_heads=3,
    )  # fmt: skip
    assert exact.attention_sums(flat) == prod((2, 3, 4, 5)) + prod((2, 3, 4, 7))
    lstm = make_node("LSTM", [(5, 2, 3), (1, 16, 3), (1, 16, 4)], [(5, 1, 2, 4)])
    assert exact.recurrent_gate_sums(lstm) == 5 * 2 * 16
    # stride 3, kernel 2: 4 inputs reach 8 of the 11 results of each of 5 maps
    spread = make_node("ConvTranspose", [(1, 3, 4), (3, 5, 2)], [(1, 5, 11)])
    assert exact.convolution_transpose_sums(spread) == 5 * 8


def test_bodies_count_as_often_as_they_run(tmp_path):
    """A loop of three trips: three times (2 x 5 - 1) x 4."""
    text = """g (float[1,5] x, float[5,4] w) => (float[1,4] y)
        <int64 n = {3}, bool c = {1}> {
        y0 = MatMul(x, w)
        y = Loop(n, c, y0) <body = b (int64 i, bool k, float[1,4] s) => (bool k2, float[1,4] r)
            { k2 = Identity(k)  p = MatMul(x, w)  r = Identity(p) }> }"""
    assert fold(tmp_path, text, "exact-2k-1").total == (3 + 1) * 9 * 4


def test_an_einsum_of_a_pair_and_of_three(tmp_path):
    """A product of matrices (2 x 5 - 1) x 12; of three, the second has 3 x 2 sums of four."""
    text = """g (float[3,5] a, float[5,4] b, float[4,2] c) => (float[3,4] y, float[3,2] z) {
        y = Einsum<equation = "ij,jk->ik">(a, b)
        z = Einsum<equation = "ij,jk,kl->il">(a, b, c) }"""
    folded = fold(tmp_path, text, "exact-2k-1")
    first = (2 * 5 - 1) * 12
    assert [row.amount for row in folded.rows] == [first, first + (2 * 4 - 1) * 6]


def test_an_outer_product_sums_nothing(tmp_path):
    """Its products are multiplications, and no first addition is left out."""
    text = """g (float[3] a, float[4] b) => (float[3,4] y) {
        y = Einsum<equation = "i,j->ij">(a, b) }"""
    assert fold(tmp_path, text, "exact-2k-1").total == 12


def test_what_it_knows_nothing_of_is_named(tmp_path):
    """A contraction without a clause, and an operator without a count."""
    text = """g (float[1,4,6] q, float[1,4,6] k, float[1,4,6] v) => (float[1,4,6] y, float[2] d) {
        y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v)  d = local.Odd(y) }"""
    folded = fold(tmp_path, text, "exact-2k-1")
    assert folded.total == 0
    assert set(folded.uncounted) == {"Odd_1", "MultiHeadAttention_0"}


def test_conventions_of_calls_are_refused_on_files(tmp_path):
    """Nobody knows which modules were called."""
    from crossflops.errors import InputError

    with pytest.raises(InputError, match="counts calls of modules"):
        fold(tmp_path, "g (float[2] x) => (float[2] y) { y = Relu(x) }", "torchstat")
