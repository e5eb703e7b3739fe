"""The cost of products with few bits: bitsandbytes, vLLM, torchao, FBGEMM, and newer operators of
PyTorch.

MACs are those of the float product. Scales and zero points that a kernel folds into it are not
counted where the operator does not say how; where it does, they are.
"""

from math import prod
from typing import Any

from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import reduction_operation_count
from crossflops.operators.formula import OperatorCall, operator
from crossflops.operators.gradient import Gradient
from crossflops.operators.kernels.steps import call_argument

_BITS = "https://github.com/bitsandbytes-foundation/bitsandbytes/blob/main/bitsandbytes/"
_OPS = f"{_BITS}_ops.py"
_FUNCTIONS = f"{_BITS}autograd/_functions.py"
_VLLM = "https://github.com/vllm-project/vllm/blob/main/csrc/torch_bindings.cpp"
_NATIVE = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/native_functions.yaml"
_AO = "https://github.com/pytorch/ao/tree/main/torchao/csrc"
_FBGEMM = "https://github.com/pytorch/FBGEMM/tree/main/fbgemm_gpu/experimental/gen_ai"


def _product_with_bias(
    call: OperatorCall, depth: int, biases: tuple[str, ...] = ("bias",)
) -> Cost:
    """Return the cost of a product: `depth` MACs per element of the result, and an add if a bias
    is given.
    """
    count = call.result.numel
    return Cost(macs=count * depth, adds=count * any(call.has_input(name) for name in biases))


@operator("bitsandbytes::int8_linear_matmul", backward="none", source=_OPS)
def int8_product(call: OperatorCall) -> Cost:
    """Count an int8 product of n results: n*K MACs, for A [..., K] and B [N, K]."""
    return _product_with_bias(call, call.input("A").shape[-1])


@operator("bitsandbytes::int8_scaled_mm", backward="none", source=_OPS)
def int8_scaled_product(call: OperatorCall) -> Cost:
    """Count an int8 product of n results with scales: n*(K MACs, 3 muls); bias: n adds."""
    count = call.result.numel
    return _product_with_bias(call, call.input("A").shape[-1]) + Cost(muls=3 * count)


@operator(
    "bitsandbytes::int8_mixed_scaled_mm", backward="none", doubt=lambda _: "bound", source=_OPS
)
def int8_mixed_product(call: OperatorCall) -> Cost:
    """Count int8_scaled_mm of n results, and its outlier columns in float: at most n*2*K MACs.

    How many columns have outliers is data: this is the most that there can be.
    """
    count, depth = call.result.numel, call.input("A").shape[-1]
    return _product_with_bias(call, 2 * depth) + Cost(muls=3 * count, adds=count)


@operator("bitsandbytes::int8_mm_dequant", backward="none", source=_OPS)
def int8_product_scaling(call: OperatorCall) -> Cost:
    """Count scaling n results by rows, columns and 1/127^2: n*3 muls; bias: n adds."""
    count = call.input("A").numel
    return Cost(muls=3 * count, adds=count * call.has_input("bias"))


@operator("bitsandbytes::int8_vectorwise_dequant", backward="none", source=_OPS)
@operator("bitsandbytes::dequantize_blockwise", backward="none", source=_OPS)
@operator("bitsandbytes::dequantize_4bit", backward="none", source=_OPS)
def lookup_with_scales(call: OperatorCall) -> Cost:
    """Count dequantization: a mul by the scale per element; the look-up of a code is free.

    int8_vectorwise_dequant has no table, and a mul by 1/127 more.
    """
    muls = 2 if "int8_vectorwise" in call.operator else 1
    return Cost(muls=muls * call.result.numel)


@operator("bitsandbytes::int8_vectorwise_quant", backward="none", source=_OPS)
def int8_row_quantization(call: OperatorCall) -> Cost:
    """Count quantizing m rows by their greatest |x|: n abs, n-m compares, m divs, n (mul, round).

    A [..., K] in m rows: scale 127/max. With a threshold |x| is compared with it.
    """
    shape = call.input("A").shape
    count, rows = prod(shape), prod(shape[:-1])
    outliers = count if call.attributes.get("threshold") else 0
    return Cost(
        compares=count + reduction_operation_count(count, rows) + outliers,
        divs=rows,
        muls=count,
        specials=count,
    )


@operator("bitsandbytes::gemv_4bit", backward="none", source=_OPS)
@operator("bitsandbytes::gemm_4bit", backward="none", source=_OPS)
def product_4bit(call: OperatorCall) -> Cost:
    """Count a 4-bit product of n results: n*K MACs, N*K muls by block scales; bias: n adds.

    A [..., K], B holds [N, K] in 4 bits, of which each is looked up and scaled.
    """
    shape = call_argument(call, "shapeB")
    return _product_with_bias(call, shape[1]) + Cost(muls=prod(shape))


