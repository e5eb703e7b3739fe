"""tools, doctor and explain."""

import json
import subprocess
import sys

import pytest

from crossflops.cli import doctor
from crossflops.commands import python_command
from crossflops.ir.profile import Failure
from crossflops.ir.reconciliation import Cause
from crossflops.plugins.elsewhere import Offer
from crossflops.rules.rule import Convention
from crossflops.verbs import explain


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
        rules=(),
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
    monkeypatch.setattr(doctor, "plugin_entry_points", lambda: dict.fromkeys(adapters))
    monkeypatch.setattr(doctor, "load_plugin_adapter", adapters.__getitem__)
    monkeypatch.setattr(doctor, "all_conventions", lambda: known)
    monkeypatch.setattr(doctor, "plugin_install_command", lambda tools: f"pip install {tools[0]}")
    monkeypatch.setattr(explain, "all_conventions", lambda: known)
    monkeypatch.setattr(
        explain, "all_causes", lambda: (Cause(id="norm.batch", title="t", page="p"),)
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
    assert f" gone:\n   {python_command()} -m pip install gone\n" in out
    assert "unverified: checked with 1\n" in out


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("torch", "pinned", "built", "state", "said"),
    [
        ("2.13.0+cpu", "2.13.0", "0.28.0+cpu", "ok", "ok"),
        ("2.13.0+cu130", "2.13.0", "0.28.0+cu130", "ok", "ok"),
        ("2.13.0+cpu", "2.13.0", "0.28.0+cu130", "ok", "which replaces the missing parts"),
        ("2.12.0", "2.13.0", "0.28.0+cu130", "broken", "requires torch 2.13.0, but torch 2."),
    ],
)
def test_doctor_knows_the_torchvision_trap(line, monkeypatch, torch, pinned, built, state, said):
    """A torchvision of another build needs the shim; one for another torch is broken."""
    versions = {"torch": torch, "torchvision": "0.28.0"}
    builds = {"torch": torch, "torchvision": built}
    monkeypatch.setattr(
        doctor, "find_distribution_version", lambda name: versions.get(name, "1.2.3")
    )
    monkeypatch.setattr(doctor, "requires", lambda name: ["numpy", f"torch (=={pinned})"])
    monkeypatch.setattr(doctor, "_package_build_version", builds.__getitem__)
    parts = {row["name"]: row for row in json.loads(line("doctor", "--json")[1])["components"]}
    part = parts["torchvision"]
    assert (part["state"], said in (part["message"] or "ok")) == (state, True)
    assert parts["Python"]["version"].startswith("3.")
    assert parts["Python"]["python"] == sys.executable


