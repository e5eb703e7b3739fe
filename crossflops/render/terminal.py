"""Lay out text for a terminal of any width, or for a file; control characters are escaped."""

import os
import re
import sys
from io import StringIO
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from crossflops.commands import localize_commands
from crossflops.render.layout import ShowableResult, page_without_figures
from crossflops.render.page import Block, Code, Command, Figure, Heading, Row, Table, Text, Title
from crossflops.render.pages.summary import Unit

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

# Names that models, files and tools bring, as a terminal can show them: inert, not endless.

NAME = 120  # letters of one word in a cell or a title
WORD = 400  # letters of one word in a paragraph, where it may be a path to copy
LONGEST = 1600  # letters of a whole text
# What moves the cursor, changes colours, reorders letters or hides: control characters (C0, DEL
# and C1), marks of direction and of no width, breaks of lines and paragraphs, tags, and the
# surrogates that stand for bytes of a file name which are no text. And the letter for private use
# that `_JOINT` is.
_HARMFUL = (
    "[\x00-\x1f\x7f-\x9f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\ue000\ufffe\uffff\U000e0000-\U000e007f]"
)
_GAP = "..."
# Stands for the space between two groups of digits while lines break, so that none breaks there.
_JOINT = "\ue000"
_GROUPS = re.compile(r"(?<=\d) (?=\d{3}(?!\d))")


def terminal_width() -> int:
    """Return the terminal's width in columns: COLUMNS, or as detected, or 80; at least 20.

    As shutil.get_terminal_size, which takes longer to import than a page to write.
    """
    requested = os.environ.get("COLUMNS", "")
    if requested.isdecimal() and int(requested):
        return max(NARROWEST, int(requested))
    try:
        size = os.get_terminal_size(sys.__stdout__.fileno())  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return WIDTH
    return max(NARROWEST, size.columns or WIDTH)


def terminal_cell_width(text: str) -> int:
    """Return the width of a text in columns of a terminal (some characters have 2 or 0)."""
    text = text.replace(_JOINT, " ")
    if text.isprintable() and max(text, default="") < "\u0300":
        return len(text)
    from rich import cells

    return cells.cell_len(text)


def escape_control_chars(text: str) -> str:
    """Return the text with each control character written as a visible escape.

    >>> escape_control_chars("conv" + chr(27) + "[2J")
    'conv\\\\x1b[2J'
    """
    if text.isprintable():  # as nearly all are: the expression takes long to compile
        return text
    return re.sub(_HARMFUL, lambda match: match[0].encode("unicode_escape").decode(), text)


def to_legible_text(text: str, word: int = NAME, longest: int = LONGEST) -> str:
    """Return the text with control characters escaped, and long words and texts shortened.

    >>> to_legible_text("a" * 60 + " " + "b" * 1000, word=9)
    'aaa...aaa bbb...bbb'
    """
    plain = escape_control_chars(
        text[: 2 * longest] + text[-2 * longest :] if len(text) > 4 * longest else text
    )
    words = re.sub(rf"\S{{{word + 1},}}", lambda match: _clip_text_middle(match[0], word), plain)
    return _clip_text_middle(words, longest)


def escape_json_control_chars(text: str) -> str:
    """Return the JSON text with control characters (but newline) written as JSON escapes."""
    import json

    return re.sub(
        _HARMFUL, lambda match: match[0] if match[0] == "\n" else json.dumps(match[0])[1:-1], text
    )


def _clip_text_middle(text: str, longest: int) -> str:
    """Return the text with "..." for its middle if it has more than `longest` characters."""
    kept = (longest - len(_GAP)) // 2
    return text if len(text) <= longest else f"{text[:kept]}{_GAP}{text[-kept:]}"


_WORD = re.compile(r"\s*\S+\s*")
_STYLES = {"": "", "good": "green", "bad": "bold red", "warn": "yellow", "dim": "dim"}
_GAPS = (3, 2)
# the gap between columns and whether their heads may take several lines: the first that fits
_LAYOUTS = (*((gap, False) for gap in _GAPS), (_GAPS[-1], True))
_INDENT = 1
_FLOWING = 24  # cells that may take several lines get this width before a spare column does
_SQUEEZED = 10  # and this one before the other columns are broken up
_NARROW_WORD = 4  # columns of words are broken up down to this width before numbers are


