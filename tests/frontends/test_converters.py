"""The tricks of docs/converters.md: the operation is counted, the rest stands apart."""

import importlib

import pytest

import crossflops
from crossflops.frontends import frontend_of
from crossflops.targets import source_from_object

pytestmark = pytest.mark.frameworks


def in_tensorflow(function, *shapes):
    """The report of a function of tf and inputs of these shapes."""
    pytest.importorskip("tf2onnx")
    tf = importlib.import_module("tensorflow")
    given = tuple(shape if hasattr(shape, "dtype") else tf.TensorSpec(shape) for shape in shapes)
    return crossflops.count(tf.function(lambda *x: function(tf, *x)), given)


def in_jax(function, *given):
    """The report of a function of jax and arrays, or inputs of these shapes."""
    pytest.importorskip("jax2onnx")
    jax = importlib.import_module("jax")
    arrays = tuple(
        jax.numpy.zeros(argument) if isinstance(argument, tuple) else argument
        for argument in given
    )
    return crossflops.count(lambda *x: function(jax, *x), arrays)


def test_dense_fourier():
    """A log-mel front end: 11 frames of 512 samples, 257 magnitudes, 40 bands.

    tf2onnx multiplies each frame by the cosines and by the sines of all 257 waves.
    """

    def log_mel(tf, x):
        magnitudes = tf.abs(tf.signal.stft(x, 400, 160, 512))
        weights = tf.signal.linear_to_mel_weight_matrix(40, 257, 16000)
        return tf.math.log(tf.matmul(magnitudes, weights) + 1e-6)

    report = in_tensorflow(log_mel, (1, 2000))
    assert report.totals.macs == 11 * 257 * 40
    assert report.totals.converter_macs == 11 * 2 * 257 * 512
    costs = {row.op: row.flops for row in report.by_op}
    assert costs["tensorflow.RFFT"] == 11 * 512 * 9 * 5 // 2  # 9 stages, real: half of them
    assert costs["tensorflow.ComplexAbs"] == 11 * 257 * 4
    assert not report.uncounted


