"""The tensors in nested arguments and results as specs, and the plain values in them as settings.

Some values hold tensors and are no lists, tuples or dicts, so that PyTorch's trees do not know
them: a dataclass, a UserDict (a BatchEncoding of transformers is one) or a SimpleNamespace holds
named values. torch.export takes none of them apart, unless the caller registers its class.
"""

import copy
import dataclasses
import functools
from collections import UserDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from crossflops.frontends.batches import is_keyed_object, record_values
from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Scalar

if TYPE_CHECKING:
    from torch import nn


@functools.lru_cache(maxsize=128)
def dtype_name(dtype: object) -> str:
    """Return the name of a dtype, such as "float32" for `torch.float32`."""
    name = str(dtype).removeprefix("torch.").replace("float8_", "float8")
    return name.removesuffix("fnu") if name == "float8e8m0fnu" else name


def torch_tensor_spec(name: str, tensor: Any) -> TensorSpec:
    """Return name, dtype and shape of a real, fake or traced tensor.

    Modes that see calls of PyTorch, ours and those of an export, would see each query of a type or
    a shape, so it is read without them; a tensor class with its own `__torch_function__` is still
    queried through it.
    """
    import torch

    usual = torch.Tensor.__torch_function__, torch._C._disabled_torch_function_impl
    if type(tensor).__torch_function__ not in usual:
        return TensorSpec(name, dtype_name(tensor.dtype), _static_tensor_shape(tensor))
    with torch._C.DisableTorchFunction():
        return TensorSpec(name, dtype_name(tensor.dtype), _static_tensor_shape(tensor))


def _static_tensor_shape(tensor: Any) -> tuple[int, ...] | None:
    """Return the shape of a tensor; None if a size depends on values or is ragged."""
    if tensor.is_nested:
        return None
    shape = tuple(tensor.shape)
    if all(type(size) is int for size in shape):
        return shape
    known = tuple(extent for size in shape if (extent := _static_extent(size)) is not None)
    return known if len(known) == len(shape) else None


def _static_extent(extent: Any) -> int | None:
    """Return a size as an integer; None if it is an unknown symbol."""
    if isinstance(extent, int):
        return extent
    known = extent.node.maybe_as_int()
    return int(known) if known is not None else None


def torch_tensor_specs(values: Any, name: str = "") -> Iterator[TensorSpec]:
    """Yield the spec of each tensor in nested containers, named by its path: "0", "1.0",
    "mask".
    """
    import torch

    if isinstance(values, torch.Tensor):
        yield torch_tensor_spec(name or "0", values)
        return
    if isinstance(values, Mapping):
        items = [(str(key), value) for key, value in values.items()]
    elif isinstance(values, tuple | list):
        items = [(str(index), value) for index, value in enumerate(values)]
    else:
        return
    for index, value in items:
        yield from torch_tensor_specs(value, f"{name}.{index}" if name else index)


_WITHOUT_TENSORS = frozenset((bool, int, float, str, bytes, type(None)))


def tensor_attributes(module: "nn.Module") -> Iterator[Any]:
    """Yield the attributes of a module that may hold a tensor; its submodules are left out.

    Most attributes are numbers and empty tables of hooks: to flatten each of them by PyTorch's
    trees would take longer than all else.
    """
    for name, value in vars(module).items():
        if name == "_modules" or type(value) in _WITHOUT_TENSORS:
            continue
        if isinstance(value, dict):
            yield from (item for item in value.values() if type(item) not in _WITHOUT_TENSORS)
        else:
            yield value


def torch_value_kind(value: Any) -> str:
    """Return the kind of a module's result: "tensor", "sequence", "mapping", "none" or
    "object".
    """
    import torch

    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, Mapping):
        return "mapping"
    if isinstance(value, tuple | list):
        return "sequence"
    return "none" if value is None else "object"


