"""What jax2onnx writes, tidied: no biases that nobody adds, no products that ONNX has not."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from crossflops.normalize.jax.equations import noted

_SUM = "reduce_window_sum"
_BIASED = {"Gemm": 2, "Conv": 2, "ConvTranspose": 2, "LayerNormalization": 2}


def tidy(model: Any, primitives: Sequence[str]) -> None:
    """Change the nodes of a model (of onnx_ir) and its subgraphs; what they compute stays.

    `primitives` are those of the equations that the nodes were made for.

    * A bias of zeros goes: no equation adds it.
    * A Dropout that is told not to drop is told nothing.
    * A Gemm of a vector, which ONNX does not have, is a MatMul and an Add.
    * A transposition of stored weights is done: they lie in another order, nothing is computed.
    * Windows that are summed by a Conv with ones, in which nothing is multiplied, are averaged.
    """
    for node in list(model.graph):
        if node.op_type == "Transpose" and node.inputs[0].is_initializer():
            _turn(node)
    for node in list(model.graph.all_nodes()):
        place = _BIASED.get(node.op_type)
        if place is not None and len(node.inputs) > place and _is_made(node.inputs[place]):
            node.replace_input_with(place, None)
        if node.op_type == "Dropout" and len(node.inputs) > 2 and _is_made(node.inputs[2]):
            node.replace_input_with(2, None)
        if node.op_type == "Gemm" and _rank(node.inputs[0]) == 1:
            _as_product(node)
        number = noted(node)
        if node.op_type == "Conv" and number is not None and primitives[number] == _SUM:
            _as_average(node)


def _is_made(value: Any) -> bool:
    """Whether all of it is 0: so jax2onnx fills the place of a bias where there is none.

    The variables of a module are other numbers here, whatever they are in the caller's.
    """
    held = value.const_value if value is not None else None
    return held is not None and not np.any(held.numpy())


def _turn(node: Any) -> None:
    import onnx_ir as ir

    result, weight = node.outputs[0], node.inputs[0]
    order = node.attributes.get("perm")
    turned = np.transpose(weight.const_value.numpy(), order and order.as_ints())
    held = ir.tensor(turned, dtype=weight.const_value.dtype, name=result.name)
    stored = ir.Value(
        name=result.name, const_value=held, type=weight.type, shape=ir.Shape(turned.shape)
    )
    if result.is_graph_output():
        return
    graph = node.graph
    ir.convenience.replace_all_uses_with(result, stored)
    graph.remove(node, safe=True)
    graph.register_initializer(stored)
    if not weight.uses():
        del graph.initializers[weight.name]


def _rank(value: Any) -> int | None:
    return len(value.shape) if value is not None and value.shape is not None else None


def _as_product(node: Any) -> None:
    import onnx_ir as ir

    left, right, *rest = node.inputs
    result = node.outputs[0]
    notes = dict(node.metadata_props)
    product = ir.Node("", "MatMul", [left, right], num_outputs=1, metadata_props=dict(notes))
    made = [product]
    product.outputs[0].name = f"{result.name}_product"
    if rest and rest[0] is not None:
        total = ir.Node(
            "", "Add", [product.outputs[0], rest[0]], num_outputs=1, metadata_props=dict(notes)
        )
        made.append(total)
    _replace(node, made)


def _as_average(node: Any) -> None:
    """An AveragePool that counts padding, times the size of the window."""
    import onnx_ir as ir

    kernel = [int(size) for size in node.inputs[1].shape[2:]]
    attributes = [one for one in node.attributes.values() if one.name != "group"]
    kept = [one for one in attributes if one.name != "kernel_shape"]
    pool = ir.Node(
        "",
        "AveragePool",
        [node.inputs[0]],
        [*kept, ir.AttrInt64s("kernel_shape", kernel), ir.AttrInt64("count_include_pad", 1)],
        num_outputs=1,
        metadata_props=dict(node.metadata_props),
    )
    pool.outputs[0].name = f"{node.outputs[0].name}_average"
    dtype = node.outputs[0].type.dtype
    size = ir.tensor(
        np.array(np.prod(kernel), dtype.numpy()), dtype=dtype, name=f"{node.outputs[0].name}_size"
    )
    held = ir.Value(
        name=size.name, const_value=size, type=ir.TensorType(dtype), shape=ir.Shape(())
    )
    node.graph.register_initializer(held)
    times = ir.Node(
        "",
        "Mul",
        [pool.outputs[0], held],
        num_outputs=1,
        metadata_props=dict(node.metadata_props),
    )
    _replace(node, [pool, times])


def _replace(node: Any, made: list[Any]) -> None:
    """Put nodes in place of one: all results have its shape, the last one its name."""
    import onnx_ir as ir

    result = node.outputs[0]
    for one in made:
        one.outputs[0].shape, one.outputs[0].type = result.shape, result.type
    made[-1].outputs[0].name = result.name
    ir.convenience.replace_nodes_and_values(
        node.graph, node, [node], made, [result], [made[-1].outputs[0]]
    )
