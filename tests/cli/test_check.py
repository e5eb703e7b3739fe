"""`crossflops check`: budgets of a configuration, a baseline, and the modules that grew."""

import json
import threading
from xml.etree import ElementTree

import pytest

from crossflops.errors import InputError
from crossflops.report.budgets import BudgetRule
from crossflops.verbs.budget_configuration import parse_budget_table
from crossflops.verbs.check import BASELINE, check_against_baseline
from tests.cli.test_table import ONE, TWO
from tests.onnx_files import saved, with_weights
from tests.verbs.test_revision import git


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


def test_memory_has_budgets(line, project):
    """2x3 by 3x5, then a Relu: 6 + 10 + 10 values of 4 bytes, and 15 weights.

    The product moves 6 + 15 + 10 values and the Relu 10 + 10.
    """
    project("peak_activation_memory <= 104", "model_bytes < 60", "memory_traffic <= 204")
    checks = json.loads(line("check", "--json")[1])["checks"]
    assert [(row["value"], row["holds"]) for row in checks] == [
        (104, True), (60, False), (204, True),
    ]  # fmt: skip
    assert line("check", "--update")[0] == 1
    project("peak_activation_memory <= +1%", "model_bytes <= +0%")
    assert line("check")[0] == 0


def test_growth_over_the_baseline_names_what_grew(line, project, tmp_path):
    """From 30 to 100 MACs; the product that came has 70. The other way round is a saving."""
    project("macs <= +2%", "params: +1%")
    status, out, _ = line("check")
    assert status == 2
    assert "check --update" in out
    assert line("check", "--update")[0] == 0
    saved(tmp_path, with_weights(TWO, "w", "v"))
    status, out, _ = line("check", "--json")
    macs, params = json.loads(out)["checks"]
    assert status == 1
    assert (macs["value"], macs["limit"], macs["holds"]) == (100, 30, False)
    assert sum(row["by"] for row in macs["grew"]) == 70
    assert (params["value"], params["limit"]) == (50, 15)
    assert "does not hold, with 100. Grew in MACs: " in " ".join(line("check")[1].split())
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
    assert "no configuration file in this folder or its parents sets a budget" in err


@pytest.mark.parametrize("text", ["macs", "macs <= 2%", "macs <= +2", "macs ~ 3"])
def test_a_rule_that_is_none_is_refused(text):
    """A share has a sign, a number has none."""
    with pytest.raises(InputError):
        BudgetRule.from_text(text)


def test_a_limit_is_exact():
    """101 % of 4089184256 is 4130076098.56, and the largest whole number in it is the limit."""
    assert BudgetRule.from_text("macs <= +1%").limit(4089184256) == 4130076098
    assert BudgetRule.from_text("macs <= 4.2G").limit(None) == 4200000000


STRANGE = """g (float[2,3] x, float[3,5] w) => (float[2,5] y) {
    h = MatMul(x, w)  y = com.microsoft.NoSuchOperator(h)
}"""


@pytest.mark.parametrize(
    ("rules", "status"),
    [
        (["macs <= 1G"], 1),
        (["flops <= 1G"], 1),
        (["memory_traffic <= 1G"], 1),
        (["peak_activation_memory <= 1G"], 1),
        (["model_bytes <= 1G"], 0),
        (["exact-2k-1 <= 1G"], 1),
        (["macs <= 1G", "uncounted == 0"], 1),
        (["macs <= 1G", "uncounted <= 1"], 0),
        (["macs <= 1G", "uncounted < 2"], 0),
        (["macs <= 1G", "uncounted == 1"], 0),
        (["macs <= 1G", "uncounted >= 0"], 1),
        (["macs <= 1G", "uncounted > 0"], 1),
        (["params <= 1G"], 0),
    ],
)
def test_work_that_nobody_counted_fails_a_rule_about_work(line, project, tmp_path, rules, status):
    """Unless a rule allows it; the node is named in the page and in the JSON."""
    project(*rules)
    saved(tmp_path, with_weights(STRANGE, "w"))
    ended, out, _ = line("check", "--json")
    assert ended == status
    if status:
        assert "NoSuchOperator" in json.loads(out)["checks"][0]["uncounted"][0]
        assert "NoSuchOperator" in line("check")[1]


