"""Operators that ONNX itself defines by others, replaced by these."""

from collections.abc import Callable
from typing import Any

_ROUNDS = 8  # functions in functions


def opened(model: Any, lacking: Callable[[Any], set[str]]) -> Any:
    """The model with the function bodies of those operators in place that are `lacking`."""
    from onnx import inliner

    for _ in range(_ROUNDS):
        names = sorted(name for name in lacking(model) if _has_body(name, opsets(model)))
        if not names:
            break
        model = _typed(model)
        model = inliner.inline_selected_functions(
            model, [("", name) for name in names], inline_schema_functions=True
        )
    return model


def opsets(model: Any) -> dict[str, int]:
    """The version of every operator set that the model imports, by domain."""
    return {domain_of(one.domain): one.version for one in model.opset_import}


def domain_of(name: str) -> str:
    """The domain under the one of its names that is used here."""
    return "" if name == "ai.onnx" else name


def schema_of(operator: str, opset: int, domain: str = "") -> Any:
    """The schema of an operator in an operator set, None where there is none."""
    from onnx import defs

    try:
        return defs.get_schema(operator, max_inclusive_version=opset, domain=domain)
    except defs.SchemaError:
        return None


def _typed(model: Any) -> Any:
    """The model with the types of all its values, which the bodies of functions depend on."""
    from onnx import helper, shape_inference

    model = shape_inference.infer_shapes(model)
    known = {one.name for one in (*model.graph.value_info, *model.graph.input)}
    for one in model.graph.initializer:
        if one.name not in known:
            value = helper.make_tensor_value_info(one.name, one.data_type, one.dims)
            model.graph.value_info.append(value)
    return model


def _has_body(operator: str, versions: dict[str, int]) -> bool:
    found = schema_of(operator, versions.get("", 1))
    return found is not None and (found.has_function or found.has_context_dependent_function)
