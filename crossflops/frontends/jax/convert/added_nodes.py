"""Add nodes that make an ONNX model compute exactly the function; they are not counted.

jax2onnx writes `dynamic_slice` as a Slice, which cuts off where JAX moves the start back inside,
`round` away from zero as Round, which goes to the even one of two numbers, and windows over four
axes as a pool that onnxruntime refuses, though they move along two of them. The nodes that are
added here stand for nothing: a count of the file is that of the function.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import numpy as np

from crossflops.frontends.jax.convert.lowering import Equation
from crossflops.ir.graph import ConversionAnnotation, Graph, Node

_ADDED = "crossflops_added_"  # before the number of a node, and of what it makes
_AWAY = 0  # jax.lax.RoundingMethod.AWAY_FROM_ZERO
_MOST_AXES = 3  # of a pool in onnxruntime: onnxruntime/core/providers/cpu/nn/pool.cc


def add_nodes_to_make_runnable(
    model: Any, equations: Sequence[Equation], origins: Mapping[str, int], to_run: bool
) -> dict[str, int]:
    """Add nodes to a model, in place, with which it computes exactly its JAX function; return the
    number of the equation for each added node, by name.

    `origins` are the numbers of equations by the names of nodes; those of the added nodes are
    returned. For a model that is not `to_run`, only slices in loops are completed: their count
    depends on the start of each step.
    """
    add = AddedNodeWriter()
    added: dict[str, int] = {}
    for node in list(model.graph.all_nodes()):
        number = origins.get(node.name)
        if number is None or not (to_run or node.graph is not model.graph):
            continue
        equation = equations[number]
        mend = _MENDS.get((equation.primitive, node.op_type))
        if mend is not None and (to_run or mend is _add_start_clamp):
            before = len(add.nodes)
            mend(add, node, equation)
            added |= dict.fromkeys(add.nodes[before:], number)
    return added


def is_added_node_key(key: str) -> bool:
    """Return whether a node, by its key, was added only to make the model run."""
    return key.startswith(_ADDED)


def count_added_nodes_as_nothing(graph: Graph) -> Graph:
    """Return the graph with nodes that were added only to make it run counted as nothing."""
    return msgspec.structs.replace(graph, nodes=tuple(_mark_added_nodes(graph.nodes)))


def _mark_added_nodes(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield nodes; those that were only added to make the model run are counted as nothing."""
    for node in nodes:
        if is_added_node_key(node.key):
            nothing = ConversionAnnotation(stands_for=())
            yield msgspec.structs.replace(node, conversion=nothing)
            continue
        bodies = tuple(
            msgspec.structs.replace(body, nodes=tuple(_mark_added_nodes(body.nodes)))
            for body in node.bodies
        )
        yield msgspec.structs.replace(node, bodies=bodies) if bodies else node


class AddedNodeWriter:
    """A writer of additional nodes with unique names; `nodes` lists the names."""

    def __init__(self) -> None:
        """Begin with no nodes, and number them from 1."""
        self.nodes: list[str] = []
        self._number = 0

    def insert_nodes_before(self, node: Any, *new_nodes: Any) -> None:
        """Insert the nodes `new_nodes` before `node` in its graph."""
        node.graph.insert_before(node, new_nodes)

    def insert_nodes_after(self, node: Any, *new_nodes: Any) -> None:
        """Insert the nodes `new_nodes` after `node` in its graph."""
        node.graph.insert_after(node, new_nodes)

    def make_node(
        self, operator: str, operands: Sequence[Any], like: Any, shape: Any, **more: Any
    ) -> Any:
        """Return a new node, not inserted; its result has this shape and the type of `like`."""
        import onnx_ir as ir

        name = self._new_node_name()
        self.nodes.append(name)
        result = ir.Value(name=name, type=like.type, shape=ir.Shape(shape))
        attributes = ir.convenience.convert_attributes(more)
        return ir.Node("", operator, operands, attributes, outputs=[result], name=name)

    def store_constant(self, node: Any, numbers: Any) -> Any:
        """Store numbers in the graph of `node`, and return them as a value."""
        import onnx_ir as ir

        name = self._new_node_name()
        stored = ir.tensor(numbers, name=name)
        value = ir.Value(
            name=name, const_value=stored, type=ir.TensorType(stored.dtype), shape=stored.shape
        )
        node.graph.register_initializer(value)
        return value

    def _new_node_name(self) -> str:
        """Return a new unique name for an added node."""
        self._number += 1
        return f"{_ADDED}{self._number}"


def _add_start_clamp(writer: AddedNodeWriter, node: Any, equation: Equation) -> None:
    """Add nodes before a Slice that clamp its start indices as JAX's dynamic_slice does."""
    starts, ends = node.inputs[1], node.inputs[2].producer()
    full, part = equation.inputs[0].shape, equation.outputs[0].shape
    if full is None or part is None or ends is None or ends.op_type != "Add":
        return
    last = [size - width for size, width in zip(full, part, strict=True)]
    zeros = writer.store_constant(node, np.zeros(len(last), np.int64))
    at_least = writer.make_node("Max", [starts, zeros], starts, [len(last)])
    limits = writer.store_constant(node, np.array(last, np.int64))
    at_most = writer.make_node("Min", [at_least.outputs[0], limits], starts, [len(last)])
    writer.insert_nodes_before(ends, at_least, at_most)
    for index, value in enumerate(ends.inputs):
        if value is starts:
            ends.replace_input_with(index, at_most.outputs[0])
    node.replace_input_with(1, at_most.outputs[0])


