"""Devices and time, by hand."""

import pytest

from crossflops.errors import InputError
from crossflops.hardware.rates.mfu import device_layout, pipeline_idle_share, speed_of_all_devices
from crossflops.hardware.rates.question import Parallel, Speed, TrainingOptions

ONE = device_layout(Parallel())
TRAIN = TrainingOptions(train=True)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, (1, 1, 1, 1)),
        ({"dp": 4, "tp": 2, "pp": 3}, (24, 4, 2, 3)),
        ({"devices": 24, "tp": 2, "pp": 3}, (24, 4, 2, 3)),
        ({"devices": 6144}, (6144, 6144, 1, 1)),
        ({"devices": 24, "dp": 4, "tp": 2, "pp": 3}, (24, 4, 2, 3)),
    ],
)
def test_the_world_is_data_by_tensor_by_pipeline(asked, found):
    """What is left out follows from the rest."""
    world = device_layout(Parallel(**asked))
    assert (world.devices, world.dp, world.tp, world.pp) == found


@pytest.mark.parametrize("asked", [{"devices": 7, "tp": 2}, {"devices": 1, "tp": 2}, {"dp": 0}])
def test_what_does_not_multiply_is_refused(asked):
    """A world that is not the product of its parts."""
    with pytest.raises(InputError, match="--devices must be dp x tp x pp"):
        device_layout(Parallel(**asked))


def test_only_replicas_see_examples_of_their_own():
    """A step of 0.5 s with micro-batches of 4: data parallel devices multiply, others do not."""
    speed = Speed(latency_ms=500, batch=4)
    for asked, rate in (({}, 8), ({"dp": 8}, 64), ({"tp": 8}, 8), ({"dp": 2, "pp": 4}, 16)):
        paced = speed_of_all_devices(speed, TRAIN, device_layout(Parallel(**asked)))
        assert paced.per_second == pytest.approx(rate)


def test_accumulated_micro_batches():
    """Four of them, 30 ms each, and one step of 10 ms: 130 ms for four batches."""
    speed = Speed(fwd_ms=10, bwd_ms=20, step_ms=10, batch=8)
    paced = speed_of_all_devices(speed, TrainingOptions(train=True, accumulate=4), ONE)
    assert paced.seconds == pytest.approx(0.130)
    assert paced.per_second == pytest.approx(32 / 0.130)


def test_a_pipeline_fills_and_drains():
    """Four micro-batches on three stages take six slots, of which two are the bubble."""
    speed = Speed(fwd_ms=10, bwd_ms=20, batch=8)
    paced = speed_of_all_devices(
        speed, TrainingOptions(train=True, accumulate=4), device_layout(Parallel(pp=3))
    )
    assert paced.seconds == pytest.approx(6 * 0.030)
    assert pipeline_idle_share(3, 4) == pytest.approx(2 / 6)
    assert pipeline_idle_share(1, 4) == 0


@pytest.mark.parametrize(
    ("speed", "asked", "rate"),
    [
        ({"examples_per_second": 10}, {}, 10),
        ({"examples_per_second": 10, "per_device": True}, {}, 40),
        ({"tokens_per_second": 1280}, {"tokens": 128}, 10),
        ({"tokens_per_second": 1280}, {"tokens": 128, "by_token": True}, 1280),
        ({"tokens_per_second": 1280}, {"by_token": True}, 1280),
        ({"examples_per_second": 10}, {"tokens": 128, "by_token": True}, 1280),
        ({"latency_ms": 100, "batch": 2}, {"tokens": 128, "by_token": True}, 4 * 2 * 1280),
    ],
)
def test_units(speed, asked, rate):
    """Examples or tokens, whichever the work is that of; on four devices."""
    four = device_layout(Parallel(dp=4))
    assert speed_of_all_devices(
        Speed(**speed), TrainingOptions(), four, **asked
    ).per_second == pytest.approx(rate)


@pytest.mark.parametrize(
    ("speed", "training", "what"),
    [
        ({"latency_ms": 1, "examples_per_second": 1}, TrainingOptions(), "cannot be combined"),
        ({"tokens_per_second": 1}, TrainingOptions(), "number of tokens"),
        ({"bwd_ms": 1}, TRAIN, "require --fwd-ms"),
        ({"fwd_ms": 1, "bwd_ms": 1}, TrainingOptions(), "require --train"),
        ({"fwd_ms": 1}, TRAIN, "requires --bwd-ms"),
        ({"latency_ms": 1, "per_device": True}, TRAIN, "applies to a measured rate"),
    ],
)
def test_what_makes_no_speed_is_refused(speed, training, what):
    """Each with what to do."""
    with pytest.raises(InputError, match=what):
        speed_of_all_devices(Speed(**speed), training, ONE)


def test_nothing_measured_is_no_speed():
    """Neither a rate nor a time."""
    assert speed_of_all_devices(Speed(batch=8), TrainingOptions(), ONE) is None
