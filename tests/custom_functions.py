"""Models with a torch.autograd.Function, each odd in one way."""

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint


class Product(Function):
    """x w, and both gradients whatever is asked for."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad


class Asked(Product):
    """Gradients that are asked for."""

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        dx = grad @ w.t() if ctx.needs_input_grad[0] else None
        dw = x.t() @ grad if ctx.needs_input_grad[1] else None
        return dx, dw


class Once(Product):
    """Not to be differentiated twice."""

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad


class SetUp(Function):
    """The other style, with a factor and a flag that are no tensors, and defaults."""

    @staticmethod
    def forward(x, factor, w, flag=True):
        return factor * (x @ w)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.factor, w, _ = inputs
        ctx.save_for_backward(x, w)

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        grad = grad * ctx.factor
        return grad @ w.t(), None, x.t() @ grad, None


class Mapped(Function):
    """Under `vmap` by a rule that PyTorch makes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, w):
        return x @ w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad


class MappedByItself(Mapped):
    """Under `vmap` by a rule of its own."""

    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, x, w):
        rows = MappedByItself.apply(x.reshape(-1, x.shape[-1]), w)
        return rows.reshape(*x.shape[:-1], -1), 0


class Vjp(Product):
    """Its backward pass is called vjp."""

    backward = Function.backward

    @staticmethod
    def vjp(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad


class Half(Product):
    """No gradient for the weight."""

    @staticmethod
    def backward(ctx, grad):
        return grad @ ctx.saved_tensors[1].t(), None


class Again(Function):
    """A reentrant checkpoint of its own: parameters get their gradients directly."""

    @staticmethod
    def forward(ctx, run, x):
        ctx.run = run
        ctx.save_for_backward(x)
        return run(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            out = ctx.run(x)
        torch.autograd.backward(out, grad)
        return None, x.grad


class AgainByGrad(Function):
    """The same, with the parameters as operands."""

    @staticmethod
    def forward(ctx, run, x, *weights):
        ctx.run = run
        ctx.save_for_backward(x, *weights)
        return run(x)

    @staticmethod
    def backward(ctx, grad):
        x, *weights = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            out = ctx.run(x)
            wanted = [x, *(w for w in weights if w.requires_grad)]
            grads = iter(torch.autograd.grad(out, wanted, grad))
        dx = next(grads)
        return None, dx, *(next(grads) if w.requires_grad else None for w in weights)


class Swish(Function):
    """Keeps x alone, and computes the sigmoid again."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s * (1 + x * (1 - s)))


class Round(Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Reverse(Function):
    """Gradients change their sign; nothing is done forward."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad


class Stop(Reverse):
    """No gradient comes through."""

    @staticmethod
    def backward(ctx, grad):
        return None


class Two(Function):
    """Two results, a number that is not differentiable, and whole numbers."""

    @staticmethod
    def forward(ctx, x, v, w):
        ctx.save_for_backward(x, v, w)
        scores = x @ v
        most = scores.max()
        ctx.mark_non_differentiable(most)
        return scores, x @ w, most, scores.argmax(-1)

    @staticmethod
    def backward(ctx, first, second, _most, _places):
        x, v, w = ctx.saved_tensors
        return first @ v.t() + second @ w.t(), x.t() @ first, x.t() @ second


class Outer(Function):
    """Applies another one, and differentiates through it."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return Product.apply(x, w).relu()

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            x, w = (kept.detach().requires_grad_() for kept in ctx.saved_tensors)
            out = Product.apply(x, w).relu()
        return torch.autograd.grad(out, (x, w), grad)


class Convolution(Function):
    """Gradients by torch.nn.grad."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return nn.functional.conv2d(x, w, padding=1)

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        dx = torch.nn.grad.conv2d_input(x.shape, w, grad, padding=1)
        return dx, torch.nn.grad.conv2d_weight(x, w.shape, grad, padding=1)


class Accumulating(Product):
    """Adds the weight's gradient to a tensor of its own."""

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        buffer = torch.zeros_like(w)
        buffer.addmm_(x.t(), grad)
        return grad @ w.t(), buffer


class Attention(Function):
    """Keeps no scores: multiplies queries and keys again."""

    @staticmethod
    def forward(ctx, q, k, v):
        ctx.save_for_backward(q, k, v)
        return (q @ k.mT).softmax(-1) @ v

    @staticmethod
    def backward(ctx, grad):
        q, k, v = ctx.saved_tensors
        p = (q @ k.mT).softmax(-1)
        dp = grad @ v.mT
        ds = p * (dp - (dp * p).sum(-1, keepdim=True))
        return ds @ k, ds.mT @ q, p.mT @ grad


class FusedLoss(Function):
    """A sum of squared logits, row by row, with its gradients: of the weight where asked."""

    @staticmethod
    def forward(ctx, x, w):
        loss, dx = 0.0, torch.empty_like(x)
        dw = torch.zeros_like(w) if ctx.needs_input_grad[1] else None
        for row in range(len(x)):
            part = x[row : row + 1]
            logits = part @ w
            loss = loss + logits.square().sum()
            dx[row : row + 1] = (2 * logits) @ w.t()
            if dw is not None:
                dw.addmm_(part.t(), 2 * logits)
        ctx.save_for_backward(dx, dw)
        return loss

    @staticmethod
    def backward(ctx, grad):
        dx, dw = ctx.saved_tensors
        return dx * grad, None if dw is None else dw * grad


class Layers(nn.Module):
    """A layer, `run` with parameters of its own, and a layer: x [2, 4]."""

    def __init__(self, run):
        super().__init__()
        self.run = run
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)
        self.w, self.v = nn.Parameter(torch.rand(5, 5)), nn.Parameter(torch.rand(5, 5))
        self.inner = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 5))

    def forward(self, x):
        return self.last(self.run(self, self.first(x)))


