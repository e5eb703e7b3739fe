"""The verb, and the profiler in a loop: a count beside times, module by module."""

import json
import random

import pytest

import crossflops
from crossflops.cli import main
from crossflops.errors import CrossflopsError, CrossflopsWarning, InputError, NormalizeError
from crossflops.hardware.rates.remarks import module_profile_remarks
from crossflops.ir.trace import Setting
from crossflops.ir.training import Training
from crossflops.report.profile import ModuleProfile, TrainingProfile, children_by_path
from crossflops.training_loops.callbacks import ProfiledStep
from tests.profiling.test_watch import bare, patched

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = pytest.mark.torch

PEAK = 1e3  # TFLOP/s: no machine that runs these tests does so much


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(self.norm(self.conv(x)) + x)


class Net(nn.Module):
    """A stem, two blocks in a list, a product of its own, a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.mix = nn.Parameter(torch.ones(4, 4))
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)) @ self.mix)


BATCH, SIDE = 2, 8
STEM = BATCH * SIDE**2 * 4 * 3 * 9
CONV = BATCH * SIDE**2 * 4 * 4 * 9
MIX, HEAD = BATCH * 4 * 4, BATCH * 4 * 5
FORWARD = STEM + 2 * CONV + MIX + HEAD


def inputs():
    """A batch of two images."""
    return torch.randn(BATCH, 3, SIDE, SIDE)


def train(net, profiler=None, steps=3, **batch):
    """Losses of some steps, all of them watched for the one that is profiled."""
    import contextlib

    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        with profiler.watch() if profiler else contextlib.nullcontext():
            optimizer.zero_grad()
            loss = net(inputs()).pow(2).mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.fixture(scope="module")
def profile():
    """Of the net, for a moment."""
    return crossflops.profile(
        Net(), inputs(), seconds=0.05, peak_tflops=PEAK, setting=Setting(training=True)
    )


def test_the_work_is_that_by_hand(profile):
    """Each product once forward and once for each operand with a gradient: all but the input."""
    assert profile.work.forward_macs == FORWARD
    assert profile.backward_macs == 2 * FORWARD - STEM
    assert profile.model_macs == profile.executed_macs == 3 * FORWARD - STEM
    assert profile.examples == BATCH


def test_the_tree_sums_to_the_count_at_every_level(profile):
    """A module's own products and those of its children are all of its products."""
    inside = children_by_path(profile.modules)
    for row in profile.modules:
        assert row.macs == row.own_macs + sum(child.macs for child in inside[row.path]), row.path
    assert profile.module("").own_macs == MIX
    assert profile.module("blocks").macs == 2 * CONV
    assert profile.module("blocks.0").own_macs == 0
    count = crossflops.count(Net(), inputs(), train=True)
    assert {row.path: row.macs for row in profile.modules} == {
        row.path: row.macs for row in count.modules
    }


def test_every_module_has_its_time(profile):
    """Also one that is only a list; the whole step, and each of its phases."""
    for row in profile.modules:
        assert row.forward_seconds > 0, row.path
    inner = sum(profile.module(f"blocks.{n}").forward_seconds for n in range(2))
    assert profile.module("blocks").forward_seconds == pytest.approx(inner)
    times = profile.latencies
    assert min(times.forward, times.backward, times.optimizer, times.iteration) > 0
    assert profile.module("").backward_seconds <= profile.watched.backward
    assert profile.mfu == profile.hfu
    assert 0 < profile.mfu < 1


def test_memory_is_measured_beside_liveness(profile):
    """A step holds what its backward pass needs, so more than a forward pass alone."""
    assert profile.memory.params == 4 * profile.params
    assert 0 < profile.memory.forward < profile.memory.step
    assert profile.memory.by_liveness > 0


def test_the_profile_round_trips_and_has_its_views(profile, tmp_path):
    """JSON, Markdown, CSV; fewer levels, fewer modules, no tree."""
    again = TrainingProfile.from_json(profile.to_json())
    assert again.to_json() == profile.to_json()
    plain = json.loads(profile.to_json())
    assert plain["work"]["forward_macs"] == FORWARD
    assert plain["rates"]["mfu"] == profile.mfu
    file = profile.save(tmp_path / "p.md")
    assert "## Top modules by depth" in file.read_text()
    assert "conv" in profile.page()
    assert "conv" not in profile.page(depth=1)
    assert "stem" not in profile.page(detailed=False)
    shown = tmp_path / "p.json"
    profile.save(shown)
    assert main(["render", str(shown), "-o", str(tmp_path / "again.md")]) == 0
    assert (tmp_path / "again.md").read_text() == file.read_text()


