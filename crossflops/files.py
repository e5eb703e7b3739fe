"""Files that are written completely or not at all, and files that may be compressed.

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
CONFIGURATIONS = ("crossflops.toml", "pyproject.toml")
_MAGIC = b"\x1f\x8b"  # RFC 1952, 2.3.1


def is_configured(key: str, folder: Path | None = None) -> bool:
    """Return whether a configuration file in this folder, or in a folder above it, contains the
    text `key`.

    Most have not, and then what reads configurations need not be imported.
    """
    here = folder or Path.cwd()
    files = (parent / name for parent in (here, *here.parents) for name in CONFIGURATIONS)
    return any(file.is_file() and key.encode() in file.read_bytes() for file in files)


@contextlib.contextmanager
def replacing_file(target: Path, hint: str = "choose another file with -o") -> Iterator[Path]:
    """Yield the path of a temporary file that replaces `target` after the block, unless the block
    raised an error.

    A link stays one, and a device or a pipe gets the content. Raises CrossflopsError, with the
    hint, when it cannot be written.
    """
    stream = target.exists() and not target.is_file() and not target.is_dir()
    index = Path(os.path.realpath(target))  # a rename onto /dev/null would remove the device
    folder = _temporary_folder() if stream else index.parent
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


def _temporary_folder() -> Path:
    """Return the system's folder for temporary files."""
    from tempfile import gettempdir  # most runs write no stream

    return Path(gettempdir())


def write_file(
    target: Path, content: str | bytes, hint: str = "choose another file with -o"
) -> None:
    """Write a file completely or not at all. Raises CrossflopsError if it cannot be written."""
    data = content.encode() if isinstance(content, str) else content
    with replacing_file(target, hint) as path:
        path.write_bytes(data)


@contextlib.contextmanager
def locking_path(path: Path) -> Iterator[None]:
    """Hold a lock on the path during the block; other processes that lock the same path wait.

    The lock is a file of the system's temporary folder: none is left beside `path`.
    """
    import hashlib  # most runs lock nothing

    name = hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:16]
    with open(_temporary_folder() / f"crossflops-{name}.lock", "a+b") as file:
        _lock_file(file.fileno())
        yield  # closing the file ends the lock


def _lock_file(descriptor: int) -> None:
    """Lock an open file for this process alone, by its descriptor; wait while another process has
    the lock.
    """
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX)


def read_file_bytes(path: Path) -> bytes:
    """Return the bytes of a file, decompressed if they are gzip data.

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
    """Return the bytes compressed by gzip, without a time or name, so that equal bytes give equal
    results.
    """
    import gzip

    out = BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=out, mtime=0) as file:
        file.write(data)
    return out.getvalue()
