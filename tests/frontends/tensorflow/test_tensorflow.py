"""Models of Keras and TensorFlow, normalized: what they hold, where it is, what is refused."""

import numpy as np
import pytest

import crossflops
from crossflops.errors import InputError, TargetError
from crossflops.frontends import normalize
from crossflops.frontends.inputs import parse_inputs
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets import load_target_source, source_from_object

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")
keras = pytest.importorskip("keras")

pytestmark = pytest.mark.tensorflow
layers = keras.layers

IMAGE = tf.TensorSpec((1, 16, 16, 3))
STEPS = tf.TensorSpec((2, 5, 16))


def counted(model, *args, **kwargs):
    """Graph, trace and ledger of a model object."""
    graph, trace = normalize(source_from_object(model, (args, kwargs)), Setting())
    return graph, trace, count(graph)


def macs(model, *args, **kwargs):
    """The native MACs, with no node left out."""
    ledger = counted(model, *args, **kwargs)[2]
    assert not ledger.uncounted
    return ledger.total.macs


def small():
    """A convolution with bias, batch normalization, and a dense layer."""
    return keras.Sequential(
        [
            layers.Input((16, 16, 3)),
            layers.Conv2D(8, 3, padding="same", name="conv"),
            layers.BatchNormalization(name="bn"),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10, name="head"),
        ],
        name="small",
    )


def test_macs_and_params():
    """256 places x 8 x 27 taps and 8 x 10; moving averages are no parameters."""
    graph, _, ledger = counted(small(), IMAGE)
    assert ledger.total.macs == 256 * 8 * 27 + 80
    assert graph.params == (8 * 27 + 8) + 2 * 8 + (80 + 10)
    assert graph.param_bytes == 4 * graph.params
    assert graph.name == "small"
    assert [spec.shape for spec in graph.inputs] == [(1, 16, 16, 3)]


def test_nodes_are_in_the_layers_of_keras():
    """Names of layers are paths; the class is that of the layer."""
    graph, trace, ledger = counted(small(), IMAGE)
    at = {row.node.path: row.cost.macs for row in ledger.counted if row.cost.macs}
    assert at == {"conv": 256 * 8 * 27, "head": 80}
    classes = {row.path: row.bases[0].rpartition(".")[2] for row in trace.modules}
    assert classes["bn"] == "BatchNormalization"
    assert [param.name for param in trace.modules[0].params] == []
    assert "bn" in {node.path for node in graph.nodes}


def test_batch_normalization_is_not_folded_away():
    """Its scale and its shift are nodes behind the convolution, one operation an element each."""
    graph, _, ledger = counted(small(), IMAGE)
    kinds = [node.op.type for node in graph.nodes if node.path == "bn" and not node.constant]
    assert sorted(kind for kind in kinds if kind != "Transpose") == ["Add", "Mul"]
    work = [row.cost for row in ledger.counted if row.node.path == "bn" and not row.node.constant]
    assert sum(cost.flops for cost in work) == 2 * 256 * 8


def test_transpositions_of_the_converter_are_named():
    """They stand in no TensorFlow graph, and say so."""
    graph, trace, _ = counted(small(), IMAGE)
    targets = {trace.calls_by_key[n.call].target for n in graph.nodes if n.op.type == "Transpose"}
    assert targets == {"tf2onnx.Transpose"}


def test_every_product_is_linked_to_its_operation():
    """ONNX's Conv came from Conv2D, its Gemm from MatMul."""
    _, trace, ledger = counted(small(), IMAGE)
    products = [row.node for row in ledger.counted if row.cost.macs]
    assert [trace.calls_by_key[node.call].target for node in products] == ["Conv2D", "MatMul"]


@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.parametrize(("layer", "gates"), [(layers.LSTM, 4), (layers.GRU, 3)])
def test_recurrent_layers_count_every_step(layer, gates, unroll):
    """Steps x batch x gates x H x (I + H), as a loop and unrolled."""
    model = keras.Sequential([layers.Input((5, 16)), layer(32, unroll=unroll)])
    assert macs(model, STEPS) == 5 * 2 * gates * 32 * (16 + 32)


def test_attention():
    """Four projections of 20 rows, and two products of 2 x 4 heads x 10 x 10 x 8."""
    x = layers.Input((10, 32))
    model = keras.Model(x, layers.MultiHeadAttention(4, 8)(x, x))
    assert macs(model, tf.TensorSpec((2, 10, 32))) == 4 * 20 * 32 * 32 + 2 * 6400


def test_gelu():
    """0.5 x erfc(-x / sqrt 2): erfc is written out, and every node has a cost."""
    model = keras.Sequential([layers.Input((4,)), layers.Activation("gelu")])
    ledger = counted(model, tf.TensorSpec((2, 4)))[2]
    assert not ledger.uncounted
    assert ledger.total.specials == 8


