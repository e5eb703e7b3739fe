"""The fake tools, importable by name: here, and through sys.path in the workers."""

import sys
from pathlib import Path

import pytest

from crossflops.ir.trace import Setting
from crossflops.workers.jobs import Job
from crossflops.workers.pool import Workers

forks = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")


@pytest.fixture(autouse=True)
def _fake_tools_are_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def fakes():
    """The module with the fake tools."""
    import fake_tools

    return fake_tools


@pytest.fixture(params=[False, pytest.param(True, marks=forks)], ids=["started", "forked"])
def fork(request):
    """Whether workers are forked from a warm parent, or have processes of their own."""
    return request.param


@pytest.fixture
def ask(fakes, fork):
    """Run one fake tool in a worker, and give its answer."""

    def run(kind, model=None, inputs=None, **options):
        job = Job(tool="fake", setting=Setting(), adapter=f"fake_tools:{kind}")
        contents = (model or fakes.Model(), *(inputs or ((), {})))
        with Workers([job], contents={0: contents}, fork=fork, **options) as workers:
            [(tool, answer)] = workers.iterate_results()
        assert tool == answer.tool == "fake"
        return answer

    return run
