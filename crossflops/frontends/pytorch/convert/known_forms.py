"""The ONNX nodes that the form of an operator writes are written once for each signature.

A form is a function of Python that asks its operands for their types and shapes alone. What it
writes for a call is written again for calls that are alike, in this program and in others, without
what a folder of constants would take away again.
"""

import copy
import operator
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from crossflops.frontends.pytorch.convert.form_folding import (
    FoldedForm,
    FormNode,
    GivenValue,
    MadeValue,
    fold_form,
)
from crossflops.frontends.pytorch.convert.reference import is_reference_export
from crossflops.patches import inventory
from crossflops.patches.patching import original, owner_of, patching_attribute

if TYPE_CHECKING:
    from torch import fx

_KEPT_FORMS = 5_000
_KNOWN: "OrderedDict[Any, _WrittenForm]" = OrderedDict()


class _NotPlainError(Exception):
    """An input of a form is not covered by its key."""


class _WrittenForm(NamedTuple):
    """The nodes that a form writes for values of these types and shapes."""

    given: tuple[Any, ...]
    types: tuple[tuple[Any, tuple[int, ...] | None], ...]  # of what is given; extents if all known
    nodes: tuple[FormNode, ...]
    outputs: Any
    folded: dict[Any, FoldedForm | None]  # by which outputs are used, and whether a bias is


class WritingPlace:
    """Where the exporter writes: at which operator call of a program, and into which graph.

    There is none where nothing that is written is computed beforehand.
    """

    def __init__(self) -> None:
        self.node: fx.Node | None = None
        self.graph: Any = None


@contextmanager
def noting_places(exported: Any) -> Iterator[WritingPlace]:
    """Yield the place where the exporter writes in this context.

    The notes that it makes for the ONNX nodes of an operator call are made once.
    """
    place = WritingPlace()
    exporter = owner_of(inventory.EXPORT_CALLS)
    names = inventory.EXPORT_CALLS.names
    if is_reference_export() or not all(hasattr(exporter, name) for name in names):
        yield place
        return
    translate, annotate = (original(exporter, name, inventory.EXPORT_CALLS) for name in names)
    may_fold = _has_plain_names(exported)

    def translate_here(model: Any, node: Any, *args: Any, **kwargs: Any) -> Any:
        graph = kwargs.get("graph_like")
        place.graph = graph if may_fold and graph is model.graph else None
        place.node = node
        return translate(model, node, *args, **kwargs)

    noted: list[Any] = [None, {}]

    def annotate_once(fx_node: Any, ir_node: Any) -> None:
        if noted[0] is not fx_node:
            notes = SimpleNamespace(metadata_props={})
            annotate(fx_node, notes)
            noted[:] = fx_node, notes.metadata_props
        ir_node.metadata_props.update(noted[1])

    with (
        patching_attribute(exporter, names[0], translate_here, inventory.EXPORT_CALLS),
        patching_attribute(exporter, names[1], annotate_once, inventory.EXPORT_CALLS),
    ):
        yield place


_NUMBERED = re.compile(r"val_\d+")  # as ONNX nodes without a name call their results


def _has_plain_names(exported: Any) -> bool:
    """Whether the program holds no other, and nothing is called as results are."""
    import torch

    modules = exported.graph_module.modules()
    if sum(isinstance(module, torch.fx.GraphModule) for module in modules) > 1:
        return False
    names = [*exported.state_dict, *exported.constants]
    names += [node.name for node in exported.graph_module.graph.nodes]
    return not any(map(_NUMBERED.fullmatch, names))