def terminal(
    content: ShowableResult, width: int, colour: bool = False, unit: Unit = "macs"
) -> str:
    """Return the page as text, with no line longer than `width`, except lines to copy.

    No name reaches the terminal with a control character in it, nor at any length. Columns that a
    table has no room for are named under it, unless the table before has lost the same.
    """
    lines: list[str] = []
    before: Block | None = None
    named: tuple[str, ...] = ()
    for named_as_is in page_without_figures(content, unit).blocks:
        if isinstance(named_as_is, Table) and (named_as_is.detail or not named_as_is.rows):
            continue
        block = _to_legible_block(named_as_is)
        if _should_separate_blocks(before, block):
            lines.append("")
        lines += _block_lines(block, width, colour)
        before = block
        if (
            isinstance(block, Table)
            and (lost := _heads_without_room(block, width))
            and lost != named
        ):
            lines += _block_lines(_missing_columns_note(lost, block, width), width, colour)
            named = lost
    return "\n".join(line.rstrip() for line in lines).replace(_JOINT, " ") + "\n"


def _should_separate_blocks(before: Block | None, block: Block) -> bool:
    """Return whether an empty line belongs between block `before` and `block`."""
    if before is None:
        return False
    return (
        isinstance(before, Title)
        or isinstance(block, Heading)
        or (isinstance(block, Table) and isinstance(before, Table))
    )


def _to_legible_block(block: Block) -> Block:
    """Return the block with names escaped and shortened, and no line break within numbers."""
    match block:
        case Title(parts):
            return Title(tuple(map(_join_digit_groups, map(to_legible_text, parts))))
        case Heading(text):
            return Heading(_join_digit_groups(to_legible_text(text)))
        case Text(text, mark, tone):
            return Text(
                _join_digit_groups(to_legible_text(localize_commands(text), WORD)),
                to_legible_text(mark),
                tone,
            )
        case Code(text):
            return Code("\n".join(map(escape_control_chars, text.splitlines())))
        case Figure():  # `Page.without_figures` puts what stands in its stead
            return block
        case Command(text, mark):
            return Command(escape_control_chars(localize_commands(text)), to_legible_text(mark))
        case Table():
            return replace(
                block,
                columns=tuple(
                    replace(column, head=_join_digit_groups(to_legible_text(column.head)))
                    for column in block.columns
                ),
                rows=tuple(
                    Row(tuple(map(_join_digit_groups, map(to_legible_text, row.cells))), row.tone)
                    for row in block.rows
                ),
            )


def _join_digit_groups(text: str) -> str:
    """Return the text with its groups of digits joined by spaces that do not break."""
    return _GROUPS.sub(_JOINT, text)


def _heads_without_room(table: Table, width: int) -> tuple[str, ...]:
    """Return the heads of the columns that are left out of a table of this width."""
    room = width - _table_margin(table)
    brief = table.without_detail_columns()
    kept = [
        column
        for part in _split_table_columns(brief, room)
        for column in _fit_table_to_width(part, room).table.columns
    ]
    lost = [column for column in brief.columns if not any(column is shown for shown in kept)]
    return tuple(column.head for column in lost if column.head)


def _missing_columns_note(lost: tuple[str, ...], table: Table, width: int) -> Text:
    """Return a note that names the columns left out of a table, and how to show them."""
    wide = _natural_width(table.without_detail_columns(), _GAPS[-1]) + _table_margin(table)
    shown = "it" if len(lost) == 1 else "them"
    config = f"COLUMNS={wide} shows {shown}, and so does a file that ends in .md"
    return Text(f"left out at {width} columns: {', '.join(lost)}; {config}", "   ", "dim")


def _block_lines(block: Block, width: int, colour: bool) -> list[str]:
    """Return the lines of a block; rich (a library) lays it out if colours or wrapping need it."""
    straight = None if colour else _layout_without_rich(block, width)
    return _rich_block_lines(block, width, colour) if straight is None else straight


# A block whose lines all fit: no colour, and nothing breaks. The import of rich takes longer.


def _layout_without_rich(block: Block, width: int) -> list[str] | None:
    """Return the lines of a block without the library rich; None if a line is too long."""
    match block:
        case Title():
            lines = _wrap_title_parts(block.parts, width).split("\n")
        case Heading():
            lines = [" " * _INDENT + block.text]
        case Text():
            lines = [(block.mark or " ") + block.text]
        case Code():
            lines = [" " * 3 * _INDENT + line for line in block.text.strip().split("\n")]
        case Command():
            return [block.mark + block.text]
        case Table():
            return _table_lines_without_rich(block, width)
    return lines if all(terminal_cell_width(line) <= width for line in lines) else None


