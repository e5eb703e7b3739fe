"""The file and line of an exception are those of the model, not of what ran it."""

import json

import pytest

from crossflops.whereabouts import raised_at


def caught(call, *arguments):
    """What a call raises."""
    try:
        call(*arguments)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A function of a file in the current folder."""

    def make(text, name="model.py", function="forward"):
        monkeypatch.chdir(tmp_path)
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        space = {}
        exec(compile(text, str(file), "exec"), space)
        return space[function]

    return make


def test_the_innermost_line_of_the_model_is_named(model):
    """Not the one of the library that the model called, nor the one that called the model."""
    forward = model("import json\ndef forward():\n    return inner()\n"
                    "def inner():\n    return json.loads('{')\n")  # fmt: skip
    assert raised_at(caught(forward)) == " (model.py:5, in inner)"


def test_a_file_elsewhere_is_named_by_its_path(model, tmp_path, monkeypatch):
    """From the current folder where it lies in it."""
    forward = model("def forward():\n    1 / 0\n", "deep/model.py")
    error = caught(forward)
    assert raised_at(error) == " (deep/model.py:2, in forward)"
    monkeypatch.chdir("/")
    assert raised_at(error) == f" ({str(tmp_path).removeprefix('/')}/deep/model.py:2, in forward)"


def test_an_error_is_located_where_it_began(model):
    """Of an error that was raised again, the first one counts."""
    forward = model("def forward():\n    1 / 0\n")

    def again():
        try:
            forward()
        except ZeroDivisionError as error:
            raise RuntimeError("wrapped") from error

    assert raised_at(caught(again)) == " (model.py:2, in forward)"


def test_a_model_of_a_library_is_named_by_the_library(model):
    """Of what is installed the part within its library; frameworks are no models."""
    forward = model("def forward():\n    1 / 0\n", "site-packages/torchvision/models/resnet.py")
    runner = model("def run(f):\n    return f()\n", "site-packages/torch/nn/module.py", "run")
    inside = model("def fail():\n    1 / 0\n", "site-packages/torch/ops.py", "fail")
    frame = raised_at(caught(lambda: runner(forward)))
    assert "test_whereabouts.py" in frame  # this file is the user's here: it comes first
    errors = caught(runner, forward), caught(runner, inside)
    for error in errors:
        error.__traceback__ = error.__traceback__.tb_next  # without the line of this file
    assert raised_at(errors[0]) == " (torchvision/models/resnet.py:2, in forward)"
    assert raised_at(errors[1]) == ""


def test_where_nothing_is_known_nothing_is_said():
    """An error that was never raised, or that a library of Python raised."""
    error = caught(json.loads, "{")
    error.__traceback__ = error.__traceback__.tb_next
    assert raised_at(error) == raised_at(ValueError("never raised")) == ""
