"""Which operators can be converted: by onnx2torch, in which version, and by what is here.

What changed with the opset only in the types that it takes is given the older converter.
"""

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from crossflops.normalize.rebuilt.bodies import domain_of, opsets, schema_of
from crossflops.normalize.rebuilt.converters import ALWAYS, CONVERTERS
from crossflops.normalize.rebuilt.facts import Facts
from crossflops.normalize.rebuilt.wholes import WHOLES

# attributes that only say how types are handled
_OF_TYPES = {"saturate", "round_mode", "output_dtype", "precision"}


def lacking(model: Any) -> set[tuple[str, int]]:
    """Operators without a converter, each with the version that the model has of it."""
    versions = opsets(model)
    used = {(domain, name, versions.get(domain, 1)) for domain, name in _used(model)}
    return {
        (_full(domain, name), opset)
        for domain, name, opset in used
        if _full(domain, name) not in (*ALWAYS, *WHOLES)
        and _converter(domain, name, opset, _given(model, domain, name, opset)) is None
    }


def _full(domain: str, operator: str) -> str:
    return f"{domain}.{operator}".lstrip(".")


def _used(model: Any) -> set[tuple[str, str]]:
    return {(domain_of(one.domain), one.op_type) for one in model.graph.node}


def _registry() -> Any:
    return importlib.import_module("onnx2torch.node_converters.registry")


def _converter(domain: str, operator: str, opset: int, given: frozenset[str]) -> Any:
    """onnx2torch's converter of an operator, or of an older version with the same face.

    `given` are the attributes that say something in the model.
    """
    schema = schema_of(operator, opset, domain)
    version = schema.since_version if schema else opset
    known = {
        key.version: converter
        for key, converter in _registry()._CONVERTER_REGISTRY.items()
        if (key.domain, key.operation_type) == (domain, operator) and key.version <= version
    }
    newest = max(known, default=None)
    if newest is None or (newest != version and not _alike(schema, operator, newest, given)):
        return None
    return known[newest]


def _alike(schema: Any, operator: str, version: int, given: frozenset[str]) -> bool:
    """Whether two versions differ in nothing but types, and attributes that say nothing."""
    other = schema_of(operator, version, schema.domain) if schema else None
    if other is None or _face(schema) != _face(other):
        return False
    return not (frozenset(schema.attributes) - frozenset(other.attributes) - _OF_TYPES) & given


def _face(schema: Any) -> tuple[Any, ...]:
    def named(formals: Iterable[Any]) -> tuple[tuple[str, Any], ...]:
        return tuple((formal.name, formal.option) for formal in formals)

    return named(schema.inputs), named(schema.outputs)


def _given(model: Any, domain: str, operator: str, opset: int) -> frozenset[str]:
    """The attributes that nodes of an operator have, and not with their defaults."""
    schema = schema_of(operator, opset, domain)
    defaults = {} if schema is None else schema.attributes
    return frozenset(
        one.name
        for node in model.graph.node
        if node.op_type == operator and domain_of(node.domain) == domain
        for one in node.attribute
        if one.name not in defaults or not _says_default(one, defaults[one.name].default_value)
    )


def _says_default(attribute: Any, default: Any) -> bool:
    same = ("type", "i", "f", "s")
    return all(getattr(attribute, name) == getattr(default, name) for name in same)


@contextmanager
def lent(model: Any) -> Iterator[None]:
    """onnx2torch knows the converters that this model needs, and is as before afterwards."""
    registry, versions = _registry()._CONVERTER_REGISTRY, opsets(model)
    before = dict(registry)
    for domain, name in _used(model):
        opset = versions.get(domain, 1)
        schema = schema_of(name, opset, domain)
        key = _registry().OperationDescription(
            domain=domain,
            operation_type=name,
            version=schema.since_version if schema else opset,
        )
        found = _converter(domain, name, opset, _given(model, domain, name, opset))
        registry[key] = _ours_before(_full(domain, name), found)
    try:
        yield
    finally:
        registry.clear()
        registry.update(before)


def _ours_before(operator: str, theirs: Any) -> Any:
    """The converter of onnx2torch, before which ours are tried."""

    def convert(node: Any, graph: Any) -> Any:
        layer, places = _layer(operator, _facts(operator, node, graph))
        if layer is not None:
            common = importlib.import_module("onnx2torch.utils.common")
            inputs = tuple(node.input_values[place] for place in places)
            mapping = common.OnnxMapping(inputs, node.output_values)
            return common.OperationConverterResult(layer, mapping)
        if theirs is None:
            raise NotImplementedError(f"{operator} {node.name} has sizes that are computed")
        return theirs(node, graph)

    return convert if operator in {**CONVERTERS, **WHOLES} else theirs


def _layer(operator: str, facts: Facts) -> tuple[Any, tuple[int, ...]]:
    """Our layer for a node, and the places of the inputs that it takes; None if it has none."""
    if operator in WHOLES:
        return WHOLES[operator](facts)
    ours, rest = CONVERTERS[operator], range(1, len(facts.given))
    if any(facts.has(place) and facts.constant(place) is None for place in rest):
        return None, ()
    values = [facts.constant(place) for place in rest]
    constants = [None if one is None else one.tolist() for one in values]
    return ours(facts.attributes, constants, facts.outputs), (0,)


def _facts(operator: str, node: Any, graph: Any) -> Facts:
    names, known = node.input_values, graph.initializers
    return Facts(
        operator=operator,
        name=node.name,
        attributes=dict(node.attributes),
        given=tuple(bool(name) for name in names),
        constants=tuple(known[name].to_numpy() if name in known else None for name in names),
        shapes=tuple(_shape(graph.value_info.get(name)) for name in names),
        outputs=len(node.output_values),
    )


def _shape(value: Any) -> tuple[int, ...] | None:
    """The shape in a file's own words, where all of it is numbers."""
    if value is None or not value.type.tensor_type.HasField("shape"):
        return None
    dims = value.type.tensor_type.shape.dim
    return (
        tuple(dim.dim_value for dim in dims)
        if all(d.HasField("dim_value") for d in dims)
        else None
    )
