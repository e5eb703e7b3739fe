"""The ONNX nodes that the form of an operator writes are written once for each signature.

A form is a function of Python that asks its operands for their types and shapes alone. What it
writes for a call is written again for calls that are alike, in this program and in others.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from torch import fx

_KEPT_FORMS = 5_000
_KNOWN: "OrderedDict[Any, _Written]" = OrderedDict()


class _NotPlainError(Exception):
    """An input of a form is not covered by its key."""


class _Given(msgspec.Struct, frozen=True):
    """The index of a value among the arguments of a form."""

    place: int


class _Made(msgspec.Struct, frozen=True):
    """A result of a node that a form writes."""

    node: int
    place: int


class _Node(NamedTuple):
    """A node that a form writes; `constant` is the key of a number that all forms share."""

    domain: str
    op_type: str
    overload: str
    version: int | None
    inputs: tuple[Any, ...]
    attributes: tuple[Any, ...]
    results: tuple[tuple[Any, Any], ...]  # type and shape
    constant: Any


class _Written(NamedTuple):
    """The nodes that a form writes for values of these types and shapes."""

    given: tuple[Any, ...]
    nodes: tuple[_Node, ...]
    outputs: Any


def form_of(
    node: "fx.Node", flags: tuple[Any, ...], find: Callable[[], tuple[Any, str]]
) -> tuple[Any, str]:
    """Return the form of an operator of a program, as a replay of its known nodes where possible.

    `find` returns the form itself, or None and a reason. `flags` say which of several forms it is.
    """
    try:
        key = _node_form_key(node, flags)
    except _NotPlainError:
        return find()
    written = _KNOWN.get(key)
    if written is not None:
        _KNOWN.move_to_end(key)
        return partial(_write_again, written, find), ""
    form, why = find()
    return (partial(_write_and_store_form, key, form), why) if form is not None else (None, why)


# What decides.

_OWN = ("aten", "prims")
_PLAIN = (int, float, bool, str, type(None))


def _node_form_key(node: "fx.Node", flags: tuple[Any, ...]) -> Any:
    import torch

    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in _OWN:
        raise _NotPlainError  # others may write without their recorder
    known: dict[Any, int] = {}
    args = _form_argument_key(node.args, known)
    named = tuple((name, _form_argument_key(value, known)) for name, value in node.kwargs.items())
    tensors = tuple(_tensor_key(at.meta.get("val")) for at in known)
    return target, flags, args, named, tensors, torch.get_default_dtype()


def _form_argument_key(argument: Any, known: dict[Any, int]) -> Any:
    import torch

    if isinstance(argument, torch.fx.Node):
        return _Given(known.setdefault(argument, len(known)))
    if isinstance(argument, list | tuple):
        return tuple(_form_argument_key(item, known) for item in argument)
    if type(argument) in _PLAIN:
        return type(argument), repr(argument)
    if isinstance(argument, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return argument
    raise _NotPlainError


def _tensor_key(value: Any) -> Any:
    import torch

    if isinstance(value, list | tuple):
        return tuple(map(_tensor_key, value))
    if not isinstance(value, torch.Tensor):
        raise _NotPlainError
    if not all(type(extent) is int for extent in value.shape):
        raise _NotPlainError
    return value.dtype, tuple(value.shape)


def _value_key(value: Any) -> Any:
    """Return the facts of a value that a form may read."""
    kind, shape = value.type, value.shape
    return str(kind), None if shape is None else tuple(map(str, shape))


def _onnx_values_by_id(arguments: Any, stored: dict[int, Any]) -> dict[int, Any]:
    """Return the values in arguments by their identity, each once."""
    import onnx_ir as ir

    if isinstance(arguments, ir.Value):
        stored.setdefault(id(arguments), arguments)
    elif isinstance(arguments, list | tuple):
        for item in arguments:
            _onnx_values_by_id(item, stored)
    elif isinstance(arguments, dict):
        for item in arguments.values():
            _onnx_values_by_id(item, stored)
    return stored


def _with_other_values(arguments: Any, others: dict[int, Any]) -> Any:
    """Return the arguments with other values in them."""
    import onnx_ir as ir

    if isinstance(arguments, ir.Value):
        return others[id(arguments)]
    if isinstance(arguments, list | tuple):
        return type(arguments)([_with_other_values(item, others) for item in arguments])
    if isinstance(arguments, dict):
        return {name: _with_other_values(item, others) for name, item in arguments.items()}
    return arguments


# Writing.


def _write_and_store_form(key: Any, form: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Write the nodes of a form, and store them for replay."""
    values = [*_onnx_values_by_id([args, kwargs], {}).values()]
    try:
        written = _record_form_nodes(form, args, kwargs, values)
    except Exception:  # of the form: it says so where it is called itself
        return form(*args, **kwargs)
    _KNOWN[key] = written
    while len(_KNOWN) > _KEPT_FORMS:
        _KNOWN.popitem(last=False)
    return _replay_form_nodes(written, values)


