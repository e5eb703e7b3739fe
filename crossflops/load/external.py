"""Small tensors that a model keeps in a file beside it: the sizes of a Reshape, and their like.

A file may hold all of its tensors apart (`size_threshold=0`), those that sizes follow from too. No
more is read of them than of tensors inside: payloads of at most 1 KiB. The large ones are left
where they are, and need not be there.
https://onnx.ai/onnx/repo-docs/ExternalData.html
"""

import os
import stat
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from crossflops.ir.tensor import TensorSpec
from crossflops.load.payload import ELEMENT_TYPES, tensors
from crossflops.load.reader import SMALL

_EXTERNAL = 1  # TensorProto.DataLocation


def bring_in(model: Any, folder: Path) -> None:
    """Put small tensors that lie in files of this folder into the model, in place.

    One whose file is missing, too short, no regular file or outside of the folder stays outside.
    Where it lies stays noted: who copies the model copies that file, too.
    """
    with ExitStack() as stack:
        files: dict[str, BinaryIO | None] = {}
        for tensor in tensors(model.graph):
            place = location(tensor)
            nbytes = _nbytes(tensor)
            if not place or not 0 < nbytes <= SMALL:
                continue
            if place not in files:
                files[place] = _opened(folder, place, stack)
            data = _read(files[place], tensor, nbytes)
            if len(data) == nbytes:
                tensor.raw_data = data
                tensor.ClearField("data_location")


def location(tensor: Any) -> str:
    """The file that a TensorProto says its data lie in, "" for one that holds them."""
    if tensor.data_location != _EXTERNAL:
        return ""
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def at_once(path: str, flags: int) -> int:
    """Open without waiting for anyone to write: a named pipe is refused, not listened to."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _nbytes(tensor: Any) -> int:
    dtype = ELEMENT_TYPES.get(tensor.data_type, "string")
    return 0 if dtype == "string" else TensorSpec("", dtype, tuple(tensor.dims)).nbytes


def _opened(folder: Path, place: str, stack: ExitStack) -> BinaryIO | None:
    inside = PurePosixPath(place)
    if inside.is_absolute() or ".." in inside.parts:
        return None
    try:
        # closed with all others, when the last tensor has been read
        file = open(folder / place, "rb", opener=at_once)  # noqa: SIM115
        stack.callback(file.close)
        return file if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except (OSError, ValueError):
        return None


def _read(file: BinaryIO | None, tensor: Any, nbytes: int) -> bytes:
    if file is None:
        return b""
    try:
        offset = next((int(e.value) for e in tensor.external_data if e.key == "offset"), 0)
        file.seek(offset)
        return file.read(nbytes)
    except (OSError, ValueError, OverflowError):
        return b""
