"""A run with one order in a process of its own: its answer, and every other end."""

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from crossflops.workers.process import run_single_process
from tests.plugins.fake_runs import RunAsked


@pytest.fixture
def run(tmp_path, monkeypatch):
    """How such a process ended, and its answer."""
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{Path(__file__).parents[2]}")

    def asked(what, seconds=60.0, memory=None):
        order = RunAsked(what, str(tmp_path / "answer.json"), memory)
        ended = run_single_process("fake_runs", order, tmp_path, seconds)
        file = Path(order.answer_path)
        return ended, msgspec.json.decode(file.read_bytes()) if file.is_file() else None

    return asked


def gone(process):
    """Whether it has ended, within ten seconds."""
    for _ in range(100):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{process}/stat").read_text().split()[2] == "Z":
            return True
        time.sleep(0.1)
    return False


def test_an_answer_is_read_when_the_process_has_ended(run):
    """What it prints is no part of the conversation."""
    ended, answer = run("this")
    assert (ended.status, ended.overdue, answer) == (0, False, "this")
    assert "on stdout" in ended.output


@pytest.mark.parametrize(("what", "how"), [("crash", "by SIGABRT"), ("exit", "with status 3")])
def test_an_end_without_an_answer_is_told(run, what, how):
    """A signal, or a status."""
    ended, answer = run(what)
    assert (ended.how_it_ended, answer) == (how, None)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is enforced on Linux")
def test_memory_is_limited(run):
    """The limit is that of the order."""
    ended, answer = run("grow", memory=1 << 30)
    assert answer is None
    assert "MemoryError" in ended.output


@pytest.mark.skipif(sys.platform == "win32", reason="groups of processes are those of POSIX")
def test_a_run_that_hangs_ends_with_all_that_it_started(run, tmp_path):
    """It has its seconds, and no more."""
    ended, answer = run("hang", seconds=5.0)
    assert (ended.overdue, answer) == (True, None)
    assert gone(int((tmp_path / "answer.json.child").read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of processes")
def test_a_run_ends_with_the_process_that_asked(tmp_path):
    """Also where that is killed."""
    script = (
        "from pathlib import Path; from fake_runs import RunAsked;"
        "from crossflops.workers.process import run_single_process;"
        f"folder = Path({str(tmp_path)!r});"
        "run_single_process('fake_runs', RunAsked('hang', str(folder / 'answer.json')), "
        "folder, 600)"
    )
    here = Path(__file__).parent
    env = {**os.environ, "PYTHONPATH": f"{here}:{here.parents[1]}"}
    with subprocess.Popen([sys.executable, "-c", script], env=env) as asking:
        child = tmp_path / "answer.json.child"
        for _ in range(300):
            if child.is_file() and child.read_text():
                break
            time.sleep(0.1)
        asking.kill()
    assert gone(int(child.read_text()))
