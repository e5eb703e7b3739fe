"""Bilinear samples by their four corners, for kernels that read at places that are data.

Which elements lie at the corners is given as indices, and how far a place is from them computed.
"""

import random

import torch

from tests.operators.kernels.calls import Case, Kernel


def _sample(field, rows, columns, indices, result):
    """field [elements, ...], rows and columns by place, indices of four corners."""
    near_row, near_column = (x - x.detach().floor() for x in (rows, columns))
    far_row, far_column = 1 - near_row, 1 - near_column
    weights = (
        far_row * far_column, far_row * near_column, near_row * far_column, near_row * near_column
    )  # fmt: skip
    corners = field.index_select(0, indices).view(4, *result).split(1)
    total = None
    for weight, corner in zip(weights, corners, strict=True):
        places = weight.view(*weight.shape[: len(result)], *(1,) * (len(result) - weight.dim()))
        weighed = places * corner.squeeze(0)
        total = weighed if total is None else total + weighed
    return total


def _indices(draw, elements, count):
    return torch.tensor([draw.randrange(elements) for _ in range(4 * count)])


def roi_align(
    input, rois, indices, grid_rows, grid_columns, spatial_scale, pooled_height, pooled_width,
    sampling_ratio, channels, aligned=True, **_,
):  # fmt: skip
    """Regions in cells, cells in ratio x ratio samples, whose mean is the result."""
    corners = rois * spatial_scale
    if aligned:
        corners = corners - 0.5
    left, top, right, bottom = corners.split(1, 1)
    wide, tall = right - left, bottom - top
    if not aligned:
        one = torch.ones(1)
        wide, tall = torch.maximum(wide, one), torch.maximum(tall, one)
    wide, tall = wide / pooled_width, tall / pooled_height
    rows = top + grid_rows * tall
    columns = left + grid_columns * wide
    regions = rois.shape[0]
    rows = rows.view(regions, 1, -1, 1)
    columns = columns.view(regions, 1, 1, -1)
    result = regions, channels, rows.shape[2], columns.shape[3]
    found = _sample(input.reshape(-1), rows, columns, indices, result)
    cells = found.view(regions, channels, pooled_height, sampling_ratio, pooled_width, -1)
    return cells.sum((3, 5)) / float(sampling_ratio**2)


def _draw_regions(position_sensitive: bool):
    def draw_call(draw: random.Random) -> Case:
        tall, wide, ratio = (draw.randint(1, 3) for _ in range(3))
        channels = draw.randint(1, 3)
        stored = channels * tall * wide if position_sensitive else channels
        shape = draw.randint(1, 2), stored, draw.randint(2, 4), draw.randint(2, 4)
        regions = draw.randint(1, 3)
        attributes = {
            "spatial_scale": 0.5,
            "pooled_height": tall,
            "pooled_width": wide,
            "sampling_ratio": ratio,
        }
        if not position_sensitive:
            attributes["aligned"] = draw.random() < 0.5
        elements = shape[0] * shape[1] * shape[2] * shape[3]
        count = regions * channels * tall * wide * ratio**2
        given = {
            "indices": _indices(draw, elements, count),
            "grid_rows": torch.rand(1, tall * ratio),
            "grid_columns": torch.rand(1, wide * ratio),
            "channels": channels,
        }
        results = [(regions, channels, tall, wide)]
        tensors = {"input": shape, "rois": (regions, 4)}
        return Case(tensors, ("input",), results, attributes, {}, given)

    return draw_call


