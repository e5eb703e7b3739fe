"""The operators of PyTorch that contract, and the MACs that each family of them does.

They take what an undecomposed operator was given, by the names of its schema.
"""

from math import isqrt, prod

from crossflops.rules.conditions import Site
from crossflops.rules.rule import Formula
from crossflops.tools.einsum import einsum_pairs
from crossflops.tools.layers import CONTRACTIONS


def convolution(call: Site) -> int:
    """N x S x prod(W), S the output positions, or the input positions when transposed.

    W is [Co, Ci/g, k...], transposed [Ci, Co/g, k...], so groups are in it. An unbatched input
    has one axis less, and N = 1.
    """
    weight, source = call.shape("weight"), call.shape("input", "self")
    transposed = "transpose" in call.target or call.settings.get("transposed") is True
    shape = source if transposed else call.result.shape or ()
    batch = source[0] if len(source) == len(weight) else 1
    return batch * prod(shape[len(shape) - len(weight) + 2 :]) * prod(weight)


def linear(call: Site) -> int:
    """rows x in x out: n(x) x out, W is [out, in]."""
    weight = call.shape("weight")
    return prod(call.shape("input")) * (weight[0] if len(weight) == 2 else 1)


def matmul(call: Site) -> int:
    """n(Y) x K, by the rules of numpy.matmul; K is the last axis of the first operand."""
    return call.result.numel * call.shape("mat1", "batch1", "self")[-1]


def tensordot(call: Site) -> int:
    """n(Y) x K, K the product of the contracted axes: n(A) n(B) = n(Y) K^2."""
    first, second = (spec.numel for spec in call.inputs[:2])
    outputs = call.result.numel
    return outputs * isqrt(first * second // outputs) if outputs else 0


def einsum(call: Site) -> int:
    """Pairwise from left to right: the product of the extents of all labels of a pair that sums.

    Labels that only one operand has and nothing needs any more are summed first; a pair that
    sums over nothing multiplies, which is no contraction.
    """
    shapes = [spec.shape or () for spec in call.inputs]
    pairs, extents = einsum_pairs(str(call.settings["equation"]), shapes)
    return sum(
        prod(extents[label] for label in pair) for pair, kept in pairs if len(kept) < len(pair)
    )


def scaled_dot_product_attention(call: Site) -> int:
    """B x H x Sq x Sk x (D + Dv): the score and the value products, causal or not."""
    query, key, value = (call.shape(name) for name in ("query", "key", "value"))
    return prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def recurrent(call: Site) -> int:
    """T x B x the elements of all weight matrices (every layer, direction and projection)."""
    weights = (spec for spec in call.inputs if spec.name.startswith("params"))
    matrices = sum(spec.numel for spec in weights if len(spec.shape or ()) == 2)
    return prod(call.shape("input")[:-1]) * matrices


def recurrent_cell(call: Site) -> int:
    """B x (n(w_ih) + n(w_hh))."""
    weights = prod(call.shape("w_ih")) + prod(call.shape("w_hh"))
    return prod(call.shape("input")[:-1]) * weights


OPERATORS: dict[Formula, tuple[str, ...]] = {
    formula: CONTRACTIONS[formula.__name__]
    for formula in (
        convolution,
        linear,
        matmul,
        tensordot,
        einsum,
        scaled_dot_product_attention,
        recurrent,
        recurrent_cell,
    )
}
