"""Flowcharts of the pages as pictures: each below all that lead to it, none on another."""

import re
from itertools import pairwise

import pytest

from docs.flowchart import (
    BOX_WIDTH,
    build_layout,
    chart_to_svg,
    draw_chart,
    part_width,
    read_chart,
    row_numbers,
)
from tests.docs.blocks import PAGES, blocks

DIAMOND = """flowchart TD
    a["first<br/><i>here</i>"] --> b["second"]
    a --> c
    b --> d["last"]
    c --> d
    a --> d
"""
CHARTS = [block for page in PAGES for block in blocks(page) if block.language == "mermaid"]


def test_a_part_is_below_all_that_lead_to_it():
    """Also where a shorter way leads there."""
    assert row_numbers(read_chart(DIAMOND)) == {"a": 0, "b": 1, "c": 1, "d": 2}


def test_a_part_without_a_text_has_its_name():
    """And tags are not shown."""
    texts = read_chart(DIAMOND).texts
    assert [line.text for line in texts["c"]] == ["c"]
    assert [(line.text, line.of_name) for line in texts["a"]] == [("first", True), ("here", False)]


def test_no_two_parts_of_a_row_overlap():
    """A line that passes a row has a lane there."""
    chart = read_chart(DIAMOND)
    layout = build_layout(chart)
    assert len(layout.rows[1]) == 3
    for row in layout.rows:
        places = sorted((layout.middles[name], part_width(name, chart) / 2) for name in row)
        for (left, half), (right, other) in pairwise(places):
            assert left + half < right - other


@pytest.mark.parametrize("block", CHARTS, ids=str)
def test_each_chart_of_the_pages_can_be_drawn(block):
    """Each word of it is shown, and nothing is outside of the picture."""
    text = "\n".join(block.lines)
    picture = draw_chart(read_chart(text), "")
    shown = re.sub(r"<[^>]*>", " ", chart_to_svg(text, ""))
    for words in re.findall(r'\["([^"]*)"\]', text):
        for word in re.sub(r"<[^>]*>", " ", words).split():
            assert word in shown
    for shape in picture.shapes:
        x = getattr(shape, "x", 0)
        assert 0 <= x <= picture.width - (BOX_WIDTH if hasattr(shape, "height") else 0)
    assert picture.width <= 736  # of the text on the site


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("flowchart LR\n a --> b", "flowchart TD"),
        ("flowchart TD\n a --- b", "lines `a --> b`"),
        ("flowchart TD\n a --> b\n b --> a", "circle"),
    ],
)
def test_another_chart_is_an_error(text, why):
    """It would be drawn wrong."""
    with pytest.raises(ValueError, match=why):
        draw_chart(read_chart(text), "")
