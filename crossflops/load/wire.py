"""The protobuf wire format, read strictly: a message is a row of fields.

https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator
from mmap import mmap
from typing import NamedTuple, TypeAlias

from crossflops.errors import TargetError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Data: TypeAlias = bytes | mmap  # a mapped file, of which only what is asked for is touched
_WIDTH = {FIXED64: 8, FIXED32: 4}
_MOST = 1 << 64
HINT = "the file is damaged, or is no ONNX model: export or copy it again"


class Field(NamedTuple):
    """One field: its number, its wire type, where its tag, its value and the next field begin.

    `value` is the number of a varint, and the position of the first byte of anything else.
    """

    number: int
    wire: int
    begin: int
    value: int
    end: int


def damaged(what: str, offset: int) -> TargetError:
    """The error of a file that does not follow the format."""
    return TargetError(f"{what} at byte {offset}", HINT)


def varint(data: Data, at: int, end: int) -> tuple[int, int]:
    """The number that begins at `at`, and where it ends.

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
                raise damaged("a number of more than 64 bits", begin)
            return value, at
        shift += 7
        if shift == 70:
            raise damaged("a number of more than ten bytes", begin)
    raise damaged("the file ends, or a message does, within a number", begin)


def fields(data: Data, begin: int, end: int) -> Iterator[Field]:
    """The fields of the message that lies between `begin` and `end`.

    Raises TargetError on a wire type that does not exist or is no longer in use, on field
    number 0 or above 2^29, and on a length that goes beyond the message.
    """
    at = begin
    while at < end:
        start, tag = at, data[at]
        if tag < 0x80:
            at += 1
        else:
            tag, at = varint(data, at, end)
        wire = tag & 7
        value = at
        if wire == BYTES:
            length, value = varint(data, at, end)
            at = value + length
        elif wire == VARINT:
            value, at = varint(data, at, end)
        elif wire in _WIDTH:
            at += _WIDTH[wire]
        else:
            raise damaged(f"wire type {wire}", start)
        if not 0 < tag >> 3 < 1 << 29:
            raise damaged(f"field number {tag >> 3}", start)
        if at > end:
            raise damaged(f"a field of {at - value} bytes reaches beyond its message", start)
        yield Field(tag >> 3, wire, start, value, at)


def length_prefix(number: int, length: int) -> bytes:
    """Tag and length of a field of bytes."""
    return _encoded(number << 3 | BYTES) + _encoded(length)


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
