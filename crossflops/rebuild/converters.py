"""Converters of ONNX operators to torch layers, in addition to those of onnx2torch, and the
rewriting of a model for them.

What changed with the opset only in the types that it takes is given the older converter.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import nn

from crossflops.errors import NormalizeError
from crossflops.load.payload import (
    NUMBER,
    drop_tensor_data,
    is_dataless_tensor,
    is_missing_weight_array,
)
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patching_attribute
from crossflops.rebuild import layers
from crossflops.rebuild.layers import make_recurrent_layer
from crossflops.rebuild.nodes import (
    READ_IT,
    LayerAndInputs,
    NodeFacts,
    inline_function_bodies,
    operator_schema,
    opset_versions,
    reject_unbuildable_nodes,
    standard_domain,
)

# Converters that look at a whole node: they choose which of its inputs their layer takes.

WholeNodeConverter = Callable[[NodeFacts], LayerAndInputs]


def _convert_trilu(facts: NodeFacts) -> LayerAndInputs:
    """Return the torch layer of a Trilu node and the positions of the inputs that it takes; (None,
    ()) if the diagonal is computed.
    """
    diagonal = facts.constant(1)
    if facts.has(1) and diagonal is None:
        return None, ()
    upper = bool(facts.attributes.get("upper", 1))
    return layers.Triangle(upper, int(diagonal.item()) if diagonal is not None else 0), (0,)


def _convert_one_hot(facts: NodeFacts) -> LayerAndInputs:
    """Return the torch layer of a OneHot node and the positions of the inputs that it takes;
    (None, ()) if depth or values are computed.
    """
    depth, values = facts.constant(1), facts.constant(2)
    if depth is None or values is None:
        return None, ()
    off, on = torch.from_numpy(values.copy())
    return layers.OneHot(int(depth.item()), off, on, facts.attributes.get("axis", -1)), (0,)


def _convert_global_max_pool(facts: NodeFacts) -> LayerAndInputs:
    """Return the torch layer of a GlobalMaxPool node and the positions of the inputs that it
    takes; (None, ()) for other than 3 to 5 axes.
    """
    shape = facts.shape(0)
    pools = {3: nn.AdaptiveMaxPool1d, 4: nn.AdaptiveMaxPool2d, 5: nn.AdaptiveMaxPool3d}
    kind = None if shape is None else pools.get(len(shape))
    return (None, ()) if kind is None else (kind(1), (0,))


def _convert_cumsum(facts: NodeFacts) -> LayerAndInputs:
    """Return the torch layer of a CumSum node and the positions of the inputs that it takes;
    (None, ()) if the axis is computed.

    That of onnx2torch 1.5 sums in reverse by default.
    """
    axis, attributes = facts.constant(1), facts.attributes
    if axis is None:
        return None, ()
    flags = (bool(attributes.get(name, 0)) for name in ("exclusive", "reverse"))
    return layers.RunningSum(int(axis.item()), *flags), (0,)


WHOLE_NODE_CONVERTERS: dict[str, WholeNodeConverter] = {
    "LSTM": make_recurrent_layer,
    "GRU": make_recurrent_layer,
    "RNN": make_recurrent_layer,
    "Trilu": _convert_trilu,
    "CumSum": _convert_cumsum,
    "OneHot": _convert_one_hot,
    "GlobalMaxPool": _convert_global_max_pool,
}


# Converters beside those of onnx2torch: operators whose sizes are constants, and a few it lacks.
#
# Each is a function of the node's attributes, its constant inputs (lists by place, from the second
# on) and the number of its outputs. It returns a layer that takes the first input alone, or None
# where it does not fit.

Attributes = dict[str, Any]
Constants = Sequence[Any]
TorchLayer: TypeAlias = Any  # a torch.nn.Module
Converter = Callable[[Attributes, Constants, int], TorchLayer]
REDUCTIONS = (
    "Sum", "Mean", "Max", "Min", "Prod", "LogSum", "LogSumExp", "L1", "L2", "SumSquare",
)  # fmt: skip
MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _convert_reshape(attributes: Attributes, constants: Constants, outputs: int) -> TorchLayer:
    """Return the torch layer of a Reshape node, whose shape is the first of `constants`."""
    return layers.Reshape(constants[0], bool(attributes.get("allowzero", 0)))


def _convert_expand(attributes: Attributes, constants: Constants, outputs: int) -> TorchLayer:
    """Return the torch layer of an Expand node, whose shape is the first of `constants`."""
    return layers.Expand(constants[0])


def _convert_tile(attributes: Attributes, constants: Constants, outputs: int) -> TorchLayer:
    """Return the torch layer of a Tile node, whose repeats are the first of `constants`."""
    return layers.Tile(constants[0])


def _convert_split(attributes: Attributes, constants: Constants, outputs: int) -> TorchLayer:
    """Return the torch layer of a Split node, with constant sizes or with equal parts for
    `outputs` results.
    """
    sizes = constants[0] if constants else attributes.get("split")
    return layers.Split(attributes.get("axis", 0), sizes, outputs)


def _convert_slice(attributes: Attributes, constants: Constants, outputs: int) -> TorchLayer:
    """Return the torch layer of a Slice node, whose bounds are `constants`; None before opset 10,
    where they are attributes.
    """
    if len(constants) < 2:
        return None  # before opset 10 these are attributes
    starts, ends, *more = constants
    axes = more[0] if more and more[0] is not None else range(len(starts))
    steps = more[1] if len(more) > 1 else [1] * len(starts)
    return layers.Slice(starts, ends, list(axes), steps)


def _convert_pad(attributes: Attributes, constants: Constants, outputs: int) -> TorchLayer:
    """Return the torch layer of a Pad node, whose pads are the first of `constants`; None if they
    are missing or the mode is unknown.
    """
    mode = MODES.get(attributes.get("mode", "constant"))
    if not constants or mode is None:
        return None
    pads, value, axes = (*constants, None, None)[:3]
    return layers.Pad(pads, axes, 0.0 if value is None else _first_if_list(value), mode)


def _first_if_list(value: Any) -> Any:
    """Return the first item if the value is a list, else the value itself."""
    return value[0] if isinstance(value, list) else value


def _axes_converter(insert: bool) -> Converter:
    """Return a converter of Unsqueeze nodes (with `insert`) or of Squeeze nodes to torch
    layers.
    """

    def make_axes_layer(attributes: Attributes, constants: Constants, outputs: int) -> TorchLayer:
        """Return the torch layer that inserts or removes axes of size 1, or None if the axes are
        not given.
        """
        axes = constants[0] if constants else attributes.get("axes")
        return None if axes is None else layers.Axes(axes, insert)

    return make_axes_layer


def _reduction_converter(reduction: str) -> Converter:
    """Return a converter of the nodes of one reduction, such as "Sum" or "LogSumExp", to torch
    layers.
    """

    def make_reduction_layer(
        attributes: Attributes, constants: Constants, outputs: int
    ) -> TorchLayer:
        """Return the torch layer of the reduction, or None if the node reduces no axes."""
        axes = (constants[0] if constants else None) or attributes.get("axes") or []
        if not axes and attributes.get("noop_with_empty_axes"):
            return None
        return layers.Reduce(reduction, axes, bool(attributes.get("keepdims", 1)))

    return make_reduction_layer


def _convert_gelu(attributes: Attributes, constants: Constants, outputs: int) -> TorchLayer:
    """Return the torch layer of a Gelu node, exact or with the tanh approximation."""
    from torch import nn

    return nn.GELU(approximate=attributes.get("approximate", "none"))


CONVERTERS: dict[str, Converter] = {
    "Reshape": _convert_reshape,
    "Expand": _convert_expand,
    "Tile": _convert_tile,
    "Split": _convert_split,
    "Slice": _convert_slice,
    "Pad": _convert_pad,
    "Squeeze": _axes_converter(insert=False),
    "Unsqueeze": _axes_converter(insert=True),
    "Gelu": _convert_gelu,
    **{f"Reduce{which}": _reduction_converter(which) for which in REDUCTIONS},
}
# of which onnx2torch has none, or not for the axes of today's opsets
ALWAYS = ("Gelu", "Split", "Pad", *(f"Reduce{which}" for which in REDUCTIONS))


# attributes that only say how types are handled
_OF_TYPES = {"saturate", "round_mode", "output_dtype", "precision"}


def operators_without_converter(model: Any) -> set[tuple[str, int]]:
    """Return the operators of a model that nothing can convert, each as (name, version of the
    operator set).
    """
    versions = opset_versions(model)
    used = {(domain, name, versions.get(domain, 1)) for domain, name in _used_operators(model)}
    return {
        (_full_operator_name(domain, name), opset)
        for domain, name, opset in used
        if _full_operator_name(domain, name) not in (*ALWAYS, *WHOLE_NODE_CONVERTERS)
        and _find_converter(
            domain, name, opset, _non_default_attribute_names(model, domain, name, opset)
        )
        is None
    }


def _full_operator_name(domain: str, operator: str) -> str:
    """Return "DOMAIN.OPERATOR", or "OPERATOR" if the domain is ""."""
    return f"{domain}.{operator}".lstrip(".")


def _used_operators(model: Any) -> set[tuple[str, str]]:
    """Return the operators that the nodes of an ONNX model have, as pairs (domain,
    operator type).
    """
    return {(standard_domain(node.domain), node.op_type) for node in model.graph.node}


def _onnx2torch_registry() -> Any:
    """Return the module of onnx2torch that holds the registry of its converters."""
    return importlib.import_module("onnx2torch.node_converters.registry")


def _find_converter(domain: str, operator: str, opset: int, provided: frozenset[str]) -> Any:
    """Return onnx2torch's converter for an operator of this version, or None if it has no suitable
    one.

    `provided` are the attributes that the model sets to other values than the defaults.
    """
    schema = operator_schema(operator, opset, domain)
    version = schema.since_version if schema else opset
    known = {
        key.version: converter
        for key, converter in _onnx2torch_registry()._CONVERTER_REGISTRY.items()
        if (key.domain, key.operation_type) == (domain, operator) and key.version <= version
    }
    newest = max(known, default=None)
    if newest is None or (
        newest != version and not _has_equal_meaning(schema, operator, newest, provided)
    ):
        return None
    return known[newest]


def _has_equal_meaning(schema: Any, operator: str, version: int, provided: frozenset[str]) -> bool:
    """Return whether an older version of an ONNX operator does the same, given the attributes that
    the model sets.

    They differ only in types, and in attributes that the model does not set.
    """
    other = operator_schema(operator, version, schema.domain) if schema else None
    if other is None or _schema_signature(schema) != _schema_signature(other):
        return False
    return not (frozenset(schema.attributes) - frozenset(other.attributes) - _OF_TYPES) & provided


def _schema_signature(schema: Any) -> tuple[Any, ...]:
    """Return the names and options of the inputs and of the outputs of an operator's schema."""

    def names_and_options_of_formals(formals: Iterable[Any]) -> tuple[tuple[str, Any], ...]:
        """Return pairs (name, option) of these inputs or outputs of a schema."""
        return tuple((formal.name, formal.option) for formal in formals)

    return names_and_options_of_formals(schema.inputs), names_and_options_of_formals(
        schema.outputs
    )


