"""Workers as processes: when they start and end, and what they leave behind."""

import contextlib
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from crossflops.ir.profile import Profile
from crossflops.ir.trace import Setting
from crossflops.workers.jobs import Job
from crossflops.workers.pool import Workers


def job(kind, tool="fake", **more):
    """A job for one of the fake tools."""
    return Job(tool=tool, setting=Setting(), adapter=f"fake_tools:{kind}", **more)


def wait_for(path):
    """The text of a file that a worker writes."""
    end = time.monotonic() + 30
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < end, f"{path.name} never came"
        time.sleep(0.01)
    return path.read_text()


@pytest.fixture
def reporting(fakes, tmp_path):
    """A model that tells the fakes where to leave their marks."""
    model = fakes.Model()
    model.folder = str(tmp_path)
    return (model, (), {})


def test_no_tool_starts_before_it_is_let_go(reporting, tmp_path, fork):
    """The model is built early, and the tool waits until the prediction is fixed."""
    with Workers([job("Reports")], contents={0: reporting}, fork=fork) as workers:
        wait_for(tmp_path / "fake.ready")
        time.sleep(0.4)  # twice as long as the tool takes
        assert not (tmp_path / "fake.times").exists()
        before = time.monotonic()
        assert all(isinstance(answer, Profile) for _, answer in workers.iterate_results())
    assert float(wait_for(tmp_path / "fake.times").split()[0]) >= before


def test_no_more_tools_run_than_allowed(reporting, tmp_path):
    """With one at a time, the second begins after the first has ended."""
    jobs = [job("Reports"), job("ReportsToo", tool="other")]
    with Workers(jobs, contents={0: reporting}, at_once=1) as workers:
        answers = dict(workers.iterate_results())
    assert all(isinstance(answer, Profile) for answer in answers.values())
    (_, ended), (begun, _) = spans(tmp_path, *answers)
    assert ended <= begun


def spans(folder, *tools):
    """When each tool began and ended, the first first."""
    return sorted(tuple(map(float, (folder / f"{t}.times").read_text().split())) for t in tools)


def test_tools_that_are_let_run_while_the_caller_works(reporting, tmp_path, fork):
    """The other one still waits; `go` gives the answers of both."""
    jobs = [job("Reports"), job("ReportsToo", tool="other")]
    with Workers(jobs, contents={0: reporting}, at_once=2, fork=fork) as workers:
        workers.release_tools(0, {"fake"})
        wait_for(tmp_path / "fake.times")
        wait_for(tmp_path / "other.ready")
        time.sleep(0.4)  # twice as long as the tool takes
        before = time.monotonic()
        answers = dict(workers.iterate_results())
    assert all(isinstance(answer, Profile) for answer in answers.values())
    (_, ended), (begun, _) = spans(tmp_path, "fake", "other")
    assert ended < before < begun


def test_a_place_is_kept_for_a_caller_who_works(reporting, tmp_path):
    """Of two that may run at once one does, then the other; of one none."""
    jobs = [job("Reports"), job("ReportsToo", tool="other")]
    with Workers(jobs, contents={0: reporting}, at_once=2) as workers:
        workers.release_tools(0, {"fake", "other"})
        wait_for(tmp_path / "fake.times")
        wait_for(tmp_path / "other.times")
    (_, ended), (begun, _) = spans(tmp_path, "fake", "other")
    assert ended <= begun
    for file in tmp_path.glob("fake.*"):
        file.unlink()
    with Workers([job("Reports")], contents={0: reporting}, at_once=1) as workers:
        workers.release_tools(0, {"fake"})
        wait_for(tmp_path / "fake.ready")
        time.sleep(0.4)
        assert not (tmp_path / "fake.times").exists()


def test_tools_that_are_dropped_do_not_run_in_turn(reporting, tmp_path):
    """The place of one that ends is not taken by one that is about to end."""
    jobs = [job("Reports"), job("ReportsToo", tool="other")]
    with Workers(jobs, contents={0: reporting}, at_once=2) as workers:
        wait_for(tmp_path / "fake.ready")
        wait_for(tmp_path / "other.ready")
        workers.release_tools(0, {"fake", "other"})
        workers.cancel_tools(0)
        time.sleep(0.4)
        assert list(workers.iterate_results()) == []
    assert not list(tmp_path.glob("*.times"))


