"""The passes of each frontend: what a wrong order breaks, and what a log says of a small model."""

import logging
import re
from importlib import import_module

import msgspec
import pytest

from crossflops.frontends import build_model_program
from crossflops.frontends.frontend import Source
from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Setting, Trace
from tests import pipelines

pytestmark = pytest.mark.parametrize(
    "frontend",
    [
        pytest.param("pytorch", marks=pytest.mark.torch),
        pytest.param("tensorflow", marks=pytest.mark.tensorflow),
        pytest.param("jax", marks=pytest.mark.jax),
        pytest.param("sklearn", marks=pytest.mark.sklearn),
        pytest.param("onnx", marks=pytest.mark.core),
    ],
)
# Neighbours of which neither reads or overwrites what the other one writes.
FREE = {
    "pytorch": {
        ("mark storage", "mark sparse"),
        ("mark sparse", "group custom functions"),
        ("mark derived products", "mark starts"),
        ("mark starts", "mark lost starts"),
        ("mark views", "restore pasts"),
        ("sever inputs", "add custom functions"),
        ("store weights", "add leaves"),
        ("add leaves", "add attention windows"),
        ("add attention windows", "mark hooked weights"),
        ("mark turned weights", "identify graph"),
        ("identify graph", "link calls"),
        ("link calls", "add unchosen experts"),
    },
    "tensorflow": {
        ("drop order", "forget seeds"),
        ("forget seeds", "allow inlining"),
        ("allow inlining", "split branches"),
        ("split branches", "empty weights"),
        ("unshare functions", "make tables"),
        ("remove own additions", "tell groups"),
        ("make aliases", "hand on results"),
        ("hand on results", "write out erfc"),
        ("write out erfc", "bring out of loops"),
        ("bring out of loops", "pad outputs"),
        ("pad outputs", "compare whole numbers"),
        ("compare whole numbers", "own unknown operators"),
        ("own unknown operators", "widen counters"),
        ("link operations", "stand for operations"),
        ("stand for operations", "sever inputs"),
        ("sever inputs", "find weights"),
        ("mark gradients", "call weights"),
        ("add own functions", "add training step"),
        ("add training step", "mark decisions"),
        ("name arguments", "identify graph"),
    },
    "jax": {
        ("drop zero biases", "drop dropout modes"),
        ("drop dropout modes", "write out vector products"),
        ("write out vector products", "average windows"),
        ("name nodes", "name weights"),
        ("name weights", "name inputs"),
        ("find own functions", "make runnable"),
        ("make runnable", "shed weights"),
        ("shed weights", "declare opsets"),
        ("link equations", "stand for equations"),
        ("stand for equations", "mark gradients"),
        ("mark gradients", "add own functions"),
        ("call weights", "mark decisions"),
        ("identify graph", "observe programs"),
    },
    "sklearn": {
        ("refuse lost settings", "type inputs"),
        ("drop unread nodes", "declare shapes"),
        ("stand for estimators", "list modules"),
        ("list modules", "place in modules"),
        ("place in modules", "identify graph"),
    },
    "onnx": {
        ("read notes", "bind inputs"),
        ("bind inputs", "raise version"),
        ("raise version", "read opsets"),
        ("call functions", "take notes of modules"),
        ("take notes of modules", "find whole loops"),
        ("count parameters", "warn of empty results"),
        ("warn of empty results", "list modules"),
        ("list modules", "mark dead"),
    },
}
ORDERS = 3


def pipeline_of(frontend):
    """The one list of a frontend."""
    return import_module(f"crossflops.frontends.{frontend}.passes").PIPELINE


# Of each frontend a pipeline, a state to run it on, and what it makes: a bit of all that passes
# mark, where their order could be seen.