def _non_default_attribute_names(
    model: Any, domain: str, operator: str, opset: int
) -> frozenset[str]:
    """Return the names of the attributes that some node of the operator sets to another value than
    the default.
    """
    schema = operator_schema(operator, opset, domain)
    defaults = {} if schema is None else schema.attributes
    return frozenset(
        attribute.name
        for node in model.graph.node
        if node.op_type == operator and standard_domain(node.domain) == domain
        for attribute in node.attribute
        if attribute.name not in defaults
        or not _has_default_value(attribute, defaults[attribute.name].default_value)
    )


def _has_default_value(attribute: Any, default: Any) -> bool:
    """Return whether an ONNX attribute has the type and the value of this default."""
    same = ("type", "i", "f", "s")
    return all(getattr(attribute, name) == getattr(default, name) for name in same)


@contextmanager
def registering_converters(model: Any) -> Iterator[None]:
    """Add the converters that this model needs to the registry of onnx2torch during the block."""
    registry, versions = _onnx2torch_registry()._CONVERTER_REGISTRY, opset_versions(model)
    before = dict(registry)
    for domain, name in _used_operators(model):
        opset = versions.get(domain, 1)
        schema = operator_schema(name, opset, domain)
        key = _onnx2torch_registry().OperationDescription(
            domain=domain, operation_type=name, version=schema.since_version if schema else opset
        )
        converter = _find_converter(
            domain, name, opset, _non_default_attribute_names(model, domain, name, opset)
        )
        registry[key] = _converter_with_own_layer(_full_operator_name(domain, name), converter)
    try:
        with reading_dataless_weights():
            yield
    finally:
        registry.clear()
        registry.update(before)


