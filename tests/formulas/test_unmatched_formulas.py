"""Formulas that a request names and that match no call of its model: the report says so."""

import json
import warnings
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import crossflops
from crossflops.cli import main
from crossflops.errors import CrossflopsWarning
from crossflops.operators.formula_sources import STATE

FORMULA = (
    '@crossflops.operator("{name}")\ndef {function}(call):\n    return crossflops.Cost(macs=7)\n'
)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A file with one node of a domain that no rule is about."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4]) for name in "xy"]
    node = helper.make_node("FlashAttn", ["x"], ["y"], domain="mylib")
    graph = helper.make_graph([node], "graph", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mylib", 1)]
    path = tmp_path / "flash.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return str(path)


def write_formulas(folder: Path, *names: str) -> str:
    """Return the path of a new file with a formula for each of these operators."""
    path = folder / "own.py"
    formulas = (
        FORMULA.format(name=name, function=f"formula_{index}") for index, name in enumerate(names)
    )
    path.write_text("\n\n".join(("import crossflops\n", *formulas)))
    return str(path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mylib::flash_attn", "which calls mylib::FlashAttn"),
        ("mylib2::FlashAttn", "which calls mylib::FlashAttn"),
        ("mylib::FlashAtn", "which calls mylib::FlashAttn"),
        ("other::scan", "and it calls nothing with a similar name"),
    ],
)
def test_a_formula_that_matches_nothing_is_told(
    model: str, tmp_path: Path, name: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which one it is, of which file, and what the model calls; the node stays uncounted."""
    own = write_formulas(tmp_path, name)
    assert main(["count", model, "--formulas", own, "--json"]) == 0
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    (sentence,) = report["warnings"]
    assert sentence.startswith(f"formula 'formula_0' of {name} (")
    assert "own.py) matches no call of the model graph, " in sentence
    assert sentence.endswith(says)
    assert [row["op"] for row in report["uncounted"]] == ["mylib.FlashAttn"]
    assert "matches no call" in shown.err


def test_of_many_that_match_nothing_the_first_are_named(model: str, tmp_path: Path) -> None:
    """One sentence."""
    own = write_formulas(tmp_path, *(f"a{number}::q{number}" for number in range(5)))
    with pytest.warns(CrossflopsWarning, match="and 2 more match no call of the model") as told:
        report = crossflops.count(model, formulas=[own])
    assert len(told) == len(report.warnings) == 1


def test_formulas_of_other_models_in_the_same_file_are_not_told(
    model: str, tmp_path: Path
) -> None:
    """One formula of the file counts a call, and no other is like a call."""
    own = write_formulas(tmp_path, "mylib::FlashAttn", "mylib::FlashAttn2", "other::scan")
    report = crossflops.count(model, formulas=[own])
    assert report.macs == 7
    assert report.warnings == ()


def test_files_of_a_configuration_are_named_by_the_request(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`formulas` of crossflops.toml."""
    write_formulas(tmp_path, "other::scan")
    (tmp_path / "crossflops.toml").write_text('formulas = ["own.py"]\n')
    monkeypatch.chdir(tmp_path)
    with pytest.warns(CrossflopsWarning, match="of other::scan"):
        crossflops.count(model)


def test_registered_formulas_may_match_nothing(model: str, tmp_path: Path) -> None:
    """One that is imported holds for a process, and is about any model of it."""
    own = write_formulas(tmp_path, "mylib::FlashAttn")
    before = STATE.imported
    crossflops.operator("other::registered")(lambda call: crossflops.Cost(macs=1))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert crossflops.count(model, formulas=[own]).warnings == ()
    finally:
        STATE.imported = before
        STATE.update_formulas_in_force()


@pytest.mark.torch
def test_a_class_is_named_as_formulas_write_it(tmp_path: Path) -> None:
    """A misspelled class, and one whose calls become no node."""
    (tmp_path / "classes37.py").write_text(
        "from torch import nn\n\n\n"
        "class Attention(nn.Linear):\n    pass\n\n\n"
        "class Same(nn.Module):\n    def forward(self, x):\n        return x\n\n\n"
        "def build():\n    return nn.Sequential(Attention(4, 3), Same())\n"
    )
    own = tmp_path / "own.py"
    formula = (
        '@crossflops.operator("own::{name}", module="classes37:{name}")\n'
        "def {name}(call):\n    return crossflops.Cost(macs=7)\n"
    )
    names = ("Atention", "Same")
    own.write_text("\n\n".join(("import crossflops\n", *(formula.format(name=n) for n in names))))
    with pytest.warns(CrossflopsWarning) as told:
        report = crossflops.count(f"{tmp_path}/classes37.py:build", ["2x4"], formulas=[own])
    assert report.macs == 2 * 4 * 3
    assert len(told) == len(report.warnings)
    misspelled, empty = (str(warning.message) for warning in told)
    assert "which calls classes37:Attention" in misspelled
    assert "the model calls classes37:Same, but no node of the graph is made of" in empty