def plain_arguments_by_name(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the arguments that are plain JSON values, by position (as text) or keyword."""
    named = {**{str(index): value for index, value in enumerate(args)}, **kwargs}
    plain_values = {name: plain_json_value(value) for name, value in named.items()}
    return {name: value for name, value in plain_values.items() if value is not None}


def list_argument_names(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the positions or keywords of the plain arguments that are lists, not tuples."""
    named = {**{str(index): value for index, value in enumerate(args)}, **kwargs}
    return tuple(
        name for name, value in named.items() if type(value) is list and plain_json_value(value)
    )


def plain_json_value(value: Any) -> Scalar:
    """Return a plain value as JSON takes it; None for a tensor or an object.

    NumPy's scalars become Python's: some are a kind of float or str that JSON does not take. So
    does an integer in a sequence that is a tensor, as in `size=(rows.sum(), 8)`, if its value is
    known.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        items = [_plain_item(item) for item in value]
        return items if all(item is not None for item in items) else None
    kind = type(value).__name__
    return str(value) if kind in {"dtype", "device", "memory_format", "layout"} else None


def _plain_item(value: Any) -> Scalar:
    """Return an item of a sequence as JSON takes it; None for an object, and for a tensor that is
    not one known integer.

    A tensor of an export with values has them beside it.
    """
    tensor = getattr(value, "real_tensor", None)
    if tensor is None:
        tensor = value
    if f"{type(tensor).__module__}.{type(tensor).__name__}" != "torch.Tensor":
        return plain_json_value(tensor)

    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with torch._C.DisableTorchFunction(), _disable_current_modes():
        is_index = tensor.dim() == 0 and tensor.dtype in (torch.int32, torch.int64)
        is_known = not (tensor.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(tensor))
        return int(tensor) if is_index and is_known else None


# What a model returns -> the tensors in it, which is all that an export can return.


def to_exportable_result(result: Any) -> Any:
    """Return the result of a model as it is, or as a tuple of its tensors if torch.export rejects
    its type.

    Numbers, texts and None are dropped. Containers of classes that PyTorch cannot flatten are
    dropped too, but their tensors stay, so that the work behind them is not dead. A generator,
    whose work has yet to be done, is run to its end.
    """
    from torch.utils._pytree import tree_leaves

    return (
        result
        if all(map(_is_tensor_or_symbol, tree_leaves(result)))
        else tuple(_tensors_in_output(result, set()))
    )


def _is_tensor_or_symbol(value: Any) -> bool:
    """Return True if a value is a tensor, or a symbolic number that was read from one."""
    import torch

    return isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool)


def _tensors_in_output(value: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the tensors and symbolic numbers nested in the output of a model, in order; add ids of
    visited values to `seen`.
    """
    if _is_tensor_or_symbol(value):
        yield value
    elif id(value) not in seen:
        seen.add(id(value))
        for item in _value_items(value):
            yield from _tensors_in_output(item, seen)


def _value_items(value: Any) -> Iterator[Any]:
    """Yield the values in a container, a dataclass or an object with attributes."""
    import torch

    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset | Iterator):
        yield from value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, field.name, None) for field in dataclasses.fields(value))
    elif not isinstance(value, type | torch.nn.Module):
        yield from getattr(value, "__dict__", {}).values()


def resize_tensor_axis(tensor: Any, axis: int, size: int) -> Any:
    """Return a tensor with another size along an axis, whose values are those of the tensor again
    and again: an index stays valid.
    """
    import torch

    positions = torch.arange(size, device=tensor.device) % tensor.shape[axis]
    resized = tensor.detach().index_select(axis, positions)
    return resized.requires_grad_(tensor.requires_grad)


# Values that hold tensors and are no lists, tuples or dicts.