def _converter_with_own_layer(operator: str, onnx2torch_converter: Any) -> Any:
    """Return a converter that uses our torch layer if we have one for the node, else the converter
    `onnx2torch_converter` of onnx2torch.
    """

    def convert_by_own_layer_or_onnx2torch(node: Any, graph: Any) -> Any:
        """Convert an ONNX node to our torch layer, or by onnx2torch's converter. Raises
        NotImplementedError if both fail.
        """
        layer, indices = _own_layer_for_node(operator, _node_facts(operator, node, graph))
        if layer is not None:
            common = importlib.import_module("onnx2torch.utils.common")
            inputs = tuple(node.input_values[index] for index in indices)
            mapping = common.OnnxMapping(inputs, node.output_values)
            return common.OperationConverterResult(layer, mapping)
        if onnx2torch_converter is None:
            raise NotImplementedError(f"{operator} {node.name} has sizes that are computed")
        return onnx2torch_converter(node, graph)

    return (
        convert_by_own_layer_or_onnx2torch
        if operator in {**CONVERTERS, **WHOLE_NODE_CONVERTERS}
        else onnx2torch_converter
    )


def _own_layer_for_node(operator: str, facts: NodeFacts) -> LayerAndInputs:
    """Return our torch layer for an ONNX node and the positions of the inputs that it takes;
    (None, ()) if we have none.

    The layer is None if we have none for it.
    """
    if operator in WHOLE_NODE_CONVERTERS:
        return WHOLE_NODE_CONVERTERS[operator](facts)
    native, rest = CONVERTERS[operator], range(1, len(facts.given))
    if any(facts.has(index) and facts.constant(index) is None for index in rest):
        return None, ()
    values = [facts.constant(index) for index in rest]
    constants = [None if value is None else value.tolist() for value in values]
    return native(facts.attributes, constants, facts.outputs), (0,)


