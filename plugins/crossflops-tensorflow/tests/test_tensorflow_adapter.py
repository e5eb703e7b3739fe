"""The adapter of TensorFlow's profiler: what it prints, by layer, in hand-derived numbers."""

import subprocess
import sys

import pytest
from crossflops_tensorflow import TensorFlowProfiler

from crossflops.ir.trace import Setting
from crossflops.plugins.discovery import load_adapter_from_path
from crossflops.targets import source_from_object
from crossflops.verbs.api import compare

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")

pytestmark = pytest.mark.tensorflow
layers = keras.layers
IMAGE = tf.TensorSpec((1, 16, 16, 3))


def small():
    """A convolution with bias, batch normalization, a pool, and a dense layer."""
    return keras.Sequential(
        [
            layers.Input((16, 16, 3)),
            layers.Conv2D(8, 3, padding="same", name="conv"),
            layers.BatchNormalization(name="bn"),
            layers.ReLU(name="relu"),
            layers.MaxPool2D(name="pool"),
            layers.GlobalAveragePooling2D(name="mean"),
            layers.Dense(10, activation="softmax", name="head"),
        ]
    )


def profile(model, *args, **kwargs):
    """What the adapter says."""
    source = source_from_object(model, (args, kwargs))
    return TensorFlowProfiler().profile(source.model, source.args, source.kwargs, Setting())


def test_it_is_found_by_its_name():
    """The value of the entry point leads to a whole adapter."""
    adapter = load_adapter_from_path("tensorflow", "crossflops_tensorflow:TensorFlowProfiler")
    assert adapter.name == "tensorflow"


def test_the_version_is_that_of_tensorflow():
    """Whichever distribution brought it."""
    assert TensorFlowProfiler().version() == tf.__version__


def test_totals_and_layers():
    """2 per MAC, 1 per bias; 2 n and 6 per channel for batch normalization; windows; 5 a class."""
    conv = 2 * 256 * 8 * 27 + 256 * 8
    bn = 2 * 256 * 8 + 8 * (1 + 2 + 1 + 1 + 1)
    pool, mean, head = 4 * 64 * 8, 64 * 8, 2 * 80 + 10 + 50
    printed = profile(small(), IMAGE)
    amounts = {entry.path: entry.amount for entry in printed.entries}
    assert amounts == {
        "": conv + bn + pool + mean + head,
        "conv": conv,
        "bn": bn,
        "pool": pool,
        "mean": mean,
        "head": head,
    }
    assert printed.total == amounts[""]
    assert type(printed.total) is int
    assert (printed.printed_as, printed.params) == ("float_ops", None)


def test_the_batch_counts():
    """It is fixed before the graph is frozen."""
    single, four = profile(small(), IMAGE), profile(small(), tf.TensorSpec((4, 16, 16, 3)))
    per_channel = 8 * (1 + 2 + 1 + 1 + 1)
    assert four.total - per_channel == 4 * (single.total - per_channel)


def test_a_function():
    """A product of 2 x 8 by 8 x 4, and a sum of 2 x 4."""

    @tf.function
    def run(x, *, y):
        return x @ y + 1.0

    printed = profile(run, tf.TensorSpec((2, 8)), y=tf.TensorSpec((8, 4)))
    assert printed.total == 2 * 2 * 8 * 4 + 8


def test_the_model_stays_as_it_is():
    """Nothing runs: weights, mode and what Keras opens as name scopes are as before."""
    from keras.src.backend.tensorflow.core import name_scope

    model, enter = small(), name_scope.__enter__
    before = [value.copy() for value in model.get_weights()]
    profile(model, IMAGE)
    assert name_scope.__enter__ is enter
    assert all((a == b).all() for a, b in zip(before, model.get_weights(), strict=True))


@pytest.mark.parametrize("kind", ["keras", "saved"])
def test_a_comparison_of_a_file_in_another_process(kind, tmp_path):
    """Written here, read by this process and by the worker: residual 0, in total and by layer."""
    path = tmp_path / "m.keras" if kind == "keras" else tmp_path / "m"
    small().save(path) if kind == "keras" else small().export(path, verbose=False)
    report = compare(str(path), ["2x16x16x3"], tools=["tensorflow"])
    account = report.reconciliation("tensorflow")
    assert account.ours == report.macs == 2 * (256 * 8 * 27 + 80)
    assert account.residual == 0
    assert account.theirs == account.predicted > 0
    rows = [row for row in account.by_path if row.theirs is not None]
    assert rows
    assert all(row.theirs == row.predicted for row in rows)


def test_importing_the_plugin_imports_no_framework():
    """It is asked for its version before anybody needs TensorFlow."""
    script = (
        "import sys; from crossflops_tensorflow import TensorFlowProfiler as P\n"
        "P().version(); P().accepts(1); sys.exit('tensorflow' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
