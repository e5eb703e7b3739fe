"""Training steps that `bench --train` times: their work is exact, whatever the times are."""

from pathlib import Path

import pytest

import crossflops
from crossflops.bench.timing import BenchLimits
from crossflops.ir.measurement import Measurement, StepPhases
from crossflops.profiling.run import Recipe, time_steps
from crossflops.report.bench import Bench, BenchPeak
from crossflops.targets.request import Request
from crossflops.verbs.bench_training import (
    build_bench_step,
    count_model_training_step,
    step_timing_notes,
    training_step_work,
)

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="the extra [torch] is not installed")

NET = """
import torch
def net():
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 5, bias=False))
"""
FORWARD, BACKWARD = 3 * 4 + 4 * 5, 3 * 4 + 2 * 4 * 5  # of a row; the input has no gradient


def net():
    """The model of the text above."""
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 5, bias=False))


def test_the_phases_of_a_step(tmp_path, line):
    """4 rows by 32 and 52 MACs; AdamW updates 16 + 20 numbers by 14 operations each.

    These are: a mul for the decay; m: sub, mul, add; v: 3 muls and an add; the update: a root, two
    divs, an add, a mul and a sub. The times of the file are no times of a forward pass.
    """
    (tmp_path / "net.py").write_text(NET)
    target, file = f"{tmp_path / 'net.py'}:net", str(tmp_path / "bench.json")
    quick = ("--seconds", "0.05", "--threads", "1", "--peak-tflops", "1000", "-o", file)
    status, _, _ = line("bench", target, "--input", "2x3", "--train", "--batch", "4", *quick)
    assert status == 0
    bench = Bench.from_json(Path(file).read_bytes())
    forward, backward, optimizer = bench.step.phases
    assert (forward.macs, backward.macs, optimizer.macs) == (4 * FORWARD, 4 * BACKWARD, 0)
    assert bench.macs == 4 * (FORWARD + BACKWARD)
    assert (bench.batch, bench.step.optimizer, bench.profile) == (4, "AdamW", None)
    assert forward.share == pytest.approx(2 * forward.macs / forward.seconds / 1e15)
    share = pytest.approx(bench.share(bench.measurement))
    assert (bench.step.mfu, bench.step.hfu) == (share, share)
    assert optimizer.flops == 36 * 14
    assert (bench.request.flags["train"], bench.request.flags["optimizer"]) == (True, "adamw")
    peak = ("--peak-tflops", "1", "--bandwidth", "1", "--input", "4x3")
    status, _, err = line("efficiency", target, *peak, "--bench", file)
    assert (status, "the time of a training step" in err) == (2, True)
    status, out, _ = line("render", file)
    assert status == 0
    assert "MACs a training step of 4 examples" in " ".join(out.split())
    assert [word in out for word in ("forward", "backward", "optimizer", "the rest")] == [True] * 4


def timed(model, optimizer):
    """The steps of a model on two rows, and its count."""
    recipe = Recipe(optimizer=optimizer, limits=BenchLimits(1, 2, 1, 0.1))
    timing, phases = time_steps(model, (torch.ones(2, 3),), {}, recipe)
    request = Request.from_arguments(model, torch.ones(2, 3))
    return count_model_training_step(request, optimizer)[0], phases, timing


def test_an_optimizer_that_runs_the_model():
    """LBFGS runs it again and again, so its passes are work, and it has no count itself."""
    report, phases, timing = timed(net(), "lbfgs")
    step = build_bench_step(report, phases, timing, None)
    assert step.passes > 1
    assert [row.macs for row in step.phases[:2]] == [
        step.passes * 2 * FORWARD,
        step.passes * 2 * BACKWARD,
    ]
    assert (step.phases[2].flops, step.phases[0].share, step.mfu) == (None, None, None)
    assert list(step_timing_notes(report, phases)) == [
        "the work of optimizer LBFGS is unknown and not counted"
    ]


def test_a_frozen_model_has_a_forward_pass_alone():
    """No output has a gradient, and nothing is left to an optimizer."""
    report, phases, timing = timed(net().requires_grad_(False), "sgd")
    step = build_bench_step(report, phases, timing, None)
    assert [(row.phase, row.macs) for row in step.phases] == [("forward", 2 * FORWARD)]
    assert training_step_work(report, phases)[0] == 2 * FORWARD
    assert list(step_timing_notes(report, phases)) == [
        "no output requires a gradient, so there was no backward pass"
    ]


