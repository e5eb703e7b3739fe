"""The cost of resampling, and of operators on boxes, whose work depends on where the boxes are.

Where a neighbour lies and how much it weighs depends on the position alone and is shared by all
channels, so it is not counted where the grid is regular.
"""

from fractions import Fraction
from math import floor, prod

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    has_input,
    input_spec,
    integer_attribute,
    output_element_count,
    output_spec,
    spec_shape,
    string_attribute,
)
from crossflops.operators.gradient import (
    Gradient,
    OperandPositions,
    first_operand_backward,
    no_gradient,
    product_backward,
    sum_of_copies_backward,
)
from crossflops.operators.operands import (
    constraint_by_rank,
    input_label,
    input_shape,
    input_shape_or_raise,
    integer_list_or_none,
    sizes_constraint,
)
from crossflops.operators.rule import (
    MICROSOFT,
    Constraint,
    Exactness,
    OperandProblem,
    Operators,
    estimate_exactness,
    upper_bound_exactness,
)

operator = Operators()

_REACH = {"linear": 1, "bilinear": 1, "cubic": 2, "bicubic": 2}


def resize_exactness(node: Node) -> Exactness:
    """Return "estimate" with antialias, since shapes give the exact scale only rounded; else
    "exact".
    """
    return "estimate" if integer_attribute(node, "antialias", 0) else "exact"


def resize_scales_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with scales or sizes, or "" if nothing is: one of both, with a number
    for each axis (or each in `axes`).
    """
    before, axes = input_shape_or_raise(node, 0), integer_list_or_none(node, "axes")
    numbers = len(before) if axes is None else len(axes)
    resized = node.op.type == "Resize" and node.op.since >= 11
    lengths = {index: input_shape(node, index) for index in ((2, 3) if resized else (1,))}
    counts = {index: prod(dims) for index, dims in lengths.items() if dims is not None}
    for index, count in counts.items():
        if count not in (0, numbers):
            needed = f"{numbers} numbers are needed for {input_label(node, 0)}"
            return f"{input_label(node, index)} does not fit: {needed}"
    roi = input_shape(node, 1) if resized else None
    cropped = string_attribute(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize"
    if cropped and roi is not None and prod(roi) not in (2 * numbers, 2 * len(before)):
        return f"{input_label(node, 1)} needs {2 * numbers} numbers for {input_label(node, 0)}"
    stretched = (
        resized and string_attribute(node, "keep_aspect_ratio_policy", "stretch") == "stretch"
    )
    extents = node.values.get(3, ()) if stretched else ()
    along = before if axes is None else [before[axis] for axis in axes]
    if any((size < 1) != (old < 1) for size, old in zip(extents, along, strict=False)):
        return f"{input_label(node, 0)} cannot be resized to {extents}"
    requested = [index for index in lengths if has_input(node, index)]
    if (
        resized
        and requested
        and len(counts) == len(requested)
        and sum(map(bool, counts.values())) != 1
    ):
        return f"{input_label(node, 0)} needs either scales or sizes, {numbers} numbers"
    return ""


def resize_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradient of Resize: each gradient is weighted and added to its
    neighbours, a mul and an add each.

    nearest: an element sums the gradients of its copies (ATen/native/UpSample*.cpp).
    """
    if string_attribute(node, "mode", "nearest") == "nearest":
        return sum_of_copies_backward(node, requested, forward)
    spread = Cost(muls=forward.muls, adds=forward.muls)
    return Gradient(dict.fromkeys(requested, spread))


_RESIZE = "nearest: 0; linear: n(Y)*(2^d muls, 2^d-1 adds); d dimensions that change"


