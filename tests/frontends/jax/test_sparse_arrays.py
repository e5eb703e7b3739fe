"""Sparse arrays of JAX cost what their stored elements cost: nse x columns, by hand."""

import pytest

import crossflops

jax = pytest.importorskip("jax")
sparse = pytest.importorskip("jax.experimental.sparse")
import numpy as np  # noqa: E402

pytestmark = pytest.mark.jax

MATRIX = np.zeros((6, 5), np.float32)
MATRIX[[0, 2, 2, 5], [1, 3, 4, 0]] = 1, 2, 3, 4
NSE, COLUMNS = 4, 7
COO, CSR = sparse.BCOO.fromdense(MATRIX), sparse.BCSR.fromdense(MATRIX)
BATCH = sparse.BCOO.fromdense(np.stack([MATRIX, MATRIX]), n_batch=1)
DENSE = np.ones((5, COLUMNS), np.float32)
OF_A_BATCH = (((2,), (1,)), ((0,), (0,)))


def loss_of_values(values, x):
    """The sum of a product, of which the stored values are trained."""
    return (sparse.BCOO((values, COO.indices), shape=COO.shape) @ x).sum()


PRODUCTS = {
    "held": (lambda x: COO @ x, (DENSE,), NSE * COLUMNS),
    "given": (lambda a, x: a @ x, (COO, DENSE), NSE * COLUMNS),
    "rows held": (lambda x: CSR @ x, (DENSE,), NSE * COLUMNS),
    "rows given": (lambda a, x: a @ x, (CSR, DENSE), NSE * COLUMNS),
    "vector": (lambda x: COO @ x, (DENSE[:, 0],), NSE),
    "from the left": (lambda x: x @ COO, (np.ones((3, 6), np.float32),), 3 * NSE),
    "transposed": (lambda x: COO.T @ x, (np.ones((6, 2), np.float32),), NSE * 2),
    "sparsify": (sparse.sparsify(lambda a, x: a @ x), (COO, DENSE), NSE * COLUMNS),
    "batch": (
        lambda x: sparse.bcoo_dot_general(BATCH, x, dimension_numbers=OF_A_BATCH),
        (np.ones((2, 5, 3), np.float32),),
        2 * NSE * 3,
    ),
    "made dense": (lambda a, x: a.todense() @ x, (COO, DENSE), 6 * 5 * COLUMNS),
    # JAX multiplies all pairs of stored elements, and masks those that do not meet
    "two": (lambda a: (a @ a.T).todense(), (COO,), NSE * NSE),
    # the product of the forward pass is in no result
    "gradient of dense": (jax.grad(lambda x: (COO @ x).sum()), (DENSE,), NSE * COLUMNS),
    "gradient of values": (jax.grad(loss_of_values), (COO.data, DENSE), NSE * COLUMNS),
    "both": (jax.value_and_grad(loss_of_values), (COO.data, DENSE), 2 * NSE * COLUMNS),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_with_a_sparse_array(name):
    """Nothing is left uncounted."""
    model, inputs, macs = PRODUCTS[name]
    report = crossflops.count(model, inputs)
    assert report.uncounted == ()
    assert report.macs == macs


def test_a_graph_convolution_in_training():
    """Two layers of [6, 6] stored in 4 elements: H = A (X W). Backward: dW and d(XW), each layer.

    X W: 6 x 5 x 3, A: 4 x 3; then 6 x 3 x 2 and 4 x 2. X has no gradient.
    """
    nnx = pytest.importorskip("flax.nnx")
    adjacency = sparse.BCOO.fromdense(np.pad(MATRIX, ((0, 0), (0, 1))))

    class Network(nnx.Module):
        def __init__(self):
            self.first = nnx.Param(jax.numpy.ones((5, 3)))
            self.second = nnx.Param(jax.numpy.ones((3, 2)))

        def __call__(self, x):
            return adjacency @ ((adjacency @ (x @ self.first[...])) @ self.second[...])

    report = crossflops.count(Network(), np.ones((6, 5), np.float32), train=True)
    first, second, aggregated = 6 * 5 * 3, 6 * 3 * 2, (4 * 3, 4 * 2)
    forward = first + second + sum(aggregated)
    backward = first + 2 * second + sum(aggregated)
    assert report.training.uncounted == ()
    assert report.macs == forward
    assert report.training.macs == forward + backward
