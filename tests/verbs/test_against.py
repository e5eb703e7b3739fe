"""Two model objects set against each other from Python."""

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch
from torch import nn

from crossflops import compare
from crossflops.errors import InputError, UnknownNameError

pytestmark = pytest.mark.torch


def linear(width):
    """A layer of 8 inputs."""
    return nn.Sequential(nn.Linear(8, width, bias=False))


def amounts(report):
    """MACs by cause."""
    return {row.cause: row.macs for row in report.against.alignment.causes}


def test_a_second_model_takes_the_inputs_of_the_first():
    """2 rows of 8 by 4 columns, or by 6."""
    report = compare(linear(4), torch.zeros(2, 8), against=linear(6), tools=())
    assert amounts(report) == {"model.width": 2 * 8 * 2}


def test_a_second_model_has_inputs_of_its_own():
    """2 rows, or 5."""
    options = {"inputs": torch.zeros(5, 8)}
    report = compare(
        linear(4), torch.zeros(2, 8), against=linear(4), against_options=options, tools=()
    )
    assert amounts(report) == {"model.batch": 3 * 8 * 4}
    assert report.against.model.inputs[0].shape == (5, 8)


def test_the_setting_is_that_of_both():
    """Training is said once."""
    from crossflops.ir.trace import Setting

    setting = Setting(training=True)
    report = compare(linear(4), torch.zeros(2, 8), against=linear(4), setting=setting, tools=())
    assert report.against.setting.training
    assert report.against.alignment.same


def test_a_notebook_shows_both():
    """The page is that of two models."""
    report = compare(linear(4), torch.zeros(2, 8), against=linear(6), tools=())
    assert "model.width" in report._repr_html_()


def test_options_that_there_are_not():
    """Refused before anything is counted."""
    with pytest.raises(InputError):
        compare(linear(4), torch.zeros(2, 8), against=linear(4), against_options={"x": 1})
    with pytest.raises(InputError):
        compare(linear(4), torch.zeros(2, 8), against=linear(4), consensus=True)


def test_a_wrong_tool_is_told_before_a_model_is_built(tmp_path):
    """Building two models may take a minute, and the name is wrong whatever they are."""
    path = tmp_path / "never.py"
    path.write_text("def build():\n    raise RuntimeError('built')\n")
    with pytest.raises(UnknownNameError, match="no installed plugin has the tool 'nobody'"):
        compare(linear(4), torch.zeros(2, 8), against=f"{path}:build", tools=["nobody"])
