"""What the catalogue holds."""

from collections import Counter

import pytest

from crossflops.errors import UnknownNameError
from crossflops.hardware.devices.catalogue import devices, find, peak


def test_the_catalogue_is_whole():
    """All makers are there, every board once, and every id has one that is not a variant."""
    assert len({one.label for one in devices()}) == len(devices()) >= 137
    assert {one.id for one in devices()} == {one.id for one in devices() if not one.variant}
    makers = Counter(one.vendor for one in devices())
    assert makers["NVIDIA"] >= 63
    assert makers["AMD"] == 20
    assert makers["Apple"] == 15
    assert sum(one.kind == "cpu" for one in devices()) == 20


@pytest.mark.parametrize(
    ("device", "precision", "flops_per_second"),
    [
        ("v100-pcie", "fp16", 112e12),
        ("v100-pcie", "fp32", 14e12),
        ("v100-sxm2", "fp16", 125e12),
        ("v100-sxm2", "fp32", 15.7e12),
        ("v100s-pcie", "fp16", 130e12),
        ("a100-sxm4-80gb", "bf16", 312e12),
        ("a100-sxm4-80gb", "tf32", 156e12),
        ("a100-pcie-40gb", "fp32", 19.5e12),
        ("a100-pcie-40gb", "int8", 624e12),
    ],
)
def test_peaks_are_those_of_the_sheets(device, precision, flops_per_second):
    """Peaks are dense, in FLOP/s, as the vendor's sheets have them."""
    assert peak(find(device), precision) == flops_per_second


@pytest.mark.parametrize("precision", ["bf16", "tf32", "int8", "fp8", "FP16", ""])
def test_a_precision_is_never_mapped_to_another(precision):
    """A precision that a V100 lacks is refused, with those that it has."""
    with pytest.raises(UnknownNameError, match="v100-sxm2 has no") as caught:
        peak(find("v100-sxm2"), precision)
    assert "fp16" in caught.value.hint


def test_every_row_says_where_it_is_from():
    """No device stands without a source and a confidence."""
    for one in devices():
        assert one.source
        assert all(one.source)
        assert one.confidence in {"high", "medium", "low"}


@pytest.mark.parametrize(
    ("device", "precision", "flop_per_byte"),
    [
        ("v100-pcie", "fp16", 124),
        ("v100-sxm2", "fp16", 139),
        ("a100-pcie-40gb", "bf16", 201),
        ("a100-sxm4-80gb", "bf16", 153),
        ("h100-sxm", "bf16", 295),
        ("h200-sxm", "bf16", 206),
        ("l4", "fp16", 403),
    ],
)
def test_bandwidths_are_in_bytes_per_second(device, precision, flop_per_byte):
    """Peak over bandwidth is the published ridge point, so both are in SI units."""
    one = find(device)
    assert one.bandwidth is not None
    assert round(peak(one, precision) / one.bandwidth) == flop_per_byte
