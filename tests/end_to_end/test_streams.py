"""What goes to stdout, and how the command ends when it is told to."""

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(os.name != "posix", reason="signals of POSIX"),
]
HERE = Path(__file__).parent


@pytest.mark.parametrize("verb", ["count", "compare"])
def test_stdout_is_json_alone(crossflops, verb):
    """Whoever prints, from Python, from C or from a child: it lands on stderr."""
    done = crossflops(verb, "targets.py:loud", "--input", "1x2x3", "--json")
    assert done.status == 0, done.err
    assert json.loads(done.out)["totals"]["macs"] == 12
    for source in ("Python", "C", "a child"):
        assert f"from {source}\n" in done.err


@pytest.fixture(
    params=[("1", "sleeps", 1), ("1", "sleeps_when_run", 1), ("0", "sleeps", 4)],
    ids=["the command builds", "it has forked", "a process for each tool"],
)
def sleeping(request, tmp_path, three_tools):
    """A comparison of a model that takes its time: the process, and the ids of all it started."""
    fork, model, sleepers = request.param
    pids = tmp_path / "pids"
    process = subprocess.Popen(
        [sys.executable, "-m", "crossflops", "compare", f"targets.py:{model}", "--input", "1x4"],
        cwd=HERE,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "PIDS": str(pids), "CROSSFLOPS_FORK": fork},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # as in a terminal
    )
    end = time.monotonic() + 90
    try:
        while not pids.exists() or len(pids.read_text().split()) < sleepers:
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)  # the parent of the tools is forked after who watches a run
        started = list(_started_by(process.pid))
        assert len(started) > sleepers - (model == "sleeps")
        yield process, started
    finally:
        process.kill()
        process.communicate()


def _started_by(pid):
    """The processes that one has started, and those that they have."""
    asked = ["ps", "-o", "pid=", "--ppid", str(pid)]
    for child in subprocess.run(asked, capture_output=True, check=False).stdout.split():
        yield int(child)
        yield from _started_by(int(child))


def all_gone(pids):
    """Whether none of these processes lives, within half a minute."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if not any(_lives(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def _lives(pid):
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False)
    return state.stdout.strip()[:1] not in {b"", b"Z"}


def test_an_interrupt_ends_in_silence(sleeping):
    """130, no traceback, and nobody is left."""
    process, pids = sleeping
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (130, "", "")
    assert all_gone(pids)


def test_no_worker_outlives_a_killed_command(sleeping):
    """The parent has no time to say goodbye."""
    process, pids = sleeping
    process.kill()
    process.communicate()
    assert all_gone(pids)
