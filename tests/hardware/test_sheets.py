"""Peaks and bandwidths as products, and devices beside each other."""

import pytest

from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import find_device
from crossflops.hardware.devices.sheets import (
    build_device_list,
    derive_bandwidth,
    derive_peak,
    device_from_options,
    device_sheet,
)


def test_the_published_peak_of_an_a100():
    """1.41 GHz x 108 x 64 x 2 = 19.49 TFLOP/s in FP32."""
    derived = derive_peak(1.41e9, 108, 64)
    assert derived.rate == pytest.approx(19.49184e12, rel=1e-12)
    assert [factor.value for factor in derived.factors] == [1.41e9, 108, 64, 2]
    assert derived.unit == "FLOP/s"


@pytest.mark.parametrize(
    ("clock", "bus", "channels", "gigabytes"),
    [
        (2000e6, 32, 2, 32),  # (2000 MHz x 2) x (32 / 8) x 2
        (1215e6, 5120, 1, 1555.2),  # A100 40GB: (1215 MHz x 2) x (5120 / 8)
    ],
)
def test_published_bandwidths(clock, bus, channels, gigabytes):
    """(Memory clock x 2) x (bus width / 8) x channels."""
    derived = derive_bandwidth(clock, bus, channels, 2)
    assert derived.rate == pytest.approx(gigabytes * 1e9, rel=1e-12)
    assert derived.unit == "B/s"


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan")])
def test_what_is_no_factor_is_refused(wrong):
    """A clock of zero gives no peak."""
    with pytest.raises(InputError, match="clock must be a positive number"):
        derive_peak(wrong, 108, 64)
    with pytest.raises(InputError, match="channels must be a positive number, got"):
        derive_bandwidth(1e9, 32, wrong, 2)


def test_a_sheet_has_what_follows():
    """Ridge 201 and 153 of the two A100, and FP32 by parts."""
    figures = device_sheet(find_device("a100-pcie-40gb"))
    rows = {row.precision: row for row in figures.peaks}
    assert round(rows["bf16"].ridge) == 201
    assert rows["bf16"].sparse == 624e12
    assert rows["fp32"].sparse is None
    assert figures.emulated["bf16x3"] == 104e12
    assert "a100-pcie-40gb" in figures.families["A100"]
    assert "V100" not in figures.families


def test_ambiguous_names_have_a_ratio_each():
    """112, 125, 125 and 130 of 130."""
    devices = tuple(map(find_device, ("v100-pcie", "v100-sxm2", "v100-sxm3", "v100s-pcie")))
    listing = build_device_list(devices, "V100")
    assert listing.precision == "fp16"
    assert [device.ratio for device in listing.devices] == pytest.approx(
        [112 / 130, 125 / 130, 125 / 130, 1]
    )
    assert build_device_list(devices, "V100", "fp32").devices[0].ratio == pytest.approx(14 / 16.4)
    with pytest.raises(UnknownNameError, match="no listed device has a bf16 peak"):
        build_device_list(devices, "V100", "bf16")


def test_a_device_that_is_given():
    """A peak in TFLOP/s and GB/s: ridge 312e12 / 1555e9."""
    figures = device_sheet(device_from_options(("bf16=312", "19.5"), 1555))
    assert {row.precision: row.peak for row in figures.peaks} == {"bf16": 312e12, "any": 19.5e12}
    assert figures.peaks[0].ridge == pytest.approx(200.64, abs=0.01)
    with pytest.raises(InputError, match="must be a positive"):
        device_from_options(("fast",), None)
