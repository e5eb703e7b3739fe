"""The cost of matrix products and Einstein sums."""

import re
from math import prod
from typing import TypeAlias

from crossflops.ir.graph import Node, TensorSpec
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    float_attribute,
    has_input,
    input_element_count,
    input_spec,
    integer_attribute,
    output_element_count,
    reduction_operation_count,
    spec_shape,
    string_attribute,
)
from crossflops.operators.gradient import (
    QUANTIZED,
    Gradient,
    OperandPositions,
    broadcast_sum_cost,
    no_gradient,
    product_backward,
)
from crossflops.operators.operands import (
    Shape,
    broadcast_to_constraint,
    inner_axis_constraint,
    input_label,
    input_shape,
    single_number_constraint,
)
from crossflops.operators.quantization import requantization_cost
from crossflops.operators.rule import (
    Constraint,
    Exactness,
    OperandProblem,
    Operators,
    constant_macs_unless_varying,
)

operator = Operators()


def equal_inner_size_constraint(node: Node, first: int = 0, second: int = 1) -> OperandProblem:
    """Return why the inner sizes K of two factors differ; "" if they are equal."""
    for index in (first, second):
        shape = input_shape(node, index)
        if shape is not None and len(shape) != 2:
            return f"{input_label(node, index)} has rank {len(shape)}, but needs 2"
    rows, columns = input_shape(node, first), input_shape(node, second)
    if rows is None or columns is None:
        return ""
    across, along = (
        integer_attribute(node, "transA", 0) == 0,
        integer_attribute(node, "transB", 0) != 0,
    )
    if rows[across] == columns[along]:
        return ""
    has = f"{input_label(node, second)} has {columns[along]} at axis {int(along)}"
    return f"{has}, but {rows[across]} is needed for {input_label(node, first)}"


def gemm_output_shape(node: Node, first: int = 0, second: int = 1) -> Shape | None:
    """Return (M, N) of the product A' B', with A or B transposed as transA and transB say; None if
    unknown.
    """
    rows, columns = input_shape(node, first), input_shape(node, second)
    if rows is None or columns is None or len(rows) != 2 or len(columns) != 2:
        return None
    m = rows[1] if integer_attribute(node, "transA", 0) else rows[0]
    return m, columns[0] if integer_attribute(node, "transB", 0) else columns[1]


def gemm_inner_size(node: Node) -> int:
    """Return the inner size K of Gemm: of A, or of its transpose if transA is set."""
    rows = spec_shape(input_spec(node, 0), rank=2)
    return rows[0] if integer_attribute(node, "transA", 0) else rows[1]


GEMM = (equal_inner_size_constraint, broadcast_to_constraint(2, gemm_output_shape, "the product"))


