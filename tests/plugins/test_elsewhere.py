"""What other interpreters offer, and every way in which one cannot help."""

import re

import pytest

from crossflops.ir.profile import Failure, Profile
from crossflops.ir.trace import Setting
from crossflops.plugins import elsewhere
from crossflops.plugins.discovery import with_pip_interpreter
from crossflops.plugins.elsewhere import Offer, ask_interpreters_for_tools
from crossflops.workers.jobs import Job
from crossflops.workers.pool import Workers
from tests.environments import TESTS, environment, plugin, posix

pytestmark = posix


@pytest.fixture
def venv(tmp_path, monkeypatch):
    """A venv in which the fake tools can be imported, and the path of its Python."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    site = environment(tmp_path / "venv")
    with (site / "seen.pth").open("a") as file:
        file.write(f"\n{TESTS / 'plugins'}")
    return site, str(tmp_path / "venv" / "bin" / "python")


def test_an_interpreter_tells_what_it_has(venv):
    """A tool that is not installed here: its convention, its distribution, its version."""
    site, python = venv
    plugin(site, "fake", "fake_tools:Honest")
    assert ask_interpreters_for_tools({"fake": python}) == {
        "fake": Offer(tool="fake", convention="fake", distribution="fake-tool", version="1.0")
    }


def test_a_worker_elsewhere_looks_its_tool_up(venv, fakes):
    """The answer comes from there, on a model that went by pickle."""
    site, python = venv
    plugin(site, "other", "fake_tools:Other")
    job = Job(tool="other", setting=Setting())
    contents = (fakes.Model(7), (), {})
    with Workers([job], contents={0: contents}, interpreters={"other": python}) as workers:
        [(_, answer)] = workers.iterate_results()
    assert isinstance(answer, Profile)
    assert answer.total == 7


def test_one_interpreter_is_asked_once(venv, monkeypatch):
    """Also for several tools, and each tool has an answer."""
    site, python = venv
    plugin(site, "fake", "fake_tools:Honest")
    starts = []
    ask = elsewhere._Question
    monkeypatch.setattr(
        elsewhere, "_Question", lambda python, tools: starts.append(tools) or ask(python, tools)
    )
    answers = ask_interpreters_for_tools({"fake": python, "nosuch": python})
    assert starts == [["fake", "nosuch"]]
    assert isinstance(answers["fake"], Offer)
    # Among what the tests' own Python has installed, which this one sees too.
    assert re.match(
        rf"{python} has no plugin of nosuch \(it has .*\bfake\b", answers["nosuch"].message
    )


def test_a_path_without_anything_is_a_failure(tmp_path):
    """The message has the path."""
    [failure] = ask_interpreters_for_tools({"thop": str(tmp_path / "nothing")}).values()
    assert isinstance(failure, Failure)
    assert failure.message.startswith(f"cannot start {tmp_path / 'nothing'}")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 0", "it ended with exit status 0"),
        ("echo hello; exit 3", "it ended with exit status 3"),
        ("echo no such option >&2; exit 2", "no such option"),
    ],
)
def test_what_is_no_python_is_a_failure(tmp_path, script, said):
    """The message quotes what it says."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    [failure] = ask_interpreters_for_tools({"thop": str(program)}).values()
    assert (failure.stage, failure.message) == (
        "load",
        f"{program} is not a working Python interpreter: {said}",
    )


def test_an_old_python_is_a_failure(tmp_path):
    """Before anything of crossflops is imported there."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho '[3, 8]'\n")
    program.chmod(0o755)
    [failure] = ask_interpreters_for_tools({"thop": str(program)}).values()
    assert failure.message == f"{program} is Python 3.8"
    assert "3.11" in failure.hint


def test_one_that_never_answers_is_stopped(tmp_path, monkeypatch):
    """After the limit, with the time in the message."""
    monkeypatch.setattr(elsewhere, "LIMIT", 0.2)
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    [failure] = ask_interpreters_for_tools({"thop": str(program)}).values()
    assert failure.message == f"{program} did not respond within 0.2 s"


def test_one_without_crossflops_is_a_failure(tmp_path, monkeypatch):
    """With the command that installs it there, and the plugin with it."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    environment(tmp_path / "bare", sees=False)
    python = str(tmp_path / "bare" / "bin" / "python")
    [failure] = ask_interpreters_for_tools({"fvcore": python}).values()
    assert failure.message == f"{python} has no crossflops: No module named 'crossflops'"
    assert failure.hint.startswith(f"{python} -m pip install ")
    assert "fvcore" in failure.hint


def test_another_crossflops_is_a_failure(venv):
    """Both versions are in the message, and the command that makes them one."""
    site, python = venv
    import crossflops

    (site / "crossflops").symlink_to(crossflops.__path__[0])
    info = site / "crossflops-99.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: crossflops\nVersion: 99\n")
    [failure] = ask_interpreters_for_tools({"fvcore": python}).values()
    assert failure.message.startswith(f"{python} has crossflops 99, but this is ")
    assert failure.hint.startswith(f"{python} -m pip install ")


def test_a_crossflops_that_knows_no_inventory_is_a_failure(venv):
    """An older release does not understand the question."""
    site, python = venv
    (site / "crossflops").mkdir()
    (site / "crossflops" / "__init__.py").touch()
    [failure] = ask_interpreters_for_tools({"fvcore": python}).values()
    assert failure.message.startswith(f"crossflops in {python} is another version: ")
    assert "No module named 'crossflops.plugins'" in failure.message


def test_a_plugin_without_its_tool_says_what_to_install_there(venv):
    """The hint of an adapter becomes a command for that interpreter."""
    site, python = venv
    (site / "lame.py").write_text(
        "from crossflops.errors import MissingExtraError\n"
        "from fake_tools import Honest\n"
        "class Lame(Honest):\n"
        "    def version(self):\n"
        "        raise MissingExtraError('no tool', 'pip install tool')\n"
    )
    plugin(site, "fake", "lame:Lame")
    [failure] = ask_interpreters_for_tools({"fake": python}).values()
    assert (failure.message, failure.hint) == ("no tool", f"{python} -m pip install tool")


def test_hints_are_made_for_an_interpreter():
    """Every pip of a hint, and only pip."""
    hint = "pip uninstall a, then pip install --force-reinstall b"
    assert with_pip_interpreter("/v p", hint) == (
        "'/v p' -m pip uninstall a, then '/v p' -m pip install --force-reinstall b"
    )
    assert with_pip_interpreter("/v", "/w -m pip install a") == "/w -m pip install a"
    assert with_pip_interpreter("/v", "take another") == "take another"
