"""What onnx_opcounter computes: the functions in `calculate_macs` of onnx_opcounter.py.

A shape without axes is np.prod(()) = 1 there. A formula raises LookupError where the tool does.
"""

from math import prod

from crossflops.ir.graph import Node
from crossflops.tools.formulas.nodes import NodeFormula

_INPUTS = ("float32", "int64", "float64")  # the keys of type_mapping: 1, 7, 11


def _dims(node: Node, kind: str, index: int) -> tuple[int, ...]:
    """`output_shapes[name]`, which has no entry for the empty name of a tensor left out."""
    specs = getattr(node, kind)
    spec = specs[index] if index < len(specs) else None
    if spec is None or not spec.name:
        raise LookupError(f"{node.key} has no tensor {index} among its {kind}")
    if spec.shape is None:
        raise ValueError("a shape is not known")
    dims: tuple[int, ...] = spec.shape
    return dims


def convolution(node: Node) -> int:
    """n(Y) (C // g) prod(k), C axis 1 of X; k from the attribute kernel_shape, which must be."""
    kernel = node.attrs["kernel_shape"]
    group = node.attrs.get("group", 1)
    if not isinstance(kernel, tuple) or not isinstance(group, int):
        raise TypeError("kernel_shape or group is of another kind")
    channels = _dims(node, "inputs", 0)[1]
    return prod(_dims(node, "outputs", 0)) * (channels // group) * prod(map(int, kernel))


def product(node: Node) -> int:
    """n(A) Y[-1]: batches that only B has are lost, and of a vector B Y[-1] is an axis of A."""
    return prod(_dims(node, "inputs", 0)) * _dims(node, "outputs", 0)[-1]


def first_input(node: Node) -> int:
    """n(A), also where B is the larger one."""
    return prod(_dims(node, "inputs", 0))


def first_output(node: Node) -> int:
    """n(Y), whatever the node does."""
    return prod(_dims(node, "outputs", 0))


def nameless(node: Node) -> int:
    """1 where the first result, or the first input of a node that has any, is left out."""
    given = [specs[0] for specs in (node.inputs, node.outputs) if specs]
    return int(any(spec is None or not spec.name for spec in given))


def foreign(node: Node) -> int:
    """1 for an operator whose results onnx.shape_inference cannot tell, and the file does not.

    It tells those of a function, and the file has the types of its outputs.
    """
    told = bool(node.outputs) and node.outputs[0] is not None and node.outputs[0].role == "output"
    return int(node.choice != "function" and not told)


def other_inputs(node: Node) -> int:
    """Inputs of the model that are neither float32 nor float64 nor int64."""
    return sum(spec is not None and spec.dtype not in _INPUTS for spec in node.inputs)


NODE_FORMULAS: dict[str, NodeFormula] = {
    "opcounter.convolution": convolution,
    "opcounter.product": product,
    "opcounter.first_input": first_input,
    "opcounter.first_output": first_output,
    "opcounter.nameless": nameless,
    "opcounter.foreign": foreign,
    "opcounter.other_inputs": other_inputs,
}
