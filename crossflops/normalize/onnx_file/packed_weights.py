"""The weight inputs of onnxruntime's operators, and how many weights a packed one holds."""

from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType

from crossflops.core.graph import Node

# Operator -> the inputs that take weights, as in `parameters.WEIGHTS`.
WEIGHTS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        **dict.fromkeys(("NhwcConv", "NhwcFusedConv", "PackedAttention", "QAttention"), (1, 2)),
        **dict.fromkeys(("TransposeMatMul", "FusedMatMulActivation", "MatMulInteger16"), (0, 1)),
        **dict.fromkeys(("GemmFastGelu", "GroupNorm", "DecoderMaskedSelfAttention"), (1, 2)),
        **dict.fromkeys(("MatMulBnb4", "MatMulFpQ4", "BiasAdd", "BiasSplitGelu"), (1,)),
        **dict.fromkeys(("GatedRMSNorm", "BranchwiseRMSNorm", "BiasDropout"), (1,)),
        **dict.fromkeys(("MultiHeadAttention", "PackedMultiHeadAttention"), (3,)),
        **dict.fromkeys(("GatherBlockQuantized", "TorchEmbedding", "RelativePositionBias"), (0,)),
        **dict.fromkeys(("QLinearAdd", "QLinearMul"), (0, 3)),
        "ConvTransposeWithDynamicPads": (1, 3),
        "VarlenCausalConvWithState": (1, 3),
        "QLinearConvTranspose": (3, 8),
        "GemmFloat8": (0, 1, 2),
        "QGemm": (3, 6),
        "QOrderedMatMul": (2, 5),
        "DynamicQuantizeMatMul": (1, 4),
        "MatMulIntegerToFloat": (1, 6),
        "MatMulNBits": (1, 5),
        "MatMulNBitsQkv": (2, 3, 5, 6, 8, 9, 11),
        "MatMulNBitsMlp": (2, 3, 5, 6, 8),
        **dict.fromkeys(
            ("MatMulBlockQuantizedFp8Weight", "MatMulBlockQuantizedFp4Weight"), (1, 4, 5)
        ),
        "QEmbedLayerNormalization": (2, 3, 4, 5, 6),
        "SkipGroupNorm": (1, 2, 4),
        "EngramGate": (3, 4, 5),
        "DecoderMaskedMultiHeadAttention": (10,),
        "QOrderedAttention": (5, 6, 7, 11, 12, 13),
        "LongformerAttention": (1, 2, 4, 5),
        "GroupQueryAttention": (11, 14, 15),
        "PagedAttention": (11, 12, 13),
        "MoE": (2, 3, 4, 5, 6, 7),
        "QMoE": (2, 4, 5, 7, 8, 10),
        "DynamicQuantizeLSTM": (1, 2, 3, 7),
        "GatedRelativePositionBias": (1, 3, 4, 5),
        "LinearAttentionGate": (1, 2),
        "GatedDeltaNet": (7, 8),
    }
)


def _product(first: str, second: str) -> Callable[[Node, int], int]:
    def count(node: Node, _place: int) -> int:
        rows, columns = node.attrs.get(first), node.attrs.get(second)
        return rows * columns if isinstance(rows, int) and isinstance(columns, int) else 0

    return count


def _of_bytes(bits: Callable[[Node], int]) -> Callable[[Node, int], int]:
    """Elements of a tensor of bytes that hold several of them; 0 for a tensor of one each."""

    def count(node: Node, place: int) -> int:
        spec = node.inputs[place] if place < len(node.inputs) else None
        width = bits(node)
        if spec is None or spec.shape is None or spec.dtype != "uint8" or not 0 < width < 8:
            return 0
        return prod(spec.shape) * 8 // width

    return count


def _bits(name: str, default: int) -> Callable[[Node], int]:
    def read(node: Node) -> int:
        value = node.attrs.get(name, default)
        return value if isinstance(value, int) else default

    return read


def _expert_bits(node: Node) -> int:
    kind = node.attrs.get("quant_type", "int")
    return 8 if kind == "fp8" else _bits("expert_weight_bits", 4)(node)


def _fpq4(node: Node, _place: int) -> int:
    data, out = node.inputs[0], node.outputs[0]
    if data is None or out is None or not data.shape or not out.shape:
        return 0
    return data.shape[-1] * out.shape[-1]


_EXPERTS = _of_bytes(_expert_bits)
# Operator and input -> how many weights are packed in it.
_COUNTS: Mapping[tuple[str, int], Callable[[Node, int], int]] = MappingProxyType(
    {
        ("MatMulNBits", 1): _product("N", "K"),
        ("MatMulBnb4", 1): _product("N", "K"),
        ("MatMulNBitsQkv", 3): _product("Nq", "K"),
        **dict.fromkeys((("MatMulNBitsQkv", 6), ("MatMulNBitsQkv", 9)), _product("Nkv", "K")),
        **dict.fromkeys((("MatMulNBitsMlp", 3), ("MatMulNBitsMlp", 6)), _product("N", "K")),
        ("MatMulFpQ4", 1): _fpq4,
        ("MatMulBlockQuantizedFp4Weight", 1): _of_bytes(lambda _: 4),
        ("GatherBlockQuantized", 0): _of_bytes(_bits("bits", 4)),
        **dict.fromkeys((("QMoE", 2), ("QMoE", 5), ("QMoE", 8)), _EXPERTS),
    }
)


def packed(node: Node, place: int) -> int:
    """Number of weights packed into that input, 0 where each element is one."""
    count = _COUNTS.get((node.op.type, place))
    return count(node, place) if count is not None else 0
