"""Write HTML: a fragment for notebooks, without a script, or a file that needs no other.

Every word of a model is escaped. The document has the page in sections, with pictures and tables
to look into. It asks for nothing from elsewhere; its numbers, its pictures and all that it says
are there without JavaScript. Templates, style and script lie in `templates`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup
from msgspec import UNSET

from crossflops.ir.ledger import Totals
from crossflops.ir.training import Training
from crossflops.render.figures.bars import tool_bars
from crossflops.render.figures.bars import training_step_bars as step_bars
from crossflops.render.figures.canvas import Canvas, canvas_to_svg
from crossflops.render.figures.comparison import waterfall_chart
from crossflops.render.figures.published import draw_published_figures
from crossflops.render.figures.roofline import roofline_plot
from crossflops.render.layout import ShowableResult, page_with_figures, page_without_figures
from crossflops.render.page import Block, Code, Command, Figure, Heading, Page, Table, Text, Title
from crossflops.render.pages.bench import BenchView
from crossflops.render.pages.places import ComparisonView
from crossflops.render.pages.summary import Unit
from crossflops.render.pages.view import ReportTable
from crossflops.render.terminal import escape_control_chars
from crossflops.report.comparison import Against
from crossflops.report.consensus import build_consensus
from crossflops.report.efficiency import EfficiencyReport, rooflines
from crossflops.report.quantity import exact_amount, short_amount
from crossflops.report.report import ModuleRow, NodeRow, Report
from crossflops.report.tables import path_with_ancestors

_PARTS = re.compile(r"(?<=[/._])(?=[^\W\d_])")


def html(content: ShowableResult, unit: Unit = "macs") -> str:
    """Return the page of a result as an HTML fragment (a `<div>`) for notebooks."""
    return load_html_template("fragment.html.j2").render(page=page_without_figures(content, unit))


@cache
def load_html_template(name: str) -> Template:
    """Return the Jinja template in a file of this name; it escapes the values that it gets."""
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters["breakable"] = with_line_break_points
    return environment.from_string(read_html_resource(name))


def with_line_break_points(text: str) -> Markup:
    """Return the text as HTML in which a browser may break lines within paths.

    >>> with_line_break_points("nn/_ops.py: a&b")
    Markup('nn/_<wbr>ops.<wbr>py: a&amp;b')
    """
    return Markup("<wbr>").join(_PARTS.split(text))


def read_html_resource(name: str) -> str:
    """Return the text of a template or style file of the package."""
    return files("crossflops.render").joinpath("templates", name).read_text(encoding="utf-8")


_LONG = 12  # rows from which on a table has a field to search
_SHOWN = 2  # levels of the tree that are open at first
_JOINED = "\N{NO-BREAK SPACE}"
_STEP = (
    ("gradients of inputs", "backward_input_macs"),
    ("gradients of weights", "backward_weight_macs"),
    ("recomputed", "recomputed_macs"),
)


class Head(NamedTuple):
    """The head of a column of numbers (`right`), of numbers that add up (`metric`), or of wrapped
    text (`flows`).
    """

    text: str
    right: bool = False
    metric: bool = False
    flows: bool = False

    @property
    def css_class(self) -> str:
        """The CSS class of the column's cells: "n" for numbers, "w" for wrapped text, or ""."""
        return "n" if self.right else "w" if self.flows else ""


class ShownRow(NamedTuple):
    """A row of an HTML table; in a tree `level` is its depth, from 1 on."""

    cells: tuple[str, ...]
    tone: str = ""
    level: int = 0
    parent: bool = False


class Grid(NamedTuple):
    """A table for the HTML templates. In a tree, the first `shown` levels are open."""

    label: str
    heads: tuple[Head, ...]
    rows: tuple[ShownRow, ...]
    bare: bool = False
    search: bool = False
    sort: bool = False
    shown: int = _SHOWN


def table_grid(block: Table, label: str) -> Grid:
    """Return a table of a page as an HTML table with all of its columns."""
    rows = tuple(
        ShownRow(tuple(escape_control_chars(cell) for cell in row.cells), row.tone or "")
        for row in block.rows
    )
    heads = tuple(Head(column.head, column.right, flows=column.flows) for column in block.columns)
    plain = not any(head.text for head in heads)
    long = len(rows) >= _LONG
    return Grid(
        label,
        heads,
        rows,
        bare=plain,
        search=long and not block.bare,
        sort=not block.bare and len(rows) > 1,
    )


