"""The operators that onnx2torch or this folder can convert, and the rewriting of a model for it.

What changed with the opset only in the types that it takes is given the older converter.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from crossflops.errors import NormalizeError
from crossflops.load.payload import NUMBER, drop_tensor_data, is_dataless_tensor, is_uniform
from crossflops.patches import inventory
from crossflops.patches.patching import original, patching_attribute
from crossflops.rebuild import layers
from crossflops.rebuild.layers import make_recurrent_layer
from crossflops.rebuild.nodes import (
    READ_IT,
    NodeFacts,
    domain_of,
    inline_function_bodies,
    opsets,
    reject_unbuildable_nodes,
    schema_of,
)

# Converters that look at a whole node: they choose which of its inputs their layer takes.

Whole = Callable[[NodeFacts], tuple[Any, tuple[int, ...]]]


def _triangle(facts: NodeFacts) -> tuple[Any, tuple[int, ...]]:
    """Return the torch layer of ONNX Trilu and its input positions, or None and ()."""
    diagonal = facts.constant(1)
    if facts.has(1) and diagonal is None:
        return None, ()
    upper = bool(facts.attributes.get("upper", 1))
    return layers.Triangle(upper, int(diagonal.item()) if diagonal is not None else 0), (0,)


def _one_hot(facts: NodeFacts) -> tuple[Any, tuple[int, ...]]:
    """Return the torch layer of ONNX OneHot and its input positions, or None and ()."""
    depth, values = facts.constant(1), facts.constant(2)
    if depth is None or values is None:
        return None, ()
    off, on = torch.from_numpy(values.copy())
    return layers.OneHot(int(depth.item()), off, on, facts.attributes.get("axis", -1)), (0,)


def _global_max(facts: NodeFacts) -> tuple[Any, tuple[int, ...]]:
    """Return the torch layer of ONNX GlobalMaxPool and its input positions, or None and ()."""
    shape = facts.shape(0)
    pools = {3: nn.AdaptiveMaxPool1d, 4: nn.AdaptiveMaxPool2d, 5: nn.AdaptiveMaxPool3d}
    kind = None if shape is None else pools.get(len(shape))
    return (None, ()) if kind is None else (kind(1), (0,))


def _running_sum(facts: NodeFacts) -> tuple[Any, tuple[int, ...]]:
    """Return the torch layer of ONNX CumSum and its input positions.

    That of onnx2torch 1.5 sums in reverse by default.
    """
    axis, attributes = facts.constant(1), facts.attributes
    if axis is None:
        return None, ()
    flags = (bool(attributes.get(name, 0)) for name in ("exclusive", "reverse"))
    return layers.RunningSum(int(axis.item()), *flags), (0,)


WHOLES: dict[str, Whole] = {
    "LSTM": make_recurrent_layer,
    "GRU": make_recurrent_layer,
    "RNN": make_recurrent_layer,
    "Trilu": _triangle,
    "CumSum": _running_sum,
    "OneHot": _one_hot,
    "GlobalMaxPool": _global_max,
}


# Converters beside those of onnx2torch: operators whose sizes are constants, and a few it lacks.
#
# Each is a function of the node's attributes, its constant inputs (lists by place, from the second
# on) and the number of its outputs. It returns a layer that takes the first input alone, or None
# where it does not fit.

Attributes = dict[str, Any]
Constants = Sequence[Any]
Converter = Callable[[Attributes, Constants, int], Any]
REDUCTIONS = (
    "Sum", "Mean", "Max", "Min", "Prod", "LogSum", "LogSumExp", "L1", "L2", "SumSquare",
)  # fmt: skip
MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _convert_reshape(attributes: Attributes, constants: Constants, outputs: int) -> Any:
    """Return the torch layer of an ONNX Reshape whose shape is constant."""
    return layers.Reshape(constants[0], bool(attributes.get("allowzero", 0)))


def _convert_expand(attributes: Attributes, constants: Constants, outputs: int) -> Any:
    """Return the torch layer of an ONNX Expand whose shape is constant."""
    return layers.Expand(constants[0])


def _convert_tile(attributes: Attributes, constants: Constants, outputs: int) -> Any:
    """Return the torch layer of an ONNX Tile whose repeats are constant."""
    return layers.Tile(constants[0])


def _convert_split(attributes: Attributes, constants: Constants, outputs: int) -> Any:
    """Return the torch layer of an ONNX Split with its number of outputs."""
    sizes = constants[0] if constants else attributes.get("split")
    return layers.Split(attributes.get("axis", 0), sizes, outputs)


def _slice(attributes: Attributes, constants: Constants, outputs: int) -> Any:
    """Return the torch layer of an ONNX Slice with constant bounds, None before opset 10."""
    if len(constants) < 2:
        return None  # before opset 10 these are attributes
    starts, ends, *more = constants
    axes = more[0] if more and more[0] is not None else range(len(starts))
    steps = more[1] if len(more) > 1 else [1] * len(starts)
    return layers.Slice(starts, ends, list(axes), steps)


def _convert_pad(attributes: Attributes, constants: Constants, outputs: int) -> Any:
    """Return the torch layer of an ONNX Pad, or None if its mode is not supported."""
    mode = MODES.get(attributes.get("mode", "constant"))
    if not constants or mode is None:
        return None
    pads, value, axes = (*constants, None, None)[:3]
    return layers.Pad(pads, axes, 0.0 if value is None else _single_number(value), mode)


def _single_number(value: Any) -> Any:
    """Return the first item of a list, or the value itself."""
    return value[0] if isinstance(value, list) else value


def _axes_converter(insert: bool) -> Converter:
    """Return a converter of ONNX Unsqueeze (`insert`) or Squeeze to a torch layer."""

    def convert(attributes: Attributes, constants: Constants, outputs: int) -> Any:
        """Return a torch layer that inserts or removes axes, or None if these are unknown."""
        axes = constants[0] if constants else attributes.get("axes")
        return None if axes is None else layers.Axes(axes, insert)

    return convert


def _reduce(which: str) -> Converter:
    """Return a converter of an ONNX reduction to a torch layer."""

    def convert(attributes: Attributes, constants: Constants, outputs: int) -> Any:
        """Return a torch layer of the reduction, or None if it does nothing."""
        axes = (constants[0] if constants else None) or attributes.get("axes") or []
        if not axes and attributes.get("noop_with_empty_axes"):
            return None
        return layers.Reduce(which, axes, bool(attributes.get("keepdims", 1)))

    return convert


def _convert_gelu(attributes: Attributes, constants: Constants, outputs: int) -> Any:
    """Return the torch GELU layer of an ONNX Gelu, exact or by tanh."""
    from torch import nn

    return nn.GELU(approximate=attributes.get("approximate", "none"))


CONVERTERS: dict[str, Converter] = {
    "Reshape": _convert_reshape,
    "Expand": _convert_expand,
    "Tile": _convert_tile,
    "Split": _convert_split,
    "Slice": _slice,
    "Pad": _convert_pad,
    "Squeeze": _axes_converter(insert=False),
    "Unsqueeze": _axes_converter(insert=True),
    "Gelu": _convert_gelu,
    **{f"Reduce{which}": _reduce(which) for which in REDUCTIONS},
}
# of which onnx2torch has none, or not for the axes of today's opsets
ALWAYS = ("Gelu", "Split", "Pad", *(f"Reduce{which}" for which in REDUCTIONS))


# attributes that only say how types are handled
_OF_TYPES = {"saturate", "round_mode", "output_dtype", "precision"}


def operators_without_converter(model: Any) -> set[tuple[str, int]]:
    """Return the operators without a converter, each with the version that the model uses."""
    versions = opsets(model)
    used = {(domain, name, versions.get(domain, 1)) for domain, name in _used(model)}
    return {
        (_full_operator_name(domain, name), opset)
        for domain, name, opset in used
        if _full_operator_name(domain, name) not in (*ALWAYS, *WHOLES)
        and _converter(domain, name, opset, _explicit_attributes(model, domain, name, opset))
        is None
    }


def _full_operator_name(domain: str, operator: str) -> str:
    """Return "DOMAIN.OPERATOR", or the operator alone without a domain."""
    return f"{domain}.{operator}".lstrip(".")


def _used(model: Any) -> set[tuple[str, str]]:
    """Return the (domain, operator type) pairs of the nodes of an ONNX model."""
    return {(domain_of(node.domain), node.op_type) for node in model.graph.node}


def _registry() -> Any:
    """Return the module of onnx2torch in which its converters are registered."""
    return importlib.import_module("onnx2torch.node_converters.registry")


def _converter(domain: str, operator: str, opset: int, provided: frozenset[str]) -> Any:
    """Return onnx2torch's converter of an operator, or that of an equivalent older version.

    `provided` are the attributes that the model sets to other values than the defaults.
    """
    schema = schema_of(operator, opset, domain)
    version = schema.since_version if schema else opset
    known = {
        key.version: converter
        for key, converter in _registry()._CONVERTER_REGISTRY.items()
        if (key.domain, key.operation_type) == (domain, operator) and key.version <= version
    }
    newest = max(known, default=None)
    if newest is None or (
        newest != version and not _has_equal_meaning(schema, operator, newest, provided)
    ):
        return None
    return known[newest]


def _has_equal_meaning(schema: Any, operator: str, version: int, provided: frozenset[str]) -> bool:
    """Return whether two versions of an ONNX operator are the same for this model.

    They differ only in types, and in attributes that the model does not set.
    """
    other = schema_of(operator, version, schema.domain) if schema else None
    if other is None or _schema_signature(schema) != _schema_signature(other):
        return False
    return not (frozenset(schema.attributes) - frozenset(other.attributes) - _OF_TYPES) & provided


def _schema_signature(schema: Any) -> tuple[Any, ...]:
    """Return names and options of an operator schema's inputs and outputs."""

    def formal_options(formals: Iterable[Any]) -> tuple[tuple[str, Any], ...]:
        """Return name and option of each formal parameter of a schema."""
        return tuple((formal.name, formal.option) for formal in formals)

    return formal_options(schema.inputs), formal_options(schema.outputs)


