"""Files that are exported of functions of JAX and modules of Flax."""

import numpy as np
import pytest

from crossflops import count
from crossflops.errors import CrossflopsWarning
from crossflops.ir.trace import Setting
from crossflops.verbs.api import export
from tests.exported import differences

jax = pytest.importorskip("jax")
nnx = pytest.importorskip("flax.nnx")
pytest.importorskip("jax2onnx")

pytestmark = pytest.mark.jax


class Network(nnx.Module):
    """A convolution with a bias, and a layer whose bias is 0 at first: 3 x 3 x 2 x 4 + 4 + 15."""

    PARAMS = 76 + 15

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.conv = nnx.Conv(2, 4, (3, 3), rngs=rngs)
        self.head = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        return self.head(jax.nn.relu(self.conv(x)).mean((1, 2)))


def function(x):
    """Three products with matrices that it closes over, one of them twice."""
    return jax.numpy.tanh(x @ SQUARE) @ SQUARE @ WIDE


SQUARE = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
WIDE = np.ones((4, 6), np.float32)
MODELS = {
    "module": (Network, (2, 6, 6, 2), Network.PARAMS),
    "function": (lambda: function, (2, 4), 16 + 24),
}


def run(path, x):
    """Return what the file computes: by onnxruntime where it is installed, else by onnx."""
    try:
        from onnxruntime import InferenceSession
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        model = ReferenceEvaluator(path)
        return model.run(None, {model.input_names[0]: x})[0]
    session = InferenceSession(path)
    return session.run(None, {session.get_inputs()[0].name: x})[0]


lax, h = jax.lax, np.array([-2.5, -0.5, 0.49999997, 0.5, 1.5, 3, np.inf, np.nan], np.float32)
POLES = np.array([-3.5, -2, -1, -0.5, 0, 1, 2, 171, 1e6, np.inf], np.float32)
GRID = np.random.default_rng(1).normal(size=(2, 6, 8, 3)).astype(np.float32)
ROWS = GRID.reshape(12, 24)


def sliced(x, place):
    """Two rows and four columns from a place on, wherever that is."""
    return lax.dynamic_slice(x, (place, place * 9), (2, 4))


def windows(start, combine, shape, strides, padding="SAME"):
    """Return a function that reduces windows."""
    return lambda x: lax.reduce_window(x, start, combine, shape, strides, padding)


COMPUTED = {
    **{f"start {place}": (sliced, ROWS, np.int32(place)) for place in (1, 11, 99, -1, -99)},
    "start of numbers": (lambda x: lax.dynamic_slice(x, (11, 23), (2, 4)), ROWS),
    "start in a loop": (
        lambda x: lax.fori_loop(0, 4, lambda k, c: c + sliced(x, k), np.zeros((2, 4), "float32")),
        ROWS,
    ),
    "start without sign": (sliced, ROWS, np.uint32(7)),
    "away from zero": (lax.round, h),
    "to the even one": (lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), h),
    "both ways": (lambda x: lax.round(x) + lax.round(x * 2), h),
    "lgamma": (lax.lgamma, POLES),
    "digamma": (lax.digamma, POLES),
    "erf_inv": (lax.erf_inv, np.array([-1, -0.5, 0, 0.999, 1], np.float32)),
    "largest": (windows(-np.inf, lax.max, (1, 2, 2, 1), (1, 2, 1, 1)), GRID),
    "largest of a batch": (windows(-np.inf, lax.max, (2, 1, 3, 1), (1, 1, 2, 1), "VALID"), GRID),
    "sums": (windows(0.0, lax.add, (1, 2, 2, 1), (1, 2, 1, 1)), GRID),
    "sums of channels": (windows(0.0, lax.add, (1, 1, 1, 2), (1, 3, 1, 1)), GRID),
    "of windows of one": (windows(-np.inf, lax.max, (1, 1, 1, 1), (1, 1, 1, 1)), GRID),
    "in a loop": (
        lambda x: lax.fori_loop(
            0, 3, lambda _, c: windows(-np.inf, lax.max, (1, 2, 2, 1), (1, 1, 1, 1))(c) / 2, x
        ),
        GRID,
    ),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_the_file_computes_what_jax_does_and_costs_what_it_costs(name, tmp_path):
    """Where jax2onnx writes something else, or what onnxruntime refuses; a NaN is a NaN."""
    onnxruntime = pytest.importorskip("onnxruntime")
    function, *given = COMPUTED[name]
    given = list(map(np.asarray, given))
    path = str(tmp_path / "model.onnx")
    (file,) = export(function, tuple(given), to="onnx", file=path)
    session = onnxruntime.InferenceSession(file)
    (result,) = session.run(
        None, dict(zip((value.name for value in session.get_inputs()), given, strict=True))
    )
    np.testing.assert_allclose(result, function(*given), rtol=1e-5, atol=1e-5)
    assert differences(function, tuple(given), tmp_path) == {}


