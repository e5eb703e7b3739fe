"""Boxes: how much work they make depends on where they are, so these are upper bounds."""

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import given, integer, out_size, shape, source, text
from crossflops.ops.operands import sizes
from crossflops.ops.rule import MICROSOFT, Entry, bounded, entry

# Of two boxes: the corners of what they share (4 compares), its sides (2 subs, not below 0:
# 2 compares) and area (mul), the joint area (add, sub), the ratio (div) and the threshold.
OVERLAP = Cost(compares=7, adds=4, muls=1, divs=1)
AREA = Cost(adds=2, muls=1)
CORNERS = Cost(muls=2, adds=4)


def non_max_suppression(node: Node) -> Cost:
    """NonMaxSuppression: for each of B*C classes, sort S boxes and compare each with each.

    score_threshold: B*C*S compares; sorting: B*C*S*ceil(log2 S) compares; B*C*S*(S-1)/2 overlaps
    (7 compares, 4 adds, mul, div); B*S areas (2 subs, mul), from centres (2 muls, 4 adds) more.
    boxes [B, S, 4], scores [B, C, S]. Boxes that are dropped early save work.
    https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html
    """
    batch, classes, count = shape(source(node, 1), rank=3)
    lists = batch * classes
    threshold = lists * count if given(node, 4) else 0
    sorting = lists * count * max(count - 1, 0).bit_length()
    box = AREA + CORNERS if integer(node, "center_point_box", 0) else AREA
    pairs = lists * (count * (count - 1) // 2)
    return Cost(compares=threshold + sorting) + OVERLAP * pairs + box * (batch * count)


def max_roi_pool(node: Node) -> Cost:
    """MaxRoiPool: n(Y) * (window - 1) compares; each box: 4 scaled and rounded corners.

    A box is at most the image, so a window of it at most (floor(H/ph) + 2) * (floor(W/pw) + 2)
    elements, and never more than H * W. X [N, C, H, W], rois [R, 5], Y [R, C, ph, pw].
    https://onnx.ai/onnx/operators/onnx__MaxRoiPool.html
    """
    height, width = shape(source(node, 0), rank=4)[2:]
    pooled = node.attrs.get("pooled_shape")
    if not (isinstance(pooled, tuple) and len(pooled) == 2 and min(map(int, pooled)) > 0):
        raise ValueError("MaxRoiPool has no pooled_shape")
    rows, columns = (int(extent) for extent in pooled)
    window = min(height // rows + 2, height) * min(width // columns + 2, width)
    corners = Cost(muls=1, specials=1) * (4 * shape(source(node, 1), rank=2)[0])
    return Cost(compares=max(window - 1, 0)) * out_size(node) + corners


def crop_and_resize(node: Node) -> Cost:
    """CropAndResize: bilinear 4 muls and 3 adds per output, nearest none.

    Where a position lies is shared by the channels and not counted, as for Resize.
    X [N, C, H, W], rois [R, 4], Y [R, C, h, w].
    https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
    """
    mode = text(node, "mode", "bilinear")
    if mode == "nearest":
        return ZERO
    if mode != "bilinear":
        raise ValueError(f"mode {mode!r} of CropAndResize is not known")
    return Cost(muls=4, adds=3) * out_size(node)


ENTRIES: tuple[Entry, ...] = (
    entry(
        "NonMaxSuppression",
        non_max_suppression,
        "B*C*(S*ceil(log2 S) compares + S*(S-1)/2*(7 compares, 4 adds, mul, div)); "
        "score_threshold: B*C*S compares; areas: B*S*(2 subs, mul)",
        since=10,
        doubt=bounded,
        requires=sizes("boxes[B,S,4] scores[B,C,S]"),
    ),
    entry(
        "MaxRoiPool",
        max_roi_pool,
        "n(Y)*(window-1) compares, window <= (floor(H/ph)+2)*(floor(W/pw)+2); R*4*(mul, round)",
        doubt=bounded,
        requires=sizes("X[N,C,H,W] rois[R,5]"),
    ),
    entry(
        "CropAndResize",
        crop_and_resize,
        "bilinear: n(Y)*(4 muls, 3 adds); nearest: 0",
        domain=MICROSOFT,
        requires=sizes("X[N,C,H,W] rois[R,4] batch_indices[R] crop_size[2]"),
    ),
)
