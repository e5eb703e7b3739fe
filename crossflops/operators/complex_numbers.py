"""What PyTorch does with complex numbers and PyTorch's exporter has an ONNX form of for real ones
alone: the export keeps each as one opaque node.

The last axis of a complex tensor holds its two parts, as everywhere in such an export.
"""

from crossflops.ir.cost import Cost
from crossflops.ir.graph import Node
from crossflops.operators.access import integer, number, out_size, shape, size, source
from crossflops.operators.gradient import each_operand, moves_back
from crossflops.operators.movement import MOVED, moved
from crossflops.operators.operands import label, shape_of
from crossflops.operators.rule import TORCH, TORCH_PAGES, Operators, estimated

operator = Operators(TORCH)


def _meets(node: Node, first: int) -> str:
    """Rows of the one operand are as long as the columns of the other, before the two parts."""
    left, right = shape_of(node, first), shape_of(node, first + 1)
    across = right[-2] if len(right) == 2 else right[-3]
    if left[-2] == across:
        return ""
    return f"{label(node, first)} has rows of {left[-2]}, {label(node, first + 1)} {across}"


def _inner(node: Node) -> str:
    return _meets(node, 0)


def _inner_of_sum(node: Node) -> str:
    return _meets(node, 1)


# What moves numbers, by the function's page: the overloads of its operators.
_MOVES = {
    "Tensor.expand": ("aten.expand.default",),
    "Tensor.copy_": (
        "aten._to_copy.default",
        "aten.lift_fresh_copy.default",
        "aten.detach.default",
    ),
    "Tensor.to": ("prims.convert_element_type.default",),
    "Tensor.repeat": ("aten.repeat.default",),
    "Tensor.unfold": ("aten.unfold.default",),
    "Tensor.masked_fill": ("aten.masked_fill.Scalar", "aten.masked_fill.Tensor"),
    "as_strided": ("aten.as_strided.default",),
    "diag_embed": ("aten.diag_embed.default",),
    "diagonal": ("aten.diagonal.default",),
    "gather": ("aten.gather.default",),
    "index_select": ("aten.index_select.default",),
    "masked_select": ("aten.masked_select.default",),
    "nn.functional.pad": ("aten.pad.default", "aten.constant_pad_nd.default"),
    "ones_like": ("aten.ones_like.default",),
    "Tensor.new_full": (
        *("aten.new_full.default", "aten.new_zeros.default", "aten.new_ones.default"),
        *("aten.new_empty.default", "aten.full_like.default", "aten.empty_like.default"),
    ),
    "repeat_interleave": (
        "aten.repeat_interleave.self_int",
        "aten.repeat_interleave.self_Tensor",
        "aten.repeat_interleave.Tensor",
    ),
    "scatter": ("aten.scatter.src", "aten.scatter.value"),
    "select": ("aten.select.int",),
    "squeeze": ("aten.squeeze.default", "aten.squeeze.dims"),
    "Tensor.view": ("aten.reshape.default", "aten.alias.default", "aten.view.dtype"),
    "Tensor.index_put": ("aten.index.Tensor",),
    "tile": ("aten.tile.default",),
    "tril": ("aten.tril.default",),
    "triu": ("aten.triu.default",),
    "unsqueeze": ("aten.unsqueeze.default",),
    "where": ("aten.where.self",),
    "zeros_like": ("aten.zeros_like.default",),
}
for page, names in _MOVES.items():
    operator(names, MOVED, page=f"{TORCH_PAGES}{page}.html", backward=moves_back)(moved)

# Those that give a list of views: each part is read where it is taken from the list.
for page, names in {
    "split": ("split.Tensor", "split_with_sizes.default"),
    "unbind": ("unbind.int",),
}.items():
    operator(
        (f"aten.{name}" for name in names),
        MOVED,
        page=f"{TORCH_PAGES}{page}.html",
        traffic="view",
        backward=moves_back,
    )(moved)


