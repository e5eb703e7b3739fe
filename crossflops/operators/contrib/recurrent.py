"""The cost of onnxruntime's recurrences: an LSTM with quantized weights, linear attention,
convolutions with a state.
"""

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

import msgspec

from crossflops.ir.graph import Node, TensorSpec
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators import attention
from crossflops.operators.access import (
    has_input,
    input_element_count,
    input_spec,
    integer_attribute,
    output_element_count,
    positive_integer_attribute,
    reduction_operation_count,
    spec_shape,
    string_attribute,
)
from crossflops.operators.attention import linear_attention_recurrence_cost
from crossflops.operators.gradient import FUSED
from crossflops.operators.operands import (
    Shape,
    equal_shapes_constraint,
    input_label,
    input_shape,
    input_shape_or_raise,
    shape_constraint,
    sizes_constraint,
)
from crossflops.operators.pointwise import ADD, MUL, SILU, SOFTPLUS, SPECIAL
from crossflops.operators.quantization import dynamic_quantize_linear_cost
from crossflops.operators.recurrent import onnx_lstm_cost, recurrent_dimensions
from crossflops.operators.rule import MICROSOFT, OperandProblem, Operators, input_bound_exactness

operator = Operators(MICROSOFT, backward=FUSED)


def _transpose_gate_weight(spec: TensorSpec) -> TensorSpec:
    """Return a weight [D, I, G] as a tensor [D, G, I]."""
    directions, rows, columns = spec_shape(spec, rank=3)
    return msgspec.structs.replace(spec, shape=(directions, columns, rows))


