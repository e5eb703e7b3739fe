"""The generated pages say what the code does."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from crossflops.causes import all_causes
from crossflops.operators import all_operator_rules
from crossflops.tools.registry import all_conventions

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def generator():
    """The script that writes the pages."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(generator):
    """The pages as the generator makes them now, by file name."""
    return {name: page() for name, page in generator.PAGES.items()}


@pytest.mark.parametrize(
    "name",
    [
        "ops.md",
        "kernels.md",
        "causes.md",
        "conventions.md",
        "published.md",
        "errors.md",
        "waterfall-resnet50.svg",
    ],
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


IDIOMS = re.compile(
    r"(?<!there )\b(is|are|was) no(ne)?\b(?! longer)|\bcontradict each other"
    r"|\bgoes? together"
    r"|\btells? apart|\bas it is\b|\bmeans nothing|\bmend\b|\bleave --\S+ out\b"
)
# Rooms whose messages are still to be rewritten.
OPEN = tuple(
    f"crossflops/{room}/"
    for room in ("frontends", "rebuild", "operators", "tools", "rules", "patches")
)


def test_every_error_says_what_is_wrong_and_what_to_do(generator):
    """Wherever one is made it has a message and a hint."""
    rows = generator.raised_errors()
    assert len(rows) > 500
    assert {row.kind for row in rows} <= generator.error_kinds().keys()
    silent = [row for row in rows if not any(row.message) or not any(row.hint)]
    assert not silent


def test_messages_are_plain(generator):
    """No idiom that a reader has to read twice."""
    rows = [row for row in generator.raised_errors() if not row.path.startswith(OPEN)]
    texts = [
        f"{row.path}:{row.line}: {text}"
        for row in rows
        for text in (*row.message, *row.hint)
        if IDIOMS.search(text)
    ]
    assert not texts


def test_errors_are_found_in_the_source(generator, tmp_path, monkeypatch):
    """A text is followed through constants, conditions and values that are filled in."""
    (tmp_path / "a.py").write_text(
        "from crossflops.errors import InputError\n"
        "HINT = 'write ' 'it'\n"
        "def check(name, many):\n"
        "    word = 'names' if many else 'name'\n"
        "    raise InputError(f'{name!r} is a wrong {word}', HINT)\n"
        "def again(error):\n"
        "    raise InputError(message='x', hint=error.hint)\n"
    )
    messages = sys.modules["messages"]
    monkeypatch.setattr(messages, "PACKAGE", tmp_path)
    monkeypatch.setattr(messages, "ROOT", tmp_path)
    first, second = messages.raised_errors()
    assert first.message == ("{name} is a wrong names", "{name} is a wrong name")
    assert first.hint == ("write it",)
    assert (first.kind, first.path, first.function) == ("InputError", "a.py", "check")
    assert (second.message, second.hint) == (
        ("x",),
        ("{hint of the underlying error}",),
    )
