"""The time of a run beside the count, from a profile that was written by hand."""

import json

import pytest

from crossflops.bench.timing import Ran
from crossflops.ir.measurement import measurement_of_runs
from crossflops.report.bench import Bench, BenchPeak
from crossflops.report.report import ModelInfo
from crossflops.targets.request import Request
from crossflops.verbs.bench import prepare_runnable, with_kernel_times
from tests.onnx_files import saved, with_weights

NET = "g (float[1,100] x, float[100,50] w) => (y) { a = MatMul (x, w) y = Relu (a) }"
MICRO = 1e-6


def kernel(name, op, begin, dur):
    """One kernel."""
    return {
        "cat": "Node", "name": f"{name}_kernel_time", "ts": begin, "dur": dur,
        "pid": 1, "tid": 1, "args": {"op_name": op},
    }  # fmt: skip


@pytest.fixture
def account(tmp_path):
    """A run of 100 µs with such kernels, one of which took `alone` µs without a profiler."""

    def run(alone, peak, *kernels, runtime="onnxruntime 1"):
        path = saved(tmp_path, with_weights(NET, "w"))
        trace = tmp_path / "profile.json"
        whole = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 100}
        trace.write_text(json.dumps([whole, *kernels]))
        ready = prepare_runnable(Request.from_arguments(path), str(tmp_path))
        ran = Ran(runtime=runtime, device="cpu", inputs={}, graph=str(path),
                  profile=str(trace) if kernels else None)  # fmt: skip
        bench = Bench(
            model=ModelInfo(name="g", digest="", inputs=(), opset={}), batch=1,
            macs=5000, flops=10_050, macs_by_precision={"float32": 5000}, runtime=runtime,
            device="cpu", threads=1,
            curve=(measurement_of_runs(1, [alone * MICRO], 0),),
        )  # fmt: skip
        return with_kernel_times(
            bench, ready, ran, BenchPeak(rates={"float32": peak}, source="told")
        )

    return run


KERNELS = (kernel("a", "MatMul", 5, 50), kernel("y", "Relu", 60, 10))


def test_the_profiler_has_the_time_by_which_it_makes_a_run_longer(account):
    """60 of 100 µs are in nodes, 40 outside; a run alone takes 70, so 30 are the profiler's."""
    bench = account(70, 1e12, *KERNELS)
    assert bench.profile.profiler_seconds == pytest.approx(30e-6)
    assert bench.profile.covered == pytest.approx(60 / 70)
    (warning,) = bench.warnings
    assert "cover 85.7 % of the run time; 0.0 % is in kernels inserted by the runtime" in warning
    assert "14.3 % in gaps between kernels" in warning


def test_it_has_no_more_than_what_is_outside_of_kernels(account):
    """A run alone of 10 µs would leave 90, and there are 40."""
    bench = account(10, 1e12, *KERNELS)
    assert bench.profile.profiler_seconds == pytest.approx(40e-6)
    assert bench.profile.covered == pytest.approx(1)
    assert bench.warnings == ()


def test_a_run_that_was_not_longer_leaves_it_nothing(account):
    """100 µs with and 120 without."""
    assert account(120, 1e12, *KERNELS).profile.profiler_seconds == 0


def test_a_whole_run_above_the_peak_is_an_error(account):
    """10 000 FLOPs in 50 µs are 200 MFLOP/s, twice the peak, with kernels and without."""
    plain = account(50, 100e6)
    (error,) = plain.errors
    assert "batch 1 ran at 200 % of the peak" in error
    assert plain.profile is None
    assert account(50, 201e6).errors == ()
