"""The framework operations for which a converter wrote nodes, with operands taken from
the graph.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from crossflops.ir.graph import Node, TensorSpec, TrainingAnnotation
from crossflops.ledger.training.flow import GradientFlow
from crossflops.ledger.training.states import GradientStates, is_differentiable_tensor

_OPERANDS = (
    "it is unknown which operands need gradients; all operands are assumed to have equal shapes"
)


def source_operations_on_graph_tensors(
    flow: GradientFlow, node: Node, sibling_nodes: Sequence[Node], values: GradientStates
) -> Iterable[Node]:
    """Return the framework operations for which this node was written, with the graph's tensors as
    their operands; the node itself if there are none.

    `sibling_nodes` are the nodes that were written for the same operation. A converter says which
    nodes, not which of their operands is which: those of one shape are told apart only where some
    have gradients and some have none.
    """
    operations = node.conversion.stands_for
    if operations is None:
        return (node,)
    made = {spec.name for part in sibling_nodes for spec in part.outputs if spec is not None}
    provided = {
        spec.name: spec
        for part in sibling_nodes
        for spec in part.inputs
        if spec is not None and spec.name not in made and is_differentiable_tensor(spec)
    }

    def with_operands_of_same_shape(operation: Node) -> Node:
        """Return the operation with its operands replaced by tensors of the graph that have the
        same shape.
        """
        inputs, unsure = list(operation.inputs), False
        for index, spec in enumerate(inputs):
            if spec is None or not is_differentiable_tensor(spec):
                continue
            # complex numbers have an axis of two parts
            shapes = spec.shape, (*(spec.shape or ()), 2)
            similar = [stored for stored in provided.values() if stored.shape in shapes]
            similar = similar or list(provided.values())
            graded = [
                stored for stored in similar if flow.value_state(stored, node, values).trained
            ]
            # the converter's own constants have none
            unsure |= (
                0 < len(graded) < sum(_has_same_shape_and_type(spec, other) for other in inputs)
            )
            chosen = (graded or similar)[index % len(graded or similar)] if similar else spec
            inputs[index] = replace(spec, name=chosen.name, role=chosen.role)
        return replace(
            operation,
            inputs=tuple(inputs),
            call=node.call,
            path=node.path,
            training=TrainingAnnotation(
                checkpoint=node.training.checkpoint,
                own_backward=_OPERANDS if unsure else node.training.own_backward,
            ),
        )

    return map(with_operands_of_same_shape, operations)


def _has_same_shape_and_type(spec: TensorSpec, other: TensorSpec | None) -> bool:
    """Return whether the other tensor has the shape of `spec` and elements that can have
    gradients.
    """
    return other is not None and is_differentiable_tensor(other) and other.shape == spec.shape
