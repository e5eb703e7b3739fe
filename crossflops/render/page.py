"""Define the elements of a page: blocks of text and tables, without a format."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

Tone: TypeAlias = Literal["", "good", "bad", "warn", "dim"]


class Title(msgspec.Struct, frozen=True):
    """Parts of one line. A narrow line breaks between parts."""

    parts: tuple[str, ...]


class Heading(msgspec.Struct, frozen=True):
    """The subject of the blocks under it."""

    text: str


class Text(msgspec.Struct, frozen=True):
    """A paragraph. `mark` precedes it, and its other lines are aligned with its first word."""

    text: str
    mark: str = ""
    tone: Tone = ""


class Code(msgspec.Struct, frozen=True):
    """Lines of Python, shown without a change."""

    text: str


class Command(msgspec.Struct, frozen=True):
    """A line to copy, such as a command or a path: it is never broken. `mark` precedes it."""

    text: str
    mark: str = ""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table.

    `flows` lets its cells take several lines. `spare` columns make way when a line is too
    narrow, the highest number first; 0 stays. `detail` columns stand only in files.
    """

    head: str = ""
    right: bool = False
    flows: bool = False
    spare: int = 0
    detail: bool = False


def text_columns(*heads: str) -> tuple[Column, ...]:
    """Return left-aligned columns with these heads; they never wrap and are always shown."""
    return tuple(Column(head=head) for head in heads)


def number_columns(*heads: str) -> tuple[Column, ...]:
    """Return right-aligned columns with these heads; they are always shown."""
    return tuple(Column(head=head, right=True) for head in heads)


class Row(msgspec.Struct, frozen=True):
    """A row of a table: one cell per column."""

    cells: tuple[str, ...]
    tone: Tone = ""

    @classmethod
    def from_cells(cls, *cells: str, tone: Tone = "") -> "Row":
        """Build a row of these cells."""
        return cls(cells, tone)


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Rows under columns.

    A `detail` table stands only in files, and so do the heads of a `bare` one. One that is too
    wide is broken into several, each with the first `stub` columns, where there are any.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    detail: bool = False
    bare: bool = False
    stub: int = 0

    def with_columns_at(self, indices: Sequence[int]) -> "Table":
        """Return a copy of the table that has only the columns at these indices."""
        return msgspec.structs.replace(
            self,
            columns=tuple(self.columns[location] for location in indices),
            rows=tuple(Row(tuple(row.cells[p] for p in indices), row.tone) for row in self.rows),
        )

    def without_column(self, column: Column) -> "Table":
        """Return a copy of the table without this column."""
        return self.with_columns_at(
            [p for p, kept in enumerate(self.columns) if kept is not column]
        )

    def without_detail_columns(self) -> "Table":
        """Return a copy of the table without the columns marked `detail`."""
        table = self
        for column in self.columns:
            if column.detail:
                table = table.without_column(column)
        return table


class Figure(msgspec.Struct, frozen=True):
    """A picture of a result, for formats that have pictures; other formats show `instead`.

    With a `title` it is a part of the page by itself, and without one it belongs to the heading
    above it.
    """

    drawing: Literal[
        "bars", "waterfall", "roofline", "step", "modules", "nodes", "table", "cite", "published",
    ]  # fmt: skip
    noun: Any
    title: str = ""
    instead: "tuple[Block, ...]" = ()


Block: TypeAlias = Title | Heading | Text | Code | Command | Table | Figure


class Page(msgspec.Struct, frozen=True):
    """Blocks, from top to bottom."""

    blocks: tuple[Block, ...]

    def without_figures(self) -> "Page":
        """Return the page with its pictures replaced by their texts (`instead`)."""
        return Page(
            tuple(
                part
                for block in self.blocks
                for part in (block.instead if isinstance(block, Figure) else (block,))
            )
        )
