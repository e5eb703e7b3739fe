"""The graph of a PyTorch model holds its work, all of it, and nothing that the export made up."""

import pytest

import crossflops
from crossflops.errors import CrossflopsWarning
from crossflops.ir.trace import Setting
from tests.models import Apply, F, Odd, block, encoder_layer, exported, nn, operators, torch

pytestmark = pytest.mark.torch


def nodes(graph, kind):
    """The nodes of one operator."""
    return [node for node in graph.nodes if node.op.type == kind]


def test_batch_norm_is_not_folded():
    """A convolution without a bias stays one, beside its batch norm, each under its module.

    Convolution 8*27*256 MACs. Parameters 8*27 and two of 8 per channel: statistics are none.
    """
    graph, _, ledger = exported(block(), torch.randn(1, 3, 16, 16))
    (conv,), (norm,) = nodes(graph, "Conv"), nodes(graph, "BatchNormalization")
    assert [node.op.type for node in graph.nodes] == ["Conv", "BatchNormalization", "Relu"]
    assert (conv.path, norm.path) == ("0", "1")
    assert len([spec for spec in conv.inputs if spec is not None]) == 2
    assert ledger.total.macs == 8 * 27 * 256
    assert graph.params == 8 * 27 + 16
    assert ledger.uncounted == ()


def test_biases_are_kept_where_they_are_and_made_up_nowhere():
    """Convolutions and transposed ones with and without bias: one addition per output with one.

    16*16 outputs of 8 channels, then 32*32 of 4, then 10 of a linear layer.
    """
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ConvTranspose2d(8, 4, 2, 2),
        nn.Conv2d(4, 4, 1, bias=False),
        nn.ConvTranspose2d(4, 4, 1, bias=False),
        nn.Flatten(),
        nn.Linear(4 * 32 * 32, 10),
    )
    graph, _, ledger = exported(model, torch.randn(1, 3, 16, 16))
    given = [
        len([spec for spec in node.inputs if spec is not None])
        for node in nodes(graph, "Conv") + nodes(graph, "ConvTranspose")
    ]
    assert given == [3, 2, 3, 2]
    assert ledger.total.adds == 8 * 256 + 4 * 1024 + 10
    assert ledger.total.macs == 8 * 27 * 256 + 32 * 4 * 256 + 2 * 16 * 1024 + 40960


