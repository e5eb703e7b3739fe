"""Shape arithmetic that an exporter leaves is folded; work never is."""

import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.onnx import ONNXProgram

_FX_NODE = "pkg.torch.onnx.fx_node"
_SMALL = 64  # a shape, a scale, a pair of bounds: never a tensor that a model computes with


def simplify(program: "ONNXProgram") -> None:
    """Fold the shape arithmetic that the exporter leaves, and nothing that is work.

    Work on weights (a position bias made from parameters, say) stays: it is counted, and shown
    apart as constant. A bias of zeros that the exporter makes up for a convolution that has none
    goes, since it would be counted as additions.
    """
    from onnx_ir.passes import common
    from onnxscript.optimizer import fold_constants

    model = program.model
    weights = weight_names(program)
    _stand_in_for_meta_tensors(model)

    def is_shape_arithmetic(node: "ir.Node") -> bool:
        inputs = [value for value in node.inputs if value is not None]
        if any(value.name in weights for value in inputs):
            return False
        return all(map(_is_small_or_integer, node.outputs)) or all(
            map(_is_small_or_integer, inputs)
        )

    fold = functools.partial(
        fold_constants, model, onnx_shape_inference=True, should_fold=is_shape_arithmetic
    )
    _drop_made_up_biases(program)
    fold()
    before, unknown = -1, _unknown_shapes(model)
    while unknown and unknown != before:
        # Inference node by node stops behind operators such as LSTM: infer over the whole graph,
        # fold what became known, and go on as long as that brings something.
        common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
        fold()
        before, unknown = unknown, _unknown_shapes(model)
    common.IdentityEliminationPass()(model)
    common.RemoveUnusedNodesPass()(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)


def _unknown_shapes(model: "ir.Model") -> int:
    return sum(
        value.shape is None or any(not isinstance(extent, int) for extent in value.shape)
        for node in model.graph.all_nodes()
        for value in node.outputs
    )


def _drop_made_up_biases(program: "ONNXProgram") -> None:
    biased = {node.name for node in _operators(program) if _has_bias(node)}
    unbiased = {node.name for node in _operators(program)} - biased
    for node in program.model.graph.all_nodes():
        if node.op_type not in {"Conv", "ConvTranspose"} or len(node.inputs) < 3:
            continue
        if fx_name(node) in unbiased:
            node.replace_input_with(2, None)


def _operators(program: "ONNXProgram") -> Iterator[Any]:
    """The nodes of the decomposed program and of the bodies in it."""
    import torch

    for module in program.exported_program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from module.graph.nodes


def _has_bias(node: Any) -> bool:
    return len(node.args) > 2 and node.args[2] is not None


def _stand_in_for_meta_tensors(model: "ir.Model") -> None:
    """Weights without data become zeros that take no memory: a folder looks at small ones."""
    import numpy as np
    import onnx_ir as ir

    for value in model.graph.initializers.values():
        tensor = value.const_value
        if getattr(getattr(tensor, "raw", None), "is_meta", False):
            zeros = np.broadcast_to(np.zeros((), value.dtype.numpy()), value.shape.numpy())
            value.const_value = ir.Tensor(zeros, dtype=value.dtype, name=value.name)


def _is_small_or_integer(value: "ir.Value") -> bool:
    if value.dtype is not None and not value.dtype.is_floating_point():
        return True
    extents = list(value.shape) if value.shape is not None else []
    size = 1
    for extent in extents:
        size *= extent if isinstance(extent, int) else _SMALL + 1
    return value.shape is not None and size <= _SMALL


def fx_name(node: "ir.Node") -> str:
    """Name of the operator call of the decomposed program that an ONNX node came from."""
    found = re.match(r"%(\w+)", node.metadata_props.get(_FX_NODE, ""))
    return found[1] if found else ""


def weight_names(program: "ONNXProgram") -> frozenset[str]:
    """Names of the parameters and buffers: what a folder of shape arithmetic leaves alone."""
    exported = program.exported_program
    return frozenset((*exported.state_dict, *exported.constants))
