"""A cache of the ONNX nodes that the translations of operators (forms) write, by signature.

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
    FoldedTranslation,
    GivenValue,
    MadeValue,
    TranslationNode,
    fold_translation_nodes,
)
from crossflops.frontends.pytorch.convert.reference import is_reference_export
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patch_owner, patching_attribute

if TYPE_CHECKING:
    from torch import fx

_KEPT_FORMS = 5_000
_KNOWN: "OrderedDict[Any, _RecordedTranslation]" = OrderedDict()


class _NotPlainError(Exception):
    """An error of an operator call whose arguments cannot be a cache key."""


class _RecordedTranslation(NamedTuple):
    """The nodes that a form writes for values of these types and shapes."""

    given: tuple[Any, ...]
    types: tuple[tuple[Any, tuple[int, ...] | None], ...]  # of what is given; extents if all known
    nodes: tuple[TranslationNode, ...]
    outputs: Any
    # by which outputs are used, and whether a bias is
    replacement: dict[Any, FoldedTranslation | None]


class WritingPlace:
    """The place at which the exporter writes: the operator call of a program, and the ONNX graph.

    There is none where nothing that is written is computed beforehand.
    """

    def __init__(self) -> None:
        """Start without a node and a graph that are being translated."""
        self.node: fx.Node | None = None
        self.graph: Any = None


@contextmanager
def tracking_writing_place(source_program: Any) -> Iterator[WritingPlace]:
    """Yield an object that says, inside the block, at which FX node and ONNX graph the exporter
    is.

    The notes that it makes for the ONNX nodes of an operator call are made once.
    """
    writing_place = WritingPlace()
    exporter = patch_owner(inventory.EXPORT_CALLS)
    names = inventory.EXPORT_CALLS.names
    if is_reference_export() or not all(hasattr(exporter, name) for name in names):
        yield writing_place
        return
    translate, annotate = (
        original_attribute(exporter, name, inventory.EXPORT_CALLS) for name in names
    )
    may_fold = _has_plain_names(source_program)

    def translate_and_track_writing_place(model: Any, node: Any, *args: Any, **kwargs: Any) -> Any:
        """Translate an FX node to ONNX, with this node and graph in `writing_place`."""
        graph = kwargs.get("graph_like")
        writing_place.graph = graph if may_fold and graph is model.graph else None
        writing_place.node = node
        return translate(model, node, *args, **kwargs)

    noted: list[Any] = [None, {}]

    def copy_cached_annotations(fx_node: Any, ir_node: Any) -> None:
        """Copy the annotations of an FX node to an ONNX node; they are computed once for each FX
        node.
        """
        if noted[0] is not fx_node:
            notes = SimpleNamespace(metadata_props={})
            annotate(fx_node, notes)
            noted[:] = fx_node, notes.metadata_props
        ir_node.metadata_props.update(noted[1])

    with (
        patching_attribute(
            exporter, names[0], translate_and_track_writing_place, inventory.EXPORT_CALLS
        ),
        patching_attribute(exporter, names[1], copy_cached_annotations, inventory.EXPORT_CALLS),
    ):
        yield writing_place


_NUMBERED = re.compile(r"val_\d+")  # as ONNX nodes without a name call their results


def _has_plain_names(source_program: Any) -> bool:
    """Return True if a program is one graph module without a name such as "val_1", which ONNX
    results get.
    """
    import torch

    modules = source_program.graph_module.modules()
    if sum(isinstance(module, torch.fx.GraphModule) for module in modules) > 1:
        return False
    names = [*source_program.state_dict, *source_program.constants]
    names += [node.name for node in source_program.graph_module.graph.nodes]
    return not any(map(_NUMBERED.fullmatch, names))


def translation_from_stored_nodes(
    node: "fx.Node",
    flags: tuple[Any, ...],
    find_translation: Callable[[], tuple[Any, str]],
    writing_place: WritingPlace,
) -> tuple[Any, str]:
    """Return the function that writes the ONNX nodes of an operator call (stored ones where
    possible), or None, and a message.

    `find_translation` returns the form itself, or None and a reason. `flags` say which of several
    forms it is.
    """
    try:
        key = _translation_cache_key(node, flags)
    except _NotPlainError:
        return find_translation()
    form_record = _KNOWN.get(key)
    if form_record is not None:
        _KNOWN.move_to_end(key)
        return partial(_write_stored_translation, form_record, find_translation, writing_place), ""
    form, why = find_translation()
    if form is None:
        return None, why
    return partial(_write_and_store_translation, key, form, writing_place), why


# What decides.

_OWN = ("aten", "prims")
_PLAIN = (int, float, bool, str, type(None))


def _translation_cache_key(node: "fx.Node", flags: tuple[Any, ...]) -> Any:
    """Return the cache key of the ONNX nodes for an FX node: operator, arguments, dtypes and
    shapes.
    """
    import torch

    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in _OWN:
        raise _NotPlainError  # others may write without their recorder
    known: dict[Any, int] = {}
    args = _argument_cache_key(node.args, known)
    named = tuple((name, _argument_cache_key(value, known)) for name, value in node.kwargs.items())
    tensors = tuple(_dtype_and_shape_key(at.meta.get("val")) for at in known)
    return target, flags, args, named, tensors, torch.get_default_dtype()


def _argument_cache_key(argument: Any, known: dict[Any, int]) -> Any:
    """Return an argument of an FX node as a hashable key; a tensor is its number in the order of
    first use, stored in `known`.
    """
    import torch

    if isinstance(argument, torch.fx.Node):
        return GivenValue(known.setdefault(argument, len(known)))
    if isinstance(argument, list | tuple):
        return tuple(_argument_cache_key(item, known) for item in argument)
    if type(argument) in _PLAIN:
        return type(argument), repr(argument)
    if isinstance(argument, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return argument
    raise _NotPlainError


def _dtype_and_shape_key(value: Any) -> Any:
    """Return dtype and shape of a tensor as a key; for a list a tuple of keys."""
    import torch

    if isinstance(value, list | tuple):
        return tuple(map(_dtype_and_shape_key, value))
    if not isinstance(value, torch.Tensor):
        raise _NotPlainError
    if not all(type(extent) is int for extent in value.shape):
        raise _NotPlainError
    return value.dtype, tuple(value.shape)


def _onnx_type_and_shape_key(value: Any) -> Any:
    """Return the type and the shape of an ONNX value as a hashable key of texts."""
    kind, shape = value.type, value.shape
    return str(kind), None if shape is None else tuple(map(str, shape))


def _onnx_values_by_id(arguments: Any, stored: dict[int, Any]) -> dict[int, Any]:
    """Add the ONNX values in nested arguments to `stored`, by object id; return `stored`."""
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


def _replace_onnx_values(arguments: Any, others: dict[int, Any]) -> Any:
    """Return nested arguments in which each ONNX value is replaced by that of its id in
    `others`.
    """
    import onnx_ir as ir

    if isinstance(arguments, ir.Value):
        return others[id(arguments)]
    if isinstance(arguments, list | tuple):
        return type(arguments)([_replace_onnx_values(item, others) for item in arguments])
    if isinstance(arguments, dict):
        return {name: _replace_onnx_values(item, others) for name, item in arguments.items()}
    return arguments


# Writing.


def _write_and_store_translation(
    key: Any, form: Callable[..., Any], writing_place: WritingPlace, *args: Any, **kwargs: Any
) -> Any:
    """Write the ONNX nodes of a translation, store them under `key` to be written again, and
    return the results.
    """
    values = [*_onnx_values_by_id([args, kwargs], {}).values()]
    try:
        form_record = _record_translation_nodes(form, args, kwargs, values)
    except Exception:  # of the form: it says so where it is called itself
        return form(*args, **kwargs)
    _KNOWN[key] = form_record
    while len(_KNOWN) > _KEPT_FORMS:
        _KNOWN.popitem(last=False)
    return _write_recorded_nodes(form_record, values, writing_place)


def _write_stored_translation(
    form_record: _RecordedTranslation,
    find: Callable[[], tuple[Any, str]],
    writing_place: WritingPlace,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Write the stored nodes of a translation, or call the translation if the values are of other
    types; return the results.
    """
    values = [*_onnx_values_by_id([args, kwargs], {}).values()]
    if tuple(map(_onnx_type_and_shape_key, values)) != form_record.given:
        form, _ = find()
        return form(*args, **kwargs)
    return _write_recorded_nodes(form_record, values, writing_place)


