"""The frames of a deep call stack are in one piece of memory."""

import sys

import pytest

from crossflops.frontends.frame_memory import with_frames_in_one_piece

CALLS = 300
DEPTHS = 200


def _call_often() -> int:
    """Return how many pages the system gave to this process while it called a function often."""
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(CALLS):
        _add(1, 2)
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


def _add(first: int, second: int) -> int:
    """Return a sum, by a call whose frame is somewhat larger than that of its caller."""
    return sum(number for number in (first, second))


def _pages_by_depth(depth: int) -> list[int]:
    """Return the pages for many calls at each of so many depths of the call stack."""
    return [_call_often()] if depth == 0 else [_call_often(), *_pages_by_depth(depth - 1)]


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="frames of another Python")
def test_calls_at_no_depth_take_new_pages() -> None:
    """No call in a stack of some hundred frames needs memory from the system."""
    pages = with_frames_in_one_piece(_pages_by_depth)(DEPTHS)
    assert len(pages) == DEPTHS + 1
    assert max(pages) < CALLS // 2  # at the end of a piece, every call takes one


def test_arguments_results_and_errors_pass_through() -> None:
    """A function gives the same results and errors as without the decorator."""
    assert with_frames_in_one_piece(divmod)(17, 5) == (3, 2)
    assert with_frames_in_one_piece(sorted)([2, 1], reverse=True) == [2, 1]
    with pytest.raises(ZeroDivisionError):
        with_frames_in_one_piece(divmod)(1, 0)
