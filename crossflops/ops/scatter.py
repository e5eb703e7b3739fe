"""Operators that write to places, where values that meet may be combined."""

from math import prod

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import size, text
from crossflops.ops.arrangement import scattered, scattered_nd
from crossflops.ops.operands import dims_of, ints, label, sizes
from crossflops.ops.pointwise import ADD, COMPARE, MUL
from crossflops.ops.rule import Entry, entry

_REDUCTIONS: dict[str, Cost] = {
    "none": ZERO,
    "add": ADD,
    "mul": MUL,
    "max": COMPARE,
    "min": COMPARE,
}


def scatter(node: Node) -> Cost:
    """ScatterND, ScatterElements: one add, mul or compare per update, as `reduction` says.

    The default "none" overwrites: 0. data, indices, updates.
    https://onnx.ai/onnx/operators/onnx__ScatterND.html
    """
    reduction = text(node, "reduction", "none")
    if reduction not in _REDUCTIONS:
        raise ValueError(f"the reduction {reduction!r} of {node.op} is not known")
    return _REDUCTIONS[reduction] * size(node, 2)


def column_to_image(node: Node) -> Cost:
    """Col2Im: blocks are added up where they overlap; n(input) adds into an empty image.

    What falls into the padding counts (dense). input [N, C * prod(block), L].
    https://onnx.ai/onnx/operators/onnx__Col2Im.html
    """
    return Cost(adds=size(node))


def _blocks(node: Node) -> str:
    """input [N, C*prod(block), L]: L is at how many places blocks lie in the image."""
    dims, image, block = dims_of(node, 0), node.values.get(1), node.values.get(2)
    if dims is None or image is None or block is None:
        return ""
    if prod(block) and dims[1] % prod(block):
        return f"{label(node, 0)} has {dims[1]} at axis 1, no multiple of the block {prod(block)}"
    count, pads = len(image), ints(node, "pads") or (0,) * (2 * len(image))
    strides, dilations = (ints(node, name) or (1,) * count for name in ("strides", "dilations"))
    places = 1
    for at, extent in enumerate(image):
        reach = dilations[at] * (block[at] - 1) + 1
        places *= (extent + pads[at] + pads[at + count] - reach) // strides[at] + 1
    if dims[2] == places:
        return ""
    return f"{label(node, 0)} has {dims[2]} at axis 2, and blocks lie at {places} places"


_SCATTER = "n(updates)*(reduction: add, mul or compare; none: 0)"

ENTRIES: tuple[Entry, ...] = (
    entry(
        "ScatterND",
        scatter,
        _SCATTER,
        since=11,
        requires=scattered_nd,
    ),
    entry(
        "ScatterElements",
        scatter,
        _SCATTER,
        since=11,
        requires=scattered,
    ),
    entry(
        "Col2Im",
        column_to_image,
        "n(input) adds",
        since=18,
        requires=(sizes("input[N,C,L] image_shape[d] block_shape[d]"), _blocks),
    ),
)
