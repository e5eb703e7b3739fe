"""Executed graphs, written by hand as onnxruntime makes them, joined to what was counted."""

import pytest

from crossflops.bench.covers import (
    ExecutedGraph,
    ExecutedNode,
    build_kernel_profile,
    match_nodes_to_kernels,
)
from crossflops.bench.kernels import KernelTime, KernelTimes
from crossflops.frontends.onnx.reading import normalize_onnx_bytes
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.report.bench import BenchPeak
from crossflops.report.bench_errors import kernel_time_errors
from tests.onnx_files import parsed


def graph_of(text):
    """The graph that is counted, of a model in ONNX's text format."""
    return normalize_onnx_bytes(parsed(text).SerializeToString(), "test", Setting())[0]


def level(*nodes, stored=()):
    """An executed level: name, operator, inputs, outputs of each node."""
    return ExecutedGraph(tuple(ExecutedNode(*node) for node in nodes), frozenset(stored))


def ops(graph, joined):
    """What each kernel stands for: its operators in the order of the graph."""
    types = {node.key: node.op.type for node in graph.nodes}
    order = list(types)
    return {
        " ".join(kernel.kernels): [types[key] for key in sorted(kernel.keys, key=order.index)]
        for kernel in joined.kernels
    }


RESIDUAL = (
    "g (float[1,4,6,6] x, float[4,4,1,1] w, float[4,4,1,1] v, float[4] s) => (y) { "
    "a = Conv (x, w) b = Relu (a) c = Conv (b, v) d = BatchNormalization (c, s, s, s, s) "
    "e = Add (d, b) f = Relu (e) p = Conv (f, w) y = Flatten (p) }"
)


def test_names_of_another_layout_are_those_of_kernels_and_readers():
    """What nchwc makes is named after what was there before Add and Relu were put in.

    That the second kernel ends at f is known from the third, a Conv like the one that reads f.
    """
    graph = graph_of(RESIDUAL)
    ran = level(
        ("b_nchwc", "Conv", ("x", "reorder"), ("t0",)),
        ("d_nchwc", "Conv", ("t0", "reorder_1", "fused", "t0"), ("t1",)),
        ("p_nchwc", "Conv", ("t1", "reorder_2"), ("t2",)),
        ("ReorderOutput", "ReorderOutput", ("t2",), ("p",)),
        ("Flatten_7", "Flatten", ("p",), ("y",)),
        stored=("reorder", "reorder_1", "reorder_2", "fused"),
    )
    joined = match_nodes_to_kernels(graph.nodes, ran)
    assert ops(graph, joined) == {
        "b_nchwc": ["Conv", "Relu"],
        "d_nchwc": ["Conv", "BatchNormalization", "Add", "Relu"],
        "p_nchwc": ["Conv"],
        "ReorderOutput": [],
        "Flatten_7": ["Flatten"],
    }
    assert joined[1:] == ((), (), ())


def test_a_product_between_reshapes_is_the_product_and_its_sum():
    """Gemm in the place of MatMul and Add, with two reshapes that were not there."""
    graph = graph_of(
        "g (float[2,3,4] x, float[4,5] w, float[5] b) => (y) "
        "{ m = MatMul (x, w) s = Add (m, b) y = Relu (s) }"
    )
    ran = level(
        ("in", "Reshape", ("x", "k"), ("r",)),
        ("MatMul_0/MatMulAddFusion", "Gemm", ("r", "w", "b"), ("q",)),
        ("out", "Reshape", ("q", "l"), ("s",)),
        ("Relu_2", "Relu", ("s",), ("y",)),
        stored=("k", "l"),
    )
    operators = ops(graph, match_nodes_to_kernels(graph.nodes, ran))
    assert operators["MatMul_0/MatMulAddFusion"] == ["MatMul", "Add"]
    assert operators["out"] == []
    assert operators["Relu_2"] == ["Relu"]


def test_kernels_of_which_nobody_knows_what_they_make_go_with_their_reader():
    """Two kernels with names of their own before one that makes y."""
    graph = graph_of("g (float[2,4] x, float[4,4] w) => (y) { m = MatMul (x, w) y = Tanh (m) }")
    ran = level(
        ("k1", "A", ("x",), ("t",)), ("k2", "B", ("t",), ("u",)), ("k3", "C", ("u",), ("y",))
    )
    assert ops(graph, match_nodes_to_kernels(graph.nodes, ran)) == {"k1 k2 k3": ["MatMul", "Tanh"]}


def test_what_was_folded_merged_or_never_ran_is_told_apart():
    """A product of constants, the same product twice, and one that only gives its shape."""
    graph = graph_of(
        "g (float[2,4] x, float[4,4] w) => (y, z) "
        "<float[4,4] k = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}> { c = MatMul (k, k) "
        "m = MatMul (x, c) n = MatMul (x, c) y = Add (m, n) o = MatMul (x, w) z = Shape (o) }"
    )
    ran = level(
        ("MatMul_1", "MatMul", ("x", "c"), ("m",)),
        ("Add_3", "Add", ("m", "m"), ("y",)),
        stored=("c", "z"),
    )
    joined = match_nodes_to_kernels(graph.nodes, ran)
    assert ops(graph, joined) == {"MatMul_1": ["MatMul"], "Add_3": ["Add"]}
    assert joined.folded == ("MatMul_0", "Shape_5")
    assert (joined.merged, joined.left) == (("MatMul_2",), ("MatMul_4",))


