"""elementwise-1: one operation for each result of an elementwise operator, and nothing else.

No tool. ReLU and then Sigmoid on 1x5x32x32 are 5120 + 5120 = 10 240. Elementwise are the operators
that compute each result from the elements at its place: arithmetic, comparisons, logic, elementary
functions, activations. What moves, selects, converts, reduces, normalizes or contracts is not.
"""

from crossflops.rules.rule import Tool
from crossflops.tools.exact import results

_RUNTIME = "com.microsoft."

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
)(results)
nodes.misses(
    "others", cause="op.unregistered-zero", source="contractions are no elementwise operators"
)

CONVENTIONS = (elementwise.convention,)
