"""What XLA's cost analysis counts for one instruction: xla/service/hlo_cost_analysis.cc.

Its class HloCostAnalysis visits every instruction of a program and adds up properties, of which
"flops" is one. Calls hold the operands of an instruction as inputs, its results as outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from math import gcd, prod
from typing import Any, cast

from crossflops.ir.trace import Call, Scalar

Shape = tuple[int, ...]

# One per element of the result: HandleElementwiseUnary, HandleElementwiseBinary and those that
# call HandleElementwiseOp.
ELEMENTWISE = (
    "abs", "add", "and", "bitcast-convert", "ceil", "clamp", "compare", "complex", "convert",
    "count-leading-zeros", "divide", "floor", "imag", "is-finite", "maximum", "minimum",
    "multiply", "negate", "not", "or", "popcnt", "real", "reduce-precision", "remainder",
    "round-nearest-afz", "round-nearest-even", "select", "shift-left",
    "shift-right-arithmetic", "shift-right-logical", "sign", "stochastic-convert", "subtract",
    "xor",
)  # fmt: skip
# One "transcendental" per element, and no flop.
TRANSCENDENTAL = (
    "acos", "acosh", "asin", "asinh", "atan2", "atanh", "cbrt", "cosh", "cosine", "erf",
    "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "power", "rsqrt",
    "sine", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip
REDUCERS = ("map", "reduce", "reduce-window", "scatter", "select-and-scatter")
FLOPS_PER_MAC = 2  # kFmaFlops


def _input(call: Call, place: int) -> Shape:
    return _shape(call.inputs[place])


def _result(call: Call) -> Shape:
    return _shape(call.outputs[0])


def _shape(spec: Any) -> Shape:
    if spec.shape is None:
        raise ValueError(f"the shape of {spec.name} is not known")
    return cast(Shape, spec.shape)


def _sizes(call: Call, name: str) -> Sequence[int]:
    return cast(Sequence[int], call.settings[name])


def _window(call: Call) -> Sequence[Mapping[str, int]]:
    return cast(Sequence[Mapping[str, int]], call.settings.get("window", ()))


def dot(call: Call) -> int:
    """n(out) x the contracted sizes. GetDotFlops, without its factor of two."""
    first = _input(call, 0)
    return prod(first[axis] for axis in _sizes(call, "lhs_contracting")) * prod(_result(call))


def convolution(call: Call) -> int:
    """(Ci / groups) x Co x (N / batch groups) x valid positions. GetConvolutionFlops, halved."""
    image, result = _input(call, 0), _result(call)
    channels = image[_place(call, "input_feature")] // _place(call, "feature_groups")
    batch = image[_place(call, "input_batch")] // _place(call, "batch_groups")
    return channels * result[_place(call, "output_feature")] * batch * _positions(call)


def _place(call: Call, name: str) -> int:
    return cast(int, call.settings[name])


def _positions(call: Call) -> int:
    """Pairs of a place in the filter and a place in the result that meet an element of the image.

    Taps on padding are none, nor are taps on the holes that a dilation of the image leaves.
    """
    image, weights, result = _input(call, 0), _input(call, 1), _result(call)
    places = zip(
        _window(call),
        (image[axis] for axis in _sizes(call, "input_spatial")),
        (weights[axis] for axis in _sizes(call, "kernel_spatial")),
        (result[axis] for axis in _sizes(call, "output_spatial")),
        strict=True,
    )
    return prod(_along(window, *limits) for window, *limits in places)


def _along(window: Mapping[str, int], image: int, weights: int, result: int) -> int:
    """As `_positions`, along one dimension."""
    first, step = -window["padding_low"], window["window_dilation"]
    return sum(
        _met(window["stride"], first + tap * step, window["base_dilation"], image, result)
        for tap in range(weights)
    )


def _met(stride: int, first: int, dilation: int, image: int, result: int) -> int:
    """How many `o` below `result` have `o * stride + first == dilation * i`, `i` below `image`."""
    divisor = gcd(stride, dilation)
    if first % divisor or not image:
        return 0
    period = dilation // divisor
    begin = max(0, -(first // stride))
    end = min(result - 1, (dilation * (image - 1) - first) // stride)
    phase = -(first // divisor) * pow(stride // divisor, -1, period) % period
    return (end - phase) // period - (begin - 1 - phase) // period if end >= begin else 0


def elementwise(call: Call) -> int:
    """n(out). HandleElementwiseOp."""
    return prod(_result(call))


def applications(call: Call) -> int:
    """How often a reducer is applied: HandleReduce, HandleReduceWindow, HandleScatter, HandleMap.

    Of a select-and-scatter, how often its scatter is.
    """
    if call.target == "reduce":
        return prod(_input(call, 0)) - prod(_result(call))
    if call.target == "reduce-window":
        return _windows(call)
    if call.target == "scatter":
        return prod(_input(call, (len(call.inputs) + 1) // 2))
    if call.target == "select-and-scatter":
        return prod(_input(call, 1))
    return prod(_result(call))


def _windows(call: Call) -> int:
    """(window - 1) x n(out), and less for a window that is as wide as the whole dimension."""
    elements = prod(_result(call))
    window = _window(call)
    wide = [place for place, side in enumerate(window) if side["size"] != 1]
    padded = [side for side in window if side["padding_low"] or side["padding_high"]]
    if len(wide) == len(padded) == len(call.outputs) == 1:
        side, size = window[wide[0]], _result(call)[wide[0]]
        low, high = side["padding_low"], side["padding_high"]
        if low == high == size - 1 and low and side["size"] == 2 * low + 1:
            return elements // size + size - 1
    return (prod(side["size"] for side in window) - 1) * elements


def selections(call: Call) -> int:
    """n(source) x (window - 1): how often its select is applied. HandleSelectAndScatter."""
    return prod(_input(call, 1)) * (prod(side["size"] for side in _window(call)) - 1)


def scalar_flops(opcodes: Scalar) -> int:
    """The flops of a function of scalars: one for each elementwise instruction in it."""
    return sum(opcode in ELEMENTWISE for opcode in cast(Sequence[str], opcodes))


def reduction(call: Call) -> int:
    """The flops of a reducer x how often it is applied. ProcessSubcomputation."""
    operations = applications(call) * scalar_flops(call.settings["applied"])
    if call.target == "select-and-scatter":
        operations += selections(call) * scalar_flops(call.settings["selecting"])
    return operations


def sort(call: Call) -> int:
    """n ceil(log2 n), n of the first operand as a whole. HandleSort."""
    elements = prod(_input(call, 0))
    return elements * (elements - 1).bit_length() if elements else 0


def fft(call: Call) -> int:
    """8 n(in) x floor(log2) of every length, multiplied. HandleFft."""
    logarithms = prod(length.bit_length() - 1 for length in _sizes(call, "fft_length"))
    return 4 * FLOPS_PER_MAC * logarithms * prod(_input(call, 0))


def cholesky(call: Call) -> int:
    """n(a) x its last size / 3, cut off. HandleCholesky."""
    return prod(_input(call, 0)) * _input(call, 0)[-1] // 3


def triangular_solve(call: Call) -> int:
    """2 n(b) x the last size of a. HandleTriangularSolve."""
    return FLOPS_PER_MAC * _input(call, 0)[-1] * prod(_input(call, 1))


def all_reduce(call: Call) -> int:
    """n(out): two replicas are assumed. HandleAllReduce."""
    return sum(prod(_shape(spec)) for spec in call.outputs)


def custom_call(call: Call) -> int:
    """-1, which says "unknown" and is added to the sum. HandleCustomCall."""
    return -1


def _doubled(amount: Callable[[Call], int]) -> Callable[[Call], int]:
    return lambda call: FLOPS_PER_MAC * amount(call)


KINDS: dict[str, Callable[[Call], int]] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(REDUCERS, reduction),
    "dot": _doubled(dot),
    "convolution": _doubled(convolution),
    "sort": sort,
    "fft": fft,
    "cholesky": cholesky,
    "triangular-solve": triangular_solve,
    "all-reduce": all_reduce,
    "all-reduce-start": all_reduce,
    "custom-call": custom_call,
}


def flops(call: Call) -> int:
    """What the instruction counts, of whatever kind it is; 0 where nothing is counted for it."""
    return KINDS[call.target](call) if call.target in KINDS else 0
