"""The cost of onnxruntime's products with packed weights and small integers, and of mixtures of
experts.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import NamedTuple

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    has_input,
    input_element_count,
    input_spec,
    integer_attribute,
    output_element_count,
    output_spec,
    positive_integer_attribute,
    reduction_operation_count,
    spec_shape,
    string_attribute,
)
from crossflops.operators.contrib.elementwise import NAMED, activation_cost_by_name
from crossflops.operators.gradient import FUSED
from crossflops.operators.matmul import (
    MATMUL,
    column_scale_constraint,
    equal_inner_size_constraint,
    gemm_inner_size,
    gemm_output_shape,
    onnx_matmul_cost,
)
from crossflops.operators.normalization import rms_norm_cost, softmax_cost
from crossflops.operators.operands import (
    broadcast_to_constraint,
    equal_shapes_constraint,
    input_label,
    input_shape,
    input_shape_or_raise,
    rank_constraint,
    shape_constraint,
    single_number_constraint,
    sizes_constraint,
)
from crossflops.operators.pointwise import ADD, MUL
from crossflops.operators.quantization import dynamic_quantize_linear_cost, requantization_cost
from crossflops.operators.rule import MICROSOFT, Constraint, Exactness, OperandProblem, Operators

operator = Operators(MICROSOFT, backward=FUSED)


def _product_column_constraint(*digits: int) -> Constraint:
    """Return a constraint on the inputs at these indices, scales of a product: one number, or one
    for each column.
    """

    def column_scale_problem(node: Node) -> OperandProblem:
        """Return which scale has neither one number nor one for each column; "" if nothing is
        wrong.
        """
        dims = gemm_output_shape(node, second=3)
        for index in digits:
            scale = input_shape(node, index)
            if dims is not None and scale is not None and scale not in ((), (1,), dims[1:]):
                return f"{input_label(node, index)} needs to be one number, or one for each column"
        return ""

    return column_scale_problem


@operator(
    "QGemm",
    "M*N*K MACs; zero points: n(A)+n(B) adds; C: M*N adds; requantize: M*N*(mul, round, add, "
    "2 compares), or M*N muls to a real output",
    requires=(
        partial(equal_inner_size_constraint, second=3),
        single_number_constraint(1, 2, 7, 8),
        _product_column_constraint(4, 5),
        equal_shapes_constraint(4, 5),
        broadcast_to_constraint(6, partial(gemm_output_shape, second=3), "the product"),
    ),
    contracts=(0, 3),
)
def qgemm_cost(node: Node) -> Cost:
    """Return the cost of QGemm, quantize(alpha * (A - zA)' * (B - zB)' * sA * sB + C): M*N*K MACs,
    and work per element.

    A 0, B 3, C 6. Zero points n(A) + n(B) adds, C M*N adds, then M*N requantized, or M*N muls
    where the output is real (no y_scale). alpha is part of the factor.
    """
    inner, out = gemm_inner_size(node), output_element_count(node)
    adds = (
        input_element_count(node, 0)
        + input_element_count(node, 3)
        + (out if has_input(node, 6) else 0)
    )
    return Cost(macs=out * inner, adds=adds) + (
        requantization_cost(out) if has_input(node, 7) else MUL * out
    )


def _column_bias_constraint(index: int) -> Constraint:
    """Return a constraint on the bias at this input index: one number for each column of B, in any
    shape.
    """

    def bias_length_problem(node: Node) -> OperandProblem:
        """Return why a bias does not have one number per column of the weight; "" if nothing is
        wrong.
        """
        weight, bias = input_shape(node, 1), input_shape_or_raise(node, index)
        if not weight or prod(bias) == weight[-1]:
            return ""
        return (
            f"{input_label(node, index, 'bias')} needs "
            f"{weight[-1]} numbers for {input_label(node, 1, 'B')}"
        )

    return bias_length_problem


@operator(
    "MatMulIntegerToFloat",
    "n(Y)*K MACs; zero points: n(A)+n(B) adds; n(Y) muls; bias: n(Y) adds",
    requires=(MATMUL, column_scale_constraint(1, 2, 3, 4, 5), _column_bias_constraint(6)),
)
def matmul_integer_to_float_cost(node: Node) -> Cost:
    """Return the cost of MatMulIntegerToFloat, (A - zA) * (B - zB) * (sA * sB) + bias: K MACs and
    a mul per element of the result.

    Zero points (inputs 4, 5) n(A) + n(B) adds, n(Y) muls, bias n(Y) adds.
    """
    out = output_element_count(node)
    shifted = sum(input_element_count(node, i) for i in (0, 1) if has_input(node, i + 4))
    return onnx_matmul_cost(node) + Cost(
        adds=shifted + (out if has_input(node, 6) else 0), muls=out
    )


@operator(
    "DynamicQuantizeMatMul",
    "n(Y)*K MACs; DynamicQuantizeLinear of A; n(A) adds, zero point of B: n(B) adds; n(Y) "
    "muls; bias: n(Y) adds",
    operand=1,
    requires=(MATMUL, column_scale_constraint(1, 2, 3), _column_bias_constraint(4)),
    contracts=(1,),  # its data is quantized to the eight bits of its weight
)
def dynamic_quantize_matmul_cost(node: Node) -> Cost:
    """Return the cost of DynamicQuantizeMatMul: A is quantized by DynamicQuantizeLinear, then K
    MACs per element of the result.

    Its zero point n(A) adds, that of B n(B) adds, n(Y) muls, bias n(Y) adds.
    """
    out = output_element_count(node)
    shifted = input_element_count(node, 0) + (
        input_element_count(node, 1) if has_input(node, 3) else 0
    )
    bias = out if has_input(node, 4) else 0
    return (
        dynamic_quantize_linear_cost(node)
        + onnx_matmul_cost(node)
        + Cost(adds=shifted + bias, muls=out)
    )


def _product_row_count(node: Node, depth: int) -> int:
    """Return the number of rows of A [..., K]. Raises ValueError if its last size is not
    `depth`.
    """
    dims = spec_shape(input_spec(node, 0), at_least=1)
    if dims[-1] != depth or depth <= 0:
        raise ValueError(f"A of {node.op} ends in {dims[-1]} and K is {depth}")
    return input_element_count(node, 0) // depth


_PACKED_BITS = (2, 4, 8)  # matmul_nbits.cc of onnxruntime takes no others


def _weight_blocks_constraint(node: Node) -> OperandProblem:
    """Return why packed weights and their block scales do not fit; "" if nothing is wrong."""
    depth, width = positive_integer_attribute(node, "K"), positive_integer_attribute(node, "N")
    block, bits = (
        positive_integer_attribute(node, "block_size"),
        positive_integer_attribute(node, "bits", 4),
    )
    if bits not in _PACKED_BITS:
        return f"attribute 'bits' is {bits}, but must be 2, 4 or 8"
    count = -(-depth // block)
    byte_count = -(-block * bits // 8)
    packed, scales = input_shape(node, 1), input_shape(node, 2)
    if packed is not None and packed != (width, count, byte_count):
        return f"{input_label(node, 1, 'B')} needs {width}x{count}x{byte_count} for K = {depth}"
    if scales is not None and scales not in ((width * count,), (width, count)):
        return f"{input_label(node, 2, 'scales')} needs {width}x{count}, one for each block"
    spec = node.inputs[3] if len(node.inputs) > 3 else None
    zeros = count if spec is None or "float" in spec.dtype else -(-count * bits // 8)
    return shape_constraint(3, lambda _: [(width * zeros,), (width, zeros)], "zero_points")(node)


_BITS = "dequantize: K*N*(sub, mul)"


def _attribute_bits_precision(attribute: str) -> Callable[[Node], str]:
    """Return a function that gives the precision of a packed weight, such as "int4", from the
    attribute with its number of bits.
    """

    def bits_precision(node: Node) -> str:
        """Return "intN" for the number N of bits in the attribute, 4 by default."""
        bits = node.attrs.get(attribute, 4)
        return f"int{bits if isinstance(bits, int) else 4}"

    return bits_precision


@operator(
    "MatMulNBits",
    f"(n(A)/K)*K*N MACs; {_BITS}; bias: n(Y) adds",
    requires=(
        sizes_constraint("K=@K N=@N A[...,K] B scales zero_points g_idx[K] bias[N]"),
        _weight_blocks_constraint,
    ),
    contracts=(0,),
    packed=_attribute_bits_precision("bits"),
)
def matmul_nbits_cost(node: Node) -> Cost:
    """Return the cost of MatMulNBits, A * dequantize(B) + bias: rows * K * N MACs, with the
    weights dequantized once.

    K and N are attributes: B is packed. The weights are dequantized once, (q - zero_point) *
    scale, K*N (sub, mul); without zero_points the middle of the range is taken off.
    """
    depth, width = positive_integer_attribute(node, "K"), positive_integer_attribute(node, "N")
    rows = _product_row_count(node, depth)
    bias = rows * width if has_input(node, 5) else 0
    return Cost(macs=rows, muls=1, adds=1) * (depth * width) + Cost(adds=bias)


def _bnb4_sizes_constraint(node: Node) -> OperandProblem:
    """Return why the sizes of a bitsandbytes 4-bit product do not fit; "" if nothing is wrong.

    Checks that A ends in K (in N where B is not transposed), and that B and absmax are large
    enough.
    """
    if wrong := (_K_LAST if integer_attribute(node, "transB", 1) else _N_LAST)(node):
        return wrong
    weights, block = (
        positive_integer_attribute(node, "K") * positive_integer_attribute(node, "N"),
        positive_integer_attribute(node, "block_size"),
    )
    for index, least in ((1, -(-weights // 2)), (2, -(-weights // block))):
        shape_ = input_shape(node, index)
        if shape_ is not None and prod(shape_) < least:
            return (
                f"{input_label(node, index)} needs at least {least} elements for {weights} weights"
            )
    return ""


@operator(
    "MatMulBnb4",
    "(n(A)/K)*K*N MACs; dequantize: K*N muls",
    requires=_bnb4_sizes_constraint,
    contracts=(0,),
    packed=lambda node: "float4" if node.attrs.get("quant_type", 1) == 0 else "nf4",
)
def matmul_bnb4_cost(node: Node) -> Cost:
    """Return the cost of MatMulBnb4: as MatMulNBits; a weight is a table entry times the scale of
    its block, a mul each.
    """
    depth, width = positive_integer_attribute(node, "K"), positive_integer_attribute(node, "N")
    if not integer_attribute(node, "transB", 1):
        depth, width = width, depth
    return Cost(macs=_product_row_count(node, depth), muls=1) * (depth * width)


@operator("MatMulFpQ4", f"n(Y)*K MACs; {_BITS}", contracts=(0,), packed=lambda _node: "float4")
def matmul_fpq4_cost(node: Node) -> Cost:
    """Return the cost of MatMulFpQ4: as MatMulNBits, with packed weights B [K, N]: K MACs per
    element of the result.
    """
    width = spec_shape(output_spec(node), at_least=1)[-1]
    depth = spec_shape(input_spec(node, 0), at_least=1)[-1]
    return Cost(macs=output_element_count(node) * depth) + Cost(muls=1, adds=1) * (depth * width)


def _skip_norm_cost(node: Node, depth: int, skip: int, scale: int) -> Cost:
    """Return the cost before a product of adding the input `skip`, if given, and of an RMS norm
    over K, if `scale` is given.
    """
    count, rows = input_element_count(node, 0), _product_row_count(node, depth)
    cost = Cost(adds=count if has_input(node, skip) else 0)
    return cost + (rms_norm_cost(count, rows, scaled=True) if has_input(node, scale) else ZERO)


@operator(
    "MatMulNBitsQkv",
    f"n(A)*(Nq+2Nkv) MACs; {_BITS} of all three; biases: adds; skip: n(A) adds; RMS "
    "normalization of A",
    requires=sizes_constraint("K=@K A[...,K] skip[...,K] norm_scale[K]"),
    contracts=(0,),
    packed=_attribute_bits_precision("bits"),
)
def matmul_nbits_qkv_cost(node: Node) -> Cost:
    """Return the cost of MatMulNBitsQkv: a normalization, then a MatMulNBits each for Q, K and V.

    q_B 3, k_B 6, v_B 9, each with scales and a bias behind it.
    """
    depth, shared = positive_integer_attribute(node, "K"), positive_integer_attribute(node, "Nkv")
    widths = (positive_integer_attribute(node, "Nq"), shared, shared)
    rows = _product_row_count(node, depth)
    weights = depth * sum(widths)
    bias = sum(rows * n for n, i in zip(widths, (5, 8, 11), strict=True) if has_input(node, i))
    products = Cost(macs=rows, muls=1, adds=1) * weights + Cost(adds=bias)
    return _skip_norm_cost(node, depth, skip=1, scale=2) + products


@operator(
    "MatMulNBitsMlp",
    f"n(A)*2N MACs; {_BITS} of both; biases: adds; skip: n(A) adds; RMS normalization of A; "
    "n(Y)*(activation, mul)",
    requires=sizes_constraint("K=@K A[...,K] skip[...,K] norm_scale[K]"),
    contracts=(0,),
    packed=_attribute_bits_precision("bits"),
)
def matmul_nbits_mlp_cost(node: Node) -> Cost:
    """Return the cost of MatMulNBitsMlp, activation(A * gate) * (A * up): a normalization and two
    MatMulNBits.

    skip 1, norm_scale 2, gate_B 3, up_B 6, each with scales and a bias behind it.
    """
    depth, width = positive_integer_attribute(node, "K"), positive_integer_attribute(node, "N")
    rows = _product_row_count(node, depth)
    bias = rows * width * (has_input(node, 5) + has_input(node, 8))
    products = Cost(macs=rows, muls=1, adds=1) * (2 * depth * width) + Cost(adds=bias)
    gated = (activation_cost_by_name(node, default="silu") + MUL) * (rows * width)
    return _skip_norm_cost(node, depth, skip=1, scale=2) + products + gated


@operator(
    "MatMulBlockQuantizedFp8Weight",
    "n(Y)*K MACs; dequantize: K*N muls; a_scale: n(A)*(div, mul); bias: n(Y) adds",
    requires=sizes_constraint("A[...,K] B[N,K] b_scale a_scale bias[N]"),
)
def matmul_fp8_weight_cost(node: Node) -> Cost:
    """Return the cost of MatMulBlockQuantizedFp8Weight, A * (B * b_scale)^T + bias: K MACs per
    element of the result.

    B [N, K]: n(B) muls. a_scale: A is rounded to eight bits, n(A) (div, mul). bias n(Y) adds.
    """
    rounded = input_element_count(node, 0) if has_input(node, 3) else 0
    bias = output_element_count(node) if has_input(node, 4) else 0
    return onnx_matmul_cost(node) + Cost(
        muls=input_element_count(node, 1) + rounded, divs=rounded, adds=bias
    )


@operator(
    "MatMulBlockQuantizedFp4Weight",
    "n(Y)*K MACs; dequantize: K*N*(2 muls); input_scale: n(A)*(div, mul); bias: n(Y) adds",
    requires=sizes_constraint("A[...,2*P] B[N,P] weight_scale weight_scale_2 input_scale bias[N]"),
    contracts=(0,),
    packed=lambda _node: "float4e2m1",
)
def matmul_fp4_weight_cost(node: Node) -> Cost:
    """Return the cost of MatMulBlockQuantizedFp4Weight: as with eight bits, but a weight has two
    scales, 2 muls each.

    B [N, K / 2] holds two weights in a byte. input_scale 4: n(A) (div, mul); bias 5 n(Y) adds.
    """
    depth = spec_shape(input_spec(node, 0), at_least=1)[-1]
    weights = depth * spec_shape(input_spec(node, 1), rank=2)[0]
    rounded = input_element_count(node, 0) if has_input(node, 4) else 0
    bias = output_element_count(node) if has_input(node, 5) else 0
    return onnx_matmul_cost(node) + Cost(muls=2 * weights + rounded, divs=rounded, adds=bias)


_K_LAST, _N_LAST = sizes_constraint("K=@K A[...,K]"), sizes_constraint("N=@N A[...,N]")

operator("MatMulInteger16", "n(Y)*K MACs", requires=MATMUL)(onnx_matmul_cost)

# Mixtures of experts: each token meets the k experts that a router chose for it.


class ProductInputIndices(NamedTuple):
    """The indices of the inputs with the weights, biases and scales of the three layers."""

    weights: tuple[int, int, int]
    biases: tuple[int, int, int]


_PLAIN = ProductInputIndices((2, 4, 6), (3, 5, 7))
_PACKED = ProductInputIndices((2, 5, 8), (4, 7, 10))


class Experts(NamedTuple):
    """The sizes of E experts with H inputs: fc1 has F outputs, I of them after a fused gate; k are
    chosen.
    """

    tokens: int
    chosen: int
    total: int
    hidden: int
    first: int
    inner: int
    third: bool

    @property
    def weights_per_expert(self) -> int:
        """The number of weights of one expert: of fc1 [F, H], fc2 [H, I] and, if it exists, fc3
        [I, H].
        """
        return self.hidden * (self.first + self.inner + (self.inner if self.third else 0))


def expert_sizes(node: Node) -> Experts:
    """Return the sizes of a mixture of experts (MoE, or QMoE with weights packed along their last
    axis).
    """
    indices = _PACKED if node.op.type == "QMoE" else _PLAIN
    dims = spec_shape(input_spec(node, 0), at_least=2)
    count, rows, _ = spec_shape(input_spec(node, indices.weights[0]), rank=3)
    fused = _has_fused_swiglu_matrices(node)
    if has_first_release_layout(node):
        inner = spec_shape(input_spec(node, indices.weights[1]), rank=3)[1]
        first = 2 * inner if fused else inner
    else:
        first, inner = rows, rows // 2 if fused else rows
    return Experts(
        tokens=prod(dims[:-1]),
        chosen=positive_integer_attribute(node, "k", 1),
        total=count,
        hidden=dims[-1],
        first=first,
        inner=inner,
        third=has_input(node, indices.weights[2]),
    )


def _has_fused_swiglu_matrices(node: Node) -> bool:
    """Return whether the experts have the two matrices of SwiGLU fused into one."""
    return integer_attribute(node, "swiglu_fusion", 0) != 0


def has_first_release_layout(node: Node) -> bool:
    """Return whether the weights have the layout of onnxruntime's first releases: fc1 [E, H, F],
    fc2 [E, I, H].

    Today they are fc1 [E, F, H] and fc2 [E, H, I]. onnxruntime distinguishes them by fc2, and
    where H = I by a fused fc1, which is not square (`moe_helper.h`).
    """
    indices = _PACKED if node.op.type == "QMoE" else _PLAIN
    hidden = spec_shape(input_spec(node, 0), at_least=2)[-1]
    _, rows, columns = spec_shape(input_spec(node, indices.weights[1]), rank=3)
    if rows != hidden:
        return True
    first = spec_shape(input_spec(node, indices.weights[0]), rank=3)
    return (
        _has_fused_swiglu_matrices(node)
        and columns * _weights_per_element(node) == hidden
        and first[1] == hidden
    )


def _weights_per_element(node: Node) -> int:
    """Return how many weights one element of a weight tensor contains: more than 1 if they are
    packed.
    """
    return (
        8 // positive_integer_attribute(node, "expert_weight_bits", 4)
        if node.op.type == "QMoE"
        else 1
    )


class ExpertParameters(NamedTuple):
    """The parameters of all experts of a layer, and of the k experts that one token uses."""

    stored: int
    used_by_token: int


def expert_parameters(node: Node) -> ExpertParameters:
    """Return two numbers of parameters: of all experts of the layer, and of the k experts that one
    token uses.
    """
    sizes = expert_sizes(node)
    expert = sizes.weights_per_expert + _expert_bias_count(node, sizes)
    return ExpertParameters(sizes.total * expert, min(sizes.total, sizes.chosen) * expert)


def _max_active_expert_count(sizes: Experts) -> int:
    """Return the largest number of experts that the tokens can choose together."""
    return min(sizes.total, sizes.tokens * sizes.chosen)


def _expert_bias_count(node: Node, sizes: Experts) -> int:
    """Return the number of bias elements of one expert."""
    indices = _PACKED if node.op.type == "QMoE" else _PLAIN
    widths = (sizes.first, sizes.hidden, sizes.inner)
    return sum(w for w, i in zip(widths, indices.biases, strict=True) if has_input(node, i))


def _expert_layers_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the shapes of router and experts, or "" if they fit the tokens in
    one of two layouts.
    """
    if wrong := _router_rows_constraint(node):
        return wrong
    data, first, second = (
        input_shape_or_raise(node, 0),
        input_shape_or_raise(node, 2),
        input_shape_or_raise(node, 4),
    )
    if len(second) != 3:
        return f"{input_label(node, 4, 'fc2')} has rank {len(second)}, but needs 3"
    hidden, count, is_first = data[-1], first[0], has_first_release_layout(node)
    inner = second[1] if is_first else second[2]
    wide = 2 * inner if _has_fused_swiglu_matrices(node) else inner
    into, back = (wide, hidden), (hidden, inner)
    third = (inner, hidden)
    if is_first:
        into, back, third = into[::-1], back[::-1], third[::-1]
    for index, fitting in (
        (2, (count, *into)),
        (3, (count, wide)),
        (4, (count, *back)),
        (5, (count, hidden)),
        (6, (count, *third)),
    ):
        dims = input_shape(node, index)
        if dims is not None and dims != fitting:
            return f"{input_label(node, index)} needs to be {'x'.join(map(str, fitting))}"
    return ""


