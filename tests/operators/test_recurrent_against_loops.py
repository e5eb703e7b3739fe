"""LSTM, GRU and RNN against loops that perform them on counted scalars."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.ir.ledger import Cost, UncountedNode
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.operators.scalars import Tally, few, numbers, reference, values, work


def gate(tally, x, h, w, r, b, row):
    """Xt*W^T + Ht-1*R^T + Wb + Rb for one row: x and h share one accumulator."""
    acc = tally.dot([*x, *h], [*w[row], *r[row]])
    return acc if b is None else acc + b[row] + b[row + len(w)]


def lstm_step(tally, x, h, c, w, r, b, p):
    """One step of an LSTM; gates in the order i, o, f, c."""
    size, state, cell = len(h), [], []
    for u in range(size):
        i, o, f, g = (gate(tally, x, h, w, r, b, n * size + u) for n in range(4))
        if p is not None:
            i, f = i + p[u] * c[u], f + p[2 * size + u] * c[u]
        new = f.sigmoid() * c[u] + i.sigmoid() * g.tanh()
        if p is not None:
            o = o + p[size + u] * new
        cell.append(new)
        state.append(o.sigmoid() * new.tanh())
    return state, cell


def gru_step(tally, x, h, w, r, b, linear_before_reset):
    """One step of a GRU; gates in the order z, r, h."""
    size, state = len(h), []
    reset = [gate(tally, x, h, w, r, b, size + u).sigmoid() for u in range(size)]
    damped = h if linear_before_reset else [reset[u] * h[u] for u in range(size)]
    for u in range(size):
        z, row = gate(tally, x, h, w, r, b, u).sigmoid(), 2 * size + u
        if linear_before_reset:
            left, right = tally.dot(x, w[row]), tally.dot(h, r[row])
            left = left if b is None else left + b[row]
            right = right if b is None else right + b[row + len(w)]
            new = (left + reset[u] * right).tanh()
        else:
            new = gate(tally, x, damped, w, r, b, row).tanh()
        state.append((1 - z) * new + z * h[u])
    return state


def sequence(tally, step, x, directions, hidden, first=None):
    """Y [T, D, B, H]: the steps of each direction and batch entry, backwards in the second.

    `first` is the hidden state [D, B, H] before the first step; None: zeros.
    """
    length, batch, _ = x.shape
    y = np.empty((length, directions, batch, hidden), dtype=object)
    for d, n in np.ndindex(directions, batch):
        state = step.start(tally, hidden)
        state = state if first is None else (list(first[d, n]), state[1])
        for t in range(length - 1, -1, -1) if d else range(length):
            state = step(tally, x[t, n], state, d)
            y[t, d, n] = state[0]
    return y


class Step:
    """A step of one operator, with its weights."""

    def __init__(self, kind, arrays, flag):
        self.kind, self.arrays, self.flag = kind, arrays, flag

    def start(self, tally, hidden):
        """The state before the first step: zeros."""
        return [tally.number(0) for _ in range(hidden)], [tally.number(0) for _ in range(hidden)]

    def __call__(self, tally, x, state, d):
        """The state after one step in direction d."""
        w, r, b, p = (None if a is None else a[d] for a in self.arrays)
        h, c = state
        if self.kind == "LSTM":
            return lstm_step(tally, x, h, c, w, r, b, p)
        if self.kind == "GRU":
            return gru_step(tally, x, h, w, r, b, self.flag), c
        return [gate(tally, x, h, w, r, b, u).tanh() for u in range(len(h))], c


GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
few_units = st.integers(1, 3)


@pytest.mark.parametrize("kind", list(GATES))
@few
@given(
    *(few_units, st.integers(1, 2), few_units, few_units, st.integers(1, 2)),
    *(st.booleans(), st.booleans(), st.data()),
)
def test_recurrent_is_its_loop(
    kind, length, batch, inputs, hidden, directions, biased, flag, data
):
    """A layer counts what its loop does, and the loop does what ONNX says.

    `flag` is a peephole for an LSTM, linear_before_reset for a GRU.
    """
    rows = GATES[kind] * hidden
    x = numbers(data.draw, length, batch, inputs)
    w, r = (
        numbers(data.draw, directions, rows, inputs),
        numbers(data.draw, directions, rows, hidden),
    )
    b = numbers(data.draw, directions, 2 * rows) if biased else None
    p = numbers(data.draw, directions, 3 * hidden) if flag and kind == "LSTM" else None
    tally = Tally()
    arrays = [None if a is None else tally.array(a) for a in (w, r, b, p)]
    y = sequence(tally, Step(kind, arrays, flag), tally.array(x), directions, hidden)
    attrs = {
        "hidden_size": hidden,
        "direction": "bidirectional" if directions == 2 else "forward",
        **({"linear_before_reset": int(flag)} if kind == "GRU" else {}),
    }
    given_ = [x, w, r, b] + ([None, None, None, p] if kind == "LSTM" else [])
    if directions == 1:  # ONNX's reference implementation has no other
        assert np.allclose(values(y), reference(kind, given_, **attrs), atol=1e-4)
    shapes = [None if a is None else a.shape for a in given_]
    assert work(to_node(kind, shapes, [y.shape], **attrs)) == tally.cost
    swapped = [(batch, length, inputs), *shapes[1:]]
    assert work(to_node(kind, swapped, [y.shape], layout=1, **attrs)) == tally.cost


def test_activations_may_be_others():
    """An RNN with Relu compares once per unit and step where one with tanh takes a special."""
    shapes, out = [(5, 2, 3), (1, 4, 3), (1, 4, 4)], [(5, 1, 2, 4)]
    units = 5 * 2 * 4
    assert work(to_node("RNN", shapes, out)) == Cost(macs=units * 7, specials=units)
    assert work(to_node("RNN", shapes, out, activations=("Relu",))) == (
        Cost(macs=units * 7, compares=units)
    )


def test_a_clip_compares_each_gate_twice():
    """A GRU with clip bounds its three gates from both sides."""
    shapes, out = [(5, 2, 3), (1, 12, 3), (1, 12, 4)], [(5, 1, 2, 4)]
    clipped, plain = (work(to_node("GRU", shapes, out, **a)) for a in ({"clip": 3.0}, {}))
    assert clipped == plain + Cost(compares=2 * 3 * 5 * 2 * 4)


@pytest.mark.parametrize(
    "attrs",
    [{"input_forget": 1}, {"activations": ("Sigmoid",)}, {"activations": ("A", "B", "C")}],
)
def test_what_is_not_known_is_uncounted(attrs):
    """Coupled gates, too few activations or unknown ones give a reason, not a number."""
    lstm = to_node("LSTM", [(5, 2, 3), (1, 16, 3), (1, 16, 4)], [(5, 1, 2, 4)], **attrs)
    assert isinstance(count_node(lstm), UncountedNode)


def test_sequence_lens_give_a_bound():
    """Lengths are values: the longest one is counted for all."""
    shapes = [(5, 2, 3), (1, 16, 3), (1, 16, 4), None, "2:int32"]
    assert count_node(to_node("LSTM", shapes, [(5, 1, 2, 4)])).exactness == "bound"
