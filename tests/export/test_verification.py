"""`export --verify`: the file in onnxruntime beside the model, and how far they agree."""

import sys
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

from crossflops.bench.agreement import compare_with_onnxruntime
from crossflops.cli import main
from crossflops.errors import InputError, MissingExtraError
from crossflops.frontends import ModelRun, Source
from crossflops.frontends.pytorch.observe.outputs import run_torch_copies_and_measure_rounding
from crossflops.ir.agreement import Agreement, OutputAgreement
from crossflops.ir.trace import Setting
from crossflops.verbs.api import export
from tests.models import Apply, nn, torch

pytestmark = pytest.mark.tools
pytest.importorskip("onnxruntime")
MODEL = """
from torch import nn


def dense():
    return nn.Linear(3, 2)
"""


@pytest.fixture
def target(tmp_path):
    """A target of the command line."""
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    return f"{path}:dense"


def verified(model, inputs, folder, training=False):
    """Return what `verify` finds of a model."""
    files = export(
        model, inputs, to="onnx", file=folder / "out.onnx", verify=True,
        setting=Setting(training=training),
    )  # fmt: skip
    return files.agreement


def test_each_output_of_a_model_is_compared(tmp_path):
    """Floats to noise, integers and booleans exactly, by keyword, too."""

    def outputs(self, x, y):
        return self.inner(x) + y, (x > 0), x.argmax(1), {"sum": y.sum()}

    model = Apply(outputs, inner=nn.Linear(4, 4))
    agreement = verified(model, ((torch.randn(3, 4),), {"y": torch.randn(3, 4)}), tmp_path)
    assert agreement.holds
    assert len(agreement.outputs) == 4
    assert [output.absolute for output in agreement.outputs[1:3]] == [0, 0]
    assert all(output.relative < 1e-6 and not output.drawn for output in agreement.outputs)


def test_an_output_that_depends_on_random_numbers_is_apart(tmp_path):
    """Of two, one of which a dropout makes."""
    model = Apply(lambda self, x: (x * 2, self.inner(x)), inner=nn.Dropout(0.5))
    x = torch.ones(4, 8)
    drawn = [output.drawn for output in verified(model, x, tmp_path, training=True).outputs]
    assert drawn == [False, True]
    assert not any(output.drawn for output in verified(model, x, tmp_path).outputs)


def test_a_file_that_computes_something_else_is_told(tmp_path):
    """A bias of 0.5 more: the difference is that, and a share of the largest value."""
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    (file,) = export(model, x, to="onnx", file=tmp_path / "out.onnx")
    changed = onnx.load(file)
    (bias,) = (row for row in changed.graph.initializer if list(row.dims) == [2])
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) + 0.5, bias.name))
    onnx.save(changed, file)
    wanted = model(x).detach().numpy()
    agreement = compare_with_onnxruntime(file, ModelRun((x.numpy(),), (wanted,), (False,), (0.0,)))
    assert not agreement.holds
    (output,) = agreement.outputs
    assert output.absolute == pytest.approx(0.5, abs=1e-5)
    assert output.relative == pytest.approx(0.5 / abs(wanted).max(), abs=1e-4)
    narrower = compare_with_onnxruntime(
        file, ModelRun((x.numpy(),), (wanted[:, :1],), (False,), (0.0,))
    )
    assert "it is float32[4, 2] in the file, but float32[4, 1] in the model" in str(narrower)
    assert (
        "outputs of the file: 1, of the model: 0"
        in compare_with_onnxruntime(file, ModelRun((x.numpy(),), (), (), ())).problem
    )


def test_a_model_that_rounding_alone_changes_is_not_blamed(tmp_path):
    """The sine of a large number: the next float32 above 1e6 is 0.06 away."""
    model = Apply(lambda self, x: (x.abs() * 1e6).sin())
    agreement = verified(model, torch.rand(64) + 1, tmp_path)
    assert agreement.holds
    assert agreement.outputs[0].rounding > 0.01


CHAOS = """
from torch import nn


class Chaos(nn.Module):
    def forward(self, x):
        for _ in range(60):
            x = 4 * x * (1 - x)
        return x


def dense():
    return nn.Sequential(nn.Linear(3, 2), nn.Sigmoid(), Chaos())
"""


def test_where_rounding_hides_a_fault_nothing_is_proven(target, tmp_path, capsys):
    """Sixty doublings of a difference: each rounding makes another number between 0 and 1."""
    Path(target.removesuffix(":dense")).write_text(CHAOS)
    command = ["export", target, "--input", "64x3", "--to", "onnx", "-o", str(tmp_path / "o.onnx")]
    assert main([*command, "--verify"]) == 1
    said = capsys.readouterr().err
    assert "cannot be verified" in said
    assert "computes what" not in said
    (output,) = verified(nn.Linear(3, 2), torch.ones(1, 3), tmp_path).outputs
    assert output.tells


def node_of(model, operator):
    """Return the first node of an operator."""
    return next(node for node in model.graph.node if node.op_type == operator)


def other_epsilon(model):
    """1e-4 for 1e-5, of a variance near 1."""
    (epsilon,) = (row for row in node_of(model, "LayerNormalization").attribute if row.type == 1)
    epsilon.f = 1e-4


def dropped_bias(model):
    """The smallest of biases: 1e-3 beside outputs of some units."""
    del node_of(model, "Gemm").input[2]


def swapped_axis(model):
    """A softmax of columns for one of rows."""
    (axis,) = node_of(model, "Softmax").attribute
    axis.i = 0


class Block(nn.Module):
    """A layer, a normalization, and a softmax of a product."""

    def __init__(self):
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(16), nn.Linear(16, 8)
        nn.init.constant_(self.layer.bias, 1e-3)

    def forward(self, x):
        x = self.layer(self.norm(x))
        return x, (x @ x.T).softmax(1)


