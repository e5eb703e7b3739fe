"""Models of Flax NNX and functions of JAX, normalized: what they hold, what is refused."""

import sys

import numpy as np
import pytest

import crossflops
from crossflops.errors import InputError, MissingExtraError
from crossflops.frontends import normalize
from crossflops.frontends.inputs import parse_inputs
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets import load_target_source, source_from_object

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")
nnx = pytest.importorskip("flax.nnx")

pytestmark = pytest.mark.jax
jnp = jax.numpy

FILE = """
import jax, jax.numpy as jnp
from flax import nnx

def module():
    return nnx.Linear(3, 5, rngs=nnx.Rngs(0))

def pair():
    return module(), jnp.ones((2, 3))

def returned():
    return lambda x: x @ jnp.ones((3, 5))

@jax.jit
def jitted(x):
    return x @ jnp.ones((3, 5))

def plain(x, y):
    return x @ y
"""


class Small(nnx.Module):
    """A convolution with bias, batch normalization, and a dense layer."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 8, (3, 3), rngs=rngs)
        self.bn = nnx.BatchNorm(8, rngs=rngs)
        self.head = nnx.Linear(8, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.bn(self.conv(x))).mean((1, 2)))


def small():
    """The module above."""
    return Small(nnx.Rngs(0))


def spec(*shape, dtype="float32"):
    """An input."""
    return jax.ShapeDtypeStruct(shape, dtype)


def counted(model, *args, **kwargs):
    """Graph, trace and ledger of a model object."""
    graph, trace = normalize(source_from_object(model, (args, kwargs)), Setting())
    return graph, trace, count(graph)


def macs(model, *args, **kwargs):
    """The native MACs, with no node left out."""
    ledger = counted(model, *args, **kwargs)[2]
    assert not ledger.uncounted
    return ledger.total.macs


def test_macs_and_params():
    """256 places x 8 x 27 taps and 8 x 10; running statistics are no parameters."""
    graph, trace, ledger = counted(small(), spec(1, 16, 16, 3))
    assert ledger.total.macs == 256 * 8 * 27 + 80
    assert graph.params == (8 * 27 + 8) + 2 * 8 + (80 + 10)
    assert graph.param_bytes == 4 * graph.params
    assert graph.name == "Small"
    assert trace.framework == "jax"
    assert {row.path for row in trace.modules} == {"", "conv", "bn", "head"}


def test_a_model_without_arrays():
    """`nnx.eval_shape` gives a model whose weights are shapes alone."""
    assert macs(nnx.eval_shape(small), spec(1, 16, 16, 3)) == 256 * 8 * 27 + 80


@pytest.mark.parametrize(
    ("name", "inputs", "expected"),
    [
        ("module", ["2x3"], 30),
        ("pair", [], 30),
        ("returned", ["2x3"], 30),
        ("jitted", ["2x3"], 30),
        ("plain", ["2x3", "3x4"], 24),
    ],
)
def test_targets(tmp_path, name, inputs, expected):
    """A module or a function that is returned, with or without inputs, or the function itself."""
    path = tmp_path / "models.py"
    path.write_text(FILE)
    graph, _ = normalize(load_target_source(f"{path}:{name}", {}, parse_inputs(inputs)), Setting())
    assert count(graph).total.macs == expected


def test_weights_as_an_argument():
    """Trees of arrays are inputs like others."""

    def mlp(weights, x):
        return jnp.tanh(x @ weights["kernel"] + weights["bias"])

    weights = {"kernel": jnp.ones((3, 5)), "bias": jnp.zeros(5)}
    assert macs(mlp, weights, spec(2, 3)) == 30
    graph, _, _ = counted(mlp, weights, x=spec(2, 3))
    assert [value.name for value in graph.inputs] == ["in_0.bias", "in_0.kernel", "x"]


def test_the_parameters_of_a_function():
    """Arrays that it holds, each once; not what it makes, nor numbers spread over a shape."""
    weight = jnp.ones((4, 5))

    def held(x):
        return jnp.where(x > 0, x, 0.0) @ weight @ weight.T @ jnp.ones((4, 4))

    graph, trace, _ = counted(held, spec(3, 4))
    assert graph.params == 20
    assert [param.shape for param in trace.modules[0].params] == [(4, 5)]
    assert counted(lambda x: jnp.where(x > 0, x, 0.0), spec(3, 4))[0].params == 0


def test_a_module_of_linen():
    """Its variables are shapes; its parameters those that it calls so, statistics not."""
    linen = pytest.importorskip("flax.linen")
    model = linen.Sequential(
        [linen.Conv(8, (3, 3)), linen.BatchNorm(use_running_average=True), linen.Dense(5)]
    )
    graph, _, ledger = counted(model, spec(2, 6, 6, 3))
    assert ledger.total.macs == 2 * 36 * (8 * 27 + 8 * 5)
    assert graph.params == (8 * 27 + 8) + 2 * 8 + (8 * 5 + 5)


def test_what_the_model_does_not_take():
    """What the model raises is said in one line."""
    with pytest.raises(InputError, match="raised"):
        counted(small(), spec(1, 16, 16, 4))


def test_the_model_stays_as_it_is():
    """It is counted in the mode of evaluation, and keeps its own."""
    model = small()
    model.train()
    counted(model, spec(1, 16, 16, 3))
    assert model.bn.use_running_average is False
    assert not hasattr(model.conv, "_crossflops_path")
    assert model(jnp.ones((2, 16, 16, 3))).shape == (2, 10)


def test_what_was_traced_is_not_kept():
    """A function under jax.jit runs as before: nothing of jax2onnx is found in its place."""

    @jax.jit
    def inner(x):
        return jax.nn.softmax(jnp.concatenate([x, x]))

    counted(lambda x: inner(x), spec(3, 4))
    assert inner(jnp.ones((3, 4))).shape == (6, 4)


def test_the_first_axis_of_a_matrix():
    """X' Y of a 4 x 3 and a 4 x 5 matrix: 3 x 5 x 4."""
    assert macs(lambda x, y: x.T @ y, spec(4, 3), spec(4, 5)) == 60