def _mixed_pytorch():
    from crossflops.frontends.pytorch.passes import PIPELINE, Conversion
    from crossflops.frontends.pytorch.program import record_torch_run
    from tests.custom_functions import Product
    from tests.models import EVAL, F, nn, torch

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
            self.listed = [nn.Linear(4, 4)]  # which PyTorch does not know as a part of the model
            self.weight = nn.Parameter(torch.eye(4))
            self.weight.register_hook(lambda gradient: gradient)

        def forward(self, x):
            """Cut, hook, start, freeze, write in place, derive as part of another operator."""
            self.second.weight.requires_grad_(False)
            x = self.first(x)
            x.register_hook(lambda gradient: 2 * gradient)
            with torch.no_grad():
                viewed = self.weight.view(4, 4)
                table = torch.ones(4, 4)
            table.requires_grad_()
            y = Product.apply(x, self.weight) + F.linear(x.detach(), viewed)
            with torch.no_grad():
                y.mul_(2)
            far = torch.cdist(y, table) @ torch.full((4, 4), 0.5, requires_grad=True)
            return self.second(far) + self.listed[0](y.detach().requires_grad_())

    model = Mixed()
    recording = record_torch_run(model, (torch.ones(2, 4),), {}, EVAL)
    export, *rest = PIPELINE.passes
    exported = msgspec.structs.replace(PIPELINE, passes=(export,), wanted=frozenset()).run(
        Conversion(model, recording, recording.trace)
    )
    every = frozenset().union(*(step.ensures for step in export.passes[-2].passes))
    of_graph = msgspec.structs.replace(
        PIPELINE,
        passes=tuple(rest),
        given=every,
        wanted=PIPELINE.wanted - export.passes[-1].ensures,
    )
    return of_graph, exported


def _mixed_tensorflow():
    import tensorflow as tf

    from crossflops.frontends.tensorflow.convert.own_gradients import custom_gradient_uses
    from crossflops.frontends.tensorflow.passes import PIPELINE, TensorFlowConversion
    from crossflops.frontends.tensorflow.program import record_frozen_model

    @tf.custom_gradient
    def doubled(x, w):
        return 2 * x @ w, lambda gradient: (2 * gradient @ w, 2 * x * gradient)

    weights = [tf.Variable(tf.eye(4)) for _ in range(3)]
    kernel = tf.Variable(tf.ones((2, 2, 4, 4)))

    @tf.function
    def mixed(x):
        """Transpose, cut, run again, loop, draw, use erfc, and bring a gradient of its own."""
        x = tf.nn.conv2d_transpose(x, kernel, (1, 5, 5, 4), 2, "VALID")
        x = doubled(tf.reshape(x, (-1, 4))[:4], weights[0])
        x += tf.stop_gradient(tf.recompute_grad(lambda y: tf.tanh(y @ weights[1]))(x))
        for _ in tf.range(3):
            x = tf.math.erfc(x @ weights[2])
        return tf.nn.l2_loss(x) + tf.random.stateless_uniform((4,), (1, 2))

    recorded = record_frozen_model(mixed, (tf.TensorSpec((1, 2, 2, 4)),), {}, Setting())
    return PIPELINE, TensorFlowConversion(
        traced=recorded.traced,
        trace=recorded.trace,
        runnable=lambda: (b"", {}),
        lowered=recorded.operation_graph,
        layers=recorded.layers,
        owns=custom_gradient_uses(recorded.operation_graph),
    )


