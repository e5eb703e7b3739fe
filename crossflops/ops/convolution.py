"""Convolutions: a weight window slides over the data."""

from math import prod

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops.access import given, integer, out_size, result, shape, size, source, text
from crossflops.ops.operands import dims_of, label, sizes
from crossflops.ops.quantization import requantize
from crossflops.ops.rule import Constraint, Entry, entry, estimated
from crossflops.ops.windows import positions, transposed, window


def _window(node: Node, index: int) -> int:
    """Products per output (or input) element: the weight without its first dimension.

    `kernel_shape` may be absent, so the weight's own dimensions count.
    """
    return prod(shape(source(node, index), at_least=2)[1:])


def conv(node: Node) -> Cost:
    """Conv: MACs = n(Y) * (C / group) * prod(k); bias n(Y) adds.

    X [N, C, d...], W [M, C/group, k...], B [M], Y [N, M, o...]. Padding zeros count (dense).
    https://onnx.ai/onnx/operators/onnx__Conv.html
    """
    return _conv(node, weight=1, bias=2)


def _conv(node: Node, weight: int, bias: int | None = None) -> Cost:
    out = out_size(node)
    adds = out if bias is not None and given(node, bias) else 0
    return Cost(macs=out * _window(node, weight), adds=adds)


def conv_transpose(node: Node) -> Cost:
    """ConvTranspose: MACs = n(X) * (M / group) * prod(k); bias n(Y) adds.

    X [N, C, d...], W [C, M/group, k...], B [M], Y [N, M, o...]. Every input element meets its
    whole window, whatever strides and pads are: what pads crop away is computed (dense).
    https://onnx.ai/onnx/operators/onnx__ConvTranspose.html
    """
    adds = out_size(node) if given(node, 2) else 0
    return Cost(macs=size(node, 0) * _window(node, 1), adds=adds)


def conv_integer(node: Node) -> Cost:
    """ConvInteger: as Conv; n(x) adds and n(w) adds where they have zero points.

    x [N, C, d...], w [M, C/group, k...], y [N, M, o...].
    https://onnx.ai/onnx/operators/onnx__ConvInteger.html
    """
    shifted = sum(size(node, i) for i in (0, 1) if given(node, i + 2))
    return _conv(node, weight=1) + Cost(adds=shifted)


def qlinear_conv(node: Node) -> Cost:
    """QLinearConv: as Conv with w as input 3, B as input 8; zero points n(x) + n(w) adds.

    Then each output is requantized: one mul by the combined scale, round, add, two compares.
    https://onnx.ai/onnx/operators/onnx__QLinearConv.html
    """
    shifted = Cost(adds=size(node, 0) + size(node, 3))
    return _conv(node, weight=3, bias=8) + shifted + requantize(out_size(node))


def deform_conv(node: Node) -> Cost:
    """DeformConv: MACs = n(Y) * (C / group) * prod(k); bias n(Y) adds; plus the sampling.

    P = N * prod(o) * prod(k) places, d spatial dims, G offset groups. Each of C*P samples takes
    2^d muls and 2^d - 1 adds; each of G*P places 3d adds, d floors and 2^d * (d - 1) muls for
    its corner weights; a mask C*P muls. X [N, C, i...],
    W [M, C/group, k...], Y [N, M, o...]. Its arithmetic may be arranged otherwise: an estimate.
    https://onnx.ai/onnx/operators/onnx__DeformConv.html
    """
    out_shape, channels = shape(result(node), at_least=3), shape(source(node, 0), at_least=3)[1]
    dims = len(out_shape) - 2
    places = out_shape[0] * prod(out_shape[2:]) * prod(shape(source(node, 1), at_least=3)[2:])
    groups = size(node, 2) // (places * dims) if places else 0
    sampling = Cost(muls=2**dims, adds=2**dims - 1) * (channels * places)
    weights = Cost(adds=3 * dims, specials=dims, muls=2**dims * (dims - 1)) * (groups * places)
    mask = Cost(muls=channels * places if given(node, 4) else 0)
    return _conv(node, weight=1, bias=3) + sampling + weights + mask


