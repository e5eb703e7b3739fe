"""docs/extending.md is true: what it shows is added to a copy of the repository, and used there.

The copy must then have changed in as many files as the page says, and pass the checks that the
repository has of such things.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser

import onnx
import pytest
from onnx import helper

from tests.docs.blocks import ROOT, blocks

PAGE = ROOT / "docs" / "extending.md"
COPIED = ("crossflops", "docs", "reports", "tests")  # pages are written from reports
KINDS = ("operator", "cause", "device", "output format", "framework")
TOY = """
import onnx
from onnx import helper


class Model:
    def __init__(self, width):
        self.width = width

    def to_onnx(self, shapes):
        [(rows, columns)] = shapes
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "toy",
            [value("x", 1, [rows, columns]), value("w", 1, [columns, self.width])],
            [value("y", 1, [rows, self.width])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        return model.SerializeToString()
"""


def section(block):
    """The heading that a block of the page stands under."""
    above = PAGE.read_text("utf-8").splitlines()[: block.start]
    return next(line for line in reversed(above) if line.startswith("## "))


def additions(kind):
    """The blocks of the page that add a thing of this kind."""
    return [b for b in blocks(PAGE) if b.adds and re.fullmatch(f"## An? {kind}", section(b))]


def copied(folder):
    """A copy of what the page adds to."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name)  # with what is compiled: it is imported
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, folder)
    return folder


def item(block):
    """The lines of a block that follow a line: Python is an item of the list around that line."""
    if block.language != "python":
        return block.lines
    return [f"    {line}" for line in (*block.lines[:-1], f"{block.lines[-1]},")]


def add(kind, folder):
    """Do what the page shows to a copy."""
    shown = additions(kind)
    assert shown, kind
    for block in shown:
        path = folder / block.adds
        path.parent.mkdir(exist_ok=True)
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        if block.after is None:
            lines += [*(["", ""] if lines else []), *block.lines]
        else:
            [place] = [n for n, line in enumerate(lines, 1) if line.strip() == block.after]
            lines[place:place] = item(block)
        path.write_text("\n".join((*lines, "")), encoding="utf-8")


def changed(folder):
    """The files of a copy that are not as they are here."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    paths = ((path, path.relative_to(folder)) for path in files)
    return {
        name.as_posix()
        for path, name in paths
        if not (ROOT / name).exists() or (ROOT / name).read_bytes() != path.read_bytes()
    }


def promised():
    """How many files an addition of each kind touches, by the table of the page."""
    rows = re.findall(
        r"^\| \[an? ([\w ]+)\]\(#[\w-]+\) \| (\d+) \|", PAGE.read_text("utf-8"), re.M
    )
    return {kind: int(number) for kind, number in rows}


def run(folder, *words):
    """What Python prints with a copy in place of the package."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def crossflops(folder, *words):
    """What the command line of a copy prints."""
    return run(folder, "-m", "crossflops", *words)