def _mixed_jax():
    import jax
    import jax.numpy as jnp
    from flax import nnx

    from crossflops.frontends.jax.passes import PIPELINE, JaxConversion
    from crossflops.frontends.jax.program import record_jax_model

    @jax.custom_vjp
    def doubled(x, w):
        return 2 * (x @ w)

    doubled.defvjp(
        lambda x, w: (doubled(x, w), (x, w)),
        lambda kept, gradient: (2 * gradient @ kept[1].T, 2 * kept[0].T @ gradient),
    )

    class Mixed(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(3, 4, (3, 3), use_bias=False, rngs=rngs)
            self.first, self.second = (nnx.Linear(4, 4, rngs=rngs) for _ in range(2))
            self.weight = nnx.Param(jnp.eye(4))

        def __call__(self, x):
            """Pool by sums, cut, run again, multiply a vector, and derive by code of its own."""
            x = jax.lax.reduce_window(
                self.conv(x), 0.0, jax.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "SAME"
            )
            x = doubled(x.reshape(-1, 4), self.weight[...])
            x = x + jax.lax.stop_gradient(jax.checkpoint(jnp.tanh)(self.first(x)))
            return self.second(x[0]) + jnp.linalg.det(self.weight[:2, :2])

    image = jax.ShapeDtypeStruct((1, 4, 4, 3), jnp.float32)
    recorded = record_jax_model(Mixed(nnx.Rngs(0)), (image,), {}, Setting())
    trace = msgspec.structs.replace(
        JaxConversion(function=recorded.pure).trace, modules=recorded.modules
    )
    return PIPELINE, JaxConversion(
        function=recorded.pure, trace=trace, name="Mixed", runnable=lambda: (b"", {})
    )


def _mixed_sklearn():
    from sklearn.cluster import KMeans
    from sklearn.ensemble import VotingClassifier
    from sklearn.gaussian_process import GaussianProcessClassifier, kernels
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    from crossflops.frontends.sklearn.passes import PIPELINE, EstimatorConversion

    rows, labels = [[0.0, 1, 2], [1, 0, 3], [2, 2, 1], [3, 1, 0]], [0, 1, 0, 1]
    kernel = kernels.ConstantKernel() * kernels.RBF() + kernels.WhiteKernel()
    voters = [("lr", LogisticRegression()), ("gp", GaussianProcessClassifier(kernel))]
    clusters = KMeans(2, n_init=1, random_state=0)
    model = make_pipeline(clusters, VotingClassifier(voters, voting="soft"))
    given = TensorSpec("X", "float32", (5, 3))
    trace = Trace(calls=(), modules=(), setting=Setting(), framework="sklearn")
    return PIPELINE, EstimatorConversion(
        model=model.fit(rows, labels), args=(given,), kwargs={}, trace=trace
    )


MIXED_FILE = """
<ir_version: 3, opset_import: ["" : 17, "own" : 1]>
mixed (float[N,4] x, float[4,4] w) => (float[N,4] y)
<int64 trips = {2}, bool goes_on = {1}, float[4] table = {1, 2, 3, 4}>
{
    unread = Exp(x)
    twice = own.doubled(x)
    kept = Loop (trips, goes_on, twice) <body = runs (int64 i, bool c, float[N,4] before)
        => (bool d, float[N,4] after) { d = Identity(c) after = MatMul(before, w) }>
    shifted = Neg(table)
    y = Add(kept, shifted)
}
<domain: "own", opset_import: ["" : 17]> doubled (a) => (b) { b = Add(a, a) }
"""


def _mixed_onnx():
    import onnx.parser

    from crossflops.frontends.onnx import OnnxFile
    from crossflops.frontends.onnx.passes import PIPELINE, FileReading
    from crossflops.load.protobuf import parse_model_proto

    data = onnx.parser.parse_model(MIXED_FILE).SerializeToString()
    trace = Trace(calls=(), modules=(), setting=Setting())
    file = OnnxFile(path="mixed.onnx", dims={"N": 2}, inlined=False)
    return PIPELINE, FileReading(read=lambda: parse_model_proto(data), file=file, trace=trace)


def _small_pytorch(folder):
    from tests.models import nn, torch

    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.Flatten())
    return Source(model.eval(), (torch.ones(1, 3, 8, 8),), {})


def _small_tensorflow(folder):
    import keras
    import tensorflow as tf

    conv = keras.layers.Conv2D(4, 3, use_bias=False, name="conv")
    layers = [keras.Input((8, 8, 3)), conv, keras.layers.ReLU(name="relu")]
    model = keras.Sequential(layers, name="small")
    return Source(model, (tf.TensorSpec((1, 8, 8, 3)),), {})


def _small_jax(folder):
    import jax
    import jax.numpy as jnp
    from flax import nnx

    conv = nnx.Conv(3, 4, (3, 3), use_bias=False, rngs=nnx.Rngs(0))
    given = jax.ShapeDtypeStruct((1, 8, 8, 3), jnp.float32)
    return Source(nnx.Sequential(conv, jax.nn.relu), (given,), {})


