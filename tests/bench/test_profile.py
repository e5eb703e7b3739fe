"""What a profile tells of a graph: written by hand as onnxruntime writes it."""

import importlib.util

import pytest

from crossflops import count
from crossflops.bench import runner
from crossflops.errors import NormalizeError
from crossflops.ir.measurement import SteadyTensor
from tests.onnx_files import parsed, saved

MODEL = (
    "g (float[2] x, bool c, int64 t) => (y, z) <bool go = {1}> { n = NonZero (x) "
    "y = Loop (t, go, x) <body = b (int64 i, bool k, float[2] a) => (d, e) "
    "{ d = Identity (k) o = Constant <value = float {1}> () e = Add (a, o) }> "
    "z = If (c) <then_branch = p () => (q) { q = Relu (y) }, "
    "else_branch = r () => (s) { s = Constant <value = float[2] {1, 2}> () }> }"
)


def kernel(name, *shapes):
    """An event as the runtime writes it."""
    made = [{"float": list(shape)} for shape in shapes]
    return {"cat": "Node", "name": f"{name}_kernel_time", "args": {"output_type_shape": made}}


def of(trace):
    """Values, trips and branches that follow from a profile of the model."""
    graph = parsed(MODEL).graph
    runner.give_nodes_new_names(graph)
    ran = list(runner.profile_events(trace))
    runs = runner.count_node_runs(ran)
    return (
        runner.steady_tensors(graph, ran),
        runner.constant_trip_counts(graph, runs),
        runner.constant_branches(graph, runs),
    )


BODY = [kernel("n1.0.0", ()), kernel("n1.0.2", (2,))]


def test_a_run_tells_shapes_iterations_and_branches():
    """Three runs of the body, the first branch, and the size of what NonZero found."""
    session = {"cat": "Session", "name": "model_run"}
    trace = [session, kernel("n0", (1, 2)), *BODY * 3, kernel("n1", (2,)), kernel("n2.0.0", (2,))]
    values, trips, branches = of([*trace, kernel("n2", (2,))])
    assert values["n"] == SteadyTensor("float32", (1, 2))
    assert values["e"] == SteadyTensor("float32", (2,))
    assert (trips, branches) == ({"y": 3}, {"z": "then"})


def test_a_branch_of_constants_leaves_no_event():
    """The If ran and its first branch did not, so it was the other."""
    _, trips, branches = of([kernel("n1", (2,)), kernel("n2", (2,))])
    assert (trips, branches) == ({"y": 0}, {"z": "else"})


def test_what_differs_within_a_run_is_not_told():
    """Another shape with every iteration has none; the count of iterations stays."""
    trace = [BODY[0], kernel("n1.0.2", (2,)), BODY[0], kernel("n1.0.2", (3,)), kernel("n1", (3,))]
    values, trips, _ = of(trace)
    assert "e" not in values
    assert trips == {"y": 2}


def test_a_kernel_of_the_runtimes_own_leaves_silence_open():
    """It may stand for a node of the body or of the branch: what did not run is not known then."""
    ran = [kernel("n1", (2,)), kernel("n2", (2,))]
    assert of([*ran, kernel("inlined_1", (2,))])[1:] == ({}, {})
    trace = [*BODY * 2, kernel("inlined_1", (2,)), *ran, kernel("n2.0.0", (2,))]
    assert of(trace)[1:] == ({"y": 2}, {"z": "then"})


def test_branches_that_take_turns_are_not_told():
    """An If that ran three times, and its first branch twice."""
    trace = [kernel("n2", (2,))] * 3 + [kernel("n2.0.0", (2,))] * 2
    assert of(trace)[2] == {}


@pytest.mark.parametrize("trace", [[], [{"cat": "Node", "name": "other"}], [kernel("unknown")]])
def test_what_did_not_run_is_not_told(trace):
    """Neither a size nor an iteration is made up."""
    assert of(trace) == ({}, {}, {})


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is not None, reason="it is there")
def test_without_the_runtime_two_lines_say_what_to_install(tmp_path):
    """What is missing, and the command."""
    path = saved(tmp_path, parsed(MODEL))
    with pytest.raises(NormalizeError, match="onnxruntime is not installed") as caught:
        count(path, observe=True)
    assert caught.value.hint == "pip install 'crossflops[runtime]'"
