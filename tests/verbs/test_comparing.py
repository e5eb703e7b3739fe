"""`compare`: in this process and in workers."""

import os
import time

import pytest

from crossflops import compare
from crossflops.errors import CrossflopsWarning, InputError, UnknownNameError
from crossflops.frontends.pytorch import program
from crossflops.ir.profile import Failure, Profile
from crossflops.ir.trace import Setting
from crossflops.rules.prediction import predict
from crossflops.verbs.compare import predictions
from tests.models import Apply, AuxiliaryHead, nn
from tests.verbs.small import MACS, ROWS, linear

pytestmark = pytest.mark.torch


class TestCompareHere:
    """Tools in this process."""

    def test_a_tool_is_explained(self, tools):
        """48 for 24 MACs: the unit, and nothing else."""
        tools("Honest")
        report = compare(linear(), ROWS, isolate=False)
        (profile,) = report.profiles
        (account,) = report.reconciliations
        assert isinstance(profile, Profile)
        assert (profile.total, profile.digest) == (2 * MACS, report.model.digest)
        assert profile.verified
        assert (account.ours, account.theirs, account.predicted, account.residual) == (
            24,
            48,
            48,
            0,
        )
        assert [(e.cause, e.amount) for e in account.explanations] == [("unit.mac-vs-flop", 24)]

    def test_an_answer_that_is_off_by_one_leaves_one(self, tools):
        """The residual is exactly what no cause covers; the explanations stay."""
        tools("Honest", "Shifted")
        report = compare(linear(), ROWS, isolate=False)
        assert report.residuals == {"honest": 0, "shifted": 1}
        first, second = report.reconciliations
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
        report = compare(linear(), ROWS, isolate=False)
        failures = {
            profile.tool: profile for profile in report.profiles if isinstance(profile, Failure)
        }
        assert {tool: (failure.stage, failure.message) for tool, failure in failures.items()} == {
            "absent": ("load", "the tool is not installed"),
            "broken": ("load", "KeyError: 'version'"),
            "raises": ("run", "ValueError: no rule for Foo"),
            "unheard": ("load", "no convention is known for the tool 'unheard'"),
        }
        assert failures["absent"].hint == "pip install the-tool"
        assert all(failure.hint for failure in failures.values())
        assert report.residuals == {"honest": 0}

    def test_tools_are_chosen(self, tools):
        """Only those that are named run; the answers are in the order of names."""
        tools("Honest", "Raises", "Shifted")
        report = compare(linear(), ROWS, tools=["shifted", "honest"], isolate=False)
        assert [profile.tool for profile in report.profiles] == ["honest", "shifted"]

    def test_an_unknown_tool_is_refused(self, tools):
        """It is an error of the request, and lists what there is."""
        tools("Honest")
        with pytest.raises(UnknownNameError, match="no installed plugin has the tool 'nobody'"):
            compare(linear(), ROWS, tools=["nobody"], isolate=False)

    def test_without_tools_there_is_the_native_count(self, tools):
        """Nothing to compare is no error."""
        tools()
        report = compare(linear(), ROWS)
        assert (report.macs, report.profiles, report.reconciliations) == (MACS, (), ())

    def test_progress_is_told_in_order(self, tools):
        """Predictions are fixed before any tool is done."""
        tools("Honest")
        messages = []
        compare(linear(), ROWS, on_progress=messages.append)
        assert messages == [
            "exporting the model to ONNX",
            "predictions are fixed; running the tools",
            "honest done, 1 of 1",
        ]

    def test_a_mode_that_a_tool_forces_is_a_cause(self, tools):
        """Asked for training: 128 MACs natively; the tool counts the 64 of evaluation."""
        tools("Eval", "Honest")
        model = AuxiliaryHead()
        report = compare(model, ROWS, setting=Setting(training=True), isolate=False)
        forced = report.reconciliation("eval")
        assert (forced.ours, forced.theirs, forced.residual) == (128, 64, 0)
        assert [
            (explanation.cause, explanation.amount) for explanation in forced.explanations
        ] == [("scope.mode-forced-eval", -64)]
        free = report.reconciliation("honest")
        assert (free.ours, free.theirs, free.residual) == (128, 256, 0)
        assert model.training


class TestTrainingStep:
    """`train`: who is asked, and what does not go together."""

    def test_a_tool_that_counts_none_is_told(self, tools):
        """One line names all of them; each is a failure where they were asked for by name."""
        tools("Eval", "Reader")
        with pytest.warns(CrossflopsWarning, match="cannot count a training step: eval, reader"):
            report = compare(linear(), ROWS, train=True, isolate=False)
        assert (report.training.macs, report.profiles) == (2 * MACS, ())
        assert len(report.warnings) == 1
        report = compare(linear(), ROWS, train=True, tools=["eval", "reader"], isolate=False)
        assert {(answer.tool, answer.stage, answer.message) for answer in report.profiles} == {
            (tool, "accept", "it cannot count a training step") for tool in ("eval", "reader")
        }

    def test_a_tool_that_counts_another_pass_leaves_a_residual(self, tools):
        """24 MACs forward and 24 of the weight, of which the tool prints the first alone."""
        tools("Honest")
        report = compare(linear(), ROWS, train=True, isolate=False)
        account = report.reconciliation("honest")
        assert (account.ours, account.predicted, account.theirs) == (2 * MACS, 4 * MACS, 2 * MACS)
        assert account.residual == -2 * MACS

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"frozen": ["0"]}, "requires --train"),
            ({"loss": sum}, "--loss requires --train"),
            (
                {"train": True, "setting": Setting(grad=False)},
                "--train needs gradients and cannot be combined with --no-grad",
            ),
            ({"train": True, "consensus": True}, "--consensus cannot be combined with --train"),
            ({"train": True, "against": linear()}, "--against cannot be combined with --train"),
            ({"train": True, "module": "0"}, "--module cannot be combined with --train"),
            ({"train": True, "frozen": ["no.such"]}, "'no.such' matches no weight"),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
    )
    def test_what_does_not_go_together_is_refused(self, tools, options, problem):
        """Before a tool runs."""
        tools("Honest")
        with pytest.raises(InputError, match=problem):
            compare(linear(), ROWS, tools=["honest"], isolate=False, **options)


