"""Read a model file without its weights, strictly by the wire format of protobuf.

The file is mapped into memory and walked field by field, so that only the pages that hold the
structure are touched, whatever the size of the file. Field numbers are those of onnx.proto,
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto

Small tensors that a model keeps in a file beside it are brought in: the sizes of a Reshape, and
their like. A file may hold all of its tensors apart (`size_threshold=0`), those that sizes follow
from too. No more is read of them than of tensors inside: payloads of at most 1 KiB. The large ones
are left where they are, and need not be there. https://onnx.ai/onnx/repo-docs/ExternalData.html
"""

import os
import stat
from collections.abc import Iterator
from functools import lru_cache
from mmap import mmap
from pathlib import Path, PurePath
from typing import Any, Final, NamedTuple, TypeAlias

from crossflops.errors import TargetError
from crossflops.ir.graph import TensorSpec
from crossflops.load import payload
from crossflops.load.payload import ELEMENT_TYPES, all_graph_tensors

# The protobuf wire format, read strictly: a message is a row of fields.
#
# https://protobuf.dev/programming-guides/encoding/

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Data: TypeAlias = bytes | mmap  # a mapped file, of which only what is asked for is touched
_WIDTH = {FIXED64: 8, FIXED32: 4}
_MOST = 1 << 64
HINT = "the file is damaged or is not an ONNX model; export or copy it again"


class Field(NamedTuple):
    """A protobuf field: its number, wire type, and positions of tag, value and next field.

    `value` is the number of a varint, and the position of the first byte of anything else.
    """

    number: int
    wire: int
    begin: int
    value: int
    end: int


def file_format_error(problem: str, offset: int) -> TargetError:
    """Return the error for bytes at `offset` that break the protobuf format."""
    return TargetError(f"the file is not valid: {problem} at byte {offset}", HINT)


def decode_varint(data: Data, at: int, end: int) -> tuple[int, int]:
    """Return the integer of the varint that begins at `at`, and the position after it.

    Raises TargetError when it is longer than ten bytes, above 64 bits, or cut off by `end`.
    """
    value = shift = 0
    begin = at
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= _MOST:
                raise file_format_error("a number of more than 64 bits", begin)
            return value, at
        shift += 7
        if shift == 70:
            raise file_format_error("a number of more than ten bytes", begin)
    raise file_format_error("the file or a message ends inside a number", begin)


def protobuf_fields(data: Data, begin: int, end: int) -> Iterator[Field]:
    """Yield the protobuf fields of the message from position `begin` to `end`."""
    return map(Field._make, protobuf_field_rows(data, begin, end))


def protobuf_field_rows(
    data: Data, begin: int, end: int
) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield the fields of a message as tuples in the order of `Field`, faster than
    `protobuf_fields`.

    Raises TargetError on a wire type that does not exist or is no longer in use, on field
    number 0 or above 2^29, and on a length that goes beyond the message.
    """
    at = begin
    while at < end:
        start, tag = at, data[at]
        if tag < 0x80:
            at += 1
        else:
            tag, at = decode_varint(data, at, end)
        wire = tag & 7
        value = at
        if wire == BYTES:
            # Written out for short ones: a node may have a million inputs.
            if at < end and (length := data[at]) < 0x80:
                value = at + 1
            else:
                length, value = decode_varint(data, at, end)
            at = value + length
        elif wire == VARINT:
            value, at = decode_varint(data, at, end)
        elif wire in _WIDTH:
            at += _WIDTH[wire]
        else:
            raise file_format_error(f"wire type {wire}", start)
        if not 0 < tag >> 3 < 1 << 29:
            raise file_format_error(f"field number {tag >> 3}", start)
        if at > end:
            raise file_format_error(
                f"a field of {at - value} bytes extends beyond its message", start
            )
        yield tag >> 3, wire, start, value, at


@lru_cache(maxsize=4096)  # nodes that are alike are as long
def encode_bytes_field_header(number: int, length: int) -> bytes:
    """Return the encoded tag and length that precede the value of a field of bytes."""
    return _encode_varint(number << 3 | BYTES) + _encode_varint(length)


def _encode_varint(value: int) -> bytes:
    """Return an unsigned integer as a varint of protobuf's wire format."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SMALL = 1024  # a message of up to this size holds no larger payload: it is copied as it is