def test_an_uncounted_node_that_came_in_fails_a_baseline(line, project, tmp_path):
    """30 MACs as before, which says nothing of the new node."""
    project("macs <= +1%")
    assert line("check", "--update")[0] == 0
    saved(tmp_path, with_weights(STRANGE, "w"))
    status, out, _ = line("check", "--json")
    (row,) = json.loads(out)["checks"]
    assert (status, row["value"], row["limit"], row["holds"]) == (1, 30, 30, False)


def test_growth_is_in_the_unit_of_the_rule(line, project, tmp_path):
    """The second product reads 2x5 and 5x7 values and writes 2x7, four bytes each: 236 more."""
    project("memory_traffic <= +1%")
    assert line("check", "--update")[0] == 0
    saved(tmp_path, with_weights(TWO, "w", "v"))
    (row,) = json.loads(line("check", "--json")[1])["checks"]
    assert row["grew_in"] == "memory_traffic"
    assert sum(grown["by"] for grown in row["grew"]) == row["change"]
    assert "bytes of memory traffic" in " ".join(line("check")[1].split())


CONFIGURATION = """
[budgets."model.onnx"]
rules = ["macs <= +1%"]
dims = {N = 2}

[budgets.large]
target = "./model.onnx"
rules = ["macs <= +1%"]
dims = {N = 8}
"""
OPEN = "g (float[N,3] x, float[3,5] w) => (float[N,5] y) { y = MatMul(x, w) }"


def test_a_model_has_several_budgets_and_none_holds_for_another_request(
    line, tmp_path, monkeypatch
):
    """2 x 15 and 8 x 15 MACs; other dimensions are refused by name, and nothing is saved."""
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, with_weights(OPEN, "w"))
    (tmp_path / "crossflops.toml").write_text(CONFIGURATION)
    assert line("check", "--update")[0] == 0
    rows = json.loads(line("check", "--json")[1])["checks"]
    assert [(row["target"], row["value"]) for row in rows] == [("model.onnx", 30), ("large", 120)]
    (tmp_path / "crossflops.toml").write_text(CONFIGURATION.replace("N = 8", "N = 4"))
    status, out, _ = line("check", "--json")
    small, large = json.loads(out)["checks"]
    assert status == 1
    assert small["holds"]
    assert "8x3" in large["error"]
    assert "4x3" in large["error"]
    assert large["change"] is None


def test_a_missing_file_is_its_row(line, project, tmp_path):
    """The other model is held all the same; no JUnit file of an earlier run stays."""
    (tmp_path / "crossflops.toml").write_text(
        '[budgets."model.onnx"]\nrules = ["macs <= 30"]\n'
        '[budgets."gone.onnx"]\nrules = ["macs <= 1"]\n'
    )
    (tmp_path / "checks.xml").write_text("old")
    status, out, _ = line("check", "--json", "--junit", "checks.xml")
    there, gone = json.loads(out)["checks"]
    assert (status, there["holds"], gone["holds"], gone["value"]) == (1, True, False, None)
    suites = ElementTree.parse(tmp_path / "checks.xml").getroot()
    assert [suite.get("errors") for suite in suites] == ["0", "1"]
    (tmp_path / "crossflops.toml").write_text('[budgets."gone.onnx"]\nrules = ["macs <= 1"]\n')
    assert line("check", "--junit", "checks.xml")[0] == 2
    (tmp_path / "crossflops.toml").write_text("[budgets.x]\nrules = []\n")
    (tmp_path / "page.md").write_text("old")
    (tmp_path / "link.json").symlink_to("kept.json")
    (tmp_path / "kept.json").write_text("old")
    words = ("--junit", "checks.xml", "--code-quality", "link.json", "-o", "page.md")
    assert line("check", *words)[0] == 2
    assert not (tmp_path / "checks.xml").exists()
    assert not (tmp_path / "page.md").exists()
    assert (tmp_path / "link.json").is_symlink()


