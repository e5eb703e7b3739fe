"""Measure the names and the docstrings of a package: `python -m tests.measure_names [FOLDER ...]`.

Without a folder it measures crossflops. It prints a line of Markdown for each package, from its
source alone: functions and methods are those that a file defines, without names between double
underscores. An underscore before a name does not count, and tests are left out.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import crossflops

# Participles that do not end in "ed"; those that are imperatives too (read, run, set, split, put,
# cut, let) are left out.
IRREGULAR = frozenset({
    "begun", "bound", "broken", "brought", "built", "caught", "chosen", "done", "drawn", "driven",
    "fallen", "felt", "forgotten", "found", "frozen", "given", "gone", "grown", "heard", "held",
    "hidden", "kept", "known", "laid", "led", "left", "lost", "made", "meant", "met", "shown",
    "said", "seen", "sent", "spoken", "swapped", "taken", "taught", "thought", "thrown", "told",
    "understood", "unseen", "woven", "written",
})  # fmt: skip
NO_PARTICIPLES = frozenset({"bed", "deepspeed", "embed", "exceed", "feed", "need", "proceed",
                            "seed", "shed", "speed", "succeed", "unneed", "weed"})  # fmt: skip
LEADING_WORDS = frozenset({
    "about", "across", "again", "alone", "apart", "around", "as", "at", "behind", "beside",
    "between", "by", "early", "for", "from", "here", "in", "inside", "into", "of", "on", "once",
    "out", "still", "through", "together", "towards", "under", "upon", "with", "without", "within",
})  # fmt: skip
CONVERSIONS = frozenset({"as", "from", "on", "with", "without"})  # of the guide, behind a word
EMPTY_BEGINNINGS = ("What ", "Whether it is", "Those ", "Whoever ")


class Names(NamedTuple):
    """How a package names functions and begins docstrings; shares are of the functions."""

    functions: int
    of_one_word: float
    begin_with_participle: float
    only_participle: float
    begin_with_preposition: float
    in_three_modules: int
    renamed_imports: int
    empty_beginnings: int


def is_participle(word: str) -> bool:
    """Return whether a word is a past participle that is no imperative as well."""
    if word in IRREGULAR:
        return True
    return len(word) > 4 and word.endswith("ed") and word not in NO_PARTICIPLES


def words_of(name: str) -> list[str]:
    """Split a name at underscores and capitals: `_readOut_of` -> read, out, of."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def measure(folder: Path) -> Names:
    """Return the measures of all Python files beneath a folder."""
    names: list[str] = []
    modules: dict[str, set[str]] = defaultdict(set)
    renamed = empty = 0
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if not node.name.startswith(("__", "test_")):
                    names.append(node.name)
                empty += (ast.get_docstring(node) or "").startswith(EMPTY_BEGINNINGS)
            elif isinstance(node, ast.ClassDef | ast.Module):
                empty += (ast.get_docstring(node) or "").startswith(EMPTY_BEGINNINGS)
            elif isinstance(node, ast.ImportFrom):
                renamed += sum(map(_is_renamed, node.names))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                modules[node.name.lstrip("_")].add(path.as_posix())
    split = [words for name in names if (words := words_of(name))]
    count = len(split) or 1
    return Names(
        functions=len(split),
        of_one_word=sum(len(words) == 1 for words in split) / count,
        begin_with_participle=sum(is_participle(words[0]) for words in split) / count,
        only_participle=sum(len(words) == 1 and is_participle(words[0]) for words in split)
        / count,
        begin_with_preposition=sum(map(_begins_with_preposition, split)) / count,
        in_three_modules=sum(len(homes) > 2 for homes in modules.values()),
        renamed_imports=renamed,
        empty_beginnings=empty,
    )


def _begins_with_preposition(words: Sequence[str]) -> bool:
    converts = len(words) > 1 and words[0] in CONVERSIONS
    return words[0] in LEADING_WORDS and not converts


def _is_renamed(name: ast.alias) -> bool:
    """Whether a function of a module is imported by another name, apart from an abbreviation."""
    return (
        name.asname is not None
        and name.name.islower()
        and len(name.asname) > 2
        and name.asname.strip("_") != name.name.strip("_")
        and not set(words_of(name.asname)) & set(words_of(name.name))
    )


def lines(folders: Sequence[Path]) -> Iterator[str]:
    """Yield a table of Markdown."""
    heads = (
        "package", "functions", "of one word", "begin with a participle", "only a participle",
        "begin with a preposition", "names in three modules", "renamed imports",
        "docstrings that begin with What, Those",
    )  # fmt: skip
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for folder in folders:
        cells = (f"{v:.0%}" if isinstance(v, float) else f"{v}" for v in measure(folder))
        yield f"| {folder.name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    packages = [Path(name) for name in sys.argv[1:]] or [Path(crossflops.__file__).parent]
    absent = [path for path in packages if not path.is_dir()]
    if absent:
        sys.exit(
            f"error: {absent[0]} is not a folder\nhint: give the folder of a package's source"
        )
    print("\n".join(lines(packages)))