@operator(
    "Resize",
    f"{_RESIZE}; cubic: 4^d",
    since=10,
    doubt=resize_exactness,
    requires=resize_scales_constraint,
    backward=resize_backward,
)
@operator("Upsample", _RESIZE, requires=resize_scales_constraint, backward=resize_backward)
def onnx_resize_cost(node: Node) -> Cost:
    """Return the cost of Resize or Upsample per element of the result: nearest 0, linear 2^d muls
    and 2^d - 1 adds, cubic 4^d.

    d is the number of dimensions whose extent changes. With antialias a dimension that shrinks
    by s takes 2 - 2 * (floor(-r / s) + 1) neighbours, r = 1 (linear) or 2 (cubic), as in
    onnx/reference/ops/op_resize.py.
    https://onnx.ai/onnx/operators/onnx__Resize.html
    """
    mode = string_attribute(node, "mode", "nearest")
    if mode == "nearest":
        return ZERO
    before, after = spec_shape(input_spec(node, 0)), spec_shape(output_spec(node))
    if mode not in _REACH or len(before) != len(after):
        raise ValueError(f"{node.op} from {before} to {after} with mode {mode!r} is not supported")
    widened = integer_attribute(node, "antialias", 0) != 0
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a != b and a and b]
    taps = prod(
        _resize_tap_count(_REACH[mode], Fraction(b, a) if widened else Fraction(1))
        for a, b in pairs
    )
    return _tap_sum_cost(taps) * prod(after) if pairs else ZERO


def _resize_tap_count(reach: int, scale: Fraction) -> int:
    """Return how many input elements one output element reads along an axis, with antialias at
    this scale.
    """
    return 2 - 2 * (floor(-reach / min(scale, Fraction(1))) + 1)


def _tap_sum_cost(taps: int) -> Cost:
    """Return the cost of a weighted sum of `taps` elements: `taps` muls and `taps` - 1 adds."""
    return Cost(muls=taps, adds=taps - 1)


def _non_empty_samples_constraint(node: Node) -> OperandProblem:
    """Return why the sampled data are empty; "" if nothing is wrong."""
    dims = input_shape_or_raise(node, 0)
    if 0 not in dims[2:]:
        return ""
    return f"{input_label(node, 0)} is empty, but at least 1 is needed along each axis"


SAMPLED: tuple[Constraint, ...] = (
    constraint_by_rank(
        0,
        {
            4: sizes_constraint("X[N,C,H,W] grid[N,_,_,2]"),
            5: sizes_constraint("X[N,C,D,H,W] grid[N,_,_,_,3]"),
        },
    ),
    _non_empty_samples_constraint,
)


def _grid_sample_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradients of GridSample, for each requested operand.

    dX: each gradient, weighed, is added to its 2^d neighbours (cubic 4^d), nearest to one.

    dgrid, linear: for each neighbour and dimension d muls and an add, and d muls per position
    (ATen/native/GridSampler.cpp). nearest: zeros. Raises ValueError for dgrid of cubic ones.
    """
    dims, mode = (
        len(spec_shape(input_spec(node, 1), at_least=3)) - 2,
        string_attribute(node, "mode", "linear"),
    )
    taps = 1 if mode == "nearest" else (2 * _REACH[mode]) ** dims
    work = {}
    if 0 in requested:
        weighed = 0 if mode == "nearest" else taps
        work[0] = Cost(muls=weighed, adds=taps) * output_element_count(node)
    if 1 in requested:
        if mode not in ("linear", "bilinear", "nearest"):
            raise ValueError(f"the gradient of the grid has no formula for mode {mode!r}")
        moved = Cost(muls=dims, adds=1) * (taps * dims * output_element_count(node))
        scaled = Cost(muls=prod(spec_shape(input_spec(node, 1))))
        work[1] = ZERO if mode == "nearest" else moved + scaled
    return Gradient(work)


@operator(
    "GridSample",
    "N*prod(o)*d*(mul, add) + linear: n(Y)*(2^d muls, 2^d-1 adds); cubic: 4^d; "
    "nearest: N*prod(o)*d rounds",
    since=16,
    doubt=estimate_exactness,
    requires=SAMPLED,
    backward=_grid_sample_backward,
)
def grid_sample_cost(node: Node) -> Cost:
    """Return the estimated cost of GridSample per element of the result: linear 2^d muls and 2^d -
    1 adds, cubic 4^d, nearest none.

    Each of the N * prod(o) positions is first scaled to the image: d (mul, add), and rounded
    when nearest. X [N, C, d...], grid [N, o..., d], Y [N, C, o...]. The weights are not fixed
    by the operator and not counted: an estimate.
    https://onnx.ai/onnx/operators/onnx__GridSample.html
    """
    grid = spec_shape(input_spec(node, 1), at_least=3)
    dims, indices = len(grid) - 2, prod(grid[:-1])
    mode = string_attribute(node, "mode", "linear")
    scaled = Cost(muls=dims, adds=dims) * indices
    if mode == "nearest":
        return scaled + Cost(specials=dims) * indices
    if mode not in _REACH:
        raise ValueError(f"mode {mode!r} of GridSample is not supported")
    return scaled + _tap_sum_cost((2 * _REACH[mode]) ** dims) * output_element_count(node)


def _affine_theta_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with theta, or "" if nothing is: [N, 2, 3] for a size of 4 numbers, [N,
    3, 4] for one of 5.
    """
    theta, size = input_shape(node, 0), input_shape(node, 1)
    if size is not None and size not in ((4,), (5,)):
        return f"{input_label(node, 1)} needs 4 or 5 numbers"
    if theta is None or size is None:
        return ""
    dims = size[0] - 2
    if theta[1:] != (dims, dims + 1):
        return f"{input_label(node, 0)} needs to be Nx{dims}x{dims + 1} for {input_label(node, 1)}"
    requested = node.values.get(1, ())
    if any(extent < 1 for extent in requested[2:]):
        return f"{input_label(node, 1)} is {requested}, but at least 1 is needed along each axis"
    batch = (requested or theta)[0]
    if batch == theta[0]:
        return ""
    return f"{input_label(node, 0)} has {theta[0]} at axis 0, but the size begins with {batch}"


