"""Exported files that no runtime loads say so, and others have operators that runtimes have."""

import warnings

import numpy as np
import onnx
import pytest

from crossflops.errors import CrossflopsWarning
from crossflops.export.loading import describe_unloadable
from crossflops.verbs.api import count, export
from tests.models import Apply, nn, torch
from tests.onnx_files import parsed

pytestmark = pytest.mark.torch


class Solved(nn.Module):
    """A system of 8 equations, and a layer: 8 x 8 + 8 x 4 + 4 parameters."""

    def __init__(self):
        super().__init__()
        self.matrix, self.head = nn.Parameter(torch.eye(8)), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(torch.linalg.solve(self.matrix, x))


def warnings_of(model, inputs, path):
    """The sentences that an export warns with."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        export(model.eval(), inputs, to="onnx", file=path)
    return [str(w.message) for w in caught if isinstance(w.message, CrossflopsWarning)]


def test_a_file_without_a_runtime_says_so(tmp_path):
    """One line names the operator and its node; the file is counted as the model is."""
    path, x = str(tmp_path / "solved.onnx"), torch.rand(8, 8)
    (sentence,) = warnings_of(Solved(), x, path)
    assert sentence.startswith(
        "no runtime can load the file, since ONNX has no operator for torch.ops"
    )
    assert "aten.linalg_solve.default (node_linalg_solve" in sentence
    assert count(path).totals.params == 100
    assert count(path).totals.flops == count(Solved().eval(), x).totals.flops


def test_a_file_of_operators_of_onnx_says_nothing(tmp_path):
    """Of a model that has an ONNX form, of functions, and of operators of onnxruntime."""
    assert warnings_of(nn.LSTM(4, 6), torch.zeros(5, 2, 4), str(tmp_path / "lstm.onnx")) == []
    known = """g (float[2, 4] x) => (float[2, 4] y) {
        h = com.microsoft.Gelu (x)
        y = local.Twice (h)
    }
    <opset_import: ["" : 17], domain: "local"> Twice (a) => (b) { b = Add (a, a) }"""
    assert describe_unloadable(parsed(known)) == ""


def test_a_pool_over_four_axes_is_named():
    """onnxruntime has one, two and three; a kernel of 1 is an axis, too."""
    line = "g (float[1,1,4,4,4,4] x) => (y) { y = MaxPool <kernel_shape = [2, 2, 2, %s]> (x) }"
    sentence = describe_unloadable(parsed(line % 1))
    assert sentence == "onnxruntime cannot run the file: 'y' is a pool over more than 3 axes"
    assert describe_unloadable(parsed(line.replace("4,4,4,4", "4,4,4").replace(", %s", ""))) == ""


def test_operators_of_no_one_are_named_in_bodies_too():
    """Three kinds by name with how often they stand there, the others by their number."""
    lines = [f"v{n} = acme.Op{n} (x)" for n in range(5)]
    body = "{ z = acme.Op0 (x) }"
    text = (
        "g (float[2] x, bool c) => (float[2] w) {"
        + " ".join([*lines, f"w = If (c) <then_branch = a () => (float[2] z) {body},"])
        + f" else_branch = b () => (float[2] z) {body}> }}"
    )
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 17, "acme" : 1]> {text}'
    )
    sentence = describe_unloadable(model)
    assert "acme.Op0 (v0 and 2 more), acme.Op1 (v1), acme.Op2 (v2) and 2 other op" in sentence


RUNS = {
    "istft": (lambda self, x: torch.istft(torch.view_as_complex(x), 16), torch.rand(9, 5, 2)),
    "more complex axes": (
        lambda self, x: torch.view_as_real(torch.view_as_complex(x).unsqueeze(-1).unsqueeze(0)),
        torch.rand(3, 2),
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_operators_that_were_written_wrongly_run(name, tmp_path):
    """Places of int32, which ScatterND does not take, and an axis of pairs of numbers."""
    body, x = RUNS[name]
    model, path = Apply(body).eval(), str(tmp_path / "model.onnx")
    assert warnings_of(model, x, path) == []
    onnx.checker.check_model(path, full_check=True)
    assert count(path).totals.flops == count(model, x).totals.flops
    session = pytest.importorskip("onnxruntime").InferenceSession(path)
    (result,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(result, model(x).numpy(), rtol=1e-4, atol=1e-6)


def test_one_operator_that_its_form_refuses_is_one_uncounted_node():
    """`torch.histc` without bounds: what is beside it is counted, the attention as a whole."""

    def counts(self, x):
        y = self.layer(x)
        y = nn.functional.scaled_dot_product_attention(y, y, y)
        return torch.histc(y, 4)

    report = count(Apply(counts, layer=nn.Linear(8, 8)).eval(), torch.rand(1, 2, 3, 8))
    assert [row.op for row in report.uncounted] == ["torch.ops.aten.histc.default"]
    # 6 rows of 8 x 8, and two products of 3 x 3 with rows of 8 in each of 2 heads
    assert report.macs == 6 * 64 + 2 * 2 * 9 * 8
    assert [row.count for row in report.by_op if row.op == "Attention"] == [1]
