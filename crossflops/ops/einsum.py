"""Einstein sums: any product of tensors that a line of labels can say."""

import re
from math import prod
from typing import TypeAlias

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.core.tensor import TensorSpec
from crossflops.ops.access import folded, shape, source, text
from crossflops.ops.operands import dims_of
from crossflops.ops.operands import label as operand
from crossflops.ops.rule import Entry, Exactness, entry

Labelled: TypeAlias = dict[str, int]

_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


def einsum(node: Node) -> Cost:
    """Einsum: two operands cost prod(dims of all labels) MACs where a shared label is summed.

    Where none is, that many muls. A label of one operand alone that is not kept is summed
    first, n(in) - n(out) adds; a repeated label takes the diagonal, free. More operands go left
    to right in pairs, each pair keeping the labels that are still needed.
    https://onnx.ai/onnx/operators/onnx__Einsum.html
    """
    terms, out = parse(text(node, "equation"), [shape(s) for s in _operands(node)])
    total, left = Cost(), terms[0]
    if len(terms) == 1:
        return _summed(left, set(out))[0]
    for position, right in enumerate(terms[1:], start=2):
        needed = set(out).union(*terms[position:])
        cost, left = _pair(left, right, needed)
        total += cost
    return total


def _operands(node: Node) -> list[TensorSpec]:
    return [source(node, index) for index in range(len(node.inputs))]


def _pair(left: Labelled, right: Labelled, needed: set[str]) -> tuple[Cost, Labelled]:
    first, left = _summed(left, needed | set(right))
    second, right = _summed(right, needed | set(left))
    both = _merged([left, right])
    kept = {label: dim for label, dim in both.items() if label in needed}
    work = prod(both.values())
    product = Cost(muls=work) if len(kept) == len(both) else Cost(macs=work)
    return first + second + product, kept


def _summed(term: Labelled, needed: set[str]) -> tuple[Cost, Labelled]:
    kept = {label: dim for label, dim in term.items() if label in needed}
    return Cost(adds=folded(prod(term.values()), prod(kept.values()))), kept


def _merged(terms: list[Labelled]) -> Labelled:
    found: Labelled = {}
    for term in terms:
        for label, dim in term.items():
            known = found.get(label, 1)
            if known != dim and 1 not in (known, dim):
                raise ValueError(f"label {label!r} of Einsum stands for {known} and for {dim}")
            found[label] = dim if known == 1 else known
    return found


def parse(equation: str, shapes: list[tuple[int, ...]]) -> tuple[list[Labelled], tuple[str, ...]]:
    """The labels and dimensions of each operand, and the labels of the output.

    A dimension under an ellipsis gets a label of its own, numbered from the right, since
    operands broadcast there as in numpy. Without "->" the output is the ellipsis and then, in
    alphabetical order, every label that occurs once. Raises ValueError on a bad equation.
    """
    left, arrow, right = "".join(equation.split()).partition("->")
    words = left.split(",")
    if len(words) != len(shapes) or not all(_TERM.fullmatch(w) for w in [*words, right]):
        raise ValueError(f"the equation {equation!r} does not fit {len(shapes)} operands")
    rows = [_labels(word, len(dims)) for word, dims in zip(words, shapes, strict=True)]
    terms = [
        _merged([{label: dim} for label, dim in zip(row, dims, strict=True)])
        for row, dims in zip(rows, shapes, strict=True)
    ]
    sizes = _merged(terms)
    hidden = sorted((label for label in sizes if label.startswith("~")), key=_from_right)
    if arrow:
        return terms, tuple(_output(right, hidden))
    once = [label for label in sizes if sum(row.count(label) for row in rows) == 1]
    return terms, (*hidden, *sorted(label for label in once if not label.startswith("~")))


def _labels(word: str, rank: int) -> list[str]:
    before, dots, after = word.partition("...")
    covered = rank - len(before) - len(after)
    if covered < 0 or (covered and not dots):
        raise ValueError(f"{word!r} does not label {rank} dimensions")
    return [*before, *(f"~{i}" for i in range(covered - 1, -1, -1)), *after]


def _output(word: str, hidden: list[str]) -> list[str]:
    before, dots, after = word.partition("...")
    return [*before, *(hidden if dots else []), *after]


def _from_right(label: str) -> int:
    return -int(label[1:])


def order_is_chosen(node: Node) -> Exactness:
    """With more than two operands the order of the pairs is ours: an estimate."""
    return "estimate" if len(node.inputs) > 2 else "exact"


def labels_agree(node: Node) -> str:
    """A label stands for one size, or 1; and every operand has as many axes as it has labels."""
    words = "".join(text(node, "equation").split()).partition("->")[0].split(",")
    if len(words) != len(node.inputs):
        return f"the equation has {len(words)} terms for {len(node.inputs)} operands"
    found: dict[str, tuple[int, int]] = {}
    for index, word in enumerate(words):
        dims = dims_of(node, index)
        if dims is None:
            continue
        try:
            row = _labels(word, len(dims))
        except ValueError:
            return f"{operand(node, index)} has rank {len(dims)}, and its labels are {word!r}"
        for letter, size in zip(row, dims, strict=True):
            first = dims[row.index(letter)]
            if size != first:
                return f"{operand(node, index)} has {first} and {size} for {letter!r}"
            known, owner = found.get(letter, (1, index))
            if 1 not in (size, known) and size != known:
                has = f"{operand(node, index)} has {size} for {letter!r}"
                return f"{has}, and {operand(node, owner)} has {known}"
            if known == 1:
                found[letter] = (size, index)
    return ""


ENTRIES: tuple[Entry, ...] = (
    entry(
        "Einsum",
        einsum,
        "prod(all labels) MACs if a shared label is summed, else as many muls; a label of one "
        "operand alone: n(in)-n(out) adds first; operands left to right",
        since=12,
        doubt=order_is_chosen,
        requires=labels_agree,
    ),
)
