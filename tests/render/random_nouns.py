"""Nouns with figures left empty, by the types of their fields: what a page may be given.

A noun that is whole is taken apart by `msgspec.inspect`, so that a new field is in it by itself.
"""

import random
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.inspect import NoneType, StructType, Type, UnionType, type_info

NAMES = (
    "", "|", "a|b\nc", "<script>alert(1)</script>", "`*_[x](y)", "\\alpha_{%$#&~^}", "日本語" * 9,
    "\x1b[31mred\x1b[0m\x07", "x" * 300, "\u202egnp.exe", "=1+1", '"quoted", and',
    "\U0001f600", " ", "a b\tc", "\r\n", "{{ 7 * 7 }}",
)  # fmt: skip
INTEGERS = (0, 1, 2**63, 10**30)
NUMBERS = (1e-30, 1.0, 1e30)  # a time or a rate that was measured is not 0: it is left out
EMPTY = ({}, (), [], "")


def randomized(noun: msgspec.Struct, random: random.Random, rate: float = 0.15) -> Any:
    """Return the noun with about `rate` of its figures left out, empty, zero or odd.

    Texts that are the key of something stay whole: a text is odd wherever it stands, or nowhere.
    """
    return _Randomizer(random, rate).changed(noun, type_info(type(noun)))


class _Randomizer:
    def __init__(self, random: random.Random, rate: float) -> None:
        self._random, self._rate = random, rate
        self._texts: dict[str, str] = {}

    def _hit(self) -> bool:
        return self._random.random() < self._rate

    def changed(self, value: Any, kind: Type) -> Any:
        if isinstance(value, msgspec.Struct):
            return self._struct(value)
        if isinstance(value, tuple | list):
            fixed = isinstance(kind, msgspec.inspect.TupleType)
            kept = [self.changed(item, kind) for item in value if fixed or not self._hit()]
            return type(value)(kept) if type(value) in (tuple, list) else value
        if isinstance(value, dict):
            return {key: self.changed(item, kind) for key, item in value.items()}
        return value

    def _struct(self, value: msgspec.Struct) -> Any:
        info = type_info(type(value))
        assert isinstance(info, StructType)
        fields = {
            field.name: self._field(getattr(value, field.name), field) for field in info.fields
        }
        return msgspec.structs.replace(value, **fields)

    def _field(self, value: Any, field: msgspec.inspect.Field) -> Any:
        if field.name in _LINKED and isinstance(value, tuple):
            return tuple(self.changed(item, field.type) for item in value)
        if self._hit():
            absent = list(_absent(field))
            if absent:
                return self._random.choice(absent)
            if isinstance(field.type, msgspec.inspect.IntType):
                return self._random.choice(INTEGERS[1:2] if field.name in _SMALL else INTEGERS)
            if isinstance(field.type, msgspec.inspect.FloatType):
                return self._random.choice(NUMBERS)
        if isinstance(field.type, msgspec.inspect.StrType) and field.name in _FREE:
            return self._texts.setdefault(value, self._text(value))
        return self.changed(value, field.type)

    def _text(self, value: str) -> str:
        return self._random.choice(NAMES) if self._hit() else value


# Each of these has its counterpart in the other: no report has one alone.
_LINKED = {"profiles", "reconciliations"}
_SMALL = {"depth", "digits", "opset"}

# Texts that nothing else is looked up by.
_FREE = frozenset({
    "name", "source", "device", "message", "hint", "stage", "why", "goal", "title", "kernel", "op",
    "does", "precision", "runtime", "optimization", "printed_as", "note", "target", "digest",
})  # fmt: skip


def _absent(field: msgspec.inspect.Field) -> Any:
    """What stands there where there is no figure."""
    kinds = field.type.types if isinstance(field.type, UnionType) else (field.type,)
    if any(isinstance(kind, NoneType) for kind in kinds):
        yield None
    if field.default is UNSET or field.default in EMPTY:
        yield field.default
