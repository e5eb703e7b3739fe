"""The thop adapter: what thop prints, at thop's own grain."""

import base64
import hashlib
import sys

import pytest
import torch
from crossflops_thop import Thop
from torch import nn

import crossflops
from crossflops.errors import InputError, MissingExtraError
from crossflops.ir.profile import Entry
from crossflops.ir.trace import Setting
from crossflops.plugins.discovery import load_adapter_from_path

pytestmark = pytest.mark.tools

FORCED = Setting(training=False, grad=False, hooked=True)
IMAGE = torch.randn(1, 3, 16, 16)
OLD = Thop().version().startswith("0.0.31")


def block():
    """3x3 convolution from 3 to 8 channels on 16x16, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())


def profile(model, *args, setting=None, **kwargs):
    """What the adapter says."""
    return Thop().profile(model, args, kwargs, setting or Setting())


def test_it_is_found_by_its_name():
    """The value of the entry point leads to a whole adapter."""
    assert load_adapter_from_path("thop", "crossflops_thop:Thop").name == "thop"


def test_totals_and_layers():
    """8*256*27 for the convolution; 4 per element of batch norm. 0.0.31: its bias too, and 2."""
    conv, norm = (55296 + 2048, 2 * 2048) if OLD else (55296, 4 * 2048)
    printed = profile(nn.Sequential(block()), IMAGE)
    assert printed.total == conv + norm
    assert type(printed.total) is int
    assert (printed.tool, printed.printed_as, printed.setting) == ("thop", "MACs", FORCED)
    assert printed.params == 3 * 8 * 9 + 8 + 2 * 8
    assert printed.version == Thop().version()
    layers = [("", conv + norm), ("0", conv + norm), ("0.0", conv), ("0.1", norm), ("0.2", 0)]
    expected = () if OLD else tuple(Entry(path, amount) for path, amount in layers)
    assert printed.entries == expected


def test_thop_runs_in_eval_mode_whatever_is_asked():
    """The setting of the profile is the one in which thop ran, and the mode is as before."""
    model = block().train()
    printed = profile(model, IMAGE, setting=Setting(training=True, grad=True))
    assert printed.setting == FORCED
    assert model.training
    assert model[1].num_batches_tracked == 0


class Scaled(nn.Module):
    """A linear layer with an input that has a default."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x, scale=None, *, flag=False):
        """Scale what the layer gives."""
        return self.layer(x) * (0 if scale is None else scale)


def test_keyword_inputs_are_passed_by_position():
    """4 inputs, 5 outputs, 2 rows."""
    x = torch.randn(2, 4)
    assert profile(Scaled(), x=x, scale=torch.ones(5)).total == 40
    assert profile(Scaled(), x, scale=torch.ones(5)).total == 40


def test_what_goes_by_keyword_only_is_refused():
    """Leaving the input out would count another model."""
    with pytest.raises(InputError, match="'flag' can be passed only by keyword"):
        profile(Scaled(), torch.randn(2, 4), flag=True)


def test_nothing_stays_on_collections():
    """What thop 0.0.31 needs while it is imported is taken away again."""
    import collections

    Thop().load()
    assert not hasattr(collections, "Iterable")


def test_only_modules_are_accepted():
    """A function is no model for thop."""
    assert Thop().accepts(nn.ReLU())
    assert not Thop().accepts(torch.relu)