def _write_again(
    written: _Written, find: Callable[[], tuple[Any, str]], *args: Any, **kwargs: Any
) -> Any:
    """Replay the known nodes of a form, or call it where it gets other values."""
    values = [*_onnx_values_by_id([args, kwargs], {}).values()]
    if tuple(map(_value_key, values)) != written.given:
        form, _ = find()
        return form(*args, **kwargs)
    return _replay_form_nodes(written, values)


def _record_form_nodes(form: Any, args: Any, kwargs: Any, values: Sequence[Any]) -> _Written:
    """Return the nodes of a form, called on new values."""
    from onnxscript import evaluator
    from torch.onnx._internal.exporter import _building, _core, _tensors

    tracer: Any = _core.current_tracer
    own = [
        _tensors.SymbolicTensor(
            tracer.opset,
            name=value.name,
            shape=_copy_type_or_shape(value.shape),
            type=_copy_type_or_shape(value.type),
        )
        for value in values
    ]
    others = {id(value): other for value, other in zip(values, own, strict=True)}
    recorder: Any = _building.OpRecorder(tracer.opset, {})
    with evaluator.default_as(recorder):
        outputs = form(*_with_other_values(args, others), **_with_other_values(kwargs, others))
    nodes, constants = recorder.nodes, recorder.constant_farm
    if recorder.functions:
        raise _NotPlainError
    keys = {id(value): name for name, value in constants.items()}
    known: dict[int, Any] = {id(value): _Given(index) for index, value in enumerate(own)}
    known[id(None)] = None
    written = []
    for number, node in enumerate(nodes):
        for index, value in enumerate(node.outputs):
            known[id(value)] = _Made(number, index)
        attributes = tuple(node.attributes.values())
        if any("GRAPH" in attribute.type.name for attribute in attributes) or node.metadata_props:
            raise _NotPlainError
        written.append(
            _Node(
                node.domain,
                node.op_type,
                node.overload,
                node.version,
                tuple(known[id(value)] for value in node.inputs),
                attributes,
                tuple(
                    (_copy_type_or_shape(value.type), _copy_type_or_shape(value.shape))
                    for value in node.outputs
                ),
                keys.get(id(node.outputs[0])),
            )
        )
    several = isinstance(outputs, list | tuple)
    results = [known[id(value)] for value in (outputs if several else [outputs])]
    provided = tuple(map(_value_key, values))
    return _Written(provided, tuple(written), type(outputs)(results) if several else results[0])


def _copy_type_or_shape(value: Any) -> Any:
    """Return a separate copy of a type or a shape, because values change theirs."""
    if isinstance(value, tuple | type(None)):
        return value
    return value.copy() if hasattr(value, "copy") else copy.copy(value)


def _replay_form_nodes(written: _Written, values: Sequence[Any]) -> Any:
    """Write the nodes on these values."""
    import onnx_ir as ir
    from torch.onnx._internal.exporter import _core, _tensors

    tracer: Any = _core.current_tracer
    made: list[Any] = []

    def value_of(index: Any) -> Any:
        if isinstance(index, _Made):
            return made[index.node][index.place]
        return None if index is None else values[index.place]

    for node in written.nodes:
        shared = None if node.constant is None else tracer.constant_farm.get(node.constant)
        if shared is not None:
            made.append((shared,))
            continue
        outputs = [
            _tensors.SymbolicTensor(
                tracer.opset, type=_copy_type_or_shape(kind), shape=_copy_type_or_shape(shape)
            )
            for kind, shape in node.results
        ]
        tracer.nodes.append(
            ir.Node(
                node.domain,
                node.op_type,
                [value_of(index) for index in node.inputs],
                node.attributes,
                overload=node.overload,
                outputs=outputs,
                version=node.version,
            )
        )
        if node.constant is not None:
            tracer.constant_farm[node.constant] = outputs[0]
        made.append(outputs)
    if isinstance(written.outputs, list | tuple):
        return type(written.outputs)([value_of(index) for index in written.outputs])
    return value_of(written.outputs)