def _explicit_attributes(model: Any, domain: str, operator: str, opset: int) -> frozenset[str]:
    """Return the attributes that the nodes of an ONNX operator set to non-default values."""
    schema = schema_of(operator, opset, domain)
    defaults = {} if schema is None else schema.attributes
    return frozenset(
        attribute.name
        for node in model.graph.node
        if node.op_type == operator and domain_of(node.domain) == domain
        for attribute in node.attribute
        if attribute.name not in defaults
        or not _says_default(attribute, defaults[attribute.name].default_value)
    )


def _says_default(attribute: Any, default: Any) -> bool:
    """Return whether an ONNX attribute has the type and value of its default."""
    same = ("type", "i", "f", "s")
    return all(getattr(attribute, name) == getattr(default, name) for name in same)


@contextmanager
def lent(model: Any) -> Iterator[None]:
    """Register the converters that this model needs in onnx2torch for the block, and restore its
    registry afterwards.
    """
    registry, versions = _registry()._CONVERTER_REGISTRY, opsets(model)
    before = dict(registry)
    for domain, name in _used(model):
        opset = versions.get(domain, 1)
        schema = schema_of(name, opset, domain)
        key = _registry().OperationDescription(
            domain=domain, operation_type=name, version=schema.since_version if schema else opset
        )
        converter = _converter(
            domain, name, opset, _explicit_attributes(model, domain, name, opset)
        )
        registry[key] = _ours_before(_full_operator_name(domain, name), converter)
    try:
        with _without_data():
            yield
    finally:
        registry.clear()
        registry.update(before)