def cross_products(folder):
    """A file with the products of 2 x 5 vectors, by the operator that the page adds."""
    value = helper.make_tensor_value_info
    cross = helper.make_node("aten.linalg_cross.default", ["a", "b"], ["y"], domain="torch.ops")
    graph = helper.make_graph(
        [cross, helper.make_node("MatMul", ["y", "w"], ["z"])],
        "cross",
        [value("a", 1, [2, 5, 3]), value("b", 1, [2, 5, 3]), value("w", 1, [3, 4])],
        [value("z", 1, [2, 5, 4])],
        value_info=[value("y", 1, [2, 5, 3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("torch.ops", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), folder / "cross.onnx")
    return "cross.onnx"


@pytest.fixture
def extended(request, tmp_path):
    """A copy with one addition, which touched as many files as the page promises."""
    kind = request.param
    add(kind, copied(tmp_path))
    names = {name for name in changed(tmp_path) if not name.startswith("tests/")}
    assert len(names) == promised()[kind], names
    return tmp_path


def only(kind):
    """The test is about the copy with this addition."""
    return pytest.mark.parametrize("extended", [kind], indirect=True)


def test_the_page_promises_what_is_asked_for():
    """Of a tool from outside see test_mycounter.py: nothing of the repository is in it."""
    assert set(promised()) == {*KINDS, "tool", "tool from outside"}
    assert promised()["tool from outside"] == 0


@only("operator")
def test_an_operator_is_counted(extended):
    """30 elements of 2 muls and 1 sub; the product beside it is 10 rows of 3 to 4."""
    assert changed(extended) == {"crossflops/operators/aten.py", "tests/operators/test_aten.py"}
    totals = json.loads(crossflops(extended, "count", cross_products(extended), "--json"))[
        "totals"
    ]
    assert (totals["macs"], totals["flops"]) == (120, 2 * 120 + 3 * 30)


@only("cause")
def test_a_cause_is_explained(extended):
    """By its id."""
    page = crossflops(extended, "explain", "norm.weight")
    assert "weight standardization" in page


@only("device")
def test_a_device_is_known(extended):
    """With its peak, which is derived a second time: 1 GHz x 64 x 512 x 2."""
    [row] = json.loads(crossflops(extended, "devices", "Example NPU 1", "--json"))["peaks"]
    assert (row["peak"], row["derived"]) == (65.5e12, 1e9 * 64 * 512 * 2)


@only("output format")
def test_a_format_is_written(extended):
    """By the suffix of the file."""
    crossflops(extended, "count", cross_products(extended), "-o", "count.tsv")
    rows = [line.split("\t") for line in (extended / "count.tsv").read_text().splitlines()]
    assert ["MatMul", "1", "120"] in [row[:3] for row in rows], rows


@only("framework")
def test_a_framework_is_counted(extended):
    """From `file.py:make`: 2 rows of 4 to 5. The registry has one line more."""
    (extended / "toy.py").write_text(TOY)
    (extended / "model.py").write_text(
        "from toy import Model\n\n\ndef make():\n    return Model(5)\n"
    )
    assert changed(extended) == {
        "crossflops/frontends/__init__.py",
        "crossflops/frontends/toy/__init__.py",
        "model.py",
        "pyproject.toml",
        "tox.ini",
        "toy.py",
    }
    registry = "crossflops/frontends/__init__.py"
    lines = (extended / registry).read_text().splitlines()
    assert len(lines) == len((ROOT / registry).read_text().splitlines()) + 1
    words = ("count", "model.py:make", "--input", "2x4", "--json")
    assert json.loads(crossflops(extended, *words))["totals"]["macs"] == 40
    project = tomllib.loads((extended / "pyproject.toml").read_text("utf-8"))["project"]
    assert "toy" in project["optional-dependencies"]
    tox = ConfigParser(interpolation=None)
    tox.read(extended / "tox.ini", "utf-8")
    assert "toy" in tox["tox"]["env_list"].split()
    assert "testenv:toy" in tox


def test_what_was_added_passes_the_checks(tmp_path):
    """Every row, page and name is checked as those of the repository are.

    A rule books the cause, and the generated pages are written again, as the page says.
    """
    for kind in KINDS:
        add(kind, tmp_path if kind != KINDS[0] else copied(tmp_path))
    thop = tmp_path / "crossflops" / "tools" / "thop.py"
    thop.write_text(thop.read_text().replace('cause="norm.batch"', 'cause="norm.weight"', 1))
    before = changed(tmp_path)
    run(tmp_path, "docs/generate.py")
    pages = {"docs/ops.md", "docs/causes.md", "docs/conventions.md", "docs/errors.md"}
    assert changed(tmp_path) - before == pages
    tests = (
        "operators/test_table.py", "operators/test_aten.py", "causes", "docs/test_generated.py",
        "hardware/test_catalogue.py", "hardware/test_names.py", "hardware/test_peaks.py",
    )  # fmt: skip
    about = "cross or npu or weight or booked or generated"  # of rows: those that were added
    words = ("-m", "pytest", "-q", "-m", "core", "-p", "no:cacheprovider", "-k", about)
    run(tmp_path, *words, *(f"tests/{name}" for name in tests))
