"""Find which stored tensors are parameters of a model, also packed ones, and count them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from crossflops.ir.graph import Node, TensorSpec

# The weight inputs of onnxruntime's operators, and how many weights a packed one holds.

# Operator -> the inputs that take weights, as in `parameters.WEIGHTS`.
PACKED_WEIGHTS: Mapping[str, tuple[int, ...]] = MappingProxyType(
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


def _attribute_product(first: str, second: str) -> Callable[[Node, int], int]:
    """Return a function that gives the product of two attributes of a node: its weights."""

    def attribute_product(node: Node, _place: int) -> int:
        """Return the product of the two attributes of a node, or 0 if one is not an integer."""
        rows, columns = node.attrs.get(first), node.attrs.get(second)
        return rows * columns if isinstance(rows, int) and isinstance(columns, int) else 0

    return attribute_product


def _counter_of_packed_weights(bits: Callable[[Node], int]) -> Callable[[Node, int], int]:
    """Return a function that gives the number of weights packed in a node's uint8 input."""

    def count_weights_in_bytes(node: Node, index: int) -> int:
        """Return the number of weights packed in an input of a node, or 0 if it is not packed."""
        spec = node.inputs[index] if index < len(node.inputs) else None
        width = bits(node)
        if spec is None or spec.shape is None or spec.dtype != "uint8" or not 0 < width < 8:
            return 0
        return prod(spec.shape) * 8 // width

    return count_weights_in_bytes


def _bit_width_reader(name: str, default: int) -> Callable[[Node], int]:
    """Return a function that gives the bits of one weight, from a node's attribute."""

    def weight_bit_width(node: Node) -> int:
        """Return the number of bits of one weight, from a node's attribute or by default."""
        value = node.attrs.get(name, default)
        return value if isinstance(value, int) else default

    return weight_bit_width


def _expert_bits(node: Node) -> int:
    """Return the bits of one weight of a mixture-of-experts node: 8 for fp8, else 4 by default."""
    kind = node.attrs.get("quant_type", "int")
    return 8 if kind == "fp8" else _bit_width_reader("expert_weight_bits", 4)(node)


def _fp4_weight_count(node: Node, _place: int) -> int:
    """Return the number of 4-bit weights: last size of the input x last size of the output."""
    data, out = node.inputs[0], node.outputs[0]
    if data is None or out is None or not data.shape or not out.shape:
        return 0
    return data.shape[-1] * out.shape[-1]


_EXPERTS = _counter_of_packed_weights(_expert_bits)
# Operator and input -> how many weights are packed in it.
_COUNTS: Mapping[tuple[str, int], Callable[[Node, int], int]] = MappingProxyType(
    {
        ("MatMulNBits", 1): _attribute_product("N", "K"),
        ("MatMulBnb4", 1): _attribute_product("N", "K"),
        ("MatMulNBitsQkv", 3): _attribute_product("Nq", "K"),
        **dict.fromkeys(
            (("MatMulNBitsQkv", 6), ("MatMulNBitsQkv", 9)), _attribute_product("Nkv", "K")
        ),
        **dict.fromkeys(
            (("MatMulNBitsMlp", 3), ("MatMulNBitsMlp", 6)), _attribute_product("N", "K")
        ),
        ("MatMulFpQ4", 1): _fp4_weight_count,
        ("MatMulBlockQuantizedFp4Weight", 1): _counter_of_packed_weights(lambda _: 4),
        ("GatherBlockQuantized", 0): _counter_of_packed_weights(_bit_width_reader("bits", 4)),
        **dict.fromkeys((("QMoE", 2), ("QMoE", 5), ("QMoE", 8)), _EXPERTS),
    }
)


def input_weight_count(node: Node, index: int) -> int:
    """Return the number of weights packed in an input of a node, or 0 if it is not packed."""
    count = _COUNTS.get((node.op.type, index))
    return count(node, index) if count is not None else 0


