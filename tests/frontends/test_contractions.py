"""PyTorch's contractions and what is made of them: each is counted, by hand or by its parts."""

import pytest

import crossflops
from tests.models import Apply, F, nn, torch

pytestmark = pytest.mark.torch
linalg = torch.linalg


def rand(*shape):
    """Random numbers."""
    return torch.randn(*shape)


# The function, its operands, the MACs by hand: n(result) x the extents that are summed.
CASES = {
    "conv_tbc": (lambda x, w, b: torch.conv_tbc(x, w, b, 1), [(10, 2, 4), (3, 4, 5), (5,)], 1200),
    "vecdot": (linalg.vecdot, [(3, 8), (3, 8)], 24),
    "vecdot of rows": (lambda x, y: linalg.vecdot(x, y, dim=0), [(3, 8), (3, 8)], 24),
    "vecdot, broadcast": (linalg.vecdot, [(2, 3, 8), (3, 8)], 48),
    "vdot": (torch.vdot, [(8,), (8,)], 8),
    "inner": (torch.inner, [(3, 8), (4, 8)], 96),
    "tensordot": (lambda x, y: torch.tensordot(x, y, 2), [(3, 4, 5), (4, 5, 6)], 360),
    "multi_dot": (lambda *m: linalg.multi_dot(m), [(2, 3), (3, 4), (4, 5)], 2 * 12 + 2 * 20),
    "matrix_power": (lambda m: linalg.matrix_power(m, 5), [(4, 4)], 3 * 64),
    "addbmm": (torch.addbmm, [(3, 5), (2, 3, 4), (2, 4, 5)], 120),
    "addmv": (torch.addmv, [(3,), (3, 4), (4,)], 12),
    "outer": (torch.outer, [(3,), (4,)], 0),
    "kron": (torch.kron, [(3, 2), (4, 5)], 0),
    "cov": (torch.cov, [(3, 8)], 72),
    "corrcoef": (torch.corrcoef, [(3, 8)], 72),
    "block_diag": (lambda m: torch.block_diag(m, m) @ torch.ones(8), [(4, 4)], 64),
    "lstm_cell": (
        lambda x, h, c, w, u: torch.lstm_cell(x, (h, c), w, u),
        [(2, 4), (2, 5), (2, 5), (20, 4), (20, 5)],
        2 * 20 * 9,
    ),
}


class Together(nn.Module):
    """Every case as a module of its own, so that one count shows all of them."""

    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleDict(parts)

    def forward(self, *inputs):
        return [part(*given) for part, given in zip(self.parts.values(), inputs, strict=True)]


def by_part(parts, *inputs):
    """What a report shows, and the MACs of each part."""
    report = crossflops.count(Together(parts), inputs)
    macs = {row.path.removeprefix("parts."): row.macs for row in report.modules}
    return report, {name: macs[name] for name in parts}


def test_each_contraction_is_counted():
    """So many MACs, and nothing without a count."""
    parts = {
        name: Apply(lambda _, *given, run=function: run(*given))
        for name, (function, _, _) in CASES.items()
    }
    inputs = [tuple(rand(*shape) for shape in shapes) for _, shapes, _ in CASES.values()]
    report, counted = by_part(parts, *inputs)
    assert not report.uncounted
    assert counted == {name: macs for name, (_, _, macs) in CASES.items()}


@pytest.mark.parametrize(
    ("function", "inputs", "macs"),
    [
        (
            lambda x, w: torch._int_mm(x, w),
            (torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 8, dtype=torch.int8)),
            32 * 16 * 8,
        ),
        (
            lambda x, w, s: torch.ops.aten._weight_int8pack_mm(x, w, s),
            (rand(4, 32).bfloat16(), torch.ones(16, 32, dtype=torch.int8), rand(16).bfloat16()),
            4 * 32 * 16,
        ),
        (
            lambda x, w, s: torch._scaled_mm(x, w.t(), s, s, out_dtype=torch.bfloat16),
            (*(rand(16, 32).to(torch.float8_e4m3fn) for _ in range(2)), torch.tensor(1.0)),
            16 * 32 * 16,
        ),
    ],
    ids=["int8", "packed int8", "float8"],
)
def test_products_of_few_bits(function, inputs, macs):
    """M x K x N."""
    report = crossflops.count(Apply(lambda _, *given: function(*given)), inputs)
    assert (report.macs, report.uncounted) == (macs, ())