def shortest_seconds_by_node(content: EfficiencyReport) -> dict[str, float]:
    """Return the shortest time in seconds by node, from the first roofline; {} without one."""
    roofs = rooflines(content)
    return {bound.node: bound.seconds for bound in roofs[0].nodes} if roofs else {}


def _html_count_heads(report: Report, seconds: dict[str, float]) -> tuple[Head, ...]:
    """Return the heads of the columns with MACs, FLOPs, bytes, training work and time."""
    heads = [Head(name, True, True) for name in ("MACs", "FLOPs", "memory traffic")]
    heads += [Head(name, True, True) for name, _ in _STEP] if report.training else []
    heads += [Head("shortest time (µs)", True, True)] if seconds else []
    return tuple(heads)


class _CallCounts(NamedTuple):
    """Amounts of a node or module: MACs, FLOPs, bytes, parts of a training step, seconds."""

    macs: int
    flops: int
    moved: int
    step: tuple[int, ...]
    seconds: float

    def amount_cells(self, timed: bool) -> tuple[str, ...]:
        """Return the amounts as table cells; with `timed` also the time, in microseconds."""
        counts = map(exact_amount, (self.macs, self.flops, self.moved, *self.step))
        return (*counts, *((f"{self.seconds * 1e6:.4g}",) if timed else ()))


def _node_call_counts(node: NodeRow, report: Report, seconds: dict[str, float]) -> _CallCounts:
    """Return the amounts of a node; `seconds` has the shortest time of each node."""
    step = node.training if isinstance(node.training, Training) else None
    parts = tuple(getattr(step, name) if step else 0 for _, name in _STEP)
    return _CallCounts(
        node.macs,
        node.flops,
        node.bytes_read + node.bytes_written,
        parts if report.training else (),
        seconds.get(node.node, 0.0),
    )


def _sum_call_counts(counts: Iterable[_CallCounts], width: int) -> _CallCounts:
    """Return the sum of several nodes' amounts; `width` is the number of training columns."""
    summands = list(counts)
    return _CallCounts(
        sum(summand.macs for summand in summands),
        sum(summand.flops for summand in summands),
        sum(summand.moved for summand in summands),
        tuple(sum(summand.step[location] for summand in summands) for location in range(width)),
        sum(summand.seconds for summand in summands),
    )


# The tree: modules each with all beneath it, or the operators where there are no modules.


def module_grid(report: Report, seconds: dict[str, float]) -> Grid:
    """Return the HTML tree of modules with amounts; if none is known, a table of operators."""
    counts = [(node, _node_call_counts(node, report, seconds)) for node in report.nodes]
    heads = _html_count_heads(report, seconds)
    paths = _parent_module_paths(report)
    if len(paths) < 2:
        rows = _operator_grid_rows(report, counts, bool(seconds))
        return Grid("Operators by cost", (Head("operator"), *heads), rows)
    by_path: dict[str, list[_CallCounts]] = {path: [] for path in paths}
    for node, summand in counts:
        for path in path_with_ancestors(node.path):
            if path in by_path:
                by_path[path].append(summand)
    known = {row.path: row for row in report.modules}
    width = len(_STEP) if report.training else 0
    rows = tuple(
        _module_grid_row(
            path,
            known.get(path),
            paths,
            _sum_call_counts(by_path[path], width).amount_cells(bool(seconds)),
        )
        for path in paths
    )
    columns = (Head("module"), Head("class"), *heads, Head("parameters", True))
    return Grid("Modules, each including its submodules", columns, rows)


def _module_grid_row(
    path: str, row: ModuleRow | None, paths: dict[str, str], counts: tuple[str, ...]
) -> ShownRow:
    """Return the row of a module in the HTML tree, with the module's depth."""
    level, above = 1, path
    while above:
        above = paths[above]
        level += 1
    parent = path in set(paths.values()) if path else True
    css_class, params = (row.class_, exact_amount(row.params)) if row else ("", "")
    return ShownRow(
        (
            escape_control_chars(path) or "(the model)",
            escape_control_chars(css_class),
            *counts,
            params,
        ),
        "",
        level,
        parent,
    )


def _parent_module_paths(report: Report) -> dict[str, str]:
    """Return the path of the parent module by module path, parents before their children."""
    known = {row.path for row in report.modules if row.path or len(report.modules) > 1}
    if not known:
        return {}
    known.add("")
    parents: dict[str, str] = {}
    for row in report.modules:
        outer = (
            path for path in path_with_ancestors(row.path.rpartition(".")[0]) if path in known
        )
        if row.path:
            parents[row.path] = next(outer, "")
    children: dict[str, list[str]] = {}
    for path, parent in parents.items():
        children.setdefault(parent, []).append(path)
    order, todo = [], [""]
    while todo:
        path = todo.pop()
        order.append(path)
        todo.extend(reversed(children.get(path, [])))
    return {path: parents.get(path, "") for path in order}