def _node_facts(operator: str, node: Any, graph: Any) -> NodeFacts:
    """Return what converters need to know about an ONNX node: attributes, constant inputs, shapes,
    number of outputs.
    """
    names, known = node.input_values, graph.initializers
    return NodeFacts(
        operator=operator,
        name=node.name,
        attributes=dict(node.attributes),
        given=tuple(bool(name) for name in names),
        constants=tuple(known[name].to_numpy() if name in known else None for name in names),
        shapes=tuple(_static_shape(graph.value_info.get(name)) for name in names),
        outputs=len(node.output_values),
    )


def _static_shape(value: Any) -> tuple[int, ...] | None:
    """Return the shape that an ONNX model declares for a value, or None if it, or a size in it, is
    not declared.
    """
    if value is None or not value.type.tensor_type.HasField("shape"):
        return None
    dims = value.type.tensor_type.shape.dim
    return (
        tuple(dim.dim_value for dim in dims)
        if all(d.HasField("dim_value") for d in dims)
        else None
    )


# An ONNX model rewritten until there is a converter for every operator in it.
#
# Local functions are inlined, operators without a converter are replaced by what their function
# body says, arithmetic on sizes is folded, and what changed with the opset only in the types that
# it takes is given the older converter. What changed otherwise, onnx's own version converter may
# bring back.

