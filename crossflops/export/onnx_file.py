"""A copy of an ONNX file with counts at its nodes, and no other byte changed.

The file is copied field by field: weights are neither parsed nor held in memory, so a file beyond
protobuf's 2 GiB is copied like any other. External data is copied beside the new file.

Beside it: node data for Google's model-explorer, which shows counts at the nodes of a model.
"""

import contextlib
import filecmp
import mmap
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeAlias

import msgspec

from crossflops.errors import CrossflopsError, TargetError
from crossflops.files import replacing_file
from crossflops.frontends.onnx.noted_parameters import KEY, ParameterNotes, notes_text_with_digest
from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost, CountedNode, UncountedNode
from crossflops.load.order import onnx_node_label
from crossflops.load.protobuf import parse_model_proto
from crossflops.load.reader import (
    BYTES,
    HINT,
    Data,
    Field,
    copy_without_large_data,
    encode_bytes_field_header,
    protobuf_fields,
)

# Where the nodes of a model file lie, in bytes. No weight is read.
#
# Field numbers are those of onnx.proto, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto

GRAPH, NODE, METADATA = 7, 1, 9  # ModelProto.graph, GraphProto.node, NodeProto.metadata_props
_OF_MODEL = 14  # ModelProto.metadata_props
_OUTPUT, _NAME, _OP_TYPE = 2, 3, 4


class FileNode(NamedTuple):
    """A node of the main graph: its index, its names, and its field in the graph.

    `result` is the name of its first result.
    """

    number: int
    name: str
    op_type: str
    result: str
    field: Field

    @property
    def id(self) -> str:
        """The id that model-explorer's ONNX adapter gives the node."""
        return self.name or f"<node_{self.number}>"


def main_graph_field(data: Data) -> Field:
    """Return the field of the main graph. Raises TargetError when there is not exactly one."""
    graphs = [
        f for f in protobuf_fields(data, 0, len(data)) if f.number == GRAPH and f.wire == BYTES
    ]
    if len(graphs) != 1:
        raise TargetError(
            f"the file has {len(graphs)} graphs; a model must have exactly one", HINT
        )
    return graphs[0]


def iterate_file_nodes(data: Data, graph: Field) -> Iterator[FileNode]:
    """Yield the nodes of the main graph, in the order of the file."""
    number = 0
    for field in protobuf_fields(data, graph.value, graph.end):
        if field.number == NODE and field.wire == BYTES:
            yield _parse_file_node(data, number, field)
            number += 1


def _parse_file_node(data: Data, number: int, field: Field) -> FileNode:
    """Return a node from its bytes in an ONNX file: its index, name, operator type and first
    output.
    """
    texts: dict[int, str] = {}
    for part in protobuf_fields(data, field.value, field.end):
        if part.number in (_OUTPUT, _NAME, _OP_TYPE) and part.wire == BYTES:
            text = data[part.value : part.end].decode(errors="replace")
            if not (part.number == _OUTPUT and texts.get(_OUTPUT)):
                texts[part.number] = text
    return FileNode(
        number=number,
        name=texts.get(_NAME, ""),
        op_type=texts.get(_OP_TYPE, ""),
        result=texts.get(_OUTPUT, ""),
        field=field,
    )


# What is noted at each node of a model: its counts, or why it has none.

# A node of a graph with the counts of itself and all in it.
NodeCounts: TypeAlias = tuple[Node, Sequence[CountedNode | UncountedNode]]

PREFIX = "crossflops."
_KINDS = ("macs", "flops", "bytes_read", "bytes_written")
_COUNTS = tuple(f"{PREFIX}{word}".encode() for word in (*_KINDS, "exactness", "uncounted"))


