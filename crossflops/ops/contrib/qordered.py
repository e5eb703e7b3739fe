"""The operators in the tile orders of one device's eight-bit products: QOrdered*.

They quantize without zero points: a factor, a rounding and two compares.
"""

import msgspec

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import given, integer, out_size, positive, shape, size, source
from crossflops.ops.contrib.activation import GELU
from crossflops.ops.contrib.scores import dense, head_size, scored
from crossflops.ops.matmul import matmul
from crossflops.ops.normalization import layer_normalization
from crossflops.ops.operands import inner, sizes
from crossflops.ops.pointwise import ADD, MUL
from crossflops.ops.rule import MICROSOFT, Entry, entry

_ROUND = Cost(muls=1, specials=1, compares=2)


def qordered_matmul(node: Node) -> Cost:
    """QOrderedMatMul: A 0, B 2, bias 5, C 6; MACs = n(Y)*K.

    bias n(Y) adds, C n(Y) (mul, add), then n(Y) (mul, round, 2 compares).
    """
    residual = (MUL + ADD) if given(node, 6) else ZERO
    bias = ADD if given(node, 5) else ZERO
    return matmul(node) + (residual + bias + _ROUND) * out_size(node)


def qordered_gelu(node: Node) -> Cost:
    """QOrderedGelu: Gelu between a factor and a quantization without zero points."""
    return (MUL + GELU + _ROUND) * out_size(node)


def qordered_layer_normalization(node: Node) -> Cost:
    """QOrderedLayerNormalization: LayerNormalization between; X 0, scale 2, B 3."""
    bias = Cost(adds=size(node, 0) if given(node, 3) else 0)
    plain = msgspec.structs.replace(node, inputs=node.inputs[:1])
    return layer_normalization(plain) + bias + (MUL + _ROUND) * out_size(node)


def qordered_attention(node: Node) -> Cost:
    """QOrderedAttention: as Attention; Q, K and V weights are inputs 5, 6, 7, biases 11, 12, 13.

    n(QKV), n(output) and twice S, before and after the softmax, (mul, round, 2 compares).
    """
    batch, length, width = shape(source(node, 0), rank=3)
    widths = [shape(source(node, i), rank=2)[1] for i in (5, 6, 7)]
    heads, tokens = positive(node, "num_heads"), batch * length
    past = shape(source(node, 18), at_least=4)[-2] if given(node, 18) else 0
    depths = [head_size(one, heads, node) for one in widths]
    scores = dense(heads * tokens, past + length, depths[0], depths[2])
    masked = given(node, 17) or integer(node, "unidirectional", 0) != 0
    projected = Cost(macs=width, adds=1) * (tokens * sum(widths))
    rounded = _ROUND * (tokens * (sum(widths) + widths[2]) + 2 * scores.size)
    return projected + rounded + scored(scores, masked + given(node, 19))


ENTRIES: tuple[Entry, ...] = (
    entry(
        "QOrderedMatMul",
        qordered_matmul,
        "n(Y)*K MACs; bias: n(Y) adds; C: n(Y)*(mul, add); n(Y)*(mul, round, 2 compares)",
        domain=MICROSOFT,
        requires=(inner(0, 2), sizes("A[...,K] scale_A B[...,K,N] scale_B scale_Y bias[N]")),
    ),
    entry(
        "QOrderedGelu",
        qordered_gelu,
        "n*(mul + div, erf, add, 2 muls + mul, round, 2 compares)",
        domain=MICROSOFT,
    ),
    entry(
        "QOrderedLayerNormalization",
        qordered_layer_normalization,
        "n muls, LayerNormalization, n*(mul, round, 2 compares)",
        domain=MICROSOFT,
        requires=sizes("X[...,H] scale_X scale[H] B[H]"),
    ),
    entry(
        "QOrderedAttention",
        qordered_attention,
        "B*S*in*(Hq+Hk+Hv) + S*(D+Dv) MACs, S = B*N*S*T; biases: n(QKV) adds; as Attention; "
        "(n(QKV) + n(output) + 2S)*(mul, round, 2 compares)",
        domain=MICROSOFT,
        requires=sizes(
            "input[B,S,I] s s s s q[I,Q] k[I,K] v[I,V] s s s q_bias[Q] k_bias[K] v_bias[V]"
        ),
    ),
)
