"""The worker's own side: how it builds a model, and how it ends."""

import json
import subprocess
import sys
import time

import pytest

from crossflops import targets
from crossflops.errors import TargetError
from crossflops.frontends import Source
from crossflops.ir.graph import TensorSpec
from crossflops.ir.profile import Failure
from crossflops.ir.trace import Setting
from crossflops.workers import worker
from crossflops.workers.jobs import Job

SPEC = TensorSpec("x", "float32", (1, 3))


@pytest.fixture
def asked(monkeypatch):
    """What the worker asks of the room that builds models, which answers with made-up ones."""
    calls = []

    def load(*what, sizes, values):
        calls.append((*what, sizes))
        if what[0] == "broken:model":
            raise TargetError("broken:model raised", "mend it")
        return Source("the model", ("made",), {"mask": 1})

    monkeypatch.setattr(targets, "load_target_source", load)
    return calls


def job(target="a:model", **more):
    """A job for a target."""
    return Job(tool="fake", setting=Setting(), adapter="fake_tools:Honest", target=target, **more)


def test_a_target_is_built_with_its_arguments_and_inputs(asked):
    """All that the job says of the model goes where models are built."""
    source = worker.build_job_source(
        job(
            arguments={"weights": None},
            inputs=(SPEC,),
            inputs_file="values.npz",
            allow_pickle=True,
            sizes={"batch": 2},
        )
    )
    assert source == Source("the model", ("made",), {"mask": 1})
    assert asked == [("a:model", {"weights": None}, (SPEC,), "values.npz", True, {"batch": 2})]


def test_a_job_without_a_model_is_refused(asked):
    """Neither target nor pickle: nothing is guessed, and nothing built."""
    with pytest.raises(ValueError, match="neither a target nor a pickle"):
        worker.build_job_source(job(None))
    assert asked == []


def test_a_target_that_cannot_be_built_keeps_its_hint(asked):
    """An error of crossflops arrives with its own words, and the tool is never let go."""
    answer = worker.answer_job(job("broken:model"), lambda: pytest.fail("must not get ready"))
    assert answer == Failure(
        tool="fake", stage="build", message="broken:model raised", hint="mend it"
    )


def start():
    """A worker process that waits for its order."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "crossflops.workers.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )


def send(process, line):
    """Say a line to a worker."""
    process.stdin.write(line + "\n")
    process.stdin.flush()


def order(kind, tmp_path, fakes):
    """An order for one of the fake tools, as JSON."""
    from crossflops.workers.jobs import write_model_contents

    model = fakes.Model()
    model.folder = str(tmp_path)
    write_model_contents(tmp_path / "model", (model, (), {}))
    return json.dumps(
        {
            "job": {
                "tool": "fake",
                "adapter": f"fake_tools:{kind}",
                "setting": {"grad": False},
                "pickle_path": str(tmp_path / "model"),
            },
            "answer_path": str(tmp_path / "answer.json"),
            "paths": sys.path,
        }
    )


def test_the_conversation(fakes, tmp_path):
    """hello, the order, ready, go; then the answer lies in its file, and in no other."""
    with start() as process:
        assert process.stdout.readline() == "hello\n"
        send(process, order("Honest", tmp_path, fakes))
        assert process.stdout.readline() == "ready\n"
        assert not (tmp_path / "answer.json").exists()
        send(process, "go")
        assert process.wait(timeout=30) == 0
        assert process.stdout.read() == ""
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["kind"] == "profile"
    assert answer["total"] == 42
    assert answer["setting"] == {
        "device": "cpu",
        "training": False,
        "grad": False,
        "hooked": False,
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer.json", "model"]


def test_a_worker_that_is_building_ends_with_its_parent(fakes, tmp_path):
    """It does not first finish what nobody waits for."""
    with start() as process:
        process.stdout.readline()
        send(process, order("HangsWhileBuilding", tmp_path, fakes))
        end = time.monotonic() + 30
        while not (tmp_path / "fake.ready").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        process.stdin.close()
        assert process.wait(timeout=30) != 0


@pytest.mark.parametrize("running", [False, True])
def test_a_worker_ends_with_its_parent(fakes, tmp_path, running):
    """When the pipe from the parent breaks, waiting workers end, and running ones too."""
    with start() as process:
        process.stdout.readline()
        send(process, order("Hangs", tmp_path, fakes))
        assert process.stdout.readline() == "ready\n"
        if running:
            send(process, "go")
            end = time.monotonic() + 30
            while not (tmp_path / "ticks").exists():
                assert time.monotonic() < end
                time.sleep(0.01)
        process.stdin.close()
        assert process.wait(timeout=30) != 0
    if running:
        ticks = (tmp_path / "ticks").stat().st_size
        time.sleep(0.3)
        assert (tmp_path / "ticks").stat().st_size == ticks
    assert not (tmp_path / "answer.json").exists()
