"""Workers that are forked from one parent: what they share, and what they cannot do to others."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from crossflops.ir.profile import Failure
from crossflops.ir.trace import Setting
from crossflops.workers.jobs import Job
from crossflops.workers.pool import Workers
from tests.plugins.conftest import forks

pytestmark = forks


@pytest.fixture
def both(fakes, tmp_path):
    """Run a tool beside another, and give the answers of both, and what was told."""

    def run(kind, other="Witness", model=None, framework="", **options):
        kinds = {"fake": kind, "other": other}
        jobs = [
            Job(
                tool=tool,
                setting=Setting(),
                adapter=f"fake_tools:{class_name}",
                framework=framework,
            )
            for tool, class_name in kinds.items()
        ]
        lines = []
        contents = (model or fakes.Model(5), (), {})
        with Workers(
            jobs, contents={0: contents}, tell=lines.append, at_once=2, **options
        ) as workers:
            answers = dict(workers.go())
        return answers["fake"], answers["other"], lines

    return run


def test_two_tools_have_one_parent(both):
    """The process that started both is one, and it is not this one."""
    first, second, lines = both("TellsItsParent", "TellsItsParentToo")
    assert first.total == second.total != os.getpid()
    assert lines == []


@pytest.mark.parametrize("way", ["argument", "variable", "declared"])
def test_the_other_way_can_be_asked_for(fakes, monkeypatch, way):
    """Then this process started both."""
    if way == "variable":
        monkeypatch.setenv("CROSSFLOPS_FORK", "0")
    kinds = {"fake": "TellsItsParent", "other": "TellsItsParentToo"}
    jobs = [
        Job(
            tool=tool,
            setting=Setting(),
            adapter=f"fake_tools:{kind}",
            own_process=way == "declared",
        )
        for tool, kind in kinds.items()
    ]
    lines = []
    fork = False if way == "argument" else None
    with Workers(
        jobs, contents={0: (fakes.Model(), (), {})}, fork=fork, tell=lines.append
    ) as workers:
        answers = dict(workers.go())
    assert {answer.total for answer in answers.values()} == {os.getpid()}
    assert len(lines) == (way != "declared")


@pytest.mark.parametrize(
    ("kind", "stage"),
    [
        ("Segfaults", "crash"),
        ("IsKilled", "crash"),
        ("Greedy", "memory"),
        ("ClosesItsPipe", "crash"),
        ("CrashesInLoad", "crash"),
        ("FailsToLoad", "load"),
        ("Exits", "run"),
    ],
)
def test_what_a_tool_does_costs_it_alone(both, kind, stage):
    """The other prints what it prints alone."""
    first, second, _ = both(kind)
    assert isinstance(first, Failure)
    assert first.stage == stage
    assert second.total == 5


@pytest.mark.parametrize(
    ("kind", "total"), [("Moves", 1), ("ForksItself", 5), ("KillsItsParent", 5)]
)
def test_what_a_tool_changes_reaches_nobody(both, kind, total):
    """Its folder, its environment, its model, a copy of itself, the parent of both."""
    first, second, _ = both(kind, timeout=60)
    assert (first.total, second.total) == (total, 5)


@pytest.mark.torch
def test_a_tool_that_unsettles_pytorch_reaches_nobody(both):
    """Seed, default type and functions are for the other what they are in a fresh process."""
    first, second, _ = both("Unsettles", other="FindsPyTorch", framework="torch")
    assert (first.total, second.total) == (5, 5)


def test_a_tool_that_hangs_costs_it_alone(both, fakes, tmp_path):
    """It is stopped in its time, and what it started with it."""
    model = fakes.Model(5)
    model.folder = str(tmp_path)
    first, second, _ = both("Hangs", model=model, timeout=20)
    assert (first.stage, first.message) == ("time", "stopped after 20 s of running")
    assert second.total == 5


@pytest.mark.parametrize("kind", ["MovesInLoad", "StartsAThreadInLoad"])
def test_a_tool_that_changes_what_is_shared_is_loaded_alone(both, kind):
    """A line says so; the other is forked from another parent."""
    first, second, lines = both(kind)
    assert (first.total, second.total) == (5, 5)
    assert len(lines) == 1
    assert lines[0].startswith("starting a separate process for fake (slower): ")


def test_a_forked_tool_may_have_its_threads(both):
    """The parent has one thread; what it forks has as many as a process of its own."""
    cpus = len(os.sched_getaffinity(0))
    first, _, _ = both("TellsItsThreads", "Other")
    expected = os.environ.get("OMP_NUM_THREADS", str(max(1, cpus // 2)))
    assert first.total == int(expected)


def test_a_model_that_cannot_be_built_is_the_failure_of_all(fakes):
    """In the words that each would have had."""
    jobs = [
        Job(tool=tool, setting=Setting(), adapter=f"fake_tools:{kind}", target="nosuch:model")
        for tool, kind in (("fake", "Honest"), ("other", "Other"))
    ]
    answers = {}
    for fork in (False, True):
        with Workers(jobs, fork=fork) as workers:
            answers[fork] = dict(workers.go())
    assert answers[True] == answers[False]
    assert {answer.stage for answer in answers[True].values()} == {"build"}


def on_two_models(kind, *targets):
    """A job of a tool on each of the models."""
    return [
        Job(
            tool="fake",
            setting=Setting(),
            adapter=f"fake_tools:{kind}",
            model=number,
            target=target,
        )
        for number, target in enumerate(targets)
    ]


def test_tools_on_two_models_have_one_parent(fakes):
    """The tools of the second wait until they are let go."""
    given = {0: (fakes.Model(), (), {}), 1: (fakes.Model(), (), {})}
    with Workers(on_two_models("TellsItsParent", None, None), contents=given) as workers:
        [(_, first)] = workers.go(0)
        [(_, second)] = workers.go(1)
        assert list(workers.go(1)) == []
    assert first.total == second.total != os.getpid()


def test_each_model_has_its_own_answer(fakes):
    """Two objects, by their numbers."""
    given = {0: (fakes.Model(5), (), {}), 1: (fakes.Model(7), (), {})}
    with Workers(on_two_models("Honest", None, None), contents=given) as workers:
        totals = [answer.total for number in (1, 0) for _, answer in workers.go(number)]
    assert totals == [7, 5]


def test_a_model_that_cannot_be_built_costs_it_alone(fakes):
    """The tool on the other model answers."""
    jobs = on_two_models("Honest", "nosuch:model", None)
    with Workers(jobs, contents={1: (fakes.Model(5), (), {})}) as workers:
        [(_, first)] = workers.go(0)
        [(_, second)] = workers.go(1)
    assert (first.stage, second.total) == ("build", 5)


def test_tools_of_a_model_can_be_dropped(fakes):
    """Those of the other go on, and the parent with them."""
    given = {0: (fakes.Model(5), (), {}), 1: (fakes.Model(7), (), {})}
    with Workers(on_two_models("Honest", None, None), contents=given) as workers:
        workers.drop(0)
        assert list(workers.go(0)) == []
        assert [answer.total for _, answer in workers.go(1)] == [7]


_CLONING = """
    import json, os, sys
    from crossflops.ir.trace import Setting
    from crossflops.frontends import Source
    from crossflops.workers.jobs import Job
    from crossflops.workers.pool import Workers
    import fake_tools

    jobs = [
        Job(tool=tool, setting=Setting(), adapter=f"fake_tools:{kind}", target="fake_tools:built")
        for tool, kind in zip(("fake", "other"), sys.argv[1:])
    ]
    lines = []
    source = Source(fake_tools.built(), (), {})
    with Workers(jobs, built={0: source}, tell=lines.append, at_once=2, timeout=20) as workers:
        answers = dict(workers.go())
    totals = {tool: getattr(answer, "total", None) for tool, answer in answers.items()}
    stages = {tool: getattr(answer, "stage", None) for tool, answer in answers.items()}
    print(json.dumps([totals, stages, lines, source.model.macs, os.getcwd()]))
