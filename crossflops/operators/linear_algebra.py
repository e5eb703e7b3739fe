"""The cost of matrix decompositions and solvers, by the sizes of their matrices.

The direct ones are the loops of a textbook, counted operation by operation: LAPACK Working Note 41
(https://www.netlib.org/lapack/lawnspdf/lawn41.pdf, appendix C) gives the same polynomials.
Searching a pivot and swapping rows is not counted. The iterative ones have no exact count: theirs
is that of Golub and Van Loan, Matrix Computations, 4th edition, half muls and half adds.
"""

from collections.abc import Callable
from math import prod

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    input_element_count,
    input_spec,
    output_element_count,
    output_spec,
    spec_shape,
)
from crossflops.operators.gradient import Gradient, OperandPositions, first_operand_backward
from crossflops.operators.operands import sizes_constraint
from crossflops.operators.rule import MICROSOFT, Formula, Operators, estimate_exactness

operator = Operators()


def lu_cost(m: int, n: int) -> Cost:
    """Return the cost of the LU decomposition of an m x n matrix by elimination.

    Square: n(n-1)/2 divs, (n-1)n(2n-1)/6 muls and subs.
    """
    steps = [(m - s - 1, n - s - 1) for s in range(min(m, n))]
    inner = sum(below * right for below, right in steps)
    return Cost(divs=sum(below for below, _ in steps), muls=inner, adds=inner)


