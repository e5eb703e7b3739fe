"""What jax2onnx writes, tidied: no biases that nobody adds, no products that ONNX does not know."""

from typing import Any

import numpy as np

_BIASED = {"Gemm": 2, "Conv": 2, "ConvTranspose": 2, "LayerNormalization": 2}


def tidy(model: Any) -> None:
    """Change the nodes of a model (of onnx_ir) and its subgraphs; what they compute stays.

    * A bias of zeros goes: no equation adds it.
    * A Dropout that is told not to drop is told nothing.
    * A Gemm of a vector, which ONNX does not have, is a MatMul and an Add.
    """
    for node in list(model.graph.all_nodes()):
        place = _BIASED.get(node.op_type)
        if place is not None and len(node.inputs) > place and _is_made(node.inputs[place]):
            node.replace_input_with(place, None)
        if node.op_type == "Dropout" and len(node.inputs) > 2 and _is_made(node.inputs[2]):
            node.replace_input_with(2, None)
        if node.op_type == "Gemm" and _rank(node.inputs[0]) == 1:
            _as_product(node)


def _is_made(value: Any) -> bool:
    """Whether all of it is 0: so jax2onnx fills the place of a bias where there is none.

    The variables of a module are other numbers here, whatever they are in the caller's.
    """
    held = value.const_value if value is not None else None
    return held is not None and not np.any(held.numpy())


def _rank(value: Any) -> int | None:
    return len(value.shape) if value is not None and value.shape is not None else None


def _as_product(node: Any) -> None:
    import onnx_ir as ir

    left, right, *rest = node.inputs
    result = node.outputs[0]
    notes = dict(node.metadata_props)
    product = ir.Node("", "MatMul", [left, right], num_outputs=1, metadata_props=dict(notes))
    made = [product]
    product.outputs[0].shape, product.outputs[0].type = result.shape, result.type
    product.outputs[0].name = f"{result.name}_product"
    if rest and rest[0] is not None:
        total = ir.Node(
            "", "Add", [product.outputs[0], rest[0]], num_outputs=1, metadata_props=dict(notes)
        )
        total.outputs[0].shape, total.outputs[0].type = result.shape, result.type
        made.append(total)
    made[-1].outputs[0].name = result.name
    ir.convenience.replace_nodes_and_values(
        node.graph, node, [node], made, [result], [made[-1].outputs[0]]
    )