@operator(
    "AffineGrid",
    "n(grid)*(d+1) MACs",
    since=20,
    requires=_affine_theta_constraint,
    backward=product_backward(0),
)
def affine_grid_cost(node: Node) -> Cost:
    """Return the cost of AffineGrid, theta * (base, 1): d + 1 MACs per element of the grid.

    theta [N, d, d + 1], grid [N, o..., d]. The base grid depends on `size` alone.
    https://onnx.ai/onnx/operators/onnx__AffineGrid.html
    """
    return Cost(macs=output_element_count(node) * spec_shape(input_spec(node, 0), rank=3)[2])


def _roi_align_sample_count(node: Node) -> int:
    """Return how many samples RoiAlign takes for one element of the result. Raises ValueError if
    that depends on the boxes.
    """
    samples = integer_attribute(node, "sampling_ratio", 0) ** 2
    if samples == 0:
        raise ValueError("the number of samples of RoiAlign depends on the boxes")
    return samples


_SPREAD = Cost(muls=4, adds=4)  # a gradient, weighed, is added to four neighbours


def _roi_align_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of RoiAlign: dY is added to the four neighbours of each
    sample.

    Boxes have no gradient (torchvision/csrc/ops/cpu/roi_align_kernel.cpp).
    """
    if string_attribute(node, "mode", "avg") == "max":
        return _SPREAD * output_element_count(node)
    return (_SPREAD * _roi_align_sample_count(node) + Cost(divs=1)) * output_element_count(node)


@operator(
    "RoiAlign",
    "n(Y)*(s*(4 muls, 3 adds) + avg: s-1 adds, div; max: s-1 compares); s = sampling_ratio^2",
    since=10,
    requires=sizes_constraint("X[N,C,H,W] rois[R,4] batch_indices[R]"),
    backward=first_operand_backward(_roi_align_gradient_cost),
)
def roi_align_cost(node: Node) -> Cost:
    """Return the cost of RoiAlign: sampling_ratio^2 bilinear samples (4 muls, 3 adds) per element
    of the result, then combined.

    avg: s - 1 adds and a div; max: s - 1 compares; s = sampling_ratio^2. With sampling_ratio 0
    the number of samples depends on the boxes: ValueError.
    https://onnx.ai/onnx/operators/onnx__RoiAlign.html
    """
    samples = _roi_align_sample_count(node)
    last = Cost(adds=samples - 1, divs=1)
    if string_attribute(node, "mode", "avg") == "max":
        last = Cost(compares=samples - 1)
    return (_tap_sum_cost(4) * samples + last) * output_element_count(node)


# Boxes: how much work they make depends on where they are, so these are upper bounds.

# Of two boxes: the corners of what they share (4 compares), its sides (2 subs, not below 0:
# 2 compares) and area (mul), the joint area (add, sub), the ratio (div) and the threshold.
OVERLAP = Cost(compares=7, adds=4, muls=1, divs=1)
AREA = Cost(adds=2, muls=1)
CORNERS = Cost(muls=2, adds=4)


@operator(
    "NonMaxSuppression",
    "B*C*(S*ceil(log2 S) compares + S*(S-1)/2*(7 compares, 4 adds, mul, div)); "
    "score_threshold: B*C*S compares; areas: B*S*(2 subs, mul)",
    since=10,
    doubt=upper_bound_exactness,
    requires=sizes_constraint("boxes[B,S,4] scores[B,C,S]"),
    backward=no_gradient,
)
def non_max_suppression_cost(node: Node) -> Cost:
    """Return the largest cost of NonMaxSuppression: for each of B*C classes, S boxes sorted and
    compared pair by pair.

    score_threshold: B*C*S compares; sorting: B*C*S*ceil(log2 S) compares; B*C*S*(S-1)/2 overlaps
    (7 compares, 4 adds, mul, div); B*S areas (2 subs, mul), from centres (2 muls, 4 adds) more.
    boxes [B, S, 4], scores [B, C, S]. Boxes that are dropped early save work.
    https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html
    """
    batch, classes, count = spec_shape(input_spec(node, 1), rank=3)
    lists = batch * classes
    threshold = lists * count if has_input(node, 4) else 0
    sorting = lists * count * max(count - 1, 0).bit_length()
    box = AREA + CORNERS if integer_attribute(node, "center_point_box", 0) else AREA
    pairs = lists * (count * (count - 1) // 2)
    return Cost(compares=threshold + sorting) + OVERLAP * pairs + box * (batch * count)


@operator(
    "MaxRoiPool",
    "n(Y)*(window-1) compares, window <= (floor(H/ph)+2)*(floor(W/pw)+2); R*4*(mul, round)",
    doubt=upper_bound_exactness,
    requires=sizes_constraint("X[N,C,H,W] rois[R,5]"),
    backward=first_operand_backward(lambda node: Cost(adds=output_element_count(node))),
)
def max_roi_pool_cost(node: Node) -> Cost:
    """Return the largest cost of MaxRoiPool: window - 1 compares per element of the result, and 4
    corners scaled and rounded per box.

    A box is at most the image, so a window of it at most (floor(H/ph) + 2) * (floor(W/pw) + 2)
    elements, and never more than H * W. X [N, C, H, W], rois [R, 5], Y [R, C, ph, pw].
    https://onnx.ai/onnx/operators/onnx__MaxRoiPool.html
    """
    height, width = spec_shape(input_spec(node, 0), rank=4)[2:]
    pooled = node.attrs.get("pooled_shape")
    if not (isinstance(pooled, tuple) and len(pooled) == 2 and min(map(int, pooled)) > 0):
        raise ValueError("MaxRoiPool has no pooled_shape")
    rows, columns = (int(extent) for extent in pooled)
    window = min(height // rows + 2, height) * min(width // columns + 2, width)
    corners = Cost(muls=1, specials=1) * (4 * spec_shape(input_spec(node, 1), rank=2)[0])
    return Cost(compares=max(window - 1, 0)) * output_element_count(node) + corners


def _crop_resize_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradients of CropAndResize, for each requested operand.

    each gradient, weighed, is added to four neighbours; nearest: to one.

    Source: CropAndResizeGradImage of TensorFlow. Raises ValueError for the gradient of the boxes.
    """
    if 1 in requested:
        raise ValueError("the gradient of the boxes of CropAndResize has no formula")
    nearest = string_attribute(node, "mode", "bilinear") == "nearest"
    return Gradient({0: (Cost(adds=1) if nearest else _SPREAD) * output_element_count(node)})


@operator(
    "CropAndResize",
    "bilinear: n(Y)*(4 muls, 3 adds); nearest: 0",
    domain=MICROSOFT,
    requires=sizes_constraint("X[N,C,H,W] rois[R,4] batch_indices[R] crop_size[2]"),
    backward=_crop_resize_backward,
)
def crop_and_resize_cost(node: Node) -> Cost:
    """Return the cost of CropAndResize per element of the result: bilinear 4 muls and 3 adds,
    nearest nothing.

    Where a position lies is shared by the channels and not counted, as for Resize.
    X [N, C, H, W], rois [R, 4], Y [R, C, h, w].
    https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
    """
    mode = string_attribute(node, "mode", "bilinear")
    if mode == "nearest":
        return ZERO
    if mode != "bilinear":
        raise ValueError(f"mode {mode!r} of CropAndResize is not supported")
    return Cost(muls=4, adds=3) * output_element_count(node)
