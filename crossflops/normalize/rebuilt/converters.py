"""Converters beside those of onnx2torch: operators whose sizes are constants, and a few it lacks.

Each is a function of the node's attributes, its constant inputs (lists by place, from the second
on) and the number of its outputs. It returns a layer that takes the first input alone, or None
where it does not fit.
"""

from collections.abc import Callable, Sequence
from typing import Any

from crossflops.normalize.rebuilt import layers

Attributes = dict[str, Any]
Constants = Sequence[Any]
Converter = Callable[[Attributes, Constants, int], Any]
REDUCTIONS = (
    "Sum", "Mean", "Max", "Min", "Prod", "LogSum", "LogSumExp", "L1", "L2", "SumSquare",
)  # fmt: skip
MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _reshape(attributes: Attributes, constants: Constants, outputs: int) -> Any:
    return layers.Reshape(constants[0], bool(attributes.get("allowzero", 0)))


def _expand(attributes: Attributes, constants: Constants, outputs: int) -> Any:
    return layers.Expand(constants[0])


def _tile(attributes: Attributes, constants: Constants, outputs: int) -> Any:
    return layers.Tile(constants[0])


def _split(attributes: Attributes, constants: Constants, outputs: int) -> Any:
    sizes = constants[0] if constants else attributes.get("split")
    return layers.Split(attributes.get("axis", 0), sizes, outputs)


def _slice(attributes: Attributes, constants: Constants, outputs: int) -> Any:
    if len(constants) < 2:
        return None  # before opset 10 these are attributes
    starts, ends, *more = constants
    axes = more[0] if more and more[0] is not None else range(len(starts))
    steps = more[1] if len(more) > 1 else [1] * len(starts)
    return layers.Slice(starts, ends, list(axes), steps)


def _pad(attributes: Attributes, constants: Constants, outputs: int) -> Any:
    mode = MODES.get(attributes.get("mode", "constant"))
    if not constants or mode is None:
        return None
    pads, value, axes = (*constants, None, None)[:3]
    return layers.Pad(pads, axes, 0.0 if value is None else _number(value), mode)


def _number(value: Any) -> Any:
    return value[0] if isinstance(value, list) else value


def _axes(insert: bool) -> Converter:
    def convert(attributes: Attributes, constants: Constants, outputs: int) -> Any:
        axes = constants[0] if constants else attributes.get("axes")
        return None if axes is None else layers.Axes(axes, insert)

    return convert


def _reduce(which: str) -> Converter:
    def convert(attributes: Attributes, constants: Constants, outputs: int) -> Any:
        axes = (constants[0] if constants else None) or attributes.get("axes") or []
        if not axes and attributes.get("noop_with_empty_axes"):
            return None
        return layers.Reduce(which, axes, bool(attributes.get("keepdims", 1)))

    return convert


def _gelu(attributes: Attributes, constants: Constants, outputs: int) -> Any:
    from torch import nn

    return nn.GELU(approximate=attributes.get("approximate", "none"))


CONVERTERS: dict[str, Converter] = {
    "Reshape": _reshape,
    "Expand": _expand,
    "Tile": _tile,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Squeeze": _axes(insert=False),
    "Unsqueeze": _axes(insert=True),
    "Gelu": _gelu,
    **{f"Reduce{which}": _reduce(which) for which in REDUCTIONS},
}
# of which onnx2torch has none, or not for the axes of today's opsets
ALWAYS = ("Gelu", "Split", "Pad", *(f"Reduce{which}" for which in REDUCTIONS))