def test_who_reads_a_large_file_comes_when_the_others_have_ended(reporting, tmp_path):
    """It holds the weights for itself, where the others share them."""
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate(200_000_000)  # which takes no place
    jobs = [job("ReadsAFile", tool="other", onnx_path=str(path)), job("Reports")]
    with Workers(jobs, contents={0: reporting}, at_once=2) as workers:
        answers = dict(workers.iterate_results())
    assert all(isinstance(answer, Profile) for answer in answers.values())
    _, ended = (tmp_path / "fake.times").read_text().split()
    assert float((tmp_path / "model.began").read_text()) >= float(ended)


@pytest.mark.skipif(os.name != "posix", reason="signal 0 asks whether a process lives")
def test_no_worker_outlives_the_block(reporting, tmp_path, fork):
    """Whoever leaves without letting them go, or by an exception, leaves no process behind."""
    before = set(threading.enumerate())

    def leave():
        with Workers([job("Reports")], contents={0: reporting}, fork=fork):
            wait_for(tmp_path / "fake.ready")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        leave()
    pid = int((tmp_path / "fake.ready").read_text())
    assert is_reaped(pid)
    listeners = [thread for thread in threading.enumerate() if "_listen" in thread.name]
    assert set(listeners) <= before  # what a tool of another test started may hold its pipe


def is_reaped(pid):
    """Return whether no process has this number, which its parent may have to notice first."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def gone(pid):
    """Whether a process has ended, within half a minute."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                time.sleep(0.02)
                continue
        return True
    return False


@pytest.mark.skipif(os.name != "posix", reason="asks whether a process lives")
def test_the_clock_runs_while_the_caller_is_busy(reporting, tmp_path, fork):
    """A worker that never gets ready is stopped in time, before anybody asks for answers."""
    with Workers(
        [job("HangsWhileBuilding")], contents={0: reporting}, timeout=4, fork=fork
    ) as workers:
        assert gone(int(wait_for(tmp_path / "fake.ready")))
        [(_, answer)] = workers.iterate_results()
    assert (answer.stage, answer.message) == ("time", "stopped after 4 s of building the model")


def test_a_worker_that_waits_is_not_timed(reporting):
    """It got ready within its time; how long the export takes is not its doing."""
    with Workers([job("Reports")], contents={0: reporting}, timeout=3) as workers:
        time.sleep(4)
        assert all(isinstance(answer, Profile) for _, answer in workers.iterate_results())


@pytest.mark.skipif(os.name != "posix", reason="a shell script stands for an interpreter")
def test_an_interpreter_that_never_stops_talking_is_stopped(fakes, tmp_path, fork):
    """What is no word of a worker is not heard, and its time runs out like any other's."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nwhile :; do echo y; done\n")
    python.chmod(0o755)
    given = {"contents": {0: (fakes.Model(), (), {})}, "interpreters": {"fake": str(python)}}
    with Workers([job("Honest")], timeout=1, fork=fork, **given) as workers:
        [(_, answer)] = workers.iterate_results()
    assert answer.stage == "time"


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is enforced on Linux")
def test_memory_is_bounded_by_what_the_machine_has(ask, monkeypatch):
    """Without a limit of the caller's."""
    monkeypatch.setattr("crossflops.workers.pool.physical_memory_bytes", lambda: 1 << 30)
    assert ask("Greedy").stage == "memory"


def test_the_current_directory_shadows_nothing(ask, tmp_path, monkeypatch):
    """A json.py where the user stands is not what the worker imports."""
    (tmp_path / "json.py").write_text("raise RuntimeError('shadowed')")
    (tmp_path / "msgspec.py").write_text("raise RuntimeError('shadowed')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    source = Path(sys.modules["crossflops"].__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", str(source))
    assert isinstance(ask("Honest"), Profile)


def test_temporary_files_go(fakes, tmp_path, monkeypatch):
    """Nothing is left in the temporary folder, however a tool ended."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    jobs = [job("Crashes"), job("Other", tool="other")]
    with Workers(jobs, contents={0: (fakes.Model(), (), {})}) as workers:
        list(workers.iterate_results())
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())
