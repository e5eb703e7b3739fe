"""An ONNX model rewritten until there is a converter for every operator in it.

Local functions are inlined, operators without a converter are replaced by what their function
body says, arithmetic on sizes is folded, and what changed with the opset only in the types that
it takes is given the older converter. What changed otherwise, onnx's own version converter may
bring back.
"""

from typing import Any

from crossflops.errors import NormalizeError
from crossflops.normalize.rebuilt.bodies import opened, opsets
from crossflops.normalize.rebuilt.facts import READ_IT
from crossflops.normalize.rebuilt.refused import refuse
from crossflops.normalize.rebuilt.registry import lacking

_OLDER = (20, 18, 17, 16, 13)  # opsets to go back to, the nearest first
_SMALL = 64  # elements: a shape, a scale
# what makes or moves weights, and computes nothing
_OF_WEIGHTS = ("ConstantOfShape", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def convertible(model: Any) -> Any:
    """The model, rewritten. Raises NormalizeError, naming an operator that stands in the way."""
    from onnx import inliner

    refuse(model, "torch module")
    model = inliner.inline_local_functions(model)
    refuse(model, "torch module")
    found = _folded(_opened(_folded(model) if lacking(model) else model))
    first = missing = lacking(found)
    for opset in _OLDER:
        if not missing:
            return found
        older = _older(found, opset)
        if older is not None:
            older = _folded(_opened(older))
            missing = lacking(older)
            found = found if missing else older
    if not missing:
        return found
    operator, version = min(first)
    raise NormalizeError(
        f"nothing converts {operator} of opset {version} into a torch module", READ_IT
    )


def _older(model: Any, opset: int) -> Any:
    from onnx import version_converter

    if opset >= opsets(model).get("", 1):
        return None
    try:
        return version_converter.convert_version(model, opset)
    except Exception:  # some operator cannot go back
        return None


def _opened(model: Any) -> Any:
    return opened(model, lambda one: {name for name, _ in lacking(one)})


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