def _router_rows_constraint(node: Node) -> OperandProblem:
    """Return why the router does not have one row per token; "" if nothing is wrong."""
    data, probs = input_shape(node, 0), input_shape(node, 1)
    if data is None or probs is None or probs[0] == prod(data[:-1]):
        return ""
    return (
        f"{input_label(node, 1, 'router_probs')} has {probs[0]} rows for {prod(data[:-1])} tokens"
    )


_MIXTURE = (
    "tokens*k*(H*F + I*H [+ H*I]) MACs; biases: adds; tokens*k*I*activation; softmax of the "
    "router, k largest: compares; normalized: tokens*k divs; sum: tokens*H*(k muls, k-1 adds)"
)


@operator(
    "MoE",
    _MIXTURE,
    requires=(
        rank_constraint(0, (2, 3)),
        sizes_constraint("input[...,H] router_probs[_,E] fc1[E,_,_]"),
        _expert_layers_constraint,
    ),
    contracts=(0, 2),
    parameters=expert_parameters,
    experts=tuple(range(2, 16)),
)
def mixture_of_experts_cost(node: Node) -> Cost:
    """Return the cost of MoE, for each token the sum over k chosen experts of w_e *
    fc2(activation(fc1(x)) [* fc3(x)]).

    tokens*k*(H*F + I*H [+ H*I]) MACs, the active ones; biases F, H and I adds; activation per
    inner unit, swiglu (sigmoid, 2 muls; alpha, beta, a limit one mul, add, 3 compares each);
    routing: a softmax of router_probs [tokens, E], the k largest, tokens*k normalizing divs and
    k - 1 adds; the sum tokens*H (k muls, k - 1 adds).
    """
    sizes = expert_sizes(node)
    expert = Cost(macs=sizes.weights_per_expert, adds=_expert_bias_count(node, sizes))
    expert += _expert_activation_cost(node, sizes) * sizes.inner
    mixed = Cost(muls=sizes.chosen, adds=max(sizes.chosen - 1, 0)) * (sizes.tokens * sizes.hidden)
    return expert * (sizes.tokens * sizes.chosen) + mixed + _expert_routing_cost(node, sizes)


