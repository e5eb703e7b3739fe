"""Models that PyTorch runs and that ask something unusual of an exporter."""

import dataclasses
import importlib
import subprocess
import sys
import threading

import pytest

import crossflops
from crossflops.errors import CrossflopsWarning, InputError, NormalizeError
from crossflops.ir.trace import Setting
from tests.models import Apply, F, exported, nn, operators, torch, traced

pytestmark = pytest.mark.torch
ROWS = torch.randn(2, 8)
MACS = 2 * 8 * 8  # of `layer` on ROWS


def layer(outputs=8):
    """Eight numbers to eight, or another number of them."""
    return nn.Linear(8, outputs)


def compared(model, *inputs, **options):
    """Native MACs, and what is left of each tool that answered."""
    report = crossflops.compare(model, inputs, isolate=False, **options)
    return report.macs, set(report.residuals.values()) | {0}


@dataclasses.dataclass
class Answer:
    """What PyTorch does not know how to take apart."""

    scores: torch.Tensor
    count: int = 3


class Box:
    """An object that holds a tensor, and itself."""

    def __init__(self, tensor):
        self.held, self.me = [tensor], self


@pytest.mark.parametrize(
    "shell",
    [
        lambda y: (y, 3, None, "text", 2.5),
        lambda y: {"y": y, "more": {"names": ["a"], 3: [None]}},
        Answer,
        Box,
        lambda y: [Answer(y), {"y": (y,)}],
    ],
    ids=["numbers and texts", "nested", "dataclass", "object", "all of it"],
)
def test_what_is_returned_beside_tensors_is_dropped(shell):
    """2*8*8 MACs, however the result is wrapped; nothing of it is taken for dead."""
    model = Apply(lambda s, x: shell(s.a(x)), a=layer())
    graph, _, ledger = exported(model, ROWS)
    assert ledger.total.macs == MACS
    assert {spec.shape for spec in graph.outputs} == {(2, 8)}


def test_a_model_that_returns_no_tensor_does_no_work():
    """Nothing depends on its layer: dead, in the trace and not in the count."""
    _, trace, ledger = exported(Apply(lambda s, x: s.a(x).shape[0], a=layer()), ROWS)
    assert (ledger.total.macs, [call.live for call in operators(trace, "aten.linear")]) == (
        0,
        [False],
    )


@pytest.mark.parametrize(
    ("build", "shape", "macs", "params"),
    [
        (lambda: nn.Sequential(nn.LazyLinear(16), nn.LazyLinear(3)), (2, 8),
         2 * 8 * 16 + 2 * 16 * 3, 8 * 16 + 16 + 16 * 3 + 3),
        (lambda: nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d()), (2, 3, 8, 8),
         2 * 36 * 4 * 27, 4 * 27 + 4 + 2 * 4),
    ],
    ids=["linear", "convolution"],
)  # fmt: skip
def test_lazy_layers_get_their_sizes(build, shape, macs, params):
    """Counted as if they had been written out; the caller's model stays lazy."""
    model, x = build(), torch.randn(shape)
    report = crossflops.compare(model, x, isolate=False)
    assert (report.macs, report.params) == (macs, params)
    assert set(report.residuals.values()) <= {0}
    assert isinstance(model[0].weight, nn.UninitializedParameter)


def test_a_lazy_model_that_raises_is_an_input_error():
    """The run that makes the layers says what the model says."""
    with pytest.raises(InputError, match="the model raised on these inputs: RuntimeError: mat1"):
        crossflops.count(nn.Sequential(nn.LazyLinear(16), nn.Linear(3, 3)), ROWS)


