"""Which names lead to which device of the catalogue, and which to none."""

import json
from pathlib import Path

import pytest

from crossflops.errors import UnknownNameError
from crossflops.hardware.devices.catalogue import (
    AmbiguousDeviceError,
    catalogue_devices,
    device_ids_by_shared_name,
    find_device,
    search_devices,
)

V100 = ["v100-pcie", "v100-sxm2", "v100-sxm3", "v100s-pcie"]
A100 = ["a100-pcie-40gb", "a100-pcie-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb"]
ORIN = ["jetson-agx-orin-64gb", "jetson-orin-nx-16gb", "jetson-orin-nano-8gb"]
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
    "A800": ["a800-sxm4-80gb", "a800-pcie-80gb"],
    "P100": ["p100-pcie-16gb", "p100-pcie-12gb", "p100-sxm2"],
    "H100": ["h100-sxm", "h100-pcie", "h100-nvl"],
    "H100 80GB": ["h100-sxm", "h100-pcie"],
    "GH200": ["gh200-96gb", "gh200-144gb"],
    "Orin (nvgpu)": ORIN,
    "Jetson Orin": ORIN,
    "Jetson Xavier": ["jetson-xavier-nx", "jetson-agx-xavier"],
    "RTX 6000": [
        "quadro-rtx-6000", "rtx-6000-ada", "rtx-pro-6000-blackwell",
        "rtx-pro-6000-blackwell-server", "rtx-pro-6000-blackwell-max-q",
    ],
}  # fmt: skip
LABELS = [
    (label, device)
    for device in catalogue_devices()
    for label in (device.label, device.name, *device.aliases)
]
# {id: [vendor, name, alias, ...]} as the list of names that drivers print has them
PRINTED = json.loads(Path(__file__).with_name("names.json").read_text())


def bared(label, device):
    """The name without its vendor, and without what NVIDIA puts in front of its own."""
    brands = ("tesla",) if device.vendor == "NVIDIA" else ()
    words = label.split() if " " in label else label.split("-")
    while words[0].lower().removesuffix("(r)") in (device.vendor.lower(), *brands):
        words = words[1:]
    return " ".join(words)


@pytest.mark.parametrize(("label", "device"), LABELS, ids=[label for label, _ in LABELS])
def test_every_name_resolves_to_its_own_device(label, device):
    """A name leads to its device however it is spelled, with and without the vendor."""
    bare = bared(label, device)
    spellings = [
        label,
        label.lower(),
        label.upper(),
        bare,
        bare.lower(),
        f"{device.vendor} {bare}",
        f"{device.vendor.lower()}   {bare.lower()}",
        f"  {label}\t",
        bare.replace("-", " "),
        bare.replace(" ", "_"),
    ]
    assert {find_device(spelling).label for spelling in spellings} == {device.label}


@pytest.mark.parametrize(
    ("label", "device"), [pair for pair in LABELS if " @ " not in pair[0]], ids=str
)
def test_words_may_be_written_together(label, device):
    """Without any space or hyphen a name leads to its device, or to no other: rtx4090."""
    bare = "".join(bared(label, device).replace("-", " ").replace("_", " ").split())
    assert find_device(bare).label == device.label
    assert find_device(bare.lower()).label == device.label


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("rtx4090", "rtx-4090"),
        ("RTX4090 24GB", "rtx-4090"),
        ("geforce rtx4090", "rtx-4090"),
        ("V100PCIE", "v100-pcie"),
        ("Gaudi 3", "gaudi3"),
        ("Jetson Thor", "jetson-thor-t5000"),
        ("AGX Thor", "jetson-thor-t5000"),
        ("Ironwood", "tpu-v7x"),
        ("RTX PRO 6000 Max-Q", "rtx-pro-6000-blackwell-max-q"),
        ("EPYC 9965", "epyc-9965"),
        ("DGX Spark", "gb10"),
        ("Ryzen AI Max+ 395", "radeon-8060s"),
        ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "ryzen-ai-max-395-cpu"),
        ("RTX 4070", "rtx-4070"),
        ("RTX 5070 Ti", "rtx-5070-ti"),
        ("RTX A5000", "rtx-a5000"),
        ("L20", "l20"),
        ("TITAN Xp", "titan-xp"),
    ],
)
def test_a_name_is_found_as_people_type_it(name, label):
    """The words that they write together, and the size of the memory."""
    assert find_device(name).label == label


@pytest.mark.parametrize("name", ["L4 0", "A10 0", "rtx409", "409 0", "rtx 4 090", "4090ti super"])
def test_no_word_is_cut(name):
    """What is cut or joined otherwise than the device's name has no peak, nor a neighbour's."""
    with pytest.raises(UnknownNameError):
        find_device(name)


