"""What a model returns -> the tensors in it, which is all that an export can return."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any


def exportable(result: Any) -> Any:
    """The result itself where it holds nothing but tensors, else the tensors in it, in order.

    Numbers, texts and None go. So do the shells of classes that PyTorch cannot take apart:
    what they hold stays, so that the work behind it is not taken for dead. A generator, whose
    work has yet to be done, is run to its end.
    """
    from torch.utils._pytree import tree_leaves

    return result if all(map(_is_tensor, tree_leaves(result))) else tuple(_tensors(result, set()))


def _is_tensor(value: Any) -> bool:
    """Whether this is a tensor, or a number that was read out of one."""
    import torch

    return isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool)


def _tensors(value: Any, seen: set[int]) -> Iterator[Any]:
    if _is_tensor(value):
        yield value
    elif id(value) not in seen:
        seen.add(id(value))
        for item in _items(value):
            yield from _tensors(item, seen)


def _items(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset | Iterator):
        yield from value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, one.name, None) for one in dataclasses.fields(value))
    elif not isinstance(value, type | torch.nn.Module):
        yield from getattr(value, "__dict__", {}).values()
