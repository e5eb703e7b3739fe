"""The verbs from Python: a model goes in, a report comes out, whatever the tools do."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from crossflops import compare, count
from crossflops.adapters import discovery
from crossflops.core.profile import Failure, Profile
from crossflops.core.trace import Setting
from crossflops.errors import InputError, UnknownNameError
from tests.models import Apply, AuxiliaryHead, Captioner, block, nn, torch

pytestmark = pytest.mark.torch
ROWS = torch.randn(2, 4)
MACS = 2 * 4 * 3  # of a linear layer from 4 to 3 on two rows


def linear():
    """A model of 24 MACs."""
    return nn.Sequential(nn.Linear(4, 3))


@pytest.fixture
def tools(monkeypatch):
    """Lets only these fake tools be installed, here and in the workers."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "counters"))

    def install(*classes):
        points = {
            one.lower(): EntryPoint(one.lower(), f"fake_counters:{one}", discovery.GROUP)
            for one in classes
        }
        monkeypatch.setattr(discovery, "installed", lambda: dict(sorted(points.items())))

    return install


@pytest.fixture
def target(tmp_path):
    """A file with callables."""
    path = tmp_path / "pipeline_target.py"
    path.write_text(
        "import torch\n"
        "def make(wide=3): return torch.nn.Linear(4, wide)\n"
        "def both(): return torch.nn.Linear(4, 3), torch.ones(2, 4)\n"
    )
    return str(path)


class TestInputs:
    """Inputs as Python callers give them."""

    @pytest.mark.parametrize(
        "inputs",
        [
            ROWS,
            (ROWS,),
            {"input": ROWS},
            ((ROWS,), {}),
            "2x4",
            ["input=2x4"],
        ],
        ids=["tensor", "tuple", "dict", "pair", "text", "texts"],
    )
    def test_every_way_to_give_them_is_the_same_model(self, inputs):
        """A tensor, a tuple, a list, a dict, (args, kwargs), texts: 24 MACs each."""
        found = count(nn.Linear(4, 3), inputs)
        assert found.macs == MACS
        assert [(one.dtype, one.shape) for one in found.model.inputs] == [("float32", (2, 4))]

    @pytest.mark.parametrize("given", ["object", "target"])
    def test_a_file_gives_them(self, target, tmp_path, given):
        """For a model object as for a target."""
        np.savez(tmp_path / "v.npz", np.ones((5, 4), np.float32))
        model = linear() if given == "object" else f"{target}:make"
        assert count(model, inputs_file=str(tmp_path / "v.npz")).macs == 5 * 12

    def test_a_target_is_called_with_arguments(self, target):
        """And its inputs may be texts, tensors, or its own."""
        assert count(f"{target}:make", "2x4", arguments={"wide": 5}).macs == 40
        assert count(f"{target}:make", {"input": ROWS}, arguments={"wide": 5}).macs == 40
        assert count(f"{target}:both").macs == MACS

    def test_five_inputs_of_two_types(self):
        """An image captioner takes four floats and integers, from a dict or from five texts."""
        by_dict = count(Captioner(), Captioner.inputs())
        texts = [
            f"{name}={'x'.join(map(str, shape))}{':int64' * (name == 'words')}"
            for name, shape in Captioner.SHAPES.items()
        ]
        by_texts = count(Captioner(), texts)
        assert by_dict.macs == by_texts.macs == Captioner.MACS
        assert by_dict.model == by_texts.model
        assert by_dict.uncounted == ()
        assert {one.name: (one.dtype, one.shape) for one in by_dict.model.inputs} == {
            name: ("int64" if name == "words" else "float32", shape)
            for name, shape in Captioner.SHAPES.items()
        }

    def test_wrong_inputs_are_refused(self):
        """A shape that the model does not take, and a text that says nothing."""
        with pytest.raises(InputError, match="the model raised on these inputs"):
            count(linear(), torch.randn(2, 5))
        with pytest.raises(InputError, match="cannot read the input '2x'"):
            count(linear(), "2x")


