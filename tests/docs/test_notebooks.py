"""The notebooks of docs/notebooks: their cells run, and print what is shown."""

import re

import pytest

from tests.docs.notebooks import NOTEBOOKS, ROOT, run_notebook, shown_outputs, stable_outputs

LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


@pytest.mark.tools
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path, tmp_path):
    """Each cell runs, and its numbers and pictures are those of the file."""
    import nbformat

    shown = shown_outputs(nbformat.read(path, as_version=4))
    assert shown_outputs(run_notebook(path, tmp_path)) == shown
    assert any(shown)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_a_title_and_links_that_lead_somewhere(path):
    """As the pages do; and it names no folder of a machine."""
    import json

    cells = json.loads(path.read_text("utf-8"))["cells"]
    prose = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert prose[0].startswith("# ")
    links = [link for text in prose for link in LINK.findall(text)]
    assert links
    for link in links:
        assert (path.parent / link).resolve().is_relative_to(ROOT)
        assert (path.parent / link).exists(), link
    assert str(ROOT) not in path.read_text("utf-8")


def test_there_is_a_notebook_for_each_of_three_tasks():
    """A published figure, a language model, and the efficiency of a run."""
    names = {path.stem for path in NOTEBOOKS}
    assert names == {"compare-tools", "efficiency", "language-model"}


def test_outputs_do_not_depend_on_how_they_came():
    """In pieces, from a terminal, next to warnings, in a cell of any number."""

    def stream_output(text, name="stdout"):
        return {"output_type": "stream", "name": name, "text": text}

    result = {"output_type": "execute_result", "execution_count": 3, "data": {}}
    outputs = [stream_output("a\r\n"), stream_output("w", "stderr"), stream_output("b\n"), result]
    assert stable_outputs(outputs) == [stream_output("a\nb\n"), result | {"execution_count": None}]
