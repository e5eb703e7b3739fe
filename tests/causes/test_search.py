"""Causes are found by the words that people have for them."""

import pytest

from crossflops.causes import WORDS, all_causes, find_cause, search_causes


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("batchnorm", ["norm.batch"]),
        ("Batch-Norm", ["norm.batch"]),
        ("layer norms", ["norm.layer"]),
        ("maxpool", ["pool.max"]),
        ("avgpool", ["pool.avg"]),
        ("dead code", ["control.dead-code"]),
        ("2x", ["unit.mac-vs-flop"]),
    ],
)
def test_a_name_in_other_letters_finds_the_cause(typed, found):
    """Written together, in the plural, abbreviated: one cause and no other."""
    assert [hit.id for hit in search_causes(typed, all_causes())] == found


@pytest.mark.parametrize(
    ("typed", "among"),
    [
        ("relu twice", "functional.double-counted"),
        ("relu counted twice", "functional.double-counted"),
        ("norm", "norm.rms"),
    ],
)
def test_several_causes_may_have_to_do_with_words(typed, among):
    """All words stand in each of them."""
    ids = [hit.id for hit in search_causes(typed, all_causes())]
    assert among in ids
    assert 1 < len(ids) < 20


@pytest.mark.parametrize("one", all_causes(), ids=lambda entry: entry.id)
def test_every_cause_is_found_by_its_title(one):
    """What a report prints beside an amount leads to its page."""
    assert one.id in [hit.id for hit in search_causes(one.title, all_causes())]


@pytest.mark.parametrize("typed", ["", "   ", "-", "no such words", "relu zeppelin"])
def test_words_that_stand_nowhere_find_nothing(typed):
    """One word that is strange is enough."""
    assert search_causes(typed, all_causes()) == ()


def test_words_of_reports_have_pages_and_are_no_causes():
    """`native` and `residual` are in every report."""
    assert [word.id for word in WORDS][:2] == ["native", "residual"]
    known = {entry.id for entry in all_causes()}
    assert all(word.page and word.title and word.id not in known for word in WORDS)
    assert find_cause("norm.batch") in all_causes()
