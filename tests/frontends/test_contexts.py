"""Contexts and odd arguments inside a forward: what runs under them is seen like all else."""

import pytest

torch = pytest.importorskip("torch", reason="models are PyTorch's")

import crossflops  # noqa: E402  # after the framework is known to be there
from crossflops.testing.probes import function_model, nn  # noqa: E402

pytestmark = pytest.mark.torch

LAYER = nn("Linear", 8, 8)  # 4 rows: 4 x 8 x 8 = 256 MACs


def residuals(body, *inputs, **modules):
    """Native MACs of a small model, and the residual of every installed tool."""
    report = crossflops.compare(function_model(body, **modules)(), inputs, isolate=False)
    return report.macs, set(report.residuals.values()) | {0}


def test_work_without_gradients_is_seen():
    """A layer under no_grad, then outside of it: both are counted, and explained."""

    def body(model, x):
        with torch.no_grad():
            kept = model.layer(x)
        return kept + model.layer(x)

    assert residuals(body, torch.randn(4, 8), layer=LAYER) == (512, {0})


def test_work_under_autocast_is_seen():
    """A layer under autocast is counted, and explained."""

    def body(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model.layer(x)

    assert residuals(body, torch.randn(4, 8), layer=LAYER) == (256, {0})


def test_attention_on_three_axes_is_taken_apart():
    """8 heads, 10 x 10 scores of 8 features, twice: 8 x 10 x 10 x 16."""

    def body(model, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    assert residuals(body, torch.randn(8, 10, 8)) == (12800, {0})


def test_a_forward_that_writes_into_its_weights_leaves_the_callers_alone():
    """The run is on a copy, parameters too."""

    def body(model, x):
        with torch.no_grad():
            model.layer.weight.mul_(0.5)
        return model.layer(x)

    model = function_model(body, layer=LAYER)()
    before = model.layer.weight.detach().clone()
    crossflops.compare(model, torch.randn(4, 8), isolate=False)
    assert torch.equal(model.layer.weight, before)


def test_weight_norm_can_be_copied():
    """A model that holds a computed weight is counted like any other."""
    model = torch.nn.utils.weight_norm(torch.nn.Linear(8, 8))
    assert crossflops.count(model, torch.randn(4, 8)).macs == 256


def test_the_precision_under_autocast_is_the_inner_one():
    """The first layer computes in bfloat16, the second, behind the context, in float32."""

    def body(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inner = model.first(x)
        return model.second(inner.float())

    model = function_model(body, first=LAYER, second=LAYER)()
    report = crossflops.count(model, torch.randn(4, 8))
    assert report.macs_by_precision == {"bfloat16": 256, "float32": 256}
    assert residuals(body, torch.randn(4, 8), first=LAYER, second=LAYER) == (512, {0})


def test_autocast_also_widens():
    """A loss is float32 there although its inputs are bfloat16: its subtraction says so."""

    def body(model, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inner = model.layer(x)
            return torch.nn.functional.mse_loss(inner, inner.relu())

    report = crossflops.count(function_model(body, layer=LAYER)(), torch.randn(4, 8))
    types = {node.op: node.precision for node in report.nodes}
    assert (types["Gemm"], types["Relu"], types["Sub"]) == ("bfloat16", "bfloat16", "float32")
    assert report.macs_by_precision == {"bfloat16": 256}
