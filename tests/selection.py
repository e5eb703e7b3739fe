"""Which environment of tox runs a test: the one whose `-m` names a marker of the test.

The markers are those of pyproject.toml; a test without any of them is `core`. All of it is read
from the files, so that nothing of a framework need be installed:

    python -m tests.selection    names every test that no environment of tox would run, or whose
                                 imports are missing in the one that runs it
"""

import ast
import functools
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
CORE = "core"
# Distributions whose modules bear other names, or which bring modules that tests import, too.
MODULES = {
    "deepspeed": ("deepspeed", "einops"),
    "flax": ("flax", "jax"),
    "jax": ("jax", "jaxlib"),
    "jax2onnx": ("jax2onnx", "flax"),
    "onnxscript": ("onnxscript", "onnx_ir"),
    "pillow": ("PIL",),
    "pre-commit": ("pre_commit", "yaml"),
    "pytest": ("pytest", "packaging"),
    "scikit-learn": ("sklearn", "joblib"),
    "tensorflow-cpu": ("tensorflow", "keras"),
}


class Case(NamedTuple):
    """A test function: where it stands, its markers, and the packages that it imports."""

    path: Path
    name: str
    marks: frozenset[str]
    packages: frozenset[str]

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT).as_posix()}::{self.name}"


class Environment(NamedTuple):
    """An environment that runs pytest: on which folders, with which marker, beside what."""

    name: str
    folders: tuple[Path, ...]
    marker: str | None
    packages: frozenset[str]

    def runs(self, test: Case) -> bool:
        """Whether the test is among those that it selects."""
        inside = any(folder in (test.path, *test.path.parents) for folder in self.folders)
        return inside and self.marker in (None, *test.marks)


@functools.cache
def markers() -> frozenset[str]:
    """The markers of pyproject.toml, each of which is an environment's."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    lines = tables["tool"]["pytest"]["ini_options"]["markers"]
    return frozenset(line.partition(":")[0] for line in lines)


def cases_of(path: Path) -> Iterator[Case]:
    """The tests of a file, each with its own markers and those of its class and of the file."""
    tree = ast.parse(path.read_text("utf-8"))
    outside = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assigned = [node for node in outside if "pytestmark" in map(ast.unparse, _targets(node))]
    inherited = frozenset().union(*map(_marks, assigned))
    packages = frozenset().union(*map(_packages, outside))
    yield from _cases(path, tree.body, "", inherited, packages)


def _cases(
    path: Path, body: list[ast.stmt], prefix: str, marks: frozenset[str], packages: frozenset[str]
) -> Iterator[Case]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            own = marks.union(*map(_marks, node.decorator_list))
            # the tests that a kit brings stand elsewhere: the class stands for them
            yield Case(path, node.name, own or frozenset({CORE}), packages)
            yield from _cases(path, node.body, f"{node.name}::", own, packages)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            own = marks.union(*map(_marks, node.decorator_list)) or frozenset({CORE})
            yield Case(path, prefix + node.name, own, packages | _packages(node))


def _targets(node: ast.stmt) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else []


def _marks(node: ast.AST) -> frozenset[str]:
    """The environments' markers that are named in an expression, as `pytest.mark.NAME`."""
    return frozenset(
        part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "pytest.mark"
    ).intersection(markers())


def _packages(node: ast.AST) -> frozenset[str]:
    """The packages that are imported in a piece of code, or asked for by `importorskip`."""
    names: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Import):
            names.update(alias.name for alias in part.names)
        elif isinstance(part, ast.ImportFrom) and part.module:
            names.add(part.module)
        elif isinstance(part, ast.Call) and ast.unparse(part.func) == "pytest.importorskip":
            names.update(
                place.value
                for place in part.args[:1]
                if isinstance(place, ast.Constant) and isinstance(place.value, str)
            )
    behind = (_of_module(*name.split(".")) for name in names if name.startswith("tests."))
    return frozenset(name.partition(".")[0] for name in names).union(*behind)


