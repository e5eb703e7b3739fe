"""Matrix products of small integers, and of real numbers with packed weights."""

from functools import partial
from math import prod

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import given, integer, out_size, positive, result, shape, size, source
from crossflops.ops.contrib.activation import named
from crossflops.ops.contrib.normalization import rms
from crossflops.ops.matmul import MATMUL, matmul, of_columns, product, same_inner
from crossflops.ops.operands import broadcast_to, dims_of, equal, label, shaped, single, sizes
from crossflops.ops.pointwise import MUL
from crossflops.ops.quantization import dynamic_quantize_linear, requantize
from crossflops.ops.rule import MICROSOFT, Constraint, Entry, entry


def qgemm(node: Node) -> Cost:
    """QGemm: Y = quantize(alpha * (A - zA)' * (B - zB)' * sA * sB + C); MACs = M*N*K.

    A 0, B 3, C 6. Zero points n(A) + n(B) adds, C M*N adds, then M*N requantized, or M*N muls
    where the output is real (no y_scale). alpha is part of the factor.
    """
    rows = shape(source(node, 0), rank=2)
    out = out_size(node)
    adds = size(node, 0) + size(node, 3) + (out if given(node, 6) else 0)
    macs = out * (rows[0] if integer(node, "transA", 0) else rows[1])
    return Cost(macs=macs, adds=adds) + (requantize(out) if given(node, 7) else MUL * out)


def integer_to_float(node: Node) -> Cost:
    """MatMulIntegerToFloat: (A - zA) * (B - zB) * (sA * sB) + bias; MACs = n(Y)*K.

    Zero points (inputs 4, 5) n(A) + n(B) adds, n(Y) muls, bias n(Y) adds.
    """
    out = out_size(node)
    shifted = sum(size(node, i) for i in (0, 1) if given(node, i + 4))
    return matmul(node) + Cost(adds=shifted + (out if given(node, 6) else 0), muls=out)


def dynamic_quantize_matmul(node: Node) -> Cost:
    """DynamicQuantizeMatMul: A is quantized as by DynamicQuantizeLinear; MACs = n(Y)*K.

    Its zero point n(A) adds, that of B n(B) adds, n(Y) muls, bias n(Y) adds.
    """
    out = out_size(node)
    shifted = size(node, 0) + (size(node, 1) if given(node, 3) else 0)
    bias = out if given(node, 4) else 0
    return dynamic_quantize_linear(node) + matmul(node) + Cost(adds=shifted + bias, muls=out)


def _rows(node: Node, depth: int) -> int:
    """Rows of A [..., K]. Raises ValueError when its last dimension is not K."""
    dims = shape(source(node, 0), at_least=1)
    if dims[-1] != depth or depth <= 0:
        raise ValueError(f"A of {node.op} ends in {dims[-1]} and K is {depth}")
    return size(node, 0) // depth


def matmul_nbits(node: Node) -> Cost:
    """MatMulNBits: Y = A * dequantize(B) + bias; MACs = (n(A) / K) * K * N.

    K and N are attributes: B is packed. The weights are dequantized once, (q - zero_point) *
    scale, K*N (sub, mul); without zero_points the middle of the range is taken off.
    """
    depth, width = positive(node, "K"), positive(node, "N")
    rows = _rows(node, depth)
    bias = rows * width if given(node, 5) else 0
    return Cost(macs=rows, muls=1, adds=1) * (depth * width) + Cost(adds=bias)


def matmul_bnb4(node: Node) -> Cost:
    """MatMulBnb4: as MatMulNBits; a table entry times absmax of its block, K*N muls."""
    depth, width = positive(node, "K"), positive(node, "N")
    if not integer(node, "transB", 1):
        depth, width = width, depth
    return Cost(macs=_rows(node, depth), muls=1) * (depth * width)


def matmul_fpq4(node: Node) -> Cost:
    """MatMulFpQ4: MACs = n(Y)*K, as MatMulNBits; B [K, N] is a blob, N is the end of Y."""
    width = shape(result(node), at_least=1)[-1]
    depth = shape(source(node, 0), at_least=1)[-1]
    return Cost(macs=out_size(node) * depth) + Cost(muls=1, adds=1) * (depth * width)


