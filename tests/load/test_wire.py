"""The wire format is read strictly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.errors import TargetError
from crossflops.load.reader import BYTES, decode_varint, encode_bytes_field_header, protobuf_fields


def encoded(value: int) -> bytes:
    """A varint, by the definition: seven bits a byte, the lowest first."""
    digits = [value & 0x7F]
    while value := value >> 7:
        digits.append(value & 0x7F)
    return bytes([d | 0x80 for d in digits[:-1]] + [digits[-1]])


@given(st.integers(0, 2**64 - 1))
def test_a_number_is_read_as_it_was_written(value):
    """Every number of 64 bits comes back, with where it ends."""
    data = encoded(value)
    assert decode_varint(data + b"\xff", 0, len(data)) == (value, len(data))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\xff" * 11, "more than ten bytes"),
        (b"\xff" * 9 + b"\x02", "more than 64 bits"),
        (b"\x80\x80", "ends"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(data, what):
    """Too long, too large, or cut off: an error that names the byte."""
    with pytest.raises(TargetError, match=f"{what}.* at byte 0"):
        decode_varint(data, 0, len(data))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x0b", "wire type 3"),
        (b"\x0f", "wire type 7"),
        (b"\x02\x00", "field number 0"),
        (b"\x0a\x05abc", "5 bytes extends beyond"),
        (b"\x0d\x00", "4 bytes extends beyond"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "extends beyond"),
    ],
)
def test_a_field_that_is_none_is_refused(data, what):
    """Groups, unknown wire types, number 0 and lengths beyond the end are errors."""
    with pytest.raises(TargetError, match=what):
        list(protobuf_fields(data, 0, len(data)))


@given(st.integers(1, 2**29 - 1), st.binary(max_size=300))
def test_a_prefix_and_its_bytes_are_a_field(number, value):
    """What is written with a prefix is read as that field."""
    data = encode_bytes_field_header(number, len(value)) + value
    (field,) = protobuf_fields(data, 0, len(data))
    assert (field.number, field.wire, data[field.value : field.end]) == (number, BYTES, value)
