"""An ONNX model rewritten until onnx2torch has a converter for every operator in it.

Local functions are inlined, operators without a converter are replaced by what their function
body says, and what changed with the opset only in the types that it takes is given the older
converter. What changed otherwise, onnx's own version converter may bring back.
"""

import importlib
from collections.abc import Iterable, Iterator
from typing import Any

from crossflops.errors import NormalizeError

_OLDER = (20, 18, 17, 16, 13)  # opsets to go back to, the nearest first
_CONTROL = ("If", "Loop", "Scan", "SequenceMap")
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
_ROUNDS = 8  # functions in functions


def convertible(model: Any) -> Any:
    """The model, rewritten. Raises NormalizeError, naming an operator that stands in the way."""
    from onnx import inliner

    model = inliner.inline_local_functions(model)
    _refuse(model)
    candidates = [model]
    for attempt in range(1 + len(_OLDER)):
        found = _opened(candidates[-1])
        missing = _missing(found)
        if not missing:
            _lend_converters(found)
            return found
        if attempt == len(_OLDER):
            break
        candidates.append(_older(model, _OLDER[attempt]) or model)
    operator, version = min(_missing(_opened(model)))
    raise NormalizeError(
        f"onnx2torch has no converter for {operator} of opset {version}, and it has no function"
        " body that would help",
        "count the file with tools that read files, or give the model in its framework",
    )


def _refuse(model: Any) -> None:
    """What no rewriting helps. Raises NormalizeError."""
    for node in model.graph.node:
        name = f"{node.op_type} ({node.name})" if node.name else node.op_type
        if node.op_type in _CONTROL:
            raise NormalizeError(
                f"{name} has subgraphs, which no torch module can be rebuilt from",
                "count the file with tools that read files",
            )
        if node.op_type in _QUANTIZED or "Integer" in node.op_type or "QLinear" in node.op_type:
            raise NormalizeError(
                f"{name} is quantized, and is rebuilt as no layer that a tool would know",
                "give the file from before it was quantized",
            )


def _older(model: Any, opset: int) -> Any:
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, opset)
    except Exception:  # says of some operator that it cannot go back
        return None


def _opened(model: Any) -> Any:
    """The model with the function bodies of operators in place that have no converter."""
    from onnx import inliner

    for _ in range(_ROUNDS):
        missing = {name for name, _ in _missing(model) if _has_body(name, model)}
        if not missing:
            break
        model = inliner.inline_selected_functions(
            model, [("", name) for name in sorted(missing)], inline_schema_functions=True
        )
    return model


def _has_body(operator: str, model: Any) -> bool:
    schema = _schema(operator, _opsets(model).get("", 1))
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _opsets(model: Any) -> dict[str, int]:
    return {one.domain.replace("ai.onnx", "") if one.domain == "ai.onnx" else one.domain:
            one.version for one in model.opset_import}  # fmt: skip


def _missing(model: Any) -> set[tuple[str, int]]:
    """Operators without a converter, each with the version that the model has of it."""
    opsets = _opsets(model)
    return {
        (name if not domain else f"{domain}.{name}", opsets.get(domain, 1))
        for domain, name in _used(model)
        if _converter(domain, name, opsets.get(domain, 1)) is None
    }


def _used(model: Any) -> set[tuple[str, str]]:
    return {("" if one.domain == "ai.onnx" else one.domain, one.op_type) for one in model.graph.node}


def _schema(operator: str, opset: int, domain: str = "") -> Any:
    from onnx import defs

    try:
        return defs.get_schema(operator, max_inclusive_version=opset, domain=domain)
    except defs.SchemaError:
        return None


def _registry() -> dict[Any, Any]:
    registry = importlib.import_module("onnx2torch.node_converters.registry")
    found: dict[Any, Any] = vars(registry)["_CONVERTER_REGISTRY"]
    return found


def _converter(domain: str, operator: str, opset: int) -> tuple[Any, int] | None:
    """The converter of an operator in an opset, and the version that it has to be known under.

    It may be that of an older version, with the same inputs, outputs and attributes.
    """
    schema = _schema(operator, opset, domain)
    version = schema.since_version if schema else opset
    known = {
        key.version: converter
        for key, converter in _registry().items()
        if (key.domain, key.operation_type) == (domain, operator)
    }
    for older in sorted((one for one in known if one <= version), reverse=True):
        if older == version or (schema and _alike(schema, _schema(operator, older, domain))):
            return known[older], version
        break
    return None


def _alike(one: Any, other: Any) -> bool:
    """Whether two versions of an operator differ in nothing but types."""
    return other is not None and _face(one) == _face(other)


def _face(schema: Any) -> tuple[Any, ...]:
    def named(formals: Iterable[Any]) -> Iterator[tuple[str, Any]]:
        return ((formal.name, formal.option) for formal in formals)

    return (
        tuple(named(schema.inputs)),
        tuple(named(schema.outputs)),
        # an attribute that is new may only say how the types are handled
        frozenset(schema.attributes) - {"saturate", "round_mode", "output_dtype"},
    )


def _lend_converters(model: Any) -> None:
    """Make converters known under the versions that the model has."""
    registry = importlib.import_module("onnx2torch.node_converters.registry")
    opsets = _opsets(model)
    for domain, name in _used(model):
        found = _converter(domain, name, opsets.get(domain, 1))
        assert found is not None
        converter, version = found
        key = registry.OperationDescription(domain=domain, operation_type=name, version=version)
        _registry().setdefault(key, converter)
