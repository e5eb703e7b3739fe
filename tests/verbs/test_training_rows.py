"""Published training speeds, judged against integers that other sources print."""

import importlib
from fractions import Fraction

import pytest

SCRIPT = importlib.import_module("benchmarks.training_rows")  # of the repository, not installed

# Rows as Megatron-Bridge and llm-foundry print them. FLOPs of a token are those that their own
# functions return (for MPT-1b 6 N + 12 L h T by hand), at the lengths of the rows.
TABLE = """# comment
model,variant,task,seq_len,devices,tokens_per_s_per_device,tflops_per_s_per_device,release,source,note
LLAMA3_8B,,pretrain,8192,8,14079,725,25.09,bridge:archive,
LLAMA3.1_405B,,pretrain,8192,256,1413,3575,26.06,bridge:archive,
Qwen3_30B_a3B,,pretrain,4096,8,44544,1029,26.08,bridge:summary,
Qwen3_30B_a3B,,pretrain,4096,8,39936,923,26.08,bridge:summary,
LLAMA3_70B,,lora,4096,8,6206,1731,26.06,bridge:archive,
Nemotron_3_Nano,,pretrain,8192,8,39936,901,26.08,bridge:summary,
MPT-1b,,pretrain,1024,8,22112,187,,llm-foundry,params=1313853440;mfu=60.15;hfu=60.15
"""
PARAMS = 1_313_853_440  # of MPT-1b, as its row prints them: 24 layers of width 2048
NUMBERS = {
    "LLAMA3_8B": [SCRIPT.Candidate("megatron", Fraction(51_470_401_536))],
    "LLAMA3.1_405B": [SCRIPT.Candidate("megatron", Fraction(2_523_955_986_432))],
    "Qwen3_30B_a3B": [SCRIPT.Candidate("megatron", Fraction(23_006_000_000)),
                      SCRIPT.Candidate("other", Fraction(23_200_000_000))],
    "MPT-1b": [SCRIPT.Candidate("foundry", Fraction(6 * PARAMS + 12 * 24 * 2048 * 1024))],
}  # fmt: skip


class StubModels:
    """Numbers of models, as `ModelCandidates` has them."""

    def __contains__(self, model):
        return model in NUMBERS

    def numbers(self, model, tokens):
        """Return the candidates of a model."""
        return NUMBERS[model]

    def architecture(self, model, tokens):
        """Return a thing with the parameters of MPT-1b."""
        table = type("Table", (), {"total": PARAMS})
        return type("Architecture", (), {"parameters": table})


@pytest.fixture
def rows(tmp_path):
    """The rows of the table, read from a file."""
    path = tmp_path / "rows.csv"
    path.write_text(TABLE)
    return SCRIPT.read_speed_rows(path)


def test_each_row_has_a_formula_or_says_what_differs(rows):
    """Rounded, far off, from whole samples, packed, unknown, cut off."""
    judged = SCRIPT.judge_table(rows, StubModels())
    assert [(one.name, one.rounding) for one in judged] == [
        ("megatron", "rounded"), ("", ""), ("megatron", "samples"), ("megatron", "samples"),
        ("", ""), ("", ""), ("foundry", "truncated"),
    ]  # fmt: skip
    assert [one.reason for one in judged if not one.name] == [
        "+0.24 % from megatron",
        "lora: lengths of sequences are packed",
        "no config of this model is known here",
    ]
    assert judged[-1].params is True
    text = "\n".join(SCRIPT.report_lines("rows.csv", judged))
    assert "7 rows; 5 of pretraining and of a known model, of which 4 are reproduced" in text
    assert "| 4 | bridge:archive 26.06 | LLAMA3.1_405B |" in text


def test_an_interval_is_that_of_both_roundings(rows):
    """725 TFLOP/s and 14 079 tokens/s, each to half a unit; whole samples are 1 024 tokens."""
    low, high = SCRIPT.flops_interval(rows[0], "rounded")
    assert low == Fraction(7245, 10) * 10**12 / Fraction(140795, 10)
    assert high == Fraction(7255, 10) * 10**12 / Fraction(140785, 10)
    assert SCRIPT.flops_interval(rows[0], "truncated")[0] == 725 * 10**12 / Fraction(140795, 10)
    # 8 devices make 87 samples of 4 096 tokens a second: 44 544 on each
    assert SCRIPT.has_whole_samples(rows[2])
    assert not SCRIPT.has_whole_samples(rows[0])
    assert SCRIPT.flops_interval(rows[2], "samples")[0] == Fraction(10285, 10) * 10**12 / (
        44_544 + 256
    )


def test_a_release_with_other_rows_has_no_whole_samples(rows):
    """One row that is not of whole samples makes the others open."""
    other = rows[2]._replace(line=99, speed="44000", tflops="1016.4")
    judged = SCRIPT.judge_table([rows[2], other], StubModels())
    assert [one.name for one in judged] == ["", ""]


def test_a_formula_that_fits_once_fits_by_chance(rows):
    """The formula of most rows of a model in a release is the one that counts."""
    first = rows[2]._replace(speed="44727", tflops="1029")  # 23.0062 GFLOPs a token
    second = rows[2]._replace(line=98, speed="43466", tflops="1000")
    third = rows[2]._replace(line=99, speed="44353", tflops="1029")  # 23.2003
    judged = SCRIPT.judge_table([first, second, third], StubModels())
    assert [one.name for one in judged] == ["megatron", "megatron", ""]
    assert judged[2].reason == "+0.84 % from megatron; other by chance"