def test_a_number_that_cannot_be_measured_is_a_row(line, project, tmp_path, monkeypatch):
    """The other rules of the model hold, and their baseline is written."""

    def fail(*_):
        raise InputError("onnxruntime is not installed", "install it")

    monkeypatch.setattr("crossflops.verbs.bench.measure_on_given_inputs", fail)
    monkeypatch.setattr("crossflops.verbs.compare.compare.compare_with_tools", fail)
    measured = ("latency_ms <= 10", "residual == 0", "thop <= 60", "thop@0.0.31 <= 60")
    project("macs <= +0%", "file_bytes <= 1M", "exact-2k-1 <= 60", *measured)
    status, out, _ = line("check", "--update", "--json")
    rows = {row["rule"]: row for row in json.loads(out)["checks"]}
    assert status == 1
    assert [rule for rule, row in rows.items() if not row["holds"]] == list(measured)
    assert rows["latency_ms <= 10"]["error"].startswith("latency_ms cannot be measured: onnxrun")
    assert rows["thop <= 60"]["error"].startswith("thop cannot be measured: thop counts calls")
    entry = json.loads((tmp_path / BASELINE).read_text())["models"]["model.onnx"]
    assert "missing" not in entry
    project("macs <= 30", *measured)
    rows = {row["rule"]: row for row in json.loads(line("check", "--json")[1])["checks"]}
    assert [rule for rule, row in rows.items() if row["holds"]] == ["macs <= 30"]
    (tmp_path / "model.onnx").unlink()
    rows = json.loads(line("check", "--json")[1])["checks"]
    assert all("cannot read" in row["error"] for row in rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<<<<<<< HEAD\n{}\n=======\n", "conflict"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        ("[]", "not a valid baseline"),
        ("{", "not a valid baseline"),
    ],
)
def test_a_broken_baseline_is_said_and_written_anew(line, project, tmp_path, text, words):
    """A conflict, or a pointer of Git LFS, is named as such."""
    project("macs <= +1%")
    (tmp_path / BASELINE).write_text(text)
    status, _, err = line("check")
    assert (status, words in err) == (2, True)
    assert line("check", "--update")[0] == 0
    assert line("check")[0] == 0


def test_a_newer_baseline_is_refused_and_never_overwritten(line, project, tmp_path):
    """What a newer release wrote is not for this one to replace."""
    project("macs <= +1%")
    text = '{"schema": "crossflops/9", "models": []}'
    (tmp_path / BASELINE).write_text(text)
    for words in (("check",), ("check", "--update")):
        status, _, err = line(*words)
        assert (status, "crossflops/9" in err) == (2, True)
    assert (tmp_path / BASELINE).read_text() == text


def test_targets_that_are_gone_leave_the_baseline(line, project, tmp_path):
    """But an entry of a test stays, and an update of one target touches no other."""
    project("macs <= +1%")
    assert line("check", "--update")[0] == 0
    data = json.loads((tmp_path / BASELINE).read_text())
    entry = data["models"]["model.onnx"]
    data["models"] |= {"gone.onnx": entry, "test_it.py::test": {**entry, "origin": "pytest"}}
    (tmp_path / BASELINE).write_text(json.dumps(data))
    assert line("check", "model.onnx", "--update")[0] == 0
    assert set(json.loads((tmp_path / BASELINE).read_text())["models"]) == set(data["models"])
    assert line("check", "--update")[0] == 0
    left = json.loads((tmp_path / BASELINE).read_text())["models"]
    assert set(left) == {"model.onnx", "test_it.py::test"}


