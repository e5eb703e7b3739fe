"""What onnx-tool computes: the methods `profile` of the classes in onnx_tool/node.py.

n(X) is `volume` in tensor.py: the product of the extents, and 0 for a shape without axes. A
formula raises LookupError where the tool raises.
"""

from math import prod

from crossflops.ir.graph import Node
from crossflops.tools.formulas.nodes import NodeFormula

# The element types that `onnxdtype2npdtype` knows.
_READABLE = (
    "float32", "float64", "float16", "int32", "int16", "int64", "int8", "uint8", "uint16", "bool",
    "string",
)  # fmt: skip
_STORED = ("parameter", "constant")


def _dims(node: Node, index: int, kind: str = "inputs") -> tuple[int, ...]:
    specs = getattr(node, kind)
    if index >= len(specs):
        raise LookupError(f"{node.key} has no tensor {index} among its {kind}")
    spec = specs[index]
    if spec is None or not spec.name:
        return ()
    if spec.shape is None:
        raise ValueError("a shape is not known")
    dims: tuple[int, ...] = spec.shape
    return dims


def _volume(dims: tuple[int, ...]) -> int:
    return prod(dims) if dims else 0


def results(node: Node) -> int:
    """n(Y), 0 of a scalar."""
    return _volume(_dims(node, 0, "outputs"))


def elements(node: Node) -> int:
    """n(X), 0 of a scalar."""
    return _volume(_dims(node, 0))


def largest(node: Node) -> int:
    """The largest n of the inputs (`_max_shape`), which two that broadcast exceed."""
    return max(_volume(_dims(node, index)) for index in range(len(node.inputs)))


def added(node: Node) -> int:
    """(inputs - 1) n of the largest input."""
    return (len(node.inputs) - 1) * largest(node)


def neighbours(node: Node) -> int:
    """n(Y) size, the products of a local response normalization."""
    size = node.attrs["size"]
    if not isinstance(size, int):
        raise TypeError("size is no number")
    return results(node) * size


def window(node: Node) -> int:
    """n(Y) k: of a window of three axes the first extent alone is taken."""
    kernel = node.attrs.get("kernel_shape", (3, 3))
    if not isinstance(kernel, tuple):
        raise TypeError("kernel_shape is no list")
    extents = [int(k) for k in kernel]
    return results(node) * (prod(extents) if len(extents) == 2 else extents[0])


def convolution(node: Node) -> int:
    """n(Y) prod(W[1:]), of a transposed one, too, where W is [C, M/g, k...]."""
    return results(node) * _volume(_dims(node, 1)[1:])


def quantized_convolution(node: Node) -> int:
    """n(Y) W[1] W[2] W[3], W the fourth input."""
    kernel = _dims(node, 3)
    if len(kernel) < 3:
        raise LookupError("a kernel without axes")
    return results(node) * prod(kernel[1:4])


def integer_convolution(node: Node) -> int:
    """n(Y) W[1] W[2] W[3]."""
    kernel = _dims(node, 1)
    if len(kernel) < 3:
        raise LookupError("a kernel without axes")
    return results(node) * prod(kernel[1:4])


def bias(node: Node) -> int:
    """n(Y) where a third input is listed, be it an empty name."""
    return results(node) if len(node.inputs) > 2 else 0


def quantized_bias(node: Node) -> int:
    """n(Y) where the ninth input is listed."""
    return results(node) if len(node.inputs) == 9 else 0


def added_matrix(node: Node) -> int:
    """n(Y) where three inputs are listed, neither more nor less."""
    return results(node) if len(node.inputs) == 3 else 0


def gemm(node: Node) -> int:
    """n(Y) K."""
    depth = _dims(node, 1)
    if len(_dims(node, 0)) < 2 or len(depth) < 2:
        raise LookupError("Gemm and MatMul need two axes or more")
    transposed = node.op.type == "Gemm" and node.attrs.get("transB")
    return results(node) * depth[-1 if transposed else -2]