def test_grouped_convolution():
    """Keras compiles it with XLA on a CPU: the converter looks into that function."""
    model = keras.Sequential([layers.Input((16, 16, 8)), layers.Conv2D(16, 3, groups=4)])
    assert macs(model, tf.TensorSpec((1, 16, 16, 8))) == 14 * 14 * 16 * 2 * 9


def test_a_function_and_its_concrete_form():
    """A loop of three products of 4 x 16 by 16 x 16."""

    @tf.function
    def run(x):
        weights = tf.ones((16, 16))
        step = 0
        while tf.less(step, 3):
            x, step = x @ weights, step + 1
        return x

    spec = tf.TensorSpec((4, 16))
    assert macs(run, spec) == 3 * 4 * 16 * 16
    assert macs(run.get_concrete_function(spec), spec) == 3 * 4 * 16 * 16


def test_a_loop_that_depends_on_data_is_uncounted():
    """How often it runs nobody can say: the node is named, not 0."""

    @tf.function
    def run(x):
        while tf.reduce_sum(x) < 3:
            x = x @ x
        return x

    ledger = counted(run, tf.TensorSpec((4, 4)))[2]
    assert ["--trips" in gap.reason for gap in ledger.uncounted] == [True]


def test_files(tmp_path):
    """The model, its .keras file, its SavedModel and its frozen graph count alike."""
    model = small()
    model.save(tmp_path / "m.keras")
    model.export(tmp_path / "saved", verbose=False)
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    function = tf.function(lambda x: model(x)).get_concrete_function(
        tf.TensorSpec((None, 16, 16, 3))
    )
    frozen = convert_variables_to_constants_v2(function).graph.as_graph_def()
    (tmp_path / "m.pb").write_bytes(frozen.SerializeToString())
    for name in ("m.keras", "saved", "m.pb"):
        source = load_target_source(str(tmp_path / name), {}, parse_inputs(["2x16x16x3"]))
        graph, trace = normalize(source, Setting())
        assert count(graph).total.macs == 2 * (256 * 8 * 27 + 80), name
        if name != "m.pb":  # which has forgotten what was trained
            assert graph.params == 330, name
        assert any("conv" in row.path for row in trace.modules)


def test_inputs_by_name():
    """A functional model with several inputs takes them by the names of their layers."""
    a, b = layers.Input((4,), name="a"), layers.Input((6,), name="b")
    model = keras.Model([a, b], layers.Dense(3)(layers.Concatenate()([a, b])))
    by_name = {"b": tf.TensorSpec((2, 6)), "a": tf.TensorSpec((2, 4))}
    assert macs(model, **by_name) == macs(model, *reversed(by_name.values())) == 2 * 10 * 3
    with pytest.raises(InputError) as caught:
        counted(model, tf.TensorSpec((2, 4)))
    assert "--input a=1x4 --input b=1x6" in caught.value.hint


def test_arrays_are_inputs():
    """Only their shapes and types count."""
    assert macs(small(), np.zeros((3, 16, 16, 3), np.float32)) == 3 * (256 * 8 * 27 + 80)


def test_an_open_batch_is_refused():
    """TensorFlow's profiler would print 0."""
    with pytest.raises(InputError) as caught:
        source_from_object(small(), tf.TensorSpec((None, 16, 16, 3)))
    assert "(None, 16, 16, 3)" in caught.value.message
    assert "batch" in caught.value.hint


def test_wrong_shapes_are_the_callers():
    """One line that says what Keras says."""
    with pytest.raises(InputError) as caught:
        counted(small(), tf.TensorSpec((1, 16, 16, 4)))
    assert "\n" not in caught.value.message


FUNCTIONS = """
import tensorflow as tf

def plain(x):
    return tf.tanh(x @ tf.ones((3, 5))) @ tf.ones((5, 4))

def builder(units):
    return tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(units)])
"""


def test_functions_of_a_file(tmp_path):
    """2 x 3 x 5 + 2 x 5 x 4 MACs of one of tensors; one that names Keras builds a model."""
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    assert crossflops.count(f"{path}:plain", "2x3").totals.macs == 70
    built = crossflops.count(f"{path}:builder", "2x3", arguments={"units": 4})
    assert built.totals.macs == 24
    with pytest.raises(TargetError, match="needs argument 'units'"):
        crossflops.count(f"{path}:builder", "2x3")


def test_a_broken_file(tmp_path):
    """What cannot be read is a target's fault."""
    (tmp_path / "m.keras").write_bytes(b"no archive")
    for name in ("m.keras", "missing.keras"):
        with pytest.raises(TargetError):
            load_target_source(str(tmp_path / name), {}, ())


