"""What a real run shows beside the export: the graph of torch.jit, and operators as they begin."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as modes

from crossflops.ir.trace import UNWATCHED, Setting, View
from crossflops.rules.prediction import PredictionError, WatchError, predict
from crossflops.tools.registry import find_convention
from tests.models import traced

JIT, EVENT, DISPATCH = (View(level=level) for level in ("jit", "event", "dispatch"))
X = torch.randn(2, 10, 32)
pytestmark = pytest.mark.torch


def seen(model, *args, view=JIT, **kwargs):
    """The trace of a model in evaluation, and the calls of that run."""
    trace = traced(model.eval(), *args, observed=(view,), **kwargs)
    return trace, trace.observed


def named(calls, target):
    """Those of this target."""
    return [call for call in calls if call.target == target]


class Split(nn.Module):
    """Sizes that are multiplied, a layer that is used, and one that is not."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 32)
        self.dead = nn.Linear(32, 7)

    def forward(self, x):
        """Fold the first two axes into one."""
        batch, length, width = x.shape
        self.dead(x)
        return self.layer(x.reshape(batch * length, width))


def test_the_traced_graph_has_shape_arithmetic_and_no_dead_work():
    """One product of sizes, one linear layer; of the dead one nothing."""
    trace, calls = seen(Split(), X)
    (product,) = named(calls, "aten::mul")
    assert (product.outputs[0].shape, product.of) == ((), ())
    (linear,) = named(calls, "aten::linear")
    assert [spec.shape for spec in linear.inputs] == [(20, 32), (32, 32), (32,)]
    assert trace.modules[linear.module].path == "layer"
    assert [trace.calls_by_key[key].target for key in linear.of] == ["aten.linear.default"]


def test_a_cell_is_the_products_that_it_became():
    """aten.lstm_cell is one operator of the export, and two linear layers of the tracer."""
    trace, calls = seen(nn.LSTMCell(16, 32), torch.randn(5, 16))
    linears = named(calls, "aten::linear")
    assert len(linears) == 2
    for linear in linears:
        assert "aten.lstm_cell.default" in {trace.calls_by_key[key].target for key in linear.of}


def test_a_fused_kernel_stands_for_all_that_it_swallowed():
    """Without gradients an encoder layer is one node: for the layers that were never called."""
    model = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    view = View(grad=False, level="jit")
    trace, calls = seen(model, X, view=view)
    (kernel,) = named(calls, "aten::_transformer_encoder_layer_fwd")
    swallowed = [trace.calls_by_key[key].target for key in kernel.of]
    assert swallowed.count("aten.linear.default") == 4
    assert not named(calls, "aten::linear")


def test_what_cannot_be_traced_is_said():
    """Tracers pass inputs by position: one that goes by keyword alone is out of their reach."""

    class Scaled(nn.Module):
        def forward(self, x, *, factor):
            return x * factor

    trace, calls = seen(Scaled(), X, factor=X)
    assert [call.target for call in calls] == ["untraced"]
    with pytest.raises(PredictionError, match="torchprofile cannot count"):
        predict(find_convention("torchprofile"), trace, Setting())


class Shy(nn.Module):
    """Raises where a dispatch mode looks on."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 8)

    def forward(self, x):
        """One layer. The export looks on by modes of its own, and is not minded."""
        if any(type(mode).__module__.startswith("crossflops") for mode in modes()):
            raise RuntimeError("somebody looks")
        return self.layer(x)


def test_a_run_that_raises_when_it_is_watched_is_a_failure_of_who_watches():
    """The model runs, so it is counted; a tool that watches alike cannot, and others go on."""
    trace, calls = seen(Shy(), X, view=DISPATCH)
    assert [call.target for call in calls] == [UNWATCHED]
    assert any(call.target == "aten.linear.default" for call in trace.calls)
    with pytest.raises(PredictionError, match=r"torch-flop-counter, .* somebody looks"):
        predict(find_convention("torch-flop-counter"), trace, Setting())


class ShyOfTracing(nn.Module):
    """Raises where functions are replaced while it is traced."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 8)

    def forward(self, x):
        """One layer."""
        if torch.jit.is_tracing() and hasattr(torch.relu, "__wrapped__"):
            raise RuntimeError("somebody looks")
        return self.layer(x)


@pytest.mark.parametrize("tool", ["fvcore", "torchprofile"])
def test_a_trace_that_raises_only_when_it_is_watched_is_no_failure_of_the_tool(tool):
    """PyTorch traces the model when nobody looks, so the tool answers, and this is said."""
    asked = find_convention(tool)
    view = View(level=asked.sees, hooked=asked.setting(Setting()).hooked)
    trace, calls = seen(ShyOfTracing(), X, view=view)
    assert [call.target for call in calls] == [UNWATCHED]
    with pytest.raises(WatchError, match=rf"could not record the run of {tool}.* looks"):
        predict(asked, trace, Setting())


