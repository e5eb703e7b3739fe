"""The code blocks of README.md and docs/, and the runs of the commands that they show.

A comment in the line above a block says what the block is:

    <!-- runs: MARKER -->   its commands run in the environment of this marker (pyproject.toml)
                            and print what it shows, where a line `...` stands for any lines
    <!-- file: NAME -->     it is the content of a file that the commands of the page use
    <!-- adds: PATH -->     it is a new file of the repository, or the end of one that is there;
                            with `after LINE` behind the path, what follows that line of it:
                            Python as an item of a list, JSON and others as they are
    <!-- shows: PATH -->    its lines stand so in that file of the repository
    <!-- workflow: PATH --> it is a file of a service that runs tests, as a user copies it

The commands of every other block are parsed, and not run: what they print depends on the machine.

    python -m tests.docs.blocks MARKER ... [PAGE.md ...]   write into the pages (all of them,
                                                   or these) what the commands print now
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"ops.md", "causes.md", "conventions.md", "errors.md"}
PAGES = (ROOT / "README.md", *sorted(p for p in (ROOT / "docs").glob("*.md")
                                     if p.name not in GENERATED))  # fmt: skip
MARK = re.compile(r"<!-- (runs|file|adds|shows|workflow): (\S+)(?: after (.+))? -->")
ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
ELISION = "..."


class Block(NamedTuple):
    """A fenced block: its page, the number of its first line (from 0), and what is above it."""

    page: Path
    start: int
    language: str
    runs: str | None
    file: str | None
    adds: str | None
    shows: str | None
    workflow: str | None
    after: str | None
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page.name}:{self.start + 1}"


class Command(NamedTuple):
    """A command of a console block, and the lines that it prints."""

    text: str
    output: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The words of the command, without assignments to the environment before it."""
        words = shlex.split(self.text, comments=True)
        while words and ASSIGNMENT.fullmatch(words[0]):
            del words[0]
        return words


def blocks(page: Path) -> Iterator[Block]:
    """Every fenced block of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    opened: int | None = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if opened is None:
            opened = number
            continue
        above = MARK.fullmatch(lines[opened - 1]) if opened else None
        kind, name, after = above.groups() if above else (None, None, None)
        yield Block(
            page=page,
            start=opened + 1,
            language=lines[opened].removeprefix("```"),
            runs=name if kind == "runs" else None,
            file=name if kind == "file" else None,
            adds=name if kind == "adds" else None,
            shows=name if kind == "shows" else None,
            workflow=name if kind == "workflow" else None,
            after=after,
            lines=tuple(lines[opened + 1 : number]),
        )
        opened = None
    assert opened is None, f"{page.name}: the block of line {opened} has no end"


def all_blocks(language: str, runs: str | None = None) -> list[Block]:
    """The blocks of all pages in one language, and of one environment where it is named."""
    every = (block for page in PAGES for block in blocks(page))
    return [b for b in every if b.language == language and runs in (None, b.runs)]


def commands(block: Block) -> list[Command]:
    """The commands of a console block: lines after `$`, continued by a backslash."""
    parts: list[tuple[list[str], list[str]]] = []
    continued = False
    for line in block.lines:
        if continued:
            parts[-1][0].append(line)
        elif line.startswith("$ "):
            parts.append(([line.removeprefix("$ ")], []))
        else:
            parts[-1][1].append(line)
        continued = line.endswith("\\") and not parts[-1][1]
    return [Command("\n".join(text), tuple(output)) for text, output in parts]


def prepare(block: Block, folder: Path) -> None:
    """Write the files of the page of a block, and those that no page can show."""
    for other in blocks(block.page):
        if other.file is not None:
            (folder / other.file).write_text("\n".join((*other.lines, "")), encoding="utf-8")
    for name, make in MODELS.items():
        if any(name in line for line in block.lines):
            make(folder / name)


def run(command: Command, folder: Path) -> list[str]:
    """What a command prints, line by line: stdout, and stderr where it fails."""
    python = shlex.quote(sys.executable)
    text = re.sub(r"(^|\| )((?:[A-Z_]+=\S* )*)crossflops ", rf"\1\2{python} -m crossflops ",
                  command.text)  # fmt: skip
    known = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        ["sh", "-c", text], cwd=folder, env=known | {"PYTHONPATH": _path()},
        capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    printed = done.stdout + (done.stderr if done.returncode else "")
    return [line.rstrip() for line in printed.splitlines()]


def _path() -> str:
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def agrees(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether a block shows what was printed, where `...` stands for any lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == ELISION else re.escape(line.rstrip()) + r"\n"
        for line in shown
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def renewed(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    """What a block shows of new output: as many lines as before, between the same elisions.

    A part after an elision begins with the line that is most like its first line before; the last
    part ends with the output.
    """
    parts: list[list[str]] = [[]]
    for line in shown:
        if line.strip() == ELISION:
            parts.append([])
        else:
            parts[-1].append(line)
    if len(parts) == 1:
        return list(printed)
    result, place = list(printed[: len(parts[0])]), len(parts[0])
    for number, part in enumerate(parts[1:], start=2):
        result.append(" " + ELISION)
        if not part:
            continue
        start = len(printed) - len(part)
        if number < len(parts):
            near = get_close_matches(part[0], printed[place:], n=1, cutoff=0)
            start = printed.index(near[0], place)
        result += printed[start : start + len(part)]
        place = start + len(part)
    return result


def _llama(path: Path) -> None:
    import msgspec

    from tests.decoders import LLAMA_8B, decoder

    path.write_bytes(decoder(msgspec.structs.replace(LLAMA_8B, whole=True)).SerializeToString())


def _cnn(path: Path, channels: int = 8) -> None:
    from tests.onnx_files import with_weights

    text = """cnn (float[1,3,32,32] x, float[8,3,3,3] w, float[8] b, float[8,10] v)
        => (float[1,10] y) {
            c = Conv(x, w, b)
            r = Relu(c)
            p = GlobalAveragePool(r)
            f = Flatten(p)
            y = MatMul(f, v)
        }""".replace("[8", f"[{channels}")
    path.write_bytes(with_weights(text, "w", "b", "v").SerializeToString())


# Files that commands use and no page can show -> the function that writes one.
MODELS: dict[str, Callable[[Path], None]] = {
    "llama31_8b_decode.onnx": _llama,
    "cnn.onnx": _cnn,
    "wider.onnx": partial(_cnn, channels=9),
}


def main(words: Sequence[str]) -> None:
    """Run the blocks of these environments, and write what they print into their pages.

    Words that end with .md are the only pages to do. A page that nothing changes stays as it is.
    """
    names = [word for word in words if word.endswith(".md")]
    for page in PAGES:
        chosen = [
            block
            for block in blocks(page)
            if block.runs in words
            and block.language == "console"
            and page.name in (names or [page.name])
        ]
        text = page.read_text(encoding="utf-8")
        lines = text.splitlines()
        for block in reversed(chosen):
            lines[block.start : block.start + len(block.lines)] = _now(block)
            print(block)
        if (now := "\n".join((*lines, ""))) != text:
            page.write_text(now, encoding="utf-8")


def _now(block: Block) -> list[str]:
    """The lines of a block with what its commands print now."""
    with TemporaryDirectory() as folder:
        prepare(block, Path(folder))
        lines: list[str] = []
        for command in commands(block):
            printed = run(command, Path(folder))
            shown = renewed(command.output, printed) if command.output else []
            lines += [*f"$ {command.text}".splitlines(), *shown]
    return lines


if __name__ == "__main__":
    main(sys.argv[1:])