def _gemm_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradients of Gemm, for each requested operand.

    dA = alpha dY B'^T and dB = alpha A'^T dY: M*N*K MACs each; dC = beta sum(dY).

    alpha != 1: M*N muls, once. C: M*N - n(C) adds, and n(C) muls when beta != 1.
    """
    work = dict(product_backward(0, 1)(node, requested, forward).operands)
    if 2 in requested:
        weigh = input_element_count(node, 2) if float_attribute(node, "beta", 1.0) != 1 else 0
        work[2] = broadcast_sum_cost(node, 2) + Cost(muls=weigh)
    scaled = float_attribute(node, "alpha", 1.0) != 1 and not requested.isdisjoint((0, 1))
    return Gradient(work, inner=Cost(muls=output_element_count(node) if scaled else 0))


@operator(
    "Gemm",
    "M*N*K MACs; alpha != 1: M*N muls; C: M*N adds; beta != 1: n(C) muls",
    requires=GEMM,
    constant_part=constant_macs_unless_varying(0, 1),
    backward=_gemm_backward,
)
def onnx_gemm_cost(node: Node) -> Cost:
    """Return the cost of Gemm, alpha * A' * B' + beta * C: M*N*K MACs, and muls and adds for
    alpha, beta and C.

    A' [M, K] is A or its transpose (transA), B' [K, N], C broadcasts to Y [M, N].
    alpha != 1: M*N muls. C: M*N adds, and n(C) muls when beta != 1.
    https://onnx.ai/onnx/operators/onnx__Gemm.html
    """
    inner, out = gemm_inner_size(node), output_element_count(node)
    scale = out if float_attribute(node, "alpha", 1.0) != 1 else 0
    if not has_input(node, 2):
        return Cost(macs=out * inner, muls=scale)
    weigh = input_element_count(node, 2) if float_attribute(node, "beta", 1.0) != 1 else 0
    return Cost(macs=out * inner, muls=scale + weigh, adds=out)


MATMUL = inner_axis_constraint(0, 1)


@operator("MatMul", "n(Y)*K MACs", requires=MATMUL, backward=product_backward(0, 1))
def onnx_matmul_cost(node: Node) -> Cost:
    """Return the cost of MatMul, as numpy.matmul: K MACs per element of the result, with K the
    last size of A.

    A [..., M, K], B [..., K, N], Y [..., M, N]; a 1-D operand is a row or a column whose
    dimension leaves the result again.
    https://onnx.ai/onnx/operators/onnx__MatMul.html
    """
    return Cost(macs=output_element_count(node) * spec_shape(input_spec(node, 0), at_least=1)[-1])


def column_scale_constraint(weight: int, *digits: int) -> Constraint:
    """Return a constraint on scales or zero points of the weight [..., K, N]: one number, or one
    for each column.

    In onnxruntime's own operators N numbers belong to one matrix. A vector is one column.
    """

    def column_scale_problem(node: Node) -> OperandProblem:
        """Return which scale has neither one number nor one for each column of the weight; "" if
        nothing is wrong.
        """
        dims = input_shape(node, weight)
        for index in digits:
            scale = input_shape(node, index)
            if dims is None or scale is None or scale in ((), (1,)):
                continue
            if scale == dims[-1:] and len(dims) > 1 and not (node.op.domain and len(dims) > 2):
                continue
            if node.op.domain and set(scale) == {1}:
                continue
            if len(dims) < 2 or scale != (*dims[:-2], 1, dims[-1]):
                return f"{input_label(node, index)} needs to be one number, or one for each column"
        return ""

    return column_scale_problem


def row_scale_constraint(data: int, *digits: int) -> Constraint:
    """Return a constraint on scales or zero points of the data [..., M, K]: one number, or one for
    each row.
    """

    def row_scale_problem(node: Node) -> OperandProblem:
        """Return which scale has neither one number nor one for each row of the data; "" if
        nothing is wrong.
        """
        dims = input_shape(node, data)
        for index in digits:
            scale = input_shape(node, index)
            if dims is None or scale is None or scale in ((), (1,)):
                continue
            if len(dims) < 2 or scale not in (dims[-2:-1], (*dims[:-1], 1)):
                return f"{input_label(node, index)} needs to be one number, or one for each row"
        return ""

    return row_scale_problem


@operator(
    "MatMulInteger",
    "n(Y)*K MACs; zero points: n(A)+n(B) adds",
    since=10,
    requires=(MATMUL, row_scale_constraint(0, 2), column_scale_constraint(1, 3)),
    backward=no_gradient,
)
def matmul_integer_cost(node: Node) -> Cost:
    """Return the cost of MatMulInteger: as MatMul, with an add per element of A and of B for each
    zero point.

    https://onnx.ai/onnx/operators/onnx__MatMulInteger.html
    """
    shifted = sum(input_element_count(node, i) for i in (0, 1) if has_input(node, i + 2))
    return onnx_matmul_cost(node) + Cost(adds=shifted)


@operator(
    "QLinearMatMul",
    "n(y)*K MACs; zero points: n(a)+n(b) adds; requantize: n(y)*(mul, round, add, 2 compares)",
    since=10,
    requires=(
        inner_axis_constraint(0, 3),
        row_scale_constraint(0, 1, 2),
        column_scale_constraint(3, 4, 5),
        single_number_constraint(6, 7),
    ),
    contracts=(0, 3),
    backward=QUANTIZED,
)
def qlinear_matmul_cost(node: Node) -> Cost:
    """Return the cost of QLinearMatMul: as MatMul, with an add per element for each zero point,
    and requantized results.

    Then each output is requantized: one mul by the combined scale, round, add, two compares.
    https://onnx.ai/onnx/operators/onnx__QLinearMatMul.html
    """
    shifted = Cost(adds=input_element_count(node, 0) + input_element_count(node, 3))
    return onnx_matmul_cost(node) + shifted + requantization_cost(output_element_count(node))


# Einstein sums: any product of tensors that a line of labels can say.


LabelSizes: TypeAlias = dict[str, int]

_TERM = r"[A-Za-z]*(\.\.\.)?[A-Za-z]*"


def einsum_exactness(node: Node) -> Exactness:
    """Return "estimate" if Einsum has more than two operands, since crossflops chooses the order
    of the pairs; else "exact".
    """
    return "estimate" if len(node.inputs) > 2 else "exact"


def einsum_labels_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the operands of Einsum, or "" if nothing is: a label has one size
    (or 1), an operand one label per axis.
    """
    words = "".join(string_attribute(node, "equation").split()).partition("->")[0].split(",")
    if len(words) != len(node.inputs):
        return f"the equation has {len(words)} terms, but the node has {len(node.inputs)} operands"
    sizes: dict[str, tuple[int, int]] = {}
    for index, word in enumerate(words):
        dims = input_shape(node, index)
        if dims is None:
            continue
        try:
            row = _einsum_operand_labels(word, len(dims))
        except ValueError:
            return f"{input_label(node, index)} has rank {len(dims)}, but its labels are {word!r}"
        for letter, extent in zip(row, dims, strict=True):
            first = dims[row.index(letter)]
            if extent != first:
                return f"{input_label(node, index)} has {first} and {extent} for {letter!r}"
            known, owner = sizes.get(letter, (1, index))
            if 1 not in (extent, known) and extent != known:
                has = f"{input_label(node, index)} has {extent} for {letter!r}"
                return f"{has}, but {input_label(node, owner)} has {known}"
            if known == 1:
                sizes[letter] = (extent, index)
    return ""


