"""The cost of convolutions and pools, and checks whether their attributes fit."""

from collections.abc import Hashable
from functools import lru_cache
from math import prod
from typing import Literal, NamedTuple

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    float_attribute,
    has_input,
    input_element_count,
    input_spec,
    integer_attribute,
    kernel_window_size,
    output_element_count,
    output_spec,
    reduction_operation_count,
    spec_shape,
    string_attribute,
)
from crossflops.operators.gradient import (
    QUANTIZED,
    Gradient,
    OperandPositions,
    broadcast_sum_cost,
    first_operand_backward,
    no_gradient,
    product_backward,
    scatter_add_backward,
)
from crossflops.operators.operands import (
    Shape,
    cache_constraint,
    input_label,
    input_shape,
    input_shape_or_raise,
    integer_list_or_none,
    rank_constraint,
    shapes_of_inputs,
    sizes_constraint,
)
from crossflops.operators.pointwise import SWISH_BACK
from crossflops.operators.quantization import requantization_cost
from crossflops.operators.rule import (
    Constraint,
    OperandProblem,
    Operators,
    constant_macs_unless_varying,
    estimate_exactness,
)

operator = Operators()

Layout = Literal["first", "last"]


class _Sizes(NamedTuple):
    """The geometry of a window: extents of data and kernel, and how it moves. Hashable."""

    extents: Shape
    kernel: Shape
    strides: Shape
    dilations: Shape
    pads: Shape
    ceiling: bool
    same: bool


def window_constraint(
    data: int = 0, weight: int | None = None, min_windows: int = 1, channels: Layout = "first"
) -> Constraint:
    """Return a constraint which requires that a window fits `min_windows` times or more into
    the data along each spatial axis.

    The window's extents are those of the weight [M, C/group, k...], or `kernel_shape`. With
    `min_windows` 0 a window may be larger than its padded data, and the result empty.
    """

    def window_fit_problem(node: Node) -> OperandProblem:
        """Return why the window does not fit into the data; "" if nothing is wrong."""
        shape = input_shape_or_raise(node, data)
        if len(shape) < 3:
            return f"{input_label(node, data)} has rank {len(shape)}, but needs at least 3"
        if min_windows == 0 and (wrong := non_empty_pooling_constraint(node, data)):
            return wrong
        extents = shape[2:] if channels == "first" else shape[1:-1]
        if wrong := _spatial_attribute_problem(node, data, weight, len(extents)):
            return wrong
        kernel = _kernel_extents(node, weight)
        if kernel is None:
            return ""
        sizes = _window_geometry(node, extents, kernel)
        results = _window_positions(sizes)
        index = next((at for at, result in enumerate(results) if result < min_windows), None)
        if index is None:
            return ""
        return _window_size_problem(node, data, sizes, index, 2 if channels == "first" else 1)

    return cache_constraint(window_fit_problem, _window_cache_key)


def _window_cache_key(node: Node) -> Hashable:
    """Return a key made of all shapes and attributes of a node that decide whether its window
    fits.
    """
    return shapes_of_inputs(node), tuple(node.attrs.items())


def _kernel_extents(node: Node, weight: int | None) -> Shape | None:
    """Return the size of the window along each spatial axis: of the weight, or `kernel_shape`;
    None if unknown.
    """
    if weight is None:
        return integer_list_or_none(node, "kernel_shape")
    shape = input_shape(node, weight)
    return None if shape is None else shape[2:]


def _window_size_problem(
    node: Node, data: int, sizes: _Sizes, index: int, before: int
) -> OperandProblem:
    """Return the message that the window is longer than the padded data along the spatial axis
    `index`.
    """
    count = len(sizes.extents)
    padding = sizes.pads[index] + sizes.pads[index + count]
    reach = sizes.dilations[index] * (sizes.kernel[index] - 1) + 1
    has = f"{input_label(node, data)} has {sizes.extents[index]} at axis {index + before}"
    padded = f" and {padding} of padding" if padding else ""
    return f"{has}{padded}, but the window takes {reach}"


def _has_auto_pad(node: Node) -> bool:
    """Return whether the node computes its pads: whether auto_pad is not NOTSET."""
    return string_attribute(node, "auto_pad", "NOTSET") != "NOTSET"


