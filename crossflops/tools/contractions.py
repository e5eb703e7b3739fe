"""Map the PyTorch operators that sum products (contractions) to functions that return their exact
MACs.

They take what an undecomposed operator was given, by the names of its schema.

What the equation of an einsum says of its operands stands with them: labels, extents, and which
pairs meet.
"""

from math import isqrt, prod
from typing import NamedTuple

from crossflops.ir.trace import Call, Trace
from crossflops.rules.conditions import Site
from crossflops.rules.rule import Formula
from crossflops.tools.layers import CONTRACTIONS

Shapes = list[tuple[int, ...]]


class EinsumPairs(NamedTuple):
    """An einsum as products of two operands: for each product all of its labels and the labels
    that its result keeps, and the size of each label.
    """

    pairs: list[tuple[str, str]]
    extents: dict[str, int]


class EinsumOperands(NamedTuple):
    """The operands of an einsum, each as {label: size}, and the labels of its result."""

    operands: list[dict[str, int]]
    result: str


class _EinsumLabels(NamedTuple):
    """The labels of each operand of an einsum and of its result, and the size of each label."""

    operands: list[str]
    result: str
    extents: dict[str, int]


def einsum_pairs(equation: str, shapes: Shapes) -> EinsumPairs:
    """Return an einsum as products of two operands at a time, from left to right.

    A label of one operand alone that no later pair needs is summed before its pair is multiplied.
    """
    terms, result, extents = _einsum_labels(equation.replace(" ", ""), shapes)
    left, pairs = terms[0], []
    for index, right in enumerate(terms[1:], start=1):
        needed = set(result).union(*terms[index + 1 :])
        shared = set(left) & set(right)
        both = dict.fromkeys(left + right)
        pair = "".join(label for label in both if label in needed or label in shared)
        left = "".join(label for label in pair if label in needed)
        pairs.append((pair, left))
    return EinsumPairs(pairs, extents)


def einsum_operands(equation: str, shapes: Shapes) -> EinsumOperands:
    """Return the sizes of each operand of an einsum by label, and the labels of the result."""
    terms, result, _ = _einsum_labels(equation.replace(" ", ""), shapes)
    extents = (
        dict(zip(term, shape, strict=True)) for term, shape in zip(terms, shapes, strict=True)
    )
    return EinsumOperands(list(extents), result)


def _einsum_labels(equation: str, shapes: Shapes) -> _EinsumLabels:
    """Return the labels of each operand of an einsum, the labels of its result, and the size of
    each label.

    An ellipsis becomes capital letters that the equation does not use, aligned to the right.
    """
    left, arrow, right = equation.partition("->")
    written = left.split(",")
    free = [label for label in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if label not in equation]
    hidden = [
        len(shape) - len(term.replace("...", ""))
        for term, shape in zip(written, shapes, strict=True)
    ]
    widest = max((n for n, term in zip(hidden, written, strict=True) if "..." in term), default=0)
    dots = "".join(free[:widest])
    terms = [
        term.replace("...", dots[widest - n :]) if "..." in term else term
        for n, term in zip(hidden, written, strict=True)
    ]
    extents: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, extent in zip(term, shape, strict=True):
            extents[label] = max(extent, extents.get(label, 1))
    if arrow:
        return _EinsumLabels(terms, right.replace("...", dots), extents)
    letters = "".join(written)
    once = sorted(label for label in set(letters) - {"."} if letters.count(label) == 1)
    return _EinsumLabels(terms, dots + "".join(once), extents)


def exact_convolution_macs(call: Site) -> int:
    """Return the exact MACs of a convolution: batch size x output positions x number of weight
    elements (input positions if it is transposed).

    W is [Co, Ci/g, k...], transposed [Ci, Co/g, k...], so groups are in it. An unbatched input has
    one axis less, and N = 1.
    """
    weight, source = call.shape("weight"), call.shape("input", "self")
    transposed = "transpose" in call.target or call.settings.get("transposed") is True
    shape = source if transposed else call.result.shape or ()
    batch = source[0] if len(source) == len(weight) else 1
    return batch * prod(shape[len(shape) - len(weight) + 2 :]) * prod(weight)