def einsum_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradients of Einsum, for each requested operand, pair by pair.

    The gradient of each requested side of a pair C = A B is the product of dC and the other side,
    over the same labels: prod(labels) MACs where the pair sums a label, as of any contraction;
    otherwise as many muls, and the adds that sum repeated elements. A label of one operand that
    was summed alone is copied back: 0.
    """
    terms, out = parse_einsum(
        string_attribute(node, "equation"), [spec_shape(s) for s in _einsum_operands(node)]
    )
    work: dict[int, Cost] = dict.fromkeys(requested, ZERO)
    inner, left = ZERO, terms[0]
    for index, right in enumerate(terms[1:], start=1):
        needed = set(out).union(*terms[index + 1 :])
        _, first, second = _reduce_einsum_pair(left, right, needed)
        forward, result = _contract_einsum_pair(left, right, needed)
        if index in requested:
            work[index] = _einsum_factor_gradient_cost(second, first, forward)
        if index == 1 and 0 in requested:
            work[0] = _einsum_factor_gradient_cost(first, second, forward)
        if index > 1 and any(before in requested for before in range(index)):
            inner += _einsum_factor_gradient_cost(first, second, forward)
        left = result
    return Gradient(work, inner=inner)


def _einsum_factor_gradient_cost(side: LabelSizes, other: LabelSizes, forward: Cost) -> Cost:
    """Return the cost of the gradient of one factor (`side`) of a pair of Einsum terms."""
    work = prod(_merge_einsum_labels([side, other]).values())
    if forward.macs:
        return Cost(macs=work)
    return Cost(muls=work, adds=reduction_operation_count(work, prod(side.values())))


@operator(
    "Einsum",
    "prod(all labels) MACs if a shared label of more than 1 is summed, else as many muls; a label "
    "of one operand alone: n(in)-n(out) adds first; operands left to right",
    since=12,
    doubt=einsum_exactness,
    requires=einsum_labels_constraint,
    contracts=None,
    backward=einsum_backward,
)
def onnx_einsum_cost(node: Node) -> Cost:
    """Return the cost of Einsum: for each pair of operands the product of all label sizes, as MACs
    if it sums a label, else as muls.

    Where none is, or only such of size 1, that many muls, as PyTorch multiplies then. A label of
    one operand alone that is not kept is summed first, n(in) - n(out) adds, and so is one of which
    the other operand has a size of 1; a repeated label takes the diagonal, free. More operands go
    left to right in pairs, each pair keeping the labels that are still needed.
    https://onnx.ai/onnx/operators/onnx__Einsum.html
    """
    terms, out = parse_einsum(
        string_attribute(node, "equation"), [spec_shape(s) for s in _einsum_operands(node)]
    )
    total, left = Cost(), terms[0]
    if len(terms) == 1:
        return _sum_einsum_term(left, set(out))[0]
    for position, right in enumerate(terms[1:], start=2):
        needed = set(out).union(*terms[position:])
        cost, left = _contract_einsum_pair(left, right, needed)
        total += cost
    return total


def _einsum_operands(node: Node) -> list[TensorSpec]:
    """Return the input tensors of an Einsum. Raises ValueError if one is not given."""
    return [input_spec(node, index) for index in range(len(node.inputs))]


def _contract_einsum_pair(
    left: LabelSizes, right: LabelSizes, needed: set[str]
) -> tuple[Cost, LabelSizes]:
    """Return the cost of multiplying two Einsum terms, and the resulting term: the sizes of the
    labels that are needed later.
    """
    before, left, right = _reduce_einsum_pair(left, right, needed)
    both = _merge_einsum_labels([left, right])
    kept = {label: dim for label, dim in both.items() if label in needed}
    work = prod(both.values())
    product = Cost(muls=work) if len(kept) == len(both) else Cost(macs=work)
    return before + product, kept


def _reduce_einsum_pair(
    left: LabelSizes, right: LabelSizes, needed: set[str]
) -> tuple[Cost, LabelSizes, LabelSizes]:
    """Return the cost of summing each term over labels that only it has and that are not needed,
    and both reduced terms.

    A size of 1 needs no sum: the other operand sums the label alone, if at all.
    """
    first, short = _sum_einsum_term(left, needed | _labels_larger_than_one(right))
    second, other = _sum_einsum_term(right, needed | _labels_larger_than_one(left))
    return first + second, short, other


def _labels_larger_than_one(term: LabelSizes) -> set[str]:
    """Return the labels of an Einsum term whose size is not 1."""
    return {label for label, dim in term.items() if dim != 1}


def _sum_einsum_term(term: LabelSizes, needed: set[str]) -> tuple[Cost, LabelSizes]:
    """Return the cost of summing a term over its labels that are not needed, and the
    reduced term.
    """
    kept = {label: dim for label, dim in term.items() if label in needed}
    return Cost(adds=reduction_operation_count(prod(term.values()), prod(kept.values()))), kept


def _merge_einsum_labels(terms: list[LabelSizes]) -> LabelSizes:
    """Return the size of each label in these terms. Raises ValueError if two terms disagree."""
    merged: LabelSizes = {}
    for term in terms:
        for letter, dim in term.items():
            known = merged.get(letter, 1)
            if known != dim and 1 not in (known, dim):
                raise ValueError(f"label {letter!r} of Einsum has the sizes {known} and {dim}")
            merged[letter] = dim if known == 1 else known
    return merged


def parse_einsum(
    equation: str, shapes: list[tuple[int, ...]]
) -> tuple[list[LabelSizes], tuple[str, ...]]:
    """Return the terms of an Einsum equation (the size of each label, per operand) and the labels
    of its output.

    A dimension under an ellipsis gets a label of its own, numbered from the right, since operands
    broadcast there as in numpy. Without "->" the output is the ellipsis and then, in alphabetical
    order, every label that occurs once. Raises ValueError on a bad equation.
    """
    left, arrow, right = "".join(equation.split()).partition("->")
    words = left.split(",")
    if len(words) != len(shapes) or not all(re.fullmatch(_TERM, w) for w in [*words, right]):
        raise ValueError(f"the equation {equation!r} does not fit {len(shapes)} operands")
    rows = [
        _einsum_operand_labels(word, len(dims)) for word, dims in zip(words, shapes, strict=True)
    ]
    terms = [
        _merge_einsum_labels([{label: dim} for label, dim in zip(row, dims, strict=True)])
        for row, dims in zip(rows, shapes, strict=True)
    ]
    sizes = _merge_einsum_labels(terms)
    hidden = sorted(
        (label for label in sizes if label.startswith("~")), key=_ellipsis_label_sort_key
    )
    if arrow:
        return terms, tuple(_einsum_output_labels(right, hidden))
    once = [label for label in sizes if sum(row.count(label) for row in rows) == 1]
    return terms, (*hidden, *sorted(label for label in once if not label.startswith("~")))


def _ellipsis_label_sort_key(label: str) -> int:
    """Return the sort key of a label for an axis under an ellipsis: axes further left
    come first.
    """
    return -int(label[1:])


def _einsum_output_labels(word: str, hidden: list[str]) -> list[str]:
    """Return the labels of the output in the order of its axes, with those under the ellipsis."""
    before, dots, after = word.partition("...")
    return [*before, *(hidden if dots else []), *after]


def _einsum_operand_labels(word: str, rank: int) -> list[str]:
    """Return one label for each axis of an operand. Raises ValueError if their numbers differ."""
    before, dots, after = word.partition("...")
    covered = rank - len(before) - len(after)
    if covered < 0 or (covered and not dots):
        raise ValueError(f"{word!r} does not label {rank} dimensions")
    return [*before, *(f"~{i}" for i in range(covered - 1, -1, -1)), *after]
