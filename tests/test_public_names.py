"""What the package offers to those who import it."""

import importlib
import inspect
import subprocess
import sys

import crossflops
from crossflops.errors import CrossflopsError
from tests.onnx_files import parsed

FEW = 30  # with `sweep`, which is a verb as the others


def test_the_public_names_are_few_and_there():
    """At most 30, in order, each of them defined, none of them a module."""
    assert list(crossflops.__all__) == sorted(set(crossflops.__all__))
    assert len(crossflops.__all__) <= FEW
    for name in crossflops.__all__:
        assert not inspect.ismodule(getattr(crossflops, name)), name


def test_the_verbs_are_functions():
    """Each takes a target and its inputs."""
    for verb in (crossflops.bench, crossflops.compare, crossflops.count, crossflops.efficiency):
        assert inspect.isfunction(verb)
        assert list(inspect.signature(verb).parameters)[:2] == ["target", "inputs"]


def test_importing_later_does_not_replace_the_verb():
    """The modules of the verbs bear other names than they: the functions must stay."""
    code = (
        "import crossflops\nimport crossflops.ledger.count\nimport crossflops.verbs.count\n"
        "print(callable(crossflops.count), crossflops.count.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "crossflops.verbs.api"]


def test_the_verb_bench_is_not_the_room():
    """A room is called like it: whichever is imported first, the name is that of the verb."""
    rooms = ("import crossflops.bench.timing", "from crossflops import bench")
    for lines in (rooms, rooms[::-1]):
        code = "; ".join(("import crossflops, inspect, sys", *lines)) + (
            "; print(inspect.isfunction(crossflops.bench), crossflops.bench.__module__, "
            "inspect.ismodule(sys.modules['crossflops.bench']))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["True", "crossflops.verbs.api", "True"]


def test_the_public_names_are_imported_when_they_are_used():
    """The package itself needs none of its rooms; an unknown name is no attribute."""
    code = (
        "import sys, crossflops\n"
        "print([name for name in sys.modules if name.startswith('crossflops.')])\n"
        "print(hasattr(crossflops, 'nothing'), set(crossflops.__all__) <= set(dir(crossflops)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "False True"]


def test_importing_the_package_imports_no_framework():
    """Counting begins without PyTorch, TensorFlow, or the tools."""
    code = (
        "import sys, crossflops, crossflops.cli\n"
        "heavy = ('torch', 'tensorflow', 'jax', 'thop', 'fvcore', 'torchvision', 'onnxscript')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_file_is_counted_with_few_modules(tmp_path):
    """`crossflops count` on a file imports the rooms that it needs: about 100 modules."""
    path = tmp_path / "model.onnx"
    text = "g (float[1,3,8,8] x, float[4,3,3,3] w) => (float[1,4,6,6] y) { y = Conv(x, w) }"
    path.write_bytes(parsed(text).SerializeToString())
    code = (
        "import sys\nfrom crossflops.cli import main\n"
        "assert not main(sys.argv[1:])\n"
        "names = [name for name in sys.modules if name.partition('.')[0] == 'crossflops']\n"
        "print(len(names), 'crossflops.ledger.count' in names)"
    )
    command = [sys.executable, "-c", code, "count", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules, counted = done.stdout.splitlines()[-1].split()
    assert counted == "True"
    # three of them are the patches of other libraries, three the passes of a file, and one is the
    # object of each frontend
    assert int(modules) <= 112


def test_errors_have_one_root():
    """Whoever catches the public error catches all that is raised on purpose."""
    errors = [
        member
        for _, member in inspect.getmembers(importlib.import_module("crossflops.errors"))
        if inspect.isclass(member)
        and issubclass(member, Exception)
        and not issubclass(member, Warning)
    ]
    assert errors
    assert all(issubclass(error, CrossflopsError) for error in errors)
    assert crossflops.CrossflopsError is CrossflopsError