def test_the_build_of_a_package_is_read(tmp_path, monkeypatch):
    """From its own file: it is not imported."""
    (tmp_path / "lonely").mkdir()
    (tmp_path / "lonely" / "__init__.py").write_text("raise ImportError")
    (tmp_path / "lonely" / "version.py").write_text("import x\n__version__ = '0.28.0+cu130'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert doctor._package_build_version("lonely") == "0.28.0+cu130"
    assert doctor._package_build_version("no_such_package_here") == ""


def test_doctor_imports_no_framework():
    """Looking at what is installed takes no longer than reading its metadata."""
    look = (
        "import sys; from crossflops.cli import main; main(['doctor', '--json'])\n"
        "heavy = {'torch', 'torchvision', 'onnxscript', 'thop', 'fvcore', 'onnxruntime', 'onnx'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.usefixtures("world")
def test_doctor_says_how_to_install_what_is_missing(line, monkeypatch):
    """A part that is not there comes with the command that brings it, told once for all."""
    monkeypatch.setattr(doctor, "find_distribution_version", lambda name: None)
    parts = {row["name"]: row for row in json.loads(line("doctor", "--json")[1])["components"]}
    assert parts["torch"]["state"] == "missing"
    assert "pip install" in parts["torch"]["install"]
    assert "[torch]" in parts["torch"]["install"]
    assert "--no-deps torchvision" in parts["torchvision"]["install"]
    assert "\n torch, onnxscript:\n" in line("doctor")[1]


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("verb", ["tools", "doctor"])
def test_tools_elsewhere_have_their_place(line, monkeypatch, tmp_path, verb):
    """A tool that another interpreter runs: where, its version, and what it lacks there."""
    pip = "/v -m pip install x"
    far = {
        "gone": Offer(tool="gone", convention="gone", distribution="gone", version="1"),
        "fine": Failure(
            tool="fine", stage="load", message="no plugin", hint="/v -m pip install x"
        ),
        "new": Failure(tool="new", stage="load", message="no Python", hint="give another"),
    }
    asked = []
    monkeypatch.setattr(
        doctor, "ask_interpreters_for_tools", lambda named: asked.append(named) or far
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crossflops.toml").write_text('[python]\ngone = "/g/python"\nnew = "/no"\n')
    out = line(verb, "--python", "fine=/v", "--python", "new=/n", "--json")[1]
    assert asked == [{"gone": "/g/python", "fine": "/v", "new": "/n"}]
    rows = {row["tool"]: row for row in json.loads(out)["tools"]}
    kept = ("python", "version", "state", "message", "install")
    assert {tool: tuple(rows[tool][key] for key in kept) for tool in far} == {
        "gone": ("/g/python", "1", "ok", "", ""),
        "fine": ("/v", None, "broken", "no plugin", pip),
        "new": ("/n", None, "broken", "no Python; give another", ""),
    }
    assert rows["odd"]["python"] == sys.executable
    text = line(verb, "--python", "fine=/v", "--python", "new=/n")[1]
    assert "\n In other interpreters\n" in text
    assert " gone: /g/python\n" in text


@pytest.mark.usefixtures("world")
def test_a_wrong_table_ends_in_two_lines(line, monkeypatch, tmp_path):
    """Nothing is looked up by half a table."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crossflops.toml").write_text("[python]\ngone = 3\n")
    status, out, err = line("tools")
    assert (status, out, len(err.splitlines())) == (2, "", 2)
    assert err.startswith(f"error: gone in [python] of {tmp_path}")


@pytest.mark.usefixtures("world")
def test_explain_knows_causes_tools_and_editions(line):
    """A cause by id, a tool by id, an edition by both."""
    assert line("explain", "norm.batch")[1].startswith("norm.batch · t\n\n p\n")
    assert line("explain", "fine")[1].startswith("fine@old · ")
    assert line("explain", "fine@new")[1].startswith("fine@new · ")
    assert json.loads(line("explain", "norm.batch", "--json")[1])["id"] == "norm.batch"


@pytest.mark.usefixtures("world")
def test_explain_offers_the_nearest(line):
    """A slip of the finger is met with what was perhaps meant; nonsense with where to look."""
    assert line("explain", "norm.bacth") == (
        *(2, ""),
        "error: 'norm.bacth' is not the name of a cause, a tool or a convention\n"
        "hint: did you mean norm.batch?\n",
    )
    status, out, err = line("explain", "zeppelin")
    assert (status, out, len(err.splitlines())) == (2, "", 2)
    assert "write a family of causes (norm), or a tool of `crossflops tools`" in err


def test_explain_finds_by_words(line):
    """One cause is shown, several are listed; words of reports have a page, in any case."""
    assert line("explain", "batchnorm")[1].startswith("norm.batch · batch normalization\n")
    status, out, err = line("explain", "relu", "twice")
    assert (status, err) == (0, "")
    assert "\n functional.double-counted   a module, and the function that it calls\n" in out
    data = json.loads(line("explain", "relu twice", "--json")[1])
    assert "functional.double-counted" in [cause["id"] for cause in data["causes"]]
    assert line("explain", "native")[1].startswith("native · ")
    title = "residual · the difference that no cause explains\n"
    assert line("explain", "Residual")[1].startswith(title)
    assert line("explain", "torch", "flop", "counter")[1].startswith("torch-flop-counter@")


@pytest.mark.usefixtures("world")
def test_every_verb_writes_files(line, tmp_path):
    """What prints a table also writes it to a file."""
    for verb in (["tools"], ["explain", "fine"]):
        for suffix in (".json", ".md", ".txt"):
            file = tmp_path / f"{verb[0]}{suffix}"
            assert line(*verb, "-o", str(file))[0] == 0
            assert "fine" in file.read_text()
