"""A noun -> one HTML file: its page in sections, with pictures and tables to look into."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from markupsafe import Markup
from msgspec import UNSET

from crossflops.render.figures.bars import step as step_bars
from crossflops.render.figures.bars import tools as tool_bars
from crossflops.render.figures.canvas import Canvas, svg
from crossflops.render.figures.roofline import roofline
from crossflops.render.figures.waterfall import waterfall
from crossflops.render.html import resource, template
from crossflops.render.html.tables import Grid, modules, nodes, seconds_of, table
from crossflops.render.layout import Noun, illustrated
from crossflops.render.page import Block, Code, Command, Figure, Heading, Page, Table, Text, Title
from crossflops.render.pages.bench import Benched
from crossflops.render.pages.consensus import consensus
from crossflops.render.pages.places import Compared
from crossflops.render.pages.summary import Unit
from crossflops.render.pages.view import Viewed
from crossflops.render.quantity import exact, short
from crossflops.render.terminal import inert
from crossflops.report.efficiency import EfficiencyReport
from crossflops.report.report import ModuleRow, Report

_DRAWN: dict[str, Callable[[Any], Canvas | None]] = {
    "bars": tool_bars,
    "waterfall": waterfall,
    "roofline": roofline,
    "step": step_bars,
}
_FIRST = "Result"  # the heading of what stands before any other
_SECTIONS_WITH_A_LIST = 4  # from so many on, the sections are listed at the top


class Section(NamedTuple):
    """A heading, and what stands under it as HTML."""

    id: str
    heading: str
    parts: tuple[Markup, ...]

    @property
    def brief(self) -> str:
        """The heading for a list: of "thop = native + 7" the tool, of "what: more" what."""
        return self.heading.partition(" = ")[0].partition(": ")[0]


class Card(NamedTuple):
    """A total: in four digits, and exactly."""

    name: str
    short: str
    exact: str


def document(noun: Noun, unit: Unit = "macs") -> str:
    """The noun as a file that a browser shows by itself, offline. Ends with a newline."""
    page = illustrated(noun, unit)
    report = _report(noun)
    opening = next((block for block in page.blocks if isinstance(block, Title)), None)
    parts = tuple(map(_clean, opening.parts)) if opening else ("crossflops",)
    seconds = seconds_of(noun) if isinstance(noun, EfficiencyReport) else {}
    sections = _sections(page, opening, seconds)
    return template("document.html.j2").render(
        name=parts[0],
        facts=parts[1:],
        cards=_cards(report) if report else (),
        sections=sections,
        listed=len(sections) >= _SECTIONS_WITH_A_LIST,
        origin=_origin(noun),
        style=Markup(resource("style.css")),
        script=Markup(resource("report.js")),
    ) + "\n"  # fmt: skip


def _report(noun: Noun) -> Report | None:
    """The report that a noun is about, where it is about one."""
    match noun:
        case Report():
            return noun
        case Compared() | Viewed() | EfficiencyReport():
            return noun.report
    return None


def _cards(report: Report) -> tuple[Card, ...]:
    scope, totals = report.scope, report.totals
    figures = [("MACs", scope.macs), ("FLOPs", scope.flops), ("parameters", scope.params)]
    if not isinstance(report.module, ModuleRow):
        figures.append(("memory traffic, bytes", totals.bytes_read + totals.bytes_written))
    return tuple(Card(name, short(count), exact(count)) for name, count in figures)


def _sections(page: Page, opening: Title | None, seconds: dict[str, float]) -> list[Section]:
    """The blocks under their headings; a figure with a title is a section by itself."""
    sections: list[tuple[str, list[Markup]]] = [(_FIRST, [])]
    for block in page.blocks:
        if block is opening:
            continue
        if isinstance(block, Heading):
            sections.append((block.text, []))
            continue
        if isinstance(block, Figure) and block.title:
            sections.append((block.title, []))
        sections[-1][1].extend(_parts(block, seconds, sections[-1][0]))
    filled = [(heading, parts) for heading, parts in sections if parts]
    return [
        Section(f"part-{number}", _clean(heading), tuple(parts))
        for number, (heading, parts) in enumerate(filled)
    ]


def _parts(block: Block, seconds: dict[str, float], heading: str) -> Iterable[Markup]:
    """A block as HTML; nothing for a table without rows."""
    match block:
        case Figure():
            return _figure(block, seconds, heading)
        case Table() if block.rows:
            return [_table(table(block, heading))]
        case Text():
            return [_render("text", text=_clean(block.text), mark=block.mark, tone=block.tone)]
        case Code() | Command():
            mark = block.mark if isinstance(block, Command) else ""
            return [_render("code", text=inert(block.text), mark=mark)]
        case Title():
            return [_render("text", text=" · ".join(map(_clean, block.parts)), mark="", tone="")]
    return []


def _figure(figure: Figure, seconds: dict[str, float], heading: str) -> Iterable[Markup]:
    match figure.drawing:
        case "cite":
            return [_render("cite", sentence=_clean(consensus(figure.noun).sentence))]
        case "modules":
            grid = modules(figure.noun, seconds)
            return [_render("tree", grid=grid)] if grid.rows else []
        case "nodes":
            grid = nodes(figure.noun, seconds)
            return [_table(grid)] if grid.rows else []
        case "table":
            return [_table(table(figure.noun, heading))]
    canvas = _DRAWN[figure.drawing](figure.noun)
    if canvas is None:
        return []
    return [_render("figure", drawing=Markup(svg(canvas)), label=canvas.label)]


def _table(grid: Grid) -> Markup:
    return _render("table", grid=grid)


def _render(macro: str, **fields: Any) -> Markup:
    call: Callable[..., Markup] = getattr(template("parts.html.j2").module, macro)
    return call(**fields)


def _origin(noun: Noun) -> tuple[tuple[str, str], ...]:
    """What was asked, of which model, and with which versions."""
    holder = noun.bench if isinstance(noun, Benched) else noun
    holder = holder.report if isinstance(holder, Compared | Viewed) else holder
    made = getattr(holder, "made_with", UNSET)
    rows = [(name, version) for name, version in made.items()] if isinstance(made, dict) else []
    report = _report(noun)
    if report is not None:
        rows.insert(0, ("graph", report.model.digest))
    asked = getattr(holder, "request", UNSET)
    target = getattr(asked, "target", "")
    if target:
        rows.insert(0, ("target", str(target)))
    return tuple((_clean(name), _clean(value)) for name, value in rows)


def _clean(text: str) -> str:
    return inert(" ".join(text.split()))
