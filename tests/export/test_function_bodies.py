"""Operators of PyTorch without an ONNX form: the file has functions for them, and runs.

The outputs of the file are those of PyTorch, and its count is that of the model.
"""

import warnings

import onnx
import pytest
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from crossflops import count
from crossflops.frontends.pytorch.convert.exporter import DOMAIN
from crossflops.ir.trace import Setting
from crossflops.verbs.api import export
from tests.models import Apply, nn, torch

pytestmark = pytest.mark.tools
pytest.importorskip("onnxruntime")
F = torch.nn.functional
INDICES = torch.tensor([1, 4, 2, 7, 3, 2, 2, 0])
STARTS = torch.tensor([0, 3, 3, 6])  # the second bag is empty
ENDS = torch.tensor([0, 3, 3, 6, 8])


def bags(self, indices, starts, ends, weights):
    """Bags by all modes, with and without padding, an end and weights; two rows of one length."""
    return (
        *(bag(indices, starts) for bag in self.open),
        *(bag(indices, ends) for bag in self.closed),
        self.weighed(indices.int(), starts.int(), weights),
        self.weighed(indices.reshape(2, 4)),
        self.narrow(indices, starts),
    )


def bag_modules():
    """The modules of `bags`."""

    def bag(mode, **options):
        return nn.EmbeddingBag(9, 5, mode=mode, **options)

    pairs = [(mode, padding) for mode in ("sum", "mean", "max") for padding in (None, 2)]
    return {
        "open": nn.ModuleList(bag(mode, padding_idx=padding) for mode, padding in pairs),
        "closed": nn.ModuleList(
            bag(mode, padding_idx=padding, include_last_offset=True) for mode, padding in pairs
        ),
        "weighed": bag("sum"),
        "narrow": bag("mean").half(),
    }


def projected():
    """LSTMs whose states are projected, of all forms."""
    options = [
        {},
        {"bidirectional": True, "num_layers": 2},
        {"batch_first": True, "bias": False},
    ]
    return nn.ModuleList(nn.LSTM(5, 6, proj_size=3, **option) for option in options)


def projections(self, x, hidden, cell):
    """The first from states that are given, and once on one sequence."""
    first, *others = self.inner
    return first(x, (hidden, cell)), first(x[:, 0])[0], [layer(x) for layer in others]


def recurrent():
    """Layers of all kinds, and of all options."""
    return nn.ModuleList(
        [
            nn.LSTM(5, 6, proj_size=3, bias=False, batch_first=True),
            nn.GRU(5, 6, bidirectional=True, batch_first=True),
            nn.RNN(5, 6, batch_first=True),
            nn.RNN(5, 6, nonlinearity="relu", bias=False, batch_first=True),
        ]
    )


def packed(self, x):
    """Sequences of several lengths: the rows, the states, and the sequences padded again."""
    sorted_ones = pack_padded_sequence(x, torch.tensor([4, 2, 1]), batch_first=True)
    by_step = pack_padded_sequence(
        x.transpose(0, 1), torch.tensor([2, 3, 1]), enforce_sorted=False
    )
    results = []
    for layer in self.inner:
        output, states = layer(sorted_ones)
        results += [output.data, states]
    return *results, pad_packed_sequence(self.inner[1](by_step)[0], batch_first=True)[0]


def groups(self, x, matrices, batch, columns, ends):
    """Groups of rows, of columns, of the summed axis (one of them empty), and none."""
    return (
        F.grouped_mm(x, matrices, offs=ends),
        F.grouped_mm(batch, columns, offs=ends),
        F.grouped_mm(x.T.contiguous(), x, offs=ends),
        F.grouped_mm(batch, matrices),
        F.grouped_mm(x.bfloat16(), matrices.bfloat16(), offs=ends).float(),
    )


def complex_products(self, x, y, batch, other, bias, vector):
    """Products alone and with a sum, whose factors are real."""
    return (
        torch.bmm(batch, other),
        self.inner(x), self.plain(x),
        torch.addmm(x @ y, x, y), torch.addmm(bias, x, y, beta=0.5, alpha=2.0),
        torch.addmv(vector, x @ x.T, vector, alpha=3.0),
        torch.baddbmm(batch @ other, batch, other, beta=0.25),
        torch.einsum("bij,bjk->bik", batch, other), torch.einsum("bij->bj", batch),
    )  # fmt: skip


def functions(self, x, y, small):
    """Distances, running products, and products of small integers."""
    powers = (0.0, 1.0, 2.0, 3.0, float("inf"))
    return (
        *(torch.cdist(x, y, p=p) for p in powers),
        *(torch.pdist(x[0], p=p) for p in powers),
        torch.cumprod(x, 1), torch.cumprod(x, -1),
        torch.hypot(x, y[:, :1]), torch.hypot(x * 1e30, x * 1e30),
        torch._int_mm(small, small.T.contiguous()),
    )  # fmt: skip


