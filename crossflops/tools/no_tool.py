"""Define conventions that belong to no tool: other answers to the question what one operation is.

exact-2k-1: every operation once, K products and K - 1 additions in a sum of products. The native
FLOPs count 2 for each multiply-accumulate, as if the first product of a sum were added to a zero;
here it is not. All other work is as in the native count, a bias one addition for each result: so
`Linear(5, 4)` with its bias is 4 x (2 x 5 - 1) + 4 = 40 on one row, whether the graph has it as
one Gemm or as MatMul and Add.

elementwise-1: one operation for each result of an elementwise operator, and nothing else. ReLU and
then Sigmoid on 1x5x32x32 are 5120 + 5120 = 10 240. Elementwise are the operators that compute each
result from the elements at its place: arithmetic, comparisons, logic, elementary functions,
activations. What moves, selects, converts, reduces, normalizes or contracts is not.
"""

from math import prod

from crossflops.ir.graph import Node, TensorSpec
from crossflops.rules.rule import CostWeights, Tool, with_formula
from crossflops.tools.contractions import einsum_pairs

_RUNTIME = "com.microsoft."
_FIRST = "unit.first-add-omitted"

# Operators whose contractions have one sum for each element of the first output.
_ONE_PER_RESULT = (
    "Conv", "ConvInteger", "QLinearConv", "DeformConv", "CausalConvWithState", "MatMul",
    "MatMulInteger", "QLinearMatMul", "Gemm", "AffineGrid", "ai.onnx.ml.LinearRegressor",
    "com.microsoft.nchwc.Conv", "com.ms.internal.nhwc.Conv", "com.ms.internal.nhwc.QLinearConv",
    *(_RUNTIME + name for name in (
        "FusedConv", "NhwcConv", "NhwcFusedConv", "QLinearConv", "CausalConvWithState",
        "VarlenCausalConvWithState", "FusedMatMul", "FusedMatMulActivation", "TransposeMatMul",
        "FusedGemm", "GemmFastGelu", "GemmFloat8", "QGemm", "QOrderedMatMul",
        "SparseToDenseMatMul", "MatMulNBits", "MatMulBnb4", "MatMulFpQ4",
        "MatMulBlockQuantizedFp4Weight",
        "MatMulBlockQuantizedFp8Weight", "MatMulInteger16", "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul",
    )),
)  # fmt: skip
_SCATTERING = ("ConvTranspose", f"{_RUNTIME}ConvTransposeWithDynamicPads")
_ATTENTION = ("Attention", "ai.onnx.preview.FlexAttention")
_RECURRENT = ("LSTM", "GRU", "RNN")

exact = Tool(
    "exact-2k-1",
    edition="1",
    prints="FLOPs",
    per_mac=2,
    level="node",
    unseen="op.unregistered-zero",
    source="no tool: the exact number of operations",
)
sums = exact.rules(
    "node", source="the sum of K products needs K multiplications and K - 1 additions"
)
sums.contraction(
    (*_ONE_PER_RESULT, *_SCATTERING, *_ATTENTION, "Einsum", *_RECURRENT),
    cause="graph.export-decomposition",
    name="products",
)(CostWeights({"macs": 1}))


# One addition less for each sum.


@sums.adds(_ONE_PER_RESULT, cause=_FIRST, name="first.results", factor=-1)
@with_formula("n(Y), Y the first output")
def result_element_sums(node: Node) -> int:
    """Return the number of sums of an operator with one sum per element of its first result."""
    return prod(_require_shape(node.outputs, 0))


@sums.adds(_SCATTERING, cause=_FIRST, name="first.scattered", factor=-1)
@with_formula("min(n(Y), n(X)/C x M x prod(k)): the results that a product reaches")
def convolution_transpose_sums(node: Node) -> int:
    """Return the number of sums in a transposed convolution: the result elements that at least one
    product reaches.

    X [N, C, d...], W [C, M/group, k...], Y [N, M, o...]. With a stride above the kernel some
    results are the bias alone.
    """
    source, out = _require_shape(node.inputs, 0), _require_shape(node.outputs, 0)
    window = prod(_require_shape(node.inputs, 1)[2:])
    positions = prod(source) // source[1] if source[1] else 0
    return min(prod(out), positions * out[1] * window)