@pytest.mark.parametrize(
    ("function", "shapes", "flops"),
    [
        # n^2 divs, n(n-1)^2 muls and subs: 16 + 2 * 36
        (lambda m: linalg.matrix_power(m, -1), [(4, 4)], 88),
        # the same and one product of 4 x 4 x 4
        (lambda m: linalg.matrix_power(m, -2), [(4, 4)], 88 + 128),
        (lambda m: linalg.tensorinv(m, ind=1), [(4, 2, 2)], 88),
        # 5 products of 4 x 4 x 4
        (linalg.matrix_exp, [(4, 4)], 640),
        # 10 pairs of 4: 4 subs, 4 muls, 3 adds and a root
        (F.pdist, [(5, 4)], 120),
    ],
    ids=["inverse", "its square", "tensorinv", "exponential", "pdist"],
)
def test_functions_that_contain_products(function, shapes, flops):
    """FLOPs by hand."""
    report = crossflops.count(
        Apply(lambda _, *given: function(*given)), tuple(rand(*shape) for shape in shapes)
    )
    assert not report.uncounted
    assert report.flops == flops


@pytest.mark.parametrize(
    ("function", "macs"),
    [
        # the exponential of an 8 x 8 matrix of blocks takes 8 times 5 products
        (linalg.matrix_exp, 8 * 5 * 64),
        # the inverse twice on the left and on the right, and two products for the square
        (lambda m: linalg.matrix_power(m, -2), 2 * 64 + 2 * 64),
    ],
    ids=["exponential", "power"],
)
def test_gradients_of_functions_of_matrices(function, macs):
    """Beside the gradient of the weight in its product with a 4 x 2: 4 * 4 * 2 MACs."""
    model = Apply(lambda s, x: function(s.weight) @ x)
    model.weight = nn.Parameter(torch.eye(4))
    step = crossflops.count(model, (rand(4, 2),), train=True).training
    assert step.backward_weight_macs + step.backward_input_macs == macs + 32


class Constant(nn.Module):
    """A sum of the input and of work on constants."""

    def __init__(self, function, **held):
        super().__init__()
        self.function = function
        for name, value in held.items():
            if isinstance(value, nn.Module | nn.Parameter):
                setattr(self, name, value)
            else:
                self.register_buffer(name, value)

    def forward(self, x):
        return x.sum() + self.function(self)


def without_gradients(function):
    """The function under no_grad."""

    def run(model):
        with torch.no_grad():
            return function(model)

    return run


IDENTITY = torch.eye(2, 3)[None]
SIZE = (1, 3, 8, 8)
CONSTANTS = {
    "grid of a buffer": (
        Constant(lambda s: F.affine_grid(s.theta, SIZE, align_corners=False), theta=IDENTITY),
        64 * 2 * 3,
    ),
    "grid of what is made": (
        Constant(lambda s: F.affine_grid(torch.eye(2, 3)[None], SIZE, align_corners=False)),
        64 * 2 * 3,
    ),
    "two parameters": (
        Constant(lambda s: s.a @ s.b, a=nn.Parameter(rand(8, 4)), b=nn.Parameter(rand(4, 8))),
        256,
    ),
    "two buffers": (Constant(lambda s: s.a @ s.b, a=rand(8, 4), b=rand(4, 8)), 256),
    "without gradients": (
        Constant(without_gradients(lambda s: s.a @ s.b), a=rand(8, 4), b=rand(4, 8)),
        256,
    ),
    "small": (Constant(lambda s: torch.eye(2) @ torch.ones(2, 2)), 8),
    "made": (Constant(lambda s: torch.eye(8) @ torch.linspace(0, 1, 8)), 64),
    "positions": (
        Constant(
            lambda s: s.net(torch.arange(8.0)[:, None]),
            net=nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1)),
        ),
        256,
    ),
    "attention": (
        Constant(lambda s: F.scaled_dot_product_attention(s.q, s.q, s.q), q=rand(1, 2, 4, 8)),
        2 * 2 * 4 * 4 * 8,
    ),
}


