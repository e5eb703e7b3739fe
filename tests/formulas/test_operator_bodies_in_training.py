"""A tensor that the Python body of an operator detaches has no gradient in a training step.

The kernels are registered with `Library.impl`, so that autograd records what they call, as for a
plain function. Expected are the matrix products that autograd runs backward, by derivation: the
layer is 3 x 4 x 4 = 48 MACs, the product in a body 3 x 4 x 5 = 60. The layer's input has no
gradient.
"""

from collections.abc import Callable

import pytest

import crossflops

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

LAYER, PRODUCT = 3 * 4 * 4, 3 * 4 * 5
LIBRARY = torch.library.Library("bodies_in_training", "FRAGMENT")


def detach_weight(x, w):
    """The weight has no gradient."""
    return x @ w.detach().t()


def detach_operand(x, w):
    """Nothing flows to the layer."""
    return x.detach() @ w.t()


def read_data(x, w):
    """`.data` is a detached tensor."""
    return x @ w.data.t()


def disable_gradients(x, w):
    """Nothing flows back."""
    with torch.no_grad():
        return x @ w.t()


def detach_result(x, w):
    """Nothing flows back."""
    return (x @ w.t()).detach()


def detach_one_use(x, w):
    """One of two products has no gradient for x, the other none for w."""
    return x.detach() @ w.t() + x @ w.detach().t()


def detach_in_place(x, w):
    """A copy is detached in place."""
    return x.clone().detach_() @ w.t()


def restart_gradient(x, w):
    """A detached tensor gets a gradient of its own, which nobody reads: it is computed."""
    return x.detach().requires_grad_() @ w.t()


def call_other(x, w):
    """An operator in the body detaches the weight."""
    return torch.ops.bodies_in_training.detach_weight(x, w)


def keep_all(x, w):
    """Both operands have a gradient."""
    return x @ w.t()


# the product, and the MACs of the backward pass: of x, which needs the layer's weight, and of w
CASES: dict[Callable[..., object], tuple[int, int, int]] = {
    keep_all: (PRODUCT, PRODUCT, LAYER + PRODUCT),
    detach_weight: (PRODUCT, PRODUCT, LAYER),
    detach_operand: (PRODUCT, 0, PRODUCT),
    read_data: (PRODUCT, PRODUCT, LAYER),
    disable_gradients: (PRODUCT, 0, 0),
    detach_result: (PRODUCT, 0, 0),
    detach_one_use: (2 * PRODUCT, PRODUCT, LAYER + PRODUCT),
    detach_in_place: (PRODUCT, 0, PRODUCT),
    restart_gradient: (PRODUCT, PRODUCT, PRODUCT),
    call_other: (PRODUCT, PRODUCT, LAYER),
}
for kernel in CASES:
    LIBRARY.define(f"{kernel.__name__}(Tensor x, Tensor w) -> Tensor")
    LIBRARY.impl(kernel.__name__, kernel, "CPU")
    LIBRARY.impl(kernel.__name__, lambda x, w: x.new_empty(x.shape[0], w.shape[0]), "Meta")


class Model(torch.nn.Module):
    """A layer, and an operator on its result and a weight."""

    def __init__(self, operator):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4, bias=False)
        self.w = torch.nn.Parameter(torch.ones(5, 4))
        self.operator = operator

    def forward(self, x):
        return self.operator(self.layer(x), self.w)


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)
def test_a_body_detaches_as_a_function_does(kernel):
    """The step of the operator is that of its kernel as a plain function."""
    product, of_inputs, of_weights = CASES[kernel]
    operator = getattr(torch.ops.bodies_in_training, kernel.__name__)
    for called in (operator, kernel):
        step = crossflops.count(Model(called), torch.ones(3, 4), train=True).training
        assert step.forward_macs == LAYER + product
        assert (step.backward_input_macs, step.backward_weight_macs) == (of_inputs, of_weights)
        assert not step.uncounted


class Square(torch.autograd.Function):
    """A function with a backward pass of its own."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return (gradient + x @ w.t()) @ w, gradient.t() @ x


def run_checkpoint(x, w):
    """A part that runs again."""
    from torch.utils.checkpoint import checkpoint

    return checkpoint(lambda x, w: torch.tanh(x @ w.t()), x, w, use_reentrant=False)


def apply_function(x, w):
    """A custom autograd function."""
    return Square.apply(x, w)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [(run_checkpoint, "in a checkpoint, which"), (apply_function, "in Square, whose custom")],
)
def test_a_body_with_another_backward_is_named(kernel, reason):
    """A checkpoint or a custom function in a body is not followed, and the report says so."""
    name = kernel.__name__
    LIBRARY.define(f"{name}(Tensor x, Tensor w) -> Tensor")
    LIBRARY.impl(name, kernel, "CPU")
    LIBRARY.impl(name, lambda x, w: x.new_empty(x.shape[0], w.shape[0]), "Meta")
    operator = getattr(torch.ops.bodies_in_training, name)
    step = crossflops.count(Model(operator), torch.ones(3, 4), train=True).training
    assert any(row.reason.startswith(reason) for row in step.uncounted)
