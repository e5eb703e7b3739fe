"""How long a process may go on: the seconds that it has, and the life of who started it."""

import os
import select
from collections.abc import Callable
from typing import Any

# Seconds that a converter may take, a tool to build the model, and a run, where nobody asks for
# others.
TIMEOUT = 300.0


def end_with(pipe: Any, end: Callable[[], Any]) -> None:
    """Have Linux end this process with the one that holds the other end of a pipe, by SIGIO.

    A process that leads a group is ended with its group. SIGIO ends what does not handle it,
    whatever native code is at work, and needs no thread: a process that waits in one could not be
    forked. Where the other end is closed already, `end()` is called.
    """
    import fcntl  # Windows has none

    group = -os.getpid() if os.getpgrp() == os.getpid() else os.getpid()
    fcntl.fcntl(pipe, fcntl.F_SETOWN, group)
    flags = fcntl.fcntl(pipe, fcntl.F_GETFL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, flags | os.O_ASYNC)
    gone = select.poll()
    gone.register(pipe, select.POLLHUP)
    if any(event & select.POLLHUP for _, event in gone.poll(0)):
        end()