@operator(
    "DynamicQuantizeLSTM",
    "as LSTM of ai.onnx; DynamicQuantizeLinear of X and, in each step, of H; D*T*B*4H*2 muls",
    operand=1,
    doubt=input_bound_exactness(4),
    requires=sizes_constraint(
        "H=@hidden_size X[T,B,I] W[D,I,4*H] R[D,H,4*H] B[D,8*H] sequence_lens[B] "
        "initial_h[D,B,H] initial_c[D,B,H] P[D,3*H]"
    ),
    contracts=(1,),  # its data is quantized to the eight bits of its weight
)
def dynamic_quantize_lstm_cost(node: Node) -> Cost:
    """Return the cost of DynamicQuantizeLSTM: an LSTM with weights in eight bits, and inputs and
    states quantized as it runs.

    As LSTM. X is quantized once and the state in every step, as by DynamicQuantizeLinear; both
    products are scaled, 2 muls per gate. Zero points are those of the products.
    """
    weights = (
        _transpose_gate_weight(input_spec(node, 1)),
        _transpose_gate_weight(input_spec(node, 2)),
    )
    plain = msgspec.structs.replace(
        node, inputs=(input_spec(node, 0), *weights, *node.inputs[3:8])
    )
    layer = recurrent_dimensions(plain, gates=4)
    steps = spec_shape(input_spec(node, 0), rank=3)[0] * layer.directions
    state = msgspec.structs.replace(
        input_spec(node, 0), shape=(layer.unit_update_count // (steps or 1),)
    )
    quantized = dynamic_quantize_linear_cost(msgspec.structs.replace(node, inputs=(state,)))
    scaled = MUL * (2 * 4 * layer.unit_update_count)
    return onnx_lstm_cost(plain) + dynamic_quantize_linear_cost(node) + quantized * steps + scaled


def _value_head_groups_constraint(node: Node) -> OperandProblem:
    """Return why the value heads are not a multiple of the key heads; "" if nothing is wrong."""
    query, key = input_shape_or_raise(node, 0), input_shape_or_raise(node, 1)
    heads, kv_heads = (
        positive_integer_attribute(node, "q_num_heads"),
        positive_integer_attribute(node, "kv_num_heads"),
    )
    depth = query[2] // heads
    if depth and key[2] and key[2] % depth == 0 and kv_heads % (key[2] // depth) == 0:
        return ""
    return (
        f"{input_label(node, 1, 'key')} has {key[2]}, and {kv_heads} states share heads of {depth}"
    )


def _past_state_shapes(node: Node) -> Iterable[Shape] | None:
    """Return the shape that past_state may have, [B, Hkv, dk, dv], after a state_window if there
    is one; None if unknown.
    """
    query, value, window = (
        input_shape(node, 0),
        input_shape(node, 2),
        integer_attribute(node, "state_window", 0),
    )
    if query is None or value is None:
        return None
    heads, kv_heads = (
        positive_integer_attribute(node, "q_num_heads"),
        positive_integer_attribute(node, "kv_num_heads"),
    )
    state = (query[0], kv_heads, query[2] // heads, value[2] // kv_heads)
    return [(window, *state) if window else state]


def _decay_shapes(node: Node) -> Iterable[Shape] | None:
    """Return the shapes that the decay may have: per token one number for each state, or for each
    row of a state; None if unknown.
    """
    query, kv_heads = input_shape(node, 0), positive_integer_attribute(node, "kv_num_heads")
    if query is None:
        return None
    depth = query[2] // positive_integer_attribute(node, "q_num_heads")
    return [(*query[:2], kv_heads), (*query[:2], kv_heads * depth)]


def _beta_shapes(node: Node) -> Iterable[Shape] | None:
    """Return the shapes that beta may have: per token one number for each state, or one for all;
    None if unknown.
    """
    query = input_shape(node, 0)
    if query is None:
        return None
    return [(*query[:2], positive_integer_attribute(node, "kv_num_heads")), (*query[:2], 1)]


_LINEAR = (
    "dk*dv*(Hkv+max(Hq, Hkv)) MACs; delta: + dk*dv*Hkv MACs, Hkv*dv*(add, mul); gated: n(decay) "
    "exps, dk*dv*Hkv muls; scale: max(Hq, Hkv)*dv muls; per token"
)


@operator(
    "LinearAttention",
    _LINEAR,
    requires=(
        sizes_constraint(
            "q=@q_num_heads k=@kv_num_heads query[B,T,q*D] key[B,T,_] value[B,T,k*E]"
        ),
        _value_head_groups_constraint,
        shape_constraint(3, _past_state_shapes, "past_state"),
        shape_constraint(4, _decay_shapes, "decay"),
        shape_constraint(5, _beta_shapes, "beta"),
    ),
)
def contrib_linear_attention_cost(node: Node) -> Cost:
    """Return the cost of onnxruntime's LinearAttention: as that of ONNX, also with more key heads
    than query heads.

    query [B, T, Hq*dk], key [B, T, Hkv*dk], value [B, T, Hkv*dv], output [B, T, max(Hq, Hkv)*dv].
    """
    return attention.onnx_linear_attention_cost(node, shared_queries=True)


@operator(
    "GatedDeltaNet",
    f"{_LINEAR}; qk_l2_norm: n muls, n-m adds, m sqrts, n divs; qwen: n(decay)*(2 adds, 2 "
    "specials, mul), Hv exps; beta: n(beta) sigmoids",
    requires=equal_shapes_constraint(0, 1),
)
def contrib_delta_net_cost(node: Node) -> Cost:
    """Return the cost of GatedDeltaNet: LinearAttention with a delta rule, and the normalization
    and gates that it computes.

    Packed into query [T, 2*Hk*dk + Hv*dv] the heads follow from initial_state [B, Hv, dv, dk].
    qk_l2_norm: 2 Hk normalizations per token (n muls, n - m adds, m sqrts, n divs);
    gate_activation qwen: n(decay) (2 adds, softplus, mul) and Hv exps; beta sigmoid n(beta).
    """
    tokens, key_heads, value_heads, depth, value_depth = _delta_net_sizes(node)
    cost = linear_attention_recurrence_cost(
        tokens=tokens,
        readers=max(key_heads, value_heads),
        kv_heads=value_heads,
        depth=depth,
        value_depth=value_depth,
        rule=string_attribute(node, "update_rule", "gated_delta"),
        decay=input_element_count(node, 4),
    )
    if integer_attribute(node, "qk_l2_norm", 0):
        rows = 2 * tokens * key_heads
        count = rows * depth
        cost += Cost(
            muls=count, adds=reduction_operation_count(count, rows), specials=rows, divs=count
        )
    if string_attribute(node, "gate_activation", "none") == "qwen":
        cost += (ADD + SOFTPLUS + MUL) * input_element_count(
            node, 4
        ) + SPECIAL * input_element_count(node, 7)
    if string_attribute(node, "beta_activation", "none") == "sigmoid":
        cost += SPECIAL * input_element_count(node, 5)
    return cost


class DeltaNetSizes(NamedTuple):
    """The sizes of a GatedDeltaNet: tokens of all sequences, heads, and sizes of a head."""

    tokens: int
    query_heads: int
    value_heads: int
    key_size: int
    value_size: int


def _delta_net_sizes(node: Node) -> DeltaNetSizes:
    """Return the sizes of a GatedDeltaNet, also from a packed query."""
    query = spec_shape(input_spec(node, 0), at_least=2)
    if has_input(node, 1):
        value = spec_shape(input_spec(node, 2), at_least=3)
        return DeltaNetSizes(prod(query[:-2]), query[-2], value[-2], query[-1], value[-1])
    _, value_heads, value_depth, depth = spec_shape(input_spec(node, 6), rank=4)
    keys = query[-1] - value_heads * value_depth
    if depth <= 0 or keys % (2 * depth):
        raise ValueError("the packed query of GatedDeltaNet does not divide into its heads")
    heads = keys // (2 * depth)
    return DeltaNetSizes(prod(query[:-1]), heads, value_heads, depth, value_depth)


def _gate_channel_constraint(node: Node) -> OperandProblem:
    """Return why dt_bias or decay_scale does not have a number for each element of the last axis
    of a; "" if nothing is wrong.
    """
    dims = input_shape(node, 0)
    for index in (1, 2):
        factors = input_shape(node, index)
        if dims and factors is not None and prod(factors) != dims[-1]:
            return (
                f"{input_label(node, index)} needs {dims[-1]} "
                f"numbers for {input_label(node, 0, 'a')}"
            )
    return ""


@operator(
    "LinearAttentionGate",
    "n(a)*(2 adds, exp, log, mul), n(b) sigmoids",
    requires=(_gate_channel_constraint, equal_shapes_constraint(0, 3)),
)
def linear_attention_gate_cost(node: Node) -> Cost:
    """Return the cost of LinearAttentionGate: decay_scale * softplus(a + dt_bias), and
    sigmoid(b).
    """
    return (ADD + SOFTPLUS + MUL) * input_element_count(node, 0) + SPECIAL * input_element_count(
        node, 3
    )


def _causal_conv_constraint(node: Node) -> OperandProblem:
    """Return why input, weight and state do not fit a causal convolution; "" if nothing is wrong.

    Checks input [B, C, d...] or channels last, weight [C, 1, k...], and the state that the window
    reaches back to.

    past_state [B, C, (k - 1) * dilation], behind a state_window where there is one.
    """
    dims, weight, dilation = (
        input_shape(node, 0),
        input_shape(node, 1),
        positive_integer_attribute(node, "dilation", 1),
    )
    indices = integer_attribute(node, "ndim", 1)
    for index, shape_ in ((0, dims), (1, weight)):
        if shape_ is not None and len(shape_) != indices + 2:
            return f"{input_label(node, index)} has rank {len(shape_)}, but needs {indices + 2}"
    if dims is None or weight is None:
        return ""
    channels = dims[-1] if integer_attribute(node, "channels_last", 0) else dims[1]
    if weight[:2] != (channels, 1):
        return f"{input_label(node, 1, 'weight')} needs one window for {channels} channels"
    if indices != 1:
        return ""
    window = integer_attribute(node, "state_window", 0)
    state = (dims[0], channels, (weight[2] - 1) * dilation)
    return shape_constraint(3, lambda _: [(window, *state) if window else state], "past_state")(
        node
    )


_CONV = "n(output)*prod(k) MACs; bias: n adds; activation: n*(sigmoid, mul)"


@operator(
    "CausalConvWithState",
    _CONV,
    requires=(sizes_constraint("input[B,...] weight[C,1,...] bias[C]"), _causal_conv_constraint),
)
def contrib_causal_conv_cost(node: Node, bias: int = 2) -> Cost:
    """Return the cost of onnxruntime's CausalConvWithState: prod(k) MACs per element of the
    result, with bias and SiLU.

    weight [C, 1, k...]: each channel has a window of its own, whichever dimension is last.
    """
    window = prod(spec_shape(input_spec(node, 1), at_least=3)[1:])
    gate = SILU if string_attribute(node, "activation", "none") != "none" else ZERO
    shift = ADD if has_input(node, bias) else ZERO
    return (Cost(macs=window) + shift + gate) * output_element_count(node)


@operator(
    "VarlenCausalConvWithState",
    _CONV,
    requires=sizes_constraint("input weight[C,1,...] lengths bias[C]"),
)
def varlen_causal_conv_cost(node: Node) -> Cost:
    """Return the cost of VarlenCausalConvWithState: as CausalConvWithState, on tokens of all
    sequences packed together.
    """
    return contrib_causal_conv_cost(node, bias=3)
