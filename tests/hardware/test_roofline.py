"""The roofline from given numbers: published cases, and arithmetic by hand."""

from fractions import Fraction

import msgspec
import pytest

from crossflops.errors import InputError, UnknownNameError
from crossflops.hardware.roofline import (
    Scenario,
    compute_bound_batch_size,
    intensity_limit,
    node_bounds,
    step_bound,
    step_efficiencies,
)
from crossflops.ir.roofline import Ceiling, Load

H100 = Ceiling(name="h100-sxm", peaks={"bf16": 989.4e12}, bandwidth=3.35e12, tdp=700)
V100 = Ceiling(name="v100-pcie", peaks={"fp16": 112e12, "fp32": 14e12}, bandwidth=900e9)

# Llama 3.1 8B, one token for each of 8 sequences at a context of 2048, two bytes an element.
PARAMS, LAYERS, WIDTH, KV_HEADS, HEAD_DIM, BATCH, CONTEXT = 7504658432, 32, 4096, 8, 128, 8, 2048


def load(macs=0, weights=0, cache=0, activations=0, **fields):
    """A node by what it computes and moves."""
    fields = {"node": "n", "op": "MatMul", "path": "", "precision": ""} | fields
    return Load(
        macs=macs, operations=2 * macs, weights=weights, cache=cache, activations=activations,
        **fields,
    )  # fmt: skip


def decode(weight_bytes=2, cache_bytes=2):
    """The step in closed form: parameters, and scores and values over the whole context."""
    attention = BATCH * LAYERS * 2 * WIDTH * CONTEXT
    cache = BATCH * CONTEXT * LAYERS * 2 * KV_HEADS * HEAD_DIM
    return [
        load(PARAMS * BATCH, weights=PARAMS * weight_bytes),
        load(attention, cache=cache * cache_bytes),
    ]


def run(ceiling=H100, precision="bf16", **fields):
    """A scenario."""
    fields = {"label": "", "examples": BATCH} | fields
    return Scenario(ceiling=ceiling, precision=precision, **fields)


def test_llama_decode_on_h100():
    """The published case llama31-8b-decode-b8-s2048-h100, within its 0.2 %."""
    step = step_bound(decode(), run())
    near = {"rel": 0.002}
    assert step.work == pytest.approx(128.7e9, **near)
    assert step.bytes == pytest.approx(17.16e9, **near)
    assert step.intensity == pytest.approx(7.50, **near)
    assert step.seconds == pytest.approx(5.121e-3, **near)
    assert step.whole_seconds == pytest.approx(step.seconds)
    assert step.bound == "memory"
    assert step.ridge == pytest.approx(295, rel=0.002)
    assert intensity_limit(decode()) == pytest.approx(59.9, **near)
    assert compute_bound_batch_size(lambda _: decode(), run(), step.ridge) is None
    assert step.examples / step.seconds == pytest.approx(1562, **near)
    assert step.joules == pytest.approx(700 * 5.121e-3 / 8, **near)


@pytest.mark.parametrize(
    ("loads", "fields", "milliseconds", "intensity"),
    [
        (decode(), {"scale": Fraction(8), "examples": 64}, 9.61, 32),
        (decode(weight_bytes=1), {}, 2.88, None),
        (decode(weight_bytes=1, cache_bytes=1), {}, 2.56, None),
        (decode(), {"ceiling": msgspec.structs.replace(H100, bandwidth=4.8e12)}, 3.57, None),
    ],
    ids=["batch 64", "weights in fp8", "weights and cache in fp8", "h200"],
)
def test_what_if_of_the_decoder(loads, fields, milliseconds, intensity):
    """The published alternatives to that step."""
    step = step_bound(loads, run(**fields))
    assert step.seconds * 1e3 == pytest.approx(milliseconds, rel=0.002)
    if intensity is not None:
        assert step.intensity == pytest.approx(intensity, rel=0.002)
        assert step.examples / step.seconds == pytest.approx(6661, rel=0.001)


def test_a_measured_decode_step():
    """7.05 ms: 2434 GB/s, MBU 72.6 %, MFU 1.8 %, and 5.12 / 7.05 of the roofline."""
    reached = step_efficiencies(step_bound(decode(), run()), 7.05e-3, 700)
    assert reached.mbu == pytest.approx(0.726, rel=1e-3)
    assert reached.mbu * 3.35e12 == pytest.approx(2434e9, rel=1e-3)
    assert reached.mfu == pytest.approx(0.018, rel=0.03)
    assert reached.roofline_efficiency == pytest.approx(5.121 / 7.05, rel=1e-3)
    assert reached.joules == pytest.approx(700 * 7.05e-3 / 8)


