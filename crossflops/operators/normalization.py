"""The cost of normalizations (statistics over groups of elements, then scale and shift) and of
Softmax.
"""

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    axis_attribute_index,
    float_attribute,
    has_input,
    input_element_count,
    input_spec,
    integer_attribute,
    reduction_operation_count,
    spec_shape,
)
from crossflops.operators.access import has_output as wanted_output
from crossflops.operators.gradient import (
    Backward,
    Gradient,
    OperandPositions,
    first_operand_backward,
    no_gradient,
)
from crossflops.operators.operands import (
    Shape,
    axes_constraint,
    axis_constraint,
    can_broadcast_to,
    input_label,
    input_shape,
    input_shape_or_raise,
    sizes_constraint,
)
from crossflops.operators.rule import ADDED, EXTINCT, OperandProblem, Operators

operator = Operators()


class GroupSizes(NamedTuple):
    """The number of elements that are normalized, and of the groups that they are in."""

    elements: int
    groups: int


# Gradients of normalizations of n elements in m groups, y = x^ * scale + bias, x^ = (x - mean) r.
#
# With g = dY * scale: dX = r (g - mean(g) - x^ mean(g x^)). x^ is computed again (n subs, n muls):
# the statistics are kept, the normalized values are not (aten/native/layer_norm.cpp,
# batch_norm.cpp). Without a mean, as of RMS, its terms fall away. dscale = sum(dY x^),
# dbias = sum(dY).


def normalization_gradient(
    node: Node, requested: OperandPositions, count: int, groups: int, *, centred: bool = True
) -> Gradient:
    """Return the cost of the gradients of a normalization, for those requested of x (0), the scale
    (1) and the bias (2).

    x: g n muls; g x^ n muls; n - m adds and m divs for each of the two means; x^ mean, n muls; n
    subs for each; by r, n muls. scale: n muls, n - n(scale) adds. bias: n - n(bias) adds. x^, once
    where x or scale requires a gradient: n muls, n subs.
    """
    means = 2 if centred else 1
    work: dict[int, Cost] = {}
    if 0 in requested:
        combined = means * reduction_operation_count(count, groups)
        work[0] = Cost(
            muls=(4 if has_input(node, 1) else 3) * count,
            adds=combined + means * count,
            divs=means * groups,
        )
    if 1 in requested:
        work[1] = Cost(
            muls=count, adds=reduction_operation_count(count, input_element_count(node, 1))
        )
    if 2 in requested:
        work[2] = Cost(adds=reduction_operation_count(count, input_element_count(node, 2)))
    again = Cost(muls=count, adds=count if centred else 0)
    return Gradient(work, recomputed=again if {0, 1} & requested else ZERO)


def _batch_norm_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradients of batch normalization, for each requested operand.

    In training as `normalization_gradient` with a channel as a group, otherwise
    dX = dY * (scale * r).

    In inference that is n muls, and C (add, sqrt, div, mul); the statistics are constants.
    """
    count, channels = input_element_count(node), input_spec(node, 1).numel
    gradient = normalization_gradient(node, requested, count, channels)
    if integer_attribute(node, "training_mode", 0) or (
        node.op.since < 14 and wanted_output(node, 1)
    ):
        return gradient
    work = {index: cost for index, cost in gradient.operands.items() if index in (0, 1, 2)}
    if 0 in requested:
        factor = Cost(adds=1, specials=1, divs=1, muls=1) * channels
        work[0] = Cost(muls=count) + factor
    return Gradient(work, recomputed=Cost(muls=count, adds=count) if 1 in requested else ZERO)


def _last_axes_norm_backward(centred: bool) -> Backward:
    """Return the backward function of a normalization over the last axes, with or without
    subtraction of the mean.
    """

    def gradient_of_last_axes_norm(
        node: Node, requested: OperandPositions, _forward: Cost
    ) -> Gradient:
        """Return the cost of the gradients of a normalization over the last axes, for each
        requested operand.
        """
        return normalization_gradient(node, requested, *_last_axes_groups(node), centred=centred)

    return gradient_of_last_axes_norm


def _group_norm_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradients of a group normalization, for each requested operand."""
    dims = spec_shape(input_spec(node, 0), at_least=2)
    return normalization_gradient(
        node, requested, prod(dims), dims[0] * integer_attribute(node, "num_groups")
    )


