"""Files that are whole or not there: written under a name of their own, then renamed."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from crossflops.errors import CrossflopsError


@contextlib.contextmanager
def draft(target: Path) -> Iterator[Path]:
    """A path beside `target` to write to; it becomes `target` when nothing was raised.

    Raises CrossflopsError when it cannot be written.
    """
    path = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield path
        path.replace(target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CrossflopsError(
            f"{target} cannot be written: {reason}", "give another -o"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def write(target: Path, text: str) -> None:
    """Write a text file. Raises CrossflopsError when it cannot be written."""
    with draft(target) as path:
        path.write_text(text, encoding="utf-8", newline="\n")
