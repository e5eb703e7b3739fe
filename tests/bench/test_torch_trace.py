"""Traces of torch.profiler, written by hand, joined to recorded calls."""

import pytest

from crossflops.bench.torch_trace import is_torch_trace, match_torch_operators
from crossflops.errors import InputError
from crossflops.ir.trace import Call, Setting, Trace


def op(name, begin, dur, thread=1):
    """One operator."""
    times = {"ts": begin, "dur": dur}
    return {"cat": "cpu_op", "ph": "X", "name": name, "pid": 1, "tid": thread, **times}


def step(begin, dur, name="model_run"):
    """One run."""
    return {**op(name, begin, dur), "cat": "user_annotation"}


def model(*targets):
    """Calls of these operators, each of one node."""
    calls = tuple(
        Call(key=f"c{n}", parent=None, level="operator", target=target, module=0, nodes=(f"n{n}",))
        for n, target in enumerate(targets)
    )
    return Trace(calls=calls, modules=(), setting=Setting())


MODEL = model("aten.conv2d.default", "aten.relu_.default", "aten.linear.default")


def test_operators_are_joined_in_order_and_inner_ones_are_in_the_outer():
    """conv2d of 50 µs calls convolution; two runs, whose means count."""
    trace = []
    for begin, conv in ((0, 50), (1000, 54)):
        trace += [
            step(begin, 100),
            op("aten::conv2d", begin + 1, conv),
            op("aten::convolution", begin + 2, 40),
            op("aten::relu_", begin + 60, 10),
            op("aten::linear", begin + 72, 20),
        ]
    joined = match_torch_operators(trace, MODEL)
    assert is_torch_trace(trace)
    assert [(kernel.name, kernel.op) for kernel in joined.kernels.kernels] == [
        ("aten::conv2d 1", "aten::conv2d"),
        ("aten::relu_ 1", "aten::relu_"),
        ("aten::linear 1", "aten::linear"),
    ]
    assert joined.kernels.run_seconds == pytest.approx(100e-6)
    covered = {kernel.kernels: kernel.keys for kernel in joined.covers.kernels}
    assert covered == {
        ("aten::conv2d 1",): ("n0",),
        ("aten::relu_ 1",): ("n1",),
        ("aten::linear 1",): ("n2",),
    }


def test_what_ran_otherwise_is_taken_together():
    """A fused kernel in the place of two calls, and one more that no call explains."""
    trace = [
        op("aten::conv2d", 0, 10), op("aten::fused", 10, 30), op("aten::conv2d", 50, 5),
    ]  # fmt: skip
    joined = match_torch_operators(
        trace,
        model(
            "aten.conv2d.default", "aten.bmm.default", "aten.softmax.int", "aten.conv2d.default"
        ),
    )
    covered = {kernel.kernels: kernel.keys for kernel in joined.covers.kernels}
    assert covered == {
        ("aten::conv2d 1",): ("n0",),
        ("aten::fused 1",): ("n1", "n2"),
        ("aten::conv2d 2",): ("n3",),
    }
    assert joined.kernels.run_seconds == pytest.approx(55e-6)


def test_steps_of_the_profiler_are_runs_and_the_busiest_thread_counts():
    """ProfilerStep#0 is dropped; an operator of another thread is none of these."""
    trace = [
        step(0, 500, "ProfilerStep#0"), op("aten::conv2d", 1, 400),
        step(600, 100, "ProfilerStep#1"), op("aten::conv2d", 601, 60), op("aten::relu_", 670, 10),
        op("aten::linear", 610, 10, thread=2),
    ]  # fmt: skip
    joined = match_torch_operators(trace, MODEL, dropped=1)
    assert joined.kernels.kernels[0].seconds == pytest.approx(60e-6)
    assert joined.covers.left == ("n2",)


def test_calls_that_nobody_recorded_cannot_be_joined():
    """A file has none; a trace without operators has nothing to join."""
    with pytest.raises(InputError, match="does not record PyTorch operators"):
        match_torch_operators([op("aten::conv2d", 0, 1)], model())
    with pytest.raises(InputError, match="no PyTorch operators"):
        match_torch_operators([step(0, 1)], MODEL)
    with pytest.raises(InputError, match="damaged"):
        match_torch_operators([{"cat": "cpu_op", "name": "aten::conv2d"}], MODEL)
