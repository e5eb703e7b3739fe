"""Workers: whatever a tool does, its caller gets an answer and the others go on."""

import os
import sys
import time

import pytest

from crossflops.ir.profile import Failure, Profile
from crossflops.ir.trace import Setting
from crossflops.workers.jobs import Job
from crossflops.workers.pool import Workers


def job(kind, tool="fake", **more):
    """A job for one of the fake tools."""
    return Job(tool=tool, setting=Setting(), adapter=f"fake_tools:{kind}", **more)


def test_a_tool_answers_with_its_profile(ask, fakes):
    """The numbers of the adapter arrive as they are, with the time that the tool took."""
    answer = ask("Honest", fakes.Model(4_133_742_592))
    assert isinstance(answer, Profile)
    assert (answer.total, answer.version, answer.setting) == (4_133_742_592, "1.0", Setting())
    assert [(entry.path, entry.amount) for entry in answer.entries] == [
        ("", 4_133_742_592),
        ("layer", 0.5),
    ]
    assert 0 <= answer.seconds < 60


def test_integers_of_any_size_survive(ask, fakes):
    """A total beyond 64 bits is exact on the other side, and an int."""
    answer = ask("Huge")
    assert answer.total == fakes.HUGE
    assert type(answer.total) is int


def test_inputs_reach_the_tool(ask):
    """Positional and keyword inputs arrive as such."""
    assert ask("Counts", inputs=((1, 2), {"mask": 3})).total == 21


@pytest.mark.parametrize(
    ("kind", "stage", "message"),
    [
        ("Raises", "run", "ValueError: no rule for Foo"),
        ("Exits", "run", "SystemExit: enough"),
        ("Crashes", "crash", "its process ended with status 7 while running"),
        ("Segfaults", "crash", "its process ended by SIGSEGV while running"),
        ("IsKilled", "crash", "was killed while running"),
        ("AbortsForMemory", "memory", "ran out of memory while running"),
        ("FailsToLoad", "load", "RuntimeError: operator torchvision::nms does not exist"),
        ("CrashesInLoad", "crash", "its process ended with status 9 while building"),
        ("AnswersWithAnInt", "run", "returned a int, not a Profile"),
        ("AnswersForAnother", "run", "returned a profile of the tool 'other'"),
        ("AnswersWithNan", "run", "null"),
        ("Incomplete", "load", "fake_tools:Incomplete is not an adapter: it has no convention"),
        ("Missing", "load", "has no attribute 'Missing'"),
        ("Other", "load", "fake_tools:Other is the adapter of other"),
    ],
)
def test_every_way_to_fail_is_a_failure(ask, kind, stage, message):
    """What a tool does wrong is one line with its stage, and a hint."""
    answer = ask(kind)
    assert isinstance(answer, Failure)
    assert answer.stage == stage
    assert message in answer.message
    assert answer.hint
    assert "\n" not in answer.message + answer.hint


def test_a_failure_quotes_the_last_output(ask):
    """What a tool said last before it died is in the message."""
    assert ask("Crashes").message.endswith("(last output: about to leave)")


def test_an_exit_quotes_the_last_output(ask):
    """A tool that says what is wrong and calls sys.exit has said it."""
    assert ask("SaysAndExits").message == "SystemExit: 2 (last output: no such layer)"


def test_an_exception_speaks_for_itself(ask):
    """The last warning before it is beside the point."""
    assert ask("WarnsAndRaises").message == "ValueError: no rule"


def test_a_tool_that_does_not_take_the_model_says_so(ask):
    """A model of another framework is a failure of the stage "accept"."""
    answer = ask("Honest", model=["no model"])
    assert (answer.stage, answer.message) == ("accept", "fake does not accept a builtins.list")


def test_a_tool_past_its_time_is_stopped_with_its_children(ask, fakes, tmp_path):
    """After the limit the tool is a failure, and no process that it started ticks on."""
    model = fakes.Model()
    model.folder = str(tmp_path)
    answer = ask("Hangs", model=model, timeout=3)
    assert (answer.stage, answer.message) == ("time", "stopped after 3 s of running")
    ticks = (tmp_path / "ticks").stat().st_size
    time.sleep(0.3)
    assert (tmp_path / "ticks").stat().st_size == ticks > 0