def _instance_norm_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradients of an instance normalization, for each requested
    operand.
    """
    dims = spec_shape(input_spec(node, 0), at_least=2)
    return normalization_gradient(node, requested, prod(dims), dims[0] * dims[1])


_CHANNELS = sizes_constraint("X[N,C,...] scale[C] B[C] mean[C] var[C]")


def batch_norm_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the operands, or "" if nothing is: a number per channel, or per
    element with spatial = 0.
    """
    return _CHANNELS(node) if integer_attribute(node, "spatial", 1) else ""


@operator(
    "BatchNormalization",
    "n(X)*(sub, 2 muls, add) + C*(add, sqrt, div); training: + 2(n-C) adds, n muls, 2C divs; "
    "running statistics: C*(4 muls, 2 adds), 0 at momentum 1",
    requires=batch_norm_constraint,
    backward=_batch_norm_backward,
)
def batch_normalization_cost(node: Node) -> Cost:
    """Return the cost of BatchNormalization, (X - mean) / sqrt(var + epsilon) * scale + B; in
    training with its statistics.

    n(X) (sub, mul, mul, add); C (add, sqrt, div). In training, mean and variance of the batch
    come before: 2 (n - C) adds, n muls, 2C divs, and the running ones after: 4C muls, 2C adds.
    Training is training_mode = 1 (since 14), or further outputs (before). Running statistics
    with a momentum of 1 stay as they are, at no cost.
    https://onnx.ai/onnx/operators/onnx__BatchNormalization.html
    """
    count, channels = input_element_count(node), input_spec(node, 1).numel
    cost = Cost(adds=2, muls=2) * count + Cost(adds=1, specials=1, divs=1) * channels
    if integer_attribute(node, "training_mode", 0) or (
        node.op.since < 14 and wanted_output(node, 1)
    ):
        cost += Cost(
            adds=2 * reduction_operation_count(count, channels), muls=count, divs=2 * channels
        )
        if float_attribute(node, "momentum", 0.9) != 1:
            cost += Cost(muls=4, adds=2) * channels
    return cost


def standardization_cost(count: int, groups: int) -> Cost:
    """Return the cost of giving `count` elements in `groups` groups mean 0 and variance 1.

    mean: n - m adds, m divs; n subs; squares: n muls; variance: n - m adds, m divs; m (add
    epsilon, sqrt, reciprocal); n muls. From the equations of LayerNormalization.
    """
    combined = reduction_operation_count(count, groups)
    return Cost(
        adds=2 * combined + count + groups, muls=2 * count, divs=3 * groups, specials=groups
    )


def rms_norm_cost(count: int, groups: int, scaled: bool) -> Cost:
    """Return the cost of RMSNormalization of n elements in m groups: n muls, n - m adds, m divs, m
    (add, sqrt), and n divs.

    Then n divs, and n muls by a scale.
    """
    return Cost(
        adds=reduction_operation_count(count, groups) + groups,
        muls=count * (2 if scaled else 1),
        divs=groups + count,
        specials=groups,
    )


