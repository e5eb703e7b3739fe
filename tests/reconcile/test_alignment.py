"""Two files, layer by layer: what is the same however it is written, and what is not."""

import itertools
import random

import pytest

from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.reading import normalize_onnx_file
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.reconcile.alignment import align_models
from crossflops.reconcile.contractions import read_alignable_model
from tests.onnx_files import saved, with_weights


def read(folder, text, *names, opset=17):
    """A graph in ONNX's text form, whose inputs of these names are weights."""
    path = saved(folder, with_weights(text, *names, opset=opset))
    graph, trace = normalize_onnx_file(OnnxFile(path=path), Setting())
    return read_alignable_model(graph, trace, count(graph))


def between(folder, first, other, opset=17):
    """The alignment of two graphs, which adds up in every layer and on the whole."""
    found = align_models(read(folder, *first, opset=opset), read(folder, *other, opset=opset))
    for row in found.layers:
        for kind in ("macs", "flops", "params"):
            added = sum(getattr(shift, kind) for shift in row.shifts)
            assert added == getattr(row.second_work, kind) - getattr(row.first_work, kind)
    left = found.residual
    assert (left.macs, left.flops, left.params) == (0, 0, 0)
    return found


def causes(found):
    """(MACs, FLOPs, parameters) by cause."""
    return {one.cause: (one.macs, one.flops, one.params) for one in found.causes}


def conv(out="8", kernel="3, 3", inside="4", size="8, 8", after="8, 8", bias=False, **attrs):
    """One convolution on an image of 4 channels."""
    more = f"<{', '.join(f'{name}={value}' for name, value in attrs.items())}>" if attrs else ""
    given = f", float[{out}] b" if bias else ""
    text = (
        f"g (float[1, {inside}, {size}] x, float[{out}, {inside}, {kernel}] w{given}) => "
        f"(float[1, {out}, {after}] y) {{ y = Conv {more} (x, w{', b' if bias else ''}) }}"
    )
    return (text, "w", "b") if bias else (text, "w")


DENSE = (
    "g (float[2, 5, 8] x, float[8, 6] w, float[6] b) => (float[2, 5, 6] y)"
    " { m = MatMul (x, w) y = Add (m, b) }"
)


def test_a_model_is_the_same_as_itself(tmp_path):
    """Nothing differs, and no layer has a shift."""
    alignment = between(tmp_path, (DENSE, "w", "b"), (DENSE, "w", "b"))
    assert alignment.same
    assert not any(row.shifts for row in alignment.layers)


def test_a_product_and_an_addition_are_a_gemm(tmp_path):
    """A linear layer on 2 x 5 rows: 10 x 8 x 6 MACs and 60 additions either way."""
    gemm = (
        "g (float[2, 5, 8] x, float[6, 8] w, float[6] b, int64[2] rows, int64[3] back)"
        " => (float[2, 5, 6] y) { r = Reshape (x, rows)"
        " m = Gemm <transB=1> (r, w, b) y = Reshape (m, back) }"
    )
    text = gemm.replace(", int64[2] rows, int64[3] back", "").replace(
        "{ r =", "{ rows = Constant <value_ints=[10, 8]> () "
        "back = Constant <value_ints=[2, 5, 6]> () r ="
    )  # fmt: skip
    alignment = between(tmp_path, (DENSE, "w", "b"), (text, "w", "b"))
    assert alignment.same
    assert alignment.first_work.macs == 480


def test_a_window_of_one_place_is_a_product(tmp_path):
    """A 1x1 convolution, and a product on the image with its channels at the end."""
    last = "g (float[1, 8, 8, 4] x, float[4, 8] w) => (float[1, 8, 8, 8] y) { y = MatMul (x, w) }"
    alignment = between(tmp_path, conv(kernel="1, 1"), (last, "w"))
    assert causes(alignment) == {"model.representation": (0, 0, 0)}
    assert alignment.first_work.macs == alignment.second_work.macs == 64 * 4 * 8