def _normalized(node: Node, depth: int, skip: int, scale: int) -> Cost:
    """skip n(A) adds, then SimplifiedLayerNormalization over K where there is a scale."""
    count, rows = size(node, 0), _rows(node, depth)
    cost = Cost(adds=count if given(node, skip) else 0)
    return cost + (rms(count, rows, scaled=True) if given(node, scale) else ZERO)


def nbits_qkv(node: Node) -> Cost:
    """MatMulNBitsQkv: a normalization, then three MatMulNBits; MACs = n(A) * (Nq + 2*Nkv).

    q_B 3, k_B 6, v_B 9, each with scales and a bias behind it.
    """
    depth, shared = positive(node, "K"), positive(node, "Nkv")
    widths = (positive(node, "Nq"), shared, shared)
    rows = _rows(node, depth)
    weights = depth * sum(widths)
    bias = sum(rows * n for n, i in zip(widths, (5, 8, 11), strict=True) if given(node, i))
    products = Cost(macs=rows, muls=1, adds=1) * weights + Cost(adds=bias)
    return _normalized(node, depth, skip=1, scale=2) + products


def nbits_mlp(node: Node) -> Cost:
    """MatMulNBitsMlp: Y = activation(A * gate) * (A * up); MACs = n(A) * 2*N.

    skip 1, norm_scale 2, gate_B 3, up_B 6, each with scales and a bias behind it.
    """
    depth, width = positive(node, "K"), positive(node, "N")
    rows = _rows(node, depth)
    bias = rows * width * (given(node, 5) + given(node, 8))
    products = Cost(macs=rows, muls=1, adds=1) * (2 * depth * width) + Cost(adds=bias)
    gated = (named(node, default="silu") + MUL) * (rows * width)
    return _normalized(node, depth, skip=1, scale=2) + products + gated


def fp8_weight(node: Node) -> Cost:
    """MatMulBlockQuantizedFp8Weight: Y = A * (B * b_scale)^T + bias; MACs = n(Y)*K.

    B [N, K]: n(B) muls. a_scale: A is rounded to eight bits, n(A) (div, mul). bias n(Y) adds.
    """
    rounded = size(node, 0) if given(node, 3) else 0
    bias = out_size(node) if given(node, 4) else 0
    return matmul(node) + Cost(muls=size(node, 1) + rounded, divs=rounded, adds=bias)


def fp4_weight(node: Node) -> Cost:
    """MatMulBlockQuantizedFp4Weight: as with eight bits; two scales, so K*N (2 muls).

    B [N, K / 2] holds two weights in a byte. input_scale 4: n(A) (div, mul); bias 5 n(Y) adds.
    """
    depth = shape(source(node, 0), at_least=1)[-1]
    weights = depth * shape(source(node, 1), rank=2)[0]
    rounded = size(node, 0) if given(node, 4) else 0
    bias = out_size(node) if given(node, 5) else 0
    return matmul(node) + Cost(muls=2 * weights + rounded, divs=rounded, adds=bias)


def _qgemm_inner(node: Node) -> str:
    return same_inner(node, 0, 3)


