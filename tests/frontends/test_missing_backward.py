"""Operators and functions through which PyTorch cannot train: a step names them, and the remedy.

`Model` is a linear layer 8 -> 8, an operator that multiplies 8 -> 6, and a linear layer 6 -> 2, on
3 rows: 192, 144 and 36 MACs.
"""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import crossflops  # noqa: E402

pytestmark = pytest.mark.torch

FIRST, OPERATOR, LAST = 3 * 8 * 8, 3 * 8 * 6, 3 * 6 * 2


@torch.library.custom_op("missing::product", mutates_args=())
def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Without `register_autograd`."""
    return F.linear(x, w)


@product.register_fake
def _(x, w):
    return x.new_empty(x.shape[0], w.shape[0])


@torch.library.triton_op("missing::kernel_product", mutates_args=())
def kernel_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """An operator that may launch kernels of Triton, without `register_autograd`."""
    return F.linear(x, w)


@torch.library.custom_op("missing::trainable_product", mutates_args=())
def trainable_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """With a backward pass, which multiplies once, for x alone."""
    return F.linear(x, w)


@trainable_product.register_fake
def _(x, w):
    return x.new_empty(x.shape[0], w.shape[0])


trainable_product.register_autograd(
    lambda ctx, gradient: (gradient @ ctx.saved_tensors[0], None),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1]),
)

LIBRARY = torch.library.Library("missing", "FRAGMENT")
for _name, _key in (("explicit", "CompositeExplicitAutograd"), ("kernel", "CPU")):
    LIBRARY.define(f"{_name}(Tensor x, Tensor w) -> Tensor")
    LIBRARY.impl(_name, lambda x, w: F.linear(x, w), _key)
LIBRARY.impl("kernel", lambda x, w: x.new_empty(x.shape[0], w.shape[0]), "Meta")


class Forward(torch.autograd.Function):
    """A function without a backward pass."""

    @staticmethod
    def forward(ctx, x, w):
        return F.linear(x, w)


class Model(nn.Module):
    """Two layers, and the operator between them; without gradients if it is `detached`."""

    def __init__(self, call, detached: bool = False) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8, bias=False), nn.Linear(6, 2, bias=False)
        self.w = nn.Parameter(torch.ones(6, 8))
        self.call, self.detached = call, detached

    def forward(self, x):
        x = self.first(x)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.detached):
            y = self.call(x, self.w)
        return self.last(y)


def _step(model: nn.Module, formulas: tuple[str, ...] = ()) -> crossflops.Report:
    return crossflops.count(model, (torch.ones(3, 8),), train=True, formulas=formulas).training


MISSING = {
    "missing::product": (torch.ops.missing.product, "register_autograd"),
    "missing::kernel_product": (torch.ops.missing.kernel_product, "register_autograd"),
    "Forward": (Forward.apply, "a method backward to the class"),
}


@pytest.mark.parametrize("name", MISSING)
def test_pytorch_cannot_train_through_it(name: str) -> None:
    """PyTorch raises in the backward pass of each of these operators and functions."""
    model = Model(MISSING[name][0])
    with pytest.raises((RuntimeError, NotImplementedError)):
        model(torch.ones(3, 8)).sum().backward()


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_backward_is_named_with_the_remedy(name: str) -> None:
    """Neither its body's gradients nor zero; what is before it and behind it is counted."""
    call, remedy = MISSING[name]
    step = _step(Model(call))
    (row,) = step.uncounted
    assert row.reason.startswith(f"{name} has no backward pass, so PyTorch raises an error")
    assert remedy in row.reason
    assert "give backward= in a formula" in row.reason
    assert step.forward_macs == FIRST + OPERATOR + LAST
    assert step.backward_input_macs == LAST
    assert step.backward_weight_macs == FIRST + LAST
    causes = {row.cause: row.macs for row in step.differences}
    assert causes == {"backward.first-layer": -FIRST, "backward.custom-function": -2 * OPERATOR}


def test_other_operators_of_the_model_keep_their_backward() -> None:
    """One multiplies once in its own backward pass, whatever another one lacks."""
    step = _step(Model(lambda x, w: product(trainable_product(x, w) @ w, w)))
    (row,) = step.uncounted
    assert row.reason.startswith("missing::product")
    assert step.forward_macs == FIRST + OPERATOR + OPERATOR + OPERATOR + LAST
    # the first product once, by `trainable_product`, and the second for both of its operands
    assert step.backward_input_macs + step.backward_weight_macs == (
        2 * LAST + OPERATOR + 2 * OPERATOR + FIRST
    )


@pytest.mark.parametrize("name", ["explicit", "kernel"])
def test_a_kernel_of_a_library_without_autograd_is_trained_by_its_body(name: str) -> None:
    """PyTorch differentiates what such a kernel of Python calls: the same gradients come."""
    model, plain = Model(getattr(torch.ops.missing, name)), Model(F.linear)
    plain.load_state_dict(model.state_dict())
    for own in (model, plain):
        own(torch.ones(3, 8)).sum().backward()
    assert torch.equal(model.w.grad, plain.w.grad)
    assert torch.equal(model.first.weight.grad, plain.first.weight.grad)
    step = _step(Model(getattr(torch.ops.missing, name)))
    assert not step.uncounted
    assert step.backward_input_macs == OPERATOR + LAST
    assert step.backward_weight_macs == FIRST + OPERATOR + LAST


@pytest.mark.parametrize(
    "call", [product, F.linear, trainable_product], ids=["product", "linear", "trainable"]
)
def test_an_operator_without_gradients_has_none_in_its_body(call) -> None:
    """As PyTorch leaves the gradients of what is before it empty."""
    model = Model(call, detached=True)
    model(torch.ones(3, 8)).sum().backward()
    assert model.first.weight.grad is None
    assert model.w.grad is None
    step = _step(Model(call, detached=True))
    assert not step.uncounted
    assert (step.backward_input_macs, step.backward_weight_macs) == (0, LAST)


def test_a_detached_operand_has_no_gradient_in_the_body() -> None:
    """Only the other factor has one, once."""

    def call(x, w):
        return torch.ops.missing.explicit(x.detach(), w)

    model = Model(call)
    model(torch.ones(3, 8)).sum().backward()
    assert model.first.weight.grad is None
    assert model.w.grad is not None
    step = _step(Model(call))
    assert not step.uncounted
    assert (step.backward_input_macs, step.backward_weight_macs) == (LAST, OPERATOR + LAST)


def test_a_formula_gives_the_backward_that_is_missing(tmp_path: Path) -> None:
    """Of an operator, and of a class."""
    own = tmp_path / "own.py"
    own.write_text(
        "import crossflops\n"
        "from crossflops import Cost, Gradient\n\n"
        "def back(call, wanted):\n"
        "    return Gradient({name: Cost(macs=5) for name in wanted})\n\n"
        '@crossflops.operator("missing::product", backward=back)\n'
        f'@crossflops.operator("own::Forward", module="{__name__}:Forward", backward=back)\n'
        "def product(call):\n"
        "    return Cost(macs=7)\n"
    )
    for name in ("missing::product", "Forward"):
        step = _step(Model(MISSING[name][0]), (str(own),))
        assert not step.uncounted
        assert step.forward_macs == FIRST + 7 + LAST
        assert step.backward_input_macs == 5 + LAST
        assert step.backward_weight_macs == FIRST + 5 + LAST
