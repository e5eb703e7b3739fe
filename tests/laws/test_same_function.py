"""The same function costs the same, whichever framework it is written in, and converter writes it.

Expected is what a loop by hand takes (the comments say which); what a framework's own function
computes beyond that stands in `MORE`, function by function, with the reason. docs/converters.md
has the same table in words.
"""

import importlib

import numpy as np
import pytest

import crossflops
from tests.onnx_files import parsed, saved

N = 4  # a matrix
# x [3, 16], image [1, 2, 8, 8] -> [1, 2, 16, 16], rows of 3 features: 6 of them, 5 places
LU = 3 * 2 + (1 + 4 + 9) * 2  # 4x4: 3 + 2 + 1 divs, 9 + 4 + 1 muls and as many subs
BUTTERFLIES = 16 * 4 * 5  # 16 complex numbers: 4 stages of 2 muls and 3 adds for each of them
STEPS = [(5 - s, 4 - s) for s in range(4)]  # Householder: rows and columns that are left of 5x4
REFLECTORS = sum(3 * rows + 1 + (cols - 1) * (4 * rows - 2) for rows, cols in STEPS)
COLUMNS_OF_Q = sum(cols * (4 * rows - 2) for rows, cols in STEPS)
EXPECTED = {
    # half of the butterflies where one side is real; the inverse divides both parts by 16
    "rfft": 3 * BUTTERFLIES // 2,
    "irfft": 3 * BUTTERFLIES // 2 + 3 * (BUTTERFLIES // 2 + 2 * 16),
    "fft2": 2 * 8 * (8 * 3 * 5) + 8 * 8 * 4,  # 8x8, and |z|: 2 muls, an add, a root
    "stft": 2 * 7 * (BUTTERFLIES // 2 + 16),  # 7 frames of 64 samples, a window of 16
    "sort": 48 * 4,
    "topk": 48 * 2,
    "argsort": 48 * 4,
    "cumsum": 48,
    "cumprod": 48,
    "logsumexp": 3 * (16 + 15 + 1),  # exp, sum and log of each row
    "softmax": 3 * (15 + 16 + 16 + 15 + 16),
    "cholesky": 4 + 6 + 2 * 10,  # roots, divs, and (n^3 - n) / 6 muls and subs
    "solve": LU + 2 * (2 * 6 + 2 * 6 + 4),  # two right-hand sides: L, then U with its divs
    "inv": 16 + 2 * 4 * 9,
    "det": LU + 3,
    "qr": REFLECTORS + COLUMNS_OF_Q,
    "svd": 14 * 5 * 16 + 8 * 64,
    "eigh": 9 * 64,
    "triangular": 2 * (6 + 6 + 4),
    "scatter_add": 18,
    "segment_sum": 18,
    "gather": 0,
    "one_hot": 0,
    "unique": 16 * 4,
    "roll": 0,
    "flip": 0,
    "patches": 0,
    "nearest": 0,
    "bilinear": 2 * 256 * (4 + 3),
    "bicubic": 2 * 256 * (16 + 15),
    "matmul": 2 * 3 * 16 * 5,
}
MACS = {"matmul": 3 * 16 * 5}  # no other of these functions is a contraction
FRAMES = np.arange(7)[:, None] * 8 + np.arange(16)  # jax.scipy's stft scales the result, too
WRAPPED = 6 * 2  # a negative index counts from the end: JAX compares and adds for each of 6
MORE = {
    # the result is sorted downwards by TopK, and the values are negated for it and back
    ("tensorflow", "sort"): 2 * 48,
    ("tensorflow", "argsort"): 48,
    # NaN goes last, and the places are counted first
    ("jax", "sort"): 48,
    ("jax", "argsort"): 48 + 2 * 16,
    # the largest of each row is found, taken off and put back; infinities are asked for
    ("tensorflow", "logsumexp"): 3 * (15 + 16 + 9),
    ("jax", "logsumexp"): 3 * (15 + 16 + 7),
    ("jax", "stft"): 7 * 16,  # a place that counts from the end is moved: an add for each
    ("jax", "scatter_add"): WRAPPED,
    ("jax", "gather"): WRAPPED,
    ("torch", "one_hot"): 30,  # every class is compared
    ("jax", "one_hot"): 30 + 2 * 5,
    ("jax", "patches"): 81 + 81 + 2 * 18,  # the identity kernel is made before the patches are
    # a fixed size, of which JAX makes masks and places
    ("jax", "unique"): None,
}


def torch_functions():
    """By name."""
    torch = pytest.importorskip("torch")
    functional, fft, linalg = torch.nn.functional, torch.fft, torch.linalg

    def resized(mode):
        return lambda x: functional.interpolate(x, size=(16, 16), mode=mode)

    return {
        "rfft": lambda x: torch.view_as_real(fft.rfft(x)),
        "irfft": lambda x: fft.irfft(fft.rfft(x)),
        "fft2": lambda x: fft.fft2(x.to(torch.complex64)).abs(),
        "stft": lambda x: torch.view_as_real(
            torch.stft(x, 16, 8, window=torch.ones(16), center=False, return_complex=True)
        ),
        "sort": lambda x: torch.sort(x)[0],
        "topk": lambda x: torch.topk(x, 4)[0],
        "argsort": torch.argsort,
        "cumsum": lambda x: torch.cumsum(x, -1),
        "cumprod": lambda x: torch.cumprod(x, -1),
        "logsumexp": lambda x: torch.logsumexp(x, -1),
        "softmax": lambda x: torch.softmax(x, -1),
        "cholesky": linalg.cholesky,
        "solve": linalg.solve,
        "inv": linalg.inv,
        "det": linalg.det,
        "qr": linalg.qr,
        "svd": lambda x: linalg.svd(x, full_matrices=False),
        "eigh": linalg.eigh,
        "triangular": lambda a, b: linalg.solve_triangular(a, b, upper=False),
        "scatter_add": lambda x, i, v: x.index_add(0, i, v),
        "segment_sum": lambda x, i: torch.zeros(5, 3).index_add(0, i, x),
        "gather": lambda x, i: x[i],
        "one_hot": lambda i: functional.one_hot(i, 5).float(),
        "unique": torch.unique,
        "roll": lambda x: torch.roll(x, 3, -1),
        "flip": lambda x: torch.flip(x, [-1]),
        "patches": lambda x: functional.unfold(x, 3),
        "nearest": resized("nearest"),
        "bilinear": resized("bilinear"),
        "bicubic": resized("bicubic"),
        "matmul": torch.matmul,
    }


def jax_functions():
    """By name."""
    pytest.importorskip("jax2onnx")
    jax = importlib.import_module("jax")
    jnp, lax, linalg = jax.numpy, jax.lax, jax.numpy.linalg

    def resized(mode):
        return lambda x: jax.image.resize(x, (1, 2, 16, 16), mode)

    return {
        "rfft": jnp.fft.rfft,
        "irfft": lambda x: jnp.fft.irfft(jnp.fft.rfft(x)),
        "fft2": lambda x: jnp.abs(jnp.fft.fft2(x.astype(jnp.complex64))),
        "stft": lambda x: jnp.fft.rfft(x[:, FRAMES] * jnp.ones(16)),
        "sort": jnp.sort,
        "topk": lambda x: lax.top_k(x, 4)[0],
        "argsort": jnp.argsort,
        "cumsum": lambda x: jnp.cumsum(x, -1),
        "cumprod": lambda x: jnp.cumprod(x, -1),
        "logsumexp": lambda x: jax.nn.logsumexp(x, -1),
        "softmax": lambda x: jax.nn.softmax(x, -1),
        "cholesky": linalg.cholesky,
        "solve": linalg.solve,
        "inv": linalg.inv,
        "det": linalg.det,
        "qr": lambda x: tuple(linalg.qr(x)),
        "svd": lambda x: tuple(linalg.svd(x, full_matrices=False)),
        "eigh": lambda x: tuple(linalg.eigh(x)),
        "triangular": lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True),
        "scatter_add": lambda x, i, v: x.at[i].add(v),
        "segment_sum": lambda x, i: jax.ops.segment_sum(x, i, 5),
        "gather": lambda x, i: x[i],
        "one_hot": lambda i: jax.nn.one_hot(i, 5),
        "unique": lambda x: jnp.unique(x, size=16),
        "roll": lambda x: jnp.roll(x, 3, -1),
        "flip": lambda x: jnp.flip(x, -1),
        "patches": lambda x: lax.conv_general_dilated_patches(x, (3, 3), (1, 1), "VALID"),
        "nearest": resized("nearest"),
        "bilinear": resized("bilinear"),
        "bicubic": resized("bicubic"),
        "matmul": jnp.matmul,
    }


