"""The file and line of an exception are those of the model, not of what ran it."""

import json
import pickle
from functools import partial

import click
import pytest

import crossflops.frontends  # noqa: F401  # which adds the packages of frameworks to the runners
from crossflops.errors import (
    CrossflopsError,
    TargetError,
    ValuesNeededError,
    error_location,
    error_remedy,
    error_words,
)


def caught(call, *arguments, deeper=0):
    """What a call raises, without the first lines of its traceback: those of this file."""
    try:
        call(*arguments)
    except Exception as error:
        for _ in range(deeper):
            error.__traceback__ = error.__traceback__.tb_next
        return error
    raise AssertionError("nothing was raised")


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A function of a file in the current folder."""

    def make(text, name="model.py", function="forward"):
        monkeypatch.chdir(tmp_path)
        space = {}
        exec(compile(text, str(tmp_path / name), "exec"), space)
        return space[function]

    return make


def test_the_innermost_line_of_the_model_is_named(model):
    """Not the one of the library that the model called, nor the one that called the model."""
    inner = "def inner():\n    return json.loads('{')\n"
    forward = model(f"import json\ndef forward():\n    return inner()\n{inner}")
    assert error_location(caught(forward)) == " (model.py:5, in inner)"


def test_a_file_elsewhere_is_named_by_its_path(model, tmp_path, monkeypatch):
    """From the current folder where it lies in it."""
    error = caught(model("def forward():\n    1 / 0\n", "deep/model.py"))
    assert error_location(error) == " (deep/model.py:2, in forward)"
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert error_location(error) == " (model.py:2, in forward)"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert error_location(error) == f" ({tmp_path / 'deep' / 'model.py'}:2, in forward)"


def test_an_error_is_located_where_it_began(model):
    """Of an error that was raised again, the first one counts."""
    forward = model("def forward():\n    1 / 0\n")

    def again():
        try:
            forward()
        except ZeroDivisionError as error:
            raise RuntimeError("wrapped") from error

    assert error_location(caught(again)) == " (model.py:2, in forward)"


def test_a_model_of_a_library_is_named_by_the_library(model):
    """Of what is installed the part within its library; frameworks are no models."""
    installed = "lib/site-packages/"
    forward = model("def forward():\n    1 / 0\n", f"{installed}torchvision/models/resnet.py")
    run = model("def run(f):\n    return f()\n", f"{installed}torch/nn/module.py", "run")
    fail = model("def fail():\n    1 / 0\n", f"{installed}torch/ops.py", "fail")
    named = error_location(caught(run, forward, deeper=1))
    assert named == " (torchvision/models/resnet.py:2, in forward)"
    assert error_location(caught(run, fail, deeper=1)) == ""


def test_where_nothing_is_known_nothing_is_said():
    """An error that was never raised, or that a library of Python raised."""
    assert error_location(caught(json.loads, "{", deeper=1)) == ""
    assert error_location(ValueError("never raised")) == ""


def test_what_crossflops_is_made_of_is_no_model():
    """An error of ours comes by way of the command line, which is no place to look at."""
    failing = click.Command("f", callback=partial(json.loads, "{"))
    assert error_location(caught(lambda: failing.main([], standalone_mode=False), deeper=2)) == ""


# As PyTorch, Dynamo, TensorFlow and JAX write them.
LONG = [
    (
        'INTERNAL ASSERT FAILED at "x.cpp":12, report a bug. sizes differ\nException raised '
        "from f at x.cpp:12 (most recent call first):\nframe #0: c10::Error + 0x96 (libc10.so)",
        'RuntimeError: INTERNAL ASSERT FAILED at "x.cpp":12, report a bug. sizes differ',
    ),
    (
        "Could not run 'aten::f'. If you use a phone, please visit https://a.b for resolutions. "
        "'aten::f' is only available for these backends: [Meta, Python]\n\nMeta: registered at x",
        "RuntimeError: Could not run 'aten::f'.",
    ),
    (
        "Observed exception\n  Explanation: no handler.\n  Hint: remove it\n\n  Developer "
        "debug context: x\n\n For more details about this graph break, please visit: https://a.b",
        "RuntimeError: Observed exception Explanation: no handler.",
    ),
    ("no such op\n\nDetected at node x defined at (most recent call last):\n", "no such op"),
    ("bad shape\n--------------------\nFor simplicity, JAX has removed frames", "bad shape"),
    ("CUDA error\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1", "CUDA error"),
    ("no model at 'https://a.b': give a path", "no model at 'https://a.b': give a path"),
    ("frame #0: alone", "frame #0: alone"),
    ("", "RuntimeError"),
    ("a " * 1000, "a a ..."),
]


@pytest.mark.parametrize(("text", "words"), LONG)
def test_a_long_exception_is_one_line(text, words):
    """Without what follows for whoever debugs the framework; what the user needs stays."""
    line = error_words(RuntimeError(text))
    assert line.endswith(words)
    assert "\n" not in line
    assert len(line) < 430


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ModuleNotFoundError("No module named 'a.b'", name="a.b"), "pip install a"),
        (ModuleNotFoundError("No module named 'einops'"), "pip install einops"),
        (ImportError("cannot import name 'f' from 'torch'"), "another release"),
        (AttributeError("module 'torch' has no attribute 'nowhere'"), "another release"),
        (AttributeError("'_OpNamespace' 'acme' object has no attribute 'f'"), "registers it"),
        (RuntimeError("operator torchvision::nms does not exist"), "registers it"),
        (AssertionError("Torch not compiled with CUDA enabled"), "on a CPU"),
        (RuntimeError("Found no NVIDIA driver on your system"), "on a CPU"),
        (NotImplementedError(), "not implemented here"),
        (RuntimeError("addmm: computation on CPU is not implemented for SparseCsr"), "layout"),
        (NameError("name 'x' is not defined"), "undefined name"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "usual"),
        (AttributeError("'tuple' object has no attribute 'shape'"), "usual"),
        (TypeError("forward() missing 1 required positional argument"), "usual"),
    ],
    ids=str,
)
def test_the_remedy_fits_what_the_model_lacks(error, what):
    """Inputs are to be checked only where they may be at fault."""
    assert what in error_remedy(error, "usual")


@pytest.mark.parametrize(
    "error",
    [
        CrossflopsError("no such thing", "name another", "docs/count.md"),
        TargetError("no such file", "name another"),
        ValuesNeededError("it asks for values"),
    ],
)
def test_an_error_travels_between_processes(error):
    """With its class, its two lines and its notes: a pool raises it again."""
    error.add_note("in layer 3")
    same = pickle.loads(pickle.dumps(error))
    assert type(same) is type(error)
    assert str(same) == str(error)
    assert vars(same) == vars(error)
    assert same.__notes__ == ["in layer 3"]
