"""Running a tool in this process, on a copy."""

import sys

import pytest

from crossflops.ir.profile import Failure, Profile
from crossflops.ir.trace import Setting
from crossflops.workers.observe import run_tool_in_process


@pytest.fixture
def run(fakes):
    """Run a fake tool here."""

    def here(kind, model):
        return run_tool_in_process(getattr(fakes, kind)(), model, (), {}, Setting())

    return here


def test_a_tool_answers(run, fakes):
    """The numbers of the adapter, and the time that it took."""
    answer = run("Honest", fakes.Model(7))
    assert isinstance(answer, Profile)
    assert answer.total == 7


def test_the_model_of_the_caller_stays_as_it_is(run, fakes):
    """The tool meddles with a copy."""
    model = fakes.Model()
    assert isinstance(run("Meddles", model), Profile)
    assert (model.training, model.hooks) == (True, [])


def test_what_a_tool_prints_is_held_back(run, fakes, capsys):
    """A table on our stdout stays alone."""

    class Prints(fakes.Honest):
        def act(self, model):
            sys.stdout.write("noise")

    assert isinstance(run_tool_in_process(Prints(), fakes.Model(), (), {}, Setting()), Profile)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Raises", "ValueError: no rule for Foo"),
        ("Exits", "SystemExit: enough"),
        ("AnswersWithAnInt", "TypeError: the adapter returned a int, not a Profile"),
        ("AnswersForAnother", "ValueError: the adapter returned a profile of the tool 'other'"),
    ],
)
def test_a_failing_tool_is_a_failure(run, fakes, kind, message):
    """No exception of a tool gets through."""
    answer = run(kind, fakes.Model())
    assert isinstance(answer, Failure)
    assert (answer.stage, answer.message) == ("run", message)


def test_a_model_that_cannot_be_copied_is_a_failure(run, fakes):
    """Nothing is run on the caller's own model."""
    model = fakes.Model()
    model.hooks.append(iter(open(__file__)))  # noqa: SIM115
    answer = run("Honest", model)
    model.hooks[0].close()
    assert answer.stage == "build"


def test_a_tool_that_does_not_take_the_model_says_so(run):
    """A model of another framework."""
    assert run("Honest", "no model").stage == "accept"
