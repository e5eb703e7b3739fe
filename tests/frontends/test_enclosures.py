"""What stands around operators, and what outlives a run."""

import pytest

from tests.models import Apply, F, nn, operators, torch, traced

pytestmark = pytest.mark.torch
ROWS = torch.ones(4, 8)


class Product(torch.autograd.Function):
    """x @ w, with a backward of its own."""

    @staticmethod
    def forward(ctx, x, w):
        return x @ w

    @staticmethod
    def backward(ctx, g):
        return g, None


@torch.jit.script
def scripted(x, w):
    """A scripted product."""
    return torch.mm(x, w)


def functions(model, *inputs, operator):
    """The function calls around the only call of an operator, the outermost last."""
    trace = traced(model, *inputs)
    (call,) = operators(trace, operator)
    return [ancestor for ancestor in trace.ancestors(call) if ancestor.level == "function"]


@pytest.mark.parametrize(
    ("function", "operator", "target"),
    [
        (lambda s, x: Product.apply(x, x.T), "aten.matmul", "torch.autograd.Function.apply"),
        (lambda s, x: scripted(x, x.T), "aten.mm", "torch.jit.ScriptFunction.__call__"),
        (lambda s, x: torch.vmap(torch.dot)(x, x), "aten.dot", "torch.vmap"),
        (lambda s, x: torch.func.vmap(torch.dot)(x, x), "aten.dot", "torch.vmap"),
    ],
)
def test_an_enclosing_function_is_a_call(function, operator, target):
    """A tool may see it as a whole, or with other shapes."""
    assert functions(Apply(function), ROWS, operator=operator)[-1].target == target


@pytest.mark.parametrize(
    "register",
    [
        lambda layer: layer.register_forward_hook(lambda m, i, o: o.relu()),
        lambda layer: layer.register_forward_pre_hook(lambda m, i: (i[0].relu(),)),
        lambda layer: layer.register_forward_hook(lambda m, a, k, o: o.relu(), with_kwargs=True),
    ],
)
def test_what_a_hook_does_is_marked(register):
    """It runs inside the module's call, and not in its forward."""
    model = nn.Sequential(nn.Linear(8, 8))
    register(model[0])
    before = dict(model[0]._forward_hooks), dict(model[0]._forward_pre_hooks)
    assert functions(model, ROWS, operator="aten.relu")[-1].via == "hook"
    assert all(
        function.via != "hook" for function in functions(model, ROWS, operator="aten.linear")
    )
    assert before == (dict(model[0]._forward_hooks), dict(model[0]._forward_pre_hooks))


def test_a_module_that_a_hook_calls_has_its_hook_around_it():
    """Also where it does nothing, and the hook leads to no operator."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Identity())
    model[0].register_forward_hook(lambda m, i, o: model[1](o))
    trace = traced(model, ROWS)
    around = [trace.calls_by_key[call.parent].target for call in trace.calls if call.parent]
    assert "torch.nn.Module.hook" in around


def under_device(function):
    """The function, under a TorchFunctionMode of the model's own."""

    def under(_model, x):
        with torch.device("cpu"):
            return function(x)

    return under


@pytest.mark.parametrize(
    ("function", "operator", "around"),
    [
        (lambda x: x * x, "aten.mul", [("mul", "mode"), ("__mul__", "attribute")]),
        (lambda x: x.mul(x), "aten.mul", [("mul", "mode"), ("mul", "attribute")]),
        (lambda x: torch.mul(x, x), "aten.mul", [("mul", "attribute")]),
        (lambda x: x @ x.T, "aten.matmul", [("matmul", "mode"), ("__matmul__", "attribute")]),
        # which calls torch.relu in the end
        (
            lambda x: F.relu(x),
            "aten.relu",
            [("relu", "attribute"), ("relu", "mode"), ("relu", "attribute")],
        ),
    ],
)
def test_a_mode_of_the_model_calls_methods_by_their_names(function, operator, around):
    """So a tool that replaces functions sees `Tensor.mul` for `x * x`, and others twice."""
    calls = functions(Apply(under_device(function)), ROWS, operator=operator)
    seen = [(call.target.rpartition(".")[2], call.via) for call in calls]
    assert seen == around


def test_everything_is_put_back():
    """What was replaced for the time of the run."""
    from torch._functorch import apis

    before = vars(torch.autograd.Function)["apply"], apis.vmap_impl
    traced(Apply(lambda s, x: x + 1), ROWS)
    assert before == (vars(torch.autograd.Function)["apply"], apis.vmap_impl)


def into_buffer(s, x):
    """An unused product in a buffer."""
    s.cache.copy_(x @ x.T)


def into_slice(s, x):
    """An unused product in half of a buffer."""
    s.cache[:2] = (x @ x.T)[:2]


def through_another(s, x):
    """A running mean: one write in place upon another."""
    s.cache.mul_(0.9).add_(x @ x.T)


def into_input(s, x):
    """An unused product in an input."""
    x[:, :4] = x @ x.T


def into_temporary(s, x):
    """An unused product in a tensor of its own."""
    torch.zeros(4, 4).copy_(x @ x.T)


def by_assignment(s, x):
    """A buffer that is replaced, not written into."""
    s.cache = x @ x.T


@pytest.mark.parametrize(
    ("write", "stored"),
    [
        (into_buffer, True),
        (into_slice, True),
        (through_another, True),
        (into_input, True),
        (into_temporary, False),
        (by_assignment, False),
    ],
)
def test_what_outlives_the_run_is_stored(write, stored):
    """An unused product, and where it goes."""

    def forward(s, x):
        write(s, x)
        return F.relu(s.other)

    model = Apply(forward, other=nn.Parameter(torch.ones(3)))
    model.register_buffer("cache", torch.zeros(4, 4))
    (product,) = operators(traced(model, ROWS), "aten.matmul")
    assert (product.live, product.stored) == (False, stored)


def test_a_write_upon_a_write_is_alive_when_it_is_read():
    """`cache.mul_().add_(product)`, and the cache is what comes out."""

    def forward(s, x):
        through_another(s, x)
        return s.cache + 1

    model = Apply(forward)
    model.register_buffer("cache", torch.zeros(4, 4))
    (product,) = operators(traced(model, ROWS), "aten.matmul")
    assert (product.live, product.stored) == (True, False)