def form_of(
    node: "fx.Node",
    flags: tuple[Any, ...],
    find: Callable[[], tuple[Any, str]],
    place: WritingPlace,
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
        return partial(_write_again, written, find, place), ""
    form, why = find()
    if form is None:
        return None, why
    return partial(_write_and_store_form, key, form, place), why


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
        return GivenValue(known.setdefault(argument, len(known)))
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


def _write_and_store_form(
    key: Any, form: Callable[..., Any], place: WritingPlace, *args: Any, **kwargs: Any
) -> Any:
    """Write the nodes of a form, and store them for replay."""
    values = [*_onnx_values_by_id([args, kwargs], {}).values()]
    try:
        written = _record_form_nodes(form, args, kwargs, values)
    except Exception:  # of the form: it says so where it is called itself
        return form(*args, **kwargs)
    _KNOWN[key] = written
    while len(_KNOWN) > _KEPT_FORMS:
        _KNOWN.popitem(last=False)
    return _replay_form_nodes(written, values, place)


def _write_again(
    written: _WrittenForm,
    find: Callable[[], tuple[Any, str]],
    place: WritingPlace,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Replay the known nodes of a form, or call it where it gets other values."""
    values = [*_onnx_values_by_id([args, kwargs], {}).values()]
    if tuple(map(_value_key, values)) != written.given:
        form, _ = find()
        return form(*args, **kwargs)
    return _replay_form_nodes(written, values, place)


def _record_form_nodes(form: Any, args: Any, kwargs: Any, values: Sequence[Any]) -> _WrittenForm:
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
    known: dict[int, Any] = {id(value): GivenValue(index) for index, value in enumerate(own)}
    known[id(None)] = None
    written = []
    for number, node in enumerate(nodes):
        for index, value in enumerate(node.outputs):
            known[id(value)] = MadeValue(number, index)
        attributes = tuple(node.attributes.values())
        if any("GRAPH" in attribute.type.name for attribute in attributes) or node.metadata_props:
            raise _NotPlainError
        written.append(
            FormNode(
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
    outputs = type(outputs)(results) if several else results[0]
    provided = tuple(map(_value_key, values))
    types = tuple(map(_type_and_extents, values))
    return _WrittenForm(provided, types, tuple(written), outputs, {})


def _type_and_extents(value: Any) -> tuple[Any, tuple[int, ...] | None]:
    extents = None if value.shape is None else tuple(value.shape.dims)
    is_known = extents is not None and all(type(extent) is int for extent in extents)
    return value.dtype, extents if is_known else None


def _copy_type_or_shape(value: Any) -> Any:
    """Return a separate copy of a type or a shape, because values change theirs."""
    if isinstance(value, tuple | type(None)):
        return value
    return value.copy() if hasattr(value, "copy") else copy.copy(value)


def _replay_form_nodes(written: _WrittenForm, values: Sequence[Any], place: WritingPlace) -> Any:
    """Write the nodes on these values."""
    from torch.onnx._internal.exporter import _core

    tracer: Any = _core.current_tracer
    folded = None if place.graph is None else _folded_form(written, tracer, place)
    if folded is not None:
        return _replay_folded_form(written, folded, values, tracer, place)
    made: list[Any] = []
    for node in written.nodes:
        shared = None if node.constant is None else tracer.constant_farm.get(node.constant)
        if shared is not None:
            made.append((shared,))
            continue
        outputs = _new_results(node, tracer)
        tracer.nodes.append(
            _new_form_node(node, [_value_at(at, values, made) for at in node.inputs], outputs)
        )
        if node.constant is not None:
            tracer.constant_farm[node.constant] = outputs[0]
        made.append(outputs)
    return _form_results(written, values, made)


def _value_at(index: Any, values: Sequence[Any], made: Sequence[Any]) -> Any:
    if isinstance(index, MadeValue):
        return made[index.node][index.place]
    return None if index is None else values[index.place]


def _form_results(written: _WrittenForm, values: Sequence[Any], made: Sequence[Any]) -> Any:
    if isinstance(written.outputs, list | tuple):
        return type(written.outputs)([_value_at(at, values, made) for at in written.outputs])
    return _value_at(written.outputs, values, made)


def _new_results(node: FormNode, tracer: Any) -> list[Any]:
    from torch.onnx._internal.exporter import _tensors

    return [
        _tensors.SymbolicTensor(
            tracer.opset, type=_copy_type_or_shape(kind), shape=_copy_type_or_shape(shape)
        )
        for kind, shape in node.results
    ]


def _new_form_node(node: FormNode, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    import onnx_ir as ir

    return ir.Node(
        node.domain,
        node.op_type,
        inputs,
        node.attributes,
        overload=node.overload,
        outputs=outputs,
        version=node.version,
    )


# Writing what is left when numbers are computed.

MAKER = "crossflops.maker"  # of a number: the name of the operator call that it is computed for
REPLACED = "crossflops.replaced"  # nodes that a folder would have written before this


def _folded_form(written: _WrittenForm, tracer: Any, place: WritingPlace) -> FoldedForm | None:
    """Return what is left of a form here, None where all of it is written."""
    assert place.node is not None
    results = written.outputs if isinstance(written.outputs, list | tuple) else [written.outputs]
    used = _used_results(place.node, len(results))
    is_unbiased = not _takes_bias(place.node)
    key = used, is_unbiased
    if key not in written.folded:
        evaluator = owner_of(inventory.FOLDED_VALUES)()
        written.folded[key] = fold_form(
            written.nodes,
            results,
            used,
            written.types,
            is_unbiased,
            lambda name, *numbers, **attributes: evaluator.evaluate(
                "", name, tracer.opset.version, *numbers, **attributes
            ),
        )
    folded = written.folded[key]
    if folded is None:
        return None
    for name in folded.shared:  # a number that is the result of an operator call, too
        shared = tracer.constant_farm.get(name)
        if shared is not None and not _NUMBERED.fullmatch(shared.name or ""):
            return None
    return folded


def _takes_bias(node: "fx.Node") -> bool:
    return len(node.args) > 2 and node.args[2] is not None


def _used_results(node: "fx.Node", number: int) -> frozenset[int]:
    """The places of the results of an operator call that something takes."""
    is_each = number > 1 and all(user.target is operator.getitem for user in node.users)
    if not is_each:
        return frozenset(range(number))
    return frozenset(int(str(user.args[1])) for user in node.users)


def _replay_folded_form(
    written: _WrittenForm,
    folded: FoldedForm,
    values: Sequence[Any],
    tracer: Any,
    place: WritingPlace,
) -> Any:
    """Write the nodes that are left on these values.

    Nodes and values have the names that they have behind those that are not written.
    """
    several = isinstance(written.outputs, list | tuple)
    named_later = frozenset(written.outputs if several else [written.outputs])
    names = place.graph._name_authority
    made: list[Sequence[Any]] = []
    for index, node in enumerate(written.nodes):
        shared = None if node.constant is None else tracer.constant_farm.get(node.constant)
        if shared is not None:
            made.append((shared,))
            continue
        results = [MadeValue(index, at) for at in range(len(node.results))]
        is_unnamed = not named_later.isdisjoint(results)
        inputs = folded.inputs[index]
        if inputs is None:
            if not is_unnamed:
                names._unique_node_name(node.op_type)
            free = [names._unique_value_name() for at in results if at not in named_later]
            number = folded.constants.get(results[0])
            if number is not None:
                made.append([_new_number(free[0], number, place)])
            else:
                made.append(_new_results(node, tracer) if is_unnamed else ())
            continue
        outputs = _new_results(node, tracer)
        new = _new_form_node(node, [_value_at(at, values, made) for at in inputs], outputs)
        if not is_unnamed:
            names.register_or_name_node(new)
        for at, value in zip(results, outputs, strict=True):
            if at not in named_later:
                names.register_or_name_value(value)
        if index in folded.replaced:
            new.meta[REPLACED] = folded.replaced[index]
        tracer.nodes.append(new)
        if node.constant is not None:
            tracer.constant_farm[node.constant] = outputs[0]
        made.append(outputs)
    return _form_results(written, values, made)


def _new_number(name: str, number: Any, place: WritingPlace) -> Any:
    """Return a value of the graph with a number that was computed."""
    import onnx_ir as ir

    assert place.node is not None
    tensor = ir.Tensor(number, name=name)
    value = ir.Value(
        name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor
    )
    value.meta[MAKER] = place.node.name
    place.graph.register_initializer(value)
    return value