@pytest.mark.parametrize("entry", PRINTED)
def test_every_printed_name_resolves_to_its_entry(entry):
    """The name of an entry and its aliases, in any case and without the vendor."""
    vendor, *names = PRINTED[entry]
    for name in (entry, *names):
        bare = name[len(vendor) :].strip() if name.startswith(f"{vendor} ") else name
        spellings = (name, name.lower(), name.upper(), bare, bare.lower(), f"{vendor} {bare}")
        own = spellings[:5] if vendor.lower() in bare.lower() else spellings
        assert {find_device(spelling).id for spelling in own} == {entry}


@pytest.mark.parametrize(
    ("name", "device"),
    [
        # what NVML, CUDA, HIP, JAX, Metal and /proc/cpuinfo print
        ("Tesla V100-SXM2-16GB", "v100-sxm2"), ("Tesla V100S-PCIE-32GB", "v100s-pcie"),
        ("Tesla P100-PCIE-12GB", "p100-pcie-12gb"), ("NVIDIA T4", "t4"), ("Tesla T4", "t4"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"), ("A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"), ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A800 80GB PCIe", "a800-pcie-80gb"), ("NVIDIA A800-SXM4-80GB", "a800-sxm4-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("NVIDIA-H100-80GB-HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"), ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200-sxm"), ("NVIDIA H200 NVL", "h200-nvl"), ("NVIDIA H20", "h20"),
        ("NVIDIA H20-3e", "h20-3e"), ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA B200", "b200"), ("NVIDIA L4", "l4"), ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"), ("NVIDIA A10", "a10"), ("NVIDIA A10G", "a10g"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"), ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx-2080-ti"), ("Quadro RTX 6000", "quadro-rtx-6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-blackwell-server"),
        ("AMD Instinct MI300X", "mi300x"), ("AMD Instinct MI250X", "mi250x"),
        ("AMD Radeon RX 7900 XTX", "rx-7900-xtx"), ("AMD Radeon Instinct MI50", "mi50"),
        ("TPU v4", "tpu-v4"), ("TPU v5 lite", "tpu-v5e"), ("TPU v5", "tpu-v5p"),
        ("TPU v6 lite", "tpu-v6e"), ("TPU7x", "tpu-v7x"), ("GAUDI2", "gaudi2"),
        ("Apple M2 Max", "apple-m2-max"), ("Apple M1", "apple-m1"),
        ("Intel(R) Data Center GPU Max 1550", "max-1550"),
        ("AMD EPYC 9654 96-Core Processor", "epyc-9654"),
        ("Intel(R) Xeon(R) Platinum 8480+", "xeon-8480plus"),
        ("INTEL(R) XEON(R) PLATINUM 8592+", "xeon-8592plus"),
        ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz", "xeon-8380"),
    ],
)  # fmt: skip
def test_what_drivers_print(name, device):
    """The names as programs get them from the driver, in their case and in lower case."""
    assert find_device(name).label == find_device(name.lower()).label == device


@pytest.mark.parametrize(("name", "ids"), FAMILIES.items())
def test_a_family_is_ambiguous(name, ids):
    """A name that several devices bear is refused, and the error carries all of them."""
    for spelled in (name, name.lower(), f"Tesla {name}", f"NVIDIA {name}"):
        with pytest.raises(AmbiguousDeviceError) as caught:
            find_device(spelled)
        assert [candidate.label for candidate in caught.value.candidates] == ids
        assert all(device_id in caught.value.hint for device_id in ids)
    assert issubclass(AmbiguousDeviceError, UnknownNameError)


def test_v100s_is_a_device_of_its_own():
    """V100S names one product, and no V100 is taken for it or the other way round."""
    assert find_device("V100S").id == find_device("Tesla V100S-PCIE-32GB").id == "v100s-pcie"
    assert find_device("Tesla V100-PCIE-32GB").id == "v100-pcie"