def test_a_layout_is_no_difference(tmp_path):
    """A convolution between two transpositions, as a converter writes it."""
    text = (
        "g (float[1, 8, 8, 4] x, float[8, 4, 3, 3] w) => (float[1, 8, 8, 8] y) {"
        " a = Transpose <perm=[0, 3, 1, 2]> (x) c = Conv <pads=[1, 1, 1, 1]> (a, w)"
        " y = Transpose <perm=[0, 2, 3, 1]> (c) }"
    )
    assert between(tmp_path, conv(pads=[1, 1, 1, 1]), (text, "w")).same


def test_a_stride_and_a_bias_by_hand(tmp_path):
    """64 places become 16: 48 x 36 x 8 MACs less; then 16 x 8 additions and 8 parameters more."""
    strided = conv(pads=[1, 1, 1, 1], strides=[2, 2], after="4, 4", bias=True)
    alignment = between(tmp_path, conv(pads=[1, 1, 1, 1]), strided)
    less = 48 * 36 * 8
    assert causes(alignment) == {"model.stride": (-less, -2 * less, 0), "model.bias": (0, 128, 8)}
    assert alignment.layers[-1].shifts[0].note == "stride 1 -> 2"


def test_a_window_and_channels_by_hand(tmp_path):
    """8 outputs of 3x3 become 6 of 1x1: 8 of 9 taps go first, then 2 of 8 channels."""
    small = conv(out="6", kernel="1, 1")
    alignment = between(tmp_path, conv(pads=[1, 1, 1, 1]), small)
    taps, outputs = 64 * 4 * 8 * 8, 64 * 4 * 2
    assert causes(alignment) == {
        "model.kernel": (-taps, -2 * taps, -4 * 8 * 8),
        "model.width": (-outputs, -2 * outputs, -4 * 2),
    }


NORM = (
    "g (float[1, 4, 8, 8] x, float[8, 4, 1, 1] w, float[8] s, float[8] o, float[8] m, float[8] v)"
    " => (float[1, 8, 8, 8] y) { c = Conv (x, w) y = BatchNormalization (c, s, o, m, v) }"
)


def test_a_folded_normalization_is_no_bias(tmp_path):
    """8 scales and 8 shifts become a bias of 8, with an addition for each of 512 outputs."""
    alignment = between(tmp_path, (NORM, "w", "s", "o", "m", "v"), conv(kernel="1, 1", bias=True))
    ((cause, amounts),) = causes(alignment).items()
    assert cause == "model.norm-folded"
    assert amounts[2] == -8
    assert amounts[1] == 512 - (alignment.first_work.flops - 2 * 64 * 4 * 8)


THREE = (
    "g (float[1, 5, 8] x, float[8, 8] q, float[8, 8] k, float[8, 8] v, float[8, 8] o)"
    " => (float[1, 5, 8] y) { a = MatMul (x, q) b = MatMul (x, k) c = MatMul (x, v)"
    " t = Transpose <perm=[0, 2, 1]> (b) s = MatMul (a, t) p = Softmax (s)"
    " z = MatMul (p, c) y = MatMul (z, o) }"
)
ONE = (
    "g (float[1, 5, 8] x, float[8, 24] w, float[8, 8] o)"
    " => (float[1, 5, 8] y) { n = Constant <value_ints=[8, 8, 8]> () m = MatMul (x, w)"
    " a, b, c = Split <axis=2> (m, n)"
    " t = Transpose <perm=[0, 2, 1]> (b) s = MatMul (a, t) p = Softmax (s)"
    " z = MatMul (p, c) y = MatMul (z, o) }"
)


def test_queries_keys_and_values_in_one_product(tmp_path):
    """Three products of 8 columns are one of 24; the rest is the same, pair by pair."""
    alignment = between(tmp_path, (THREE, "q", "k", "v", "o"), (ONE, "w", "o"))
    assert causes(alignment) == {"model.representation": (0, 0, 0)}
    (merged,) = [row for row in alignment.layers if row.shifts]
    assert len(merged.first.nodes) == 3
    assert len(merged.second.nodes) == 1


