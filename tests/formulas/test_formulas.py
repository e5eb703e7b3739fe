"""Formulas of one's own: from files, imports and distributions, in every way in."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import crossflops
from crossflops.cli import main
from crossflops.errors import FormulaError
from crossflops.ir.provenance import FormulaOrigin
from crossflops.operators.formula import Formula, FormulaRegistry
from crossflops.operators.formula_sources import STATE, using_formulas

OWN = """
import crossflops

@crossflops.operator("mylib::Flash", source="a paper", names=("q", "k", "v"))
def flash(call):
    b, h, t, d = call.input("q").shape
    s = call.inputs[1].shape[2]
    return crossflops.Cost(macs=2 * b * h * t * s * d)
"""
# queries 2 x 4 x 8 x 16 on as many keys: scores and results take 2 x 4 x 8 x 8 x 16 MACs each
FLASH_MACS = 2 * (2 * 4 * 8 * 8 * 16)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A file with one node of a domain that no rule is about."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4, 8, 16]) for name in "qkvo"
    ]
    node = helper.make_node("Flash", ["q", "k", "v"], ["o"], domain="mylib", causal=1)
    graph = helper.make_graph([node], "graph", values[:3], values[3:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("mylib", 1)]
    path = tmp_path / "flash.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return str(path)


@pytest.fixture
def own(tmp_path: Path) -> str:
    """A file with its formula."""
    return written(tmp_path, OWN)


def written(folder: Path, text: str, name: str = "own.py") -> str:
    """Return the path of a new file with the text."""
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_file_of_formulas_counts_and_is_named(model: str, own: str) -> None:
    """The report says whose formula it is, with the digest of the file, and forgets it after."""
    report = crossflops.count(model, formulas=[own])
    assert report.macs == FLASH_MACS
    (row,) = report.custom_operators
    assert (row.op, row.by, row.calls, row.formula) == ("mylib.Flash", "formula", 1, "flash")
    assert row.source == "a paper"
    assert row.origin.digest == hashlib.sha256(Path(own).read_bytes()).hexdigest()
    after = crossflops.count(model)
    assert after.macs == 0
    assert [row.op for row in after.uncounted] == ["mylib.Flash"]


def test_the_lines_of_a_node_without_a_formula_count_it_when_pasted(
    model: str, tmp_path: Path
) -> None:
    """Only the number is left to write, in the letters that the lines have."""
    (row,) = crossflops.count(model).uncounted
    assert "a, b, c, d = call.inputs[0].shape  # 2x4x8x16 float32" in row.stub
    assert 'causal = call.attributes["causal"]  # 1' in row.stub
    file = written(tmp_path, row.stub.replace("macs=...", "macs=2 * a * b * c * c * d"))
    assert crossflops.count(model, formulas=[file]).macs == FLASH_MACS


def test_lines_that_are_pasted_as_they_are_say_what_is_missing(model: str, tmp_path: Path) -> None:
    """Three dots are no number."""
    (row,) = crossflops.count(model).uncounted
    with pytest.raises(FormulaError, match="returns macs=Ellipsis"):
        crossflops.count(model, formulas=[written(tmp_path, row.stub)])


def test_json_and_render_show_it_where_the_formula_is_absent(
    model: str, own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The JSON carries the counts."""
    file = str(tmp_path / "report.json")
    assert main(["count", model, "--formulas", own, "-o", file]) == 0
    row = json.loads(Path(file).read_text())["custom_operators"][0]
    assert (row["op"], row["by"], row["macs"]) == ("mylib.Flash", "formula", FLASH_MACS)
    capsys.readouterr()
    assert main(["render", file]) == 0
    shown = capsys.readouterr().out
    assert "16 384" in shown
    assert f"sha256 {row['origin']['digest'][:12]}" in " ".join(shown.split())


