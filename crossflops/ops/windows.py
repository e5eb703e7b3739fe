"""Windows that slide over data: whether their attributes fit the data, and they its extents."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Literal, NamedTuple

from crossflops.core.graph import Node
from crossflops.ops.access import integer, text
from crossflops.ops.operands import Shape, dims_of, ints, label, operands, remembered
from crossflops.ops.rule import Constraint

Layout = Literal["first", "last"]


class _Sizes(NamedTuple):
    """What decides about a window: extents of data and kernel, and how it moves. Hashable."""

    extents: Shape
    kernel: Shape
    strides: Shape
    dilations: Shape
    pads: Shape
    ceiling: bool
    same: bool


def window(
    data: int = 0, weight: int | None = None, least: int = 1, channels: Layout = "first"
) -> Constraint:
    """A window over the axes behind N and C, which has at least so many places along each.

    Its extents are those of the weight [M, C/group, k...], or `kernel_shape`. With `least` 0 a
    window may be larger than its padded data, and the result empty.
    """

    def constraint(node: Node) -> str:
        shape = dims_of(node, data)
        if shape is None:
            return ""
        if len(shape) < 3:
            return f"{label(node, data)} has rank {len(shape)}, and needs at least 3"
        if least == 0 and (wrong := empty_members(node, data)):
            return wrong
        extents = shape[2:] if channels == "first" else shape[1:-1]
        if wrong := _wrong_lengths(node, data, weight, len(extents)):
            return wrong
        kernel = _kernel(node, weight)
        if kernel is None:
            return ""
        sizes = _moves(node, extents, kernel)
        results = _positions(sizes)
        place = next((at for at, result in enumerate(results) if result < least), None)
        if place is None:
            return ""
        return _told(node, data, sizes, place, 2 if channels == "first" else 1)

    return remembered(constraint, _decides)


def _decides(node: Node) -> Hashable:
    return operands(node), tuple(node.attrs.items())


def _told(node: Node, data: int, sizes: _Sizes, place: int, before: int) -> str:
    count = len(sizes.extents)
    padding = sizes.pads[place] + sizes.pads[place + count]
    reach = sizes.dilations[place] * (sizes.kernel[place] - 1) + 1
    has = f"{label(node, data)} has {sizes.extents[place]} at axis {place + before}"
    padded = f" and {padding} of padding" if padding else ""
    return f"{has}{padded}, and the window takes {reach}"


def _automatic(node: Node) -> bool:
    return text(node, "auto_pad", "NOTSET") != "NOTSET"


def _kernel(node: Node, weight: int | None) -> Shape | None:
    if weight is None:
        return ints(node, "kernel_shape")
    shape = dims_of(node, weight)
    return None if shape is None else shape[2:]


def _wrong_lengths(node: Node, data: int, weight: int | None, places: int) -> str:
    """The weight, and every attribute of a window, has as many extents as the data."""
    shape = None if weight is None else dims_of(node, weight)
    if weight is not None and shape is not None and len(shape) != places + 2:
        has = f"{label(node, weight)} has rank {len(shape)}"
        return f"{has}, and {places + 2} is needed for {label(node, data)}"
    for name, asked in (
        ("kernel_shape", places), ("strides", places), ("dilations", places), ("pads", 2 * places),
        ("output_padding", places),
    ):  # fmt: skip
        value = node.attrs.get(name)
        if isinstance(value, tuple) and len(value) != asked:
            has = f"attribute {name!r} has {len(value)} sizes"
            return f"{has}, and {asked} are needed for {label(node, data)}"
        least = 0 if name in ("pads", "output_padding") else 1
        if isinstance(value, tuple) and any(isinstance(n, int) and n < least for n in value):
            return f"attribute {name!r} has {min(value)}, and at least {least} is needed"
    if weight is not None and "pads" in node.attrs and _automatic(node):
        return "attributes 'pads' and 'auto_pad' exclude each other"
    kernel = ints(node, "kernel_shape")
    if weight is not None and shape is not None and kernel is not None and kernel != shape[2:]:
        shown = "x".join(map(str, kernel))
        return f"{label(node, weight)} does not end in the kernel_shape {shown}"
    return ""


def _moves(node: Node, extents: Shape, kernel: Shape) -> _Sizes:
    ones = (1,) * len(extents)
    pads = None if _automatic(node) else ints(node, "pads")
    return _Sizes(
        extents=extents,
        kernel=kernel,
        strides=ints(node, "strides") or ones,
        dilations=ints(node, "dilations") or ones,
        pads=pads or (0,) * (2 * len(extents)),
        ceiling=integer(node, "ceil_mode", 0) != 0,
        same=text(node, "auto_pad", "NOTSET").startswith("SAME"),
    )


@lru_cache(maxsize=4096)
def _positions(sizes: _Sizes) -> Shape:
    """At how many positions the window stands along each axis: the extents of the result."""
    found = []
    count = len(sizes.extents)
    for place, extent in enumerate(sizes.extents):
        stride = max(sizes.strides[place], 1)
        if sizes.same:
            found.append(-(-extent // stride))
            continue
        reach = sizes.dilations[place] * (sizes.kernel[place] - 1) + 1
        left = extent + sizes.pads[place] + sizes.pads[place + count] - reach
        up = sizes.ceiling or left < 0  # runtimes divide towards zero
        found.append((-(-left // stride) if up else left // stride) + 1)
    return tuple(found)


def positions(node: Node, data: int, weight: int) -> Shape | None:
    """The extents of the result behind N and M; None where they are not known."""
    shape, kernel = dims_of(node, data), dims_of(node, weight)
    if shape is None or kernel is None:
        return None
    return _positions(_moves(node, shape[2:], kernel[2:]))


def transposed(data: int = 0, weight: int = 1, padded: bool = True) -> Constraint:
    """A window [C, M/group, k...] whose every place in the data widens the result.

    The result, or the attribute `output_shape`, is what a window of these strides would be led
    from to the data: output_padding is smaller than a stride. Where it is not `padded` by
    attributes, the result is not known.
    """

    def constraint(node: Node) -> str:
        shape, kernel = dims_of(node, data), dims_of(node, weight)
        if shape is None or kernel is None:
            return ""
        for index, dims in ((data, shape), (weight, kernel)):
            if len(dims) < 3:
                return f"{label(node, index)} has rank {len(dims)}, and needs at least 3"
        if wrong := _wrong_lengths(node, data, weight, len(shape) - 2):
            return wrong
        if 0 in kernel[2:]:
            return f"{label(node, weight)} is empty, and at least 1 is needed along each axis"
        return _led_back(node, data, _moves(node, shape[2:], kernel[2:])) if padded else ""

    return constraint


def _led_back(node: Node, data: int, sizes: _Sizes) -> str:
    count = len(sizes.extents)
    more = ints(node, "output_padding") or (0,) * count
    asked = ints(node, "output_shape")
    for place, extent in enumerate(sizes.extents):
        stride = max(sizes.strides[place], 1)
        reach = sizes.dilations[place] * (sizes.kernel[place] - 1) + 1
        full = (extent - 1) * stride + more[place] + reach
        padding = sizes.pads[place] + sizes.pads[place + count]
        result = extent * stride if sizes.same else full - padding
        if asked is not None and len(asked) >= count:
            result = asked[len(asked) - count + place]
            padding = max(full - result, 0)
        has = f"{label(node, data)} has {extent} at axis {place + 2}"
        if result <= 0:
            return f"{has}, and of {full} that result {padding} are padding"
        if not sizes.same and (result + padding - reach) // stride + 1 != extent:
            needed = (result + padding - reach) // stride + 1
            return f"{has}, and a result of {result} in strides of {stride} needs {needed}"
    return ""


def empty_members(node: Node, data: int = 0) -> str:
    """Only N of a pooling's [N, C, d...] may be 0."""
    shape = dims_of(node, data) or ()
    if 0 not in shape[1:] or shape[0] == 0:
        return ""
    return f"{label(node, data)} has 0 at axis {shape.index(0)}, and only axis 0 may be empty"


def pads_within(node: Node) -> str:
    """The pads of a pooling are smaller than its window, which else would see nothing."""
    kernel, pads = ints(node, "kernel_shape"), ints(node, "pads")
    if kernel is None or pads is None or len(pads) != 2 * len(kernel):
        return ""
    if _automatic(node):
        return ""
    for place, pad in enumerate(pads):
        extent = kernel[place % len(kernel)]
        if pad >= extent:
            return f"attribute 'pads' has {pad}, and the window takes {extent}"
    return ""