@pytest.mark.parametrize(
    "name",
    [
        "A100X", "A1000", "RTX A1000", "RTX A4000", "RTX A40", "V10", "V1000", "V100-FHHL-16GB",
        "V100 PCIe 8GB", "Tesla V100-DGXS-32GB", "GRID A100-10C", "PCIE", "16GB", "Tesla",
        "NVIDIA", "", " ", "-", "100", "AMD V100", "GeForce V100", "V100/A100",
        "SXM2", "NVIDIA T400", "NVIDIA T4G", "NVIDIA L40G", "NVIDIA L20G", "NVIDIA L2",
        "NVIDIA A4000", "NVIDIA H20 NVL", "NVIDIA H100 80GB HBM2e",
        "NVIDIA GeForce RTX 2080", "NVIDIA GeForce RTX 4080 SUPER", "GeForce GTX 1080",
        "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A10M",
        "AMD Radeon Instinct MI25", "AMD Instinct MI300", "MI308X", "TPU v1", "TPU",
        "Apple M5", "Apple", "AMD EPYC", "AMD EPYC 9654P 96-Core Processor", "Neoverse-V2",
        "Intel(R) Xeon(R) Platinum 8480", "Intel(R) Xeon(R) Platinum 8480C", "CPU", "cuda", "gpu",
        "NVIDIA X123", "13th Gen Intel(R) Core(TM) i9-13900K",
        "Tesla M4", "NVIDIA A30X", "NVIDIA A2000", "B2000",
    ],
)  # fmt: skip
def test_a_near_miss_is_unknown(name):
    """A name that is not in the catalogue gets no neighbour's peak, and is no ambiguity."""
    with pytest.raises(UnknownNameError, match=r"is unknown") as caught:
        find_device(name)
    assert not isinstance(caught.value, AmbiguousDeviceError)
    assert "--peak-tflops" in caught.value.hint


def plain(name):
    """The name without vendor and brand, words apart by one space, in lower case."""
    marked = name.lower().replace("(r)", " ").replace("(tm)", " ").replace(" / ", "/")
    words = marked.replace("-", " ").replace("_", " ").split()
    makers = {device.vendor.lower() for device in catalogue_devices()} | {"tesla"}
    return " ".join(word for word in words if word not in makers)


def test_no_name_is_found_by_a_part_of_it():
    """A name with a letter or digit more or less is another name."""
    names = [*device_ids_by_shared_name(), *(label for label, _ in LABELS)]
    known = {plain(name) for name in names}
    for name in names:
        for changed in (name[:-1], *(name + suffix for suffix in "sx01")):
            if plain(changed) not in known:
                with pytest.raises(UnknownNameError, match=r"is unknown"):
                    find_device(changed)


def test_a_search_lists_and_does_not_resolve():
    """A part of a name finds every device that has it, and none is taken for it."""
    assert [device.id for device in search_devices("rtx 2080")] == ["rtx-2080-ti"]
    assert [device.id for device in search_devices("V100")] == V100
    assert {device.id for device in search_devices("hopper")} > {"h100-sxm", "h200-sxm", "h20"}
    assert search_devices("no such thing") == ()
    with pytest.raises(UnknownNameError, match="is unknown") as caught:
        find_device("RTX 2080")
    assert "rtx-2080-ti" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("4090", {"rtx-4090"}),
        ("nvidia 3090 ti", {"rtx-3090-ti"}),
        ("5090", {"rtx-5090"}),
        ("v5e", {"tpu-v5e"}),
        ("v6e", {"tpu-v6e"}),
        ("Trillium", {"tpu-v6e"}),
        ("Ironwood", {"tpu-v7x"}),
        ("Gaudi 3", {"gaudi3"}),
        ("AGX Thor", {"jetson-thor-t5000"}),
        ("DGX Spark", {"gb10"}),
        ("trn2", {"trainium2"}),
        ("7900 xtx", {"rx-7900-xtx"}),
        ("Radeon 9070 XT", {"rx-9070-xt"}),
        ("Xeon 8480+", {"xeon-8480plus"}),
        ("RTX PRO 6000 Max-Q", {"rtx-pro-6000-blackwell-max-q"}),
        ("Grace Hopper", {"gh200-96gb", "gh200-144gb"}),
        ("B580", {"arc-b580"}),
        ("A770", {"arc-a770"}),
        ("6000 Ada", {"rtx-6000-ada"}),
        ("a5000", {"rtx-a5000"}),
        ("1080 Ti", {"gtx-1080-ti"}),
        ("AGX Orin", {"jetson-agx-orin-64gb"}),
        ("PRO 6000", {"rtx-pro-6000-blackwell", "rtx-pro-6000-blackwell-server"}),
    ],
)
def test_names_as_people_say_them(name, labels):
    """What is said of one device is that one; what is said of several names them."""
    if len(labels) == 1:
        assert {find_device(name).label} == labels
        return
    with pytest.raises(AmbiguousDeviceError) as raised:
        find_device(name)
    assert all(label in raised.value.hint for label in labels)


@pytest.mark.parametrize(
    "name", ["4090 Laptop", "RTX 4070 Laptop GPU", "5090 D", "v7e", "9070", "6000"]
)
def test_a_part_of_a_name_is_no_device(name):
    """A neighbour's peak is taken for none."""
    with pytest.raises(UnknownNameError):
        find_device(name)
