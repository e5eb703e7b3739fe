"""What torchprofile's handlers compute from a traced node, from torchprofile/handlers.py.

Tensors are named as in the schema of the operator, results by place. Where a handler raises, the
formula does: LookupError for a tensor that is not there, ValueError where the axes are not those
that it unpacks.
"""

from math import prod

from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import Formula, shape_of

Shape = tuple[int, ...]


def addmm(call: Call, module: Module) -> int:
    """n x m x p of [n, m] and [m, p], the second and the third operand. _addmm."""
    n, _ = shape_of(call, "mat1")
    m, p = shape_of(call, "mat2")
    return n * m * p


def addmv(call: Call, module: Module) -> int:
    """n x m of the matrix. _addmv."""
    n, m = shape_of(call, "mat")
    return n * m


def bmm(call: Call, module: Module) -> int:
    """b x n x m x p of [b, n, m] and [b, m, p]. _bmm."""
    _, n, _ = shape_of(call, "self")
    b, m, p = shape_of(call, "mat2")
    return b * n * m * p


def baddbmm(call: Call, module: Module) -> int:
    """b x n x m x p; what is added must have all three axes of the result. _baddbmm."""
    _, n, p = shape_of(call, "self")
    _, n1, m = shape_of(call, "batch1")
    b, m1, p1 = shape_of(call, "batch2")
    if (n, m, p) != (n1, m1, p1):
        raise ValueError(f"torchprofile asserts that what is added has the axes {n1} and {p1}")
    return b * n * m * p


def matmul(call: Call, module: Module) -> int:
    """All results times the contracted axis, broadcast or not; linear layers too. _matmul."""
    first, second = shape_of(call, "self", "input"), shape_of(call, "other", "weight")
    if not first or not second:
        raise LookupError("a product with a scalar")
    if len(first) == 1:
        return prod(second)
    if len(second) == 1 or (len(first) == 2 and len(second) == 2):
        return prod(first) * (prod(second) // first[-1] if len(second) == 2 else 1)
    *batch, n, p = _output(call)
    *_, n, m = first
    *_, m, p = second
    return prod(batch) * n * m * p


def product(call: Call, module: Module) -> int:
    """n(y) of a multiplication of tensors. _mul."""
    return 0 if _is_extent(call) else prod(_output(call))


def extent(call: Call, module: Module) -> int:
    """1 for a product of whole numbers that the tracer keeps as a tensor without axes. _mul."""
    return int(_is_extent(call))


def results(call: Call, module: Module) -> int:
    """n(y), y the first result. _norm, _avg_pool_or_mean, _leaky_relu."""
    return prod(_output(call))


def convolution(call: Call, module: Module) -> int:
    """n(y) x the weight's input channels x prod(k), the output's size even when transposed.

    W [a, b, k...] has b input channels if y has a channels, else a: a transposed convolution with
    as many channels in as out is taken for one that is not, and its groups are not divided by.
    _convolution.
    """
    out, weight = _output(call), shape_of(call, "weight")
    channels = weight[1] if out[1] == weight[0] else weight[0]
    return prod(out) * channels * prod(weight[2:])


def lstm(call: Call, module: Module) -> int:
    """Steps x batch x directions x 4 H (I + H), I the width below each layer. _lstm."""
    out, hidden = _output(call), _output(call, 1)
    width = hidden[-1]
    directions = out[-1] // width
    layers = hidden[0] // directions
    below = [shape_of(call, "input", "data")[-1], *[width * directions] * (layers - 1)]
    return out[0] * out[1] * directions * sum(4 * width * (each + width) for each in below)


def einsum(call: Call, module: Module) -> int:
    """The product of the extents of all labels, for any number of operands; 0 with "...".

    A label's extent is that of the last operand that has it. _einsum.
    """
    equation = call.settings.get("equation")
    operands = [spec for spec in call.inputs if spec.name.startswith("tensors.")]
    if not isinstance(equation, str) or not operands or "..." in equation:
        return 0
    extents: dict[str, int] = {}
    for labels, spec in zip(equation.partition("->")[0].split(","), operands, strict=False):
        if spec.shape is None:
            return 0
        extents.update(zip(labels.replace(" ", ""), spec.shape, strict=False))
    return prod(extents.values())


def attention(call: Call, module: Module) -> int:
    """B x heads x Sq x Skv x (D + Dv). It asserts as many heads of keys as of queries.

    _scaled_dot_product_attention.
    """
    query, key, value = (shape_of(call, name) for name in ("query", "key", "value"))
    heads = prod(query[1:-2])
    same = query[0] == key[0] == value[0] and heads == prod(key[1:-2]) == prod(value[1:-2])
    if not same or query[-1] != key[-1] or key[-2] != value[-2]:
        raise ValueError("torchprofile asserts that queries, keys and values have equal axes")
    return query[0] * heads * query[-2] * key[-2] * (query[-1] + value[-1])


def _is_extent(call: Call) -> bool:
    spec = call.outputs[0] if call.outputs else None
    return spec is not None and spec.shape == () and spec.dtype.startswith("int")


def _output(call: Call, place: int = 0) -> Shape:
    found = (spec.shape for spec in call.outputs if spec.name == str(place))
    shape = next(found, None)
    if shape is None:
        raise LookupError(f"result {place} has no shape")
    return shape


FORMULAS: dict[str, Formula] = {
    "torchprofile.addmm": addmm,
    "torchprofile.addmv": addmv,
    "torchprofile.bmm": bmm,
    "torchprofile.baddbmm": baddbmm,
    "torchprofile.matmul": matmul,
    "torchprofile.product": product,
    "torchprofile.extent": extent,
    "torchprofile.results": results,
    "torchprofile.convolution": convolution,
    "torchprofile.lstm": lstm,
    "torchprofile.einsum": einsum,
    "torchprofile.attention": attention,
}