def _matmul_4bit_backward(call: OperatorCall, trainable: frozenset[Any]) -> Gradient:
    """Return the cost of dA = dY W, if A is trainable, with the weight dequantized again."""
    work: dict[Any, Cost] = dict.fromkeys(trainable, ZERO)
    depth, outputs = call.input("A").shape[-1], call.result.shape[-1]
    if "A" in trainable:
        work["A"] = Cost(macs=call.result.numel * depth)
    if "bias" in trainable:
        rows = prod(call.result.shape[:-1])
        work["bias"] = Cost(adds=reduction_operation_count(rows, 1) * outputs)
    again = Cost(muls=depth * outputs) if "A" in trainable else ZERO
    return Gradient(work, recomputed=again)


@operator(
    "bitsandbytes::MatMul4Bit",
    module="bitsandbytes.autograd._functions:MatMul4Bit",
    backward=_matmul_4bit_backward,
    source=_FUNCTIONS,
)
def matmul_4bit(call: OperatorCall) -> Cost:
    """Count a 4-bit product of n results: n*K MACs, N*K muls to dequantize; bias: n adds.

    A [..., K], B a packed weight [N, K]. The weight itself is never trained.
    """
    depth, outputs = call.input("A").shape[-1], call.result.shape[-1]
    return _product_with_bias(call, depth) + Cost(muls=depth * outputs)


def _matmul_8bit_backward(call: OperatorCall, trainable: frozenset[Any]) -> Gradient:
    """Return the cost of dA = dY (CB * SCB / 127), if A is trainable, with the weight dequantized
    again.
    """
    gradient = _matmul_4bit_backward(call, trainable)
    return Gradient(gradient.operands, recomputed=gradient.recomputed * 2)


@operator(
    "bitsandbytes::MatMul8bitLt",
    module="bitsandbytes.autograd._functions:MatMul8bitLt",
    backward=_matmul_8bit_backward,
    doubt=lambda call: "bound" if call.attributes.get("threshold") else "exact",
    source=_FUNCTIONS,
)
def matmul_8bit(call: OperatorCall) -> Cost:
    """Count K MACs, 3 muls per result, abs, compare, mul, round per element of A; bias: adds.

    A [..., K] is quantized row by row, B [N, K] is stored so.
    """
    shape = call.input("A").shape
    count, rows = prod(shape), prod(shape[:-1])
    quantized = Cost(
        compares=count + reduction_operation_count(count, rows),
        divs=rows,
        muls=count,
        specials=count,
    )
    return _product_with_bias(call, shape[-1]) + Cost(muls=3 * call.result.numel) + quantized


# Of vLLM, torchao and FBGEMM: what they are given first is [..., K], what they return [..., N].
_FIRST = {
    "_C::awq_gemm": "_in_feats",
    "_C::gptq_gemm": "a",
    "_C::marlin_gemm": "a",
    "_C::machete_mm": "A",
    "_C::allspark_w8a16_gemm": "a",
    "_C::ggml_mul_mat_a8": "X",
    "_C::ggml_mul_mat_vec_a8": "X",
    "torchao::quant_llm_linear": "fpx_input",
    "torchao::rowwise_scaled_linear_cutlass_s8s4": "Xq",
    "torchao::rowwise_scaled_linear_cutlass_s4s4": "Xq",
    "torchao::marlin_24_gemm": "x",
    "torchao::marlin_qqq_gemm": "x",
    "fbgemm::f8f8bf16_rowwise": "XQ",
    "fbgemm::f8f8bf16_blockwise": "XQ",
    "fbgemm::i8i8bf16": "XQ",
}


def product_with_packed_weights(call: OperatorCall) -> Cost:
    """Count n results with packed weights: n*K MACs; bias: n adds; scales are not counted."""
    name = call.operator.removeprefix("torch.ops.").split(".")
    depth = call.input(_FIRST["::".join(name[:2])]).shape[-1]
    return _product_with_bias(call, depth, ("bias", "b_bias_or_none"))


for _name in _FIRST:
    _source = _VLLM if _name.startswith("_C") else _AO if _name.startswith("torchao") else _FBGEMM
    operator(_name, backward="none", source=_source)(product_with_packed_weights)


@operator("aten::_scaled_mm_v2", backward="none", source=_NATIVE)
@operator("aten::_mixed_dtypes_linear", backward="none", source=_NATIVE)
def aten_product(call: OperatorCall) -> Cost:
    """Count a product of n results: n*K MACs; bias: n adds; scales are not counted."""
    return _product_with_bias(call, call.inputs[0].shape[-1])


@operator("aten::_scaled_grouped_mm", backward="none", source=_NATIVE)
@operator("aten::_scaled_grouped_mm_v2", backward="none", source=_NATIVE)
def grouped_product_with_scales(call: OperatorCall) -> Cost:
    """Count a product by groups of n results: n*K MACs (cut along K: M*K*N), without scales.

    As _grouped_mm: self [M, K] or [G, M, K], mat2 [K, N] or [G, K, N].
    """
    first, second = (call.inputs[position].shape for position in (0, 1))
    if len(first) == len(second) == 2 and call.result.rank == 3:
        return Cost(macs=first[0] * first[1] * second[1])
    return _product_with_bias(call, first[-1])