def test_the_namesake_is_refused(tmp_path, monkeypatch):
    """`ultralytics-thop` installs a package `thop` too, and counts otherwise."""
    code = tmp_path / "thop" / "__init__.py"
    code.parent.mkdir()
    code.write_text("__version__ = '2.2.3'\n")
    digest = hashlib.sha256(code.read_bytes()).digest()
    encoded = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    info = tmp_path / "ultralytics_thop-2.2.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: ultralytics-thop\nVersion: 2.2.3\n"
    )
    (info / "RECORD").write_text(f"thop/__init__.py,sha256={encoded},22\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "thop", raising=False)
    with pytest.raises(MissingExtraError, match=r"comes from ultralytics-thop 2\.2\.3") as caught:
        Thop().version()
    assert "pip uninstall ultralytics-thop" in caught.value.hint


def test_a_python_without_distutils_is_told_what_to_install(monkeypatch):
    """Python 3.12 dropped it, and setuptools brings it back."""
    monkeypatch.setitem(sys.modules, "distutils.version", None)
    with pytest.raises(MissingExtraError, match="distutils") as caught:
        Thop().load()
    assert "pip install setuptools" in caught.value.hint


class Padded(nn.Module):
    """An encoder of one layer, whose last three of ten positions are padding."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1)

    def forward(self, x):
        """The mask is made here."""
        mask = torch.zeros(x.shape[:2], dtype=torch.bool)
        mask[:, 7:] = True
        return self.encoder(x, src_key_padding_mask=mask)


def test_padding_that_an_encoder_drops():
    """14 of 20 positions: two layers 32 to 64 and back, and 4 per element of two norms.

    0.0.31 has no rule for layer norm.
    """
    report = crossflops.compare(Padded(), torch.randn(2, 10, 32), tools=["thop"], isolate=False)
    (account,) = report.reconciliations
    norms, dropped = (0, 0) if OLD else (2 * 4 * 14 * 32, 2 * 4 * 6 * 32)
    assert (account.theirs, account.residual) == (2 * 14 * 32 * 64 + norms, 0)
    skipped = [
        explanation.amount
        for explanation in account.explanations
        if "padding" in explanation.cause
    ]
    assert sum(skipped) == -(2 * 6 * 32 * 64) - dropped


class Inner(nn.Module):
    """Calls a module that others may hold as well."""

    def __init__(self, core):
        super().__init__()
        self.core = core

    def forward(self, x):
        """The first result."""
        output = self.core(x)
        return output[0] if isinstance(output, tuple) else output


class Shared(nn.Module):
    """One module in two parents: `core` is a.core and b.core."""

    def __init__(self, core):
        super().__init__()
        self.a, self.b = Inner(core), Inner(core)

    def forward(self, x):
        """Twice."""
        return self.b(self.a(x))


def rows(model, adapter):
    """What is predicted of each module, which is what the tool prints of it."""
    account = crossflops.compare(
        model, torch.randn(3, 5, 8), tools=[adapter.name]
    ).reconciliations[0]
    assert account.residual == 0
    assert {row.path: row.theirs for row in account.by_path} == {
        row.path: row.predicted for row in account.by_path
    }
    for row in account.by_path:
        assert row.predicted - row.ours == sum(row.causes.values())
    return {row.path: row.theirs for row in account.by_path}


@pytest.mark.skipif(OLD, reason="thop 0.0.31 says nothing of the modules")
def test_a_shared_module_stands_in_each_of_its_parents():
    """15 rows of 64, two calls, two hooks; both parents are added up."""
    once = 2 * 2 * 15 * 64
    by_path = rows(Shared(nn.Linear(8, 8)), Thop())
    assert by_path == {"": 2 * once, **dict.fromkeys(("a", "b", "a.core"), once)}


class Packed(nn.Module):
    """A recurrent layer on sequences of 3 and 2 steps."""

    def __init__(self, kind):
        super().__init__()
        self.layer = getattr(nn, kind)(8, 4, batch_first=True)

    def forward(self, x):
        """The rows that are there: 5."""
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([3, 2]), batch_first=True)
        return self.layer(packed)[0].data


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_packed_sequences_are_explained(kind):
    """thop takes three steps of the largest batch, 6 rows where 5 are there; 0.0.31 raises."""
    report = crossflops.compare(Packed(kind), torch.randn(2, 3, 8), tools=["thop"], isolate=False)
    assert report.residuals == ({} if OLD else {"thop": 0})


def test_attributes_in_the_way_of_its_buffers_are_named():
    """One of the model, and what a module of torch.compile shows of the module within."""
    own = nn.Sequential(nn.Linear(4, 4))
    own[0].total_ops = 7
    compiled = nn.Sequential(torch.compile(nn.Linear(4, 4)))
    for model in (own, compiled):
        with pytest.raises(InputError, match=r"0\.total_ops already exists") as raised:
            profile(model, torch.randn(1, 4))
        assert "before torch.compile" in raised.value.hint
