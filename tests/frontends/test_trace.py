"""The calls of a run: which module, through which entry point, to which operator."""

import pytest

from crossflops.ir.trace import Setting
from tests.models import (
    Apply,
    F,
    Holder,
    MyConv,
    block,
    captured_relu,
    encoder_layer,
    nn,
    operators,
    torch,
    traced,
)

pytestmark = pytest.mark.torch
WIDE = torch.randn(1, 8, 8, 8)


def conv():
    """A convolution that keeps its input's shape."""
    return nn.Conv2d(8, 8, 3, padding=1, bias=False)


def entry(trace, operator):
    """The function calls around the only call of an operator, innermost first."""
    (call,) = operators(trace, operator)
    around = [ancestor for ancestor in trace.ancestors(call) if ancestor.level == "function"]
    return [(ancestor.target, ancestor.via) for ancestor in around]


@pytest.mark.parametrize(
    ("function", "operator", "target", "via"),
    [
        (lambda s, x: x @ x, "aten.matmul", "torch.Tensor.__matmul__", "attribute"),
        (lambda s, x: x.matmul(x), "aten.matmul", "torch.Tensor.matmul", "attribute"),
        (lambda s, x: torch.matmul(x, x), "aten.matmul", "torch.matmul", "attribute"),
        (lambda s, x: x + x, "aten.add.", "torch.Tensor.__add__", "attribute"),
        (lambda s, x: 1 + x, "aten.add.", "torch.Tensor.__radd__", "attribute"),
        (lambda s, x: torch.add(x, x), "aten.add.", "torch.add", "attribute"),
        (lambda s, x: torch.relu(x), "aten.relu.", "torch.relu", "attribute"),
        (lambda s, x: x.clone().mul_(x), "aten.mul_", "torch.Tensor.mul_", "attribute"),
    ],
)
def test_the_entry_point_is_what_the_model_called(function, operator, target, via):
    """`x @ x`, `x.matmul(x)` and `torch.matmul(x, x)` are one operator and three calls."""
    trace = traced(Apply(function), torch.randn(4, 4))
    assert entry(trace, operator)[0] == (target, via)


def test_a_function_is_seen_through_those_that_it_calls():
    """F.relu called by attribute: the outer call is the one that a patch replaces."""
    calls = entry(traced(Apply(lambda s, x: F.relu(x)), WIDE), "aten.relu.")
    assert calls[-1] == ("torch.nn.functional.relu", "attribute")


def test_a_captured_reference_is_told_from_the_attribute():
    """A function that was imported by name was captured before anybody could replace it."""
    calls = entry(traced(Apply(lambda s, x: captured_relu(x)), WIDE), "aten.relu.")
    assert calls[-1] == ("torch.nn.functional.relu", "reference")


def test_a_module_calls_functions_calls_operators():
    """The three levels are nested, each call knows its module, and its specs."""
    trace = traced(Holder(conv()), WIDE)
    (call,) = operators(trace, "aten.conv2d")
    levels = [
        (ancestor.level, ancestor.target.rpartition(".")[2]) for ancestor in trace.ancestors(call)
    ]
    assert levels == [("function", "conv2d"), ("module", "Conv2d"), ("module", "Holder")]
    assert {trace.modules[inner.module].path for inner in (call, trace.ancestors(call)[0])} == {
        "inner"
    }
    assert call.input("input").shape == WIDE.shape
    assert call.input("weight").shape == (8, 8, 3, 3)
    assert call.outputs[0].shape == (1, 8, 8, 8)
    assert call.settings["padding"] == [1, 1]
    assert call.settings["groups"] == 1


def test_parents_come_before_their_children():
    """Whoever walks the calls in order has seen what is around them."""
    trace = traced(encoder_layer(), torch.randn(2, 10, 32))
    seen = set()
    for call in trace.calls:
        assert call.parent is None or call.parent in seen
        seen.add(call.key)
    assert len(seen) == len(trace.calls)


def test_a_module_called_twice_has_two_calls():
    """They are the first and the second call of one module."""
    trace = traced(Apply(lambda s, x: s.c(s.c(x)), c=conv()), WIDE)
    calls = [call for call in trace.calls if call.target.endswith("Conv2d")]
    assert [(call.key, call.ordinal) for call in calls] == [("c", 1), ("c@2", 2)]
    assert len({call.module for call in calls}) == 1
    assert len(operators(trace, "aten.conv2d")) == 2