_OLDER = (20, 18, 17, 16, 13)  # opsets to go back to, the nearest first
_SMALL = 64  # elements: a shape, a scale
# what makes or moves weights, and computes nothing
_OF_WEIGHTS = ("ConstantOfShape", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def make_convertible(model: Any) -> Any:
    """Return the model rewritten so that every operator has a converter. Raises NormalizeError if
    that is not possible.
    """
    from onnx import inliner

    reject_unbuildable_nodes(model, "torch module")
    model = inliner.inline_local_functions(model)
    reject_unbuildable_nodes(model, "torch module")
    converted = _fold_size_arithmetic(
        _inline_unconvertible(
            _fold_size_arithmetic(model) if operators_without_converter(model) else model
        )
    )
    first = missing = operators_without_converter(converted)
    for opset in _OLDER:
        if not missing:
            return converted
        older = _convert_to_older_opset(converted, opset)
        if older is not None:
            older = _fold_size_arithmetic(_inline_unconvertible(older))
            missing = operators_without_converter(older)
            converted = converted if missing else older
    if not missing:
        return converted
    operator, version = min(first)
    raise NormalizeError(
        f"{operator} of opset {version} cannot be converted into a torch module", READ_IT
    )


def _convert_to_older_opset(model: Any, opset: int) -> Any:
    """Return the model converted to an older operator set, or None if that is not possible."""
    from onnx import version_converter

    if opset >= opset_versions(model).get("", 1):
        return None
    try:
        return version_converter.convert_version(model, opset)
    except Exception:  # some operator cannot go back
        return None


def _inline_unconvertible(model: Any) -> Any:
    """Return the model in which operators without a converter are replaced by their ONNX function
    bodies.
    """
    return inline_function_bodies(
        model, lambda candidate: {name for name, _ in operators_without_converter(candidate)}
    )


def _fold_size_arithmetic(model: Any) -> Any:
    """Return the model with computations of sizes replaced by their results, and constants stored
    as initializers.
    """
    import onnx_ir
    from onnx_ir.passes import common
    from onnxscript.optimizer import fold_constants

    tree = onnx_ir.serde.deserialize_model(model)
    _fill_shape_only_weights(
        tree.graph,
        {tensor.name for tensor in model.graph.initializer if is_dataless_tensor(tensor)},
    )
    fold_constants(
        tree,
        onnx_shape_inference=True,
        should_fold=lambda node: (
            node.op_type in _OF_WEIGHTS or all(map(_may_be_size_list, node.outputs))
        ),
    )
    common.IdentityEliminationPass()(tree)
    common.RemoveUnusedNodesPass()(tree)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(tree)
    hollowed = _remove_values_of_uniform_weights(tree.graph)
    folded = onnx_ir.serde.serialize_model(tree)
    for tensor in folded.graph.initializer:
        if tensor.name in hollowed:
            drop_tensor_data(tensor)
    return folded


def _fill_shape_only_weights(graph: Any, names: set[str]) -> None:
    """Give the weights with these names, which have only a shape, one repeated number as their
    values.
    """
    import numpy as np
    import onnx_ir

    for name in names:
        value = graph.initializers[name]
        stored = value.const_value
        array = np.broadcast_to(np.array(NUMBER, stored.dtype.numpy()), stored.shape.numpy())
        value.const_value = onnx_ir.Tensor(array, stored.dtype, name=name)


def _remove_values_of_uniform_weights(graph: Any) -> set[str]:
    """Remove the values of weights that repeat one number; return the names of these weights.

    Removes weights that repeat one number again; return the names of those that are to have no
    data.
    """
    import onnx_ir

    names = set()
    for name, value in graph.initializers.items():
        stored = value.const_value
        if isinstance(stored, onnx_ir.Tensor) and is_missing_weight_array(stored.numpy()):
            names.add(name)
            value.const_value = onnx_ir.ExternalTensor(
                "", None, None, stored.dtype, shape=stored.shape, name=name
            )
    return names


@contextmanager
def reading_dataless_weights() -> Iterator[None]:
    """Let onnx2torch read, during the block, weights without values as arrays of one repeated
    number.

    Makes onnx2torch read an array of one repeated number for a weight that is known by shape
    alone.
    """
    import numpy as np
    from onnx import helper

    kind: Any = importlib.import_module("onnx2torch.onnx_tensor").OnnxTensor
    read = original_attribute(kind, "to_numpy", inventory.REBUILT_WEIGHTS)

    def to_numpy(tensor: Any) -> Any:
        """Return an ONNX tensor as an array; one without values is filled with one repeated
        number.
        """
        proto = tensor.proto
        if not is_dataless_tensor(proto):
            return read(tensor)
        return np.full(proto.dims, NUMBER, helper.tensor_dtype_to_np_dtype(proto.data_type))

    with patching_attribute(kind, "to_numpy", to_numpy, inventory.REBUILT_WEIGHTS):
        yield


def _may_be_size_list(value: Any) -> bool:
    """Return whether a value can be a list of sizes: it has few elements, or elements that are not
    floats.
    """
    if value.shape is None:
        return False
    sizes = [size if isinstance(size, int) else _SMALL + 1 for size in value.shape]
    elements = 1
    for size in sizes:
        elements *= size
    return elements <= _SMALL or (value.dtype is not None and not value.dtype.is_floating_point())
