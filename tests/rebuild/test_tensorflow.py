"""What is rebuilt in TensorFlow computes what ONNX's own node tests say, operator by operator."""

import pickle
from collections import defaultdict

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import onnx  # noqa: E402
from onnx import numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from crossflops.errors import NormalizeError  # noqa: E402
from crossflops.frontends import normalize  # noqa: E402
from crossflops.frontends.onnx import OnnxFile  # noqa: E402
from crossflops.ir.trace import Setting  # noqa: E402
from crossflops.ledger.count import count  # noqa: E402
from crossflops.rebuild.tensorflow import rebuild_as_tensorflow  # noqa: E402
from crossflops.rebuild.tensorflow.module import (  # noqa: E402
    RULES,
    OnnxModule,
    rebuild_program,
    unique_name_scopes,
)
from tests.node_tests import cases, fed  # noqa: E402
from tests.onnx_files import graph_of, ledger_of, parsed, saved, with_weights  # noqa: E402

pytestmark = pytest.mark.tensorflow

# Where ONNX says what TensorFlow leaves open, or says otherwise.
ELSEWHERE = (
    "nan_robustness",  # a row of attention that looks at no key is NaN in TensorFlow
    "fullymasked",
    "mode3_softmax_precision",
    "negative_shift",  # bits moved by less than none, or by more than there are
    "shift_ge_width",
    "out_of_range_indices",
    "onehot_negative_indices",  # places that count from the end and come with the data
    "nan_to_",  # what NaN is among integers
    "FLOAT8",
    "FLOAT4",
    "INT4",
    "INT2",
)
# Those of sequences of other frameworks' files, which the node tests have none of.
UNTESTED = {"LRN", "Upsample"}


def by_operator():
    """The node tests of one operator that has a rule, by its name."""
    tests = defaultdict(list)
    for name, case in cases().items():
        nodes = case.model.graph.node
        known = len(nodes) == 1 and not nodes[0].domain and nodes[0].op_type in RULES
        if known and not any(word in name for word in ELSEWHERE):
            tests[nodes[0].op_type].append(case)
    return tests


def array(value):
    """A value of a node test, of which some are tensors of ONNX."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def outputs(model, values):
    """What the rebuilt module gives: the first value is its input, the others are stored."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    first, *rest = list(model.graph.input)
    for value in rest:
        held = np.asarray(array(values[value.name]))
        model.graph.initializer.append(numpy_helper.from_array(held, value.name))
        model.graph.input.remove(value)
    return [
        output.numpy()
        for output in OnnxModule(rebuild_program(model, {}), "m")(array(values[first.name]))
    ]


CASES = by_operator()


@pytest.mark.parametrize("operator", sorted(CASES))
def test_an_operator_computes_what_onnx_says(operator):
    """Every node test of the operator, but for forms that are refused by name."""
    equal = 0
    for case in CASES[operator]:
        values = (*case.model.graph.input, *case.model.graph.output)
        tensors = all(value.type.HasField("tensor_type") for value in values)
        if not case.model.graph.input or not tensors:
            continue
        expected = list(map(array, case.data_sets[0][1]))
        try:
            computed = outputs(case.model, fed(case))
        except NormalizeError:  # which names the node, see below
            continue
        for output, other in zip(computed, expected, strict=True):
            assert (output.shape, output.dtype) == (other.shape, other.dtype), case.name
            near = 1e-2 if output.dtype.itemsize < 4 else 2e-4
            if output.dtype != bool:
                output, other = output.astype(float), other.astype(float)
            np.testing.assert_allclose(output, other, rtol=near, atol=near, err_msg=case.name)
        equal += 1
    assert equal or operator in ("ConstantOfShape", "Range")  # whose only input has to be known


def test_almost_every_rule_has_a_node_test():
    """No rule stands there untried."""
    assert RULES.keys() - CASES.keys() <= UNTESTED


def stored(text, *names, opset=22):
    """A model with random weights under these names."""
    return with_weights(text, *names, opset=opset)