@pytest.fixture(scope="module")
def block(tmp_path_factory):
    """A file, and the run of its model."""
    torch.manual_seed(0)
    model, x = Block(), torch.randn(8, 16)
    (file,) = export(model, x, to="onnx", file=tmp_path_factory.mktemp("block") / "block.onnx")
    return file, run_torch_copies_and_measure_rounding(Source(model, (x,), {}), Setting())


@pytest.mark.parametrize("fault", [other_epsilon, dropped_bias, swapped_axis])
def test_a_small_fault_is_no_rounding(fault, block, tmp_path):
    """Each is less than a hundredth of the largest value, or changes a softmax."""
    file, ran = block
    assert compare_with_onnxruntime(file, ran).holds
    changed = onnx.load(file)
    fault(changed)
    onnx.save(changed, tmp_path / "changed.onnx")
    agreement = compare_with_onnxruntime(tmp_path / "changed.onnx", ran)
    assert agreement.problem == ""
    assert not agreement.holds


def deep(self, x):
    """The map 4 x (1 - x) twenty times, which doubles each difference."""
    for _ in range(20):
        x = 4 * x * (1 - x)
    return x


ROUNDED = {
    "chaos": lambda: (Apply(deep), torch.rand(64)),
    "logits": lambda: (
        Apply(lambda self, x: (self.inner(x) * 300).exp(), inner=nn.Linear(64, 8)),
        torch.rand(4, 64),
    ),
    "places": lambda: (  # of sums that are equal, but for what the order of the terms makes
        Apply(lambda self, x: (x.repeat(1, 3) @ x.repeat(1, 3).T / 7).flatten(1).argmax(1)),
        torch.ones(8, 99) / 3,
    ),
    "difference": lambda: (Apply(lambda self, x: x.sum(1) - x.flip(1).sum(1)), torch.rand(4, 999)),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_what_amplifies_rounding_is_no_fault(name, tmp_path):
    """Exponentials, differences of what is nearly equal, and the place of a largest element."""
    torch.manual_seed(0)
    model, x = ROUNDED[name]()
    agreement = verified(model, x, tmp_path)
    assert agreement.holds, agreement


def test_whole_numbers_are_told_by_how_many_differ(tmp_path):
    """One of four places is another: that is a fault unless rounding moves places as well."""
    model = Apply(lambda self, x: x.argmax(1))
    x = torch.eye(4)
    (file,) = export(model, x, to="onnx", file=tmp_path / "out.onnx")
    wanted = torch.tensor([0, 1, 2, 2]).numpy()
    for rounding, holds in ((0.0, False), (0.25, True)):
        ran = ModelRun((x.numpy(),), (wanted,), (False,), (rounding,))
        (output,) = compare_with_onnxruntime(file, ran).outputs
        assert (output.agrees, output.relative, output.absolute) == (holds, 0.25, 1.0)


def test_a_file_that_no_runtime_loads_is_told(tmp_path):
    """With the operator that is in the way."""
    file = tmp_path / "out.onnx"
    graph = "<ir_version: 10, opset_import: ['': 18, 'acme': 1]> g (float[2] x) => (float[2] y) "
    onnx.save(onnx.parser.parse_model((graph + "{ y = acme.Fly(x) }").replace("'", '"')), file)
    agreement = compare_with_onnxruntime(file, ModelRun((), (), (), ()))
    assert not agreement.holds
    assert "Fly" in agreement.problem


def test_the_command_says_what_it_found(target, tmp_path, capsys):
    """A line for each output, one for all, and the status."""
    command = ["export", target, "--input", "4x3", "--to", "onnx", "-o", str(tmp_path / "o.onnx")]
    assert main([*command, "--verify"]) == 0
    said = capsys.readouterr().err
    assert "largest difference" in said or "equal" in said
    assert "the file computes what the model computes" in said
    assert main(command) == 0
    assert "computes" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("agreement", "words"),
    [
        (
            Agreement(
                runtime="ort",
                outputs=(OutputAgreement(name="y", absolute=2.0, relative=0.25, agrees=False),),
            ),
            ["output 'y': largest difference 2, 0.25 of the largest", "does not compute"],
        ),
        (Agreement(runtime="ort", problem="no such operator"), ["cannot run the file: no such"]),
    ],
)
def test_a_disagreement_ends_with_1(target, tmp_path, capsys, monkeypatch, agreement, words):
    """By the contract of exit statuses."""
    monkeypatch.setattr(
        "crossflops.verbs.export.compare_with_onnxruntime", lambda file, ran: agreement
    )
    command = ["export", target, "--input", "4x3", "--to", "onnx", "-o", str(tmp_path / "o.onnx")]
    assert main([*command, "--verify"]) == 1
    said = capsys.readouterr().err
    assert all(word in said for word in words)


def test_without_onnxruntime_nothing_is_written(tmp_path, monkeypatch):
    """One line, and what installs it."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match="onnxruntime is not installed") as caught:
        verified(nn.Linear(3, 2), torch.ones(1, 3), tmp_path)
    assert "crossflops[runtime]" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_what_has_nothing_to_be_set_beside_is_refused(tmp_path):
    """The copy of a file, and node data."""
    (file,) = export(nn.Linear(3, 2), torch.ones(1, 3), to="onnx", file=tmp_path / "a.onnx")
    with pytest.raises(InputError, match="TARGET is an ONNX file"):
        export(str(file), to="onnx", file=tmp_path / "b.onnx", verify=True)
    with pytest.raises(InputError, match="--verify applies only to --to onnx"):
        export(
            nn.Linear(3, 2), torch.ones(1, 3), to="model-explorer", file=tmp_path / "b.json",
            verify=True,
        )  # fmt: skip
