"""Bars of tools: where all are close one per cent is seen, and it is said where they begin."""

from fractions import Fraction

import pytest

from crossflops.render.figures.bars import Bar, bar_chart
from crossflops.render.figures.canvas import Box, DrawnLine, Words


@pytest.mark.parametrize(
    ("second", "begins", "broken"), [(101_000, "bars begin at 99.50 k", 4), (300_000, "", 0)]
)
def test_bars_are_broken_where_all_are_close(second, begins, broken):
    """100 k against 101 k: from 99.5 k on, they are as 1 to 3; each has a break of two lines."""
    drawn = bar_chart(
        [Bar("a", Fraction(100_000), ""), Bar("b", Fraction(second), "")], "x", 100_000
    )
    first, other = (shape for shape in drawn.shapes if isinstance(shape, Box))
    assert other.width / first.width == pytest.approx(3)
    texts = [shape.text for shape in drawn.shapes if isinstance(shape, Words)]
    assert ([text for text in texts if "begin" in text] or [""]) == [begins]
    lines = [shape for shape in drawn.shapes if isinstance(shape, DrawnLine) and not shape.dashed]
    assert len(lines) == broken
