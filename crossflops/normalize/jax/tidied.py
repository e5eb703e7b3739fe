"""What jax2onnx writes, tidied: a bias that it made of zeros is none."""

from typing import Any

import numpy as np

_BIASED = {"Gemm": 2, "Conv": 2, "ConvTranspose": 2, "LayerNormalization": 2}


def tidy(model: Any) -> None:
    """Take biases of zeros away that no equation adds. Changes the model (of onnx_ir)."""
    for node in model.graph.all_nodes():
        place = _BIASED.get(node.op_type)
        if place is None or len(node.inputs) <= place or not _is_made(node.inputs[place]):
            continue
        node.replace_input_with(place, None)


def _is_made(value: Any) -> bool:
    """Whether all of it is 0: so jax2onnx fills the place of a bias where there is none.

    The variables of a module are other numbers here, whatever they are in the caller's.
    """
    held = value.const_value if value is not None else None
    return held is not None and not np.any(held.numpy())
