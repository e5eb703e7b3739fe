"""Build the page of one table of a report: by operator, module, node, or class of module."""

from typing import Any

import msgspec

from crossflops.errors import CrossflopsError
from crossflops.render.page import Block, Column, Heading, Page, Row, Table, Text
from crossflops.render.pages.summary import (
    convention_warning_blocks,
    model_title,
    nodes_without_cost,
)
from crossflops.report.quantity import count_with_noun, exact_amount, percent_share
from crossflops.report.report import Report
from crossflops.report.view import By, Cell, Cells, TableView
from crossflops.tools.registry import find_convention

_HEADINGS: dict[By, str] = {
    "op": "By operator",
    "module": "By module, each including its submodules",
    "node": "By node",
    "type": "By module class",
}
_HEADS = {"macs": "MACs", "flops": "FLOPs", "bytes_read": "read", "bytes_written": "written"}
_FLOWING = ("module", "target")
_NOTHING = {"module": "(the model)", "type": "(unknown)"}


class ReportTable(msgspec.Struct, frozen=True):
    """A report, and the table of it that is shown."""

    report: Report
    view: TableView

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON keys and values of the report, with the table under the key `view`."""
        plain = msgspec.to_builtins(self.view)
        return self.report.to_dict() | {"view": plain | {"rows": self.view.to_dicts()}}

    def to_json(self) -> str:
        """Return the report and the table as indented JSON text, with counts as exact integers."""
        return msgspec.json.format(msgspec.json.encode(self.to_dict()), indent=2).decode() + "\n"


def view_page(content: ReportTable) -> Page:
    """Return the page of one table of a report, with a row of totals."""
    view = content.view
    blocks: list[Block] = [
        model_title(content.report),
        Heading(_HEADINGS[view.by]),
        _view_table(content),
    ]
    if view.hidden:
        blocks.append(
            Text(f"and {count_with_noun(view.hidden, 'row')} more, included in the total", " ")
        )
    blocks += convention_warning_blocks(content.report.folds)
    return Page((*blocks, *nodes_without_cost(content.report)))


def _view_table(content: ReportTable) -> Table:
    """Return the table of a view of a report, with shares and a row of totals."""
    view = content.view
    shown = [location for location, _ in enumerate(view.columns) if _is_shown(view, location)]
    heads = _view_heads(content)
    order = view.columns.index(view.order)
    total_of_order = view.total[order]
    names = [view.columns[location] for location in shown]
    spares = _columns_to_drop(view, names)
    columns = [
        Column(
            head=heads[location],
            right=name in (*_HEADS, "nodes", "modules", "params", *view.folds),
            flows=name in _FLOWING,
            spare=spares.get(name, 0),
        )
        for location, name in zip(shown, names, strict=True)
    ]
    head = "share" if view.folds else f"of {heads[order]}"
    columns.append(Column(head=head, right=True, spare=spares["share"]))
    rows = [
        Row.from_cells(
            *(_view_cell(view, row, location, number) for location in shown),
            _view_share_cell(row[order], total_of_order),
        )
        for number, row in enumerate(view.rows)
    ]
    total = Row.from_cells(
        *(_view_total_cell(view, location) for location in shown),
        _view_share_cell(total_of_order, total_of_order),
    )
    return Table(columns=tuple(columns), rows=(*rows, total))


def _is_shown(view: TableView, column_index: int) -> bool:
    """Return whether column `column_index` has a value to show (the first column always has)."""
    cells = [row[column_index] for row in view.rows]
    if view.columns[column_index] == "params":
        return any(cells) or not view.total[column_index]
    return column_index == 0 or any(not isinstance(cell, str) or cell for cell in cells)


def _view_heads(content: ReportTable) -> tuple[str, ...]:
    """Return the heads of a view's columns, with the words that tools print for their totals."""
    view, folds = content.view, content.report.folds
    try:
        printed = [find_convention(fold.tool, fold.edition).printed_as for fold in folds]
    except CrossflopsError:  # a report of another version, with a convention of its own
        printed = []
    family = {fold.tool.partition("-")[0] for fold in folds}
    one_tool = len(folds) > 1 and len(family) == 1 and len(set(printed)) == len(folds)
    words = dict(zip(view.folds, printed, strict=True)) if one_tool else {}
    return tuple(words.get(column, _HEADS.get(column, column)) for column in view.columns)


def _columns_to_drop(view: TableView, shown: list[str]) -> dict[str, int]:
    """Return by column name when a narrow table leaves the column out: highest number first."""
    native = {"macs", "flops"} - {view.order}
    spares = {"bytes_read": 9, "bytes_written": 8, "modules": 7, "share": 1}
    spares |= dict.fromkeys(native, 6 if view.folds else 2)
    if "weight" in view.columns:  # the table that says how large each layer is
        return spares | {"share": 7, "params": 3}
    if view.by == "module":
        return spares | ({"class": 3} if view.folds else {"params": 5})
    if view.by == "node" and view.folds:
        spares |= {"operator": 4, "kind": 3}
        return spares | ({"module": 7} if "target" in shown else {})  # which says as much
    return spares | {"kind": 7, "target": 7, "class": 3} if view.by == "node" else spares


def _view_cell(view: TableView, row: Cells, column_index: int, row_index: int) -> str:
    """Return a cell of a view as text; names of modules are indented by their depth."""
    cell = row[column_index]
    if isinstance(cell, int):
        return exact_amount(cell)
    if column_index or not view.levels:
        return cell or _NOTHING.get(view.columns[column_index], "-")
    level = view.levels[row_index]
    return "  " * level + (cell.rpartition(".")[2] or _NOTHING["module"])


def _view_total_cell(view: TableView, column_index: int) -> str:
    """Return a cell in the row of totals of a view as text."""
    cell: Cell = view.total[column_index]
    return exact_amount(cell) if isinstance(cell, int) else cell


def _view_share_cell(part: Cell, full: Cell) -> str:
    """Return part / full in percent, as text."""
    return percent_share(int(part), int(full))
