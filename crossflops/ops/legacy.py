"""Operators of ai.onnx that ONNX has dropped, or that only onnxruntime knows under that domain."""

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops.movement import moved
from crossflops.ops.normalization import (
    layer_normalization,
    mean_variance_normalization,
    rms_normalization,
    scaled,
)
from crossflops.ops.operands import dims_of, ints, label
from crossflops.ops.pointwise import COMPARE, per_element
from crossflops.ops.rule import ADDED, EXTINCT, Entry, entry

# Name, work per output element, equation.
_POINTWISE: tuple[tuple[str, Cost, str], ...] = (
    ("Affine", Cost(muls=1, adds=1), "alpha * X + beta"),
    ("ImageScaler", Cost(muls=1, adds=1), "scale * X + bias of the channel"),
    ("Scale", Cost(muls=1), "scale * X"),
    ("ScaledTanh", Cost(muls=2, specials=1), "alpha * tanh(beta * X)"),
    ("ParametricSoftplus", Cost(muls=2, specials=2, adds=1), "alpha * log(exp(beta * X) + 1)"),
    ("ThresholdedRelu", COMPARE, "X > alpha ? X : 0"),
)


def _bordered(node: Node) -> str:
    """Crop: a border of four sizes in the picture [N, C, H, W]."""
    dims, border = dims_of(node, 0), ints(node, "border") or ()
    if dims is None or not border or (len(dims) == 4 == len(border)):
        inside = not dims or all(
            size >= before + after
            for size, before, after in zip(dims[:1:-1], border, border[2:], strict=False)
        )
        return "" if inside else f"{label(node, 0)} is smaller than its border"
    return f"{label(node, 0)} has rank {len(dims)}, the border {len(border)} sizes: 4 are needed"


def _biased(node: Node) -> str:
    """ImageScaler: a bias for each channel of [N, C, H, W]."""
    dims, bias = dims_of(node, 0), node.attrs.get("bias")
    if dims is None or not isinstance(bias, tuple) or (len(dims) > 3 and dims[1] == len(bias)):
        return ""
    return f"{label(node, 0)} needs rank 4 and the {len(bias)} channels of attribute 'bias'"


_REQUIRES = {"ImageScaler": _biased}

ENTRIES: tuple[Entry, ...] = (
    *(
        entry(
            name,
            per_element(work),
            f"n(Y)*work of Y = {equation}",
            page=EXTINCT,
            requires=_REQUIRES.get(name, ()),
        )
        for name, work, equation in _POINTWISE
    ),
    entry(
        "Crop",
        moved,
        "0: data movement",
        page=EXTINCT,
        traffic="gather",
        requires=_bordered,
    ),
    entry("DynamicSlice", moved, "0: data movement", page=EXTINCT, traffic="gather"),
    entry("GivenTensorFill", moved, "0: known values", page=EXTINCT),
    entry(
        "MeanVarianceNormalization",
        mean_variance_normalization,
        "2(n-m) adds, 2m divs, n+m squares, m*(sub, sqrt, add), n*(sub, div)",
        page=EXTINCT,
    ),
    entry(
        "LayerNormalization",
        layer_normalization,
        "n-m adds, m divs, n subs, n muls, n-m adds, m divs, m*(add, sqrt, div), n muls; "
        "scale: n muls; B: n adds; m = dims before axis",
        page=ADDED,
        requires=scaled,
    ),
    entry(
        "SimplifiedLayerNormalization",
        rms_normalization,
        "n muls, n-m adds, m divs, m*(add, sqrt), n divs; scale: n muls; m = dims before axis",
        page=ADDED,
        requires=scaled,
    ),
    entry("MemcpyFromHost", moved, "0: data movement", page=ADDED),
    entry("MemcpyToHost", moved, "0: data movement", page=ADDED),
)
