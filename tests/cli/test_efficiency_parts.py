"""What stands beside the share of the peak: passes, precisions, attention, devices, bytes."""

import json

import pytest

from tests.onnx_files import saved, with_weights

CHAIN = """
g (float[1,4] x, float[4,8] first, float[8,4] second) => (float[1,4] y)
{ a = MatMul(x, first) r = Relu(a) y = MatMul(r, second) }
"""  # 32 MACs each
ATTENTION = """
g (float16[1,2,8,4] q, float16[1,2,8,4] k, float16[1,2,8,4] v, float16[4,4] w)
  => (float16[1,2,8,4] y)
{ a = Attention <is_causal = 1> (q, k, v) y = MatMul(a, w) }
"""  # 2 x 8 x 8 x (4 + 4) = 1024 MACs of attention, 2 x 8 x 4 x 4 = 256 behind it
SPEED = ("--examples-per-second", "1000", "--peak-tflops", "1")


@pytest.fixture
def ask(line, tmp_path):
    """The one efficiency of the command on a model, as JSON."""

    def run(model, *arguments, status=0):
        target = [saved(tmp_path, model)] if model is not None else []
        exit_code, out, err = line("efficiency", *target, *arguments, "--json")
        assert (exit_code, "is impossible" in err) == (status, status == 1)
        (efficiency,) = json.loads(out)["efficiency"]
        return efficiency

    return run


@pytest.fixture
def chain():
    """Two products with a weight each."""
    return with_weights(CHAIN, "first", "second")


def test_three_passes_overstate_the_first_layer(ask, chain):
    """3 x 64 instead of 2 x 32 + 3 x 32 is a fifth too much, and that is warned of."""
    flat = ask(chain, "--train", "--backward", "flat", *SPEED)
    assert (flat["multiplier"], flat["work"]) == (3, 2 * 3 * 64)
    assert any("x 3 overstates by 20.0 %" in warning for warning in flat["warnings"])
    exact = ask(chain, "--train", *SPEED)
    assert (exact["multiplier"], exact["work"]) == (2.5, 2 * (2 * 32 + 3 * 32))
    assert exact["warnings"] == []


def test_frozen_weights(ask, chain):
    """Below the lowest trained weight one pass, and two for the layer above."""
    efficiency = ask(chain, "--train", "--frozen", "first", *SPEED)
    assert efficiency["work"] == 2 * (1 * 32 + 2 * 32)
    assert any("frozen: first" in assumption for assumption in efficiency["assumptions"])


def test_nothing_trained_is_warned_of(ask, chain):
    """With everything frozen training is a forward pass."""
    efficiency = ask(chain, "--train", "--frozen", "*", *SPEED)
    assert efficiency["work"] == 2 * 64
    assert any("no trained parameter" in warning for warning in efficiency["warnings"])


@pytest.mark.parametrize(
    "option",
    [
        ("--causal", "half"),
        ("--window", "3"),
        ("--train", "--flash"),
        ("--train", "--recompute", "attention"),
    ],
    ids=" ".join,
)
def test_what_is_about_attention_is_refused_without_any(line, tmp_path, chain, option):
    """No option about attention changes a model that has none."""
    status, out, err = line("efficiency", saved(tmp_path, chain), *option, *SPEED)
    assert (status, out) == (2, "")
    assert "the model has no attention" in err


def test_recomputation_is_in_the_hfu_alone(ask, chain):
    """Four passes are executed, three of the model."""
    efficiency = ask(chain, "--train", "--backward", "flat", "--recompute", "full", *SPEED)
    assert (efficiency["work"], efficiency["executed"]) == (2 * 3 * 64, 2 * 4 * 64)
    assert efficiency["hfu"] == pytest.approx(efficiency["ratio"] * 4 / 3)


def test_more_executed_than_the_peak_ends_with_1(ask):
    """80 % as MFU are 107 % with everything done again."""
    efficiency = ask(
        None, "--macs", "1G", "--train", "--recompute", "full", "--examples-per-second", "133.4",
        "--peak-tflops", "1", status=1,
    )  # fmt: skip
    assert efficiency["ratio"] == pytest.approx(0.8004)
    assert any(
        "(with recomputed work) is impossible" in warning for warning in efficiency["warnings"]
    )


def test_a_node_in_another_precision(ask, chain):
    """Half of the work at 1 and half at 4 TFLOP/s: the peak is 1.6."""
    chain.graph.node[2].name = "last"
    efficiency = ask(
        chain, "--precision", "bf16", "--precision-of", "last=fp8", "--examples-per-second", "1",
        "--peak-tflops", "bf16=1", "--peak-tflops", "fp8=4",
    )  # fmt: skip
    assert efficiency["peak"] == pytest.approx(1.6e12)
    assert [(row["precision"], row["flops"]) for row in efficiency["precisions"]] == [
        ("bf16", 64), ("fp8", 64),
    ]  # fmt: skip


