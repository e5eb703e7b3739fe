"""Function bodies for products of complex numbers, which an ONNX file stores as pairs of real ones
on the last axis.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from crossflops.frontends.pytorch.convert.exporter import IMAGINARY
from crossflops.frontends.pytorch.convert.function_bodies.writer import (
    Body,
    OnnxBodyWriter,
    OpaqueNode,
)


def _has_only_complex_tensors(node: OpaqueNode) -> bool:
    """Return True if all operands and results of a node are complex numbers, stored as pairs on
    the last axis.
    """
    described = (*node.operands, *node.results)
    return all(row.shape[-1:] == (2,) and row.dtype.is_floating_point() for row in described)


def _write_real_and_imaginary_parts(write: OnnxBodyWriter, pairs: Any) -> list[Any]:
    """Write ONNX nodes that take the real and the imaginary part of complex numbers (..., 2);
    return both.
    """
    return [write("Gather", pairs, write.constant_integer(part), axis=-1) for part in (0, 1)]


def _write_stack(write: OnnxBodyWriter, *parts: Any) -> Any:
    """Write ONNX nodes that stack tensors along a new last axis; return the result."""
    last = write.constant_integers(-1)
    return write("Concat", *(write("Unsqueeze", part, last) for part in parts), axis=-1)


def _write_complex_product(
    write: OnnxBodyWriter, left: Any, right: Any, operator: str = "MatMul", **attributes: Any
) -> Any:
    """Write ONNX nodes for the complex product (a + bi)(c + di) by an operator for real ones;
    return the result.
    """
    (a, b), (c, d) = (
        _write_real_and_imaginary_parts(write, left),
        _write_real_and_imaginary_parts(write, right),
    )

    def write_real_product(first: Any, second: Any) -> Any:
        """Write the node for the product of two real tensors; return the result."""
        return write(operator, first, second, **attributes)

    return _write_stack(
        write,
        write("Sub", write_real_product(a, c), write_real_product(b, d)),
        write("Add", write_real_product(a, d), write_real_product(b, c)),
    )


def _write_complex_matmul(
    write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]
) -> list[Any] | None:
    """Write ONNX nodes for the product A B of complex matrices or batches; return [result], None
    if not in pairs.
    """
    return [_write_complex_product(write, *x)] if _has_only_complex_tensors(node) else None


def _write_complex_linear_layer(
    write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]
) -> list[Any] | None:
    """Write ONNX nodes for the complex layer x W^T + b, with W [out, in]; return [result], None if
    W is no matrix.
    """
    if not _has_only_complex_tensors(node) or len(node.operands[1].shape) != 3:
        return None
    numbers, weight, *bias = x
    product = _write_complex_product(write, numbers, write("Transpose", weight, perm=[1, 0, 2]))
    return [write("Add", product, bias[0]) if bias else product]


def _write_complex_addmm(
    write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]
) -> list[Any] | None:
    """Write ONNX nodes for the complex sum beta b + alpha A B; return [result], None if beta or
    alpha is complex.
    """
    names = ("beta", "alpha")
    if not _has_only_complex_tensors(node) or any(
        f"{name}{IMAGINARY}" in node.settings for name in names
    ):
        return None
    summand, first, second = x
    beta, alpha = (
        write.constant_float_like(float(node.settings.get(name, 1)), summand) for name in names
    )
    product = _write_complex_product(write, first, second)
    return [write("Add", write("Mul", summand, beta), write("Mul", product, alpha))]


def _write_complex_einsum(
    write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]
) -> list[Any] | None:
    """Write ONNX nodes for an `einsum` of one or two complex operands; return [result], None for
    more operands.
    """
    equation = node.settings["equation"]
    if not _has_only_complex_tensors(node) or len(x) > 2:
        return None
    if len(x) == 2:
        return [_write_complex_product(write, x[0], x[1], "Einsum", equation=equation)]
    parts = [
        write("Einsum", part, equation=equation)
        for part in _write_real_and_imaginary_parts(write, x[0])
    ]
    return [_write_stack(write, *parts)]


BODIES: Mapping[str, Body] = {
    "aten.bmm.default": _write_complex_matmul,
    "aten.mm.default": _write_complex_matmul,
    "aten.linear.default": _write_complex_linear_layer,
    "aten.addmm.default": _write_complex_addmm,
    "aten.addmv.default": _write_complex_addmm,
    "aten.baddbmm.default": _write_complex_addmm,
    "aten.einsum.default": _write_complex_einsum,
}
