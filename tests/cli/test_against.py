"""`--against`: the options of a second model, and what may not be asked with one."""

import json

import pytest

from crossflops import Report
from crossflops.errors import InputError
from crossflops.frontends.inputs import parse_inputs
from crossflops.verbs.compare.questions import (
    naming_second_model_in_errors,
    reject_second_model_options,
    select_tools_per_model,
)
from tests.onnx_files import parsed, saved


def file(folder, columns, name):
    """A product of n rows of 4 with so many columns of ones, in a file."""
    shape = f"s = Constant <value_ints=[4, {columns}]> ()"
    text = (
        f"g (float[n, 4] x) => (float[n, {columns}] y)"
        f" {{ {shape} w = ConstantOfShape (s) y = MatMul (x, w) }}"
    )
    return saved(folder, parsed(text), name)


def test_the_options_reach_the_pipeline(line, answers, report):
    """Those of the second model apart from those of the first."""
    answers(report({"thop": 0}))
    given = ("--against-input", "1x2x3", "--against-arg", "weights=null", "--against-dim", "n=2")
    assert line("compare", "m:f", "--input", "1x3x2", "--against", "k:g", *given)[0] == 0
    assert line.comparison.against == "k:g"
    options = {"inputs": ("1x2x3",), "arguments": {"weights": None}, "dims": {"n": 2}}
    assert line.comparison.against_options == options
    assert line.asked.specs == parse_inputs(("1x3x2",))


def test_an_option_without_a_second_model_is_refused(line, answers, report):
    """It would say nothing."""
    answers(report({"thop": 0}))
    status, out, err = line("compare", "m:f", "--against-input", "1x2")
    assert (status, out) == (2, "")
    assert "--against-input requires a second model" in err


@pytest.mark.parametrize(
    "asked", [("layer1", False, None), (None, True, None), (None, False, "f")]
)
def test_what_is_about_one_model_is_refused(asked):
    """A module, a sentence to cite, another file."""
    with pytest.raises(InputError):
        reject_second_model_options(*asked)
    reject_second_model_options(None, False, None)


def test_an_error_says_which_model_it_is_about(line, tmp_path):
    """The message names the second model, the hint its options, and nothing is written."""
    first, written = file(tmp_path, 6, "one.onnx"), tmp_path / "report.json"
    asked = ("--dim", "n=3", "--no-tools", "-o", str(written))
    status, _, err = line("compare", first, *asked, "--against", "gone.onnx")
    assert status == 2
    assert err.startswith("error: the second model: cannot read gone.onnx")
    status, _, err = line(
        "compare", first, *asked, "--against", first, "--against-input", "other=1x4"
    )
    assert (status, written.exists()) == (2, False)
    assert "the second model: the model has no input 'other'" in err
    with pytest.raises(InputError) as caught, naming_second_model_in_errors():
        raise InputError("they do not fit", "check --input and --dim")
    assert caught.value.hint == "check --against-input and --against-dim"


def test_tools_of_each_model():
    """Of two tools set against each other one runs on each model."""
    assert select_tools_per_model(None, None, True) == (None, None)
    assert select_tools_per_model(["c"], ("a", "b"), True) == (("c", "a"), ("c", "b"))
    assert select_tools_per_model(None, ("a", "a"), True) == (("a",), ("a",))
    with pytest.raises(InputError):
        select_tools_per_model(None, ("a", "a"), False)


def test_two_files_without_a_tool(line, tmp_path):
    """By hand: 3 rows of 4 by 6 columns are 72 MACs, by 5 they are 60; 24 parameters and 20."""
    first, other = file(tmp_path, 6, "one.onnx"), file(tmp_path, 5, "other.onnx")
    written = tmp_path / "report.json"
    asked = ("--dim", "n=3", "--against", other, "--no-tools")
    assert line("compare", first, *asked, "-o", str(written))[0] == 0
    alignment = json.loads(written.read_text())["against"]["alignment"]
    assert alignment["delta"] == {"macs": -12, "flops": -24, "params": -4}
    assert alignment["residual"] == {"macs": 0, "flops": 0, "params": 0}
    assert [(row["cause"], row["macs"]) for row in alignment["causes"]] == [("model.width", -12)]
    _, text, _ = line("render", str(written))
    assert "model.width: out 6 -> 5" in text
    _, again, _ = line("render", str(written), "--json")
    assert Report.from_json(again) == Report.from_json(written.read_text())