_LARGEST_STRING = 1 << 16  # a compiled blob in an attribute is as little use as a weight
_LARGEST_REST = 1 << 28
_DEEPEST = 100  # as deep as protobuf itself goes
_MOST_ELEMENTS = 1 << 16  # written one by one: usually all of a tensor lie in one field
_MOST_FIELDS = (
    1 << 21
)  # of the whole file: a hundred thousand nodes with all their notes have less

_KEPT_METADATA: Final = (
    b"pkg.torch.onnx.name_scopes",
    b"pkg.torch.onnx.class_hierarchy",
    b"crossflops.operation",
)
# How an entry begins whose key stands first, as every writer has it: its tag, its length, the key.
_KEY = b"\x0a"
_KEPT_HEADS: Final = tuple(_KEY + bytes([len(key)]) + key for key in _KEPT_METADATA)
_LONGEST_HEAD = max(map(len, _KEPT_HEADS))
_DROP, _METADATA, _STRING, _TENSOR = "drop", "metadata", "string", "tensor"

# What is in the messages of a model: the number of a field -> how it is copied.
_MESSAGES: dict[str, dict[int, str]] = {
    "model": {6: _DROP, 7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: _TENSOR, 10: _DROP, 15: "sparse", 16: _METADATA},
    "function": {7: "node", 8: _DROP, 11: "attribute", 14: _METADATA},
    "node": {5: "attribute", 6: _DROP, 9: _METADATA},
    "attribute": {
        4: _STRING,
        5: _TENSOR,
        6: "graph",
        10: _TENSOR,
        11: "graph",
        13: _DROP,
        22: "sparse",
        23: "sparse",
    },
    "sparse": {1: _TENSOR, 2: _TENSOR},
}
# The bytes up to which a field is copied as it is, whatever is in it.
_COPIED = {**dict.fromkeys((*_MESSAGES, _TENSOR), SMALL), _STRING: _LARGEST_STRING}
_COPIED |= dict.fromkeys((_DROP, _METADATA), -1)


def copy_without_large_data(data: Data, external_file: str = "") -> bytes:
    """Return the bytes of an ONNX model without large tensor data, doc strings and stack traces.

    What remains is a ModelProto of its own. If `external_file` names a file beside it that has the
    data, payloads of raw bytes are external data in that file, and others remain. Raises
    TargetError, which names the byte, when the file is damaged, a payload has not the size that
    its tensor says, or too much remains.
    """
    return _ModelCopier(data, external_file).copy_message("model", 0, len(data), 0)


