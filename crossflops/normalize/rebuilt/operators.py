"""An ONNX model rewritten until there is a converter for every operator in it.

Local functions are inlined, operators without a converter are replaced by what their function
body says, arithmetic on sizes is folded, and what changed with the opset only in the types that
it takes is given the older converter. What changed otherwise, onnx's own version converter may
bring back.
"""

from typing import Any

from crossflops.errors import NormalizeError
from crossflops.normalize.rebuilt.facts import READ_IT
from crossflops.normalize.rebuilt.registry import lacking, opsets, schema_of

_OLDER = (20, 18, 17, 16, 13)  # opsets to go back to, the nearest first
_CONTROL = ("If", "Loop", "Scan", "SequenceMap")
_QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "Integer", "QLinear")
_ROUNDS = 8  # functions in functions
_SMALL = 64  # elements: a shape, a scale
# what makes or moves weights, and computes nothing
_OF_WEIGHTS = ("ConstantOfShape", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def convertible(model: Any) -> Any:
    """The model, rewritten. Raises NormalizeError, naming an operator that stands in the way."""
    from onnx import inliner

    _refuse(model)
    model = inliner.inline_local_functions(model)
    _refuse(model)
    opened = _folded(_opened(_folded(model) if lacking(model) else model))
    first = missing = lacking(opened)
    for opset in _OLDER:
        if not missing:
            return opened
        older = _older(opened, opset)
        if older is not None:
            older = _folded(_opened(older))
            missing = lacking(older)
            opened = opened if missing else older
    if not missing:
        return opened
    operator, version = min(first)
    raise NormalizeError(
        f"nothing converts {operator} of opset {version} into a torch module", READ_IT
    )


def _refuse(model: Any) -> None:
    """What no rewriting helps. Raises NormalizeError."""
    bodies = (model.graph, *model.functions)
    for node in (node for body in bodies for node in body.node):
        name = f"{node.op_type} {node.name}".strip()
        if node.op_type in _CONTROL:
            what = f"{name} has subgraphs, and no torch module is rebuilt from these"
            raise NormalizeError(what, READ_IT)
        if any(word in node.op_type for word in _QUANTIZED):
            what = f"{name} is quantized, and no layer that a tool knows comes of it"
            raise NormalizeError(what, f"give the file from before it was quantized; {READ_IT}")


def _older(model: Any, opset: int) -> Any:
    from onnx import version_converter

    if opset >= opsets(model).get("", 1):
        return None
    try:
        return version_converter.convert_version(model, opset)
    except Exception:  # some operator cannot go back
        return None


def _opened(model: Any) -> Any:
    """The model with the function bodies of operators in place that have no converter."""
    from onnx import inliner

    for _ in range(_ROUNDS):
        names = sorted(name for name, _ in lacking(model) if _has_body(name, model))
        if not names:
            break
        model = _typed(model)
        model = inliner.inline_selected_functions(
            model, [("", name) for name in names], inline_schema_functions=True
        )
    return model


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


def _has_body(operator: str, model: Any) -> bool:
    schema = schema_of(operator, opsets(model).get("", 1))
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _folded(model: Any) -> Any:
    """The model without arithmetic on sizes, and its weights as they are used: initializers."""
    import onnx_ir
    from onnx_ir.passes import common
    from onnxscript.optimizer import fold_constants

    tree = onnx_ir.serde.deserialize_model(model)
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
    return onnx_ir.serde.serialize_model(tree)


def _is_of_sizes(value: Any) -> bool:
    if value.shape is None:
        return False
    sizes = [size if isinstance(size, int) else _SMALL + 1 for size in value.shape]
    elements = 1
    for size in sizes:
        elements *= size
    return elements <= _SMALL or (value.dtype is not None and not value.dtype.is_floating_point())
