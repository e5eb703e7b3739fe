"""`crossflops check`: budgets of a configuration, a baseline, and the modules that grew."""

import json

import pytest

from crossflops.errors import InputError
from crossflops.report.budgets import BudgetRule
from tests.cli.test_table import ONE, TWO
from tests.onnx_files import saved, with_weights


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a model of 30 MACs, 15 parameters and these rules."""
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, with_weights(ONE, "w"))

    def rules(*texts):
        lines = f'[tool.crossflops.budgets."model.onnx"]\nrules = {json.dumps(texts)}\n'
        (tmp_path / "pyproject.toml").write_text(lines)

    return rules


def test_budgets_hold_or_not(line, project):
    """Absolute ones need no baseline; a convention is a number, too."""
    project("macs <= 30", "params < 15", "uncounted == 0", "exact-2k-1 <= 0.06k")
    status, out, _ = line("check", "--json")
    checks = json.loads(out)["checks"]
    assert status == 1
    assert [(row["value"], row["limit"], row["holds"]) for row in checks] == [
        (30, 30, True), (15, 15, False), (0, 0, True), (60, 60, True),
    ]  # fmt: skip


def test_growth_over_the_baseline_names_what_grew(line, project, tmp_path):
    """From 30 to 100 MACs; the product that came has 70. The other way round is a saving."""
    project("macs <= +2%", "params: +1%")
    status, _, err = line("check")
    assert status == 2
    assert "check --update" in err
    assert line("check", "--update")[0] == 0
    saved(tmp_path, with_weights(TWO, "w", "v"))
    status, out, _ = line("check", "--json")
    macs, params = json.loads(out)["checks"]
    assert status == 1
    assert (macs["value"], macs["limit"], macs["holds"]) == (100, 30, False)
    assert sum(row["by"] for row in macs["grew"]) == 70
    assert (params["value"], params["limit"]) == (50, 15)
    assert "does not hold, with 100. Grew: " in " ".join(line("check")[1].split())
    assert line("check", "--update")[0] == 0
    saved(tmp_path, with_weights(ONE, "w"))
    status, out, _ = line("check")
    assert status == 0
    assert "70 saved" in out


def test_what_cannot_be_understood_is_refused(line, project, tmp_path):
    """No budget at all, a target without one, a rule that is none, a number that there is not."""
    project("macs is small")
    assert line("check")[0] == 2
    project("macs <= 30")
    assert line("check", "other.onnx")[0] == 2
    (tmp_path / "pyproject.toml").write_text("[tool.crossflops.python]\n")
    status, _, err = line("check")
    assert status == 2
    assert "no file here or above sets a budget" in err


@pytest.mark.parametrize("text", ["macs", "macs <= 2%", "macs <= +2", "macs ~ 3"])
def test_a_rule_that_is_none_is_refused(text):
    """A share has a sign, a number has none."""
    with pytest.raises(InputError):
        BudgetRule.of(text)


def test_a_limit_is_exact():
    """101 % of 4089184256 is 4130076098.56, and the largest whole number in it is the limit."""
    assert BudgetRule.of("macs <= +1%").limit(4089184256) == 4130076098
    assert BudgetRule.of("macs <= 4.2G").limit(None) == 4200000000
