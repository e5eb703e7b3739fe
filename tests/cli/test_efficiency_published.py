"""Published efficiencies come out of the command, each within the tolerance of its source."""

import json
from pathlib import Path

import pytest

CASES = {
    case["id"]: case
    for case in json.loads(
        (Path(__file__).parents[1] / "golden_efficiency.json").read_text(encoding="utf-8")
    )["cases"]
}


@pytest.fixture
def only(line):
    """The one efficiency that the command writes as JSON, with which it ends well."""

    def run(*arguments):
        status, out, err = line("efficiency", *map(str, arguments), "--json")
        assert (status, err) == (0, "")
        (efficiency,) = json.loads(out)["efficiency"]
        return efficiency

    return run


def expected(id, **values):
    """Every figure that the case expects is among the values, and within its tolerance."""
    case = CASES[id]
    assert values.keys() == case["expect"].keys()
    for name, value in case["expect"].items():
        if isinstance(value, str):
            assert values[name] == value, name
        else:
            assert values[name] == pytest.approx(value, rel=case["tolerance_rel"], abs=0), name


def test_every_case_is_tested():
    """No case of the file is left out: each is named by a test."""
    text = Path(__file__).read_text(encoding="utf-8")
    assert [id for id in CASES if f'"{id}"' not in text] == []


def test_the_step_of_bert_large(only):
    """DeepSpeed's summary of a step of BERT-Large, from a pass's count and three latencies."""
    given = CASES["deepspeed-bert-large-readme"]["inputs"]
    efficiency = only(
        "--pass-macs", given["fwd_macs"], "--batch", given["batch"], "--train",
        "--fwd-ms", 1e3 * given["fwd_s"], "--bwd-ms", 1e3 * given["bwd_s"],
        "--step-ms", 1e3 * given["step_s"], "--dp", given["world"], "--tp", given["mp"],
        "--device", "a100-sxm4-40gb", "--precision", "fp16",
    )  # fmt: skip
    forward, backward, both = efficiency["step"]["phases"]
    expected(
        "deepspeed-bert-large-readme",
        fwd_flops_G=forward["flops"] / 1e9,
        fwd_TFLOPS=forward["rate"] / 1e12,
        bwd_TFLOPS=backward["rate"] / 1e12,
        fwd_bwd_TFLOPS=both["rate"] / 1e12,
        iter_ms=efficiency["step"]["seconds"] * 1e3,
        samples_per_s=efficiency["step"]["examples_per_second"],
    )
    assert efficiency["step"]["macs"] == given["fwd_macs"]
    shares = [round(100 * phase["ratio"], 1) for phase in efficiency["step"]["phases"]]
    assert shares == [26.3, 37.3, 32.7]


@pytest.mark.parametrize(
    ("id", "precision", "cards"),
    [
        ("resnet50-v100-fp16", "fp16", {"112": "v100-pcie", "125": "v100-sxm2"}),
        ("resnet50-v100-fp32", "fp32", {"14_0": "v100-pcie", "15_7": "v100-sxm2"}),
    ],
)
def test_resnet50_on_v100(only, id, precision, cards):
    """ResNet-50's training, by the card of the catalogue or by the peak that is given."""
    given = CASES[id]["inputs"]
    speed = (
        "--macs", given["macs"], "--train", "--examples-per-second", given["images_per_s"],
        "--precision", precision,
    )  # fmt: skip
    values = {"tflops": only(*speed)["rate"] / 1e12}
    for name in CASES[id]["expect"]:
        peak = name.removeprefix("ratio_")
        if peak in cards:
            values[name] = only(*speed, "--device", cards[peak])["ratio"]
        elif peak != name:
            values[name] = only(*speed, "--peak-tflops", peak.replace("_", "."))["ratio"]
    expected(id, **values)


def test_palm_540b(only):
    """PaLM's MFU from its sizes, the tokens a second of all chips, and their number."""
    given = CASES["palm-540b-mfu"]["inputs"]
    efficiency = only(
        "--params", round(given["params"]), "--layers", given["layers"], "--heads", given["heads"],
        "--head-dim", given["head_dim"], "--seq", given["seq"], "--train",
        "--tokens-per-second", given["tokens_per_s"], "--devices", given["chips"],
        "--device", "tpu-v4", "--precision", "bf16",
    )  # fmt: skip
    assert efficiency["peak"] == given["peak"]
    expected("palm-540b-mfu", mfu=efficiency["ratio"])


def test_mpt_70b(only):
    """llm-foundry's row of MPT-70B: with everything recomputed HFU is 4/3 of MFU."""
    given = CASES["mpt-70b-llm-foundry"]["inputs"]
    efficiency = only(
        "--params", given["params"], "--layers", given["layers"], "--hidden", given["d_model"],
        "--seq", given["seq"], "--train", "--tokens-per-second", given["tokens_per_s_per_gpu"],
        "--peak-tflops", given["peak"] / 1e12, "--recompute", given["recompute"],
    )  # fmt: skip
    expected(
        "mpt-70b-llm-foundry",
        model_tflops=efficiency["rate"] / 1e12,
        mfu=efficiency["ratio"],
        hfu=efficiency["hfu"],
    )
    assert efficiency["hfu"] / efficiency["ratio"] == pytest.approx(4 / 3)