def test_two_updates_at_once_lose_nothing(tmp_path, monkeypatch):
    """Eight threads, each with a model of its own, write eight entries."""
    monkeypatch.chdir(tmp_path)
    names = [f"m{number}.onnx" for number in range(8)]
    for name in names:
        saved(tmp_path, with_weights(ONE, "w"), name)
    file = tmp_path / "crossflops.toml"
    rows = [parse_budget_table(file, {name: {"rules": ["macs <= +1%"]}}) for name in names]
    threads = [
        threading.Thread(target=check_against_baseline, args=(row, tmp_path / BASELINE, True, str))
        for row in rows
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(json.loads((tmp_path / BASELINE).read_text())["models"]) == set(names)


def test_the_configuration_nearest_to_the_model_holds(line, tmp_path, monkeypatch):
    """From the root, from beside it, and in another spelling of its path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.crossflops.budgets."root.onnx"]\nrules = ["macs <= 1G"]\n'
    )
    (tmp_path / "svc").mkdir()
    saved(tmp_path / "svc", with_weights(ONE, "w"), "m.onnx")
    (tmp_path / "svc" / "crossflops.toml").write_text(
        '[budgets."./m.onnx"]\nrules = ["macs <= 1"]\n'
    )
    for spelled in ("svc/m.onnx", "./svc/m.onnx", "svc/../svc//m.onnx"):
        status, out, _ = line("check", "--if-budgeted", spelled, "--json")
        (row,) = json.loads(out)["checks"]
        assert (status, row["value"], row["target"]) == (1, 30, "svc/m.onnx")
    monkeypatch.chdir(tmp_path / "svc")
    assert line("check", "m.onnx")[0] == line("check", "./m.onnx")[0] == 1


def test_a_nearer_configuration_holds_without_a_target_too(line, tmp_path, monkeypatch):
    """A table of the root stands back behind that of the folder, in rows and baselines."""
    monkeypatch.chdir(tmp_path)
    for name in ("svc", "other"):
        (tmp_path / name).mkdir()
        saved(tmp_path / name, with_weights(ONE, "w"), "m.onnx")
    (tmp_path / "crossflops.toml").write_text('[budgets."*/*.onnx"]\nrules = ["macs <= +1%"]\n')
    (tmp_path / "svc" / "crossflops.toml").write_text(
        '[budgets."m.onnx"]\nrules = ["macs <= 1"]\n'
    )
    status, out, _ = line("check", "--update", "--json")
    rows = {row["target"]: (row["rule"], row["holds"]) for row in json.loads(out)["checks"]}
    assert status == 1
    assert rows == {"svc/m.onnx": ("macs <= 1", False), "other/m.onnx": ("macs <= +1%", True)}
    for folder, names in (("", {"other/m.onnx"}), ("svc", {"m.onnx"})):
        entries = json.loads((tmp_path / folder / BASELINE).read_text())["models"]
        assert set(entries) == names
    assert line("check", "svc/m.onnx")[0] == 1


def test_configurations_beneath_are_named(line, tmp_path, monkeypatch):
    """At the root of a repository that has them in its folders alone."""
    git(tmp_path, "init", "-q")
    for folder, name, table in (
        ("a", "crossflops.toml", "budgets"), ("b", "pyproject.toml", "tool.crossflops.budgets"),
        ("c", "pyproject.toml", "project"),
    ):  # fmt: skip
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(f'[{table}."m.onnx"]\nrules = ["macs <= 1"]\n')
    monkeypatch.chdir(tmp_path)
    for words, head in (
        ((), "error: no configuration file"),
        (("gone.onnx",), "error: gone.onnx has no budget"),
    ):
        status, _, err = line("check", *words)
        assert (status, err.startswith(head)) == (2, True)
        assert "files in subfolders do: a/crossflops.toml, b/pyproject.toml" in err
    monkeypatch.chdir(tmp_path / "c")
    assert "beneath" not in line("check")[2]


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("mac", "did you mean macs"),
        ("flop", "did you mean flops"),
        ("thpo", "did you mean thop"),
        ("macs@1", "did you mean macs"),
        ("thop@9.9", "thop@0.0.31"),
    ],
)
def test_a_misspelled_number_is_corrected(line, project, wrong, hint):
    """By the numbers that a rule may name, conventions and their editions among them."""
    project(f"{wrong} <= 1G")
    status, _, err = line("check")
    assert status == 2
    assert hint in err


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("macs <= 1K", "unknown unit"),
        ("model_bytes <= 1KiB", "unknown unit"),
        ("model_bytes <= 1 kB", "unknown unit"),
        ("latency_ms <= 5 ms", "times are in milliseconds"),
        ("macs <= 1e3", "unknown unit"),
        ("macs <= 1,000", "digits and one decimal point"),
        ("macs <= 1_000", "digits and one decimal point"),
        ("macs => 3", "unknown operator =>"),
        ("macs = 3", "unknown operator ="),
        ("macs <= 3\u0663", "unknown unit"),
        ("macs <= -5", "must be a number or +N%"),
        ("macs <= 5%", "must be a number or +N%"),
        ("macs <= nan", "not a valid rule"),
    ],
)
def test_a_mistake_in_a_rule_is_named(line, project, rule, words):
    """With the budget and the file that have it."""
    project(rule)
    status, _, err = line("check")
    assert status == 2
    assert words in err
    assert "model.onnx in " in err
    assert "pyproject.toml" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'\xef\xbb\xbf[budgets."model.onnx"]\r\nrules = ["macs <= 1"]\r\n', "macs <= 1"),
        ('[budgets."model.onnx"]\nrules = ["macs <= 1"]\n'.encode("utf-16"), "file in UTF-8"),
        (b'[budgets.model.onnx]\nrules = ["macs <= 1"]\n', '[budgets."model.onnx"]'),
        (b'[budgets."no/*.onnx"]\nrules = ["macs <= 1"]\n', "no file matches no/*.onnx"),
        (b'[budgets."*.onnx"]\nrules = ["macs <= 1"]\n[budgets."m*.onnx"]\n'
         b'rules = ["macs <= 1k"]\n', "*.onnx and m*.onnx in"),
        (b'[budgets."model.onnx"]\nrules = ["macs <= 1"]\n[budgets."./model.onnx"]\n'
         b'rules = ["macs <= 1k"]\ndims = {N = 2}\n', "set the same budget model.onnx"),
    ],
)  # fmt: skip
def test_a_configuration_is_read_or_refused_by_name(line, project, tmp_path, text, words):
    """A mark before the text, another encoding, names without quotes, a model set twice."""
    (tmp_path / "crossflops.toml").write_bytes(text)
    status, out, err = line("check", "--code-quality", "q.json")
    assert status != 0
    assert words in out + err
    if status == 1:
        assert json.loads((tmp_path / "q.json").read_text())[0]["location"]["lines"]["begin"] == 2


def test_a_name_without_quotes_is_corrected_for_its_file(line, tmp_path, monkeypatch):
    """The tables of pyproject.toml are below [tool.crossflops]."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.crossflops.budgets.model.onnx]\nrules = ["macs <= 1"]\n'
    )
    err = line("check")[2]
    assert 'hint: write [tool.crossflops.budgets."model.onnx"]' in err


