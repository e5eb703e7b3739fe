"""Hooks for one step: what they see, and that nothing of them is left."""

import copy
import io

import pytest

torch = pytest.importorskip("torch")

from crossflops.profiling.watch import Watch, clock_of  # noqa: E402

pytestmark = pytest.mark.torch


class Hands:
    """A clock whose hands are moved by the work that is timed: all times are known exactly."""

    waits = False

    def __init__(self):
        self.now = 0.0

    def mark(self):
        return self.now

    def wait_for_device(self):
        pass

    def seconds_between(self, start, end):
        return end - start


CLOCK = Hands()


@pytest.fixture(autouse=True)
def hands(monkeypatch):
    """Every test but that of a compiled model is timed by it."""
    monkeypatch.setattr("crossflops.profiling.watch.clock_of", lambda _: CLOCK)


class Slow(torch.autograd.Function):
    """Takes its time in both directions."""

    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.wait = backward
        CLOCK.now += forward
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        CLOCK.now += ctx.wait
        return gradient, None, None


class Waits(torch.nn.Module):
    def __init__(self, forward, backward):
        super().__init__()
        self.times = forward, backward
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return Slow.apply(x * self.weight, *self.times)


def model():
    """Three modules in a tree, two of which wait."""
    return torch.nn.Sequential(
        Waits(0.02, 0.05), torch.nn.Sequential(Waits(0.03, 0.01), torch.nn.ReLU(inplace=True))
    )


def watched(net, step):
    """The watch of one step, and its times."""
    watch = Watch(net)
    watch.start()
    try:
        step()
        return watch, watch.stop()
    finally:
        watch.remove_hooks()


def bare(net):
    """That a model has no hook and no attribute beside those that it had."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [
        (name, sorted(vars(m)), [len(getattr(m, kind)) for kind in kinds])
        for name, m in net.named_modules()
    ]


def patched():
    """What of PyTorch could be left changed."""
    from torch.optim import optimizer

    hooks = optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks
    return torch.autograd.backward, *map(len, hooks)


def test_times_belong_to_the_modules_that_took_them():
    """Sleeps of known length, forward and backward, in a tree; a write in place among them."""
    net = model()
    net(torch.ones(2)).sum().backward()
    _, times = watched(net, lambda: net(torch.ones(2)).sum().backward())
    seen = times.modules
    forward = {"0": 0.02, "1": 0.03, "1.0": 0.03, "": 0.05}
    backward = {"0": 0.05, "1": 0.01, "1.0": 0.01, "": 0.06}
    assert {path: seen[path].forward for path in forward} == pytest.approx(forward)
    assert {path: seen[path].backward for path in backward} == pytest.approx(backward)
    assert times.forward == seen[""].forward
    assert times.backward == pytest.approx(0.06)
    assert seen["1.1"].forward == 0
    assert times.optimizer is None


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_runs_again_is_told_apart(reentrant):
    """It is no forward pass, and it is not in the time of the backward nodes."""
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block = model()

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=reentrant)

    net = Checkpointed()
    x = torch.ones(2, requires_grad=True)
    _, times = watched(net, lambda: net(x).sum().backward())
    first = times.modules["block.0"]
    assert first.calls == first.repeats == 1
    assert first.again == pytest.approx(0.02)
    assert first.backward == pytest.approx(0.05)
    assert times.modules["block"].repeats + times.modules["block"].partly == 1
    assert times.modules[""].backward == pytest.approx(0.06)
    assert times.backward == pytest.approx(0.06 + 0.05)
    assert times.forward == pytest.approx(0.05)


def test_an_accumulated_step_is_the_sum_of_its_passes():
    """Two forward and two backward passes, one step of the optimizer."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step():
        for _ in range(2):
            net(torch.ones(2)).sum().backward()
        optimizer.step()

    watch, times = watched(net, step)
    assert len(watch.calls) == times.modules["0"].calls == 2
    assert times.modules["0"].forward == pytest.approx(2 * 0.02)
    assert times.modules["0"].backward == pytest.approx(2 * 0.05)
    assert times.optimizers == ("SGD",)
    assert times.optimizer == 0
    assert times.whole == pytest.approx(2 * (0.05 + 0.06))


def test_nothing_is_left():
    """No hook, attribute or changed function, on the model or in PyTorch."""
    net = model()
    before, functions = bare(net), patched()
    watch = Watch(net)
    watch.start()
    assert bare(net) != before
    assert patched() != functions
    net(torch.ones(2)).sum().backward()
    watch.stop()
    assert bare(net) == before
    assert patched() == functions


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_model_that_raises_is_as_it_was_and_its_error_is_seen(where):
    """Without a `with` around it, too."""

    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if where == "forward":
                raise ZeroDivisionError("the user's own")
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ZeroDivisionError("the user's own")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(2, 2)

        def forward(self, x):
            return Raises.apply(self.inner(x))

    net = Model()
    before, functions = bare(net), patched()
    Watch(net).start()
    with pytest.raises(ZeroDivisionError, match="the user's own"):
        net(torch.ones(2)).sum().backward()
    assert bare(net) == before
    assert patched() == functions