@pytest.mark.parametrize("training", [False, True])
def test_work_on_constants_is_in_the_total_and_shown_apart(training):
    """Whether it depends on the input or not, the outputs depend on it."""
    parts = {name: model.train(training) for name, (model, _) in CONSTANTS.items()}
    report, counted = by_part(parts, *[(rand(2, 3),)] * len(parts))
    assert counted == {name: macs for name, (_, macs) in CONSTANTS.items()}
    assert report.totals.constant_macs == report.macs


def positions(rows, width):
    """The sinusoidal table of Vaswani et al., 2017."""
    at = torch.arange(rows).float()[:, None]
    rates = torch.exp(torch.arange(0, width, 2).float() * (-9.0 / width))
    table = torch.zeros(rows, width)
    table[:, 0::2] = torch.sin(at * rates)
    table[:, 1::2] = torch.cos(at * rates)
    return table


def cosines(n):
    """The matrix of a discrete cosine transform."""
    at = torch.arange(float(n))
    return torch.cos((3.14 / n) * (at[None] + 0.5) * at[:, None]) * 0.5


# What makes a table of n rows, and its FLOPs by hand.
TABLES = {
    # n adds, n muls by pi / n, then n^2 muls, cosines and muls by the scale
    "cosines": (cosines, lambda n: 2 * n + 3 * n * n),
    # 2 muls, 2 exps; twice the 2n products, 2n sines, 2n cosines
    "positions": (lambda n: positions(n, 4), lambda n: 4 + 8 * n),
    # start + i * step, and a square each
    "linspace": (lambda n: torch.linspace(-1, 1, n) ** 2, lambda n: 3 * n),
    "logspace": (lambda n: torch.logspace(0, 1, n), lambda n: 3 * n),
    "of integers": (lambda n: torch.arange(n) / n, lambda n: n),
    "softmax": (lambda n: torch.ones(n).softmax(0), lambda n: (n - 1) + 3 * n + (n - 1)),
    "mean": (lambda n: torch.arange(float(n)).mean(), lambda n: n),
    # a mean, n differences and squares, their mean, which is scaled by n / (n - 1)
    "variance": (lambda n: torch.arange(float(n)).var(), lambda n: 4 * n + 2),
    "mask": (lambda n: (1.0 - torch.ones(n, n).tril()) * -1e9, lambda n: 2 * n * n),
    # -i, a power, and n for each of n positions
    "slopes": (lambda n: 2.0 ** -torch.arange(1.0, n + 1), lambda n: 2 * n),
    "scalars": (lambda n: torch.tensor(2.0) * torch.tensor(3.0) * n, lambda n: 2),
    # n^2 divs, n(n-1)^2 muls and subs
    "inverse": (lambda n: torch.inverse(torch.eye(n)), lambda n: n * n + 2 * n * (n - 1) ** 2),
}


def test_a_table_is_counted_whatever_its_size():
    """Small tables take work as large ones do; arithmetic of integers and shapes is none."""
    parts = {
        f"{name} {n}": Apply(lambda _, x, make=make, n=n: x + make(n).sum())
        for name, (make, _) in TABLES.items()
        for n in (4, 12)
    }
    report = crossflops.count(Together(parts), [(torch.zeros(1),)] * len(parts))
    assert not report.uncounted
    rows = {row.path.removeprefix("parts."): row for row in report.modules}
    for name, (make, flops) in TABLES.items():
        for n in (4, 12):
            summed = make(n).numel() - 1  # and the add to the input
            assert rows[f"{name} {n}"].flops == flops(n) + summed + 1, (name, n)
