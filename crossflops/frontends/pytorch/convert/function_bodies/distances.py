"""Function bodies for distances of vectors."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from crossflops.frontends.pytorch.convert.function_bodies.writer import (
    Body,
    OnnxBodyWriter,
    OpaqueNode,
)


def _write_p_norms(write: OnnxBodyWriter, gaps: Any, power: float) -> Any:
    """Write ONNX nodes for the p-norm along the last axis, (sum of |x|^p)^(1/p); return the
    result.
    """
    last = write.constant_integers(-1)
    if power == 2:
        return write("ReduceL2", gaps, last, keepdims=0)
    sizes = write("Abs", gaps)
    if power == 1:
        return write("ReduceSum", sizes, last, keepdims=0)
    if power == math.inf:
        return write("ReduceMax", sizes, last, keepdims=0)
    if power == 0:
        return write("ReduceSum", write("Sign", sizes), last, keepdims=0)
    raised = write("Pow", sizes, write.constant_float_like(power, gaps))
    total = write("ReduceSum", raised, last, keepdims=0)
    return write("Pow", total, write.constant_float_like(1 / power, gaps))


def _write_vector_distances(write: OnnxBodyWriter, first: Any, second: Any, power: float) -> Any:
    """Write ONNX nodes for the distances of vectors [..., P, M] and [..., R, M]; return them,
    [..., P, R].
    """
    rows = write("Unsqueeze", first, write.constant_integers(-2))
    columns = write("Unsqueeze", second, write.constant_integers(-3))
    return _write_p_norms(write, write("Sub", rows, columns), power)


def _write_cdist(write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]) -> list[Any]:
    """Write ONNX nodes for `torch.cdist`, the distances between the rows of two matrices; return
    [result].
    """
    return [_write_vector_distances(write, x[0], x[1], float(node.settings.get("p", 2)))]


def _write_pdist(write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]) -> list[Any]:
    """Write ONNX nodes for `pdist`, the distance of each pair of rows of a matrix; return
    [result].
    """
    pairs = _write_vector_distances(write, x[0], x[0], float(node.settings.get("p", 2)))
    indices = write.append_range(node.operands[0].shape[0])
    flat = write.constant_integers(-1)
    above = write("Reshape", write("Less", write.append_column_reshape(indices), indices), flat)
    return [write("Compress", write("Reshape", pairs, flat), above, axis=0)]


def _write_hypotenuse(write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]) -> list[Any]:
    """Write ONNX nodes for `hypot` as m sqrt((a/m)^2 + (b/m)^2), m the larger of |a| and |b|;
    return [result].

    No square overflows.
    """
    first, second = (write("Abs", side) for side in x)
    largest = write("Max", first, second)
    unit, zero = (write.constant_float_like(number, largest) for number in (1.0, 0.0))
    divisor = write("Where", write("Equal", largest, zero), unit, largest)
    shares = [write("Div", side, divisor) for side in (first, second)]
    squares = write("Add", *(write("Mul", share, share) for share in shares))
    return [write("Mul", largest, write("Sqrt", squares))]


BODIES: Mapping[str, Body] = {
    "aten._cdist_forward.default": _write_cdist,
    "aten._pdist_forward.default": _write_pdist,
    "prims.hypot.default": _write_hypotenuse,
}
