"""Recurrent layers of every kind cost what a loop over their steps and cells does."""

import itertools

import pytest

from crossflops.ir.ledger import Cost
from crossflops.ir.trace import Setting
from crossflops.testing.graphs import to_node
from tests.models import Apply, exported, nn, torch
from tests.operators.scalars import Tally, work

pytestmark = pytest.mark.torch
LENGTH, BATCH, INPUTS, HIDDEN = 3, 2, 5, 4
GATES = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}


def loop(layer, length, batch):
    """MACs of a layer, one product of one weight and one number at a time."""
    macs = 0
    gates = GATES[type(layer)]
    directions = 2 if layer.bidirectional else 1
    state = layer.proj_size or layer.hidden_size
    for depth, _, _, _ in itertools.product(
        range(layer.num_layers), range(directions), range(length), range(batch)
    ):
        inputs = layer.input_size if depth == 0 else directions * state
        for _ in range(gates * layer.hidden_size):
            macs += inputs + state
        for _ in range(layer.proj_size):
            macs += layer.hidden_size
    return macs


def layers(kind):
    """One of every kind of layer, by the options that it is made with."""
    options = itertools.product((1, 2), *[(False, True)] * 3, (0, 3) if kind is nn.LSTM else (0,))
    by_name = {}
    for depth, both, first, bias, projected in options:
        more = {"proj_size": projected} if projected else {}
        name = "_".join(map(str, map(int, (depth, both, first, bias, projected))))
        by_name[name] = kind(
            INPUTS, HIDDEN, depth, bidirectional=both, batch_first=first, bias=bias, **more
        )
    return by_name


@pytest.mark.parametrize("kind", GATES, ids=lambda kind: kind.__name__)
def test_a_recurrent_layer_costs_what_its_loop_does(kind):
    """Layers, directions, which axis is the batch, biases, projections: in all combinations."""
    made = layers(kind)
    model = Apply(lambda s, x, y: [m(y if m.batch_first else x)[0] for m in s.children()], **made)
    x = torch.randn(LENGTH, BATCH, INPUTS)
    _, _, ledger = exported(model, x, x.transpose(0, 1))
    assert ledger.uncounted == ()
    macs = dict.fromkeys(made, 0)
    for row in ledger.counted:
        macs[row.node.path] += row.cost.macs
    assert macs == {name: loop(layer, LENGTH, BATCH) for name, layer in made.items()}


def test_a_projected_lstm_by_hand():
    """4 steps of 2 samples, 4*8*(8 + 4) MACs for the gates and 8*4 for the projection: 3328."""
    _, _, ledger = exported(nn.LSTM(8, 8, proj_size=4, batch_first=True), torch.randn(2, 4, 8))
    assert ledger.total.macs == 2 * 4 * (4 * 8 * (8 + 4) + 8 * 4) == 3328


def projected_step(tally, x, h, c, w, r, b, p):
    """One step as nn.LSTM's page has it, gates in the order i, f, g, o: the new h and c."""
    size = len(c)
    gate = [tally.dot([*x, *h], [*w[n], *r[n]]) + b[n] + b[n + 4 * size] for n in range(4 * size)]
    i, f, o = ([gate[n * size + u].sigmoid() for u in range(size)] for n in (0, 1, 3))
    new = [f[u] * c[u] + i[u] * gate[2 * size + u].tanh() for u in range(size)]
    wide = [o[u] * new[u].tanh() for u in range(size)]
    return [tally.dot(wide, row) for row in p], new


def test_every_kind_of_work_of_a_projected_lstm():
    """A cell of 3 units, projected to 2, on 2 steps of 4 numbers: counted, scalar by scalar."""
    tally = Tally()
    x, w, r, b, p = (
        tally.array(torch.randn(*shape).numpy())
        for shape in ((2, 4), (12, 4), (12, 2), (24,), (2, 3))
    )
    h, c = ([tally.number(0) for _ in range(size)] for size in (2, 3))
    for step in x:
        h, c = projected_step(tally, step, h, c, w, r, b, p)
    lstm = to_node(
        "torch.ops::aten.lstm.input",
        [(2, 1, 4), (1, 1, 2), (1, 1, 3), (12, 4), (12, 2), (12,), (12,), (2, 3)],
        [(2, 1, 2), (1, 1, 2), (1, 1, 3)],
        num_layers=1,
        bidirectional=0,
        has_biases=1,
    )
    assert work(lstm) == tally.cost


def test_dropout_between_the_layers_of_a_projected_lstm():
    """In training the 3 numbers of each of 6 steps are dropped: 2 muls and a compare each."""
    x = torch.randn(LENGTH, BATCH, INPUTS)
    model = nn.LSTM(INPUTS, HIDDEN, 2, proj_size=3, dropout=0.5)
    plain, dropped = (
        exported(model, x, setting=Setting(training=mode))[2].total for mode in (False, True)
    )
    work_of = {"muls": dropped.muls - plain.muls, "compares": dropped.compares - plain.compares}
    assert Cost(**work_of) == Cost(muls=2, compares=1) * 18