def test_a_worker_that_never_gets_ready_is_stopped(ask):
    """The limit holds for loading and building too."""
    answer = ask("HangsInLoad", timeout=1)
    assert (answer.stage, answer.message) == ("time", "stopped after 1 s of building the model")


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is enforced on Linux")
def test_a_tool_that_wants_too_much_memory_fails(ask):
    """Beyond the memory limit the tool is a failure of the stage "memory"."""
    answer = ask("Greedy", memory=1 << 30)
    assert (answer.stage, answer.message) == ("memory", "MemoryError")


def test_output_of_a_tool_stays_away_from_ours(ask, capfd):
    """Neither Python's prints nor those of C code or a child reach our stdout or stderr."""
    assert isinstance(ask("Noisy"), Profile)
    assert capfd.readouterr() == ("", "")


def test_a_tool_has_nothing_to_read(ask):
    """A tool that reads stdin finds its end, not our conversation with the worker."""
    assert ask("Reads").total == 0


def test_the_model_of_the_caller_stays_as_it_is(ask, fakes):
    """A tool that leaves hooks and eval mode behind leaves them in its worker."""
    model = fakes.Model()
    assert isinstance(ask("Meddles", model=model), Profile)
    assert (model.training, model.hooks) == (True, [])


def test_a_model_that_cannot_be_pickled_is_a_failure(ask, fakes):
    """The caller learns what to do instead."""
    model = fakes.Model()
    model.hooks.append(lambda: None)
    answer = ask("Honest", model=model)
    assert answer.stage == "build"
    assert "pickle" in answer.message
    assert "isolate=False" in answer.hint


def test_a_class_that_the_worker_cannot_import_is_a_failure(ask, monkeypatch):
    """A model class of the caller's __main__ is told apart from a failing tool."""
    main = sys.modules["__main__"]
    net = type("Net", (), {"__module__": "__main__"})
    monkeypatch.setattr(main, "Net", net, raising=False)
    answer = ask("Honest", model=net())
    assert answer.stage == "build"
    assert "Net" in answer.message
    assert "define the class in an importable module" in answer.hint


def test_a_job_without_any_model_is_a_failure(fakes):
    """Neither a target nor a model object: said, not raised."""
    with Workers([job("Honest")]) as workers:
        [(_, answer)] = workers.iterate_results()
    assert (answer.stage, answer.message) == (
        "build",
        "the job has neither a target nor a model",
    )


def test_a_tool_that_nobody_offers_is_a_failure(fakes):
    """The worker looks an unnamed adapter up in its own environment."""
    with Workers([Job(tool="nosuch", setting=Setting())], contents={0: (1, (), {})}) as workers:
        [(_, answer)] = workers.iterate_results()
    assert answer.stage == "load"
    assert "nosuch" in answer.message
    assert "pip install" in answer.hint


def test_an_interpreter_that_does_not_exist_is_a_failure(ask):
    """A wrong path costs this tool one line."""
    answer = ask("Honest", interpreters={"fake": "/no/such/python"})
    assert answer.stage == "load"
    assert answer.message.startswith("cannot start /no/such/python")


@pytest.mark.skipif(os.name != "posix", reason="a shell script stands for an interpreter")
def test_an_interpreter_without_crossflops_is_a_failure(ask, tmp_path):
    """The message names the interpreter and what it lacks."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -E -S "$@"\n')
    python.chmod(0o755)
    answer = ask("Honest", interpreters={"fake": str(python)})
    assert answer.stage == "load"
    assert str(python) in answer.message
    assert "No module named" in answer.message
    assert "install crossflops" in answer.hint


def test_one_failure_leaves_the_others_alone(fakes):
    """A tool that crashes does not keep another from answering."""
    jobs = [job("Segfaults"), job("Other", tool="other")]
    with Workers(jobs, contents={0: (fakes.Model(5), (), {})}) as workers:
        answers = dict(workers.iterate_results())
    assert isinstance(answers["fake"], Failure)
    assert answers["other"].total == 5


@pytest.mark.parametrize("wanted", ["1", "", "0"])
@pytest.mark.parametrize(
    ("kind", "own"),
    [("Raises", "ValueError: no rule\nfor Foo"), ("FailsToLoad", "RuntimeError: ")],
)
def test_the_traceback_of_a_worker_is_shown_where_it_is_asked_for(
    ask, capfd, monkeypatch, wanted, kind, own
):
    """On our stderr, with the line of the tool that raised."""
    monkeypatch.setenv("CROSSFLOPS_DEBUG", wanted)
    assert isinstance(ask(kind), Failure)
    shown = capfd.readouterr().err
    assert ("Traceback (most recent call last):" in shown) is (wanted == "1")
    assert (own in shown and "fake_tools.py" in shown) is (wanted == "1")
