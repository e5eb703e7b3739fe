"""Models whose totals are published or derived by hand, with the tools themselves."""

import json

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def compared(crossflops, three_tools):
    """The JSON of a comparison, its reconciliations by tool, checked for what always holds."""

    def run(*arguments):
        done = crossflops("compare", *arguments, "--json", "--strict")
        assert done.status == 0, done.err
        data = json.loads(done.out)
        by_tool = {
            reconciliation["tool"]: reconciliation for reconciliation in data["reconciliations"]
        }
        assert set(by_tool) >= {"fvcore", "thop", "torch-flop-counter"}
        for account in by_tool.values():
            assert account["residual"] == 0
            assert account["theirs"] == account["predicted"] == account["ours"] + account["delta"]
            assert account["ours"] == data["totals"]["macs"]
            assert sum(e["amount"] for e in account["explanations"]) == account["delta"]
        return data, by_tool

    return run


def causes(account):
    """The amounts of a reconciliation by cause."""
    return {e["cause"]: e["amount"] for e in account["explanations"]}


@pytest.fixture(scope="module")
def resnet50(compared, zoo):
    """ResNet-50, compared once."""
    return compared("torchvision.models:resnet50", "--input", "1x3x224x224")


class TestResnet50:
    """M = 4089184256 (convolutions 4087136256, classifier 2048000), 11113984 batch norm elements,
    pooling from 100352 to 2048.
    """

    def test_the_native_count(self, resnet50):
        """MACs and parameters, all nodes counted."""
        report, _ = resnet50
        assert report["totals"]["macs"] == 4087136256 + 2048000
        assert report["totals"]["params"] == 25557032
        assert report["uncounted"] == []
        rows = {row["op"]: row["count"] for row in report["by_op"]}
        assert (rows["Conv"], rows["BatchNormalization"]) == (53, 53)

    def test_thop(self, resnet50):
        """4 per element of batch norm, 50 per output of the pooling."""
        _, by_tool = resnet50
        assert by_tool["thop"]["theirs"] == 4133742592
        assert causes(by_tool["thop"]) == {
            "norm.batch": 4 * 11113984,
            "pool.adaptive": 50 * 2048,
        }

    def test_fvcore(self, resnet50):
        """2 per element of batch norm, 1 per input of the pooling."""
        _, by_tool = resnet50
        assert by_tool["fvcore"]["theirs"] == 4111512576
        assert causes(by_tool["fvcore"]) == {"norm.batch": 2 * 11113984, "pool.adaptive": 100352}

    def test_the_flop_counter(self, resnet50):
        """Two per MAC and nothing else."""
        _, by_tool = resnet50
        assert by_tool["torch-flop-counter"]["theirs"] == 8178368512
        assert causes(by_tool["torch-flop-counter"]) == {"unit.mac-vs-flop": 4089184256}

    def test_an_explanation_names_its_calls(self, resnet50):
        """Each of the 53 batch norms, and a source."""
        _, by_tool = resnet50
        (norm,) = [e for e in by_tool["thop"]["explanations"] if e["cause"] == "norm.batch"]
        assert len(norm["calls"]) == 53
        assert "layer1.0.downsample.1" in norm["calls"]
        assert "basic_hooks.py" in norm["reference"]


VIT = 17563828224
ATTENTION = 12 * 2 * 197 * 197 * 768  # score and value products of 12 layers
PROJECTIONS = 12 * 197 * 768 * 4 * 768  # in and out, 12 layers


@pytest.mark.parametrize(
    ("options", "fvcore", "flops", "hidden"),
    [
        ((), 16867412736, 33697001472, {"attention.sdpa": -ATTENTION}),
        (
            ("--no-grad",),
            11290036992,
            22542249984,
            {"attention.module-fastpath": -ATTENTION - PROJECTIONS},
        ),
    ],
    ids=["grad", "no_grad"],
)
def test_vit_b_16(compared, zoo, options, fvcore, flops, hidden):
    """The totals with and without gradients differ by the fused attention modules."""
    report, by_tool = compared("torchvision.models:vit_b_16", "--input", "1x3x224x224", *options)
    assert report["totals"]["macs"] == VIT
    assert by_tool["thop"]["theirs"] == 11286254592
    assert by_tool["fvcore"]["theirs"] == fvcore
    assert by_tool["torch-flop-counter"]["theirs"] == flops
    assert hidden.items() <= causes(by_tool["fvcore"]).items()
    assert hidden.items() <= causes(by_tool["torch-flop-counter"]).items()
    assert "norm.layer" in causes(by_tool["fvcore"])


@pytest.mark.parametrize(
    ("options", "flops", "hidden"),
    [((), 6291456, "attention.sdpa"), (("--no-grad",), 0, "attention.module-fastpath")],
    ids=["grad", "no_grad"],
)
def test_an_encoder_of_four_layers(compared, options, flops, hidden):
    """Projections and feed-forward: 4*16*64*(4*64 + 2*256) MACs; products 4*2*16*16*64."""
    linear, products = 4 * 16 * 64 * (4 * 64 + 2 * 256), 4 * 2 * 16 * 16 * 64
    report, by_tool = compared("targets.py:encoder", "--input", "1x16x64", *options)
    counter = by_tool["torch-flop-counter"]
    assert report["totals"]["macs"] == linear + products
    assert counter["theirs"] == flops == (2 * linear if flops else 0)
    missing = products if flops else linear + products
    assert causes(counter)[hidden] == -missing
    assert hidden in causes(by_tool["fvcore"])


def test_the_odd_model(compared):
    """What each tool does not see, and what it sees alone, under its own cause.

    thop adds 64 steps of 8*4 for the gates and 2*4*4 for the biases of the LSTM.
    """
    report, by_tool = compared("targets.py:Odd", "--input", "1x8x8x8")
    assert report["totals"]["macs"] == 2 * 36864 + 2048 + 2048 + 8192 + 16384
    assert causes(by_tool["thop"]) == {
        "control.dead-code": 36864,
        "functional.invisible": -2048,
        "module.type-unmatched": -2048,
        "matmul.operator-invisible": -16384,
        "rnn.gate-elementwise": 64 * 32,
        "bias.rnn": 64 * 32,
    }
    assert causes(by_tool["fvcore"]) == {"rnn.fused": -8192}
    seen = 2 * 36864 + 2048 + 2048 + 16384 + 36864
    assert causes(by_tool["torch-flop-counter"]) == {
        "control.dead-code": 36864,
        "rnn.fused": -8192,
        "unit.mac-vs-flop": seen,
    }


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("resnet50", 4111514624),
        ("densenet121", 2865672192),
        ("mobilenet_v3_large", 226043920),
        ("vit_b_16", 11271275520),
    ],
)
def test_what_thop_0_0_31_printed_comes_out_without_it(crossflops, zoo, tmp_path, name, total):
    """The published figures, where importing thop is an error."""
    for module in ("thop", "crossflops_thop"):
        (tmp_path / f"{module}.py").write_text("raise RuntimeError('imported')")
    done = crossflops(
        "count", f"torchvision.models:{name}", "--input", "1x3x224x224",
        "--as", "thop@0.0.31", "--json", path=tmp_path,
    )  # fmt: skip
    assert done.status == 0, done.err
    folded = json.loads(done.out)["as"]
    assert (folded["tool"], folded["edition"], folded["assumed"]) == ("thop", "0.0.31", False)
    assert folded["total"] == total == sum(row["amount"] for row in folded["rows"])