def _expert_activation_cost(node: Node, sizes: Experts) -> Cost:
    """Return the cost of an expert's activation for each of its inner units, with the product of a
    gate.
    """
    name = string_attribute(node, "activation_type", "relu").lower()
    if name == "swiglu":
        alpha = MUL if node.attrs.get("activation_alpha", 1.0) != 1 else ZERO
        beta = ADD if node.attrs.get("activation_beta", 0.0) != 0 else ZERO
        limit = Cost(compares=3) if "swiglu_limit" in node.attrs else ZERO
        return Cost(specials=1, muls=2) + alpha + beta + limit
    if name not in NAMED:
        raise ValueError(f"the activation {name!r} of {node.op} is not supported")
    return NAMED[name] + (MUL if sizes.third else ZERO)


def _expert_routing_cost(node: Node, sizes: Experts) -> Cost:
    """Return the cost of choosing k experts for each token: a softmax over all experts, then k
    searches for the largest.

    Each search finds the largest of the remaining experts.
    """
    logits = input_element_count(node, 1)
    passes = sum(max(sizes.total - 1 - turn, 0) for turn in range(sizes.chosen))
    cost = softmax_cost(logits, sizes.tokens) + Cost(compares=passes * sizes.tokens)
    if integer_attribute(node, "normalize_routing_weights", 0):
        chosen = sizes.tokens * sizes.chosen
        cost += Cost(adds=reduction_operation_count(chosen, sizes.tokens), divs=chosen)
    return cost