LOOP = (
    "g (float[4,4] x, float[4,4] w) => (y) "
    "<int64 t = {3}, bool go = {1}> { y = Loop (t, go, x) "
    "<body = b (int64 i, bool c, float[4,4] a) => (d, e) "
    "{ d = Identity (c) f = MatMul (a, w) e = Relu (f) }> }"
)


def test_bodies_are_joined_and_every_iteration_counts():
    """3 x 64 MACs belong to the kernel in the body, whose time is that of all its calls."""
    graph = graph_of(LOOP)
    ledger = count(graph)
    body = level(
        ("k", "FusedMatMul", ("a", "w"), ("e",)), ("Identity_0", "Identity", ("c",), ("d",))
    )
    ran = level(("Loop_0", "Loop", ("t", "go", "x"), ("y",), {"body": body}))
    times = KernelTimes(
        (KernelTime("Loop_0", "Loop", 1e-6, 1), KernelTime("k", "FusedMatMul", 3e-6, 3)), 5e-6, 1
    )
    profile = build_kernel_profile(
        times, match_nodes_to_kernels(graph.nodes, ran), ledger, None, "test"
    )
    rows = {row.kernel: row for row in profile.kernels}
    assert (rows["k"].macs, rows["k"].does) == (192, "MatMul + Relu")
    assert rows["k"].rate == 2 * 192 / 3e-6
    assert rows["Loop_0"].macs == 0
    assert profile.macs == ledger.total.macs == 192
    assert profile.outside_seconds == pytest.approx(1e-6)
    assert [row.why for row in profile.aside] == ["no event of the trace shows that they ran"]


def test_a_loop_that_was_opened_belongs_to_what_makes_its_result():
    """With no kernel of a loop, all that is in it goes with the kernel that makes y."""
    graph = graph_of(LOOP)
    ran = level(("unrolled", "MatMul", ("x", "w"), ("y",)))
    times = KernelTimes((KernelTime("unrolled", "MatMul", 3e-6, 1),), 5e-6, 1)
    profile = build_kernel_profile(
        times, match_nodes_to_kernels(graph.nodes, ran), count(graph), None, "test"
    )
    assert [row.macs for row in profile.kernels] == [192]


def test_a_rate_above_the_peak_is_an_error():
    """128 MACs in a microsecond are 256 MFLOP/s, of a peak of 200: 128 %."""
    graph = graph_of("g (float[2,4] x, float[4,16] w) => (y) { y = MatMul (x, w) }")
    joined = match_nodes_to_kernels(graph.nodes, level(("MatMul_0", "MatMul", ("x", "w"), ("y",))))
    times = KernelTimes((KernelTime("MatMul_0", "MatMul", 1e-6, 1),), 2e-6, 1)
    low, high = (BenchPeak(rates={"float32": rate}, source="given") for rate in (200e6, 512e6))
    profile = build_kernel_profile(times, joined, count(graph), low, "test")
    assert ["128 % of the peak" in text for text in kernel_time_errors(profile, low)] == [True]
    profile = build_kernel_profile(times, joined, count(graph), high, "test")
    assert profile.kernels[0].share == 0.5
    assert list(kernel_time_errors(profile, high)) == []


def test_kernels_longer_than_their_run_are_an_error():
    """3 µs of kernels in a run of 2."""
    graph = graph_of("g (float[2,4] x) => (y) { y = Relu (x) }")
    joined = match_nodes_to_kernels(graph.nodes, level(("Relu_0", "Relu", ("x",), ("y",))))
    times = KernelTimes((KernelTime("Relu_0", "Relu", 3e-6, 1),), 2e-6, 1)
    profile = build_kernel_profile(times, joined, count(graph), None, "test")
    assert ["50.0 % longer" in text for text in kernel_time_errors(profile, None)] == [True]


def test_a_peak_of_another_precision_is_no_denominator():
    """float64 against the float32 peak: a rate, and no share."""
    graph = graph_of("g (double[2,4] x, double[4,16] w) => (y) { y = MatMul (x, w) }")
    joined = match_nodes_to_kernels(graph.nodes, level(("MatMul_0", "MatMul", ("x", "w"), ("y",))))
    times = KernelTimes((KernelTime("MatMul_0", "MatMul", 1e-6, 1),), 2e-6, 1)
    peak = BenchPeak(rates={"float32": 1e6}, source="given")
    (row,) = build_kernel_profile(times, joined, count(graph), peak, "test").kernels
    assert (row.precision, row.rate, row.share) == ("float64", 256e6, None)


@pytest.mark.parametrize(
    ("op", "share"),
    [("MatMulInteger", 0.25), ("MatMul", 0.5)],
)
def test_a_kernel_of_floats_is_no_kernel_of_integers(op, share):
    """128 MACs of bytes in a microsecond: a quarter of 1024 MOP/s, or half of 512 MFLOP/s."""
    graph = graph_of(
        "g (uint8[2,4] x, uint8[4,16] w) => (int32[2,16] y) { y = MatMulInteger (x, w) }"
    )
    joined = match_nodes_to_kernels(
        graph.nodes, level(("MatMulInteger_0", op, ("x", "w"), ("y",)))
    )
    times = KernelTimes((KernelTime("MatMulInteger_0", op, 1e-6, 1),), 2e-6, 1)
    peak = BenchPeak(rates={"float32": 512e6, "int8": 1024e6}, source="given")
    (row,) = build_kernel_profile(times, joined, count(graph), peak, "test").kernels
    assert (row.macs, row.share) == (128, share)