def _table_lines_without_rich(block: Table, width: int) -> list[str] | None:
    """Return the lines of a table without the library rich; None if it does not fit."""
    room = width - _table_margin(block)
    lines: list[str] = []
    for location, part in enumerate(_split_table_columns(block.without_detail_columns(), room)):
        table, gap, broken = _fit_table_to_width(part, room)
        widths = None if broken else _fit_column_widths(table, gap, room)
        if widths is None:
            return None
        heads = [] if table.bare else [tuple(column.head for column in table.columns)]
        rights = [column.right for column in table.columns]
        lines += [""] if location else []
        for cells in (*heads, *(row.cells for row in table.rows)):
            broken_cells = list(map(_wrap_cell, cells, widths))
            if not all(broken_cells):
                return None
            for parts in zip_longest(*broken_cells, fillvalue=""):
                padded = map(_pad_cell, parts, widths, rights)
                lines.append(" " * _table_margin(block) + (" " * gap).join(padded))
    return lines


def _fit_column_widths(table: Table, gap: int, room: int) -> list[int] | None:
    """Return the width of each column such that the table fits; None if it cannot fit."""
    widths = [_column_width(table, column, False) for column in range(len(table.columns))]
    if not widths or not all(widths):  # empty, or marks that stand on no letter
        return None
    over = sum(widths) + gap * (len(widths) - 1) - room
    flowing = [location for location, column in enumerate(table.columns) if column.flows]
    if over > 0:
        if len(flowing) != 1 or widths[flowing[0]] - over < _FLOWING:
            return None
        widths[flowing[0]] -= over
    return widths


def _wrap_cell(cell: str, width: int) -> list[str]:
    """Return the cell as lines of at most `width`, wrapped at words; [] if a word is longer."""
    if terminal_cell_width(cell) <= width:
        return [cell]
    lines = [""]
    for word in _WORD.findall(cell):
        if terminal_cell_width(word.rstrip()) > width:
            return []
        if (
            lines[-1]
            and terminal_cell_width(lines[-1]) + terminal_cell_width(word.rstrip()) > width
        ):
            lines.append("")
        lines[-1] += word
    return [line.rstrip() for line in lines]


def _pad_cell(cell: str, width: int, right: bool) -> str:
    """Return the cell with spaces added up to `width` columns, on its left if `right`."""
    text = cell.rstrip() if right else cell
    room = " " * (width - terminal_cell_width(text))
    return room + text if right else text + room


# Every other block, by rich.


def _rich_block_lines(block: Block, width: int, colour: bool) -> list[str]:
    """Return the lines of a block as the library rich lays it out."""
    from rich.console import Console

    out = StringIO()
    console = Console(
        file=out,
        width=width,
        color_system="standard" if colour else None,
        force_terminal=colour,
        force_jupyter=False,
        no_color=False,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    _print_block(console, block, width)
    return out.getvalue().splitlines()


def _print_block(console: "Console", block: Block, width: int) -> None:
    """Print a block to a console of the library rich."""
    from rich.padding import Padding
    from rich.text import Text as RichText

    match block:
        case Title():
            console.print(RichText(_wrap_title_parts(block.parts, width), style="bold"))
        case Heading():
            console.print(Padding(RichText(block.text, style="bold"), (0, 0, 0, _INDENT)))
        case Text():
            console.print(_to_rich_paragraph(block))
        case Code():
            lines = RichText(block.text.strip(), overflow="fold")
            console.print(Padding(lines, (0, 0, 0, 3 * _INDENT)))
        case Command():
            console.print(RichText(f"{block.mark}{block.text}"), soft_wrap=True)
        case Table():
            indent = _table_margin(block)
            for location, table in enumerate(
                _split_table_columns(block.without_detail_columns(), width - indent)
            ):
                if location:
                    console.print()
                console.print(Padding(_to_rich_table(table, width - indent), (0, 0, 0, indent)))


def _table_margin(table: Table) -> int:
    """Return the number of spaces to the left of a table."""
    return 3 * _INDENT if table.bare else _INDENT


def _wrap_title_parts(parts: tuple[str, ...], width: int) -> str:
    """Return the parts of a title joined by dots, with line breaks where `width` needs them."""
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]} · {part}" if lines[-1].strip() else f"{lines[-1]}{part}"
        if terminal_cell_width(longer) <= width or not lines[-1].strip():
            lines[-1] = longer
        else:
            lines.append(f"  {part}")
    return "\n".join(lines)


def _to_rich_paragraph(block: Text) -> "RichTable":
    """Return a paragraph as a table of the library rich: its mark, then its wrapped text."""
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    grid = RichTable.grid(padding=0)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    style = _STYLES[block.tone]
    grid.add_row(RichText(block.mark, style=style), RichText(block.text, style=style))
    return grid