def norm_scale_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with scale or bias, or "" if nothing is: each must broadcast to the
    shape of X.
    """
    dims, normalized = input_shape(node, 0), _norm_axes_shape(node)
    if dims is None or normalized is None:
        return ""
    for index in (1, 2):
        factor = input_shape(node, index)
        if factor is not None and not can_broadcast_to(factor, dims):
            shown = "x".join(map(str, normalized)) or "a scalar"
            return f"{input_label(node, index)} does not broadcast to the normalized {shown}"
    return ""


def _norm_axes_shape(node: Node) -> Shape | None:
    """Return the sizes of the axes that are normalized, from `axis` on; None if unknown."""
    dims = input_shape(node, 0)
    return None if dims is None else dims[axis_attribute_index(node, len(dims), -1) :]


RMS = "n muls, n-m adds, m divs, m*(add, sqrt), n divs; scale: n muls"
STANDARD = "n-m adds, m divs, n subs, n muls, n-m adds, m divs, m*(add, sqrt, div), n muls"


@operator(
    "LayerNormalization",
    f"{STANDARD}; Scale: n muls; B: n adds; m = dims before axis",
    since=17,
    requires=(axis_constraint(default=-1), norm_scale_constraint),
    backward=_last_axes_norm_backward(centred=True),
)
@operator(
    "LayerNormalization",
    f"{STANDARD}; scale: n muls; B: n adds; m = dims before axis",
    page=ADDED,
    requires=norm_scale_constraint,
    backward=_last_axes_norm_backward(centred=True),
)
def layer_normalization_cost(node: Node) -> Cost:
    """Return the cost of LayerNormalization over the axes from `axis` on, with a mul for the scale
    and an add for the bias.

    X [d0 ... d(axis-1), d(axis) ...]: m = d0 * ... * d(axis-1) groups.
    https://onnx.ai/onnx/operators/onnx__LayerNormalization.html
    """
    count, groups = _last_axes_groups(node)
    bias = count if has_input(node, 2) else 0
    return standardization_cost(count, groups) + Cost(muls=count, adds=bias)


@operator(
    "RMSNormalization",
    f"{RMS}; m = dims before axis",
    since=23,
    requires=(axis_constraint(default=-1), norm_scale_constraint),
    backward=_last_axes_norm_backward(centred=False),
)
@operator(
    "SimplifiedLayerNormalization",
    f"{RMS}; m = dims before axis",
    page=ADDED,
    requires=norm_scale_constraint,
    backward=_last_axes_norm_backward(centred=False),
)
def onnx_rms_normalization_cost(node: Node) -> Cost:
    """Return the cost of RMSNormalization, X / sqrt(mean(X * X) + epsilon) * scale, over the axes
    from `axis` on.

    n muls, n - m adds, m divs; m (add, sqrt); n divs; n muls.
    https://onnx.ai/onnx/operators/onnx__RMSNormalization.html
    """
    return rms_norm_cost(*_last_axes_groups(node), scaled=True)


def _last_axes_groups(node: Node) -> GroupSizes:
    """Return (number of elements, number of groups) of a normalization over the axes from `axis`
    on.
    """
    dims = spec_shape(input_spec(node, 0))
    return GroupSizes(prod(dims), prod(dims[: axis_attribute_index(node, len(dims), -1)]))


def _group_norm_constraint(node: Node) -> OperandProblem:
    """Return why groups, scale or bias do not fit the channels; "" if nothing is wrong.

    Checks that num_groups divides the channels, and that scale and bias have one number for each
    group or channel.
    """
    dims, groups = input_shape_or_raise(node, 0), integer_attribute(node, "num_groups")
    if len(dims) < 2:
        return f"{input_label(node, 0)} has rank {len(dims)}, but needs at least 2"
    if groups > 0 and dims[1] % groups:
        return (
            f"{input_label(node, 0)} has {dims[1]} channels, "
            f"which do not divide into {groups} groups"
        )
    needed = (groups if node.op.since < 21 else dims[1],)
    for index in (1, 2):
        factor = input_shape(node, index)
        if factor is not None and factor != needed:
            return (
                f"{input_label(node, index)} needs {needed[0]} numbers for {input_label(node, 0)}"
            )
    return ""


@operator(
    "GroupNormalization",
    f"{STANDARD}; scale: n muls; bias: n adds; m = N*num_groups",
    since=18,
    requires=_group_norm_constraint,
    backward=_group_norm_backward,
)
def group_normalization_cost(node: Node) -> Cost:
    """Return the cost of GroupNormalization: each of N * num_groups groups normalized, then a mul
    and an add per element.

    X [N, C, d...].
    https://onnx.ai/onnx/operators/onnx__GroupNormalization.html
    """
    dims = spec_shape(input_spec(node, 0), at_least=2)
    groups = dims[0] * integer_attribute(node, "num_groups")
    return standardization_cost(prod(dims), groups) + Cost(muls=1, adds=1) * prod(dims)


@operator(
    "InstanceNormalization",
    f"{STANDARD}; scale: n muls; B: n adds; m = N*C",
    requires=sizes_constraint("input[N,C,_,...] scale[C] B[C]"),
    backward=_instance_norm_backward,
)
def instance_normalization_cost(node: Node) -> Cost:
    """Return the cost of InstanceNormalization: each of N * C groups normalized, then a mul and an
    add per element.

    input [N, C, d...].
    https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html
    """
    dims = spec_shape(input_spec(node, 0), at_least=2)
    return standardization_cost(prod(dims), dims[0] * dims[1]) + Cost(muls=1, adds=1) * prod(dims)


_MEAN_VARIANCE = "2(n-m) adds, 2m divs, n+m squares, m*(sub, sqrt, add), n*(sub, div)"


def _mean_variance_groups(node: Node) -> GroupSizes:
    """Return (number of elements, number of groups) of MeanVarianceNormalization."""
    dims = spec_shape(input_spec(node, 0))
    axes = node.attrs.get("axes", (0, 2, 3))
    if not isinstance(axes, tuple) or not all(isinstance(axis, int) for axis in axes):
        raise ValueError("the axes of MeanVarianceNormalization are not integers")
    reduced = {int(axis) % len(dims) for axis in axes} if dims else set()
    groups = prod(dim for axis, dim in enumerate(dims) if axis not in reduced)
    return GroupSizes(prod(dims), groups)


def _mean_variance_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradient of MeanVarianceNormalization."""
    return normalization_gradient(node, requested, *_mean_variance_groups(node))


