"""Formulas for several operators, whose names have a "*" for what differs between them."""

import json
import warnings
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import crossflops
from crossflops.cli import main
from crossflops.errors import CrossflopsWarning, FormulaError
from crossflops.operators.formula_sources import find_formula, formulas_in_force, using_formulas

OPERATORS = ("scan_f16_run", "scan_bf16_run", "scan_f16_plan", "scan_run")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A file with one node of each operator, none of which a rule is about."""
    names = ["x", *(f"y{index}" for index in range(len(OPERATORS)))]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in names]
    nodes = [
        helper.make_node(
            kind, names[index : index + 1], names[index + 1 : index + 2], domain="lib"
        )
        for index, kind in enumerate(OPERATORS)
    ]
    graph = helper.make_graph(nodes, "graph", values[:1], values[-1:], value_info=values[1:-1])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("lib", 1)]
    path = tmp_path / "scans.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return str(path)


def write_formulas(folder: Path, macs: dict[str, int], name: str = "own.py") -> str:
    """Return the path of a new file with a formula for each of these names."""
    formulas = (
        f'@crossflops.operator("{operator}", source="a paper")\n'
        f"def formula_{index}(call):\n    return crossflops.Cost(macs={count})\n"
        for index, (operator, count) in enumerate(macs.items())
    )
    (folder / name).write_text("\n\n".join(("import crossflops\n", *formulas)))
    return str(folder / name)


def macs_by_operator(report: crossflops.Report) -> dict[str, int]:
    """Return the MACs of each operator that a formula counts."""
    return {row.op.removeprefix("lib."): row.macs for row in report.custom_operators or ()}


def test_a_pattern_counts_each_operator_that_it_matches(model: str, tmp_path: Path) -> None:
    """A star stands for one letter or more, or none; other endings are another operator."""
    report = crossflops.count(model, formulas=[write_formulas(tmp_path, {"lib::scan_*run": 7})])
    assert macs_by_operator(report) == {"scan_f16_run": 7, "scan_bf16_run": 7, "scan_run": 7}
    assert [row.op for row in report.uncounted] == ["lib.scan_f16_plan"]


def test_the_name_itself_is_preferred_to_a_pattern(model: str, tmp_path: Path) -> None:
    """In whatever order they were written."""
    own = write_formulas(tmp_path, {"lib::scan_*_run": 7, "lib::scan_f16_run": 11})
    assert macs_by_operator(crossflops.count(model, formulas=[own])) == {
        "scan_f16_run": 11,
        "scan_bf16_run": 7,
    }


def test_two_patterns_that_match_one_operator_are_an_error(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both are named, and nothing is counted; an operator that one of them matches is fine."""
    own = write_formulas(tmp_path, {"lib::scan_f16_*": 7, "lib::*_run": 11})
    assert main(["count", model, "--formulas", own]) == 2
    message, hint = capsys.readouterr().err.strip().splitlines()
    assert "two formulas match the operator lib.scan_f16_run: " in message
    assert "'formula_0' of lib::scan_f16_* (" in message
    assert "'formula_1' of lib::*_run (" in message
    assert "change one pattern so that it does not match" in hint
    with pytest.raises(FormulaError, match="match the operator"):
        crossflops.count(model, formulas=[own])


def test_one_pattern_twice_is_a_contradiction(tmp_path: Path) -> None:
    """As two formulas of one name are."""
    places = [write_formulas(tmp_path, {"lib::*_run": 7}, name) for name in ("a.py", "b.py")]
    (tmp_path / "b.py").write_text((tmp_path / "b.py").read_text().replace("formula_0", "other"))
    with (
        pytest.raises(FormulaError, match=r"two formulas count lib::\*_run"),
        using_formulas(places),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "module", "says"),
    [
        ("lib*::run", None, "has a * in its namespace"),
        ("lib::*_run", "lib.layers:Run", "has a * in its name, but is for a module"),
    ],
)
def test_a_star_is_in_the_name_of_an_operator_alone(
    name: str, module: str | None, says: str
) -> None:
    """Neither in a namespace, nor where a module gets the name."""
    with pytest.raises(FormulaError) as error:
        crossflops.operator(name, module=module)(lambda call: crossflops.Cost())
    assert says in error.value.message


def test_reports_name_the_formula_as_it_was_registered(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the operator itself, in JSON and in text; where it has the name itself, it does
    not.
    """
    own = write_formulas(tmp_path, {"lib::*_bf16_run": 7, "lib::scan_f16_run": 11})
    file = tmp_path / "report.json"
    assert main(["count", model, "--formulas", own, "-o", str(file)]) == 0
    rows = {row["op"]: row for row in json.loads(file.read_text())["custom_operators"]}
    assert rows["lib.scan_bf16_run"]["pattern"] == "lib::*_bf16_run"
    assert "pattern" not in rows["lib.scan_f16_run"]
    capsys.readouterr()
    assert main(["render", str(file)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "formula formula_0 for lib::*_bf16_run of" in shown
    assert "formula formula_1 of" in shown


def test_the_names_in_force_are_those_that_were_registered(tmp_path: Path) -> None:
    """Which `doctor` lists of an installed distribution."""
    with using_formulas([write_formulas(tmp_path, {"lib::*_run": 7})]):
        assert "lib::*_run" in [formula.name for formula in formulas_in_force()]


def test_a_pattern_of_ones_own_goes_over_formulas_of_the_package(tmp_path: Path) -> None:
    """Over the name of an operator, and over a pattern that also matches."""
    own = write_formulas(tmp_path, {"flash_attn::_flash_*": 7, "flashinfer::*_run": 11})
    decode = "flashinfer.single_decode_with_kv_cache_posenc_0_run.default"
    for kind, name in (
        ("flash_attn._flash_attn_forward.default", "flash_attn::_flash_*"),
        (decode, "flashinfer::*_run"),
    ):
        with using_formulas([own]):
            formula = find_formula("torch.ops", kind)
            assert formula is not None
            assert formula.name == name
    shipped = find_formula("torch.ops", decode)
    assert shipped is not None
    assert shipped.name == "flashinfer::single_decode_with_kv_cache_*_run"


def test_a_pattern_that_matches_nothing_is_told(model: str, tmp_path: Path) -> None:
    """With the call that has nearly its name."""
    own = write_formulas(tmp_path, {"lib::scan_*_rum": 7})
    with pytest.warns(CrossflopsWarning, match="which calls lib::scan_"):
        report = crossflops.count(model, formulas=[own])
    (sentence,) = report.warnings
    assert "of lib::scan_*_rum" in sentence


def test_an_operator_that_a_pattern_counts_is_not_told_as_similar(
    model: str, tmp_path: Path
) -> None:
    """It is counted, so it needs no other formula."""
    own = write_formulas(tmp_path, {"lib::*_run": 7, "lib::scan_f16_ruin": 11})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not crossflops.count(model, formulas=[own]).warnings
