"""What a profiled step ran, against a count of what PyTorch dispatched in the same step."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import crossflops  # noqa: E402
from tests.profiling import steps  # noqa: E402

pytestmark = pytest.mark.torch

DRAWS = int(os.environ.get("CROSSFLOPS_DRAWS", "3"))


def profiled(net, step):
    """The profile of one step."""
    profiler = crossflops.FlopsProfiler(net, peak_tflops=1000)
    profiler.start()
    step()
    profiler.stop()
    profile = profiler.profile
    profiler.end()
    return profile


@pytest.mark.parametrize("kind", steps.KINDS, ids=lambda kind: kind.__name__)
def test_a_step_has_the_macs_that_were_dispatched(kind):
    """Forward and back, of the model and of those beside it."""
    scene = steps.Scene(steps.KINDS[kind]())
    profile = profiled(scene.net, lambda: kind(scene))
    assert profile.step_macs == steps.dispatched(lambda: kind(scene))
    assert not [line for line in profile.warnings if "not counted" in line]
    if kind not in (steps.adversarial, steps.validates_within):  # which it fails on, and misses
        with FlopCounterMode(display=False) as counter:
            kind(scene)
        assert 2 * profile.step_macs == counter.get_total_flops()


@pytest.mark.parametrize("seed", range(DRAWS))
def test_a_step_of_pieces_at_random_has_the_macs_that_were_dispatched(seed):
    """CROSSFLOPS_DRAWS=200 draws so many."""
    scene, step = steps.drawn(seed)
    step()
    profile = profiled(scene.net, step)
    assert profile.step_macs == steps.dispatched(step), profile.warnings


def named(net, step):
    """The lines that say what of a step is not counted, and its MACs."""
    profile = profiled(net, step)
    return [line for line in profile.warnings if "not counted" in line], profile.step_macs


def test_a_gradient_of_a_gradient_is_named():
    """A gradient penalty: its first pass is counted, and that of all else in the loss."""
    net = steps.deep()
    sizes = [weight.numel() for weight in net.parameters() if weight.dim() == 2]

    def step():
        x = steps.batch(requires_grad=True)
        out = net(x)
        (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        (out.square().mean() + gradient.square().sum()).backward()

    lines, macs = named(net, step)
    assert lines == ["Sequential: a second-order gradient was computed through it: not counted"]
    # forward, back to the input alone, back to the input and to all weights
    assert macs == 4 * sum(sizes) * (1 + 1 + 2)
    assert macs < steps.dispatched(step)


def test_a_gradient_that_begins_within_a_model_is_named():
    """A loss on what a forward pass leaves on the module."""

    class Leaves(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Linear(steps.WIDTH, 8), torch.nn.Linear(8, 2)

        def forward(self, x):
            self.middle = self.first(x)
            return self.last(self.middle)

    net = Leaves()

    def step():
        net(steps.batch())
        net.middle.square().mean().backward()

    lines, macs = named(net, step)
    assert lines == [
        "Leaves: a backward pass started inside it, from a value that it does not return: "
        "not counted"
    ]
    assert macs == 4 * (steps.WIDTH * 8 + 8 * 2)


def test_products_of_the_script_itself_are_named():
    """A loss of similarities."""
    net = steps.deep()

    def step():
        out = net(steps.batch())
        (out @ out.T).mean().backward()

    lines, _ = named(net, step)
    (line,) = lines
    assert "1 x MmBackward0" in line


def test_a_transform_of_functions_is_named():
    """A call in `torch.func.grad` beside an ordinary one."""
    net = steps.deep()

    def step():
        torch.func.grad(lambda x: steps.loss_of(net(x)))(steps.batch())
        steps.loss_of(net(steps.batch())).backward()

    lines, macs = named(net, step)
    assert lines[0].startswith("Sequential: a torch.func transform ran it")
    assert macs == steps.dispatched(lambda: steps.loss_of(net(steps.batch())).backward())


def test_a_batch_of_gradients_is_named():
    """`is_grads_batched` beside an ordinary pass: forward once more, and nothing back."""
    net = steps.deep()
    sizes = [weight.numel() for weight in net.parameters() if weight.dim() == 2]

    def step():
        x = steps.batch(requires_grad=True)
        out = net(x)
        every = torch.eye(out.numel()).reshape(-1, *out.shape)
        torch.autograd.grad(out, x, every, is_grads_batched=True)
        steps.loss_of(net(steps.batch())).backward()

    lines, macs = named(net, step)
    assert lines == [
        "Sequential: vmap ran its backward pass for a batch of gradients: not counted"
    ]
    assert macs == 4 * (4 * sum(sizes) - sizes[0])
    assert macs < steps.dispatched(step)


@pytest.mark.parametrize("of_weights", [False, True])
def test_a_derivative_that_goes_forward_is_named(of_weights):
    """Of the input, or of the weights."""
    from torch.autograd import forward_ad

    net = steps.deep()

    def step():
        weights, x = dict(net.named_parameters()), steps.batch()
        with torch.no_grad(), forward_ad.dual_level():
            if of_weights:
                weights = {
                    name: forward_ad.make_dual(weight, torch.ones_like(weight))
                    for name, weight in weights.items()
                }
            else:
                x = forward_ad.make_dual(x, steps.batch())
            torch.func.functional_call(net, weights, (x,))
        steps.loss_of(net(steps.batch())).backward()

    (line,), macs = named(net, step)
    assert line.startswith("Sequential: torch.autograd.forward_ad ran it")
    assert macs < steps.dispatched(step)


def test_modules_beside_the_model_have_a_line_each():
    """Their parameters, calls, work and time; a loss without parameters has none."""
    scene, loss = steps.Scene(steps.deep()), torch.nn.MSELoss()

    def step():
        steps.two_models(scene)
        with torch.no_grad():
            scene.teacher(steps.batch())
        loss(torch.ones(2), torch.zeros(2))

    profile = profiled(scene.net, step)
    front, teacher = profile.beside
    front_macs, teacher_macs = 4 * (5 * 9 + 9 * steps.WIDTH), 4 * (steps.WIDTH * 11 + 11 * 3)
    assert front.params == 5 * 9 + 9 + 9 * steps.WIDTH + steps.WIDTH
    assert (front.calls, front.training.forward_macs) == (1, front_macs)
    # its first layer has no gradient of its input
    assert front.training.macs == 3 * front_macs - 4 * 5 * 9
    assert teacher.training.macs == teacher.training.forward_macs == teacher_macs
    assert min(front.forward_seconds, front.backward_seconds, teacher.forward_seconds) > 0
    assert teacher.backward_seconds == 0
    assert profile.page().count("beside: Sequential") == 2
    assert any("and of 2 modules beside it" in line for line in profile.assumptions)
    again = crossflops.report.profile.TrainingProfile.from_json(profile.to_json())
    assert again.beside == profile.beside


def test_the_parts_of_a_model_that_is_not_called_are_a_tree():
    """Each with its work; the model has that of both."""
    net = steps.Coder()
    profile = profiled(net, lambda: steps.frozen_encoder(steps.Scene(net)))
    part = 4 * (steps.WIDTH * 12 + 12 * 6)
    rows = {row.path: row.training for row in profile.modules}
    assert list(rows) == [path for path, _ in net.named_modules()]
    assert rows["encoder"].macs == rows["encoder"].forward_macs == part
    assert rows["decoder"].macs == 3 * part - 4 * 6 * 12
    assert rows[""].macs == rows["encoder"].macs + rows["decoder"].macs == profile.step_macs
    assert profile.examples == 4
    assert profile.params == sum(weight.numel() for weight in net.parameters())


def test_the_model_around_parts_is_found():
    """It has more of the optimizer's parameters than each of them; a holder of all has no more."""
    from crossflops.profiling.loops import model_of_optimizer

    net = steps.Coder()
    holder = torch.nn.ModuleList([net])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    called = dict.fromkeys([net.encoder, net.decoder])
    assert model_of_optimizer(optimizer, called) is net
    assert model_of_optimizer(optimizer, {holder[0].encoder: None, net: None}) is net


