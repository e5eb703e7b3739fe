"""Custom autograd functions: a training step is what their own backward pass runs."""

from itertools import product

import pytest
from msgspec.structs import replace

import crossflops
from crossflops.ir.training import matches_weight_pattern
from crossflops.ledger.training.weights import TrainedWeights
from crossflops.ledger.training.work import count_training_step, total_work
from crossflops.targets.request import Request
from crossflops.verbs.count import ModelBuild, custom_autograd_work_in_step, native_count

torch = pytest.importorskip("torch")

from torch.autograd import Function  # noqa: E402

from tests import executed  # noqa: E402
from tests.custom_functions import (  # noqa: E402
    RUNS,
    Again,
    Attention,
    FusedLoss,
    Half,
    Images,
    Layers,
    Product,
    Reverse,
    Round,
    SetUp,
    Stop,
    Swish,
    in_checkpoint,
)

pytestmark = pytest.mark.torch
FREEZES = [(), ("first",), ("w", "v", "inner.0")]


def freeze(model, frozen):
    """The model with these parameters frozen."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad = not any(
            matches_weight_pattern(name, pattern) for pattern in frozen
        )
    return model


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", RUNS)
def test_a_step_is_what_is_run(name, training):
    """Forward MACs, and those of the backward pass with what it does again; nothing is unknown."""
    model, x = Layers(RUNS[name]), torch.rand(2, 4)
    request = Request.from_arguments(model, x, setting=crossflops.Setting(training=training))
    native = native_count(request)[1]
    model.train(training)
    for frozen in FREEZES[:1] if training else FREEZES:
        own = custom_autograd_work_in_step(
            native, replace(request, frozen=frozen), ModelBuild(request)
        )
        exact = count_training_step(
            native.graph, TrainedWeights(native.trace, frozen, ()), own=own
        )
        step = total_work(exact)
        backward = step.backward.macs + step.recomputed.macs
        ran = executed.step(freeze(model, frozen), (x,))
        assert (frozen, step.forward.macs, backward) == (frozen, *ran)
        assert exact.unknown == ()
        freeze(model, ())


@pytest.mark.parametrize("frozen", [(), ("first",), ("w",), ("last",)])
def test_convolutions_by_torch_nn_grad(frozen):
    """Both gradients run, whatever is asked for."""
    model, x = freeze(Images(), frozen), torch.rand(1, 2, 4, 4)
    step = crossflops.count(model, x, train=True).training
    backward = step.backward_input_macs + step.backward_weight_macs + step.recomputed_macs
    assert (step.forward_macs, backward) == executed.step(model, (x,))
    assert step.uncounted == ()


# x [2, 4] through a layer of 40 MACs to [2, 5], what stands here, and a layer of 30 to [2, 3]; the
# first has no gradient of its input. A product of [2, 5] and [5, 5] has 50.
@pytest.mark.parametrize(
    ("run", "frozen", "parts"),
    [
        (lambda s, x: Product.apply(x, s.w), (), (120, 30 + 50, 40 + 50 + 30, 0)),
        # computed all the same: that of x, which nobody asks for, depends on an input
        (lambda s, x: Product.apply(x, s.w), ("first",), (120, 30 + 50, 50 + 30, 0)),
        # that of w, which is frozen, depends on none
        (lambda s, x: Product.apply(x, s.w), ("w",), (120, 30 + 50, 40 + 50 + 30, 0)),
        # there is nothing to hand a gradient to
        (lambda s, x: Product.apply(x, s.w), ("first", "w"), (120, 0, 30, 0)),
        (lambda s, x: SetUp.apply(x, 2.0, s.w), (), (120, 80, 120, 0)),
        # w v of 125 MACs has none behind a function that gives the weight no gradient
        (lambda s, x: Half.apply(x, s.w @ s.v), (), (245, 80, 70, 0)),
        # gradients go on to the layer before, though rounding has none
        (lambda s, x: Round.apply(x), (), (70, 30, 70, 0)),
        (lambda s, x: Reverse.apply(x), (), (70, 30, 70, 0)),
        # two layers of 60 run again; parameters get theirs in the function, 60 each
        (lambda s, x: Again.apply(s.inner, x), (), (190, 30 + 120, 40 + 120 + 30, 120)),
        (lambda s, x: Again.apply(s.inner, x), ("inner",), (190, 30 + 120, 70, 120)),
        # q k^T of 2 x 2 x 5 again, then dv, dp, dq and dk of 20 each; forward 20 twice
        (lambda s, x: Attention.apply(x, x, x), (), (110, 30 + 80, 70, 20)),
    ],
)
def test_parts_by_hand(run, frozen, parts):
    """Forward, gradients of inputs and of weights, run again."""
    step = crossflops.count(freeze(Layers(run), frozen), torch.rand(2, 4), train=True).training
    assert step.uncounted == ()
    assert parts == (
        step.forward_macs,
        step.backward_input_macs,
        step.backward_weight_macs,
        step.recomputed_macs,
    )


def test_other_work_by_hand():
    """Ten elements. Backward s is a sigmoid again; 1 - s, x (1 - s), 1 + that, s times it, and by
    the gradient: two adds and three muls.
    """
    plain, ours = (
        crossflops.count(Layers(run), torch.rand(2, 4), train=True).training
        for run in (lambda s, x: x, lambda s, x: Swish.apply(x))
    )
    assert ours.recomputed_flops - plain.recomputed_flops == 10
    assert ours.backward_input_flops - plain.backward_input_flops == 50
    assert ours.backward_weight_flops == plain.backward_weight_flops


def test_a_gradient_that_is_turned_round():
    """Ten signs change, where the forward pass has no node: the model has 190 MACs of a step."""
    plain, ours = (
        crossflops.count(Layers(run), torch.rand(2, 4), train=True).training
        for run in (lambda s, x: x, lambda s, x: Reverse.apply(x))
    )
    assert ours.backward_input_flops - plain.backward_input_flops == 10


def test_the_rule_of_thumb_leads_there():
    """3 x (40 + 50 + 30), without dx of the first, without dw: 50 more than derived where nobody
    asks for dx, and it is computed.
    """
    model = freeze(Layers(lambda s, x: Product.apply(x, s.w)), ("first",))
    step = crossflops.count(model, torch.rand(2, 4), train=True).training
    causes = {row.cause: row.macs for row in step.differences}
    assert causes == {
        "backward.first-layer": -40,
        "backward.frozen": -40 - 50,
        "backward.custom-function": 50,
    }
    assert step.three_forward_macs + sum(causes.values()) == step.macs == 280


def test_what_hands_no_gradient_on_and_leaves_no_trace_is_named():
    """The graph has no place where the gradients end."""
    model = Layers(lambda s, x: Stop.apply(x))
    step = crossflops.count(model, torch.rand(2, 4), train=True).training
    assert [row.reason for row in step.uncounted] == [
        "in an autograd.Function that returns no gradient; counted as if it returned one"
    ]


class Writing(Product):
    """Its backward pass has operators that write into tensors which they are given."""

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        own = torch.empty_like(x), torch.empty_like(w)
        torch.mm(grad, w.t(), out=own[0])
        torch.mm(x.t(), grad @ (w.t() @ w), out=own[1])
        return own


def test_a_backward_pass_that_writes_into_its_arguments_is_counted():
    """As Product, with two products more for the weight: [5, 5] and [2, 5] by [5, 5]."""
    steps = [
        crossflops.count(
            Layers(lambda s, x, run=function: run.apply(x, s.w)), torch.rand(2, 4), train=True
        ).training
        for function in (Product, Writing)
    ]
    assert [step.uncounted for step in steps] == [(), ()]
    plain, writing = (step.backward_input_macs + step.backward_weight_macs for step in steps)
    assert writing - plain == 5 * 5 * 5 + 2 * 5 * 5


class Reading(Product):
    """Reads a number in its backward pass."""

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        sign = 1 if float(grad.sum()) > 0 else -1
        return sign * (grad @ w.t()), x.t() @ grad


class Raising(Product):
    """Is for another device."""

    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("no kernel for this device. Install it")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (
            Reading,
            "it reads values with aten._local_scalar_dense.default, but is run without values",
        ),
        (Raising, "run without values it raised RuntimeError: no kernel for this device"),
    ],
)
def test_what_does_not_run_without_values_is_named(function, reason):
    """The derivatives of its forward pass are in the sums."""
    model = Layers(lambda s, x: function.apply(x, s.w))
    step = crossflops.count(model, torch.rand(2, 4), train=True).training
    assert (step.backward_input_macs, step.backward_weight_macs) == (80, 120)
    named = (
        "in an autograd.Function, which has a custom backward pass; counted as if it were derived "
        "automatically"
    )
    assert [row.reason for row in step.uncounted] == [f"{named} ({reason})"]


class Square(Function):
    """Makes the slope with its result."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x + x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


