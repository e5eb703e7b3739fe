"""The prose of pages: plain words, short sentences, headings that are nouns or imperatives.

    python -m tests.docs.prose     print what the pages break, also what proselint finds in them

The rules are those of docs/style.md, and the words to replace are its table "Plain words".
Generated pages, decisions (docs/adr) and the change log are left out.
"""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.docs.blocks import GENERATED

ROOT = Path(__file__).resolve().parents[2]
WRITTEN_BY_CODE = {*GENERATED, "published.md"}
PAGES = (
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in WRITTEN_BY_CODE),
    *sorted((ROOT / "plugins").glob("*/README.md")),
    ROOT / "examples" / "README.md",
    ROOT / "examples" / "crossflops-mycounter" / "README.md",
    ROOT / "crossflops" / "hardware" / "devices" / "README.md",
)
MOST_WORDS = 35

FENCE = re.compile(r"^( *)```.*?^ *```$|^<!--.*?-->|^(?: {4}[^ *].*\n)+", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`]+`")
QUOTED = re.compile(r'"[^"\n]*"')
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ITEM = re.compile(r"^ *(?:[*-]|\d+\.) +")
ROW_OF_DASHES = re.compile(r"^\|(?: *:?-+:? *\|)+$")
# A sentence ends before a capital, a name in code, or the end of its paragraph. Of a list with
# semicolons each item is one: it is read alone.
END_OF_SENTENCE = re.compile(r"(?<!\b[A-Z]\.)(?<=[.!?;])[\"*)]*\s+(?=[\"*(\[]*[A-Za-z0-9])")
QUESTION = re.compile(r"(?:What|Which|Where|When|Who|Whose|Why|How|That|Those)\b")

# What the table of words would take for one of its own.
ALLOWED = re.compile(r"\b[Tt]here (?:is|are) no\b|\bis no longer\b")

# Names of people, products and services, which keep their capitals in a heading.
NAMES = {
    "CI", "DeepSpeed", "DeepSpeed's", "Flax", "GitHub", "GitLab", "HTML", "JAX", "Keras", "Keras'",
    "Lightning", "ONNX", "Python", "PyTorch", "TensorFlow", "Trainer",
}  # fmt: skip

IN_LOWER_CASE = ("crossflops", "scikit-learn")

# Checks of proselint that do not fit: typographic signs instead of those of code, repeated words
# in examples, years instead of numbers and ranges, and the hyphen of multiply-accumulate.
PROSELINT_OFF = {
    "dates_times": False,
    "lexical_illusions": False,
    "misc.phrasal_adjectives": False,
    "typography": False,
}
SLASH = "--"  # in the name of a copy, which proselint prints without its folder


class Finding(NamedTuple):
    """A place in a page, and the rule that it breaks."""

    page: Path
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}: {self.problem}"


class Piece(NamedTuple):
    """A paragraph, an item of a list, a cell of a table or a heading, and its first line."""

    line: int
    text: str
    heading: bool = False


def without_code(text: str) -> str:
    """Return the page with empty lines in place of blocks of code and comments."""
    return FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)


def pieces(text: str) -> Iterator[Piece]:
    """Split a page into the pieces that a reader takes in one after the other."""
    first = 0
    lines: list[str] = []
    for number, line in enumerate([*without_code(text).splitlines(), ""], start=1):
        starts = not line.strip() or line.startswith(("#", "|")) or ITEM.match(line)
        if starts and lines:
            yield Piece(first, " ".join(lines))
            lines = []
        if line.startswith("#"):
            yield Piece(number, line.lstrip("# "), heading=True)
        elif line.startswith("|"):
            if not ROW_OF_DASHES.match(line):
                yield from (Piece(number, cell.strip()) for cell in line.strip("|").split("|"))
        elif line.strip():
            first = first if lines else number
            lines.append(ITEM.sub("", line).strip())


def sentences(text: str) -> list[str]:
    """Split a piece into sentences; code and the target of a link are one word each."""
    plain = CODE.sub("Code", LINK.sub(r"\1", text))
    return [part for part in END_OF_SENTENCE.split(plain) if part]


@cache
def plain_words() -> dict[str, str]:
    """Return the words that docs/style.md replaces, with the words to write."""
    page = (ROOT / "docs" / "style.md").read_text("utf-8")
    table = page.partition("\n## Plain words\n")[2].partition("\n## ")[0].partition("|---|")[2]
    rows = re.findall(r"^\| ([a-z][^|]*?) \| ([^|]+?) \|$", table, re.MULTILINE)
    return {words: instead for row, instead in rows for words in row.split(", ")}


def check_piece(piece: Piece) -> Iterator[str]:
    """Yield the rules that a piece of a page breaks."""
    said = CODE.sub("Code", QUOTED.sub("Quote", LINK.sub(r"\1", piece.text)))
    said = ALLOWED.sub("", said)
    for words, instead in plain_words().items():
        if re.search(rf"(?<![\w-]){re.escape(words)}(?![\w-])", said, re.IGNORECASE):
            yield f"'{words}': write {instead}"
    if piece.heading:
        yield from check_heading(CODE.sub("Code", piece.text))
        return
    for sentence in sentences(piece.text):
        number = len(sentence.split())
        if number > MOST_WORDS:
            yield f"a sentence of {number} words, of {MOST_WORDS}: {sentence[:60]} ..."


def check_heading(heading: str) -> Iterator[str]:
    """Yield the rules that a heading breaks."""
    if QUESTION.match(heading):
        yield f"the heading '{heading}' is no noun or imperative"
    first, *others = re.findall(r"[A-Za-z][\w'-]*", heading)
    capitals = [word for word in others if word[0].isupper() and word not in {*NAMES, "Code"}]
    if capitals or (first[0].islower() and not heading.startswith(IN_LOWER_CASE)):
        yield f"the case of the heading '{heading}'"


def check_page(page: Path) -> list[Finding]:
    """Return what a page breaks of docs/style.md, in the order of its lines."""
    if page.name == "style.md":  # its tables show the words to replace
        text = re.sub(r"^\|.*$", "", page.read_text("utf-8"), flags=re.MULTILINE)
    else:
        text = page.read_text("utf-8")
    return [
        Finding(page, piece.line, problem)
        for piece in pieces(text)
        for problem in check_piece(piece)
    ]


def proselint_findings(pages: Sequence[Path]) -> list[str]:
    """Return the lines that proselint prints for the prose of these pages."""
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for page in pages:
            copy = folder / str(page.relative_to(ROOT)).replace("/", SLASH)
            text = CODE.sub("code", without_code(page.read_text("utf-8")))
            copy.write_text(text, encoding="utf-8")
        config = folder / "proselint.json"
        config.write_text(json.dumps({"checks": PROSELINT_OFF}), encoding="utf-8")
        command = ["check", "--config", str(config), "-o", "compact", str(folder)]
        done = subprocess.run(
            [sys.executable, "-m", "proselint", *command],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        if done.returncode not in (0, 1):
            raise RuntimeError(done.stderr)
        return [line.replace(SLASH, "/") for line in done.stdout.splitlines()]


def main() -> int:
    """Print every finding in every page; 1 where there is one."""
    if importlib.util.find_spec("proselint") is None:
        sys.stderr.write("error: proselint is not installed\nhint: pip install proselint\n")
        return 2
    found = [str(finding) for page in PAGES for finding in check_page(page)]
    found += proselint_findings(PAGES)
    for finding in found:
        print(finding)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