def test_a_reentrant_checkpoint_of_the_script_runs_the_model_again():
    """The call that it runs first has no graph; the backward pass is that of the second."""
    from torch.utils.checkpoint import checkpoint

    net = steps.deep()

    def step():
        x = steps.batch(requires_grad=True)
        checkpoint(net, x, use_reentrant=True).square().mean().backward()

    profile = profiled(net, step)
    assert profile.executed_step_macs == steps.dispatched(step)
    assert profile.work.recomputed_macs == profile.work.forward_macs
    assert (profile.forward_calls, profile.examples) == (1, 4)


class FirstAgain(torch.nn.Module):
    """Reentrant checkpoints of the model's own, of which the first is given its input."""

    def __init__(self, run):
        super().__init__()
        self.first, self.middle = steps.layers(steps.WIDTH, 16, 16), steps.layers(16, 8, 5)
        self.last, self.run = torch.nn.Linear(5, 3), run

    def forward(self, x):
        return self.last(self.run(self, x))


def _both(net, x):
    return _again(net.middle, _again(net.first, x))


def _nested(net, x):
    return _again(lambda x: net.middle(_again(net.first, x)), x)


def _detaching(net, x):
    """The second part has no gradient but of its weights."""
    return net.middle(_again(net.first, x).detach())


