"""Which environment runs a test is read from its file, and nothing is missed."""

import textwrap

import pytest

from tests.selection import Environment, cases_of

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
