"""From a target to what its callable returns, and every way in which that can fail."""

import sys
import textwrap
from pathlib import Path

import pytest

from crossflops.errors import TRACEBACK, MissingExtraError, TargetError
from crossflops.targets.target import build_target


@pytest.fixture(autouse=True)
def _python_as_before(monkeypatch):
    """What a target leaves in sys.path and sys.modules does not reach other tests."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("crossflops_target") or name in {"here", "broken", "beside", "quitter"}:
            del sys.modules[name]


@pytest.fixture
def file(tmp_path):
    """Writes a Python file, and gives its path."""

    def write(code, name="models.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(code))
        return str(path)

    return write


def refused(target, arguments=None):
    """The message and the hint of the error for a target."""
    with pytest.raises(TargetError) as caught:
        build_target(target, arguments or {})
    assert "\n" not in caught.value.message + caught.value.hint
    assert caught.value.hint
    return caught.value.message, caught.value.hint


def test_a_callable_of_a_module_is_called():
    """`pkg.module:callable`, with the arguments as keywords."""
    assert build_target("fractions:Fraction", {"numerator": 6, "denominator": 4}) == (1.5, None)


def test_a_callable_may_stand_in_a_class():
    """Dots behind the colon lead into the object."""
    assert build_target("fractions:Fraction.from_float", {"f": 0.5})[0] == 0.5


def test_a_callable_of_a_file_is_called(file):
    """`path/file.py:callable`, which may import what lies beside it."""
    file("SIZE = 3", "beside.py")
    path = file("import beside\ndef make(extra=0): return beside.SIZE + extra")
    assert build_target(f"{path}:make", {"extra": 4}) == (7, None)


def test_what_a_file_defines_can_be_pickled(file):
    """Its module stands in sys.modules under the name that its classes bear."""
    path = file("class Net: pass")
    model, _ = build_target(f"{path}:Net", {})
    assert sys.modules[type(model).__module__].Net is type(model)


def test_a_callable_may_give_model_and_inputs(file):
    """A pair is a model with its own inputs."""
    path = file("def make(): return 'model', (1, 2)")
    assert build_target(f"{path}:make", {}) == ("model", (1, 2))


def test_the_working_folder_comes_last(file, tmp_path, monkeypatch):
    """A module here is found, but a file named like an installed one shadows nothing."""
    file("def make(): return 'mine'", "here.py")
    file("raise RuntimeError('shadowed')", "fractions.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder])
    monkeypatch.delitem(sys.modules, "fractions", raising=False)
    before = list(sys.path)
    assert build_target("here:make", {}) == ("mine", None)
    assert build_target("fractions:Fraction", {})[0] == 0
    assert sys.path == [*before, str(tmp_path)]


def test_the_folder_of_a_file_comes_last_too(file, monkeypatch):
    """Beside a target file may lie a folder that is called as an installed package is."""
    path = file("import fractions\ndef make(): return fractions.Fraction(1)")
    file("raise RuntimeError('shadowed')", "fractions.py")
    monkeypatch.delitem(sys.modules, "fractions", raising=False)
    assert build_target(f"{path}:make", {})[0] == 1
    assert sys.path[-1] == str(Path(path).parent)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".pkl", ".pickle", ".joblib"])
def test_pickles_are_refused(tmp_path, suffix):
    """A pickle runs code when it is read: it is not, there or not."""
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"")
    message, hint = refused(str(path))
    assert message == f"{path} is a pickle, and reading it can run any code"
    assert "file.py:callable" in hint


def test_a_suffix_that_is_misspelt_leads_to_the_file(tmp_path, monkeypatch):
    """Files that a model may be read from, and no others."""
    for name in ("model.onnx", "nets.py", "model.on"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TargetError, match=r"file model\.onx does not exist") as info:
        build_target("model.onx", {})
    assert info.value.hint == "did you mean model.onnx?"


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("missing/model.onnx", "file missing/model.onnx does not exist"),
        ("missing/models.py:make", "file missing/models.py does not exist"),
        ("no_such_package:make", "module no_such_package is not installed"),
        ("no_such_package.sub:make", "module no_such_package is not installed"),
        ("fractions.sub:make", "module fractions.sub is not installed"),
        ("fractions:NoSuchName", "fractions does not define 'NoSuchName'"),
        ("fractions:Fraction.nothing", "fractions does not define 'Fraction.nothing'"),
        ("resnet50", "unknown target 'resnet50'"),
        ("fractions:", "unknown target 'fractions:'"),
        (":make", "unknown target ':make'"),
        ("", "unknown target ''"),
        ("math:pi", "math:pi is a float, not a callable"),
        ("..relative:make", "importing ..relative failed"),
    ],
)
def test_what_is_not_there_is_named(target, message):
    """A missing file, module or name is told as such."""
    text, _ = refused(target)
    assert text.startswith(message)


def test_a_module_that_needs_another_names_it(file, tmp_path, monkeypatch):
    """What is missing is what the module imports, and the hint installs that."""
    file("import no_such_framework", "broken.py")
    monkeypatch.chdir(tmp_path)
    assert refused("broken:make") == (
        "broken needs the package no_such_framework",
        "pip install no_such_framework",
    )


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def make(:", "SyntaxError"),
        ("import no_such_framework", "No module named 'no_such_framework'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_file_that_fails_says_how(file, code, reason):
    """Whatever the file raises when it runs, a call of sys.exit too, is in the message."""
    path = file(code)
    message, hint = refused(f"{path}:make")
    assert message.startswith(f"running the file {path} failed: ")
    assert reason in message
    assert hint == TRACEBACK


def test_a_module_that_fails_says_how(file, tmp_path, monkeypatch):
    """The same for a module that is imported by name."""
    file("raise SystemExit('enough')", "quitter.py")
    monkeypatch.chdir(tmp_path)
    message, hint = refused("quitter:make")
    where = "(quitter.py:1, in <module>)"
    assert message == f"importing quitter failed: SystemExit: enough {where}"
    assert hint == TRACEBACK


def test_timm_is_asked_for_a_model_without_weights(file, tmp_path, monkeypatch):
    """`timm:NAME` builds by name, and never downloads."""
    file("def create_model(name, **options): return name, options, 'three'", "timm.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    model, own = build_target("timm:resnet18", {"num_classes": 10})
    assert model == ("resnet18", {"pretrained": False, "num_classes": 10}, "three")
    assert own.specs == ()  # this timm says nothing of an input
    sys.modules.pop("timm", None)


def test_without_timm_its_installation_is_told(monkeypatch):
    """A framework that is missing is an error of its own kind."""
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError) as caught:
        build_target("timm:resnet18", {})
    assert caught.value.hint == "pip install timm"


def test_a_name_that_timm_does_not_know_is_refused(file, tmp_path, monkeypatch):
    """What timm raises is in the message."""
    file("def create_model(name, **options): raise RuntimeError('Unknown model')", "timm.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    message, hint = refused("timm:nothing")
    assert message.startswith("timm cannot build the model 'nothing': Unknown model")
    assert "check the name" in hint
    sys.modules.pop("timm", None)


def test_a_missing_framework_names_its_extra(monkeypatch):
    """One line, and the command that installs it."""

    def missing(name):
        raise ModuleNotFoundError("No module named 'keras'", name="keras")

    monkeypatch.setattr("crossflops.targets.target.importlib.import_module", missing)
    with pytest.raises(MissingExtraError) as caught:
        build_target("keras.applications:ResNet50", {})
    assert "crossflops[tensorflow]" in caught.value.hint


def test_a_file_runs_once_for_each_text(file, tmp_path):
    """What it registers for good cannot be registered again; a file that is edited is run."""
    runs = tmp_path / "runs.txt"
    code = f"""
        with open({str(runs)!r}, "a") as log:
            log.write("x")
        def model(): return [1]
    """
    path = file(code)
    first, second = (build_target(f"{path}:model", {})[0] for _ in range(2))
    assert (first, second, runs.read_text()) == ([1], [1], "x")
    file(code.replace("[1]", "[2, 3]"))
    assert (build_target(f"{path}:model", {})[0], runs.read_text()) == ([2, 3], "xx")


def test_a_file_that_failed_runs_again(file, tmp_path):
    """What it lacked may be there now."""
    path = file(
        f"number = open({str(tmp_path / 'number')!r}).read()\ndef model(): return [number]\n"
    )
    refused(f"{path}:model")
    (tmp_path / "number").write_text("5")
    assert build_target(f"{path}:model", {})[0] == ["5"]
