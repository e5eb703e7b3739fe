"""Layers for ONNX operators whose sizes are constants, as numbers, which torch.export can see."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


class Reshape(nn.Module):
    """To a shape that is known; 0 keeps a size unless `allow_zero`, -1 takes what is left."""

    def __init__(self, shape: Sequence[int], allow_zero: bool) -> None:
        super().__init__()
        self.shape, self.allow_zero = list(shape), allow_zero

    def forward(self, x: Any) -> Any:
        """Of the same elements."""
        kept = [
            x.shape[at] if size == 0 and not self.allow_zero else size
            for at, size in enumerate(self.shape)
        ]
        return torch.reshape(x, kept)


class Expand(nn.Module):
    """Broadcast with a shape: either may be the larger one on an axis."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = list(shape)

    def forward(self, x: Any) -> Any:
        """Views, no copies."""
        return x.expand(torch.broadcast_shapes(x.shape, self.shape))


class Tile(nn.Module):
    """Repeat along every axis."""

    def __init__(self, repeats: Sequence[int]) -> None:
        super().__init__()
        self.repeats = list(repeats)

    def forward(self, x: Any) -> Any:
        """Copies."""
        return x.repeat(self.repeats)


class Split(nn.Module):
    """Into pieces along an axis: of these sizes, or as many of one size, the last one smaller."""

    def __init__(self, axis: int, sizes: Sequence[int] | None, pieces: int) -> None:
        super().__init__()
        self.axis, self.sizes, self.pieces = axis, sizes and list(sizes), pieces

    def forward(self, x: Any) -> Any:
        """A tuple; the only piece by itself, as onnx2torch has it."""
        found = torch.split(x, self.sizes or -(-x.shape[self.axis] // self.pieces), self.axis)
        return found if self.pieces > 1 else found[0]


class Slice(nn.Module):
    """Along some axes, each from a start to an end with a step; backwards too."""

    def __init__(
        self, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
    ) -> None:
        super().__init__()
        self.cuts = list(zip(axes, starts, ends, steps, strict=True))

    def forward(self, x: Any) -> Any:
        """What Python's own slices give, with the limits of ONNX."""
        for axis, start, end, step in self.cuts:
            size = x.shape[axis]
            # ONNX has numbers far beyond for "to the first one", where Python has None
            stop = None if step < 0 and end < -size else end
            places = range(size)[slice(start, stop, step)]
            if step > 0:
                x = torch.narrow(x, axis, 0, size)[
                    (slice(None),) * (axis % x.dim()) + (slice(places.start, places.stop, step),)
                ]
            else:
                x = torch.index_select(x, axis, torch.tensor(list(places), device=x.device))
        return x


class Pad(nn.Module):
    """By a constant or by what is there, before and after each of some axes."""

    def __init__(
        self, pads: Sequence[int], axes: Sequence[int] | None, value: float, mode: str
    ) -> None:
        super().__init__()
        self.pads, self.axes, self.value, self.mode = list(pads), axes, value, mode

    def forward(self, x: Any) -> Any:
        """torch has the pairs of the last axis first, ONNX all that is before, then the rest."""
        around = [0] * (2 * x.dim())
        for at, axis in enumerate(range(x.dim()) if self.axes is None else self.axes):
            place = 2 * (x.dim() - 1 - axis % x.dim())
            around[place : place + 2] = self.pads[at], self.pads[at + len(self.pads) // 2]
        if self.mode == "constant":
            return torch.nn.functional.pad(x, around, value=self.value)
        inner = 2 * (x.dim() - 2) if not any(around[2 * (x.dim() - 2) :]) else len(around)
        return torch.nn.functional.pad(x, around[:inner], mode=self.mode)


class Reduce(nn.Module):
    """A reduction over axes that are known; over all of them where none are."""

    def __init__(self, which: str, axes: Sequence[int], keep: bool) -> None:
        super().__init__()
        self.which, self.axes, self.keep = which, list(axes), keep

    def forward(self, x: Any) -> Any:
        """As the operator is defined, by torch's own functions."""
        axes = self.axes or list(range(x.dim()))
        simple = {"Sum": torch.sum, "Mean": torch.mean, "Max": torch.amax, "Min": torch.amin}
        if self.which in simple:
            return simple[self.which](x, axes, keepdim=self.keep)
        if self.which == "Prod":
            for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
                x = torch.prod(x, axis, keepdim=self.keep)
            return x
        if self.which == "LogSum":
            return torch.log(torch.sum(x, axes, keepdim=self.keep))
        if self.which == "LogSumExp":
            return torch.logsumexp(x, axes, keepdim=self.keep)
        if self.which == "L1":
            return torch.sum(torch.abs(x), axes, keepdim=self.keep)
        squares = torch.sum(torch.square(x), axes, keepdim=self.keep)
        return torch.sqrt(squares) if self.which == "L2" else squares


class Axes(nn.Module):
    """Axes of size one put in, or taken out."""

    def __init__(self, axes: Sequence[int], insert: bool) -> None:
        super().__init__()
        self.axes, self.insert = list(axes), insert

    def forward(self, x: Any) -> Any:
        """Of the same elements."""
        if not self.insert:
            return torch.squeeze(x, tuple(self.axes))
        for axis in sorted(axis % (x.dim() + len(self.axes)) for axis in self.axes):
            x = torch.unsqueeze(x, axis)
        return x


class Triangle(nn.Module):
    """The upper or the lower triangle of matrices, from a diagonal on."""

    def __init__(self, upper: bool, diagonal: int) -> None:
        super().__init__()
        self.upper, self.diagonal = upper, diagonal

    def forward(self, x: Any) -> Any:
        """The rest is zeros."""
        return (torch.triu if self.upper else torch.tril)(x, self.diagonal)


class OneHot(nn.Module):
    """One of two values along a new axis, by indices from -depth to depth - 1."""

    def __init__(self, depth: int, off: Any, on: Any, axis: int) -> None:
        super().__init__()
        self.depth, self.axis = depth, axis
        self.register_buffer("values", torch.stack([off, on]))

    def forward(self, indices: Any) -> Any:
        """As the operator is defined; an index out of range gives no `on`."""
        axis = self.axis % (indices.dim() + 1)
        places = torch.arange(self.depth).reshape([-1] + [1] * (indices.dim() - axis))
        wrapped = torch.where(indices < 0, indices + self.depth, indices).unsqueeze(axis)
        return self.values[(wrapped == places).long()]


class RunningSum(nn.Module):
    """Sums along an axis up to each element, or from it on; without itself if `exclusive`."""

    def __init__(self, axis: int, exclusive: bool, reverse: bool) -> None:
        super().__init__()
        self.axis, self.exclusive, self.reverse = axis, exclusive, reverse

    def forward(self, x: Any) -> Any:
        """Of the same size."""
        x = torch.flip(x, [self.axis]) if self.reverse else x
        sums = torch.cumsum(x, self.axis)
        sums = sums - x if self.exclusive else sums
        return torch.flip(sums, [self.axis]) if self.reverse else sums
