"""LSTM, GRU and RNN of files become layers of torch, which compute what the equations say."""

import importlib
from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from crossflops.frontends import load_with_retry  # noqa: E402

try:
    load_with_retry(lambda: importlib.import_module("onnx2torch"))
except ImportError:
    pytest.skip("onnx2torch is not installed", allow_module_level=True)

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from crossflops.errors import NormalizeError  # noqa: E402
from crossflops.frontends import normalize  # noqa: E402
from crossflops.frontends.onnx import OnnxFile  # noqa: E402
from crossflops.ir.trace import Setting  # noqa: E402
from crossflops.ledger.count import count  # noqa: E402
from crossflops.rebuild import rebuild_as_torch  # noqa: E402
from tests.onnx_files import ledger_of, saved  # noqa: E402

pytestmark = pytest.mark.tools
STEPS, BATCH, INPUTS, HIDDEN = 4, 2, 3, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DIRECTIONS = ("forward", "reverse", "bidirectional")
STATES = {"LSTM": ("h", "c"), "GRU": ("h",), "RNN": ("h",)}


def sigmoid(x):
    """1 / (1 + e^-x)."""
    return 1 / (1 + np.exp(-x))


def step(kind, gates, hidden, h, c):
    """The equations of the operator's page. `gates` are X W^T + Wb, `hidden` is H R^T + Rb."""
    if kind == "RNN":
        return np.tanh(gates + hidden), c
    x, y = (np.split(stacked, GATES[kind], axis=-1) for stacked in (gates, hidden))
    if kind == "GRU":
        z, r = sigmoid(x[0] + y[0]), sigmoid(x[1] + y[1])
        return (1 - z) * np.tanh(x[2] + r * y[2]) + z * h, c
    i, o, f = (sigmoid(x[place] + y[place]) for place in range(3))
    c = f * c + i * np.tanh(x[3] + y[3])
    return o * np.tanh(c), c


def unrolled(kind, direction, x, values):
    """Y [T, D, B, H] and the last states [D, B, H], step by step."""
    sides = {"forward": [1], "reverse": [-1], "bidirectional": [1, -1]}[direction]
    results, ends = [], []
    for place, side in enumerate(sides):
        w, r = values["w"][place], values["r"][place]
        b = values["b"][place] if "b" in values else np.zeros(2 * len(w), "float32")
        zeros = np.zeros((BATCH, HIDDEN), "float32")
        h, c = (values[name][place] if name in values else zeros for name in ("h", "c"))
        states = []
        for frame in x[::side]:
            h, c = step(kind, frame @ w.T + b[: len(w)], h @ r.T + b[len(w) :], h, c)
            states.append(h)
        results.append(np.stack(states)[::side])
        ends.append((h, c))
    return np.stack(results, axis=1), *(np.stack(state) for state in zip(*ends, strict=True))


def drawn(kind, direction, bias, states):
    """Weights, and first states if any."""
    draw = np.random.default_rng(0)
    d, g = (2 if direction == "bidirectional" else 1), GATES[kind] * HIDDEN
    shapes = {"w": (d, g, INPUTS), "r": (d, g, HIDDEN)}
    shapes |= {"b": (d, 2 * g)} if bias else {}
    shapes |= dict.fromkeys(states, (d, BATCH, HIDDEN))
    return {name: draw.normal(size=shape).astype("float32") for name, shape in shapes.items()}