@operator(
    "MeanVarianceNormalization", _MEAN_VARIANCE, page=EXTINCT, backward=_mean_variance_backward
)
@operator(
    "MeanVarianceNormalization",
    _MEAN_VARIANCE,
    since=9,
    requires=axes_constraint(),
    backward=_mean_variance_backward,
)
def mean_variance_normalization_cost(node: Node) -> Cost:
    """Return the cost of MeanVarianceNormalization, (X - E[X]) / (sqrt(E[X^2] - E[X]^2) + 1e-9)
    over `axes`.

    2 (n - m) adds, 2m divs; n + m squares (pow); m (sub, sqrt, add); n (sub, div).
    https://onnx.ai/onnx/operators/onnx__MeanVarianceNormalization.html
    """
    count, groups = _mean_variance_groups(node)
    return Cost(
        adds=2 * reduction_operation_count(count, groups) + 2 * groups + count,
        divs=2 * groups + count,
        specials=count + 2 * groups,
    )


def _lrn_size_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with LRN, or "" if nothing is: `size` is odd, so that both sides have
    as many channels.
    """
    width = integer_attribute(node, "size")
    return "" if width > 0 and width % 2 else f"attribute 'size' is {width}, but needs to be odd"


def _lrn_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of LRN: dX = dY S^-beta - (2 alpha beta / size) X sum(dY Y /
    S) over the window.

    S = bias + alpha / size * square_sum is stored (caffe/src/caffe/layers/lrn_layer.cpp). For each
    element dY Y / S: mul, div; size - 1 adds; 2 muls; pow, mul; sub.
    """
    window = integer_attribute(node, "size")
    return Cost(muls=4, divs=1, adds=max(window - 1, 0) + 1, specials=1) * input_element_count(
        node
    )


@operator(
    "LRN",
    "n*(2 muls, size adds, pow, div)",
    requires=(sizes_constraint("X[N,C,H,W]"), _lrn_size_constraint),
    backward=first_operand_backward(_lrn_gradient_cost),
)
def lrn_cost(node: Node) -> Cost:
    """Return the cost of LRN, X / (bias + alpha / size * square_sum) ^ beta over `size` channels
    around each element.

    n squares (mul), n (size - 1) adds (channels beyond the edge count as zeros), n (mul, add,
    pow, div). X [N, C, d...].
    https://onnx.ai/onnx/operators/onnx__LRN.html
    """
    window = integer_attribute(node, "size")
    return Cost(muls=2, adds=max(window - 1, 0) + 1, specials=1, divs=1) * input_element_count(
        node
    )


