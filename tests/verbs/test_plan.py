"""A comparison is planned before anything is built, and without a process."""

import subprocess

import pytest

from crossflops.errors import InputError, UnknownNameError
from crossflops.plugins.choice import Choice
from crossflops.targets.request import Request
from crossflops.tools.registry import parse_convention
from crossflops.verbs.compare import plan
from crossflops.verbs.compare.plan import Comparison, plan_comparison, with_training_step


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch):
    """Fail where a process would begin."""

    def refuse(*_args, **_kwargs):
        raise AssertionError("a process began")

    for name in ("fork", "posix_spawn", "system"):
        monkeypatch.setattr(f"os.{name}", refuse, raising=False)
    monkeypatch.setattr(subprocess, "Popen", refuse)


@pytest.fixture
def choices(monkeypatch):
    """Let these tools be there: one of modules, one of a file, and one elsewhere."""
    rules = {"thop": "thop", "onnx-tool": "onnx-tool", "far": "thop"}

    def choose(tools, interpreters):
        names = [name for name in rules if tools is None or name in tools]
        return Choice(
            here={name: object() for name in names if name != "far"},
            elsewhere={name: "/far/python" for name in names if name == "far"},
            conventions={name: parse_convention(rules[name]) for name in names},
            failures={},
            named=tools is not None,
        )

    monkeypatch.setattr(plan, "choose_tools", choose)


def request_of(target="net.py:make", **fields):
    """Return a request for a target, which nothing loads."""
    return Request.from_arguments(target, "2x3", **fields)


def test_a_target_is_shared_where_this_process_may_be_forked(choices):
    """A file, tools of this process alone, and tools of files alone share nothing."""
    cases = {
        (True, True, ("thop",)): True,
        (False, True, ("thop",)): False,
        (True, False, ("thop",)): False,
        (True, True, ("onnx-tool",)): False,
    }
    for (can_fork, isolate, tools), shared in cases.items():
        made = plan_comparison(request_of(), Comparison(tools=tools, isolate=isolate), can_fork)
        assert [model.is_shared for model in made.models] == [shared]


def test_two_models_have_a_number_and_tools_each(choices):
    """One of two tools is asked of each, where they are set against each other."""
    comparison = Comparison(between=("thop", "onnx-tool"), against="other.py:make")
    first, second = plan_comparison(request_of(), comparison, can_fork=False).models
    assert (first.number, second.number) == (0, 1)
    assert [set(model.choice.conventions) for model in (first, second)] == [
        {"thop"},
        {"onnx-tool"},
    ]
    assert second.request.target == "other.py:make"


def test_a_tool_of_another_interpreter_is_refused_in_this_process(choices):
    """It is a Failure of the tool, and the others are planned."""
    (model,) = plan_comparison(request_of(), Comparison(isolate=False), can_fork=False).models
    assert set(model.choice.conventions) == {"thop", "onnx-tool"}
    assert model.choice.failures["far"].stage == "load"


def test_tools_without_a_step_are_named(choices):
    """A warning of the plan says which are left out."""
    with pytest.warns(match="they cannot count a training step: .*onnx-tool"):
        (model,) = plan_comparison(request_of(train=True), Comparison(), can_fork=False).models
    assert "onnx-tool" not in model.choice.conventions
    assert any("onnx-tool" in sentence for sentence in model.warnings)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tools": ("thop",), "onnx": "net.onnx"}, "--onnx has no effect"),
        ({"tools": ("thop",), "python": {"other": "/bin/python"}}, "--python other="),
        (
            {"against": "other.py:make", "module": "layer"},
            "--module cannot be combined with --against",
        ),
        ({"between": ("thop", "thop")}, "needs two different tools"),
    ],
)
def test_questions_that_do_not_go_together_are_refused(choices, fields, words, monkeypatch):
    """Each with its flag."""
    monkeypatch.setattr(plan.elsewhere, "interpreters_by_tool", dict)
    with pytest.raises(InputError, match=words):
        plan_comparison(request_of(), Comparison(**fields), can_fork=False)


def test_an_unknown_tool_is_refused():
    """Before anything is built."""
    with pytest.raises(UnknownNameError, match="nosuch"):
        plan_comparison(request_of(), Comparison(tools=("nosuch",)), can_fork=False)


@pytest.mark.parametrize("name", ["against", "module", "onnx"])
def test_a_step_is_about_one_model(name):
    """What is about forward passes is refused by its flag."""
    with pytest.raises(InputError, match=f"--{name} cannot be combined with --train"):
        with_training_step(request_of(train=True), Comparison(**{name: "x"}))
