"""What a TensorFlow graph says of gradients: which tensors are variables, and what is run again.

tf2onnx keeps the names of variables, but for those that a handler writes anew: a bias that moves
into a convolution, the weights of a recurrent layer. These are found by their layer and size.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from inspect import getclosurevars
from math import prod
from typing import Any

import msgspec

from crossflops.frontends.converted import everywhere, with_weights
from crossflops.frontends.tensorflow.layers import LayerTable
from crossflops.ir.graph import WEIGHT_MISSING, Checkpoint, Graph, Node, TensorSpec

_OWN = "in a tf.custom_gradient, whose backward is code of its own: counted as derived"
_WITHIN = "a checkpoint within another one runs again by itself, too: counted as run again once"
_PRODUCTS = ("MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "LSTM", "GRU", "RNN")


def distinct(names: Iterable[str]) -> list[str]:
    """The names, a number behind those that were there before: "Variable", "Variable_2"."""
    times: Counter[str] = Counter()
    different = []
    for name in names:
        times[name] += 1
        different.append(name if times[name] == 1 else f"{name}_{times[name]}")
    return different


def with_gradients(graph: Graph, function: Any, frozen: Any, layers: LayerTable) -> Graph:
    """The graph with its weights called as the layers call them, and what has its own gradient.

    `function` is the traced one, `frozen` the graph that was converted.
    """
    names = _variables(function, layers)
    stored = {op.outputs[0].name for op in frozen.get_operations() if op.type == "Const"}
    read = {name for name in stored if frozen.get_tensor_by_name(name).consumers()}
    anew, lost = _written_anew(graph, names, stored, layers)
    graph = with_weights(graph, names | anew)
    missing = {names[constant] for constant in names if constant in read} & lost
    own, again = _with_own_gradients(function.graph)
    return msgspec.structs.replace(graph, nodes=tuple(_marked(graph.nodes, own, again, missing)))


def _variables(function: Any, layers: LayerTable) -> dict[str, str]:
    """The names of parameters by those of the constants that variables become.

    tensorflow/python/framework/convert_to_constants.py: a constant is called as the placeholder
    by which the function captures the variable.
    """
    names = {}
    held = {id(variable.handle): variable for variable in function.graph.variables}
    for outer, placeholder in function.graph.captures:
        name = layers.weights.get(id(held.get(id(outer))))
        if name is not None:
            names[placeholder.name] = name
    return names


def _written_anew(
    graph: Graph, names: dict[str, str], stored: set[str], layers: LayerTable
) -> tuple[dict[str, str], set[str]]:
    """The names of parameters by those of tensors that tf2onnx made of them, and what is left."""
    nodes = list(everywhere(graph.nodes))
    present = {spec.name for node in nodes for spec in node.inputs if spec is not None}
    lost = {name for constant, name in names.items() if constant not in present}
    shapes = {
        f"{path}.{held.name}".removeprefix("."): (path, held.shape)
        for row in layers.rows
        for path in row.names
        for held in row.params
    }
    anew: dict[str, str] = {}
    for node, spec in _unknown(nodes, stored):
        near = [
            name for name in sorted(lost) if name in shapes and _near(shapes[name][0], node.path)
        ]
        alike = [name for name in near if _sizes(shapes[name][1]) == _sizes(spec.shape or ())]
        # biases of a recurrent layer, which ONNX wants twice, and weights side by side
        parts = [name for name in near if spec.numel % max(prod(shapes[name][1]), 1) == 0]
        if not alike and not parts:  # a further use, as of a tied table that is transposed
            alike = _alone(
                name
                for name in sorted({*names.values()} & shapes.keys())
                if _near(shapes[name][0], node.path)
                and _sizes(shapes[name][1]) == _sizes(spec.shape or ())
            )
        if spec.name not in anew and (alike or parts):
            anew[spec.name] = (alike or parts)[0]
            lost.discard(anew[spec.name])
    return anew, lost


def _alone(names: Iterable[str]) -> list[str]:
    """The name, where there is one alone."""
    distinct = list(names)
    return distinct if len(distinct) == 1 else []


def _unknown(nodes: Iterable[Node], stored: set[str]) -> Iterator[tuple[Node, TensorSpec]]:
    """The stored floats that are no constant of TensorFlow's graph, those of most axes first."""
    pairs = [
        (node, spec)
        for node in nodes
        for spec in node.inputs
        if spec is not None
        and spec.role == "parameter"
        and "float" in spec.dtype
        and spec.shape
        and spec.name not in stored
    ]
    return iter(sorted(pairs, key=lambda pair: -len(pair[1].shape or ())))


