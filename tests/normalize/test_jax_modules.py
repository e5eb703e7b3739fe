"""Models of Flax, normalized: which module every node is in, and what the converter put in."""

import pytest

from crossflops.core.trace import Setting
from crossflops.count import count
from crossflops.normalize import from_object, normalize

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")
nnx = pytest.importorskip("flax.nnx")
jnp = jax.numpy


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
    graph, trace = normalize(from_object(model, (args, kwargs)), Setting())
    return graph, trace, count(graph)


def nodes_of(model, *args, **kwargs):
    """Operator types by path, and every call by key."""
    graph, trace, _ = counted(model, *args, **kwargs)
    found = {}
    for node in graph.nodes:
        found.setdefault(node.path, []).append(node.op.type)
    return found, trace


def test_nodes_are_in_the_modules_of_flax():
    """Every node belongs to an equation, and is in the module around that."""
    found, trace = nodes_of(small(), spec(1, 16, 16, 3))
    assert "Conv" in found["conv"]
    assert "BatchNormalization" in found["bn"]
    assert "Gemm" in found["head"]
    assert "Relu" in found[""]
    assert [row.path for row in trace.modules] == ["", "conv", "bn", "head"]
    assert [row.class_name for row in trace.modules] == ["Small", "Conv", "BatchNorm", "Linear"]


def test_what_only_the_converter_put_in():
    """Transpositions to channels first are nobody's: their target says whose they are."""
    _, trace = nodes_of(small(), spec(1, 16, 16, 3))
    made = [call for call in trace.calls if call.target == "jax2onnx.Transpose"]
    assert made
    assert all(call.nodes for call in made)
    own = nodes_of(lambda x: jnp.transpose(x, (0, 2, 1)), spec(1, 16, 3))[1]
    assert not [call for call in own.calls if call.target.startswith("jax2onnx.")]


class Repeated(nnx.Module):
    """One layer that runs over stacked weights, and one that is called twice."""

    def __init__(self, rngs):
        keys = jax.random.split(rngs.params(), 5)
        self.layers = nnx.vmap(lambda key: nnx.Linear(8, 8, rngs=nnx.Rngs(key)))(keys)
        self.shared = nnx.Linear(8, 8, rngs=rngs)
        self.again = self.shared

    def __call__(self, x):
        step = nnx.scan(
            lambda x, layer: nnx.relu(layer(x)), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry
        )
        return self.again(self.shared(step(x, self.layers)))


def test_layers_in_a_loop():
    """5 steps of 3 x 8 x 8 in the layer that is scanned, then twice one that is shared."""
    graph, _, ledger = counted(Repeated(nnx.Rngs(0)), spec(3, 8))
    assert ledger.total.macs == 7 * 3 * 8 * 8
    assert graph.params == 5 * (64 + 8) + 64 + 8
    loop = next(node for node in graph.nodes if node.op.type in ("Loop", "Scan"))
    (body,) = loop.bodies
    assert {node.path for node in body.nodes if node.op.type == "Gemm"} == {"layers"}


def test_resnet50():
    """The MACs and parameters of torchvision's, and a BatchNormalization for each of 53."""
    from tests.flax_models import resnet50

    graph, trace, ledger = counted(resnet50(), spec(1, 224, 224, 3))
    assert ledger.total.macs == 4_089_184_256
    assert graph.params == 25_557_032
    types = [node.op.type for node in graph.nodes]
    assert types.count("Conv") == types.count("BatchNormalization") == 53
    by_key = {node.key: node for node in graph.nodes}
    loose = [
        by_key[key] for call in trace.calls if "jax2onnx." in call.target for key in call.nodes
    ]
    assert {node.op.type for node in loose} == {"Transpose", "Unsqueeze", "Squeeze"}
