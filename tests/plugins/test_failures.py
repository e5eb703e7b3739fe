"""Exceptions in one line."""

import pytest

from crossflops.errors import InputError
from crossflops.ir.profile import Failure
from crossflops.plugins.failures import HINTS, tool_failure


def test_an_error_of_ours_keeps_its_words():
    """Message and hint were written for the user already."""
    failed = tool_failure("thop", "build", InputError("wrong\nshape", "give another"))
    assert failed == Failure(
        tool="thop", stage="build", message="wrong shape", hint="give another"
    )


@pytest.mark.parametrize(
    "problem",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
        ImportError("libtorch.so: failed to map segment: Cannot allocate memory"),
    ],
)
def test_a_lack_of_memory_is_recognised(problem):
    """Whatever class of exception says it, and wherever."""
    failed = tool_failure("thop", "build", problem, "a hint about building")
    assert (failed.stage, failed.hint) == ("memory", HINTS["memory"])


def test_a_long_message_is_one_short_line():
    """A page of a traceback does not spoil a table."""
    failed = tool_failure("thop", "run", ValueError("word\n" * 1000))
    assert len(failed.message) == 300
    assert failed.message.startswith("ValueError: word word")
    assert failed.message.endswith("…")


def test_an_exception_without_words_is_named():
    """The class alone says something."""
    assert tool_failure("thop", "run", KeyError()).message == "KeyError"