def _small_sklearn(folder):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit([[0.0, 1, 2], [1, 0, 3]], [0, 1])
    return Source(model, (TensorSpec("X", "float32", (5, 3)),), {})


def _small_onnx(folder):
    import onnx.parser

    from crossflops.frontends.onnx import OnnxFile

    path = folder / "mixed.onnx"
    path.write_bytes(onnx.parser.parse_model(MIXED_FILE).SerializeToString())
    return Source(OnnxFile(path=str(path), dims={"N": 2}), (), {})


MIXED = {
    "pytorch": _mixed_pytorch,
    "tensorflow": _mixed_tensorflow,
    "jax": _mixed_jax,
    "sklearn": _mixed_sklearn,
    "onnx": _mixed_onnx,
}
SMALL = {
    "pytorch": _small_pytorch,
    "tensorflow": _small_tensorflow,
    "jax": _small_jax,
    "sklearn": _small_sklearn,
    "onnx": _small_onnx,
}
# By hand: what a log says of some passes, wholly or among other lines.
PYTORCH_NODES = {"node_conv2d (Conv)", "node_relu (Relu)", "node_view (Reshape)"}
# around a convolution of images with channels last
KERAS_NODES = {
    "small_1/conv_1/convolution__5 (Transpose)",
    "small_1/conv_1/convolution (Conv)",
    "small_1/conv_1/convolution__6 (Transpose)",
    "small_1/relu_1/Relu (Relu)",
}
JAX_NODES = {"Transpose_1 (Transpose)", "Conv_1 (Conv)", "Transpose_2 (Transpose)", "Max_1 (Max)"}
CLASSIFIER = "LinearClassifier (ai.onnx.ml.LinearClassifier)"
SKLEARN_NODES = {"Scaler (ai.onnx.ml.Scaler)", CLASSIFIER}
WHOLLY = {
    "pytorch": {
        "build graph": {*(f"added {node}" for node in PYTORCH_NODES), "made the graph"},
        "mark constant": {"changed node_conv2d (Conv): varying_inputs"},
        "mark sparse": {"nothing changed"},
        "sever inputs": {"nothing changed"},
        "link calls": {"changed the trace: calls"},
    },
    "tensorflow": {
        "drop order": {"changed NoOp (NoOp): inputs", "changed Identity (Identity): inputs"},
        # what the optimizers of tf2onnx leave of the model's own end
        "remove own additions": {
            "removed Identity (Identity)",
            "removed Identity_graph_outputs_Identity__4 (Identity)",
            "changed small_1/relu_1/Relu (Relu): outputs",
        },
        "widen counters": {"nothing changed"},
        "read ONNX": {*(f"added {node}" for node in KERAS_NODES), "made the graph"},
        "link operations": {
            *(f"changed {node}: call, path" for node in KERAS_NODES),
            "changed the trace: calls",
        },
        "call weights": {"changed small_1/conv_1/convolution (Conv): inputs"},
    },
    "jax": {
        # the kernel: [h, w, in, out] of Flax, [out, in, h, w] of ONNX
        "turn weights": {"removed node_Transpose_1 (Transpose)"},
        "drop zero biases": {"nothing changed"},
        "name weights": {"changed Conv_1 (Conv): inputs"},
        "read ONNX": {*(f"added {node}" for node in JAX_NODES), "made the graph"},
        "link equations": {
            *(f"changed {node}: call, path" for node in JAX_NODES - {"Max_1 (Max)"}),
            "changed Max_1 (Max): call",  # a function of no module
            "changed the trace: calls",
        },
        "call weights": {"changed Conv_1 (Conv): inputs"},
    },
    "sklearn": {
        "write ONNX": {*(f"added {node}" for node in SKLEARN_NODES)},
        "drop unread nodes": {"nothing changed"},
        # of two classes the estimator has the weights of one
        "stand for estimators": {f"changed {CLASSIFIER}: stands_for"},
        "list modules": {"changed the trace: modules"},
        "place in modules": {*(f"changed {node}: path" for node in SKLEARN_NODES)},
    },
    "onnx": {
        "inline functions": {"removed doubled_1 (own.doubled)", "added doubled_1/Add_0 (Add)"},
        # i and whether to go on are known before the loop runs, and so is the table
        "mark constant": {
            "changed Loop_2/body/Identity_0 (Identity): constant",
            "changed Neg_3 (Neg): constant",
        },
        "mark storage": {"nothing changed"},
        "mark dead": {"changed Exp_0 (Exp): dead"},
        "leave out dead": {"removed Exp_0 (Exp)", "changed the graph: whole"},
    },
}
AMONG = {
    "pytorch": {
        "write ONNX": {
            *(f"added {node}" for node in PYTORCH_NODES),
            "removed conv2d (aten.conv2d.default)",
        },
        # the bias of zeros that the exporter makes up goes when the form is written
        "fold shape arithmetic": {"nothing changed"},
    },
    "tensorflow": {
        "write ONNX": {
            "changed small_1/conv_1/convolution (Conv): op, inputs, outputs, attributes"
        },
        "make model": {"changed small_1/conv_1/convolution (Conv): types"},
    },
    "jax": {"name nodes": {f"added {node}" for node in JAX_NODES}},
    "sklearn": {},
    "onnx": {
        "read model": {
            "added Exp_0 (Exp)",
            "added doubled_1 (own.doubled)",
            "added Loop_2/body/MatMul_1 (MatMul)",
        },
        "infer shapes": {"changed Loop_2/body/MatMul_1 (MatMul): types"},
        "build graph": {"added Loop_2/body/MatMul_1 (MatMul)", "made the graph"},
    },
}


