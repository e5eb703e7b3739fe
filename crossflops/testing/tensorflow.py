"""Define TensorFlow probes and the conformance kit for tools that count TensorFlow graphs: does a
convention predict its tool?

Each probe is a function or a layer of Keras that shows one thing. A plugin's tests hold one
class::

    class TestConformance(TensorFlowConformance):
        adapter = TensorFlowProfiler()
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossflops.frontends.inputs import ProvidedInputs, parse_inputs
from crossflops.frontends.tensorflow import FRONTEND
from crossflops.ir.trace import Setting, Trace
from crossflops.testing.conformance import Evidence, ProgramConformance

Built = tuple[Any, tuple[Any, ...], dict[str, Any]]


class TfProbe(msgspec.Struct, frozen=True):
    """A named model with its inputs, which are written as on the command line.

    `macs` is the result of a hand calculation; None where that is unknown, or where the native
    count has no operator for it.
    """

    name: str
    model: Callable[[], Any]
    inputs: tuple[str, ...]
    macs: int | None

    def build(self) -> Built:
        """Return (model, positional inputs, keyword inputs)."""
        source = FRONTEND.prepare_source(
            self.model(), ProvidedInputs(specs=parse_inputs(self.inputs)), owned=True
        )
        return source.model, source.args, source.kwargs


def stack(*layers: Callable[[Any], Any]) -> Callable[[], Any]:
    """Return a builder (a function without arguments) of a sequential Keras model; each of
    `layers` makes one layer from `keras.layers`.
    """

    def build_keras_stack() -> Any:
        """Return the sequential Keras model of the layers."""
        import keras

        return keras.Sequential([layer(keras.layers) for layer in layers])

    return build_keras_stack


def keras_layer(name: str, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
    """Return a function that makes the Keras layer of this name, for `stack`."""
    return lambda layers: getattr(layers, name)(*args, **kwargs)


def tf_function(body: Callable[..., Any]) -> Callable[[], Any]:
    """Return a builder (a function without arguments) of a tf.function that calls `body(tf,
    *inputs)`.
    """

    def build_tf_function() -> Any:
        """Return a tf.function that calls `body` with the tensorflow module and the inputs."""
        import tensorflow as tf

        def call_body_with_tensorflow(*inputs: Any) -> Any:
            """Return what `body` gives for the tensorflow module and these inputs."""
            return body(tf, *inputs)

        return tf.function(call_body_with_tensorflow, autograph=False)

    return build_tf_function


# Functions of TensorFlow: what no layer of Keras does, and where the profiler sees nothing.

_MAPS, _SQUARE = "1x8x8x4", "4x16"


def _while_loop_function_builder(step: Any) -> Callable[[], Any]:
    """Return a builder of a tf.function that applies `step` three times in a while loop, to `x`
    and the last result.
    """

    def run_while_loop(tf: Any, x: Any) -> Any:
        """Return the result after three iterations of `step` in a while loop."""
        return tf.while_loop(
            lambda number, _: number < 3, lambda number, y: (number + 1, step(tf, x, y)), (0, x)
        )[1]

    return tf_function(run_while_loop)


def _tf_conv_transpose(tf: Any, x: Any) -> Any:
    """Return the transposed convolution of `x` with stride 2."""
    weights = tf.ones((3, 1, 1, 1))
    return tf.nn.conv2d_transpose(x, weights, (1, 5, 5, 1), strides=2)


def _conv_pool_model_gradients(tf: Any, x: Any) -> Any:
    """Return the gradients of a model (a convolution and two poolings) with respect to its input
    and weights.
    """
    weights = tf.ones((3, 3, 4, 6))
    with tf.GradientTape() as tape:
        tape.watch([x, weights])
        y = tf.nn.max_pool2d(tf.nn.conv2d(x, weights, 1, "SAME"), 2, 2, "VALID")
        y = tf.nn.avg_pool2d(y, 2, 2, "VALID")
    return tape.gradient(y, [x, weights])


def _tf_branches(tf: Any, x: Any) -> Any:
    """Return a matrix product or a sum of `x`; the sign of the sum of `x` decides."""
    weights = tf.ones((16, 16))
    return tf.cond(tf.reduce_sum(x) > 0, lambda: x @ weights, lambda: x + 1.0)


def _tf_conv_branches(tf: Any, x: Any) -> Any:
    """Return a full or a depthwise convolution of `x`; the sign of the sum of `x` decides."""
    full, depthwise = tf.ones((3, 3, 4, 4)), tf.ones((3, 3, 4, 1))
    return tf.cond(
        tf.reduce_sum(x) > 0,
        lambda: tf.nn.conv2d(x, full, 1, "SAME"),
        lambda: tf.nn.depthwise_conv2d(x, depthwise, (1, 1, 1, 1), "SAME"),
    )


def _tf_jit_call(tf: Any, x: Any) -> Any:
    """Return the result of an inner function that XLA compiles, plus 1."""
    inner = tf.function(lambda y: y @ tf.ones((16, 8)), jit_compile=True)
    return inner(x) + 1.0


def _tf_pointwise(tf: Any, x: Any) -> Any:
    """Return a sum of elementwise functions of `x`."""
    y = tf.math.squared_difference(tf.maximum(x, 0.5), tf.square(x)) / tf.math.rsqrt(x)
    return tf.add_n([y, tf.math.log(x), -x, tf.pow(x, 2.5), tf.cast(x > y, tf.float32)])


_FUNCTIONS_PROBES = (
    TfProbe("matmul", tf_function(lambda tf, x, y: x @ y), (_SQUARE, "16x8"), 4 * 16 * 8),
    TfProbe("matmul_transposed",
          tf_function(lambda tf, x, y: tf.matmul(x, y, transpose_a=True)), ("16x4", "16x8"), 512),
    TfProbe("matmul_batched", tf_function(lambda tf, x, y: x @ y), ("2x4x16", "2x16x8"), 1024),
    TfProbe("matmul_adjoint",
          tf_function(lambda tf, x, y: tf.matmul(x, y, transpose_a=True)),
          ("2x16x4", "2x16x8"), 1024),
    TfProbe("einsum", tf_function(lambda tf, x, y: tf.einsum("bij,bjk->bik", x, y)),
          ("2x4x16", "2x16x8"), 1024),
    TfProbe("loop", _while_loop_function_builder(lambda tf, x, y: y @ tf.ones((16, 16))),
          (_SQUARE,), 3 * 4 * 256),
    TfProbe("matmul_in_loop",
             _while_loop_function_builder(lambda tf, x, y: y + x @ tf.ones((16, 16))),
          (_SQUARE,), 3 * 4 * 256),
    TfProbe("conv_in_loop",
          _while_loop_function_builder(lambda tf, x, y: y + tf.nn.conv2d(
              tf.ones((1, 8, 8, 4)), tf.ones((3, 3, 4, 4)), 1, "SAME")),
          (_MAPS,), 3 * 64 * 4 * 36),
    TfProbe("depthwise_in_loop",
          _while_loop_function_builder(lambda tf, x, y: y + tf.nn.depthwise_conv2d(
              tf.ones((1, 8, 8, 4)), tf.ones((3, 3, 4, 1)), (1, 1, 1, 1), "SAME")),
          (_MAPS,), 3 * 64 * 36),
    TfProbe("loop_over_data", tf_function(lambda tf, x: tf.while_loop(
        lambda y: tf.reduce_sum(y) < 9, lambda y: (y @ y,), (x,))[0]), ("4x4",), None),
    TfProbe("branches", tf_function(_tf_branches), (_SQUARE,), None),
    TfProbe("branches_of_convolutions",
          tf_function(_tf_conv_branches), (_MAPS,), 64 * 4 * 36),
    TfProbe("compiled", tf_function(_tf_jit_call), (_SQUARE,), 512),
    TfProbe("conv_transposed_odd", tf_function(_tf_conv_transpose), ("1x3x3x1",), 27),
    TfProbe("conv_first_channels", tf_function(lambda tf, x: tf.nn.conv2d(
        x, tf.ones((3, 3, 4, 6)), 1, "SAME", data_format="NCHW")), ("1x4x8x8",), 64 * 6 * 36),
    TfProbe("conv_transposed_first_channels", tf_function(lambda tf, x: tf.nn.conv2d_transpose(
        x, tf.ones((3, 3, 6, 4)), (1, 6, 16, 16), 2, data_format="NCHW")), ("1x4x8x8",), None),
    TfProbe("pool_first_channels", tf_function(lambda tf, x: tf.nn.max_pool2d(
        x, 2, 2, "VALID", data_format="NCHW")), ("1x4x8x8",), 0),
    TfProbe("dilation", tf_function(lambda tf, x: tf.nn.dilation2d(
        x, tf.ones((3, 3, 4)), (1, 1, 1, 1), "SAME", "NHWC", (1, 1, 1, 1))), (_MAPS,), None),
    TfProbe("gradients", tf_function(_conv_pool_model_gradients), (_MAPS,), None),
    TfProbe("pointwise", tf_function(_tf_pointwise), (_SQUARE,), 0),
    TfProbe("l2_loss", tf_function(lambda tf, x: tf.nn.l2_loss(x)), (_SQUARE,), None),
    TfProbe("reductions", tf_function(lambda tf, x: (
        tf.reduce_sum(x, 1), tf.reduce_mean(x, 0), tf.argmax(x, 1), tf.reduce_max(x))),
          (_SQUARE,), 0),
    TfProbe("whole_numbers", tf_function(lambda tf, x: x * 2 + 1), ("3x5:int32",), 0),
    TfProbe("bias_alone",
             tf_function(lambda tf, x: tf.nn.bias_add(x, tf.ones(16))), (_SQUARE,), 0),
    TfProbe("broadcast", tf_function(lambda tf, x, y: x + y), ("4x1", "1x16"), 0),
    TfProbe("open_shape",
          tf_function(lambda tf, x: tf.boolean_mask(x, x[:, 0] > 0) @ tf.ones((16, 8))),
          (_SQUARE,), None),
)  # fmt: skip


# Layers of Keras, each alone, as in the table of measured totals.

_IMAGE, _T_MAPS, _ROWS = "1x16x16x3", "1x16x16x8", "2x10x64"


def _same_padding_model_builder(name: str, *args: Any, **kwargs: Any) -> Callable[[], Any]:
    """Return a builder of a Keras model that has this layer with padding "same"."""
    return stack(keras_layer(name, *args, padding="same", **kwargs))


def _keras_attention() -> Any:
    """Return a Keras model with one self-attention layer."""
    import keras

    x = keras.layers.Input((10, 32))
    return keras.Model(x, keras.layers.MultiHeadAttention(4, 8)(x, x))


def _residual_keras_model() -> Any:
    """Return a Keras model that adds its input and the ReLU of its input."""
    import keras

    x = keras.layers.Input((16, 16, 8))
    return keras.Model(x, keras.layers.Add()([x, keras.layers.ReLU()(x)]))


def _keras_sequence_model_builder(name: str, **kwargs: Any) -> Callable[[], Any]:
    """Return a builder of a Keras model that has this layer with 32 units, for 5 steps of width
    16.
    """
    return stack(keras_layer("Input", (5, 16)), keras_layer(name, 32, **kwargs))


_LAYERS_PROBES = (
    TfProbe("conv",
             _same_padding_model_builder("Conv2D", 8, 3, use_bias=False), (_IMAGE,), 256 * 8 * 27),
    TfProbe("conv_bias", _same_padding_model_builder("Conv2D", 8, 3), (_IMAGE,), 256 * 8 * 27),
    TfProbe("conv_bias_batch4",
             _same_padding_model_builder("Conv2D", 8, 3), ("4x16x16x3",), 4 * 256 * 8 * 27),
    TfProbe("conv_groups",
             _same_padding_model_builder("Conv2D", 16, 3, groups=4), (_T_MAPS,), 256 * 16 * 18),
    TfProbe("conv_dilated",
             _same_padding_model_builder("Conv2D", 8, 3, dilation_rate=2),
             (_IMAGE,), 256 * 8 * 27),
    TfProbe("conv_dilated_3",
             _same_padding_model_builder("Conv2D", 8, 3, dilation_rate=3),
             (_IMAGE,), 256 * 8 * 27),
    TfProbe("depthwise",
             _same_padding_model_builder("DepthwiseConv2D", 3), (_T_MAPS,), 256 * 8 * 9),
    TfProbe("depthwise_dilated",
          _same_padding_model_builder("DepthwiseConv2D", 3, dilation_rate=3),
             (_T_MAPS,), 256 * 72),
    TfProbe("separable",
             _same_padding_model_builder("SeparableConv2D", 4, 3),
             (_T_MAPS,), 256 * 8 * 9 + 256 * 32),
    TfProbe("conv_transposed",
             _same_padding_model_builder("Conv2DTranspose", 4, 3, strides=2), ("1x8x8x8",), 18432),
    TfProbe("conv_transposed_valid", stack(keras_layer("Conv2DTranspose", 4, 3, strides=2)),
          ("1x8x8x8",), 18432),
    TfProbe("conv1d", _same_padding_model_builder("Conv1D", 8, 3), ("2x20x4",), 40 * 8 * 12),
    TfProbe("conv3d", _same_padding_model_builder("Conv3D", 4, 3), ("1x6x6x6x2",), 216 * 4 * 54),
    TfProbe("dense", stack(keras_layer("Dense", 32)), ("4x64",), 4 * 64 * 32),
    TfProbe("dense_rows", stack(keras_layer("Dense", 32)), (_ROWS,), 20 * 64 * 32),
    TfProbe("dense_gelu",
             stack(keras_layer("Dense", 32, activation="gelu")), ("4x64",), 4 * 64 * 32),
    TfProbe("batch_norm", stack(keras_layer("BatchNormalization")), (_T_MAPS,), 0),
    TfProbe("layer_norm", stack(keras_layer("LayerNormalization")), (_ROWS,), 0),
    TfProbe("group_norm", stack(keras_layer("GroupNormalization", 4)), (_T_MAPS,), 0),
    TfProbe("rms_norm", stack(keras_layer("RMSNormalization")), (_ROWS,), 0),
    TfProbe("relu", stack(keras_layer("ReLU")), (_T_MAPS,), 0),
    TfProbe("gelu", stack(keras_layer("Activation", "gelu")), (_T_MAPS,), 0),
    TfProbe("softmax", stack(keras_layer("Softmax")), (_ROWS,), 0),
    TfProbe("max_pool", stack(keras_layer("MaxPool2D", 2)), (_T_MAPS,), 0),
    TfProbe("average_pool", stack(keras_layer("AveragePooling2D", 2)), (_T_MAPS,), 0),
    TfProbe("global_average", stack(keras_layer("GlobalAveragePooling2D")), (_T_MAPS,), 0),
    TfProbe("upsample", stack(keras_layer("UpSampling2D", 2)), (_T_MAPS,), 0),
    TfProbe("upsample_linear", stack(keras_layer("UpSampling2D", 2, interpolation="bilinear")),
          (_T_MAPS,), 0),
    TfProbe("embedding", stack(keras_layer("Embedding", 100, 16)), ("2x10:int32",), 0),
    TfProbe("residual", _residual_keras_model, (_T_MAPS,), 0),
    TfProbe("attention", _keras_attention, ("2x10x32",), 4 * 20 * 32 * 32 + 12800),
    TfProbe("lstm", _keras_sequence_model_builder("LSTM"), ("2x5x16",), 10 * 4 * 32 * 48),
    TfProbe("lstm_unrolled", _keras_sequence_model_builder("LSTM", unroll=True),
          ("2x5x16",), 10 * 4 * 32 * 48),
    TfProbe("gru", _keras_sequence_model_builder("GRU"), ("2x5x16",), 10 * 3 * 32 * 48),
    TfProbe("gru_unrolled", _keras_sequence_model_builder("GRU", unroll=True),
          ("2x5x16",), 10 * 3 * 32 * 48),
    TfProbe("simple_rnn", _keras_sequence_model_builder("SimpleRNN"), ("2x5x16",), 10 * 32 * 48),
)  # fmt: skip


PROBES = {probe.name: probe for probe in (*_FUNCTIONS_PROBES, *_LAYERS_PROBES)}


EXAMPLES = 12
SETTING = Setting()


@functools.cache
def _tf_probe_evidence(name: str) -> Evidence:
    """Return the evidence of the probe with this name: its recorded trace."""
    return Evidence(_frozen_graph_trace(*PROBES[name].build()))


def _frozen_graph_trace(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
    """Return the trace of the frozen graph of a model, recorded for these inputs."""
    from crossflops.frontends.tensorflow.program import record_frozen_model

    return record_frozen_model(model, args, kwargs, SETTING).trace


# Small Keras models, drawn at random.

_SIDE, _CHANNELS = 12, 4
Block = Callable[[Any, Any], Any]


def _keras_conv_block(filters: int, kernel: int, stride: int, bias: bool, groups: int) -> Block:
    """Return a block (a function that adds to a Keras model) for a convolution."""
    return lambda layers, x: layers.Conv2D(
        filters, kernel, strides=stride, padding="same", use_bias=bias, groups=groups
    )(x)


def _keras_dilation_block(rate: int) -> Block:
    """Return a block (a function that adds to a Keras model) for a 3x3 convolution with this
    dilation.
    """
    return lambda layers, x: layers.Conv2D(4, 3, dilation_rate=rate, padding="same")(x)


def _keras_depthwise_block(kernel: int, stride: int) -> Block:
    """Return a block (a function that adds to a Keras model) for a depthwise convolution."""
    return lambda layers, x: layers.DepthwiseConv2D(kernel, strides=stride, padding="same")(x)


def _keras_transpose_block(kernel: int, padding: str) -> Block:
    """Return a block (a function that adds to a Keras model) for a transposed convolution with
    stride 2.
    """
    return lambda layers, x: layers.Conv2DTranspose(4, kernel, strides=2, padding=padding)(x)


def _keras_layer_block(name: str, *args: Any, **kwargs: Any) -> Block:
    """Return a block (a function that adds to a Keras model) for the layer of this name."""
    return lambda layers, x: getattr(layers, name)(*args, **kwargs)(x)


def _residual_block(inner: Block) -> Block:
    """Return a block that adds a residual sum to a Keras model, and then what `inner` adds."""

    def add_residual(layers: Any, x: Any) -> Any:
        """Return what `inner` gives for the sum of `x` and a 1x1 convolution of its ReLU."""
        y = layers.Conv2D(x.shape[-1], 1)(layers.ReLU()(x))
        return inner(layers, layers.Add()([x, y]))

    return add_residual


def _keras_dense_block(units: int, activation: str) -> Block:
    """Return a block (a function that adds to a Keras model) for a dense layer."""
    return lambda layers, x: layers.Dense(units, activation=activation)(x)


_BLOCKS: st.SearchStrategy[Block] = st.one_of(
    st.builds(
        _keras_conv_block,
        st.sampled_from((4, 8)),
        st.sampled_from((1, 3)),
        st.sampled_from((1, 2)),
        st.booleans(),
        st.sampled_from((1, 2)),
    ),
    st.builds(_keras_dilation_block, st.sampled_from((2, 3))),
    st.builds(_keras_depthwise_block, st.sampled_from((3, 5)), st.sampled_from((1, 2))),
    st.builds(_keras_transpose_block, st.sampled_from((2, 3)), st.sampled_from(("same", "valid"))),
    st.builds(
        _keras_dense_block, st.sampled_from((4, 8)), st.sampled_from(("relu", "gelu", "softmax"))
    ),
    st.sampled_from(
        (
            _keras_layer_block("BatchNormalization"),
            _keras_layer_block("LayerNormalization"),
            _keras_layer_block("MaxPool2D", 2, padding="same"),
            _keras_layer_block("AveragePooling2D", 2, padding="same"),
            _keras_layer_block("UpSampling2D", 2),
            _keras_layer_block("Activation", "silu"),
        )
    ),
)


@st.composite
def keras_architectures(draw: st.DrawFn) -> Callable[[], tuple[Any, Any]]:
    """Draw a random model of up to five blocks; return a builder that gives (model, spec of its
    input).
    """
    blocks = draw(st.lists(st.one_of(_BLOCKS, st.builds(_residual_block, _BLOCKS)), max_size=5))
    batch = draw(st.integers(1, 3))
    head = draw(st.booleans())

    def build_keras_model() -> tuple[Any, Any]:
        """Return (Keras model of the drawn blocks, spec of its input)."""
        import keras
        import tensorflow as tf

        x = first = keras.layers.Input((_SIDE, _SIDE, _CHANNELS))
        for block in blocks:
            x = block(keras.layers, x)
        if head or not blocks:
            x = keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x))
        return keras.Model(first, x), tf.TensorSpec((batch, _SIDE, _SIDE, _CHANNELS))

    return build_keras_model


class TensorFlowConformance(ProgramConformance):
    """A kit that compares a convention with its tool on every probe and on random
    architectures.
    """

    @pytest.mark.parametrize("name", PROBES)
    def test_probe_is_predicted(self, name: str) -> None:
        """Assert that the tool prints the predicted total of a probe."""
        self.assert_total_is_predicted(_tf_probe_evidence(name), PROBES[name].build())

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
    )
    @given(architecture=keras_architectures())
    def test_random_architecture_is_predicted(
        self, architecture: Callable[[], tuple[Any, Any]]
    ) -> None:
        """Assert that the tool prints the predicted total of a random architecture."""
        model, spec = architecture()
        self.assert_total_is_predicted(
            Evidence(_frozen_graph_trace(model, (spec,), {})), (model, (spec,), {})
        )

    def evidence(self) -> Iterator[Evidence]:
        """Yield the evidence of each probe."""
        yield from map(_tf_probe_evidence, PROBES)
