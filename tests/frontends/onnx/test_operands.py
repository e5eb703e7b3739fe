"""A count holds only for a graph that can run: operands that contradict each other are refused."""

import json

import numpy as np
import onnx
import pytest

from crossflops import Report
from crossflops.errors import OperandError
from crossflops.ir.graph import TensorSpec
from crossflops.verbs import api
from tests.onnx_files import ledger_of, parsed, saved, with_weights

pytestmark = pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning")

CONV = "g (float[1,3,32,32] x, float[8,3,3,3] w) => (float[1,8,30,30] y) { y = Conv (x, w) }"
CONVOLUTION = with_weights(CONV, "w")
X = TensorSpec("x", "", (1, 4, 32, 32))


# Each is refused by onnxruntime 1.31; the words name the operand and both sizes.
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "g (float[1,4,32,32] x, float[8,3,3,3] w) => (float[1,8,30,30] y) { y = Conv (x, w) }",
            r"'Conv_0' \(Conv\) .* W 'w' \(8x3x3x3\) has 3 at axis 1, but 4 is needed for X 'x'",
        ),
        (
            "g (float[1,3,2,2] x, float[8,3,3,3] w) => (y) { y = Conv (x, w) }",
            r"'x' \(1x3x2x2\) has 2 at axis 2, but the window takes 3",
        ),
        (
            "g (float[1,3,1,1] x, float[8,3,3,3] w) => (y) { y = Conv (x, w) }",
            r"'x' \(1x3x1x1\) has 1 at axis 2, but the window takes 3",
        ),
        (
            "g (float[4,16] x, float[17,5] w) => (float[4,5] y) { y = MatMul (x, w) }",
            r"'w' \(17x5\) has 17 at axis 0, but 16 is needed for the last axis of input 0 'x'",
        ),
        (
            "g (float[5,2,4] x, float[1,80,4] w, float[1,80,20] r) => (float[5,1,2,30] y) "
            "{ y = LSTM <hidden_size=30> (x, w, r) }",
            r"W 'w' \(1x80x4\) has 80 at axis 1, but 120 is needed for hidden_size = 30",
        ),
        (
            "g (float[1,2,4,4] x) => (y) <float[4] s = {1.0, 1.0, 0.0, 2.0}> "
            "{ y = Resize (x, , s) }",
            r"'Resize_0' \(Resize\) cannot run: a scale is 0, but Resize needs more than 0",
        ),
        (
            "g (float[2,3] x) => (float[2,4] y) <int64[2] s = {2, 4}> { y = Reshape (x, s) }",
            r"'x' \(2x3\) has 6 elements, which do not fill 2x4",
        ),
        (
            "g (float[7] x) => (a, b) <int64[2] s = {3, 3}> { a, b = Split <axis=0> (x, s) }",
            r"'x' \(7\) has 7 at axis 0, but the parts add up to 6",
        ),
        (
            "g (float[2,3] x, float[2,4] z) => (y) { y = Concat <axis=0> (x, z) }",
            r"'z' \(2x4\) has 4 at axis 1, but 3 is needed to match input 0 'x'",
        ),
        (
            "g (float[2,3] x, float[4] z) => (y) { y = Add (x, z) }",
            r"'z' \(4\) has 4 at axis 0, which does not broadcast with the 3 of input 0 'x'",
        ),
        (
            "g (float[2,6,8] q, float[2,5,7] k) => (y) "
            "{ y = com.microsoft.MultiHeadAttention <num_heads=2> (q, k, k) }",
            r"key 'k' \(2x5x7\) has 7 at axis 2, but 8 is needed for query 'q'",
        ),
    ],
)
def test_operands_that_contradict_each_other(text, words, tmp_path):
    """Whatever the file says of the result: the node, the operand and both sizes are named."""
    with pytest.raises(OperandError, match=words):
        ledger_of(saved(tmp_path, parsed(text)))


