"""The cost of Fourier transforms and of the operators around them.

The operators say what is transformed, not how. Counted is the radix-2 fast Fourier transform:
N/2 * log2(N) butterflies of 4 muls and 6 adds, so 5 * N * log2(N) for N complex elements, and
half of that where input or output are real. log2 is rounded up: an estimate.
"""

from math import prod

from crossflops.ir.graph import Node
from crossflops.ir.ledger import Cost
from crossflops.operators.access import (
    has_input,
    input_spec,
    integer_attribute,
    output_element_count,
    output_spec,
    reduction_operation_count,
    spec_shape,
)
from crossflops.operators.gradient import (
    Gradient,
    OperandPositions,
    linear_map_backward,
    no_gradient,
)
from crossflops.operators.operands import (
    input_label,
    input_shape,
    input_shape_or_raise,
    rank_constraint,
    single_number_constraint,
)
from crossflops.operators.rule import (
    MICROSOFT,
    Formula,
    OperandProblem,
    Operators,
    estimate_exactness,
)

operator = Operators()


def fft_cost(length: int, real: bool) -> Cost:
    """Return the cost of a Fourier transform of N complex elements: 2 N log2(N) muls and 3 N
    log2(N) adds; half if one side is `real`.

    Half of both, rounded up, where one side is real.
    """
    steps = length * max(length - 1, 0).bit_length()
    return Cost(muls=steps, adds=(3 * steps + 1) // 2) if real else Cost(muls=2, adds=3) * steps


_KINDS = {1: "real", 2: "complex"}


def _number_axis_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the input, or "" if nothing is: its last axis has size 1 (real) or
    2 (complex).
    """
    dims = input_shape_or_raise(node, 0)
    if not dims or (node.op.type == "STFT" and len(dims) == 2):
        return ""
    onesided = node.op.type == "DFT" and integer_attribute(node, "onesided", 0)
    allowed: tuple[int, ...] = (1, 2)
    if onesided:
        allowed = (2,) if integer_attribute(node, "inverse", 0) else (1,)
    if dims[-1] in allowed:
        return ""
    needed = " or ".join(f"{size} ({_KINDS[size]})" for size in allowed)
    return f"{input_label(node, 0)} has {dims[-1]} at its last axis, but {needed} is needed"


_FFT = "fast Fourier transform, N*ceil(log2 N)*(2 muls, 3 adds), half if real"


@operator(
    "DFT",
    f"rows * {_FFT}; inverse: 2N divs",
    since=17,
    doubt=estimate_exactness,
    requires=(
        rank_constraint(0, 2, or_higher=True),
        rank_constraint(1, 0),
        rank_constraint(2, 0),
        _number_axis_constraint,
    ),
    backward=linear_map_backward,
)
def dft_cost(node: Node) -> Cost:
    """Return the estimated cost of DFT: a Fourier transform of each row along `axis`; for the
    inverse 2N divs more per row.

    input [..., 1 or 2]: real or complex; onesided leaves N // 2 + 1 of the elements. N is the
    input's extent, or dft_length. The axis is an attribute before version 20, an input since
    then: where its value is not known, the longest axis counts, as the most expensive one.
    https://onnx.ai/onnx/operators/onnx__DFT.html
    """
    before, after = (
        spec_shape(input_spec(node, 0), at_least=2),
        spec_shape(output_spec(node), at_least=2),
    )
    if len(before) != len(after):
        raise ValueError(f"DFT changes rank {len(before)} to rank {len(after)}")
    axis = _transform_axis(node, after)
    length = _transform_length(node, before, after, axis)
    rows = prod(after[:axis]) * prod(after[axis + 1 : -1])
    scaled = 2 * length if integer_attribute(node, "inverse", 0) else 0
    real = 1 in (before[-1], after[-1])
    return (fft_cost(length, real) + Cost(divs=scaled)) * rows


def _transform_length(
    node: Node, before: tuple[int, ...], after: tuple[int, ...], axis: int
) -> int:
    """Return the number N of elements of a transform: dft_length, or the length that follows from
    the sizes.
    """
    if len(length := node.values.get(1, ())) == 1:
        return length[0]
    halved = integer_attribute(node, "onesided", 0) != 0
    if halved and before[-1] == 1:
        kept = after[axis] == before[axis] // 2 + 1
        return before[axis] if kept or not has_input(node, 1) else 2 * (after[axis] - 1)
    return after[axis] if has_input(node, 1) or halved else before[axis]


def _transform_axis(node: Node, dims: tuple[int, ...]) -> int:
    """Return the axis of the transforms of a DFT; if it is unknown, the longest axis before the
    last one.
    """
    if node.op.since < 20:
        return integer_attribute(node, "axis", 1) % len(dims)
    if len(axes := node.values.get(2, ())) == 1:
        return axes[0] % len(dims)
    if has_input(node, 2):
        return max(range(len(dims) - 1), key=lambda axis: dims[axis])
    return len(dims) - 2


def _frame_length_constraint(node: Node) -> OperandProblem:
    """Return why the lengths of frame and window do not fit the signal; "" if nothing is wrong."""
    signal, window_, length = input_shape(node, 0), input_shape(node, 2), node.values.get(3)
    frame = length[0] if length else window_[0] if window_ else None
    if signal is None or frame is None:
        return ""
    if window_ is not None and window_ != (frame,):
        return f"{input_label(node, 2)} needs {frame} numbers, one for each sample of a frame"
    if signal[1] >= frame:
        return ""
    return f"{input_label(node, 0)} has {signal[1]} at axis 1, but a frame has {frame}"


def _stft_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradients of STFT: each frame is transformed back once, for signal
    and window.

    signal: the muls by the window, and as many adds where frames overlap. window: as many muls,
    and the adds that sum them over the frames.
    """
    batch, frames, _, _ = spec_shape(output_spec(node), rank=4)
    length, parts = _frame_length_and_parts_of_number(node)
    elements = batch * frames * length * parts
    weighted = elements if has_input(node, 2) else 0
    work = {
        0: Cost(muls=weighted, adds=elements),
        2: Cost(muls=weighted, adds=reduction_operation_count(weighted, length)),
    }
    inner = Cost(muls=forward.muls - weighted, adds=forward.adds)
    return Gradient({index: work[index] for index in requested}, inner=inner)


def _frame_length_and_parts_of_number(node: Node) -> tuple[int, int]:
    """Return (length of a frame, parts of a number) of an STFT; a real number has 1 part, a
    complex one 2.
    """
    parts = (spec_shape(input_spec(node, 0), at_least=2)[2:] or (1,))[0]
    if has_input(node, 2):
        return spec_shape(input_spec(node, 2), rank=1)[0], parts
    bins = spec_shape(output_spec(node), rank=4)[2]
    length = 2 * (bins - 1) if integer_attribute(node, "onesided", 1) else bins
    return (*node.values.get(3, ()), length)[0], parts


@operator(
    "STFT",
    f"B*frames*(window: N muls + {_FFT})",
    since=17,
    doubt=estimate_exactness,
    requires=(
        rank_constraint(0, (2, 3)),
        single_number_constraint(1),
        rank_constraint(2, 1),
        rank_constraint(3, 0),
        _number_axis_constraint,
        _frame_length_constraint,
    ),
    backward=_stft_backward,
)
def stft_cost(node: Node) -> Cost:
    """Return the estimated cost of STFT: per frame N muls by the window (2N for a complex signal),
    and a Fourier transform.

    signal [B, L, 1 or 2], window [N], output [B, frames, N or N // 2 + 1, 2].
    https://onnx.ai/onnx/operators/onnx__STFT.html
    """
    batch, frames, _, _ = spec_shape(output_spec(node), rank=4)
    length, parts = _frame_length_and_parts_of_number(node)
    weighted = length * parts if has_input(node, 2) else 0
    return (fft_cost(length, real=parts == 1) + Cost(muls=weighted)) * (batch * frames)


def _real_fourier_transforms_cost(dims: tuple[int, ...], axes: int) -> Cost:
    """Return the cost of real Fourier transforms along each of the last `axes` axes, for every
    row.
    """
    count, total = prod(dims), Cost()
    for length in dims[len(dims) - axes :]:
        total += fft_cost(length, real=True) * (count // length if length else 0)
    return total


@operator(
    "Rfft",
    f"rows * {_FFT}",
    domain=MICROSOFT,
    doubt=estimate_exactness,
    backward=linear_map_backward,
)
def rfft_cost(node: Node) -> Cost:
    """Return the estimated cost of Rfft: real Fourier transforms along the last signal_ndim axes
    of the input.

    https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Rfft
    """
    return _real_fourier_transforms_cost(
        spec_shape(input_spec(node, 0), at_least=1), integer_attribute(node, "signal_ndim", 1)
    )


@operator(
    "Irfft",
    f"rows * {_FFT}; n(Y) divs",
    domain=MICROSOFT,
    doubt=estimate_exactness,
    backward=linear_map_backward,
)
def irfft_cost(node: Node) -> Cost:
    """Return the estimated cost of Irfft: real Fourier transforms along the last signal_ndim axes
    of the result, and a div per element.

    https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.Irfft
    """
    dims = spec_shape(output_spec(node), at_least=1)
    return _real_fourier_transforms_cost(dims, integer_attribute(node, "signal_ndim")) + Cost(
        divs=output_element_count(node)
    )


def cosine_window_formula(terms: int) -> Formula:
    """Return the formula of a window function with `terms` cosines: a0 - a1 * cos(n * 2 pi / N) +
    a2 * cos(2 n * 2 pi / N).

    Each cosine n(output) * (2 muls, cos, add); once a div.
    """

    def cost_of_cosine_window(node: Node) -> Cost:
        """Return the cost of a window of cosines: 2 muls, a cos and an add per element and cosine,
        and one div.
        """
        return Cost(muls=2, specials=1, adds=1) * (terms * output_element_count(node)) + Cost(
            divs=1
        )

    return cost_of_cosine_window


for name, terms in (("HannWindow", 1), ("HammingWindow", 1), ("BlackmanWindow", 2)):
    equation = f"n(output)*{terms}*(2 muls, cos, add) + 1 div"
    operator(name, equation, since=17, requires=single_number_constraint(0), backward=no_gradient)(
        cosine_window_formula(terms)
    )


@operator(
    "MelWeightMatrix",
    "n(output)*(2 subs, 2 divs, 2 compares)",
    since=17,
    doubt=estimate_exactness,
    requires=single_number_constraint(0, 1, 2, 3, 4),
    backward=no_gradient,
)
def mel_weight_matrix_cost(node: Node) -> Cost:
    """Return the estimated cost of MelWeightMatrix: per element the smaller of two slopes, not
    below 0.

    n(output) * (2 subs, 2 divs, 2 compares). Where the triangles stand is not counted.
    https://onnx.ai/onnx/operators/onnx__MelWeightMatrix.html
    """
    return Cost(adds=2, divs=2, compares=2) * output_element_count(node)