def _record_translation_nodes(
    form: Any, args: Any, kwargs: Any, values: Sequence[Any]
) -> _RecordedTranslation:
    """Call a translation on new values of the same types and shapes, and return the nodes that it
    writes.
    """
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
        outputs = form(*_replace_onnx_values(args, others), **_replace_onnx_values(kwargs, others))
    nodes, constants = recorder.nodes, recorder.constant_farm
    if recorder.functions:
        raise _NotPlainError
    keys = {id(value): name for name, value in constants.items()}
    known: dict[int, Any] = {id(value): GivenValue(index) for index, value in enumerate(own)}
    known[id(None)] = None
    form_record = []
    for number, node in enumerate(nodes):
        for index, value in enumerate(node.outputs):
            known[id(value)] = MadeValue(number, index)
        attributes = tuple(node.attributes.values())
        if any("GRAPH" in attribute.type.name for attribute in attributes) or node.metadata_props:
            raise _NotPlainError
        form_record.append(
            TranslationNode(
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
    provided = tuple(map(_onnx_type_and_shape_key, values))
    types = tuple(map(_element_type_and_shape, values))
    return _RecordedTranslation(provided, types, tuple(form_record), outputs, {})


def _element_type_and_shape(value: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Return the element type of an ONNX value, and its shape, None if a size is unknown."""
    extents = None if value.shape is None else tuple(value.shape.dims)
    is_known = extents is not None and all(type(extent) is int for extent in extents)
    return value.dtype, extents if is_known else None


def _copy_type_or_shape(value: Any) -> Any:
    """Return a copy of an ONNX type or shape."""
    if isinstance(value, tuple | type(None)):
        return value
    return value.copy() if hasattr(value, "copy") else copy.copy(value)


def _write_recorded_nodes(
    form_record: _RecordedTranslation, values: Sequence[Any], writing_place: WritingPlace
) -> Any:
    """Write the stored nodes of a translation with these values as operands; return the
    results.
    """
    from torch.onnx._internal.exporter import _core

    tracer: Any = _core.current_tracer
    replacement = (
        None
        if writing_place.graph is None
        else _fold_recorded_translation(form_record, tracer, writing_place)
    )
    if replacement is not None:
        return _write_folded_nodes(form_record, replacement, values, tracer, writing_place)
    node_outputs: list[Any] = []
    for node in form_record.nodes:
        shared = None if node.constant is None else tracer.constant_farm.get(node.constant)
        if shared is not None:
            node_outputs.append((shared,))
            continue
        outputs = _new_output_values(node, tracer)
        tracer.nodes.append(
            _copy_recorded_node(
                node,
                [_resolve_stored_reference(at, values, node_outputs) for at in node.inputs],
                outputs,
            )
        )
        if node.constant is not None:
            tracer.constant_farm[node.constant] = outputs[0]
        node_outputs.append(outputs)
    return _resolve_recorded_results(form_record, values, node_outputs)


def _resolve_stored_reference(
    index: Any, values: Sequence[Any], node_outputs: Sequence[Any]
) -> Any:
    """Return the ONNX value that a stored reference means: one of `values`, or an output of a new
    node; None for None.
    """
    if isinstance(index, MadeValue):
        return node_outputs[index.node][index.place]
    return None if index is None else values[index.place]


def _resolve_recorded_results(
    form_record: _RecordedTranslation, values: Sequence[Any], node_outputs: Sequence[Any]
) -> Any:
    """Return the ONNX values of the results of a stored translation: one value, or a list or tuple
    of them.
    """
    if isinstance(form_record.outputs, list | tuple):
        return type(form_record.outputs)(
            [_resolve_stored_reference(at, values, node_outputs) for at in form_record.outputs]
        )
    return _resolve_stored_reference(form_record.outputs, values, node_outputs)


def _new_output_values(node: TranslationNode, tracer: Any) -> list[Any]:
    """Return new ONNX values with the types and shapes of a stored node's outputs."""
    from torch.onnx._internal.exporter import _tensors

    return [
        _tensors.SymbolicTensor(
            tracer.opset, type=_copy_type_or_shape(kind), shape=_copy_type_or_shape(shape)
        )
        for kind, shape in node.results
    ]


def _copy_recorded_node(
    node: TranslationNode, inputs: Sequence[Any], outputs: Sequence[Any]
) -> Any:
    """Return a new ONNX node that is a copy of a stored node with these inputs and outputs."""
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


def _fold_recorded_translation(
    form_record: _RecordedTranslation, tracer: Any, writing_place: WritingPlace
) -> FoldedTranslation | None:
    """Return which stored nodes of a translation remain after constant folding; None if all do."""
    assert writing_place.node is not None
    results = (
        form_record.outputs
        if isinstance(form_record.outputs, list | tuple)
        else [form_record.outputs]
    )
    used = _used_result_indices(writing_place.node, len(results))
    is_unbiased = not _has_third_argument(writing_place.node)
    key = used, is_unbiased
    if key not in form_record.replacement:
        evaluator = patch_owner(inventory.FOLDED_VALUES)()
        form_record.replacement[key] = fold_translation_nodes(
            form_record.nodes,
            results,
            used,
            form_record.types,
            is_unbiased,
            lambda name, *numbers, **attributes: evaluator.evaluate(
                "", name, tracer.opset.version, *numbers, **attributes
            ),
        )
    replacement = form_record.replacement[key]
    if replacement is None:
        return None
    for name in replacement.shared:  # a number that is the result of an operator call, too
        shared = tracer.constant_farm.get(name)
        if shared is not None and not _NUMBERED.fullmatch(shared.name or ""):
            return None
    return replacement


def _has_third_argument(node: "fx.Node") -> bool:
    """Return True if an FX node has a third argument, the bias of a convolution."""
    return len(node.args) > 2 and node.args[2] is not None


def _used_result_indices(node: "fx.Node", result_count: int) -> frozenset[int]:
    """Return the indices of the results of an operator that other nodes read; all if that is
    unknown.
    """
    is_each = result_count > 1 and all(user.target is operator.getitem for user in node.users)
    if not is_each:
        return frozenset(range(result_count))
    return frozenset(int(str(user.args[1])) for user in node.users)


def _write_folded_nodes(
    form_record: _RecordedTranslation,
    replacement: FoldedTranslation,
    values: Sequence[Any],
    tracer: Any,
    writing_place: WritingPlace,
) -> Any:
    """Write the nodes of a translation that remain after constant folding, with these values as
    operands; return the results.

    Nodes and values have the names that they have behind those that are not written.
    """
    several = isinstance(form_record.outputs, list | tuple)
    named_later = frozenset(form_record.outputs if several else [form_record.outputs])
    names = writing_place.graph._name_authority
    node_outputs: list[Sequence[Any]] = []
    for index, node in enumerate(form_record.nodes):
        shared = None if node.constant is None else tracer.constant_farm.get(node.constant)
        if shared is not None:
            node_outputs.append((shared,))
            continue
        results = [MadeValue(index, at) for at in range(len(node.results))]
        is_unnamed = not named_later.isdisjoint(results)
        inputs = replacement.inputs[index]
        if inputs is None:
            if not is_unnamed:
                names._unique_node_name(node.op_type)
            free = [names._unique_value_name() for at in results if at not in named_later]
            number = replacement.constants.get(results[0])
            if number is not None:
                node_outputs.append([_add_constant_initializer(free[0], number, writing_place)])
            else:
                node_outputs.append(_new_output_values(node, tracer) if is_unnamed else ())
            continue
        outputs = _new_output_values(node, tracer)
        new = _copy_recorded_node(
            node, [_resolve_stored_reference(at, values, node_outputs) for at in inputs], outputs
        )
        if not is_unnamed:
            names.register_or_name_node(new)
        for at, value in zip(results, outputs, strict=True):
            if at not in named_later:
                names.register_or_name_value(value)
        if index in replacement.replaced:
            new.meta[REPLACED] = replacement.replaced[index]
        tracer.nodes.append(new)
        if node.constant is not None:
            tracer.constant_farm[node.constant] = outputs[0]
        node_outputs.append(outputs)
    return _resolve_recorded_results(form_record, values, node_outputs)


def _add_constant_initializer(name: str, number: Any, writing_place: WritingPlace) -> Any:
    """Add a constant of this name to the ONNX graph as an initializer, and return its value."""
    import onnx_ir as ir

    assert writing_place.node is not None
    tensor = ir.Tensor(number, name=name)
    value = ir.Value(
        name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor
    )
    value.meta[MAKER] = writing_place.node.name
    writing_place.graph.register_initializer(value)
    return value
