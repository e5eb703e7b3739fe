"""`--plot` of bench, render and efficiency: the file, and what has no picture."""

import json
from pathlib import Path

import pytest

from crossflops.ir.measurement import measurement_of_runs
from crossflops.report.bench import Bench, KernelProfile, KernelRow
from crossflops.report.report import ModelInfo
from tests.decoders import Decoder, decoder
from tests.onnx_files import saved

H100 = ("--device", "h100-sxm", "--precision", "fp16")
HEAD = "/lm_head/MatMul"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A decoder that is quick to count: three sequences."""
    return saved(tmp_path_factory.mktemp("small"), decoder(Decoder()))


@pytest.fixture
def bench(tmp_path):
    """What `bench` writes of it: a run of 1 ms, half of it in the head."""
    kernel = KernelRow(
        kernel="head", op="MatMul", seconds=5e-4, calls=1, nodes=(HEAD,), does="MatMul", macs=1,
        flops=2, bytes=1,
    )  # fmt: skip
    profile = KernelProfile(
        source="s", runs=1, run_seconds=1e-3, outside_seconds=5e-4, named_seconds=5e-4,
        added_seconds=0.0, kernels=(kernel,),
    )  # fmt: skip
    report = Bench(
        model=ModelInfo(name="decoder", digest="", inputs=(), opset={}), batch=3, macs=3, flops=6,
        macs_by_precision={"float16": 3},
        runtime="onnxruntime", device="cpu", threads=1, curve=(measurement_of_runs(3, [1e-3], 1),),
        profile=profile,
    )  # fmt: skip
    file = tmp_path / "bench.json"
    file.write_text(report.to_json())
    return file


def test_a_measured_run_under_its_roofline(line, small, bench):
    """Its time is that of the step of 3; the head does 2 x 3 x 64 x 300 FLOPs in half of it."""
    status, out, err = line("efficiency", small, *H100, "--bench", str(bench), "--json")
    assert status == 0, err
    roofline = json.loads(out)["efficiency"][0]["roofline"]
    assert roofline["achieved"]["seconds"] == pytest.approx(1e-3)
    assert roofline["step"]["examples"] == 3
    (kernel,) = roofline["kernels"]
    assert kernel["work"] == 2 * 3 * 64 * 300
    assert kernel["bytes"] == 2 * (3 * 64 + 64 * 300 + 3 * 300)
    assert kernel["rate"] == pytest.approx(2 * 3 * 64 * 300 / 5e-4)


@pytest.mark.parametrize(
    "more",
    [("--batch", "4"), ("--latency-ms", "5"), ("--examples-per-second", "1"), ("--train",)],
)
def test_a_second_time_is_refused(line, small, bench, more):
    """The run says how long it took, and at which batch."""
    status, out, err = line("efficiency", small, *H100, "--bench", str(bench), *more)
    assert (status, out) == (2, "")
    assert "leave" in err


def test_a_file_that_is_no_run_is_refused(line, small, tmp_path):
    """Two lines, no traceback."""
    file = tmp_path / "x.json"
    file.write_text("{}")
    status, _, err = line("efficiency", small, *H100, "--bench", str(file))
    assert status == 2
    assert "is not a result of `bench`" in err


@pytest.mark.plots
def test_render_draws_what_was_written(line, small, bench, tmp_path):
    """A curve of a run, and the roofline of a report, which is also shown again as it was."""
    pytest.importorskip("matplotlib")
    curve, roof, report = (tmp_path / name for name in ("c.svg", "r.png", "e.json"))
    assert line("render", str(bench), "--plot", str(curve))[0] == 0
    assert b"<svg" in curve.read_bytes()
    first = line("efficiency", small, *H100, "--roofline")[1]
    assert line("efficiency", small, *H100, "--roofline", "-o", str(report))[0] == 0
    status, out, err = line("render", str(report), "--plot", str(roof))
    assert (status, out, err) == (0, first, f"wrote {roof}\n")
    assert roof.read_bytes().startswith(b"\x89PNG")


@pytest.mark.plots
@pytest.mark.parametrize("name", ["waterfall.png", "bars.png"])
def test_a_comparison_is_drawn_in_pixels(line, tmp_path, name):
    """As wide as the drawing; where there is text it is no empty sheet."""
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    report, file = Path(__file__).parents[2] / "reports" / "resnet18.json.gz", tmp_path / name
    assert line("render", str(report), "--plot", str(file))[0] == 0
    pixels = imread(file)
    assert pixels.shape[1] >= 760
    dark = (pixels[..., :3].sum(axis=-1) < 1.5).mean()
    assert 0.001 < dark < 0.5


def test_a_report_without_a_picture_is_refused(line, small, tmp_path):
    """A count has none; an answer without a roofline says how to ask for one."""
    plot = ("--plot", str(tmp_path / "p.svg"))
    count, rates = str(tmp_path / "count.json"), str(tmp_path / "rates.json")
    assert line("count", small, "-o", count)[0] == 0
    status, _, err = line("render", count, *plot)
    assert (status, "cannot draw" in err) == (2, True)
    speed = ("--examples-per-second", "10")
    assert line("efficiency", small, *H100, *speed, "-o", rates)[0] == 0
    status, _, err = line("render", rates, *plot)
    assert (status, "--roofline" in err) == (2, True)
    assert not (tmp_path / "p.svg").exists()
