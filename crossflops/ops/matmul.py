"""Matrix products."""

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops.access import given, integer, number, out_size, shape, size, source
from crossflops.ops.operands import Shape, broadcast_to, dims_of, inner, label, single
from crossflops.ops.quantization import requantize
from crossflops.ops.rule import Constraint, Entry, entry


def gemm(node: Node) -> Cost:
    """Gemm: Y = alpha * A' * B' + beta * C; MACs = M*N*K.

    A' [M, K] is A or its transpose (transA), B' [K, N], C broadcasts to Y [M, N].
    alpha != 1: M*N muls. C: M*N adds, and n(C) muls when beta != 1.
    https://onnx.ai/onnx/operators/onnx__Gemm.html
    """
    rows = shape(source(node, 0), rank=2)
    inner = rows[0] if integer(node, "transA", 0) else rows[1]
    out = out_size(node)
    scale = out if number(node, "alpha", 1.0) != 1 else 0
    if not given(node, 2):
        return Cost(macs=out * inner, muls=scale)
    weigh = size(node, 2) if number(node, "beta", 1.0) != 1 else 0
    return Cost(macs=out * inner, muls=scale + weigh, adds=out)


def matmul(node: Node) -> Cost:
    """MatMul: as numpy.matmul; MACs = n(Y)*K, K the last dimension of A.

    A [..., M, K], B [..., K, N], Y [..., M, N]; a 1-D operand is a row or a column whose
    dimension leaves the result again.
    https://onnx.ai/onnx/operators/onnx__MatMul.html
    """
    return Cost(macs=out_size(node) * shape(source(node, 0), at_least=1)[-1])


def matmul_integer(node: Node) -> Cost:
    """MatMulInteger: as MatMul; n(A) adds and n(B) adds where they have zero points.

    https://onnx.ai/onnx/operators/onnx__MatMulInteger.html
    """
    shifted = sum(size(node, i) for i in (0, 1) if given(node, i + 2))
    return matmul(node) + Cost(adds=shifted)


def qlinear_matmul(node: Node) -> Cost:
    """QLinearMatMul: as MatMul with b as input 3; zero points n(a) + n(b) adds.

    Then each output is requantized: one mul by the combined scale, round, add, two compares.
    https://onnx.ai/onnx/operators/onnx__QLinearMatMul.html
    """
    shifted = Cost(adds=size(node, 0) + size(node, 3))
    return matmul(node) + shifted + requantize(out_size(node))


def product(node: Node, first: int = 0, second: int = 1) -> Shape | None:
    """M and N of the product of A' and B', transposed as transA and transB say."""
    rows, columns = dims_of(node, first), dims_of(node, second)
    if rows is None or columns is None or len(rows) != 2 or len(columns) != 2:
        return None
    m = rows[1] if integer(node, "transA", 0) else rows[0]
    return m, columns[0] if integer(node, "transB", 0) else columns[1]


def same_inner(node: Node, first: int = 0, second: int = 1) -> str:
    """K of A' [M, K] and of B' [K, N] is the same."""
    for index in (first, second):
        shape = dims_of(node, index)
        if shape is not None and len(shape) != 2:
            return f"{label(node, index)} has rank {len(shape)}, and needs 2"
    rows, columns = dims_of(node, first), dims_of(node, second)
    if rows is None or columns is None:
        return ""
    across, along = integer(node, "transA", 0) == 0, integer(node, "transB", 0) != 0
    if rows[across] == columns[along]:
        return ""
    has = f"{label(node, second)} has {columns[along]} at axis {int(along)}"
    return f"{has}, and {rows[across]} is needed for {label(node, first)}"


GEMM = (same_inner, broadcast_to(2, product, "the product"))


def of_columns(weight: int, *places: int) -> Constraint:
    """A scale or a zero point of B [..., K, N]: one number, N, or [..., 1, N].

    To onnxruntime's own operators N numbers belong to one matrix.
    """

    def constraint(node: Node) -> str:
        dims = dims_of(node, weight)
        for place in places:
            own = dims_of(node, place)
            if dims is None or own is None or own in ((), (1,)):
                continue
            if own == dims[-1:] and not (node.op.domain and len(dims) > 2):
                continue
            if node.op.domain and set(own) == {1}:
                continue
            if len(own) != len(dims) or own != (*dims[:-2], 1, dims[-1]):
                return f"{label(node, place)} needs to be one number, or one for each column"
        return ""

    return constraint


MATMUL = inner(0, 1)

ENTRIES: tuple[Entry, ...] = (
    entry(
        "Gemm",
        gemm,
        "M*N*K MACs; alpha != 1: M*N muls; C: M*N adds; beta != 1: n(C) muls",
        requires=GEMM,
    ),
    entry(
        "MatMul",
        matmul,
        "n(Y)*K MACs",
        requires=MATMUL,
    ),
    entry(
        "MatMulInteger",
        matmul_integer,
        "n(Y)*K MACs; zero points: n(A)+n(B) adds",
        since=10,
        requires=(MATMUL, single(2), of_columns(1, 3)),
    ),
    entry(
        "QLinearMatMul",
        qlinear_matmul,
        "n(y)*K MACs; zero points: n(a)+n(b) adds; requantize: n(y)*(mul, round, add, 2 compares)",
        since=10,
        requires=(inner(0, 3), single(1, 2, 6, 7), of_columns(3, 4, 5)),
    ),
)
