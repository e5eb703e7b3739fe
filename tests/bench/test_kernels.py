"""Profiles of onnxruntime, written by hand, and what they come to."""

import gzip
import json

import pytest

from crossflops.bench.kernels import mean_kernel_times, read_trace_events
from crossflops.errors import InputError


def run(begin, dur):
    """One run of the model."""
    return {"cat": "Session", "name": "model_run", "ts": begin, "dur": dur}


def kernel(name, begin, dur, op="Conv", thread=1):
    """One kernel."""
    return {
        "cat": "Node", "name": f"{name}_kernel_time", "ts": begin, "dur": dur,
        "pid": 1, "tid": thread, "args": {"op_name": op},
    }  # fmt: skip


def by_name(times):
    """Kernels by name."""
    return {timed.name: timed for timed in times.kernels}


def test_a_run_is_its_kernels_and_what_is_outside_of_them():
    """100 µs, of which a takes 60 and b 30."""
    times = mean_kernel_times([run(0, 100), kernel("a", 5, 60), kernel("b", 66, 30, "Relu")])
    assert (times.runs, times.run_seconds) == (1, pytest.approx(100e-6))
    assert by_name(times)["a"].seconds == pytest.approx(60e-6)
    assert by_name(times)["b"][1:] == ("Relu", pytest.approx(30e-6), 1)


def test_the_time_of_a_loop_is_without_that_of_its_body():
    """A loop of 80 µs runs its body three times, 20 µs each: 20 are its own."""
    inside = [kernel("body", begin, 20, "MatMul") for begin in (2, 23, 50)]
    times = by_name(mean_kernel_times([run(0, 100), *inside, kernel("loop", 1, 80, "Loop")]))
    assert times["loop"].seconds == pytest.approx(20e-6)
    assert (times["body"].seconds, times["body"].calls) == (pytest.approx(60e-6), 3)


def test_threads_side_by_side_are_not_within_one_another():
    """Two kernels at the same time in two threads keep their time."""
    times = by_name(
        mean_kernel_times([run(0, 50), kernel("a", 1, 40), kernel("b", 2, 30, thread=2)])
    )
    assert times["a"].seconds == pytest.approx(40e-6)


def test_the_first_runs_and_the_odd_ones_do_not_count():
    """Dropped: 900. Left 100, 104, 300: the median is 104, and the two nearest to it count."""
    runs = [(0, 900), (1000, 100), (2000, 300), (3000, 104)]
    trace = [run(*span) for span in runs] + [kernel("a", b + 1, d - 2) for b, d in runs]
    times = mean_kernel_times(trace, dropped=1)
    assert (times.runs, times.run_seconds) == (2, pytest.approx(102e-6))
    assert by_name(times)["a"].seconds == pytest.approx(100e-6)
    assert by_name(times)["a"].calls == 1


def test_a_trace_is_read_plain_zipped_and_as_a_dict(tmp_path):
    """As onnxruntime writes it, and as torch.profiler does."""
    trace = [run(0, 1)]
    plain, zipped, whole = (tmp_path / name for name in ("a.json", "b.json.gz", "c.json"))
    plain.write_text(json.dumps(trace))
    zipped.write_bytes(gzip.compress(json.dumps(trace).encode()))
    whole.write_text(json.dumps({"traceEvents": trace}))
    assert (
        read_trace_events(str(plain))
        == read_trace_events(str(zipped))
        == read_trace_events(str(whole))
        == trace
    )


@pytest.mark.parametrize("text", ["", "{", "3", '{"a": 1}', "[1, 2", "\x1f\x8b"])
def test_what_is_no_trace_is_refused(tmp_path, text):
    """One error, of ours."""
    path = tmp_path / "t.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError):
        read_trace_events(str(path))


def test_a_trace_that_is_not_there_is_refused(tmp_path):
    """By name."""
    with pytest.raises(InputError, match=r"cannot read the trace .*none\.json"):
        read_trace_events(str(tmp_path / "none.json"))


@pytest.mark.parametrize(
    "trace",
    [
        [],
        [run(0, 10)],
        [kernel("a", 0, 1)],
        [run(0, 10), kernel("a", 1, "x")],
        [run(0, 10), {"cat": "Node", "name": "a_kernel_time", "ts": 1}],
        [run(0, 10), kernel("a", 1, -3)],
        [run(0, float("nan")), kernel("a", 1, 3)],
        [run(0, 10), kernel("a", 1, float("inf"))],
    ],
)
def test_damaged_traces_are_refused(trace):
    """Nothing ran, or an event has no time."""
    with pytest.raises(InputError):
        mean_kernel_times(trace)
