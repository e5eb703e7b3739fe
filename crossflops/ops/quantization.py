"""Between real numbers and small integers."""

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops.access import given, size
from crossflops.ops.rule import Entry, entry


def requantize(count: int) -> Cost:
    """One scaling, one rounding, a zero point and a clamp per element, after a contraction."""
    return Cost(muls=1, specials=1, adds=1, compares=2) * count


def quantize_linear(node: Node) -> Cost:
    """QuantizeLinear: y = saturate(round(x / y_scale) + y_zero_point).

    n(x) * (div, round, 2 compares); a zero point n(x) adds.
    https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html
    """
    shift = 1 if given(node, 2) else 0
    return Cost(divs=1, specials=1, compares=2, adds=shift) * size(node)


def dequantize_linear(node: Node) -> Cost:
    """DequantizeLinear: y = (x - x_zero_point) * x_scale.

    n(x) muls; a zero point n(x) adds.
    https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html
    """
    return Cost(muls=1, adds=1 if given(node, 2) else 0) * size(node)


def dynamic_quantize_linear(node: Node) -> Cost:
    """DynamicQuantizeLinear: smallest and largest of x, scale and zero point, then quantize.

    2 * (n - 1) compares; once: 4 compares, 2 adds, 2 divs, 1 round; n * (div, round, add, 2
    compares). From the function body of the operator.
    https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html
    """
    count = size(node)
    spread = Cost(compares=2 * max(count - 1, 0))
    once = Cost(compares=4, adds=2, divs=2, specials=1)
    return spread + once + Cost(divs=1, specials=1, adds=1, compares=2) * count


ENTRIES: tuple[Entry, ...] = (
    entry(
        "QuantizeLinear",
        quantize_linear,
        "n(x)*(div, round, 2 compares); zero point: n(x) adds",
        since=10,
    ),
    entry(
        "DequantizeLinear",
        dequantize_linear,
        "n(x) muls; zero point: n(x) adds",
        operand=1,
        since=10,
    ),
    entry(
        "DynamicQuantizeLinear",
        dynamic_quantize_linear,
        "2(n-1) compares + (4 compares, 2 adds, 2 divs, 1 round) + "
        "n*(div, round, add, 2 compares)",
        since=11,
    ),
)
