"""Stand-ins for matrix products."""

from collections.abc import Callable, Mapping

from crossflops.normalize.onnx_file.stand_ins.draft import INT32, Draft


def _transposed(draft: Draft, index: int, which: str) -> str | None:
    """An operand as MatMul takes it, None when its rank is needed and not known."""
    name = draft.input(index)
    last, batch = draft.integer(f"trans{which}"), draft.integer(f"transBatch{which}")
    if not last and not batch:
        return name
    dims = draft.shape(index)
    if dims is None:
        if batch or draft.opset < 12:
            return None
        return draft.put("Einsum", (name,), equation="...ij->...ji")
    if len(dims) < 2:
        return name
    order = list(range(len(dims)))
    if batch:
        order = [*order[1:-1], order[0], order[-1]]
    if last:
        order[-2:] = reversed(order[-2:])
    return draft.put("Transpose", (name,), perm=order)


def fused_matmul(draft: Draft) -> None:
    """FusedMatMul and its kin: MatMul of transposed operands."""
    left, right = _transposed(draft, 0, "A"), _transposed(draft, 1, "B")
    if left is None or right is None:
        draft.nodes.clear()
        return
    draft.put("MatMul", (left, right), draft.output(0))


def matmul(right: int, dtype: Callable[[Draft], int] | None = None) -> Callable[[Draft], None]:
    """A product of input 0 and another, in the element type of the first or in that of `dtype`."""

    def write(draft: Draft) -> None:
        operands = (draft.input(0), draft.input(right))
        if dtype is None:
            draft.put("MatMul", operands, draft.output(0))
        else:
            draft.cast(draft.put("MatMul", operands), draft.output(0), dtype(draft))

    return write


def packed(depth: str = "K", *widths: str) -> Callable[[Draft], None]:
    """Products of input 0 and packed weights, whose sizes are attributes."""

    def write(draft: Draft) -> None:
        for place, width in enumerate(widths):
            if draft.output(place):
                weights = draft.filled((draft.integer(depth), draft.integer(width)))
                draft.put("MatMul", (draft.input(0), weights), draft.output(place))
        if draft.output(len(widths)):
            draft.put("Identity", (draft.input(0),), draft.output(len(widths)))

    return write


def bnb4(draft: Draft) -> None:
    """MatMulBnb4: B is [N, K] when transposed."""
    sizes = (draft.integer("K"), draft.integer("N"))
    weights = draft.filled(sizes if draft.integer("transB", 1) else sizes[::-1])
    draft.put("MatMul", (draft.input(0), weights), draft.output(0))


def rows_of_weights(draft: Draft) -> None:
    """MatMulBlockQuantized*: [..., K] times [N, K or packed]; the rows of B are N."""
    dims, weights = draft.shape(0), draft.shape(1)
    if dims is not None and weights is not None:
        draft.filled((*dims[:-1], weights[0]), draft.output(0), draft.dtype(0))


def gemm(left: int, right: int, dtype: Callable[[Draft], int]) -> Callable[[Draft], None]:
    """M x N of a Gemm, whatever it adds."""

    def write(draft: Draft) -> None:
        operands = [draft.cast(draft.input(i), "", 1) for i in (left, right)]
        product = draft.take_over("Gemm", operands, "", ("transA", "transB"))
        draft.cast(product, draft.output(0), dtype(draft))

    return write


def _of(index: int) -> Callable[[Draft], int]:
    return lambda draft: draft.dtype(index)


def _of_qgemm(draft: Draft) -> int:
    return draft.dtype(8, 2) if draft.input(7) else 1


WRITERS: Mapping[str, Callable[[Draft], None]] = {
    **dict.fromkeys(("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation"), fused_matmul),
    **dict.fromkeys(("GemmFastGelu", "DynamicQuantizeMatMul"), matmul(1)),
    "MatMulIntegerToFloat": matmul(1, _of(2)),
    "MatMulInteger16": matmul(1, lambda _: INT32),
    "QOrderedMatMul": matmul(2),
    "MatMulNBits": packed("K", "N"),
    "MatMulNBitsMlp": packed("K", "N"),
    "MatMulNBitsQkv": packed("K", "Nq", "Nkv", "Nkv"),
    "MatMulBnb4": bnb4,
    **dict.fromkeys(
        ("MatMulBlockQuantizedFp8Weight", "MatMulBlockQuantizedFp4Weight"), rows_of_weights
    ),
    "FusedGemm": gemm(0, 1, _of(0)),
    "GemmFloat8": gemm(0, 1, lambda draft: draft.integer("dtype", 1)),
    "QGemm": gemm(0, 3, _of_qgemm),
}
