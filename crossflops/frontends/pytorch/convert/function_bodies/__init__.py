"""ONNX functions for operators of PyTorch without an ONNX form, so that runtimes run the file.

In: a model of onnx_ir with nodes of the domain `torch.ops`. Out: the model with a function for
each node whose body is known, of the node's name: the operator written out for its shapes. A node
is counted by the operator's own rule. Its function may do other work, so a count of the file does
not look at it.
May import: frontends.
"""

from collections.abc import Mapping
from typing import Any

from crossflops.frontends.pytorch.convert.exporter import DOMAIN, OPSET
from crossflops.frontends.pytorch.convert.function_bodies import (
    complex_products,
    distances,
    histograms,
    products,
    recurrences,
)
from crossflops.frontends.pytorch.convert.function_bodies.writer import (
    Body,
    OnnxBodyWriter,
    describe_opaque_node,
)

_BODIES: Mapping[str, Body] = {
    **complex_products.BODIES,
    **distances.BODIES,
    **histograms.BODIES,
    **products.BODIES,
    **recurrences.BODIES,
}


def add_opaque_node_bodies(model: Any) -> None:
    """Add to an ONNX model a function for each opaque PyTorch node whose body is known, in place.

    Other nodes keep their name, which no function has: each function has a number, too.
    """
    calls: dict[str, int] = {}
    for node in list(model.graph.all_nodes()):
        if node.domain != DOMAIN or node.op_type not in _BODIES:
            continue
        number = calls.get(node.op_type, 0) + 1
        function = _write_function(node, str(number))  # one for each node, as shapes differ
        if function is not None:
            calls[node.op_type] = number
            node.overload = function.overload
            model.functions[function.identifier()] = function


def _write_function(node: Any, overload: str) -> Any:
    """Return the ONNX function that computes an opaque node; None if its body, or a shape, is
    unknown.
    """
    import onnx_ir as ir

    opaque = describe_opaque_node(node)
    if opaque is None:
        return None
    operands = [ir.Value(name=f"x{index}") for index in range(len(node.inputs))]
    write = OnnxBodyWriter()
    results = _BODIES[node.op_type](write, opaque, operands)
    if results is None:
        return None
    graph = ir.Graph(operands, results, nodes=write.nodes, opset_imports={"": OPSET})
    return ir.Function(DOMAIN, node.op_type, overload, graph=graph, attributes=[])