def _spatial_attribute_problem(
    node: Node, data: int, weight: int | None, spatial_axes: int
) -> OperandProblem:
    """Return why the weight or an attribute of the window does not have one number per spatial
    axis; "" if nothing is wrong.
    """
    shape = None if weight is None else input_shape(node, weight)
    if weight is not None and shape is not None and len(shape) != spatial_axes + 2:
        has = f"{input_label(node, weight)} has rank {len(shape)}"
        return f"{has}, but {spatial_axes + 2} is needed for {input_label(node, data)}"
    for name, needed in (
        ("kernel_shape", spatial_axes), ("strides", spatial_axes), ("dilations", spatial_axes),
        ("pads", 2 * spatial_axes), ("output_padding", spatial_axes),
    ):  # fmt: skip
        value = node.attrs.get(name)
        if isinstance(value, tuple) and len(value) != needed:
            has = f"attribute {name!r} has {len(value)} sizes"
            return f"{has}, but {needed} are needed for {input_label(node, data)}"
        least = 0 if name in ("pads", "output_padding") else 1
        if isinstance(value, tuple) and any(isinstance(n, int) and n < least for n in value):
            return f"attribute {name!r} has {min(value)}, but at least {least} is needed"
    if weight is not None and "pads" in node.attrs and _has_auto_pad(node):
        return "attributes 'pads' and 'auto_pad' exclude each other"
    kernel = integer_list_or_none(node, "kernel_shape")
    if weight is not None and shape is not None and kernel is not None and kernel != shape[2:]:
        shown = "x".join(map(str, kernel))
        return f"{input_label(node, weight)} does not end in the kernel_shape {shown}"
    return ""


def _window_geometry(node: Node, extents: Shape, kernel: Shape) -> _Sizes:
    """Return the sizes of data and window of a node, with its strides, dilations and pads."""
    ones = (1,) * len(extents)
    pads = None if _has_auto_pad(node) else integer_list_or_none(node, "pads")
    return _Sizes(
        extents=extents,
        kernel=kernel,
        strides=integer_list_or_none(node, "strides") or ones,
        dilations=integer_list_or_none(node, "dilations") or ones,
        pads=pads or (0,) * (2 * len(extents)),
        ceiling=integer_attribute(node, "ceil_mode", 0) != 0,
        same=string_attribute(node, "auto_pad", "NOTSET").startswith("SAME"),
    )


