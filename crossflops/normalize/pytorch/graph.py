"""An ONNX program in memory -> the graph that is counted. Weights are never serialized."""

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops.core.graph import Attribute, Graph, Node, Op
from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Call
from crossflops.normalize.digest import digest

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.onnx import ONNXProgram

_FX_NODE = "pkg.torch.onnx.fx_node"
_SMALL = 64  # a shape, a scale, a pair of bounds: never a tensor that a model computes with


def simplify(program: "ONNXProgram") -> None:
    """Fold the shape arithmetic that the exporter leaves, and nothing that is work.

    Work on weights (a position bias made from parameters, say) stays: it is counted, and shown
    apart as constant. A bias of zeros that the exporter makes up for a convolution that has none
    goes, since it would be counted as additions.
    """
    from onnx_ir.passes import common
    from onnxscript.optimizer import fold_constants

    model = program.model
    weights = _weights(program)

    def is_shape_arithmetic(node: "ir.Node") -> bool:
        inputs = [value for value in node.inputs if value is not None]
        if any(value.name in weights for value in inputs):
            return False
        return all(map(_is_small_or_integer, node.outputs)) or all(
            map(_is_small_or_integer, inputs)
        )

    fold = functools.partial(
        fold_constants, model, onnx_shape_inference=True, should_fold=is_shape_arithmetic
    )
    _drop_made_up_biases(program)
    fold()
    before, unknown = -1, _unknown_shapes(model)
    while unknown and unknown != before:
        # Inference node by node stops behind operators such as LSTM: infer over the whole graph,
        # fold what became known, and go on as long as that brings something.
        common.ShapeInferencePass(data_prop=True)(model)
        fold()
        before, unknown = unknown, _unknown_shapes(model)
    common.IdentityEliminationPass()(model)
    common.RemoveUnusedNodesPass()(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)


def _unknown_shapes(model: "ir.Model") -> int:
    return sum(
        value.shape is None or any(not isinstance(extent, int) for extent in value.shape)
        for node in model.graph
        for value in node.outputs
    )


def _drop_made_up_biases(program: "ONNXProgram") -> None:
    operators = {node.name: node for node in program.exported_program.graph.nodes}
    for node in program.model.graph:
        if node.op_type not in {"Conv", "ConvTranspose"} or len(node.inputs) < 3:
            continue
        source = operators.get(_fx_name(node))
        if source is not None and (len(source.args) < 3 or source.args[2] is None):
            node.replace_input_with(2, None)


def _is_small_or_integer(value: "ir.Value") -> bool:
    if value.dtype is not None and not value.dtype.is_floating_point():
        return True
    extents = list(value.shape) if value.shape is not None else []
    size = 1
    for extent in extents:
        size *= extent if isinstance(extent, int) else _SMALL + 1
    return value.shape is not None and size <= _SMALL


def to_graph(
    program: "ONNXProgram", name: str, calls: dict[str, Call], paths: dict[str, str], params: int
) -> Graph:
    """The graph of a simplified program, each node linked to the operator call it came from.

    `calls` are operator calls by graph node name, `paths` the module path by call key.
    """
    model = program.model
    origins = _origins(program)
    varying = {value for value in model.graph.inputs if not value.is_initializer()}
    weights = _weights(program)
    nodes: list[Node] = []
    for number, node in enumerate(model.graph):
        call = calls.get(origins.get(_fx_name(node), ""))
        constant = not any(value in varying for value in node.inputs)
        if not constant:
            varying.update(node.outputs)
        key = call.key if call else ""
        spec = functools.partial(_spec, weights=weights)
        nodes.append(_node(node, spec, number, key, paths.get(key, ""), constant))
    graph = Graph(
        name=name,
        nodes=tuple(nodes),
        inputs=tuple(_spec(value, weights, "input") for value in model.graph.inputs),
        outputs=tuple(_spec(value, weights, "output") for value in model.graph.outputs),
        params=params,
        opset=dict(model.opset_imports),
    )
    return msgspec.structs.replace(graph, digest=digest(graph))


def _fx_name(node: "ir.Node") -> str:
    found = re.match(r"%(\w+)", node.metadata_props.get(_FX_NODE, ""))
    return found[1] if found else ""


def _weights(program: "ONNXProgram") -> frozenset[str]:
    """Names of the parameters and buffers: what a folder of shape arithmetic leaves alone."""
    exported = program.exported_program
    return frozenset((*exported.state_dict, *exported.constants))


def _origins(program: "ONNXProgram") -> dict[str, str]:
    """Name of the decomposed operator -> name of the operator that it came from."""
    return {
        node.name: _first(node.meta["from_node"])
        for node in program.exported_program.graph.nodes
        if node.op == "call_function" and node.meta.get("from_node")
    }


def _first(sources: Any) -> str:
    source = sources[-1]
    while source.from_node:
        source = source.from_node[-1]
    return str(source.name)


def _node(
    node: "ir.Node",
    spec: Callable[["ir.Value"], TensorSpec],
    number: int,
    call: str,
    path: str,
    constant: bool,
) -> Node:
    domain = "" if node.domain in {"", "ai.onnx"} else node.domain
    return Node(
        key=node.name or f"{node.op_type}_{number}",
        op=Op(domain, node.op_type, _version(node)),
        inputs=tuple(spec(value) if value is not None else None for value in node.inputs),
        outputs=tuple(spec(value) for value in node.outputs),
        attrs={
            name: value
            for name, attribute in node.attributes.items()
            if (value := _plain(attribute)) is not None
        },
        call=call,
        path=path,
        constant=constant,
    )


def _version(node: "ir.Node") -> int:
    imports = node.graph.opset_imports if node.graph is not None else {}
    version: int = node.version or imports.get(node.domain, 1)
    return version


def _spec(value: "ir.Value", weights: frozenset[str], role: str = "") -> TensorSpec:
    if not role and value.is_initializer():
        role = "parameter" if value.name in weights else "constant"
    shape = tuple(value.shape) if value.shape is not None else None
    known = shape is not None and all(isinstance(extent, int) for extent in shape)
    dtype = value.dtype.name.lower() if value.dtype is not None else ""
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    return TensorSpec(value.name or "", dtype, shape if known else None, role)


def _plain(attribute: "ir.Attr") -> Attribute | None:
    value = attribute.value
    if isinstance(value, list | tuple):
        plain = [item for item in value if isinstance(item, int | float | str)]
        return tuple(plain) if len(plain) == len(value) else None  # type: ignore[return-value]
    return value if isinstance(value, int | float | str | bytes) else None
