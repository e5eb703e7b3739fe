"""Causes that plugins bring along stand beside ours, and a broken plugin costs no other."""

from importlib.metadata import EntryPoint

import pytest

from crossflops import causes as room
from crossflops.errors import CrossflopsWarning, UnknownNameError
from crossflops.ir.reconciliation import Cause

OWN = (Cause(id="mine.row", title="a row", page="One for each row."),)
OURS_TWICE = (Cause(id="norm.batch", title="another", page="It bears a name of ours."),)
NO_CAUSES = ("norm.batch",)


@pytest.fixture
def plugins(monkeypatch):
    """A function that puts entry points of the group of causes in place of what is installed."""

    def install(*names):
        points = [EntryPoint(name, f"{__name__}:{name}", room.GROUP) for name in names]
        monkeypatch.setattr(room, "entry_points", lambda group: points)
        room._causes_by_id.cache_clear()

    yield install
    room._causes_by_id.cache_clear()


def test_a_plugin_brings_its_own(plugins):
    """It is found by its id, and listed among ours."""
    plugins("OWN")
    assert room.find_cause("mine.row") is OWN[0]
    assert set(room.all_causes()) == {*room.package_causes().values(), *OWN}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("OURS_TWICE", "which already exists"),
        ("NO_CAUSES", "is not a Cause"),
        ("MISSING", "cannot load the causes"),
    ],
)
def test_a_broken_plugin_is_named_and_costs_no_other(plugins, name, words):
    """Ours hold, and the others of plugins; one warning says what is wrong."""
    plugins(name, "OWN")
    with pytest.warns(CrossflopsWarning, match=words):
        assert room.find_cause("mine.row") is OWN[0]
    assert room.find_cause("norm.batch").title != "another"


def test_ours_need_no_plugin(plugins):
    """A report of our tools loads nothing from outside."""
    plugins("MISSING")
    assert room.find_cause("norm.batch").id == "norm.batch"
    with pytest.warns(CrossflopsWarning), pytest.raises(UnknownNameError):
        room.find_cause("norm.nothing")
