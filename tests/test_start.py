"""The script that sets everything up: it leaves all of an environment, or nothing."""

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "start.py"
STEPS = ((["one"], "installing one"), (["two"], "installing two"))


@pytest.fixture
def start(tmp_path, monkeypatch):
    """The script, at work in an empty folder; `ran` are the commands that it would have run."""
    spec = importlib.util.spec_from_file_location("start", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("constraints.txt", "pyproject.toml"):
        (tmp_path / name).write_text(name)
    module.ran = []

    def run(command):
        module.ran.append(command)
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True)
        if command[-1] == getattr(module, "fails", None):
            raise module.StartError("it failed", "mend it")

    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "run", run)
    return module


def test_every_step_is_installed_once(start, tmp_path):
    """All steps are run with the constraints, and a second time none is."""
    start.environment(tmp_path / ".venv", STEPS)
    installs = [command[3:] for command in start.ran[1:]]
    assert installs == [
        ["install", "--no-compile", "-c", "constraints.txt", "one"],
        ["install", "--no-compile", "-c", "constraints.txt", "two"],
    ]
    start.environment(tmp_path / ".venv", STEPS)
    assert len(start.ran) == 3


def test_a_change_makes_the_environment_again(start, tmp_path):
    """Other constraints, another environment."""
    start.environment(tmp_path / ".venv", STEPS)
    (tmp_path / "constraints.txt").write_text("other")
    start.environment(tmp_path / ".venv", STEPS)
    assert len(start.ran) == 6


def test_a_failure_leaves_nothing_behind(start, tmp_path):
    """A step that fails takes the half-made environment with it."""
    start.fails = "two"
    with pytest.raises(start.StartError, match="it failed"):
        start.environment(tmp_path / ".venv", STEPS)
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_not_ours_is_left_alone(start, tmp_path, kind):
    """A .venv that the script did not make is refused, and stays."""
    if kind == "file":
        (tmp_path / ".venv").write_text("mine")
    else:
        (tmp_path / ".venv").mkdir()
    with pytest.raises(start.StartError, match="was not made by this script"):
        start.environment(tmp_path / ".venv", STEPS)
    assert (tmp_path / ".venv").exists()
    assert start.ran == []


def test_an_error_is_two_lines_and_two(start, capsys, monkeypatch):
    """What goes wrong is told in two lines, with exit status 2."""
    start.fails = "torchvision"
    monkeypatch.setattr(start.sys, "argv", ["start.py", "report"])
    assert start.main() == 2
    assert capsys.readouterr().err == "error: it failed\nhint: mend it\n"


def test_plugins_of_the_first_report_are_there(start):
    """Each is a folder with a project in it."""
    root = Path(__file__).parent.parent
    flags, folders = start.plugins()[::2], start.plugins()[1::2]
    assert set(flags) == {"-e"}
    assert len(folders) == len(start.FIRST) > 0
    assert all((root / folder / "pyproject.toml").is_file() for folder in folders)


def test_the_tests_are_counted(start, tmp_path):
    """Pytest's last line of every environment, and their sum; what ran no tests is left out."""
    outputs = {
        "py311": ["...\n=== 2 failed, 3 passed, 1 skipped in 4.20s ===\n"],
        "torch": [
            "1.0\n",
            "\x1b[32m===== \x1b[1m40 passed\x1b[0m in 62.90s (0:01:02) =====\x1b[0m\n",
        ],
        "lint": ["All checks passed!\n"],
    }
    envs = {
        name: {"test": [{"output": output} for output in found]} for name, found in outputs.items()
    }
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"testenvs": {**envs, "bench": {}}}))
    closing = start.closing_lines(results)
    assert closing == {
        "py311": "2 failed, 3 passed, 1 skipped in 4.20s",
        "torch": "40 passed in 62.90s (0:01:02)",
    }
    assert start.total(closing.values()) == "2 failed, 43 passed, 1 skipped"
    assert start.closing_lines(tmp_path / "missing.json") == {}


@pytest.mark.parametrize("status", [0, 1])
def test_the_status_is_that_of_tox(start, capsys, monkeypatch, status):
    """Whatever the lines say, a failure of tox is a failure."""
    done = start.subprocess.CompletedProcess([], status)
    monkeypatch.setattr(start.subprocess, "run", lambda *line, **options: done)
    monkeypatch.setattr(start.sys, "argv", ["start.py", "tests", "lint"])
    assert start.main() == status
    assert f"no tests; tox ended with status {status}" in capsys.readouterr().out


@pytest.mark.parametrize(("line", "removed"), [(["tests"], True), (["tests", "--keep"], False)])
def test_environments_stay_when_they_are_to_be_kept(start, monkeypatch, line, removed):
    """Tox is told to remove what has run, unless the environments are asked for."""
    told = []

    def tox(command, env, **options):
        told.append(env)
        return start.subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(start.subprocess, "run", tox)
    monkeypatch.delenv("CROSSFLOPS_REMOVE_ENVIRONMENTS", raising=False)
    monkeypatch.setattr(start.sys, "argv", ["start.py", *line])
    assert start.main() == 0
    assert ["CROSSFLOPS_REMOVE_ENVIRONMENTS" in env for env in told] == [removed]


@pytest.mark.parametrize(("asked", "stays"), [("", True), ("yes", False)])
def test_an_environment_that_has_run_is_removed_when_asked(tmp_path, monkeypatch, asked, stays):
    """By the hook that tox calls after the last command."""
    hooks = SimpleNamespace(impl=lambda hook: hook)
    monkeypatch.setitem(sys.modules, "tox.plugin", hooks)
    spec = importlib.util.spec_from_file_location("toxfile", SCRIPT.with_name("toxfile.py"))
    toxfile = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(toxfile)
    folder = tmp_path / "thop"
    (folder / "lib").mkdir(parents=True)
    monkeypatch.setenv(toxfile.ASKED, asked)
    toxfile.tox_env_teardown(SimpleNamespace(env_dir=folder))
    assert folder.exists() == stays


@pytest.mark.parametrize(("free", "told"), [(1.5e9, True), (200e9, False)])
def test_a_full_disk_is_told_of_before(start, capsys, monkeypatch, free, told):
    """All tests need some GB; how many are there is said where it is too few."""
    monkeypatch.setattr(start.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    done = start.subprocess.CompletedProcess([], 0)
    monkeypatch.setattr(start.subprocess, "run", lambda *line, **options: done)
    assert start.tests([], keep=False) == 0
    assert ("1.5 GB are free here, and all tests need 7 GB" in capsys.readouterr().out) == told