def exact_linear_macs(call: Site) -> int:
    """Return the exact MACs of a linear layer: number of input elements x output features."""
    weight = call.shape("weight")
    return prod(call.shape("input")) * (weight[0] if len(weight) == 2 else 1)


def exact_matmul_macs(call: Site) -> int:
    """Return the exact MACs of a matrix product: number of result elements x size of the summed
    axis (the last axis of the first operand).
    """
    return call.result.numel * call.shape("mat1", "batch1", "self")[-1]


def exact_tensordot_macs(call: Site) -> int:
    """Return the exact MACs of torch.tensordot: number of result elements x product of the sizes
    of the summed axes.

    That product K follows from the numbers of elements of A, B and the result Y: n(A) n(B) = n(Y)
    K^2.
    """
    first, second = (spec.numel for spec in call.inputs[:2])
    outputs = call.result.numel
    return outputs * isqrt(first * second // outputs) if outputs else 0


def exact_einsum_macs(call: Site) -> int:
    """Return the exact MACs of an einsum: for each pair of operands whose labels are summed, the
    product of the sizes of all labels of the pair, added up from left to right.

    A label that only one operand has and no later pair needs is summed first. A pair that sums no
    label only multiplies, so it has no MACs.

    Labels that only one operand has and no later pair needs are summed first; a pair that sums
    over no label multiplies, which is not a contraction.
    """
    shapes = [spec.shape or () for spec in call.inputs]
    pairs, extents = einsum_pairs(str(call.settings["equation"]), shapes)
    return sum(
        prod(extents[label] for label in pair) for pair, kept in pairs if len(kept) < len(pair)
    )


def exact_attention_macs(call: Site) -> int:
    """Return the exact MACs of an attention, causal or not: batch size x heads x queries x keys x
    (head size of queries + head size of values).
    """
    query, key, value = (call.shape(name) for name in ("query", "key", "value"))
    return prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def exact_recurrent_macs(call: Site) -> int:
    """Return the exact MACs of a recurrent layer: steps x batch size x number of elements of all
    weight matrices (all layers, directions and projections).
    """
    weights = (spec for spec in call.inputs if spec.name.startswith("params"))
    matrices = sum(spec.numel for spec in weights if len(spec.shape or ()) == 2)
    return prod(call.shape("input")[:-1]) * matrices


def exact_recurrent_cell_macs(call: Site) -> int:
    """Return the exact MACs of one step of a recurrent cell: batch size x number of elements of
    its two weight matrices.
    """
    weights = prod(call.shape("w_ih")) + prod(call.shape("w_hh"))
    return prod(call.shape("input")[:-1]) * weights


OPERATORS: dict[Formula, tuple[str, ...]] = {
    formula: CONTRACTIONS[operator]
    for operator, formula in (
        ("convolution", exact_convolution_macs),
        ("linear", exact_linear_macs),
        ("matmul", exact_matmul_macs),
        ("tensordot", exact_tensordot_macs),
        ("einsum", exact_einsum_macs),
        ("scaled_dot_product_attention", exact_attention_macs),
        ("recurrent", exact_recurrent_macs),
        ("recurrent_cell", exact_recurrent_cell_macs),
    )
}


_FORMULAS = {target: formula for formula, targets in OPERATORS.items() for target in targets}


def exact_operator_macs(call: Call, trace: Trace) -> int:
    """Return the exact MACs of a call of a PyTorch operator, or 0 if the operator sums no
    products.
    """
    formula = _FORMULAS.get(call.target) or _FORMULAS.get(f"{call.target.rpartition('.')[0]}.*")
    return int(formula(Site(call, trace))) if formula else 0
