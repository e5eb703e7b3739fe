"""Every framework in one environment: tools of PyTorch on models of the others."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import UNSET

from crossflops.errors import InputError
from crossflops.frontends import load_with_retry
from crossflops.ir.profile import Failure
from crossflops.plugins import discovery
from crossflops.verbs import api

for needed in ("torch", "tensorflow", "tf2onnx", "jax", "jax2onnx", "flax", "sklearn", "skl2onnx"):
    pytest.importorskip(needed)
try:
    load_with_retry(lambda: importlib.import_module("onnx2torch"))
except ImportError:
    pytest.skip("onnx2torch is not installed", allow_module_level=True)
for needed in (
    "thop",
    "fvcore",
    "crossflops_thop",
    "crossflops_fvcore",
    "crossflops_torch",
    "crossflops_onnx_tool",
):
    pytest.importorskip(needed)
pytest.importorskip("crossflops_onnx_tool")

pytestmark = pytest.mark.frameworks

TARGETS = Path(__file__).with_name("targets_of_frameworks.py")
TOOLS = ("fvcore", "thop", "torch-flop-counter")
# 6 x 6 x 8 x 27, 36 x 8 x 9, 8 x 5
SEPARABLE = 36 * 8 * 27 + 36 * 8 * 9 + 8 * 5
# four projections of 32 to 32 for 16 tokens, scores and values of 16 x 16 x 32, 32 -> 64 -> 32,
# and 32 -> 5 for the mean token
BLOCK = 4 * 16 * 32 * 32 + 2 * 16 * 16 * 32 + 2 * 16 * 32 * 64 + 32 * 5


@pytest.mark.parametrize(
    ("target", "arguments", "shape", "macs"),
    [
        (f"{TARGETS}:separable", {}, "1x12x12x3", SEPARABLE),
        (f"{TARGETS}:block", {}, "1x16:int32", BLOCK),
        (f"{TARGETS}:perceptron", {}, "3x8", 3 * (8 * 16 + 16 * 4)),
        # (7 711 850 496 + 4 096 000) / 2, which TensorFlow's profiler prints for its products
        ("keras.applications:ResNet50", {"weights": None}, "1x224x224x3", 3_857_973_248),
        ("keras.applications:MobileNetV2", {"weights": None}, "1x224x224x3", 300_774_272),
    ],
)
def test_tools_of_pytorch_count_models_of_other_frameworks(target, arguments, shape, macs):
    """Through ONNX, with residual 0; torch's own counter sees every product.

    So does a tool that counts the file itself, with its stored weights.
    """
    tools = (*TOOLS, "onnx-tool")
    report = api.compare(target, [shape], arguments=arguments, tools=tools)
    assert report.macs == macs
    assert report.residuals == dict.fromkeys(tools, 0)
    assert report.reconciliation("torch-flop-counter").theirs == 2 * macs
    for reconciliation in report.reconciliations:
        assert reconciliation.ours == macs
        assert reconciliation.params is UNSET or reconciliation.params.residual == 0


def test_tools_of_both_frameworks_stand_in_one_report():
    """The profiler of TensorFlow counts the model itself, the others what was rebuilt from it."""
    if "tensorflow" not in discovery.plugin_entry_points():
        pytest.skip("the plugin for TensorFlow's profiler is not installed")
    tools = (*TOOLS, "tensorflow")
    report = api.compare(f"{TARGETS}:separable", ["1x12x12x3"], tools=tools)
    assert report.residuals == dict.fromkeys(tools, 0)


def test_what_cannot_be_rebuilt_is_named():
    """No torch module is a Scaler of ai.onnx.ml."""
    report = api.compare(f"{TARGETS}:classifier", ["1x4"], tools=TOOLS)
    assert report.macs == 12
    for failure in report.profiles:
        assert isinstance(failure, Failure)
        assert failure.stage == "build"
        assert failure.message.startswith("nothing converts ai.onnx.ml.")


@pytest.mark.parametrize(
    "order", [("torch", "tensorflow", "jax", "sklearn"), ("sklearn", "jax", "tensorflow", "torch")]
)
def test_all_frameworks_count_in_one_process(order):
    """Whichever is imported first, each model is found to be of its own framework."""
    code = (
        f"import sys; sys.path.insert(0, {str(TARGETS.parent)!r})\n"
        f"for name in {order!r}: __import__(name)\n"
        "import torch, crossflops, targets_of_frameworks as t\n"
        "found = [crossflops.count(t.separable(), ['1x12x12x3']).macs,\n"
        "         crossflops.count(t.perceptron(), ['3x8']).macs,\n"
        "         crossflops.count(t.classifier(), ['1x4']).macs,\n"
        "         crossflops.count(torch.nn.Linear(4, 3), torch.zeros(2, 4)).macs]\n"
        f"assert found == {[SEPARABLE, 576, 12, 24]!r}, found\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]


def test_a_training_step_is_for_tools_of_its_own_framework():
    """They would train what was rebuilt for them, whose weights are others."""
    nnx, jnp = pytest.importorskip("flax.nnx"), pytest.importorskip("jax.numpy")
    layer = nnx.Linear(6, 5, rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match="none of the chosen tools can count a training step"):
        api.compare(
            layer, (jnp.ones((7, 6)),), train=True, tools=["torch-profiler"], isolate=False
        )