def quantized_product(node: Node) -> int:
    """n(A) B[-1], B the fourth input."""
    return elements(node) * _dims(node, 3)[-1]


def einsum(node: Node) -> int:
    """The product of the extents of all indices of two operands; it knows no dots."""
    equation = node.attrs["equation"]
    text = equation.decode() if isinstance(equation, bytes) else equation
    if not isinstance(text, str):
        raise TypeError("equation is no text")
    operands, arrow, result = text.replace(" ", "").partition("->")
    terms = operands.split(",")
    if len(terms) != 2 or not arrow:
        raise LookupError("two operands and an arrow are all that is known")
    extents: dict[str, int] = {}
    for index, term in enumerate(terms):
        for place, extent in enumerate(_dims(node, index)):
            extents[term[place]] = extent
    if not set(result) <= set(extents):
        raise LookupError("an index of the result that no axis was found for")
    return prod(extents.values())


def global_average(node: Node) -> int:
    """n(X) + 4 n(Y)."""
    return elements(node) + 4 * results(node)


def layer_norm(node: Node) -> int:
    """7 n(X) + 29 n(X) / X[axis]: of several axes the first alone is taken for the rows."""
    dims = _dims(node, 0)
    axis = node.attrs.get("axis", -1)
    if not isinstance(axis, int):
        raise TypeError("axis is no number")
    rows = [1 if place == axis % len(dims) else one for place, one in enumerate(dims)]
    return 7 * _volume(dims) + 29 * _volume(tuple(rows))


def _recurrent(node: Node) -> tuple[int, int]:
    """T B, and n(W) + n(R)."""
    steps, batch, *_ = _dims(node, 0)
    return steps * batch, _volume(_dims(node, 1)) + _volume(_dims(node, 2))


def recurrent(node: Node) -> int:
    """T B (n(W) + n(R))."""
    rows, weights = _recurrent(node)
    return rows * weights


def recurrent_bias(node: Node) -> int:
    """T B n(B), B the fourth input, which has to be listed."""
    return _recurrent(node)[0] * _volume(_dims(node, 3))


def lstm_gates(node: Node) -> int:
    """T B H, H a quarter of W[1]: 180 of each, whatever the number of directions."""
    return _recurrent(node)[0] * (_dims(node, 1)[1] // 4)


def gru_gates(node: Node) -> int:
    """T B H, H a third of W[1]: 110 of each, whatever the number of directions."""
    if len(node.outputs) < 2:
        raise LookupError("the second result has to be listed")
    return _recurrent(node)[0] * (_dims(node, 1)[1] // 3)


def unreadable(node: Node) -> int:
    """Stored tensors of a type that the tool has no name for: bfloat16, uint32, 8-bit floats."""
    return sum(
        spec is not None and spec.role in _STORED and spec.dtype not in _READABLE
        for spec in node.inputs
    )


def modeless(node: Node) -> int:
    """1 without the attribute mode, whose default the tool does not know."""
    return int("mode" not in node.attrs)


def axisless(node: Node) -> int:
    """1 without the attribute axis, whose default it does not know; of TopK one axis will do."""
    alone = node.op.type == "TopK" and len(_dims(node, 0)) == 1
    return int("axis" not in node.attrs and not alone)


def valueless(node: Node) -> int:
    """1 where the value is no tensor, but a number, a text or a list of them."""
    return int(any(name.startswith("value_") for name in node.attrs))


def few(node: Node) -> int:
    """1 with less than 4 inputs or less than 5 results."""
    return int(len(node.inputs) < 4 or len(node.outputs) < 5)


NODE_FORMULAS: dict[str, NodeFormula] = {
    f"onnx-tool.{formula.__name__}": formula
    for formula in (
        results, elements, largest, added, neighbours, window, convolution, quantized_convolution,
        integer_convolution, bias, added_matrix, quantized_bias, gemm, quantized_product, einsum,
        global_average, layer_norm, recurrent, recurrent_bias, lstm_gates, gru_gates, unreadable,
        modeless, axisless, valueless, few,
    )
}  # fmt: skip
