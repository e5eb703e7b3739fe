"""Attributes of a node as plain values."""

from typing import Any

from crossflops.core.graph import Attribute

_FLOAT, _INT, _STRING, _FLOATS, _INTS, _STRINGS = 1, 2, 3, 6, 7, 8  # AttributeProto.AttributeType


def attributes(node: Any) -> dict[str, Attribute]:
    """The attributes that are numbers or texts, or lists of them."""
    found: dict[str, Attribute] = {}
    for one in node.attribute:
        if one.type == _FLOAT:
            found[one.name] = one.f
        elif one.type == _INT:
            found[one.name] = one.i
        elif one.type == _STRING:
            found[one.name] = one.s.decode(errors="replace")
        elif one.type == _FLOATS:
            found[one.name] = tuple(one.floats)
        elif one.type == _INTS:
            found[one.name] = tuple(one.ints)
        elif one.type == _STRINGS:
            found[one.name] = tuple(text.decode(errors="replace") for text in one.strings)
    return found
