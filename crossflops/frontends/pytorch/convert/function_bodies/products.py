"""Function bodies for products in groups, products of small integers, and running products."""

from collections.abc import Mapping, Sequence
from typing import Any

from crossflops.frontends.pytorch.convert.function_bodies.writer import (
    Body,
    OnnxBodyWriter,
    OpaqueNode,
)


def _write_grouped_product(
    write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]
) -> list[Any] | None:
    """Write ONNX nodes for a matrix product in groups, into which one axis is cut; return
    [result], None for other shapes.

    Rows [T, K] meet the matrix of their group, [G, K, N]; columns [K, N] that of theirs, [G, M,
    K]; of [M, K] and [K, N] the pieces of K give [G, M, N]. Other groups are zeros.
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grouped_mm.html
    """
    axes = tuple(len(row.shape) for row in node.operands)
    if axes[:2] not in ((2, 2), (2, 3), (3, 2), (3, 3)) or len(axes) != 2 + (axes[:2] != (3, 3)):
        return None
    first, second = (write.append_float32_cast(x[index], node.operands[index]) for index in (0, 1))
    if axes == (3, 3):
        return [write("CastLike", write("MatMul", first, second), x[0])]
    cut = node.operands[1 if axes == (3, 2, 1) else 0].shape[0 if axes[0] == 2 != axes[1] else -1]
    member = _write_group_membership_matrix(write, x[2], cut)
    zero = write.constant_float_like(0.0, first)
    if axes == (2, 3, 1):
        own = write("Where", write("Unsqueeze", member, write.constant_integers(2)), first, zero)
        product = write("MatMul", own, second)
    else:
        rows = write("Unsqueeze", member, write.constant_integers(1))
        if axes == (3, 2, 1):
            product = write("Where", rows, write("MatMul", first, second), zero)
        else:
            product = write("MatMul", write("Where", rows, first, zero), second)
    if axes != (2, 2, 1):
        product = write("ReduceSum", product, write.constant_integers(0), keepdims=0)
    return [write("CastLike", product, x[0])]


def _write_group_membership_matrix(write: OnnxBodyWriter, offsets: Any, index_count: int) -> Any:
    """Write ONNX nodes for a boolean matrix [groups, indices], True where an index is in a group;
    return it.
    """
    ends = write.append_int64_cast(offsets)
    indices = write.append_range(index_count)
    before = write("Less", indices, write.append_column_reshape(ends))  # the groups end in order
    first = write(
        "Slice",
        before,
        write.constant_integers(0),
        write.constant_integers(-1),
        write.constant_integers(0),
    )
    earlier = write("Pad", first, write.constant_integers(1, 0, 0, 0))
    return write("Xor", before, earlier)


def _write_int8_matrix_product(
    write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]
) -> list[Any]:
    """Write the ONNX node for a matrix product of int8 operands, summed in int32; return
    [result].
    """
    return [write("MatMulInteger", *x)]


def _write_cumulative_product(
    write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]
) -> list[Any] | None:
    """Write ONNX nodes for `cumprod`, running products along an axis; return [result], None if the
    dtype changes.
    """
    import onnx_ir as ir

    shape, dtype = node.operands[0].shape, node.operands[0].dtype
    if not shape or dtype != node.results[0].dtype:
        return None
    axis = int(node.settings["dim"]) % len(shape)
    inner = write.new_loop_body_writer()
    before, element = (
        ir.Value(name=write.new_name(), type=ir.TensorType(dtype)) for _ in range(2)
    )
    product = inner("Mul", before, element)
    results = [inner("Identity", product), product]
    for result in results:
        result.type = ir.TensorType(dtype)
    body = ir.Graph([before, element], results, nodes=inner.nodes, name="step")
    first = write("Gather", x[0], write.constant_integer(0), axis=axis)
    ones = write("Expand", write.constant_float_like(1.0, first), write("Shape", first))
    attributes = {"scan_input_axes": [axis], "scan_output_axes": [axis]}
    scanned = write.append_with_results(
        2, "Scan", ones, x[0], num_scan_inputs=1, body=body, **attributes
    )
    return scanned[1:]


BODIES: Mapping[str, Body] = {
    "aten._grouped_mm.default": _write_grouped_product,
    "transformers.grouped_mm_fallback.default": _write_grouped_product,
    "aten._int_mm.default": _write_int8_matrix_product,
    "aten.cumprod.default": _write_cumulative_product,
}
