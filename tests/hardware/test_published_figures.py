"""Figures of devices against each other, and against the sentences that cite their source."""

import pytest

from crossflops.hardware.devices.catalogue import (
    bandwidth_from_memory_bus,
    catalogue_devices,
    find_device,
)
from crossflops.hardware.devices.peaks import find_sparse_peak

WITH_BUS = [device for device in catalogue_devices() if device.memory_bus]
# What the row's source, evidence or notes say: a part of the sentence, and the figure of the
# whole package in it, in units of 1e12.
CITED = [
    ("l40s", "362.05 | 733 with sparsity", "bf16", 362.05, 733),
    ("l40s", "362.05 | 733 with sparsity", "fp16", 362.05, 733),
    ("b300", "13125 TFLOPS FP4 dense, 18000 sparse", "fp4", 13125, 18000),
    ("trainium2", "2563 per chip for FP8, FP16, BF16 and TF32 alike", "fp8", 1299, 2563),
    ("trainium2", "2563 per chip for FP8, FP16, BF16 and TF32 alike", "fp16", 667, 2563),
    ("trainium2", "2563 per chip for FP8, FP16, BF16 and TF32 alike", "bf16", 667, 2563),
    ("trainium2", "2563 per chip for FP8, FP16, BF16 and TF32 alike", "tf32", 667, 2563),
    ("trainium2", "none for FP32", "fp32", 181, None),
    ("gb300", "20 PF sparse vs 15 dense", "fp4", 15000, 20000),
    ("l40", "181.05 dense / 362.1 sparse", "bf16", 181.05, 362.1),
    ("rtx-a6000", "309.7 is the sparse FP16 figure", "fp16", 154.8, 309.7),
    ("rtx-a5000", "222.2 tensor TFLOPS is the sparse FP16 figure", "fp16", 111.1, 222.2),
    ("rtx-5070-ti", "1406 AI TOPS, FP4 with sparsity", "fp4", 703, 1406),
    ("rtx-4070", "466 AI TOPS with sparsity", "int8", 233, 466),
    ("rtx-pro-6000-blackwell", "4000 AI TOPS FP4 sparse", "fp4", 2000, 4000),
    ("rtx-pro-6000-blackwell-max-q", "3511 AI TOPS FP4 sparse", "fp4", 1755.5, 3511),
    ("rtx-pro-6000-blackwell-server", "4 PFLOPS FP4 sparse", "fp4", 2000, 4000),
    ("gb10", "1 PFLOP FP4 with sparsity", "fp4", 500, 1000),
    ("jetson-thor-t5000", "2070 TFLOPS FP4 sparse", "fp4", 1035, 2070),
    ("jetson-agx-orin-64gb", "GPU 170 sparse", "int8", 85, 170),
    ("jetson-orin-nx-16gb", "GPU 60 sparse", "int8", 30, 60),
    ("jetson-orin-nano-8gb", "40 TOPS sparse", "int8", 20, 40),
    ("gaudi3", "parts run at 1600 MHz = 1677", "bf16", 1677, None),
    ("arc-b580", "233 INT8 TOPS", "int8", 233, None),
]
BANDWIDTHS = [  # GB/s of a package, by a sentence of its row
    ("b300", "8 TB/s", 8000),
    ("gb10", "273 GB/s", 273),
    ("rx-9070-xt", "RX 9070 XT product page", 640),  # 20 Gbps on 256 bit
    ("titan-xp", "11.4 Gbps on 384 bit", 547.2),
    ("epyc-9965", "12 channels of DDR5-6000", 576),
    ("radeon-8060s", "LPDDR5x-8000 on 256 bit", 256),
]


def sentences(device):
    """Return all that the row says of where its figures are from."""
    return " ".join((*device.source, *device.evidence, device.notes))


@pytest.mark.parametrize(("name", "sentence", "precision", "dense", "pruned"), CITED)
def test_peaks_are_those_of_the_sentence_that_cites_them(name, sentence, precision, dense, pruned):
    """Dense and sparse peaks, times the framework devices of a package, within 1 %."""
    device = find_device(name)
    share = 1e12 / device.framework_devices_per_package
    assert sentence in sentences(device)
    assert device.peaks[precision] == pytest.approx(dense * share, rel=0.01)
    if pruned is None:
        assert find_sparse_peak(device, precision) is None
    else:
        assert find_sparse_peak(device, precision) == pytest.approx(pruned * share, rel=0.01)


@pytest.mark.parametrize(("name", "sentence", "gigabytes"), BANDWIDTHS)
def test_bandwidths_are_those_of_the_sentence_that_cites_them(name, sentence, gigabytes):
    """In bytes/s."""
    device = find_device(name)
    assert sentence in sentences(device)
    assert device.bandwidth == pytest.approx(gigabytes * 1e9, rel=0.002)


@pytest.mark.parametrize("device", WITH_BUS, ids=lambda device: device.label)
def test_a_bandwidth_is_that_of_its_bus(device):
    """Bits x transfers per second / 8, within 1 %, as sheets round."""
    assert bandwidth_from_memory_bus(device) == pytest.approx(device.bandwidth, rel=0.01)


def test_most_devices_with_memory_of_their_own_have_a_bus():
    """So that the test above says something of the catalogue."""
    assert len(WITH_BUS) >= 75


@pytest.mark.parametrize("device", catalogue_devices(), ids=lambda device: device.label)
def test_no_sparse_peak_is_above_what_its_pattern_allows(device):
    """2:4 halves the work, 4:16 leaves a quarter: no sheet may promise more, but for rounding."""
    kept, of = map(int, device.sparse_pattern.split(":"))
    for precision, peak in device.peaks.items():
        pruned = find_sparse_peak(device, precision)
        if pruned is not None:
            assert peak < pruned <= peak * of / kept * 1.02


@pytest.mark.parametrize("device", catalogue_devices(), ids=lambda device: device.label)
def test_narrower_operands_are_never_slower(device):
    """BF16 is as fast as FP16 or half of it (MI100), FP8 at least as fast as either."""
    peaks = device.peaks
    for wide, narrow in (("tf32", "bf16"), ("bf16", "fp8"), ("fp8", "fp4"), ("fp8", "fp6")):
        if wide in peaks and narrow in peaks:
            assert peaks[narrow] >= peaks[wide] * 0.99


@pytest.mark.parametrize("device", catalogue_devices(), ids=lambda device: device.label)
def test_a_module_with_power_modes_names_its_own(device):
    """Every Jetson: its peak is that of one of several modes."""
    assert bool(device.power_mode) == device.id.startswith("jetson-")
