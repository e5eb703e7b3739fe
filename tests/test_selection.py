"""Which environment runs a test is read from its file, and nothing is missed."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.selection import Environment, cases_of, files_of_part, files_of_tests

FILE = """
    import pytest
    import thop
    from tests.models import nn

    pytestmark = [pytest.mark.torch, pytest.mark.skipif(False, reason="")]

    def helper():
        import numpy

    def test_plain():
        pytest.importorskip("onnx_tool.graph")

    @pytest.mark.plots
    class TestPictures:
        @pytest.mark.parametrize("x", [1])
        def test_one(self, x):
            import matplotlib.pyplot
"""


@pytest.fixture
def found(tmp_path):
    """The tests of `FILE`, by name."""
    path = tmp_path / "test_file.py"
    path.write_text(textwrap.dedent(FILE))
    return {test.name: test for test in cases_of(path)}


def test_a_test_has_the_markers_of_its_file_and_of_its_class(found):
    """Other marks (skipif, parametrize) are no environment's."""
    assert {name: set(test.marks) for name, test in found.items()} == {
        "test_plain": {"torch"},
        "TestPictures": {"torch", "plots"},
        "TestPictures::test_one": {"torch", "plots"},
    }


def test_a_test_needs_what_its_file_and_itself_import(found):
    """Also what a module of the tests imports that it takes from; not what a helper does."""
    shared = {"pytest", "thop", "tests", "torch"}
    assert shared <= found["test_plain"].packages
    assert "onnx_tool" in found["test_plain"].packages
    assert found["TestPictures::test_one"].packages >= shared | {"matplotlib"}
    assert not {"numpy", "matplotlib"} & found["test_plain"].packages


def test_a_file_without_a_marker_is_of_the_core(tmp_path):
    """Which every Python runs."""
    path = tmp_path / "test_bare.py"
    path.write_text("def test_it(): pass\n")
    [test] = cases_of(path)
    assert test.marks == {"core"}


@pytest.mark.parametrize(
    ("marker", "inside", "runs"),
    [("torch", True, True), ("plots", True, False), (None, True, True), ("torch", False, False)],
)
def test_an_environment_runs_what_bears_its_marker_in_its_folders(
    found, tmp_path, marker, inside, runs
):
    """Without a marker, all that lies there."""
    folder = tmp_path if inside else tmp_path / "elsewhere"
    environment = Environment("it", (folder,), marker, frozenset())
    assert environment.runs(found["test_plain"]) == runs


def test_one_of_every_so_many_cases_is_kept():
    """The first case of each test, and the fourth; those left out are counted."""
    root = Path(__file__).resolve().parents[1]
    file = "tests/plugins/test_amounts.py"
    printed = []
    for words in ((), ("--one-of", "3")):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *words, file]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        printed.append([line for line in done.stdout.splitlines() if line.startswith(file)])
    cases = {}
    for line in printed[0]:
        cases.setdefault(line.partition("[")[0], []).append(line)
    assert max(map(len, cases.values())) > 3
    assert printed[1] == [line for lines in cases.values() for line in lines[::3]]
    assert f"{len(printed[0]) - len(printed[1])} deselected" in done.stdout


def test_parts_share_the_files():
    """Each file is of one part, and all are of one."""
    first, second = files_of_part("1/2"), files_of_part("2/2")
    assert not first & second
    assert first | second == set(files_of_tests()) == files_of_part("1/1")
    assert abs(len(first) - len(second)) <= 1


@pytest.mark.parametrize("part", ["0/2", "3/2", "2", "a/b", ""])
def test_a_part_that_does_not_exist_is_an_error(part):
    """It would run nothing, or all."""
    with pytest.raises(ValueError, match="--part must be K/N"):
        files_of_part(part)
