"""`export --verify` of functions of JAX and modules of Flax: onnxruntime beside a run."""

import numpy as np
import pytest

from crossflops.errors import InputError
from crossflops.verbs.api import export

jax = pytest.importorskip("jax")
nnx = pytest.importorskip("flax.nnx")
pytest.importorskip("jax2onnx")
pytest.importorskip("onnxruntime")

pytestmark = pytest.mark.jax
ROWS = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
WEIGHT = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)


def attend(x):
    """Softmax over products, and how large they are at most."""
    scores = jax.nn.softmax(x @ WEIGHT @ x.T, axis=-1)
    return {"context": scores @ x, "best": scores.argmax(1)}


def recur(x):
    """A loop with a product in each run."""
    return jax.lax.scan(lambda h, row: (jax.numpy.tanh(h @ WEIGHT + row), h), ROWS[0], x)


def verified(model, x, folder):
    """Return how far the file and the model agree."""
    return export(model, x, to="onnx", file=folder / "out.onnx", verify=True).agreement


@pytest.mark.parametrize("function", [attend, recur])
def test_a_function_is_held_against_its_file(function, tmp_path):
    """Each output agrees to float noise, whole numbers exactly."""
    agreement = verified(function, ROWS, tmp_path)
    assert agreement.holds
    assert len(agreement.outputs) == 2
    assert all(output.relative < 1e-5 and not output.drawn for output in agreement.outputs)


def test_a_module_runs_with_its_weights(tmp_path):
    """They are in the file, as they are in the model."""
    model = nnx.Sequential(nnx.Linear(4, 5, rngs=nnx.Rngs(0)), nnx.relu)
    agreement = verified(model, ROWS, tmp_path)
    assert agreement.holds
    assert agreement.outputs[0].relative < 1e-5


def test_another_function_is_found(tmp_path):
    """One that is exported as another than it runs is not what its file computes."""

    def drift(x):
        return 2 * x if isinstance(x, jax.core.Tracer) else x

    assert not verified(drift, ROWS, tmp_path).holds


def test_what_raises_is_told(tmp_path):
    """Values that the function refuses are the caller's: two lines, and no traceback."""
    calls = []

    def refuse(x):
        calls.append(x)
        if not isinstance(x, jax.core.Tracer):
            raise ValueError("too cold")
        return x + 1

    with pytest.raises(InputError, match="the model raised ValueError: too cold"):
        verified(refuse, ROWS, tmp_path)
