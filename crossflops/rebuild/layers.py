"""Layers that torch.export can see, for operators with constant sizes and for recurrent ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from crossflops.errors import NormalizeError
from crossflops.rebuild.nodes import READ_IT, LayerAndInputs, NodeFacts


class Reshape(nn.Module):
    """Reshape to a known shape; 0 keeps a size unless `allow_zero`, -1 takes what is left."""

    def __init__(self, shape: Sequence[int], allow_zero: bool) -> None:
        super().__init__()
        self.shape, self.allow_zero = list(shape), allow_zero

    def forward(self, x: Any) -> Any:
        """Return `x` in the new shape, with the same elements."""
        kept = [
            x.shape[at] if size == 0 and not self.allow_zero else size
            for at, size in enumerate(self.shape)
        ]
        return torch.reshape(x, kept)


class Expand(nn.Module):
    """Broadcast with a known shape: on each axis the larger size is used."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = list(shape)

    def forward(self, x: Any) -> Any:
        """Return `x` broadcast to the shape, as a view without copies."""
        return x.expand(torch.broadcast_shapes(x.shape, self.shape))


class Tile(nn.Module):
    """Tiling: repetition along every axis."""

    def __init__(self, repeats: Sequence[int]) -> None:
        super().__init__()
        self.repeats = list(repeats)

    def forward(self, x: Any) -> Any:
        """Return `x` repeated along every axis."""
        return x.repeat(self.repeats)


