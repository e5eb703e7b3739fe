"""A page for each noun, and a file for each format: the room that makes text for people.

In: a report, an efficiency, a device, a cause. Out: text, Markdown, CSV, JSON, HTML, pictures.
Imports: tools, rules, causes, report, ir, commands, errors; rich in `terminal`, jinja2 in `html`,
matplotlib in `plots`.
"""

from importlib import import_module
from pathlib import Path
from typing import Protocol

from crossflops.render.layout import Noun
from crossflops.render.pages.summary import Unit
from crossflops.report.compressed import SUFFIX as _COMPRESSED
from crossflops.report.compressed import compressed as _compressed


class Renderer(Protocol):
    """Writes a noun in one format. `unit` orders the operators of a report, where it has any."""

    def __call__(self, noun: Noun, /, unit: Unit = "macs") -> str:
        """The text, ending with a newline."""
        ...


def _format(module: str, function: str) -> Renderer:
    """A renderer that is imported when something is first written in its format."""

    def render(noun: Noun, /, unit: Unit = "macs") -> str:
        renderer: Renderer = getattr(import_module(f"{__name__}.{module}"), function)
        return renderer(noun, unit)

    return render


FORMATS: dict[str, Renderer] = {
    ".json": _format("json", "json"),
    ".md": _format("markdown", "markdown"),
    ".txt": _format("terminal", "text"),
    ".csv": _format("csv", "csv"),
    ".json.gz": _format("json", "json"),
}


def suffix(file: Path) -> str:
    """The end of a name that says the format: `.md`, or `.json.gz`, which has two parts.

    >>> suffix(Path("a.b/resnet.v2.JSON.gz")), suffix(Path("resnet.v2.md")), suffix(Path("resnet"))
    ('.json.gz', '.md', '')
    """
    ends = file.suffixes[-2:] if file.suffix.lower() == _COMPRESSED else file.suffixes[-1:]
    return "".join(ends).lower()


def written(noun: Noun, file: Path, unit: Unit = "macs") -> bytes:
    """What a file of that name holds. Raises KeyError where its suffix names no format."""
    end = suffix(file)
    data = FORMATS[end](noun, unit=unit).encode()
    return _compressed(data) if end.endswith(_COMPRESSED) else data
