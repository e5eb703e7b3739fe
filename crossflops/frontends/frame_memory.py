"""Keep the frames of a deep call stack in one piece of memory.

CPython puts the frames of Python functions into pieces of 16 kB. A call that does not fit into the
current piece gets a new one from the system, and gives it back when it returns. A trace by a
framework is a hundred calls deep, and makes most of its calls at a few depths. If one of these is
at the end of a piece, every call there costs two system calls and page faults: in a count of
swin_t up to a seventh of the time.
Source: Python/pystate.c (push_chunk, _PyThreadState_PopFrame).
"""

import functools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

# A frame of more than half a megabyte gets a piece of a whole one, whose rest is for its callees.
# Only what frames write to takes memory.
_LARGE_FRAME_WORDS = (1 << 16) + 1


def with_frames_in_one_piece(
    function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
    """Return the function so that the frames of all that it calls are in one piece of memory."""
    if sys.implementation.name != "cpython":
        return function

    @functools.wraps(function)
    def call_in_large_frame(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        """Call the function from a frame that is large enough to get a piece of its own."""
        result: _Result = _call_from_large_frame(function, args, kwargs)
        return result

    return call_in_large_frame


def _call_function(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return the result of a function for these arguments."""
    return function(*args, **kwargs)


_call_from_large_frame = FunctionType(
    _call_function.__code__.replace(co_stacksize=_LARGE_FRAME_WORDS), globals()
)
