"""tools, doctor and explain."""

import json

import pytest

from crossflops.cli import doctor, explain, toolbox
from crossflops.core.convention import Cause, Convention
from crossflops.core.profile import Failure


class Adapter:
    """An installed tool of some version."""

    def __init__(self, version):
        self._version = version

    def version(self):
        """The version, or the error that the tool raises."""
        if isinstance(self._version, Exception):
            raise self._version
        return self._version


def convention(tool, edition, *verified):
    """A convention of which only the head matters."""
    return Convention(
        tool=tool,
        edition=edition,
        verified=verified,
        unit=1,
        printed_as="x",
        sees="module",
        clauses=(),
        unseen="functional.invisible",
        counts_dead=True,
    )


@pytest.fixture
def world(monkeypatch):
    """Five tools: fine, of an odd version, not installed, broken twice, without a convention."""
    adapters = {
        "fine": Adapter("1.0+cpu"),
        "odd": Adapter("9"),
        "torn": Adapter(RuntimeError("no\nnms")),
        "sunk": Failure(tool="sunk", stage="load", message="two plugins", hint="remove one"),
        "extra": Adapter("3"),
    }
    known = (
        convention("fine", "old", "0.1"),
        convention("fine", "new", "1.0"),
        convention("odd", "1", "1"),
        convention("gone", "1", "1"),
        convention("torn", "1", "1"),
        convention("sunk", "1", "1"),
    )
    monkeypatch.setattr(toolbox, "installed", lambda: dict.fromkeys(adapters))
    monkeypatch.setattr(toolbox, "load", adapters.__getitem__)
    monkeypatch.setattr(toolbox, "conventions", lambda: known)
    monkeypatch.setattr(toolbox, "to_install", lambda tools: f"pip install {tools[0]}")
    monkeypatch.setattr(explain, "conventions", lambda: known)
    monkeypatch.setattr(
        explain, "causes", lambda: (Cause(id="norm.batch", title="t", page="p"),)
    )  # fmt: skip


@pytest.mark.usefixtures("world")
def test_tools_tells_the_state_of_each(line):
    """Every known or installed tool has a row: its version, and whether that was checked."""
    status, out, err = line("tools", "--json")
    assert (status, err) == (0, "")
    rows = {row["tool"]: row for row in json.loads(out)["tools"]}
    assert list(rows) == ["fine", "odd", "gone", "torn", "sunk", "extra"]
    assert rows["fine"]["editions"] == ["old", "new"]
    states = {tool: (row["version"], row["state"], row["message"]) for tool, row in rows.items()}
    assert states == {
        "fine": ("1.0+cpu", "ok", ""),
        "odd": ("9", "unverified", ""),
        "gone": (None, "missing", ""),
        "torn": (None, "broken", "RuntimeError: no nms"),
        "sunk": (None, "broken", "two plugins"),
        "extra": ("3", "unverified", ""),
    }
    commands = {tool for tool, row in rows.items() if row["install"] == f"pip install {tool}"}
    assert commands == {"gone", "torn", "sunk"}


@pytest.mark.usefixtures("world")
def test_tools_fits_on_eighty_columns(line):
    """The table stays within 80 columns, and names every tool."""
    _, out, _ = line("tools")
    assert max(map(len, out.splitlines())) <= 80
    assert " gone: pip install gone\n" in out


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("complaint", "state", "said"),
    [
        ("", "ok", "ok"),
        ("RuntimeError: operator torchvision::nms does not exist", "ok", "with the shim"),
        ("ImportError: something else", "broken", "ImportError: something else"),
    ],
)
def test_doctor_knows_the_torchvision_trap(line, monkeypatch, complaint, state, said):
    """A torchvision of another build needs the shim; one that fails otherwise is broken."""
    monkeypatch.setattr(doctor, "installed_version", lambda name: "1.2.3")
    monkeypatch.setattr(doctor, "_import_in_another_process", lambda module: complaint)
    assert said in line("doctor")[1]
    parts = {row["name"]: row for row in json.loads(line("doctor", "--json")[1])["components"]}
    assert parts["torchvision"]["state"] == state
    assert parts["Python"]["version"].startswith("3.")


@pytest.mark.usefixtures("world")
def test_doctor_says_how_to_install_what_is_missing(line, monkeypatch):
    """A part that is not there comes with the command that brings it, told once for all."""
    monkeypatch.setattr(doctor, "installed_version", lambda name: None)
    parts = {row["name"]: row for row in json.loads(line("doctor", "--json")[1])["components"]}
    assert parts["torch"]["state"] == "missing"
    assert "pip install" in parts["torch"]["install"]
    assert "[torch]" in parts["torch"]["install"]
    assert "--no-deps torchvision" in parts["torchvision"]["install"]
    assert "\n torch, onnxscript: " in line("doctor")[1]


@pytest.mark.parametrize(
    ("module", "said"),
    [("json", ""), ("no_such_module_here", "No module named 'no_such_module_here'")],
)
def test_an_import_is_tried_in_another_process(module, said):
    """The last line of the complaint is kept; a module that imports has none."""
    found = doctor._import_in_another_process(module)
    assert found.endswith(said)
    assert bool(found) == bool(said)


@pytest.mark.usefixtures("world")
def test_explain_knows_causes_tools_and_editions(line):
    """A cause by id, a tool by id, an edition by both."""
    assert line("explain", "norm.batch")[1].startswith("norm.batch · t\n\n p\n")
    assert line("explain", "fine")[1].startswith("fine@old · ")
    assert line("explain", "fine@new")[1].startswith("fine@new · ")
    assert json.loads(line("explain", "norm.batch", "--json")[1])["id"] == "norm.batch"


@pytest.mark.usefixtures("world")
def test_explain_offers_the_nearest(line):
    """A slip of the finger is met with what was perhaps meant."""
    status, out, err = line("explain", "norm.bacth")
    assert (status, out) == (2, "")
    assert err.splitlines() == [
        "error: norm.bacth is neither a cause nor a tool",
        "hint: perhaps one of these: norm.batch",
    ]


@pytest.mark.usefixtures("world")
def test_every_verb_writes_files(line, tmp_path):
    """What prints a table also writes it to a file."""
    for verb in (["tools"], ["explain", "fine"]):
        for suffix in (".json", ".md", ".txt"):
            file = tmp_path / f"{verb[0]}{suffix}"
            assert line(*verb, "-o", str(file))[0] == 0
            assert "fine" in file.read_text()
