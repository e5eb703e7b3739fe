"""Modules of Equinox: an instance is the model, with its arrays as parameters."""

import pytest

import crossflops

pytestmark = pytest.mark.jax
SOURCE = """
import equinox as eqx
import jax


class Net(eqx.Module):
    first: eqx.nn.Linear
    drop: eqx.nn.Dropout
    attention: eqx.nn.MultiheadAttention
    cell: eqx.nn.GRUCell

    def __init__(self):
        keys = jax.random.split(jax.random.key(0), 3)
        self.first = eqx.nn.Linear(8, 16, key=keys[0])
        self.drop = eqx.nn.Dropout(0.5)
        self.attention = eqx.nn.MultiheadAttention(2, 16, key=keys[1])
        self.cell = eqx.nn.GRUCell(16, 4, key=keys[2])

    def __call__(self, x):
        y = self.drop(jax.vmap(self.first)(x))
        y = self.attention(y, y, y)
        return jax.lax.scan(lambda h, v: (self.cell(v, h), None), jax.numpy.zeros(4), y)[0]


net = Net()
mlp = eqx.nn.MLP(4, 8, 16, 2, key=jax.random.key(0))
"""
TOKENS = 5
LINEAR = TOKENS * 8 * 16
PROJECTIONS, SCORES = 4 * TOKENS * 16 * 16, 2 * TOKENS * TOKENS * 16
CELL = TOKENS * (3 * 4 * 16 + 3 * 4 * 4)


@pytest.fixture
def file(tmp_path):
    """A file with two models that are built already."""
    pytest.importorskip("equinox")
    path = tmp_path / "models.py"
    path.write_text(SOURCE)
    return path


def test_an_instance_is_counted(file):
    """Not called as a function that returns one; dropout is in inference mode and needs no key."""
    report = crossflops.count(f"{file}:net", [f"{TOKENS}x8"])
    assert report.totals.macs == LINEAR + PROJECTIONS + SCORES + CELL
    weights = (8 * 16 + 16) + 4 * 16 * 16 + (3 * 4 * 16 + 3 * 4 * 4 + 3 * 4 + 4)
    assert report.totals.params == weights
    assert report.uncounted == ()


def test_a_step_trains_its_arrays(file):
    """Two gradients for each product but that of the first layer, whose input has none."""
    step = crossflops.count(f"{file}:mlp", ["4"], train=True).training
    first, rest = 4 * 16, 16 * 16 + 16 * 8
    assert step.forward_macs == first + rest
    assert step.backward_weight_macs == first + rest
    assert step.backward_input_macs == rest
