"""What all attentions of onnxruntime have in common: scores, what is added to them, softmax."""

from typing import NamedTuple

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import given, integer, number, positive, shape, source
from crossflops.ops.activation import softmax_cost
from crossflops.ops.contrib.normalization import rms

# Of a cosine and a sine that are looked up, one pair of elements takes 4 muls and 2 adds.
PAIR = Cost(muls=4, adds=2)


class Scores(NamedTuple):
    """S scores in as many softmaxes as there are `rows`, queries of one head each.

    A score is a contraction of depth D, and meets Dv elements of a value.
    """

    size: int
    rows: int
    depth: int
    value_depth: int


def dense(rows: int, keys: int, depth: int, value_depth: int) -> Scores:
    """Every query meets every key: S = rows * keys."""
    return Scores(rows * keys, rows, depth, value_depth)


def scored(scores: Scores, added: int = 0, softcap: bool = False, sink: bool = False) -> Cost:
    """softmax(softcap(Q * K^T * scale) + added) * V: S * (D + Dv) MACs, S muls by the scale.

    `added` tensors (a mask, a bias) S adds each; softcap S (div, tanh, mul); a sink is one score
    more in each softmax that has no value: a compare, sub, exp and add per row.
    """
    count = scores.size
    cost = Cost(macs=scores.depth + scores.value_depth, muls=1, adds=added) * count
    if softcap:
        cost += Cost(divs=1, specials=1, muls=1) * count
    if sink:
        cost += Cost(compares=1, adds=2, specials=1) * scores.rows
    return cost + softmax_cost(count, scores.rows)


def rotated(node: Node, elements: int) -> Cost:
    """Rotary embedding of `elements` of queries and keys: half as many pairs."""
    return PAIR * (elements // 2) if integer(node, "do_rotary", 0) else ZERO


def head_size(width: int, heads: int, node: Node) -> int:
    """The depth of a head. Raises ValueError when `width` does not divide into the heads."""
    if heads <= 0 or width < 0 or width % heads:
        raise ValueError(f"{width} of {node.op} does not divide into {heads} heads")
    return width // heads


class Grouped(NamedTuple):
    """Tokens of `heads` query heads and `kv_heads` key heads, all of one depth."""

    tokens: int
    heads: int
    kv_heads: int
    depth: int

    @property
    def queries(self) -> int:
        """Elements of Q."""
        return self.tokens * self.heads * self.depth

    @property
    def new_keys(self) -> int:
        """Elements of the keys that come with the queries, and of the values."""
        return self.tokens * self.kv_heads * self.depth


def grouped(node: Node) -> Grouped:
    """The heads of a query [..., Hq*D], or of Q, K and V packed in it without input 1."""
    dims = shape(source(node, 0), at_least=2)
    heads, kv_heads = positive(node, "num_heads"), positive(node, "kv_num_heads")
    packed = heads if given(node, 1) else heads + 2 * kv_heads
    depth = head_size(dims[-1], packed, node)
    tokens = 1
    for size in dims[:-1]:
        tokens *= size
    return Grouped(tokens, heads, kv_heads, depth)


def prepared(node: Node, heads: Grouped, caches: int, norms: int) -> Cost:
    """What happens to Q and K before they meet: their RMS norms, and the rotation.

    `caches` is the input with the cosines, [M, R / 2] for R rotated elements of each head;
    `norms` the one with the weights of the query norm.
    """
    cost = ZERO
    if given(node, norms):
        count = heads.queries + heads.new_keys
        cost += rms(count, count // heads.depth if heads.depth else 0, scaled=True)
    if integer(node, "do_rotary", 0):
        half = heads.depth // 2
        if given(node, caches):
            half = shape(source(node, caches), rank=2)[1]
        cost += PAIR * (heads.tokens * (heads.heads + heads.kv_heads) * half)
    return cost


def capped(node: Node) -> bool:
    """Whether a softcap is asked for."""
    return number(node, "softcap", 0.0) != 0