ROWS = np.array([[1, 1], [-1, 1], [2, 2], [0.5, -3]], np.float32)  # three of four begin above 0
W = np.ones((2, 5), np.float32)


def masked(x):
    """The rows whose first element is positive."""
    return tf.boolean_mask(x, x[:, 0] > 0) @ W


def placed(x):
    """The same rows, by their places."""
    return tf.gather(x, tf.where(x[:, 0] > 0)[:, 0]) @ W


def distinct(x):
    """Three rows, by what their first column holds: 1, -1 and 2."""
    values, _ = tf.unique(tf.cast(tf.floor(x[:3, 0]), tf.int32))
    return tf.gather(x, tf.abs(values)) @ W


def parted(x):
    """Three rows to the one side, one to the other."""
    above, below = tf.dynamic_partition(x, tf.cast(x[:, 0] <= 0, tf.int32), 2)
    return above @ W, below @ W[:, :1]


def kept(x):
    """Boxes at two places, of which each place keeps one."""
    boxes = tf.stack([x[:, 0], x[:, 0], x[:, 0] + 9, x[:, 0] + 9], 1) * [[0], [0], [1], [9]]
    return tf.gather(x, tf.image.non_max_suppression(boxes, x[:, 1], 4)) @ W


@pytest.mark.parametrize(
    ("model", "macs"), [(masked, 3 * 10), (placed, 3 * 10), (distinct, 3 * 10), (parted, 30 + 2)]
)
def test_a_run_says_how_many_rows_there_are(model, macs):
    """Each row takes 2 x 5 MACs."""
    report = crossflops.count(tf.function(model), ROWS)
    assert not report.uncounted
    assert report.macs == macs
    assert report.observed.inputs == "the inputs that were given"
    assert any(node.depends_on_inputs is True for node in report.nodes)


def test_boxes_that_are_kept():
    """As many rows as TensorFlow itself keeps."""
    report = crossflops.count(tf.function(kept), ROWS)
    assert not report.uncounted
    assert report.macs == len(kept(tf.constant(ROWS))) * 10


@pytest.mark.parametrize(("last", "products"), [(1, 1), (3, 3), (0, 0)])
def test_the_number_of_a_run_says_which_branch_it_takes(last, products):
    """A cond within four runs counts as often as it is taken: 2 x 4 x 4 each."""

    def run(number, x):
        return number + 1, tf.cond(number < last, lambda: x @ tf.ones((4, 4)), lambda: x)

    def model(x):
        return tf.while_loop(lambda number, _: number < 4, run, (0, x))[1]

    report = crossflops.count(tf.function(model), np.ones((2, 4), np.float32))
    assert report.macs == products * 2 * 4 * 4
    assert {node.exactness for node in report.nodes} == {"exact"}


@pytest.mark.parametrize(("start", "trips"), [(1.0, 2), (4.0, 4), (0.1, 0)])
def test_a_run_says_how_often_a_loop_runs(start, trips):
    """Halved until the four of them add up to at most 1: 1 x 4 x 4 in every iteration."""
    half = tf.eye(4) / 2

    def model(x):
        (output,) = tf.while_loop(lambda x: tf.reduce_sum(x) > 1, lambda x: [x @ half], [x])
        return output

    report = crossflops.count(tf.function(model), np.full((1, 4), start, np.float32))
    assert not report.uncounted
    assert report.macs == trips * 16


@pytest.mark.parametrize(("sign", "products"), [(1, 1), (-1, 2)])
def test_a_run_says_which_branch_of_a_cond(sign, products):
    """One product for positive sums, two for others."""

    def model(x):
        return tf.cond(tf.reduce_sum(x) > 0, lambda: x @ x, lambda: (x @ x) @ x)

    report = crossflops.count(tf.function(model), sign * np.ones((4, 4), np.float32))
    assert report.macs == products * 64


def chosen(x, index):
    """2 x 4 by 4 x 1, 4 x 2 or 4 x 3, and a choice of its own in the second."""
    weights = [tf.ones((4, width)) for width in (1, 2, 3)]
    sizes = [lambda width=width: tf.reduce_sum(x @ width) for width in weights]
    sizes[1] = lambda: tf.switch_case(index, sizes[:1] * 3)
    return tf.switch_case(index, sizes)


@pytest.mark.parametrize(("index", "macs"), [(0, 8), (1, 8), (2, 24), (7, 24), (-1, 24)])
def test_a_run_says_which_of_three_branches(index, macs):
    """TensorFlow takes the last branch for an index that is out of range."""
    report = crossflops.count(tf.function(chosen), (np.ones((2, 4), np.float32), np.int32(index)))
    assert not report.uncounted
    assert report.macs == macs