def _ours_before(operator: str, other: Any) -> Any:
    """Return a converter that tries our torch layer first and then onnx2torch's own."""

    def convert(node: Any, graph: Any) -> Any:
        """Convert an ONNX node to a torch layer, by our converter or by onnx2torch's own."""
        layer, indices = _layer_for_node(operator, _node_facts(operator, node, graph))
        if layer is not None:
            common = importlib.import_module("onnx2torch.utils.common")
            inputs = tuple(node.input_values[index] for index in indices)
            mapping = common.OnnxMapping(inputs, node.output_values)
            return common.OperationConverterResult(layer, mapping)
        if other is None:
            raise NotImplementedError(f"{operator} {node.name} has sizes that are computed")
        return other(node, graph)

    return convert if operator in {**CONVERTERS, **WHOLES} else other


def _layer_for_node(operator: str, facts: NodeFacts) -> tuple[Any, tuple[int, ...]]:
    """Return our torch layer for an ONNX node and the positions of its inputs.

    The layer is None if we have none for it.
    """
    if operator in WHOLES:
        return WHOLES[operator](facts)
    native, rest = CONVERTERS[operator], range(1, len(facts.given))
    if any(facts.has(index) and facts.constant(index) is None for index in rest):
        return None, ()
    values = [facts.constant(index) for index in rest]
    constants = [None if value is None else value.tolist() for value in values]
    return native(facts.attributes, constants, facts.outputs), (0,)


