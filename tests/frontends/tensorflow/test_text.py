"""What stands behind a lookup table, a text or a sparse operand: MACs by hand."""

import numpy as np
import pytest

import crossflops

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")
pytest.importorskip("onnxruntime")
keras = pytest.importorskip("keras")

pytestmark = pytest.mark.tensorflow
layers = keras.layers

WORDS = ["a", "b"]
ROWS = 4


def before_dense(dtype, width, *stack):
    """These layers on rows of `width`, and a Dense(2) behind them."""
    x = keras.Input((width,), dtype=dtype)
    y = x
    for layer in (*stack, layers.Dense(2)):
        y = layer(y)
    return keras.Model(x, y), tf.TensorSpec((ROWS, width), dtype)


def embedded(layer):
    """The layer, and four numbers for each index that it gives."""
    return layer, layers.Embedding(9, 4)


WEIGHTS = {"idf_weights": [0.5, 0.6]}


@pytest.mark.parametrize(
    ("model", "features"),
    [
        # indices of three words are five features with the one for others: 3 x 4 or 3
        (before_dense("string", 3, *embedded(layers.StringLookup(vocabulary=WORDS))), 3 * 4),
        (before_dense("string", 3, layers.StringLookup(vocabulary=WORDS, output_mode="count")), 3),
        (
            before_dense(
                "string", 3,
                layers.StringLookup(vocabulary=WORDS, output_mode="tf_idf", **WEIGHTS),
            ),
            3,
        ),
        (
            before_dense(
                "int64", 3, layers.IntegerLookup(vocabulary=[1, 2], output_mode="multi_hot")
            ),
            3,
        ),
        (
            before_dense(
                "string", 1,
                *embedded(layers.TextVectorization(vocabulary=WORDS, output_sequence_length=6)),
            ),
            6 * 4,
        ),
        (
            before_dense(
                "string", 1, layers.TextVectorization(vocabulary=WORDS, output_mode="multi_hot")
            ),
            3,
        ),
        (before_dense("int64", 3, *embedded(layers.Hashing(9))), 3 * 4),
        (before_dense("float32", 3, *embedded(layers.Discretization([0.0, 1.0]))), 3 * 4),
    ],
)  # fmt: skip
def test_a_product_behind_words(model, features):
    """Rows x features x 2; the table is no input; text alone is left out."""
    report = crossflops.count(*model)
    assert report.totals.macs == ROWS * features * 2
    assert [given.shape for given in report.model.inputs] == [tuple(model[1].shape)]
    assert all("text and media" in gap.reason for gap in report.uncounted)


def test_a_table_of_a_function():
    """Three rows of four numbers, which a table names, and a matrix of two columns."""
    pairs = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
    table = tf.lookup.StaticHashTable(pairs, 0)
    rows, weights = tf.ones((5, 4)), tf.ones((4, 2))

    @tf.function
    def product(words):
        return tf.matmul(tf.gather(rows, table.lookup(words)), weights)

    report = crossflops.count(product, tf.TensorSpec((3,), tf.string))
    assert (report.totals.macs, len(report.model.inputs)) == (3 * 4 * 2, 1)
    assert not report.uncounted


PAIRS = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
ROWS_OF_FOUR, SQUARE = tf.Variable(tf.ones((5, 4))), tf.Variable(tf.ones((4, 4)))


def looked_up(table, words):
    """Four numbers for each word, times a matrix of four columns: 16 MACs a word."""
    return tf.gather(ROWS_OF_FOUR, table(words)) @ SQUARE


def mapped(table, words):
    """Return the rows of `tf.map_fn`."""
    return tf.map_fn(lambda row: looked_up(table, row), words, fn_output_signature=tf.float32)


def mapped_twice(table, words):
    """Return the rows of a map in a map."""

    def inner(row):
        return mapped(table, row[:, None])

    return tf.map_fn(inner, words, fn_output_signature=tf.float32)


def looped(table, words):
    """Return the sum of the rows by `tf.while_loop`."""

    def step(place, total):
        return place + 1, total + looked_up(table, words[place])

    return tf.while_loop(lambda place, _: place < 2, step, (0, tf.zeros((3, 4))))[1]


def written_out(table, words):
    """Return the sum by a loop that autograph makes of `for`."""
    total = tf.zeros((3, 4))
    for place in tf.range(2):
        total += looked_up(table, words[place])
    return total


def scanned(table, words):
    """Return the running sums by `tf.scan`."""
    begin = tf.zeros((3, 4))
    return tf.scan(lambda before, row: before + looked_up(table, row), words, begin)


