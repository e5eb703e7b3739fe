"""A copy of an ONNX file with counts in the metadata of its nodes, and no other byte changed.

The file is copied field by field: weights are neither parsed nor held in memory, so a file beyond
protobuf's 2 GiB is copied like any other. External data is copied beside the new file.
"""

import contextlib
import filecmp
import mmap
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from crossflops.errors import CrossflopsError, TargetError
from crossflops.export.files import draft
from crossflops.export.nodes import GRAPH, METADATA, NODE, FileNode, graph_of, nodes_of
from crossflops.export.notes import PREFIX, NodeNote
from crossflops.load.wire import BYTES, Data, Field, fields, length_prefix

_KEY = 1  # StringStringEntryProto.key
_BLOCK = 1 << 24


@contextlib.contextmanager
def opened(path: str) -> Iterator[Data]:
    """The bytes of a file, mapped. Raises TargetError."""
    try:
        with (
            open(path, "rb") as file,
            contextlib.closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as mapped,
        ):
            yield mapped
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TargetError(f"{path} cannot be read: {reason}", "give an ONNX model") from error


def copy_model(
    source: str, target: Path, notes: Mapping[str, NodeNote], locations: Iterable[str] = ()
) -> list[Path]:
    """Copy a model, with the notes of nodes by the name of their first result.

    `locations` are the files of its external data. Returns what was written. Raises TargetError,
    and CrossflopsError where external data is missing or another file bears its name.
    """
    written = _copy_data(Path(source).parent, target.parent, locations)
    with opened(source) as data, draft(target) as file, open(file, "wb") as out:
        graph = graph_of(data)
        changed = [(node.field, _rewritten(data, node, notes)) for node in nodes_of(data, graph)]
        grown = sum(len(new) - (old.end - old.begin) for old, new in changed)
        _copy(data, 0, graph.begin, out)
        out.write(length_prefix(GRAPH, graph.end - graph.value + grown))
        at = graph.value
        for old, new in changed:
            _copy(data, at, old.begin, out)
            out.write(new)
            at = old.end
        _copy(data, at, len(data), out)
    return [target, *written]


def _rewritten(data: Data, node: FileNode, notes: Mapping[str, NodeNote]) -> bytes:
    """The field of a node, with its note and without older ones of ours."""
    note = notes.get(node.result)
    if note is None:
        return data[node.field.begin : node.field.end]
    kept = [
        data[part.begin : part.end]
        for part in fields(data, node.field.value, node.field.end)
        if not _is_note(data, part)
    ]
    entries = [_entry(key, value) for key, value in note.metadata.items()]
    body = b"".join([*kept, *entries])
    return length_prefix(NODE, len(body)) + body


def _is_note(data: Data, part: Field) -> bool:
    if part.number != METADATA or part.wire != BYTES:
        return False
    return any(
        entry.number == _KEY and data[entry.value : entry.end].startswith(PREFIX.encode())
        for entry in fields(data, part.value, part.end)
        if entry.wire == BYTES
    )


def _entry(key: str, value: str) -> bytes:
    texts = (key.encode(), value.encode())
    parts = [length_prefix(number, len(text)) + text for number, text in enumerate(texts, 1)]
    body = b"".join(parts)
    return length_prefix(METADATA, len(body)) + body


def _copy(data: Data, begin: int, end: int, out: IO[bytes]) -> None:
    for at in range(begin, end, _BLOCK):
        out.write(data[at : min(at + _BLOCK, end)])


def data_locations(model: Any) -> list[str]:
    """The files of external data that the tensors of a (weightless) model name."""
    found: dict[str, None] = {}
    todo = [model]
    while todo:
        message = todo.pop()
        if message.DESCRIPTOR.name == "TensorProto":
            names = (one.value for one in message.external_data if one.key == "location")
            found |= dict.fromkeys(names)
            continue
        for field, value in message.ListFields():
            if field.message_type is not None:
                repeated = not hasattr(value, "DESCRIPTOR")
                todo.extend(value if repeated else (value,))
    return sorted(found)


def _copy_data(source: Path, target: Path, locations: Iterable[str]) -> list[Path]:
    """Copy the data files from folder to folder, where these differ."""
    if source.resolve() == target.resolve():
        return []
    names = list(locations)
    for name in names:
        _check_data(source, target, name)
    written = []
    for name in names:
        copy = target / name
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            with draft(copy) as file:
                shutil.copyfile(source / name, file)
            written.append(copy)
    return written


def _check_data(source: Path, target: Path, name: str) -> None:
    """Refuse before anything is written."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise CrossflopsError(
            f"the external data {name!r} lies outside of the model's folder",
            "write the output into the folder of the model",
        )
    if not (source / name).is_file():
        raise CrossflopsError(
            f"the external data {source / name} is not there", "put it beside the model"
        )
    copy = target / name
    if copy.exists() and not filecmp.cmp(source / name, copy, shallow=False):
        raise CrossflopsError(
            f"{copy} exists, and is not the data of this model",
            "write the output into another folder",
        )
