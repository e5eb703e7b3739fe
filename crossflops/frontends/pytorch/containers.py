"""Values that hold tensors and are no lists, tuples or dicts: what PyTorch's trees do not know.

A dataclass, a UserDict (a BatchEncoding of transformers is one) or a SimpleNamespace holds named
values. torch.export takes none of them apart, unless the caller registers its class.
"""

import dataclasses
from collections import UserDict
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


def named_values(value: Any) -> dict[Any, Any] | None:
    """What such a value holds, by name; None of any other."""
    if isinstance(value, UserDict):
        return dict(value.data)
    if isinstance(value, SimpleNamespace):
        return dict(vars(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    return None


def plainly(value: Any) -> Any:
    """The value with dicts in the place of such containers, in lists, tuples and dicts too."""
    from torch.utils._pytree import SUPPORTED_NODES

    if type(value) in (list, tuple):
        return type(value)(map(plainly, value))
    if type(value) is dict:
        return {name: plainly(item) for name, item in value.items()}
    held = None if type(value) in SUPPORTED_NODES else named_values(value)
    return value if held is None else {name: plainly(item) for name, item in held.items()}


@contextmanager
def taken_apart(inputs: Any) -> Iterator[None]:
    """In this context PyTorch's trees take the containers in these inputs apart.

    The classes are registered, and forgotten behind the context.
    """
    from torch.utils import _pytree

    added: list[type] = []
    try:
        for kind in dict.fromkeys(_kinds(inputs)):
            if kind not in _pytree.SUPPORTED_NODES:
                _register(kind)
                added.append(kind)
        yield
    finally:
        for kind in added:
            _pytree._deregister_pytree_node(kind)


def _kinds(value: Any) -> Iterator[type]:
    """The classes of all such containers in a value, also of those in others."""
    if isinstance(value, list | tuple):
        inner: Any = value
    elif isinstance(value, dict):
        inner = value.values()
    else:
        held = named_values(value)
        if held is None:
            return
        yield type(value)
        inner = held.values()
    for item in inner:
        yield from _kinds(item)


class _Beside:
    """What an instance has beside its named values. For a tree any two are alike."""

    def __init__(self, value: Any, names: Any) -> None:
        self.attributes = {
            name: held
            for name, held in getattr(value, "__dict__", {}).items()
            if name not in names and name != "data"
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Beside)

    def __hash__(self) -> int:
        return 0


def _register(kind: Any) -> None:
    from torch.utils import _pytree

    def flatten(value: Any) -> tuple[list[Any], Any]:
        held = named_values(value) or {}
        return list(held.values()), (tuple(held), _Beside(value, held))

    def with_keys(value: Any) -> tuple[list[Any], Any]:
        items, context = flatten(value)
        keys = map(_pytree.MappingKey, context[0])
        return list(zip(keys, items, strict=True)), context

    def unflatten(items: Any, context: Any) -> Any:
        names, beside = context
        value = kind.__new__(kind)
        held = dict(zip(names, items, strict=True))
        held = {"data": held} if issubclass(kind, UserDict) else held
        for name, item in {**beside.attributes, **held}.items():
            object.__setattr__(value, name, item)  # the class may be frozen
        return value

    _pytree._private_register_pytree_node(
        kind,
        flatten,
        unflatten,
        serialized_type_name=f"{kind.__module__}.{kind.__qualname__}",
        flatten_with_keys_fn=with_keys,
    )
