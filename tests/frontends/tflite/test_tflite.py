"""Files of TensorFlow's own converter count what their models do, by hand and by loops."""

from math import prod
from pathlib import Path

import pytest

import crossflops
from crossflops.cli import main
from crossflops.errors import CrossflopsError, CrossflopsWarning

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:the file does not fix all input sizes"),
]
FILES: dict[str, bytes] = {}


def write_file(folder: Path, name: str, model, mode: str = "float", **specs) -> str:
    """The path of a file that the converter wrote; each is written once."""
    import numpy as np
    import tensorflow as tf

    if name not in FILES:
        if specs:
            function = tf.function(model).get_concrete_function(
                *(tf.TensorSpec(shape, tf.float32) for shape in specs.values())
            )
            converter = tf.lite.TFLiteConverter.from_concrete_functions([function])
        else:
            converter = tf.lite.TFLiteConverter.from_keras_model(model)
        if mode != "float":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if mode == "float16":
            converter.target_spec.supported_types = [tf.float16]
        if mode == "int8":
            shape = next(iter(specs.values()))
            converter.representative_dataset = lambda: [[np.ones(shape, "float32")]]
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            converter.inference_input_type = converter.inference_output_type = tf.int8
        if mode == "flex":
            converter.optimizations = []
            converter.target_spec.supported_ops = [
                tf.lite.OpsSet.TFLITE_BUILTINS,
                tf.lite.OpsSet.SELECT_TF_OPS,
            ]
        FILES[name] = converter.convert()
    path = folder / f"{name}.tflite"
    path.write_bytes(FILES[name])
    return str(path)


def keyword_spotting(x):
    """A DS-CNN: a convolution of 10x4, two depthwise separable blocks, a mean, 12 classes."""
    import numpy as np
    import tensorflow as tf

    drawn = np.random.default_rng(0)  # equal constants would be stored once

    def weight(*shape):
        return tf.constant(drawn.normal(size=shape).astype("float32"))

    x = tf.nn.relu(tf.nn.conv2d(x, weight(10, 4, 1, 64), 2, "SAME"))
    for _ in range(2):
        x = tf.nn.relu(tf.nn.depthwise_conv2d(x, weight(3, 3, 64, 1), [1, 1, 1, 1], "SAME"))
        x = tf.nn.relu(tf.nn.conv2d(x, weight(1, 1, 64, 64), 1, "SAME"))
    return tf.nn.softmax(tf.reduce_mean(x, [1, 2]) @ weight(64, 12))


# 49x10 in strides of 2 is 25x5 positions
KEYWORD_MACS = 125 * (64 * 10 * 4 + 2 * (64 * 9 + 64 * 64)) + 64 * 12
PRECISIONS = {
    "float": {"float32": KEYWORD_MACS},
    "float16": {"float32xfloat16": KEYWORD_MACS},
    "int8": {"int8": KEYWORD_MACS},
}


@pytest.mark.parametrize("mode", PRECISIONS)
def test_keyword_spotting_counts_alike_in_every_precision(mode: str, tmp_path: Path) -> None:
    """MACs are those of the float model, under the types of the file."""
    report = crossflops.count(
        write_file(tmp_path, f"keyword_{mode}", keyword_spotting, mode, x=(1, 49, 10, 1))
    )
    assert report.macs_by_precision == PRECISIONS[mode]
    assert not report.uncounted


def test_dynamic_range_has_float_data_and_int8_weights(tmp_path: Path) -> None:
    """Large weights are int8, and the data stay float; the MACs are the same."""
    path = write_file(tmp_path, "keyword_dynamic", keyword_spotting, "dynamic", x=(1, 49, 10, 1))
    report = crossflops.count(path)
    pointwise = 125 * 2 * 64 * 64
    assert sum(report.macs_by_precision.values()) == KEYWORD_MACS
    assert report.macs_by_precision["float32xint8"] >= pointwise
    assert set(report.macs_by_precision) == {"float32", "float32xint8"}


def test_int8_results_are_quantized_once(tmp_path: Path) -> None:
    """Each computed result is written by QuantizeLinear; weights take a byte each."""
    report = crossflops.count(
        write_file(tmp_path, "keyword_int8", keyword_spotting, "int8", x=(1, 49, 10, 1))
    )
    weights = 64 * 10 * 4 + 2 * (64 * 9 + 64 * 64) + 64 * 12
    assert report.memory.param_bytes_by_type["int8"] == weights
    quantized = [row for row in report.nodes if row.op == "QuantizeLinear"]
    # the mean, the product, the softmax, and five convolutions, whose ReLU is their clipping
    assert len(quantized) == 8
    assert not [row for row in report.nodes if row.op == "Relu"]


