"""Nodes that a converter wrote for one operation of its framework: together they stand for it."""

from collections.abc import Callable, Mapping

import msgspec

from crossflops.ir.graph import Attribute, Node, Op
from crossflops.ir.tensor import TensorSpec
from crossflops.ir.trace import Scalar
from crossflops.operators import rule


class Operation(msgspec.Struct, frozen=True):
    """An operation of a framework, as its own program has it."""

    op: Op
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    settings: Mapping[str, Scalar] = {}

    def as_node(self, key: str) -> Node:
        """The operation as a node that can be counted."""
        return Node(
            key=key,
            op=self.op,
            inputs=self.inputs,
            outputs=self.outputs,
            attrs={
                name: _attribute(one) for name, one in self.settings.items() if one is not None
            },
        )


def known(domain: str, name: str) -> bool:
    """Whether it is known what an operation of this framework costs."""
    return rule(Op(domain, name, 1)) is not None


def _attribute(value: Scalar) -> Attribute:
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]


def standing(
    nodes: tuple[Node, ...], operation: Callable[[Node], tuple[str, Operation] | None]
) -> tuple[Node, ...]:
    """The nodes of a graph, the first of each operation with what it costs, the others without.

    `operation` gives the identity and the operation that a node was written for, None where it
    stands for itself.
    """
    begun: set[str] = set()

    def placed(node: Node) -> Node:
        found = operation(node)
        if found is not None:
            identity, meant = found
            stands = () if identity in begun else (meant.as_node(node.key),)
            begun.add(identity)
            return msgspec.structs.replace(node, stands_for=stands)
        bodies = tuple(
            msgspec.structs.replace(body, nodes=standing(body.nodes, operation))
            for body in node.bodies
        )
        return msgspec.structs.replace(node, bodies=bodies) if bodies else node

    return tuple(placed(node) for node in nodes)
