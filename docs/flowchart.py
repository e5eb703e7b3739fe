"""Draw the flowcharts of the pages: GitHub draws their mermaid itself, the site needs a picture.

A line of such a chart is `first["text"] --> second["text"]`, where a part that was named before
needs no text. `<br/>` ends a line of the text. Parts are in rows: each below all that lead to it.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from crossflops.render.figures.canvas import Box, Canvas, DrawnLine, Shape, Words, canvas_to_svg

EDGE = re.compile(r'(\w+)(?:\["([^"]*)"\])? --> (\w+)(?:\["([^"]*)"\])?')
TAG = re.compile(r"</?i>")
LETTERS = 30  # of a line in a box
BOX_WIDTH, LINE_HEIGHT, PADDING = 190.0, 16.0, 10.0  # px
LANE_WIDTH = 22.0  # of a line that passes a row
COLUMN_GAP, ROW_GAP, MARGIN = 18.0, 30.0, 8.0
ROUNDS = 12  # of sorting a row by its neighbours; a chart of a page settles in fewer


class Line(NamedTuple):
    """A line in a box: of its name, or of the words below it."""

    text: str
    of_name: bool


class Chart(NamedTuple):
    """The texts of the parts, line by line, and the pairs that are joined."""

    texts: Mapping[str, tuple[Line, ...]]
    edges: tuple[tuple[str, str], ...]


class Layout(NamedTuple):
    """The rows of parts and lanes, the middle of each, and the paths from row to row."""

    rows: Sequence[Sequence[str]]
    middles: Mapping[str, float]
    paths: Sequence[Sequence[str]]


def read_chart(text: str) -> Chart:
    """Return the chart that a mermaid block describes.

    Raises ValueError for a line that is not one of a plain flowchart from top to bottom.
    """
    head, *lines = (line.strip() for line in text.strip().splitlines())
    if head != "flowchart TD":
        raise ValueError(f"only a 'flowchart TD' can be drawn, got {head!r}")
    texts: dict[str, tuple[Line, ...]] = {}
    edges = []
    for line in lines:
        match = EDGE.fullmatch(line)
        if match is None:
            raise ValueError(f"only lines `a --> b` can be drawn, got {line!r}")
        for name, words in ((match[1], match[2]), (match[3], match[4])):
            if words is not None or name not in texts:
                texts[name] = box_lines(words or name)
        edges.append((match[1], match[3]))
    return Chart(texts, tuple(edges))


def box_lines(text: str) -> tuple[Line, ...]:
    """Return the lines in a box for a text, whose first part is a name.

    >>> [line.text for line in box_lines("ledger<br/><i>ledger</i>, by the formulas of operators")]
    ['ledger', 'ledger, by the formulas of', 'operators']
    """
    parts = TAG.sub("", text).split("<br/>")
    return tuple(
        Line(line, part is parts[0])
        for part in parts
        for line in textwrap.wrap(part, LETTERS, break_on_hyphens=False)
    )


def row_numbers(chart: Chart) -> dict[str, int]:
    """Return the row of each part: one below the lowest part that leads to it.

    Raises ValueError if the chart has a circle.
    """
    rows = dict.fromkeys(chart.texts, 0)
    for _ in chart.texts:
        low = {b: rows[a] + 1 for a, b in chart.edges if rows[b] <= rows[a]}
        if not low:
            return rows
        rows.update(low)
    raise ValueError("a chart with a circle has no rows")


def build_layout(chart: Chart) -> Layout:
    """Return the rows with lanes for lines that pass them, sorted so that few lines cross."""
    numbers = row_numbers(chart)
    rows: list[list[str]] = [[] for _ in range(max(numbers.values()) + 1)]
    for name, number in numbers.items():
        rows[number].append(name)
    paths = []
    for first, second in chart.edges:
        passed = range(numbers[first] + 1, numbers[second])
        lanes = [f"{first}>{second}@{number}" for number in passed]
        for number, lane in zip(passed, lanes, strict=True):
            rows[number].append(lane)
        paths.append([first, *lanes, second])
    steps = [pair for path in paths for pair in pairwise(path)]
    middles: dict[str, float] = {}
    for row in rows:
        middles |= spread_row(row, chart, {})
    for _ in range(ROUNDS):
        for row in (*rows, *reversed(rows)):
            wanted = {name: neighbour_mean(name, steps, middles) for name in row}
            row.sort(key=wanted.__getitem__)
            middles |= spread_row(row, chart, wanted)
    return Layout(rows, middles, paths)


def neighbour_mean(
    name: str, steps: Sequence[tuple[str, str]], middles: Mapping[str, float]
) -> float:
    """Return the mean of the middles of all that a part is joined with."""
    near = [middles[b if a == name else a] for a, b in steps if name in (a, b)]
    return sum(near) / len(near) if near else middles[name]


def part_width(name: str, chart: Chart) -> float:
    """Return the width of a box, or of the lane of a line."""
    return BOX_WIDTH if name in chart.texts else LANE_WIDTH


def spread_row(row: Sequence[str], chart: Chart, wanted: Mapping[str, float]) -> dict[str, float]:
    """Return the middles of a row: near the wanted ones, in its order, without an overlap."""
    middles: dict[str, float] = {}
    free = float("-inf")
    for name in row:
        half = part_width(name, chart) / 2
        middles[name] = max(wanted.get(name, 0.0), free + half)
        free = middles[name] + half + COLUMN_GAP
    shift = sum(middles[name] - wanted.get(name, 0.0) for name in row) / len(row)
    return {name: middle - shift for name, middle in middles.items()}


def draw_chart(chart: Chart, label: str) -> Canvas:
    """Return the picture of a chart."""
    layout = build_layout(chart)
    parts = [name for row in layout.rows for name in row]
    left = min(layout.middles[name] - part_width(name, chart) / 2 for name in parts) - MARGIN
    right = max(layout.middles[name] + part_width(name, chart) / 2 for name in parts) + MARGIN
    tops: dict[str, float] = {}
    heights: dict[str, float] = {}
    y = MARGIN
    for row in layout.rows:
        most_lines = max(len(chart.texts.get(name, ())) for name in row)
        height = most_lines * LINE_HEIGHT + 2 * PADDING
        tops |= dict.fromkeys(row, y)
        heights |= dict.fromkeys(row, height)
        y += height + ROW_GAP
    shapes: list[Shape] = []
    for path in layout.paths:
        points: list[tuple[float, float]] = []
        for name in path:
            x = layout.middles[name] - left
            above, below = tops[name], tops[name] + heights[name]
            points += [(x, below)] if name == path[0] else [(x, above)]
            points += [(x, below)] if name not in chart.texts else []
        shapes += arrow_shapes(points)
    for name, lines in chart.texts.items():
        x = layout.middles[name] - left
        shapes += box_shapes(x, tops[name], heights[name], lines)
    return Canvas(
        width=right - left, height=y - ROW_GAP + MARGIN, label=label, shapes=tuple(shapes)
    )


def arrow_shapes(points: Sequence[tuple[float, float]]) -> list[Shape]:
    """Return the lines through these points, and the head at the last one."""
    ends = list(pairwise(points))
    x, y = points[-1]
    ends += [((x - 4, y - 7), (x, y)), ((x + 4, y - 7), (x, y))]
    return [
        DrawnLine(x1=first[0], y1=first[1], x2=last[0], y2=last[1], ink="soft", width=1.4)
        for first, last in ends
    ]


def box_shapes(x: float, y: float, height: float, lines: Sequence[Line]) -> list[Shape]:
    """Return a box with its text."""
    text_top = y + (height - len(lines) * LINE_HEIGHT) / 2 + 12
    return [
        Box(x=x - BOX_WIDTH / 2, y=y, width=BOX_WIDTH, height=height, ink="shade"),
        *(
            Words(
                x=x, y=text_top + place * LINE_HEIGHT, text=line.text, anchor="middle",
                ink="ink" if line.of_name else "soft", size=12 if line.of_name else 11,
                bold=line.of_name,
            )
            for place, line in enumerate(lines)
        ),
    ]  # fmt: skip


def chart_to_svg(text: str, label: str) -> str:
    """Return a mermaid block as SVG, whose colours are classes of docs/site.css."""
    return canvas_to_svg(draw_chart(read_chart(text), label))