def _node_facts(operator: str, node: Any, graph: Any) -> NodeFacts:
    """Return name, attributes, constant inputs, shapes and outputs of an ONNX node."""
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
    """Return the shape that an ONNX file declares for a value, None if a size is open."""
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


def convertible(model: Any) -> Any:
    """Return the model rewritten for the converters. Raise NormalizeError, naming an operator that
    none converts.
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
    """Return the ONNX model converted to an older opset, or None if that is impossible."""
    from onnx import version_converter

    if opset >= opsets(model).get("", 1):
        return None
    try:
        return version_converter.convert_version(model, opset)
    except Exception:  # some operator cannot go back
        return None


def _inline_unconvertible(model: Any) -> Any:
    """Return the model with the operators that lack a converter replaced by their bodies."""
    return inline_function_bodies(
        model, lambda candidate: {name for name, _ in operators_without_converter(candidate)}
    )


def _fold_size_arithmetic(model: Any) -> Any:
    """Return the model with arithmetic on sizes folded, and constant weights stored as
    initializers.
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
            node.op_type in _OF_WEIGHTS or all(map(_is_of_sizes, node.outputs))
        ),
    )
    common.IdentityEliminationPass()(tree)
    common.RemoveUnusedNodesPass()(tree)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(tree)
    hollowed = _remove_uniform_weights(tree.graph)
    folded = onnx_ir.serde.serialize_model(tree)
    for tensor in folded.graph.initializer:
        if tensor.name in hollowed:
            drop_tensor_data(tensor)
    return folded


def _fill_shape_only_weights(graph: Any, names: set[str]) -> None:
    """Give weights that are known by shape alone one repeated number, as arrays without memory."""
    import numpy as np
    import onnx_ir

    for name in names:
        value = graph.initializers[name]
        stored = value.const_value
        array = np.broadcast_to(np.array(NUMBER, stored.dtype.numpy()), stored.shape.numpy())
        value.const_value = onnx_ir.Tensor(array, stored.dtype, name=name)


def _remove_uniform_weights(graph: Any) -> set[str]:
    """Remove the data of weights that repeat one number; return names without data.

    Removes weights that repeat one number again; return the names of those that are to have no
    data.
    """
    import onnx_ir

    names = set()
    for name, value in graph.initializers.items():
        stored = value.const_value
        if isinstance(stored, onnx_ir.Tensor) and is_uniform(stored.numpy()):
            names.add(name)
            value.const_value = onnx_ir.ExternalTensor(
                "", None, None, stored.dtype, shape=stored.shape, name=name
            )
    return names


@contextmanager
def _without_data() -> Iterator[None]:
    """Let onnx2torch read weights without data as arrays of one repeated number.

    Makes onnx2torch read an array of one repeated number for a weight that is known by shape
    alone.
    """
    import numpy as np
    from onnx import helper

    kind: Any = importlib.import_module("onnx2torch.onnx_tensor").OnnxTensor
    read = original(kind, "to_numpy", inventory.REBUILT_WEIGHTS)

    def to_numpy(tensor: Any) -> Any:
        """Return an ONNX tensor as an array; a tensor without data gets a constant number."""
        proto = tensor.proto
        if not is_dataless_tensor(proto):
            return read(tensor)
        return np.full(proto.dims, NUMBER, helper.tensor_dtype_to_np_dtype(proto.data_type))

    with patching_attribute(kind, "to_numpy", to_numpy, inventory.REBUILT_WEIGHTS):
        yield


def _is_of_sizes(value: Any) -> bool:
    """Return whether an ONNX value can be a list of sizes: small, or not of floats."""
    if value.shape is None:
        return False
    sizes = [size if isinstance(size, int) else _SMALL + 1 for size in value.shape]
    elements = 1
    for size in sizes:
        elements *= size
    return elements <= _SMALL or (value.dtype is not None and not value.dtype.is_floating_point())
