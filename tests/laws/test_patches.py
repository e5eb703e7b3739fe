"""No attribute of another library is replaced outside of `crossflops.patches`.

The search reads the text, so it has limits. It knows an object of another library by its name in
a file: one that is imported there, or that comes from such a name (an attribute of it, or the
result of `import_module` or `owner_of`), or from `sys.modules`. It does not see what a function
is handed under a name of its own, but every `setattr` and `delattr` is looked at, whatever its
owner is. What is put into a table of a library by an index is seen for `vars(owner)` alone.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossflops.patches import inventory
from crossflops.patches.installed import (
    find_library_version,
    find_source_digest_and_signature,
    patch_targets,
)
from crossflops.patches.patching import ANY

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    file
    for folder in ("crossflops", "plugins")
    for file in sorted((ROOT / folder).rglob("*.py"))
    if "tests" not in file.parts and file.name != "patching.py"
]
# what is set of an object of its own kind: each with its reason
ALLOWED = {
    ("frontends/pytorch/load/model.py", "module"): "a parameter of a model that crossflops built",
    (
        "frontends/pytorch/load/weight_types.py",
        "model.get_submodule(owner)",
    ): "a parameter, likewise",
    ("load/protobuf.py", "sys.modules"): "the import system: a module is registered to be run",
    ("targets/target.py", "sys.modules"): "the import system, likewise",
    ("operators/formula_sources.py", "sys.modules"): "the import system, likewise",
    (
        "frontends/pytorch/convert/writing_operators.py",
        "operator",
    ): "an operator that crossflops defined, which goes with its library",
    ("frontends/pytorch/load/libraries.py", "sys.modules"): "what a failed import left behind",
}
_COMING_FROM = ("import_module", "importlib.import_module", "owner_of", "type")


def _foreign(nodes: list[ast.AST]) -> set[str]:
    """Return the names in a file that stand for objects of other libraries."""
    names: set[str] = set()
    assigned: list[tuple[str, ast.expr]] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("crossflops"):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            assigned += [(t.id, node.value) for t in _set(node) if isinstance(t, ast.Name)]
    names -= {"crossflops"}
    size = -1
    while size != len(names):
        size = len(names)
        names |= {name for name, value in assigned if _comes_from(value, names)}
    return names


def _comes_from(value: ast.expr, names: set[str]) -> bool:
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in _COMING_FROM
    if isinstance(value, ast.Subscript):
        return ast.unparse(value.value) == "sys.modules"
    return isinstance(value, ast.Name | ast.Attribute) and _root(value) in names


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def replaced(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text that replace an attribute of another library, and of what."""
    nodes = list(ast.walk(ast.parse(text)))
    names = _foreign(nodes)
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "unittest.mock":
            yield node.lineno, "unittest.mock"
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if is_call and node.func.id in ("setattr", "delattr"):
            yield node.lineno, ast.unparse(node.args[0])
        for target in _set(node):
            if isinstance(target, ast.Attribute) and _root(target) in names:
                yield target.lineno, ast.unparse(target.value)
            if isinstance(target, ast.Subscript):
                holder = ast.unparse(target.value)
                if holder == "sys.modules" or any(holder == f"vars({name})" for name in names):
                    yield target.lineno, holder


def _set(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign | ast.Delete):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        yield node.target


def test_no_attribute_of_a_library_is_replaced_outside_of_patched():
    """But those that are allowed, each of which is still there."""
    used, others = set(), []
    for file in FILES:
        for line, owner in replaced(file.read_text(encoding="utf-8")):
            place = next((key for key in ALLOWED if _is_at(key, file, owner)), None)
            used.add(place)
            if place is None:
                others.append(f"{file.relative_to(ROOT)}:{line}: {owner}")
    assert not others
    assert set(ALLOWED) <= used


def _is_at(key: tuple[str, str], file: Path, owner: str) -> bool:
    return file.as_posix().endswith(key[0]) and owner == key[1]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.add = 1",
        "import torch\ndel torch.Tensor.data",
        "from torch import nn\nkind = nn.Module\nkind.__call__ = 1",
        "import importlib\nm = importlib.import_module('jax')\nm.a, m.b = 1, 2",
        "def f(kind):\n    setattr(kind, 'a', 1)",
        "import sys\nm = sys.modules['x']\nm.a = 1",
        "import torch\nvars(torch)['add'] = 1",
        "from unittest.mock import patch",
        "import warnings\nwarnings.showwarning = print",
        "import sys\nsys.modules['x'] = None",
        "import os\nos.fork += 1",
    ],
)
def test_the_search_finds_each_way_to_replace(text):
    """By assignment, deletion, setattr, a table, and by names that stand for others."""
    assert list(replaced(text))


@pytest.mark.parametrize("text", ["x = 1", "def f(a):\n    a.b = 1", "import os\nx = os.sep"])
def test_the_search_leaves_other_assignments(text):
    """What a function is handed is not known, and a name of one's own is no library's."""
    assert not list(replaced(text))


def test_each_patch_of_the_inventory_is_used():
    """By its name, in a room or a plugin."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in FILES)
    names = [name for name, value in vars(inventory).items() if isinstance(value, inventory.Patch)]
    assert [name for name in names if f"inventory.{name}" not in text] == []


def test_each_target_is_in_the_release_that_is_installed():
    """A test of the libraries that are here; `doctor` says it to others."""
    assert [target.path for target in patch_targets() if target.state == "gone"] == []


def test_each_target_with_a_source_was_recorded():
    """So that a later release can be compared with it."""
    known = {
        target.path
        for target in patch_targets()
        if target.patch.in_text
        and target.name != ANY
        and find_library_version(target.patch.library)
    }
    unknown = [
        target.path
        for target in patch_targets()
        if target.path in known and target.state == "same" and not target.recorded
    ]
    assert unknown == []
    assert find_source_digest_and_signature("crossflops.errors:CrossflopsError", "__init__")
    assert (
        find_source_digest_and_signature("crossflops.errors:CrossflopsError", "no_such_name")
        is None
    )