def test_a_misspelt_table_is_corrected(line, tmp_path, monkeypatch):
    """Its name is no part of the model's name, which would need quotes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crossflops.toml").write_text('[budgets.m.modles]\nhead = ["macs <= 1"]\n')
    error, hint = line("check")[2].splitlines()
    assert error.endswith("has an unknown table modles")
    assert hint == "hint: did you mean modules?"


def test_outputs_have_files_of_their_own(line, project):
    """One would replace the other. A target that is named twice is held once."""
    project("macs <= 30")
    for words in (("--junit", "x.json", "--code-quality", "./x.json"),
                  ("--code-quality", "x.json", "-o", "x.json")):  # fmt: skip
        status, _, err = line("check", *words)
        assert (status, "two outputs have the same file name" in err) == (2, True)
    out = line("check", "model.onnx", "./model.onnx", "--json")[1]
    assert len(json.loads(out)["checks"]) == 1


def test_a_baseline_may_begin_with_a_mark(line, project, tmp_path):
    """As a file that an editor of Windows has written does."""
    project("macs <= +1%")
    assert line("check", "--update")[0] == 0
    file = tmp_path / BASELINE
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert line("check")[0] == 0


@pytest.mark.parametrize("name", ["a\x01b", "\x1b[31m", "\ufffe", "x\n::error::y", "]]>&<", "\r"])
def test_any_name_of_a_node_stands_in_every_output(line, project, tmp_path, name):
    """XML has no control characters, and a terminal would obey them."""
    project("macs <= 1G")
    made = with_weights(STRANGE, "w")
    made.graph.node[1].name = name
    saved(tmp_path, made)
    status, out, _ = line("check", "--junit", "checks.xml", "--code-quality", "q.json")
    assert status == 1
    assert "\n::" not in out
    assert all(letter.isprintable() for letter in out.replace("\n", ""))
    assert len(list(ElementTree.parse("checks.xml").iter("failure"))) == 1
    assert len(json.loads((tmp_path / "q.json").read_text())) == 1
