"""Custom operators that write into their arguments (`mutates_args`): count and training step.

The layer is 8 x 6 x 6 = 288 MACs, the head behind it 8 x 6 x 2 = 96. The kernels of the operators
are Python, so each is counted by its body: `fill` and each tensor of `every` is a product of 8
rows of 6 by 4 x 6, `back_` one by 6 x 6, and the others have none. Autograd sees nothing of what
they write: a gradient goes by as if they were not.
"""

import pytest

import crossflops
from tests.models import Apply, F, nn, torch

pytestmark = pytest.mark.torch
LAYER, HEAD = 8 * 6 * 6, 8 * 6 * 2
FILL, BACK = 8 * 6 * 4, 8 * 6 * 6  # what the bodies multiply


@torch.library.custom_op("writing::fill", mutates_args=("out",))
def fill(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> None:
    """One that gives nothing."""
    out.copy_(F.linear(x, w))


@torch.library.custom_op("writing::scale_", mutates_args=("x",))
def scale_(x: torch.Tensor, factor: float) -> torch.Tensor:
    """One that gives something beside."""
    return x.mul_(factor).sum(0)


@torch.library.custom_op("writing::both", mutates_args=("first", "second"))
def both(first: torch.Tensor, x: torch.Tensor, second: torch.Tensor | None = None) -> None:
    """One that writes into two, or into one of them."""
    first.add_(x)
    if second is not None:
        second.sub_(x)


@torch.library.custom_op("writing::every", mutates_args=("outs",))
def every(outs: list[torch.Tensor], x: torch.Tensor, w: torch.Tensor) -> None:
    """One that writes into a list."""
    for out in outs:
        out.copy_(F.linear(x, w))


scale_.register_fake(lambda x, factor: x.new_empty(x.shape[1]))
torch.library.define("writing::back_", "(Tensor(a!) x, Tensor w) -> Tensor(a!)")
torch.library.impl("writing::back_", "default")(lambda x, w: x.copy_(F.linear(x, w)))
torch.library.register_fake("writing::back_")(lambda x, w: x)


def empty(y):
    """What an operator writes into."""
    return y.new_zeros(y.shape[0], 4)


def ungraded(run, *given):
    """The result of an operator that is called without gradients."""
    with torch.no_grad():
        return run(*given)


def of_new(s, x):
    """What is written is all that is given."""
    y = s.layer(x)
    out = empty(y)
    fill(y, s.w, out)
    return out


def of_list(s, x):
    """A list is written."""
    y = s.layer(x)
    outs = [empty(y), empty(y)]
    every(outs, y, s.w)
    return outs[0] + outs[1]


def of_activation(s, x):
    """What is written goes on, and what is given as well."""
    y = s.layer(x)
    return s.head(y), ungraded(scale_, y, 2.0)


def of_view(s, x):
    """Two parts of a tensor are written."""
    y = s.layer(x)
    both(y[:4], x[:4], y[4:])
    both(y, x)  # writes into one of two
    return s.head(y)


def of_transposed(s, x):
    """What is written is a view of what is given."""
    y = s.layer(x)
    out = y.new_zeros(4, 8)
    fill(y, s.w, out.t())
    fill(y, s.w, out[:, ::1].t())
    return out


def of_buffer(s, x):
    """A buffer is written."""
    fill(s.layer(x), s.w, s.cache)
    return s.cache * 2


def of_input(s, x):
    """An input is written."""
    ungraded(scale_, x, 2.0)
    return s.head(s.layer(x))


def of_parameter(s, x):
    """A parameter is written."""
    ungraded(scale_, s.layer.weight, 2.0)
    return s.head(s.layer(x))


def that_hands_back(s, x):
    """What is given is what is written."""
    return s.head(ungraded(torch.ops.writing.back_, s.layer(x), s.square))


def model(run):
    """A layer, a head behind it, weights of operators, and a buffer."""
    built = Apply(
        run,
        layer=nn.Linear(6, 6, bias=False),
        head=nn.Linear(6, 2, bias=False),
        w=nn.Parameter(torch.ones(4, 6)),
        square=nn.Parameter(torch.ones(6, 6)),
    )
    built.register_buffer("cache", torch.zeros(8, 4))
    return built


BOTH = (LAYER + HEAD, HEAD + HEAD + LAYER)  # forward; the head's two gradients, the layer's one


@pytest.mark.parametrize(
    ("run", "forward", "backward", "inside"),
    [
        (of_new, LAYER, 0, FILL),
        (of_list, LAYER, 0, 2 * FILL),
        (of_activation, *BOTH, 0),
        (of_view, *BOTH, 0),
        (of_transposed, LAYER, 0, 2 * FILL),
        (of_buffer, LAYER, 0, FILL),
        (of_input, *BOTH, 0),
        (of_parameter, *BOTH, 0),
        (that_hands_back, *BOTH, BACK),
    ],
)
def test_counted_with_what_is_around(run, forward, backward, inside):
    """The layers, and inside of each operator the products of its body; no gradient of those."""
    report = crossflops.count(model(run), ["8x6"], train=True)
    assert report.totals.macs == forward + inside
    assert report.uncounted == ()
    step = report.training
    assert step.backward_input_macs + step.backward_weight_macs == backward
    assert step.uncounted == ()


def test_what_it_gives_has_no_backward_pass():
    """It has none by `register_autograd`, so PyTorch raises an error."""
    own = model(lambda s, x: scale_(s.layer(x), 2.0))
    with pytest.raises(RuntimeError, match=r"backward through writing.scale_\.default"):
        own(torch.ones(8, 6)).sum().backward()
    step = crossflops.count(own, ["8x6"], train=True).training
    (row,) = step.uncounted
    assert row.reason.startswith("writing::scale_ has no backward pass")
    assert step.backward_weight_macs == LAYER


def test_other_operators_without_gradients():
    """One that writes nothing is called under no_grad, by itself and by its overload."""

    def run(s, x):
        y = s.layer(x)
        other = ungraded(torch.ops.aten.mm, y, s.square)
        return s.head(y) + ungraded(torch.ops.aten.mm.default, other, s.square)[:, :2]

    step = crossflops.count(model(run), ["8x6"], train=True).training
    assert step.forward_macs == 3 * LAYER + HEAD
    assert step.backward_input_macs + step.backward_weight_macs == HEAD + HEAD + LAYER


def test_sizes_that_depend_on_what_was_written():
    """5 of 8 rows are positive, and go to the head."""

    def run(s, x):
        y = x.clone()
        both(y, x)
        return s.head(y[torch.nonzero(y[:, 0] > 0)[:, 0]])

    values = torch.full((8, 6), -1.0)
    values[:5] = 1.0
    assert crossflops.count(model(run), (values,)).totals.macs == 5 * 6 * 2


def test_nothing_stays_in_the_process():
    """The operators that stand in for those that write are gone behind a count."""
    before = set(torch.library._defs)
    crossflops.count(model(of_new), ["8x6"])
    assert set(torch.library._defs) == before