@pytest.mark.parametrize(
    ("precision", "rate", "moved", "intensity", "ridge", "bound"),
    [("fp16", 1325, 459e6, 54, 124, "memory"), ("fp32", 303.1, 918e6, 27, 15.6, "compute")],
)
def test_resnet50_training_on_v100(precision, rate, moved, intensity, ridge, bound):
    """The same model is memory-bound in FP16 and compute-bound in FP32, from given bytes."""
    given = load(3 * 4_112_000_000, activations=int(moved))
    step = step_bound([given], run(V100, precision, examples=1, nodewise=False))
    assert (round(step.intensity), step.bound) == (intensity, bound)
    assert step.ridge == pytest.approx(ridge, rel=0.005)
    assert step.seconds is None
    reached = step_efficiencies(step, 1 / rate, None)
    if precision == "fp16":
        assert step.attainable == pytest.approx(48.4e12, rel=1e-3)
        assert 1 / step.whole_seconds == pytest.approx(1961, rel=1e-3)
        assert reached.whole_efficiency == pytest.approx(0.68, abs=0.005)
        assert reached.joules is None
    else:
        assert step.attainable == 14e12
        assert reached.whole_efficiency == pytest.approx(0.534, abs=0.0005)


def test_the_ridge_of_a_cpu_and_of_two_convolutions_on_it():
    """276 GFLOP/s over 42.4 GB/s is 6.5 FLOP/B: intensities of 142 and 25.5 are right of it."""
    cpu = Ceiling(name="cpu", peaks={"": 276e9}, bandwidth=42.4e9)
    convolutions = [load(142 * 500, activations=1000), load(51 * 500, activations=2000)]
    bounds = node_bounds(convolutions, run(cpu, ""))
    assert [bound.intensity for bound in bounds] == [142, 25.5]
    assert [bound.bound for bound in bounds] == ["compute", "compute"]
    assert step_bound(convolutions, run(cpu, "")).ridge == pytest.approx(6.5, rel=0.005)


def test_node_after_node_takes_longer_than_all_at_once():
    """At 10 FLOP/s and 5 B/s: max(2, 1) + max(1, 4) = 6 s, together max(3, 5) = 5 s."""
    machine = Ceiling(name="m", peaks={"fp32": 10.0}, bandwidth=5.0)
    loads = [load(10, activations=5), load(5, activations=20)]
    step = step_bound(loads, run(machine, "fp32", examples=1))
    assert (step.seconds, step.whole_seconds, step.shortest_seconds) == (6.0, 5.0, 6.0)
    assert (step.intensity, step.ridge, step.bound) == (30 / 25, 2.0, "memory")
    assert step.attainable == 6.0
    assert [bound.bound for bound in node_bounds(loads, run(machine, "fp32"))] == [
        "compute",
        "memory",
    ]


def test_precisions_are_weighed_harmonically():
    """Half of the work at 989.4 and half at 1978.9 TFLOP/s runs at 1319.2, not at 1484.2."""
    both = Ceiling(name="m", peaks={"bf16": 989.4e12, "fp8": 1978.9e12}, bandwidth=1e30)
    halves = [
        load(500, activations=1, precision="bfloat16"),
        load(500, activations=1, precision="float8e4m3fn"),
    ]
    assert step_bound(halves, run(both, "")).peak == pytest.approx(1319.2e12, rel=5e-4)


def test_training_moves_and_computes_three_times_as_much():
    """k passes: 3 x 2 x 10 FLOPs, 3 x (4 + 2) bytes; twice the batch doubles all but weights."""
    machine = Ceiling(name="m", peaks={"": 1.0}, bandwidth=1.0)
    single = step_bound([load(10, weights=4, activations=2)], run(machine, "", passes=Fraction(3)))
    assert (single.work, single.bytes, single.weights) == (60, 18, 12)
    two = step_bound(
        [load(10, weights=4, activations=2)],
        run(machine, "", passes=Fraction(3), scale=Fraction(2)),
    )
    assert (two.work, two.bytes) == (120, 24)


def test_the_batch_from_which_compute_is_the_limit():
    """20 s FLOPs over 100 + 2 s bytes reach a ridge of 4 at s = 100 / 3: from 34 examples on."""
    machine = Ceiling(name="m", peaks={"": 4.0}, bandwidth=1.0)
    loads = [load(10, weights=100, activations=2)]
    step = step_bound(loads, run(machine, "", examples=1))
    assert (
        compute_bound_batch_size(lambda _: loads, run(machine, "", examples=1), step.ridge) == 34
    )
    sides = [
        step_bound(loads, run(machine, "", examples=n, scale=Fraction(n))).bound for n in (33, 34)
    ]
    assert sides == ["memory", "compute"]


def test_only_weights_grow_no_limit():
    """With nothing that grows with the batch, intensity has no limit."""
    assert intensity_limit([load(10, weights=100)]) is None


def test_a_peak_that_is_not_there_is_refused():
    """The peak of one precision never stands in for another."""
    with pytest.raises(UnknownNameError, match="no peak for fp8"):
        step_bound(decode(), run(precision="fp8"))


def test_a_time_and_a_model_of_nothing_are_refused():
    """No step takes no time, and one without work and bytes has no roofline."""
    with pytest.raises(InputError, match="time of a step"):
        step_efficiencies(step_bound(decode(), run()), 0.0, None)
    with pytest.raises(InputError, match="no FLOPs and moves no bytes"):
        step_bound([], run())
