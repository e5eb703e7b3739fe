"""Custom operators in branches, loops and checkpoints, and such as return lists.

The operand is 3 x 4 and the weight 4 x 4, so that one product is 48 MACs; so is the layer.
"""

from pathlib import Path

import pytest

import crossflops

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

PRODUCT = 3 * 4 * 4


@torch.library.custom_op("control37::product", mutates_args=())
def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """With a backward pass, and a kernel in Python."""
    return x @ w.t()


product.register_fake(lambda x, w: x.new_empty(x.shape[0], w.shape[0]))


def gradients_of_product(ctx, gradient):
    """Return the gradients of x and w."""
    x, w = ctx.saved_tensors
    return gradient @ w, gradient.t() @ x


product.register_autograd(
    gradients_of_product, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)


@torch.library.custom_op("control37::products", mutates_args=())
def products(xs: list[torch.Tensor], w: torch.Tensor) -> list[torch.Tensor]:
    """It takes and returns a list."""
    return [x @ w.t() for x in xs]


products.register_fake(lambda xs, w: [x.new_empty(x.shape[0], w.shape[0]) for x in xs])

LIBRARY = torch.library.Library("control37", "FRAGMENT")  # without kernels
LIBRARY.define("closed(Tensor x, Tensor w, Tensor? bias=None) -> Tensor")
LIBRARY.define("closed_list(Tensor[] xs, Tensor w, int[2] n=[1, 2]) -> Tensor[]")
torch.library.register_fake("control37::closed")(
    lambda x, w, bias=None: x.new_empty(x.shape[0], w.shape[0])
)
torch.library.register_fake("control37::closed_list")(
    lambda xs, w, n=(1, 2): [x.new_empty(x.shape[0], w.shape[0]) for x in xs]
)
OPERATORS = torch.ops.control37


class Model(torch.nn.Module):
    """A layer, and a function of its result and a weight."""

    def __init__(self, function):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4, bias=False)
        self.w = torch.nn.Parameter(torch.ones(4, 4))
        self.function = function

    def forward(self, x):
        return self.function(self.layer(x), self.w)


def branch(x, w):
    """The larger branch has two products."""
    return torch.cond(
        x.sum() > 0,
        lambda x: product(x, w),
        lambda x: product(product(x, w), w),
        (x,),
    )


def scan(x, w):
    """Two products in each of 3 steps."""
    from torch._higher_order_ops.scan import scan

    return scan(lambda h, t: (product(h, w), product(t[None], w)[0]), x, x, dim=0)[0]


def map_rows(x, w):
    """One row in each of 3 steps."""
    from torch._higher_order_ops.map import map as map_rows

    return map_rows(lambda t, w: product(t[None], w)[0], x, w)


@pytest.mark.parametrize(
    ("function", "calls", "macs"),
    [(branch, 2, 2 * PRODUCT), (scan, 6, 3 * (PRODUCT + PRODUCT // 3)), (map_rows, 3, PRODUCT)],
)
def test_an_operator_in_control_flow_is_opened(function, calls, macs):
    """Its row has the work of all runs of its body."""
    report = crossflops.count(Model(function), torch.ones(3, 4))
    assert report.macs == PRODUCT + macs
    assert not report.uncounted
    (row,) = report.custom_operators
    assert (row.by, row.calls, row.macs) == ("body", calls, macs)


def test_an_uncounted_operator_in_the_smaller_branch_is_named():
    """A branch is the larger one only if all of the others is counted."""
    model = Model(
        lambda x, w: torch.cond(
            x.sum() > 0, lambda x: OPERATORS.closed(x, w), lambda x: x + 1, (x,)
        )
    )
    report = crossflops.count(model, torch.ones(3, 4))
    (row,) = report.uncounted
    assert row.op == "torch.ops.control37.closed.default"
    (chosen,) = report.branches
    assert "then_branch 0 MACs 0 FLOPs without 1 uncounted node" in chosen.counted


def test_operators_of_two_branches_keep_their_names(tmp_path: Path):
    """The nodes of both branches have one name in their programs, and other operands."""
    own = tmp_path / "own.py"
    own.write_text(
        "import crossflops\n"
        '@crossflops.operator("control37::closed")\n'
        "def closed(call):\n"
        "    assert call.names == ('x', 'w', 'bias')[: len(call.inputs)], call.names\n"
        "    return crossflops.Cost(macs=100 if call.has_input('bias') else 10)\n"
    )
    model = Model(
        lambda x, w: torch.cond(
            x.sum() > 0,
            lambda x: OPERATORS.closed(x, w),
            lambda x: OPERATORS.closed(x, w, w[0]),
            (x,),
        )
    )
    assert crossflops.count(model, torch.ones(3, 4), formulas=[own]).macs == PRODUCT + 100


def run_in_checkpoint(function):
    """Return the function in a checkpoint."""
    from torch.utils.checkpoint import checkpoint

    return lambda x, w: checkpoint(function, x, w, use_reentrant=False)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x, w: torch.tanh(product(x, w)), 1),
        (lambda x, w: product(product(x, w), w), 2),
        (lambda x, w: torch.tanh(torch.ops.aten.mm(x, w)), 1),
    ],
    ids=["operator", "two operators", "operator of PyTorch"],
)
def test_a_checkpoint_runs_operators_again(function, count):
    """An operator that a checkpoint calls directly, and not by a function of torch."""
    step = crossflops.count(
        Model(run_in_checkpoint(function)), torch.ones(3, 4), train=True
    ).training
    assert step.recomputed_macs == count * PRODUCT
    assert step.backward_input_macs == count * PRODUCT
    assert step.backward_weight_macs == (1 + count) * PRODUCT


@pytest.mark.parametrize("count", [1, 2])
def test_each_tensor_of_a_list_is_a_result(count, tmp_path: Path):
    """A list is given, and the default of a list argument."""
    own = tmp_path / "own.py"
    own.write_text(
        "import crossflops\n"
        '@crossflops.operator("control37::closed_list", backward="none")\n'
        "def closed_list(call):\n"
        "    assert call.attributes['n'] == (1, 2)\n"
        "    assert all(result.shape == (3, 4) for result in call.outputs)\n"
        "    return crossflops.Cost(macs=1000 * len(call.outputs))\n"
    )

    def call_lists(x, w):
        """One list is passed on to the next operator."""
        return sum(OPERATORS.closed_list(products([x] * count, w), w))

    report = crossflops.count(Model(call_lists), torch.ones(3, 4), formulas=[own])
    assert report.macs == PRODUCT + count * PRODUCT + count * 1000


def test_nothing_flows_back_through_a_formula_without_gradient(tmp_path: Path):
    """Also where its result is the result of the model: the layer has no gradient."""
    own = tmp_path / "own.py"
    own.write_text(
        "import crossflops\n"
        '@crossflops.operator("control37::closed", backward="none")\n'
        "def closed(call):\n"
        "    return crossflops.Cost(macs=1)\n"
    )
    model = Model(OPERATORS.closed)
    step = crossflops.count(model, torch.ones(3, 4), train=True, formulas=[own]).training
    assert (step.backward_input_macs, step.backward_weight_macs) == (0, 0)
    assert not step.uncounted
