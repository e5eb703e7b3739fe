"""Peaks a second time, with sparsity, of packages and of FP32 on units that have none."""

import pytest
from msgspec.structs import replace

from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import (
    catalogue_devices,
    clock_peak_deviation,
    dense_peak_rate,
    find_device,
    peak_clock_hertz,
    peak_from_clock,
    single_device_of_package,
)
from crossflops.hardware.devices.peaks import (
    attainable_peak,
    find_sparse_peak,
    peak_rows,
    sparse_peak,
)
from crossflops.hardware.rates.remarks import peak_condition_notes

ROWS = [(device, precision) for device in catalogue_devices() for precision in device.peaks]
# sheets that round, or whose rows rest on several clocks: sheet and arithmetic are both shown
ELSEWHERE = {
    ("v100-sxm3", "fp64"), ("v100-sxm3", "fp32"), ("v100-sxm3", "fp16"), ("titan-v", "fp16"),
    ("jetson-orin-nano-8gb", "int8"), ("arc-b580", "bf16"), ("arc-b580", "fp16"),
    ("arc-b580", "int8"),
    ("apple-m1-pro", "fp32"), ("apple-m1-max", "fp32"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("device", "precision", "flops_per_second"),
    [
        ("v100-pcie", "fp16", 80 * 1380e6 * 512 * 2),  # 113.05 T
        ("a100-sxm4-40gb", "fp32", 108 * 1410e6 * 64 * 2),  # 19.49 T, the whitepaper's
        ("h100-sxm", "bf16", 132 * 1830e6 * 2048 * 2),  # the clock of the tensor rows
        ("h100-sxm", "fp32", 132 * 1980e6 * 128 * 2),  # the clock of the vector rows
        ("mi250x", "fp16", 110 * 1700e6 * 512 * 2),  # one GCD of two
        ("epyc-9654", "fp32", 96 * 2400e6 * 16 * 2),  # the base clock of one socket
    ],
)
def test_derivation_by_hand(device, precision, flops_per_second):
    """Clock x units x FMA x 2."""
    assert peak_from_clock(find_device(device), precision) == pytest.approx(
        flops_per_second, rel=1e-12
    )


def test_two_clocks_of_one_sheet():
    """The tensor rows of H100 rest on 1830 MHz, the vector rows on 1980 MHz."""
    assert peak_clock_hertz(find_device("h100-sxm"), "bf16") == 1830e6
    assert peak_clock_hertz(find_device("h100-sxm"), "fp64_matrix") == 1980e6


@pytest.mark.parametrize(
    ("device", "precision"), ROWS, ids=[f"{device.id}-{precision}" for device, precision in ROWS]
)
def test_every_peak_agrees_with_its_arithmetic(device, precision):
    """Within 2 % of the sheet, but for sheets that are known to round or to mix their clocks."""
    off = clock_peak_deviation(device, precision)
    if off is not None:
        assert (abs(off) > 0.02) == ((device.id, precision) in ELSEWHERE)
        assert abs(off) < 0.09


def test_a_derivation_needs_all_of_its_factors():
    """Without a clock or a unit's rate nothing is derived, and nothing is made up."""
    card = find_device("v100-pcie")
    assert peak_from_clock(replace(card, clock=None), "fp16") is None
    assert peak_from_clock(replace(card, units=None), "fp16") is None
    assert clock_peak_deviation(replace(card, fma_per_clock={}), "fp16") is None


@pytest.mark.parametrize(
    ("device", "precision", "tflops"),
    [
        ("a100-sxm4-80gb", "fp16", 624),  # the sheet's 624*
        ("h100-sxm", "fp8", 3957.8),
        ("b300", "fp4", 18000),
        ("trainium2", "bf16", 2563 / 4),
    ],
)
def test_sparsity_is_not_always_twice(device, precision, tflops):
    """The sparse peak is the dense one times the sheet's factor for the precision."""
    assert sparse_peak(find_device(device), precision) == pytest.approx(tflops * 1e12, rel=1e-4)


@pytest.mark.parametrize(
    ("device", "precision"),
    [("v100-sxm2", "fp16"), ("mi355x", "fp4"), ("a100-sxm4-80gb", "fp32"), ("k80", "fp32")],
)
def test_what_has_no_sparse_peak(device, precision):
    """No factor, a factor of one, and vector units: no sparse peak, and a refusal."""
    assert find_sparse_peak(find_device(device), precision) is None
    with pytest.raises(UnknownNameError, match="sparse"):
        sparse_peak(find_device(device), precision)


def test_fp32_is_several_peaks():
    """On an A100: CUDA cores, TF32, and products of BF16 parts, three or six of them."""
    card = find_device("a100-sxm4-80gb")
    rates = [attainable_peak(card, name) for name in ("fp32", "tf32", "bf16x3", "bf16x6")]
    assert rates == [19.5e12, 156e12, 104e12, 52e12]
    with pytest.raises(UnknownNameError, match="no bf16 peak"):
        attainable_peak(find_device("v100-sxm2"), "bf16x3")


@pytest.mark.parametrize(
    ("device", "precision", "one", "package"),
    [
        ("mi250x", "bf16", 191.5, 383),
        ("k80", "fp32", 4.37, 8.74),
        ("tpu-v3", "bf16", 61.5, 123),
        ("max-1550", "bf16", 419.5, 839),
        ("trainium1", "bf16", 95, 190),
        ("h100-sxm", "bf16", 989.4, 989.4),
    ],
)
def test_a_package_is_shared_by_its_devices(device, precision, one, package):
    """What a framework calls a device has its share of what the sheet says of the package."""
    card = find_device(device)
    assert dense_peak_rate(card, precision) == one * 1e12
    row = next(row for row in peak_rows(card) if row.precision == precision)
    assert row.package_peak == pytest.approx(package * 1e12)


def test_every_figure_of_a_package_is_shared_but_its_clock():
    """One GCD of an MI250X: half of 128 GB, of 3276.8 GB/s, of 560 W and of 220 CUs."""
    card = find_device("mi250x")
    assert (card.bandwidth, card.memory, card.units) == (1638.4e9, (64e9,), 110)
    assert card.clock == 1700e6
    with pytest.raises(InputError, match="110 units cannot be divided equally among 3 "):
        single_device_of_package(replace(card, framework_devices_per_package=3))


def test_sparsity_is_a_precision_of_its_own():
    """It is asked for by name, and never taken for granted."""
    assert attainable_peak(find_device("h100-sxm"), "fp8_sparse") == pytest.approx(3957.8e12)
    for device, precision in (("v100-pcie", "fp16_sparse"), ("v100-pcie", "bf16_sparse")):
        with pytest.raises(UnknownNameError):
            attainable_peak(find_device(device), precision)


@pytest.mark.parametrize(
    ("device", "precision", "said"),
    [
        ("h100-sxm", "bf16", ["the peak is dense"]),
        ("h100-sxm", "bf16_sparse", ["2:4 pruned"]),
        ("epyc-9654", "fp32", ["the peak is dense", "for the base clock of one socket"]),
        ("h100-sxm", "bf16x3", ["the peak is dense", "as 3 products of BF16"]),
        ("mi250x", "bf16", ["the peak is dense", "which is half of its package"]),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16", ["the peak is dense", "14 of 108 SMs"]),
    ],
)
def test_conditions_are_said(device, precision, said):
    """What a peak takes for granted, a sentence each."""
    sentences = peak_condition_notes(find_device(device), (precision,))
    assert len(sentences) == len(said)
    assert all(part in text for part, text in zip(said, sentences, strict=True))


def test_accumulation_has_a_peak_of_its_own():
    """GeForce halves FP16 with FP32 sums, which is what training does."""
    card = find_device("NVIDIA GeForce RTX 4090")
    assert card.peaks["fp16"] == 165.2e12
    assert card.peaks["fp16_accumulate_fp16"] == 330.3e12
    assert card.peaks["fp32"] == 82.6e12
