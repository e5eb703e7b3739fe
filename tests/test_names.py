"""Names of the package: a class name means one class, and a local says what it holds."""

import ast
from collections import defaultdict
from pathlib import Path

import crossflops

PACKAGE = Path(crossflops.__file__).parent
EMPTY = {"one", "each", "found", "said", "told"}  # words that say nothing of what a variable holds
ROOMS_WITHOUT_HERE = (
    "bench", "causes", "hardware", "ir", "load", "operators", "rebuild", "reconcile", "report",
    "rules", "targets", "tools",
)  # fmt: skip


def trees():
    """Every file of the package by its path, as a syntax tree."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text("utf-8"))


def locals_of(tree):
    """The names that a file assigns, and those of its arguments, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def test_a_class_name_means_one_class():
    """Models inside of functions apart, which are examples, no two files define the same name."""
    homes = defaultdict(list)
    for path, tree in trees():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(path)
    assert len(homes) > 300
    assert not {name: paths for name, paths in homes.items() if len(paths) > 1}


def test_a_local_is_named_for_what_it_holds():
    """None is `one`, `each`, `found`, `said` or `told`, and in most rooms none is `here`."""
    empty = [
        f"{path}:{line}: {name}"
        for path, tree in trees()
        for name, line in locals_of(tree)
        if name in EMPTY or (name == "here" and path.startswith(ROOMS_WITHOUT_HERE))
    ]
    assert not empty
