"""The errors of crossflops, found where they are raised: what each says, and what it advises.

A text is read from the syntax tree. `{name}` stands for a value that is filled in when the error
is raised; ` | ` is between texts of which a condition chooses one.
"""

import ast
from collections.abc import Iterable, Iterator
from inspect import getdoc
from pathlib import Path
from typing import NamedTuple, TypeAlias

import crossflops
from crossflops import errors
from crossflops.errors import CrossflopsError

PACKAGE = Path(crossflops.__file__).parent
ROOT = PACKAGE.parent
_MAX_TEXTS = 4  # alternatives of a text that are written out
_NEAR_NAME = ("did you mean {name}?", "known: {names}")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class RaisedError(NamedTuple):
    """An error that a function makes: its class, its texts, and where it is made."""

    kind: str
    message: tuple[str, ...]
    hint: tuple[str, ...]
    path: str
    function: str
    line: int


def error_kinds() -> dict[str, str]:
    """Return the first line of the docstring of each class of errors in `crossflops.errors`."""
    return {
        name: (getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, CrossflopsError)
    }


def raised_errors() -> list[RaisedError]:
    """Return every error that the package and its plugins make, in the order of their files."""
    files = [*PACKAGE.rglob("*.py"), *ROOT.glob("plugins/*/src/**/*.py")]
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(files)}
    kinds = _subclasses(trees.values())
    constants = {_module_name(path): _assignments(tree) for path, tree in trees.items()}
    return [
        row
        for path, tree in trees.items()
        for row in _errors_of_file(path, tree, kinds, _visible_constants(tree, path, constants))
    ]


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[parts.index("src") + 1 :] if "src" in parts else parts
    return ".".join(parts).removesuffix(".__init__")


def _visible_constants(
    tree: ast.Module, path: Path, constants: dict[str, dict[str, list[ast.expr]]]
) -> dict[str, list[ast.expr]]:
    """Return the values of the names of a file: its own, and those that it imports."""
    imported = {
        alias.asname or alias.name: constants[node.module][alias.name]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in constants
        for alias in node.names
        if alias.name in constants[node.module]
    }
    return imported | constants[_module_name(path)]


def _subclasses(trees: Iterable[ast.Module]) -> dict[str, str]:
    """Return the class of `crossflops.errors` of which each class of errors is."""
    bases = {
        node.name: [base.id for base in node.bases if isinstance(base, ast.Name)]
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    kinds = {name: name for name in error_kinds()}
    while True:
        found = {
            name: kinds[base]
            for name, parents in bases.items()
            for base in parents
            if base in kinds and name not in kinds
        }
        if not found:
            return kinds
        kinds |= found


def _errors_of_file(
    path: Path, tree: ast.Module, kinds: dict[str, str], constants: dict[str, list[ast.expr]]
) -> Iterator[RaisedError]:
    for function, call in _calls(tree, None):
        if not isinstance(call.func, ast.Name) or call.func.id not in kinds:
            continue
        given = _arguments(call)
        if "message" not in given:  # an error that is copied
            continue
        known = constants | (_assignments(function) if function is not None else {})
        yield RaisedError(
            kind=kinds[call.func.id],
            message=_texts(given["message"], known),
            hint=_texts(given["hint"], known) if "hint" in given else _own_hint(call.func.id),
            path=path.relative_to(ROOT).as_posix(),
            function=function.name if function is not None else "",
            line=call.lineno,
        )


def _arguments(call: ast.Call) -> dict[str, ast.expr]:
    """Return the texts that an error is made with, by parameter."""
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return {}
    given = dict(zip(("message", "hint", "reference"), call.args, strict=False))
    return given | {word.arg: word.value for word in call.keywords if word.arg is not None}


def _own_hint(kind: str) -> tuple[str, ...]:
    """Return the hint of a class that has one of its own."""
    known = getattr(errors, kind, None)
    try:
        return (known("").hint,) if known is not None else ()
    except TypeError:
        return ()


def _calls(node: ast.AST, function: Function | None) -> Iterator[tuple[Function | None, ast.Call]]:
    """Yield every call, with the innermost function that it is in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield function, child
        inner = child if isinstance(child, Function) else function
        yield from _calls(child, inner)


def _assignments(tree: ast.AST) -> dict[str, list[ast.expr]]:
    """Return the values that a function, or a module outside of functions, gives to each name."""
    values: dict[str, list[ast.expr]] = {}
    body = tree.body if isinstance(tree, ast.Module) else [tree]
    for statement in body:
        if isinstance(tree, ast.Module) and isinstance(statement, Function | ast.ClassDef):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    _assign(values, target, node.value)
    return values


def _assign(values: dict[str, list[ast.expr]], target: ast.expr, value: ast.expr) -> None:
    if isinstance(target, ast.Name):
        values.setdefault(target.id, []).append(value)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for part, own in zip(target.elts, value.elts, strict=False):
            _assign(values, part, own)


def _texts(
    node: ast.expr, known: dict[str, list[ast.expr]], seen: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Return the texts that an expression can be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return (node.value,)
    if isinstance(node, ast.IfExp):
        return _unique(*_texts(node.body, known, seen), *_texts(node.orelse, known, seen))
    if isinstance(node, ast.BoolOp):
        return _unique(*(text for value in node.values for text in _texts(value, known, seen)))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _join_variants([_texts(node.left, known, seen), _texts(node.right, known, seen)])
    if isinstance(node, ast.JoinedStr):
        parts = [
            _texts(part.value, known, seen)
            if isinstance(part, ast.FormattedValue)
            else _texts(part, known, seen)
            for part in node.values
        ]
        return _join_variants(parts)
    if isinstance(node, ast.Name) and node.id in known and node.id not in seen:
        values = known[node.id]
        return _unique(*(t for value in values for t in _texts(value, known, seen | {node.id})))
    if isinstance(node, ast.Call) and _name(node.func) == "nearest_name_hint":
        return _NEAR_NAME
    return (f"{{{_name(node)}}}",)


def _join_variants(parts: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the parts one after the other, with a few of their texts each."""
    texts: tuple[str, ...] = ("",)
    for options in parts:
        texts = tuple(text + option for text in texts for option in options[:_MAX_TEXTS])
        texts = texts[:_MAX_TEXTS]
    return texts


def _unique(*texts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))[:_MAX_TEXTS]


def _name(node: ast.AST) -> str:
    """Return a short name of a value: that of the variable, the field or the function."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    if isinstance(node, ast.Call):
        joins = isinstance(node.func, ast.Attribute) and node.func.attr in ("join", "strip", "get")
        if joins and node.args and _name(node.func) == "join":
            return _name(node.args[0])
        if joins and isinstance(node.func, ast.Attribute):
            return _name(node.func.value)
        if _name(node.func) in ("map", "sorted", "dict", "str", "float", "int", "len", "repr"):
            return _name(node.args[-1]) if node.args else "value"
        return _name(node.func)
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        return _name(node.generators[0].iter)
    if isinstance(node, ast.BinOp):
        return _name(node.left)
    if isinstance(node, ast.Starred):
        return _name(node.value)
    return "value"