def macs_of_layers(model) -> int:
    """MACs of a Keras model of convolutions and dense layers, by its own layers."""
    import tensorflow as tf

    layers = tf.keras.layers
    total = 0
    for layer in model.layers:
        if isinstance(layer, layers.DepthwiseConv2D):
            total += prod(layer.output.shape[1:]) * prod(layer.kernel_size)
        elif isinstance(layer, layers.Conv2D):
            total += prod(layer.output.shape[1:]) * prod(layer.kernel.shape[:3])
        elif isinstance(layer, layers.Dense):
            total += prod(layer.kernel.shape)
    return total


def test_mobilenet_counts_as_its_layers(tmp_path: Path) -> None:
    """MobileNetV2 of Keras, by an independent loop over its layers."""
    import tensorflow as tf

    model = tf.keras.applications.MobileNetV2((32, 32, 3), alpha=0.35, weights=None, classes=10)
    with pytest.warns(CrossflopsWarning, match="does not fix all input sizes"):
        report = crossflops.count(write_file(tmp_path, "mobilenet", model))
    assert report.totals.macs == macs_of_layers(model) > 10**6
    assert not report.uncounted
    # without batch normalization, which is folded into 52 convolutions with a bias each
    assert {row.op for row in report.nodes} == {
        *("Conv", "Gemm", "Clip", "Add", "ReduceMean", "Softmax"),
    }


def lite_blocks(x):
    """Blocks of EfficientNet-Lite: expanded by 6, 5x5 depthwise, no squeeze, relu6, a sum."""
    import tensorflow as tf

    x = tf.nn.relu6(tf.nn.conv2d(x, tf.ones((3, 3, 3, 8)), 2, "SAME"))
    y = tf.nn.relu6(tf.nn.conv2d(x, tf.ones((1, 1, 8, 48)), 1, "SAME"))
    y = tf.nn.relu6(tf.nn.depthwise_conv2d(y, tf.ones((5, 5, 48, 1)), [1, 1, 1, 1], "SAME"))
    x = x + tf.nn.conv2d(y, tf.ones((1, 1, 48, 8)), 1, "SAME")
    return tf.reshape(tf.nn.avg_pool2d(x, 16, 1, "VALID"), (1, 8)) @ tf.ones((8, 5))


def test_lite_blocks_count_by_hand(tmp_path: Path) -> None:
    """256 positions behind the stem."""
    report = crossflops.count(write_file(tmp_path, "lite", lite_blocks, x=(1, 32, 32, 3)))
    assert report.totals.macs == 256 * (27 * 8 + 8 * 48 + 25 * 48 + 48 * 8) + 8 * 5
    # the converter gives each convolution a bias, and stores equal ones once: of 8 and of 48
    assert report.totals.params == 27 * 8 + 8 * 48 + 25 * 48 + 48 * 8 + 8 * 5 + 8 + 48
    assert not report.uncounted


def test_open_sizes_are_followed_through_merged_axes(tmp_path: Path) -> None:
    """A transformer block of Keras with an open batch: its dense layers see [batch * 8, 32].

    The file stores that as [1, 1]. Attention of 4 heads of 8, and 32 x 64 x 32 behind it.
    """
    import tensorflow as tf

    layers = tf.keras.layers
    given = tf.keras.Input((8, 32))
    x = layers.LayerNormalization()(given + layers.MultiHeadAttention(4, 8)(given, given))
    hidden = layers.Dense(64, "gelu")(x)
    model = tf.keras.Model(given, layers.LayerNormalization()(x + layers.Dense(32)(hidden)))
    report = crossflops.count(write_file(tmp_path, "block", model))
    projections, products = 4 * 8 * 32 * 32, 2 * 4 * 8 * 8 * 8
    assert report.totals.macs == projections + products + 2 * 8 * 32 * 64
    assert not report.uncounted


