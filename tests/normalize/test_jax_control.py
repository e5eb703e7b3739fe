"""Loops and branches of JAX: what depends on data is named, and can be told."""

import pytest

import crossflops
from crossflops.core.trace import Setting
from crossflops.count import count
from crossflops.errors import InputError
from crossflops.normalize import from_object, load, normalize
from crossflops.normalize.inputs import parse

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")

pytestmark = pytest.mark.jax

LOOP = """
import jax

def model(x, w):
    return jax.lax.while_loop(lambda x: x.sum() < 5, lambda x: x @ w, x)
"""


def spec(*shape):
    """An input."""
    return jax.ShapeDtypeStruct(shape, "float32")


def test_a_loop_of_unknown_trips():
    """It is named, and is not zero."""

    def model(x):
        return jax.lax.while_loop(lambda x: x.sum() < 5, lambda x: x @ x, x)

    ledger = count(normalize(from_object(model, (spec(8, 8),)), Setting())[0])
    (one,) = ledger.uncounted
    assert one.node.op.type == "Loop"
    assert "--trips Loop_1=N" in one.reason


@pytest.mark.parametrize("trips", [0, 1, 9])
def test_trips_of_a_loop_can_be_told(tmp_path, trips):
    """By the name that the uncounted node has: 3 x 8 x 8 for each run of the body."""
    path = tmp_path / "loop.py"
    path.write_text(LOOP)
    source = load(f"{path}:model", {}, parse(["3x8", "8x8"]), trips={"Loop_1": trips})
    ledger = count(normalize(source, Setting())[0])
    assert not ledger.uncounted
    assert ledger.total.macs == trips * 3 * 8 * 8


def test_the_branch_that_counts_can_be_told():
    """Of one product and two, the larger one counts unless the other is asked for."""

    def model(x):
        return jax.lax.cond(x[0, 0] > 0, lambda x: (x @ x) @ x, lambda x: x @ x, x)

    def told(**said):
        return crossflops.count(model, spec(8, 8), **said).macs

    assert told() == 2 * 8**3
    assert told(branches={"If_1": "else"}) == 8**3
    assert told(branches={"If_1": "sum"}) == 3 * 8**3
    with pytest.raises(InputError, match="no If 'If_2'"):
        told(branches={"If_2": "else"})
