"""Converters that look at a whole node: they choose which of its inputs their layer takes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from crossflops.normalize.rebuilt import layers
from crossflops.normalize.rebuilt.facts import Facts
from crossflops.normalize.rebuilt.recurrent import recurrent

Whole = Callable[[Facts], tuple[Any, tuple[int, ...]]]


def _triangle(facts: Facts) -> tuple[Any, tuple[int, ...]]:
    diagonal = facts.constant(1)
    if facts.has(1) and diagonal is None:
        return None, ()
    upper = bool(facts.attributes.get("upper", 1))
    return layers.Triangle(upper, int(diagonal.item()) if diagonal is not None else 0), (0,)


def _one_hot(facts: Facts) -> tuple[Any, tuple[int, ...]]:
    depth, values = facts.constant(1), facts.constant(2)
    if depth is None or values is None:
        return None, ()
    off, on = torch.from_numpy(values.copy())
    return layers.OneHot(int(depth.item()), off, on, facts.attributes.get("axis", -1)), (0,)


def _global_max(facts: Facts) -> tuple[Any, tuple[int, ...]]:
    shape = facts.shape(0)
    pools = {3: nn.AdaptiveMaxPool1d, 4: nn.AdaptiveMaxPool2d, 5: nn.AdaptiveMaxPool3d}
    kind = None if shape is None else pools.get(len(shape))
    return (None, ()) if kind is None else (kind(1), (0,))


def _running_sum(facts: Facts) -> tuple[Any, tuple[int, ...]]:
    """That of onnx2torch 1.5 sums in reverse unless told otherwise, along a computed axis."""
    axis, attributes = facts.constant(1), facts.attributes
    if axis is None:
        return None, ()
    told = (bool(attributes.get(name, 0)) for name in ("exclusive", "reverse"))
    return layers.RunningSum(int(axis.item()), *told), (0,)


WHOLES: dict[str, Whole] = {
    "LSTM": recurrent,
    "GRU": recurrent,
    "RNN": recurrent,
    "Trilu": _triangle,
    "CumSum": _running_sum,
    "OneHot": _one_hot,
    "GlobalMaxPool": _global_max,
}