MODELS = {
    "grouped": stored(
        "g (float[2,8,7,9] x, float[12,2,3,3] w, float[12] b) => (float[?,?,?,?] y)"
        " { y = Conv<group=4, pads=[1,0,2,1], strides=[2,1], dilations=[1,2]>(x, w, b) }",
        "w", "b",
    ),
    "depthwise": stored(
        "g (float[2,4,7,9] x, float[8,1,3,3] w) => (float[?,?,?,?] y)"
        " { y = Conv<group=4, pads=[1,1,1,1], strides=[2,2]>(x, w) }", "w",
    ),
    "line": stored(
        "g (float[2,4,9] x, float[6,2,3] w) => (float[?,?,?] y)"
        " { y = Conv<group=2, pads=[2,1], dilations=[2]>(x, w) }", "w",
    ),
    "space": stored(
        "g (float[1,4,5,6,7] x, float[6,2,2,2,3] w, float[6] b) => (float[?,?,?,?,?] y)"
        " { y = Conv<group=2, pads=[1,0,1,0,1,1]>(x, w, b) }", "w", "b",
    ),
    "transposed": stored(
        "g (float[2,4,5,6] x, float[4,6,3,3] w, float[6] b) => (float[?,?,?,?] y)"
        " { y = ConvTranspose<strides=[2,3], pads=[1,0,1,2], output_padding=[1,0]>"
        "(x, w, b) }", "w", "b",
    ),
    "transposed-line": stored(
        "g (float[2,4,5] x, float[4,3,4] w) => (float[?,?,?] y)"
        " { y = ConvTranspose<strides=[2], pads=[1,1]>(x, w) }", "w",
    ),
    "transposed-space": stored(
        "g (float[1,4,3,4,5] x, float[4,2,2,2,2] w) => (float[?,?,?,?,?] y)"
        " { y = ConvTranspose<strides=[2,2,2], pads=[1,0,0,0,1,0]>(x, w) }", "w",
    ),
    "attention": parsed(
        "g (float[1,5,8] x) => (float[?,?,?] y)"
        " { y = Attention<q_num_heads=4, kv_num_heads=4, is_causal=1>(x, x, x) }", 23,
    ),
    "linear-resize": parsed(
        "g (float[1,3,5,7] x) => (float[?,?,?,?] y) <float[4] s = {1.0, 1.0, 2.0, 3.0}>"
        ' { y = Resize<mode="linear", coordinate_transformation_mode="align_corners">(x, , s) }',
        19,
    ),
    # no rule: what ONNX itself writes it out as
    "rotary": stored(
        "g (float[1,2,3,4] x, float[1,3,2] c, float[1,3,2] s) => (float[?,?,?,?] y)"
        " { y = RotaryEmbedding(x, c, s) }", "c", "s", opset=23,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_the_same_and_does_the_same_work(tmp_path, name):
    """Values as ONNX's reference has them, MACs as the file has them, operation by operation."""
    model = MODELS[name]
    [value] = model.graph.input
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    [expected] = ReferenceEvaluator(model).run(None, {value.name: x})
    [computed] = outputs(model, {value.name: x})
    np.testing.assert_allclose(computed, expected, rtol=1e-4, atol=1e-4)
    path = saved(tmp_path, model)
    source = rebuild_as_tensorflow(OnnxFile(path=path), graph_of(path))
    graph, trace = normalize(source, Setting())
    ledger = count(graph)
    assert ledger.total.macs == ledger_of(path).total.macs
    assert trace.framework == "tensorflow"
    assert not ledger.uncounted
    for node in graph.nodes:
        assert node.call in trace.calls_by_key


def test_a_transposed_convolution_in_groups(tmp_path):
    """Each group by itself: an operation of its own for half the channels."""
    text = "g (float[2,{0},4,5] x, float[{0},3,3,3] w) => (float[?,?,?,?] y)"
    whole = stored(text.format(4) + " { y = ConvTranspose<group=2>(x, w) }", "w")
    x = np.random.default_rng(1).normal(size=(2, 4, 4, 5)).astype(np.float32)
    weights = numpy_helper.to_array(whole.graph.initializer[0])
    parts = []
    for half in (slice(0, 2), slice(2, 4)):
        group = stored(text.format(2) + " { y = ConvTranspose(x, w) }", "w")
        group.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights[half], "w"))
        parts += ReferenceEvaluator(group).run(None, {"x": x[:, half]})
    [computed] = outputs(whole, {"x": x})
    np.testing.assert_allclose(computed, np.concatenate(parts, 1), rtol=1e-4, atol=1e-4)
    path = saved(tmp_path, whole)
    graph, _ = normalize(rebuild_as_tensorflow(OnnxFile(path=path), graph_of(path)), Setting())
    assert [row.cost.macs for row in count(graph).counted] == [2 * 2 * 20 * 27] * 2


