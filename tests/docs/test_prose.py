"""The prose of pages keeps docs/style.md: plain words, short sentences, plain headings."""

import pytest

from tests.docs.prose import (
    PAGES,
    check_heading,
    check_page,
    check_piece,
    pieces,
    plain_words,
    sentences,
)

LONG = " ".join(["word"] * 36)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_a_page_keeps_the_style(page):
    """Every finding has the line of the page, and the words to write."""
    assert [str(finding) for finding in check_page(page)] == []


def test_every_rule_finds_a_mistake():
    """Of a page with one mistake of each kind, on its line."""
    page = (
        "# What it is\n\nA rate is no count.\n\n"
        f"```\nthis is no prose\n```\n\n* An item\n  stands for it.\n* {LONG}.\n\n"
        "| a cell |\n|---|\n| told apart |\n\n## Two Words\n"
    )
    found = [(piece.line, problem) for piece in pieces(page) for problem in check_piece(piece)]
    assert [line for line, _ in found] == [1, 3, 9, 11, 15, 17]
    assert found[1][1].startswith("'is no': write")
    assert found[3][1].startswith("a sentence of 36 words, of 35")


def test_words_in_code_and_in_quotes_are_free():
    """They are output of the command, or names."""
    [piece] = pieces('The line "which is no peak" of `stands for` ends. There is no other.\n')
    assert list(check_piece(piece)) == []


def test_the_table_of_words_is_read():
    """Each word of a row by itself, with what to write."""
    words = plain_words()
    assert len(words) > 40
    assert words["tell apart"] == words["told apart"] == "distinguish"
    assert "words" not in words


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("One sentence, with 0.42 GB and `a. B`.", 1),
        ("One. Two: a list. Three?", 3),
        ("A first clause; a second one.", 2),
        ("By J. Doe, of one peak P. It ends.", 1),
        ("The MFU. The HFU.", 2),
    ],
)
def test_where_a_sentence_ends(text, number):
    """At a full stop or a semicolon before the next, and not in numbers, code or initials."""
    assert len(sentences(text)) == number


@pytest.mark.parametrize(
    ("heading", "right"),
    [
        ("Files for other programs", True),
        ("Keras, TensorFlow and JAX", True),
        ("crossflops-thop", True),
        ("DeepSpeed's published example", True),
        ("Files For Programs", False),
        ("files", False),
        ("What is counted", False),
        ("How to read it", False),
    ],
)
def test_the_case_of_a_heading(heading, right):
    """One capital at its start, and those of names; a noun or an imperative."""
    assert (not list(check_heading(heading))) is right
