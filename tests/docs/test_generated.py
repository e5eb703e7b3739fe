"""The generated pages say what the code does."""

import importlib.util
from pathlib import Path

import pytest

from crossflops.causes import all_causes
from crossflops.operators import all_operator_rules
from crossflops.tools.registry import all_conventions

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def pages():
    """The pages as the generator makes them now, by file name."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: page() for name, page in module.PAGES.items()}


@pytest.mark.parametrize(
    "name", ["ops.md", "kernels.md", "causes.md", "conventions.md", "published.md"]
)
def test_a_page_is_what_the_code_makes_of_it(pages, name):
    """Whoever changes a rule, a cause or a convention runs `tox -e docs` and commits the page."""
    assert (DOCS / name).read_text(encoding="utf-8") == pages[name]


def test_nothing_is_left_out(pages):
    """Every operator has a row, every cause a heading, every edition a title."""
    rows = pages["ops.md"].replace("\\_", "_")  # as Markdown shows it
    for op in all_operator_rules():
        assert f"\n| {op} | {op.since} | " in rows
    for cause in all_causes():
        assert f"\n## {cause.id}: " in pages["causes.md"]
    for convention in all_conventions():
        assert f"# {convention.tool}@{convention.edition}\n" in pages["conventions.md"]