# Each is refused by onnxruntime 1.31, though the file says which shape the result has.
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "g (float[1,3,5,5] x, float[8,3,3,3] w) => (float[1,8,4,4] y) "
            "{ y = Conv <pads=[-1,0,0,0]> (x, w) }",
            r"\(Conv\) cannot run: attribute 'pads' has -1, but at least 0 is needed",
        ),
        (
            "g (float[1,3,5,5] x, float[8,3,3,3] w) => (float[1,8,5,5] y) "
            '{ y = Conv <pads=[1,1,1,1], auto_pad="SAME_UPPER"> (x, w) }',
            "attributes 'pads' and 'auto_pad' exclude each other",
        ),
        (
            "g (float[1,3,5,5] x, float[3,8,3,3] w) => (float[1,8,7,7] y) "
            "{ y = ConvTranspose <output_shape=[7]> (x, w) }",
            r"\(ConvTranspose\) cannot run: Attribute output_shape has incorrect size",
        ),
        (
            "g (float[5,3] x) => (float[2,3] y) <int64[1] a={0}, int64[1] b={5}, int64[1] s={0}> "
            "{ y = Slice (x, a, b, a, s) }",
            r"\(Slice\) cannot run: 'step' cannot be 0",
        ),
        (
            "g (float[4] a, float[5,3] x) => (float[4] y, float[5,3] z) { y, z = Scan "
            "<num_scan_inputs=1, body = b (float[4] s, float[7] e) => (float[4] t, float[7] o) "
            "{ t = Identity (s) o = Identity (e) }> (a, x) }",
            r"'Scan_0' \(Scan\) cannot run: .*\(3\) vs \(7\)",
        ),
        (
            "g (float[2,3] x, float[3,3] w) => (float[2,3] y) <int64 n={3}, bool c={1}> "
            "{ y = Loop (n, c, x) <body = b (int64 i, bool k, float[2,4] s) => "
            "(bool d, float[2,3] t) { d = Identity (k) t = MatMul (s, w) }> }",
            r"'Loop_0' \(Loop\) cannot run: Incompatible dimensions for matrix multiplication",
        ),
        (
            "g (float[2,3] x) => (float[2,3] y) <int64 n={3}, bool c={1}> { y = Loop (n, c, x) "
            "<body = b (int64 i, bool k) => (bool d) { d = Identity (k) }> }",
            r"'Loop_0' \(Loop\) cannot run: Graph has 2 inputs but 3 were provided",
        ),
    ],
)
def test_what_a_file_says_of_results_excuses_nothing(text, words, tmp_path):
    """Attributes that do not fit; sizes that a body declares and is not given."""
    with pytest.raises(OperandError, match=words):
        ledger_of(saved(tmp_path, parsed(text)))


def test_a_loop_may_carry_another_size_than_its_body_declares(tmp_path):
    """Where nothing in the body contradicts it, onnxruntime 1.31 runs it: 3 x 2*3*3 MACs."""
    text = (
        "g (float[2,3] x, float[3,3] w) => (float[2,3] y) <int64 n={3}, bool c={1}> "
        "{ y = Loop (n, c, x) <body = b (int64 i, bool k, float[4,3] s) => (bool d, float[4,3] t) "
        "{ d = Identity (k) t = MatMul (s, w) }> }"
    )
    assert ledger_of(saved(tmp_path, parsed(text))).total.macs == 3 * 2 * 3 * 3


def test_what_is_in_a_loop_and_in_a_function_is_looked_at(tmp_path):
    """A body runs as its node does."""
    product = "float[4,16] x, float[17,5] w"
    loop = (
        f"g ({product}) => (y) <int64 n = {{2}}, bool c = {{1}}> {{ y = Loop (n, c) "
        "<body = b (int64 i, bool d) => (bool e, s) { e = Identity (d) s = MatMul (x, w) }> }"
    )
    call = (
        f"g ({product}) => (y) {{ y = local.f (x, w) }} "
        '<domain: "local", opset_import: ["": 17]> f (a, b) => (c) { c = MatMul (a, b) }'
    )
    for text in (loop, call):
        with pytest.raises(OperandError, match="has 17 at axis 0, but 16 is needed"):
            ledger_of(saved(tmp_path, parsed(text)))


def test_a_branch_that_cannot_run_leaves_the_other_one(tmp_path):
    """Which branch runs is not known, but only one of them can: 4 * 16 * 5 MACs."""
    text = (
        "g (float[4,16] x, float[17,5] w, float[16,5] v, bool c) => (y) { y = If (c) "
        "<then_branch = t () => (float[4,5] p) { p = MatMul (x, w) }, "
        "else_branch = e () => (float[4,5] q) { q = MatMul (x, v) }> }"
    )
    ledger = ledger_of(saved(tmp_path, parsed(text)))
    assert ledger.total.macs == 4 * 16 * 5
    held = next(ledger.counted)
    assert held.formula.startswith("else_branch: in the other branch, node 'MatMul_0'")
    both = text.replace("(x, v)", "(x, w)")
    with pytest.raises(OperandError, match="17"):
        ledger_of(saved(tmp_path, parsed(both)))


def test_sizes_that_are_not_known_are_no_contradiction(tmp_path):
    """How many elements NonZero finds is data."""
    text = (
        "g (float[4] x, float[4,5] w) => (y) { n = NonZero (x) f = Cast <to=1> (n) "
        "y = MatMul (f, w) }"
    )
    assert not ledger_of(saved(tmp_path, parsed(text))).total.macs