@pytest.mark.parametrize("inputs", [(torch.empty(2, 10**6, device="meta"),), ("2x1000000",)])
def test_weights_without_data_count(inputs):
    """On the meta device 2 x 10^6 x 10^6 MACs take no memory; small biases hold no data either."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(10**6, 10**6), nn.LayerNorm(10**6), nn.Linear(10**6, 3))
    report = crossflops.count(model, inputs)
    assert report.macs == 2 * 10**12 + 2 * 3 * 10**6
    assert report.params == 10**12 + 3 * 10**6 + 3 * 10**6 + 3
    assert report.uncounted == ()


@pytest.mark.parametrize("leave", [lambda: sys.exit(), lambda: sys.exit(0), lambda: sys.exit("x")])
def test_a_model_that_exits_is_an_input_error(leave):
    """Its exit is not ours."""
    with pytest.raises(InputError, match="the model raised on these inputs: SystemExit"):
        exported(Apply(lambda s, x: leave()), ROWS)


def test_a_model_that_exits_in_one_setting_is_an_input_error():
    """In a run that only looks for kernels, too."""

    def forward(self, x):
        if torch.is_grad_enabled() or torch.compiler.is_exporting():
            return x
        raise SystemExit(0)

    with pytest.raises(InputError, match=r"when run \(eval no_grad\): SystemExit"):
        traced(Apply(forward), ROWS, observed=(Setting(grad=False),))


def test_a_module_that_fx_made_is_counted():
    """torch.export interprets it node by node, and never calls it."""
    for model in (
        torch.fx.symbolic_trace(nn.Sequential(layer(), nn.ReLU(), layer(3))),
        torch.export.export(nn.Sequential(layer(), nn.ReLU(), layer(3)), (ROWS,)).module(),
    ):
        assert compared(model, ROWS) == (MACS + 2 * 8 * 3, {0})


def test_a_compiled_model_is_the_model_that_was_compiled():
    """At the root and inside, without compiling anything."""
    inner = nn.Sequential(layer(), nn.ReLU())
    assert compared(torch.compile(inner), ROWS) == (MACS, {0})
    assert crossflops.count(nn.Sequential(torch.compile(inner), layer()), ROWS).macs == 2 * MACS


def test_a_model_for_several_devices_runs_on_this_one():
    """nn.DataParallel without a device calls the model that it holds."""
    assert compared(nn.DataParallel(nn.Sequential(layer())), ROWS) == (MACS, {0})


def test_arguments_of_any_form():
    """Keywords only, positions only, a way out before the end."""

    class Keywords(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = layer()

        def forward(self, **named):
            return self.a(named["x"])

    assert crossflops.count(Keywords(), {"x": ROWS}).macs == MACS
    early = Apply(lambda s, *x: s.a(x[0]) if x[0].ndim == 2 else s.b(x[0]), a=layer(), b=layer())
    assert compared(early, ROWS, ROWS) == (MACS, {0})


def test_tied_weights_are_parameters_once():
    """One layer under two names, its weight used a third time: 72 parameters, three products."""
    shared = layer()
    model = Apply(lambda s, x: F.linear(s.b(s.a(x)), s.a.weight), a=shared, b=shared)
    report = crossflops.count(model, ROWS)
    assert (report.macs, report.params) == (3 * MACS, 72)


@pytest.mark.parametrize(
    ("model", "what", "hint"),
    [
        (lambda: Apply(lambda s, x: x + x.data_ptr()),
         "torch.export cannot trace the model: ", "use PyTorch operators instead"),
    ],
    ids=["pointer"],
)  # fmt: skip
def test_what_cannot_be_exported_says_why_in_two_lines(model, what, hint, capfd):
    """What PyTorch said, without and with values, a hint that is about it, and nothing else."""
    with pytest.raises(NormalizeError) as caught:
        exported(model(), ROWS)
    assert caught.value.message.startswith(what)
    assert hint in caught.value.hint
    assert len(caught.value.message) < 400
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("sign", "macs"), [(1, MACS), (-1, 0)])
def test_of_control_flow_on_values_the_path_that_runs_is_counted(sign, macs):
    """torch.export cannot write it, and a run on these inputs takes one side."""
    model = Apply(lambda s, x: s.a(x) if x.sum() > 0 else -x, a=layer())
    assert crossflops.count(model, sign * torch.ones(2, 8)).macs == macs


def test_the_compiler_works_as_before_a_count():
    """What it knows of PyTorch's functions is listed once: not while they are replaced."""
    code = (
        "import torch\n"
        "from crossflops import count\n"
        "from torch._higher_order_ops.scan import scan\n"
        "class Steps(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return scan(lambda h, row: (torch.tanh(h + row), h * 2), x[0], x)[0]\n"
        "count(Steps(), torch.ones(3, 2))\n"
        "print(tuple(Steps()(torch.ones(3, 2)).shape))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("(2,)\n", 0), done.stderr


@pytest.mark.parametrize(("kind", "gates"), [("GRU", 3), ("LSTM", 4), ("RNN", 1)])
def test_packed_sequences_are_counted_without_their_padding(kind, gates):
    """Sequences of 3 and 2 steps: 5 rows of gates x 4 units from 8 inputs and 4 states."""

    def forward(self, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2]), batch_first=True)
        return self.a(packed)[0].data

    model = Apply(forward, a=getattr(nn, kind)(8, 4, batch_first=True))
    _, _, ledger = exported(model, torch.randn(2, 3, 8))
    assert (ledger.total.macs, ledger.uncounted) == (5 * gates * 4 * (8 + 4), ())


