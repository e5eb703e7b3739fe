"""Small graphs by hand, and the bytes that their nodes move."""

from crossflops.hardware.step_traffic import Formats, node_loads
from crossflops.ir.graph import Graph, Node, Op, TensorSpec
from crossflops.ledger.count import count, count_nodes_with_their_bodies

MODELS = ("unfused", "weights-once", "fused-ideal")


def tensor(name, *shape, role="", dtype="float32"):
    """A tensor."""
    return TensorSpec(name, dtype, shape, role)


def node(type_, inputs, outputs, **fields):
    """A node of ai.onnx, its key that of its first result."""
    return Node(
        key=outputs[0].name,
        op=Op("", type_, 17),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        **fields,
    )


def graph(nodes, inputs, outputs):
    """A graph."""
    return Graph(
        name="g", nodes=tuple(nodes), inputs=tuple(inputs), outputs=tuple(outputs),
        params=0, opset={"": 17},
    )  # fmt: skip


def moved(own, model, **formats):
    """Bytes by node, apart as (weights, cache, activations); nodes that move nothing left out."""
    ledger = count(own) if model == "unfused" else count_nodes_with_their_bodies(own)
    per_node = node_loads(own, ledger, model, Formats(**formats))
    return {
        load.node: (load.weights, load.cache, load.activations) for load in per_node if load.bytes
    }


X, W = tensor("x", 2, 4, role="input"), tensor("w", 4, 8, role="parameter")
Y, Z = tensor("y", 2, 8), tensor("z", 2, 8)