def cholesky_cost(n: int) -> Cost:
    """Return the cost of the Cholesky decomposition of an n x n matrix: n roots, n(n-1)/2 divs,
    (n^3-n)/6 muls and subs.
    """
    inner = (n**3 - n) // 6
    return Cost(specials=n, divs=n * (n - 1) // 2, muls=inner, adds=inner)


def triangular_solve_cost(n: int, columns: int, unit: bool = False) -> Cost:
    """Return the cost of solving L X = B with a triangular n x n matrix: per column n(n-1)/2 muls
    and subs, and n divs unless `unit`.
    """
    inner = n * (n - 1) // 2
    return Cost(divs=0 if unit else n, muls=inner, adds=inner) * columns


def linear_solve_cost(n: int, columns: int) -> Cost:
    """Return the cost of solving A X = B with an n x n matrix A: one LU decomposition, then both
    triangles for each column.
    """
    return (
        lu_cost(n, n)
        + triangular_solve_cost(n, columns, unit=True)
        + triangular_solve_cost(n, columns)
    )


def determinant_cost(n: int) -> Cost:
    """Return the cost of the determinant of an n x n matrix: one LU decomposition, and n - 1 muls
    of its diagonal.
    """
    return lu_cost(n, n) + Cost(muls=max(n - 1, 0))


def matrix_inverse_cost(n: int) -> Cost:
    """Return the cost of the inverse of an n x n matrix by Gauss-Jordan elimination in place: n^2
    divs, n(n-1)^2 muls and subs.

    Each of n steps divides a row of n elements and subtracts it from n - 1 rows in the n - 1
    columns beside the pivot.
    """
    inner = n * (n - 1) ** 2
    return Cost(divs=n * n, muls=inner, adds=inner)


def householder_vectors_cost(m: int, n: int) -> Cost:
    """Return the cost of R and the Householder vectors of an m x n matrix.

    Its norm takes L muls, L - 1 adds and a root, the vector an add and L - 1 divs, tau a div; each
    of the n - s - 1 columns beside it L muls, 2L - 1 adds and L muls (the vector's first element
    is 1: L - 1 in either product, and one by tau).
    """
    total = Cost()
    for s in range(min(m, n)):
        length = m - s
        total += Cost(muls=length, adds=length, specials=1, divs=length)
        total += _reflector_update_cost(length) * (n - s - 1)
    return total


def _reflector_update_cost(length: int) -> Cost:
    """Return the cost of applying a Householder vector v of this length to a column: column - tau
    * v * (v^T column).
    """
    return Cost(muls=2 * (length - 1) + 1, adds=2 * (length - 1) + 1)


def orthogonal_columns_cost(m: int, k: int, columns: int) -> Cost:
    """Return the cost of computing the first `columns` columns of the orthogonal matrix Q [m, m]
    from k Householder vectors.

    Vector s changes only the columns from s on of the identity.
    """
    total = Cost()
    for s in range(k):
        total += _reflector_update_cost(m - s) * (columns - s)
    return total


def qr_cost(m: int, n: int, columns: int) -> Cost:
    """Return the cost of the QR decomposition of an m x n matrix with `columns` columns of Q (0:
    only R).
    """
    factors = householder_vectors_cost(m, n)
    return factors + orthogonal_columns_cost(m, min(m, n), columns) if columns else factors


def _half_muls_half_adds(operations: int) -> Cost:
    """Return a cost of this number of operations, half of them muls and half adds."""
    return Cost(muls=operations // 2, adds=operations - operations // 2)


def svd_cost(m: int, n: int, vectors: bool, all_of_u: bool) -> Cost:
    """Return the cost of the singular values of an m x n matrix by Golub and Reinsch, with vectors
    on request.

    4mn^2 - 4n^3/3 for the values alone, 14mn^2 + 8n^3 with n columns of U and with V, and 4m^2n +
    8mn^2 + 9n^3 with all of U.
    """
    m, n = max(m, n), min(m, n)
    if not vectors:
        return _half_muls_half_adds(4 * m * n**2 - 4 * n**3 // 3)
    if all_of_u:
        return _half_muls_half_adds(4 * m**2 * n + 8 * m * n**2 + 9 * n**3)
    return _half_muls_half_adds(14 * m * n**2 + 8 * n**3)


def symmetric_eigen_cost(n: int, vectors: bool) -> Cost:
    """Return the cost of the eigenvalues of a symmetric n x n matrix by QR: 4n^3/3, with vectors
    9n^3 operations (section 8.3).
    """
    return _half_muls_half_adds(9 * n**3 if vectors else 4 * n**3 // 3)


def eigen_cost(n: int, vectors: bool) -> Cost:
    """Return the cost of the eigenvalues of an n x n matrix by QR: 10n^3, with vectors 25n^3
    operations (section 7.5).
    """
    return _half_muls_half_adds((25 if vectors else 10) * n**3)


# Determinant and inverse by Gaussian elimination, one algorithm of several: estimates.


def matrix_count_and_sizes(node: Node) -> tuple[int, int, int]:
    """Return (number of matrices, rows, columns) of the first input."""
    dims = spec_shape(input_spec(node, 0), at_least=2)
    return prod(dims[:-2]), dims[-2], dims[-1]


def square_matrix_count_and_rows(node: Node) -> tuple[int, int]:
    """Return (number of matrices, rows) of the first input. Raises ValueError if the matrices are
    not square.
    """
    count, rows, columns = matrix_count_and_sizes(node)
    if rows != columns:
        raise ValueError(f"{node.op} needs square matrices, not {rows}x{columns}")
    return count, rows


# Gradients, from the factors that the forward pass keeps, as PyTorch has them
# (torch/csrc/autograd/FunctionsManual.cpp): its products in MACs, whatever triangles they have.


def _matrix_product_cost(rows: int, inner: int, columns: int) -> Cost:
    """Return the cost of the product of a rows x inner and an inner x columns matrix."""
    return Cost(macs=rows * inner * columns)


def cholesky_gradient_cost(n: int) -> Cost:
    """Return the cost of the gradient of a Cholesky decomposition: dA = L^-T F L^-1, F the halved
    sum of tril(L^T dL) and its transpose (cholesky_backward).
    """
    return (
        _matrix_product_cost(n, n, n)
        + Cost(adds=n * n, muls=n * n)
        + triangular_solve_cost(n, n) * 2
    )


def inverse_gradient_cost(n: int) -> Cost:
    """Return the cost of the gradient of an inverse: dA = -A^-T dY A^-T (derivatives.yaml:
    linalg_inv_ex).
    """
    return _matrix_product_cost(n, n, n) * 2 + Cost(adds=n * n)


def jax_inverse_gradient_cost(n: int) -> Cost:
    """Return the cost of the gradient of JAX's inverse, which solves A X = I: dB solves A^T dB =
    dX, and dA = -dB X^T.

    Source: jax/_src/numpy/linalg.py, inv.
    """
    return (
        _matrix_product_cost(n, n, n)
        + Cost(adds=n * n)
        + triangular_solve_cost(n, n, unit=True)
        + triangular_solve_cost(n, n)
    )


def log_determinant_cost(n: int) -> Cost:
    """Return the cost of the logarithm and the sign of a determinant: an LU decomposition, and
    work on its diagonal.
    """
    return lu_cost(n, n) + Cost(muls=max(n - 1, 0), specials=n, adds=max(n - 1, 0))


def log_determinant_gradient_cost(n: int) -> Cost:
    """Return the cost of the gradient of the logarithm of a determinant, which solves A^T dA = dY
    I (jax/_src/numpy/linalg.py: _slogdet_jvp).
    """
    return triangular_solve_cost(n, n, unit=True) + triangular_solve_cost(n, n)


def determinant_gradient_cost(n: int) -> Cost:
    """Return the cost of the gradient of a determinant, which solves A^T dA = diag(dY det) with
    the stored factors (linalg_det_backward).

    An add for each element keeps zeros from the diagonal.
    """
    return (
        Cost(muls=1, adds=n * n)
        + triangular_solve_cost(n, n, unit=True)
        + triangular_solve_cost(n, n)
    )


def lu_gradient_cost(n: int) -> Cost:
    """Return the cost of the gradient of an LU decomposition: dA = P L^-T (tril(L^T dL) + triu(dU
    U^T)) U^-T, with P as a product (lu_factor_ex_backward).
    """
    solved = triangular_solve_cost(n, n) + triangular_solve_cost(n, n, unit=True)
    return _matrix_product_cost(n, n, n) * 3 + Cost(adds=n * n) + solved


def qr_gradient_cost(m: int, n: int, q: bool = True, r: bool = True) -> Cost:
    """Return the cost of the gradient of a QR decomposition: dA = (dQ + Q S) R^-T, S from triu(dR
    R^T - Q^T dQ) (linalg_qr_backward).

    Where n > m it is Q (S R1^-T + dR), R1 the first m columns of R. `q` and `r` say which of the
    two reach the loss: where one does not, its product and the sum of both are left out.
    """
    k = min(m, n)
    towards = (
        _matrix_product_cost(k, n, k) * r
        + _matrix_product_cost(k, m, k) * q
        + Cost(adds=k * k) * (q and r)
    )
    if m >= n:
        joined = Cost(adds=n * n + m * n * q, muls=n)
        return towards + joined + _matrix_product_cost(m, n, n) + triangular_solve_cost(n, m)
    made = (
        _matrix_product_cost(m, m, m)
        + (_matrix_product_cost(m, m, n) + Cost(adds=m * n)) * r
        + Cost(adds=2 * m * m)
    )
    return towards + made + triangular_solve_cost(m, m)


def svd_gradient_cost(m: int, n: int, left: bool = True, right: bool = True) -> Cost:
    """Return the cost of the gradient of a singular value decomposition: dA = U dS V^T, more if U
    or V reach the loss (svd_backward).

    dS' is made of the skew parts of U^T dU and V^T dV, over the differences of the squares of S;
    where m > n, (1 - U U^T) dU / S is added, otherwise dS' V^T comes first. `left` and `right` say
    whether U and V reach the loss.
    """
    tall, wide = (left, right) if m >= n else (right, left)
    m, n = max(m, n), min(m, n)
    if not left and not right:
        return Cost(muls=n * n) + _matrix_product_cost(m, n, n)
    skew = (_matrix_product_cost(n, m, n) + Cost(adds=n * n)) * tall
    skew += (_matrix_product_cost(n, n, n) + Cost(adds=n * n)) * wide
    both = tall and wide
    joined = Cost(muls=n + n * n * (1 + both), adds=n * n * (2 + both), divs=n * n)
    if m > n and tall:
        beyond = (
            _matrix_product_cost(n, m, n)
            + _matrix_product_cost(m, n, n)
            + Cost(divs=m * n, adds=2 * m * n)
        )
        return skew + joined + beyond + _matrix_product_cost(m, n, n) * 2
    return skew + joined + _matrix_product_cost(n, n, n) + _matrix_product_cost(m, n, n)


def symmetric_eigen_gradient_cost(n: int, vectors: bool) -> Cost:
    """Return the cost of the gradient of a symmetric eigendecomposition: dA = V diag(dL) V^T; with
    vectors V (diag(dL) + skew(V^T dV) / E) V^T, E_ij = L_j - L_i.

    Source: linalg_eig_backward, of a Hermitian matrix.
    """
    if not vectors:
        return Cost(muls=n * n) + _matrix_product_cost(n, n, n)
    return _matrix_product_cost(n, n, n) * 3 + Cost(adds=2 * n * n, muls=n * n, divs=n * n)


def triangular_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradients of a triangular solve: dB solves A^T dB = dX, and dA = -dB
    X^T (linalg_solve_triangular_backward).

    Raises ValueError for sizes that broadcast.
    """
    count, n = square_matrix_count_and_rows(node)
    columns, unit = solution_column_count(node), has_unit_diagonal(node)
    product = (_matrix_product_cost(n, columns, n) + Cost(adds=n * n)) * count
    work = {0: product, 1: ZERO}
    inner = triangular_solve_cost(n, columns, unit) * count
    return Gradient({index: work[index] for index in requested}, inner=inner)


def solution_column_count(node: Node) -> int:
    """Return the number of columns of X in each system A X = B. Raises ValueError if sizes are
    broadcast.
    """
    count, n = square_matrix_count_and_rows(node)
    outer = spec_shape(input_spec(node, 0))[:-2]
    if spec_shape(output_spec(node))[: len(outer)] != outer or input_element_count(
        node, 1
    ) != output_element_count(node):
        raise ValueError(f"{node.op}: the backward pass of broadcast sizes has no formula yet")
    return output_element_count(node) // (count * n) if count * n else 0


def has_unit_diagonal(node: Node) -> bool:
    """Return whether the node takes the diagonal of its triangular matrix as 1."""
    return bool(node.attrs.get("unit_diagonal") or node.attrs.get("unitriangular"))


def square_matrix_formula(work: Callable[[int], Cost]) -> Formula:
    """Return a formula that counts `work(n)` for each n x n matrix of the first input."""

    def cost_of_all_square_matrices(node: Node) -> Cost:
        """Return `work(n)` for each n x n matrix of the first input, summed."""
        count, n = square_matrix_count_and_rows(node)
        return work(n) * count

    return cost_of_all_square_matrices


@operator(
    "Det",
    "elimination: n(n-1)/2 divs, (n-1)n(2n-1)/6*(mul, sub), n-1 muls per matrix",
    since=11,
    doubt=estimate_exactness,
    requires=sizes_constraint("X[...,M,M]"),
    backward=first_operand_backward(square_matrix_formula(determinant_gradient_cost)),
)
def onnx_det_cost(node: Node) -> Cost:
    """Return the estimated cost of Det by elimination: n(n-1)/2 divs, (n-1)n(2n-1)/6 muls and
    subs, then n - 1 muls of the diagonal.

    X [..., n, n].
    https://onnx.ai/onnx/operators/onnx__Det.html
    """
    count, n = square_matrix_count_and_rows(node)
    return determinant_cost(n) * count


@operator(
    "Inverse",
    "elimination: n^2 divs, n(n-1)^2*(mul, sub) per matrix",
    domain=MICROSOFT,
    doubt=estimate_exactness,
    requires=sizes_constraint("X[...,M,M]"),
    backward=first_operand_backward(square_matrix_formula(inverse_gradient_cost)),
)
def onnx_inverse_cost(node: Node) -> Cost:
    """Return the estimated cost of Inverse by Gauss-Jordan elimination in place: n^2 divs,
    n(n-1)^2 muls and subs per matrix.

    Each of n steps divides a row of n elements and takes it from n - 1 rows in the n - 1 columns
    beside the pivot. X [..., n, n].
    https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
    """
    count, n = square_matrix_count_and_rows(node)
    return matrix_inverse_cost(n) * count