def test_recurrent_layer_runs_its_loop(tmp_path: Path) -> None:
    """An LSTM in a WHILE of 10 steps, whose number follows from its counter."""
    import tensorflow as tf

    layer = tf.keras.layers.LSTM(16)
    layer.build((1, 10, 8))
    report = crossflops.count(write_file(tmp_path, "lstm", layer, x=(1, 10, 8)))
    assert report.totals.macs == 10 * 4 * 16 * (8 + 16)
    assert report.totals.params == 4 * 16 * (8 + 16 + 1)
    assert not report.uncounted


def mixed_operators(x):
    """Operators of many kinds."""
    import tensorflow as tf

    y = tf.nn.conv2d_transpose(x, tf.ones((3, 3, 6, 4)), (1, 16, 16, 6), 2)
    y = tf.nn.max_pool2d(tf.nn.leaky_relu(tf.image.resize(y, (8, 8))), 2, 2, "VALID")
    y = tf.nn.conv2d(
        tf.pad(y, [[0, 0], [1, 1], [1, 1], [0, 0]]), tf.ones((3, 3, 6, 4)), 1, "VALID"
    )
    first, second = tf.split(tf.nn.conv2d(y, tf.ones((3, 3, 4, 4)), 1, "SAME", dilations=2), 2, -1)
    joined = tf.concat([first, second], 1)
    return tf.argmax(tf.reduce_sum(joined, [1, 2]), -1), tf.math.top_k(tf.reshape(joined, (1, 64)))


def test_operators_of_many_kinds(tmp_path: Path) -> None:
    """A transposed convolution: every one of 64 inputs of 4 channels meets 3x3x6 weights."""
    report = crossflops.count(write_file(tmp_path, "mixed", mixed_operators, x=(1, 8, 8, 4)))
    assert report.totals.macs == 64 * 4 * 54 + 16 * 4 * 54 + 16 * 4 * 36
    assert not report.uncounted


def test_custom_operators_are_named_and_not_counted(tmp_path: Path) -> None:
    """An operator that only TensorFlow can run is uncounted, with its name, and not zero."""
    import tensorflow as tf

    def model(x):
        return tf.linalg.inv(tf.reshape(x, (2, 2, 2))), x @ tf.ones((8, 4))

    report = crossflops.count(write_file(tmp_path, "custom", model, "flex", x=(1, 8)))
    assert [row.op for row in report.uncounted] == ["tflite.FlexMatrixInverse"]
    assert report.totals.macs == 8 * 4


def test_signatures_are_named(tmp_path: Path) -> None:
    """Of several signatures one is counted; without a name it is an error with the names."""
    import tensorflow as tf

    module = tf.Module()
    module.w, module.v = tf.Variable(tf.ones((8, 4))), tf.Variable(tf.ones((8, 16)))
    functions = {
        "encode": tf.function(lambda x: {"y": x @ module.w}),
        "decode": tf.function(lambda x: {"z": x @ module.v}),
    }
    rows = {"encode": 2, "decode": 3}
    signatures = {
        name: one.get_concrete_function(tf.TensorSpec((rows[name], 8), tf.float32))
        for name, one in functions.items()
    }
    tf.saved_model.save(module, str(tmp_path / "two"), signatures=signatures)
    converter = tf.lite.TFLiteConverter.from_saved_model(
        str(tmp_path / "two"), signature_keys=list(rows)
    )
    path = tmp_path / "two.tflite"
    path.write_bytes(converter.convert())
    assert crossflops.count(f"{path}:encode").totals.macs == 2 * 8 * 4
    assert crossflops.count(f"{path}:decode").totals.macs == 3 * 8 * 16
    with pytest.raises(CrossflopsError, match="several signatures: decode, encode"):
        crossflops.count(str(path))
    with pytest.raises(CrossflopsError, match="has no signature 'train'"):
        crossflops.count(f"{path}:train")


def test_options_that_a_file_cannot_take(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Other sizes, a training step and a file of ONNX are errors with a remedy, exit 2."""
    path = write_file(tmp_path, "lite", lite_blocks, x=(1, 32, 32, 3))
    for words, message in (
        (
            ("count", path, "--input", "2x32x32x3"),
            "cannot be changed: input 'x' is 1x32x32x3",
        ),
        (("count", path, "--train"), "a training step of a model of TFLite is not counted yet"),
        (("count", path, "--arg", "a=1"), "is a file, not a callable"),
        (("export", path, "--to", "onnx", "-o", str(tmp_path / "x.onnx")), "cannot be written as"),
    ):
        assert main([*words]) == 2
        assert message in capsys.readouterr().err
