"""Layers of Keras, each alone, as in the table of measured totals."""

from typing import Any

from crossflops.testing.tensorflow.probe import Probe, layer, stack

_IMAGE, _MAPS, _ROWS = "1x16x16x3", "1x16x16x8", "2x10x64"


def _same(name: str, *args: Any, **kwargs: Any) -> Any:
    return stack(layer(name, *args, padding="same", **kwargs))


def _attention() -> Any:
    import keras

    x = keras.layers.Input((10, 32))
    return keras.Model(x, keras.layers.MultiHeadAttention(4, 8)(x, x))


def _residual() -> Any:
    import keras

    x = keras.layers.Input((16, 16, 8))
    return keras.Model(x, keras.layers.Add()([x, keras.layers.ReLU()(x)]))


def _sequence(name: str, **kwargs: Any) -> Any:
    return stack(layer("Input", (5, 16)), layer(name, 32, **kwargs))


PROBES = (
    Probe("conv", _same("Conv2D", 8, 3, use_bias=False), (_IMAGE,), 256 * 8 * 27),
    Probe("conv_bias", _same("Conv2D", 8, 3), (_IMAGE,), 256 * 8 * 27),
    Probe("conv_bias_batch4", _same("Conv2D", 8, 3), ("4x16x16x3",), 4 * 256 * 8 * 27),
    Probe("conv_groups", _same("Conv2D", 16, 3, groups=4), (_MAPS,), 256 * 16 * 18),
    Probe("conv_dilated", _same("Conv2D", 8, 3, dilation_rate=2), (_IMAGE,), 256 * 8 * 27),
    Probe("conv_dilated_3", _same("Conv2D", 8, 3, dilation_rate=3), (_IMAGE,), 256 * 8 * 27),
    Probe("depthwise", _same("DepthwiseConv2D", 3), (_MAPS,), 256 * 8 * 9),
    Probe("depthwise_dilated", _same("DepthwiseConv2D", 3, dilation_rate=3), (_MAPS,), 256 * 72),
    Probe("separable", _same("SeparableConv2D", 4, 3), (_MAPS,), 256 * 8 * 9 + 256 * 32),
    Probe("conv_transposed", _same("Conv2DTranspose", 4, 3, strides=2), ("1x8x8x8",), 18432),
    Probe("conv_transposed_valid", stack(layer("Conv2DTranspose", 4, 3, strides=2)),
          ("1x8x8x8",), 18432),
    Probe("conv1d", _same("Conv1D", 8, 3), ("2x20x4",), 40 * 8 * 12),
    Probe("conv3d", _same("Conv3D", 4, 3), ("1x6x6x6x2",), 216 * 4 * 54),
    Probe("dense", stack(layer("Dense", 32)), ("4x64",), 4 * 64 * 32),
    Probe("dense_rows", stack(layer("Dense", 32)), (_ROWS,), 20 * 64 * 32),
    Probe("dense_gelu", stack(layer("Dense", 32, activation="gelu")), ("4x64",), 4 * 64 * 32),
    Probe("batch_norm", stack(layer("BatchNormalization")), (_MAPS,), 0),
    Probe("layer_norm", stack(layer("LayerNormalization")), (_ROWS,), 0),
    Probe("group_norm", stack(layer("GroupNormalization", 4)), (_MAPS,), 0),
    Probe("rms_norm", stack(layer("RMSNormalization")), (_ROWS,), 0),
    Probe("relu", stack(layer("ReLU")), (_MAPS,), 0),
    Probe("gelu", stack(layer("Activation", "gelu")), (_MAPS,), 0),
    Probe("softmax", stack(layer("Softmax")), (_ROWS,), 0),
    Probe("max_pool", stack(layer("MaxPool2D", 2)), (_MAPS,), 0),
    Probe("average_pool", stack(layer("AveragePooling2D", 2)), (_MAPS,), 0),
    Probe("global_average", stack(layer("GlobalAveragePooling2D")), (_MAPS,), 0),
    Probe("upsample", stack(layer("UpSampling2D", 2)), (_MAPS,), 0),
    Probe("upsample_linear", stack(layer("UpSampling2D", 2, interpolation="bilinear")),
          (_MAPS,), 0),
    Probe("embedding", stack(layer("Embedding", 100, 16)), ("2x10:int32",), 0),
    Probe("residual", _residual, (_MAPS,), 0),
    Probe("attention", _attention, ("2x10x32",), 4 * 20 * 32 * 32 + 12800),
    Probe("lstm", _sequence("LSTM"), ("2x5x16",), 10 * 4 * 32 * 48),
    Probe("lstm_unrolled", _sequence("LSTM", unroll=True), ("2x5x16",), 10 * 4 * 32 * 48),
    Probe("gru", _sequence("GRU"), ("2x5x16",), 10 * 3 * 32 * 48),
    Probe("gru_unrolled", _sequence("GRU", unroll=True), ("2x5x16",), 10 * 3 * 32 * 48),
    Probe("simple_rnn", _sequence("SimpleRNN"), ("2x5x16",), 10 * 32 * 48),
)  # fmt: skip
