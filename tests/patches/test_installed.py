"""What a newer release has in the place of a target, read from its text."""

import pytest

from crossflops.cli import doctor
from crossflops.patches import installed
from crossflops.patches.installed import find_source_digest_and_signature, patch_targets
from crossflops.patches.patching import Patch
from crossflops.render.pages.inventory import Health
from crossflops.render.terminal import terminal

OLD = """
from os import sep, (
    path,
)
LIMIT: int = 3
def act(value, *, other=1):
    return value
class Kind(
    dict,
):
    '''act = here in words.'''
    def act(self, value):
        return value

    table = {
        1: 2,
    }
"""
OLD = OLD.replace("sep, (\n    path,\n)", "(\n    path,\n    sep,\n)")
TOY = Patch("numpy", "toy_library.part", ("act",), "test it", "toy 1", is_optional=False)


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Write a library of one module, and return what writes another release of it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "toy_library"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('it is imported')")
    part = folder / "part.py"
    part.write_text(OLD)
    return part.write_text


@pytest.mark.parametrize(
    ("place", "name", "signature"),
    [
        ("toy_library.part", "act", "(value, *, other=1)"),
        ("toy_library.part:Kind", "act", "(self, value)"),
        ("toy_library.part:Kind", "table", ""),
        ("toy_library.part", "LIMIT", ""),
        ("toy_library.part", "sep", ""),
        ("toy_library.part", "Kind", ""),
    ],
)
def test_a_target_is_found_in_the_text(library, place, name, signature):
    """A function, a method, a variable and what is imported; nothing is executed."""
    assert find_source_digest_and_signature(place, name)[1] == signature


@pytest.mark.parametrize(
    ("place", "name"),
    [("toy_library.part", "table"), ("toy_library.part:Other", "act"), ("toy_library.x", "act")],
)
def test_a_target_that_is_not_there_is_not_found(library, place, name):
    """A name of a class is none of its module; a class or a module that is gone has none."""
    assert find_source_digest_and_signature(place, name) is None


@pytest.mark.parametrize(
    ("text", "state", "message"),
    [
        (OLD, "same", ""),
        (OLD.replace("LIMIT: int = 3", "LIMIT = 4"), "same", ""),
        (
            OLD.replace("other=1):\n    return value", "other=1):\n    return 2"),
            "changed",
            "the target is there, its signature is the same; its source is not that of 1.0",
        ),
        (
            OLD.replace("other=1", "another=1"),
            "changed",
            "the target is there, its signature is (value, *, another=1), and was "
            "(value, *, other=1)",
        ),
        (OLD.replace("def act(value", "def go(value"), "gone", "the target is gone"),
    ],
)
def test_a_release_is_compared_with_the_one_that_was_verified(
    library, monkeypatch, text, state, message
):
    """By the text of the target alone; doctor's page says what has changed."""
    digest, signature = find_source_digest_and_signature(TOY.place, "act")
    records = {"toy_library.part.act": {"1.0": [digest, signature]}}
    monkeypatch.setattr(installed, "_read_records", lambda: records)
    library(text)
    (target,) = patch_targets([TOY])
    assert (target.state, target.message) == (state, message)
    monkeypatch.setattr(doctor, "patch_targets", lambda: (target,))
    page = " ".join(terminal(Health((), (), doctor._patch_rows()), 200).split())
    assert "verified with toy 1" in page
    assert f"toy_library.part.act {state}{': ' * bool(message)}{message}" in page


def test_an_optional_target_that_is_not_there_is_no_alarm(library):
    """Who patches goes on without it."""
    (target,) = patch_targets([TOY._replace(names=("nothing",), is_optional=True)])
    assert target.state == "absent"


def test_a_library_that_is_not_installed_has_no_release():
    """Its targets are listed all the same."""
    (target,) = patch_targets([TOY._replace(library="no-such-library")])
    assert (target.state, target.version) == ("not installed", None)