def values_by_name(value: Any) -> dict[Any, Any] | None:
    """Return the values in a dataclass, a namespace, a UserDict or an object with keys by name;
    None for another value.
    """
    if isinstance(value, UserDict):
        return dict(value.data)
    if isinstance(value, SimpleNamespace):
        return dict(vars(value))
    if is_keyed_object(value):
        return record_values(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    return None


def with_plain_dicts(value: Any) -> Any:
    """Return a value in which dataclasses, namespaces and UserDicts are dicts, at any depth."""
    from torch.utils._pytree import SUPPORTED_NODES

    if type(value) in (list, tuple):
        return type(value)(map(with_plain_dicts, value))
    if type(value) is dict:
        return {name: with_plain_dicts(item) for name, item in value.items()}
    stored = None if type(value) in SUPPORTED_NODES else values_by_name(value)
    return (
        value
        if stored is None
        else {name: with_plain_dicts(item) for name, item in stored.items()}
    )


@contextmanager
def registering_input_containers(inputs: Any) -> Iterator[None]:
    """Let PyTorch flatten the dataclasses, namespaces and UserDicts in these inputs, inside the
    block.

    The classes are registered, and removed when the context ends.
    """
    from torch.utils import _pytree

    added: list[type] = []
    try:
        for kind in dict.fromkeys(_container_classes(inputs)):
            if kind not in _pytree.SUPPORTED_NODES:
                _register_container_class(kind)
                added.append(kind)
        yield
    finally:
        for kind in added:
            _pytree._deregister_pytree_node(kind)


def _container_classes(value: Any) -> Iterator[type]:
    """Yield the class of each dataclass, namespace and UserDict in a value, also of nested
    ones.
    """
    if isinstance(value, list | tuple):
        inner: Any = value
    elif isinstance(value, dict):
        inner = value.values()
    else:
        stored = values_by_name(value)
        if stored is None:
            return
        yield type(value)
        inner = stored.values()
    for item in inner:
        yield from _container_classes(item)


class _InstanceExtras:
    """The attributes of a container other than its named values; any two compare as equal.

    `keyed` is a container that holds its values by key, of which a copy is changed; else None.
    """

    def __init__(self, value: Any, names: Any) -> None:
        """Store an object's attributes except those with these names."""
        self.attributes = {
            name: stored
            for name, stored in getattr(value, "__dict__", {}).items()
            if name not in names and name != "data"
        }
        self.keyed = value if is_keyed_object(value) else None

    def __eq__(self, other: object) -> bool:
        """Return whether the other is of this class too; contents are not compared."""
        return isinstance(other, _InstanceExtras)

    def __hash__(self) -> int:
        """Return 0, as all instances compare equal."""
        return 0


def _register_container_class(kind: Any) -> None:
    """Register a class as a container of PyTorch's trees, so that `torch.export` finds the tensors
    in it.
    """
    from torch.utils import _pytree

    def flatten_container(value: Any) -> tuple[list[Any], Any]:
        """Return the values in a container, and (their names, its other attributes)."""
        stored = values_by_name(value) or {}
        return list(stored.values()), (tuple(stored), _InstanceExtras(value, stored))

    def flatten_container_with_keys(value: Any) -> tuple[list[Any], Any]:
        """Return (key, value) for each value in a container, and (their names, its other
        attributes).
        """
        items, context = flatten_container(value)
        keys = map(_pytree.MappingKey, context[0])
        return list(zip(keys, items, strict=True)), context

    def rebuild_container(items: Any, context: Any) -> Any:
        """Return a container of the registered class with these values and attributes."""
        names, additional = context
        if additional.keyed is not None:
            value = copy.copy(additional.keyed)
            for name, item in zip(names, items, strict=True):
                value[name] = item
            return value
        value = kind.__new__(kind)
        stored = dict(zip(names, items, strict=True))
        stored = {"data": stored} if issubclass(kind, UserDict) else stored
        for name, item in {**additional.attributes, **stored}.items():
            object.__setattr__(value, name, item)  # the class may be frozen
        return value

    _pytree._private_register_pytree_node(
        kind,
        flatten_container,
        rebuild_container,
        serialized_type_name=f"{kind.__module__}.{kind.__qualname__}",
        flatten_with_keys_fn=flatten_container_with_keys,
    )
