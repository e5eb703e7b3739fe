"""Alternatives to a step: what a text asks for, and what is refused."""

from fractions import Fraction

import pytest

from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.roofline import (
    Scenario,
    Variant,
    check_byte_model,
    device_ceiling,
    variant_with_changes,
    what_if_bounds,
)
from crossflops.hardware.step_traffic import Formats
from crossflops.ir.device import Device
from crossflops.ir.roofline import Ceiling, Load

MACHINE = Ceiling(name="m", peaks={"fp32": 100.0, "fp8": 400.0}, bandwidth=10.0)
FIXED = ("precision", "weights", "cache", "bytes")
BASE = Variant(
    run=Scenario(label="as asked", ceiling=MACHINE, examples=4, precision="fp32"),
    model="unfused",
    formats=Formats(activations="fp32"),
)


def test_each_text_is_a_step():
    """Formats, byte model, batch and precision reach the count; 2 x 50 FLOPs in 4 examples."""
    seen = []

    def loads(model, formats, _scale):
        seen.append(
            (model, formats.activations, formats.format_of_weights(), formats.format_of_caches())
        )
        return [
            Load(
                node="n", op="MatMul", path="", precision="float32", macs=50, operations=100,
                weights=8, cache=0, activations=2,
            )
        ]  # fmt: skip

    texts = ("batch=8", "precision=fp8", "weights=fp8, cache=int4", "bytes=weights-once,batch=2")
    steps = what_if_bounds(texts, BASE, loads)
    assert seen == [
        ("unfused", "fp32", "fp32", "fp32"),
        ("unfused", "fp8", "fp8", "fp8"),
        ("unfused", "fp32", "fp8", "int4"),
        ("weights-once", "fp32", "fp32", "fp32"),
    ]
    assert [step.label for step in steps] == list(texts)
    assert [step.examples for step in steps] == [8, 4, 4, 2]
    assert [step.work for step in steps] == [200, 100, 100, 50]
    assert [step.bytes for step in steps] == [8 + 4, 10, 10, 8 + 1]
    assert [step.peak for step in steps] == [100.0, 400.0, 100.0, 100.0]


def test_another_device_brings_its_limits():
    """The bandwidth of H200 is 4.8 TB/s."""
    assert variant_with_changes(BASE, "device=NVIDIA H200").run.ceiling.bandwidth == 4.8e12


def test_a_device_of_ones_own():
    """The lookup that is handed in finds it."""
    own = Device(
        id="x", name="X", peaks={"fp32": 7.0}, bandwidth=2.0, source=("me",), confidence="own"
    )
    roof = variant_with_changes(BASE, "device=x", look={"x": own}.__getitem__).run.ceiling
    assert (roof.peaks, roof.bandwidth) == ({"fp32": 7.0}, 2.0)


def test_the_batch_is_against_the_one_that_was_counted():
    """Counted at 1 and asked at 4, a batch of 64 is 64 times what was counted."""
    asked = Variant(
        run=Scenario(label="", ceiling=MACHINE, examples=4, scale=Fraction(4)), model="unfused"
    )
    assert variant_with_changes(asked, "batch=64").run.scale == 64


@pytest.mark.parametrize(
    "text",
    ["", "batch", "batch=", "batch=0", "batch=-1", "batch=1.5", "speed=3", "batch=1,batch=2",
     "batch=" + "9" * 40],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(text):
    """One line of what, one of what to do."""
    with pytest.raises(InputError):
        variant_with_changes(BASE, text)


@pytest.mark.parametrize("text", ["device=V100X", "precision=fp12", "weights=zip", "bytes=some"])
def test_what_nobody_knows_is_refused(text):
    """Nothing is taken for something else."""
    with pytest.raises(UnknownNameError):
        variant_with_changes(BASE, text)


def test_given_bytes_are_not_known_in_another_precision():
    """But another batch has so many times as many."""
    assert variant_with_changes(BASE, "batch=8", fixed=FIXED).run.examples == 8
    with pytest.raises(InputError, match="cannot be computed for another precision"):
        variant_with_changes(BASE, "precision=fp8", fixed=FIXED)


def test_a_device_without_a_bandwidth_asks_for_one():
    """Unless it is given."""
    device = Device(id="d", name="d", peaks={"fp32": 1.0}, source=(), confidence="high")
    assert device_ceiling(device, 5.0).bandwidth == 5.0
    with pytest.raises(UnknownNameError, match="bandwidth"):
        device_ceiling(device)


def test_byte_models_by_name():
    """There are three."""
    assert check_byte_model("fused-ideal") == "fused-ideal"
    with pytest.raises(UnknownNameError, match="unknown way to count bytes"):
        check_byte_model("ideal")