def heads(queries, others):
    """Three products with so many columns for queries, and for keys and for values."""
    weights = f"float[8, {queries}] q, float[8, {others}] k, float[8, {others}] v"
    return (
        f"g (float[1, 5, 8] x, {weights}) => (float[1, 5, {queries + 2 * others}] y)"
        " { a = MatMul (x, q) b = MatMul (x, k) c = MatMul (x, v) y = Concat <axis=2> (a, b, c) }",
        *("q", "k", "v"),
    )


def test_wider_keys_and_values_are_no_merged_ones(tmp_path):
    """Keys and values of 4 columns become such of 8: 5 x 8 x 4 MACs more of each."""
    alignment = between(tmp_path, heads(8, 4), heads(8, 8))
    assert causes(alignment) == {"model.width": (2 * 160, 4 * 160, 2 * 32)}
    assert all(row.first and row.second for row in alignment.layers)


def recurrent(hidden, batch=2, steps=7):
    """An LSTM over some steps of 4, without a bias."""
    gates = 4 * hidden
    return (
        f"g (float[{steps}, {batch}, 4] x, float[1, {gates}, 4] w, float[1, {gates}, {hidden}] r)"
        f" => (float[{steps}, 1, {batch}, {hidden}] y)"
        f" {{ y = LSTM <hidden_size={hidden}> (x, w, r) }}",
        *("w", "r"),
    )


def test_a_wider_recurrent_layer(tmp_path):
    """4 gates see 4 inputs and 3 or 5 states, on 7 steps of 2 examples."""
    alignment = between(tmp_path, recurrent(3), recurrent(5))
    more = 4 * 5 * (4 + 5) - 4 * 3 * (4 + 3)
    cause, amounts = next(iter(causes(alignment).items()))
    assert cause == "model.width"
    assert amounts[0] == 7 * 2 * more
    assert sum(row.params for row in alignment.causes) == more


def test_a_recurrent_layer_step_by_step(tmp_path):
    """One LSTM is 2 x 2 products of its gates, whose weights both steps use."""
    step = (
        "a{0} = Slice (x, s{0}, e{0}, z) b{0} = Squeeze (a{0}, z)"
        " i{0} = MatMul (b{0}, w) j{0} = MatMul (h{0}, r) g{0} = Add (i{0}, j{0})"
        " h{1} = Slice (g{0}, k, l, o)"
    )
    numbers = {"z": 0, "o": 1, "s0": 0, "e0": 1, "s1": 1, "e1": 2, "k": 0, "l": 3}
    constants = "".join(f" {n} = Constant <value_ints=[{v}]> ()" for n, v in numbers.items())
    text = (
        "g (float[2, 2, 4] x, float[2, 3] h0, float[4, 12] w, float[3, 12] r)"
        f" => (float[2, 3] y) {{{constants} {step.format(0, 1)} {step.format(1, 2)}"
        " y = Identity (h2) }"
    )
    alignment = between(tmp_path, recurrent(3, steps=2), (text, "w", "r"))
    (row,) = [row for row in alignment.layers if row.first and row.second]
    assert len(row.second.nodes) == 4
    assert alignment.delta.macs == alignment.delta.params == 0
    assert set(causes(alignment)) == {"model.representation"}


def test_a_fused_attention_is_its_two_products(tmp_path):
    """One head of 8 on 5 tokens: 5 x 5 x 8 MACs before the softmax and as many behind."""
    whole = (
        "g (float[1, 1, 5, 8] x, float[8, 8] o) => (float[1, 1, 5, 8] y)"
        " { z = Attention (x, x, x) y = MatMul (z, o) }"
    )
    parts = (
        "g (float[1, 1, 5, 8] x, float[8, 8] o) => (float[1, 1, 5, 8] y)"
        " { t = Transpose <perm=[0, 1, 3, 2]> (x) s = MatMul (x, t) p = Softmax (s)"
        " z = MatMul (p, x) y = MatMul (z, o) }"
    )
    alignment = between(tmp_path, (whole, "o"), (parts, "o"), opset=23)
    assert set(causes(alignment)) == {"model.representation"}
    assert alignment.delta.macs == 0
    assert alignment.first_work.macs == 2 * 5 * 5 * 8 + 5 * 8 * 8