@pytest.fixture(params=["1", "0"], ids=["forked", "started"])
def way(request, monkeypatch):
    """Both ways in which a worker comes to be."""
    monkeypatch.setenv("CROSSFLOPS_FORK", request.param)
    return request.param


@pytest.mark.usefixtures("way")
class TestCompareIsolated:
    """Tools in worker processes."""

    def test_a_tool_that_meddles_with_pytorch_costs_itself_alone(self, tools, target, way):
        """The other prints what it prints alone, and a line says which way was taken."""
        tools("Careful", "Meddles")
        lines = []
        report = compare(f"{target}:make", "2x4", on_progress=lines.append)
        assert {
            reconciliation.tool: reconciliation.theirs for reconciliation in report.reconciliations
        } == {
            "careful": 2 * MACS,
            "meddles": 0,
        }
        assert any("starting one process per tool" in line for line in lines) is (way == "0")

    def test_a_tool_runs_while_the_graph_is_made(self, tools, tmp_path, monkeypatch):
        """Its prediction is fixed by then; one that reads the graph's nodes waits."""
        tools("Honest", "Eval", "Reader")
        ran, order = tmp_path / "ran", []
        (tmp_path / "marking.py").write_text(
            "import os, torch\n"
            "class Marks(torch.nn.Sequential):\n"
            "    def forward(self, x):\n"
            f"        if os.getpid() != {os.getpid()}:\n"
            f"            open({str(ran)!r}, 'w').close()\n"
            "        return super().forward(x)\n"
            "def make(): return Marks(torch.nn.Linear(4, 3, bias=False))\n"
        )

        def predicted(convention, *rest):
            order.append(convention.tool)
            return predict(convention, *rest)

        def converted(*recorded):
            assert order == ["thop", "torch-flop-counter"]
            end = time.monotonic() + 60
            while not ran.exists():
                assert time.monotonic() < end, "no tool ran"
                time.sleep(0.01)
            order.append("graph")
            return convert(*recorded)

        convert = program.convert_torch_recording
        monkeypatch.setattr(program, "convert_torch_recording", converted)
        monkeypatch.setattr(predictions, "predict", predicted)
        report = compare(f"{tmp_path / 'marking.py'}:make", "2x4")
        assert order == ["thop", "torch-flop-counter", "graph"]
        theirs = {account.tool: account.theirs for account in report.reconciliations}
        assert theirs == {"honest": 2 * MACS, "eval": MACS, "reader": 0}
        assert report.residuals == dict.fromkeys(theirs, 0)

    def test_tools_that_crash_or_hang_cost_one_line(self, tools):
        """The one that works is explained, the one off by one has its residual."""
        tools(
            "Honest",
            "Shifted",
            "Crashes",
            "Raises",
        )
        report = compare(linear(), ROWS)
        failures = {
            profile.tool: profile.stage
            for profile in report.profiles
            if isinstance(profile, Failure)
        }
        assert failures == {"crashes": "crash", "raises": "run"}
        assert report.residuals == {"honest": 0, "shifted": 1}

    def test_a_tool_past_its_time_costs_one_line(self, tools):
        """After the limit the comparison is whole without it."""
        tools("Honest", "Hangs")
        report = compare(linear(), ROWS, timeout=15)
        (late,) = [profile for profile in report.profiles if isinstance(profile, Failure)]
        assert (late.tool, late.stage) == ("hangs", "time")
        assert report.residuals == {"honest": 0}

    def test_a_target_is_built_in_the_worker(self, tools, target):
        """With its arguments and the inputs that were written."""
        tools("Honest")
        report = compare(f"{target}:make", "2x4", arguments={"wide": 5})
        assert report.macs == 40
        assert report.reconciliation("honest").theirs == 80
        assert report.residuals == {"honest": 0}

    def test_a_model_that_cannot_be_sent_fails_the_tools_alone(self, tools):
        """The native count is made; the hint says how to do better."""
        tools("Honest")
        report = compare(Apply(lambda s, x: s.layer(x), layer=nn.Linear(4, 3)), ROWS)
        assert report.macs == MACS
        (failed,) = report.profiles
        assert (failed.tool, failed.stage) == ("honest", "build")
        assert "isolate=False" in failed.hint
