"""Tools on models without values in their weights: what they print, and who is left out."""

from importlib.metadata import entry_points

import msgspec
import pytest
import torch
from msgspec import UNSET
from torch import nn

import crossflops
from crossflops.errors import InputError
from crossflops.frontends.inputs import parse_inputs
from crossflops.ir.profile import Failure, Profile
from crossflops.ir.provenance import WeightsKind
from crossflops.ir.trace import Setting
from crossflops.targets import weights
from crossflops.workers import worker
from crossflops.workers.jobs import Job

NEEDED = {"fvcore", "thop", "torch-flop-counter", "torch-profiler"}
MISSING = NEEDED - set(entry_points(group="crossflops.adapters").names)
pytestmark = [
    pytest.mark.tools,
    pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(sorted(MISSING))} is not installed"),
]
MODELS = """
import torch
from torch import nn


def plain():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))


class ReadsItsWeight(nn.Linear):
    def __init__(self):
        super().__init__(4, 4)

    def forward(self, x):
        return super().forward(x) if self.weight.sum().item() < 1e9 else x


class RefusesMeta(nn.Linear):
    def forward(self, x):
        assert x.device.type == self.weight.device.type == "cpu"
        return super().forward(x)


def on_meta():
    with torch.device("meta"):
        return RefusesMeta(4, 5), torch.ones(2, 4)
"""
SHAPE = "1x3x8x8"
SPECS = parse_inputs((SHAPE,))
MACS = 4 * 6 * 6 * 27 + 144 * 5


@pytest.fixture
def target(tmp_path):
    """The target of a class or a function of MODELS."""
    (tmp_path / "models.py").write_text(MODELS)
    return lambda name: f"{tmp_path / 'models.py'}:{name}"


def test_tools_without_values_print_the_same(target):
    """The profile says that it was so; a tool that looks at more is left out by its name."""
    asked = {"tools": ["fvcore", "thop", "torch-flop-counter", "torch-profiler"]}
    fake = crossflops.compare(target("plain"), SHAPE, weights="fake", **asked)
    assert fake.weights.kind == "fake"
    *answers, left_out = fake.profiles
    assert [answer.setting.fake for answer in answers] == [True] * 3
    assert [answer.total for answer in answers] == [MACS, MACS, 2 * MACS]
    assert set(fake.residuals.values()) == {0}
    assert isinstance(left_out, Failure)
    assert left_out.message.startswith("torch-profiler was skipped: it needs the values")
    assert "ran on fake tensors" in str(fake)
    assert crossflops.Report.from_json(fake.to_json()) == fake
    real = crossflops.compare(target("plain"), SHAPE, tools=["thop"])
    assert (real.weights.kind, real.profiles[0].setting.fake) == ("real", UNSET)
    assert real.profiles[0].total == MACS


def test_a_model_that_is_large_has_none(target, monkeypatch):
    """By its size, unless values decide about it: then it has them, and the report says why."""
    monkeypatch.setattr(weights, "LARGE", 0)
    asked = {"tools": ["torch-flop-counter"], "isolate": False}
    large = crossflops.compare(target("plain"), SHAPE, **asked)
    assert (large.weights.kind, large.profiles[0].setting.fake) == ("fake", True)
    assert large.profiles[0].total == 2 * MACS
    reads = crossflops.compare(target("ReadsItsWeight"), "1x4", **asked)
    assert (reads.weights.kind, reads.profiles[0].total) == ("real", 2 * 4 * 4)
    assert reads.weights.reason
    with pytest.raises(InputError, match="the model needs its weights"):
        crossflops.compare(target("ReadsItsWeight"), "1x4", weights="fake", **asked)


class ReadsWeights:
    """A tool that looks at a value, and hears nothing of it."""

    name, on_fakes = "reads", True

    def accepts(self, model):
        """Any model."""
        return True

    def profile(self, model, args, kwargs, setting):
        """One where the sum of the weights is a number, else the wrong two."""
        try:
            total = int(model[0].weight.sum().item() < 1e9)
        except RuntimeError:
            total = 2
        return Profile(tool="reads", version="1", setting=setting, total=total, printed_as="")


def test_a_tool_that_reads_values_is_given_some(target, monkeypatch):
    """It alone, and its profile says why; where values are not to be had it fails by name."""
    monkeypatch.setattr(weights, "LARGE", 0)
    asked = Job(
        tool="reads", setting=Setting(), target=target("plain"), inputs=SPECS, weights=None
    )
    answer = worker.run_when_permitted(
        asked, lambda: None, ReadsWeights(), worker.build_job_source(asked)
    )
    reason = "running the model reads values (aten._local_scalar_dense.default)"
    assert (answer.total, answer.setting.fake) == (1, UNSET)
    assert answer.weights == WeightsKind("real", reason)
    forced = msgspec.structs.replace(asked, weights="fake")
    failed = worker.run_when_permitted(
        forced, lambda: None, ReadsWeights(), worker.build_job_source(forced)
    )
    assert isinstance(failed, Failure)
    assert failed.message == (
        f"the model needs its weights, which --weights fake does not make: {reason}"
    )


def test_a_model_on_the_meta_device_is_compared():
    """Its tensors have no values, and tools run on such that stand for some on the CPU."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 5), nn.LSTM(5, 6, batch_first=True))
    report = crossflops.compare(model, "1x3x4", tools=["thop", "torch-flop-counter"])
    assert [answer.setting.fake for answer in report.profiles] == [True, True]
    assert set(report.residuals.values()) == {0}


def test_a_target_that_asks_for_the_meta_device_is_compared(target):
    """For its weights, and for its inputs: each process gives them the CPU."""
    report = crossflops.compare(target("on_meta"), tools=["fvcore", "torch-flop-counter"])
    assert [answer.total for answer in report.profiles] == [40, 80]
    assert [answer.setting.fake for answer in report.profiles] == [True, True]


def test_one_that_reads_values_there_is_refused():
    """In words that say what needed them."""

    class Reads(nn.Linear):
        def forward(self, x):
            return super().forward(x * self.weight.sum().item())

    with torch.device("meta"):
        model = Reads(4, 4)
    with pytest.raises(InputError, match="the model needs its weights"):
        crossflops.compare(model, "1x4", tools=["thop"], isolate=False)