SQUARE = tf.eye(4)
TWICE = {
    "cond": lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x @ SQUARE, lambda: x @ SQUARE + 1.0),
    "while_loop": lambda x: tf.while_loop(
        lambda i, _: i < 1, lambda i, x: [i + 1, x @ SQUARE], [0, x]
    )[1],
    "switch_case": lambda x: tf.switch_case(tf.cast(x[0, 0], tf.int32), [lambda: x @ SQUARE] * 3),
    "one branch": lambda x: tf.switch_case(tf.cast(x[0, 0], tf.int32), [lambda: x @ SQUARE]),
    "constants": lambda x: x @ tf.cond(x[0, 0] > 0, lambda: SQUARE, lambda: tf.zeros((4, 4))),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_function_with_control_flow_runs_twice(name):
    """Two products of 2 x 4 by 4 x 4, whose branches come from one function."""
    inner = tf.function(TWICE[name], autograph=False)
    report = crossflops.count(tf.function(lambda x: inner(inner(x))), np.ones((2, 4), np.float32))
    assert not report.uncounted
    assert report.macs == 2 * 32


def test_weights_of_a_layer_decide():
    """A layer of ones: with 2 x 3 inputs of 1 every row adds up to 3, and is above 2."""
    dense = layers.Dense(5, kernel_initializer="ones")
    inputs = keras.Input((3,))
    rows = dense(inputs)
    above = layers.Lambda(lambda x: tf.boolean_mask(x, x[:, 0] > 2) @ W.T)
    model = keras.Model(inputs, above(rows))
    assert crossflops.count(model, np.ones((2, 3), np.float32)).macs == 2 * 15 + 2 * 10
    assert crossflops.count(model, np.zeros((2, 3), np.float32)).macs == 2 * 15


def test_what_was_made_up_is_said():
    """Shapes alone were given: the run is on random floats."""
    report = crossflops.count(tf.function(masked), tf.TensorSpec((6, 2)))
    assert report.observed.inputs == "random floats (seed 0), and zeros of other types"


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "mixed_float16"])
@pytest.mark.parametrize(
    ("layers", "shape", "macs", "inputs"),
    [
        # 8 x 16 and 16 x 4; x needs no gradient
        (lambda of: [of.Dense(16), of.Dense(4)], (8,), 128 + 64, 64),
        # 36 places of 27 x 4, then 4 x 2
        (lambda of: [of.Conv2D(4, 3), of.GlobalMaxPool2D(), of.Dense(2)], (8, 8, 3), 3896, 8),
    ],
    ids=["dense", "convolution"],
)
def test_policies_of_types(policy, layers, shape, macs, inputs):
    """They change no work; variables of a mixed policy stay float32."""
    kind = keras.dtype_policies.DTypePolicy(policy)
    made = layers(keras.layers)
    chain = [layer.__class__.from_config({**layer.get_config(), "dtype": kind}) for layer in made]
    model = keras.Sequential([keras.Input(shape), *chain])
    report = crossflops.count(model, (tf.TensorSpec((1, *shape)),), train=True)
    assert (report.totals.macs, report.training.macs) == (macs, 2 * macs + inputs)
    assert not report.uncounted
    assert not report.training.uncounted
    stored = 2 if policy == "bfloat16" else 4
    assert report.memory.param_bytes == stored * report.params


@pytest.mark.parametrize(
    ("layer", "forward", "inputs", "weights"),
    [
        # 5 rows of 8: four products with 8 x 8, and scores and values of 2 heads of 4
        ("MultiHeadAttention(2, 4)", 4 * 320 + 400, 320 + 2 * 400, 4 * 320),
        # queries and results of 4 heads of 4, keys and values of 2
        ("GroupQueryAttention(4, 4, 2)", 2 * 640 + 2 * 320 + 800, 640 + 2 * 800, 2 * 640 + 640),
    ],
)
def test_weights_that_a_mixed_policy_casts_are_found(layer, forward, inputs, weights):
    """A kernel for each head is reshaped as it is cast, beside a bias that divides it."""
    kind, _, sizes = layer.partition("(")
    made = getattr(keras.layers, kind)(
        *map(int, sizes.rstrip(")").split(",")), dtype="mixed_bfloat16"
    )
    words = keras.Input((5, 8), batch_size=1)
    model = keras.Model(words, made(words, words))
    step = crossflops.count(model, (tf.TensorSpec((1, 5, 8)),), train=True).training
    assert (step.forward_macs, step.backward_input_macs) == (forward, inputs)
    assert (step.backward_weight_macs, step.uncounted) == (weights, ())
    queries = f"{made.name}.query*"
    frozen = crossflops.count(model, (tf.TensorSpec((1, 5, 8)),), train=True, frozen=(queries,))
    least = 640 if kind == "GroupQueryAttention" else 320
    assert frozen.training.backward_weight_macs == weights - least
