"""The backward pass of operators that PyTorch derives as a whole, against what it dispatches."""

import pytest

from crossflops.verbs.api import count
from tests import executed
from tests.models import F, nn, torch

pytestmark = pytest.mark.torch
aten = torch.ops.aten
# By name: a function, and the shapes of what it is given. All of it has gradients.
OPERATORS = {
    "bilinear": (F.bilinear, [(4, 5), (4, 7), (6, 5, 7)]),
    "bilinear with a bias": (F.bilinear, [(4, 5), (4, 7), (6, 5, 7), (6,)]),
    "bilinear of one row": (F.bilinear, [(5,), (7,), (6, 5, 7)]),
    "bilinear of a batch": (F.bilinear, [(2, 3, 5), (2, 3, 5), (2, 5, 5)]),
    "a square": (lambda x, w: F.bilinear(x, x, w), [(3, 4), (2, 4, 4)]),
    "trilinear": (
        lambda x, w, y: aten._trilinear(x, w, y, [1, 3], [0], [1, 2], [2, 3]),
        [(4, 5), (6, 5, 7), (4, 7)],
    ),
    "trilinear by rows": (
        lambda x, y, z: aten._trilinear(x, y, z, [2], [1], [0], [2], 0),
        [(3, 4), (3, 5), (4, 5)],
    ),
    "trilinear along a sum": (
        lambda x, y, z: aten._trilinear(x, y, z, [], [], [], [0, 1], 1),
        [(3, 4), (3, 4), (3, 4)],
    ),
    "addmm": (torch.addmm, [(3,), (2, 4), (4, 3)]),
    "baddbmm": (torch.baddbmm, [(2, 2, 3), (2, 2, 4), (2, 4, 3)]),
    "matmul": (torch.matmul, [(2, 3, 4, 5), (5, 6)]),
    "einsum of three": (
        lambda x, w, y: torch.einsum("bi,oij,bj->bo", x, w, y),
        [(4, 5), (6, 5, 7), (4, 7)],
    ),
    "multi_dot": (lambda *x: torch.linalg.multi_dot(x), [(2, 9), (9, 3), (3, 8), (8, 4)]),
    "tensordot": (lambda x, y: torch.tensordot(x, y, dims=2), [(2, 3, 4), (3, 4, 5)]),
    "cov": (torch.cov, [(3, 5)]),
    "cdist": (torch.cdist, [(26, 3), (4, 3)]),
    "matrix_power": (lambda x: torch.linalg.matrix_power(x, 5), [(3, 3)]),
    "conv1d": (F.conv1d, [(2, 4, 9), (6, 2, 3), None, 2, 1, 1, 2]),
    "conv_transpose2d": (F.conv_transpose2d, [(1, 4, 5, 5), (4, 3, 3, 3), None, 2]),
    "affine_grid": (lambda x: F.affine_grid(x, [2, 1, 4, 5], align_corners=False), [(2, 2, 3)]),
    "grid_sample": (
        lambda x, grid: F.grid_sample(x, grid, align_corners=False),
        [(1, 2, 4, 4), (1, 3, 3, 2)],
    ),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=torch.zeros(3, 5)),
        [(1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 6)],
    ),
}


class Trained(nn.Module):
    """Each operator on sums of an input and a parameter: something is trained before all of it."""

    def __init__(self, only=None):
        super().__init__()
        self.parts = nn.ModuleDict()
        self.names = [name for name in OPERATORS if only in (None, name)]
        for name in self.names:
            self.parts[name.replace(" ", "_")] = Operator(*OPERATORS[name])

    def forward(self, x):
        return [part(x) for part in self.parts.values()]


class Operator(nn.Module):
    """A function of parameters, to each of which the number x is added."""

    def __init__(self, function, operands):
        super().__init__()
        self.function, self.operands = function, operands
        shapes = [shape for shape in operands if isinstance(shape, tuple)]
        self.weights = nn.ParameterList(torch.rand(shape) for shape in shapes)

    def forward(self, x):
        weights = iter(self.weights)
        given = [next(weights) + x if isinstance(o, tuple) else o for o in self.operands]
        return self.function(*given)


