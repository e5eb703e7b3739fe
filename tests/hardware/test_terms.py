"""Passes, recomputation and precisions of the pieces of a count, by hand."""

from fractions import Fraction

import pytest

from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import find_device
from crossflops.hardware.devices.peaks import Peaks
from crossflops.hardware.rates.mfu import total_ideal_time
from crossflops.hardware.rates.question import Causality, Precisions, TrainingOptions
from crossflops.hardware.rates.terms import AttentionScores, Piece, parse_precision_mix, work_terms

SQUARE = AttentionScores(queries=8, keys=8, causal="declared")
CONV = Piece(macs=Fraction(100), names=("Conv", "c", "stem"), stored="float32", passes=Fraction(2))
LINEAR = Piece(
    macs=Fraction(50), names=("MatMul", "m", "h"), stored="bfloat16", passes=Fraction(3)
)
PRODUCT = Piece(
    macs=Fraction(20), names=("MatMul", "p", "a"), stored="bfloat16", passes=Fraction(3),
    scores=SQUARE,
)  # fmt: skip
FLAT = {"backward": "flat"}
ALL = (CONV, LINEAR, PRODUCT)
INFERENCE, FULL, FP16 = TrainingOptions(), Causality(), Precisions(precision="fp16")


def sums(training=INFERENCE, causality=FULL):
    """The model's FLOPs and those executed."""
    parts = work_terms(ALL, training, causality, FP16)
    return sum(part.flops for part in parts), sum(part.hardware_flops for part in parts)


@pytest.mark.parametrize(
    ("training", "model", "executed"),
    [
        ({"train": False}, 340, 340),
        (FLAT, 1020, 1020),
        (FLAT | {"recompute": "full"}, 1020, 1360),
        (FLAT | {"recompute": "0.25"}, 1020, 1105),
        (FLAT | {"recompute": "selective=0.25"}, 1020, 1105),
        (FLAT | {"recompute": "attention"}, 1020, 1060),
        (FLAT | {"flash": True}, 1020, 1040),
        ({}, 820, 820),
        ({"backward": "graph"}, 820, 820),
        ({"recompute": "full"}, 820, 1160),
        ({"train_multiplier": "2.5"}, 850, 850),
        ({"train_multiplier": "2.5", "recompute": "full"}, 850, 1190),
    ],
)
def test_passes(training, model, executed):
    """2 x 170 MACs: three times, four with all of it done again, or as each node needs it."""
    assert sums(TrainingOptions(**({"train": True} | training))) == (model, executed)


def test_what_has_no_backward_pass_is_not_done_again():
    """Below the lowest trained weight the forward pass runs once."""
    frozen = Piece(macs=Fraction(10), passes=Fraction(1))
    asked = TrainingOptions(train=True, frozen=("x",), recompute="full")
    (term,) = work_terms((frozen,), asked, Causality(), Precisions())
    assert (term.passes, term.executed) == (1, 1)


@pytest.mark.parametrize("recompute", ["-1", "2", "some", "selective=", "1/0"])
def test_what_is_no_part_is_refused(recompute):
    """A part of the forward pass is between none and all of it."""
    with pytest.raises(InputError, match="must be none, full, attention or a number"):
        sums(TrainingOptions(train=True, recompute=recompute))


def test_what_a_checkpoint_of_the_model_runs_again_is_asked_for_once():
    """100 MACs, twice, and once more by the checkpoint; by no count of it, four times."""
    kept = Piece(
        macs=Fraction(100), names=("Conv", "c", ""), passes=Fraction(2), again=Fraction(1)
    )

    def executed(**asked):
        (term,) = work_terms((kept,), TrainingOptions(train=True, **asked), FULL, FP16)
        return term.flops, term.hardware_flops

    assert executed() == (400, 600)
    assert executed(recompute="attention") == (400, 600)  # it is no product of attention
    assert executed(backward="flat", recompute="full") == (600, 800)
    for recompute in ("full", "0.3"):
        with pytest.raises(InputError, match="own checkpoints both recompute c"):
            executed(recompute=recompute)


