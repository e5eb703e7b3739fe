"""Pictures: what stands in them, that they are the same each time, and what is refused."""

import sys
import xml.etree.ElementTree as ET

import msgspec
import pytest

from crossflops.errors import InputError, MissingExtraError, UnknownNameError
from crossflops.hardware.roofline import (
    Scenario,
    kind_bounds,
    node_bounds,
    step_bound,
    step_efficiencies,
)
from crossflops.ir.measurement import Unfit, measurement_of_runs
from crossflops.ir.roofline import Ceiling, KernelBound, Load, Roofline
from crossflops.render.figures import files
from crossflops.render.figures.batches import batch_curve_figure
from crossflops.render.figures.canvas import Words
from crossflops.render.figures.files import figure_file_bytes, require_picture_suffix
from crossflops.render.figures.roofline import roofline_plot_with_title

MACHINE = Ceiling(name="machine", peaks={"fp16": 1e14, "fp32": 1e13}, bandwidth=1e12)
RUN = Scenario(label="as asked", ceiling=MACHINE, examples=2, precision="fp16")
CURVE = [
    measurement_of_runs(1, [0.1], 1),
    measurement_of_runs(2, [0.15], 1),
    measurement_of_runs(4, [0.4], 1),
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
        kernels=kernels,
        achieved=None if seconds is None else step_efficiencies(step, seconds, None),
    )  # fmt: skip


def texts(canvas):
    """Everything that is written in a picture."""
    return [shape.text for shape in canvas.shapes if isinstance(shape, Words)]


def test_a_roofline_names_its_lines_and_its_points():
    """The device, both ceilings, the slope, the ridge, the operators and what was measured."""
    kernel = KernelBound(
        kernel="k", nodes=("Conv",), work=2 * 10**9, bytes=10**6, intensity=2000.0, seconds=2e-5,
        measured=4e-5, rate=5e13, efficiency=0.5,
    )  # fmt: skip
    words = texts(roofline_plot_with_title(roof(seconds=1e-3, kernels=(kernel,)), "net"))
    for expected in (
        *("net", "machine, 1.000 TB/s; bytes: unfused; a step of 2"),
        *("fp16 100.0 TFLOP/s", "fp32 10.00 TFLOP/s", "ridge 100", "1.000 TB/s"),
        *("memory-bound", "compute-bound", "FLOP / byte", "FLOP/s"),
        *("Conv (1)", "100 %, 95 %", "Relu (1)", "0 %, 5 %", "measured kernels (1)"),
        *("whole, at most 100.0 TFLOP/s", "measured, 2.000 TFLOP/s", "2.0%"),
    ):
        assert expected in words, expected


def test_integers_have_operations_and_movement_has_no_place():
    """int8 is in OP/s; nodes that only move stand beside it, with their share of the time."""
    loads = (load("Conv", 10**9, 10**6), load("Transpose", 0, 2 * 10**7, 0))
    integers = msgspec.structs.replace(roof(*loads), peaks={"fp16": 1e14, "int8": 2e14})
    words = texts(roofline_plot_with_title(integers, "net"))
    assert "int8 200.0 TOP/s" in words
    assert words[words.index("no FLOPs (1)") + 1] == "0 %, 50 %"


def test_many_operators_become_six_and_the_rest():
    """There are six colours that differ for everybody."""
    loads = [load(f"Op{i}", 10**9 * (9 - i), 10**6) for i in range(9)]
    words = texts(roofline_plot_with_title(roof(*loads), "net"))
    assert "Op5 (1)" in words
    assert "Op6 (1)" not in words
    assert "other operators (3)" in words


@pytest.mark.parametrize("suffix", [".svg", ".SVG", pytest.param(".png", marks=pytest.mark.plots)])
def test_the_same_noun_gives_the_same_bytes(suffix):
    """No date, no random identifier."""
    for draw in (
        lambda: roofline_plot_with_title(roof(), "net"),
        lambda: batch_curve_figure(CURVE),
    ):
        assert figure_file_bytes(draw(), suffix) == figure_file_bytes(draw(), suffix)


@pytest.mark.plots
def test_suffixes_give_formats():
    """By their first bytes."""
    assert figure_file_bytes(batch_curve_figure(CURVE), ".png").startswith(b"\x89PNG\r\n")
    assert figure_file_bytes(batch_curve_figure(CURVE), ".svg").startswith(b"<svg")


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
    picture = figure_file_bytes(
        roofline_plot_with_title(roof(*loads, seconds=1.0), "net $x"), ".svg"
    )
    assert ET.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"


def test_a_curve_names_the_fastest_the_largest_and_what_failed():
    """2 in 0.15 s is the fastest, 4 the largest that ran, and 8 did not."""
    words = texts(batch_curve_figure(CURVE))
    for expected in (
        "fastest: 13.33/s at 2",
        "largest that ran: 10/s at 4",
        "8 did not run: memory",
        "p99",
    ):
        assert expected in words, expected
    assert "chosen: 10/s at 1" in texts(batch_curve_figure(CURVE, chosen=1))


def test_points_of_a_curve_stand_at_their_values():
    """1 and 4 are two octaves apart, 2 in the middle; twice the rate is twice as high."""
    curve = [
        measurement_of_runs(1, [0.1], 1),
        measurement_of_runs(2, [0.1], 1),
        measurement_of_runs(4, [0.2], 1),
    ]
    shapes = batch_curve_figure(curve).shapes
    dots = {shape.tip: shape for shape in shapes if getattr(shape, "tip", "")}
    slow, fast = dots["1: 10/s"], dots["2: 20/s"]
    assert dots["4: 20/s"].x - fast.x == pytest.approx(fast.x - slow.x)
    zero = next(
        shape.y - 4
        for shape in batch_curve_figure(curve).shapes
        if getattr(shape, "text", "") == "0"
    )
    assert zero - fast.y == pytest.approx(2 * (zero - slow.y))


def test_one_batch_and_what_had_not_settled():
    """A curve of one point is one, and says that its runs had not settled."""
    curve = [measurement_of_runs(3, [0.1, 0.3], 1, settled=False)]
    assert "open circles: the run times were not stable" in texts(batch_curve_figure(curve))
    assert "rings" not in " ".join(texts(batch_curve_figure(CURVE)))


def test_a_long_title_keeps_its_ends():
    """As much as there is room for."""
    title = f"begin{'n' * 200}, onnxruntime 1.31, cpu"
    (shown,) = [text for text in texts(roofline_plot_with_title(roof(), title)) if "begin" in text]
    assert len(shown) < 120
    assert shown.endswith("n, onnxruntime 1.31, cpu")


def test_without_a_batch_that_ran_there_is_no_curve():
    """One line of what, one of what to do."""
    with pytest.raises(InputError, match="no batch size ran"):
        batch_curve_figure(CURVE[3:])


@pytest.mark.parametrize("suffix", ["", ".pdf", ".svgz"])
def test_other_formats_are_refused(suffix):
    """By name."""
    with pytest.raises(UnknownNameError, match="format"):
        require_picture_suffix(suffix)


def test_without_matplotlib_there_is_no_png(monkeypatch):
    """One line, and the command that installs it; an SVG needs no library."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError) as caught:
        figure_file_bytes(batch_curve_figure(CURVE), ".png")
    assert caught.value.hint.startswith("pip install 'crossflops[plots]'")
    assert figure_file_bytes(batch_curve_figure(CURVE), ".svg").startswith(b"<svg")
