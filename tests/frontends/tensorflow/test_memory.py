"""A count reads shapes: the weights of a model are not copied on the way to ONNX."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")

import crossflops
from crossflops.errors import CrossflopsError
from crossflops.export import program
from crossflops.export.program import save_with_uniform_weights
from crossflops.load import decode_onnx_model
from crossflops.load.payload import NUMBER, fill_model_weights

pytestmark = pytest.mark.tensorflow

_WEIGHTS = 4 * 2 * 5000 * 5000  # bytes of two layers
_PROGRAM = """
import resource
import keras, tensorflow as tf
import crossflops

layers = [keras.layers.Dense(5000, use_bias=False) for _ in range(2)]
model = keras.Sequential([keras.layers.Input((5000,)), *layers])
small = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(8)])
crossflops.count(small, (tf.TensorSpec((1, 8)),))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = crossflops.count(model, (tf.TensorSpec((1, 5000)),))
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(found.totals.macs, found.totals.params, (after - before) * 1024)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="resource is a module of POSIX")
def test_weights_are_not_copied():
    """It took ten times their bytes when they were frozen twice and written out by protobuf."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=300
    )
    macs, params, more = map(int, done.stdout.split()[-3:])
    assert (macs, params) == (2 * 5000 * 5000, 2 * 5000 * 5000)
    assert more < _WEIGHTS


_TARGET = """
import keras

def make():
    layers = [keras.layers.Dense(5000, use_bias=False) for _ in range(2)]
    return keras.Sequential([keras.layers.Input((5000,)), *layers])

def small():
    return keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(8)])

def read():
    model = make()
    return model if model.layers[0].kernel.numpy().any() else small()
"""
_COUNT = """
import resource
import crossflops

crossflops.count("target.py:small", ["1x8"])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
totals = crossflops.count("target.py:make", ["1x5000"]).totals
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(totals.macs, totals.params, (after - before) * 1024)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="resource is a module of POSIX")
def test_a_target_is_built_without_numbers(tmp_path):
    """Two weights of 100 MB take a fraction of that; Keras alone would draw 300 MB for each."""
    (tmp_path / "target.py").write_text(_TARGET)
    done = subprocess.run(
        [sys.executable, "-c", _COUNT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    macs, params, more = map(int, done.stdout.split()[-3:])
    assert (macs, params) == (2 * 5000 * 5000, 2 * 5000 * 5000)
    assert more < _WEIGHTS / 4


def test_a_target_that_reads_its_weights_is_built_with_them(tmp_path):
    """The numbers decide about the model, so they are drawn."""
    (tmp_path / "target.py").write_text(_TARGET)
    report = crossflops.count(f"{tmp_path / 'target.py'}:read", ["1x5000"])
    assert report.macs == 2 * 5000 * 5000


def test_a_file_for_tools_has_them(tmp_path, monkeypatch):
    """Whoever loads the file finds as many numbers as the shapes say."""
    keras = pytest.importorskip("keras")
    import tensorflow as tf
    from onnx import load_from_string, numpy_helper

    from crossflops.frontends import build_model_program
    from crossflops.ir.trace import Setting
    from crossflops.targets import source_from_object

    model = keras.Sequential([keras.layers.Input((40,)), keras.layers.Dense(50)])
    data, _, _ = build_model_program(
        source_from_object(model, (tf.TensorSpec((1, 40)),)), Setting()
    )
    assert len(data) < 40 * 50 * 4
    (weight,) = (
        initializer
        for initializer in load_from_string(fill_model_weights(data)).graph.initializer
        if len(initializer.dims) == 2
    )
    save_with_uniform_weights(data, tmp_path / "model.onnx", "")
    assert load_from_string((tmp_path / "model.onnx").read_bytes()) == load_from_string(
        fill_model_weights(data)
    )
    values = numpy_helper.to_array(weight)
    np.testing.assert_array_equal(values, np.full((40, 50), NUMBER, np.float32))
    monkeypatch.setattr(program, "LIMIT", 40 * 50 * 4 - 1)
    with pytest.raises(CrossflopsError, match="larger than the limit of 2 GiB") as caught:
        save_with_uniform_weights(data, tmp_path / "large.onnx", "give the file of this verb")
    assert caught.value.hint == "give the file of this verb"
    assert [
        tuple(initializer.dims)
        for initializer in decode_onnx_model(data).graph.initializer
        if len(initializer.dims) == 2
    ] == [(40, 50)]
