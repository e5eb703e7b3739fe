"""Build nodes and graphs by hand, in one line each."""

from collections.abc import Sequence
from typing import TypeAlias

import onnx

from crossflops.ir.graph import Attribute, Graph, Node, Op, TensorSpec

Operand: TypeAlias = TensorSpec | tuple[int, ...] | str | None


def spec_from_shape(
    shape: tuple[int, ...] | None, dtype: str = "float32", name: str = "x"
) -> TensorSpec:
    """Return a tensor spec with this shape, element type and name."""
    return TensorSpec(name, dtype, shape)


def to_node(
    op: str, inputs: Sequence[Operand], outputs: Sequence[Operand], /, **attrs: Attribute
) -> Node:
    """Return a node of an operator such as "Relu" or "Relu-14"; inputs and outputs are given as
    specs, shapes or texts.

    `op` is "Conv", "Softmax-11" for an older version (the newest one otherwise), or
    "domain::Type". A tensor is a shape (then it is float32, with a name of its own), a
    string such as "2x3:int64" or ":bool" for a scalar, a spec, or None when it is left out.
    """
    domain, _, type_ = op.rpartition("::")
    name, _, since = type_.partition("-")
    version = int(since) if since else _newest_op_version(domain, name)
    return Node(
        key=name,
        op=Op(domain, name, version),
        inputs=tuple(_operand_spec(provided, f"in{i}") for i, provided in enumerate(inputs)),
        outputs=tuple(_operand_spec(provided, f"out{i}") for i, provided in enumerate(outputs)),
        attrs=attrs,
    )


def graph_from_nodes(*nodes: Node) -> Graph:
    """Return a graph with these nodes, in this order, without inputs and outputs."""
    return Graph(name="graph", nodes=nodes, inputs=(), outputs=(), params=0, opset={})


def _operand_spec(provided: Operand, name: str) -> TensorSpec | None:
    """Return a tensor spec from a spec, a shape, or a text such as "2x3:float16"; None for an
    omitted operand.
    """
    if provided is None or isinstance(provided, TensorSpec):
        return provided
    if isinstance(provided, tuple):
        return spec_from_shape(provided, name=name)
    dims, _, dtype = provided.partition(":")
    return spec_from_shape(tuple(int(d) for d in dims.split("x") if d), dtype or "float32", name)


def _newest_op_version(domain: str, name: str) -> int:
    """Return the newest version of an ONNX operator, 1 if ONNX does not know it."""
    try:
        return int(onnx.defs.get_schema(name, domain=domain).since_version)
    except onnx.defs.SchemaError:
        return 1
