"""What factorizations and solvers cost, by the sizes of their matrices.

The direct ones are the loops of a textbook, counted operation by operation: LAPACK Working Note 41
(https://www.netlib.org/lapack/lawnspdf/lawn41.pdf, appendix C) gives the same polynomials.
Searching a pivot and swapping rows is not counted. The iterative ones have no exact count: theirs
is that of Golub and Van Loan, Matrix Computations, 4th edition, half muls and half adds.
"""

from math import prod

from crossflops.ir.cost import Cost
from crossflops.ir.graph import Node
from crossflops.operators.access import shape, source
from crossflops.operators.operands import sizes
from crossflops.operators.rule import MICROSOFT, Operators, estimated

operator = Operators()


def lu(m: int, n: int) -> Cost:
    """P A = L U of [m, n] by elimination: step s divides m-s-1 elements and updates the rest.

    Square: n(n-1)/2 divs, (n-1)n(2n-1)/6 muls and subs.
    """
    steps = [(m - s - 1, n - s - 1) for s in range(min(m, n))]
    inner = sum(below * right for below, right in steps)
    return Cost(divs=sum(below for below, _ in steps), muls=inner, adds=inner)


def cholesky(n: int) -> Cost:
    """A = L L^T of [n, n]: n roots, n(n-1)/2 divs, (n^3-n)/6 muls and subs."""
    inner = (n**3 - n) // 6
    return Cost(specials=n, divs=n * (n - 1) // 2, muls=inner, adds=inner)


def triangular(n: int, columns: int, unit: bool = False) -> Cost:
    """L X = B of [n, n] and [n, columns]: per column n(n-1)/2 muls, subs; n divs unless unit."""
    inner = n * (n - 1) // 2
    return Cost(divs=0 if unit else n, muls=inner, adds=inner) * columns


def solve(n: int, columns: int) -> Cost:
    """A X = B of [n, n] and [n, columns]: one LU, then L and U for every column."""
    return lu(n, n) + triangular(n, columns, unit=True) + triangular(n, columns)


def determinant(n: int) -> Cost:
    """One LU and the product of its diagonal, n - 1 muls. [n, n]"""
    return lu(n, n) + Cost(muls=max(n - 1, 0))


def inverse(n: int) -> Cost:
    """Gauss and Jordan in place: n^2 divs, n(n-1)^2 muls and subs.

    Each of n steps divides a row of n elements and takes it from n - 1 rows in the n - 1 columns
    beside the pivot.
    """
    inner = n * (n - 1) ** 2
    return Cost(divs=n * n, muls=inner, adds=inner)


def reflectors(m: int, n: int) -> Cost:
    """R and the Householder vectors of [m, n]: step s has a column of L = m - s elements.

    Its norm takes L muls, L - 1 adds and a root, the vector an add and L - 1 divs, tau a div;
    each of the n - s - 1 columns beside it L muls, 2L - 1 adds and L muls (the vector's first
    element is 1: L - 1 in either product, and one by tau).
    """
    total = Cost()
    for s in range(min(m, n)):
        length = m - s
        total += Cost(muls=length, adds=length, specials=1, divs=length)
        total += _applied(length) * (n - s - 1)
    return total


def _applied(length: int) -> Cost:
    """A column less tau * v * (v^T column): v^T column, its product with tau, and the update."""
    return Cost(muls=2 * (length - 1) + 1, adds=2 * (length - 1) + 1)


def orthogonal(m: int, k: int, columns: int) -> Cost:
    """The first `columns` columns of Q [m, m] from k Householder vectors, backwards.

    Vector s touches the columns from s on: all that it changes of the identity.
    """
    total = Cost()
    for s in range(k):
        total += _applied(m - s) * (columns - s)
    return total


def qr(m: int, n: int, columns: int) -> Cost:
    """Q R of [m, n] with `columns` columns of Q; 0 where only R is wanted."""
    factors = reflectors(m, n)
    return factors + orthogonal(m, min(m, n), columns) if columns else factors


def _halves(operations: int) -> Cost:
    return Cost(muls=operations // 2, adds=operations - operations // 2)


def svd(m: int, n: int, vectors: bool, all_of_u: bool) -> Cost:
    """Singular values of [m, n], m >= n, as Golub and Reinsch: figure 8.6.1 of the book.

    4mn^2 - 4n^3/3 for the values alone, 14mn^2 + 8n^3 with n columns of U and with V, and
    4m^2n + 8mn^2 + 9n^3 with all of U.
    """
    m, n = max(m, n), min(m, n)
    if not vectors:
        return _halves(4 * m * n**2 - 4 * n**3 // 3)
    if all_of_u:
        return _halves(4 * m**2 * n + 8 * m * n**2 + 9 * n**3)
    return _halves(14 * m * n**2 + 8 * n**3)


def eigen_symmetric(n: int, vectors: bool) -> Cost:
    """Eigenvalues of a symmetric [n, n] by QR: 4n^3/3, with vectors 9n^3 (section 8.3)."""
    return _halves(9 * n**3 if vectors else 4 * n**3 // 3)


def eigen(n: int, vectors: bool) -> Cost:
    """Eigenvalues of any [n, n] by QR: 10n^3, with vectors 25n^3 (section 7.5)."""
    return _halves((25 if vectors else 10) * n**3)


# Determinant and inverse by Gaussian elimination, one algorithm of several: estimates.


def matrices(node: Node) -> tuple[int, int, int]:
    """How many matrices the first input holds, their rows and their columns."""
    dims = shape(source(node, 0), at_least=2)
    return prod(dims[:-2]), dims[-2], dims[-1]


def square(node: Node) -> tuple[int, int]:
    """How many matrices, and their rows. Raises ValueError where they are not square."""
    count, rows, columns = matrices(node)
    if rows != columns:
        raise ValueError(f"{node.op} needs square matrices, not {rows}x{columns}")
    return count, rows


@operator(
    "Det",
    "elimination: n(n-1)/2 divs, (n-1)n(2n-1)/6*(mul, sub), n-1 muls per matrix",
    since=11,
    doubt=estimated,
    requires=sizes("X[...,M,M]"),
)
def det(node: Node) -> Cost:
    """Det: n(n-1)/2 divs, (n-1)n(2n-1)/6 muls and subs, then the diagonal, n - 1 muls.

    X [..., n, n].
    https://onnx.ai/onnx/operators/onnx__Det.html
    """
    count, n = square(node)
    return determinant(n) * count


@operator(
    "Inverse",
    "elimination: n^2 divs, n(n-1)^2*(mul, sub) per matrix",
    domain=MICROSOFT,
    doubt=estimated,
    requires=sizes("X[...,M,M]"),
)
def inv(node: Node) -> Cost:
    """Inverse, by Gauss and Jordan in place: n^2 divs, n * (n-1)^2 muls and subs.

    Each of n steps divides a row of n elements and takes it from n - 1 rows in the n - 1 columns
    beside the pivot. X [..., n, n].
    https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
    """
    count, n = square(node)
    return inverse(n) * count
