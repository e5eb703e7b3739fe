"""Functions of complex numbers, as one node each: textbook formulas on counted scalars.

Each formula has to give what `cmath` gives, so that it is one of that function.
"""

import cmath
import math

import pytest

from crossflops.ir.ledger import Cost
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.operators.scalars import Tally, work

Z = 0.7 - 0.4j


def exp(a, b):
    """e^a (cos b + i sin b)."""
    size = a.exp()
    return size * b.special(math.cos), size * b.special(math.sin)


def log(a, b):
    """log |z| + i arg z."""
    return absolute(a, b).log(), b.special(math.atan2, a)


def absolute(a, b):
    """The root of a^2 + b^2."""
    return (a * a + b * b).sqrt()


def reciprocal(a, b):
    """The conjugate by the square of the size."""
    square = a * a + b * b
    return a / square, (0 - b) / square


def sqrt(a, b):
    """The roots of half of |z| + a and of |z| - a, the second with the sign of b."""
    size = absolute(a, b)
    real, imaginary = ((size + a) * 0.5).sqrt(), ((size - a) * 0.5).sqrt()
    imaginary.value = math.copysign(imaginary.value, b.max(-math.inf).value)
    return real, imaginary


def sin(a, b):
    """sin a cosh b + i cos a sinh b."""
    real = a.special(math.sin) * b.special(math.cosh)
    return real, a.special(math.cos) * b.special(math.sinh)


def sinh(a, b):
    """sinh a cos b + i cosh a sin b."""
    real = a.special(math.sinh) * b.special(math.cos)
    return real, a.special(math.cosh) * b.special(math.sin)


def cos(a, b):
    """cos a cosh b - i sin a sinh b."""
    imaginary = 0 - a.special(math.sin) * b.special(math.sinh)
    return a.special(math.cos) * b.special(math.cosh), imaginary


def cosh(a, b):
    """cosh a cos b + i sinh a sin b."""
    real = a.special(math.cosh) * b.special(math.cos)
    return real, a.special(math.sinh) * b.special(math.sin)


def tanh(a, b):
    """(sinh 2a + i sin 2b) / (cosh 2a + cos 2b)."""
    a, b = a * 2, b * 2
    below = a.special(math.cosh) + b.special(math.cos)
    return a.special(math.sinh) / below, b.special(math.sin) / below


def tan(a, b):
    """(sin 2a + i sinh 2b) / (cos 2a + cosh 2b)."""
    a, b = a * 2, b * 2
    below = a.special(math.cos) + b.special(math.cosh)
    return a.special(math.sin) / below, b.special(math.sinh) / below


def sigmoid(a, b):
    """1 / (1 + e^-z)."""
    real, imaginary = exp(0 - a, 0 - b)
    return reciprocal(1 + real, imaginary)


def silu(a, b):
    """z times its sigmoid."""
    c, d = sigmoid(a, b)
    return a * c - b * d, a * d + b * c


def expm1(a, b):
    """e^z - 1."""
    real, imaginary = exp(a, b)
    return real - 1, imaginary


def by_base(base):
    """log z / log base."""

    def formula(a, b):
        return tuple(part / math.log(base) for part in log(a, b))

    return formula


FORMULAS = {
    "exp": (exp, cmath.exp),
    "exp2": (lambda a, b: exp(a * math.log(2), b * math.log(2)), lambda z: 2**z),
    "expm1": (expm1, lambda z: cmath.exp(z) - 1),
    "log": (log, cmath.log),
    "log1p": (lambda a, b: log(1 + a, b), lambda z: cmath.log(1 + z)),
    "log2": (by_base(2), lambda z: cmath.log(z, 2)),
    "log10": (by_base(10), cmath.log10),
    "sqrt": (sqrt, cmath.sqrt),
    "rsqrt": (lambda a, b: reciprocal(*sqrt(a, b)), lambda z: 1 / cmath.sqrt(z)),
    "sin": (sin, cmath.sin),
    "cos": (cos, cmath.cos),
    "tan": (tan, cmath.tan),
    "sinh": (sinh, cmath.sinh),
    "cosh": (cosh, cmath.cosh),
    "tanh": (tanh, cmath.tanh),
    "silu": (silu, lambda z: z / (1 + cmath.exp(-z))),
    "sigmoid": (sigmoid, lambda z: 1 / (1 + cmath.exp(-z))),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_function_is_its_formula(name):
    """As much work for each of 6 numbers as the formula on counted scalars."""
    formula, true = FORMULAS[name]
    tally = Tally()
    parts = formula(tally.number(Z.real), tally.number(Z.imag))
    assert complex(*(part.value for part in parts)) == pytest.approx(true(Z))
    counted = to_node(f"torch.ops::aten.{name}.default", [(2, 3, 2)], [(2, 3, 2)])
    assert work(counted) == tally.cost * 6
    assert count_node(counted).exactness == "estimate"


PRODUCT, QUOTIENT = Cost(muls=4, adds=2), Cost(muls=6, adds=3, divs=2)


@pytest.mark.parametrize(
    ("name", "inputs", "result", "attributes", "cost"),
    [
        # 3 columns of 2 numbers, of each column one product; of all 6 numbers five
        ("prod.dim_int", [(2, 3, 2)], (3, 2), {"dim": 0}, PRODUCT * 3),
        ("prod.default", [(2, 3, 2)], (2,), {}, PRODUCT * 5),
        ("cumsum.default", [(2, 3, 2)], (2, 3, 2), {"dim": 1}, Cost(adds=12)),
        ("addcmul.default", [(6, 2)] * 3, (6, 2), {}, (PRODUCT + Cost(adds=2)) * 6),
        # the product, both parts times the value, both parts added
        (
            *("addcmul.default", [(6, 2)] * 3, (6, 2), {"value": 3.0}),
            (PRODUCT + Cost(muls=2, adds=2)) * 6,
        ),
        ("addcdiv.default", [(6, 2)] * 3, (6, 2), {}, (QUOTIENT + Cost(adds=2)) * 6),
        # all 12 parts squared, 11 sums, one root
        (
            *("linalg_vector_norm.default.complex", [(2, 3, 2)], (), {"ord": 2.0}),
            Cost(muls=12, adds=11, specials=1),
        ),
        ("eq.Tensor", [(2, 3, 2)] * 2, (2, 3), {}, Cost(compares=12)),
        # two rows of 4 numbers are added to rows of five
        (
            *("index_add.default", [(5, 4, 2), "2:int64", (2, 4, 2)], (5, 4, 2), {}),
            Cost(adds=2 * 4 * 2),
        ),
        # e^(w log z): 3 specials, 2 muls, an add; a product; 3 specials, 2 muls
        (
            *("pow.Tensor_Tensor", [(6, 2)] * 2, (6, 2), {}),
            Cost(specials=6, muls=8, adds=3) * 6,
        ),
        ("pow.Scalar", [(6, 2)], (6, 2), {"self_": 2.0}, Cost(specials=3, muls=4) * 6),
    ],
)
def test_sums_products_and_powers(name, inputs, result, attributes, cost):
    """A product is 4 muls and 2 adds, a quotient 6 muls, 3 adds and 2 divs, a sum 2 adds."""
    assert work(to_node(f"torch.ops::aten.{name}", inputs, [result], **attributes)) == cost