def chosen(table, words):
    """Return what one branch of `tf.cond` looks up."""
    return tf.cond(
        tf.equal(words[0, 0], "a"), lambda: looked_up(table, words), lambda: tf.zeros((2, 3, 4))
    )


def switched(table, words):
    """Return what the second branch of `tf.switch_case` looks up."""
    branches = [lambda: tf.zeros((2, 3, 4)), lambda: looked_up(table, words)]
    index = tf.cast(tf.equal(words[0, 0], "a"), tf.int32)
    return tf.switch_case(index, [*branches, lambda: -tf.ones((2, 3, 4))])


def chosen_in_a_loop(table, words):
    """Return the rows of a map whose body chooses."""

    def row_of(row):
        zeros = tf.zeros((3, 4))
        return tf.cond(tf.equal(row[0], "a"), lambda: looked_up(table, row), lambda: zeros)

    return tf.map_fn(row_of, words, fn_output_signature=tf.float32)


@pytest.mark.parametrize(
    "function",
    [mapped, mapped_twice, looped, written_out, scanned, chosen, switched, chosen_in_a_loop],
)
def test_a_table_in_a_loop_or_a_branch(function):
    """Six words, in a branch those of the larger one; the table is no input."""
    table = tf.lookup.StaticHashTable(PAIRS, 0)
    whole = tf.function(lambda words: function(table.lookup, words))
    report = crossflops.count(whole, tf.TensorSpec((2, 3), tf.string))
    assert report.totals.macs == 6 * 16
    assert [given.shape for given in report.model.inputs] == [(2, 3)]
    assert not report.uncounted


@pytest.mark.parametrize(
    ("layer", "dtype"),
    [
        (layers.StringLookup(vocabulary=WORDS), "string"),
        (layers.IntegerLookup(vocabulary=[1, 2]), "int64"),
    ],
)
def test_a_lookup_of_keras_in_a_loop(layer, dtype):
    """Two rows of three words, 16 MACs each."""
    report = crossflops.count(
        tf.function(lambda x: mapped(layer, x)), tf.TensorSpec((2, 3), dtype)
    )
    assert (report.totals.macs, len(report.model.inputs)) == (6 * 16, 1)
    assert not report.uncounted


def test_rows_of_a_variable_in_a_loop():
    """A gather from a variable, in the body of a loop."""
    report = crossflops.count(
        tf.function(lambda x: mapped(tf.identity, x)), tf.TensorSpec((2, 3), tf.int32)
    )
    assert (report.totals.macs, report.uncounted) == (6 * 16, ())


def test_a_table_in_a_loop_beside_a_size_of_the_values():
    """Two of three rows are kept, each of three words: the sizes come from a run."""
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1, 2], [0, 1]), 0)

    @tf.function
    def kept(keys):
        rows = mapped(table.lookup, keys)
        return tf.boolean_mask(rows, keys[:, 0] > 0) @ SQUARE

    report = crossflops.count(kept, np.array([[1, 1, 1], [0, 0, 0], [2, 2, 2]], np.int32))
    assert report.totals.macs == 9 * 16 + 6 * 16


@pytest.mark.parametrize(("shape", "adjoint"), [((4, 5), False), ((5, 4), True)])
def test_a_product_with_a_sparse_operand(shape, adjoint):
    """Three values that are stored, each with five numbers of its row."""
    stored = tf.sparse.SparseTensor([[0, 1], [2, 3], [2, 0]], [1.0, 2.0, 3.0], [3, 4])

    @tf.function
    def product(x):
        return tf.sparse.sparse_dense_matmul(stored, x, adjoint_b=adjoint)

    report = crossflops.count(product, tf.TensorSpec(shape))
    assert report.totals.macs == 3 * 5
    assert report.totals.exactness["macs"] == "exact"


def test_a_product_of_what_is_not_zero():
    """How many of twelve numbers are none, the input tells: 2, each with 2 numbers."""
    weights = tf.ones((4, 2))

    @tf.function
    def product(x):
        return tf.sparse.sparse_dense_matmul(tf.sparse.from_dense(x), weights)

    x = np.zeros((3, 4), np.float32)
    x[0, 1] = x[2, 3] = 1
    report = crossflops.count(product, x)
    assert report.totals.macs == 2 * 2
    assert any(node.depends_on_inputs for node in report.nodes)


def test_buckets_are_searched_for():
    """Three boundaries make four places, of which two compares find one."""

    @tf.function
    def placed(x):
        return tf.raw_ops.Bucketize(input=x, boundaries=[0.0, 1.0, 2.0])

    report = crossflops.count(placed, tf.TensorSpec((5,)))
    assert (report.totals.compares, report.uncounted) == (2 * 5, ())