def model_of(kind, values, inputs, outputs, **attributes):
    """One node; what is not among `inputs` is stored."""
    names = ["x", "w", "r", "b" if "b" in values else "", "l" if "l" in values else ""]
    names += [name if name in values else "" for name in (*STATES[kind], "p")]
    while not names[-1]:
        names.pop()
    results = ["y", "yh", "yc"][:outputs]
    if kind == "GRU":
        attributes = {"linear_before_reset": 1, **attributes}
    node = helper.make_node(kind, names, results, hidden_size=HIDDEN, **attributes)
    tensors = [numpy_helper.from_array(array, name) for name, array in values.items()]
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
            for name, array in inputs.items()
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        [tensor for tensor in tensors if tensor.name not in inputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def found_by(path, inputs):
    """What the module computes, as a list of arrays."""
    source = rebuild_as_torch(OnnxFile(path=path))
    with torch.no_grad():
        outputs = source.model(*map(torch.from_numpy, inputs.values()))
    outputs = [outputs] if torch.is_tensor(outputs) else outputs
    return [output.numpy() for output in (outputs if torch.is_tensor(outputs[0]) else outputs[0])]


CASES = [*product(GATES, DIRECTIONS, (False, True), ("none", "stored", "given"), (0, 1))]


@pytest.mark.parametrize(("kind", "direction", "bias", "first", "layout"), CASES)
def test_it_computes_what_the_equations_say(tmp_path, kind, direction, bias, first, layout):
    """Output by output."""
    values = drawn(kind, direction, bias, () if first == "none" else STATES[kind])
    x = np.random.default_rng(1).normal(size=(STEPS, BATCH, INPUTS)).astype("float32")
    y, *ends = unrolled(kind, direction, x, values)
    expected = [y, *ends[: len(STATES[kind])]]
    if layout:
        x, expected[0] = x.swapaxes(0, 1), expected[0].transpose(2, 0, 1, 3)
        expected[1:] = [array.swapaxes(0, 1) for array in expected[1:]]
        values |= {name: values[name].swapaxes(0, 1) for name in "hc" if name in values}
    inputs = {"x": np.ascontiguousarray(x)}
    if first == "given":
        inputs |= {name: np.ascontiguousarray(values[name]) for name in STATES[kind]}
    model = model_of(kind, values, inputs, len(expected), direction=direction, layout=layout)
    outputs = found_by(saved(tmp_path, model), inputs)
    assert len(outputs) == len(expected)
    for output, other in zip(outputs, expected, strict=True):
        assert output.shape == other.shape
        np.testing.assert_allclose(output, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", GATES)
def test_it_has_the_work_of_the_file(tmp_path, kind):
    """The products of every step, g H (I + H) for each direction."""
    values = drawn(kind, "bidirectional", True, ())
    x = {"x": np.zeros((STEPS, BATCH, INPUTS), "float32")}
    path = saved(tmp_path, model_of(kind, values, x, 1, direction="bidirectional"))
    source = rebuild_as_torch(OnnxFile(path=path))
    macs = STEPS * BATCH * 2 * GATES[kind] * HIDDEN * (INPUTS + HIDDEN)
    assert ledger_of(path).total.macs == macs
    assert count(normalize(source, Setting())[0]).total.macs == macs


def test_one_state_alone_and_full_lengths(tmp_path):
    """The other state is zeros, and lengths that are those of X change nothing."""
    values = drawn("LSTM", "forward", True, ("c",))
    x = np.random.default_rng(1).normal(size=(STEPS, BATCH, INPUTS)).astype("float32")
    expected = unrolled("LSTM", "forward", x, values)
    values["l"] = np.full(BATCH, STEPS, "int32")
    path = saved(tmp_path, model_of("LSTM", values, {"x": x}, 3))
    for output, other in zip(found_by(path, {"x": x}), expected, strict=True):
        np.testing.assert_allclose(output, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "more", "attributes", "what"),
    [
        ("LSTM", {"p": (1, 3 * HIDDEN)}, {}, "peepholes"),
        ("LSTM", {}, {"clip": 3.0}, "a clip of what enters the gates"),
        ("LSTM", {}, {"input_forget": 1}, "input and forget gates that are coupled"),
        (
            "LSTM",
            {},
            {"activations": ["Sigmoid", "Relu", "Tanh"]},
            "the activations sigmoid, relu",
        ),
        ("GRU", {}, {"linear_before_reset": 0}, "the reset before the product with R"),
        ("RNN", {}, {"activations": ["Affine"]}, "the activations affine"),
        ("RNN", {"l": (BATCH,)}, {}, "lengths for each sequence"),
    ],
)
def test_what_no_layer_of_torch_has_is_named(tmp_path, kind, more, attributes, what):
    """By the words for it, not by the operator alone."""
    values = drawn(kind, "forward", True, ())
    values |= {name: np.ones(shape, "float32") for name, shape in more.items()}
    if "l" in values:
        values["l"] = values["l"].astype("int32")
    x = np.zeros((STEPS, BATCH, INPUTS), "float32")
    path = saved(tmp_path, model_of(kind, values, {"x": x}, 1, **attributes))
    with pytest.raises(NormalizeError, match=f"{kind}.* has {what}.*no torch layer supports") as e:
        rebuild_as_torch(OnnxFile(path=path))
    assert "crossflops count" in e.value.hint


def test_weights_that_are_computed_are_named(tmp_path):
    """A layer stores its weights."""
    values = drawn("GRU", "forward", False, ())
    inputs = {"x": np.zeros((STEPS, BATCH, INPUTS), "float32"), "r": values["r"]}
    path = saved(tmp_path, model_of("GRU", values, inputs, 1))
    with pytest.raises(NormalizeError, match="has weights that are computed"):
        rebuild_as_torch(OnnxFile(path=path))