def test_the_peak_of_two_precisions(only):
    """Half of the work in each of two precisions has their harmonic mean as its peak."""
    given = CASES["mixed-precision-roof"]["inputs"]
    mixed = [
        text for pair in given["fractions"].items() for text in ("--mix", "{}={}".format(*pair))
    ]
    peaks = [
        text
        for pair in given["peaks"].items()
        for text in ("--peak-tflops", "{}={}".format(*pair))
    ]
    work = ("--macs", "1T", "--examples-per-second", 1)
    expected("mixed-precision-roof", effective_peak=only(*work, *mixed, *peaks)["peak"] / 1e12)
    h100 = only(*work, *mixed, "--device", "h100-sxm")
    expected("mixed-precision-roof", effective_peak=h100["peak"] / 1e12)
    assert [row["flops"] for row in h100["precisions"]] == [10**12, 10**12]


def test_decoding_with_llama(only):
    """A step that decodes for eight users is bound by memory, whatever the batch."""
    given = CASES["llama31-8b-decode-b8-s2048-h100"]["inputs"]
    moved = only(
        "--params", given["matmul_params"], "--layers", given["layers"],
        "--hidden", given["d_model"], "--kv-heads", given["kv_heads"],
        "--head-dim", given["head_dim"], "--batch", given["batch"], "--context", given["context"],
        "--param-bytes", given["dtype_bytes"], "--cache-bytes", given["dtype_bytes"],
        "--peak-tflops", given["peak"] / 1e12, "--bandwidth", given["bw"] / 1e9,
    )["moved"]  # fmt: skip
    expected(
        "llama31-8b-decode-b8-s2048-h100",
        gflop=moved["flops"] / 1e9,
        gbytes=moved["bytes"] / 1e9,
        intensity=moved["intensity"],
        t_min_ms=moved["bound_seconds"] * 1e3,
        bound=moved["bound"],
        intensity_limit_any_batch=moved["intensity_limit"],
    )
    assert moved["mbu"] is None


def test_the_bandwidth_that_decoding_used(only):
    """17.16 GB in 7.05 ms are 2434 GB/s, 72.6 % of an H100; its MFU of 1.8 % says little."""
    efficiency = only(
        "--params", 7504658432, "--layers", 32, "--hidden", 4096, "--kv-heads", 8,
        "--head-dim", 128, "--batch", 8, "--context", 2048, "--latency-ms", 7.05,
        "--device", "NVIDIA H100 80GB HBM3", "--precision", "bf16",
    )  # fmt: skip
    assert efficiency["device"] == "h100-sxm"
    assert efficiency["moved"]["mbu"] == pytest.approx(0.726, abs=5e-4)
    assert efficiency["ratio"] == pytest.approx(0.018, abs=5e-4)
    assert efficiency["examples_per_second"] == pytest.approx(1135, abs=0.5)
    assert efficiency["unit"] == "token"


def test_decoding_with_other_formats(only):
    """Milliseconds at 3350 GB/s: half of 15.01 GB of weights, and of 2.15 GB of cache, too.

    (7 504 658 432 + 2 147 483 648) / 3.35e12 = 2.881 ms, (7 504 658 432 + 1 073 741 824) / 3.35e12
    = 2.561 ms; a batch of 64 (15 009 316 864 + 8 x 2 147 483 648) / 3.35e12 = 9.609 ms; H200
    17 156 800 512 / 4.8e12 = 3.574 ms.
    """
    inputs = CASES["llama31-8b-decode-b8-s2048-h100"]["inputs"]
    texts = ("weights=fp8", "weights=fp8,cache=fp8", "precision=fp8", "batch=64", "device=h200")
    roofline = only(
        "--params", inputs["matmul_params"], "--layers", 32, "--hidden", 4096, "--kv-heads", 8,
        "--head-dim", 128, "--context", 2048, "--batch", 8, "--device", "h100-sxm",
        "--precision", "bf16", *(part for text in texts for part in ("--what-if", text)),
    )["roofline"]  # fmt: skip
    took = [round(1e3 * variant["whole_seconds"], 3) for variant in roofline["what_if"]]
    assert took == [2.881, 2.561, 2.561, 9.609, 3.574]
    assert roofline["step"]["cache"] == 2_147_483_648
    assert roofline["byte_model"] == "weights-once"


def test_the_macs_of_bert_large():
    """DeepSpeed's count of BERT-Large by hand: no attention products, a softmax element a MAC.

    Per layer four products of width and two of four times the width, 12 h^2 for each token; the
    head for masked words sees a transformation of every token and 1159 masked ones.
    """
    given = CASES["deepspeed-bert-large-macs"]["inputs"]
    hidden, tokens = given["hidden"], given["batch"] * given["seq"]
    pairs = given["batch"] * given["seq"] ** 2
    parts = {
        "layer_linears": 12 * hidden**2 * tokens,
        "attention_matmuls_per_layer_OMITTED": 2 * pairs * hidden,
        "softmax_elements_counted_as_macs_per_layer": given["heads"] * pairs,
        "mlm_transform": hidden**2 * tokens,
        "mlm_decoder": given["mlm_positions"] * hidden * given["vocab_padded"],
        "pooler": given["batch"] * hidden**2,
        "nsp": given["batch"] * hidden * 2,
    }
    heads = sum(parts[name] for name in ("mlm_transform", "mlm_decoder", "pooler", "nsp"))
    layer, attention, softmax = list(parts.values())[:3]
    expected(
        "deepspeed-bert-large-macs",
        **parts,
        deepspeed_total=given["layers"] * (layer + softmax) + heads,
        correct_matmul_total=given["layers"] * (layer + attention) + heads,
    )
