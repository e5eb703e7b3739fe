"""Formulas return what their real functions returned, and every difference has a cause."""

import random

import pytest

from crossflops.ir.architecture import TokenSequence
from crossflops.reconcile.formulas import reconcile_formulas
from crossflops.tools.registry import find_convention, formula_conventions
from tests.tools.formulas.published import PUBLISHED, random_architecture

TOKENS = 8192
SQUARE = (57912852480, 481434796032, 2625424588800, 89376423936, 37577293824, 342556803072,
          45282115584, 187010383872)  # fmt: skip
# Training FLOPs per token at 8192 tokens, in the order of PUBLISHED. From torchtitan 0.2.0 down,
# and of litgpt and transformers, the functions of the tools returned these.
PRINTED = {
    "kaplan": (41875931136, 410706247680, 2409879306240, 75705090048, 16382951424, 214187507712,
               27311800320, 153590169600),
    "6nd": (48181567488, 423322238976, 2435120332800, 280216756224, 183192735744, 4026158426112,
            700974940032, 162054013440),
    "total-flos": (45029548032, 417018200064, 2422512254976, 279430324224, 181325746176,
                   4020598351872, 697500139392, 153598296576),
    "palm": (61066469376, 487746748416, 2638057537536, 293101658112, 202520088576, 4124405803008,
             715470454656, 187018510848),
    "litgpt": (69656403968, 530696421376, 2773349007360, 301691592704, 199298863104, None, None,
               225119568384),
    "torchtitan@0.2.0": (57914449920, 481442709504, 2625449459712, 89378021376, 27914883072,
                         262736848896, 40989255552, 186364199424),
    "torchtitan@0.3.0": (57914449920, 481442709504, 2625449459712, 89378021376, 37578559488,
                         342562842624, 45292611456, 187018510848),
    "megatron-lm": (51470401536, 449222541312, 2523955986432, 82927681536, 27838119936,
                    280514359296, 30788370432, 131522887680),
    "megatron-bridge": (51470401536, 449222541312, 2523955986432, 82927681536, 27838119936,
                        280514359296, 34443221760, 164971603968),
    "nemo": (51470401536, 449222541312, 2523955986432, 82927681536, 20288372736, 280513609728,
             34443664128, None),
    "maxtext": (51470401536, 449222541312, 2523955986432, 82933972992, 27913617408, 281152192512,
                34522841088, 166512820224),
    "verl": (54622420992, 455526580224, 2536564064256, None, 29780606976, 286712266752,
             37941903360, 173823492096),
    "megatron-deepspeed": (56302239744, 473381732352, 2600057438208, 87759519744, 24818221056,
                           252713631744, 38749224960, 202491297792),
    "gpt-neox": (53903622144, 455699595264, 2647639719936, 52129431552, 25559433216, 272815226880,
                 34297344000, 168123432960),
}  # fmt: skip


def account_of(text, architecture, tokens=TOKENS, sequences=1):
    """Return the account of one formula, the native count being that of the closed form."""
    tool, _, edition = text.partition("@")
    convention = find_convention(tool, edition or None)
    macs = TokenSequence(architecture, tokens).macs * sequences
    report = reconcile_formulas([convention], architecture, tokens, sequences, macs)
    return report.accounts[0]


