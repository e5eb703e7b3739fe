"""The cost of normalizations that onnxruntime fuses with the operators before and after them.

The mean and the variance are those of LayerNormalization, the root mean square that of
RMSNormalization: see crossflops/operators/normalization.py.
"""

from math import prod

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    has_input,
    has_output,
    input_element_count,
    input_spec,
    integer_attribute,
    positive_integer_attribute,
    spec_shape,
    string_attribute,
)
from crossflops.operators.gradient import FUSED
from crossflops.operators.normalization import (
    RMS,
    STANDARD,
    GroupSizes,
    rms_norm_cost,
    standardization_cost,
)
from crossflops.operators.operands import (
    equal_shapes_constraint,
    input_label,
    input_shape,
    input_shape_or_raise,
    rank_constraint,
    single_number_constraint,
    sizes_constraint,
)
from crossflops.operators.pointwise import ADD, MUL, SILU, SPECIAL
from crossflops.operators.rule import MICROSOFT, OperandProblem, Operators

operator = Operators(MICROSOFT, backward=FUSED)


def _last_axis_groups(node: Node, index: int = 0) -> GroupSizes:
    """Return the number of elements of an input, and the number of groups if each group is one
    last axis.
    """
    dims = spec_shape(input_spec(node, index), at_least=1)
    return GroupSizes(prod(dims), prod(dims[:-1]))


def _skip_shape_constraint(node: Node) -> OperandProblem:
    """Return why the skip input does not have the input's last two sizes; "" if nothing
    is wrong.
    """
    dims, skip = input_shape_or_raise(node, 0), input_shape_or_raise(node, 1)
    if len(skip) in (2, len(dims)) and skip[-2:] == dims[-2:]:
        return ""
    return f"{input_label(node, 1)} does not end as {input_label(node, 0)}"


@operator(
    "SkipLayerNormalization",
    f"skip, bias: n adds each; {STANDARD}; gamma: n muls; beta: n adds; m = n/H",
    requires=(
        rank_constraint(0, (2, 3)),
        sizes_constraint("input[...,H] skip[...,H] gamma[H] beta[H] bias[H]"),
        _skip_shape_constraint,
    ),
)
def skip_layer_normalization_cost(node: Node) -> Cost:
    """Return the cost of SkipLayerNormalization: LayerNormalization of input + skip + bias over
    the last axis.

    n adds for skip, n for bias (input 4); standardization; gamma n muls, beta (3) n adds.
    """
    count, groups = _last_axis_groups(node)
    more = count * (1 + has_input(node, 3) + has_input(node, 4))
    return standardization_cost(count, groups) + Cost(muls=count, adds=more)


@operator(
    "SkipSimplifiedLayerNormalization",
    f"skip, bias: n adds each; {RMS}; m = n/H",
    requires=(
        rank_constraint(0, (2, 3)),
        sizes_constraint("input[...,H] skip[...,H] gamma[H] bias[H]"),
        _skip_shape_constraint,
    ),
)
def skip_simplified_normalization_cost(node: Node) -> Cost:
    """Return the cost of SkipSimplifiedLayerNormalization: RMSNormalization of input + skip + bias
    over the last axis.
    """
    count, groups = _last_axis_groups(node)
    return rms_norm_cost(count, groups, scaled=True) + Cost(adds=count * (1 + has_input(node, 3)))


def _embedding_norm_cost(node: Node, segments: int, mask: int) -> Cost:
    """Return the cost of summing two or three embeddings [B, S, H] and normalizing the sum;
    `segments` and `mask` are input indices.
    """
    tokens = input_element_count(node, 0)
    width = spec_shape(input_spec(node, 2), rank=2)[1]
    count = tokens * width
    summed = Cost(adds=count * (2 if has_input(node, segments) else 1))
    masked = Cost(adds=input_element_count(node, mask)) if has_output(node, 1) else ZERO
    return summed + masked + standardization_cost(count, tokens) + Cost(muls=1, adds=1) * count


@operator(
    "EmbedLayerNormalization",
    f"2n adds; {STANDARD}; gamma: n muls; beta: n adds; mask_index: n(mask) adds",
    operand=2,
    tables=(2, 3, 4),
    requires=sizes_constraint(
        "input_ids[B,S] segment_ids[B,S] word[_,H] position[_,H] segment[_,H] gamma[H] beta[H] "
        "mask[B,S] position_ids[1|B,S]"
    ),
)
def embed_layer_normalization_cost(node: Node) -> Cost:
    """Return the cost of EmbedLayerNormalization: LayerNormalization of word + position + segment
    embeddings.

    2 n adds (1 n without segments), standardization over H, gamma n muls, beta n adds; the
    mask_index of a mask n(mask) adds. Only the rows that are looked up are read.
    """
    return _embedding_norm_cost(node, segments=4, mask=7)