class NodeNote(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one node of the model as it stands in its file.

    A node that calls a function or holds bodies bears what all runs of these cost. `id` is the
    node's name, "<node_N>" for the N-th one (from 0) if it has none. `uncounted` is the reason of
    the first node in it that has no count.
    """

    id: str
    cost: Cost
    exactness: str
    uncounted: str = ""

    @property
    def metadata(self) -> dict[str, str]:
        """The counts as key and value texts for the node's metadata; only the reason if the node
        is uncounted.
        """
        if self.uncounted:
            return {f"{PREFIX}uncounted": self.uncounted}
        counts = {f"{PREFIX}{kind}": str(getattr(self.cost, kind)) for kind in _KINDS}
        return counts | {f"{PREFIX}exactness": self.exactness}


def notes_of_graph(counted: Iterable[NodeCounts]) -> dict[str, NodeNote]:
    """Return the counts of a graph's nodes as notes, by node key."""
    return {node.key: _node_note(node.key, counts) for node, counts in counted}


def notes_of_file(
    counted: Iterable[NodeCounts], nodes: Iterable[FileNode], model: Any
) -> dict[str, NodeNote]:
    """Return the counts as notes for the nodes of a file, by the name of a node's first output.

    What a function was inlined to has the key of the calling node before its own; the keys are
    those of `model`, the same nodes in topological order.
    """
    firsts = {node.result: node for node in nodes}
    labels = {
        onnx_node_label(node, number): next(filter(None, node.output), "")
        for number, node in enumerate(model.graph.node)
    }
    inside: dict[str, list[CountedNode | UncountedNode]] = {name: [] for name in firsts}
    for node, counts in counted:
        made = next((spec.name for spec in node.outputs if spec is not None), "")
        if node.key not in labels or made not in firsts:
            made = next(
                (labels[name] for name in _key_and_ancestors(node.key) if name in labels), ""
            )
        if made in inside:
            inside[made] += counts
    return {
        result: _node_note(firsts[result].id, counts)
        for result, counts in inside.items()
        if counts
    }


def _key_and_ancestors(key: str) -> Iterator[str]:
    """Yield the key, then its beginnings that end before a slash, the longest first:
    "a/b", "a".
    """
    while key:
        yield key
        key = key.rpartition("/")[0]


def _node_note(name: str, counts: Sequence[CountedNode | UncountedNode]) -> NodeNote:
    """Return the note of a node: the sum of its counts, its exactness, and a reason if a part is
    uncounted.
    """
    counted = [count for count in counts if isinstance(count, CountedNode)]
    grades = {count.exactness for count in counted}
    return NodeNote(
        id=name,
        cost=sum((count.cost for count in counted), ZERO),
        exactness=next((word for word in ("estimate", "bound") if word in grades), "exact"),
        uncounted=next((count.reason for count in counts if isinstance(count, UncountedNode)), ""),
    )


_KEY = 1  # StringStringEntryProto.key
_BLOCK = 1 << 24


@contextlib.contextmanager
def mapping_onnx_file(path: str) -> Iterator[Data]:
    """Yield the bytes of a file, mapped into memory for the block. Raises TargetError if it cannot
    be read.
    """
    try:
        with (
            open(path, "rb") as file,
            contextlib.closing(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) as mapped,
        ):
            yield mapped
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TargetError(
            f"cannot read {path}: {reason}", "give the path of an ONNX model"
        ) from error


def copy_model_with_notes(
    source: str,
    target: Path,
    notes: Mapping[str, NodeNote],
    locations: Iterable[str] = (),
    parameters: ParameterNotes | None = None,
) -> list[Path]:
    """Copy an ONNX file with notes at its nodes, by the name of their first output; return the
    paths of the written files.

    `locations` are the files of its external data. `parameters` are those of the model that it
    was converted from. Returns what was written. Raises TargetError,
    and CrossflopsError where external data is missing or another file bears its name.
    """
    written = _copy_external_data(Path(source).parent, target.parent, locations)
    with mapping_onnx_file(source) as data, replacing_file(target) as file:
        with open(file, "wb") as out:
            _write_copy_with_notes(data, notes, out)
        if parameters is not None:
            append_parameter_record(file, parameters)
    return [target, *written]


def _write_copy_with_notes(data: Data, notes: Mapping[str, NodeNote], out: IO[bytes]) -> None:
    """Write a copy of an ONNX file to `out`, with the counts of the noted nodes in their
    metadata.
    """
    graph = main_graph_field(data)
    changed = [
        (node.field, _rewrite_node(data, node, notes)) for node in iterate_file_nodes(data, graph)
    ]
    grown = sum(len(new) - (old.end - old.begin) for old, new in changed)
    _copy_bytes(data, 0, graph.begin, out)
    out.write(encode_bytes_field_header(GRAPH, graph.end - graph.value + grown))
    at = graph.value
    for old, new in changed:
        _copy_bytes(data, at, old.begin, out)
        out.write(new)
        at = old.end
    _copy_bytes(data, at, len(data), out)


def _rewrite_node(data: Data, node: FileNode, notes: Mapping[str, NodeNote]) -> bytes:
    """Return the new bytes of a node's field: with its note in the metadata instead of older
    counts, or unchanged without a note.
    """
    note = notes.get(node.result)
    if note is None:
        return data[node.field.begin : node.field.end]
    kept = [
        data[part.begin : part.end]
        for part in protobuf_fields(data, node.field.value, node.field.end)
        if not _is_metadata_of_crossflops(data, part)
    ]
    entries = [_metadata_entry_bytes(key, value) for key, value in note.metadata.items()]
    body = b"".join([*kept, *entries])
    return encode_bytes_field_header(NODE, len(body)) + body


def _is_metadata_of_crossflops(data: Data, part: Field) -> bool:
    """Return whether a field of a node is a metadata entry that crossflops wrote."""
    if part.number != METADATA or part.wire != BYTES:
        return False
    return any(
        entry.number == _KEY and data[entry.value : entry.end] in _COUNTS
        for entry in protobuf_fields(data, part.value, part.end)
        if entry.wire == BYTES
    )


def _metadata_entry_bytes(key: str, value: str, field: int = METADATA) -> bytes:
    """Return a key and its value as a metadata entry, in the bytes of protobuf."""
    texts = (key.encode(), value.encode())
    parts = [
        encode_bytes_field_header(number, len(text)) + text for number, text in enumerate(texts, 1)
    ]
    body = b"".join(parts)
    return encode_bytes_field_header(field, len(body)) + body


def append_parameter_record(file: str | Path, notes: ParameterNotes) -> None:
    """Append a record of the model's parameters to an ONNX file that has no such record.

    A message may have its fields in any order.
    """
    with mapping_onnx_file(str(file)) as data:
        model = parse_model_proto(copy_without_large_data(data))
    with open(file, "ab") as out:
        out.write(_metadata_entry_bytes(KEY, notes_text_with_digest(notes, model), _OF_MODEL))


def _copy_bytes(data: Data, begin: int, end: int, out: IO[bytes]) -> None:
    """Write the bytes from `begin` to `end` of `data` to `out`, block by block."""
    for at in range(begin, end, _BLOCK):
        out.write(data[at : min(at + _BLOCK, end)])


def data_locations(model: Any) -> list[str]:
    """Return the names of the external data files to which the tensors of a model refer,
    sorted.
    """
    locations: dict[str, None] = {}
    todo = [model]
    while todo:
        message = todo.pop()
        if message.DESCRIPTOR.name == "TensorProto":
            names = (entry.value for entry in message.external_data if entry.key == "location")
            locations |= dict.fromkeys(names)
            continue
        for field, value in message.ListFields():
            if field.message_type is not None:
                repeated = not hasattr(value, "DESCRIPTOR")
                todo.extend(value if repeated else (value,))
    return sorted(locations)


def _copy_external_data(source: Path, target: Path, locations: Iterable[str]) -> list[Path]:
    """Copy external data files to another folder if they are missing there; return the paths of
    the new files.
    """
    if source.resolve() == target.resolve():
        return []
    names = list(locations)
    for name in names:
        _check_external_data(source, target, name)
    written = []
    for name in names:
        copy = target / name
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            with replacing_file(copy) as file:
                shutil.copyfile(source / name, file)
            written.append(copy)
    return written


def _check_external_data(source: Path, target: Path, name: str) -> None:
    """Raise CrossflopsError if an external data file cannot be copied: outside the model's folder,
    missing, or in conflict with another file.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise CrossflopsError(
            f"the external data file {name!r} is outside the folder of the model",
            "write the output into the folder of the model",
        )
    if not (source / name).is_file():
        raise CrossflopsError(
            f"the external data file {source / name} does not exist",
            "put it into the folder of the model",
        )
    copy = target / name
    if copy.exists() and not filecmp.cmp(source / name, copy, shallow=False):
        raise CrossflopsError(
            f"{copy} already exists with other contents",
            "write the output into another folder",
        )


# Node data for Google's model-explorer: one number for each node, and colours for them.
#
# The form is that of `GraphNodeData` in model_explorer/node_data_builder.py: `results` by the id
# of the node, and a `gradient` from the smallest to the largest value. Its ONNX adapter
# (model-explorer-onnx) gives a node its name for an id, and a nameless one its place.
# https://github.com/google-ai-edge/model-explorer/wiki/2.-User-Guide

_GRADIENT = (
    {"stop": 0, "bgColor": "#ffffff", "textColor": "#000000"},
    {"stop": 1, "bgColor": "#d94801", "textColor": "#ffffff"},
)


def model_explorer_node_data(
    notes: Iterable[NodeNote], unit: Literal["macs", "flops"] = "macs"
) -> str:
    """Return node data for model-explorer as JSON text, with the MACs or FLOPs of each counted
    node.

    A node without a count has no value, which is not zero.
    """
    results = {
        note.id: {"value": getattr(note.cost, unit)} for note in notes if not note.uncounted
    }
    plain = {"results": results, "gradient": _GRADIENT}
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"