def causes_of(account):
    """Return the amounts by cause, for one token."""
    return {row.cause: row.amount // TOKENS for row in account.explanations}


@pytest.mark.parametrize(("name", "number"), list(zip(PUBLISHED, SQUARE, strict=True)))
def test_the_closed_form_is_six_times_the_square_count(name, number):
    """Linear parts and attention of dense models were counted by FlopCounterMode."""
    assert 6 * TokenSequence(PUBLISHED[name], TOKENS).macs == number * TOKENS


@pytest.mark.parametrize("tool", PRINTED)
def test_a_formula_gives_what_its_function_returned(tool):
    """Every integer, and no number where the tool has none."""
    for name, number in zip(PUBLISHED, PRINTED[tool], strict=True):
        account = account_of(tool, PUBLISHED[name])
        if number is None:
            assert account.obstacle, name
        else:
            assert (account.theirs, account.residual) == (number * TOKENS, 0), name


@pytest.mark.parametrize(
    ("tool", "number"),
    [("olmo-core@3.0.0", 51471212544), ("cookbook", 80507584512)],
)
def test_other_functions_on_llama(tool, number):
    """OLMo-core, and the cookbook with three matrices and its default checkpoints."""
    assert account_of(tool, PUBLISHED["L8"]).theirs == number * TOKENS


def test_a_prefill_of_vllm():
    """One row of logits, forward."""
    account = account_of("vllm", PUBLISHED["L8"])
    assert account.theirs == 149534632050688
    assert [row.cause for row in account.explanations] == ["formula.head-last-token"]


def test_both_integers_of_torchtitan_for_qwen():
    """37 578 559 488 by its own model, 192 856 412 160 by its Hugging Face backend."""
    own = account_of("torchtitan@0.3.0", PUBLISHED["Q30"])
    assert own.theirs == 37578559488 * TOKENS
    assert causes_of(own) == {"formula.norms-as-matmul": 6 * 210944}
    backend = account_of("torchtitan@0.3.0-hf", PUBLISHED["Q30"])
    assert backend.theirs == 192856412160 * TOKENS
    assert causes_of(backend) == {
        "formula.embedding-as-matmul": 6 * 151936 * 2048,
        "formula.all-experts": 6 * 27179089920,
        "formula.norms-as-matmul": 6 * 210944,
        "formula.one-attention-matmul": -6 * 48 * 32 * 128 * TOKENS,
    }


def test_the_jump_of_gpt_oss_between_two_releases():
    """Bridge 0.5 counts the gate, and takes windows pair by pair."""
    old = causes_of(account_of("megatron-bridge@0.4.2", PUBLISHED["OSS"]))
    new = causes_of(account_of("megatron-bridge@0.5.0", PUBLISHED["OSS"]))
    assert old["formula.glu-as-two-matrices"] == -7166361600
    assert "formula.glu-as-two-matrices" not in new
    windows = new["formula.window-exact"] + new["formula.causal-half"]
    assert windows - old["formula.causal-half"] == -3511510272


# Published rows: tokens, tokens/s and TFLOP/s of one device, both rounded to whole numbers
# (NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md and -archive.md at 067f987).
ROWS = [
    ("L8", "megatron-bridge@0.4.2", 8192, 31357, 1614),
    ("L405", "megatron-bridge@0.4.2", 8192, 842, 2126),
    ("L405", "megatron-bridge@0.4.2", 8192, 818, 2063),
    ("L405", "megatron-bridge@0.4.2", 8192, 813, 2053),
    ("Q30", "megatron-bridge@0.4.2", 4096, 8826, 203),
    ("Q30", "megatron-bridge@0.4.2", 4096, 30411, 700),
    ("Q30", "megatron-bridge@0.4.2", 4096, 5113, 118),
    ("OSS", "megatron-bridge@0.4.2", 4096, 5810, 158),
]


@pytest.mark.parametrize(("name", "tool", "tokens", "rate", "tflops"), ROWS)
def test_a_published_row_is_reproduced(name, tool, tokens, rate, tflops):
    """TFLOP/s over tokens/s, within the rounding of both figures."""
    account = account_of(tool, PUBLISHED[name], tokens)
    per_token = account.theirs / tokens / 1e12
    assert (tflops - 0.5) / (rate + 0.5) <= per_token <= (tflops + 0.5) / (rate - 0.5)


def test_no_formula_leaves_a_residual_on_random_architectures():
    """Any sizes, windows, groups, ranks and mixtures, at even and odd lengths, in batches."""
    draw = random.Random(38)
    known = formula_conventions()
    answered = [0] * len(known)
    for _ in range(300):
        architecture = random_architecture(draw)
        tokens, sequences = draw.randint(1, 40), draw.choice([1, 3])
        macs = TokenSequence(architecture, tokens).macs * sequences
        report = reconcile_formulas(known, architecture, tokens, sequences, macs)
        for index, account in enumerate(report.accounts):
            assert account.residual == 0, (account.tool, account.edition, architecture)
            answered[index] += not account.obstacle
    assert min(answered) > 20


def test_a_wrong_native_count_is_a_residual():
    """One MAC more in the graph is six FLOPs that no cause covers."""
    architecture = PUBLISHED["L8"]
    macs = TokenSequence(architecture, 16).macs
    report = reconcile_formulas([find_convention("palm")], architecture, 16, 1, macs + 1)
    assert report.accounts[0].residual == -6
    assert (report.native_macs, report.closed_form_macs) == (macs + 1, macs)