def test_attention_by_its_mask():
    """A causal mask takes half of the 20 MACs, a window of two of eight keys three quarters."""
    assert sums(causality=Causality(causal="half"))[0] == 2 * 160
    assert sums(causality=Causality(window=2))[0] == 2 * 155
    assert sums()[0] == 2 * 170


def by_precision(**asked):
    """FLOPs by precision."""
    parts = work_terms(ALL, TrainingOptions(), Causality(), Precisions(**asked))
    flops: dict[str, Fraction] = {}
    for part in parts:
        flops[part.precision] = flops.get(part.precision, Fraction(0)) + part.flops
    return flops


def test_precisions_by_pattern():
    """By operator, node or module; the last pattern that matches counts."""
    assert by_precision(precision="fp32", precision_of=("Conv=TF32",)) == {
        "tf32": 200, "fp32": 140,
    }  # fmt: skip
    assert by_precision(precision="bf16", precision_of=("MatMul=fp8", "a=bf16")) == {
        "bf16": 240, "fp8": 100,
    }  # fmt: skip


def test_precisions_as_they_are_stored():
    """By the element types of the graph; mixed operands have no one peak."""
    assert by_precision(precision="graph") == {"fp32": 200, "bf16": 140}
    packed = Piece(macs=Fraction(1), stored="float32xint4")
    with pytest.raises(InputError, match="float32xint4") as caught:
        work_terms((packed,), TrainingOptions(), Causality(), Precisions(precision="graph"))
    assert "--precision-of Conv=tf32" in caught.value.hint
    untyped = Piece(macs=Fraction(1))
    with pytest.raises(InputError, match="the type in which the values") as caught:
        work_terms((untyped,), TrainingOptions(), Causality(), Precisions(precision="graph"))
    assert "--precision-of" not in caught.value.hint


def test_shares_of_the_work():
    """Every piece is split alike."""
    assert by_precision(mix=("bf16=0.5", "fp8=0.5")) == {"bf16": 170, "fp8": 170}
    assert parse_precision_mix(("bf16=1/3", "fp8=2/3")) == {
        "bf16": Fraction(1, 3),
        "fp8": Fraction(2, 3),
    }


@pytest.mark.parametrize("mix", [("bf16",), ("bf16=x",), ("bf16=0.5",), ("bf16=2",), ("=1",)])
def test_shares_that_are_none_are_refused(mix):
    """They add up to one."""
    with pytest.raises(InputError):
        parse_precision_mix(mix)


@pytest.mark.parametrize("text", ["Conv", "=fp8", "Conv="])
def test_patterns_without_a_precision_are_refused(text):
    """PATTERN=P, both of them."""
    with pytest.raises(InputError, match="PATTERN=P"):
        by_precision(precision_of=(text,))


def test_a_pattern_that_matches_nothing_is_refused():
    """Nothing is changed silently."""
    with pytest.raises(InputError, match="'Gemm' matches no node"):
        by_precision(precision="fp16", precision_of=("Gemm=fp8",))


def test_the_ideal_time_of_two_precisions():
    """200 FLOPs at 156 and 140 at 19.5 TFLOP/s of an A100: the times add up, not the peaks."""
    asked = Precisions(precision="fp32", precision_of=("Conv=tf32",))
    parts = work_terms(ALL, TrainingOptions(), Causality(), asked)
    mixed = total_ideal_time(parts, Peaks(device=find_device("a100-sxm4-40gb")))
    seconds = 200 / 156e12 + 140 / 19.5e12
    assert mixed.ideal == pytest.approx(seconds)
    assert mixed.peak == pytest.approx(340 / seconds)
    with pytest.raises(UnknownNameError, match="fp8"):
        total_ideal_time(
            work_terms(ALL, TrainingOptions(), Causality(), Precisions(precision="fp8")),
            Peaks(device=find_device("a100-sxm4-40gb")),
        )
