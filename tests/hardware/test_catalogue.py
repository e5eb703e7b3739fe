"""What the catalogue holds, and devices of one's own from TOML."""

from collections import Counter

import pytest

from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.devices.catalogue import (
    catalogue_devices,
    dense_peak_rate,
    find_device,
    user_devices,
)
from crossflops.plugins.elsewhere import find_config_table


def test_the_catalogue_is_whole():
    """All makers are there, every board once, and every id has one that is not a variant."""
    assert len({device.label for device in catalogue_devices()}) == len(catalogue_devices()) >= 137
    assert {device.id for device in catalogue_devices()} == {
        device.id for device in catalogue_devices() if not device.variant
    }
    makers = Counter(device.vendor for device in catalogue_devices())
    assert makers["NVIDIA"] >= 63
    assert makers["AMD"] == 23
    assert makers["Apple"] == 15
    assert sum(device.kind == "cpu" for device in catalogue_devices()) == 22


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
    assert dense_peak_rate(find_device(device), precision) == flops_per_second


@pytest.mark.parametrize("precision", ["bf16", "tf32", "int8", "fp8", "FP16", ""])
def test_a_precision_is_never_mapped_to_another(precision):
    """A precision that a V100 lacks is refused, with those that it has."""
    with pytest.raises(UnknownNameError, match="v100-sxm2 has no") as caught:
        dense_peak_rate(find_device("v100-sxm2"), precision)
    assert "fp16" in caught.value.hint


def test_every_row_says_where_it_is_from():
    """No device stands without a source and a confidence."""
    for device in catalogue_devices():
        assert device.source
        assert all(device.source)
        assert device.confidence in {"high", "medium", "low"}


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
    card = find_device(device)
    assert card.bandwidth is not None
    assert round(dense_peak_rate(card, precision) / card.bandwidth) == flop_per_byte


CARD = """
[devices.my-card]
name = "Example X1"
aliases = ["ACME X1 80GB"]
vendor = "ACME"
peaks = {fp16 = 112e12, fp32 = 14e12}
bandwidth = 900e9
"""


@pytest.fixture
def file(tmp_path):
    """Writes a TOML file, away from any configuration."""

    def write(text, name="cards.toml"):
        place = tmp_path / name
        place.write_text(text)
        return place

    return write


def test_a_file_adds_devices(file, tmp_path):
    """They are found as those of the catalogue are: by whole names, without the vendor, too."""
    added = user_devices(file(CARD), tmp_path)
    for name in ("my-card", "Example X1", "acme x1 80gb", "X1 80GB", "X1-80GB"):
        assert find_device(name, added).peaks == {"fp16": 112e12, "fp32": 14e12}
    assert find_device("my-card", added).source == (str(tmp_path / "cards.toml"),)
    assert find_device("v100-pcie", added).id == "v100-pcie"
    with pytest.raises(Exception, match=r"is unknown"):
        find_device("X1", added)


@pytest.mark.parametrize(
    ("name", "text"),
    [("crossflops.toml", CARD), ("pyproject.toml", CARD.replace("[dev", "[tool.crossflops.dev"))],
)
def test_the_configuration_adds_devices(file, tmp_path, name, text):
    """`crossflops.toml`, or a table of `pyproject.toml`, upwards of the folder."""
    file(text, name)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert [device.id for device in user_devices(None, below)] == ["my-card"]


def test_both_tables_may_stand_in_one_file(file, tmp_path):
    """Interpreters beside devices."""
    file(CARD + '[python]\nthop = "x"\n', "crossflops.toml")
    assert find_config_table("python", tmp_path)[1] == {"thop": "x"}
    assert len(user_devices(None, tmp_path)) == 1


def test_figures_are_those_of_a_package(file, tmp_path):
    """Two framework devices: half of each."""
    added = user_devices(file(CARD + "framework_devices_per_package = 2\n"), tmp_path)
    assert added[0].peaks["fp16"] == 56e12
    assert added[0].bandwidth == 450e9


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[devices", "is not valid TOML"),
        ("", "has no table"),
        ("[devices]\nx = 3\n", "x in .* must be a table"),
        ("[devices.x]\n", "peaks"),
        ("[devices.x]\npeaks = {}\n", "has no peaks"),
        (
            "[devices.x]\npeaks = {fp16 = 112}\n",
            "fp16 of x in .* must be finite and at least 1e6, got 112",
        ),
        ("[devices.x]\npeaks = {fp16 = -1e12}\n", "got -1e"),
        ("[devices.x]\npeaks = {fp16 = inf}\n", "got inf"),
        ("[devices.x]\npeaks = {fp16 = nan}\n", "got nan"),
        ("[devices.x]\npeaks = {fp16 = 1e12}\nbandwidth = 900\n", "bandwidth of x"),
        ('[devices.x]\npeaks = {fp16 = "fast"}\n', "Expected `float`"),
        ("[devices.x]\npeak = 1\n", "has the unknown key peak"),
        ("[devices.v100-pcie]\npeaks = {fp16 = 1e12}\n", "is already a name of v100-pcie"),
        ("[devices.x]\naliases = ['V100']\npeaks = {fp16 = 1e12}\n", "already"),
        ("[devices.measured]\npeaks = {fp16 = 1e12}\n", "already"),
        (CARD + "[devices.y]\nname='Example X1'\npeaks = {fp16 = 1e12}\n", "a name of my-card"),
        (CARD + "framework_devices_per_package = 0\n", "must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(file, tmp_path, text, what):
    """With the name of the file, and in what units figures are."""
    with pytest.raises(InputError, match=what) as caught:
        user_devices(file(text), tmp_path)
    assert "\n" not in caught.value.message


def test_a_file_that_is_not_there(tmp_path):
    """One message."""
    with pytest.raises(InputError, match="cannot read"):
        user_devices(tmp_path / "none.toml", tmp_path)
