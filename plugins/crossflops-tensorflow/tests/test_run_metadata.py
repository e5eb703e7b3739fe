"""A run of a graph with an open batch leads to the number of a graph with that batch."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("tensorflow")

pytestmark = pytest.mark.tensorflow

PROGRAM = """
import json, numpy, keras, tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from crossflops_tensorflow import profile_run

layers = keras.layers
model = keras.Sequential([
    layers.Input((8, 8, 3)), layers.Conv2D(4, 3, padding="same"), layers.MaxPool2D(),
    layers.Flatten(), layers.Dense(10),
])
function = tf.function(lambda x: model(x, training=False))
frozen = convert_variables_to_constants_v2(
    function.get_concrete_function(tf.TensorSpec((None, 8, 8, 3)))
)
graph = tf.Graph()
with graph.as_default():
    tf.import_graph_def(frozen.graph.as_graph_def(), name="")
found = profile_run(
    graph, {frozen.inputs[0].name: numpy.zeros((5, 8, 8, 3), numpy.float32)},
    [frozen.outputs[0].name],
)
print(json.dumps(found._asdict()))
"""


def ran(onednn):
    """What a process of its own says: oneDNN is switched as TensorFlow is imported."""
    env = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": onednn, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_the_run_tells_the_batch():
    """5 images of 8x8: 2 x 256 outputs x 27 and a bias, 4 for each of 64 maxima, 2 x 64 x 10."""
    counts = ran("0")
    assert counts["by_type"] == {
        "Conv2D": 5 * 2 * 256 * 27,
        "BiasAdd": 5 * (256 + 10),
        "MaxPool": 5 * 4 * 64,
        "MatMul": 5 * 2 * 64 * 10,
    }
    assert counts["total"] == sum(counts["by_type"].values())
    assert counts["not_run"] == []


def test_what_onednn_rewrote_is_named():
    """What did not run under its own name keeps its open shape, counts 0, and is named."""
    counts = ran("1")
    lost = [name for name in counts["not_run"] if "conv2d" in name]
    assert ("Conv2D" in counts["by_type"]) == (not lost)
