"""The errors of crossflops, found where they are raised: what each says, and what it advises.

A text is read from the syntax tree (`source_texts`). `{name}` stands for a value that is filled in
when the error is raised; ` | ` is between texts of which a condition chooses one. Texts that
belong together are in one row.
"""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from inspect import getdoc
from pathlib import Path
from typing import NamedTuple

from choices import Choices, all_outcomes
from source_texts import Module, Scope, SourceTexts, calls_in, read_module

import crossflops
from crossflops import errors
from crossflops.errors import CrossflopsError

PACKAGE = Path(crossflops.__file__).parent
ROOT = PACKAGE.parent
_MAX_TEXTS = 40  # pairs of a message and a hint that one place can raise


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
    return _raised_errors_of(PACKAGE, ROOT)


@cache
def _raised_errors_of(package: Path, root: Path) -> list[RaisedError]:
    files = sorted([*package.rglob("*.py"), *root.glob("plugins/*/src/**/*.py")])
    modules = {name: read_module(name, path) for path in files if (name := _module_name(path))}
    kinds = _subclasses(module.tree for module in modules.values())
    texts = SourceTexts(modules)
    return [row for module in modules.values() for row in _errors_of_file(module, kinds, texts)]


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[parts.index("src") + 1 :] if "src" in parts else parts
    return ".".join(parts).removesuffix(".__init__")


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
    module: Module, kinds: dict[str, str], texts: SourceTexts
) -> Iterator[RaisedError]:
    for scope, call in calls_in(module):
        if not isinstance(call.func, ast.Name) or call.func.id not in kinds:
            continue
        for messages, hints in _text_pairs(call, call.func.id, scope, texts):
            yield RaisedError(
                kind=kinds[call.func.id],
                message=messages,
                hint=hints,
                path=module.path.relative_to(ROOT).as_posix(),
                function=scope.functions[-1].name if scope.functions else "",
                line=call.lineno,
            )


def _text_pairs(
    call: ast.Call, kind: str, scope: Scope, texts: SourceTexts
) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the messages that have the same hints, with these; none for a copy of an error."""
    call, scope = texts.base_call(call, scope)
    given = _arguments(call)
    if "message" not in given:
        return []

    def pair(choices: Choices) -> tuple[str, str]:
        message = texts.text(given["message"], scope, choices)
        if "hint" not in given:
            return message, _own_hint(kind)
        return message, texts.text(given["hint"], scope, choices)

    hints: dict[str, list[str]] = {}
    found = all_outcomes(pair, _MAX_TEXTS)
    for message, hint in [both for both in found if all(both)] or found:
        hints.setdefault(message, []).append(hint)
    messages: dict[tuple[str, ...], list[str]] = {}
    for message, own in hints.items():
        messages.setdefault(tuple(own), []).append(message)
    return [(tuple(same), own) for own, same in messages.items()]


def _arguments(call: ast.Call) -> dict[str, ast.expr]:
    """Return the texts that an error is made with, by parameter."""
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return {}
    given = dict(zip(("message", "hint", "reference"), call.args, strict=False))
    return given | {word.arg: word.value for word in call.keywords if word.arg is not None}


def _own_hint(kind: str) -> str:
    """Return the hint of a class that has one of its own."""
    known = getattr(errors, kind, None)
    try:
        return known("").hint if known is not None else ""
    except TypeError:
        return ""