def _operator_grid_rows(
    report: Report, counts: Sequence[tuple[NodeRow, _CallCounts]], timed: bool
) -> tuple[ShownRow, ...]:
    """Return the rows of the HTML table of operators, largest first, and a row with their sum."""
    width = len(_STEP) if report.training else 0
    by_op: dict[str, list[_CallCounts]] = {}
    for node, summand in counts:
        by_op.setdefault(node.op, []).append(summand)
    sums = {op: _sum_call_counts(summand, width) for op, summand in by_op.items()}
    order = sorted(sums, key=lambda op: (-sums[op].flops, op))
    full = _sum_call_counts((summand for _, summand in counts), width).amount_cells(timed)
    rows = [
        ShownRow((escape_control_chars(op), *sums[op].amount_cells(timed)), "", 2) for op in order
    ]
    return (ShownRow(("(the model)", *full), "", 1, True), *rows) if rows else ()


# Every node.


def node_grid(report: Report, seconds: dict[str, float]) -> Grid:
    """Return the HTML table of the counted nodes, in the order of the graph."""
    heads = (
        Head("node"),
        Head("operator"),
        Head("module"),
        *_html_count_heads(report, seconds),
        Head("precision"),
        Head("exactness"),
    )
    rows = tuple(
        ShownRow(
            (
                escape_control_chars(node.node),
                escape_control_chars(node.op),
                escape_control_chars(node.path),
                *_node_call_counts(node, report, seconds).amount_cells(bool(seconds)),
                node.precision,
                node.exactness,
            )
        )
        for node in report.nodes
    )
    return Grid("Every node", heads, rows, search=True, sort=True)


_DRAWN: dict[str, Callable[[Any], Canvas | None]] = {
    "bars": tool_bars,
    "waterfall": waterfall_chart,
    "roofline": roofline_plot,
    "step": step_bars,
    "published": draw_published_figures,
}
_FIRST = "Result"  # the heading of what stands before any other
_SECTIONS_WITH_A_LIST = 4  # from so many on, the sections are listed at the top


class Section(NamedTuple):
    """A heading, and the HTML under it."""

    id: str
    heading: str
    parts: tuple[Markup, ...]

    @property
    def short_heading(self) -> str:
        """The heading up to " = " or ": ", for the table of contents."""
        return self.heading.partition(" = ")[0].partition(": ")[0]


class Card(NamedTuple):
    """A total of the model: in four digits, and exactly."""

    name: str
    short: str
    exact: str


def html_document(content: ShowableResult, unit: Unit = "macs") -> str:
    """Return the result as a standalone HTML document."""
    page = page_with_figures(content, unit)
    report = _content_report(content)
    opening = next((block for block in page.blocks if isinstance(block, Title)), None)
    parts = tuple(map(_to_single_line, opening.parts)) if opening else ("crossflops",)
    name = parts[0]
    if report and isinstance(report.against, Against):
        name += f" against {_to_single_line(report.against.name)}"
    seconds = shortest_seconds_by_node(content) if isinstance(content, EfficiencyReport) else {}
    sections = _page_sections(page, opening, seconds)
    return load_html_template("document.html.j2").render(
        name=name,
        facts=parts[1:],
        cards=_total_cards(report) if report else (),
        sections=sections,
        listed=len(sections) >= _SECTIONS_WITH_A_LIST,
        origin=_provenance_rows(content),
        style=Markup(read_html_resource("style.css")),
        script=Markup(read_html_resource("report.js")),
    ) + "\n"  # fmt: skip


def _content_report(content: ShowableResult) -> Report | None:
    """Return the report that a result is or has, or None if it has none."""
    match content:
        case Report():
            return content
        case ComparisonView() | ReportTable() | EfficiencyReport():
            return content.report
    return None


def _total_cards(report: Report) -> tuple[Card, ...]:
    """Return the totals at the top of the HTML page: of one model, or of two compared models."""
    models = [_scope_amounts(report.scope)]
    if isinstance(report.against, Against):
        models.append(_scope_amounts(report.against.totals))

    def models_figure_text(name: str, shown: Callable[[int], str]) -> str:
        """Return a figure of the model as text; of two models both, with an arrow between them."""
        return " → ".join(shown(figures[name]).replace(" ", _JOINED) for figures in models)

    return tuple(
        Card(
            name,
            models_figure_text(name, short_amount),
            models_figure_text(name, exact_amount),
        )
        for name in models[0]
    )