def test_the_command_is_the_function(tmp_path, capsys):
    """A target, its JSON, and a peak that every module exceeds: exit status 1."""
    source = tmp_path / "net.py"
    source.write_text("from torch import nn\n\ndef net():\n    return nn.Linear(64, 64)\n")
    line = ["profile", f"{source}:net", "--input", "8x64", "--seconds", "0.05", "--json"]
    assert main([*line, "--peak-tflops", str(PEAK)]) == 0
    assert json.loads(capsys.readouterr().out)["work"]["forward_macs"] == 8 * 64 * 64
    assert main([*line, "--peak-tflops", "1e-9"]) == 1
    assert "above the peak" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"optimizer": "Nothing"}, "torch.optim has no"),
        ({"bwd_ms": 2.0}, "--bwd-ms and --step-ms require --fwd-ms"),
        ({"frozen": ("stem",)}, "`crossflops profile` runs the model"),
        ({"device": "no such device"}, "no such device"),
    ],
)
def test_what_is_wrong_is_refused(options, says):
    """In a sentence, with what to do."""
    with pytest.raises(CrossflopsError, match=says) as raised:
        crossflops.profile(Net(), inputs(), seconds=0.01, **options)
    assert raised.value.hint


def test_a_step_that_raises_is_told():
    """With the model's own words."""

    def loss(_):
        raise ZeroDivisionError("no loss")

    with pytest.raises(NormalizeError, match="ZeroDivisionError: no loss"):
        crossflops.profile(Net(), inputs(), seconds=0.01, peak_tflops=PEAK, loss=loss)


# In a training loop.


def test_the_chosen_step_is_profiled_and_nothing_else_changes(capsys):
    """Losses as without it, to the last bit; the model is bare before and after."""

    def run(profiled):
        torch.manual_seed(1)
        random.seed(1)
        net = Net()
        before, functions = bare(net), patched()
        profiler = crossflops.FlopsProfiler(net, step=2, peak_tflops=PEAK) if profiled else None
        losses = train(net, profiler)
        assert bare(net) == before
        assert patched() == functions
        return losses, random.random(), torch.rand(1).item(), profiler

    plain, seen = run(False), run(True)
    assert plain[:3] == seen[:3]
    page = capsys.readouterr().out
    assert page.count("Top modules by depth") == 1
    profile = seen[3].profile
    assert profile.work.forward_macs == FORWARD
    assert profile.latencies.optimizer > 0
    assert "the optimizer is SGD" in profile.assumptions