def test_an_einsum_of_three_is_counted_as_tensorflow_does_it(tmp_path):
    """jk,kl first: 4 x 5 x 2, then bij,jl: 6 x 4 x 2. The file multiplies all at once."""
    text = (
        "g (float[2,3,4] x, float[4,5] w, float[5,2] v) => (float[?,?,?] y)"
        ' { y = Einsum<equation="bij,jk,kl->bil">(x, w, v) }'
    )
    path = saved(tmp_path, stored(text, "w", "v"))
    graph, _ = normalize(rebuild_as_tensorflow(OnnxFile(path=path), graph_of(path)), Setting())
    assert [row.cost.macs for row in count(graph).counted] == [4 * 5 * 2, 6 * 4 * 2]


def test_weights_take_no_memory(tmp_path):
    """A table of 4 GB is in the graph as one zero, and so in what goes to a worker."""
    model = parsed(
        "g (float[2,32768] x, float[32768,32768] w) => (float[?,?] y) { y = MatMul(x, w) }"
    )
    weight = model.graph.input[1]
    model.graph.initializer.add(
        name="w", data_type=1, dims=[32768, 32768], data_location=onnx.TensorProto.EXTERNAL
    ).external_data.add(key="location", value="nowhere")
    model.graph.input.remove(weight)
    path = saved(tmp_path, model)
    source = rebuild_as_tensorflow(OnnxFile(path=path), graph_of(path))
    again = pickle.loads(pickle.dumps(source.model))
    assert len(pickle.dumps(again)) < 4096
    function = tf.function(again).get_concrete_function(*source.args)
    assert function.graph.as_graph_def().ByteSize() < 4096
    assert count(normalize(source, Setting())[0]).total.macs == 2 * 32768**2


def test_names_are_those_of_nodes():
    """Modules are scopes, and no two nodes share one, whatever letters they have."""
    paths = {"node_a": "layer1.0", "node A": "layer1.0", "node_A": "layer1.0", "/x": "", "é": "_b"}
    scoped = unique_name_scopes(paths)
    assert scoped["node_a"] == "layer1/0/node_a"
    assert len({scope.lower() for scope in scoped.values()}) == len(paths)
    with tf.Graph().as_default():
        for scope in scoped.values():
            with tf.name_scope(f"{scope}/"):
                assert tf.constant(1).op.name == f"{scope}/Const"


def traced(model, specs):
    """The concrete function of a model."""
    module = OnnxModule(rebuild_program(model, {}), "m")
    return tf.function(module, autograph=False).get_concrete_function(*specs)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "g (float[2,3,3] x) => (float[2] y) { y = Det(x) }",
            "Det of opset 22 cannot be converted",
        ),
        (
            "g (float[2,6] x) => (float[?,?] y) { y = com.microsoft.FastGelu(x) }",
            "com.microsoft.FastGelu of opset 1 cannot be converted",
        ),
        (
            "g (float[2,6] x, int64[2] s) => (float[?,?] y) { y = Reshape(x, s) }",
            "Reshape Reshape_0 whose input 1 depends on data cannot be rebuilt in TensorFlow",
        ),
    ],
)
def test_what_cannot_be_rebuilt_is_named(text, what):
    """The operator, and that the file can be counted all the same."""
    model = parsed(text, 22)
    names = {1: "float32", 7: "int64"}
    kinds = [value.type.tensor_type for value in model.graph.input]
    specs = [
        tf.TensorSpec([dim.dim_value for dim in kind.shape.dim], names[kind.elem_type])
        for kind in kinds
    ]
    with pytest.raises(NormalizeError, match=what) as caught:
        traced(model, specs)
    assert "crossflops count" in caught.value.hint
