"""A training step by hand: forward, gradients of inputs and of weights, what is run again."""

from typing import NamedTuple

import pytest

from crossflops.errors import InputError
from crossflops.ir.ledger import Cost
from crossflops.ledger.training.rule_of_thumb import exact_step_differences_by_cause
from crossflops.ledger.training.weights import TrainedWeights
from crossflops.ledger.training.work import count_training_step, total_work
from crossflops.operators import all_operator_rules
from crossflops.operators.gradient import NOT_YET
from crossflops.targets.request import Request
from crossflops.verbs.count import native_count
from tests.onnx_files import saved, with_weights


class Macs(NamedTuple):
    """Forward, gradients of inputs, gradients of weights, run again."""

    forward: int
    inputs: int
    weights: int
    recomputed: int = 0


@pytest.fixture
def training(tmp_path):
    """The step of a graph, with patterns of what is frozen or trained."""

    def count(text, weights, frozen=(), trainable=(), opset=17):
        path = saved(tmp_path, with_weights(text, *weights, opset=opset))
        _, native = native_count(Request.from_arguments(path))
        known = TrainedWeights(native.trace, frozen, trainable)
        exact = count_training_step(native.graph, known)
        known.check_patterns_match_weights(native.graph)
        thumb = {
            row.cause: row.macs
            for row in exact_step_differences_by_cause(native.graph, native.trace, exact)
        }
        return exact, thumb

    return count


def macs(exact):
    """The MACs of a whole step."""
    step = total_work(exact)
    costs = (step.forward, step.inputs, step.weights, step.recomputed)
    return Macs(*(cost.macs for cost in costs))


# A hidden layer of x [2,3] by a [3,4], ReLU, b [4,5]: a costs 24 MACs, b costs 40.
TWO = """
g (float[2,3] x, float[3,4] a, float[4] c, float[4,5] b) => (float[2,5] y)
{ h = Gemm(x, a, c) r = Relu(h) y = MatMul(r, b) }
"""


@pytest.mark.parametrize(
    ("frozen", "expected", "thumb"),
    [
        ((), Macs(64, 40, 64), {"backward.first-layer": -24}),
        (("a", "c"), Macs(64, 0, 40), {"backward.first-layer": -24, "backward.frozen": -64}),
        (("a",), Macs(64, 40, 40), {"backward.first-layer": -24, "backward.frozen": -24}),
        (("b",), Macs(64, 40, 24), {"backward.first-layer": -24, "backward.frozen": -40}),
        (("*",), Macs(64, 0, 0), {"backward.first-layer": -24, "backward.frozen": -104}),
    ],
)
def test_two_linear_layers(training, frozen, expected, thumb):
    """One trained bias below is enough for the layer above to hand its gradient down."""
    exact, by_cause = training(TWO, ("a", "b", "c"), frozen)
    assert macs(exact) == expected
    assert by_cause == thumb
    assert sum(expected) == 3 * 64 + sum(thumb.values())
    assert exact.unknown == ()


def test_the_flops_of_two_linear_layers(training):
    """Bias: 8 gradients become 4, 4 adds. ReLU: 8 compares."""
    step = total_work(training(TWO, ("a", "b", "c"))[0])
    assert step.weights == Cost(macs=64, adds=4)
    assert step.inputs == Cost(macs=40, compares=8)


# x [1,4,9,9] by w [6,2,3,3] in 2 groups, stride 2, dilation 2: y [1,6,3,3] of 54, 18 MACs each.
CONV = """
g (float[1,4,9,9] x, float[4] s, float[6,2,3,3] w, float[6] b) => (float[1,6,3,3] y)
{ y = Conv <group = 2, strides = [2, 2], dilations = [2, 2]> (x, w, b) }
"""
# x [1,4,3,3] by w [4,3,2,2] in 2 groups, stride 2: every x meets 3 * 4 weights.
TRANSPOSED = """
g (float[1,4,3,3] x, float[4,3,2,2] w, float[6] b) => (float[1,6,6,6] y)
{ y = ConvTranspose <group = 2, strides = [2, 2]> (x, w, b) }
"""


