"""A whole training run: published ones, and one by hand."""

import json

import pytest

from crossflops import efficiency
from crossflops.errors import InputError
from crossflops.ir.trace import Setting, Trace
from crossflops.report.efficiency import EfficiencyReport
from crossflops.verbs.count import CountedModel
from crossflops.verbs.efficiency.work import _optimizer_step_work
from tests.onnx_files import saved, with_weights

CHAIN = """
g (float[1,4] x, float[4,8] first, float[8,4] second) => (float[1,4] y)
{ a = MatMul(x, first) r = Relu(a) y = MatMul(r, second) }
"""  # 32 MACs each: forward 64, the gradient of one input 32, of two weights 64
ATTENTION = """
g (float16[1,2,8,4] x, float16[4,4] w) => (float16[1,2,8,4] y)
{ q = MatMul(x, w) y = Attention (q, q, q) }
"""  # 256 MACs, and 2 x 8 x 8 x (4 + 4) = 1024 of attention
PEAK = ("--peak-tflops", "1")


@pytest.fixture
def run(line):
    """The run of the one efficiency of a command, as JSON."""

    def ask(*arguments):
        status, out, err = line("efficiency", *arguments, "--json")
        assert status == 0, err
        (row,) = json.loads(out)["efficiency"]
        assert EfficiencyReport.from_json(out).to_json() == out
        return row["run"]

    return ask


@pytest.fixture
def chain(tmp_path):
    """A file of two products with a weight each."""
    return saved(tmp_path, with_weights(CHAIN, "first", "second"))


@pytest.mark.parametrize(
    ("params", "tokens", "flops"),
    [
        ("174600M", "300G", 3.14e23),  # Brown et al., 2005.14165, table D.1: GPT-3 175B
        ("2650M", "300G", 4.77e21),  # the same: GPT-3 2.7B
        ("405G", "15.6T", 3.8e25),  # Llama Team, 2407.21783, 3.2: 405B on 15.6T tokens
    ],
)
def test_published_compute(run, params, tokens, flops):
    """6 x parameters x tokens, as published in two or three digits."""
    whole = run("--params", params, "--train", "--run-tokens", tokens)
    assert whole["flops"] == pytest.approx(flops, rel=4e-3)
    assert isinstance(whole["flops"], int)
    assert whole["device_hours"] is whole["energy_kwh"] is None


def test_published_energy(run):
    """Llama 3.1 405B: 30.84 M hours of an H100 at 700 W are 21 588 MWh (its model card).

    3.79e25 FLOPs in these hours are a share of 34.5 % of the peak, from which they follow back.
    """
    flops = 6 * 405 * 10**9 * 15_600 * 10**9
    mfu = flops / (30.84e6 * 3600 * 989.4e12)
    whole = run(
        "--params", "405G", "--train", "--run-tokens", "15.6T", "--mfu", repr(mfu),
        "--device", "h100-sxm", "--precision", "bf16", "--devices", "16384",
    )  # fmt: skip
    assert whole["flops"] == flops
    assert whole["device_hours"] == pytest.approx(30.84e6)
    assert whole["hours"] == pytest.approx(30.84e6 / 16384)
    assert whole["energy_kwh"] == pytest.approx(21588e3)
    assert any("TDP, 700 W" in line for line in whole["assumptions"])


@pytest.mark.parametrize(
    ("length", "examples"),
    [
        (("--run-examples", "1k"), 1000),
        (("--run-steps", "10", "--batch", "5"), 50),
        (("--run-steps", "10", "--batch", "5", "--accumulate", "2", "--dp", "3"), 300),
        (("--run-tokens", "120", "--tokens", "4"), 30),
    ],
)
def test_the_exact_count_times_the_examples(run, chain, length, examples):
    """2 x (64 + 32 + 64) FLOPs an example; at half of 1 TFLOP/s."""
    whole = run(chain, "--train", "--mfu", "50%", *PEAK, *length)
    assert (whole["examples"], whole["flops"]) == (examples, 320 * examples)
    assert whole["device_hours"] == pytest.approx(320 * examples / 0.5e12 / 3600)


def test_frozen_weights_and_an_optimizer(run, chain):
    """The first layer runs forward alone; 32 parameters x 14 FLOPs of AdamW, in 20 steps."""
    whole = run(
        chain, "--train", "--frozen", "first", "--run-examples", "100", "--batch", "5",
        "--optimizer", "adamw",
    )  # fmt: skip
    assert whole["flops"] == 2 * (64 + 32) * 100
    assert (whole["steps"], whole["optimizer_flops"]) == (20, 20 * 14 * 32)


def test_what_is_done_again_is_apart(run, tmp_path):
    """Attention of 1024 MACs does half of them again; its gradients cost twice as much.

    The product before it has a trained weight and an input that needs no gradient: 2 x 256.
    """
    file = saved(tmp_path, with_weights(ATTENTION, "w", opset=23))
    whole = run(file, "--train", "--run-examples", "1")
    assert whole["flops"] == 2 * (2 * 256 + 3 * 1024)
    assert whole["executed_flops"] == whole["flops"] + 2 * 512