def _lp_norm_groups(node: Node) -> GroupSizes:
    """Return (number of elements, number of groups) of LpNormalization along `axis`."""
    dims = spec_shape(input_spec(node, 0), at_least=1)
    axis = axis_attribute_index(node, len(dims), -1) % len(dims)
    return GroupSizes(prod(dims), prod(dims[:axis]) * prod(dims[axis + 1 :]))


def _lp_normalization_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of LpNormalization: dX = (dY - Y sum(Y dY)) / norm.

    p = 1: sign(X), 2 compares, for the second Y.
    """
    count, groups = _lp_norm_groups(node)
    signs = 2 * count if integer_attribute(node, "p", 2) == 1 else 0
    return Cost(
        muls=2 * count,
        adds=count + reduction_operation_count(count, groups),
        divs=count,
        compares=signs,
    )


@operator(
    "LpNormalization",
    "n-m adds, n divs; p=1: n compares; p=2: n muls, m sqrts; m groups along axis",
    requires=axis_constraint(default=-1),
    backward=first_operand_backward(_lp_normalization_gradient_cost),
)
def lp_normalization_cost(node: Node) -> Cost:
    """Return the cost of LpNormalization along `axis`: X divided by the sum of |X| (p = 1) or the
    root of squares (p = 2).

    n compares (p = 1) or n muls and m roots (p = 2); n - m adds; n divs.
    https://onnx.ai/onnx/operators/onnx__LpNormalization.html
    """
    count, groups = _lp_norm_groups(node)
    both = Cost(adds=reduction_operation_count(count, groups), divs=count)
    if integer_attribute(node, "p", 2) == 1:
        return both + Cost(compares=count)
    return both + Cost(muls=count, specials=groups)


# Softmax and its kin: every element against its group.


def softmax_cost(count: int, groups: int) -> Cost:
    """Return the cost of a softmax of `count` elements in `groups` groups: largest, sub, exp, sum,
    div.

    The largest and the sum take one operation fewer than a group has elements.
    """
    combined = reduction_operation_count(count, groups)
    return Cost(compares=combined, adds=count + combined, specials=count, divs=count)


def log_softmax_cost(count: int, groups: int) -> Cost:
    """Return the cost of LogSoftmax of `count` elements in `groups` groups: largest, sub, exp,
    sum, a log per group, sub.
    """
    combined = reduction_operation_count(count, groups)
    return Cost(compares=combined, adds=2 * count + combined, specials=count + groups)


def _softmax_groups(node: Node) -> GroupSizes:
    """Return (number of elements, number of groups) of a softmax along the attribute
    `axis` alone.
    """
    dims = spec_shape(input_spec(node, 0))
    axis = axis_attribute_index(node, len(dims), -1)
    if axis == len(dims):
        raise ValueError(f"axis {axis} of {node.op} is out of range for rank {len(dims)}")
    return GroupSizes(prod(dims), prod(dims[:axis]) * prod(dims[axis + 1 :]))


def _flat_softmax_groups(node: Node) -> GroupSizes:
    """Return (number of elements, number of groups) of a softmax over all axes from `axis` on."""
    dims = spec_shape(input_spec(node, 0))
    return GroupSizes(prod(dims), prod(dims[: axis_attribute_index(node, len(dims), 1)]))


def softmax_gradient_cost(count: int, groups: int) -> Cost:
    """Return the cost of the gradient of a softmax, dX = Y (dY - sum(Y dY)), for n elements in m
    groups: 2n muls, 2n - m adds.
    """
    return Cost(muls=2 * count, adds=count + reduction_operation_count(count, groups))


def log_softmax_gradient_cost(count: int, groups: int) -> Cost:
    """Return the cost of the gradient of LogSoftmax, dX = dY - exp(Y) sum(dY): n exps, n muls, 2n
    - m adds.
    """
    return Cost(muls=count, specials=count, adds=count + reduction_operation_count(count, groups))


def _group_work_backward(
    work: Callable[[int, int], Cost], groups: Callable[[Node], GroupSizes]
) -> Backward:
    """Return a backward function that costs `work(elements, groups)`, by the numbers that
    `groups(node)` gives.
    """

    def gradient_per_group_work(
        node: Node, requested: OperandPositions, _forward: Cost
    ) -> Gradient:
        """Return the cost `work(elements, groups)` for each requested operand."""
        return Gradient({index: work(*groups(node)) for index in requested})

    return gradient_per_group_work


_SOFTMAX = "n-m compares, n subs, n exps, n-m adds, n divs; m groups"
_LOG_SOFTMAX = "n-m compares, n subs, n exps, n-m adds, m logs, n subs; m groups"


@operator(
    "Softmax",
    _SOFTMAX + " along axis",
    since=13,
    requires=axis_constraint(default=-1),
    backward=_group_work_backward(softmax_gradient_cost, _softmax_groups),
)
def onnx_softmax_cost(node: Node) -> Cost:
    """Return the cost of Softmax since version 13, exp(X - max(X)) / sum(exp(X - max(X))) along
    `axis`.

    n elements in m groups: n - m compares, n subs, n exps, n - m adds, n divs.
    https://onnx.ai/onnx/operators/onnx__Softmax.html#softmax-13
    """
    return softmax_cost(*_softmax_groups(node))


@operator(
    "Softmax",
    _SOFTMAX + " = rows of the flattened input",
    requires=axis_constraint(default=1),
    backward=_group_work_backward(softmax_gradient_cost, _flat_softmax_groups),
)
def flat_softmax_cost(node: Node) -> Cost:
    """Return the cost of Softmax before version 13, over all axes from `axis` on.

    https://onnx.ai/onnx/operators/onnx__Softmax.html#softmax-11
    """
    return softmax_cost(*_flat_softmax_groups(node))


@operator(
    "LogSoftmax",
    _LOG_SOFTMAX + " along axis",
    since=13,
    requires=axis_constraint(default=-1),
    backward=_group_work_backward(log_softmax_gradient_cost, _softmax_groups),
)
def onnx_log_softmax_cost(node: Node) -> Cost:
    """Return the cost of LogSoftmax since version 13, X - max(X) - log(sum(exp(X - max(X)))) along
    `axis`.

    n elements in m groups: n - m compares, n subs, n exps, n - m adds, m logs, n subs.
    https://onnx.ai/onnx/operators/onnx__LogSoftmax.html#logsoftmax-13
    """
    return log_softmax_cost(*_softmax_groups(node))


@operator(
    "LogSoftmax",
    _LOG_SOFTMAX + " = rows of the flattened input",
    requires=axis_constraint(default=1),
    backward=_group_work_backward(log_softmax_gradient_cost, _flat_softmax_groups),
)
def flat_log_softmax_cost(node: Node) -> Cost:
    """Return the cost of LogSoftmax before version 13, over all axes from `axis` on.

    https://onnx.ai/onnx/operators/onnx__LogSoftmax.html#logsoftmax-11
    """
    return log_softmax_cost(*_flat_softmax_groups(node))


@operator(
    "Hardmax",
    "n-m compares; m groups along axis",
    since=13,
    requires=axis_constraint(default=-1),
    backward=no_gradient,
)
def onnx_hardmax_cost(node: Node) -> Cost:
    """Return the cost of Hardmax since version 13: the search for the first largest element along
    `axis`.

    https://onnx.ai/onnx/operators/onnx__Hardmax.html#hardmax-13
    """
    return Cost(compares=reduction_operation_count(*_softmax_groups(node)))


@operator(
    "Hardmax",
    "n-m compares; m rows of the flattened input",
    requires=axis_constraint(default=1),
    backward=no_gradient,
)
def flat_hardmax_cost(node: Node) -> Cost:
    """Return the cost of Hardmax before version 13: the search for the first largest element over
    the axes from `axis` on.

    https://onnx.ai/onnx/operators/onnx__Hardmax.html#hardmax-11
    """
    return Cost(compares=reduction_operation_count(*_flat_softmax_groups(node)))
