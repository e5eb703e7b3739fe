"""Which Keras layer opened which name scope: seen while the model is traced, not guessed."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

Row = TypeVar("Row")
_CALLS = ("StatefulPartitionedCall", "PartitionedCall")


@contextmanager
def recorded(scopes: dict[str, Any]) -> Iterator[None]:
    """Write the layer of every name scope into `scopes` while this is open.

    keras/src/layers/layer.py: `Layer.__call__` enters `backend.name_scope(name, caller=self)`;
    TensorFlow makes the name unique in its graph, so it is asked which one it took.
    """
    if "keras" not in sys.modules:
        yield
        return
    from keras.src.backend.tensorflow.core import name_scope
    from tensorflow.compat.v1 import get_default_graph

    enter = name_scope.__enter__

    def entered(self: Any) -> Any:
        found = enter(self)
        if self.caller is not None:
            scopes.setdefault(get_default_graph().get_name_scope(), self.caller)
        return found

    name_scope.__enter__ = entered
    try:
        yield
    finally:
        name_scope.__enter__ = enter


def scope_of(name: str, scopes: Mapping[str, Row]) -> str | None:
    """The innermost known scope around an operation, None where there is none.

    The names in an inlined function or the body of a loop stand behind those of what called it,
    and repeat them or begin anew: "lstm/while/body/_1/lstm/while/cell/MatMul" is in
    "lstm/while/cell".
    """
    parts = name.split("/")[:-1]
    found: str | None = None
    begin = 0
    while begin < len(parts):
        scope, end = _longest(parts, begin, scopes)
        called = not begin or parts[begin - 1].startswith(_CALLS)
        if scope is not None and (called or found is None or scope.startswith(f"{found}/")):
            found, begin = scope, end
        else:
            begin += 1
    return found


def _longest(parts: list[str], begin: int, scopes: Mapping[str, Row]) -> tuple[str | None, int]:
    """The longest known scope that begins there, and where it ends."""
    for end in range(len(parts), begin, -1):
        scope = "/".join(parts[begin:end])
        if scope in scopes:
            return scope, end
    return None, begin + 1
