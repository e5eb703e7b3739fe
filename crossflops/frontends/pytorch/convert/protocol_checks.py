"""A faster check of typing protocols, which onnx_ir makes for every tensor and node.

Python 3.11 collects the names of a protocol anew for each check; 3.12 and later keep them.
Source: Lib/typing.py (`_get_protocol_attrs`).
"""

import typing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

_COLLECT = "_get_protocol_attrs"


@contextmanager
def reusing_protocol_attributes() -> Iterator[None]:
    """Collect the attribute names of each typing protocol only once inside the block."""
    collect: Any = getattr(typing, _COLLECT, None)
    if collect is None or hasattr(typing.SupportsInt, "__protocol_attrs__"):
        yield
        return
    known: dict[type, set[str]] = {}

    def protocol_attribute_names_once(protocol: type) -> set[str]:
        """Return the attribute names of a protocol, collected once for each protocol."""
        if protocol not in known:
            known[protocol] = collect(protocol)
        return known[protocol]

    with patching_attribute(typing, _COLLECT, protocol_attribute_names_once, inventory.PROTOCOLS):
        yield
