"""List docstrings that break the form of the guide: `python -m tests.docstring_form [FOLDER ...]`.

A function begins with an imperative, "Return" or "Yield"; a class or a property with a noun
phrase. Docstrings of decorated functions in operators, rules and tools are left out, since most
of them are the equation of a formula.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.measure_names import LEADING_WORDS, is_participle

PACKAGE = Path(__file__).resolve().parents[1] / "crossflops"
ROOMS = ("causes", "frontends", "operators", "patches", "rebuild", "rules", "testing", "tools")
ROOMS_OF_FORMULAS = {"operators", "rules", "tools"}
# Words that begin a sentence which names no action: articles, questions, pronouns.
NOT_IMPERATIVE = frozenset({
    "a", "all", "an", "each", "every", "how", "no", "nobody", "nothing", "one", "that", "the",
    "those", "what", "when", "where", "which", "whether", "while", "who", "whoever", "whose",
    "why",
})  # fmt: skip
NO_NOUN = frozenset({"how", "in", "return", "those", "what", "who", "whoever", "why", "yield"})
PROPERTIES = ("property", "cached_property")


def find_violations(folder: Path) -> Iterator[str]:
    """Yield path, line, name and first words of each docstring that breaks the form."""
    for path in sorted(folder.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0] if path.is_relative_to(PACKAGE) else ""
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            docstring = ast.get_docstring(node)
            if docstring and _breaks_form(node, docstring.split()[0].strip(",.:;"), room):
                start = " ".join(docstring.split()[:8])
                yield f"{path}:{node.lineno}: {node.name}: {start}"


def _breaks_form(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, word: str, room: str
) -> bool:
    decorators = [ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list]
    if isinstance(node, ast.ClassDef) or not set(PROPERTIES).isdisjoint(decorators):
        return word.lower() in NO_NOUN
    if decorators and room in ROOMS_OF_FORMULAS:
        return False
    lower = word.lower()
    return lower in NOT_IMPERATIVE | LEADING_WORDS or is_participle(lower)


if __name__ == "__main__":
    folders = [Path(name) for name in sys.argv[1:]] or [PACKAGE / room for room in ROOMS]
    found = [line for folder in folders for line in find_violations(folder)]
    print("\n".join(found) or "every docstring has the form")
    sys.exit(bool(found))