def test_keys_of_calls_name_no_address():
    """Functions in the graph that are no operators (those of torch.vmap) go by their names."""
    model = Apply(lambda s, x: torch.vmap(s.a)(x), a=layer())
    _, trace, ledger = exported(model, torch.randn(2, 3, 8))
    assert not [call.key for call in trace.calls if " at 0x" in call.key]
    assert ledger.total.macs == 6 * 64


def test_a_generator_is_run_to_its_end():
    """Its work is done as it is read: three layers, of which a caller may read them all."""

    def steps(s, x):
        for _ in range(3):
            yield s.a(x)

    report = crossflops.count(Apply(steps, a=layer()), ROWS)
    assert report.totals.macs == 3 * MACS


def test_a_model_that_returns_nothing_is_warned_of():
    """Nothing depends on its work, so that nothing is counted: that is rarely what was meant."""

    def keep(s, x):
        s.kept = s.a(x)

    with pytest.warns(CrossflopsWarning, match="returns no tensor"):
        assert crossflops.count(Apply(keep, a=layer()), ROWS).totals.macs == 0


def test_what_cannot_be_copied_is_shared():
    """A lock is no part of what is counted."""
    model = Apply(lambda s, x: s.a(x), a=layer())
    model.lock, model.a.file = threading.Lock(), sys.stderr
    assert crossflops.count(model, ROWS).totals.macs == MACS


def test_sparse_weights_can_be_copied():
    """The 8 stored elements of an 8 x 8 matrix times 2 columns."""
    weight = nn.Parameter(torch.eye(8).to_sparse(), requires_grad=False)
    model = Apply(lambda s, x: torch.sparse.mm(s.w, x.t()))
    model.w = weight
    assert model.w.layout == torch.sparse_coo
    report = crossflops.count(model, ROWS)
    assert report.totals.macs == 8 * 2


def test_tensors_that_no_run_can_take_are_refused():
    """Nested ones, which have no shape, and fakes outside of their mode."""
    parts = torch.nested.nested_tensor([torch.zeros(3, 8), torch.zeros(5, 8)])
    with pytest.raises(InputError, match="a nested tensor has no shape"):
        crossflops.count(layer(), parts)
    with importlib.import_module("torch._subclasses").FakeTensorMode():
        fake = layer()
    with pytest.raises(InputError, match="FakeTensors"):
        crossflops.count(fake, ROWS)


def test_inputs_with_numbers_for_weights_without_are_refused_with_what_to_do():
    """The other way round as well."""
    with pytest.raises(InputError, match="device meta") as caught:
        crossflops.count(layer().to("meta"), ROWS)
    assert "device='meta'" in caught.value.hint