class TestCount:
    """Counting alone."""

    def test_a_report_has_every_table(self):
        """Totals, operators, modules and nodes are of one model."""
        found = count(block(), torch.randn(1, 3, 16, 16))
        assert found.macs == sum(row.macs for row in found.by_op) == 55296
        assert found.macs == sum(row.macs for row in found.nodes) == found.modules[0].macs
        assert found.params == found.modules[0].params == 216 + 16
        assert [row.path for row in found.modules] == ["", "0", "1", "2"]
        assert found.macs_by_precision == {"float32": 55296}
        assert found.as_ is None

    def test_the_setting_is_in_force(self):
        """In training both heads run, in evaluation one, whatever the model's own mode."""
        model = AuxiliaryHead().eval()
        assert count(model, ROWS, setting=Setting(training=True)).macs == 128
        assert count(model.train(), ROWS).macs == 64
        assert model.training

    def test_a_fold_is_the_tools_number(self):
        """fvcore: 55296 and 2 per element of batch norm; FlopCounterMode: 2 per MAC."""
        image = torch.randn(1, 3, 16, 16)
        found = count(block(), image, as_="fvcore")
        assert (found.as_.tool, found.as_.total, found.as_.assumed) == ("fvcore", 59392, False)
        assert found.macs == 55296
        assert count(block(), image, as_="torch-flop-counter").as_.total == 110592

    def test_a_fold_is_made_in_the_mode_that_the_tool_forces(self):
        """thop counts evaluation, while the native count is that of training."""
        found = count(AuxiliaryHead(), ROWS, setting=Setting(training=True), as_="thop")
        assert (found.macs, found.as_.total) == (128, 64)

    def test_a_fold_depends_on_gradients_where_the_tool_does(self):
        """Without gradients the attention module is one kernel that nobody counts."""
        model = Apply(
            lambda s, x: s.m(x, x, x, need_weights=False)[0],
            m=nn.MultiheadAttention(32, 4, batch_first=True),
        )
        words = torch.randn(2, 10, 32)
        totals = [
            count(model, words, as_="torch-flop-counter", setting=Setting(grad=grad)).as_.total
            for grad in (True, False)
        ]
        assert totals == [163840, 0]

    def test_an_unknown_fold_is_refused_before_the_model_is_touched(self):
        """The name is looked up first."""
        with pytest.raises(UnknownNameError, match="no convention is known for the tool 'nobody'"):
            count("no.such:model", as_="nobody")

    def test_a_fold_needs_no_tool(self, target):
        """`--as thop@0.0.31` neither imports nor needs thop: its import is forbidden here."""
        code = (
            "import sys\n"
            "sys.modules['thop'] = sys.modules['fvcore'] = None\n"
            "from crossflops import count\n"
            f"found = count({target + ':make'!r}, '2x4', as_='thop@0.0.31')\n"
            "assert sys.modules['thop'] is None\n"
            "print(found.as_.tool, found.as_.edition, found.as_.total, found.macs)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == ["thop", "0.0.31", "0", "24"], done.stderr


class TestCompareHere:
    """Tools in this process."""

    def test_a_tool_is_explained(self, tools):
        """48 for 24 MACs: the unit, and nothing else."""
        tools("Honest")
        found = compare(linear(), ROWS, isolate=False)
        (profile,) = found.profiles
        (one,) = found.reconciliations
        assert isinstance(profile, Profile)
        assert (profile.total, profile.digest) == (2 * MACS, found.model.digest)
        assert profile.verified
        assert (one.ours, one.theirs, one.predicted, one.residual) == (24, 48, 48, 0)
        assert [(e.cause, e.amount) for e in one.explanations] == [("unit.mac-vs-flop", 24)]

    def test_an_answer_that_is_off_by_one_leaves_one(self, tools):
        """The residual is exactly what no cause covers; the explanations stay."""
        tools("Honest", "Shifted")
        found = compare(linear(), ROWS, isolate=False)
        assert found.residuals == {"honest": 0, "shifted": 1}
        first, second = found.reconciliations
        assert first.explanations == second.explanations
        assert first.predicted == second.predicted

    def test_every_failure_is_one_line_and_the_others_go_on(self, tools):
        """A tool that raises, one that is not there, a broken plugin, an unknown convention."""
        tools(
            "Honest",
            "Raises",
            "Absent",
            "Broken",
            "Unheard",
        )
        found = compare(linear(), ROWS, isolate=False)
        failures = {one.tool: one for one in found.profiles if isinstance(one, Failure)}
        assert {tool: (one.stage, one.message) for tool, one in failures.items()} == {
            "absent": ("load", "the tool is not installed"),
            "broken": ("load", "KeyError: 'version'"),
            "raises": ("run", "ValueError: no rule for Foo"),
            "unheard": ("load", "no convention is known for the tool 'unheard'"),
        }
        assert failures["absent"].hint == "pip install the-tool"
        assert all(one.hint for one in failures.values())
        assert found.residuals == {"honest": 0}

    def test_tools_are_chosen(self, tools):
        """Only those that are named run; the answers are in the order of names."""
        tools("Honest", "Raises", "Shifted")
        found = compare(linear(), ROWS, tools=["shifted", "honest"], isolate=False)
        assert [one.tool for one in found.profiles] == ["honest", "shifted"]

    def test_an_unknown_tool_is_refused(self, tools):
        """It is an error of the request, and lists what there is."""
        tools("Honest")
        with pytest.raises(UnknownNameError, match="no installed plugin offers the tool 'nobody'"):
            compare(linear(), ROWS, tools=["nobody"], isolate=False)

    def test_without_tools_there_is_the_native_count(self, tools):
        """Nothing to compare is no error."""
        tools()
        found = compare(linear(), ROWS)
        assert (found.macs, found.profiles, found.reconciliations) == (MACS, (), ())

    def test_progress_is_told_in_order(self, tools):
        """Predictions are fixed before any tool is done."""
        tools("Honest")
        said = []
        compare(linear(), ROWS, on_progress=said.append)
        assert said == [
            "exporting the model to ONNX",
            "predictions are fixed; the tools run",
            "honest done",
        ]

    def test_a_mode_that_a_tool_forces_is_a_cause(self, tools):
        """Asked for training: 128 MACs natively; the tool counts the 64 of evaluation."""
        tools("Eval", "Honest")
        model = AuxiliaryHead()
        found = compare(model, ROWS, setting=Setting(training=True), isolate=False)
        forced = found.reconciliation("eval")
        assert (forced.ours, forced.theirs, forced.residual) == (128, 64, 0)
        assert [(one.cause, one.amount) for one in forced.explanations] == [
            ("scope.mode-forced-eval", -64)
        ]
        free = found.reconciliation("honest")
        assert (free.ours, free.theirs, free.residual) == (128, 256, 0)
        assert model.training


class TestCompareIsolated:
    """Tools in worker processes."""

    def test_tools_that_crash_or_hang_cost_one_line(self, tools):
        """The one that works is explained, the one off by one has its residual."""
        tools(
            "Honest",
            "Shifted",
            "Crashes",
            "Raises",
        )
        found = compare(linear(), ROWS)
        failures = {one.tool: one.stage for one in found.profiles if isinstance(one, Failure)}
        assert failures == {"crashes": "crash", "raises": "run"}
        assert found.residuals == {"honest": 0, "shifted": 1}

    def test_a_tool_past_its_time_costs_one_line(self, tools):
        """After the limit the comparison is whole without it."""
        tools("Honest", "Hangs")
        found = compare(linear(), ROWS, timeout=15)
        (late,) = [one for one in found.profiles if isinstance(one, Failure)]
        assert (late.tool, late.stage) == ("hangs", "time")
        assert found.residuals == {"honest": 0}

    def test_a_target_is_built_in_the_worker(self, tools, target):
        """With its arguments and the inputs that were written."""
        tools("Honest")
        found = compare(f"{target}:make", "2x4", arguments={"wide": 5})
        assert found.macs == 40
        assert found.reconciliation("honest").theirs == 80
        assert found.residuals == {"honest": 0}

    def test_a_model_that_cannot_be_sent_fails_the_tools_alone(self, tools):
        """The native count is made; the hint says how to do better."""
        tools("Honest")
        found = compare(Apply(lambda s, x: s.layer(x), layer=nn.Linear(4, 3)), ROWS)
        assert found.macs == MACS
        (failed,) = found.profiles
        assert (failed.tool, failed.stage) == ("honest", "build")
        assert "isolate=False" in failed.hint
