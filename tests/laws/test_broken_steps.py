"""A native count of a training step that misses a backward pass does not hide behind a cause.

The products of the last contraction have no gradients, on purpose: what the tool counts there has
no like in the native count, and is named so with its whole amount.
"""

import pytest

import crossflops
from crossflops.ledger.training import work
from crossflops.operators.gradient import Gradient

ALONE = "graph.one-side-alone"
PRODUCTS = ("MatMul", "Gemm")
BACK = 32  # of [2,4] and [4,2]: 16 to either side


@pytest.fixture
def broken(monkeypatch):
    """The last product, of [4,2], has no backward pass."""
    whole = work.node_gradient

    def gradient(flow, node, *more):
        if node.op.type in PRODUCTS and node.outputs[0].shape == (2, 2):
            return Gradient({})
        return whole(flow, node, *more)

    monkeypatch.setattr(work, "node_gradient", gradient)


def missed(model, given, tool):
    """What the account of a tool books as work of one side, and its residual."""
    report = crossflops.compare(model, given, train=True, tools=[tool], isolate=False)
    account = report.reconciliation(tool)
    named = {row.cause: row.macs for row in account.explanations}
    assert named.pop("graph.export-decomposition", 0) == 0
    return named.get(ALONE, 0), account.residual


@pytest.mark.torch
@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("tool", ["torch-flop-counter", "torch-profiler"])
def test_pytorch(tool):
    """Two linear layers."""
    torch = pytest.importorskip("torch")
    layers = (torch.nn.Linear(3, 4, bias=False), torch.nn.Linear(4, 2, bias=False))
    model = torch.nn.Sequential(*layers)
    assert missed(model, torch.ones(2, 3), tool) == (BACK, 0)


@pytest.mark.jax
@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("tool", ["xla-lowered", "xla-compiled"])
def test_jax(tool):
    """Two products with what a function closes over."""
    jax = pytest.importorskip("jax")
    first, second = jax.numpy.ones((3, 4)), jax.numpy.ones((4, 2))
    given = (jax.ShapeDtypeStruct((2, 3), "float32"),)
    assert missed(lambda x: x @ first @ second, given, tool) == (BACK, 0)


@pytest.mark.tensorflow
@pytest.mark.usefixtures("broken")
def test_keras():
    """Two dense layers."""
    keras = pytest.importorskip("keras")
    x = keras.Input((3,))
    dense = [keras.layers.Dense(units, use_bias=False) for units in (4, 2)]
    model = keras.Model(x, dense[1](dense[0](x)))
    given = (pytest.importorskip("tensorflow").TensorSpec((2, 3)),)
    assert missed(model, given, "tensorflow") == (BACK, 0)