def test_a_size_that_the_file_fixes_may_be_overridden_and_is_said(tmp_path):
    """Twice the batch is twice the work; the sentence stands in the report and in its JSON."""
    path = saved(tmp_path, CONVOLUTION)
    plain = api.count(path)
    assert plain.warnings == ()
    report = api.count(path, ("2x3x32x32",))
    assert report.macs == 2 * plain.macs == 2 * 8 * 30 * 30 * 27
    note = "the file declares the shape 1x3x32x32 for input 'x', but it is counted with 2x3x32x32"
    assert report.warnings == (note,)
    assert json.loads(report.to_json())["warnings"] == [note]
    assert Report.from_json(report.to_json()) == report
    with pytest.warns(UserWarning, match="the file declares the shape 1x3x32x32 for input 'x'"):
        api.count(path, ("2x3x32x32",))


def test_an_overridden_size_that_does_not_fit_is_refused(tmp_path):
    """Four channels meet weights of three."""
    with pytest.raises(OperandError, match="has 3 at axis 1, but 4 is needed"):
        ledger_of(saved(tmp_path, CONVOLUTION), specs=(X,))


def test_a_named_size_that_is_bound_is_not_overridden(tmp_path):
    """Only what the file fixes as a number can be."""
    named = CONV.replace("float[1,3", "float[n,3").replace("float[1,8", "float[n,8")
    path = saved(tmp_path, with_weights(named, "w"))
    assert api.count(path, ("2x3x32x32",)).warnings == ()


def test_empty_inputs_and_results_are_counted_and_said(tmp_path):
    """onnxruntime 1.31 runs both, and gives results of 0x8x30x30 and 1x3x0x0."""
    none = api.count(saved(tmp_path, CONVOLUTION), ("0x3x32x32",))
    assert none.macs == 0
    assert (
        none.warnings[1]
        == "input 'x' has a zero-size dimension (0x3x32x32); everything computed from it is empty"
    )
    pool = parsed("g (float[1,3,2,2] x) => (y) { y = MaxPool <kernel_shape=[3,3]> (x) }")
    report = api.count(saved(tmp_path, pool))
    assert report.warnings == ("result 'y' of node 'MaxPool_0' is empty: 1x3x0x0",)


def test_a_list_of_no_sizes_is_no_empty_result(tmp_path):
    """The shape of a scalar is an empty list: nothing to tell."""
    model = parsed(
        "g (float[2] x) => (y) { s = ReduceSum <keepdims=0> (x) h = Shape (s) "
        "t = ConstantOfShape (h) y = Add (s, t) }"
    )
    assert api.count(saved(tmp_path, model)).warnings == ()


@pytest.mark.onnxruntime
@pytest.mark.parametrize("kernel", [1, 3])
def test_onnxruntime_says_the_same_of_these_files(kernel, tmp_path):
    """The two sides of the edge: a window of 1 fits 1x1, one of 3 does not."""
    onnxruntime = pytest.importorskip("onnxruntime")
    text = f"g (float[1,3,1,1] x, float[8,3,{kernel},{kernel}] w) => (y) {{ y = Conv (x, w) }}"
    model = with_weights(text, "w")
    path = saved(tmp_path, model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4

    def run():
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return session.run(None, {"x": np.zeros((1, 3, 1, 1), np.float32)})

    if kernel == 1:
        assert run()[0].shape == (1, 8, 1, 1)
        assert ledger_of(path).total.macs == 8 * 3
        return
    with pytest.raises(Exception, match="Invalid input shape"):
        run()
    with pytest.raises(OperandError, match="the window takes 3"):
        ledger_of(path)


def test_a_file_that_lost_an_axis_is_named_by_its_node(tmp_path):
    """The name of the node, where it has one."""
    model = onnx.ModelProto()
    model.CopyFrom(CONVOLUTION)
    model.graph.node[0].name = "stem"
    with pytest.raises(OperandError, match=r"node 'stem' \(Conv\) cannot run"):
        ledger_of(saved(tmp_path, model), specs=(X,))


@pytest.mark.parametrize(("scale", "runs"), [(2.0, True), (1.0, True), (0.5, False), (0.0, False)])
def test_an_upsample_makes_nothing_smaller(scale, runs, tmp_path):
    """onnxruntime runs those of 1 and more, where scales are an attribute and an input."""
    scales = f"1.0, 1.0, {scale}, {scale}"
    body = "g (float[1,2,4,4] x) => (y) "
    for opset, rest in (
        (7, f"{{ y = Upsample <scales=[{scales}]> (x) }}"),
        (9, f"<float[4] s = {{{scales}}}> {{ y = Upsample (x, s) }}"),
    ):
        path = saved(tmp_path, parsed(body + rest, opset))
        if runs:
            assert api.count(path).macs == 0
        else:
            with pytest.raises(OperandError, match=f"a scale is {scale:g}"):
                api.count(path)