def _blocks(node: Node) -> str:
    """B [N, ceil(K / block_size), bytes of a block], a scale for each block."""
    depth, width = positive(node, "K"), positive(node, "N")
    block, bits = positive(node, "block_size"), positive(node, "bits", 4)
    count = -(-depth // block)
    bytes_ = -(-block * bits // 8)
    packed, scales = dims_of(node, 1), dims_of(node, 2)
    if packed is not None and packed != (width, count, bytes_):
        return f"{label(node, 1, 'B')} needs {width}x{count}x{bytes_} for K = {depth}"
    if scales is not None and scales not in ((width * count,), (width, count)):
        return f"{label(node, 2, 'scales')} needs {width}x{count}, one for each block"
    spec = node.inputs[3] if len(node.inputs) > 3 else None
    zeros = count if spec is None or "float" in spec.dtype else -(-count * bits // 8)
    return shaped(3, lambda _: [(width * zeros,), (width, zeros)], "zero_points")(node)


def _bnb4(node: Node) -> str:
    """A ends in K, and in N where B is not transposed; B and absmax hold enough."""
    if wrong := (_K_LAST if integer(node, "transB", 1) else _N_LAST)(node):
        return wrong
    weights, block = positive(node, "K") * positive(node, "N"), positive(node, "block_size")
    for index, least in ((1, -(-weights // 2)), (2, -(-weights // block))):
        shape_ = dims_of(node, index)
        if shape_ is not None and prod(shape_) < least:
            return f"{label(node, index)} needs at least {least} elements for {weights} weights"
    return ""


def _bias(index: int) -> Constraint:
    """A number for every column of B, in whatever shape."""

    def constraint(node: Node) -> str:
        weight, bias = dims_of(node, 1), dims_of(node, index)
        if not weight or bias is None or prod(bias) == weight[-1]:
            return ""
        return f"{label(node, index, 'bias')} needs {weight[-1]} numbers for {label(node, 1, 'B')}"

    return constraint


_K_LAST, _N_LAST = sizes("K=@K A[...,K]"), sizes("N=@N A[...,N]")
_QGEMM = (
    _qgemm_inner,
    single(1, 2, 7, 8),
    of_columns(3, 4, 5),
    equal(4, 5),
    broadcast_to(6, partial(product, second=3), "the product"),
)
_NBITS = (sizes("K=@K N=@N A[...,K] B scales zero_points g_idx[K] bias[N]"), _blocks)
_BITS = "dequantize: K*N*(sub, mul)"

ENTRIES: tuple[Entry, ...] = (
    entry(
        "QGemm",
        qgemm,
        "M*N*K MACs; zero points: n(A)+n(B) adds; C: M*N adds; requantize: M*N*(mul, round, add, "
        "2 compares), or M*N muls to a real output",
        domain=MICROSOFT,
        requires=_QGEMM,
    ),
    entry(
        "MatMulInteger16",
        matmul,
        "n(Y)*K MACs",
        domain=MICROSOFT,
        requires=MATMUL,
    ),
    entry(
        "MatMulIntegerToFloat",
        integer_to_float,
        "n(Y)*K MACs; zero points: n(A)+n(B) adds; n(Y) muls; bias: n(Y) adds",
        domain=MICROSOFT,
        requires=(MATMUL, of_columns(1, 2, 3, 4, 5), _bias(6)),
    ),
    entry(
        "DynamicQuantizeMatMul",
        dynamic_quantize_matmul,
        "n(Y)*K MACs; DynamicQuantizeLinear of A; n(A) adds, zero point of B: n(B) adds; n(Y) "
        "muls; bias: n(Y) adds",
        domain=MICROSOFT,
        operand=1,
        requires=(MATMUL, of_columns(1, 2, 3), _bias(4)),
    ),
    entry(
        "MatMulNBits",
        matmul_nbits,
        f"(n(A)/K)*K*N MACs; {_BITS}; bias: n(Y) adds",
        domain=MICROSOFT,
        requires=_NBITS,
    ),
    entry(
        "MatMulBnb4",
        matmul_bnb4,
        "(n(A)/K)*K*N MACs; dequantize: K*N muls",
        domain=MICROSOFT,
        requires=_bnb4,
    ),
    entry("MatMulFpQ4", matmul_fpq4, f"n(Y)*K MACs; {_BITS}", domain=MICROSOFT),
    entry(
        "MatMulNBitsQkv",
        nbits_qkv,
        f"n(A)*(Nq+2Nkv) MACs; {_BITS} of all three; biases: adds; skip: n(A) adds; RMS "
        "normalization of A",
        domain=MICROSOFT,
        requires=sizes("K=@K A[...,K] skip[...,K] norm_scale[K]"),
    ),
    entry(
        "MatMulNBitsMlp",
        nbits_mlp,
        f"n(A)*2N MACs; {_BITS} of both; biases: adds; skip: n(A) adds; RMS normalization of A; "
        "n(Y)*(activation, mul)",
        domain=MICROSOFT,
        requires=sizes("K=@K A[...,K] skip[...,K] norm_scale[K]"),
    ),
    entry(
        "MatMulBlockQuantizedFp8Weight",
        fp8_weight,
        "n(Y)*K MACs; dequantize: K*N muls; a_scale: n(A)*(div, mul); bias: n(Y) adds",
        domain=MICROSOFT,
        requires=sizes("A[...,K] B[N,K] b_scale a_scale bias[N]"),
    ),
    entry(
        "MatMulBlockQuantizedFp4Weight",
        fp4_weight,
        "n(Y)*K MACs; dequantize: K*N*(2 muls); input_scale: n(A)*(div, mul); bias: n(Y) adds",
        domain=MICROSOFT,
        requires=sizes("A[...,2*P] B[N,P] weight_scale weight_scale_2 input_scale bias[N]"),
    ),
)
