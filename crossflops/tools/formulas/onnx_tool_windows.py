"""The shapes that onnx-tool 1.0.1 infers for what slides windows: convolutions and pools.

Source: the methods `shape_infer` of ConvNode, ConvTransposeNode and PoolBase in onnx_tool/node.py.
Attributes that are left out have the defaults of their constructors, which are too short for three
axes. Raises LookupError where the tool raises.
"""

import math
from collections.abc import Callable

from crossflops.ir.graph import Node

Shape = tuple[int, ...]


def extents(node: Node, name: str, default: Shape = ()) -> Shape:
    """An attribute that is a list of integers."""
    found = node.attrs.get(name)
    return tuple(int(one) for one in found) if isinstance(found, tuple) else default


def _padding(node: Node) -> str:
    found = node.attrs.get("auto_pad", "NOTSET")
    return found.decode() if isinstance(found, bytes) else str(found)


def _same_or_valid(padding: str, x: Shape, kernel: Shape, strides: Shape, axes: int) -> Shape:
    """Rounded up, and dilations are not seen."""
    if padding == "VALID":
        x = tuple(extent - k + 1 for extent, k in zip(x, kernel, strict=False))
    return tuple(math.ceil(x[axis] / strides[axis]) for axis in range(axes))


def convolved(node: Node, shapes: list[Shape]) -> Shape:
    """Of three axes that are padded by name the first alone is left, of four and more nothing."""
    x, w = shapes[:2]
    axes, padding = len(x) - 2, _padding(node)
    strides = extents(node, "strides", (1,) * 3)
    if padding != "NOTSET":
        taken = 2 if axes == 2 else 1
        return (x[0], w[0], *_same_or_valid(padding, x[2:], w[2:], strides, taken))
    if axes not in (1, 2, 3):
        return ()
    pads, dilations = extents(node, "pads", (0,) * 6), extents(node, "dilations", (1,) * 3)
    sizes = [
        int((x[2 + i] + pads[i] + pads[i + axes] - dilations[i] * (w[2 + i] - 1) - 1) / strides[i])
        for i in range(axes)
    ]
    return (x[0], w[0], *(size + 1 for size in sizes))


def transposed(node: Node, shapes: list[Shape]) -> Shape:
    """Padding by name is not seen; `output_shape` is taken where it has no zero."""
    x, w = shapes[:2]
    axes, group = len(x) - 2, node.attrs.get("group", 1)
    if axes not in (1, 2, 3) or not isinstance(group, int):
        return ()
    pads, more = extents(node, "pads", (0,) * 4), extents(node, "output_padding", (0,) * 4)
    strides, dilations = (extents(node, name, (1, 1)) for name in ("strides", "dilations"))
    sizes = [
        strides[i] * (x[2 + i] - 1)
        + more[i]
        + ((w[2 + i] - 1) * dilations[i] + 1)
        - (pads[i] + pads[i + axes])
        for i in range(axes)
    ]
    told = extents(node, "output_shape")
    if told and 0 not in told:
        sizes = list(told if axes > 1 else told[:1])
    return (x[0], group * w[1], *sizes)


def pooled(node: Node, shapes: list[Shape]) -> Shape:
    """Of three axes the padding before counts twice, and the third has the second's dilation.

    Rounded up, a window may begin behind the last element.
    """
    x, padding = shapes[0], _padding(node)
    kernel, strides = extents(node, "kernel_shape", (3, 3)), extents(node, "strides", (1, 1))
    if padding != "NOTSET":
        taken = 2 if len(strides) == 2 else 1
        return (*x[:2], *_same_or_valid(padding, x[2:], kernel, strides, taken))
    axes = len(kernel)
    if axes not in (1, 2, 3):
        raise LookupError(f"{node.key} has windows of {axes} axes")
    pads, dilations = extents(node, "pads", (0,) * 4), extents(node, "dilations", (1, 1))
    rounded = math.ceil if node.attrs.get("ceil_mode") else math.floor
    sizes = []
    for i in range(axes):
        around = pads[i] + (pads[i] if axes == 3 else pads[i + axes])
        reach = (kernel[i] - 1) * dilations[min(i, 1)] + 1
        sizes.append(rounded((x[2 + i] + around - reach) / strides[i] + 1))
    return (*x[:2], *sizes)


WINDOWS: dict[str, Callable[[Node, list[Shape]], Shape]] = {
    "Conv": convolved,
    "ConvTranspose": transposed,
    "MaxPool": pooled,
    "AveragePool": pooled,
}