@operator(
    "QEmbedLayerNormalization",
    f"dequantize: 3n+2H (mul, add); 2n adds; {STANDARD}; n muls, n adds; n(mask) adds",
    operand=8,
    tables=(2, 3, 4),
    requires=(
        sizes_constraint(
            "input_ids[B,S] segment_ids[B,S] word[_,H] position[_,H] segment[_,H] gamma[H] "
            "beta[H] mask[B,S]"
        ),
        single_number_constraint(*range(8, 18)),
    ),
)
def contrib_qembed_norm_cost(node: Node) -> Cost:
    """Return the cost of QEmbedLayerNormalization: as EmbedLayerNormalization, with the looked-up
    rows dequantized first.

    gamma and beta H (sub, mul) each.
    """
    width = spec_shape(input_spec(node, 2), rank=2)[1]
    looked_up = input_element_count(node, 0) * width * (3 if has_input(node, 4) else 2)
    return _embedding_norm_cost(node, 4, mask=7) + Cost(muls=1, adds=1) * (looked_up + 2 * width)


@operator(
    "GroupNorm",
    f"{STANDARD}; gamma: n muls; beta: n adds; m = N*groups; SiLU: n*(sigmoid, mul)",
    requires=sizes_constraint("X[N,_,_,_] gamma[C] beta[C]"),
)
def group_norm_cost(node: Node) -> Cost:
    """Return the cost of GroupNorm: each of N * groups groups normalized, then a mul and an add
    per element, and SiLU on request.

    activation 1: SiLU, n (sigmoid, mul). X [N, H, W, C], or [N, C, H, W] without channels_last.
    """
    dims = spec_shape(input_spec(node, 0), at_least=2)
    affine = Cost(muls=1, adds=1) + (SILU if integer_attribute(node, "activation", 0) else ZERO)
    return standardization_cost(
        prod(dims), dims[0] * positive_integer_attribute(node, "groups")
    ) + affine * prod(dims)


@operator(
    "SkipGroupNorm",
    f"skip, bias: n adds each; {STANDARD}; gamma: n muls; beta: n adds; m = N*groups; SiLU: "
    "n*(sigmoid, mul)",
    requires=sizes_constraint("X[N,_,_,_] gamma[C] beta[C] skip[N,...] bias[C]"),
)
def skip_group_norm_cost(node: Node) -> Cost:
    """Return the cost of SkipGroupNorm: GroupNorm of X + skip + bias."""
    return group_norm_cost(node) + Cost(
        adds=input_element_count(node, 0) * (1 + has_input(node, 4))
    )


def _scale_group_constraint(node: Node) -> OperandProblem:
    """Return why the last axis of X is not a multiple of the scale; "" if nothing is wrong."""
    dims, scale = input_shape(node, 0), input_shape(node, 1)
    count = None if scale is None else prod(scale)
    if not dims or not count or dims[-1] % count == 0:
        return ""
    return (
        f"{input_label(node, 0, 'X')} has {dims[-1]}, "
        f"which is not a multiple of {input_label(node, 1, 'scale')}"
    )


@operator(
    "GatedRMSNorm",
    f"{RMS}; m = n/n(scale); gate: n*(sigmoid, mul), silu: n muls more",
    requires=(equal_shapes_constraint(0, 2), _scale_group_constraint),
)
def contrib_gated_rms_cost(node: Node) -> Cost:
    """Return the cost of GatedRMSNorm: RMSNormalization of groups as long as the scale, times
    activation(gate).

    n sigmoids, n muls by X; silu n muls more.
    """
    count, width = input_element_count(node, 0), input_element_count(node, 1)
    groups = count // width if width else 0
    gate = SPECIAL if string_attribute(node, "activation", "silu") == "sigmoid" else SILU
    return rms_norm_cost(count, groups, scaled=True) + (gate + MUL) * count


def _branch_scale_constraint(node: Node) -> OperandProblem:
    """Return why X [..., C*H] and its scale do not fit C branches; "" if nothing is wrong."""
    dims, scale, count = (
        input_shape(node, 0),
        input_shape(node, 1),
        integer_attribute(node, "num_branches", 0),
    )
    if not dims or count <= 0:
        return ""
    if dims[-1] % count:
        return (
            f"{input_label(node, 0, 'X')} has {dims[-1]}, which is not a multiple of "
            f"num_branches = {count}"
        )
    width = dims[-1] // count
    if scale in (None, (width,), (count * width,), (count, width)):
        return ""
    return f"{input_label(node, 1, 'scale')} needs {width} numbers, or {count}x{width}"