@sums.adds(_ATTENTION, cause=_FIRST, name="first.attended", factor=-1)
@with_formula("B Hq Sq (St + Dv): a sum for every score, and for every element of the result")
def attention_sums(node: Node) -> int:
    """Return the number of sums in an attention: one for each score, and one for each element of
    the result.

    Q [B, Hq, Sq, D] or [B, Sq, Hq*D], K and V alike, past keys [B, Hkv, Sp, D]; St = Skv + Sp.
    """
    query, key = _attention_head_shape(node, 0), _attention_head_shape(node, 1)
    past = _require_shape(node.inputs, 4)[2] if len(node.inputs) > 4 and node.inputs[4] else 0
    return prod(query[:3]) * (key[2] + past + _attention_head_shape(node, 2)[3])


@sums.adds(
    "Einsum",
    cause=_FIRST,
    name="first.contracted",
    factor=-1,
    formula="sum of n(pair) over the pairs of operands, from the left, whose labels are summed",
)
def einsum_sums(node: Node) -> int:
    """Return the number of sums in an einsum that multiplies two operands at a time, from left to
    right.
    """
    equation = node.attrs.get("equation")
    if not isinstance(equation, str):
        raise ValueError("Einsum without an equation")
    shapes = [_require_shape(node.inputs, index) for index in range(len(node.inputs))]
    pairs, extents = einsum_pairs(equation, shapes)
    return sum(prod(extents[x] for x in kept) for pair, kept in pairs if len(kept) < len(pair))


@sums.adds(_RECURRENT, cause=_FIRST, name="first.gates", factor=-1)
@with_formula("D T B g H: a sum for every gate of every unit in every step")
def recurrent_gate_sums(node: Node) -> int:
    """Return the number of sums in a recurrent layer: one for each gate of each unit in each step,
    sample and direction.

    X [T, B, I], R [D, g*H, H]: x and h meet their weights in one sum.
    """
    steps, batch, _ = _require_shape(node.inputs, 0)
    directions, rows, _ = _require_shape(node.inputs, 2)
    return steps * batch * directions * rows


def _attention_head_shape(node: Node, index: int) -> tuple[int, ...]:
    """Return (batch size, heads, tokens, head size) of the attention input at `index`, which has 3
    or 4 axes.
    """
    dims = _require_shape(node.inputs, index)
    if len(dims) == 4:
        return dims
    heads = node.attrs.get("kv_num_heads" if index else "q_num_heads")
    if len(dims) != 3 or not isinstance(heads, int) or heads <= 0:
        raise ValueError(f"{node.op} does not say how its heads are laid out")
    return dims[0], heads, dims[1], dims[2] // heads


def _require_shape(specs: tuple[TensorSpec | None, ...], index: int) -> tuple[int, ...]:
    """Return the shape of the tensor at `index`; raise ValueError if it is unknown.

    The node is then named, and not counted as 0.
    """
    spec = specs[index] if index < len(specs) else None
    if spec is None or spec.shape is None:
        raise ValueError("a shape is not known")
    return spec.shape


sums.adds(cause="elementwise.native", name="others", source="the native count")(
    CostWeights(dict.fromkeys(("adds", "muls", "divs", "compares", "specials"), 1))
)


# elementwise-1.

OPERATORS = (
    "Add", "Sub", "Mul", "Div", "Mod", "Neg", "Abs", "Sign", "Reciprocal", "BitShift", "Pow",
    "Sum", "Mean", "Max", "Min", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual",
    "And", "Or", "Xor", "Not", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "IsNaN",
    "IsInf", "Exp", "Log", "Sqrt", "Erf", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh",
    "Cosh", "Asinh", "Acosh", "Atanh", "Floor", "Ceil", "Round", "Sigmoid", "Tanh", "Relu",
    "LeakyRelu", "PRelu", "ThresholdedRelu", "Elu", "Celu", "Selu", "HardSigmoid", "HardSwish",
    "Softplus", "Softsign", "Mish", "Shrink", "Clip", "Gelu", "Swish",
    *(_RUNTIME + name for name in (
        "Gelu", "FastGelu", "QuickGelu", "BiasGelu", "QOrderedGelu", "ScaledSiLU", "BiasAdd",
        "GatedAdd", "MulInteger", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu",
    )),
)  # fmt: skip

elementwise = Tool(
    "elementwise-1",
    edition="1",
    prints="FLOPs",
    per_mac=0,
    level="node",
    unseen="op.unregistered-zero",
    source="no tool: elementwise operators alone",
)
nodes = elementwise.rules("node")
nodes.adds(
    OPERATORS,
    cause="elementwise.native",
    name="results",
    source="one for each element of the result",
)(result_element_sums)
nodes.misses(
    "others", cause="op.unregistered-zero", source="contractions are no elementwise operators"
)

CONVENTIONS = (elementwise.convention, exact.convention)
