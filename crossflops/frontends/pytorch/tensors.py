"""Tensors in nests of arguments and results -> specs; everything plain in them -> settings."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Scalar


def dtype_name(dtype: object) -> str:
    """`torch.float32` -> "float32", `torch.float8_e4m3fn` -> "float8e4m3fn"."""
    name = str(dtype).removeprefix("torch.").replace("float8_", "float8")
    return name.removesuffix("fnu") if name == "float8e8m0fnu" else name


def spec(name: str, tensor: Any) -> TensorSpec:
    """The spec of a tensor, real, fake or proxied."""
    return TensorSpec(name, dtype_name(tensor.dtype), _shape(tensor))


def _shape(tensor: Any) -> tuple[int, ...] | None:
    """The shape, None where an extent depends on values, or on rows of different lengths."""
    if tensor.is_nested:
        return None
    extents = [_extent(size) for size in tensor.shape]
    known = tuple(extent for extent in extents if extent is not None)
    return known if len(known) == len(extents) else None


def _extent(extent: Any) -> int | None:
    """An extent, which is a symbol for as long as it is unknown."""
    if isinstance(extent, int):
        return extent
    known = extent.node.maybe_as_int()
    return int(known) if known is not None else None


def specs(values: Any, name: str = "") -> Iterator[TensorSpec]:
    """The tensors in nested tuples, lists, mappings, named by place: "0", "1.0", "mask"."""
    import torch

    if isinstance(values, torch.Tensor):
        yield spec(name or "0", values)
        return
    if isinstance(values, Mapping):
        items = [(str(key), value) for key, value in values.items()]
    elif isinstance(values, tuple | list):
        items = [(str(place), value) for place, value in enumerate(values)]
    else:
        return
    for place, value in items:
        yield from specs(value, f"{name}.{place}" if name else place)


def kind(value: Any) -> str:
    """What sort of thing a module returned: "tensor", "sequence", "mapping", "none", "object"."""
    import torch

    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, Mapping):
        return "mapping"
    if isinstance(value, tuple | list):
        return "sequence"
    return "none" if value is None else "object"


def settings(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Scalar]:
    """The plain arguments, by place or by keyword."""
    named = {**{str(place): value for place, value in enumerate(args)}, **kwargs}
    plain_values = {name: plain(value) for name, value in named.items()}
    return {name: value for name, value in plain_values.items() if value is not None}


def lists(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """The names, as in `settings`, of plain arguments that are lists and not tuples."""
    named = {**{str(place): value for place, value in enumerate(args)}, **kwargs}
    return tuple(name for name, value in named.items() if type(value) is list and plain(value))


def plain(value: Any) -> Scalar:
    """A JSON value for what is plain, None for a tensor or an object.

    NumPy's scalars are those of Python: some are a kind of float or str that JSON does not take.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        items = [plain(item) for item in value]
        return items if all(item is not None for item in items) else None
    kind = type(value).__name__
    return str(value) if kind in {"dtype", "device", "memory_format", "layout"} else None


# What a model returns -> the tensors in it, which is all that an export can return.


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
        yield from (getattr(value, field.name, None) for field in dataclasses.fields(value))
    elif not isinstance(value, type | torch.nn.Module):
        yield from getattr(value, "__dict__", {}).values()
