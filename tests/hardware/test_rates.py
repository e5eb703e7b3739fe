"""Required rates and shares, against published figures and arithmetic by hand."""

import pytest

from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import find_device, peak_from_clock
from tests.hardware.rated import efficiency

ROUNDED = 4_112_000_000  # ResNet-50 as published
EXACT = 4_111_514_624  # what thop 0.0.31 prints


def rate(examples_per_second=1325.0, macs=ROUNDED, **options):
    """An efficiency of ResNet-50 in training."""
    options = {"precision": "fp16", "training": True} | options
    return efficiency(macs, examples_per_second, **options)


@pytest.mark.parametrize(
    ("examples_per_second", "precision", "tflops", "against", "ratio"),
    [
        (1325, "fp16", 32.69, "v100-pcie", 0.2919),
        (1325, "fp16", 32.69, "v100-sxm2", 0.2615),
        (1325, "fp16", 32.69, 113.05, 0.2892),
        (303.1, "fp32", 7.478, "v100-pcie", 0.5341),
        (303.1, "fp32", 7.478, "v100-sxm2", 0.4763),
        (303.1, "fp32", 7.478, 14.13, 0.5292),
    ],
)
def test_resnet50_training_on_v100(examples_per_second, precision, tflops, against, ratio):
    """The published rate and share of ResNet-50's training come out, on either card."""
    top = find_device(against) if isinstance(against, str) else against * 1e12
    utilization = rate(examples_per_second, precision=precision, against=top)
    assert utilization.rate == pytest.approx(tflops * 1e12, rel=1e-3)
    assert utilization.ratio == pytest.approx(ratio, rel=1e-3)
    assert utilization.warnings == ()


def test_the_derived_peak_of_the_pcie_card_is_the_second_denominator():
    """113.05 TFLOP/s, on which 28.9 % rests, is the arithmetic of the catalogue's own row."""
    second = peak_from_clock(find_device("v100-pcie"), "fp16")
    assert rate(against=second).ratio == pytest.approx(0.2892, rel=1e-3)


@pytest.mark.parametrize(("examples_per_second", "tflops"), [(1325, "32.687"), (303.1, "7.477")])
def test_from_the_exact_count(examples_per_second, tflops):
    """From the count with all its digits the rate differs from the published in the fourth."""
    achieved = rate(examples_per_second, EXACT).rate
    assert f"{achieved / 1e12:.{len(tflops.partition('.')[2])}f}" == tflops


def test_work_is_two_flops_a_mac_and_three_passes():
    """An image of ResNet-50 is 24.672 GFLOPs in training and a third of that in inference."""

    def of(macs, training):
        return efficiency(macs, 10.0, precision="fp16", training=training)

    assert (of(5, True).multiplier, of(5, False).multiplier) == (3, 1)
    assert of(ROUNDED, True).work == 24_672_000_000
    assert of(ROUNDED, False).work == 8_224_000_000
    assert of(10**40 + 1, True).work == 6 * 10**40 + 6
    assert of(5, False).rate == 100.0


def test_without_a_peak_the_rate_stands_alone():
    """Neither a device nor a peak: a rate, and no ratio."""
    utilization = rate()
    assert (utilization.device, utilization.peak, utilization.ratio) == (None, None, None)
    assert utilization.rate == pytest.approx(32.6904e12)


def test_every_assumption_is_said():
    """Unit, passes, the first layer, density, source, confidence and arithmetic are stated."""
    text = " | ".join(rate(against=find_device("v100-pcie")).assumptions)
    for part in (
        "2 FLOPs per MAC", "x 3", "gradients of the inputs", "first layer", "dense",
        "NVIDIA V100 datasheet", "confidence high",
        "80 units x 1380 MHz x 512 FMA x 2 = 113 TFLOP/s (+0.9 %)",
    ):  # fmt: skip
        assert part in text
    assert "x 1: one forward pass" in " ".join(rate(training=False).assumptions)
    assert "first layer" not in " ".join(rate(training=False).assumptions)
    assert "given, not looked up" in " ".join(rate(against=1e14).assumptions)


def test_fp32_on_a_device_with_tf32_is_an_assumption():
    """Where float32 convolutions may run as tf32, the fp32 peak says so."""
    utilization = rate(precision="fp32", against=find_device("a100-sxm4-40gb"))
    assert any(
        "tf32" in assumption and "156 TFLOP/s" in assumption
        for assumption in utilization.assumptions
    )
    assert not any(
        "tf32" in assumption
        for assumption in rate(against=find_device("a100-sxm4-40gb")).assumptions
    )


def test_a_peak_that_contradicts_its_clock_is_doubted():
    """V100 SXM3 is sold 4.7 % below its clock: the share carries a warning."""
    utilization = rate(against=find_device("v100-sxm3"))
    assert any("+4.7 % from the published peak" in warning for warning in utilization.warnings)


def test_more_than_the_peak_is_a_warning_with_reasons():
    """133 % of a peak is reported as such, with what may be wrong."""
    utilization = rate(macs=10**12, examples_per_second=19.95, training=False, against=30e12)
    assert utilization.ratio == pytest.approx(1.33)
    text = " | ".join(utilization.warnings)
    assert "133.0 % of the peak is impossible" in text
    for reason in ("precision", "timing", "sparsity", "several devices", "skipped counted work"):
        assert reason in text


def test_exactly_the_peak_is_possible():
    """A ratio of 1 is the roof itself, and no warning."""
    utilization = rate(macs=10, examples_per_second=1.0, training=False, against=20.0)
    assert utilization.ratio == 1
    assert utilization.warnings == ()


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1e300, 1e-300])
def test_what_is_no_rate_is_refused(value):
    """Zero, negative, infinite and undefined speeds and peaks are errors, not ratios."""
    with pytest.raises(InputError, match="must be positive"):
        rate(value)
    with pytest.raises(InputError, match="must be positive"):
        rate(against=value)


def test_a_negative_count_is_refused():
    """There are no fewer than zero MACs."""
    with pytest.raises(InputError, match="at least 0"):
        rate(macs=-1)


def test_a_precision_that_the_device_lacks_is_refused():
    """BF16 on a V100 has no share."""
    with pytest.raises(UnknownNameError, match="v100-pcie has no bf16 peak"):
        rate(precision="bf16", against=find_device("v100-pcie"))


def test_other_peaks_that_would_do():
    """20 TFLOP/s in FP32 on an A100 of 19.5 may be TF32, and 400 in FP16 may be sparse."""
    above = rate(macs=10**12, examples_per_second=10.0, training=False, precision="fp32",
                 against=find_device("a100-sxm4-40gb"))  # fmt: skip
    (sentence,) = [warning for warning in above.warnings if "another precision" in warning]
    assert "tf32 13 %" in sentence
    assert "fp64" not in sentence
    above = rate(macs=10**12, examples_per_second=200.0, training=False,
                 against=find_device("a100-sxm4-40gb"))  # fmt: skip
    (sentence,) = [warning for warning in above.warnings if "another precision" in warning]
    assert "fp16 with structured sparsity 64 %" in sentence
    above = rate(macs=10**12, examples_per_second=1e4, training=False,
                 against=find_device("a100-sxm4-40gb"))  # fmt: skip
    assert any("no peak of the device is that high" in warning for warning in above.warnings)