def draw(*shape, dtype=torch.float32):
    """Random numbers."""
    return torch.randn(shape, dtype=dtype)


def draw_complex(*shape):
    """Random complex numbers."""
    return draw(*shape, dtype=torch.complex64)


OFFSETS = torch.tensor([2, 2, 8], dtype=torch.int32)
NARROW = ("bags", "groups")  # with results in float16 and bfloat16
# The model and its inputs, and how many functions the file has.
CASES = {
    "bags": lambda: (
        Apply(bags, **bag_modules()), (INDICES, STARTS, ENDS, torch.rand(8)), 15,
    ),
    "projected states": lambda: (
        Apply(projections, inner=projected()),
        (draw(4, 3, 5), draw(1, 3, 3), draw(1, 3, 6)), 4,
    ),
    "packed sequences": lambda: (Apply(packed, inner=recurrent()), (draw(3, 4, 5),), 7),
    "groups": lambda: (
        Apply(groups),
        (draw(8, 8), draw(3, 8, 8), draw(3, 8, 8), draw(8, 8), OFFSETS), 5,
    ),
    "complex numbers": lambda: (
        Apply(
            complex_products, inner=nn.Linear(4, 5, dtype=torch.complex64),
            plain=nn.Linear(4, 2, bias=False, dtype=torch.complex64),
        ),
        (
            draw_complex(3, 4), draw_complex(4, 5), draw_complex(2, 3, 4), draw_complex(2, 4, 5),
            draw_complex(5), draw_complex(3),
        ), 9,
    ),
    "functions": lambda: (
        Apply(functions),
        (
            draw(2, 5, 4), draw(2, 3, 4),
            torch.randint(-5, 5, (32, 32), dtype=torch.int8),
        ), 15,
    ),
    "counts": lambda: (
        Apply(lambda self, x, places, weights: (
            torch.histc(x, 7), torch.bincount(places, weights, minlength=9)
        )),
        (draw(3, 5), torch.randint(0, 9, (32,)), torch.rand(32)), 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_file_runs_what_it_has_functions_for(name, tmp_path):
    """The largest difference is rounding, and no node is without a function."""
    torch.manual_seed(0)
    model, inputs, functions_wanted = CASES[name]()
    model.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # that no runtime can load the file
        warnings.filterwarnings("ignore", module="torch")
        files = export(model, inputs, to="onnx", file=tmp_path / "out.onnx", verify=True)
    assert files.agreement.problem == ""
    limit = 1e-2 if name in NARROW else 1e-5
    assert [output for output in files.agreement.outputs if output.relative > limit] == []
    written = onnx.load(files[0])
    onnx.checker.check_model(written)
    nodes = [node for node in written.graph.node if node.domain == DOMAIN]
    assert len(nodes) == len(written.functions) == functions_wanted


@pytest.mark.parametrize("name", ["bags", "groups", "counts"])
def test_functions_change_no_count(name, tmp_path):
    """The file is counted as the model is: the work, the parameters, and what has no count."""
    model, inputs, _ = CASES[name]()
    files = export(model.eval(), inputs, to="onnx", file=tmp_path / "out.onnx")
    of_model, of_file = count(model, inputs), count(str(files[0]))
    assert of_file.totals == of_model.totals
    assert of_file.memory.param_bytes == of_model.memory.param_bytes
    assert len(of_file.uncounted) == len(of_model.uncounted)


def test_what_a_layer_drops_is_drawn_in_the_file(tmp_path):
    """In training, between the layers of an LSTM with projection."""
    model = nn.LSTM(5, 6, 2, proj_size=3, dropout=0.5)
    files = export(
        model, draw(4, 3, 5), to="onnx", file=tmp_path / "out.onnx", verify=True,
        setting=Setting(training=True),
    )  # fmt: skip
    assert files.agreement.holds
    assert [output.drawn for output in files.agreement.outputs] == [True, True, True]


def test_a_complex_factor_is_neither_written_nor_counted(tmp_path):
    """The function of a real factor would be another; both are in one file."""

    def sums(self, summand, x, y):
        return torch.addmm(summand, x, y), torch.addmm(summand, x, y, alpha=2j)

    inputs = draw_complex(3, 5), draw_complex(3, 4), draw_complex(4, 5)
    with pytest.warns(
        UserWarning, match="no runtime can load the file, since ONNX has no operator for"
    ):
        files = export(Apply(sums), inputs, to="onnx", file=tmp_path / "out.onnx", verify=True)
    assert "addmm" in files.agreement.problem
    (reason,) = [row.reason for row in count(Apply(sums), inputs).uncounted]
    assert "'alpha' of torch.ops.aten.addmm.default is a complex number" in reason