def test_patches():
    """6x6 windows of 3x3x2 in 8x8x2: each of 18 channels of the result had a kernel of 3x3."""

    def patches(tf, x):
        return tf.image.extract_patches(x, [1, 3, 3, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID")

    report = in_tensorflow(patches, (1, 8, 8, 2))
    assert (report.totals.macs, report.totals.flops, report.totals.params) == (0, 0, 0)
    assert report.totals.converter_macs == 36 * 18 * 9


def test_segments():
    """Six rows of three are added to their segments."""
    tf = pytest.importorskip("tensorflow")

    def summed(tf, x, places):
        return tf.math.unsorted_segment_sum(x, places, 5)

    report = in_tensorflow(summed, (6, 3), tf.TensorSpec((6,), tf.int32))
    assert (report.totals.flops, report.totals.adds) == (18, 18)
    assert not report.uncounted


def test_roll():
    """Elements are moved."""
    assert in_tensorflow(lambda tf, x: tf.roll(x, 3, -1), (3, 16)).totals.flops == 0


def test_constants_are_no_parameters():
    """A matrix that a function makes is none; a variable that it reads is."""
    tf = pytest.importorskip("tensorflow")
    own = tf.Variable(tf.ones((4, 2)))
    fixed = in_tensorflow(lambda tf, x: x @ tf.ones((8, 4)), (3, 8))
    assert (fixed.totals.params, fixed.totals.macs) == (0, 3 * 8 * 4)
    held = in_tensorflow(lambda tf, x: x @ tf.ones((8, 4)) @ own, (3, 8))
    assert held.totals.params == 8


def test_what_tf2onnx_cannot_write():
    """Gradients: each element of dY meets each of 3x3x2 weights; ReLU's gate compares."""

    def gradients(tf, x, w):
        with tf.GradientTape() as tape:
            tape.watch(w)
            y = tf.nn.relu(tf.nn.conv2d(x, w, 1, "VALID"))
        return tape.gradient(y, w)

    report = in_tensorflow(gradients, (1, 8, 8, 2), (3, 3, 2, 4))
    outputs = 6 * 6 * 4
    assert not report.uncounted
    assert report.totals.macs == 2 * outputs * 3 * 3 * 2
    assert report.totals.compares == 2 * outputs


def test_unrolled():
    """qr of 5x4 in jax2onnx: products of 5x5 reflectors, none of which is in the algorithm."""
    report = in_jax(lambda jax, x: jax.numpy.linalg.qr(x)[0], (5, 4))
    assert report.totals.macs == 0
    assert report.totals.converter_macs > 0
    assert not report.uncounted


@pytest.mark.parametrize("size", [40, 64, 500])
def test_no_factorization_runs_away(size):
    """Written out, 40 rows took more than ten minutes; the formula is that of the equation."""
    n, b = size, 1
    report = in_jax(lambda jax, a, b: jax.numpy.linalg.solve(a, b), (n, n), (n,))
    lower = n * (n - 1) // 2 * b
    assert report.totals.divs == n * (n - 1) // 2 + n * b
    assert report.totals.muls == (n - 1) * n * (2 * n - 1) // 6 + 2 * lower
    report = in_jax(lambda jax, a: jax.numpy.linalg.cholesky(a), (n, n))
    assert report.totals.specials == n
    assert report.totals.muls == (n**3 - n) // 6


def test_scatter():
    """Six rows of three, at places that are known to be inside: added, or put there."""
    jax = pytest.importorskip("jax")
    places = jax.numpy.zeros(6, "int32")
    wrapped = 6 * 2  # whether a place is negative, and then so many more
    added = in_jax(lambda jax, x, i, v: x.at[i].add(v), (5, 3), places, (6, 3))
    assert (added.totals.flops, added.uncounted) == (18 + wrapped, ())
    put = in_jax(lambda jax, x, i, v: x.at[i].set(v), (5, 3), places, (6, 3))
    assert (put.totals.flops, put.uncounted) == (wrapped, ())
    summed = in_jax(lambda jax, x, i: jax.ops.segment_sum(x, i, 5), (6, 3), places)
    assert (summed.totals.flops, summed.uncounted) == (18, ())


def test_ragged_products():
    """Six rows of three, each by the 3x4 matrix of its group."""
    jax = pytest.importorskip("jax")
    sizes = jax.numpy.array([2, 4], "int32")
    report = in_jax(lambda jax, x, w, g: jax.lax.ragged_dot(x, w, g), (6, 3), (2, 3, 4), sizes)
    assert (report.totals.macs, report.uncounted) == (6 * 3 * 4, ())


def test_a_loop_on_which_tf2onnx_fails():
    """It reads what it wrote: the loop stays one node, named, and nothing is refused."""

    def reading(tf, x):
        rows = tf.TensorArray(tf.float32, 6, clear_after_read=False).write(0, x[0])
        return tf.while_loop(
            lambda i, _: i < 6,
            lambda i, rows: (i + 1, rows.write(i, tf.tanh(rows.read(i - 1)))),
            (1, rows),
        )[1].stack()

    report = in_tensorflow(reading, (6, 8))
    assert "tensorflow.StatelessWhile" in [gap.op for gap in report.uncounted]


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_product_that_is_read_twice(factor):
    """2 x 3 x 5 = 30 MACs, and no second product that tf2onnx would make with the sum."""

    def read_twice(tf, x, weight):
        hidden = x @ weight
        return factor * hidden + tf.tanh(hidden)

    assert in_tensorflow(read_twice, (2, 3), (3, 5)).totals.macs == 30


def test_a_scan_that_begins_with_its_first_row():
    """Five sums of 8 and of the counter, and 5 x 8 hyperbolic tangents."""
    report = in_tensorflow(lambda tf, x: tf.scan(lambda h, row: tf.tanh(h + row), x), (6, 8))
    assert not report.uncounted
    assert (report.totals.adds, report.totals.specials) == (5 * 8 + 5, 5 * 8)


def test_complex_numbers_that_are_moved():
    """4x6 real, transformed along rows of 6 to 4 of them, turned, and times a real number.

    A product of complex numbers is 4 muls, a sub and an add. jax2onnx forgets the two parts where
    it transposes, and where a number is complex by itself.
    """
    report = in_jax(lambda jax, x: jax.numpy.fft.rfft(x).T * 2.0, (4, 6))
    assert not report.uncounted
    assert report.totals.flops == 4 * (6 * 3 * 5 // 2) + 16 * 6


def test_arrays_that_are_stacked_and_tiled():
    """Movements, of which jax2onnx knows no equation: only the sums of 2x3x4 and of 4x6 count."""

    def moved(jax, x):
        apart = jax.numpy.unstack(jax.numpy.stack([x, x]) + 1)
        return jax.numpy.tile(apart[0], (2, 2))[:4, :6] + 1

    report = in_jax(moved, (3, 4))
    assert not report.uncounted
    assert (report.totals.flops, report.totals.converter_macs) == (24 + 24, 0)


def test_a_tool_that_counts_the_file_finds_the_difference_named():
    """onnx-tool counts the product with the dense matrix, and nothing is left unexplained."""
    pytest.importorskip("onnx_tool")
    pytest.importorskip("tf2onnx")
    tf = importlib.import_module("tensorflow")
    function = tf.function(lambda x: tf.abs(tf.signal.rfft(x)))
    report = crossflops.compare(
        function, (tf.TensorSpec((3, 16)),), tools=["onnx-tool"], isolate=False
    )
    (reconciliation,) = report.reconciliations or ()
    amounts = {
        explanation.cause: explanation.amount for explanation in reconciliation.explanations
    }
    assert amounts["graph.converter"] == 3 * 2 * 9 * 16
    assert reconciliation.residual == 0


def test_xla_is_given_what_jax_wrote():
    """6x6 places of 18 channels: XLA counts the convolution with an identity kernel of 3x3."""
    pytest.importorskip("jax2onnx")
    jax = importlib.import_module("jax")

    def patches(x):
        return jax.lax.conv_general_dilated_patches(x, (3, 3), (1, 1), "VALID")

    image = jax.ShapeDtypeStruct((1, 2, 8, 8), "float32")
    report = crossflops.compare(patches, (image,), tools=["xla-lowered"], isolate=False)
    (reconciliation,) = report.reconciliations or ()
    amounts = {
        explanation.cause: explanation.amount for explanation in reconciliation.explanations
    }
    assert amounts["graph.converter"] == 36 * 18 * 9
    assert "conv.padding-valid-taps" not in amounts
    assert reconciliation.residual == 0


def test_a_plain_function_is_of_the_framework_that_it_names():
    """27 MACs of x x, and 3 x 3 x 5 of x w, where TensorFlow and JAX are both imported."""
    jax, tf = pytest.importorskip("jax"), pytest.importorskip("tensorflow")
    weight, numbers = tf.Variable(tf.ones((3, 5))), jax.numpy.ones((3, 5))

    def helped(x):
        return closed(x)

    def closed(x):
        return x @ weight

    def annotated(x: tf.Tensor):
        return x @ x

    def of_any(x):
        return x @ x

    in_tf, in_jax = tf.TensorSpec((3, 3)), jax.ShapeDtypeStruct((3, 3), "float32")
    for function, given, macs, framework in (
        (closed, in_tf, 45, "tensorflow"),
        (helped, in_tf, 45, "tensorflow"),
        (annotated, in_tf, 27, "tensorflow"),
        (of_any, in_tf, 27, "tensorflow"),
        (of_any, in_jax, 27, "jax"),
        (lambda x: x @ numbers, in_jax, 45, "jax"),
    ):
        assert frontend_of(source_from_object(function, (given,)).model).name == framework
        assert crossflops.count(function, (given,)).totals.macs == macs
