"""Turn the bytes of an ONNX file into a model without weights: read, limited, checked.

In: a path, or bytes that may be damaged. Out: a ModelProto whose large tensors are shapes alone.
May import: ir, patches, errors, limits, threads; of onnx the two parts that counting
needs, see `protobuf`.
"""

import contextlib
import mmap
import os
import stat
from functools import partial
from pathlib import Path
from typing import Any

from crossflops.errors import TargetError, nearest_name_hint, unreadable_file_error
from crossflops.load.beside import receive_file_read_ahead, start_file_reader
from crossflops.load.protobuf import onnx_message_module, parse_model_proto
from crossflops.load.reader import (
    PLACE,
    copy_without_large_data,
    load_small_external_tensors,
    open_without_waiting,
)
from crossflops.load.validation import validate_and_sort_model

__all__ = [
    "copy_without_large_data",
    "decode_onnx_model",
    "read_onnx_model",
    "reject_pointer_or_web_page",
    "start_reading_ahead",
]

_HINT = "give the path of an ONNX file"
_POINTER = b"version https://git-lfs.github.com/spec/"
_PAGE = (b"<!doctype html", b"<html")


def read_onnx_model(path: str) -> Any:
    """Return the checked ModelProto of a file, without weights, nodes in topological order.

    No tensor payload above 1 KiB is read, neither of the file nor of those with its external
    data, and they may be of any size. Raises TargetError.
    """
    try:
        onnx_message_module()  # is imported, while another process may read the file
        data = receive_file_read_ahead(path) or _read_without_weights(path)
        model = _parse_and_validate_model(data)
        if PLACE in data:
            load_small_external_tensors(model, Path(path).parent)
        return model
    except TargetError as error:
        if path not in error.message:  # what is wrong inside of it, told without its name
            error.message = f"{path}: {error.message}"
        raise


def start_reading_ahead(path: str) -> None:
    """Start another process that reads an ONNX file ahead of its use, if the system can fork."""
    if hasattr(os, "fork"):
        start_file_reader(path, partial(_read_without_weights, path))


def reject_pointer_or_web_page(path: str | Path, head: bytes | None = None) -> None:
    """Raise TargetError if a file cannot be read, or is a Git LFS pointer or a web page instead of
    a model.

    `head` has the first bytes of the file; without it they are read.
    """
    if head is None:
        try:
            with open(path, "rb") as file:
                head = file.read(64)
        except OSError as error:
            raise unreadable_file_error(path, error) from error
    if is_git_lfs_pointer(head):
        fetch = f"git lfs pull --include {Path(path).name}"
        raise TargetError(f"{path} is a Git LFS pointer, not the model", fetch)
    if head.lstrip().lower().startswith(_PAGE):
        hint = "download the file itself, not the web page that shows it"
        raise TargetError(f"{path} is a web page, not a model", hint)


def is_git_lfs_pointer(head: bytes) -> bool:
    """Return whether the first bytes of a file are those of a Git LFS pointer."""
    return head.startswith(_POINTER)


def decode_onnx_model(data: bytes) -> Any:
    """Return the checked ModelProto in the bytes of an ONNX file, without weights."""
    return _parse_and_validate_model(copy_without_large_data(data))


def _parse_and_validate_model(data: bytes) -> Any:
    """Return the ONNX model of these bytes, parsed and checked. Raises TargetError."""
    model = parse_model_proto(data)
    validate_and_sort_model(model)
    return model


def _read_without_weights(path: str) -> bytes:
    """Return the bytes of an ONNX file without its weights. Raises TargetError if unreadable."""
    try:
        with open(path, "rb", opener=open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise TargetError(f"cannot read {path}: it is not a regular file", _HINT)
            if not status.st_size:
                raise TargetError(f"{path} is empty", "export, copy or download the model again")
            with contextlib.closing(
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            ) as mapped:
                reject_pointer_or_web_page(path, mapped[:64])
                return copy_without_large_data(mapped)
    except PermissionError as error:
        raise unreadable_file_error(path, error) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TargetError(
            f"cannot read {path}: {reason}", _similar_files_hint(Path(path))
        ) from error


def _similar_files_hint(path: Path) -> str:
    """Return a hint with the files of similar names in the same folder."""
    try:
        additional = [str(file) for file in path.parent.glob("*.onnx") if file != path]
    except (OSError, ValueError):
        additional = []
    return nearest_name_hint(str(path), additional, _HINT)
