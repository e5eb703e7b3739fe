"""What the catalogue holds, and which names lead to it."""

import string

import pytest

from crossflops.errors import UnknownNameError
from crossflops.hardware.catalogue import (
    AmbiguousDeviceError,
    derived,
    deviation,
    devices,
    find,
    peak,
)

V100 = ["v100-pcie", "v100-sxm2", "v100-sxm3", "v100s-pcie"]
A100 = ["a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb"]
FAMILIES = {
    "V100": V100,
    "V100 16GB": V100[:2],
    "V100 32GB": V100,
    "V100 SXM": V100[1:3],
    "A100": A100,
    "A100 40GB": A100[::2],
    "A100 80GB": A100[1::2],
    "A100 PCIe": A100[:2],
    "A100 SXM": A100[2:],
    "A100 SXM4": A100[2:],
}
LABELS = [(label, one) for one in devices() for label in (one.id, one.name, *one.aliases)]
ROWS = [(one, precision) for one in devices() for precision in one.peaks]
SOLD_BELOW_THEIR_CLOCK = {("v100-sxm3", precision) for precision in ("fp16", "fp32", "fp64")}


def test_every_variant_is_there():
    """The catalogue holds four V100 and four A100, each once."""
    assert [one.id for one in devices()] == V100 + A100


@pytest.mark.parametrize(("label", "device"), LABELS, ids=[label for label, _ in LABELS])
def test_every_name_resolves_to_its_own_device(label, device):
    """A name leads to its device however it is spelled, with and without the vendor."""
    bare = label.removeprefix("NVIDIA ").removeprefix("Tesla ")
    spellings = [
        label,
        label.lower(),
        label.upper(),
        bare,
        bare.lower(),
        f"NVIDIA {bare}",
        f"nvidia  tesla   {bare}",
        f"  {label}\t",
        bare.replace("-", " "),
        bare.replace(" ", "_"),
    ]
    assert {find(one).id for one in spellings} == {device.id}


@pytest.mark.parametrize(("name", "ids"), FAMILIES.items())
def test_a_family_is_ambiguous(name, ids):
    """A name that several devices bear is refused, and the error carries all of them."""
    for spelled in (name, name.lower(), f"Tesla {name}", f"NVIDIA {name}"):
        with pytest.raises(AmbiguousDeviceError) as caught:
            find(spelled)
        assert [one.id for one in caught.value.candidates] == ids
        assert all(one in caught.value.hint for one in ids)
    assert issubclass(AmbiguousDeviceError, UnknownNameError)


def test_v100s_is_a_device_of_its_own():
    """V100S names one product, and no V100 is taken for it or the other way round."""
    assert find("V100S").id == find("Tesla V100S-PCIE-32GB").id == "v100s-pcie"
    assert find("Tesla V100-PCIE-32GB").id == "v100-pcie"


@pytest.mark.parametrize(
    "name",
    [
        "A100X", "A10", "A1000", "RTX A1000", "V10", "V1000", "V100-FHHL-16GB", "V100 PCIe 8GB",
        "Tesla V100-DGXS-32GB", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", "GRID A100-10C", "PCIE",
        "16GB", "Tesla", "NVIDIA", "", " ", "-", "100", "AMD V100", "GeForce V100", "A800",
        "2x V100", "V100/A100", "V100PCIE", "SXM2",
    ],
)  # fmt: skip
def test_a_near_miss_is_unknown(name):
    """A name that is not in the catalogue gets no neighbour's peak, and is no ambiguity."""
    with pytest.raises(UnknownNameError, match="no peak is known") as caught:
        find(name)
    assert not isinstance(caught.value, AmbiguousDeviceError)
    assert "--peak-tflops" in caught.value.hint


def plain(name):
    """The name without vendor and brand, words apart by one space, in lower case."""
    words = name.lower().replace("-", " ").split()
    return " ".join(word for word in words if word not in {"nvidia", "tesla"})


def test_no_name_is_found_by_a_part_of_it():
    """A name with a letter or digit more or less is another name."""
    names = [*FAMILIES, "V100S", *(label for label, _ in LABELS)]
    known = {plain(name) for name in names}
    for name in names:
        for changed in (name[:-1], *(name + one for one in string.ascii_lowercase + "0123456789")):
            if plain(changed) not in known:
                with pytest.raises(UnknownNameError, match="no peak is known"):
                    find(changed)


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


def test_derivation_by_hand():
    """80 x 1380 MHz x 512 x 2 is 113.05 TFLOP/s, 108 x 1410 MHz x 64 x 2 is 19.49."""
    assert derived(find("v100-pcie"), "fp16") == pytest.approx(113.0496e12)
    assert derived(find("a100-sxm4-40gb"), "fp32") == pytest.approx(19.49184e12)
    assert deviation(find("v100-pcie"), "fp16") == pytest.approx(1.0496 / 112)


@pytest.mark.parametrize(
    ("device", "precision"), ROWS, ids=[f"{one.id}-{precision}" for one, precision in ROWS]
)
def test_every_peak_agrees_with_its_arithmetic(device, precision):
    """Clock x units x FMA x 2 is within 2 % of the sheet, but for one card sold below it."""
    off = deviation(device, precision)
    assert off is not None
    assert (abs(off) > 0.02) == ((device.id, precision) in SOLD_BELOW_THEIR_CLOCK)
    assert abs(off) < 0.05


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
    ],
)
def test_bandwidths_are_in_bytes_per_second(device, precision, flop_per_byte):
    """Peak over bandwidth is the published ridge point, so both are in SI units."""
    one = find(device)
    assert one.bandwidth is not None
    assert round(peak(one, precision) / one.bandwidth) == flop_per_byte


def test_a_derivation_needs_all_of_its_factors():
    """Without a clock or a unit's rate nothing is derived, and nothing is made up."""
    from msgspec.structs import replace

    one = find("v100-pcie")
    assert derived(replace(one, clock=None), "fp16") is None
    assert derived(replace(one, units=None), "fp16") is None
    assert deviation(replace(one, fma_per_clock={}), "fp16") is None