@operator(
    "BranchwiseRMSNorm",
    f"{RMS}; m = n/H",
    requires=(rank_constraint(0, 1, or_higher=True), _branch_scale_constraint),
)
def branchwise_rms_norm_cost(node: Node) -> Cost:
    """Return the cost of BranchwiseRMSNorm: RMSNormalization of each branch of X [..., C, H] or
    [..., C * H].
    """
    count, groups = _last_axis_groups(node)
    branches = _branch_count(node) if integer_attribute(node, "num_branches", 0) else 1
    return rms_norm_cost(count, groups * branches, scaled=has_input(node, 1))


@operator(
    "EngramGate",
    f"n MACs, 2 or 3 times ({RMS}); m*(div, 4 compares, sqrt, mul, sigmoid), n muls",
    requires=sizes_constraint(
        "key[B,S,C,H] query[B,S,C,H] value[B,S,H] key_norm_scale[C,H] query_norm_scale[C,H] "
        "conv_norm_scale[C,H]"
    ),
)
def engram_gate_cost(node: Node) -> Cost:
    """Return the cost of EngramGate, value * sigmoid(sign(d) * sqrt(max(|d|, 1e-6))), with d a dot
    product of normalized rows.

    Key and query [..., M, H], m rows of n elements each: 2 RMSNormalizations, n MACs; per row a
    div by the root of H, 2 compares (sign), 1 (abs), 1 (max), sqrt, mul, sigmoid; n muls.
    gated_value_normed: one RMSNormalization more.
    """
    count, rows = _last_axis_groups(node)
    row = Cost(divs=1, compares=4, specials=2, muls=1)
    last = rms_norm_cost(count, rows, scaled=True) if has_output(node, 1) else ZERO
    both = rms_norm_cost(count, rows, scaled=True) * 2
    return both + Cost(macs=count) + row * rows + MUL * count + last


def _gate_shape_constraint(node: Node) -> OperandProblem:
    """Return why the gate does not have one number per H numbers of X; "" if nothing is wrong."""
    dims, gate = input_shape(node, 0), input_shape_or_raise(node, 2)
    if not dims or gate == (*dims[:-1], 1):
        return ""
    return (
        f"{input_label(node, 2, 'gate')} needs the sizes "
        f"of {input_label(node, 0, 'X')}, and 1 at the last"
    )


@operator(
    "GatedAdd", "n*(mul, add)", requires=(equal_shapes_constraint(0, 1), _gate_shape_constraint)
)
def contrib_gated_add_cost(node: Node) -> Cost:
    """Return the cost of GatedAdd, X + Y * gate: a mul and an add per element."""
    return (MUL + ADD) * input_element_count(node, 0)


@operator(
    "HyperConnectionPreMix",
    "n(X) MACs; reduction_scale: n(Y) muls",
    requires=rank_constraint(0, 2, or_higher=True),
)
def hyper_connection_pre_mix_cost(node: Node) -> Cost:
    """Return the cost of HyperConnectionPreMix: Y[h] = reduction_scale * sum over c of X[c, h] *
    pre_mix[c, h].

    n(X) MACs; reduction_scale != 1: n(Y) muls.
    """
    scaled = node.attrs.get("reduction_scale", 1.0) != 1
    out = input_spec(node, 0).numel // _branch_count(node)
    return Cost(macs=input_element_count(node, 0), muls=out if scaled else 0)


@operator(
    "HyperConnectionPostMix",
    "n*(mul, add); stream_mix: C*n MACs",
    requires=rank_constraint(0, 2, or_higher=True),
)
def hyper_connection_post_mix_cost(node: Node) -> Cost:
    """Return the cost of HyperConnectionPostMix: Y[k, h] = sum over c of mix[c, k] * X[c, h] +
    post[k, h] * block[h].

    C * n(X) MACs with a stream_mix, then n(X) (mul, add).
    """
    count = input_element_count(node, 0)
    mixed = count * _branch_count(node) if has_input(node, 3) else 0
    return Cost(macs=mixed) + (MUL + ADD) * count


def _branch_count(node: Node) -> int:
    """Return the number of branches C: the attribute num_branches, else the last but one size of
    the input [..., C, H].
    """
    count = (
        integer_attribute(node, "num_branches", 0)
        or spec_shape(input_spec(node, 0), at_least=2)[-2]
    )
    if count <= 0:
        raise ValueError(f"{node.op} has no branches")
    return count
