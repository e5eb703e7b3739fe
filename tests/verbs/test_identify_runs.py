"""Published figures of training runs are traced to the formula that gives them.

The sizes of the models are those of their papers. Here nothing is counted.
"""

import pytest

from crossflops.errors import InputError
from crossflops.ir.architecture import DecoderLayer, FeedForward, TokenSequence
from crossflops.reconcile.formulas import reconcile_formulas
from crossflops.report.run_figures import parse_run_figure
from crossflops.targets.request import Request
from crossflops.verbs.identify_runs import (
    RunOptions,
    RunSearch,
    check_run_options,
    choose_training_formulas,
    token_factor,
)
from tests.tools.formulas.published import PUBLISHED, attention, made


def gpt_3(layers, hidden, heads):
    """Return a GPT-3 of table 2.1: four times as wide inside, 2048 positions, biases, tied."""
    block = DecoderLayer(
        attention(hidden, heads, heads, hidden // heads),
        FeedForward(hidden=hidden, width=4 * hidden, gated=False),
    )
    return made(
        "gpt2", hidden, 50257, [block] * layers, activation="gelu", tied=True,
        norms=(4 * layers + 2) * hidden, biases=9 * layers * hidden, positions=2048 * hidden,
    )  # fmt: skip


def palm(layers, hidden, heads):
    """Return a PaLM of table 1: SwiGLU, one key head of 256, 256 000 tied words, no biases."""
    block = DecoderLayer(
        attention(hidden, heads, 1, 256),
        FeedForward(hidden=hidden, width=4 * hidden, gated=True),
    )
    return made("palm", hidden, 256_000, [block] * layers, tied=True, norms=(layers + 1) * hidden)


CHINCHILLA = made(
    "chinchilla", 8192, 32_000,
    [DecoderLayer(attention(8192, 64, 64, 128),
                  FeedForward(hidden=8192, width=32768, gated=False))] * 80,
    tied=True, norms=81 * 8192,
)  # fmt: skip
MODELS = {
    "Chinchilla": CHINCHILLA,
    "GPT-3 Small": gpt_3(12, 768, 12), "GPT-3 Medium": gpt_3(24, 1024, 16),
    "GPT-3 Large": gpt_3(24, 1536, 16), "GPT-3 2.7B": gpt_3(32, 2560, 32),
    "GPT-3 6.7B": gpt_3(32, 4096, 32), "GPT-3 175B": gpt_3(96, 12288, 96),
    "PaLM 8B": palm(32, 4096, 16), "PaLM 62B": palm(64, 8192, 32),
    "PaLM 540B": palm(118, 18432, 48), **PUBLISHED,
}  # fmt: skip
GPT_3 = "Brown et al. 2020, 2005.14165, table D.1"
PALM = "Chowdhery et al. 2022, 2204.02311"
FLAN = "Chung et al. 2022, 2210.11416, table 2"
LLAMA = "Grattafiori et al. 2024, 2407.21783, section 1: 15.6T tokens"
BRIDGE = "Megatron-Bridge, docs/performance-summary-archive.md, 26.06: 256 GB300"
TRAINED = {GPT_3: "300B", PALM: "780B", FLAN: "780B", LLAMA: "15.6T"}
COMPUTE = [
    ("GPT-3 Small", "2.25E+20", "6nd", "", GPT_3),
    ("GPT-3 Medium", "6.41E+20", "6nd", "", GPT_3),
    ("GPT-3 Medium", "7.42E+00 PF-days", "6nd", "N = 356M", GPT_3),
    ("GPT-3 Large", "1.37E+21", "6nd", "", GPT_3),
    ("GPT-3 Large", "1.58E+01 PF-days", "6nd", "", GPT_3),
    ("GPT-3 2.7B", "4.77E+21", "6nd", "", GPT_3),
    ("GPT-3 2.7B", "5.52E+01 petaflop/s-days", "6nd", "", GPT_3),
    ("GPT-3 6.7B", "1.20E+22 FLOPs", "6nd", "", GPT_3),
    ("GPT-3 6.7B", "1.39E+02 PF-days", "6nd", "", GPT_3),
    ("GPT-3 175B", "3.14E+23", "6nd", "", GPT_3),
    ("GPT-3 175B", "3.64E+03 PF-days", "6nd", "", GPT_3),
    ("PaLM 540B", "2.56e24", "palm", "", f"{PALM}: with attention"),
    ("PaLM 540B", "2527.2 zettaFLOPs", "6nd", "N = 540G", f"{PALM}: table of compute"),
    ("PaLM 540B", "2.5E+24", "6nd", "", FLAN),
    ("PaLM 62B", "2.9E+23", "6nd", "", FLAN),
    ("PaLM 8B", "3.7E+22", "6nd", "N = 8G", FLAN),
    ("L405", "3.8 x 10^25", "6nd", "", LLAMA),
]  # fmt: skip
PALM_RUN = RunOptions(
    tokens_per_second="238.3k", devices=6144, device="tpu-v4", precision="bf16"
)  # fmt: skip
SPEEDS = [
    ("PaLM 540B", "46.2%", PALM_RUN, 2048, "palm", f"{PALM}, appendix B"),
    ("PaLM 540B", "45.7 % MFU", PALM_RUN, 2048, "6nd", f"{PALM}: without self-attention"),
    ("L405", "2403 TFLOP/s/GPU", RunOptions(tokens_per_second="952"), 8192, "megatron-bridge",
     BRIDGE),
]  # fmt: skip


def search_run_figure(name, text, run, tokens=2048, formulas=()):
    """Return (candidates that print the figure, near ones, the nearest one) for a model."""
    figure = parse_run_figure(text)
    check_run_options(figure, run, Request(target="hf:config.json"))
    macs = TokenSequence(MODELS[name], tokens).macs
    chosen = choose_training_formulas(formulas)
    answers = reconcile_formulas(chosen, MODELS[name], tokens, 1, macs)
    search = RunSearch(figure, token_factor(figure, run), run)
    request = Request.from_arguments("hf:config.json", sizes={"seq": tokens})
    asked = request, answers, chosen, (f"1x{tokens}",)
    return *search.candidates(*asked), search.nearest(*asked)


@pytest.mark.parametrize(("name", "text", "tool", "rounded", "source"), COMPUTE)
def test_the_right_formula_comes_first(name, text, tool, rounded, source):
    """Its N is that of the model, or the one by which the model is named."""
    run = RunOptions(run_tokens=TRAINED[source.partition(": with")[0].partition(": table")[0]])
    first = search_run_figure(name, text, run)[0][0]
    assert (first.tool, first.unit.partition(", ")[2]) == (tool, rounded), source


@pytest.mark.parametrize(("name", "text", "run", "tokens", "tool", "source"), SPEEDS)
def test_a_speed_and_an_mfu_are_those_of_a_formula(name, text, run, tokens, tool, source):
    """The tokens per second are those of all devices."""
    assert search_run_figure(name, text, run, tokens)[0][0].tool == tool, source


def test_the_command_prints_the_number():
    """6 x 174 604 627 968 parameters x 300 G tokens; the run of an MFU in words."""
    first = search_run_figure("GPT-3 175B", "3.14E+23", RunOptions(run_tokens="300B"))[0][0]
    assert first.prints == 6 * MODELS["GPT-3 175B"].parameters.total * 300 * 10**9
    assert first.command == (
        "crossflops efficiency hf:config.json --seq 2048 --train --run-tokens 300B --as 6nd@2022"
    )
    rounded = search_run_figure("PaLM 540B", "2527.2 ZFLOPs", RunOptions(run_tokens="780B"))[0][0]
    assert rounded.prints == 2_527_200 * 10**18
    assert rounded.command == "crossflops efficiency --params 540G --train --run-tokens 780B"
    first = search_run_figure("PaLM 540B", "46.2%", PALM_RUN)[0][0]
    assert first.prints == pytest.approx(0.4623, abs=5e-5)
    assert first.command == (
        "crossflops efficiency hf:config.json --seq 2048 --train --tokens-per-second 238.3k "
        "--devices 6144 --device tpu-v4 --precision bf16 --as palm@2022"
    )


def test_a_near_number_names_the_cause_that_is_missing():
    """Megatron-LM counts half of attention, so that it would print the whole without this."""
    full = 6 * TokenSequence(MODELS["L8"], 8192).macs // 8192
    run = RunOptions(run_tokens="1T")
    _, near, _ = search_run_figure("L8", str(full * 10**12), run, 8192, ["megatron-lm"])
    assert [(one.tool, one.missing) for one in near] == [("megatron-lm", ("formula.causal-half",))]


def test_what_no_formula_prints_has_a_nearest_number():
    """5.76e23 are the budget of Gopher, which Chinchilla was given (2203.15556, table 4): its own
    70 G of parameters have matrices for relative positions, too, which no config here has.
    """
    exact, _, nearest = search_run_figure("Chinchilla", "5.76e23", RunOptions(run_tokens="1.4T"))
    assert exact == []
    assert nearest.prints == pytest.approx(5.76e23, rel=0.02)


@pytest.mark.parametrize(
    ("text", "run", "message"),
    [
        ("3.14e23", RunOptions(tokens_per_second="4"), "--tokens-per-second has no effect here"),
        ("46.2%", RunOptions(run_tokens="1T"), "--run-tokens has no effect here"),
        ("46.2%", RunOptions(), "requires --tokens-per-second"),
        ("400 TFLOP/s", RunOptions(tokens_per_second="4", precision="bf16"), "--precision has no"),
        ("3640 PF-days", RunOptions(), "requires --run-tokens"),
        ("51.4 GFLOPs/token", RunOptions(run_tokens="1T"), "is not one of a whole run"),
        ("25.6M params", RunOptions(run_tokens="1T"), "is not one of a whole run"),
        ("46.2%", RunOptions(tokens_per_second="4"), "requires the peak of a device"),
        ("46.2%", RunOptions(tokens_per_second="x", peak_tflops=("1",)), "be a positive rate"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_the_figure_are_refused(text, run, message):
    """Each by its flag."""
    with pytest.raises(InputError, match=message):
        search_run_figure("L8", text, run)


@pytest.mark.parametrize("name", ["thop", "vllm", "kaplan@2020-forward"])
def test_only_formulas_of_training_have_a_number_of_a_run(name):
    """A tool, and a formula of a forward pass, are refused."""
    with pytest.raises(InputError, match="is not a formula of training"):
        choose_training_formulas([name])
