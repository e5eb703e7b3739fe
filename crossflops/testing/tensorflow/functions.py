"""Functions of TensorFlow: what no layer of Keras does, and where the profiler sees nothing."""

from typing import Any

from crossflops.testing.tensorflow.probe import Probe, function

_MAPS, _SQUARE = "1x8x8x4", "4x16"


def _loop(step: Any) -> Any:
    """Three steps, of which each takes the input and what the one before it gave."""

    def body(tf: Any, x: Any) -> Any:
        return tf.while_loop(
            lambda number, _: number < 3, lambda number, y: (number + 1, step(tf, x, y)), (0, x)
        )[1]

    return function(body)


def _transposed(tf: Any, x: Any) -> Any:
    weights = tf.ones((3, 1, 1, 1))
    return tf.nn.conv2d_transpose(x, weights, (1, 5, 5, 1), strides=2)


def _gradients(tf: Any, x: Any) -> Any:
    weights = tf.ones((3, 3, 4, 6))
    with tf.GradientTape() as tape:
        tape.watch([x, weights])
        y = tf.nn.max_pool2d(tf.nn.conv2d(x, weights, 1, "SAME"), 2, 2, "VALID")
        y = tf.nn.avg_pool2d(y, 2, 2, "VALID")
    return tape.gradient(y, [x, weights])


def _branches(tf: Any, x: Any) -> Any:
    weights = tf.ones((16, 16))
    return tf.cond(tf.reduce_sum(x) > 0, lambda: x @ weights, lambda: x + 1.0)


def _branches_of_convolutions(tf: Any, x: Any) -> Any:
    full, depthwise = tf.ones((3, 3, 4, 4)), tf.ones((3, 3, 4, 1))
    return tf.cond(
        tf.reduce_sum(x) > 0,
        lambda: tf.nn.conv2d(x, full, 1, "SAME"),
        lambda: tf.nn.depthwise_conv2d(x, depthwise, (1, 1, 1, 1), "SAME"),
    )


def _compiled(tf: Any, x: Any) -> Any:
    inner = tf.function(lambda y: y @ tf.ones((16, 8)), jit_compile=True)
    return inner(x) + 1.0


def _pointwise(tf: Any, x: Any) -> Any:
    y = tf.math.squared_difference(tf.maximum(x, 0.5), tf.square(x)) / tf.math.rsqrt(x)
    return tf.add_n([y, tf.math.log(x), -x, tf.pow(x, 2.5), tf.cast(x > y, tf.float32)])


PROBES = (
    Probe("matmul", function(lambda tf, x, y: x @ y), (_SQUARE, "16x8"), 4 * 16 * 8),
    Probe("matmul_transposed",
          function(lambda tf, x, y: tf.matmul(x, y, transpose_a=True)), ("16x4", "16x8"), 512),
    Probe("matmul_batched", function(lambda tf, x, y: x @ y), ("2x4x16", "2x16x8"), 1024),
    Probe("matmul_adjoint",
          function(lambda tf, x, y: tf.matmul(x, y, transpose_a=True)),
          ("2x16x4", "2x16x8"), 1024),
    Probe("einsum", function(lambda tf, x, y: tf.einsum("bij,bjk->bik", x, y)),
          ("2x4x16", "2x16x8"), 1024),
    Probe("loop", _loop(lambda tf, x, y: y @ tf.ones((16, 16))), (_SQUARE,), 3 * 4 * 256),
    Probe("matmul_in_loop", _loop(lambda tf, x, y: y + x @ tf.ones((16, 16))),
          (_SQUARE,), 3 * 4 * 256),
    Probe("conv_in_loop",
          _loop(lambda tf, x, y: y + tf.nn.conv2d(
              tf.ones((1, 8, 8, 4)), tf.ones((3, 3, 4, 4)), 1, "SAME")),
          (_MAPS,), 3 * 64 * 4 * 36),
    Probe("depthwise_in_loop",
          _loop(lambda tf, x, y: y + tf.nn.depthwise_conv2d(
              tf.ones((1, 8, 8, 4)), tf.ones((3, 3, 4, 1)), (1, 1, 1, 1), "SAME")),
          (_MAPS,), 3 * 64 * 36),
    Probe("loop_over_data", function(lambda tf, x: tf.while_loop(
        lambda y: tf.reduce_sum(y) < 9, lambda y: (y @ y,), (x,))[0]), ("4x4",), None),
    Probe("branches", function(_branches), (_SQUARE,), None),
    Probe("branches_of_convolutions", function(_branches_of_convolutions), (_MAPS,), 64 * 4 * 36),
    Probe("compiled", function(_compiled), (_SQUARE,), 512),
    Probe("conv_transposed_odd", function(_transposed), ("1x3x3x1",), 27),
    Probe("conv_first_channels", function(lambda tf, x: tf.nn.conv2d(
        x, tf.ones((3, 3, 4, 6)), 1, "SAME", data_format="NCHW")), ("1x4x8x8",), 64 * 6 * 36),
    Probe("conv_transposed_first_channels", function(lambda tf, x: tf.nn.conv2d_transpose(
        x, tf.ones((3, 3, 6, 4)), (1, 6, 16, 16), 2, data_format="NCHW")), ("1x4x8x8",), None),
    Probe("pool_first_channels", function(lambda tf, x: tf.nn.max_pool2d(
        x, 2, 2, "VALID", data_format="NCHW")), ("1x4x8x8",), 0),
    Probe("dilation", function(lambda tf, x: tf.nn.dilation2d(
        x, tf.ones((3, 3, 4)), (1, 1, 1, 1), "SAME", "NHWC", (1, 1, 1, 1))), (_MAPS,), None),
    Probe("gradients", function(_gradients), (_MAPS,), None),
    Probe("pointwise", function(_pointwise), (_SQUARE,), 0),
    Probe("l2_loss", function(lambda tf, x: tf.nn.l2_loss(x)), (_SQUARE,), None),
    Probe("reductions", function(lambda tf, x: (
        tf.reduce_sum(x, 1), tf.reduce_mean(x, 0), tf.argmax(x, 1), tf.reduce_max(x))),
          (_SQUARE,), 0),
    Probe("whole_numbers", function(lambda tf, x: x * 2 + 1), ("3x5:int32",), 0),
    Probe("bias_alone", function(lambda tf, x: tf.nn.bias_add(x, tf.ones(16))), (_SQUARE,), 0),
    Probe("broadcast", function(lambda tf, x, y: x + y), ("4x1", "1x16"), 0),
    Probe("open_shape", function(lambda tf, x: tf.boolean_mask(x, x[:, 0] > 0) @ tf.ones((16, 8))),
          (_SQUARE,), None),
)  # fmt: skip
