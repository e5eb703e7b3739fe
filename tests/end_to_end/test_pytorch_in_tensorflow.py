"""TensorFlow's profiler on models of PyTorch and JAX: residual 0, and sums done by hand."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
for needed in ("tensorflow", "crossflops_tensorflow", "onnxscript"):
    pytest.importorskip(needed)

from torch import nn  # noqa: E402

from crossflops.plugins import discovery  # noqa: E402
from crossflops.verbs import api  # noqa: E402

if "tensorflow" not in discovery.plugin_entry_points():
    pytest.skip("the plugin for TensorFlow's profiler is not installed", allow_module_level=True)

pytestmark = pytest.mark.frameworks

TARGETS = Path(__file__).with_name("targets_of_frameworks.py")


def profiled(model, *inputs, **options):
    """The report, and its reconciliation, of a comparison in this process."""
    report = api.compare(model, inputs, tools=["tensorflow"], isolate=False, **options)
    assert report.reconciliations, report.profiles
    account = report.reconciliation("tensorflow")
    assert (account.ours, account.residual) == (report.macs, 0)
    assert all(row.theirs in {None, row.predicted} for row in account.by_path)
    return account, {explanation.cause: explanation.amount for explanation in account.explanations}


class Net(nn.Module):
    """A convolution for each of its kinds, a step down and a step up."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.wise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.grouped = nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=4)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2, bias=False)
        self.head = nn.Conv2d(16, 5, 1)

    def forward(self, x):
        x = self.wise(self.stem(x).relu())
        y = self.up(nn.functional.max_pool2d(self.grouped(x), 3, 1, 1))
        return self.head(torch.cat([x, y], 1)).mean((2, 3))


@pytest.mark.parametrize("batch", [1, 4])
def test_a_network_of_convolutions(batch):
    """2 per MAC; batch norm 2 n and 6 per channel; windows of 9; 1 per bias and mean."""
    account, causes = profiled(Net(), torch.zeros(batch, 3, 12, 12))
    stem, wise = 144 * 8 * 27, 144 * 8 * 9
    grouped, up, head = 36 * 16 * 2 * 9, 36 * 16 * 8 * 4, 144 * 5 * 16
    assert account.ours == batch * (stem + wise + grouped + up + head)
    assert causes == {
        "unit.mac-vs-flop": account.ours,
        "bias.conv": batch * (36 * 16 + 144 * 5),
        "norm.batch": batch * 2 * 144 * 8 + 6 * 8,
        "pool.max": batch * 9 * 36 * 16,
        "reduce.mean": batch * 144 * 5,
    }
    paths = {row.path: row.theirs for row in account.by_path}
    assert paths["wise"] == 2 * batch * wise
    assert paths["stem.1"] == batch * 2 * 144 * 8 + 6 * 8
    assert paths["up"] == 2 * batch * up


def test_an_encoder():
    """Attention is its two products, its scale and its softmax; norms as Keras writes them."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    account, causes = profiled(nn.TransformerEncoder(layer, 2), torch.zeros(3, 10, 32))
    products = 2 * 3 * 10 * 10 * 32
    assert account.ours == 2 * (30 * (4 * 32 * 32 + 2 * 32 * 64) + products)
    assert causes["unit.mac-vs-flop"] == account.ours
    assert causes["softmax"] == 2 * 5 * 3 * 4 * 10 * 10
    assert "graph.rebuilt" not in causes
    assert causes["norm.layer"] > 0


def test_a_function_of_jax(tmp_path):
    """3 x 8 by 8 x 16, and 16 x 4; the same graph as its own tools count."""
    for needed in ("jax", "jax2onnx", "flax"):
        pytest.importorskip(needed)
    report = api.compare(f"{TARGETS}:perceptron", ["3x8"], tools=["tensorflow"])
    assert report.macs == 3 * (8 * 16 + 16 * 4)
    assert report.residuals == {"tensorflow": 0}


def test_a_target_in_workers_and_without_a_tool_named():
    """The profiler is asked like any other tool that is installed."""
    report = api.compare(
        "torch.nn:Linear", ["2x8"], arguments={"in_features": 8, "out_features": 4}
    )
    assert report.macs == 64
    assert report.residuals["tensorflow"] == 0
    assert report.reconciliation("tensorflow").theirs == 2 * 64 + 8
