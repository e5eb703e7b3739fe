"""Small tensors that a model keeps in a file beside it: the sizes of a Reshape, and their like.

A file may hold all of its tensors apart (`size_threshold=0`), those that sizes follow from too. No
more is read of them than of tensors inside: payloads of at most 1 KiB. The large ones are left
where they are, and need not be there.
https://onnx.ai/onnx/repo-docs/ExternalData.html
"""

import os
import stat
from pathlib import Path, PurePath
from typing import Any

from crossflops.ir.graph import TensorSpec
from crossflops.load.payload import ELEMENT_TYPES, tensors
from crossflops.load.reader import SMALL

_EXTERNAL = 1  # TensorProto.DataLocation
PLACE = (
    b"location"  # the key of where a tensor lies: a model without this word has all its tensors
)


def bring_in(model: Any, folder: Path) -> None:
    """Put small tensors that lie in files of this folder into the model, in place.

    One whose file is missing, too short, no regular file or outside of the folder stays outside.
    Where it lies stays noted: who copies the model copies that file, too.
    """
    for tensor in tensors(model.graph):
        place, nbytes = location(tensor), _nbytes(tensor)
        if not place or not 0 < nbytes <= SMALL:
            continue
        data = _read(folder, place, tensor, nbytes)
        if len(data) == nbytes:
            tensor.raw_data = data
            tensor.ClearField("data_location")


def location(tensor: Any) -> str:
    """The file that a TensorProto says its data lie in, "" for one that holds them."""
    if tensor.data_location != _EXTERNAL:
        return ""
    return next((entry.value for entry in tensor.external_data if entry.key == PLACE.decode()), "")


def at_once(path: str, flags: int) -> int:
    """Open without waiting for anyone to write: a named pipe is refused, not listened to."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _nbytes(tensor: Any) -> int:
    dtype = ELEMENT_TYPES.get(tensor.data_type, "string")
    return 0 if dtype == "string" else TensorSpec("", dtype, tuple(tensor.dims)).nbytes


def _read(folder: Path, place: str, tensor: Any, nbytes: int) -> bytes:
    """What lies there, as far as it does; opened anew, as each tensor may have its own file."""
    inside = PurePath(place)
    if inside.anchor or ".." in inside.parts:
        return b""
    try:
        offset = next((int(e.value) for e in tensor.external_data if e.key == "offset"), 0)
        with open(folder / place, "rb", buffering=0, opener=at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return b""
            file.seek(offset)
            return file.read(nbytes)
    except (OSError, ValueError, OverflowError):
        return b""
