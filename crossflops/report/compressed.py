"""Files as they are, or compressed by gzip: told apart by their content and not by their names."""

import gzip
import zlib
from io import BytesIO
from pathlib import Path

from crossflops.errors import InputError

SUFFIX = ".gz"
_MAGIC = b"\x1f\x8b"  # RFC 1952, 2.3.1


def contents(path: Path) -> bytes:
    """The bytes of a file, of a compressed one those that it was made from.

    Raises OSError where it cannot be read, and InputError where its compression is damaged.
    """
    data = path.read_bytes()
    if not data.startswith(_MAGIC):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{path} is a damaged gzip file: {error}", "copy or write it once more"
        ) from error


def compressed(data: bytes) -> bytes:
    """The bytes under gzip, the same for the same data: without a time, a name or a system."""
    out = BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=out, mtime=0) as file:
        file.write(data)
    return out.getvalue()