def test_a_value_that_weights_without_numbers_do_not_give_is_named():
    """The number of an expert, in a model that is too large for numbers."""
    model = Apply(
        lambda s, x: [s.a, s.b][int(x.argmax())](x), a=nn.Linear(4, 2), b=nn.Linear(4, 3)
    ).to("meta")
    with pytest.raises(InputError, match="meta tensors") as caught:
        crossflops.count(model, torch.zeros(1, 4, device="meta"))
    assert "the model reads a value" in caught.value.hint


@pytest.mark.parametrize("name", ["class", "a 'b'", 'a"b', "a\\b", "a\nb"])
def test_modules_may_have_any_name(name):
    """As in a dict of heads; a keyword of Python is none that PyTorch can write as it is."""
    heads = nn.ModuleDict({name: layer()})
    report = crossflops.count(Apply(lambda s, x: s.heads[name](x), heads=heads), ROWS)
    assert report.totals.macs == MACS
    assert f"heads.{name}" in {row.path for row in report.modules}


def test_inputs_of_inference_mode_are_refused_with_what_to_do():
    """They cannot be saved for gradients, with which an exporter runs a model; copies can."""
    with torch.inference_mode():
        rows = torch.zeros(2, 8)
    with pytest.raises(NormalizeError) as caught:
        crossflops.count(layer(), rows)
    assert "clone" in caught.value.hint
    assert crossflops.count(layer(), rows.clone()).totals.macs == MACS


def penalty(model, x):
    """The square of a gradient is part of the loss."""
    x = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(x.tanh().sum(), x, create_graph=True)
    return slope.square().sum()


class Early(torch.autograd.Function):
    """Derives its result in its forward pass."""

    @staticmethod
    def forward(ctx, x):
        slope, value = torch.func.grad_and_value(lambda x: (x * x).sum())(x)
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    def backward(ctx, grad):
        return ctx.saved_tensors[0] * grad


@pytest.mark.parametrize(
    "forward",
    [
        penalty,
        lambda _, x: torch.func.grad(lambda x: (x * x).sum())(x),
        lambda _, x: torch.func.jacrev(torch.sin)(x),
        lambda _, x: Early.apply(x),
    ],
)
def test_a_model_that_derives_something_while_it_runs(forward):
    """The export loses the way from the derivative to the input, and fails in many ways."""
    with pytest.raises(NormalizeError, match=r"while it runs, by torch\.autograd\.grad$") as no:
        exported(Apply(forward), torch.rand(2, 3))
    assert "without that term" in no.value.hint


def test_a_tied_weight_that_is_changed_in_place_is_refused():
    """PyTorch's exporter fails with an assertion of its own, which is no answer."""

    class Averaged(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.slow = nn.Linear(4, 6), nn.Linear(4, 6)
            self.slow.weight = self.own.weight

        def forward(self, x):
            with torch.no_grad():
                for slow, own in zip(self.slow.parameters(), self.own.parameters(), strict=True):
                    slow.mul_(0.9).add_(own, alpha=0.1)
            return self.own(x) - self.slow(x)

    with pytest.raises(NormalizeError, match=r"torch\.onnx\.export failed"):
        crossflops.count(Averaged(), torch.rand(5, 4))


class _Product(torch.autograd.Function):
    """A product of rows with a weight, and a bias where there is one."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        """Without a bias, nothing is added."""
        ctx.save_for_backward(x, weight)
        return x @ weight.T if bias is None else x @ weight.T + bias

    @staticmethod
    def backward(ctx, gradient):
        """Of both factors."""
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.T @ x, None


class _WithoutBias(nn.Module):
    """A layer without a bias, whose weight and missing bias a function of its own gets."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3, bias=False)

    def forward(self, x):
        """The layer and the function on the same rows."""
        return self.layer(x) + _Product.apply(x, self.layer.weight, self.layer.bias)


def test_a_function_is_given_none_for_a_bias_that_is_left_out():
    """Two products of 2 x 4 with 4 x 3."""
    assert crossflops.count(_WithoutBias(), torch.randn(2, 4)).macs == 2 * 2 * 4 * 3
