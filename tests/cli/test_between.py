"""`--between`: two tools set against each other, now or from a file."""

import pytest

from crossflops import Report
from crossflops.errors import InputError, UnknownNameError
from crossflops.verbs.compare.questions import select_tools, with_tool_contrast


def test_both_tools_reach_the_pipeline(line, answers, report):
    """The option takes two names."""
    answers(report({"thop": 0, "fvcore": 0}))
    assert line("compare", "m:f", "--between", "fvcore", "thop")[0] == 0
    assert line.comparison.between == ("fvcore", "thop")


def test_they_are_run_and_no_other_is():
    """Unless --tool names more."""
    assert select_tools(None, ("a", "b")) == ("a", "b")
    assert select_tools(["c", "b"], ("a", "b")) == ("c", "b", "a")
    assert select_tools(None, None) is None
    with pytest.raises(InputError):
        select_tools(None, ("a", "a"))


def test_a_tool_that_failed_is_named(line, answers, report):
    """Where one failed nothing can be said: exit status 3, and why, after what there is."""
    answers(report({"thop": 0}, failures=("fvcore",)))
    status, out, err = line("compare", "m:f", "--between", "fvcore", "thop")
    assert status == 3
    assert "thop 1" in out
    assert err == "cannot contrast fvcore and thop: fvcore failed (crash): gone\n"


def test_a_file_is_asked(line, report, tmp_path):
    """`render` sets tools against each other that answered long ago."""
    file = tmp_path / "report.json"
    file.write_text(report({"thop": 0, "fvcore": 5}, failures=("calflops",)).to_json())
    status, out, _ = line("render", str(file), "--between", "thop", "fvcore", "--json")
    assert status == 0
    contrast = Report.from_json(out).between
    assert (contrast.delta, contrast.residual) == (5, 5)
    assert line("render", str(file), "--between", "thop", "calflops")[0] == 3
    status, out, err = line("render", str(file), "--between", "thop", "torchinfo")
    assert (status, out) == (2, "")
    assert "torchinfo is not in this report" in err
    assert "calflops, fvcore, thop" in err


def test_without_a_question_nothing_changes(report):
    """No contrast stands where none was asked for."""
    made = report({"thop": 0, "fvcore": 0})
    assert with_tool_contrast(made, None) is made
    with pytest.raises(UnknownNameError):
        with_tool_contrast(report(), ("thop", "fvcore"))