_NORMS = ("LayerNormalization", "GroupNormalization", "InstanceNormalization")
_RECURRENT = ("LSTM", "GRU", "RNN")
_POINTWISE = ("Add", "Sub", "Mul", "Div", "Where")
# Operator -> the inputs that take weights. A statistic of a batch normalization is none, nor is a
# zero point, a scale of a quantizer, a bound, a size.
WEIGHTS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "FusedConv", "DeformConv"), (1, 2)),
    **dict.fromkeys(("Gemm", "FusedGemm", "MatMul", "FusedMatMul"), (0, 1, 2)),
    **dict.fromkeys(("ConvInteger", "MatMulInteger"), (1,)),
    "QLinearConv": (3, 8),
    "QLinearMatMul": (3,),
    "Einsum": (0, 1, 2),
    "BatchNormalization": (1, 2),
    **dict.fromkeys(_NORMS, (1, 2)),
    **dict.fromkeys(("RMSNormalization", "SimplifiedLayerNormalization"), (1,)),
    "SkipLayerNormalization": (2, 3, 4),
    "SkipSimplifiedLayerNormalization": (2, 3),
    "EmbedLayerNormalization": (2, 3, 4, 5, 6),
    **dict.fromkeys(_RECURRENT, (1, 2, 3, 7)),
    "PRelu": (1,),
    "Gather": (0,),
    "Attention": (1, 2),
    **dict.fromkeys(("BiasGelu", "FastGelu"), (1,)),
    "CausalConvWithState": (1, 2),
    **dict.fromkeys(_POINTWISE, (0, 1, 2)),
    **PACKED_WEIGHTS,
}
# Operators whose first input is the weight, and the others say what to do with it.
_MOVES = (
    *("Transpose", "Reshape", "Cast", "CastLike", "Identity", "Unsqueeze", "Squeeze", "Flatten"),
    *("DequantizeLinear", "QuantizeLinear", "Slice", "Split", "Gather", "Pad", "Expand", "Tile"),
)
# Operators of ai.onnx.ml hold their weights in attributes, lists of float32.
_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("LinearClassifier", "LinearRegressor"), ("coefficients", "intercepts")),
    **dict.fromkeys(
        ("SVMClassifier", "SVMRegressor"),
        ("coefficients", "support_vectors", "rho", "prob_a", "prob_b"),
    ),
    "TreeEnsembleClassifier": ("class_weights", "base_values"),
    "TreeEnsembleRegressor": ("target_weights", "base_values"),
    "Scaler": ("offset", "scale"),
    "Imputer": ("imputed_value_floats",),
}
_FLOATS = ("float", "bfloat", "complex")
_QUANTIZED = ("int8", "uint8", "int4", "uint4", "int2", "uint2")
# Operators on whole numbers, whose weights and biases may be of any such type.
_INTEGER = ("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "QGemm")

ML = "ai.onnx.ml"
ARGUMENT = "argument"  # the role of a constant input of a function: it stands for what is given


def nodes_outside_functions(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield the nodes and all nodes in their bodies, except in the bodies of functions."""
    for node in nodes:
        yield node
        for body in node.bodies if node.choice != "function" else ():
            yield from nodes_outside_functions(body.nodes)


class Size(NamedTuple):
    """A number of elements and of bytes, with the element type; "" for several types."""

    numel: int
    nbytes: int
    dtype: str = ""


def total_weight_size(weights: Mapping[str, Mapping[str, Size]]) -> Size:
    """Return the elements and bytes of all weights that `weight_sizes_by_node` returned."""
    return _sum_of_sizes(size for sizes in weights.values() for size in sizes.values())


def weight_bytes_by_type(weights: Mapping[str, Mapping[str, Size]]) -> dict[str, int]:
    """Return the bytes by element type of all weights that `weight_sizes_by_node` returned."""
    by_type: dict[str, int] = {}
    for size in (size for sizes in weights.values() for size in sizes.values()):
        by_type[size.dtype] = by_type.get(size.dtype, 0) + size.nbytes
    return by_type


def _sum_of_sizes(sizes: Iterable[Size]) -> Size:
    """Return the sum of the elements, and of the bytes, of several sizes."""
    all_sizes = list(sizes)
    return Size(sum(size.numel for size in all_sizes), sum(size.nbytes for size in all_sizes))


def _body_weight_sizes(
    nodes: list[Node], functions: dict[int, dict[str, Size]]
) -> dict[str, Size]:
    """Return by name the sizes of the weights that nodes of a body read."""
    makers = _constant_producers(nodes)
    weights: dict[str, Size] = {}
    roots_taken: set[str] = set()
    for node in nodes:
        weights |= _node_weight_sizes(node, makers, roots_taken, functions)
    return weights


def weight_elements_by_node(nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
    """Return the number of elements of each weight, by node key and by weight name."""
    return {
        key: {name: size.numel for name, size in sizes.items()}
        for key, sizes in weight_sizes_by_node(nodes).items()
    }


def weight_sizes_by_node(nodes: Iterable[Node]) -> dict[str, dict[str, Size]]:
    """Return the size of each weight, by key of the first node that uses it and by name.

    The node is the first that uses the weight, or has it in a body. A weight may be behind other
    constant nodes (a transposition, a dequantization), or be made by ConstantOfShape. An operand
    of a pointwise node is a parameter if it is stored and not a scalar. The weights of a function
    count with every call.
    """
    tops = list(nodes)
    makers, roots_taken = _constant_producers(list(nodes_outside_functions(tops))), set[str]()
    functions: dict[int, dict[str, Size]] = {}
    by_owner: dict[str, dict[str, Size]] = {}
    for top in tops:
        for node in nodes_outside_functions([top]) if top.bodies else (top,):
            if sizes := _node_weight_sizes(node, makers, roots_taken, functions):
                by_owner.setdefault(top.key, {}).update(sizes)
    return by_owner


def _constant_producers(nodes: Iterable[Node]) -> dict[str, Node]:
    """Return the nodes marked as constant, by the names of their results."""
    return {spec.name: node for node in nodes if node.constant for spec in node.outputs if spec}


def _node_weight_sizes(
    node: Node,
    makers: Mapping[str, Node],
    roots_taken: set[str],
    functions: dict[int, dict[str, Size]],
) -> dict[str, Size]:
    """Return by name the sizes of the weights that this node is the first to use."""
    own_sizes: dict[str, Size] = {}
    if node.constant:
        return own_sizes
    if node.choice == "function":
        return _call_weight_sizes(node, makers, roots_taken, functions)
    if node.op.domain == ML:
        return _attribute_weight_sizes(node)
    for index in WEIGHTS.get(node.op.type, ()):
        spec = node.inputs[index] if index < len(node.inputs) else None
        if spec is not None and _may_be_weight(node, spec):
            sizes = input_weight_count(node, index)
            own_sizes |= _source_tensor_sizes(
                spec, makers, roots_taken, sizes, node.op.type in _INTEGER
            )
    return own_sizes


def _attribute_weight_sizes(node: Node) -> dict[str, Size]:
    """Return the size of the weights in the attributes of a node of ai.onnx.ml, by name."""
    lists = [node.attrs.get(name, ()) for name in _ATTRIBUTES.get(node.op.type, ())]
    modes = node.attrs.get("nodes_modes", ())
    inner = [mode for mode in modes if mode != "LEAF"] if isinstance(modes, tuple) else []
    numel = sum(len(item) for item in lists if isinstance(item, tuple)) + len(inner)
    return {f"{node.key}/": Size(numel, 4 * numel, "float32")} if numel else {}


def _call_weight_sizes(
    node: Node,
    makers: Mapping[str, Node],
    roots_taken: set[str],
    functions: dict[int, dict[str, Size]],
) -> dict[str, Size]:
    """Return by name the sizes of a function call's weights: of its inputs and in its body."""
    (body,) = node.bodies
    if id(body) not in functions:
        functions[id(body)] = _body_weight_sizes(
            list(nodes_outside_functions(body.nodes)), functions
        )
    inside = functions[id(body)]
    taken = [index for index, spec in enumerate(body.inputs) if spec.name in inside]
    provided = {body.inputs[index].name for index in taken}
    own = [size for name, size in inside.items() if name not in provided]
    sizes: dict[str, Size] = {}
    for dtype in dict.fromkeys(size.dtype for size in own):
        amount = _sum_of_sizes(size for size in own if size.dtype == dtype)
        key = f"{node.key}/{dtype if sizes else ''}"
        sizes |= {key: amount._replace(dtype=dtype)} if amount.numel else {}
    for index in taken:
        spec = node.inputs[index]
        if spec is not None:
            sizes |= _source_tensor_sizes(spec, makers, roots_taken, 0, True)
    return sizes


def _may_be_weight(node: Node, spec: TensorSpec) -> bool:
    """Return whether an operand may be a weight; a single number of a pointwise node is not."""
    return node.op.type not in _POINTWISE or (spec.shape is not None and prod(spec.shape) > 1)


def _source_tensor_sizes(
    spec: TensorSpec, makers: Mapping[str, Node], roots_taken: set[str], packed: int, full: bool
) -> dict[str, Size]:
    """Return by name the sizes of the stored tensors that a constant value is computed from.

    Whole numbers of any width are weights where `full` says so, or behind a dequantization.
    """
    roots: dict[str, Size] = {}
    todo = [(spec, full)]
    while todo:
        name, numbers = todo.pop()
        if name.name in roots_taken:
            continue
        maker = makers.get(name.name)
        if maker is None and name.role not in ("parameter", "constant", ARGUMENT):
            continue
        roots_taken.add(name.name)
        if maker is None or maker.op.type in ("Constant", "ConstantOfShape"):
            if name.shape is not None and (packed or numbers or _is_weight(name)):
                roots[name.name] = Size(packed or prod(name.shape), name.nbytes, name.dtype)
            continue
        behind = maker.inputs[:1] if maker.op.type in _MOVES else maker.inputs
        numbers = numbers or maker.op.type == "DequantizeLinear"
        todo.extend((source, numbers) for source in behind if source is not None)
    return roots


def _is_weight(spec: TensorSpec) -> bool:
    """Return whether a tensor's element type is one of weights: float, complex or quantized."""
    return spec.dtype.startswith(_FLOATS) or spec.dtype in _QUANTIZED