@pytest.mark.parametrize(("text", "forward"), [(CONV, 54 * 18), (TRANSPOSED, 36 * 12)])
def test_a_first_convolution(training, text, forward):
    """The image needs no gradient; strides, groups and dilation change nothing of the rule."""
    weights = [name for name in ("w", "b") if f" {name})" in text or f" {name}," in text]
    exact, _ = training(text, weights)
    assert macs(exact) == Macs(forward, 0, forward)
    assert macs(training(text, weights, ("w",))[0]) == Macs(forward, 0, 0)


def test_a_second_convolution(training):
    """Behind a trained one both operands have gradients."""
    text = """
    g (float[1,2,5,5] x, float[4,2,1,1] v, float[4,2,3,3] w) => (float[1,4,3,3] y)
    { h = Conv(x, v) y = Conv <group = 2> (h, w) }
    """
    first, second = 100 * 2, 36 * 18
    assert macs(training(text, ("v", "w"))[0]) == Macs(first + second, second, first + second)
    assert macs(training(text, ("v", "w"), ("v",))[0]) == Macs(first + second, 0, second)


# x [5,2,3], 4 hidden units, 4 gates: W is 5*2*16*3 = 480 MACs, R is 5*2*16*4 = 640.
LSTM = """
g (float[5,2,3] x, float[1,16,3] w, float[1,16,4] r, float[1,32] b) => (float[5,1,2,4] y)
{ y = LSTM <hidden_size = 4> (x, w, r, b) }
"""


