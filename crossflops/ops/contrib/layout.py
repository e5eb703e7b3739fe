"""The layouts that onnxruntime brings a graph into: channels in blocks, channels last.

com.microsoft.nchwc holds the channels in blocks of as many as the processor has lanes, [N, C, H,
W] by its shapes; com.ms.internal.nhwc has them last. Filters keep their ONNX shape in both.
"""

from math import prod

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import out_size, shape, source, text
from crossflops.ops.contrib.activation import named
from crossflops.ops.contrib.fused import CONV_LAST, fused_conv
from crossflops.ops.convolution import CONV, conv_transpose, qlinear_conv
from crossflops.ops.movement import moved
from crossflops.ops.normalization import batch_normalization, local_response, standardization
from crossflops.ops.operands import rank, sizes
from crossflops.ops.pooling import (
    POOL,
    average_pool,
    global_average_pool,
    global_lp_pool,
    global_max_pool,
    lp_pool,
    max_pool,
)
from crossflops.ops.quantization import requantize
from crossflops.ops.resampling import grid_sample, resize, scale_is_a_value
from crossflops.ops.rule import (
    MICROSOFT,
    NCHWC,
    NHWC,
    Constraint,
    Entry,
    Formula,
    entry,
    estimated,
)
from crossflops.ops.windows import pads_within, window


def activated(formula: Formula) -> Formula:
    """The formula, and the activation of the attribute `activation` per element of Y."""

    def both(node: Node) -> Cost:
        return formula(node) + named(node) * out_size(node)

    return both


def upsample(node: Node) -> Cost:
    """Upsample in blocks: nearest 0; linear 2^d muls and 2^d - 1 adds per output."""
    if text(node, "mode", "nearest") == "nearest":
        return ZERO
    return resize(node)


def instance_normalization(node: Node) -> Cost:
    """InstanceNormalization, input [N, d..., C]: N * C groups; n muls, n adds."""
    dims = shape(source(node, 0), at_least=2)
    return standardization(prod(dims), dims[0] * dims[-1]) + Cost(muls=1, adds=1) * prod(dims)


def qlinear_conv_transpose(node: Node) -> Cost:
    """QLinearConvTranspose: MACs = n(x) * (M / group) * prod(k), w input 3, B input 8.

    Zero points n(x) + n(w) adds, B n(y) adds; then each output is requantized.
    """
    data, weight = source(node, 0).numel, source(node, 3)
    out = out_size(node)
    bias = len(node.inputs) > 8 and node.inputs[8] is not None
    macs = data * prod(shape(weight, at_least=2)[1:])
    return Cost(macs=macs, adds=data + weight.numel + (out if bias else 0)) + requantize(out)


_CONV = "n(Y)*(C/group)*prod(k) MACs; B: n(Y) adds"
_POOLS = (
    ("MaxPool", max_pool, "n(Y)*(prod(k)-1) compares"),
    ("AveragePool", average_pool, "n(Y)*(prod(k)-1) adds, n(Y) divs"),
    ("GlobalMaxPool", global_max_pool, "n(X)-n(Y) compares"),
    ("GlobalAveragePool", global_average_pool, "n(X)-n(Y) adds, n(Y) divs"),
)
# A pooling over everything has no window: only its rank matters.
_SLIDES = {name: (rank(0, 3, least=True),) for name, _, _ in _POOLS if name.startswith("Global")}
_POOL_LAST: tuple[Constraint, ...] = (window(least=0, channels="last"), pads_within)
_ACTIVATION = "; activation: n(Y)"

ENTRIES: tuple[Entry, ...] = (
    entry(
        "Conv",
        fused_conv,
        f"{_CONV}; Sum: n(Y) adds{_ACTIVATION}; C and M in whole blocks",
        domain=NCHWC,
        requires=CONV,
    ),
    *(
        entry(name, formula, equation, domain=NCHWC, requires=_SLIDES.get(name, POOL))
        for name, formula, equation in _POOLS
    ),
    *(
        entry(name, moved, "0: data movement", domain=NCHWC)
        for name in ("ReorderInput", "ReorderOutput")
    ),
    entry("Upsample", upsample, "nearest: 0; linear: n(Y)*(2^d muls, 2^d-1 adds)", domain=NCHWC),
    entry("Conv", fused_conv, _CONV + _ACTIVATION, domain=NHWC, requires=CONV_LAST),
    entry(
        "ConvTranspose",
        activated(conv_transpose),
        f"n(X)*(M/group)*prod(k) MACs; B: n(Y) adds{_ACTIVATION}",
        domain=NHWC,
        requires=sizes("g=@group:1 X[N,...,g*C] W[g*C,P,...] B[g*P]"),
    ),
    *(
        entry(
            name,
            activated(formula),
            equation + _ACTIVATION,
            domain=NHWC,
            requires=_SLIDES.get(name, _POOL_LAST),
        )
        for name, formula, equation in _POOLS
    ),
    entry("LpPool", lp_pool, "as LpPool of ai.onnx", domain=NHWC, requires=_POOL_LAST),
    entry("GlobalLpPool", global_lp_pool, "as GlobalLpPool of ai.onnx", domain=NHWC),
    entry(
        "BatchNormalization",
        activated(batch_normalization),
        f"n(X)*(sub, 2 muls, add) + C*(add, sqrt, div){_ACTIVATION}",
        domain=NHWC,
        requires=sizes("X[N,...,C] scale[C] B[C] mean[C] var[C]"),
    ),
    entry(
        "InstanceNormalization",
        activated(instance_normalization),
        "n-m adds, m divs, n subs, n muls, n-m adds, m divs, m*(add, sqrt, div), n muls; "
        f"scale: n muls; B: n adds; m = N*C{_ACTIVATION}",
        domain=NHWC,
        requires=sizes("input[N,...,C] scale[C] B[C]"),
    ),
    entry("LRN", local_response, "n*(2 muls, size adds, pow, div)", domain=NHWC),
    entry(
        "QLinearConv",
        qlinear_conv,
        "n(y)*(C/group)*prod(k) MACs; B: n(y) adds; zero points: n(x)+n(w) adds; "
        "requantize: n(y)*(mul, round, add, 2 compares)",
        domain=NHWC,
        requires=sizes("g=@group:1 x[N,...,g*I] s z w[g*P,I,...] s z s z B[g*P]"),
    ),
    entry(
        "QLinearConvTranspose",
        qlinear_conv_transpose,
        "n(x)*(M/group)*prod(k) MACs; B: n(y) adds; zero points: n(x)+n(w) adds; "
        "requantize: n(y)*(mul, round, add, 2 compares)",
        domain=NHWC,
        requires=sizes("g=@group:1 x[N,...,g*C] s z w[g*C,P,...] s z s z B[g*P]"),
    ),
    entry(
        "Resize",
        resize,
        "nearest: 0; linear: n(Y)*(2^d muls, 2^d-1 adds); cubic: 4^d; d dimensions that change",
        domain=NHWC,
        doubt=scale_is_a_value,
    ),
    entry(
        "GridSample",
        grid_sample,
        "as GridSample of ai.onnx",
        domain=NHWC,
        doubt=estimated,
    ),
    entry(
        "NhwcMaxPool",
        max_pool,
        "n(y)*(prod(k)-1) compares",
        domain=MICROSOFT,
        requires=_POOL_LAST,
    ),
    *(
        entry(name, moved, "0: data movement", domain=NHWC)
        for name in ("DepthToSpace", "SpaceToDepth", "MaxUnpool")
    ),
)