@pytest.mark.parametrize("name", MODELS)
def test_the_file_is_the_model(name, tmp_path):
    """It computes the same, costs the same, and has the parameters, as they are stored."""
    build, shape, params = MODELS[name]
    model, x = build(), np.random.default_rng(1).normal(size=shape).astype(np.float32)
    path = str(tmp_path / "model.onnx")
    export(model, x, to="onnx", file=path)
    np.testing.assert_allclose(run(path, x), model(x), rtol=1e-4, atol=1e-5)
    of_model, of_file = count(model, x), count(path)
    assert of_file.totals.params == of_model.totals.params == params
    assert of_file.memory.param_bytes == of_model.memory.param_bytes == 4 * params
    assert (of_file.macs, of_file.flops) == (of_model.macs, of_model.flops)


def test_a_module_without_weights_says_whose_the_file_has(tmp_path):
    """flax.linen keeps them elsewhere; the number of them is the model's: 4 x 3 + 3."""
    linen, path = pytest.importorskip("flax.linen"), str(tmp_path / "model.onnx")
    x = np.ones((2, 4), np.float32)
    with pytest.warns(CrossflopsWarning, match="stores no weights"):
        export(linen.Dense(3), x, to="onnx", file=path)
    assert count(path).totals.params == 15


class Called(nnx.Module):
    """A layer that is called with these arguments."""

    def __init__(self, layer, **arguments):
        self.layer, self.arguments = layer, arguments

    def __call__(self, x):
        return self.layer(x, **self.arguments)


def batch_norm(**options):
    """Return a norm of three channels."""
    return nnx.BatchNorm(3, rngs=nnx.Rngs(0), **options)


# Of a norm by its batch, of N elements in 3 channels: N for their mean (N - 3 sums, 3 divisions),
# N squares, N for the mean of these; N differences, N products and N sums; in each channel a
# square, a difference, a maximum, a sum, a root, a reciprocal and a product.
def by_batch(elements):
    """Return the FLOPs of a norm by its batch."""
    return 6 * elements + 7 * 3


# Norms, the shape of the input, and the FLOPs by a batch.
NORMS = {
    "norm": (batch_norm, (2, 4, 4, 3), by_batch(96)),
    "norm along the first axis": (lambda: batch_norm(axis=1), (2, 3, 4), by_batch(24)),
    "norm of rows": (lambda: batch_norm(momentum=0.2, epsilon=0.3), (7, 3), by_batch(21)),
    "told in the call": (
        lambda: Called(batch_norm(), use_running_average=False), (2, 4, 3), by_batch(24),
    ),
    "mean square of axes": (
        lambda: nnx.RMSNorm(3, reduction_axes=(1, 2), rngs=nnx.Rngs(0)), (2, 4, 3), None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_is_verified_in_both_modes(name, training, tmp_path):
    """jax2onnx normalizes by the running statistics and along the last axis, whatever is set."""
    pytest.importorskip("onnxruntime")
    build, shape, flops = NORMS[name]
    x = np.random.default_rng(1).normal(3, 2, size=shape).astype(np.float32)
    setting, file = Setting(training=training), tmp_path / "model.onnx"
    agreement = export(build(), x, to="onnx", file=file, verify=True, setting=setting).agreement
    assert agreement.holds, agreement
    if flops and (training or name == "told in the call"):
        assert count(str(file)).flops == flops