@operator(
    "aten.index_put.default",
    "0: data movement; accumulate: n(values) adds",
    page=f"{TORCH_PAGES}Tensor.index_put.html",
)
def index_put(node: Node) -> Cost:
    """aten.index_put: values to their places; accumulated, an add for each part of each value.

    Then the values are the last input.
    https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_put.html
    """
    added = size(node, len(node.inputs) - 1) if integer(node, "accumulate", 0) else 0
    return Cost(adds=added)


# Functions of a complex number z = a + ib, by the functions of real numbers that they are made of:
# e^z = e^a (cos b + i sin b), log z = log |z| + i atan2(b, a), z^p = e^(p log z).
_PRODUCT = Cost(muls=4, adds=2)
_EXP = Cost(specials=3, muls=2)
_LOG = Cost(specials=3, muls=2, adds=1)


@operator(
    ("aten.exp.default", "aten.log.default", "aten.pow.Tensor_Scalar"),
    "per z: exp: 3 specials, 2 muls; log: 3 specials, 2 muls, add; z^2: 4 muls, 2 adds; "
    "z^p: log, exp, 2 muls",
    page=f"{TORCH_PAGES}exp.html",
    doubt=estimated,
)
def of_numbers(node: Node) -> Cost:
    """aten.exp, aten.log and aten.pow of complex numbers, whose two parts are the last axis.

    exp: e^a, cos b, sin b and 2 muls. log: |z| (2 muls, add, sqrt), its log, atan2. z^2 is one
    complex product, another power exp(p log z). By textbook formulas: an estimate.
    https://docs.pytorch.org/docs/stable/generated/torch.exp.html
    """
    name = node.op.type.split(".")[1]
    power = _PRODUCT if number(node, "exponent", 0.0) == 2 else _LOG + Cost(muls=2) + _EXP
    each = {"exp": _EXP, "log": _LOG}.get(name, power)
    return each * (out_size(node) // 2)


@operator(
    "aten.cumprod.default.complex",
    "per z: 4 muls, 2 adds",
    page=f"{TORCH_PAGES}cumprod.html",
)
def running_product(node: Node) -> Cost:
    """aten.cumprod of complex numbers: a product for each of them, as of real ones.

    https://docs.pytorch.org/docs/stable/generated/torch.cumprod.html
    """
    return _PRODUCT * (out_size(node) // 2)


@operator(
    ("aten.mm.default", "aten.bmm.default", "aten.mv.default", "aten.dot.default"),
    "complex: 2*n(Y)*K MACs, n(Y) = 2 parts of each result",
    page=f"{TORCH_PAGES}mm.html",
    requires=_inner,
    backward=each_operand(0, 1),
)
def product(node: Node) -> Cost:
    """aten.mm, bmm, mv and dot of complex numbers: 4 MACs for each pair, K pairs per result.

    mm: [M, K, 2] and [K, N, 2]; bmm: [B, M, K, 2] and [B, K, N, 2]; mv: [M, K, 2] and [K, 2];
    dot: [K, 2] twice. The result has 2 parts for each number.
    https://docs.pytorch.org/docs/stable/generated/torch.mm.html
    """
    inner = shape(source(node, 0), at_least=2)[-2]
    return Cost(macs=2 * out_size(node) * inner)


@operator(
    ("aten.addmm.default", "aten.baddbmm.default"),
    "complex: 2*n(Y)*K MACs; beta: n(Y) adds; beta or alpha other than 0 and 1: n(Y) muls each",
    page=f"{TORCH_PAGES}addmm.html",
    requires=_inner_of_sum,
)
def product_and_sum(node: Node) -> Cost:
    """aten.addmm and baddbmm of complex numbers, with real factors: beta * C + alpha * A B.

    As the product alone, and an add for each part of the result. C, A, B in this order.
    https://docs.pytorch.org/docs/stable/generated/torch.addmm.html
    """
    inner = shape(source(node, 1), at_least=3)[-2]
    beta, alpha = number(node, "beta", 1.0), number(node, "alpha", 1.0)
    scaled = (beta not in (0, 1)) + (alpha not in (0, 1))
    each = Cost(macs=2 * inner, adds=int(beta != 0), muls=scaled)
    return each * out_size(node)