def _near(path: str, other: str) -> bool:
    """Whether one of these modules is in the other one."""
    return not path or not other or f"{path}.".startswith(f"{other}.") or other.startswith(path)


def _sizes(shape: tuple[int, ...]) -> list[int]:
    return sorted(size for size in shape if size != 1)


def _with_own_gradients(graph: Any) -> tuple[dict[str, str], dict[str, int]]:
    """The operations whose gradient is not followed, and why: a function of the model gives it.

    Beside them those that are made anew for the gradient (tf.recompute_grad, keras.remat), with a
    number; an activation may be among both.

    tensorflow/python/ops/custom_gradient.py: `_graph_mode_decorator` hands the results and then
    the arguments of such a function through one IdentityN that names the gradient.
    """
    own: dict[str, str] = {}
    again: dict[str, int] = {}
    for number, op in enumerate(graph.get_operations(), 1):
        if op.type == "IdentityN" and "_gradient_op_type" in op.node_def.attr:
            gradient = _closed_over(op.get_attr("_gradient_op_type").decode())
            recomputes = "recompute_grad" in gradient["grad_fn"].__qualname__
            handed = [tensor.op for tensor in op.inputs]
            results = handed[: gradient["flat_result_len"]]
            inside = _between(handed[len(results) :], results)
            if recomputes:
                own |= dict.fromkeys(inside & again.keys(), _WITHIN)
                again |= dict.fromkeys(inside, number)
            else:
                own |= dict.fromkeys(inside, _OWN)
    return own, again


def _closed_over(name: str) -> dict[str, Any]:
    """What the function that gives this gradient knows of the forward pass."""
    from tensorflow.python.framework.ops import gradient_registry

    inner = getclosurevars(gradient_registry.lookup(name)).nonlocals["tape_grad_fn"]
    return dict(getclosurevars(inner).nonlocals)


def _between(begin: Iterable[Any], results: Iterable[Any]) -> set[str]:
    """The operations that lead from the first ones, which are not among them, to the results."""
    edges = {op.name for op in begin}
    inside: set[str] = set()
    todo = list(results)
    while todo:
        op = todo.pop()
        if op.name not in edges | inside and op.type != "Placeholder":
            inside.add(op.name)
            todo += [tensor.op for tensor in op.inputs]
    return inside


def with_arguments(graph: Graph, function: Any) -> Graph:
    """The graph with its inputs called as the arguments that they come in: "0.kernel"."""
    tensors = (tensor.name for tensor in function.inputs)
    names = dict(zip(tensors, argument_names(function), strict=False))
    inputs = (msgspec.structs.replace(i, name=names.get(i.name, i.name)) for i in graph.inputs)
    outputs = (msgspec.structs.replace(o, name=names.get(o.name, o.name)) for o in graph.outputs)
    return msgspec.structs.replace(
        with_weights(graph, names), inputs=tuple(inputs), outputs=tuple(outputs)
    )


def argument_names(function: Any) -> list[str]:
    """The arguments of a concrete function, each by its place or its keyword and what is in it.

    They are in the order of its inputs, before what it captures.
    """
    from tensorflow.python.util.nest import flatten_with_joined_string_paths

    return [
        name
        for held in function.structured_input_signature
        for name, _ in flatten_with_joined_string_paths(held, separator=".")
    ]


def severed(graph: Graph, stopped: Collection[str]) -> Graph:
    """The graph in which no gradient flows through these nodes, each of one input."""

    def marked(node: Node) -> Node:
        bodies = tuple(severed(body, stopped) for body in node.bodies)
        places = (0,) if node.key in stopped else node.severed
        return msgspec.structs.replace(node, bodies=bodies, severed=places)

    return msgspec.structs.replace(graph, nodes=tuple(map(marked, graph.nodes)))


def _marked(
    nodes: Iterable[Node], own: dict[str, str], again: dict[str, int], missing: set[str]
) -> Iterator[Node]:
    for node in nodes:
        bodies = tuple(
            msgspec.structs.replace(body, nodes=tuple(_marked(body.nodes, own, again, missing)))
            for body in node.bodies
        )
        number = again.get(node.call)
        part = Checkpoint(number, "needed") if number else None
        marks = own.get(node.call, "") if node.op.type in _PRODUCTS else ""
        if any(name.rpartition(".")[0] == node.path for name in missing):
            marks = WEIGHT_MISSING
        yield msgspec.structs.replace(node, bodies=bodies, own_backward=marks, checkpoint=part)