class Split(nn.Module):
    """A split along an axis into pieces of these sizes, or into equal ones, of which the last may
    be smaller.
    """

    def __init__(self, axis: int, sizes: Sequence[int] | None, pieces: int) -> None:
        super().__init__()
        self.axis, self.sizes, self.pieces = axis, sizes and list(sizes), pieces

    def forward(self, x: Any) -> Any:
        """Return the parts of `x` as a tuple; a single part is returned alone, as
        onnx2torch does.
        """
        pieces = torch.split(x, self.sizes or -(-x.shape[self.axis] // self.pieces), self.axis)
        return pieces if self.pieces > 1 else pieces[0]


class Slice(nn.Module):
    """Slices along some axes, each from a start to an end with a step, which may be negative."""

    def __init__(
        self, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
    ) -> None:
        super().__init__()
        self.cuts = list(zip(axes, starts, ends, steps, strict=True))

    def forward(self, x: Any) -> Any:
        """Return the part of `x` that ONNX Slice takes."""
        for axis, start, end, step in self.cuts:
            size = x.shape[axis]
            # ONNX has numbers far beyond for "to the first one", where Python has None
            stop = None if step < 0 and end < -size else end
            indices = range(size)[slice(start, stop, step)]
            if step > 0:
                x = torch.narrow(x, axis, 0, size)[
                    (slice(None),) * (axis % x.dim()) + (slice(indices.start, indices.stop, step),)
                ]
            else:
                x = torch.index_select(x, axis, torch.tensor(list(indices), device=x.device))
        return x


class Pad(nn.Module):
    """Padding with a constant or with the input's own elements, before and after each of some
    axes.
    """

    def __init__(
        self, pads: Sequence[int], axes: Sequence[int] | None, value: float, mode: str
    ) -> None:
        super().__init__()
        self.pads, self.axes, self.value, self.mode = list(pads), axes, value, mode

    def forward(self, x: Any) -> Any:
        """Return `x` with the pads of ONNX Pad, which lists all pads before an axis and then all
        pads behind.
        """
        enclosing = [0] * (2 * x.dim())
        for at, axis in enumerate(range(x.dim()) if self.axes is None else self.axes):
            index = 2 * (x.dim() - 1 - axis % x.dim())
            enclosing[index : index + 2] = self.pads[at], self.pads[at + len(self.pads) // 2]
        if self.mode == "constant":
            return torch.nn.functional.pad(x, enclosing, value=self.value)
        inner = 2 * (x.dim() - 2) if not any(enclosing[2 * (x.dim() - 2) :]) else len(enclosing)
        return torch.nn.functional.pad(x, enclosing[:inner], mode=self.mode)


class Reduce(nn.Module):
    """A reduction over known axes, or over all of them."""

    def __init__(self, which: str, axes: Sequence[int], keep: bool) -> None:
        super().__init__()
        self.which, self.axes, self.keep = which, list(axes), keep

    def forward(self, x: Any) -> Any:
        """Return `x` reduced over the axes, as the ONNX operator does it."""
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
    """Axes of size one that are inserted or removed."""

    def __init__(self, axes: Sequence[int], insert: bool) -> None:
        super().__init__()
        self.axes, self.insert = list(axes), insert

    def forward(self, x: Any) -> Any:
        """Return `x` with axes of size 1 inserted or removed."""
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
        """Return the upper or lower triangle of the matrices in `x`, with zeros elsewhere."""
        return (torch.triu if self.upper else torch.tril)(x, self.diagonal)


class OneHot(nn.Module):
    """One of two values along a new axis, by indices from -depth to depth - 1."""

    def __init__(self, depth: int, off: Any, on: Any, axis: int) -> None:
        super().__init__()
        self.depth, self.axis = depth, axis
        self.register_buffer("values", torch.stack([off, on]))

    def forward(self, indices: Any) -> Any:
        """Return the on value at each index along the new axis and the off value elsewhere, as
        ONNX OneHot does.
        """
        axis = self.axis % (indices.dim() + 1)
        positions = torch.arange(self.depth).reshape([-1] + [1] * (indices.dim() - axis))
        wrapped = torch.where(indices < 0, indices + self.depth, indices).unsqueeze(axis)
        return self.values[(wrapped == positions).long()]


class RunningSum(nn.Module):
    """Running sums along an axis up to each element, or from it on; without the element itself if
    `exclusive`.
    """

    def __init__(self, axis: int, exclusive: bool, reverse: bool) -> None:
        super().__init__()
        self.axis, self.exclusive, self.reverse = axis, exclusive, reverse

    def forward(self, x: Any) -> Any:
        """Return the running sums of `x` along the axis, in the shape of `x`."""
        x = torch.flip(x, [self.axis]) if self.reverse else x
        sums = torch.cumsum(x, self.axis)
        sums = sums - x if self.exclusive else sums
        return torch.flip(sums, [self.axis]) if self.reverse else sums


# LSTM, GRU and RNN of a file as the layers of torch that tools know.
#
# ONNX stacks the gates of W [D, gH, I], R [D, gH, H] and B [D, 2gH] (biases of W, then of R) as i,
# o, f, c in an LSTM and z, r, h in a GRU; torch as i, f, c, o and r, z, h. A GRU of torch
# multiplies by r after the product with R, which is `linear_before_reset`. Sources: the operators'
# specification (onnx/defs/rnn/defs.cc), and the formulas of torch.nn.LSTM, GRU and RNN.

_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}  # of torch, as places in ONNX
_USUAL = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
# inputs: X, W, R, B, sequence_lens, initial_h, and of an LSTM initial_c and P


class Recurrent(nn.Module):
    """A recurrent layer of torch with the axes of ONNX: X [T, B, I], Y [T, D, B, H], states [D, B,
    H].

    With `layout` 1 the batch comes first: X [B, T, I], Y [B, T, D, H], states [B, D, H].
    """

    def __init__(self, layer: nn.RNNBase, backwards: bool, layout: int, outputs: int) -> None:
        super().__init__()
        self.layer, self.backwards = layer, backwards
        self.layout, self.outputs = layout, outputs

    def forward(self, x: Any, h: Any = None, c: Any = None) -> Any:
        """Return the outputs Y and the last states that the node requests; a missing first state
        is zeros.
        """
        time = 1 if self.layout else 0
        y, last = self.layer(
            torch.flip(x, [time]) if self.backwards else x, self._initial_state(h, c)
        )
        y = y.unflatten(-1, (2 if self.layer.bidirectional else 1, self.layer.hidden_size))
        y = y if self.layout else y.transpose(1, 2)
        y = torch.flip(y, [time]) if self.backwards else y
        ends = last if isinstance(last, tuple) else (last,)
        results = (y, *(self._swap_layout(end) for end in ends))
        return results[: self.outputs] if self.outputs > 1 else y

    def _initial_state(self, h: Any, c: Any) -> Any:
        """Return the first states as torch's layer takes them: h, or (h, c) for an LSTM; None if
        none is given.
        """
        if h is None and c is None:
            return None
        h, c = (torch.zeros_like(c) if h is None else h), (torch.zeros_like(h) if c is None else c)
        h, c = self._swap_layout(h), self._swap_layout(c)
        return (h, c) if isinstance(self.layer, nn.LSTM) else h

    def _swap_layout(self, state: Any) -> Any:
        """Return a state with its first two axes swapped if the batch comes first (`layout` 1),
        else unchanged.
        """
        return state.transpose(0, 1) if self.layout else state


def make_recurrent_layer(facts: NodeFacts) -> LayerAndInputs:
    """Return the torch layer of an ONNX RNN, GRU or LSTM node and the positions of the inputs that
    it takes.

    Raises NormalizeError, naming the feature, where the node uses one that torch's layers lack.
    """
    _reject_unsupported_recurrent(facts)
    kind, w, r = facts.operator, facts.constant(1), facts.constant(2)
    direction = facts.attributes.get("direction", "forward")
    both = direction == "bidirectional"
    layer = getattr(nn, kind)(
        int(w.shape[2]),
        int(r.shape[2]),
        bias=facts.has(3),
        bidirectional=both,
        batch_first=bool(facts.attributes.get("layout", 0)),
        **({"nonlinearity": _first_direction_activations(facts)[0]} if kind == "RNN" else {}),
    ).to(torch.from_numpy(w[:0]).dtype)
    for index in range(2 if both else 1):
        _fill_direction_weights(layer, facts, index)
    layout = int(facts.attributes.get("layout", 0))
    wrapped = Recurrent(layer, direction == "reverse", layout, facts.outputs)
    return wrapped, (0, *_initial_state_positions(facts))


def _fill_direction_weights(layer: nn.RNNBase, facts: NodeFacts, direction: int) -> None:
    """Copy the weights of one direction of an ONNX node into a torch layer, gates in torch's
    order.
    """
    suffix = "l0_reverse" if direction else "l0"
    gates = _GATES[facts.operator]
    weights = {"weight_ih": facts.constant(1), "weight_hh": facts.constant(2)}
    if facts.has(3):
        bias = facts.constant(3)
        weights["bias_ih"], weights["bias_hh"] = np.split(bias, 2, axis=1)
    for name, value in weights.items():
        parts = np.split(value[direction], len(gates), axis=0)
        ordered = np.concatenate([parts[gate] for gate in gates])
        with torch.no_grad():
            getattr(layer, f"{name}_{suffix}").copy_(torch.from_numpy(ordered))


def _initial_state_positions(facts: NodeFacts) -> tuple[int, ...]:
    """Return the input positions of a node's initial states; () if all of them are zeros."""
    indices = (5, 6) if facts.operator == "LSTM" else (5,)
    zeros = [not facts.has(index) or _is_all_zero(facts.constant(index)) for index in indices]
    return () if all(zeros) else tuple(index for index in indices if index < len(facts.given))


def _is_all_zero(value: Any) -> bool:
    """Return whether an array is given and all its elements are zero."""
    return value is not None and not np.any(value)


def _first_direction_activations(facts: NodeFacts) -> tuple[str, ...]:
    """Return the lower-case names of the activations of a recurrent node's first direction."""
    names = facts.attributes.get("activations") or _USUAL[facts.operator]
    return tuple(name.lower() for name in names[: len(_USUAL[facts.operator])])


def _reject_unsupported_recurrent(facts: NodeFacts) -> None:
    """Raise NormalizeError if the recurrent node uses a feature that torch's layers do
    not have.
    """
    attributes, usual = facts.attributes, _USUAL[facts.operator]
    provided = [name.lower() for name in attributes.get("activations") or ()]
    taken = _first_direction_activations(facts)
    known = (("tanh",), ("relu",)) if facts.operator == "RNN" else (usual,)
    if taken not in known or tuple(provided) not in ((), taken, taken * 2):
        raise _unsupported_feature_error(facts, f"the activations {', '.join(provided)}")
    if attributes.get("clip"):
        raise _unsupported_feature_error(facts, "a clip of what enters the gates")
    if attributes.get("input_forget"):
        raise _unsupported_feature_error(facts, "input and forget gates that are coupled")
    if facts.operator == "GRU" and not attributes.get("linear_before_reset"):
        raise _unsupported_feature_error(
            facts, "the reset before the product with R (linear_before_reset = 0)"
        )
    for index in (1, 2, 3):
        if facts.has(index) and facts.constant(index) is None:
            raise _unsupported_feature_error(facts, "weights that are computed")
    if facts.has(7) and not _is_all_zero(facts.constant(7)):
        raise _unsupported_feature_error(facts, "peepholes")
    if facts.has(4) and not _has_full_sequences(facts):
        raise _unsupported_feature_error(facts, "lengths for each sequence")


def _has_full_sequences(facts: NodeFacts) -> bool:
    """Return whether all sequences of a recurrent node are as long as the time axis of its input
    X.
    """
    lengths, shape = facts.constant(4), facts.shape(0)
    if lengths is None or shape is None:
        return False
    return bool(np.all(lengths == shape[1 if facts.attributes.get("layout") else 0]))


def _unsupported_feature_error(facts: NodeFacts, what: str) -> NormalizeError:
    """Return the error which says that no torch layer has this feature of the node."""
    name = f"{facts.operator} {facts.name}".strip()
    return NormalizeError(f"{name} has {what}, which no torch layer supports", READ_IT)