def test_shape_arithmetic_is_no_work():
    """Sizes taken from tensors, multiplied and divided: only the additions of x are left."""

    def forward(self, x):
        n, c, h, w = x.shape
        y = x.reshape(n, c * h, -1).transpose(1, 2).flatten(1)
        y = F.interpolate(y[None], scale_factor=2.0, mode="nearest")[0]
        return y.chunk(2, dim=1)[0] + torch.arange(n * c * h * w // n, dtype=x.dtype)

    graph, _, ledger = exported(Apply(forward), torch.randn(2, 3, 4, 5))
    assert ledger.uncounted == ()
    assert (ledger.total.macs, ledger.total.flops) == (0, 2 * 60)
    assert not [node for node in graph.nodes if node.op.type in {"Shape", "Mul", "Div"}]


def test_attention_is_whole():
    """An encoder layer holds one Attention node, and the norms stay norms.

    Width 32, length 10, batch 2: projections 20*32*(96+32), products 2*20*10*32, feed-forward
    2*20*32*64.
    """
    graph, _, ledger = exported(encoder_layer(), torch.randn(2, 10, 32))
    assert len(nodes(graph, "Attention")) == 1
    assert len(nodes(graph, "LayerNormalization")) == 2
    assert not nodes(graph, "Softmax")
    assert ledger.total.macs == 20 * 32 * 128 + 2 * 20 * 10 * 32 + 2 * 20 * 32 * 64 == 176640


def test_dead_calls_are_in_the_trace_and_not_in_the_graph():
    """What no output depends on is a call without nodes, marked, and not in the native count."""
    graph, trace, ledger = exported(Odd(), torch.randn(1, 8, 8, 8))
    (dead,) = [call for call in operators(trace, "aten.conv2d") if not call.live]
    assert trace.modules[dead.module].path == "dead"
    assert dead.nodes == ()
    assert not [node for node in graph.nodes if node.path == "dead"]
    assert ledger.total.macs == Odd.MACS
    parameters = 2 * 8 * 72 + 2 * 32 + 4 * 4 * (4 + 4 + 2)
    assert graph.params == parameters


def test_every_node_belongs_to_an_operator_call():
    """Calls and nodes name each other, and the path of a node is that of its call's module."""
    graph, trace, _ = exported(Odd(), torch.randn(1, 8, 8, 8))
    for node in graph.nodes:
        call = trace.calls_by_key[node.call]
        assert call.level == "operator"
        assert node.key in call.nodes
        assert node.path == trace.modules[call.module].path


def test_constant_work_is_counted_and_marked():
    """A linear layer on a buffer costs 3*4*8 MACs that no input changes; on the input 2*4*8."""

    class Bias(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Linear(4, 8)
            self.main = nn.Linear(4, 8)
            self.register_buffer("places", torch.randn(3, 4))

        def forward(self, x):
            return self.main(x)[:, None] + self.table(self.places)

    _, trace, ledger = exported(Bias(), torch.randn(2, 4))
    constant = sum(row.cost.macs for row in ledger.counted if row.node.constant)
    assert (constant, ledger.total.macs) == (3 * 4 * 8, (3 + 2) * 4 * 8)
    by_module = {
        trace.modules[call.module].path: call.constant for call in operators(trace, "aten.linear")
    }
    assert by_module == {"table": True, "main": False}


def test_work_on_parameters_is_not_folded():
    """A weight made from another by a product costs it at every run: 8*8*8 constant MACs."""
    model = Apply(lambda s, x: F.linear(x, s.a.weight @ s.a.weight), a=nn.Linear(8, 8, bias=False))
    _, _, ledger = exported(model, torch.randn(2, 8))
    assert sum(row.cost.macs for row in ledger.counted if row.node.constant) == 512
    assert ledger.total.macs == 512 + 2 * 64


def test_a_product_of_few_constants_is_work():
    """2 x 3 by 3 x 2, which an exporter would fold: 12 MACs, and none of them is dead."""
    model = Apply(lambda s, x: s.a(x) + (torch.ones(2, 3) @ torch.ones(3, 2)).sum(),
                  a=nn.Linear(8, 8, bias=False))  # fmt: skip
    report = crossflops.count(model, (torch.randn(2, 8),))
    totals = report.totals
    assert (totals.macs, totals.constant_macs, totals.dead_macs) == (2 * 64 + 12, 12, 0)


@pytest.mark.parametrize(
    ("layer", "kind", "macs"),
    [
        (nn.LSTM(16, 32), "LSTM", 10 * 4 * 32 * (16 + 32)),
        (nn.LSTM(16, 32, 2, bidirectional=True), "LSTM", 10 * 2 * 4 * 32 * (48 + 96)),
        (nn.GRU(16, 32), "GRU", 10 * 3 * 32 * (16 + 32)),
        (nn.RNN(16, 32, nonlinearity="relu"), "MatMul", 10 * 32 * (16 + 32)),
    ],
)
def test_recurrent_layers_are_known_behind_their_results(layer, kind, macs):
    """Shapes behind a recurrent layer are known, so that nothing is left uncounted.

    T*B = 10 sample-steps of g*H*(I + H), I of a second layer both directions.
    """
    width = 32 * (2 if layer.bidirectional else 1)
    model = Apply(lambda s, x: s.after(s.layer(x)[0]), layer=layer, after=nn.Linear(width, 3))
    graph, _, ledger = exported(model, torch.randn(5, 2, 16))
    assert nodes(graph, kind)
    assert ledger.uncounted == ()
    assert all(spec.shape is not None for node in graph.nodes for spec in node.outputs if spec)
    assert ledger.total.macs == macs + 10 * width * 3


def test_the_digest_is_the_structure():
    """Other weights, names and batch norm statistics leave it; another width does not."""
    image = torch.randn(1, 3, 16, 16)
    digest = exported(block(), image)[0].digest
    renamed = nn.Sequential()
    for name, layer in zip("xyz", block(), strict=True):
        renamed.add_module(name, layer)
    assert digest == exported(renamed, image)[0].digest
    assert digest != exported(block(), torch.randn(1, 3, 16, 17))[0].digest


def test_training_is_exported_as_training():
    """Batch norm normalizes by the batch there, and the graph says so."""
    image = torch.randn(2, 3, 16, 16)
    graph, trace, ledger = exported(block(), image, setting=Setting(training=True))
    assert trace.setting.training
    assert operators(trace, "aten.batch_norm")[0].settings["training"] is True
    assert ledger.total.macs == 2 * 8 * 27 * 256
    assert graph.params == 8 * 27 + 16


def test_inputs_of_any_kind_arrive():
    """Positions and keywords of several types stand in the graph with shapes and types."""

    def forward(self, x, *, ids, mask):
        return self.table(ids) * mask[..., None] + self.layer(x).double().sum()

    model = Apply(forward, table=nn.Embedding(10, 4), layer=nn.Linear(4, 4))
    graph, _, ledger = exported(
        model,
        torch.randn(2, 4),
        ids=torch.zeros(2, 3, dtype=torch.int64),
        mask=torch.ones(2, 3, dtype=torch.bool),
    )
    inputs = {spec.name: (spec.dtype, spec.shape) for spec in graph.inputs}
    assert sorted(inputs.values()) == [
        ("bool", (2, 3)), ("float32", (2, 4)), ("int64", (2, 3))
    ]  # fmt: skip
    assert {"ids", "mask"} <= set(inputs)
    assert ledger.total.macs == 2 * 16


def test_dropout_is_work_in_training_only():
    """Of 2*8 numbers each costs scale * data * mask, 2 muls, and the compare of the mask."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3))
    for training, work in ((False, (0, 0)), (True, (2 * 16, 16))):
        _, _, ledger = exported(model, torch.randn(2, 8), setting=Setting(training=training))
        assert ledger.uncounted == ()
        assert (ledger.total.muls, ledger.total.compares) == work


class Thrown(nn.Module):
    """A layer whose result is dropped, one product that ends in a buffer, and one that is used."""

    def __init__(self):
        super().__init__()
        self.used, self.dropped = nn.Linear(8, 8), nn.Linear(8, 16)
        self.register_buffer("kept", torch.zeros(4, 8))
        self.register_buffer("weight", torch.zeros(8, 8))

    def forward(self, x):
        """4 rows of 8."""
        self.dropped(x)
        self.kept.copy_(x @ self.weight)
        return self.used(x)


def test_work_on_which_no_output_depends_is_named_beside_the_count():
    """4*8*8 MACs count; 4*8*16 are dropped, and 4*8*8 are written into a buffer."""
    with pytest.warns(CrossflopsWarning, match="no output depends on 768 MACs"):
        report = crossflops.count(Thrown(), torch.randn(4, 8))
    assert (report.macs, report.totals.dead_macs) == (256, 512 + 256)
    (warning,) = report.warnings
    assert warning.endswith("512 in dropped, 256 in the model itself")
    assert "768   more, on which no output depends" in str(report)


class TwoLayers(nn.Module):
    """4 rows of 8 through 16 to 3: products of 512 and 192 MACs, in a function of this layer."""

    def __init__(self, result):
        super().__init__()
        self.first, self.last, self.result = nn.Linear(8, 16), nn.Linear(16, 3), result

    def both(self, x):
        """The hidden values and what is made of them."""
        hidden = torch.tanh(self.first(x))
        return hidden, self.last(hidden)

    def forward(self, x):
        """As the function has it."""
        return self.result(self, x)


def tangents(model, x):
    """The result, and its tangent."""
    return torch.func.jvp(lambda y: model.both(y)[1], (x,), (torch.ones_like(x),))


@pytest.mark.parametrize(
    ("result", "macs", "dead"),
    [
        (lambda model, x: tangents(model, x)[1], 3 * 512 + 2 * 192, 192),
        (lambda model, x: tangents(model, x)[0], 512 + 192, 2 * (512 + 192)),
        (tangents, 3 * (512 + 192), 0),
        (lambda model, x: torch.vmap(model.both)(x)[0], 512, 192),
        (lambda model, x: torch.zeros(model.both(x)[1].shape), 0, 512 + 192),
    ],
    ids=["tangent", "primal", "both", "vmap", "shape"],
)
def test_what_is_dead_is_named_by_the_parts_of_operators(result, macs, dead):
    """A layer under jvp has three products: of values, of tangents, of those of its weight."""
    from torch.utils.flop_counter import FlopCounterMode

    report = crossflops.count(TwoLayers(result), torch.randn(4, 8))
    assert (report.macs, report.totals.dead_macs) == (macs, dead)
    with FlopCounterMode(display=False) as ran:
        TwoLayers(result)(torch.randn(4, 8))
    assert ran.get_total_flops() == 2 * (macs + dead)


def test_a_model_that_uses_all_its_work_has_none_besides():
    """The counts of `block`, without a warning."""
    report = crossflops.count(block(), torch.randn(1, 3, 16, 16))
    assert (report.totals.dead_macs, report.warnings) == (0, ())


def test_a_squeeze_of_an_axis_that_is_longer_leaves_it():
    """PyTorch's squeeze(1) of 4 changes nothing, and the file that is exported can run."""
    model = Apply(lambda s, x: s.a(x).squeeze(1).squeeze((1, 2)).squeeze(0), a=nn.Linear(8, 8))
    graph, _, ledger = exported(model, torch.randn(1, 4, 8))
    assert [node.op.type for node in nodes(graph, "Squeeze")] == ["Squeeze"]
    assert graph.nodes[-1].outputs[0].shape == (4, 8)
    assert (ledger.total.macs, ledger.uncounted) == (4 * 8 * 8, ())


def test_a_number_at_the_places_of_a_mask_is_a_choice():
    """However many places there are: 4*8*8 MACs, 4 + 4*8 + 8 compares, and nothing uncounted."""

    def filled(layers, x):
        y = layers.a(x)
        y[y[:, 0] > 0] = 0
        y[y > 1] = 1.0
        y[:, y[0] > 0.5] = 2.0
        return y

    graph, _, ledger = exported(Apply(filled, a=nn.Linear(8, 8)), torch.randn(4, 8))
    assert len(nodes(graph, "Where")) == 3
    assert (ledger.total.macs, ledger.total.compares, ledger.uncounted) == (
        256,
        4 + 32 + 8,
        (),
    )