@functools.cache
def _of_module(*parts: str) -> frozenset[str]:
    """What a module of the tests imports when it is imported."""
    path = ROOT.joinpath(*parts).with_suffix(".py")
    if not path.is_file():
        return frozenset()
    body = ast.parse(path.read_text("utf-8")).body
    outside = [node for node in body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return frozenset().union(*map(_packages, outside))


@functools.cache
def files_of_tests() -> tuple[Path, ...]:
    """Every file of tests in the repository."""
    return tuple(
        sorted([*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("plugins/*/tests/**/test_*.py")])
    )


@functools.cache
def files_of_part(part: str) -> frozenset[Path]:
    """Return the files of tests of a part such as "1/2": every second one, from the first on.

    Raises ValueError for a part that does not exist.
    """
    number, _, count = part.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ValueError(f"--part must be K/N with K from 1 to N, got {part!r}")
    return frozenset(files_of_tests()[int(number) - 1 :: int(count)])


def environments() -> list[Environment]:
    """Return the environments of tox's default list and of its label `nightly` that run pytest."""
    return [*_environments(), *_environments("-m", "nightly")]


def _environments(*selection: str) -> list[Environment]:
    """Return the environments that tox selects, as it reads them, that run pytest."""
    keys = ("deps", "commands_pre", "commands")
    command = [sys.executable, "-m", "tox", "config", *selection, "-k", *keys]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    parser = ConfigParser(interpolation=None, delimiters=("=",))
    parser.read_string(printed)
    sections = ((name.partition(":")[2], parser[name]) for name in parser.sections())
    return [
        _environment(name, words, [*_lines(section["deps"]), *_installs(section["commands_pre"])])
        for name, section in sections
        for words in map(shlex.split, _lines(section["commands"]))
        if "pytest" in words
    ]


def _environment(name: str, words: list[str], requirements: list[str]) -> Environment:
    arguments = words[words.index("pytest") + 1 :]
    marker = arguments[arguments.index("-m") + 1] if "-m" in arguments else None
    folders = tuple(ROOT / word for word in arguments if (ROOT / word).exists())
    packages = frozenset().union(*map(_provided, requirements))
    return Environment(name, folders, marker, packages)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _installs(commands: str) -> Iterator[str]:
    """The requirements in the lines of `pip install`."""
    for words in map(shlex.split, _lines(commands)):
        if "install" in words:
            rest = words[words.index("install") + 1 :]
            paths = {rest[place + 1] for place, word in enumerate(rest) if word in ("-c", "-e")}
            yield from (f"-e {path}" for path in paths if not path.endswith(".txt"))
            yield from (word for word in rest if not word.startswith("-") and word not in paths)


def _provided(line: str) -> frozenset[str]:
    """The packages that one line of `deps` installs, as they are imported."""
    if line.startswith("-c"):
        return frozenset()
    if not line.startswith("-e"):
        name = Requirement(line).name
        return frozenset(MODULES.get(name, (name.replace("-", "_"),)))
    folder, _, extras = line.removeprefix("-e").strip().rstrip("]").partition("[")
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
    optional = project.get("optional-dependencies", {})
    needed = [*project.get("dependencies", ())]
    needed += [name for extra in filter(None, extras.split(",")) for name in optional[extra]]
    own = project["name"].replace("-", "_")
    return frozenset({own}).union(*map(_provided, needed))


def complaints() -> Iterator[str]:
    """A sentence for every test that is not run, or not where its imports are."""
    places = environments()
    own = sys.stdlib_module_names | {"_pytest", "docs", "release", "tests"}
    own |= {path.stem for path in ROOT.glob("tests/**/*.py")}
    for test in (test for path in files_of_tests() for test in cases_of(path)):
        running = [place for place in places if place.runs(test)]
        if not running:
            marks = ", ".join(sorted(test.marks))
            yield f"{test}: no environment of tox runs it (its markers: {marks})"
        for place in running:
            if missing := test.packages - own - place.packages:
                yield f"{test}: {place.name} runs it, and has no {', '.join(sorted(missing))}"


def main() -> int:
    """Print the complaints; 1 where there is one."""
    lines = list(complaints())
    count = len(files_of_tests())
    print("\n".join(lines) or f"every test of {count} files has an environment that can run it")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
