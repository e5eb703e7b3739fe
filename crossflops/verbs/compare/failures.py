"""Turn an error about one tool into the Failure of that tool, so that the other tools go on."""

from collections.abc import Callable
from typing import TypeVar

from crossflops.errors import ValuesNeededError, print_traceback
from crossflops.ir.profile import Failure
from crossflops.plugins.failures import Stage, tool_failure

_Result = TypeVar("_Result")


def catch_tool_failure(
    tool: str, stage: Stage, compute: Callable[[], _Result]
) -> _Result | Failure:
    """Return the result of `compute`, or a Failure of the tool at this stage if it raises an
    exception.

    That values are needed concerns the whole comparison, which begins again with some: that error
    passes.
    """
    try:
        return compute()
    except ValuesNeededError:
        raise
    except Exception as problem:
        print_traceback(problem)
        return tool_failure(tool, stage, problem)
