"""One noun in, one string out: a file per output format, and the table of those in files."""

from typing import Protocol

from crossflops.render.csv import csv as _csv
from crossflops.render.json import json as _json
from crossflops.render.layout import Noun
from crossflops.render.markdown import markdown as _markdown
from crossflops.render.pages.summary import Unit
from crossflops.render.terminal import text as _text


class Renderer(Protocol):
    """Writes a noun in one format. `unit` orders the operators of a report, where it has any."""

    def __call__(self, noun: Noun, /, unit: Unit = "macs") -> str:
        """The text, ending with a newline."""
        ...


FORMATS: dict[str, Renderer] = {".json": _json, ".md": _markdown, ".txt": _text, ".csv": _csv}