def test_what_the_forward_pass_makes_for_gradients_alone():
    """Ten elements: an add and a product back, of which the add is made forward."""
    plain, ours = (
        crossflops.count(Layers(run), torch.rand(2, 4), train=True).training
        for run in (lambda s, x: x, lambda s, x: Square.apply(x))
    )
    assert ours.uncounted == ()
    assert ours.forward_flops - plain.forward_flops == 10
    assert ours.backward_input_flops - plain.backward_input_flops == 20


# Sums as PyTorch dispatches them: the loss makes its gradients forward, of the weight where asked.
@pytest.mark.parametrize(
    ("kind", "frozen"),
    [
        *product(("plain", "stopping"), [(), ("first",), ("w",)]),
        *product(("reentrant",), [(), ("w",)]),
    ],
)
def test_a_loss_that_makes_its_gradients_forward(kind, frozen):
    """They are backward work, and in a checkpoint are made once more with the rest."""

    def run(s, x):
        return FusedLoss.apply(x, s.w).view(1)

    wrapped = run if kind == "plain" else in_checkpoint(run, kind == "reentrant")
    model, x = freeze(Layers(wrapped), frozen), torch.rand(2, 4)
    model.last = torch.nn.Identity()
    step = crossflops.count(model, x, train=True).training
    assert step.uncounted == ()
    assert step.macs == sum(executed.step(model, (x,)))