"""


@pytest.fixture
def cloned(tmp_path):
    """Run two tools in forks of a process of one thread: what it printed, and who built models."""

    def run(kind, other="Witness"):
        built = tmp_path / "built"
        folder = Path(__file__).parent
        process = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(_CLONING), kind, other],
            env={**os.environ, "PYTHONPATH": f"{folder}:{folder.parents[1]}", "BUILT": str(built)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            cwd=tmp_path,
        )
        return *json.loads(process.stdout), built.read_text().split()

    return run


def test_a_process_of_one_thread_is_forked_with_its_model(cloned, tmp_path):
    """The tools had the model of the process that asked: it was built once."""
    totals, _, lines, macs, folder, builders = cloned("TellsItsParent", "TellsItsParentToo")
    assert len(builders) == 1
    assert totals["fake"] == totals["other"] != int(builders[0])
    assert (lines, macs, folder) == ([], 5, str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "stage"),
    [
        ("Segfaults", "crash"),
        ("IsKilled", "crash"),
        ("Greedy", "memory"),
        ("ClosesItsPipe", "crash"),
        ("FailsToLoad", "load"),
        ("Exits", "run"),
        ("Hangs", "time"),
        ("Moves", None),
        ("ForksItself", None),
        ("KillsItsParent", None),
    ],
)
def test_what_a_tool_does_in_a_fork_of_the_command_costs_it_alone(cloned, tmp_path, kind, stage):
    """The other tool and the process that was forked are as they were."""
    totals, stages, _, macs, folder, _ = cloned(kind)
    assert stages["fake"] == stage
    assert (totals["other"], macs, folder) == (5, 5, str(tmp_path))