def test_a_configuration_names_files_from_its_own_folder(
    model: str, own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`formulas` of crossflops.toml holds in the folders beneath it."""
    (tmp_path / "crossflops.toml").write_text('formulas = ["own.py"]\n')
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    assert crossflops.count(model).macs == FLASH_MACS
    (tmp_path / "crossflops.toml").write_text('formulas = "own.py"\n')
    with pytest.raises(crossflops.CrossflopsError, match="must be a list of files"):
        crossflops.count(model)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return crossflops.Cost(macs=1.5)", r"returns macs=1\.5"),
        ("return crossflops.Cost(macs=-1)", "returns macs=-1"),
        ("return crossflops.Cost(macs=True)", "returns macs=True"),
        ("import numpy; return crossflops.Cost(macs=numpy.int64(5))", r"macs=np.int64\(5\)"),
        ("return 7", "returns 7"),
        ("return crossflops.Cost(bytes_read=1)", "returns bytes in its cost"),
        ("return call.input('x').shape", "has no tensor 'x'"),
        ("raise KeyError('k')", "raises KeyError"),
    ],
)
def test_what_is_no_count_is_an_error_that_names_the_formula(
    model: str, tmp_path: Path, body: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two lines and exit status 2: the formula, the operator, the file, and what to do."""
    head = 'import crossflops\n@crossflops.operator("mylib::Flash")\ndef flash(call):\n    '
    file = written(tmp_path, head + body)
    with pytest.raises(FormulaError, match=says) as raised:
        crossflops.count(model, formulas=[file])
    assert "formula 'flash' of mylib::Flash" in raised.value.message
    assert main(["count", model, "--formulas", file]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"]


def test_a_call_that_a_formula_cannot_tell_is_uncounted(model: str, tmp_path: Path) -> None:
    """It says why, and nothing is taken for zero."""
    text = OWN.replace(
        "    b, h, t, d =", "    raise call.uncounted('lengths are values')\n    b, h, t, d ="
    )
    (row,) = crossflops.count(model, formulas=[written(tmp_path, text)]).uncounted
    assert row.reason == "lengths are values"


def test_two_formulas_for_one_operator_are_refused(model: str, own: str, tmp_path: Path) -> None:
    """The error names both files; the same file twice is one."""
    other = written(tmp_path, OWN.replace("2 * b", "3 * b"), "other.py")
    with pytest.raises(FormulaError, match=r"two formulas count mylib::Flash: .*own.py.*other.py"):
        crossflops.count(model, formulas=[own, other])
    assert crossflops.count(model, formulas=[own, own]).macs == FLASH_MACS
    assert not STATE.requested


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1", "registers no formula"),
        ("x = 1 / 0", "cannot be read: ZeroDivisionError"),
        ("import sys; sys.exit(3)", "cannot be read: SystemExit: 3"),
        (OWN.replace("mylib::Flash", "Flash"), "is not the name of an operator"),
        (OWN.replace("mylib::Flash", "ai.onnx::MatMul"), "crossflops already counts"),
        (OWN.replace('source="a paper"', 'doubt="perhaps"'), "has doubt='perhaps'"),
        (OWN.replace('source="a paper"', 'module="nothing"'), "is not a class"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(
    model: str, tmp_path: Path, text: str, says: str
) -> None:
    """The message and its hint."""
    with pytest.raises(FormulaError, match=says):
        crossflops.count(model, formulas=[written(tmp_path, text)])
    with pytest.raises(FormulaError, match="the file of formulas"):
        crossflops.count(model, formulas=[str(tmp_path / "none.py")])


def test_bytes_and_doubt_are_those_of_the_formula(model: str, tmp_path: Path) -> None:
    """The bytes of a function, in elements by the first operand; an upper bound says so."""
    text = OWN.replace(
        'source="a paper"', 'bytes=lambda call: (400, 40), doubt=lambda call: "bound"'
    )
    report = crossflops.count(model, formulas=[written(tmp_path, text)])
    assert (report.totals.bytes_read, report.totals.bytes_written) == (400, 40)
    assert report.memory.access_elements == (400 + 40) // 4
    assert report.nodes[0].exactness == "bound"


def test_a_registry_is_a_value() -> None:
    """Adding makes another one, and a contradiction leaves the first as it was."""
    origin = FormulaOrigin(kind="module", name="here", digest="0")

    def first(call: object) -> crossflops.Cost:
        return crossflops.Cost(macs=1)

    def second(call: object) -> crossflops.Cost:
        return crossflops.Cost(macs=2)

    empty = FormulaRegistry()
    one = empty.add(Formula(name="a::b", function=first, origin=origin))
    assert (len(empty), len(one)) == (0, 1)
    with pytest.raises(FormulaError, match="two formulas count a::b"):
        one.add(Formula(name="a::b", function=second, origin=origin))
    assert [formula.function for formula in one] == [first]


def test_an_installed_distribution_brings_formulas(model: str, tmp_path: Path) -> None:
    """By its entry point, in another process; the report and doctor name it with its version."""
    (tmp_path / "mylib.py").write_text(OWN)
    info = tmp_path / "mylib-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mylib\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[crossflops.operators]\nmylib = mylib\n")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import crossflops\n"
        "row = crossflops.count(sys.argv[2]).custom_operators[0]\n"
        "print(row.macs, row.origin.kind, row.origin)\n"
        "from crossflops.cli.doctor import _formula_rows\n"
        "print([(row.distribution, row.version, row.operators) for row in _formula_rows()\n"
        "       if row.distribution == 'mylib'])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), model], capture_output=True, text=True
    )
    assert ran.stdout.splitlines() == [
        f"{FLASH_MACS} distribution mylib 1.2",
        "[('mylib', '1.2', ('mylib::Flash',))]",
    ], ran.stderr


def test_one_that_is_imported_holds_for_the_process(model: str, tmp_path: Path) -> None:
    """A module registers its formulas, and a spawned process finds them by its name."""
    (tmp_path / "registered.py").write_text(OWN)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import crossflops, registered\n"
        "print(crossflops.count(sys.argv[2]).macs)\n"
        "from crossflops.operators.formula_sources import formula_locations_for_workers\n"
        "print(formula_locations_for_workers())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), model], capture_output=True, text=True
    )
    assert ran.stdout.splitlines() == [str(FLASH_MACS), "('registered',)"], ran.stderr


def test_formulas_are_gone_behind_the_block(own: str) -> None:
    """Also where the block raises."""
    names = []

    def raise_in_block() -> None:
        with using_formulas([own]):
            names.extend(formula.name for formula in STATE.in_force)
            raise ValueError("in the block")

    with pytest.raises(ValueError, match="in the block"):
        raise_in_block()
    assert names == ["mylib::Flash"]
    assert not STATE.in_force