class OfScalars(nn.Module):
    """Makes a tensor of tensors of no axes: of sizes while it is traced."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(32, 8)

    def forward(self, x):
        """One layer, and its input folded by the smallest size."""
        fold = torch.min(torch.tensor([x.shape[0], x.shape[1]])) if torch.jit.is_tracing() else 2
        return self.layer(x).view(fold, -1)


@pytest.mark.parametrize("level", ["jit", "traced"])
def test_tensors_of_sizes_are_made_while_it_is_watched(level):
    """A size is a tensor of no axes to the tracer, without a length that one could ask for."""
    _, calls = seen(OfScalars(), X, view=View(level=level))
    (linear,) = named(calls, "aten::linear")
    assert linear.inputs[0].shape == (2, 10, 32)


def test_tensors_of_scalars_are_made_after_a_model_was_watched():
    """What is watched is watched by replacing attributes, and not all of them can be put back."""
    seen(OfScalars(), X, view=DISPATCH)
    scalars = [torch.tensor(1.0), torch.tensor(2.0)]
    assert torch.tensor(scalars).tolist() == [1.0, 2.0]


def test_what_the_compiler_kept_of_a_watched_run_is_forgotten():
    """torch.cond raises in every run after one under a mode, until the compiler begins anew."""

    class Chosen(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(32, 8), nn.Linear(32, 8)

        def forward(self, x):
            return torch.cond(x.sum() > 0, self.one, self.other, (x,))

    trace = traced(Chosen().eval(), X, observed=(DISPATCH, EVENT))
    assert {call.level for call in trace.observed} == {"dispatch", "event"}
    assert UNWATCHED not in {call.target for call in trace.observed}


def test_a_convention_needs_its_run():
    """A trace that was recorded for other tools holds no jit calls: no number comes of it."""
    trace = traced(nn.Linear(32, 32), X)
    with pytest.raises(ValueError, match="contains no jit calls"):
        predict(find_convention("torchprofile"), trace, Setting())


def test_events_nest_and_know_their_module():
    """A linear layer calls addmm; both are the work of one operator of the export."""
    trace, calls = seen(nn.Sequential(nn.Linear(32, 8)), X[0], view=EVENT)
    (linear,), (product,) = named(calls, "aten::linear"), named(calls, "aten::addmm")
    assert product.parent == linear.key
    assert product.of == linear.of
    assert [spec.shape for spec in product.inputs[:3]] == [(8,), (10, 32), (32, 8)]
    assert trace.modules[product.module].path == "0"


def test_what_kernels_call_is_seen_and_the_same_again_is_marked():
    """LSTM's kernel adds two biases; repeat adds a number to a shape, which adds a tensor."""
    _, calls = seen(nn.LSTM(16, 32), torch.randn(5, 2, 16), view=EVENT)
    (added,) = named(calls, "aten::add")
    assert [spec.shape for spec in added.inputs[:2]] == [(128,), (128,)]
    _, calls = seen(nn.InstanceNorm2d(8, affine=True), torch.randn(1, 8, 4, 4), view=EVENT)
    repeated = [call.settings["repeated"] for call in named(calls, "aten::add")]
    assert repeated == [False, True, False, True]


def test_what_is_dispatched_stands_beside_the_function_that_called_it():
    """A linear layer on rows side by side is addmm, on others mm; each knows its own operator."""

    class Both(nn.Linear):
        def forward(self, x):
            return super().forward(x) + super().forward(x.mT.contiguous().mT)

    trace, calls = seen(Both(32, 32), X, view=DISPATCH)
    linear = named(trace.calls, "aten.linear.default")
    assert [call.target for call in calls] == ["(run)", "aten.addmm.default", "aten.mm.default"]
    assert [call.of for call in calls[1:]] == [(call.key,) for call in linear]
    assert calls[1].inputs[1].shape == (20, 32)


def test_hooks_on_the_children_alone_leave_the_fast_path_of_their_children_on():
    """An encoder layer that is a child is hooked; one beneath a child is not."""
    layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True)
    view = View(grad=False, hooked="children", level="dispatch")
    assert view.id == "eval no_grad hooked children"
    deep = nn.Sequential(nn.Sequential(layer))
    for model, fused in ((nn.Sequential(layer), False), (deep, True)):
        trace, calls = seen(model, X, view=view)
        targets = {call.target for call in calls}
        assert ("aten._transformer_encoder_layer_fwd.default" in targets) == fused
        assert ("aten.addmm.default" in targets) != fused
        linear = named(trace.calls, "aten.linear.default")
        assert all((view.id in call.fused) >= fused for call in linear)
