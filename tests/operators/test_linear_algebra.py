"""The formulas of factorizations against loops that perform them on counted numbers."""

import random
from math import isclose, sqrt

import pytest

from crossflops.ir.ledger import Cost
from crossflops.operators import linear_algebra as algebra

SIZES = [1, 2, 3, 5]
SHAPES = [(1, 1), (2, 2), (4, 4), (5, 3), (6, 1)]


class Tally:
    """Arithmetic that counts what it does."""

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {"muls": 0, "adds": 0, "divs": 0, "specials": 0}

    def mul(self, a: float, b: float) -> float:
        self.kinds["muls"] += 1
        return a * b

    def add(self, a: float, b: float) -> float:
        self.kinds["adds"] += 1
        return a + b

    def sub(self, a: float, b: float) -> float:
        self.kinds["adds"] += 1
        return a - b

    def div(self, a: float, b: float) -> float:
        self.kinds["divs"] += 1
        return a / b

    def root(self, a: float) -> float:
        self.kinds["specials"] += 1
        return sqrt(a)

    @property
    def cost(self) -> Cost:
        return Cost(**self.kinds)


def matrix(m: int, n: int, dominant: bool = True) -> list[list[float]]:
    """Numbers, with a large diagonal where pivots must not be 0."""
    draw = random.Random(m * 10 + n)
    return [
        [draw.uniform(1, 2) + (10.0 if dominant and i == j else 0) for j in range(n)]
        for i in range(m)
    ]


def product(a: list[list[float]], b: list[list[float]]) -> list[list[float]]:
    """A B."""
    return [[sum(x * y for x, y in zip(row, col, strict=True)) for col in zip(*b, strict=True)]
            for row in a]  # fmt: skip


def close(a: list[list[float]], b: list[list[float]]) -> bool:
    """Whether two matrices are the same, but for rounding."""
    pairs = [(x, y) for r, s in zip(a, b, strict=True) for x, y in zip(r, s, strict=True)]
    return all(isclose(x, y, abs_tol=1e-9) for x, y in pairs)


def eliminated(a: list[list[float]], tally: Tally) -> list[list[float]]:
    """L below the diagonal (whose 1 is left out), U on and above it."""
    a = [list(row) for row in a]
    m, n = len(a), len(a[0])
    for s in range(min(m, n)):
        for i in range(s + 1, m):
            a[i][s] = tally.div(a[i][s], a[s][s])
            for j in range(s + 1, n):
                a[i][j] = tally.sub(a[i][j], tally.mul(a[i][s], a[s][j]))
    return a


@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_lu(m: int, n: int) -> None:
    """L U is the matrix."""
    tally, a, k = Tally(), matrix(m, n), min(m, n)
    both = eliminated(a, tally)
    lower = [[1.0 if i == j else both[i][j] * (j < i) for j in range(k)] for i in range(m)]
    upper = [[both[i][j] * (j >= i) for j in range(n)] for i in range(k)]
    assert close(product(lower, upper), a)
    assert algebra.lu_cost(m, n) == tally.cost


@pytest.mark.parametrize("n", SIZES)
def test_determinant(n: int) -> None:
    """The product of the diagonal of U."""
    tally = Tally()
    both = eliminated(matrix(n, n), tally)
    determinant = both[0][0]
    for i in range(1, n):
        determinant = tally.mul(determinant, both[i][i])
    assert algebra.determinant_cost(n) == tally.cost


@pytest.mark.parametrize("n", SIZES)
def test_cholesky(n: int) -> None:
    """L L^T is the matrix."""
    tally, a = Tally(), matrix(n, n)
    a = [[a[i][j] + a[j][i] for j in range(n)] for i in range(n)]
    lower = [[0.0] * n for _ in range(n)]
    for j in range(n):
        for i in range(j, n):
            left = a[i][j]
            for k in range(j):
                left = tally.sub(left, tally.mul(lower[i][k], lower[j][k]))
            lower[i][j] = tally.root(left) if i == j else tally.div(left, lower[j][j])
    assert close(product(lower, [list(col) for col in zip(*lower, strict=True)]), a)
    assert algebra.cholesky_cost(n) == tally.cost


def substituted(a: list[list[float]], b: list[float], unit: bool, tally: Tally) -> list[float]:
    """L x = b, from the first unknown to the last."""
    x: list[float] = []
    for i, row in enumerate(a):
        left = b[i]
        for j in range(i):
            left = tally.sub(left, tally.mul(row[j], x[j]))
        x.append(left if unit else tally.div(left, row[i]))
    return x


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_triangular(n: int, unit: bool) -> None:
    """Three columns, by substitution."""
    tally, a = Tally(), matrix(n, n)
    for column in range(3):
        substituted(a, [float(i + column) for i in range(n)], unit, tally)
    assert algebra.triangular_solve_cost(n, 3, unit) == tally.cost