def test_equal_runs_have_equal_keys():
    """A call is named by where it stands, and can be found again in another run."""
    first, two = (traced(block(), torch.randn(1, 3, 16, 16)) for _ in range(2))
    assert [call.key for call in first.calls] == [call.key for call in two.calls]


def test_a_direct_forward_is_no_call():
    """`module.forward(x)` runs past the hooks of `__call__`, and is marked so."""
    trace = traced(Apply(lambda s, x: s.d(s.c.forward(x)), c=conv(), d=conv()), WIDE)
    via = {call.key: call.via for call in trace.calls if call.level == "module"}
    assert via == {"(model)": "call", "c": "forward", "d": "call"}


def test_super_forward_is_no_second_call():
    """A subclass that calls the forward of its base is called once."""

    class Scaled(nn.Conv2d):
        def forward(self, x):
            return super().forward(x) * 2

    trace = traced(Apply(lambda s, x: s.c(x), c=Scaled(8, 8, 1)), WIDE)
    assert [call.key for call in trace.calls if call.level == "module"] == ["(model)", "c"]


def test_a_subclass_has_its_bases():
    """The exact class comes first, then all of its bases."""
    trace = traced(Apply(lambda s, x: s.c(x), c=MyConv(8, 4, 1)), WIDE)
    (call,) = [call for call in trace.calls if call.target == "tests.models.MyConv"]
    bases = trace.modules[call.module].bases
    assert bases[0] == "tests.models.MyConv"
    assert {"torch.nn.modules.conv.Conv2d", "torch.nn.modules.module.Module"} <= set(bases)


def test_a_module_that_is_registered_nowhere_has_a_row():
    """One in a plain list runs, has no name, and its call belongs to its caller's path."""

    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [conv()]

        def forward(self, x):
            return self.layers[0](x)

    trace = traced(Hidden(), WIDE)
    (call,) = operators(trace, "aten.conv2d")
    row = trace.modules[call.module]
    assert (row.names, row.path) == ((), "(unregistered)")
    assert row.bases[0] == "torch.nn.modules.conv.Conv2d"


def test_work_in_place_is_alive():
    """What is written into a tensor that is returned counts, also through a view of it."""

    def forward(self, x):
        y = torch.zeros(2, 4)
        y[:, 1:] = self.a(x)[:, 1:]
        first = y[0]
        y[0].add_(self.b(x)[0])
        self.dead(x).mul_(2)
        return y, first

    layers = {name: nn.Linear(4, 4) for name in ("a", "b", "dead")}
    trace = traced(Apply(forward, **layers), torch.randn(2, 4))
    live = {trace.modules[call.module].path: call.live for call in operators(trace, "aten.linear")}
    assert live == {"a": True, "b": True, "dead": False}


def test_what_is_read_through_another_view_is_neither_dead_nor_constant():
    """A view taken before the write shows what was written through another view."""

    def forward(self, x):
        table = self.a.weight * 1.0
        view, other = table[0], table[0]
        view.add_(self.a(x)[0])
        return self.b(other)

    model = Apply(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    trace = traced(model, torch.randn(2, 4))
    marks = {
        trace.modules[call.module].path: (call.live, call.constant)
        for call in operators(trace, "aten.linear")
    }
    assert marks == {"a": (True, False), "b": (True, False)}


def test_an_unused_module_has_a_row_and_no_call():
    """The table is that of the model, the calls are those of the run."""
    trace = traced(Apply(lambda s, x: s.c(x), c=conv(), spare=conv()), WIDE)
    assert [row.path for row in trace.modules] == ["", "c", "spare"]
    assert [call.key for call in trace.calls if call.level == "module"] == ["(model)", "c"]


def test_what_runs_without_gradients_is_traced_all_the_same():
    """The export takes no fused path, whatever the setting: its operators are seen."""
    model, x = encoder_layer(), torch.randn(2, 10, 32)
    plain = traced(model, x)
    without = traced(model, x, setting=Setting(grad=False))
    assert [call.key for call in without.calls] == [call.key for call in plain.calls]
    assert without.setting == Setting(grad=False)


def test_training_takes_the_training_path():
    """The module table and the calls are those of train()."""
    model = Apply(lambda s, x: s.a(x) if s.training else x, a=nn.Linear(4, 4))
    trace = traced(model.eval(), torch.randn(2, 4), setting=Setting(training=True))
    assert all(row.training for row in trace.modules)
    assert len(operators(trace, "aten.linear")) == 1
    assert not operators(traced(model.train(), torch.randn(2, 4)), "aten.linear")
