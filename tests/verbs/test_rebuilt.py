"""Tools that run modules count ONNX files, on the module that is rebuilt from them."""

import importlib

import pytest

from crossflops.frontends import load_with_retry
from crossflops.ir.profile import Failure
from crossflops.verbs import api
from tests.onnx_files import parsed, saved, with_weights

pytestmark = pytest.mark.tools

try:
    load_with_retry(lambda: importlib.import_module("onnx2torch"))
except ImportError:
    pytest.skip("onnx2torch is not installed", allow_module_level=True)


def test_a_file_is_counted_by_tools_that_run_modules(tools, tmp_path):
    """2 x 4 x 6 x 5 FLOPs of a matrix product over 4 rows, on the sizes that are asked for."""
    tools("Honest", "Shifted", "Raises")
    model = with_weights(
        "g (float[n,6] x, float[6,5] w) => (float[n,5] y) { y = MatMul(x, w) }", "w"
    )
    report = api.compare(saved(tmp_path, model), dims={"n": 4})
    assert report.macs == 120
    assert report.residuals == {"honest": 0, "shifted": 1}
    account = report.reconciliation("honest")
    assert (account.ours, account.theirs) == (120, 240)
    assert [explanation.cause for explanation in account.explanations] == ["unit.mac-vs-flop"]
    [failure] = [profile for profile in report.profiles if isinstance(profile, Failure)]
    assert (failure.tool, failure.message) == ("raises", "ValueError: no rule for Foo")


@pytest.mark.parametrize("isolate", [True, False])
def test_what_the_module_lacks_is_a_cause_of_its_own(tools, tmp_path, isolate):
    """A product of two constants, 4 x 4 x 4 MACs, is done before the module runs."""
    tools("Honest")
    row = ",".join(["1"] * 16)
    model = parsed(
        "g (float[3,4] x) => (float[3,4] y)"
        f" <float[4,4] a = {{{row}}}, float[4,4] b = {{{row}}}>"
        " { p = MatMul(a, b) y = MatMul(x, p) }"
    )
    report = api.compare(saved(tmp_path, model), isolate=isolate)
    assert report.macs == 64 + 48
    account = report.reconciliation("honest")
    assert (account.ours, account.theirs, account.residual) == (112, 96, 0)
    step, unit = account.explanations
    assert (step.cause, step.amount, step.macs) == ("graph.rebuilt", -64, -64)
    assert step.reference == "onnx2torch: MatMul -64"
    assert len(step.calls) == 2
    assert (unit.cause, unit.amount) == ("unit.mac-vs-flop", 48)
    for row in account.by_path:
        assert row.ours + sum(row.causes.values()) == row.predicted


def test_a_file_that_cannot_be_rebuilt_is_counted_all_the_same(tools, tmp_path):
    """The operator is named, for every tool that would have run the module."""
    tools("Honest", "Shifted")
    model = parsed("g (float[2,3,3] x) => (float[2] y) { y = Det(x) }", opset=22)
    report = api.compare(saved(tmp_path, model))
    assert [(profile.tool, profile.stage) for profile in report.profiles] == [
        ("honest", "build"),
        ("shifted", "build"),
    ]
    for profile in report.profiles:
        assert profile.message == "Det of opset 22 cannot be converted into a torch module"


def test_a_module_that_cannot_be_exported_is_said(tools, tmp_path):
    """Its sizes depend on values: the file is bound by a run, a module is not."""
    tools("Honest")
    model = parsed(
        "g (float[2,6] x, int64[1] s) => (float[?] y) { y = Reshape(x, s) }",
    )
    report = api.compare(saved(tmp_path, model))
    [failure] = report.profiles
    assert (failure.tool, failure.stage) == ("honest", "build")
    assert failure.message
    assert failure.hint
