"""Compare the source of all patched attributes in the installed releases with recorded ones.

Nothing is imported: the text of a library is read. `sources.json` has the signature and a digest
of every target in the releases with which it was verified;

    python -m crossflops.patches.installed    adds the releases that are installed here
"""

import ast
import hashlib
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from crossflops.patches.inventory import PATCHES
from crossflops.patches.patching import ANY, Patch

_RECORDED = Path(__file__).with_name("sources.json")
_DISTRIBUTIONS = {"tensorflow": ("tensorflow", "tensorflow-cpu")}
_PYTHON = "python"
State = Literal["same", "changed", "gone", "absent", "not in source", "not installed"]
Releases = dict[str, list[str]]  # a digest and a signature by release
Sources = dict[str, Releases]  # by target


class Target(NamedTuple):
    """An attribute that is replaced, and its definition in the installed release.

    `signature` is that of a function, "" for other values.
    """

    patch: Patch
    name: str
    version: str | None
    state: State
    signature: str = ""
    message: str = ""
    recorded: tuple[str, ...] = ()  # the releases whose source is known

    @property
    def path(self) -> str:
        """The name of the attribute, qualified by its module and class."""
        return _attribute_path(self.patch, self.name)


def patch_targets(patches: Sequence[Patch] = PATCHES) -> tuple[Target, ...]:
    """Return every attribute that these patches replace, with its state where installed."""
    recorded = _read_records()
    return tuple(
        _inspect_patch_target(patch, name, recorded) for patch in patches for name in patch.names
    )


def _inspect_patch_target(patch: Patch, name: str, recorded: Sources) -> Target:
    """Return a patched attribute and its state: installed source compared with the records."""
    installed = find_library_version(patch.library)
    if installed is None:
        return Target(patch, name, None, "not installed")
    if not patch.in_text or name == ANY:
        return Target(patch, name, installed, "not in source")
    source = find_source_digest_and_signature(patch.place, name)
    if source is None:
        if patch.is_optional:
            return Target(patch, name, installed, "absent", message="crossflops goes on without")
        return Target(patch, name, installed, "gone", message="the target is gone")
    digest, signature = source
    known = recorded.get(_attribute_path(patch, name), {})
    if not known or [digest, signature] in known.values():
        return Target(patch, name, installed, "same", signature, recorded=tuple(known))
    last = next(reversed(known))
    return Target(
        patch,
        name,
        installed,
        "changed",
        signature,
        _target_change_message(last, known, signature),
    )


def _target_change_message(last: str, known: Releases, signature: str) -> str:
    """Return a text on how the target's signature differs from that of the last release."""
    before = known[last][1]
    if before == signature:
        return f"the target is there, its signature is the same; its source is not that of {last}"
    return (
        f"the target is there, its signature is {signature or 'none'}, and was {before or 'none'}"
    )


def _attribute_path(patch: Patch, name: str) -> str:
    """Return the dotted name of the attribute `name` that a patch replaces."""
    return f"{patch.place.replace(':', '.')}.{name}"


def find_library_version(library: str) -> str | None:
    """Return the version of an installed library, or None if it is not installed."""
    if library == _PYTHON:
        return sys.version.split()[0]
    for distribution in _DISTRIBUTIONS.get(library, (library,)):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return None


# The text of a target.


def find_source_digest_and_signature(location: str, name: str) -> tuple[str, str] | None:
    """Return a digest of the source text of an attribute, and its signature; None without text.

    `location` is a module, or a module and a class ("torch._ops:OpOverload").
    """
    module, _, classes = location.partition(":")
    file = _patch_module_file(module)
    if file is None:
        return None
    text = file.read_text(encoding="utf-8", errors="replace")
    depth = 0
    for kind in classes.split(".") if classes else ():
        text, depth = next(_statement_blocks(text, rf"class {kind}\b", depth), ""), 1
    pattern = rf"(?:async )?def {name}\b|class {name}\b|{name} *(?::[^=\n]+)?="
    parts = [
        *_statement_blocks(text, pattern, depth),
        *(_import_statements(text, name) if not depth else ()),
    ]
    if not parts:
        return None
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    return digest, _statement_signature(parts[-1])


def _patch_module_file(module: str) -> Path | None:
    """Return the source file of a module without importing the module, or None if not found."""
    top, *rest = module.split(".")
    spec = find_spec(top)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if spec and not rest:
        return Path(spec.origin) if spec.origin and Path(spec.origin).is_file() else None
    for folder in folders:
        for end in (".py", "/__init__.py"):
            file = Path(folder, *rest[:-1], rest[-1] + end)
            if file.is_file():
                return file
    return None


def _statement_blocks(text: str, pattern: str, depth: int) -> Iterator[str]:
    """Yield each statement whose first line matches the pattern, with its indented lines.

    Only statements nested in `depth` classes and functions are yielded.
    """
    for match in re.finditer(rf"^([ \t]*)(?:{pattern})", text, re.MULTILINE):
        indent = len(match[1])
        if _count_enclosing_definitions(text[: match.start()], indent) != depth:
            continue
        lines = text[match.start() :].splitlines()
        kept = [lines[0]]
        for line in lines[1:]:
            left = line.strip()
            is_end = len(line) - len(line.lstrip()) <= indent and not left.startswith(
                (")", "]", "}")
            )
            if left and is_end:
                break
            kept.append(line.rstrip())
        yield textwrap.dedent("\n".join(kept)).strip()


def _count_enclosing_definitions(before: str, indent: int) -> int:
    """Return the number of classes and functions that enclose a line, from the text before it."""
    count = 0
    for line in reversed(before.splitlines()) if indent else ():
        left = len(line) - len(line.lstrip())
        is_end = line.lstrip().startswith((")", "]", "}"))  # of a header of many lines
        if line.strip() and left < indent and not is_end:
            indent = left
            count += line.lstrip().startswith(("class ", "def ", "async def "))
        if not indent:
            break
    return count


def _import_statements(text: str, name: str) -> Iterator[str]:
    """Yield the `from ... import NAME` statements in a source text that import `name`."""
    statement = r"^[ \t]*from [\w.]+ import (?:\([^)]*\)|[^\n(]*)"
    for match in re.finditer(statement, text, re.MULTILINE):
        if re.search(rf"\b{name}\b", match[0].partition(" import ")[2]):
            yield f"{match[0].partition(' import ')[0].strip()} import {name}"


def _statement_signature(text: str) -> str:
    """Return the parameter list in a function's source text, or "" if it is not a function."""
    try:
        statement = ast.parse(text).body[0]
    except (SyntaxError, IndexError):
        return ""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return f"({ast.unparse(statement.args)})"
    return ""


# What was recorded.


def _read_records() -> Sources:
    """Return the recorded digests and signatures of patched attributes."""
    recorded: Sources = json.loads(_RECORDED.read_text(encoding="utf-8"))
    return recorded


def _record_patch_targets() -> None:
    """Add the digests and signatures in the installed libraries to the JSON file of records."""
    recorded: dict[str, Any] = _read_records() if _RECORDED.is_file() else {}
    for patch in PATCHES:
        installed = find_library_version(patch.library)
        for name in patch.names if installed and patch.in_text else ():
            source = find_source_digest_and_signature(patch.place, name)
            known = recorded.setdefault(_attribute_path(patch, name), {})
            if source is not None and list(source) not in known.values():
                known[installed] = list(source)
    recorded = {path: known for path, known in sorted(recorded.items()) if known}
    text = json.dumps(recorded, indent=1)
    _RECORDED.write_text(f"{text}\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    _record_patch_targets()
