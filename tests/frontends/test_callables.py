"""The callable behind the colon: what it is given, what it raises, and where it stands."""

import re
import sys

import pytest

from crossflops.errors import TRACEBACK, TargetError
from crossflops.targets.target import build_target, restoring_imports


@pytest.fixture(autouse=True)
def _python_as_before(monkeypatch):
    """What a target leaves in sys.path and sys.modules does not reach other tests."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("crossflops_target") or name.partition(".")[0] in {"kit", "beside"}:
            del sys.modules[name]


@pytest.fixture
def file(tmp_path):
    """Writes a Python file, and gives its path."""

    def write(code, name="models.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        return str(path)

    return write


def refused(target, arguments=None):
    """The message and the hint of the error for a target, the folders of paths left out."""
    with pytest.raises(TargetError) as caught:
        build_target(target, arguments or {})
    bare = re.sub(r"^[^(]*?/\S*/|(?<=\()/\S*/", "", caught.value.message)
    return bare, caught.value.hint


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ({}, "models.py:make needs argument 'width'", "add --arg width=VALUE"),
        ({"widht": 1}, "models.py:make has no argument 'widht'", "known arguments: width, depth"),
    ],
)
def test_arguments_that_do_not_fit_are_named(file, arguments, message, hint):
    """Before the call: what is missing, and what it takes."""
    path = file("def make(width, *, depth=1): raise RuntimeError('called')")
    problem = refused(f"{path}:make", arguments)
    assert problem[0] == message
    assert problem[1].startswith(hint)


def test_two_missing_arguments_are_both_named(file):
    """Each with the option that gives it."""
    path = file("class Net:\n    def __init__(self, width, depth): pass")
    assert refused(f"{path}:Net") == (
        "models.py:Net needs arguments 'width', 'depth'",
        "add --arg width=VALUE --arg depth=VALUE, with each VALUE in JSON",
    )


def test_any_argument_may_be_taken(file):
    """A callable with **options takes what it is given."""
    path = file("def make(**options): return options")
    assert build_target(f"{path}:make", {"width": 3}) == ({"width": 3}, None)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ValueError('no\\nweights')", "ValueError: no weights"),
        ("import sys; sys.exit(4)", "SystemExit: 4"),
        ("return missing", "NameError: name 'missing' is not defined"),
        ("return len()", "TypeError: len() takes exactly one argument (0 given)"),
    ],
)
def test_a_callable_that_raises_is_quoted(file, body, reason):
    """In one line; it is its own error, and no argument on our side would help."""
    message, hint = refused(f"{file(f'def make(): {body}')}:make")
    assert message == f"models.py:make raised {reason} (models.py:1, in make)"
    assert hint == TRACEBACK


def test_a_name_that_is_nearly_right_is_suggested(file):
    """Of what the file has."""
    path = file("def make_small(): pass")
    assert refused(f"{path}:make_smal") == (
        "models.py does not define 'make_smal'",
        "did you mean make_small?",
    )


def test_a_file_without_a_callable_names_those_that_it_has(file):
    """It is read and not run."""
    path = file("raise SystemExit\nclass Net: pass\ndef make(): pass\ndef _own(): pass\nx = 1")
    message, hint = refused(path)
    assert message == "models.py must be followed by a colon and the name of a callable"
    assert hint == f"write one that it defines, such as {path}:Net, {path}:make"


@pytest.mark.parametrize("code", ["x = 1", "def broken("])
def test_a_file_without_any_says_what_to_write(file, code):
    """A file with nothing to call, and one that Python cannot read."""
    assert refused(file(code))[1] == "define a function in it that returns the model"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            "https://host/model.onnx",
            "https://host/model.onnx is a URL; crossflops downloads nothing",
        ),
        (
            "https://host/m.py:make",
            "https://host/m.py:make is a URL; crossflops downloads nothing",
        ),
        (".", ". is a folder without a SavedModel"),
    ],
)
def test_what_is_no_file_is_told(target, message):
    """A URL is not fetched, a folder is not searched."""
    with pytest.raises(TargetError) as caught:
        build_target(target, {})
    assert caught.value.message == message


def test_two_files_of_one_name_are_two_modules(file):
    """Classes of both stay what they are."""
    first = build_target(f"{file('class Net: size = 1', 'a/models.py')}:Net", {})[0]
    second = build_target(f"{file('class Net: size = 2', 'b/models.py')}:Net", {})[0]
    assert (first.size, second.size) == (1, 2)
    assert sys.modules[type(first).__module__].Net is type(first)
    assert sys.modules[type(second).__module__].Net is type(second)


def test_a_file_may_import_by_dots(file):
    """A file inside a package, whose parts it imports relatively."""
    file("", "kit/__init__.py")
    file("SIZE = 3", "kit/sizes.py")
    file("", "kit/nets/__init__.py")
    path = file("from ..sizes import SIZE\ndef make(): return SIZE", "kit/nets/small.py")
    assert build_target(f"{path}:make", {}) == (3, None)


def test_another_package_of_that_name_is_not_mistaken_for_it(file):
    """Which of two would be imported is not ours to choose."""
    path = file("from . import x", "json/mine.py")
    file("", "json/__init__.py")
    message, hint = refused(f"{path}:make")
    assert "json" in message
    assert hint


def test_the_search_path_is_restored(file):
    """After the whole of the work: a model may import what lies beside it when it runs."""
    file("SIZE = 3", "beside.py")
    path = file(
        "def make():\n    def late():\n        import beside\n        return beside.SIZE\n"
        "    return late"
    )
    before = list(sys.path)
    with restoring_imports():
        assert build_target(f"{path}:make", {})[0]() == 3
    assert sys.path == before


@pytest.mark.torch
def test_a_model_object_takes_no_arguments(file):
    """`--arg` beside a model that stands in the file would be ignored."""
    pytest.importorskip("torch")
    path = file("import torch\nmodel = torch.nn.Linear(2, 2)")
    assert refused(f"{path}:model", {"width": 3}) == (
        "models.py:model is a model, not a callable, so --arg cannot be used",
        "leave out --arg",
    )
