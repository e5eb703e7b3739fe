"""Figures of language models, for one token or all, are traced to the formula that gives them.

The integers are what the functions of the frameworks returned (tests/tools/formulas), the others
TFLOP/s over tokens per second of published tables. Here nothing is counted.
"""

import pytest

from crossflops.ir.architecture import TokenSequence
from crossflops.reconcile.formulas import reconcile_formulas
from crossflops.report.model_numbers import NATIVE, ModelNumbers
from crossflops.report.published import parse_figure
from crossflops.report.readings import find_readings, native_numbers
from crossflops.tools.registry import formula_conventions
from crossflops.verbs.model_numbers import formula_numbers
from tests.tools.formulas.published import PUBLISHED

BRIDGE = "Megatron-Bridge, docs/performance-summary.md and -archive.md: TFLOP/s over tokens/s"
TITAN = "torchtitan, issue 1920"
FIGURES = [
    ("L8", 8192, "51.470 GFLOPs/token", "megatron-bridge", BRIDGE),
    ("L70", 8192, "449.223 GFLOPs/token", "megatron-bridge", BRIDGE),
    ("L405", 8192, "2523.956 GFLOPs per token", "megatron-bridge", BRIDGE),
    ("Q30", 4096, "23.006G", "megatron-bridge", BRIDGE),
    ("OSS", 4096, "27.164G", "megatron-bridge@0.4.2", f"{BRIDGE}, to 26.04.01"),
    ("Q30", 8192, "37578559488", "torchtitan@0.3.0", f"{TITAN}: its own model"),
    ("Q30", 8192, "192 856 412 160", "torchtitan@0.3.0-hf", f"{TITAN}: that of transformers"),
    ("Mix", 8192, "87.760G", "megatron-deepspeed", "Megatron-DeepSpeed, throughput_calculator"),
    ("L8", 8192, "69.656G", "litgpt", "litgpt 0.5.13, estimate_flops"),
    ("L8", 8192, "149534632050688", "vllm", "vLLM 0.33, a prefill"),
]


def numbers_of(name, tokens):
    """Return the native numbers and those of all formulas, of one sequence."""
    architecture = PUBLISHED[name]
    macs = TokenSequence(architecture, tokens).macs
    formulas = formula_conventions()
    answers = reconcile_formulas(formulas, architecture, tokens, 1, macs)
    native = native_numbers(macs, 2 * macs, 1, tokens)
    return ModelNumbers(target=name, numbers=(*native, *formula_numbers(answers, formulas)))


@pytest.mark.parametrize(("name", "tokens", "text", "expected", "source"), FIGURES)
def test_the_right_formula_comes_first(name, tokens, text, expected, source):
    """By its name, or by its edition where that matters."""
    first = find_readings(parse_figure(text), numbers_of(name, tokens))[0].number
    assert expected in (first.tool, f"{first.tool}@{first.edition}"), source


def test_a_figure_per_token_is_only_that():
    """9 652 142 080 MACs of Llama 3 8B at 8192 tokens are of one of them."""
    numbers = numbers_of("L8", 8192)
    first = find_readings(parse_figure("9652142080 MACs/token"), numbers)[0]
    assert (first.number.tool, first.number.unit) == (NATIVE, "MACs per token")
    assert find_readings(parse_figure(f"{9652142080 * 8192} MACs per token"), numbers) == []
    assert find_readings(parse_figure(str(9652142080 * 8192)), numbers)[0].number.unit == "MACs"
