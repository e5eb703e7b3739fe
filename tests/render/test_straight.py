"""Lines that all fit are arranged without rich, and as rich arranges them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossflops.render import terminal
from crossflops.render.page import Block, Code, Column, Command, Heading, Row, Table, Text, Title

pytestmark = pytest.mark.core

# Letters of one cell, of two, of none; spaces; what ends a line is spelled out before.
WORDS = st.text("ab 1·é字 ́", max_size=9)
SENTENCES = st.lists(st.sampled_from(("a", "two ", "words", "字字", "longer-words")), max_size=12)
COLUMNS = st.builds(
    Column, head=WORDS, right=st.booleans(), flows=st.booleans(), spare=st.integers(0, 2)
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Tables whose flowing columns hold sentences."""
    columns = tuple(draw(st.lists(COLUMNS, min_size=1, max_size=4)))
    flowing = SENTENCES.map(" ".join)
    cells = st.tuples(*(flowing if column.flows else WORDS for column in columns))
    rows = tuple(map(Row, draw(st.lists(cells, min_size=1, max_size=3))))
    stub = draw(st.integers(0, len(columns) - 1))
    return Table(columns=columns, rows=rows, bare=draw(st.booleans()), stub=stub)


BLOCKS: st.SearchStrategy[Block] = st.one_of(
    tables(),
    st.builds(Title, st.lists(WORDS, min_size=1, max_size=3).map(tuple)),
    st.builds(Heading, WORDS),
    st.builds(Text, WORDS, st.sampled_from(("", " ", "   ", "1. "))),
    st.builds(Code, WORDS),
    st.builds(Command, WORDS, st.sampled_from(("", "   "))),
)


@given(BLOCKS, st.integers(20, 60))
@settings(deadline=None, max_examples=150)
def test_the_lines_are_those_of_rich(block: Block, width: int) -> None:
    """Whatever is drawn: no line of rich's is another."""
    straight = terminal._layout_without_rich(block, width)
    if straight is not None:
        arranged = terminal._rich_block_lines(block, width, colour=False)
        assert [line.rstrip() for line in straight] == [line.rstrip() for line in arranged]


def test_a_line_that_is_too_long_is_left_to_rich() -> None:
    """And one that fits is not."""
    assert terminal._layout_without_rich(Text("word " * 5), 20) is None
    assert terminal._layout_without_rich(Text("word"), 20) == [" word"]