def _to_rich_table(table: Table, room: int) -> "RichTable":
    """Return a table as one of the library rich that is at most `room` columns wide."""
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    table, gap, broken = _fit_table_to_width(table, room)
    tight = _natural_width(table, gap, _SQUEEZED, broken) > room
    numbers_fit = tight and _width_with_narrow_words(table, gap, broken) <= room
    grid = RichTable(box=None, show_header=not table.bare, pad_edge=False, padding=(0, gap, 0, 0))
    for location, column in enumerate(table.columns):
        grid.add_column(
            "\n".join(_head_lines(table, location)) if broken else column.head,
            justify="right" if column.right else "left",
            no_wrap=not (column.flows or tight) or (numbers_fit and column.right),
            overflow="fold",
            header_style="not bold dim",
        )
    for row in table.rows:
        cells = map(_split_digit_groups, row.cells) if tight and not numbers_fit else row.cells
        grid.add_row(*map(RichText, cells), style=_STYLES[row.tone])
    return grid


def _split_digit_groups(cell: str) -> str:
    """Return the cell with spaces between groups of digits if its numbers are long."""
    return re.sub(rf"\S{{{_SQUEEZED},}}", lambda word: word[0].replace(_JOINT, " "), cell)


def _split_table_columns(table: Table, room: int) -> list[Table]:
    """Return one table, or several with part of the columns each (the first ones in all)."""
    if not table.stub or _least_width(table) <= room:
        return [table]
    stub = list(range(table.stub))
    parts: list[list[int]] = []
    for location in range(table.stub, len(table.columns)):
        longer = [*stub, *(parts[-1] if parts else []), location]
        if parts and _least_width(table.with_columns_at(longer)) <= room:
            parts[-1].append(location)
        else:
            parts.append([location])
    return [table.with_columns_at([*stub, *part]) for part in parts]


def _least_width(table: Table) -> int:
    """Return the least width of a table: with narrow gaps and wrapped heads."""
    gap, broken = _LAYOUTS[-1]
    return _natural_width(table, gap, broken=broken)


class FittedTable(NamedTuple):
    """A table without the columns that do not fit, the width of the gap between its columns, and
    whether the heads of its columns wrap.
    """

    table: Table
    column_gap: int
    heads_wrap: bool


def _fit_table_to_width(table: Table, room: int) -> FittedTable:
    """Return the table for a width of `room`: with narrower gaps, wrapped heads, and without spare
    columns where it needs them to fit.
    """
    while True:
        for gap, broken in _LAYOUTS:
            if _natural_width(table, gap, broken=broken) <= room:
                return FittedTable(table, gap, broken)
        spare = max(table.columns, key=lambda column: column.spare)
        if not spare.spare:
            return FittedTable(table, *_LAYOUTS[-1])
        table = table.without_column(spare)


def _natural_width(table: Table, gap: int, flowing: int = _FLOWING, broken: bool = False) -> int:
    """Return the width of a table, with at most `flowing` for each column that wraps."""
    widths = [_column_width(table, location, broken) for location in range(len(table.columns))]
    requested = [
        min(width, flowing) if column.flows else width
        for column, width in zip(table.columns, widths, strict=True)
    ]
    return sum(requested) + gap * (len(requested) - 1)


def _width_with_narrow_words(table: Table, gap: int, broken: bool) -> int:
    """Return the width of a table whose columns of text are as narrow as possible."""
    widths = (
        _column_width(table, location, broken) if column.right else _NARROW_WORD
        for location, column in enumerate(table.columns)
    )
    return sum(widths) + gap * (len(table.columns) - 1)


def _column_width(table: Table, column_index: int, broken: bool) -> int:
    """Return the width of a column, in terminal columns, including its head."""
    head = _head_lines(table, column_index) if broken else (table.columns[column_index].head,)
    return max(
        _widest_cell_width(table, column_index),
        *map(terminal_cell_width, () if table.bare else head),
        0,
    )


def _head_lines(table: Table, column_index: int) -> tuple[str, ...]:
    """Return the head of a column as lines, wrapped to the width of its cells."""
    head = table.columns[column_index].head
    longest = max(map(len, head.split()), default=1)
    return tuple(wrap(head, max(longest, _widest_cell_width(table, column_index)))) or ("",)


def _widest_cell_width(table: Table, column_index: int) -> int:
    """Return the width of a column's longest cell, in terminal columns."""
    return max((terminal_cell_width(row.cells[column_index]) for row in table.rows), default=0)


# Plain text in a file, or printed: what a terminal shows, without colour.

WIDTH = 80
NARROWEST = 20


def plain_page_text(content: ShowableResult, unit: Unit = "macs") -> str:
    """Return the page of a result as plain text of a fixed width, without colours."""
    return terminal(content, WIDTH, unit=unit)


def terminal_page_text(content: ShowableResult) -> str:
    """Return the page as `print` shows it: as wide as the terminal, no newline at its end."""
    return terminal(content, terminal_width()).removesuffix("\n")