def causal_conv(node: Node) -> Cost:
    """CausalConvWithState: MACs = n(output) * k; bias n adds; SiLU n (special, mul).

    input [B, C, L], weight [C, 1, k], output [B, C, L].
    https://onnx.ai/onnx/operators/onnx__CausalConvWithState.html
    """
    out = out_size(node)
    gate = Cost(specials=out, muls=out) if text(node, "activation", "none") != "none" else Cost()
    return _conv(node, weight=1, bias=2) + gate


CONV: tuple[Constraint, ...] = (
    sizes("g=@group:1 X[N,g*I,...] W[g*P,I,...] B[g*P]"),
    window(weight=1),
)
QLINEAR_CONV: tuple[Constraint, ...] = (
    sizes(
        "g=@group:1 x[N,g*I,...] x_scale?[1] x_zero_point?[1] w[g*P,I,...] w_scale?[g*P] "
        "w_zero_point?[g*P] y_scale?[1] y_zero_point?[1] B[g*P]"
    ),
    window(weight=3),
)


def _offsets(node: Node) -> str:
    """Offsets [N, G*prod(k)*d, o...] and a mask [N, G*prod(k), o...], G offset groups."""
    weight, groups = dims_of(node, 1), integer(node, "offset_group", 1)
    extents = positions(node, 0, 1)
    if weight is None or extents is None:
        return ""
    places = groups * prod(weight[2:])
    for index, channels in ((2, places * (len(weight) - 2)), (4, places)):
        shape = dims_of(node, index)
        if shape is not None and shape[1:] != (channels, *extents):
            needed = "x".join(map(str, (channels, *extents)))
            return f"{label(node, index)} needs {needed} behind its first axis"
    return ""


def _remembered(node: Node) -> str:
    """The state holds what the window reaches back: past_state [B, C, k - 1]."""
    weight, state = dims_of(node, 1), dims_of(node, 3)
    if weight is None or state is None or state[-1] == weight[-1] - 1:
        return ""
    return f"{label(node, 3)} has {state[-1]} at axis 2, and {weight[-1] - 1} is needed"


ENTRIES: tuple[Entry, ...] = (
    entry(
        "Conv",
        conv,
        "n(Y)*(C/group)*prod(k) MACs; B: n(Y) adds",
        requires=CONV,
    ),
    entry(
        "ConvTranspose",
        conv_transpose,
        "n(X)*(M/group)*prod(k) MACs; B: n(Y) adds",
        requires=(sizes("g=@group:1 X[N,g*C,...] W[g*C,P,...] B[g*P]"), transposed()),
    ),
    entry(
        "ConvInteger",
        conv_integer,
        "n(y)*(C/group)*prod(k) MACs; zero points: n(x)+n(w) adds",
        since=10,
        requires=(
            sizes("g=@group:1 x[N,g*I,...] w[g*P,I,...] x_zero_point?[1] w_zero_point?[g*P]"),
            window(weight=1),
        ),
    ),
    entry(
        "QLinearConv",
        qlinear_conv,
        "n(y)*(C/group)*prod(k) MACs; B: n(y) adds; zero points: n(x)+n(w) adds; "
        "requantize: n(y)*(mul, round, add, 2 compares)",
        since=10,
        requires=QLINEAR_CONV,
    ),
    entry(
        "DeformConv",
        deform_conv,
        "n(Y)*(C/group)*prod(k) MACs; B: n(Y) adds; sampling: C*P*(2^d muls, 2^d-1 adds) + "
        "G*P*(3d adds, d floors, 2^d*(d-1) muls); mask: C*P muls; P = N*prod(o)*prod(k)",
        doubt=estimated,
        since=19,
        requires=(
            sizes("g=@group:1 X[N,g*I,...] W[g*P,I,...] offset[N,_,...] B[g*P] mask[N,_,...]"),
            window(weight=1),
            _offsets,
        ),
    ),
    entry(
        "CausalConvWithState",
        causal_conv,
        "n(output)*k MACs; bias: n adds; activation: n*(sigmoid, mul)",
        since=27,
        requires=(sizes("input[B,C,L] weight[C,1,k] bias[C] past_state[B,C,_]"), _remembered),
    ),
)