class _ModelCopier:
    def __init__(self, data: Data, external_file: str) -> None:
        """Take the bytes of a model; `external_file` will hold its tensors ("": none does)."""
        self._data = data
        self._external_file = external_file
        self._dropped = (payload.RAW_DATA,) if external_file else payload.FIELDS
        self._kept = 0
        self._fields = 0

    def copy_message(self, kind: str, begin: int, end: int, depth: int) -> bytes:
        """Return a copy of a protobuf message of this kind, without large tensor data."""
        if depth > _DEEPEST:
            raise TargetError(
                f"the file is nested deeper than {_DEEPEST} levels at byte {begin}",
                "reduce the nesting of If, Loop and Scan",
            )
        if kind == _TENSOR:
            return self._copy_tensor_message(begin, end)
        inside, data, fields_left = _MESSAGES[kind], self._data, _MOST_FIELDS - self._fields
        kept = self._kept
        parts: list[bytes] = []
        at = run = begin  # what lies between `run` and the current field is copied in one piece
        while at < end:
            if not fields_left:
                raise file_format_error(f"more than {_MOST_FIELDS} fields", at)
            fields_left -= 1
            # Written out for what nearly all of a file is: bytes with a length below 2^14.
            start, number = at, 0
            if at + 2 < end and (tag := data[at]) & 0x87 == BYTES:
                if (length := data[at + 1]) < 0x80:
                    number, value = tag >> 3, at + 2
                    at = value + length
                elif (high := data[at + 2]) < 0x80:
                    number, value = tag >> 3, at + 3
                    at = value + (length & 0x7F | high << 7)
            if not number or at > end:
                number, wire, start, value, at = next(protobuf_field_rows(data, start, end))
                if wire != BYTES:
                    continue
            if number not in inside:
                continue
            config = inside[number]
            if config == _METADATA:
                head = data[value : min(at, value + _LONGEST_HEAD)]
                if head.startswith(_KEPT_HEADS):
                    continue
                if not head.startswith(_KEY) and self._is_metadata_kept(value, at):
                    continue
            elif at - value <= _COPIED[config]:
                continue
            if start > run:
                kept += start - run
                if kept > _LARGEST_REST:
                    raise _model_too_large_error()
                parts.append(data[run:start])
            run = at
            if config in _MESSAGES or config == _TENSOR:
                self._fields, self._kept = _MOST_FIELDS - fields_left, kept
                copied = self.copy_message(config, value, at, depth + 1)
                parts += (encode_bytes_field_header(number, len(copied)), copied)
                fields_left, kept = _MOST_FIELDS - self._fields, self._kept
        self._fields, self._kept = _MOST_FIELDS - fields_left, kept
        if end > run:
            parts.append(self._take_bytes(run, end))
        return b"".join(parts)

    def _is_metadata_kept(self, begin: int, end: int) -> bool:
        """Return whether a metadata entry is kept: it has an exporter's note about modules.

        They are a StringStringEntryProto.
        """
        for entry in protobuf_fields(self._data, begin, end):
            if entry.number == 1 and entry.wire == BYTES:
                return entry.end - entry.value < 64 and (
                    self._data[entry.value : entry.end] in _KEPT_METADATA
                )
        return False

    def _copy_tensor_message(self, begin: int, end: int) -> bytes:
        """Return the bytes of a TensorProto without large data, whose size is checked."""
        parts: list[bytes] = []
        dims: list[int] = []
        element_type, run, large = 0, begin, {0: 0}
        for count, (number, wire, start, value, at) in enumerate(
            protobuf_field_rows(self._data, begin, end)
        ):
            if count > _MOST_ELEMENTS:
                raise file_format_error("a tensor that is written element by element", begin)
            if number == 1:
                dims += self._decode_dims(wire, value, at)
            elif number == 2 and wire == VARINT:
                element_type = value
            drop = number in self._dropped and at - value > SMALL
            if wire == BYTES and (drop or number == 12):
                parts.append(self._take_bytes(run, start))
                run = at
                if drop and self._external_file:
                    parts.append(
                        _encode_external_data_fields(self._external_file, value, at - value)
                    )
                if drop:
                    large[number] = large.get(number, 0) + at - value
        parts.append(self._take_bytes(run, end))
        if not large.keys() <= {0, payload.RAW_DATA}:
            note = payload.LISTED.encode()
            parts.append(encode_bytes_field_header(12, len(note)) + note)
        shape = tuple(dims)
        for number, nbytes in large.items():
            wrong = number and (
                payload.tensor_dims_problem(shape)
                or payload.data_size_problem(shape, element_type, number, nbytes)
            )
            if wrong:
                raise file_format_error(f"a tensor {wrong},", begin)
        return b"".join(parts)

    def _decode_dims(self, wire: int, value: int, end: int) -> list[int]:
        """Return the sizes in a `dims` field of a tensor: one varint, or packed ones to `end`."""
        if wire == VARINT:
            return [_to_signed_varint(value)]
        dims, at = [], value
        if wire == BYTES:
            while at < end:
                size, at = decode_varint(self._data, at, end)
                dims.append(_to_signed_varint(size))
        return dims

    def _take_bytes(self, begin: int, end: int) -> bytes:
        """Return bytes `begin` to `end` of the model. Raises TargetError above a size limit."""
        self._kept += end - begin
        if self._kept > _LARGEST_REST:
            raise _model_too_large_error()
        return self._data[begin:end]


