"""Files that are whole or not there, and files that may be compressed.

What is written goes to a draft beside its place, which then takes that place. What is read may be
under gzip, which is told by its content and not by its name.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from crossflops.errors import CrossflopsError, InputError

COMPRESSED = ".gz"
_MAGIC = b"\x1f\x8b"  # RFC 1952, 2.3.1


@contextlib.contextmanager
def draft(target: Path, hint: str = "choose another file with -o") -> Iterator[Path]:
    """A path beside `target` to write to; it becomes `target` when nothing was raised.

    A link stays one, and a device or a pipe gets the content. Raises CrossflopsError, with the
    hint, when it cannot be written.
    """
    stream = target.exists() and not target.is_file() and not target.is_dir()
    index = Path(os.path.realpath(target))  # a rename onto /dev/null would remove the device
    folder = _scratch() if stream else index.parent
    path = folder / f".{index.name}.{os.getpid()}.tmp"
    try:
        yield path
        if stream:
            target.write_bytes(path.read_bytes())
        else:
            path.replace(index)
    except OSError as error:
        message = f"cannot write {target}: {error.strerror or error}"
        raise CrossflopsError(message, hint) from error
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _scratch() -> Path:
    from tempfile import gettempdir  # most runs write no stream

    return Path(gettempdir())


def write_file(
    target: Path, content: str | bytes, hint: str = "choose another file with -o"
) -> None:
    """Write a file, whole or not at all. Raises CrossflopsError when it cannot be written."""
    data = content.encode() if isinstance(content, str) else content
    with draft(target, hint) as path:
        path.write_bytes(data)


@contextlib.contextmanager
def locking_path(path: Path) -> Iterator[None]:
    """Keep other processes that lock the same path waiting until the block ends.

    The lock is a file of the system's temporary folder: none is left beside `path`.
    """
    import hashlib  # most runs lock nothing

    name = hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:16]
    with open(_scratch() / f"crossflops-{name}.lock", "a+b") as file:
        _lock(file.fileno())
        yield  # closing the file ends the lock


def _lock(descriptor: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)


def contents(path: Path) -> bytes:
    """The bytes of a file, of a compressed one those that it was made from.

    Raises OSError where it cannot be read, and InputError where its compression is damaged.
    """
    data = path.read_bytes()
    if not data.startswith(_MAGIC):
        return data
    import gzip
    import zlib

    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{path} is a damaged gzip file: {error}", "copy or write the file again"
        ) from error


def gzip_bytes(data: bytes) -> bytes:
    """The bytes under gzip, the same for the same data: without a time, a name or a system."""
    import gzip

    out = BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=out, mtime=0) as file:
        file.write(data)
    return out.getvalue()