def deform_conv2d(
    input, weight, offset, bias, indices, grid, groups, offset_groups, size, mask=None, **_
):  # fmt: skip
    """Columns of samples, and their product with the weight of each group."""
    batch, channels = input.shape[:2]
    outputs, depth, *window = weight.shape
    height, width = size
    points = window[0] * window[1]
    offsets = offset.view(batch, offset_groups, 1, points, 2, height, width).split(1, 4)
    rows, columns = (part.squeeze(4) + grid for part in offsets)
    result = batch, offset_groups, channels // offset_groups, points, height, width
    found = _sample(input.reshape(-1), rows, columns, indices, result)
    if mask is not None:
        found = found * mask.view(batch, offset_groups, 1, points, height, width)
    found = found.reshape(batch, groups, depth * points, height * width)
    done = weight.view(1, groups, outputs // groups, depth * points) @ found
    return done.view(batch, outputs, height, width) + bias[:, None, None]


def _draw_deformable(draw: random.Random) -> Case:
    groups, offset_groups = draw.choice([1, 2]), draw.choice([1, 2])
    batch, channels, outputs = draw.randint(1, 2), 2 * draw.randint(1, 2), 2 * draw.randint(1, 2)
    tall, wide, height, width = (draw.randint(1, 3) for _ in range(4))
    points, places = tall * wide, height * width
    shape = batch, channels, height + 2, width + 2
    tensors = {
        "input": shape,
        "weight": (outputs, channels // groups, tall, wide),
        "offset": (batch, 2 * offset_groups * points, height, width),
        "bias": (outputs,),
    }
    masked = draw.random() < 0.5
    if masked:
        tensors["mask"] = (batch, offset_groups * points, height, width)
    elements = batch * channels * shape[2] * shape[3]
    given = {
        "indices": _indices(draw, elements, batch * channels * points * places),
        "grid": torch.rand(1, 1, 1, points, height, width),
        "size": (height, width),
    }
    attributes = {"groups": groups, "offset_groups": offset_groups, "use_mask": masked}
    results = [(batch, outputs, height, width)]
    return Case(tensors, tuple(tensors), results, attributes, {}, given)


def attention_of_samples(value, sampling_locations, attention_weights, indices, sizes, **_):
    """Samples of all levels and points of a query and head, summed by their weights."""
    batch, queries, heads, levels, points, _two = sampling_locations.shape
    depth = value.shape[-1]
    places = batch, queries, heads, levels, points, 1
    columns, rows = (
        part.view(places) * sizes.view(levels, 1, 1) - 0.5
        for part in sampling_locations.split(1, -1)
    )
    result = (*places[:-1], depth)
    found = _sample(value.reshape(-1), rows, columns, indices, result)
    weights = attention_weights.view(batch, queries, heads, 1, levels * points)
    return weights @ found.view(batch, queries, heads, levels * points, depth)


def _draw_sampled(draw: random.Random) -> Case:
    batch, queries, heads, levels, points, depth = (draw.randint(1, 2) for _ in range(6))
    value = batch, draw.randint(3, 5), heads, depth
    locations = batch, queries, heads, levels, points, 2
    tensors = {
        "value": value,
        "sampling_locations": locations,
        "attention_weights": locations[:-1],
    }
    count = batch * queries * heads * levels * points * depth
    elements = value[0] * value[1] * value[2] * value[3]
    given = {"indices": _indices(draw, elements, count), "sizes": torch.rand(levels)}
    return Case(tensors, tuple(tensors), [(batch, queries, heads * depth)], {}, {}, given)


def dcn(
    input, indices, grid, group, group_channels, points, offset=None, mask=None, offset_mask=None,
    **_,
):  # fmt: skip
    """Samples of the points of each group, summed by their modulation."""
    batch, height, width = (offset if offset_mask is None else offset_mask).shape[:3]
    places = batch, height, width, group, points, 1
    if offset_mask is not None:
        count = group * points
        x, y, mask = offset_mask.split([count, count, count], -1)
    else:
        x, y = offset.split([group * points] * 2, -1)
    rows, columns = (part.reshape(places) * 0.5 + grid for part in (y, x))
    result = (*places[:-1], group_channels)
    found = _sample(input.reshape(-1), rows, columns, indices, result)
    return mask.reshape(batch, height, width, group, 1, points) @ found


def _draw_dcn(joint: bool):
    def draw_call(draw: random.Random) -> Case:
        batch, height, width, group, depth = (draw.randint(1, 2) for _ in range(5))
        kernel_h, kernel_w, centre = draw.randint(1, 3), draw.randint(2, 3), draw.random() < 0.3
        points = kernel_h * kernel_w - centre
        shape = batch, height + 2, width + 2, group * depth
        tensors = {"input": shape}
        flat = batch, height, width
        if joint:
            tensors["offset_mask"] = (*flat, 3 * group * points)
        else:
            tensors |= {
                "offset": (*flat, 2 * group * points),
                "mask": (*flat, group * points),
            }
        attributes = {
            "kernel_h": kernel_h,
            "kernel_w": kernel_w,
            "group": group,
            "group_channels": depth,
            "remove_center": int(centre),
        }
        count = batch * height * width * group * points * depth
        elements = batch * shape[1] * shape[2] * shape[3]
        given = {
            "indices": _indices(draw, elements, count),
            "grid": torch.rand(height, width, 1, points, 1),
            "points": points,
        }
        results = [(*flat, group * depth)]
        return Case(tensors, tuple(tensors), results, attributes, {}, given)

    return draw_call


_SHORT = {"sampling_locations": "sampling_loc", "attention_weights": "attn_weight"}

KERNELS = [
    Kernel("torchvision::roi_align", _draw_regions(False), roi_align),
    Kernel("torchvision::ps_roi_align", _draw_regions(True), roi_align),
    Kernel("torchvision::deform_conv2d", _draw_deformable, deform_conv2d),
    Kernel(
        "MultiScaleDeformableAttention::ms_deform_attn_forward",
        _draw_sampled,
        attention_of_samples,
        others={
            "deformable_detr::ms_deform_attn_forward": _SHORT,
            "models::MSDeformAttnFunction": {},
            "mmcv::MultiScaleDeformableAttnFunction": {},
            "groundingdino::MultiScaleDeformableAttnFunction": {},
        },
    ),
    Kernel("DCNv3::dcnv3_forward", _draw_dcn(False), dcn, others={"ops_dcnv3::DCNv3Function": {}}),
    Kernel("DCNv4::dcnv4_forward", _draw_dcn(True), dcn, others={"DCNv4::DCNv4Function": {}}),
]
