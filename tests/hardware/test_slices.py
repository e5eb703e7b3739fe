"""Slices of a GPU: their share of the peak, or a refusal."""

import pytest

from crossflops.errors import UnknownNameError
from crossflops.hardware.devices.catalogue import AmbiguousDeviceError, find_device, slice_device


@pytest.mark.parametrize(
    ("name", "units", "bf16", "bandwidth"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 312 * 14 / 108, 1555 / 8),
        ("nvidia a100-sxm4-80gb mig 3g.40gb", 42, 312 * 42 / 108, 2039 / 2),
        ("A100-SXM4-40GB MIG 1g.5gb+me", 14, 312 * 14 / 108, 1555 / 8),
        ("NVIDIA A100-SXM4-40GB MIG 7g.40gb", 98, 312 * 98 / 108, 1555),
        ("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", 14, 312 * 14 / 108, 1555 / 2),
        ("NVIDIA A30 MIG 2g.12gb", 28, 165 / 2, 933 / 2),
    ],
)
def test_a_slice_has_its_share(name, units, bf16, bandwidth):
    """14 SMs for a compute slice of GA100, and bandwidth as memory."""
    mig = find_device(name)
    assert mig.units == units
    assert mig.peaks["bf16"] == pytest.approx(bf16 * 1e12)
    assert mig.bandwidth == pytest.approx(bandwidth * 1e9)
    assert "mig" in mig.id
    assert f"{units} of" in mig.notes


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",  # 16 to 26 SMs, not in proportion
        "NVIDIA A100-SXM4-40GB MIG 9g.40gb",
        "NVIDIA A100-SXM4-40GB MIG 1g.80gb",
        "NVIDIA A100-SXM4-40GB MIG 3c.2g.10gb",
        "NVIDIA A100-SXM4-40GB MIG 0g.5gb",
        "NVIDIA A100-SXM4-40GB MIG 99999g.5gb",
        "NVIDIA A100-SXM4-40GB MIG \u0661g.5gb",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb MIG 1g.5gb",
        "Tesla T4 MIG 1g.5gb",
        "NVIDIA X100 MIG 1g.5gb",
        "GRID A100-10C",
        "NVIDIA A100-10C",
        "NVIDIA L40S-48Q",
    ],
)
def test_what_is_no_known_slice_is_refused(name):
    """Never the peak of the whole, and no guess."""
    with pytest.raises(UnknownNameError, match=r"is unknown") as caught:
        find_device(name)
    assert "--peak-tflops" in caught.value.hint


def test_a_slice_of_an_ambiguous_name_is_ambiguous():
    """Which A100 it is decides how much memory a slice has."""
    with pytest.raises(AmbiguousDeviceError):
        find_device("A100 MIG 1g.5gb")


def test_the_share_that_a_driver_reports():
    """16 of the 132 SMs of an H100."""
    mig = slice_device(find_device("h100-sxm"), "1g.10gb", 16, 10e9)
    assert mig.peaks["bf16"] == pytest.approx(989.4e12 * 16 / 132)
    assert mig.bandwidth == pytest.approx(3350e9 / 8)
    with pytest.raises(ValueError, match="unknown"):
        slice_device(find_device("tpu-v6e"), "x", 1, 1e9)
