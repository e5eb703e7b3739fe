"""A file of a TensorFlow function or a Keras model costs what that does, whatever tf2onnx wrote.

Some of the functions that every framework has, and of the probes of the kit; with
CROSSFLOPS_EVERY_EXPORT=1 all.
"""

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")
pytest.importorskip("onnxruntime")

from crossflops.testing.tensorflow import PROBES  # noqa: E402
from tests.exported import differences, some  # noqa: E402
from tests.laws import test_same_function as same  # noqa: E402

pytestmark = pytest.mark.tensorflow
ROWS = tf.TensorSpec((3, 16))
SPECIAL = {
    "lgamma": tf.math.lgamma,
    "digamma": tf.math.digamma,
    "erfinv": tf.math.erfinv,
    "erfc": tf.math.erfc,
    "bessel_i0e": tf.math.bessel_i0e,
    "igamma": lambda x: tf.math.igamma(tf.abs(x) + 1, x * x),
    "histogram": lambda x: tf.histogram_fixed_width(x, [-1.0, 1.0], 5),
    "product at places": lambda x: tf.tensor_scatter_nd_max(x, [[0], [2]], x[:2]),
    "largest of segments": lambda x: tf.math.segment_max(x, [0, 0, 1]),
    "products so far": lambda x: tf.math.cumulative_logsumexp(x, 1),
    "areas": lambda x: tf.compat.v1.image.resize_area(tf.reshape(x, (1, 4, 12, 1)), (2, 6)),
}


def inputs_of(name):
    """The inputs of a function that every framework has; an image has its channels last."""
    return tuple(
        tf.TensorSpec((6,), tf.int32)
        if shape == same.PLACES
        else tf.TensorSpec((shape[0], *shape[2:], shape[1]) if len(shape) == 4 else shape)
        for shape in same.INPUTS[name]
    )


def _probe(probe):
    model, args, kwargs = probe.build()
    return model, (args, kwargs)


MODELS = {
    **{f"special {name}": lambda f=f: (tf.function(f), (ROWS,)) for name, f in SPECIAL.items()},
    **{
        f"same {name}": lambda name=name, f=f: (tf.function(f), inputs_of(name))
        for name, f in same.tensorflow_functions().items()
    },
    **{f"probe {name}": lambda probe=probe: _probe(probe) for name, probe in PROBES.items()},
}
ALWAYS = ("same qr", "same unique", "same bicubic", "special lgamma")


@pytest.mark.parametrize("name", some(MODELS, ALWAYS, 40))
def test_a_file_costs_what_the_function_does(name, tmp_path):
    """All kinds of work, parameters, and what has no count."""
    model, inputs = MODELS[name]()
    assert differences(model, inputs, tmp_path) == {}
