"""The precision that a contraction runs in: how its operands are stored, not what carries them.

A runtime folds DequantizeLinear, and the shuffling behind it, into the kernel of the contraction.
So an operand is as precise as what was dequantized, and only one that a node computed in floats
is a float. Two operands of one precision give its name ("int8"); of two, both are named, data
first ("float32xint4"). Signs are left out: uint8 is called int8.
"""

from collections.abc import Iterable, Mapping

from crossflops.ir.graph import Node
from crossflops.ir.tensor import TensorSpec

# Operator -> its operands, data first. All others have theirs in the first two inputs.
_OPERANDS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "QGemm", "QLinearConvTranspose"), (0, 3)),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "Attention"), (0, 1, 2)),
    **dict.fromkeys(("MatMulNBits", "MatMulNBitsQkv", "MatMulNBitsMlp"), (0,)),
    **dict.fromkeys(("MatMulBnb4", "MatMulFpQ4", "MatMulBlockQuantizedFp4Weight", "QMoE"), (0,)),
    **dict.fromkeys(("MoE", "QOrderedMatMul"), (0, 2)),
    "QOrderedAttention": (0, 5),
    "GatedRelativePositionBias": (0, 3),
    # these quantize their data as they go, to the eight bits of their weight
    **dict.fromkeys(("DynamicQuantizeMatMul", "DynamicQuantizeLSTM"), (1,)),
}
_ALL = ("Einsum",)
# Operators whose weight is packed into bytes: the attribute that has its bits, and the default.
_PACKED = {
    **dict.fromkeys(("MatMulNBits", "MatMulNBitsQkv", "MatMulNBitsMlp"), ("bits", 4)),
    "QMoE": ("expert_weight_bits", 4),
}
# Weights of QMoE that are no integers, by its attribute quant_type.
_FLOATS = {
    "fp8": "float8e4m3fn",
    **dict.fromkeys(("fp4", "nvfp4", "wfp4afp8"), "float4e2m1"),
}
# Operators that hand on values as they are.
_MOVES = frozenset(
    (
        *("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Slice", "Split"),
        *("Expand", "Tile", "Gather", "MaxPool", "DepthToSpace", "SpaceToDepth"),
    )
)


def stored(node: Node, known: Mapping[str, str]) -> dict[str, str]:
    """The precision in which the results of a node are stored, by name, where another is `known`.

    `known` are the precisions of dequantized values so far.
    """
    data = node.inputs[0] if node.inputs else None
    if data is None:
        return {}
    if node.op.type == "DequantizeLinear":
        found = data.dtype
    elif node.op.type in _MOVES and data.name in known:
        found = known[data.name]
    else:
        return {}
    return {spec.name: found for spec in node.outputs if spec is not None}


def contraction(node: Node, known: Mapping[str, str]) -> str:
    """The precision of a contraction, "" if the type of no operand is known."""
    places = _OPERANDS.get(node.op.type, (0, 1))
    if node.op.type in _ALL:
        places = tuple(range(len(node.inputs)))
    specs = [node.inputs[place] for place in places if place < len(node.inputs)]
    names = [known.get(spec.name, spec.dtype) for spec in specs if spec is not None]
    return _joined([*names, *_packed(node)])


def _packed(node: Node) -> Iterable[str]:
    kind = str(node.attrs.get("quant_type", ""))
    if node.op.type == "QMoE" and kind in _FLOATS:
        yield _FLOATS[kind]
    elif node.op.type in _PACKED:
        attribute, default = _PACKED[node.op.type]
        bits = node.attrs.get(attribute, default)
        yield f"int{bits if isinstance(bits, int) else default}"
    elif node.op.type == "MatMulBnb4":
        yield "float4" if node.attrs.get("quant_type", 1) == 0 else "nf4"
    elif node.op.type == "MatMulFpQ4":
        yield "float4"
    elif node.op.type == "MatMulBlockQuantizedFp4Weight":
        yield "float4e2m1"


def _joined(names: Iterable[str]) -> str:
    unsigned = [name.removeprefix("u") if name.startswith("uint") else name for name in names]
    return "x".join(dict.fromkeys(name for name in unsigned if name))


def computed(operand: int, node: Node) -> str:
    """The element type in which any other node computes: that of its rule's operand."""
    first = node.inputs[operand] if operand < len(node.inputs) else None
    specs: tuple[TensorSpec | None, ...] = (first, *node.inputs, *node.outputs)
    return next((spec.dtype for spec in specs if spec is not None), "")
