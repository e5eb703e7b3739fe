"""The script that sets everything up: it leaves all of an environment, or nothing."""

import importlib.util
import json
import os
import subprocess
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
        ["install", "-c", "constraints.txt", "one"],
        ["install", "-c", "constraints.txt", "two"],
    ]
    start.environment(tmp_path / ".venv", STEPS)
    assert len(start.ran) == 3


def test_the_package_is_byte_compiled_where_python_writes_none(start, tmp_path, monkeypatch):
    """A container that sets PYTHONDONTWRITEBYTECODE would compile it at every start."""
    package = tmp_path / "crossflops"
    package.mkdir()
    (package / "module.py").write_text("x = 1\n")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(start, "script", lambda folder, name: Path(sys.executable))
    monkeypatch.setattr(start, "FIRST", ())
    start.byte_compile(tmp_path)
    subprocess.run(start.ran[-1], cwd=tmp_path, check=True)
    assert list(package.glob("__pycache__/module.*.pyc"))


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
        name: {"test": [{"output": output} for output in texts]} for name, texts in outputs.items()
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


@pytest.fixture
def tox(start, monkeypatch):
    """Stands for tox: prints these lines and ends with this status; gives the environment."""

    def runs(status=0, *lines):
        seen = []

        class Tox:
            stdout = iter(lines)
            returncode = status

            def __init__(self, command, env, **options):
                seen.append((command, env))

            def __enter__(self):
                return self

            def __exit__(self, *failure):
                """Nothing is to be closed."""

        monkeypatch.setattr(start.subprocess, "Popen", Tox)
        return seen

    return runs


@pytest.mark.parametrize("status", [0, 1])
def test_the_status_is_that_of_tox(start, capsys, monkeypatch, tox, status):
    """Whatever the lines say, a failure of tox is a failure."""
    tox(status)
    monkeypatch.setattr(start.sys, "argv", ["start.py", "tests", "lint"])
    assert start.main() == status
    assert f"no tests; tox ended with status {status}" in capsys.readouterr().out


@pytest.mark.parametrize(("line", "removed"), [(["tests"], True), (["tests", "--keep"], False)])
def test_environments_stay_when_they_are_to_be_kept(start, monkeypatch, tox, line, removed):
    """Tox is told to remove what has run, unless the environments are asked for."""
    seen = tox()
    monkeypatch.setattr(start.sys, "argv", ["start.py", *line])
    assert start.main() == 0
    assert [bool(env["CROSSFLOPS_REMOVE_ENVIRONMENTS"]) for _, env in seen] == [removed]


def test_the_quick_door_runs_halves_of_the_core_and_names_the_rest(
    start, capsys, monkeypatch, tox
):
    """Two environments side by side, which stay; and what a full run has."""
    seen = tox()
    monkeypatch.setattr(start.sys, "argv", ["start.py", "tests", "--quick"])
    assert start.main() == 0
    [(command, env)] = seen
    assert command[-2:] == ["-e", "quick1,quick2"]
    assert env["CROSSFLOPS_REMOVE_ENVIRONMENTS"] == ""
    last = capsys.readouterr().out.splitlines()[-1]
    assert set(last.rpartition(": ")[2].split(", ")) == set(start.listed())


def test_seconds_are_those_of_environments_of_tox(start):
    """In tox's order, on which the time that is left depends; a new one takes the mean."""
    names = [*start.listed(), *start.nightly_environments(), *start.QUICK]
    assert [name for name in names if name in start.SECONDS] == list(start.SECONDS)
    mean = sum(start.SECONDS.values()) / len(start.SECONDS)
    assert start.usual_seconds(["lint", "new"]) == {"lint": 5, "new": mean}


def test_nightly_runs_what_a_landing_leaves_out(start, monkeypatch, tox):
    """The environments of tox's label, none of which stands in its default list."""
    seen = tox()
    monkeypatch.setattr(start.sys, "argv", ["start.py", "tests", "--nightly"])
    assert start.main() == 0
    [(command, _)] = seen
    assert command[-2:] == ["-e", "all-frameworks,whole-kits,py312,py313,release,sweeps"]
    nightly = {"all-frameworks", "whole-kits", "py312", "py313", "release", "sweeps"}
    assert not nightly & set(start.listed())


