"""Calls of a program that are decomposed together, and the pieces into which they are decomposed.

A piece is a list of operators that refer to the operands of the calls and to each other. The
signature of calls has all that their decomposition depends on: the operators, their settings, and
how their operands lie in memory.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from torch import fx

Signature: TypeAlias = tuple[Any, ...]


class NotUnderstoodError(Exception):
    """An error of a program that has a part which cannot be decomposed by signature."""


class TensorLayout(NamedTuple):
    """The facts of a tensor on which a decomposition may depend."""

    dtype: Any
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: Any
    requires_grad: bool = False


class PieceOperand(msgspec.Struct, frozen=True):
    """A reference to a tensor by its index among the operands of a call."""

    place: int


class PieceResult(msgspec.Struct, frozen=True):
    """A reference to the result of a step in a piece (the decomposition of one signature)."""

    step: int


class PieceStep(NamedTuple):
    """One operator of a piece, the decomposition of one signature. `layout` is that of its result:
    one, a tuple, or None.

    `origin` is the index of its node among those that were decomposed together.
    """

    origin: int
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    layout: Any


class CallDecomposition(NamedTuple):
    """The operators into which a call is decomposed, unused ones too, and its results.

    Layouts are those of the results. `is_placed` means that it holds for operands that begin where
    their memory does.
    """

    steps: tuple[PieceStep, ...]
    results: tuple[PieceOperand | PieceResult, ...]
    layouts: tuple[TensorLayout, ...]
    is_placed: bool


class CallSequence(NamedTuple):
    """The calls of a program that are decomposed together, in most cases one.

    `signature` is None for a call that stays whole, as `target`. `operands` are the outer nodes
    that they read, `outlets` those of their nodes that others read. For one operator that writes
    into a tensor, `written` is the node of that tensor.
    """

    nodes: tuple["fx.Node", ...]
    target: Any
    signature: Signature | None
    operands: tuple["fx.Node", ...]
    outlets: tuple["fx.Node", ...]
    written: "fx.Node | None" = None

    @property
    def result_values(self) -> list[Any]:
        """The fake tensors of all results of the run, in order, without those that are None."""
        values = [node.meta.get("val") for node in self.outlets]
        flat = [list(value) if isinstance(value, list | tuple) else [value] for value in values]
        return [item for items in flat for item in items if item is not None]


def is_plain_operator(target: Any, spaces: Sequence[str] = ("aten",)) -> bool:
    """Return True if `target` is an operator overload of one of the namespaces `spaces`."""
    from torch._ops import OpOverload

    return isinstance(target, OpOverload) and target.namespace in spaces


def fake_tensor_layout(value: Any, is_leaf: bool = False) -> TensorLayout:
    """Return dtype, shape, stride and device of a fake tensor, and `requires_grad` for a leaf.
    Raises NotUnderstoodError for other tensors.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if type(value) is not FakeTensor or value.layout is not torch.strided:
        raise NotUnderstoodError(type(value))
    shape, stride = tuple(value.shape), value.stride()
    if not all(type(extent) is int for extent in (*shape, *stride)):
        raise NotUnderstoodError("open sizes")
    if value.dtype.is_complex or value.is_quantized or value.is_neg():
        raise NotUnderstoodError(value.dtype)
    return TensorLayout(value.dtype, shape, stride, value.device, is_leaf and value.requires_grad)


def layouts_of_nested_tensors(value: Any) -> Any:
    """Return the layout of a fake tensor; for a list a tuple of layouts, and None for None."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return tuple(map(layouts_of_nested_tensors, value))
    return fake_tensor_layout(value)


_PLAIN = (int, float, bool, str, type(None))


def _decomposition_argument_key(
    argument: Any, known: dict["fx.Node", Any], operands: list["fx.Node"]
) -> Any:
    """Return an argument of a call as a hashable key, in which a tensor is its index among
    `operands`; append new tensors to `operands` and `known`.
    """
    import torch

    if isinstance(argument, torch.fx.Node):
        if argument not in known:
            known[argument] = PieceOperand(len(operands))
            operands.append(argument)
        return known[argument]
    if isinstance(argument, list | tuple):
        return ("list", *(_decomposition_argument_key(item, known, operands) for item in argument))
    if type(argument) in _PLAIN:
        return type(argument), repr(argument)
    if isinstance(argument, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return argument
    raise NotUnderstoodError(type(argument))


def call_sequence_signature(
    nodes: Sequence["fx.Node"], targets: Sequence[Any], outlets: Sequence["fx.Node"]
) -> Signature:
    """Return the cache key of the decomposition of a run: its operators, arguments and operand
    layouts.
    """
    known: dict[fx.Node, Any] = {}
    operands: list[fx.Node] = []
    calls = []
    for number, (node, target) in enumerate(zip(nodes, targets, strict=True)):
        args = _decomposition_argument_key(node.args, known, operands)
        named = tuple(
            (name, _decomposition_argument_key(value, known, operands))
            for name, value in node.kwargs.items()
        )
        calls.append((target, args, named))
        known[node] = PieceResult(number)
    layouts = tuple(
        fake_tensor_layout(at.meta.get("val"), at.op == "placeholder") for at in operands
    )
    return (*calls, tuple(known[node] for node in outlets), layouts)


# Operators that write into a tensor become those that give a new one.


def out_of_place_operator(target: Any) -> Any:
    """Return the operator that does the same without writing in place: `add` for `add_`. Raises
    NotUnderstoodError if there is none.
    """
    import torch
    from torch._export.utils import _is_cia_op

    if _is_cia_op(target):
        return target  # which may write nothing, as a dropout outside of training
    name = target._schema.name.partition("::")[2]
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    twin = getattr(packet, target._overloadname, None)
    if not name.endswith("_") or name.endswith("__") or twin is None:
        raise NotUnderstoodError(target)
    names = [[item.name for item in form._schema.arguments] for form in (target, twin)]
    if names[0] != names[1] or len(twin._schema.returns) != 1 or twin._schema.is_mutable:
        raise NotUnderstoodError(target)
    return twin


def is_in_place_operator_call(node: "fx.Node") -> bool:
    """Return True if the node calls an ATen operator that changes an argument in place."""
    return is_plain_operator(node.target) and node.target._schema.is_mutable


def storage_ids(value: Any) -> list[Any]:
    """Return the ids of the storages of a tensor, or of all tensors in a list; [] for other
    values.
    """
    import torch

    if isinstance(value, list | tuple):
        return [memory for item in value for memory in storage_ids(item)]
    if not isinstance(value, torch.Tensor):
        return []
    try:
        return [value.untyped_storage()._cdata]
    except (RuntimeError, NotImplementedError):
        return []


def tensor_from_layout(layout: TensorLayout) -> Any:
    """Return a new uninitialized tensor with this layout."""
    import torch

    tensor = torch.empty_strided(
        layout.shape, layout.stride, dtype=layout.dtype, device=layout.device
    )
    return tensor.requires_grad_() if layout.requires_grad else tensor


def map_leaves(argument: Any, change: Callable[[Any], Any]) -> Any:
    """Return `argument`, nested lists and dicts, with each leaf replaced by `change(leaf)`."""
    if isinstance(argument, list | tuple):
        return type(argument)(map_leaves(item, change) for item in argument)
    if isinstance(argument, Mapping):
        return {name: map_leaves(item, change) for name, item in argument.items()}
    return change(argument)
