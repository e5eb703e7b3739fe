"""The memory that a process may use."""

import os
import sys


def physical_memory() -> int | None:
    """The memory of this machine in bytes; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None


def limit_memory(size: int | None) -> None:
    """Bound the address space of this process to `size` bytes, where the system can do that.

    Where it cannot (Windows, and in part macOS), a line on stderr says so.
    """
    if size is None:
        return
    try:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        bound = size if hard == resource.RLIM_INFINITY else min(size, hard)
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    except (ImportError, AttributeError, OSError, ValueError) as problem:
        sys.stderr.write(f"the memory limit is not in force on this system: {problem}\n")
