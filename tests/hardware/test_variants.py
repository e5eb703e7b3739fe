"""Names that several boards share, boards of one entry, and what is written behind a name."""

import pytest

from crossflops.errors import UnknownNameError
from crossflops.hardware.devices.catalogue import find_device
from tests.hardware.rated import efficiency


@pytest.mark.parametrize(
    ("name", "device", "others"),
    [
        ("AMD Instinct MI250X / MI250", "mi250x", ("mi250",)),  # PCI id 740c is either card
        ("amd instinct mi250x/mi250", "mi250x", ("mi250",)),
        (
            "Orin",
            "jetson-agx-orin-64gb",
            ("jetson-orin-nano-8gb", "jetson-orin-nx-16gb"),
        ),
        ("Xavier", "jetson-agx-xavier", ("jetson-xavier-nx",)),
        ("AMD Instinct MI250X", "mi250x", ()),
    ],
)
def test_a_name_that_others_print_too_says_so(name, device, others):
    """It is an alias of one device, and that names the others."""
    card = find_device(name)
    assert card.label == device
    assert sorted(card.also) == sorted(others)


@pytest.mark.parametrize(
    ("name", "entry", "label"),
    [
        ("Quadro RTX 6000", "quadro-rtx-8000", "quadro-rtx-6000"),
        ("NVIDIA A800 80GB PCIe", "a800-sxm4-80gb", "a800-pcie-80gb"),
        ("NVIDIA H20-3e", "h20", "h20-3e"),
        ("NVIDIA H20", "h20", "h20"),
    ],
)
def test_a_variant_is_of_its_entry_with_its_own_figures(name, entry, label):
    """The board has the id of the entry, and is told apart by its label."""
    card = find_device(name)
    assert (card.id, card.label) == (entry, label)
    assert find_device(label) == card


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA L4 24GB", "l4"), ("Tesla T4 16GB", "t4"), ("A10-24GB", "a10"),
        ("A100-SXM-80GB", "a100-sxm4-80gb"), ("H100 80GB PCIe", "h100-pcie"),
        ("RTX 6000 24GB", "quadro-rtx-6000"), ("H200 141GB", "h200-sxm"),
        ("NVIDIA A16 16GB", "a16"), ("NVIDIA A16 64GB", "a16"),  # of one GPU, and of the board
        ("NVIDIA GeForce RTX 3090/PCIe/SSE2", "rtx-3090"),  # OpenGL
        ("Intel(R) Xeon(R) Platinum 8280 CPU @ 2.60GHz", "xeon-8280"),
        ("Raspberry Pi 4 Model B Rev 1.4", "rpi4-bcm2711"),
    ],
)  # fmt: skip
def test_what_is_written_behind_a_name(name, device):
    """A size of memory that the device has, a clock, a bus, a revision."""
    assert find_device(name).label == find_device(name.lower()).label == device


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 3080 12GB", "L4 48GB", "NVIDIA T400 4GB", "A100 SXM 64GB", "24GB",
        "Jetson AGX Orin 32GB", "NVIDIA B200 24GB", "A100 80GB 80GB", "trainium1 0gb",
    ],
)  # fmt: skip
def test_another_size_of_memory_is_another_device(name):
    """There are cards of one name and several chips."""
    with pytest.raises(UnknownNameError, match=r"is unknown"):
        find_device(name)


def test_a_share_names_who_else_may_have_run():
    """4.25 TFLOP/s are 10 % of the 42.5 of an AGX Orin in FP16, and 28.3 % of an NX's 15."""
    utilization = efficiency(
        2_125_000_000_000, 1.0, precision="fp16", training=False, against=find_device("Orin")
    )
    (sentence,) = [warning for warning in utilization.warnings if "print the name" in warning]
    assert "jetson-orin-nx-16gb (28.3 % of its peak)" in sentence
