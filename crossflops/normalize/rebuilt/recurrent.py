"""LSTM, GRU and RNN of a file as the layers of torch that tools know.

ONNX stacks the gates of W [D, gH, I], R [D, gH, H] and B [D, 2gH] (biases of W, then of R) as i,
o, f, c in an LSTM and z, r, h in a GRU; torch as i, f, c, o and r, z, h. A GRU of torch multiplies
by r after the product with R, which is `linear_before_reset`. Sources: the operators'
specification (onnx/defs/rnn/defs.cc), and the formulas of torch.nn.LSTM, GRU and RNN.
"""

from typing import Any

import numpy as np
import torch
from torch import nn

from crossflops.errors import NormalizeError
from crossflops.normalize.rebuilt.facts import READ_IT, Facts

_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2), "RNN": (0,)}  # of torch, as places in ONNX
_USUAL = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
# inputs: X, W, R, B, sequence_lens, initial_h, and of an LSTM initial_c and P


class Recurrent(nn.Module):
    """A layer of torch between the axes of ONNX: X [T, B, I], Y [T, D, B, H], states [D, B, H].

    With `layout` 1 the batch comes first: X [B, T, I], Y [B, T, D, H], states [B, D, H].
    """

    def __init__(self, layer: nn.RNNBase, backwards: bool, layout: int, outputs: int) -> None:
        super().__init__()
        self.layer, self.backwards = layer, backwards
        self.layout, self.outputs = layout, outputs

    def forward(self, x: Any, h: Any = None, c: Any = None) -> Any:
        """Y, and the last states that are asked for; a first state that is left out is zeros."""
        time = 1 if self.layout else 0
        y, last = self.layer(torch.flip(x, [time]) if self.backwards else x, self._first(h, c))
        y = y.unflatten(-1, (2 if self.layer.bidirectional else 1, self.layer.hidden_size))
        y = y if self.layout else y.transpose(1, 2)
        y = torch.flip(y, [time]) if self.backwards else y
        ends = last if isinstance(last, tuple) else (last,)
        found = (y, *(self._turned(one) for one in ends))
        return found[: self.outputs] if self.outputs > 1 else y

    def _first(self, h: Any, c: Any) -> Any:
        """The states as the layer takes them."""
        if h is None and c is None:
            return None
        h, c = (torch.zeros_like(c) if h is None else h), (torch.zeros_like(h) if c is None else c)
        h, c = self._turned(h), self._turned(c)
        return (h, c) if isinstance(self.layer, nn.LSTM) else h

    def _turned(self, state: Any) -> Any:
        return state.transpose(0, 1) if self.layout else state


def recurrent(facts: Facts) -> tuple[nn.Module, tuple[int, ...]]:
    """The layer, and the places of the inputs that it takes.

    Raises NormalizeError, naming it, where something is in the node that layers of torch lack.
    """
    _refuse(facts)
    kind, w, r = facts.operator, facts.constant(1), facts.constant(2)
    direction = facts.attributes.get("direction", "forward")
    both = direction == "bidirectional"
    layer = getattr(nn, kind)(
        int(w.shape[2]),
        int(r.shape[2]),
        bias=facts.has(3),
        bidirectional=both,
        batch_first=bool(facts.attributes.get("layout", 0)),
        **({"nonlinearity": _activations(facts)[0]} if kind == "RNN" else {}),
    ).to(torch.from_numpy(w[:0]).dtype)
    for place in range(2 if both else 1):
        _fill(layer, facts, place)
    layout = int(facts.attributes.get("layout", 0))
    wrapped = Recurrent(layer, direction == "reverse", layout, facts.outputs)
    return wrapped, (0, *_states(facts))


def _fill(layer: nn.RNNBase, facts: Facts, direction: int) -> None:
    """The weights of a direction, its gates in the order of torch."""
    suffix = "l0_reverse" if direction else "l0"
    gates = _GATES[facts.operator]
    found = {"weight_ih": facts.constant(1), "weight_hh": facts.constant(2)}
    if facts.has(3):
        bias = facts.constant(3)
        found["bias_ih"], found["bias_hh"] = np.split(bias, 2, axis=1)
    for name, value in found.items():
        parts = np.split(value[direction], len(gates), axis=0)
        ordered = np.concatenate([parts[gate] for gate in gates])
        with torch.no_grad():
            getattr(layer, f"{name}_{suffix}").copy_(torch.from_numpy(ordered))


def _states(facts: Facts) -> tuple[int, ...]:
    """The places of the first states, unless all are zeros."""
    places = (5, 6) if facts.operator == "LSTM" else (5,)
    zeros = [not facts.has(place) or _zero(facts.constant(place)) for place in places]
    return () if all(zeros) else tuple(place for place in places if place < len(facts.given))


def _zero(value: Any) -> bool:
    return value is not None and not np.any(value)


def _activations(facts: Facts) -> tuple[str, ...]:
    """Those of the first direction, in lower case."""
    names = facts.attributes.get("activations") or _USUAL[facts.operator]
    return tuple(name.lower() for name in names[: len(_USUAL[facts.operator])])


def _refuse(facts: Facts) -> None:
    """What layers of torch lack. Raises NormalizeError."""
    attributes, usual = facts.attributes, _USUAL[facts.operator]
    given = [name.lower() for name in attributes.get("activations") or ()]
    taken = _activations(facts)
    known = (("tanh",), ("relu",)) if facts.operator == "RNN" else (usual,)
    if taken not in known or tuple(given) not in ((), taken, taken * 2):
        raise _lacking(facts, f"the activations {', '.join(given)}")
    if attributes.get("clip"):
        raise _lacking(facts, "a clip of what enters the gates")
    if attributes.get("input_forget"):
        raise _lacking(facts, "input and forget gates that are coupled")
    if facts.operator == "GRU" and not attributes.get("linear_before_reset"):
        raise _lacking(facts, "the reset before the product with R (linear_before_reset = 0)")
    for place in (1, 2, 3):
        if facts.has(place) and facts.constant(place) is None:
            raise _lacking(facts, "weights that are computed")
    if facts.has(7) and not _zero(facts.constant(7)):
        raise _lacking(facts, "peepholes")
    if facts.has(4) and not _full(facts):
        raise _lacking(facts, "lengths for each sequence")


def _full(facts: Facts) -> bool:
    """Whether every sequence is known to be as long as X."""
    lengths, shape = facts.constant(4), facts.shape(0)
    if lengths is None or shape is None:
        return False
    return bool(np.all(lengths == shape[1 if facts.attributes.get("layout") else 0]))


def _lacking(facts: Facts, what: str) -> NormalizeError:
    name = f"{facts.operator} {facts.name}".strip()
    return NormalizeError(f"{name} has {what}, which no layer of torch has", READ_IT)