def test_a_recurrent_layer(training):
    """dW and dR are whole; the state of four of five steps has a gradient, x has none."""
    exact, _ = training(LSTM, ("w", "r", "b"))
    assert macs(exact) == Macs(1120, 640 * 4 // 5, 1120)
    # with frozen weights a bias still needs the states' gradients
    assert macs(training(LSTM, ("w", "r", "b"), ("w", "r"))[0]) == Macs(1120, 512, 0)
    assert macs(training(LSTM, ("w", "r", "b"), ("*",))[0]) == Macs(1120, 0, 0)


def test_a_gated_unit_behind_a_layer(training):
    """GRU: 3 gates; the input has a gradient too, where something is trained before it.

    It resets before it multiplies: in the first step the reset gate has a gradient though the
    state has none, 2 rows by 4 x 4.
    """
    text = """
    g (float[5,2,3] x, float[3] s, float[1,12,3] w, float[1,12,4] r) => (float[5,1,2,4] y)
    { h = Mul(x, s) y = GRU <hidden_size = 4> (h, w, r) }
    """
    given, state = 5 * 2 * 12 * 3, 5 * 2 * 12 * 4
    states = state * 4 // 5 + 2 * 4 * 4
    exact, _ = training(text, ("w", "r"))
    assert macs(exact) == Macs(given + state, states, given + state)
    exact, _ = training(text, ("s", "w", "r"))
    assert macs(exact) == Macs(given + state, given + states, given + state)
    exact, _ = training(text.replace("<hid", "<linear_before_reset = 1, hid"), ("w", "r"))
    assert macs(exact) == Macs(given + state, state * 4 // 5, given + state)


# q, k, v [1,2,3,4]: two heads, 3 queries and keys: 18 scores of depth 4.
ATTENTION = """
g (float[1,2,3,4] x, float[4,4] a) => (float[1,2,3,4] y)
{ h = MatMul(x, a) y = Attention(h, h, h) }
"""


def test_fused_attention(training):
    """Two products forward, four backward, and the scores again; 24 x 4 MACs before it."""
    exact, thumb = training(ATTENTION, ("a",), opset=23)
    assert macs(exact) == Macs(96 + 2 * 72, 4 * 72, 96, 72)
    assert thumb == {"backward.first-layer": -96, "backward.attention-recomputed": 72}


def test_attention_by_products(training):
    """Scores are kept: nothing is run again."""
    text = """
    g (float[2,3,4] x, float[4,4] a) => (float[2,3,4] y)
    { h = MatMul(x, a) t = Transpose <perm = [0, 2, 1]> (h) s = MatMul(h, t)
      p = Softmax(s) y = MatMul(p, h) }
    """
    assert macs(training(text, ("a",))[0]) == Macs(96 + 144, 288, 96)


def test_einsum_of_two_and_of_three(training):
    """Three operands are two pairs: (x w) of 2*3*4 MACs, then by v of 2*4*5."""
    two = """
    g (float[2,3] x, float[3,4] w) => (float[2,4] y)
    { y = Einsum <equation = "bi,ij->bj"> (x, w) }
    """
    assert macs(training(two, ("w",))[0]) == Macs(24, 0, 24)
    three = """
    g (float[2,3] x, float[3,4] w, float[4,5] v) => (float[2,5] y)
    { y = Einsum <equation = "bi,ij,jk->bk"> (x, w, v) }
    """
    # dv and what lies between, 40 each, and dw
    assert macs(training(three, ("w", "v"))[0]) == Macs(64, 40, 64)
    assert macs(training(three, ("w", "v"), ("w",))[0]) == Macs(64, 0, 40)


def test_numbers_of_a_file_are_not_trained(training):
    """Factors without axes and sizes of a resizing are stored too: the image needs nothing."""
    text = """
    g (float[1,1,2,2] x, float[1,1,1,1] w) => (float[1,1,4,4] y)
    <float half = {0.5}, float[4] scales = {1, 1, 2, 2}>
    { h = Mul(x, half) r = Resize <mode = "nearest"> (h, , scales) y = Conv(r, w) }
    """
    assert macs(training(text, ("w",))[0]) == Macs(16, 0, 16)
    assert macs(training(text, ("w",), (), ("half",))[0]) == Macs(16, 16, 16)


CONSTANTS = f"""
g (float[2,3] x) => (float[2,4] y) {{
    a = Constant<value_floats = [{", ".join(["1.0"] * 15)}]>()
    n = Constant<value_ints = [3, 5]>()
    w = Reshape(a, n)
    h = MatMul(x, w)
    b = Constant<value_floats = [{", ".join(["1.0"] * 20)}]>()
    m = Constant<value_ints = [5, 4]>()
    v = Reshape(b, m)
    y = MatMul(h, v)
}}
"""


@pytest.mark.parametrize(
    ("options", "inputs", "weights"),
    [({}, 40, 70), ({"frozen": ("a",)}, 0, 40), ({"frozen": ("*",), "trainable": ("a",)}, 40, 30)],
)
def test_weights_that_are_nodes(training, options, inputs, weights):
    """2 x 3 by 3 x 5 and 5 x 4: a file that stores nothing else has its weights in Constants."""
    exact, _ = training(CONSTANTS, (), **options)
    assert macs(exact) == Macs(70, inputs, weights)


def test_lookups_and_norms_multiply_nothing(training):
    """An embedding adds each gradient to a row; a norm behind it has no MACs."""
    text = """
    g (int64[5] i, float[7,4] e, float[4] s, float[4] b) => (float[5,4] y)
    { x = Gather(e, i) y = LayerNormalization(x, s, b) }
    """
    exact, _ = training(text, ("e", "s", "b"))
    assert macs(exact) == Macs(0, 0, 0)
    step = total_work(exact)
    # e: 20 adds. s: 20 muls, 16 adds. b: 16 adds.
    assert step.weights == Cost(adds=20 + 16 + 16, muls=20)
    # x: g, g x^, x^ mean and r: 80 muls; two sums of 15, two of 20 subs; 2 means of 5 rows
    assert step.inputs == Cost(muls=80, adds=30 + 40, divs=10)
    assert step.recomputed == Cost(muls=20, adds=20)


def test_outputs_that_miss_the_loss(training):
    """An output of integers is in no loss, and what leads to it alone has no backward pass."""
    text = """
    g (float[2,3] x, float[3,4] a, float[3,5] b) => (float[2,4] y, int64[2] n)
    { y = MatMul(x, a) z = MatMul(x, b) n = ArgMax <axis = 1, keepdims = 0> (z) }
    """
    exact, thumb = training(text, ("a", "b"))
    assert macs(exact) == Macs(24 + 30, 0, 24)
    assert thumb["backward.cut"] == -30


def test_a_loop_hands_its_gradient_on(training):
    """Three runs of x by w [4,4]: the first one's x needs no gradient, the states behind it do."""
    text = """
    g (float[2,4] x, float[4,4] w) => (float[2,4] y)
    <int64 trips = {3}, bool go = {1}>
    {
      y = Loop(trips, go, x) <body = b (int64 i, bool c, float[2,4] h) => (bool d, float[2,4] k) {
        d = Identity(c)
        k = MatMul(h, w)
      }>
    }
    """
    exact, _ = training(text, ("w",))
    assert macs(exact) == Macs(96, 64, 96)
    # w is used three times: two sums of its 16 gradients
    assert total_work(exact).weights == Cost(macs=96, adds=32)


SCAN = """
g (float[2,4] x, float[5,2,4] xs, float[4,4] w, float[4,4] v) => (float[2,4] y, float[5,2,4] ys)
{
  y, ys = Scan <num_scan_inputs = 1, body = b (float[2,4] h, float[2,4] s)
  => (float[2,4] k, float[2,4] o) {
    a = MatMul(h, w)
    k = Add(a, s)
    o = MatMul(k, v)
  }> (x, xs)
}
"""


def test_a_scan_keeps_states_and_what_it_scans_apart(training):
    """Five runs of two products of 32 MACs: the first state and all that is scanned need none."""
    assert macs(training(SCAN, ("w", "v"))[0]) == Macs(320, 32 * 4 + 32 * 5, 320)
    assert macs(training(SCAN, ("w", "v"), ("w",))[0]) == Macs(320, 0, 160)
    assert macs(training(SCAN, ("w", "v"), ("v",))[0]) == Macs(320, 32 * 4 + 32 * 5, 160)


def test_the_last_state_misses_the_loss_where_no_result_does(training):
    """Only what is scanned reaches the loss: the last run hands no gradient to its state."""
    text = """
    g (float[2,4] x, float[4,4] w) => (float[3,2,4] ys)
    <int64 trips = {3}, bool go = {1}>
    {
      y, ys = Loop(trips, go, x) <body = b (int64 i, bool c, float[2,4] h)
      => (bool d, float[2,4] k, float[2,4] o) {
        d = Identity(c)
        k = MatMul(h, w)
        o = Relu(h)
      }>
    }
    """
    # run 1 of x, run 2 of the state behind it; the product of run 3 reaches nothing
    assert macs(training(text, ("w",))[0]) == Macs(96, 32, 64)


def test_what_has_no_formula_is_named(training):
    """Unknown is never zero: the node is in no sum, and is named with the reason."""
    text = """
    g (float[1,4,4,4] x, float[1,1,1,1] w) => (float[k] y)
    { h = Mul(x, w) y = Unique(h) }
    """
    exact, _ = training(text, ("w",))
    assert [(row.node.op.type, row.reason) for row in exact.unknown] == [
        ("Unique", "Unique: PyTorch has no gradient for it")
    ]


# As TWO, with whole numbers between both layers, which are moved there; the weights of a file that
# was quantized are whole numbers themselves.
ROUNDED = """
g (float[2,3] x, float[3,4] a, float[4,5] b, int8[5,6] c, float[6] s) => (float[2,6] y)
<float t = {0.5}, int8 z = {0}>
{
  h = MatMul(x, a) q = QuantizeLinear(h, t, z) m = Reshape(q, shape) r = DequantizeLinear(m, t, z)
  i = MatMul(r, b) w = DequantizeLinear <axis = 1> (c, s) y = MatMul(i, w)
}
"""


def test_gradients_go_straight_through_rounding(training):
    """24, 40 and 60 MACs: c is not trained, and hands its gradient to b and a; s is a scale."""
    text = ROUNDED.replace("int8 z = {0}>", "int8 z = {0}, int64[2] shape = {2, 4}>")
    exact, _ = training(text, ("a", "b", "c", "s"))
    assert exact.unknown == ()
    assert macs(exact) == Macs(124, 40 + 60, 24 + 40)
    assert total_work(exact).backward == Cost(macs=100 + 64, muls=8)  # and one mask


# h [1,2,2,3] becomes y [1,2,4,6], 48 elements.
RESIZED = """
g (float[1,2,2,3] x, float[1] w) => (float[1,2,4,6] y)
<float[4] scales = {{1, 1, 2, 2}}>
{{ h = Mul(x, w) y = Resize <mode = "{mode}"> (h, , scales) }}
"""


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("nearest", Cost(adds=48 - 12)),  # four copies of each element become one sum
        ("linear", Cost(muls=48 * 4, adds=48 * 4)),  # each g, weighed, is added to 4 neighbours
        ("cubic", Cost(muls=48 * 16, adds=48 * 16)),
    ],
)
def test_resizing_hands_gradients_to_the_neighbours(training, mode, expected):
    """As upsample_*_backward of PyTorch does it, element by element."""
    exact, _ = training(RESIZED.format(mode=mode), ("w",))
    assert exact.unknown == ()
    resized = next(step for key, step in exact.by_key.items() if "Resize" in key or key == "y")
    assert resized.backward == expected