def test_training_goes_on_bit_by_bit():
    """Weights, losses and random numbers are those of a run that nobody watched."""

    def run(at):
        torch.manual_seed(3)
        net = torch.nn.Sequential(
            torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        )
        optimizer = torch.optim.Adam(net.parameters())
        losses = []
        for number in range(4):
            watch = Watch(net)
            if number == at:
                watch.start()
            optimizer.zero_grad()
            loss = net(torch.randn(4, 8)).pow(2).mean()
            loss.backward()
            optimizer.step()
            if number == at:
                watch.stop()
            losses.append(loss.item())
        return losses, [weight.detach().clone() for weight in net.parameters()]

    plain, seen = run(None), run(2)
    assert plain[0] == seen[0]
    assert all(map(torch.equal, plain[1], seen[1]))


def test_a_compiled_model_has_its_whole_time_and_names_what_is_hidden(monkeypatch):
    """Nothing is compiled into the graph, and the wrapper is as it was. A real clock."""
    monkeypatch.setattr("crossflops.profiling.watch.clock_of", clock_of)
    net = torch.compile(copy.deepcopy(torch.nn.Sequential(torch.nn.Linear(4, 4))), backend="eager")
    net(torch.ones(2, 4)).sum().backward()
    before = bare(net)
    _, times = watched(net, lambda: net(torch.ones(2, 4)).sum().backward())
    assert times.unseen == ("",)
    assert set(times.modules) == {""}
    assert times.forward > 0
    assert times.modules[""].backward > 0
    assert bare(net) == before


def test_an_optimizer_has_the_time_that_its_closure_leaves():
    """The closure takes time of its own, too, which no phase has."""

    class Stepping(torch.optim.SGD):
        def step(self, closure):
            CLOCK.now += 0.1
            return closure()

    net = model()
    optimizer = Stepping(net.parameters(), lr=0.1)

    def closure():
        CLOCK.now += 1
        loss = net(torch.ones(2)).sum()
        loss.backward()
        return loss

    for step in (lambda: optimizer.step(closure), lambda: optimizer.step(closure=closure)):
        _, times = watched(net, step)
        assert times.forward == pytest.approx(0.05)
        assert times.backward == pytest.approx(0.06)
        assert times.optimizer == pytest.approx(0.1)
        assert times.whole == pytest.approx(1.21)


def test_modules_beside_the_model_and_parts_of_it_have_their_own_time():
    """A module in front of it; the script calls its two parts, and not the model."""
    net, front = model(), Waits(0.5, 0.25)
    watch, times = watched(net, lambda: net[1](net[0](front(torch.ones(2)))).sum().backward())
    assert [call.path for call in watch.calls] == [None, "0", "1"]
    assert times.forward == pytest.approx(0.05)
    assert times.backward == pytest.approx(0.06)
    (beside,) = times.beside
    assert (beside.forward, beside.backward) == pytest.approx((0.5, 0.25))
    assert times.modules["0"].backward == pytest.approx(0.05)
    assert times.whole == pytest.approx(0.05 + 0.06 + 0.75)


@pytest.mark.parametrize("how", ["deepcopy", "save", "copy"])
def test_a_copy_made_within_the_step_is_one_of_the_bare_model(how):
    """It runs its own weights, and nothing of the watch is on it."""

    def take(net):
        if how == "save":
            file = io.BytesIO()
            torch.save(net, file)
            return torch.load(io.BytesIO(file.getvalue()), weights_only=False)
        return copy.deepcopy(net) if how == "deepcopy" else copy.copy(net)

    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    before, taken = bare(net), []
    watched(net, lambda: taken.append(take(net)))
    (other,) = taken
    assert bare(net) == before
    other[1] = torch.nn.Linear(4, 7)
    assert other(torch.ones(1, 4)).shape == (1, 7)
    assert "forward" not in vars(other)
    hooks = "_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called"
    assert not any(getattr(module, name) for module in other.modules() for name in hooks)


def test_the_optimizers_of_a_step_are_one_phase():
    """That of a model beside it is in it, and one that another one runs is there once."""

    class Slowly(torch.optim.SGD):
        def step(self, closure=None):
            CLOCK.now += 0.25

    class Outer(torch.optim.SGD):
        def step(self, closure=None):
            CLOCK.now += 0.5
            inner.step(closure)

    net, front = model(), torch.nn.Linear(2, 2)
    inner, other = Slowly(net.parameters(), lr=0.1), Slowly(front.parameters(), lr=0.1)
    outer = Outer(net.parameters(), lr=0.1)

    def step():
        net(front(torch.ones(2))).sum().backward()
        other.step()
        outer.step()

    _, times = watched(net, step)
    assert times.optimizer == pytest.approx(0.25 + 0.75)
    assert times.optimizers == ("Slowly", "Outer")