def test_a_measured_speed_gives_the_mfu(run, chain):
    """320 FLOPs x 1e9 examples/s are 32 % of 1 TFLOP/s: a billion examples take a second."""
    whole = run(chain, "--train", "--run-examples", "1G", "--examples-per-second", "1e9", *PEAK)
    assert whole["mfu"] == pytest.approx(0.32)
    assert whole["device_hours"] == pytest.approx(1 / 3600)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--run-tokens", "1T"), "requires --train"),
        (("--train", "--run-tokens", "1T", "--run-steps", "2"), "cannot be combined"),
        (("--train", "--run-steps", "2"), "--run-steps requires --batch"),
        (("--train", "--run-tokens", "1T"), "number of tokens"),
        (("--train", "--run-examples", "many"), "a count must be a number"),
        (("--train", "--run-examples", "5", "--mfu", "140%"), "must be a share"),
        (("--train", "--run-examples", "5", "--mfu", "nan"), "must be a share"),
        (("--train", "--mfu", "0.4", *PEAK, "--latency-ms", "5"), "already gives the speed"),
        (("--train", "--mfu", "0.4"), "is a share of a peak, and no peak is given"),
        (("--train", "--optimizer", "sgd", *PEAK, "--latency-ms", "5"), "whose length is missing"),
        (
            ("--train", "--run-examples", "5", "--mfu", "0.4", "--latency-ms", "5"),
            "cannot be combined",
        ),
        (("--train", "--run-examples", "5", "--optimizer", "adamw"), "batch"),
        (
            ("--train", "--run-examples", "5", "--batch", "5", "--optimizer", "x"),
            "unknown optimizer",
        ),
    ],
)
def test_what_makes_no_run_is_refused(line, chain, arguments, error):
    """One line of what is wrong and one of what to do, and exit status 2."""
    status, out, err = line("efficiency", chain, *arguments)
    assert (status, out) == (2, "")
    assert error in err
    assert "hint: " in err


def test_tokens_that_are_missing_are_named_by_the_option_that_needs_them(line):
    """The work of sizes is that of a token, so a number of examples needs their length."""
    status, _, err = line("efficiency", "--params", "7G", "--train", "--run-examples", "5")
    assert status == 2
    assert err.startswith("error: --run-examples needs the number of tokens per example\n")
    arguments = ("--params", "7G", "--train", "--run-examples", "5", "--tokens", "8")
    assert line("efficiency", *arguments)[0] == 0


def test_an_optimizer_of_a_tool_number_is_refused_by_its_cause(line, chain):
    """A target is there, so the message names the option that replaces its count."""
    arguments = ("--train", "--run-examples", "5", "--batch", "1", "--optimizer", "adamw")
    status, _, err = line("efficiency", chain, *arguments, "--as", "exact-2k-1")
    assert status == 2
    assert "leave out --as and --compare" in err


@pytest.mark.parametrize(
    ("framework", "remedy"), [("jax", "--trainable 0"), ("sklearn", "convert the model to ONNX")]
)
def test_an_optimizer_needs_the_trained_parameters(framework, remedy):
    """A model of JAX without parameters gets them as an input; others do not say what they are."""
    trace = Trace(calls=(), modules=(), setting=Setting(), framework=framework)
    counted = CountedModel(trace=trace, graph=None, ledger=None)
    with pytest.raises(InputError, match="it is unknown which parameters") as caught:
        _optimizer_step_work("adamw", counted, None)
    assert caught.value.hint.startswith("leave out --optimizer, or ")
    assert remedy in caught.value.hint


def test_from_python(chain):
    """By the names of the flags."""
    noun = efficiency(chain, train=True, run_steps=10, batch=5, mfu=0.5, peak_tflops=1)
    assert noun.efficiency[0].run.flops == 320 * 50


PALM = (
    *("--params", "540.35G", "--layers", "118", "--heads", "48", "--head-dim", "256"),
    *("--seq", "2048", "--train", "--peak-tflops", "275", "--devices", "6144"),
)


def test_a_published_mfu_is_tokens_per_second_and_the_other_way(line):
    """PaLM 540B: 46.2 % of 6144 x 275 TFLOP/s are 238.3 k tokens/s, in three digits.

    A token has 6 x 540.35 G FLOPs, and 12 x 118 x 48 x 256 x 2048 of attention (appendix B).
    """
    flops = 6 * 540_350_000_000 + 12 * 118 * 48 * 256 * 2048
    speed = 0.462 * 6144 * 275e12 / flops
    assert speed == pytest.approx(238_300, rel=1e-3)
    status, out, _ = line("efficiency", *PALM, "--mfu", "46.2%", "--json")
    assert status == 0
    [row] = json.loads(out)["efficiency"]
    assert row["ratio"] == pytest.approx(0.462)
    assert row["world"]["examples_per_second"] == pytest.approx(speed)
    assert any("follows from an MFU of 46.2%" in text for text in row["assumptions"])
    status, out, _ = line("efficiency", *PALM, "--tokens-per-second", repr(speed), "--json")
    [row] = json.loads(out)["efficiency"]
    assert row["ratio"] == pytest.approx(0.462)


def test_a_published_mfu_is_that_of_the_native_count(line, chain):
    """64 MACs of the chain are 128 FLOPs; a comparison has no first number."""
    words = ("efficiency", chain, "--mfu", "0.4", *PEAK, "--json")
    status, out, _ = line(*words)
    assert status == 0
    [native] = json.loads(out)["efficiency"]
    assert native["examples_per_second"] == pytest.approx(0.4 * 1e12 / 128)
    status, out, err = line("efficiency", chain, "--mfu", "0.4", *PEAK, "--compare")
    assert status == 2
    assert "--mfu and --compare cannot be combined" in err