@lru_cache(maxsize=4096)
def _window_positions(sizes: _Sizes) -> Shape:
    """Return the number of positions of the window along each spatial axis."""
    extents = []
    count = len(sizes.extents)
    for index, extent in enumerate(sizes.extents):
        stride = max(sizes.strides[index], 1)
        if sizes.same:
            extents.append(-(-extent // stride))
            continue
        reach = sizes.dilations[index] * (sizes.kernel[index] - 1) + 1
        left = extent + sizes.pads[index] + sizes.pads[index + count] - reach
        up = sizes.ceiling or left < 0  # runtimes divide towards zero
        extents.append((-(-left // stride) if up else left // stride) + 1)
    return tuple(extents)


def conv_output_extents(node: Node, data: int, weight: int) -> Shape | None:
    """Return the spatial sizes of a convolution's result; None if they are unknown."""
    shape, kernel = input_shape(node, data), input_shape(node, weight)
    if shape is None or kernel is None:
        return None
    return _window_positions(_window_geometry(node, shape[2:], kernel[2:]))


def conv_transpose_constraint(data: int = 0, weight: int = 1, padded: bool = True) -> Constraint:
    """Return a constraint which requires that the data and the weight [C, M/group, k...] of a
    transposed convolution fit.

    A window of the same strides must lead from the result, or the attribute `output_shape`, to the
    data: output_padding is smaller than a stride or a dilation. Unless it is `padded` by
    attributes, the result is unknown.
    """

    def conv_transpose_fit_problem(node: Node) -> OperandProblem:
        """Return why data and weight do not fit a transposed convolution; "" if nothing
        is wrong.
        """
        shape, kernel = input_shape_or_raise(node, data), input_shape_or_raise(node, weight)
        for index, dims in ((data, shape), (weight, kernel)):
            if len(dims) < 3:
                return f"{input_label(node, index)} has rank {len(dims)}, but needs at least 3"
        if wrong := _spatial_attribute_problem(node, data, weight, len(shape) - 2):
            return wrong
        if 0 in kernel[2:]:
            return (
                f"{input_label(node, weight)} is empty, but at least 1 is needed along each axis"
            )
        return (
            _conv_transpose_problem(node, data, _window_geometry(node, shape[2:], kernel[2:]))
            if padded
            else ""
        )

    return conv_transpose_fit_problem


def _conv_transpose_problem(node: Node, data: int, sizes: _Sizes) -> OperandProblem:
    """Return why the result of a transposed convolution would be empty along an axis; "" if
    nothing is wrong.
    """
    count = len(sizes.extents)
    more = integer_list_or_none(node, "output_padding") or (0,) * count
    extents = integer_list_or_none(node, "output_shape")
    for index, extent in enumerate(sizes.extents):
        stride = max(sizes.strides[index], 1)
        reach = sizes.dilations[index] * (sizes.kernel[index] - 1) + 1
        full = (extent - 1) * stride + more[index] + reach
        padding = sizes.pads[index] + sizes.pads[index + count]
        result = extent * stride if sizes.same else full - padding
        if extents is not None and len(extents) >= count:
            result = extents[len(extents) - count + index]
            padding = max(full - result, 0)
        has = f"{input_label(node, data)} has {extent} at axis {index + 2}"
        if result <= 0:
            return f"{has}, but of the {full} results {padding} are padding"
        if extents is None and stride <= more[index] < sizes.dilations[index]:
            continue  # as ONNX and PyTorch allow, though onnxruntime refuses it
        if not sizes.same and (result + padding - reach) // stride + 1 != extent:
            needed = (result + padding - reach) // stride + 1
            return f"{has}, but a result of {result} with a stride of {stride} needs {needed}"
    return ""


def non_empty_pooling_constraint(node: Node, data: int = 0) -> OperandProblem:
    """Return why the data of a pooling are empty along another axis than the batch; "" if nothing
    is wrong.
    """
    shape = input_shape(node, data) or ()
    if 0 not in shape[1:] or shape[0] == 0:
        return ""
    return (
        f"{input_label(node, data)} has 0 at axis {shape.index(0)}, and only axis 0 may be empty"
    )


def pooling_pads_constraint(node: Node) -> OperandProblem:
    """Return why a pad of a pooling is not smaller than its window; "" if nothing is wrong.

    A larger one would make a window that covers pads alone.
    """
    kernel, pads = integer_list_or_none(node, "kernel_shape"), integer_list_or_none(node, "pads")
    if kernel is None or pads is None or len(pads) != 2 * len(kernel):
        return ""
    if _has_auto_pad(node):
        return ""
    for index, pad in enumerate(pads):
        extent = kernel[index % len(kernel)]
        if pad >= extent:
            return f"attribute 'pads' has {pad}, but the window has {extent}"
    return ""


# Convolutions: a weight window slides over the data.


def _conv_macs_per_element(node: Node, index: int) -> int:
    """Return the number of MACs per element of a convolution: the size of the weight without its
    first axis.

    `kernel_shape` may be absent, so the weight's own dimensions are used.
    """
    return prod(spec_shape(input_spec(node, index), at_least=2)[1:])


CONV: tuple[Constraint, ...] = (
    sizes_constraint("g=@group:1 X[N,g*I,...] W[g*P,I,...] B[g*P]"),
    window_constraint(weight=1),
)


@operator(
    "Conv",
    "n(Y)*(C/group)*prod(k) MACs; B: n(Y) adds",
    requires=CONV,
    constant_part=constant_macs_unless_varying(0, 1),
    backward=product_backward(0, 1, bias=2),
)
def onnx_conv_cost(node: Node) -> Cost:
    """Return the cost of Conv: (C / group) * prod(k) MACs per element of Y, and an add for the
    bias B.

    X [N, C, d...], W [M, C/group, k...], B [M], Y [N, M, o...]. Padding zeros count (dense).
    https://onnx.ai/onnx/operators/onnx__Conv.html
    """
    return _convolution_cost(node, weight=1, bias=2)


def _convolution_cost(node: Node, weight: int, bias: int | None = None) -> Cost:
    """Return the cost of a convolution with these inputs as weight and bias: MACs, and an add per
    result for the bias.
    """
    out = output_element_count(node)
    adds = out if bias is not None and has_input(node, bias) else 0
    return Cost(macs=out * _conv_macs_per_element(node, weight), adds=adds)


@operator(
    "ConvTranspose",
    "n(X)*(M/group)*prod(k) MACs; B: n(Y) adds",
    requires=(
        sizes_constraint("g=@group:1 X[N,g*C,...] W[g*C,P,...] B[g*P]"),
        conv_transpose_constraint(),
    ),
    constant_part=constant_macs_unless_varying(0, 1),
    backward=product_backward(0, 1, bias=2),
)
def onnx_conv_transpose_cost(node: Node) -> Cost:
    """Return the cost of ConvTranspose: (M / group) * prod(k) MACs per element of X, and an add
    per element of Y for the bias B.

    X [N, C, d...], W [C, M/group, k...], B [M], Y [N, M, o...]. Every input element meets its
    whole window, whatever strides and pads are: what pads crop away is computed (dense).
    https://onnx.ai/onnx/operators/onnx__ConvTranspose.html
    """
    adds = output_element_count(node) if has_input(node, 2) else 0
    return Cost(macs=input_element_count(node, 0) * _conv_macs_per_element(node, 1), adds=adds)


@operator(
    "ConvInteger",
    "n(y)*(C/group)*prod(k) MACs; zero points: n(x)+n(w) adds",
    since=10,
    requires=(
        sizes_constraint(
            "g=@group:1 x[N,g*I,...] w[g*P,I,...] x_zero_point?[1] w_zero_point?[g*P]"
        ),
        window_constraint(weight=1),
    ),
    backward=no_gradient,
)
def conv_integer_cost(node: Node) -> Cost:
    """Return the cost of ConvInteger: as Conv, with an add per element of x and of w for each zero
    point.

    x [N, C, d...], w [M, C/group, k...], y [N, M, o...].
    https://onnx.ai/onnx/operators/onnx__ConvInteger.html
    """
    shifted = sum(input_element_count(node, i) for i in (0, 1) if has_input(node, i + 2))
    return _convolution_cost(node, weight=1) + Cost(adds=shifted)


QLINEAR_CONV: tuple[Constraint, ...] = (
    sizes_constraint(
        "g=@group:1 x[N,g*I,...] x_scale?[1] x_zero_point?[1] w[g*P,I,...] w_scale?[g*P] "
        "w_zero_point?[g*P] y_scale?[1] y_zero_point?[1] B[g*P]"
    ),
    window_constraint(weight=3),
)


@operator(
    "QLinearConv",
    "n(y)*(C/group)*prod(k) MACs; B: n(y) adds; zero points: n(x)+n(w) adds; "
    "requantize: n(y)*(mul, round, add, 2 compares)",
    since=10,
    requires=QLINEAR_CONV,
    contracts=(0, 3),
    backward=QUANTIZED,
)
def qlinear_conv_cost(node: Node) -> Cost:
    """Return the cost of QLinearConv: as Conv, with an add per element for each zero point, and
    requantized results.

    Then each output is requantized: one mul by the combined scale, round, add, two compares.
    https://onnx.ai/onnx/operators/onnx__QLinearConv.html
    """
    shifted = Cost(adds=input_element_count(node, 0) + input_element_count(node, 3))
    return (
        _convolution_cost(node, weight=3, bias=8)
        + shifted
        + requantization_cost(output_element_count(node))
    )


def _offsets_constraint(node: Node) -> OperandProblem:
    """Return why offsets and mask do not fit a deformable convolution; "" if nothing is wrong.

    Checks offsets [N, G*prod(k)*d, o...] and a mask [N, G*prod(k), o...], with G offset groups.
    """
    weight, groups = input_shape(node, 1), integer_attribute(node, "offset_group", 1)
    extents = conv_output_extents(node, 0, 1)
    if weight is None or extents is None:
        return ""
    indices = groups * prod(weight[2:])
    for index, channels in ((2, indices * (len(weight) - 2)), (4, indices)):
        shape = input_shape(node, index)
        if shape is not None and shape[1:] != (channels, *extents):
            needed = "x".join(map(str, (channels, *extents)))
            return f"{input_label(node, index)} needs {needed} after its first axis"
    return ""


class _Sampling(NamedTuple):
    """The samples of a deformable convolution, and their cost.

    There are `samples` in all channels, each between 2^d `taps`; the work is that of the corner
    weights, the samples, and the products with a mask.
    """

    samples: int
    dims: int
    corners: Cost
    taken: Cost
    masked: Cost


def _deform_conv_sampling(node: Node) -> _Sampling:
    """Return the number of samples of a deformable convolution, and what their bilinear sampling
    costs.
    """
    out_shape, channels = (
        spec_shape(output_spec(node), at_least=3),
        spec_shape(input_spec(node, 0), at_least=3)[1],
    )
    dims = len(out_shape) - 2
    indices = (
        out_shape[0] * prod(out_shape[2:]) * prod(spec_shape(input_spec(node, 1), at_least=3)[2:])
    )
    groups = input_element_count(node, 2) // (indices * dims) if indices else 0
    samples = channels * indices
    return _Sampling(
        samples,
        dims,
        corners=Cost(adds=3 * dims, specials=dims, muls=2**dims * (dims - 1)) * (groups * indices),
        taken=Cost(muls=2**dims, adds=2**dims - 1) * samples,
        masked=Cost(muls=samples if has_input(node, 4) else 0),
    )


def _deform_conv_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradients of a deformable convolution, for each requested operand.

    dW = dY samples^T, and d(samples) = W^T dY once for X, offset and mask: MACs again for each.

    X: each sample's gradient, times mask and corner weight, is added to its 2^d neighbours.
    offset: as the grid of GridSample. mask: times the sample, summed over channels. Samples and
    corner weights are recomputed where they are needed
    (torchvision/csrc/ops/cpu/deform_conv2d_kernel.cpp).
    """
    sampling = _deform_conv_sampling(node)
    samples, dims, taps = sampling.samples, sampling.dims, 2**sampling.dims
    indices = input_element_count(node, 2) // dims
    work = {
        0: Cost(muls=taps, adds=taps) * samples,
        1: Cost(macs=forward.macs),
        2: Cost(muls=dims, adds=1) * (taps * dims * samples),
        3: broadcast_sum_cost(node, 3) if 3 in requested else ZERO,
        4: Cost(muls=samples, adds=reduction_operation_count(samples, indices)),
    }
    inner = Cost(macs=forward.macs) if requested & {0, 2, 4} else ZERO
    again = sampling.corners if requested - {3} else ZERO
    if requested & {1, 4}:
        again += sampling.taken
    if 1 in requested:
        again += sampling.masked
    if requested & {0, 2}:
        inner += sampling.masked
    return Gradient({index: work[index] for index in requested}, inner=inner, recomputed=again)


@operator(
    "DeformConv",
    "n(Y)*(C/group)*prod(k) MACs; B: n(Y) adds; sampling: C*P*(2^d muls, 2^d-1 adds) + "
    "G*P*(3d adds, d floors, 2^d*(d-1) muls); mask: C*P muls; P = N*prod(o)*prod(k)",
    doubt=estimate_exactness,
    since=19,
    requires=(
        sizes_constraint(
            "g=@group:1 X[N,g*I,...] W[g*P,I,...] offset[N,_,...] B[g*P] mask[N,_,...]"
        ),
        window_constraint(weight=1),
        _offsets_constraint,
    ),
    backward=_deform_conv_backward,
)
def deform_conv_cost(node: Node) -> Cost:
    """Return the estimated cost of DeformConv: as Conv, and the bilinear sampling of its input at
    offset positions.

    P = N * prod(o) * prod(k) places, d spatial dims, G offset groups. Each of C*P samples takes
    2^d muls and 2^d - 1 adds; each of G*P places 3d adds, d floors and 2^d * (d - 1) muls for
    its corner weights; a mask C*P muls. X [N, C, i...],
    W [M, C/group, k...], Y [N, M, o...]. Its arithmetic may be arranged otherwise: an estimate.
    https://onnx.ai/onnx/operators/onnx__DeformConv.html
    """
    sampling = _deform_conv_sampling(node)
    sampled = sampling.corners + sampling.taken + sampling.masked
    return _convolution_cost(node, weight=1, bias=3) + sampled


def _conv_state_constraint(node: Node) -> OperandProblem:
    """Return why the past state does not fit a causal convolution; "" if nothing is wrong.

    Checks that the state has the k - 1 elements that the window reaches back to: past_state [B, C,
    k - 1].
    """
    weight, state = input_shape_or_raise(node, 1), input_shape_or_raise(node, 3)
    if state[-1] == weight[-1] - 1:
        return ""
    return f"{input_label(node, 3)} has {state[-1]} at axis 2, but {weight[-1] - 1} is needed"


def _causal_conv_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradients of a causal convolution: input and past state are one
    operand, and SiLU is as Swish.
    """
    indices = requested - ({3} if 0 in requested else set())
    products = dict.fromkeys(indices & {0, 1, 3}, Cost(macs=forward.macs))
    added = {2: broadcast_sum_cost(node, 2)} if 2 in requested else {}
    gated = string_attribute(node, "activation", "none") != "none"
    return Gradient(
        products | added, inner=SWISH_BACK * output_element_count(node) if gated else ZERO
    )


@operator(
    "CausalConvWithState",
    "n(output)*k MACs; bias: n adds; activation: n*(sigmoid, mul)",
    since=27,
    requires=(
        sizes_constraint("input[B,C,L] weight[C,1,k] bias[C] past_state[B,C,_]"),
        _conv_state_constraint,
    ),
    backward=_causal_conv_backward,
)
def causal_conv_cost(node: Node) -> Cost:
    """Return the cost of CausalConvWithState: k MACs per element of the result, an add for the
    bias, and SiLU on request.

    input [B, C, L], weight [C, 1, k], output [B, C, L].
    https://onnx.ai/onnx/operators/onnx__CausalConvWithState.html
    """
    out = output_element_count(node)
    gate = (
        Cost(specials=out, muls=out)
        if string_attribute(node, "activation", "none") != "none"
        else Cost()
    )
    return _convolution_cost(node, weight=1, bias=2) + gate


POOL: tuple[Constraint, ...] = (window_constraint(min_windows=0), pooling_pads_constraint)


# Pooling: a window, or everything, becomes one element.


@operator(
    "MaxPool",
    "n(Y)*(prod(k)-1) compares",
    requires=POOL,
    keeps=True,
    backward=scatter_add_backward,
)
def max_pool_cost(node: Node) -> Cost:
    """Return the cost of MaxPool: prod(kernel_shape) - 1 compares per element of Y, pads included.

    https://onnx.ai/onnx/operators/onnx__MaxPool.html
    """
    return Cost(compares=kernel_window_size(node) - 1) * output_element_count(node)


def _average_pool_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradient of average pooling.

    dY / prod(k), added to every element of its window: n(Y) divs, n(Y) * prod(k) adds.
    """
    work = Cost(divs=1, adds=kernel_window_size(node)) * output_element_count(node)
    return Gradient(dict.fromkeys(requested, work))


def _global_average_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradient of a global mean, dY / n for every element: a div per
    element of Y.
    """
    return Gradient(dict.fromkeys(requested, Cost(divs=output_element_count(node))))


@operator(
    "AveragePool",
    "n(Y)*(prod(k)-1) adds, n(Y) divs",
    requires=POOL,
    backward=_average_pool_backward,
)
def average_pool_cost(node: Node) -> Cost:
    """Return the cost of AveragePool: prod(kernel_shape) - 1 adds and a div per element of Y, pads
    included.

    https://onnx.ai/onnx/operators/onnx__AveragePool.html
    """
    return Cost(adds=kernel_window_size(node) - 1, divs=1) * output_element_count(node)


_NORM = "p=1: compares, p=2: muls and a sqrt, else compares, pows and a root"


def _p_norm_gradient_cost(node: Node, before: int) -> Cost:
    """Return the cost of dX = dY sign(X) |X|^(p-1) / Y^(p-1), where `before` elements are in the
    windows.

    p = 1: a sign (2 compares) and a mul; p = 2: dY / Y once for each result, and a mul by X;
    otherwise a power and a div for each result, and for each position a sign, |x|, a power and 2
    muls.
    """
    power, after = float_attribute(node, "p", 2), output_element_count(node)
    if power == 1:
        return Cost(compares=2, muls=1) * before
    if power == 2:
        return Cost(muls=before, divs=after)
    return Cost(compares=3, specials=1, muls=2) * before + Cost(specials=1, divs=1) * after


def _lp_pool_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of LpPool, with an add for each element of each window."""
    indices = output_element_count(node) * kernel_window_size(node)
    return _p_norm_gradient_cost(node, indices) + Cost(adds=indices)


@operator(
    "LpPool",
    f"n(Y)*(prod(k)-1) adds; powers of n(Y)*prod(k): {_NORM}",
    requires=POOL,
    backward=first_operand_backward(_lp_pool_gradient_cost),
)
def lp_pool_cost(node: Node) -> Cost:
    """Return the cost of LpPool, (sum |x|^p)^(1/p) over each window of prod(k) elements.

    n(Y) * (prod(k) powers, prod(k) - 1 adds, one root); see `_p_norm_cost`.
    https://onnx.ai/onnx/operators/onnx__LpPool.html
    """
    out = output_element_count(node)
    return _p_norm_cost(node, out * kernel_window_size(node), out)


_WHOLE: tuple[Constraint, ...] = (
    rank_constraint(0, 3, or_higher=True),
    non_empty_pooling_constraint,
)


@operator("GlobalMaxPool", "n(X)-n(Y) compares", requires=_WHOLE, backward=scatter_add_backward)
def global_max_pool_cost(node: Node) -> Cost:
    """Return the cost of GlobalMaxPool: n(X) - n(Y) compares, with n the number of elements.

    https://onnx.ai/onnx/operators/onnx__GlobalMaxPool.html
    """
    return Cost(
        compares=reduction_operation_count(input_element_count(node), output_element_count(node))
    )


@operator(
    "GlobalAveragePool",
    "n(X)-n(Y) adds, n(Y) divs",
    requires=_WHOLE,
    backward=_global_average_backward,
)
def global_average_pool_cost(node: Node) -> Cost:
    """Return the cost of GlobalAveragePool: n(X) - n(Y) adds and n(Y) divs, with n the number of
    elements.

    https://onnx.ai/onnx/operators/onnx__GlobalAveragePool.html
    """
    return Cost(
        adds=reduction_operation_count(input_element_count(node), output_element_count(node)),
        divs=output_element_count(node),
    )


@operator(
    "GlobalLpPool",
    f"n(X)-n(Y) adds; powers of n(X): {_NORM}",
    requires=_WHOLE,
    backward=first_operand_backward(
        lambda node: _p_norm_gradient_cost(node, input_element_count(node))
    ),
)
def global_lp_pool_cost(node: Node) -> Cost:
    """Return the cost of GlobalLpPool, (sum |x|^p)^(1/p) over all positions of a channel.

    https://onnx.ai/onnx/operators/onnx__GlobalLpPool.html
    """
    return _p_norm_cost(node, input_element_count(node), output_element_count(node))


def _p_norm_cost(node: Node, before: int, after: int) -> Cost:
    """Return the cost of p-norms that combine `before` elements to `after` results: |x|^p (p = 1 a
    compare, p = 2 a mul), adds, a root.

    The p-th root is a special, and nothing for p = 1.
    """
    adds = Cost(adds=reduction_operation_count(before, after))
    power = float_attribute(node, "p", 2)
    if power == 1:
        return adds + Cost(compares=before)
    if power == 2:
        return adds + Cost(muls=before, specials=after)
    return adds + Cost(compares=before, specials=before + after)
