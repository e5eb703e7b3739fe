"""A convention, or an account, that raises is its tool's failure: the other tools go on."""

import json

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")


from crossflops.cli import main
from crossflops.ir.profile import Failure
from crossflops.tools.registry import all_conventions
from crossflops.verbs.compare import accounts, predictions

pytestmark = pytest.mark.torch
MODEL = "import torch\ndef model():\n    return torch.nn.Linear(4, 3), (torch.ones(2, 4),)\n"


def broken(*_args, **_kwargs):
    """Raise what no convention raises on purpose."""
    raise KeyError("no such call")


@pytest.fixture
def target(tmp_path):
    """Return a target with one linear layer."""
    path = tmp_path / "linear.py"
    path.write_text(MODEL)
    return f"{path}:model"


def compared(capsys, target, *tools):
    """Return the exit status, and what is said of each tool."""
    chosen = [word for tool in tools for word in ("--tool", tool)]
    status = main(["compare", target, "--json", *chosen])
    report = json.loads(capsys.readouterr().out)
    return status, {profile["tool"]: profile for profile in report["profiles"]}


@pytest.mark.parametrize("stage", ["predict", "account"])
def test_the_other_tool_goes_on(stage, target, capsys, monkeypatch):
    """One tool fails at the stage, with its number; the other is counted."""
    module, name = (
        (predictions, "predict") if stage == "predict" else (accounts, "_explain_answer")
    )
    usual = getattr(module, name)

    def ask(*args, **kwargs):
        tool = args[0].tool if stage == "predict" else args[-1].tool
        return broken() if tool == "thop" else usual(*args, **kwargs)

    monkeypatch.setattr(module, name, ask)
    status, profiles = compared(capsys, target, "thop", "fvcore")
    assert status == 0
    assert profiles["thop"]["stage"] == stage
    # thop counts a linear layer as its MACs: 2 x 4 x 3
    assert "it printed 24 " in profiles["thop"]["message"]
    assert "KeyError: 'no such call'" in profiles["thop"]["message"]
    assert profiles["fvcore"]["total"] == 24


@pytest.mark.parametrize("convention", all_conventions(), ids=lambda rules: rules.tool)
@pytest.mark.parametrize("problem", [KeyError("x"), ZeroDivisionError("x"), IndexError("x")])
def test_a_prediction_that_raises_is_a_failure_of_its_tool(convention, problem):
    """Whatever is raised is a Failure of the tool."""

    def raising():
        raise problem

    outcome = predictions.predict_or_give_reason("mine", convention, raising)
    assert isinstance(outcome, Failure)
    assert (outcome.tool, outcome.stage) == ("mine", "predict")
    assert type(problem).__name__ in outcome.message