def _model_too_large_error() -> TargetError:
    """Return the error for a model that is too large even without its weights."""
    return TargetError(
        f"the model without its weights is larger than {_LARGEST_REST} bytes",
        "store large constants as initializers instead of attributes of nodes",
    )


def _encode_external_data_fields(file: str, offset: int, length: int) -> bytes:
    """Return the encoded TensorProto fields for data in a file, at `offset`, `length` bytes long.

    https://onnx.ai/onnx/repo-docs/ExternalData.html
    """
    index = {"location": file, "offset": offset, "length": length}
    entries = []
    for key, value in index.items():
        texts = (key.encode(), str(value).encode())
        entry = b"".join(
            encode_bytes_field_header(n, len(text)) + text for n, text in enumerate(texts, 1)
        )
        entries.append(encode_bytes_field_header(13, len(entry)) + entry)
    return b"".join(entries) + _encode_varint(14 << 3 | VARINT) + b"\x01"


def _to_signed_varint(value: int) -> int:
    """Return a 64-bit varint as a signed integer (two's complement)."""
    return value - (1 << 64) if value >> 63 else value


# Small tensors in a file beside the model.

_EXTERNAL = 1  # TensorProto.DataLocation
PLACE = (
    b"location"  # the key of where a tensor lies: a model without this word has all its tensors
)


def load_small_external_tensors(model: Any, folder: Path) -> None:
    """Load small tensors from external files of a folder into the model, in place.

    One whose file is missing, too short, no regular file or outside of the folder stays outside.
    Where it lies stays noted: who copies the model copies that file, too.
    """
    for tensor in all_graph_tensors(model.graph):
        index, nbytes = external_data_file(tensor), _tensor_nbytes(tensor)
        if not index or not 0 < nbytes <= SMALL:
            continue
        data = _read_external_data(folder, index, tensor, nbytes)
        if len(data) == nbytes:
            tensor.raw_data = data
            tensor.ClearField("data_location")


def external_data_file(tensor: Any) -> str:
    """Return the file name of a TensorProto's external data, "" if it has none."""
    if tensor.data_location != _EXTERNAL:
        return ""
    return next((entry.value for entry in tensor.external_data if entry.key == PLACE.decode()), "")


def open_without_waiting(path: str, flags: int) -> int:
    """Return the descriptor of a file opened without blocking, even if it is a named pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _tensor_nbytes(tensor: Any) -> int:
    """Return the bytes that a TensorProto's elements take by type and dims; 0 for strings."""
    dtype = ELEMENT_TYPES.get(tensor.data_type, "string")
    return 0 if dtype == "string" else TensorSpec("", dtype, tuple(tensor.dims)).nbytes


def _read_external_data(folder: Path, location: str, tensor: Any, nbytes: int) -> bytes:
    """Return the first `nbytes` of a tensor's external data; fewer if the file lacks them."""
    inside = PurePath(location)
    if inside.anchor or ".." in inside.parts:
        return b""
    try:
        offset = next((int(e.value) for e in tensor.external_data if e.key == "offset"), 0)
        with open(folder / location, "rb", buffering=0, opener=open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return b""
            file.seek(offset)
            return file.read(nbytes)
    except (OSError, ValueError, OverflowError):
        return b""