def test_causal_attention_both_ways(ask):
    """1024 MACs of attention, of which a causal mask leaves half; both shares are there."""
    model = with_weights(ATTENTION, "w", opset=23)
    full = ask(model, "--precision", "graph", *SPEED)
    half = ask(model, "--precision", "graph", "--causal", "half", *SPEED)
    assert (full["macs"], half["macs"], full["precision"]) == (1280, 768, "fp16")
    for efficiency, counted in ((full, "full"), (half, "half")):
        attention = efficiency["attention"]
        assert (attention["counted"], attention["full_macs"], attention["half_macs"]) == (
            counted,
            1024,
            512,
        )
        assert attention["full_ratio"] == pytest.approx(full["ratio"])
        assert attention["half_ratio"] == pytest.approx(half["ratio"])


def test_devices_of_a_run(ask):
    """Of 16 devices each does a sixteenth; only the 4 replicas see examples of their own."""
    efficiency = ask(
        None, "--macs", "1G", "--train", "--latency-ms", "100", "--batch", "8", "--dp", "4",
        "--tp", "2", "--pp", "2", "--accumulate", "3", "--peak-tflops", "1",
    )  # fmt: skip
    world = efficiency["world"]
    assert world["devices"] == 16
    assert world["examples_per_second"] == pytest.approx(8 * 3 * 4 / 0.1)
    assert world["bubble"] == pytest.approx(1 / 4)
    assert world["rate"] == pytest.approx(6e9 * 960)
    assert efficiency["rate"] == pytest.approx(6e9 * 960 / 16)


def test_a_batch_that_was_counted(ask):
    """A pass over four rows is four examples where --batch says so; then none is warned of."""
    model = with_weights(CHAIN.replace("[1,4]", "[4,4]"), "first", "second")
    efficiency = ask(model, "--batch", "4", "--latency-ms", "1", "--peak-tflops", "1")
    assert (efficiency["macs"], efficiency["batch"], efficiency["warnings"]) == (64, 4, [])
    assert efficiency["examples_per_second"] == pytest.approx(4000)


def test_another_batch_than_was_counted_is_refused(line, tmp_path):
    """Four rows are neither one example nor eight."""
    path = saved(tmp_path, with_weights(CHAIN.replace("[1,4]", "[4,4]"), "first", "second"))
    status, out, err = line("efficiency", path, "--batch", "8", "--latency-ms", "1")
    assert (status, out) == (2, "")
    assert "the first input has 4 rows" in err


def test_bytes_of_a_pass(ask, chain):
    """Both weights once, input and output of every example, in the time of a pass."""
    moved = ask(
        chain, "--batch", "10", "--latency-ms", "0.001", "--peak-tflops", "1", "--bandwidth", "1"
    )["moved"]
    assert moved["weight_bytes"] == 64 * 4
    assert moved["bytes"] == 64 * 4 + 10 * (4 + 4) * 4
    assert moved["mbu"] == pytest.approx(moved["bytes"] / (1e-6 * 1e9))
    assert moved["flops"] == 10 * 128
    assert moved["bound"] == "memory"
    assert moved["bound_seconds"] == pytest.approx(moved["bytes"] / 1e9)


def test_tokens_of_a_model(ask):
    """Two-dimensional integers [B, T] are T tokens an example."""
    text = """g (int64[1,16] ids, float[10,4] table, float[4,4] w) => (float[1,16,4] y)
    { h = Gather(table, ids) y = MatMul(h, w) }"""
    efficiency = ask(with_weights(text, "table", "w"), "--tokens-per-second", "3200")
    assert efficiency["macs"] == 16 * 16
    assert (efficiency["examples_per_second"], efficiency["tokens_per_second"]) == (200, 3200)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--macs", "1G", "--train", "--frozen", "x"), "needs the counts of nodes"),
        (("--macs", "1G", "--precision-of", "Conv=tf32"), "needs the counts of nodes"),
        (("--macs", "1G", "--train", "--backward", "graph"), "needs the counts of nodes"),
        (("--macs", "1G", "--causal", "half"), "needs the counts of nodes"),
        (("--macs", "1G", "--window", "64"), "needs the counts of nodes"),
        (("--macs", "1G", "--train", "--flash"), "needs the counts of nodes"),
        (("--macs", "1G", "--recompute", "full"), "requires --train"),
        (("--macs", "1G", "--train-multiplier", "2"), "requires --train"),
        (("--macs", "1G", "--train", "--train-multiplier", "x"), "train-multiplier"),
        (("--macs", "1G", "--train", "--train-multiplier", "-1"), "train-multiplier"),
        (("--pass-macs", "1G"), "requires --batch"),
        (("--macs", "1G", "--devices", "6", "--tp", "4"), "--devices must be dp x tp x pp, got 6"),
        (("--params", "1G", "--layers", "2"), "number of layers and the width"),
        (("--params", "1G", "--layers", "2", "--hidden", "8"), "depends on the sequence length"),
        (
            ("--macs", "1G", "--device", "h100-sxm", "--mix", "bf16=1/2"),
            "must add up to 1, got 0.5",
        ),
        (("--macs", "1G", "--peak-tflops", "bf16=x"), "must be a positive number"),
        (("--macs", "1G", "--precision", "fp8", "--peak-tflops", "bf16=1"), "given for fp8"),
    ],
)
def test_what_makes_no_sense_is_refused(line, arguments, what):
    """Two lines on stderr, nothing on stdout, 2."""
    status, out, err = line("efficiency", *arguments, "--examples-per-second", "1")
    assert (status, out) == (2, "")
    assert what in err
    assert [text.split(":")[0] for text in err.splitlines()] == ["error", "hint"]
