"""Kernels under the roofline, by hand: what crosses the edge of a fused kernel."""

import pytest

from crossflops.hardware.roofline import Scenario, kernel_bounds, node_bounds
from crossflops.hardware.step_traffic import Formats, node_loads
from crossflops.ir.graph import Graph, Node, Op, TensorSpec
from crossflops.ir.roofline import Ceiling
from crossflops.ledger.count import count
from crossflops.report.bench import KernelRow

RUN = Scenario(
    label="", ceiling=Ceiling(name="m", peaks={"fp32": 100.0}, bandwidth=10.0), examples=1
)


def tensor(name, *shape, role=""):
    """A tensor of four bytes an element."""
    return TensorSpec(name, "float32", shape, role)


def node(type_, inputs, output):
    """A node of ai.onnx, its key that of its result."""
    return Node(key=output.name, op=Op("", type_, 17), inputs=tuple(inputs), outputs=(output,))


X, W = tensor("x", 2, 4, role="input"), tensor("w", 4, 8, role="parameter")
Y, Z, U = tensor("y", 2, 8), tensor("z", 2, 8), tensor("u", 2, 8)
NODES = (node("MatMul", [X, W], Y), node("Relu", [Y], Z), node("Add", [Y, Z], U))
GRAPH = Graph(name="g", nodes=NODES, inputs=(X,), outputs=(U,), params=32, opset={"": 17})


def row(*nodes, seconds=100.0):
    """A kernel that stands for nodes."""
    return KernelRow(
        kernel="k", op="", seconds=seconds, calls=1, nodes=nodes, does="", macs=0, flops=0, bytes=0
    )


def bounds(*rows):
    """The kernels on a machine of 100 FLOP/s and 10 B/s."""
    ledger = count(GRAPH)
    nodes = node_bounds(node_loads(GRAPH, ledger, "unfused", Formats()), RUN)
    return kernel_bounds(GRAPH, ledger, nodes, rows, RUN, Formats())


@pytest.mark.parametrize(
    ("nodes", "moved"),
    [
        (("y",), 32 + 128 + 64),
        (("y", "z"), 32 + 128 + 64 + 64),  # y is read by Add too: it leaves the kernel
        (("y", "z", "u"), 32 + 128 + 64),
        (("z", "u"), 64 + 64),
    ],
)
def test_bytes_of_a_kernel(nodes, moved):
    """x has 32 bytes, w 128, y, z and u 64 each; 2 x 2 x 4 x 8 = 128 FLOPs of the product."""
    (bound,) = bounds(row(*nodes))
    work = 128 if "y" in nodes else 0
    assert (bound.bytes, bound.work) == (moved, work)
    assert bound.seconds == max(work / 100, moved / 10)
    assert bound.rate == work / 100.0
    assert bound.efficiency == bound.seconds / 100.0
    assert bound.intensity == work / moved


def test_kernels_of_no_node_and_of_no_time_are_left_out():
    """A runtime puts in reorderings of its own."""
    assert bounds(row(), row("absent"), row("y", seconds=0.0)) == ()
