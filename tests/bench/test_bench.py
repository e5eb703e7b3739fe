"""Small models that really run in onnxruntime: what is joined is exact, whatever the times are."""

import json

import numpy as np
import pytest
from msgspec.structs import replace

import crossflops
from crossflops import count
from crossflops.bench.timing import BenchLimits
from crossflops.cli import main
from crossflops.errors import InputError, NormalizeError
from crossflops.ir.measurement import Measurement
from crossflops.report.bench import Bench, BenchPeak
from crossflops.targets.request import Request
from crossflops.verbs.bench import Conditions, measure_batches
from tests.onnx_files import parsed, saved, with_weights

pytest.importorskip("onnxruntime", reason="the extra [runtime] is not installed")

pytestmark = pytest.mark.onnxruntime

QUICK = Conditions(threads=1, limits=BenchLimits(warmup=2, runs=2, fewest=1, seconds=1))
NET = (
    "g (float[n,8,16,16] x, float[8,8,3,3] w, float[8,8,1,1] v, float[8] s, float[16,4] m) "
    "=> (y, z) { a = Conv <pads = [1,1,1,1]> (x, w) b = Relu (a) c = Conv (b, v) "
    "d = Add (c, b) e = Relu (d) f = Conv <pads = [1,1,1,1]> (e, w) "
    "p = GlobalAveragePool (f) h = MatMul (e, m) y = Sigmoid (h) z = Flatten (p) }"
)
WEIGHTS = ("w", "v", "s", "m")
LOOP = (
    "g (float[n,4] x, float[4,4] w, int64 t) => (y) <bool go = {1}> { "
    "y = Loop (t, go, x) <body = b (int64 i, bool c, float[n,4] a) => (d, e) "
    "{ d = Identity (c) m = MatMul (a, w) e = Tanh (m) }> }"
)


def ran(target, options=(), **how):
    """What `bench` finds of a target with these options, in few runs and these conditions."""
    return measure_batches(
        Request.from_arguments(target, observe=True, **dict(options)), replace(QUICK, **how)
    )


@pytest.fixture
def net(tmp_path):
    """A residual net of convolutions with constant weights."""
    return saved(tmp_path, with_weights(NET, *WEIGHTS))


def consistent(bench, path, **sizes):
    """The MACs of all rows are those of the count, and every node stands in one row."""
    report = count(path, **sizes)
    assert bench.profile.macs == bench.macs == report.macs
    keys = [key for row in (*bench.profile.kernels, *bench.profile.aside) for key in row.nodes]
    assert sorted(keys) == sorted(node.node for node in report.nodes)
    assert all(row.seconds >= 0 for row in bench.profile.kernels)


def test_from_python(net):
    """The names of the flags; 1 kFLOP/s is no peak, and a trace has no batches."""
    bench = crossflops.bench(net, dims={"n": 2}, seconds=0.1, threads=1, peak_tflops=1e-9)
    assert (bench.batch, bench.profile.macs) == (2, count(net, dims={"n": 2}).macs)
    assert "of the peak" in bench.errors[0]
    with pytest.raises(InputError, match="--batch has no effect with --trace"):
        crossflops.bench(net, trace="a.json", batches="auto")


@pytest.mark.parametrize("optimization", ["all", "off"])
def test_every_count_is_in_one_row(net, optimization):
    """3 x 8 x 8 x 9 x 256, twice, 3 x 8 x 8 x 256 and 3 x 8 x 16 x 16 x 4."""
    bench = ran(net, {"dims": {"n": 3}}, optimization=optimization)
    assert bench.macs == 2 * 3 * 64 * 9 * 256 + 3 * 64 * 256 + 3 * 8 * 256 * 4
    consistent(bench, net, dims={"n": 3})
    assert bench.batch == 3
    does = {row.does for row in bench.profile.kernels}
    if optimization == "off":
        assert {"Conv", "Relu", "Add", "MatMul"} <= does
    else:
        assert {"Conv + Relu", "Conv + Add + Relu"} <= does


def test_batches_are_tried_and_the_fastest_is_profiled(net):
    """One measurement for each, and a profile of the chosen one."""
    bench = ran(net, batches=[1, 4])
    assert [measurement.batch for measurement in bench.curve] == [1, 4]
    best = max(bench.curve, key=lambda measurement: measurement.examples_per_second)
    assert bench.batch == best.batch
    consistent(bench, net, dims={"n": bench.batch})


def test_a_fixed_batch_is_set_in_the_file(tmp_path):
    """A file with numbers for sizes: the first of each input that has it is the batch."""
    path = saved(tmp_path, with_weights(NET.replace("[n,", "[1,"), *WEIGHTS))
    bench = ran(path, batches=[2])
    assert bench.model.inputs[0].shape == (2, 8, 16, 16)
    assert bench.macs == 2 * count(path).macs == bench.profile.macs


def test_a_loop_is_counted_as_it_ran(tmp_path):
    """Five iterations, which only the inputs tell: 5 x 3 x 16."""
    path = saved(tmp_path, with_weights(LOOP, "w"))
    file = tmp_path / "values.npz"
    np.savez(file, x=np.ones((3, 4), np.float32), t=np.array(5))
    bench = ran(path, {"inputs_file": str(file)})
    assert bench.macs == bench.profile.macs == 240
    (inner,) = [row for row in bench.profile.kernels if row.macs]
    assert inner.calls == 5