def test_no_pass_may_be_left_out(frontend):
    """Each one ensures what another, or the end, requires."""
    assert pipelines.not_needed(pipeline_of(frontend)) == []


def test_each_other_swap_of_neighbours_breaks_a_requirement(frontend):
    """The message names it. The graph behind the others is held to be the same below."""
    assert pipelines.free_pairs(pipeline_of(frontend)) == FREE[frontend]


def _is_marked(node):
    without_gradients = node.constant or node.dead or not node.is_operation_of_model
    own = node.training
    gradients = own.own_backward or own.severed or own.derived_as or own.checkpoint
    return bool(without_gradients or gradients)


def _written(state):
    """All of a graph and its trace, without what two conversions in a row number differently.

    Those are loops that TensorFlow freezes, and distances and values in skl2onnx.
    """
    return re.sub(r"_frozen_\d+|UU\d+UU|cdist[a-z]*_\d+", "", f"{state.graph} {state.trace}")


def test_what_may_change_places_gives_the_same_graph(frontend):
    """Orders that are accepted make the very same graph and trace, field by field."""
    pipeline, state = MIXED[frontend]()
    usual = pipeline.run(state)
    nodes = (usual.graph.whole or usual.graph).nodes
    assert sum(map(_is_marked, nodes)) > 1
    assert usual.graph.functions or frontend in ("sklearn", "onnx")
    for other in pipelines.accepted_orders(pipeline, ORDERS):
        made = other.run(state)
        assert _written(made) == _written(usual)


def test_a_log_of_a_small_model_names_every_pass_with_its_nodes(frontend, caplog, tmp_path):
    """By hand: which node each pass makes, takes away and marks."""
    pipeline = pipeline_of(frontend)
    source = SMALL[frontend](tmp_path)
    with caplog.at_level(logging.DEBUG, pipeline.room):
        build_model_program(source, Setting())
    lines = [r.getMessage().split(": ", 1) for r in caplog.records if r.name == pipeline.room]
    named = dict.fromkeys(name for name, _ in lines)
    assert list(named) == [step.name for step in pipelines.flat(pipeline)]
    said = {name: {line for other, line in lines if other == name} for name in named}
    assert {name: said[name] for name in WHOLLY[frontend]} == WHOLLY[frontend]
    assert all(said[name] >= wanted for name, wanted in AMONG[frontend].items())
