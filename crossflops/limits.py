"""Limits of a process: its seconds, the life of the process that started it, its memory and
threads.
"""

import contextlib
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Seconds that a converter may take, a tool to build the model, and a run, where nobody asks for
# others.
TIMEOUT = 300.0


def end_when_pipe_closes(pipe: Any, end: Callable[[], Any]) -> None:
    """Let the signal SIGIO end this process as soon as the other end of a pipe is closed (Linux);
    call `end` if it is closed already.

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


# Memory and threads.

_STATUS = Path("/proc/self/status")
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container: microseconds in a period, or "max"
_KIBIBYTE = 1024


def physical_memory_bytes() -> int | None:
    """Return the physical memory of this machine in bytes; None if the system does not
    report it.
    """
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use, by its CPU affinity and the quota of
    its cgroup.
    """
    if hasattr(os, "sched_getaffinity"):
        cpus = len(os.sched_getaffinity(0))
    else:
        cpus = os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = _CPU_QUOTA.read_text(encoding="utf-8").split()
        if quota != "max":
            cpus = min(cpus, -(-int(quota) // int(period)))
    return max(1, cpus)


def trim_memory() -> None:
    """Give free memory of this process back to the system, which glibc does not do by itself.

    Other libraries have no such word: https://man7.org/linux/man-pages/man3/malloc_trim.3.html
    """
    with contextlib.suppress(ImportError, OSError, AttributeError, TypeError):
        import ctypes  # most processes have no need of it

        ctypes.CDLL(None).malloc_trim(0)


def process_thread_count() -> int:
    """Return the number of threads of this process, native ones included. Works on Linux only."""
    return _process_status_value("Threads")


def address_space_bytes() -> int:
    """Return the size of the address space that this process uses, in bytes. Works on
    Linux only.
    """
    return _process_status_value("VmSize") * _KIBIBYTE


def _process_status_value(key: str) -> int:
    """Return the number of an entry of /proc/self/status by its key: "Threads", or
    "VmSize" in kB.
    """
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def limit_memory(size: int | None, *, may_be_raised: bool = False) -> None:
    """Limit the address space of this process to `size` bytes; None means no limit.

    `may_be_raised` leaves the way open to a higher bound later on. Where the system cannot
    (Windows, and in part macOS), a line on stderr says so.
    """
    if size is None:
        return
    try:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        bound = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_AS, (bound, hard if may_be_raised else bound))
    except (ImportError, AttributeError, OSError, ValueError) as problem:
        sys.stderr.write(f"the memory limit cannot be set on this system: {problem}\n")
