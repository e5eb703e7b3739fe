"""Read Universal Binary JSON, in which XGBoost writes its models: https://ubjson.org"""

import struct
from typing import Any

_NUMBERS = {
    b"i": ">b", b"U": ">B", b"I": ">h", b"l": ">i", b"L": ">q", b"d": ">f", b"D": ">d",
}  # fmt: skip
_PLAIN = {b"Z": None, b"T": True, b"F": False}
_DEEPEST = 100


class _UbjsonReader:
    """Reads values from bytes, from a position on."""

    def __init__(self, data: bytes) -> None:
        """Start at the first byte."""
        self._data, self._at = data, 0

    def _take_bytes(self, count: int) -> bytes:
        """Return the next `count` bytes and move behind them. Raises ValueError if there are
        fewer.
        """
        if count < 0 or self._at + count > len(self._data):
            raise ValueError(f"the file ends before byte {self._at + count}")
        taken = self._data[self._at : self._at + count]
        self._at += count
        return taken

    def _next_marker(self) -> bytes:
        """Return the next type marker (one byte), after skipping no-op markers."""
        marker = self._take_bytes(1)
        while marker == b"N":
            marker = self._take_bytes(1)
        return marker

    def _read_number(self, marker: bytes) -> Any:
        """Return the next number, of the type that the marker names."""
        if marker not in _NUMBERS:
            raise ValueError(f"{marker!r} is no number, at byte {self._at}")
        form = _NUMBERS[marker]
        return struct.unpack(form, self._take_bytes(struct.calcsize(form)))[0]

    def _read_text(self) -> str:
        """Return the next text, which is stored as its length and its bytes."""
        return self._take_bytes(int(self._read_number(self._next_marker()))).decode()

    def read_value(self, marker: bytes = b"", depth: int = 0) -> Any:
        """Return the next value; `marker` is its type marker if that was read already. Raises
        ValueError.
        """
        if depth > _DEEPEST:
            raise ValueError("values are nested too deeply")
        marker = marker or self._next_marker()
        if marker in _PLAIN:
            return _PLAIN[marker]
        if marker == b"S":
            return self._read_text()
        if marker == b"C":
            return self._take_bytes(1).decode()
        if marker == b"H":
            return float(self._read_text())
        if marker in (b"[", b"{"):
            return self._read_container(marker == b"{", depth)
        return self._read_number(marker)

    def _read_container(self, has_keys: bool, depth: int) -> Any:
        """Return the next list, or with `has_keys` the next dict."""
        kind, count, end = b"", -1, b"}" if has_keys else b"]"
        marker = self._next_marker()
        if marker == b"$":
            kind = self._take_bytes(1)
            marker = self._next_marker()
        if marker == b"#":
            count = int(self._read_number(self._next_marker()))
            if kind in _NUMBERS and not has_keys:
                form = _NUMBERS[kind]
                row = self._take_bytes(count * struct.calcsize(form))
                return list(struct.unpack(f">{count}{form[1]}", row))
            marker = b""
        items: list[Any] = []
        keys: list[str] = []
        while count < 0 or len(items) < count:
            marker = marker or (b"" if count >= 0 and not has_keys else self._next_marker())
            if count < 0 and marker == end:
                break
            if has_keys:
                keys.append(self._take_bytes(int(self._read_number(marker))).decode())
                items.append(self.read_value(kind, depth + 1))
            else:
                items.append(self.read_value(kind or marker, depth + 1))
            marker = b""
        return dict(zip(keys, items, strict=True)) if has_keys else items


def read_ubjson(data: bytes) -> Any:
    """Return the value that the bytes of a UBJSON file encode. Raises ValueError."""
    return _UbjsonReader(data).read_value()
