"""Turn shapes in a plane into an SVG: the same bytes for the same shapes."""

from collections.abc import Sequence
from html import escape
from math import floor, log10
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from crossflops.render.terminal import escape_control_chars

Anchor: TypeAlias = Literal["start", "middle", "end"]
Ink: TypeAlias = Literal[
    "ink", "soft", "grid", "more", "less", "good", "bad", "plain", "shade",
    "c0", "c1", "c2", "c3", "c4", "c5", "c6",
]  # fmt: skip
# On white paper; a page with a style sheet of its own has others for the dark. Series are those of
# Okabe and Ito, Color universal design (2008).
COLOURS: dict[str, str] = {
    "ink": "#1b1f24", "soft": "#57606a", "grid": "#d8dee4", "more": "#c2410c", "less": "#0969a8",
    "good": "#1a7f37", "bad": "#cf222e", "plain": "#6e7781", "shade": "#f3f5f7",
    "c0": "#0072b2", "c1": "#d55e00", "c2": "#009e73", "c3": "#b07800", "c4": "#3d9bd1",
    "c5": "#b35a92", "c6": "#6b6b6b",
}  # fmt: skip
FONT = 12.0  # px
_LETTER = 0.56  # of the font's size: the mean width of a letter of a sans serif
_NUMBERS = 5
_HEAD, _NOTE, _GAP, _MARGIN = 26.0, 18.0, 18.0, 16.0  # px


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A filled rectangle. `tip` is its text for screen readers, also shown under a pointer."""

    x: float
    y: float
    width: float
    height: float
    ink: Ink
    tip: str = ""


class DrawnLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line from one point to another."""

    x1: float
    y1: float
    x2: float
    y2: float
    ink: Ink = "grid"
    width: float = 1.0
    dashed: bool = False


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """A line of text whose baseline is at `y`."""

    x: float
    y: float
    text: str
    ink: Ink = "ink"
    anchor: Anchor = "start"
    size: float = FONT
    bold: bool = False


class Dot(msgspec.Struct, frozen=True, kw_only=True):
    """A disc, or with `hollow` a ring."""

    x: float
    y: float
    radius: float
    ink: Ink
    tip: str = ""
    hollow: bool = False


Shape: TypeAlias = Box | DrawnLine | Words | Dot


class Canvas(msgspec.Struct, frozen=True, kw_only=True):
    """Shapes from back to front, in a plane of this size in px; y grows downwards."""

    width: float
    height: float
    label: str
    shapes: tuple[Shape, ...]


def text_width(text: str, size: float = FONT) -> float:
    """Return the approximate width of a text in pixels for a font size."""
    return len(text) * size * _LETTER


def fit_text_to_width(text: str, width: float, size: float = FONT) -> str:
    """Return the text with "…" in its middle if it is wider than `width` pixels.

    >>> fit_text_to_width("norm.batch", 200), fit_text_to_width("a" * 30 + "b" * 30, 100)
    ('norm.batch', 'aaaaaaa…bbbbbb')
    """
    room = int(width / (size * _LETTER))
    if len(text) <= room:
        return text
    tail = (room - 1) // 2
    return f"{text[: room - 1 - tail]}…{text[len(text) - tail :]}"


def bar_break_lines(box: Box, middle: float) -> tuple[DrawnLine, ...]:
    """Return two slanted lines across a bar at x = `middle`: the bar is drawn too short."""
    return tuple(
        DrawnLine(x1=middle + x - 3, y1=box.y + box.height + 2, x2=middle + x + 3, y2=box.y - 2,
                  ink="shade", width=2.5)
        for x in (-3, 3)
    )  # fmt: skip