def test_nightly_takes_no_names(start, monkeypatch, capsys):
    """Names beside it would be dropped without a word."""
    monkeypatch.setattr(start.sys, "argv", ["start.py", "tests", "lint", "--nightly"])
    assert start.main() == 2
    assert capsys.readouterr().err.startswith("error: --nightly names its environments itself")


def test_two_environments_run_at_a_time(start):
    """a and b begin, c follows b, d follows a."""
    assert start.schedule({"a": 60, "b": 40, "c": 30, "d": 5}) == {
        "a": 60, "b": 40, "c": 70, "d": 65,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ended", "passed", "left"), [("b", 40, 30), ("b", 80, 60), ("bac", 75, 0)]
)
def test_the_time_left_goes_on_as_until_now(start, ended, passed, left):
    """After b in twice its time, the 70 seconds are 140; at the end nothing is left."""
    usual = {"a": 60, "b": 40, "c": 30, "d": 5}
    assert start.time_left(usual, list(ended), passed) == left


def test_a_line_after_each_environment(start, capsys, tox):
    """Once each, in place of the hook's line; what tox prints is let through."""
    line = start.ENDED
    tox(1, "lint: OK\n", f"{line}lint\n", f"{line}lint\n", "types: FAIL\n", f"{line}types\n")
    assert start.tests(["lint", "types"], keep=False) == 1
    printed = capsys.readouterr().out.splitlines()
    first = printed.index("lint: OK")
    assert printed[first : first + 4] == [
        "lint: OK",
        "==> lint has run: 1 of 2, about a minute left",
        "types: FAIL",
        "==> types has run: 2 of 2",
    ]


@pytest.fixture
def toxfile(monkeypatch):
    """The hooks beside tox.ini, without tox."""
    monkeypatch.setitem(sys.modules, "tox.plugin", SimpleNamespace(impl=lambda hook: hook))
    spec = importlib.util.spec_from_file_location("toxfile", SCRIPT.with_name("toxfile.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("named", "first"), [(None, []), ("/opt/python", ["/opt/python"])])
def test_tox_looks_at_the_interpreters_of_pyenv(toxfile, tmp_path, monkeypatch, named, first):
    """From 3.11 on, behind what the user names, whether start.py runs tox or the user does."""
    for version in ("3.8.18", "3.11.7", "3.12.1"):
        python = tmp_path / "versions" / version / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch()
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.delenv(toxfile.DISCOVER, raising=False)
    if named:
        monkeypatch.setenv(toxfile.DISCOVER, named)
    toxfile.tox_add_option()
    found = [str(tmp_path / "versions" / v / "bin" / "python") for v in ("3.11.7", "3.12.1")]
    assert os.environ[toxfile.DISCOVER].split(os.pathsep) == [*first, *found]


@pytest.mark.parametrize(("asked", "stays"), [("", True), ("yes", False)])
def test_an_environment_that_has_run_is_told_of_and_removed_when_asked(
    start, toxfile, tmp_path, monkeypatch, capfd, asked, stays
):
    """By the hook that tox calls after the last command."""
    folder = tmp_path / "thop"
    (folder / "lib").mkdir(parents=True)
    monkeypatch.setenv(toxfile.ASKED, asked)
    monkeypatch.setenv(toxfile.TOLD, asked)
    toxfile.tox_env_teardown(SimpleNamespace(env_dir=folder, name="thop"))
    assert folder.exists() == stays
    assert toxfile.ENDED == start.ENDED
    assert capfd.readouterr().out == ("" if stays else f"\n{start.ENDED}thop\n")


@pytest.mark.parametrize(("free", "told"), [(1.5e9, True), (200e9, False)])
def test_a_full_disk_is_told_of_before(start, capsys, monkeypatch, tox, free, told):
    """All tests need some GB; how many are there is said where it is too few."""
    monkeypatch.setattr(start.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    tox()
    assert start.tests([], keep=False) == 0
    assert ("1.5 GB are free here, and all tests need 7 GB" in capsys.readouterr().out) == told