def test_what_a_step_takes_at_its_peaks():
    """A row of 32 MACs in a second and 52 in half of one, of a step of 2 s, at 128 FLOP/s.

    Of bf16 weights run at another peak nothing is said.
    """
    report = crossflops.count(net(), torch.zeros(1, 3), train=True)
    phases = StepPhases(whole=2.0, forward=1.0, backward=0.5, optimizer=0.25, optimizer_name="SGD")
    timing = Measurement(
        batch=1, seconds=(2.0,), p50=2.0, p90=2.0, p99=2.0, examples_per_second=0.5, warmup=0
    )
    peak = BenchPeak(rates={"float32": 128.0}, source="given")
    step = build_bench_step(report, phases, timing, peak)
    assert [row.share for row in step.phases] == [64 / 128, 104 / 0.5 / 128, None]
    assert (step.rest_seconds, step.mfu, step.hfu) == (0.25, 168 / 2 / 128, 168 / 2 / 128)
    assert training_step_work(report, phases)[2] == {"float32": FORWARD + BACKWARD}
    other = BenchPeak(rates={"bfloat16": 128.0}, source="given")
    assert build_bench_step(report, phases, timing, other).mfu is None


def test_what_runs_again_is_in_the_hfu_alone():
    """A checkpoint of 12 MACs runs them once more: MFU by 84 of them, HFU by 96."""
    from torch.utils.checkpoint import checkpoint

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x):
            return self.net[1](checkpoint(self.net[0], x, use_reentrant=True))

    x = torch.zeros(1, 3, requires_grad=True)
    report = crossflops.count(Block(), x, train=True)
    phases = StepPhases(whole=2.0, forward=1.0, backward=1.0, optimizer=None)
    timing = Measurement(
        batch=1, seconds=(2.0,), p50=2.0, p90=2.0, p99=2.0, examples_per_second=0.5, warmup=0
    )
    step = build_bench_step(
        report, phases, timing, BenchPeak(rates={"float32": 1e3}, source="given")
    )
    needed = report.training.macs - report.training.recomputed_macs
    assert step.recomputed_macs == report.training.recomputed_macs > 0
    assert step.hfu / step.mfu == pytest.approx(report.training.macs / needed)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--no-grad",), "--no-grad"),
        (("--runtime", "onnxruntime"), "--runtime"),
        (("--write-trace", "x.json"), "--write-trace"),
        (("--optimization", "off"), "--optimization"),
    ],
)
def test_what_a_step_has_no_use_for(tmp_path, line, arguments, word):
    """Two lines, and 2."""
    (tmp_path / "net.py").write_text(NET)
    target = f"{tmp_path / 'net.py'}:net"
    given = ("bench", target, "--input", "2x3", "--train", *arguments)
    status, out, err = line(*given)
    assert (status, out, word in err, len(err.splitlines())) == (2, "", True, 2)


def test_what_is_not_trained(tmp_path, line):
    """A file, and an optimizer without --train."""
    file = tmp_path / "net.onnx"
    file.write_bytes(b"")
    status, _, err = line("bench", str(file), "--train")
    assert (status, "holds only a forward pass" in err) == (2, True)
    status, _, err = line("bench", "torchvision.models:resnet18", "--optimizer", "sgd")
    assert (status, "--optimizer" in err) == (2, True)


WARNS = """
import warnings
import torch
from crossflops.errors import CrossflopsWarning
def net():
    warnings.warn("its size is guessed", CrossflopsWarning)
    return torch.nn.Linear(3, 4)
"""


def test_a_warning_of_each_build_is_said_once(tmp_path, line):
    """The model is built for the count and for the run of each batch."""
    (tmp_path / "net.py").write_text(WARNS)
    given = ("--input", "2x3", "--train", "--batch", "2,4", "--threads", "1")
    limits = ("--seconds", "0.05", "--peak-tflops", "1000")
    target = f"{tmp_path / 'net.py'}:net"
    status, _, err = line("bench", target, *given, *limits)
    assert (status, err.count("its size is guessed")) == (0, 1)
    status, _, err = line("count", target, "--input", "2x3")  # a command of its own
    assert (status, err.count("its size is guessed")) == (0, 1)


def test_what_is_wrong_with_a_target_is_so_with_values_too():
    """Its own words are said; what another error led to may be for want of values."""
    from crossflops.errors import TargetError, ValuesNeededError
    from crossflops.frontends.pytorch.load.fakes import building_fake_tensors

    with pytest.raises(TargetError, match="no such size"), building_fake_tensors():
        raise TargetError("no such size", "give another")
    with pytest.raises(ValuesNeededError, match="it raised"), building_fake_tensors():
        raise TargetError("it raised", "see there") from RuntimeError()