def test_rules_that_fail_are_left_out():
    """A window given by position is not what jax2onnx expects; sums multiply nothing."""

    def pooled(x):
        largest = nnx.max_pool(x, (3, 3), (2, 2), "SAME")
        return largest + nnx.avg_pool(x, (3, 3), (2, 2), "SAME")

    graph, _, ledger = counted(pooled, spec(2, 16, 16, 8))
    assert ledger.total.macs == 0
    assert not ledger.uncounted
    assert {"MaxPool", "AveragePool"} <= {node.op.type for node in graph.nodes}


def test_a_missing_converter(monkeypatch):
    """One line, and the extra that brings it."""
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    with pytest.raises(MissingExtraError, match="jax2onnx") as caught:
        source_from_object(small(), spec(1, 16, 16, 3))
    assert "crossflops[jax]" in caught.value.hint


def test_what_cannot_be_converted(monkeypatch):
    """It is named, what holds other equations too, and the rest of the model is counted."""
    from crossflops.frontends.jax.convert import rules

    rules.load_conversion_rules()
    monkeypatch.delitem(rules._jax2onnx_rule_registry(), "scan")
    _, _, ledger = counted(
        lambda x: jax.lax.scan(lambda c, _: (c @ c, None), x @ x, None, 3)[0], spec(8, 8)
    )
    assert [gap.node.op.type for gap in ledger.uncounted] == ["scan"]
    assert ledger.total.macs == 8**3


def test_what_depends_on_nothing_is_counted():
    """A product of weights alone is work, too, and dead code is none."""

    def model(x):
        weight = jnp.ones((8, 8))
        unused = x @ weight @ weight
        del unused
        return x @ (weight @ weight)

    _, _, ledger = counted(model, spec(2, 8))
    assert ledger.total.macs == 8 * 8 * 8 + 2 * 8 * 8
    constant = sum(row.cost.macs for row in ledger.counted if row.node.constant)
    assert constant == 8 * 8 * 8


def test_padding_of_pools():
    """In numbers it is as much padding as in a word."""

    def pool(padding):
        return lambda x: nnx.max_pool(x, (3, 3), strides=(2, 2), padding=padding)

    for padding in (((1, 1), (1, 1)), "SAME"):
        source = source_from_object(
            pool(padding), jax.ShapeDtypeStruct((1, 16, 16, 8), jnp.float32)
        )
        graph, _ = normalize(source, Setting())
        (node,) = [node for node in graph.nodes if node.op.type == "MaxPool"]
        assert node.outputs[0].numel == 8 * 8 * 8


NUMBERS = (1 + 2j) * jnp.ones((3, 5))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.abs((x * 1j) @ NUMBERS),
        lambda x: jnp.real(jnp.exp(1j * x) @ NUMBERS),
        lambda x: jnp.real((x * 1j) @ np.ones((3, 5), np.complex64)),
        lambda x: jnp.real(x @ NUMBERS),  # JAX makes x complex before
    ],
    ids=["imaginary", "rotated", "of NumPy", "real"],
)
def test_a_product_with_stored_complex_numbers(function):
    """4 products of real numbers for each of 2 x 3 x 5."""
    report = crossflops.count(function, (jax.ShapeDtypeStruct((2, 3), "float32"),))
    assert report.totals.macs == 4 * 2 * 3 * 5
    assert not report.uncounted