def _again(run, x):
    from torch.utils.checkpoint import checkpoint

    return checkpoint(run, x, use_reentrant=True)


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("run", [_both, _nested, _detaching])
def test_a_reentrant_checkpoint_in_the_model_has_the_gradients_of_its_input(run, asks):
    """None at all where the input asks for none; else all, and the forward pass once more."""
    net = FirstAgain(run)

    def step():
        steps.loss_of(net(steps.batch(requires_grad=asks))).backward()

    assert profiled(net, step).executed_step_macs == steps.dispatched(step)


def _around_the_model(net, x):
    return _keep_apart(net, x)


def _around_each_part(net, x):
    for part in net:
        x = _keep_apart(part, x)
    return x


def _around_a_model_beside(net, x):
    return net(_keep_apart(steps.layers(steps.WIDTH, 9, steps.WIDTH), x))


def _keep_apart(run, x):
    from torch.utils.checkpoint import checkpoint

    return checkpoint(run, x, use_reentrant=False)


@pytest.mark.parametrize("run", [_around_the_model, _around_each_part])
def test_a_checkpoint_of_the_script_that_ends_early_has_what_it_ran_again(run):
    """It ends before the last layer of what is in it; a batch without it changes nothing."""
    net = torch.nn.Sequential(steps.layers(steps.WIDTH, 16, 12), steps.layers(12, 8, 4))

    def step():
        steps.loss_of(run(net, steps.batch())).backward()
        with torch.no_grad():
            net(steps.batch(64))

    profile = profiled(net, step)
    assert profile.executed_step_macs == steps.dispatched(step)
    assert not [line for line in profile.warnings if "again" in line]
    again = {row.path: row.training.recomputed_macs for row in profile.modules}
    assert again[""] == again["0"] + again["1"] == profile.work.recomputed_macs > 0


def test_a_checkpoint_around_a_model_beside_is_named():
    """No hook is on that model: where its repeated pass ended is not seen."""
    net = steps.deep()
    lines, _ = named(
        net, lambda: steps.loss_of(_around_a_model_beside(net, steps.batch())).backward()
    )
    assert lines == ["Sequential: a backward pass recomputed it only partly: not counted"]


def test_a_checkpoint_in_a_model_that_also_validates_has_what_it_ran_again():
    """Its repeated passes are those of the calls with a backward pass alone."""
    net = FirstAgain(lambda net, x: net.middle(_keep_apart(net.first, x)))

    def step():
        steps.loss_of(net(steps.batch())).backward()
        with torch.no_grad():
            net(steps.batch(64))

    profile = profiled(net, step)
    assert profile.executed_step_macs == steps.dispatched(step)
    assert not [line for line in profile.warnings if "again" in line]


def test_a_model_that_is_compiled_is_not_compiled_anew():
    """Also where the profiler has the model itself, and the loop what torch.compile made of it."""
    net = steps.deep()
    compiled = torch.compile(net, backend="eager")

    def step():
        steps.loss_of(compiled(steps.batch())).backward()
        with torch.no_grad():
            net(steps.batch(6))

    step()
    with torch.compiler.set_stance("fail_on_recompile"):
        profile = profiled(net, step)
    assert profile.step_macs == steps.dispatched(step)
    assert any("torch.compile hides the modules in the model" in line for line in profile.warnings)


AROUND = """
import crossflops
import torch

net = torch.nn.Linear(2, 2)
forward = torch.compile(lambda x: net(x).sum(), backend="eager")
profiler = crossflops.FlopsProfiler(net)
profiler.start()
forward(torch.ones(1, 2)).backward()
profiler.stop()
try:
    profiler.profile
except crossflops.CrossflopsError as error:
    print(error.message, error.hint)
"""


def test_a_compiled_function_around_the_model_is_named():
    """The model is part of the function's graph, and no call of it is seen.

    In a process of its own: what Dynamo compiled before decides what it runs as it is.
    """
    line = [sys.executable, "-c", AROUND]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=120)
    assert "torch.compile compiled its calls into an enclosing function" in done.stdout
    assert "compile only the model" in done.stdout


def test_a_model_with_compile_called_on_it_is_counted():
    """`module.compile()`."""
    net = steps.deep()
    net.compile(backend="eager")
    profile = profiled(net, lambda: steps.plain(steps.Scene(net)))
    assert profile.step_macs == steps.dispatched(lambda: steps.plain(steps.Scene(net)))