def test_the_loop_of_the_other_profiler_runs_with_the_import_changed(tmp_path, capsys):
    """Its documented calls, in its documented order: the backward pass comes afterwards."""
    net = Net()
    before = bare(net)
    prof = crossflops.FlopsProfiler(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        if step == 1:
            prof.start_profile()
        loss = net(inputs()).sum()
        if step == 1:
            prof.stop_profile()
            assert prof.get_total_macs() == FORWARD
            assert prof.get_total_flops() > 2 * FORWARD
            assert prof.get_total_params() == sum(p.numel() for p in net.parameters())
            assert prof.get_total_duration() > 0
            assert prof.get_total_macs(as_string=True).endswith("kMACs")
            prof.print_model_profile(profile_step=1, output_file=str(tmp_path / "out.txt"))
            prof.print_model_aggregated_profile(module_depth=1, top_modules=2)
            prof.end_profile()
            assert bare(net) == before
        loss.backward()
        optimizer.step()
    assert "(the model)" in (tmp_path / "out.txt").read_text()
    assert "(the model)" not in capsys.readouterr().out
    with pytest.raises(CrossflopsError, match="no step was profiled"):
        prof.get_total_flops()


def test_accumulated_passes_of_two_sizes_are_both_counted():
    """Each kind of input by itself."""
    net = Net()
    profiler = crossflops.FlopsProfiler(net, peak_tflops=PEAK)
    profiler.start()
    for batch in (2, 2, 4):
        net(torch.randn(batch, 3, SIDE, SIDE)).sum().backward()
    profiler.stop()
    profile = profiler.profile
    assert profile.forward_calls == 3
    assert profile.examples == 8
    assert profile.work.forward_macs == 4 * FORWARD
    assert profile.module("head").calls == 3
    assert "no optimizer step" in " ".join(profile.warnings)


def test_checkpointed_work_is_in_hfu_and_not_in_mfu():
    """The block runs again: its convolution, which the product behind it needs."""
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(Net):
        def forward(self, x):
            x = self.stem(x)
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return self.head(x.mean((2, 3)) @ self.mix)

    net = Checkpointed()
    profiler = crossflops.FlopsProfiler(net, peak_tflops=PEAK)
    profiler.start()
    net(inputs()).sum().backward()
    profiler.stop()
    profile = profiler.profile
    assert profile.work.recomputed_macs == 2 * CONV
    assert not any("run again" in text for text in profile.warnings)
    assert profile.model_macs == 3 * FORWARD - STEM
    assert profile.executed_macs == profile.model_macs + 2 * CONV
    assert profile.hfu > profile.mfu


def test_autocast_is_the_precision_and_a_compiled_model_is_counted():
    """Products run in bfloat16; what the compiler hides has work, no time, and a warning."""
    net = torch.compile(Net(), backend="eager")
    profiler = crossflops.FlopsProfiler(net, peak_tflops=PEAK)
    profiler.start()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(inputs()).sum()
    loss.backward()
    profiler.stop()
    profile = profiler.profile
    assert profile.work.forward_macs == FORWARD
    assert profile.peak.precision == "bf16"
    assert profile.module("head").forward_seconds is None
    assert any("torch.compile hides the modules in the model" in text for text in profile.warnings)


def test_a_configuration_of_deepspeed_switches_it_on(tmp_path, capsys):
    """`enabled`, the step, the depth and the file of its block."""
    out = tmp_path / "profile.txt"
    block = {"enabled": True, "profile_step": 2, "module_depth": 1, "output_file": str(out)}
    net = Net()
    profiler = crossflops.FlopsProfiler.from_config(
        net, {"train_batch_size": 2, "flops_profiler": block}, peak_tflops=PEAK
    )
    train(net, profiler, steps=1)
    assert not out.exists()
    train(net, profiler, steps=1)
    assert "blocks" in out.read_text()
    assert "conv" not in out.read_text()
    off = crossflops.FlopsProfiler.from_config(net, {"flops_profiler": {"profile_step": 1}})
    train(net, off, steps=2)
    assert capsys.readouterr().out == ""
    with pytest.raises(InputError, match="ignore_list is not supported"):
        off.start_profile(ignore_list=[nn.ReLU])


def test_only_the_first_process_prints(monkeypatch, capsys):
    """RANK is what torchrun sets."""
    monkeypatch.setenv("RANK", "1")
    net = Net()
    train(net, crossflops.FlopsProfiler(net, peak_tflops=PEAK), steps=1)
    assert capsys.readouterr().out == ""


def test_a_step_that_raised_has_no_profile():
    """The user's own error is what is seen, and the profiler says why it has nothing."""
    net = Net()
    before = bare(net)
    profiler = crossflops.FlopsProfiler(net, peak_tflops=PEAK)
    profiler.start()
    with pytest.raises(RuntimeError):
        net(torch.randn(2, 7, SIDE, SIDE))
    assert bare(net) == before
    profiler.stop()
    with pytest.raises(CrossflopsError, match="raised an exception"):
        profiler.get_total_macs()
    with pytest.raises(ZeroDivisionError), crossflops.FlopsProfiler(net).watch():
        raise ZeroDivisionError
    assert bare(net) == before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": "h1oo"}, "h1oo"),
        ({"device": "a100-sxm4-40gb", "precision": "fp3"}, "fp3"),
        ({"peak_tflops": "much"}, "much"),
        ({"as_": "deepsped"}, "deepsped"),
    ],
)
def test_what_cannot_be_meant_is_told_before_the_training(options, says):
    """By the profiler, and by what makes one in the middle of a training."""
    with pytest.raises(CrossflopsError, match=says):
        crossflops.FlopsProfiler(Net(), **options)
    with pytest.raises(CrossflopsError, match=says):
        ProfiledStep(5, options)