def expert_sharing_exactness(node: Node) -> Exactness:
    """Return "bound" if several tokens may choose the same expert, whose weights are then
    dequantized only once; else "exact".
    """
    sizes = expert_sizes(node)
    return (
        "exact" if _max_active_expert_count(sizes) == min(sizes.total, sizes.chosen) else "bound"
    )


def _expert_packing_constraint(node: Node) -> OperandProblem:
    """Return why expert weights that are packed into bytes do not fit the sizes; "" if nothing is
    wrong.

    fc1 [E, F, H / pack], fc2 [E, H, I / pack], or in the first layout [E, H, F / pack] and [E, I,
    H / pack]; scales [E, F, ...] and [E, H, ...]; F is I, or 2 I where two layers are fused.
    """
    data, first, second = (
        input_shape_or_raise(node, 0),
        input_shape_or_raise(node, 2),
        input_shape_or_raise(node, 5),
    )
    pack = _weights_per_element(node)
    if len(second) != 3:
        return ""
    hidden, is_first = data[-1], has_first_release_layout(node)
    inner = second[1] if is_first else second[2] * pack
    wide = 2 * inner if _has_fused_swiglu_matrices(node) else inner
    into = (hidden, -(-wide // pack)) if is_first else (wide, -(-hidden // pack))
    back = (inner, -(-hidden // pack)) if is_first else (hidden, second[2])
    for index, fitting in (
        (2, (first[0], *into)),
        (5, (first[0], *back)),
        (3, (first[0], wide)),
        (6, (first[0], hidden)),
    ):
        dims = input_shape(node, index)
        rest = 3 if index in (3, 6) else len(fitting)
        if dims is not None and (dims[: len(fitting)] != fitting or len(dims) > rest):
            return f"{input_label(node, index)} needs to be {'x'.join(map(str, fitting))}"
    return (
        f"{input_label(node, 0)} has {hidden}, which is not a multiple of {pack}"
        if hidden % pack
        else ""
    )


# Weights of QMoE that are no integers, by its attribute quant_type.
_FLOATS = {"fp8": "float8e4m3fn", **dict.fromkeys(("fp4", "nvfp4", "wfp4afp8"), "float4e2m1")}


def _expert_weight_precision(node: Node) -> str:
    """Return the element type of the experts' weights, such as "int4", by the quantization type or
    the number of bits.
    """
    kind = str(node.attrs.get("quant_type", ""))
    return (
        _FLOATS[kind] if kind in _FLOATS else _attribute_bits_precision("expert_weight_bits")(node)
    )


@operator(
    "QMoE",
    f"{_MIXTURE}; dequantize: min(E, tokens*k)*weights*(sub, mul)",
    doubt=expert_sharing_exactness,
    requires=(
        rank_constraint(0, (2, 3)),
        sizes_constraint(
            "input[...,H] router_probs[_,E] fc1[E,_,_] fc1_scales[E,...] bias fc2[E,_,_]"
        ),
        _router_rows_constraint,
        _expert_packing_constraint,
    ),
    contracts=(0,),
    packed=_expert_weight_precision,
    parameters=expert_parameters,
    experts=tuple(range(2, 16)),
)
def contrib_qmoe_cost(node: Node) -> Cost:
    """Return the cost of QMoE: as MoE, with the weights of every expert that tokens may choose
    dequantized once.

    At most min(E, tokens*k) experts: (sub, mul) per weight.
    """
    sizes = expert_sizes(node)
    return mixture_of_experts_cost(node) + (MUL + ADD) * (
        _max_active_expert_count(sizes) * sizes.weights_per_expert
    )