@pytest.mark.parametrize("n", SIZES)
def test_solve(n: int) -> None:
    """A x is the right-hand side."""
    tally, a = Tally(), matrix(n, n)
    both = eliminated(a, tally)
    backwards = [list(reversed(row)) for row in reversed(both)]
    b = [1.0 + i for i in range(n)]
    y = substituted(both, b, unit=True, tally=tally)
    x = list(reversed(substituted(backwards, list(reversed(y)), unit=False, tally=tally)))
    assert close(product(a, [[entry] for entry in x]), [[entry] for entry in b])
    assert algebra.linear_solve_cost(n, 1) == tally.cost


@pytest.mark.parametrize("n", SIZES)
def test_inverse(n: int) -> None:
    """In place: the column of the pivot takes the place of the unit vector's."""
    tally, a = Tally(), matrix(n, n)
    inverted = [list(row) for row in a]
    for s in range(n):
        pivot, inverted[s][s] = inverted[s][s], 1.0
        inverted[s] = [tally.div(entry, pivot) for entry in inverted[s]]
        for i in (row for row in range(n) if row != s):
            factor, inverted[i][s] = inverted[i][s], 0.0
            for j in range(n):
                if j == s:  # 0 - factor * found[s][s]: the negated product alone
                    inverted[i][j] = -(factor * inverted[s][j])
                    continue
                inverted[i][j] = tally.sub(inverted[i][j], tally.mul(factor, inverted[s][j]))
    unit = [[float(i == j) for j in range(n)] for i in range(n)]
    assert close(product(a, inverted), unit)
    assert algebra.matrix_inverse_cost(n) == tally.cost


def reflected(v: list[float], tau: float, column: list[float], tally: Tally) -> list[float]:
    """column - tau * v * (v . column), v[0] = 1."""
    dot = column[0]
    for a, b in zip(v[1:], column[1:], strict=True):
        dot = tally.add(dot, tally.mul(a, b))
    dot = tally.mul(tau, dot)
    first = tally.sub(column[0], dot)
    return [first, *(tally.sub(c, tally.mul(a, dot)) for a, c in zip(v[1:], column[1:],
                                                                     strict=True))]  # fmt: skip


@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_qr(m: int, n: int, square: bool) -> None:
    """Q R is the matrix, with as many columns of Q as asked for."""
    tally, a = Tally(), matrix(m, n, dominant=False)
    columns, vectors = [list(col) for col in zip(*a, strict=True)], []
    for s in range(min(m, n)):
        x = columns[s][s:]
        total = tally.mul(x[0], x[0])
        for entry in x[1:]:
            total = tally.add(total, tally.mul(entry, entry))
        norm = tally.root(total)
        head = tally.add(x[0], norm)
        v = [1.0, *(tally.div(entry, head) for entry in x[1:])]
        tau = tally.div(head, norm)
        vectors.append((v, tau))
        columns[s][s:] = [-norm, *([0.0] * (m - s - 1))]
        for j in range(s + 1, n):
            columns[j][s:] = reflected(v, tau, columns[j][s:], tally)
    assert algebra.householder_vectors_cost(m, n) == tally.cost
    wanted = m if square else min(m, n)
    q = [[float(i == j) for i in range(m)] for j in range(wanted)]
    for s, (v, tau) in reversed(list(enumerate(vectors))):
        for j in range(s, wanted):
            q[j][s:] = reflected(v, tau, q[j][s:], tally)
    r = [col[:wanted] for col in columns]
    whole = product([list(row) for row in zip(*q, strict=True)],
                    [list(row) for row in zip(*r, strict=True)])  # fmt: skip
    assert close(whole, a)
    assert algebra.qr_cost(m, n, wanted) == tally.cost


def test_the_iterative_ones_are_those_of_the_book() -> None:
    """Golub and Van Loan, 4th edition, figure 8.6.1 for [5, 4], and sections 7.5 and 8.3."""
    assert algebra.svd_cost(5, 4, vectors=False, all_of_u=False).flops == 4 * 5 * 16 - 85
    assert algebra.svd_cost(5, 4, vectors=True, all_of_u=False).flops == 14 * 5 * 16 + 8 * 64
    assert algebra.svd_cost(4, 5, vectors=True, all_of_u=False).flops == 14 * 5 * 16 + 8 * 64
    assert algebra.svd_cost(5, 4, vectors=True, all_of_u=True).flops == 4 * 100 + 8 * 80 + 9 * 64
    assert algebra.symmetric_eigen_cost(4, vectors=True).flops == 9 * 64
    assert algebra.eigen_cost(4, vectors=True).flops == 25 * 64