class Images(nn.Module):
    """Two convolutions around one of a custom function: x [1, 2, 4, 4]."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 3, 1), nn.Conv2d(3, 2, 1)
        self.w = nn.Parameter(torch.rand(3, 3, 3, 3))

    def forward(self, x):
        return self.last(Swish.apply(Convolution.apply(self.first(x), self.w)))


def in_checkpoint(run, reentrant):
    """What runs, in a checkpoint."""
    return lambda s, x: checkpoint(lambda x: run(s, x), x, use_reentrant=reentrant)


def within(s, x):
    """A custom product at the end of a block, and one in the midst."""
    return Product.apply(s.inner(Swish.apply(Asked.apply(x, s.w))), s.v)


def looped(s, x):
    """The same function on the same weight, thrice, and once on another."""
    for _ in range(3):
        x = Asked.apply(x, s.w)
    return Product.apply(x, s.v)


def two(s, x):
    """Some of the results go on."""
    first, second, *_ = Two.apply(x, s.v, s.w)
    first, second, most, _ = Two.apply(first.detach() + second, s.w, s.v)
    return first * second + most


def mapped(function):
    """A function of [1, 5] over the rows of a batch."""
    return lambda s, x: torch.func.vmap(lambda row: function.apply(row, s.w))(x[:, None])[:, 0]


TAKEN, TAKEN_WITH_CONTEXT = Product.apply, SetUp.apply  # as a model keeps them


def outer_and_taken(stored, x):
    """One by its name, whose forward pass calls one that was taken before; then that one again."""
    return TAKEN(Outer.apply(x, stored.w), stored.w)


RUNS = {
    "taken before": lambda s, x: TAKEN(x, s.w),
    "taken before, set up": lambda s, x: TAKEN_WITH_CONTEXT(x, 2.0, s.w),
    "taken before and by name": outer_and_taken,
    "mapped": mapped(Mapped),
    "mapped by itself": mapped(MappedByItself),
    "product": lambda s, x: Product.apply(x, s.w),
    "asked": lambda s, x: Asked.apply(x, s.w),
    "once": lambda s, x: Once.apply(x, s.w),
    "set up": lambda s, x: SetUp.apply(x, 2.0, s.w),
    "vjp": lambda s, x: Vjp.apply(x, s.w),
    "half": lambda s, x: Half.apply(x, s.w * s.v),
    "transposed": lambda s, x: Asked.apply(x, s.w.t()),
    "made of weights": lambda s, x: x @ Product.apply(s.w, s.v),
    "both operands": lambda s, x: Product.apply(x, x.t()) @ x,
    "again": lambda s, x: Again.apply(s.inner, x),
    "again by grad": lambda s, x: AgainByGrad.apply(s.inner, x, *s.inner.parameters()),
    "swish": lambda s, x: s.inner(Swish.apply(x)),
    "round": lambda s, x: s.inner(Round.apply(x @ s.w)),
    "reverse": lambda s, x: s.inner(Reverse.apply(x @ s.w)),
    "two": two,
    "nested": lambda s, x: Outer.apply(x, s.w),
    "accumulating": lambda s, x: Accumulating.apply(x, s.w),
    "attention": lambda s, x: Attention.apply(x @ s.w, x, x @ s.v),
    "within": within,
    "looped": looped,
    "in checkpoint": in_checkpoint(within, False),
    "in reentrant": in_checkpoint(within, True),
    "in both": in_checkpoint(in_checkpoint(within, True), True),
    "in either": in_checkpoint(in_checkpoint(within, False), True),
    "again in checkpoint": in_checkpoint(lambda s, x: Again.apply(s.inner, x), False),
    "checkpoint in it": lambda s, x: Again.apply(
        lambda x: checkpoint(s.inner, x, use_reentrant=False), x
    ),
    "reentrant in it": lambda s, x: Again.apply(
        lambda x: checkpoint(s.inner, x, use_reentrant=True), x
    ),
}