def test_parts_of_a_loss_that_makes_its_gradients_forward():
    """40 of the layer and 50 of the logits; dx and dw of these 50 each, and 40 of the layer."""
    model = Layers(lambda s, x: FusedLoss.apply(x, s.w))
    model.last = torch.nn.Identity()
    step = crossflops.count(model, torch.rand(2, 4), train=True).training
    assert (step.forward_macs, step.recomputed_macs) == (90, 0)
    assert (step.backward_input_macs, step.backward_weight_macs) == (50, 50 + 40)


def test_another_loss():
    """Of two custom products one is in the loss; the other one does not run backward."""
    model = Layers(lambda s, x: Product.apply(x, s.w))
    model.forward = lambda x: (Product.apply(x, model.v[:4]), Product.apply(x, model.w[:4]))
    step = crossflops.count(
        model, torch.rand(2, 4), train=True, loss=lambda result: result[0].sum()
    ).training
    # 2 x 4 x 5 each; dx is computed, too
    assert (step.forward_macs, step.backward_input_macs, step.backward_weight_macs) == (80, 40, 40)


def test_the_model_and_pytorch_are_as_before():
    """What is watched is watched for a while."""
    from torch.autograd.function import BackwardCFunction, Function, FunctionCtx

    before = [dict(vars(kind)) for kind in (Function, BackwardCFunction, FunctionCtx)]
    model = Layers(RUNS["again"])
    crossflops.count(model, torch.rand(2, 4), train=True)
    assert before == [dict(vars(kind)) for kind in (Function, BackwardCFunction, FunctionCtx)]
    assert all(parameter.grad is None for parameter in model.parameters())