def round_axis_ticks(low: float, high: float, step: float = 0.0) -> list[float]:
    """Return about five round numbers from `low` to `high`, as ticks of an axis.

    >>> round_axis_ticks(0, 44), round_axis_ticks(0, 1)
    ([0.0, 10.0, 20.0, 30.0, 40.0], [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    """
    rough = max((high - low) / _NUMBERS, step)
    power = 10.0 ** floor(log10(rough))
    step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough)
    return [round(n * step, 12) for n in range(-floor(-low // step), floor(high / step) + 1)]


class TitledCanvas(NamedTuple):
    """A canvas with the title above it."""

    head: str
    canvas: Canvas
    note: str = ""


def stack_canvases(parts: Sequence[TitledCanvas], label: str) -> Canvas:
    """Return one canvas that has all canvases below each other, each with its title and note."""
    shapes: list[Shape] = []
    y = _MARGIN
    for head, canvas, note in parts:
        shapes.append(
            Words(x=_MARGIN, y=y + 13, text=fit_text_to_width(head, canvas.width), bold=True)
        )
        if note:
            y += _NOTE
            shapes.append(Words(x=_MARGIN, y=y + 13, text=note, ink="soft", size=11))
        y += _HEAD
        shapes += [_move_shape(shape, _MARGIN, y) for shape in canvas.shapes]
        y += canvas.height + _GAP
    width = max(part.canvas.width for part in parts) + 2 * _MARGIN
    return Canvas(width=width, height=y, label=label, shapes=tuple(shapes))


def _move_shape(shape: Shape, x: float, y: float) -> Shape:
    """Return a copy of the shape, moved by x and y pixels."""
    if isinstance(shape, DrawnLine):
        return replace(shape, x1=shape.x1 + x, x2=shape.x2 + x, y1=shape.y1 + y, y2=shape.y2 + y)
    return replace(shape, x=shape.x + x, y=shape.y + y)


def canvas_to_svg(canvas: Canvas, alone: bool = False) -> str:
    """Return a canvas as SVG text: a part of an HTML page, or with `alone` a file by itself."""
    size = f'viewBox="0 0 {_pixels(canvas.width)} {_pixels(canvas.height)}"'
    document = ' xmlns="http://www.w3.org/2000/svg" font-family="sans-serif"' if alone else ""
    wide = f' width="{_pixels(canvas.width)}" height="{_pixels(canvas.height)}"'
    paper = '<rect width="100%" height="100%" fill="#fff"/>' if alone else ""
    label = escape(escape_control_chars(canvas.label))
    head = f'<svg{document} role="img" aria-label="{label}"{wide} {size}>{paper}'
    return head + "".join(_svg_shape(shape, alone) for shape in canvas.shapes) + "</svg>"


def _svg_shape(shape: Shape, alone: bool) -> str:
    """Return a shape as an SVG element; with `alone` its colour is a value, else a CSS class."""
    match shape:
        case Box():
            location = f'x="{_pixels(shape.x)}" y="{_pixels(shape.y)}"'
            size = f'width="{_pixels(shape.width)}" height="{_pixels(shape.height)}"'
            return (
                f"<rect {location} {size} "
                f"{_svg_fill(shape.ink, alone)}{_svg_end_with_tooltip(shape.tip, 'rect')}"
            )
        case DrawnLine():
            ends = (
                f'x1="{_pixels(shape.x1)}" y1="{_pixels(shape.y1)}" x2="{_pixels(shape.x2)}" '
                f'y2="{_pixels(shape.y2)}"'
            )
            dashes = ' stroke-dasharray="4 3"' if shape.dashed else ""
            ink = _svg_stroke(shape.ink, alone)
            return f'<line {ends} {ink} stroke-width="{_pixels(shape.width)}"{dashes}/>'
        case Words():
            anchor = f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
            weight = ' font-weight="600"' if shape.bold else ""
            location = (
                f'x="{_pixels(shape.x)}" y="{_pixels(shape.y)}" font-size="{_pixels(shape.size)}"'
            )
            text = escape(escape_control_chars(shape.text))
            return f"<text {location} {_svg_fill(shape.ink, alone)}{anchor}{weight}>{text}</text>"
        case Dot():
            location = (
                f'cx="{_pixels(shape.x)}" cy="{_pixels(shape.y)}" r="{_pixels(shape.radius)}"'
            )
            ink = _svg_stroke(shape.ink, alone) if shape.hollow else _svg_fill(shape.ink, alone)
            clear = ' fill-opacity="0" stroke-width="1.5"' if shape.hollow else ""
            return f"<circle {location} {ink}{clear}{_svg_end_with_tooltip(shape.tip, 'circle')}"


def _svg_end_with_tooltip(tip: str, tag: str) -> str:
    """Return the end of an SVG element `tag`, with `tip` as its tooltip if `tip` is not empty."""
    return f"><title>{escape(escape_control_chars(tip))}</title></{tag}>" if tip else "/>"


def _svg_fill(ink: Ink, alone: bool) -> str:
    """Return the SVG attribute of a fill colour: its value if `alone`, else a CSS class."""
    return f'fill="{COLOURS[ink]}"' if alone else f'class="f-{ink}"'


def _svg_stroke(ink: Ink, alone: bool) -> str:
    """Return the SVG attribute of a line colour: its value if `alone`, else a CSS class."""
    return f'stroke="{COLOURS[ink]}"' if alone else f'class="s-{ink}"'


def _pixels(value: float) -> str:
    """Return a length in pixels as text with at most two decimals.

    >>> _pixels(3.0), _pixels(1 / 3)
    ('3', '0.33')
    """
    return f"{value:.2f}".rstrip("0").rstrip(".")