@pytest.fixture(scope="module")
def counted():
    """The rows of all operators, counted once."""
    report = count(Trained(), torch.rand(()), train=True)
    assert not report.uncounted
    return {row.path.removeprefix("parts."): row for row in report.modules}, report.training


@pytest.mark.parametrize("name", OPERATORS)
def test_a_step_runs_the_products_of_its_derivatives(name, counted):
    """All operands trained. What a kernel multiplies forward (cdist) is not dispatched."""
    rows, step = counted
    row = rows[name.replace(" ", "_")].training
    alone = Trained(name)
    assert row.macs - row.forward_macs == executed.step(alone, (torch.rand(()),))[1]
    assert not [held for held in step.uncounted if held.op == name]


def test_the_kernel_of_bilinear_runs_these_products():
    """As the profiler sees inside `_trilinear`: bmm, and mul with a product for each element."""
    from torch import profiler

    model, rows = nn.Bilinear(5, 7, 6), (torch.rand(4, 5), torch.rand(4, 7))
    activities = [profiler.ProfilerActivity.CPU]
    with profiler.profile(activities=activities, record_shapes=True) as seen:
        model(*rows).sum().backward()
    products = 0
    for event in seen.events():
        around = event.cpu_parent
        while around is not None and around.name != "aten::_trilinear":
            around = around.cpu_parent
        if around is not None and event.name == "aten::bmm":
            first, second = event.input_shapes[:2]
            products += first[0] * first[1] * first[2] * second[2]
        elif around is not None and event.name == "aten::mul":
            shapes = [shape for shape in event.input_shapes if shape]
            products += torch.broadcast_shapes(*shapes).numel()
    assert products == 1008 + 960


class Bilinears(nn.Module):
    """One operand trained at a time, a layer without gradients, and one of a detached operand."""

    def __init__(self):
        super().__init__()
        shapes = [(4, 5), (4, 7), (6, 5, 7)]
        self.weights = nn.ParameterList(torch.rand(shape) for shape in shapes)
        self.alone = nn.ModuleList(Alone() for _ in shapes)
        self.cut, self.beside = Alone(), Alone()
        self.first, self.second = nn.Linear(2, 5), nn.Linear(2, 7)

    def forward(self, x1, x2, w, x):
        given = [x1, x2, w]
        results = []
        for place, (weight, part) in enumerate(zip(self.weights, self.alone, strict=True)):
            results.append(part(*given[:place], weight, *given[place + 1 :]))
        with torch.no_grad():
            results.append(self.beside(self.first(x), self.second(x), w))
        return *results, self.cut(self.first(x).detach(), self.second(x), w)


class Alone(nn.Module):
    """The function, in a module of its own."""

    def forward(self, x1, x2, w):
        return F.bilinear(x1, x2, w)


def test_bilinear_by_hand():
    """4 rows of 5 and 7 to 6 outputs: forward x1 W of 4 * 6 * 5 * 7, and that by x2 of 4 * 6 * 7.

    dx1 is dY W and that by x2, 840 each; dx2 x1 W and that by dY, 840 + 168; dW x1 dY of 4 * 5 * 6
    and that by x2, 840. Behind a detached x1 there is dx2 alone, and none without gradients.
    """
    inputs = (torch.rand(4, 5), torch.rand(4, 7), torch.rand(6, 5, 7), torch.rand(4, 2))
    report = count(Bilinears(), inputs, train=True)
    rows = {row.path: row.training for row in report.modules}
    assert {row.forward_macs for path, row in rows.items() if "." in path} == {1008}
    backward = [row.macs - row.forward_macs for path, row in rows.items() if "alone." in path]
    assert backward == [1680, 1008, 960]
    assert rows["cut"].macs - rows["cut"].forward_macs == 1008
    assert rows["beside"].macs == rows["beside"].forward_macs == 1008
    assert [rows[name].backward_weight_macs for name in ("first", "second")] == [0, 4 * 2 * 7]