def _add_rounding_away_from_zero(writer: AddedNodeWriter, node: Any, equation: Equation) -> None:
    """Add nodes after a Round that round halves away from zero, if the JAX equation does so."""
    import onnx_ir as ir

    if equation.settings.get("rounding_method") != _AWAY:
        return
    (x,), (rounded,) = node.inputs, node.outputs
    shape = equation.outputs[0].shape
    half = writer.store_constant(node, np.array(0.5, rounded.type.dtype.numpy()))
    gap = writer.make_node("Sub", [x, rounded], rounded, shape)
    width = writer.make_node("Abs", [gap.outputs[0]], rounded, shape)
    truth = ir.Value(type=ir.TensorType(ir.DataType.BOOL))
    halfway = writer.make_node("Equal", [width.outputs[0], half], truth, shape)
    sign = writer.make_node("Sign", [x], rounded, shape)
    more = writer.make_node("Mul", [sign.outputs[0], half], rounded, shape)
    away = writer.make_node("Add", [x, more.outputs[0]], rounded, shape)
    chosen = writer.make_node(
        "Where", [halfway.outputs[0], away.outputs[0], rounded], rounded, shape
    )
    _redirect_readers(rounded, chosen.outputs[0], [gap, chosen])
    writer.insert_nodes_after(node, gap, width, halfway, sign, more, away, chosen)


def _restrict_pool_to_moved_axes(writer: AddedNodeWriter, node: Any, equation: Equation) -> None:
    """Let a pool run only over the axes that its window moves along, by added nodes.

    The other axes become one axis of channels.
    """
    sizes, results = equation.inputs[0].shape, equation.outputs[0].shape
    if sizes is None or results is None or len(sizes) <= _MOST_AXES:
        return
    rank = len(sizes)
    along = {
        name: list(node.attributes[name].as_ints()) if name in node.attributes else [usual] * rank
        for name, usual in (("kernel_shape", 1), ("strides", 1), ("dilations", 1))
    }
    pads = list(node.attributes["pads"].as_ints()) if "pads" in node.attributes else [0] * 2 * rank
    if "auto_pad" in node.attributes and node.attributes["auto_pad"].as_string() != "NOTSET":
        return
    moved = [
        axis
        for axis in range(rank)
        if sizes[axis] != results[axis]
        or along["kernel_shape"][axis] != 1
        or pads[axis]
        or pads[rank + axis]
    ] or [0]
    if len(moved) > _MOST_AXES:
        return
    fixed_axes = [axis for axis in range(rank) if axis not in moved]
    order = [0, 1, *(2 + axis for axis in (*fixed_axes, *moved))]
    (x,), (pooled,) = node.inputs, node.outputs
    channels = int(np.prod([sizes[axis] for axis in fixed_axes]))
    narrow = [1, channels, *(sizes[axis] for axis in moved)]
    turned = writer.make_node(
        "Transpose", [x], x, [1, 1, *(sizes[axis - 2] for axis in order[2:])], perm=order
    )
    flat = writer.make_node(
        "Reshape",
        [turned.outputs[0], writer.store_constant(node, np.array(narrow, np.int64))],
        x,
        narrow,
    )
    writer.insert_nodes_before(node, turned, flat)
    node.replace_input_with(0, flat.outputs[0])
    _keep_attributes_of_axes(node, moved, along, pads if "pads" in node.attributes else None)
    wide = [1, 1, *(results[axis - 2] for axis in order[2:])]
    separate = writer.make_node(
        "Reshape", [pooled, writer.store_constant(node, np.array(wide, np.int64))], pooled, wide
    )
    back = [order.index(index) for index in range(rank + 2)]
    result = writer.make_node(
        "Transpose", [separate.outputs[0]], pooled, [1, 1, *results], perm=back
    )
    _redirect_readers(pooled, result.outputs[0], [separate])
    _declare_shape(pooled, [1, channels, *(results[axis] for axis in moved)])
    writer.insert_nodes_after(node, separate, result)


def _keep_attributes_of_axes(
    node: Any, moved: Sequence[int], along: Mapping[str, list[int]], pads: list[int] | None
) -> None:
    """Keep only the values of the axes `moved` in a pool node's attributes, in place."""
    import onnx_ir as ir

    for name, numbers in along.items():
        if name in node.attributes:
            node.attributes[name] = ir.AttrInt64s(name, [numbers[axis] for axis in moved])
    if pads is not None:
        ends = (*moved, *(len(pads) // 2 + axis for axis in moved))
        node.attributes["pads"] = ir.AttrInt64s("pads", [pads[index] for index in ends])


def _declare_shape(value: Any, sizes: Sequence[int]) -> None:
    """Declare these sizes as the shape of a value."""
    import onnx_ir as ir

    value.shape = ir.Shape(sizes)


def _redirect_readers(value: Any, other: Any, readers: Sequence[Any]) -> None:
    """Let all nodes except `readers`, and graph outputs, read `other` instead of `value`."""
    uses = [(user, index) for user, index in value.uses() if user not in readers]
    for user, index in uses:
        user.replace_input_with(index, other)
    graph = value.producer().graph
    for index, output in enumerate(graph.outputs):
        if output is value:
            value.name, other.name = other.name, value.name
            graph.outputs[index] = other


_Mend: TypeAlias = Callable[[AddedNodeWriter, Any, Equation], None]
# By the primitive of the equation and the operator that jax2onnx wrote for it.
_MENDS: dict[tuple[str, str], _Mend] = {
    ("dynamic_slice", "Slice"): _add_start_clamp,
    ("round", "Round"): _add_rounding_away_from_zero,
    ("reduce_window_max", "MaxPool"): _restrict_pool_to_moved_axes,
    ("reduce_window_sum", "AveragePool"): _restrict_pool_to_moved_axes,
}
