"""Models of Flax, normalized: which module every node is in, and what the converter put in."""

import pytest

from crossflops.errors import InputError
from crossflops.frontends import normalize
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets import source_from_object

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")
nnx = pytest.importorskip("flax.nnx")

pytestmark = pytest.mark.jax
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
    graph, trace = normalize(source_from_object(model, (args, kwargs)), Setting())
    return graph, trace, count(graph)


def nodes_of(model, *args, **kwargs):
    """Operator types by path, and every call by key."""
    graph, trace, _ = counted(model, *args, **kwargs)
    types = {}
    for node in graph.nodes:
        types.setdefault(node.path, []).append(node.op.type)
    return types, trace


def test_nodes_are_in_the_modules_of_flax():
    """Every node belongs to an equation, and is in the module around that."""
    types, trace = nodes_of(small(), spec(1, 16, 16, 3))
    assert "Conv" in types["conv"]
    assert "BatchNormalization" in types["bn"]
    assert "Gemm" in types["head"]
    assert "Relu" in types[""]
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


def table(trace):
    """The class of every module by path, and its own parameters by name."""
    return {
        row.path: (row.class_name, {param.name: param.shape for param in row.params})
        for row in trace.modules
    }


def linen_model(linen):
    """A layer in setup, one that is made as it is called, and a stack that is scanned."""

    class Step(linen.Module):
        @linen.compact
        def __call__(self, x, _):
            return linen.relu(linen.Dense(8)(x)), None

    class Model(linen.Module):
        def setup(self):
            self.encoder = linen.Dense(8)

        @linen.compact
        def __call__(self, x):
            x = linen.LayerNorm(name="norm")(self.encoder(x))
            stack = linen.scan(
                Step, variable_axes={"params": 0}, split_rngs={"params": True}, length=4
            )
            x, _ = stack(name="stack")(x, None)
            return linen.remat(linen.Dense)(3, name="head")(x)

    return Model()


def test_modules_of_linen():
    """Those that ran, with their variables; four steps of 2 x 8 x 8 are in the scanned one."""
    linen = pytest.importorskip("flax.linen")
    graph, trace, ledger = counted(linen_model(linen), spec(2, 5))
    rows = table(trace)
    assert rows["encoder"] == ("Dense", {"kernel": (5, 8), "bias": (8,)})
    assert rows["norm"] == ("LayerNorm", {"scale": (8,), "bias": (8,)})
    assert rows["stack.Dense_0"] == ("Dense", {"kernel": (4, 8, 8), "bias": (4, 8)})
    assert rows["head"][1] == {"kernel": (8, 3), "bias": (3,)}
    assert rows[""] == ("Model", {})
    assert graph.params == (40 + 8) + 16 + 4 * (64 + 8) + (24 + 3)
    by_path = {}
    for row in ledger.counted:
        by_path[row.node.path] = by_path.get(row.node.path, 0) + row.cost.macs
    macs = {path: amount for path, amount in by_path.items() if amount}
    assert macs == {"encoder": 80, "stack.Dense_0": 4 * 128, "head": 48}


def test_modules_of_linen_in_a_function():
    """A function that applies one model has its modules; the weights are its own or inputs."""
    linen = pytest.importorskip("flax.linen")
    model = linen.Sequential([linen.Dense(8), linen.relu, linen.Dense(3)])
    weights = model.init(jax.random.key(0), jnp.ones((2, 5)))
    paths = ["", "layers_0", "layers_2"]
    graph, trace, _ = counted(lambda x: model.apply(weights, x), spec(2, 5))
    assert [row.path for row in trace.modules] == paths
    assert graph.params == 48 + 27
    graph, trace, _ = counted(model.apply, weights, spec(2, 5))
    assert [row.path for row in trace.modules] == paths
    assert graph.params == 0


def test_two_models_of_linen_in_a_function():
    """The paths would be those of either: there is the function alone."""
    linen = pytest.importorskip("flax.linen")

    def model(x):
        for width in (4, 8):
            x, _ = linen.Sequential([linen.Dense(width)]).init_with_output(jax.random.key(0), x)
        return x

    _, trace, ledger = counted(model, spec(2, 5))
    assert [row.path for row in trace.modules] == [""]
    assert ledger.total.macs == 2 * (5 * 4 + 4 * 8)


@pytest.mark.parametrize("name", ["BatchNorm", "Dropout"])
def test_a_module_of_linen_that_trains_unless_told(name):
    """The hint says how to tell it, and so told it is counted."""
    linen = pytest.importorskip("flax.linen")

    class Model(linen.Module):
        @linen.compact
        def __call__(self, x, train=True):
            x = linen.Dense(3)(x)
            if name == "Dropout":
                return linen.Dropout(0.5, deterministic=not train)(x)
            return linen.BatchNorm(use_running_average=not train)(x)

    with pytest.raises(InputError, match="the model raised") as caught:
        counted(Model(), spec(2, 5))
    assert "'train': False" in caught.value.hint
    assert counted(Model(), x=spec(2, 5), train=False)[2].total.macs == 2 * 5 * 3
