"""Recurrences: an LSTM with quantized weights, linear attention, convolutions with a state."""

from math import prod

import msgspec

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.core.tensor import TensorSpec
from crossflops.ops.access import folded, given, integer, out_size, shape, size, source, text
from crossflops.ops.attention import recurrence
from crossflops.ops.contrib.activation import SILU, SOFTPLUS
from crossflops.ops.operands import equal, sizes
from crossflops.ops.pointwise import ADD, MUL, SPECIAL
from crossflops.ops.quantization import dynamic_quantize_linear
from crossflops.ops.recurrent import dimensions, lstm
from crossflops.ops.rule import MICROSOFT, Entry, bound_by_input, entry


def _swapped(spec: TensorSpec) -> TensorSpec:
    """A weight [D, I, G] as [D, G, I]."""
    directions, rows, columns = shape(spec, rank=3)
    return msgspec.structs.replace(spec, shape=(directions, columns, rows))


def dynamic_quantize_lstm(node: Node) -> Cost:
    """DynamicQuantizeLSTM: LSTM with W [D, I, 4H], R [D, H, 4H] in eight bits.

    As LSTM. X is quantized once and the state in every step, as by DynamicQuantizeLinear; both
    products are scaled, 2 muls per gate. Zero points are those of the products.
    """
    weights = (_swapped(source(node, 1)), _swapped(source(node, 2)))
    plain = msgspec.structs.replace(node, inputs=(source(node, 0), *weights, *node.inputs[3:8]))
    layer = dimensions(plain, gates=4)
    steps = shape(source(node, 0), rank=3)[0] * layer.directions
    state = msgspec.structs.replace(source(node, 0), shape=(layer.unit_steps // (steps or 1),))
    each = dynamic_quantize_linear(msgspec.structs.replace(node, inputs=(state,)))
    scaled = MUL * (2 * 4 * layer.unit_steps)
    return lstm(plain) + dynamic_quantize_linear(node) + each * steps + scaled


def linear_attention(node: Node) -> Cost:
    """LinearAttention: as that of ai.onnx, also with more key heads than query heads.

    query [B, T, Hq*dk], key [B, T, Hkv*dk], value [B, T, Hkv*dv], output [B, T, max(Hq, Hkv)*dv].
    """
    batch, length, hidden = shape(source(node, 0), rank=3)
    heads, kv_heads = integer(node, "q_num_heads"), integer(node, "kv_num_heads")
    if heads <= 0 or kv_heads <= 0:
        raise ValueError("LinearAttention needs positive head counts")
    return recurrence(
        tokens=batch * length,
        readers=max(heads, kv_heads),
        kv_heads=kv_heads,
        depth=hidden // heads,
        value_depth=shape(source(node, 2), rank=3)[2] // kv_heads,
        rule=text(node, "update_rule", "gated_delta"),
        decay=size(node, 4),
    )


def gated_delta_net(node: Node) -> Cost:
    """GatedDeltaNet: as LinearAttention, on tokens [T, H, d] or [B, S, H, d]; keys as queries.

    Packed into query [T, 2*Hk*dk + Hv*dv] the heads follow from initial_state [B, Hv, dv, dk].
    qk_l2_norm: 2 Hk normalizations per token (n muls, n - m adds, m sqrts, n divs);
    gate_activation qwen: n(decay) (2 adds, softplus, mul) and Hv exps; beta sigmoid n(beta).
    """
    tokens, key_heads, value_heads, depth, value_depth = _delta_dimensions(node)
    cost = recurrence(
        tokens=tokens,
        readers=max(key_heads, value_heads),
        kv_heads=value_heads,
        depth=depth,
        value_depth=value_depth,
        rule=text(node, "update_rule", "gated_delta"),
        decay=size(node, 4),
    )
    if integer(node, "qk_l2_norm", 0):
        rows = 2 * tokens * key_heads
        count = rows * depth
        cost += Cost(muls=count, adds=folded(count, rows), specials=rows, divs=count)
    if text(node, "gate_activation", "none") == "qwen":
        cost += (ADD + SOFTPLUS + MUL) * size(node, 4) + SPECIAL * size(node, 7)
    if text(node, "beta_activation", "none") == "sigmoid":
        cost += SPECIAL * size(node, 5)
    return cost


def _delta_dimensions(node: Node) -> tuple[int, int, int, int, int]:
    query = shape(source(node, 0), at_least=2)
    if given(node, 1):
        value = shape(source(node, 2), at_least=3)
        return prod(query[:-2]), query[-2], value[-2], query[-1], value[-1]
    _, value_heads, value_depth, depth = shape(source(node, 6), rank=4)
    keys = query[-1] - value_heads * value_depth
    if depth <= 0 or keys % (2 * depth):
        raise ValueError("the packed query of GatedDeltaNet does not divide into its heads")
    return prod(query[:-1]), keys // (2 * depth), value_heads, depth, value_depth


def linear_attention_gate(node: Node) -> Cost:
    """LinearAttentionGate: decay = decay_scale * softplus(a + dt_bias), beta = sigmoid(b)."""
    return (ADD + SOFTPLUS + MUL) * size(node, 0) + SPECIAL * size(node, 3)


def causal_conv(node: Node, bias: int = 2) -> Cost:
    """CausalConvWithState: MACs = n(output) * prod(k); bias n adds; SiLU n (sigmoid, mul).

    weight [C, 1, k...]: each channel has a window of its own, whichever dimension is last.
    """
    window = prod(shape(source(node, 1), at_least=3)[1:])
    gate = SILU if text(node, "activation", "none") != "none" else ZERO
    shift = ADD if given(node, bias) else ZERO
    return (Cost(macs=window) + shift + gate) * out_size(node)


def varlen_causal_conv(node: Node) -> Cost:
    """VarlenCausalConvWithState: as CausalConvWithState on packed tokens; bias is input 3."""
    return causal_conv(node, bias=3)


_LINEAR = (
    "dk*dv*(Hkv+max(Hq, Hkv)) MACs; delta: + dk*dv*Hkv MACs, Hkv*dv*(add, mul); gated: n(decay) "
    "exps, dk*dv*Hkv muls; scale: max(Hq, Hkv)*dv muls; per token"
)
_CONV = "n(output)*prod(k) MACs; bias: n adds; activation: n*(sigmoid, mul)"

ENTRIES: tuple[Entry, ...] = (
    entry(
        "DynamicQuantizeLSTM",
        dynamic_quantize_lstm,
        "as LSTM of ai.onnx; DynamicQuantizeLinear of X and, in each step, of H; D*T*B*4H*2 muls",
        domain=MICROSOFT,
        operand=1,
        doubt=bound_by_input(4),
        requires=sizes(
            "H=@hidden_size X[T,B,I] W[D,I,4*H] R[D,H,4*H] B[D,8*H] sequence_lens[B] "
            "initial_h[D,B,H] initial_c[D,B,H] P[D,3*H]"
        ),
    ),
    entry(
        "LinearAttention",
        linear_attention,
        _LINEAR,
        domain=MICROSOFT,
        requires=sizes("q=@q_num_heads k=@kv_num_heads query[B,T,q*D] key[B,T,_] value[B,T,k*E]"),
    ),
    entry(
        "GatedDeltaNet",
        gated_delta_net,
        f"{_LINEAR}; qk_l2_norm: n muls, n-m adds, m sqrts, n divs; qwen: n(decay)*(2 adds, 2 "
        "specials, mul), Hv exps; beta: n(beta) sigmoids",
        domain=MICROSOFT,
        requires=equal(0, 1),
    ),
    entry(
        "LinearAttentionGate",
        linear_attention_gate,
        "n(a)*(2 adds, exp, log, mul), n(b) sigmoids",
        domain=MICROSOFT,
    ),
    entry(
        "CausalConvWithState",
        causal_conv,
        _CONV,
        domain=MICROSOFT,
        requires=sizes("input[B,...] weight[C,1,...] bias[C] past_state[B,...]"),
    ),
    entry(
        "VarlenCausalConvWithState",
        varlen_causal_conv,
        _CONV,
        domain=MICROSOFT,
        requires=sizes("input weight[C,1,...] lengths bias[C]"),
    ),
)
