"""An ONNX program in memory -> the graph that is counted. Weights are never serialized."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from crossflops.core.graph import Attribute, Graph, Node, Op
from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Call
from crossflops.normalize.digest import digest
from crossflops.normalize.pytorch.simplify import fx_name, weight_names

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.onnx import ONNXProgram


# The places of inputs whose value says how much there is to do, where no shape does.
_VALUES_ASKED = {"DFT": (1, 2), "STFT": (3,)}


class Origins(msgspec.Struct, frozen=True):
    """Where nodes come from: the operator call of each, its module, and what the weights are.

    `calls` are operator calls by graph node name, `paths` the module path by call key, `names`
    the undecomposed operator by the decomposed one, `opset` the operator sets of the program.
    """

    calls: dict[str, Call]
    paths: dict[str, str]
    names: dict[str, str]
    weights: frozenset[str]
    opset: dict[str, int]


def to_graph(
    program: "ONNXProgram", name: str, calls: dict[str, Call], paths: dict[str, str], params: int
) -> Graph:
    """The graph of a simplified program, each node linked to the operator call it came from.

    `calls` are operator calls by graph node name, `paths` the module path by call key. The nodes
    in a body have no call of their own: they belong to that of the node which holds it.
    """
    model = program.model
    origins = Origins(
        calls,
        paths,
        undecomposed(program.exported_program),
        weight_names(program),
        dict(model.opset_imports),
    )
    varying = {value for value in model.graph.inputs if not value.is_initializer()}
    graph = Graph(
        name=name,
        nodes=_nodes(model.graph, varying, origins),
        inputs=_specs(model.graph.inputs, origins, "input"),
        outputs=_specs(model.graph.outputs, origins, "output"),
        params=params,
        opset=origins.opset,
    )
    return msgspec.structs.replace(graph, digest=digest(graph))


def undecomposed(exported: Any) -> dict[str, str]:
    """Name of the decomposed operator -> name of the operator that it came from."""
    return {
        node.name: _first(node.meta["from_node"])
        for node in exported.graph.nodes
        if node.op == "call_function" and node.meta.get("from_node")
    }


def _first(sources: Any) -> str:
    source = sources[-1]
    while source.from_node:
        source = source.from_node[-1]
    return str(source.name)


def _nodes(
    graph: "ir.Graph",
    varying: set["ir.Value"],
    origins: Origins,
    inside: bool = False,
    depending: bool = False,
) -> tuple[Node, ...]:
    """The nodes of one level. `varying` are the values that depend on an input; it grows.

    Nodes without a call of their own are `depending` on the values of inputs, or not.
    """
    found = []
    for number, node in enumerate(graph):
        call = None if inside else origins.calls.get(origins.names.get(fx_name(node), ""))
        depends = call.depends_on_inputs if call else depending
        domain = "" if node.domain in {"", "ai.onnx"} else node.domain
        bodies = _bodies(node, varying, origins, depends)
        constant = not any(value in varying for value in node.inputs) and all(
            inner.constant for body in bodies for inner in body.nodes
        )
        if not constant:
            varying.update(node.outputs)
        found.append(
            Node(
                key=node.name or f"{node.op_type}_{number}",
                op=Op(domain, node.op_type, node.version or origins.opset.get(node.domain, 1)),
                inputs=tuple(_spec(v, origins) if v is not None else None for v in node.inputs),
                outputs=tuple(_spec(v, origins) if v.name else None for v in node.outputs),
                attrs=_attributes(node),
                values=_values(node),
                call=call.key if call else "",
                path=origins.paths.get(call.key, "") if call else "",
                bodies=bodies,
                trips=_trips(node),
                constant=constant,
                depends_on_inputs=depends,
            )
        )
    return tuple(found)


def _values(node: "ir.Node") -> dict[int, tuple[int, ...]]:
    """The whole numbers of those inputs on which the work depends, and that no shape tells."""
    from onnx_ir.convenience import get_const_tensor

    asked = () if node.domain else _VALUES_ASKED.get(node.op_type, ())
    given = {place: node.inputs[place] for place in asked if place < len(node.inputs)}
    known = {place: get_const_tensor(value) for place, value in given.items() if value is not None}
    return {place: (int(one.numpy().item()),) for place, one in known.items() if one is not None}


def _bodies(
    node: "ir.Node", varying: set["ir.Value"], origins: Origins, depending: bool
) -> tuple[Graph, ...]:
    """The branches of an If, the body of a Loop or a Scan, which see the values around them.

    What they hold depends on the inputs where the node does.
    """
    found = []
    for name, attribute in node.attributes.items():
        if attribute.type.name != "GRAPH":
            continue
        body = attribute.as_graph()
        # A condition or a counter decides about every iteration, so all of them vary with it.
        if any(value in varying for value in node.inputs):
            varying.update(body.inputs)
        found.append(
            Graph(
                name=name,
                nodes=_nodes(body, varying, origins, inside=True, depending=depending),
                inputs=_specs(body.inputs, origins),
                outputs=_specs(body.outputs, origins),
                params=0,
                opset=origins.opset,
            )
        )
    return tuple(found)


def _trips(node: "ir.Node") -> int | None:
    """How often a Scan runs: the extent of what it scans. A Loop goes on while data says so."""
    if node.op_type != "Scan" or node.domain:
        return None
    shape = node.inputs[-1].shape if node.inputs and node.inputs[-1] is not None else None
    first = shape[0] if shape else None
    return first if isinstance(first, int) else None


def _specs(
    values: Iterable["ir.Value"], origins: Origins, role: str = ""
) -> tuple[TensorSpec, ...]:
    return tuple(_spec(value, origins, role) for value in values)


def _spec(value: "ir.Value", origins: Origins, role: str = "") -> TensorSpec:
    if not role and value.is_initializer():
        role = "parameter" if value.name in origins.weights else "constant"
    shape = tuple(value.shape) if value.shape is not None else None
    known = shape is not None and all(isinstance(extent, int) for extent in shape)
    dtype = value.dtype.name.lower() if value.dtype is not None else ""
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    return TensorSpec(value.name or "", dtype, shape if known else None, role)


def _attributes(node: "ir.Node") -> dict[str, Attribute]:
    found = {
        name: value
        for name, attribute in node.attributes.items()
        if (value := _plain(attribute)) is not None
    }
    if node.op_type == "Dropout" and not node.domain and (mode := _training(node)) is not None:
        found["training_mode"] = mode
    return found


def _training(node: "ir.Node") -> int | None:
    """The value of the input `training_mode` of a Dropout, where it is a constant."""
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    known = mode.const_value if mode is not None else None
    return int(known.numpy().item()) if known is not None else None


def _plain(attribute: "ir.Attr") -> Attribute | None:
    value = attribute.value
    if isinstance(value, list | tuple):
        plain = [item for item in value if isinstance(item, int | float | str)]
        # mypy takes the members for a mixture; ONNX's lists hold one kind
        return tuple(plain) if len(plain) == len(value) else None  # type: ignore[return-value]
    return value if isinstance(value, int | float | str | bytes) else None
