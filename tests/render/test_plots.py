"""Pictures: what stands in them, that they are the same each time, and what is refused."""

import xml.etree.ElementTree as ET

import msgspec
import pytest

from crossflops.errors import InputError
from crossflops.hardware.roofline import (
    Scenario,
    achieved,
    kind_bounds,
    node_bounds,
    step_bound,
)
from crossflops.ir.measurement import Unfit, measured
from crossflops.ir.roofline import Ceiling, KernelBound, Load, Roofline
from crossflops.render.plots import batch_plot, roofline_plot

pytest.importorskip("matplotlib")

pytestmark = pytest.mark.plots

MACHINE = Ceiling(name="machine", peaks={"fp16": 1e14, "fp32": 1e13}, bandwidth=1e12)
RUN = Scenario(label="as asked", ceiling=MACHINE, examples=2, precision="fp16")
CURVE = [
    measured(1, [0.1], 1),
    measured(2, [0.15], 1),
    measured(4, [0.4], 1),
    Unfit(batch=8, stage="memory", message="no room"),
]


def load(op, macs, activations, operations=0):
    """A node."""
    return Load(
        node=f"{op}{macs}", op=op, path="", precision="float32", macs=macs,
        operations=operations or 2 * macs, weights=0, cache=0, activations=activations,
    )  # fmt: skip


def roof(*loads, seconds=None, kernels=()):
    """A roofline of these nodes."""
    loads = loads or (load("Conv", 10**9, 10**6), load("Relu", 0, 10**6, 10**6))
    step = step_bound(loads, RUN)
    nodes = node_bounds(loads, RUN)
    return Roofline(
        device="machine", peaks=MACHINE.peaks, byte_model="unfused", formula="f", training=False,
        step=step, intensity_limit=None, compute_from=None, kinds=kind_bounds(nodes), nodes=nodes,
        kernels=kernels, achieved=None if seconds is None else achieved(step, seconds, None),
    )  # fmt: skip


def texts(svg):
    """Everything that is written in a picture: matplotlib notes each text in a comment."""
    builder = ET.TreeBuilder(insert_comments=True)
    root = ET.fromstring(svg, ET.XMLParser(target=builder))
    return " | ".join(one.text.strip() for one in root.iter(ET.Comment))


def test_a_roofline_names_its_lines_and_its_points():
    """The device, both ceilings, the slope, the ridge, the operators and what was measured."""
    kernel = KernelBound(
        kernel="k", nodes=("Conv",), work=2 * 10**9, bytes=10**6, intensity=2000.0, seconds=2e-5,
        measured=4e-5, rate=5e13, efficiency=0.5,
    )  # fmt: skip
    found = texts(roofline_plot(roof(seconds=1e-3, kernels=(kernel,)), "net", ".svg"))
    for said in (
        *("net", "machine, 1.000 TB/s; bytes: unfused; a step of 2"),
        *("fp16  100.0 TFLOP/s", "fp32  10.00 TFLOP/s", "ridge 100", "1.000 TB/s"),
        *("memory-bound", "compute-bound", "intensity (FLOP / byte)", "FLOP/s"),
        *("Conv (1)  100 %", "Relu (1)  0 %", "measured kernels (1)"),
        *("whole model, at most 100.0 TFLOP/s", "measured, 2.000 TFLOP/s: 2.0% of that"),
    ):
        assert said in found, said


def test_integers_have_operations_and_movement_has_no_place():
    """int8 is in OP/s; nodes that only move stand in the legend, with their share of the time."""
    loads = (load("Conv", 10**9, 10**6), load("Transpose", 0, 2 * 10**7, 0))
    one = msgspec.structs.replace(roof(*loads), peaks={"fp16": 1e14, "int8": 2e14})
    found = texts(roofline_plot(one, "net", ".svg"))
    assert "int8  200.0 TOP/s" in found
    assert "$" not in found
    assert "without a place: moving (1)  0 %, 50 %" in found


def test_many_operators_become_six_and_the_rest():
    """There are six colours that differ for everybody."""
    loads = [load(f"Op{i}", 10**9 * (9 - i), 10**6) for i in range(9)]
    found = texts(roofline_plot(roof(*loads), "net", ".svg"))
    assert "Op5 (1)" in found
    assert "Op6 (1)" not in found
    assert "other operators (3)" in found


@pytest.mark.parametrize("suffix", [".svg", ".png", ".SVG"])
def test_the_same_noun_gives_the_same_bytes(suffix):
    """No date, no random identifier."""
    assert roofline_plot(roof(), "net", suffix) == roofline_plot(roof(), "net", suffix)
    assert batch_plot(CURVE, "net", suffix) == batch_plot(CURVE, "net", suffix)


def test_suffixes_give_formats():
    """By their first bytes."""
    assert roofline_plot(roof(), "net", ".png").startswith(b"\x89PNG\r\n")
    assert b"<svg" in roofline_plot(roof(), "net", ".svg")[:1000]


@pytest.mark.parametrize(
    "loads",
    [
        [load("Relu", 0, 10**6, 10**6)],
        [load("Conv", 10**9, 0)],
        [load("Transpose", 0, 10**6, 0)],
        [load("a$b_$", 1, 1)],
    ],
    ids=["no MACs", "no bytes", "neither", "letters of TeX"],
)
def test_odd_models_have_pictures(loads):
    """Whatever has no place on two logarithmic axes is left out of them."""
    assert b"<svg" in roofline_plot(roof(*loads, seconds=1.0), "net $x", ".svg")


def test_a_curve_names_the_fastest_the_largest_and_what_failed():
    """2 in 0.15 s is the fastest, 4 the largest that ran, and 8 did not."""
    found = texts(batch_plot(CURVE, "net", ".svg"))
    for said in (
        "fastest: 13.33/s at 2",
        "largest that ran: 10/s at 4",
        "8 did not run: memory",
        "p99",
    ):
        assert said in found, said
    assert "chosen: 10/s at 1" in texts(batch_plot(CURVE, "net", ".svg", chosen=1))


def test_one_batch_and_what_had_not_settled():
    """A curve of one point is one, and says that its runs had not settled."""
    curve = [measured(3, [0.1, 0.3], 1, settled=False)]
    assert "hollow: the runs had not settled" in texts(batch_plot(curve, "net", ".svg"))
    assert "hollow" not in texts(batch_plot(CURVE, "net", ".svg"))


def test_a_long_title_keeps_its_ends():
    """64 characters have room."""
    title = f"begin{'n' * 200}, onnxruntime 1.31, cpu"
    (found,) = [
        one for one in texts(batch_plot(CURVE, title, ".svg")).split(" | ") if "begin" in one
    ]
    assert len(found) == 64
    assert found.endswith("n, onnxruntime 1.31, cpu")


def test_without_a_batch_that_ran_there_is_no_curve():
    """One line of what, one of what to do."""
    with pytest.raises(InputError, match="no batch ran"):
        batch_plot(CURVE[3:], "net", ".svg")
