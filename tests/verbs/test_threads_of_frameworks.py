"""Counting from threads with targets of JAX, TensorFlow and scikit-learn: as one by one."""

import contextlib
import io
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

import crossflops

WIDTHS = (4, 8, 16, 5)
THREADS, TURNS = 6, 3


@contextlib.contextmanager
def printing(monkeypatch):
    """Print lines in another thread beside the block; nothing else may print meanwhile."""
    shown, lines, has_ended = io.StringIO(), [], threading.Event()
    monkeypatch.setattr("sys.stdout", shown)

    def work():
        while not has_ended.wait(0.01):
            lines.append(f"line {len(lines)}")
            print(lines[-1])

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join(60)
    assert lines
    assert shown.getvalue().splitlines() == lines


def holds(pairs, macs, monkeypatch):
    """The MACs of targets and their inputs are these, from threads too, and nothing is printed."""

    def counted(pair):
        target, inputs = pair
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", crossflops.errors.CrossflopsWarning)
            report = crossflops.count(target, inputs)
        assert report.uncounted == ()
        return report.totals.macs

    assert list(map(counted, pairs)) == macs
    with printing(monkeypatch), ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(counted, pairs * TURNS)) == macs * TURNS
    assert counted(pairs[0]) == macs[0]


@pytest.mark.jax
def test_jax(monkeypatch):
    """Products of 2x6 by 6xW, and the gradient of one: two products."""
    jnp = pytest.importorskip("jax.numpy")
    jax = pytest.importorskip("jax")
    x = jnp.ones((2, 6))
    pairs = [(lambda x, w=w: jnp.tanh(x @ jnp.ones((6, w))), x) for w in WIDTHS]
    gradient = jax.grad(lambda w, x: jnp.sum(jnp.tanh(x @ w)))
    pairs.append((gradient, (jnp.ones((6, 3)), x)))
    holds(pairs, [12 * w for w in WIDTHS] + [2 * 36], monkeypatch)


@pytest.mark.tensorflow
def test_tensorflow(monkeypatch):
    """Keras models of two layers, and a function of TensorFlow."""
    tf = pytest.importorskip("tensorflow")
    keras = tf.keras
    pairs = []
    for width in WIDTHS:
        layers = [keras.Input((6,)), keras.layers.Dense(width), keras.layers.Dense(3)]
        pairs.append((keras.Sequential(layers), tf.ones((1, 6))))
    pairs.append((tf.function(lambda x: tf.matmul(x, tf.ones((6, 2)))), tf.ones((2, 6))))
    holds(pairs, [9 * w for w in WIDTHS] + [24], monkeypatch)


@pytest.mark.sklearn
def test_scikit_learn(monkeypatch):
    """A product of the coefficients, and two of a perceptron: 6x4 and 4x1."""
    np = pytest.importorskip("numpy")
    linear = pytest.importorskip("sklearn.linear_model")
    network = pytest.importorskip("sklearn.neural_network")
    data = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    target = (data[:, 0] > 0).astype(int)
    models = [linear.LogisticRegression(), linear.LinearRegression()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the perceptron has not converged
        models.append(network.MLPClassifier((4,), max_iter=2).fit(data, target))
    pairs = [(model.fit(data, target), data[:1]) for model in models[:2]]
    pairs.append((models[2], data[:1]))
    holds(pairs, [6, 6, 6 * 4 + 4], monkeypatch)