def _scope_amounts(scope: ModuleRow | Totals) -> dict[str, int]:
    """Return MACs, FLOPs, parameters and memory traffic (bytes) of a module or model by name."""
    figures = {"MACs": scope.macs, "FLOPs": scope.flops, "parameters": scope.params}
    if isinstance(scope, Totals):
        figures["memory traffic, bytes"] = scope.bytes_read + scope.bytes_written
    return figures


def _page_sections(page: Page, opening: Title | None, seconds: dict[str, float]) -> list[Section]:
    """Return the blocks of a page as HTML sections, one for each heading; skip `opening`."""
    sections: list[tuple[str, list[Markup]]] = [(_FIRST, [])]
    for block in page.blocks:
        if block is opening:
            continue
        if isinstance(block, Heading):
            sections.append((block.text, []))
            continue
        if isinstance(block, Figure) and block.title:
            sections.append((block.title, []))
        sections[-1][1].extend(_block_markup(block, seconds, sections[-1][0]))
    filled = [(heading, parts) for heading, parts in sections if parts]
    return [
        Section(f"part-{number}", _to_single_line(heading), tuple(parts))
        for number, (heading, parts) in enumerate(filled)
    ]


def _block_markup(block: Block, seconds: dict[str, float], heading: str) -> Iterable[Markup]:
    """Return the parts of a block as HTML; [] for a table without rows."""
    match block:
        case Figure():
            return _figure_markup(block, seconds, heading)
        case Table() if block.rows:
            return [_grid_markup(table_grid(block, heading))]
        case Text():
            return [
                _fill_macro(
                    "text", text=_to_single_line(block.text), mark=block.mark, tone=block.tone
                )
            ]
        case Code() | Command():
            mark = block.mark if isinstance(block, Command) else ""
            return [_fill_macro("code", text=escape_control_chars(block.text), mark=mark)]
        case Title():
            return [
                _fill_macro(
                    "text", text=" · ".join(map(_to_single_line, block.parts)), mark="", tone=""
                )
            ]
    return []


def _figure_markup(figure: Figure, seconds: dict[str, float], heading: str) -> Iterable[Markup]:
    """Return a figure as HTML: a sentence to cite, a table, a tree or a picture; [] if empty."""
    match figure.drawing:
        case "cite":
            return [
                _fill_macro(
                    "cite", sentence=_to_single_line(build_consensus(figure.noun).sentence)
                )
            ]
        case "modules":
            grid = module_grid(figure.noun, seconds)
            return [_fill_macro("tree", grid=grid)] if grid.rows else []
        case "nodes":
            grid = node_grid(figure.noun, seconds)
            return [_grid_markup(grid)] if grid.rows else []
        case "table":
            return [_grid_markup(table_grid(figure.noun, heading))]
    canvas = _DRAWN[figure.drawing](figure.noun)
    if canvas is None:
        return []
    return [_fill_macro("figure", drawing=Markup(canvas_to_svg(canvas)), label=canvas.label)]


def _grid_markup(grid: Grid) -> Markup:
    """Return a table as HTML."""
    return _fill_macro("table", grid=grid)


def _fill_macro(macro: str, **fields: Any) -> Markup:
    """Return the HTML that a macro of the template makes of these fields."""
    call: Callable[..., Markup] = getattr(load_html_template("parts.html.j2").module, macro)
    return call(**fields)


def _provenance_rows(content: ShowableResult) -> tuple[tuple[str, str], ...]:
    """Return (name, value) pairs for the end of a page: target, graph digest and versions."""
    holder = content.bench if isinstance(content, BenchView) else content
    holder = holder.report if isinstance(holder, ComparisonView | ReportTable) else holder
    made = getattr(holder, "made_with", UNSET)
    rows = [(name, version) for name, version in made.items()] if isinstance(made, dict) else []
    report = _content_report(content)
    if report is not None:
        rows.insert(0, ("graph", report.model.digest))
    request = getattr(holder, "request", UNSET)
    target = getattr(request, "target", "")
    if target:
        rows.insert(0, ("target", str(target)))
    return tuple((_to_single_line(name), _to_single_line(value)) for name, value in rows)


def _to_single_line(text: str) -> str:
    """Return the text on one line, with single spaces and visible control characters."""
    return escape_control_chars(" ".join(text.split()))
