"""Work on complex numbers in whole PyTorch models, as the export hands it over."""

import pytest

import crossflops
from tests.models import nn, torch

pytestmark = pytest.mark.torch
ROWS = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))  # 12 numbers


class OnComplex(nn.Module):
    """A function of a complex tensor, whose parts come and go as real ones."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, parts):
        """The parts of what the function gives."""
        return torch.view_as_real(self.function(torch.view_as_complex(parts)))


@pytest.mark.parametrize(
    "function",
    [lambda z: z * z, lambda z: z**2, lambda z: z.square(), lambda z: z.cumprod(0)],
    ids=["product", "power", "square", "running product"],
)
def test_a_product_of_each_number(function):
    """(a + ib)(c + id) = ac - bd + i(ad + bc): 4 muls and 2 adds, 12 times."""
    totals = crossflops.count(OnComplex(function), ROWS).totals
    assert (totals.macs, totals.muls, totals.adds, totals.specials) == (0, 48, 24, 0)


@pytest.mark.parametrize("name", ["inv", "cholesky", "eigvals", "qr"])
def test_what_is_counted_for_real_matrices_alone_is_named(name):
    """Two parts of a number are no axis of a matrix: [2, 2, 2] is not a batch of two of them."""
    real = torch.stack([torch.eye(2), torch.zeros(2, 2)], -1)
    function = getattr(torch.linalg, name)
    first = (lambda z: function(z)[0]) if name == "qr" else function
    report = crossflops.count(OnComplex(first), real)
    assert report.totals.macs == report.totals.muls == 0
    assert any(row.op.endswith(".complex") for row in report.uncounted)


class Scaled(nn.Module):
    """3 times a sparse product, with nothing added."""

    def forward(self, x, y):
        """Numbers of Python are arguments of the operator."""
        return torch.sparse.addmm(x, x.to_sparse(), y, beta=0, alpha=3.0)


def test_numbers_that_an_operator_is_given_are_known():
    """4 stored elements x 4 columns, a factor for each of 16 results, no sum for a beta of 0."""
    totals = crossflops.count(Scaled(), (torch.eye(4), torch.ones(4, 4))).totals
    assert (totals.macs, totals.muls, totals.adds) == (16, 16, 0)


class OfBoth(nn.Module):
    """The same functions of complex and of real numbers, and one of a number of Python."""

    def forward(self, z, x):
        """Each has its own work."""
        return z.exp(), x.exp(), 2.0**z, z.sqrt(), x.sqrt()


def test_real_numbers_keep_their_work_beside_complex_ones():
    """Of 6 complex numbers and 10 real ones: e^z is 3 specials and 2 muls, e^x 1 special.

    2^z is e^z and 2 muls; the root of z is 3 specials, 4 muls, 3 adds, a compare, and of x one.
    """
    report = crossflops.count(OfBoth(), (torch.randn(6, dtype=torch.complex64), torch.rand(10)))
    work = [(row.op.rpartition("aten.")[2], row.flops) for row in report.nodes if row.flops]
    assert not report.uncounted
    assert work == [
        ("exp.default", 30), ("Exp", 10), ("pow.Scalar", 42), ("sqrt.default", 66), ("Sqrt", 10)
    ]  # fmt: skip
