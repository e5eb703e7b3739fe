"""Markdown, with tables as GitHub reads them."""

import re

from crossflops.render.layout import Noun, layout
from crossflops.render.page import Block, Code, Command, Heading, Table, Text, Title
from crossflops.render.pages.summary import Unit
from crossflops.render.terminal import inert

_SPECIAL = re.compile(r"(https?://[^\s|<>]+)|([\\`*_\[\]<>|#~])")


def markdown(noun: Noun, unit: Unit = "macs") -> str:
    """The page as Markdown, columns and tables of detail among it. Ends with a newline."""
    blocks = [block for block in layout(noun, unit).blocks if _filled(block)]
    return "\n\n".join(map(_written, blocks)) + "\n"


def _filled(block: Block) -> bool:
    return not isinstance(block, Table) or bool(block.rows)


def _written(block: Block) -> str:
    match block:
        case Title(parts):
            return f"# {_plain(parts[0])}\n\n{' · '.join(map(_plain, parts[1:]))}"
        case Heading(text):
            return f"## {_plain(text)}"
        case Text(text, mark):
            bullet = mark.strip() == "-"
            lead = "- " if bullet else f"{_plain(mark)} " if mark.strip() else ""
            return f"{lead}{_plain(text)}"
        case Code(text):
            return f"```python\n{text.strip()}\n```"
        case Command(text, mark):
            lead = f"{_plain(mark)}\n\n" if mark.strip() else ""
            return f"{lead}```\n{inert(text)}\n```"
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    heads = [_plain(column.head) for column in table.columns]
    rules = ["---:" if column.right else "---" for column in table.columns]
    rows = [[_indented(cell) for cell in row.cells] for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def _indented(cell: str) -> str:
    """A cell with its indentation, which tells how deep a row lies, in spaces that stay."""
    return "&nbsp;" * (len(cell) - len(cell.lstrip(" "))) + _plain(cell)


def _plain(text: str) -> str:
    """The text with what Markdown would read escaped; an address stays as it is, to be a link."""
    plain = inert(" ".join(text.split()))
    return _SPECIAL.sub(lambda match: match[1] or f"\\{match[2]}", plain)
