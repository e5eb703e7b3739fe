"""What a room says in the docstring of its `__init__.py`: what comes in, goes out, is imported."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "crossflops"
IMPORTS = re.compile(r"^May import: ([a-z_,\s]+)[;.]", re.MULTILINE)
FOLDERS = sorted(path.parent for path in PACKAGE.glob("*/**/__init__.py"))


def statement(folder):
    """The rooms that the docstring of a folder says it may import."""
    words = docstring(folder)
    assert re.search(r"^In: ", words, re.M), f"{folder} does not say what comes in"
    assert re.search(r"(^|\. )Out: ", words, re.M), f"{folder} does not say what goes out"
    line = IMPORTS.search(words)
    assert line is not None, f"{folder} does not say what it may import"
    return {room.strip() for room in line[1].split(",")}


def docstring(folder):
    """What the `__init__.py` of a folder says."""
    return ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""


def imported(folder):
    """The rooms that the files of a folder import, also inside functions."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            yield from (n.split(".")[1] for n in names if n.startswith("crossflops."))


def allowed(room):
    """The rooms beneath one, by the contract of import-linter."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    [floors] = [c for c in tables["tool"]["importlinter"]["contracts"] if c["id"] == "floors"]
    layers = [{name.strip() for name in layer.split("|")} for layer in floors["layers"]]
    [place] = [number for number, layer in enumerate(layers) if room in layer]
    return set().union(*layers[place + 1 :])


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.relative_to(PACKAGE).as_posix())
def test_a_room_imports_what_it_says(folder):
    """It names all that it imports, and nothing that its floor forbids."""
    room = folder.relative_to(PACKAGE).parts[0]
    inner = folder.parent != PACKAGE
    named = statement(folder)
    real = set(imported(folder)) & {path.stem for path in PACKAGE.iterdir()}
    assert real - {room} <= named, real - {room} - named
    assert named <= allowed(room) | ({room} if inner else set())
