"""Read the shapes and attributes of a node; a ValueError says what is missing.

The counter turns that error into "uncounted, because ...", so a formula checks nothing itself.
"""

from math import prod

from crossflops.ir.graph import Node, TensorSpec


def has_input(node: Node, index: int) -> bool:
    """Return whether the node is given the (optional) input at this index."""
    return index < len(node.inputs) and node.inputs[index] is not None


def has_output(node: Node, index: int) -> bool:
    """Return whether the node has the (optional) output at this index."""
    return index < len(node.outputs) and node.outputs[index] is not None


def input_spec(node: Node, index: int) -> TensorSpec:
    """Return the input tensor at this index. Raises ValueError if it is not given."""
    spec = node.inputs[index] if index < len(node.inputs) else None
    if spec is None:
        raise ValueError(f"{node.op} has no input {index}")
    return spec


def output_spec(node: Node, index: int = 0) -> TensorSpec:
    """Return the output tensor at this index. Raises ValueError if the node does not have it."""
    spec = node.outputs[index] if index < len(node.outputs) else None
    if spec is None:
        raise ValueError(f"{node.op} has no output {index}")
    return spec


def input_element_count(node: Node, index: int = 0) -> int:
    """Return the number of elements of an input; 0 if it is not given."""
    return input_spec(node, index).numel if has_input(node, index) else 0


def output_element_count(node: Node) -> int:
    """Return the number of elements of the first output."""
    return output_spec(node).numel


def spec_shape(spec: TensorSpec, rank: int | None = None, at_least: int = 0) -> tuple[int, ...]:
    """Return the shape of a tensor. Raises ValueError if it is unknown or has another rank than
    required.
    """
    if spec.shape is None:
        raise ValueError(f"the shape of {spec.name!r} is unknown")
    count = len(spec.shape)
    if count < at_least or (rank is not None and count != rank):
        needed = f"at least {at_least}" if rank is None else str(rank)
        raise ValueError(f"{spec.name!r} has rank {count}, but {needed} is needed")
    return spec.shape


def integer_attribute(node: Node, name: str, default: int | None = None) -> int:
    """Return an integer attribute, or its default. Raises ValueError if it is missing without a
    default.
    """
    value = node.attrs.get(name, default)
    if not isinstance(value, int):
        raise ValueError(f"{node.op} has no integer attribute {name!r}")
    return value


def positive_integer_attribute(node: Node, name: str, default: int | None = None) -> int:
    """Return an integer attribute, or its default. Raises ValueError if it is less than 1."""
    value = integer_attribute(node, name, default)
    if value < 1:
        raise ValueError(f"attribute {name!r} of {node.op} is {value}")
    return value


def float_attribute(node: Node, name: str, default: float) -> float:
    """Return a float attribute, or its default. Raises ValueError if it is a complex number."""
    value = node.attrs.get(name, default)
    if f"{name}_imag" in node.attrs:
        raise ValueError(f"attribute {name!r} of {node.op} is a complex number")
    if not isinstance(value, int | float):
        raise ValueError(f"attribute {name!r} of {node.op} is not a number")
    return value


def string_attribute(node: Node, name: str, default: str | None = None) -> str:
    """Return a text attribute, or its default. Raises ValueError if it is missing without a
    default.
    """
    value = node.attrs.get(name, default)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if not isinstance(value, str):
        raise ValueError(f"{node.op} has no string attribute {name!r}")
    return value


def text_list_attribute(node: Node, name: str) -> tuple[str, ...]:
    """Return an attribute that is a list of texts; () if it is missing."""
    value = node.attrs.get(name, ())
    if not isinstance(value, tuple):
        raise ValueError(f"attribute {name!r} of {node.op} is not a list")
    return tuple(v.decode(errors="replace") if isinstance(v, bytes) else str(v) for v in value)


def kernel_window_size(node: Node) -> int:
    """Return the number of elements of a window of the size `kernel_shape` (an attribute), at
    least 1. Raises ValueError.
    """
    value = node.attrs.get("kernel_shape")
    if not isinstance(value, tuple) or not all(isinstance(k, int) and k > 0 for k in value):
        raise ValueError(f"{node.op} has no kernel_shape")
    return prod(int(k) for k in value)


def axis_attribute_index(node: Node, rank: int, default: int) -> int:
    """Return the attribute `axis` as an index from 0 to `rank`. Raises ValueError if it is out of
    range.
    """
    axis = integer_attribute(node, "axis", default)
    if not -rank <= axis <= rank:
        raise ValueError(f"axis {axis} of {node.op} is out of range for rank {rank}")
    return axis + rank if axis < 0 else axis


def reduction_operation_count(before: int, after: int) -> int:
    """Return the number of operations that reduce `before` elements to `after` results: the
    difference, at least 0.

    An empty sum takes none, so the difference never goes below zero.
    """
    return max(before - after, 0)
