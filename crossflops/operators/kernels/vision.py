"""The cost of sampling at places that are data: torchvision's C++ operators, deformable attention,
DCN.

A bilinear sample sums the elements at four corners by their weights. Samples beyond the edge are
zero, and are counted: how many there are is data, so each formula is an upper bound. Which element
is read, an index, is no work.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.formula import OperatorCall, operator
from crossflops.operators.gradient import Gradient
from crossflops.operators.kernels.steps import (
    KernelSteps,
    KernelTensor,
    Shape,
    call_argument,
    register_kernel,
)

_VISION = "https://github.com/pytorch/vision/blob/main/torchvision/csrc/ops/cpu/"
_ATTENTION = "https://github.com/fundamentalvision/Deformable-DETR/tree/main/models/ops"
_DCN = "https://github.com/OpenGVLab/InternImage/tree/master/classification/ops_dcnv3"


def record_bilinear_samples(
    steps: KernelSteps,
    field: KernelTensor,
    rows: KernelTensor,
    columns: KernelTensor,
    positions: Shape,
    result: Shape,
) -> KernelTensor:
    """Record the steps of bilinear samples of a field at these rows and columns, and return them
    in the shape `result`.

    Of a coordinate: floor, and its distances from both sides, 2 subs. Of a place: 4 muls for its
    weights. Of a sample: 4 muls and 3 adds. A gradient of the field is added at each corner, one
    of a weight is summed over what is sampled at its place.
    """
    near, far = zip(
        *(_record_fraction_distances(steps, values) for values in (rows, columns)), strict=True
    )
    corners = steps.record_read_by_pieces(steps.gather(field, 4, *result))
    total: KernelTensor | None = None
    for row in (far[0], near[0]):
        for column in (far[1], near[1]):
            weight = steps.view(steps.multiply(row, column), *positions)
            weighed = steps.multiply(weight, steps.piece(corners, *result))
            total = weighed if total is None else steps.add(total, weighed)
    assert total is not None
    return total


def _record_fraction_distances(
    steps: KernelSteps, values: KernelTensor
) -> tuple[KernelTensor, KernelTensor]:
    """Record the steps of two distances, x - floor(x) and 1 minus that, and return both."""
    steps.add_forward_cost(Cost(specials=values.numel))
    floor = steps.constant_tensor(*values.shape)
    near = steps.subtract(values, floor)
    return near, steps.subtract(steps.constant_tensor(1), near)


# Regions of a picture.


class RegionSizes(NamedTuple):
    """The sizes of the result of a region pooling."""

    regions: int
    rows: int
    columns: int
    channels: int


def _region_result_sizes(call: OperatorCall) -> RegionSizes:
    """Return (regions, rows, columns, channels) of the result of a region pooling."""
    tall, wide = (int(call_argument(call, name)) for name in ("pooled_height", "pooled_width"))
    return RegionSizes(call.input("rois").shape[0], tall, wide, call.result.shape[1])


@register_kernel(
    "torchvision::roi_align",
    "torchvision::ps_roi_align",
    source=f"{_VISION}roi_align_kernel.cpp",
    doubt="bound",
)
def roi_align(call: OperatorCall, steps: KernelSteps) -> None:
    """Count per result r*r samples (4 muls, 3 adds), r*r-1 adds, 1 div; r is the sampling ratio.

    input [N, C, H, W], rois [K, 5], Y [K, C, ph, pw] (ps_roi_align: C/(ph*pw) channels). A region:
    4 muls by the scale, 4 subs where aligned (and always with ps), else 2 compares; 2 subs for its
    size, 2 divs for that of a cell. A row and a column of samples: mul, add, floor, 2 subs. A
    place: 4 muls. Regions have no gradient.
    """
    ratio = int(call_argument(call, "sampling_ratio"))
    if ratio <= 0:
        raise call.uncounted(
            "if sampling_ratio is not above 0, the number of samples of a cell depends on data"
        )
    regions, tall, wide, channels = _region_result_sizes(call)
    aligned = call.attributes.get("aligned", True)
    region = Cost(muls=4, adds=6, divs=2) if aligned else Cost(muls=4, adds=2, divs=2, compares=2)
    steps.add_forward_cost(region * regions)
    rows, columns = (
        steps.add(steps.constant_tensor(regions, *axes), steps.multiply(
            steps.constant_tensor(regions, 1, 1), steps.constant_tensor(1, *axes)))
        for axes in ((tall * ratio, 1), (1, wide * ratio))
    )  # fmt: skip
    positions = regions, 1, tall * ratio, wide * ratio
    field = steps.operand(call, "input")
    samples = (regions, channels, *positions[2:])
    sampled = record_bilinear_samples(steps, field, rows, columns, positions, samples)
    total = steps.sum_to_shape(sampled, regions, channels, tall, wide)
    steps.elementwise(Cost(divs=1), (Cost(divs=1),), total)


def _roi_pool_gradient(call: OperatorCall, trainable: frozenset[str]) -> Gradient:
    """Return the cost of the gradient of RoI pooling: an add for each element of the result."""
    gradient = Cost(adds=call.result.numel)
    return Gradient({name: gradient if name == "input" else ZERO for name in trainable})


@operator(
    "torchvision::roi_pool",
    backward=_roi_pool_gradient,
    doubt="bound",
    source=f"{_VISION}roi_pool_kernel.cpp",
)
def roi_pool(call: OperatorCall) -> Cost:
    """Count at most K*C*(H+ph-1)*(W+pw-1) compares; K*(4 (mul, round, add), 2 (max, div)) more.

    input [N, C, H, W], rois [K, 5], Y [K, C, ph, pw]. The size of a region is data, the whole
    picture at most; two cells next to each other may share a row or a column of it. A region: 4
    muls by the scale, rounded, its two sizes (sub, 1 more, at least 1), and those of its cells.
    """
    regions, tall, wide, channels = _region_result_sizes(call)
    _, _, height, width = call.input("input").shape
    most = regions * channels * (height + tall - 1) * (width + wide - 1)
    region = Cost(muls=4, specials=4, adds=4, compares=2, divs=2)
    return Cost(compares=most) + region * regions


@operator("torchvision::nms", backward="none", doubt="bound", source=f"{_VISION}nms_kernel.cpp")
def nms(call: OperatorCall) -> Cost:
    """Count at most n*(n-1)/2 pairs (7 compares, 4 adds, a mul, a div), n areas, a sort of n.

    dets [n, 4]. Of a pair: 4 corners of what both cover (compares), its sides (2 subs, 2 compares
    with 0), its area (mul), the union (add, sub), their ratio (div), the threshold (compare). An
    area: 2 subs, a mul. A sort: n*ceil(log2 n) compares. What is suppressed meets no other box.
    """
    count = call.input("dets").shape[0]
    pair = Cost(compares=7, adds=4, muls=1, divs=1)
    order = Cost(compares=count * max(count - 1, 0).bit_length())
    return pair * (count * (count - 1) // 2) + Cost(adds=2, muls=1) * count + order


# Deformable convolutions and attention.


@register_kernel(
    "torchvision::deform_conv2d", source=f"{_VISION}deform_conv2d_kernel.cpp", doubt="bound"
)
def deform_conv2d(call: OperatorCall, steps: KernelSteps) -> None:
    """Count per result Cin/g*k*k MACs (bias: 1 add), and k*k samples (4 muls, 3 adds) a channel.

    input [N, Cin, H, W], weight [Cout, Cin/g, k, k], offset [N, 2*og*k*k, h, w]. Of a place in one
    of og groups: 2 adds, 2 floors, 4 subs, 4 muls. mask [N, og*k*k, h, w]: a mul each.
    """
    batch, channels = call.input("input").shape[:2]
    outputs, depth, *window = call.input("weight").shape
    height, width = call.result.shape[2:]
    groups, points = int(call_argument(call, "offset_groups")), prod(window)
    positions = batch, groups, 1, points, height, width
    offset = steps.record_read_by_pieces(steps.operand(call, "offset"))
    grid = steps.constant_tensor(1, 1, 1, points, height, width)
    rows, columns = (steps.add(steps.piece(offset, *positions), grid) for _ in range(2))
    samples = batch, groups, channels // groups, points, height, width
    field = steps.operand(call, "input")
    sampled = record_bilinear_samples(steps, field, rows, columns, positions, samples)
    if call_argument(call, "use_mask"):
        sampled = steps.multiply(sampled, steps.operand(call, "mask", *positions))
    weight = steps.operand(call, "weight")
    shape = batch, outputs, height, width
    result = steps.contract(weight, sampled, depth * points, *shape)
    steps.add(result, steps.operand(call, "bias", outputs, 1, 1))


def _first_given_operand(
    call: OperatorCall, steps: KernelSteps, names: Sequence[str], *shape: int
) -> KernelTensor:
    """Return the first given operand with one of these names, as a tensor for steps, in the shape
    if one is given.
    """
    return steps.operand(call, next(name for name in names if call.has_input(name)), *shape)


@register_kernel(
    "MultiScaleDeformableAttention::ms_deform_attn_forward",
    "deformable_detr::ms_deform_attn_forward",
    source=_ATTENTION,
    doubt="bound",
    modules=(
        "models.ops.functions.ms_deform_attn_func:MSDeformAttnFunction",
        "mmcv.ops.multi_scale_deform_attn:MultiScaleDeformableAttnFunction",
        "groundingdino.models.GroundingDINO.ms_deform_attn:MultiScaleDeformableAttnFunction",
    ),
)
def deformable_attention_kernel(call: OperatorCall, steps: KernelSteps) -> None:
    """Count Q*M*L*P places: D*(4 muls, 3 adds, 1 MAC), and 6 muls, 6 adds, 2 floors each.

    value [N, S, M, D], sampling_locations [N, Q, M, L, P, 2], attention_weights [N, Q, M, L, P]. A
    place is scaled by the size of its level (2 muls), less a half (2 subs), and has 4 weights.
    """
    names = "sampling_locations", "sampling_loc"
    locations = _first_given_operand(call, steps, names)
    batch, queries, heads, levels, points, _ = locations.shape
    depth = call.input("value").shape[-1]
    positions = batch, queries, heads, levels, points, 1
    half, size = steps.constant_tensor(1), steps.constant_tensor(levels, 1, 1)
    steps.record_read_by_pieces(locations)
    rows, columns = (
        steps.subtract(steps.multiply(steps.piece(locations, *positions), size), half)
        for _ in range(2)
    )
    samples = (*positions[:-1], depth)
    field = steps.operand(call, "value")
    sampled = record_bilinear_samples(steps, field, rows, columns, positions, samples)
    weights = _first_given_operand(call, steps, ("attention_weights", "attn_weight"))
    steps.contract(weights, sampled, levels * points, batch, queries, heads, depth)


@register_kernel(
    "DCNv3::dcnv3_forward",
    "DCNv4::dcnv4_forward",
    source=_DCN,
    doubt="bound",
    modules=(
        "ops_dcnv3.functions.dcnv3_func:DCNv3Function",
        "DCNv4.functions.dcnv4_func:DCNv4Function",
    ),
)
def deformable_aggregation(call: OperatorCall, steps: KernelSteps) -> None:
    """Count per result K*(4 muls, 3 adds, 1 MAC) for K points; per place 6 muls, 6 adds, 2 floors.

    input [N, H, W, G*D], Y [N, h, w, G*D]. A place is its point of the grid and an offset by
    offset_scale (2 muls, 2 adds), and has 4 weights; then a weight of its own: mask
    [N, h, w, G*K], or a part of offset_mask. DCNv3 computes the softmax over its mask before.
    """
    points = int(call_argument(call, "kernel_h")) * int(call_argument(call, "kernel_w"))
    points -= 1 if call_argument(call, "remove_center") else 0
    groups, depth = (int(call_argument(call, name)) for name in ("group", "group_channels"))
    batch, height, width = call.result.shape[:3]
    positions = batch, height, width, groups, points, 1
    scale = steps.constant_tensor(1)
    grid = steps.constant_tensor(height, width, 1, points, 1)
    offset = steps.record_read_by_pieces(
        _first_given_operand(call, steps, ("offset", "offset_mask"))
    )
    rows, columns = (
        steps.add(steps.multiply(steps.piece(offset, *positions), scale), grid) for _ in range(2)
    )
    samples = (*positions[:-1], depth)
    field = steps.operand(call, "input")
    sampled = record_bilinear_samples(steps, field, rows, columns, positions, samples)
    weights = offset
    if call.has_input("mask"):
        weights = steps.operand(call, "mask")
    weights = steps.piece(weights, *positions[:-1])
    steps.contract(weights, sampled, points, batch, height, width, groups, depth)