def test_a_pattern_of_no_weight_is_refused(training):
    """Freezing what is not there would change nothing, silently."""
    with pytest.raises(InputError, match="'fourth' matches no weight"):
        training(TWO, ("a", "b", "c"), ("fourth",))


def test_every_operator_has_a_rule_or_a_reason():
    """`backward` is a formula, or says in words why there is none."""
    for op, known in all_operator_rules().items():
        assert callable(known.backward) or known.backward not in ("", NOT_YET), op


def loops(shape, weight, group, stride, dilation):
    """Products of the three passes of a 2-D convolution without pads, one by one."""
    (batch, channels, height, width), (maps, part, *kernel) = shape, weight
    reach = [dilation * (extent - 1) + 1 for extent in kernel]
    rows, columns = ((e - r) // stride + 1 for e, r in zip((height, width), reach, strict=True))
    forward = inputs = weights = 0
    for _ in range(batch):
        for m in range(maps):
            first = m // (maps // group) * part
            for y in range(rows):
                for x in range(columns):
                    for c in range(first, first + part):
                        assert c < channels
                        for i in range(kernel[0]):
                            for j in range(kernel[1]):
                                assert y * stride + i * dilation < height
                                assert x * stride + j * dilation < width
                                forward += 1  # Y[m,y,x] += X[c,.,.] * W[m,c,i,j]
                                inputs += 1  # dX[c,.,.] += dY[m,y,x] * W[m,c,i,j]
                                weights += 1  # dW[m,c,i,j] += dY[m,y,x] * X[c,.,.]
    return Macs(forward, inputs, weights)


@pytest.mark.parametrize(
    ("shape", "weight", "group", "stride", "dilation"),
    [
        ((2, 4, 7, 6), (6, 2, 3, 2), 2, 1, 1),
        ((1, 4, 9, 9), (4, 1, 3, 3), 4, 2, 2),
        ((1, 3, 8, 5), (2, 3, 2, 2), 1, 3, 1),
    ],
)
def test_a_convolution_is_three_equal_loops(training, shape, weight, group, stride, dilation):
    """Behind a trained scale both operands have gradients, by as many products as forward."""
    sizes, kernel = (",".join(map(str, dims)) for dims in (shape, weight))
    attributes = f"group = {group}, strides = [{stride}, {stride}]"
    attributes += f", dilations = [{dilation}, {dilation}]"
    text = f"""
    g (float[{sizes}] x, float[1,{shape[1]},1,1] s, float[{kernel}] w) => (float[n,m,h,v] y)
    {{ z = Mul(x, s) y = Conv <{attributes}> (z, w) }}
    """
    assert macs(training(text, ("s", "w"))[0]) == loops(shape, weight, group, stride, dilation)


def test_the_report_has_the_step_and_its_rows(tmp_path):
    """JSON as the page says; rows add up, and the totals stay the forward pass."""
    path = saved(tmp_path, with_weights(TWO, "a", "b", "c"))
    report, _ = native_count(Request.from_arguments(path, train=True, frozen=("a",)))
    plain = report.to_dict()
    step = plain["training"]
    assert plain["totals"]["macs"] == step["forward_macs"] == 64
    assert (step["backward_input_macs"], step["backward_weight_macs"]) == (40, 40)
    for part in ("forward", "backward_input", "backward_weight", "recomputed"):
        for unit in ("macs", "flops"):
            name = f"{part}_{unit}"
            assert sum(row["training"][name] for row in plain["nodes"]) == step[name]
            assert sum(row["training"][name] for row in plain["by_op"]) == step[name]
    assert type(report).from_json(report.to_json()) == report
    assert plain["request"]["flags"]["frozen"] == ["a"]


def test_patterns_without_training_are_refused(tmp_path):
    """They would change nothing, silently."""
    path = saved(tmp_path, with_weights(TWO, "a", "b", "c"))
    with pytest.raises(InputError, match="requires --train"):
        native_count(Request.from_arguments(path, frozen=("a",)))