def chain(widths):
    """Linear layers behind each other, each with a ReLU."""
    names = [f"w{place}" for place in range(len(widths) - 1)]
    pairs = list(itertools.pairwise(widths))
    weights = "".join(
        f", float[{a}, {b}] {name}" for name, (a, b) in zip(names, pairs, strict=True)
    )
    steps, value = [], "x"
    for place, name in enumerate(names):
        steps.append(f"m{place} = MatMul ({value}, {name}) r{place} = Relu (m{place})")
        value = f"r{place}"
    return (
        f"g (float[3, {widths[0]}] x{weights}) => (float[3, {widths[-1]}] y)"
        f" {{ {' '.join(steps)} y = Identity ({value}) }}",
        *names,
    )


def test_a_layer_more_is_named(tmp_path):
    """The second 5 -> 5 stands alone: 3 x 25 MACs, 15 activations, 25 parameters."""
    alignment = between(tmp_path, chain([4, 5, 6]), chain([4, 5, 5, 6]))
    assert causes(alignment) == {"model.layer-missing": (75, 165, 25)}
    (row,) = [row for row in alignment.layers if row.shifts]
    assert row.first is None
    assert row.second.what == "MatMul 5 -> 5, 1"


@pytest.mark.parametrize("seed", range(12))
def test_whatever_differs_adds_up(tmp_path, seed):
    """Two chains of random widths: `between` checks every layer, and the way back mirrors it."""
    chosen = random.Random(seed)
    first, other = (
        chain([chosen.choice((2, 3, 4, 8)) for _ in range(chosen.randint(2, 9))]) for _ in "ab"
    )
    there, back = between(tmp_path, first, other), between(tmp_path, other, first)
    assert there.delta.macs == -back.delta.macs
    assert there.delta.macs == sum(row.macs for row in there.causes)


BRANCHES = (
    "g (float[1, 4, 8, 8] x, float[4, 4, 1, 1] a, float[8, 4, 3, 3] b, float[8, 4, 1, 1] c)"
    " => (float[1, 8, 8, 8] y) {{ {} y = Add (n, s) }}"
)
MAIN = "m = Conv (x, a) n = Conv <pads=[1, 1, 1, 1]> (m, b)"
SHORTCUT = "s = Conv (x, c)"


def test_the_order_of_branches_is_no_difference(tmp_path):
    """A shortcut that is written down first."""
    first = BRANCHES.format(f"{MAIN} {SHORTCUT}"), "a", "b", "c"
    other = BRANCHES.format(f"{SHORTCUT} {MAIN}"), "a", "b", "c"
    assert between(tmp_path, first, other).same


def towers(*order):
    """Two towers of two convolutions on one image, written down in some order."""
    parts = {
        "a": "p = Conv (x, a) q = Conv <pads=[1, 1, 1, 1]> (p, b)",
        "c": "r = Conv (x, c) s = Conv <pads=[1, 1, 1, 1]> (r, d)",
    }
    weights = "float[4, 4, 1, 1] a, float[8, 4, 3, 3] b, float[6, 4, 1, 1] c, float[8, 6, 3, 3] d"
    steps = " ".join(parts[name] for name in order)
    return (
        f"g (float[1, 4, 8, 8] x, {weights}) => (float[1, 8, 8, 8] y)"
        f" {{ {steps} y = Add (q, s) }}",
        *("a", "b", "c", "d"),
    )


def test_towers_cross_where_each_has_its_equal(tmp_path):
    """No layer of one is paired with a wider one of the other for the sake of the order."""
    assert between(tmp_path, towers("a", "c"), towers("c", "a")).same


def test_a_batch_is_one_cause(tmp_path):
    """A batch of 4 in the place of 1: three times the work more, and no parameter."""
    text, *names = conv(pads=[1, 1, 1, 1], bias=True)
    other = text.replace("float[1, ", "float[4, ")
    alignment = between(tmp_path, (text, *names), (other, *names))
    macs = 3 * 64 * 36 * 8
    assert causes(alignment) == {"model.batch": (macs, 2 * macs + 3 * 512, 0)}