def tensorflow_functions():
    """By name."""
    pytest.importorskip("tf2onnx")
    tf = importlib.import_module("tensorflow")
    linalg, signal = tf.linalg, tf.signal

    def resized(mode):
        return lambda x: tf.image.resize(x, (16, 16), mode)

    def window(length, dtype):
        return tf.ones(length, dtype)

    return {
        "rfft": lambda x: signal.rfft(x),
        "irfft": lambda x: signal.irfft(signal.rfft(x)),
        "fft2": lambda x: tf.abs(signal.fft2d(tf.cast(x, tf.complex64))),
        "stft": lambda x: signal.stft(x, 16, 8, window_fn=window),
        "sort": lambda x: tf.sort(x),
        "topk": lambda x: tf.math.top_k(x, 4)[0],
        "argsort": lambda x: tf.argsort(x),
        "cumsum": lambda x: tf.cumsum(x, -1),
        "cumprod": lambda x: tf.math.cumprod(x, -1),
        "logsumexp": lambda x: tf.reduce_logsumexp(x, -1),
        "softmax": lambda x: tf.nn.softmax(x, -1),
        "cholesky": lambda x: linalg.cholesky(x),
        "solve": lambda a, b: linalg.solve(a, b),
        "inv": lambda x: linalg.inv(x),
        "det": lambda x: linalg.det(x),
        "qr": lambda x: tuple(linalg.qr(x)),
        "svd": lambda x: tuple(linalg.svd(x, full_matrices=False)),
        "eigh": lambda x: tuple(linalg.eigh(x)),
        "triangular": lambda a, b: linalg.triangular_solve(a, b, lower=True),
        "scatter_add": lambda x, i, v: tf.tensor_scatter_nd_add(x, i[:, None], v),
        "segment_sum": lambda x, i: tf.math.unsorted_segment_sum(x, i, 5),
        "gather": lambda x, i: tf.gather(x, i),
        "one_hot": lambda i: tf.one_hot(i, 5),
        "unique": lambda x: tf.unique(x)[0],
        "roll": lambda x: tf.roll(x, 3, -1),
        "flip": lambda x: tf.reverse(x, [-1]),
        "patches": lambda x: tf.image.extract_patches(
            x, [1, 3, 3, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID"
        ),
        "nearest": resized("nearest"),
        "bilinear": resized("bilinear"),
        "bicubic": resized("bicubic"),
        "matmul": lambda a, b: a @ b,
    }


ROWS, MATRIX, IMAGE, PLACES = (3, 16), (N, N), (1, 2, 8, 8), "places"
INPUTS = {
    **dict.fromkeys(EXPECTED, (ROWS,)),
    **dict.fromkeys(("cholesky", "inv", "det", "eigh"), (MATRIX,)),
    **dict.fromkeys(("solve", "triangular"), (MATRIX, (N, 2))),
    **dict.fromkeys(("qr", "svd"), ((5, 4),)),
    **dict.fromkeys(("patches", "nearest", "bilinear", "bicubic"), (IMAGE,)),
    "fft2": ((8, 8),),
    "stft": ((2, 64),),
    "unique": ((16,),),
    "one_hot": (PLACES,),
    "gather": ((5, 3), PLACES),
    "segment_sum": ((6, 3), PLACES),
    "scatter_add": ((5, 3), PLACES, (6, 3)),
    "matmul": (ROWS, (16, 5)),
}


def in_torch(name, inputs):
    """The report of a function as a module."""
    function = torch_functions()[name]
    torch = importlib.import_module("torch")

    class Module(torch.nn.Module):
        def forward(self, *given):
            return function(*given)

    given = tuple(
        torch.zeros(6, dtype=torch.int64) if shape == PLACES else torch.ones(shape)
        for shape in inputs
    )
    return crossflops.count(Module(), given)


def in_jax(name, inputs):
    """The report of a function."""
    function = jax_functions()[name]
    jnp = importlib.import_module("jax.numpy")
    given = tuple(
        jnp.zeros(6, jnp.int32) if shape == PLACES else jnp.ones(shape) for shape in inputs
    )
    return crossflops.count(function, given)


def in_tensorflow(name, inputs):
    """The report of a function; an image has its channels last."""
    function = tensorflow_functions()[name]
    tf = importlib.import_module("tensorflow")
    given = tuple(
        tf.TensorSpec((6,), tf.int32)
        if shape == PLACES
        else tf.TensorSpec((shape[0], *shape[2:], shape[1]) if len(shape) == 4 else shape)
        for shape in inputs
    )
    return crossflops.count(tf.function(function), given)


COUNTED = {"torch": in_torch, "jax": in_jax, "tensorflow": in_tensorflow}


@pytest.mark.frameworks
@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("framework", COUNTED)
def test_a_function_costs_the_same_in_every_framework(framework, name):
    """All of it where nothing else is computed; its MACs in any case."""
    report = COUNTED[framework](name, INPUTS[name])
    assert report.totals.macs == MACS.get(name, 0)
    more = MORE.get((framework, name), 0)
    if more is not None:
        assert not report.uncounted
        assert report.totals.flops == EXPECTED[name] + more


# Lengths that are odd, and that differ from axis to axis.
ROW = 15 * 4 * 5  # 15 complex numbers: as many stages as of 16
ODD = {
    "rfft": (((3, 15),), 3 * ROW // 2),
    "irfft": (((3, 15),), 3 * ROW // 2 + 3 * (14 * 4 * 5 // 2 + 2 * 14)),  # back to an even length
    "fft2": (((8, 16),), 8 * (16 * 4 * 5) + 16 * (8 * 3 * 5) + 8 * 16 * 4),
    "fft2, odd": (((7, 9),), 7 * (9 * 4 * 5) + 9 * (7 * 3 * 5) + 7 * 9 * 4),
    "topk": (((3, 15),), 45 * 2),
    "cumsum": (((3, 15),), 45),
    "cumprod": (((3, 15),), 45),
    "softmax": (((3, 15),), 3 * (14 + 15 + 15 + 14 + 15)),
    "cholesky": (((5, 5),), 5 + 10 + 2 * 20),
    "solve": (((5, 5), (5, 3)), 10 + 2 * (16 + 9 + 4 + 1) + 3 * (2 * 10 + 2 * 10 + 5)),
    "inv": (((5, 5),), 25 + 2 * 5 * 16),
    "det": (((5, 5),), 10 + 2 * (16 + 9 + 4 + 1) + 4),
    # columns of 7, 6 and 5: the vectors, then Q backwards
    "qr": (((7, 3),), (22 + 2 * 26) + (19 + 22) + 16 + 3 * 26 + 2 * 22 + 18),
    "svd": (((7, 3),), 14 * 7 * 9 + 8 * 27),
    "svd, wide": (((3, 7),), 14 * 7 * 9 + 8 * 27),
    "eigh": (((5, 5),), 9 * 125),
    "roll": (((3, 15),), 0),
    "flip": (((3, 15),), 0),
    "nearest": (((1, 2, 7, 9),), 0),
    "bilinear": (((1, 2, 7, 9),), 2 * 256 * (4 + 3)),
    "bicubic": (((1, 2, 7, 9),), 2 * 256 * (16 + 15)),
}


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("framework", COUNTED)
def test_and_on_other_lengths(framework, name):
    """Every length for itself: none is taken for another axis's, or for the next power of two."""
    inputs, expected = ODD[name]
    report = COUNTED[framework](name.partition(",")[0], inputs)
    assert not report.uncounted
    assert report.totals.macs == 0
    assert report.totals.flops == expected


FILES = {
    "rfft": "(float[3,16,1] x) => (y) { y = DFT <onesided = 1, axis = 1> (x) }",
    "sort": "(float[3,16] x) => (y, i) { k = Constant <value_ints = [16]> () y, i = TopK (x, k) }",
    "topk": "(float[3,16] x) => (y, i) { k = Constant <value_ints = [4]> () y, i = TopK (x, k) }",
    "cumsum": "(float[3,16] x) => (y) { a = Constant <value_int = 1> () y = CumSum (x, a) }",
    "logsumexp": "(float[3,16] x) => (y) { y = ReduceLogSumExp <axes = [1]> (x) }",
    "softmax": "(float[3,16] x) => (y) { y = Softmax (x) }",
    "det": "(float[4,4] x) => (y) { y = Det (x) }",
    "gather": "(float[5,3] x, int64[6] i) => (y) { y = Gather (x, i) }",
    "bilinear": "(float[1,2,8,8] x) => (y) { s = Constant <value_ints = [1, 2, 16, 16]> () "
    'y = Resize <mode = "linear"> (x, , , s) }',
    "bicubic": "(float[1,2,8,8] x) => (y) { s = Constant <value_ints = [1, 2, 16, 16]> () "
    'y = Resize <mode = "cubic"> (x, , , s) }',
    "nearest": "(float[1,2,8,8] x) => (y) { s = Constant <value_ints = [1, 2, 16, 16]> () "
    'y = Resize <mode = "nearest"> (x, , , s) }',
    "matmul": "(float[3,16] x, float[16,5] w) => (y) { y = MatMul (x, w) }",
}


@pytest.mark.parametrize("name", FILES)
def test_and_in_a_file(name, tmp_path):
    """Where ONNX has the function as one operator (opset 17)."""
    report = crossflops.count(saved(tmp_path, parsed(f"g {FILES[name]}")))
    assert not report.uncounted
    assert report.totals.flops == EXPECTED[name]
    assert report.totals.macs == MACS.get(name, 0)