def test_out_of_memory_ends_a_worker_and_not_the_command(net):
    """With less address space than Python needs for onnxruntime, nothing runs, and it is said."""
    with pytest.raises(NormalizeError, match="the model did not run"):
        ran(net, batches=[1 << 20], memory=300 << 20)


def test_a_limit_of_memory_is_named_where_nothing_fits(net, capsys):
    """`--memory-limit` reaches the run: the input alone has 8.6 GB."""
    assert main(["bench", net, "--batch", "1048576", "--memory-limit", "500M"]) == 2
    assert "--memory-limit" in capsys.readouterr().err


def test_a_model_that_cannot_run_is_one_message(tmp_path, capsys):
    """Counted it can be, but no runtime knows the operator of that domain."""
    path = saved(tmp_path, parsed("g (float[2,4] x) => (y) { y = com.microsoft.Odd (x) }"))
    assert main(["bench", path]) == 2
    err = capsys.readouterr().err
    first, second = [line for line in err.splitlines() if not line.startswith("warning")]
    assert first.startswith("error: the model did not run")
    assert "Odd" in first
    assert second.startswith("hint: ")


@pytest.mark.parametrize(
    "arguments",
    [["--batch", "0"], ["--batch", "many"], ["--memory-limit", "lots"], ["--batch-dim", "k"]],
)
def test_wrong_requests_are_refused(net, arguments, capsys):
    """Exit status 2, two lines."""
    extra = ["--batch", "2"] if "--batch-dim" in arguments else []
    assert main(["bench", net, *arguments, *extra]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_real_values_have_one_batch(net, tmp_path):
    """They are not stretched."""
    with pytest.raises(InputError, match="fixes the batch size"):
        ran(net, {"inputs_file": "x.npz"}, batches=[2])


def test_a_report_renders_again_to_the_same_bytes(net, tmp_path, capsys):
    """In every format; an impossible peak makes it exit with 1 and be named."""
    file = tmp_path / "bench.json"
    arguments = ["--dim", "n=1", "--seconds", "0.1", "--threads", "1", "--peak-tflops", "1e-6"]
    assert main(["bench", net, *arguments, "-o", str(file)]) == 1
    capsys.readouterr()
    assert main(["render", str(file), "--json"]) == 0
    assert capsys.readouterr().out == file.read_text()
    assert main(["render", str(file)]) == 0
    out = capsys.readouterr().out
    assert "of the peak" in out
    for suffix in ("md", "txt", "csv"):
        assert main(["render", str(file), "-o", str(tmp_path / f"b.{suffix}")]) == 0
    assert "exactly the count" in (tmp_path / "b.md").read_text()
    plain = json.loads(file.read_text())
    assert plain["profile"]["macs"] == plain["macs"]
    bench = Bench.from_json(file.read_bytes())
    assert isinstance(bench.measurement, Measurement)
    assert bench.peak == BenchPeak(rates={"float32": 1e6}, source="given")


def test_a_profile_is_read_with_the_graph_that_ran(net, tmp_path, capsys):
    """What --write-trace left is read by --trace, and joins to the same nodes."""
    trace, first, again = (tmp_path / name for name in ("t.json", "a.json", "b.json"))
    arguments = [net, "--dim", "n=1", "--peak-tflops", "1000"]
    quick = ["--seconds", "0.1", "--threads", "1"]
    assert main(["bench", *arguments, *quick, "--write-trace", str(trace), "-o", str(first)]) == 0
    assert main(["bench", *arguments, "--trace", str(trace), "-o", str(again)]) == 0
    original, two = (Bench.from_json(path.read_bytes()).profile for path in (first, again))
    assert {r.kernel: r.nodes for r in original.kernels} == {
        r.kernel: r.nodes for r in two.kernels
    }
    assert original.macs == two.macs
    capsys.readouterr()
    trace.write_text("{}")
    assert main(["bench", *arguments, "--trace", str(trace)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_names_alone_join_what_they_can(net):
    """Without the graph that ran, kernels are known by name: the unfused ones all."""
    from crossflops.bench.covers import guess_executed_graph, match_nodes_to_kernels
    from crossflops.frontends.onnx import OnnxFile
    from crossflops.frontends.onnx.reading import normalize_onnx_file
    from crossflops.ir.trace import Setting

    graph = normalize_onnx_file(OnnxFile(path=net, dims={"n": 1}), Setting())[0]
    ran = [(node.key, node.op.type) for node in graph.nodes]
    joined = match_nodes_to_kernels(graph.nodes, guess_executed_graph(graph.nodes, ran))
    assert [kernel.keys for kernel in joined.kernels] == [(node.key,) for node in graph.nodes]


def test_a_latency_that_no_batch_keeps_is_said(net):
    """Nothing runs within a nanosecond, and everything within an hour."""
    bench = ran(net, batches=[1, 2], max_latency_ms=1e-6)
    assert bench.goal == "no batch size reaches p99 within 1e-06 ms"
    bench = ran(net, batches=[1, 2], max_latency_ms=3.6e6)
    assert bench.goal.startswith("most examples per second with p99 within")
