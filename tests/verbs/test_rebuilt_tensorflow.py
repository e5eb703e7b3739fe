"""TensorFlow's profiler counts ONNX files, on the function that is rebuilt from them."""

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("crossflops_tensorflow")

from crossflops.ir.profile import Failure
from crossflops.plugins import discovery
from crossflops.verbs import api
from tests.onnx_files import parsed, saved, with_weights

if "tensorflow" not in discovery.plugin_entry_points():
    pytest.skip("the plugin for TensorFlow's profiler is not installed", allow_module_level=True)

pytestmark = pytest.mark.tensorflow

TEXT = (
    "g (float[n,3,8,8] x, float[4,3,3,3] w, float[4] b, float[5,4] v) => (float[n,5] y)"
    " { c = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(c) m = GlobalAveragePool(r) f = Flatten(m)"
    " y = Gemm<transB=1>(f, v) }"
)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_file_is_counted_by_the_profiler(tmp_path, batch):
    """In a worker, on the sizes that are asked for; biases and the mean are 1 per element."""
    path = saved(tmp_path, with_weights(TEXT, "w", "b", "v"))
    report = api.compare(path, dims={"n": batch}, tools=["tensorflow"])
    macs = batch * (64 * 4 * 27 + 4 * 5)
    assert report.macs == macs
    account = report.reconciliation("tensorflow")
    assert (account.ours, account.residual) == (macs, 0)
    assert {explanation.cause: explanation.amount for explanation in account.explanations} == {
        "unit.mac-vs-flop": macs,
        "bias.conv": batch * 64 * 4,
        "reduce.mean": batch * 64 * 4,
    }


def test_what_cannot_be_rebuilt_is_a_failure(tmp_path):
    """The file is counted all the same."""
    path = saved(tmp_path, parsed("g (float[2,3,3] x) => (float[2] y) { y = Det(x) }", opset=22))
    [failure] = api.compare(path, tools=["tensorflow"]).profiles
    assert isinstance(failure, Failure)
    assert (failure.stage, failure.tool) == ("build", "tensorflow")
    assert failure.message == "Det of opset 22 cannot be converted into operations of TensorFlow"


def test_what_a_rule_refuses_is_a_failure(tmp_path):
    """It is known only when the function is traced."""
    text = "g (float[1,2,6,6] x) => (float[?,?,?,?] y) { y = MaxPool<kernel_shape=[2,2],"
    path = saved(tmp_path, parsed(text + " dilations=[2,2]>(x) }"))
    [failure] = api.compare(path, tools=["tensorflow"], isolate=False).profiles
    assert isinstance(failure, Failure)
    assert failure.stage == "build"
    assert failure.message == "MaxPool MaxPool_0 with dilations cannot be rebuilt in TensorFlow"