@pytest.mark.parametrize(("own", "parts", "seconds", "flagged"), [
    (0, (4.0, 5.0), 10.0, False),  # 90 %: just enough
    (0, (4.0, 4.9), 10.0, True),
    (7, (1.0, 1.0), 10.0, False),  # its own work has the rest
    (7, (6.0, 6.0), 10.0, True),  # more than all of it
    (0, (0.1, 0.1), 0.49, False),  # below 5 % of the model's time
    (0, (0.1, 0.1), 0.5, True),
])  # fmt: skip
def test_a_module_whose_parts_leave_its_time_unexplained_is_flagged(own, parts, seconds, flagged):
    """Ten seconds are those of the model, around one module with two parts."""
    work = Training(**dict.fromkeys(Training.__struct_fields__, 0))
    rows = [
        ModuleProfile(
            path=path, class_="M", depth=path.count("."), params=0, training=work, own_macs=0,
            own_flops=flops, bytes=0, forward_seconds=time,
        )
        for path, time, flops in (
            ("", 10.0, 1), ("a", seconds, own), ("a.0", parts[0], 1), ("a.1", parts[1], 1),
        )
    ]  # fmt: skip
    _, left = module_profile_remarks(rows, None, ())
    assert len(left) == flagged
    assert all(text.startswith("a took") for text in left)


def test_a_step_that_runs_out_of_memory_leaves_the_model_as_it_was():
    """In the optimizer, where its states are made; the user's own error is what is seen."""

    class Greedy(torch.optim.SGD):
        def step(self, closure=None):
            raise torch.OutOfMemoryError("no more")

    net = Net()
    before, functions = bare(net), patched()
    optimizer = Greedy(net.parameters())
    profiler = crossflops.FlopsProfiler(net, peak_tflops=PEAK)

    def step():
        with profiler.watch():
            net(inputs()).sum().backward()
            optimizer.step()

    with pytest.raises(torch.OutOfMemoryError, match="no more") as raised:
        step()
    assert not hasattr(raised.value, "__notes__")
    assert bare(net) == before
    assert patched() == functions


def test_a_loop_that_does_not_call_the_model_goes_on():
    """With a warning."""
    profiler = crossflops.FlopsProfiler(Net())
    with pytest.warns(CrossflopsWarning, match="was not called"), profiler.watch():
        pass


def test_an_optimizer_that_runs_the_model_itself_is_profiled(capfd):
    """LBFGS: its passes of one step are counted, its examples once; no lines of the profiler."""
    profile = crossflops.profile(
        nn.Linear(4, 2), torch.randn(3, 4), optimizer="lbfgs", seconds=0.05, peak_tflops=PEAK
    )
    passes = profile.work.forward_macs // (3 * 4 * 2)
    assert profile.forward_calls == passes > 1
    assert profile.work.backward_weight_macs == profile.work.forward_macs
    assert profile.examples == 3
    times = profile.latencies
    phases = times.forward + times.backward + times.optimizer
    assert phases == pytest.approx(times.iteration, rel=0.5)
    assert "USDT" not in capfd.readouterr().err


def test_rates_leave_out_what_is_no_training(monkeypatch):
    """A validation of 100 s behind the second step, and one behind the last."""
    from types import SimpleNamespace

    from crossflops.training_loops import callbacks

    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(callbacks, "time", clock)
    rates = callbacks.StepRates()
    rates.profile = SimpleNamespace(step_macs=1, examples=4, of_peak=lambda rate: None)
    for number in (1, 2, 3):
        clock.now += 0.5  # a batch is loaded
        rates.begin_step()
        clock.now += 0.5
        rates.count_finished_step()
        if number > 1:
            rates.pause_clock()
            clock.now += 100
    # the load of the third batch is in the pause
    assert rates.take_rates()["samples_per_second"] == pytest.approx(3 * 4 / 2.5)
    rates.begin_step()
    clock.now += 2
    rates.count_finished_step()
    assert rates.take_rates()["samples_per_second"] == pytest.approx(4 / 2)
