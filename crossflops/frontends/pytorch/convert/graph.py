"""The conversion of an ONNX program in memory to the graph that is counted, with shape arithmetic
folded.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from crossflops.frontends.converted import with_node_marks
from crossflops.frontends.pytorch.convert.exporter import DOMAIN, OPSET
from crossflops.frontends.pytorch.convert.known_forms import MAKER
from crossflops.frontends.pytorch.convert.model_passes import reusing_shape_inference
from crossflops.frontends.pytorch.convert.schemas import schema_defaults, schema_operand_names
from crossflops.frontends.pytorch.load.fakes import is_fake_tensor
from crossflops.frontends.pytorch.load.model import WITHIN
from crossflops.frontends.pytorch.record.dropped_operators import origin_operator_names
from crossflops.frontends.pytorch.record.modules import ModuleIndex
from crossflops.frontends.pytorch.record.operators import OWN
from crossflops.ir.graph import Attribute, Graph, Node, Op, TensorSpec, TrainingAnnotation
from crossflops.ir.trace import Call
from crossflops.operators import find_operator_rule

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch import nn
    from torch.onnx import ONNXProgram


# By the name of a tensor with `requires_grad`: True for an input, False for a stored tensor.
IsInputByLeafName: TypeAlias = dict[str, bool]

# Shape arithmetic that an exporter leaves is folded; work never is.

_FX_NODE = "pkg.torch.onnx.fx_node"
_SMALL = 64  # a shape, a scale, a pair of bounds: never a tensor that a model computes with
# No shape needs these products, however small their operands are.
_PRODUCTS = frozenset(
    {"MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose", "AffineGrid", "Attention"}
    | {"LSTM", "GRU", "RNN", "DeformConv", "Det"}
)


def fold_shape_arithmetic(program: "ONNXProgram") -> None:
    """Fold the shape arithmetic in the ONNX model of an exported program, in place; computation of
    the model stays.

    Work on weights (a position bias made from parameters, say) stays: it is counted, and reported
    separately as constant. A bias of zeros that the exporter adds to a convolution without one is
    removed, since it would be counted as additions.
    """
    from onnx_ir.passes import common
    from onnxscript.optimizer import fold_constants

    model = program.model
    weights, origins = weight_names(program), _operand_uses(program.model)
    _fill_fake_weights(model)

    def is_shape_arithmetic(node: "ir.Node") -> bool:
        """Return True if an ONNX node computes only shapes or small constants, so that it may be
        folded.
        """
        inputs = [value for value in node.inputs if value is not None]
        if node.op_type in _PRODUCTS or any(value.name in weights for value in inputs):
            return False
        if _computes_floats(node) and _is_model_computation(node, origins):
            return False
        if all(map(_is_small_or_integer, node.outputs)):
            return True
        return all(map(_is_small_or_integer, inputs)) and not _does_arithmetic(node)

    def fold_shape_constants() -> None:
        """Fold the constants of the ONNX model that are shape arithmetic."""
        with reusing_shape_inference():
            fold_constants(model, onnx_shape_inference=True, should_fold=is_shape_arithmetic)

    _drop_invented_biases(program)
    notes = {value.name: node.metadata_props for node in model.graph for value in node.outputs}
    fold_shape_constants()
    before, unknown = -1, _unknown_shape_count(model)
    while unknown and unknown != before:
        # Inference node by node stops behind operators such as LSTM: infer over the whole graph,
        # fold what became known, and go on as long as that brings something.
        common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
        fold_shape_constants()
        before, unknown = unknown, _unknown_shape_count(model)
    common.IdentityEliminationPass()(model)
    with _preserving_batch_norm_mode(model):
        common.RemoveUnusedNodesPass()(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    for node in model.graph:  # the folder writes a Split for what gives a sequence, without notes
        split = (node.outputs[0].name or "").rpartition("_split_")[0]
        if not node.metadata_props and split in notes:
            node.metadata_props.update(notes[split])


@contextmanager
def _preserving_batch_norm_mode(model: "ir.Model") -> Iterator[None]:
    """Restore the training mode and the number of results of batch normalizations, which the block
    may change.

    Versions of onnx_ir before 1.0 remove both where the running statistics are unused, so it
    computes with other statistics; runtimes accept the mode only with three results.
    """
    training = [
        (node, mode, len(node.outputs))
        for node in model.graph.all_nodes()
        if node.op_type == "BatchNormalization" and (mode := node.attributes.get("training_mode"))
    ]
    yield
    for node, mode, results in training:
        if node.graph is not None and mode.as_int():
            node.attributes["training_mode"] = mode
            node.resize_outputs(results)


def _does_arithmetic(node: "ir.Node") -> bool:
    """Return True if an ONNX operator computes, not only moves or creates data."""
    if node.op_type == "Range":
        return False
    known = find_operator_rule(Op(node.domain, node.op_type, node.version or OPSET))
    return known is None or not known.equation.startswith("0")


def _computes_floats(node: "ir.Node") -> bool:
    """Return True if an ONNX node computes floats, not indices or shapes."""
    return not all(map(_has_non_float_type, node.outputs)) and _does_arithmetic(node)


class _OperandUses(NamedTuple):
    """The names of operator calls that read tensors, `taking`, and of values computed from
    tensors, `values`.

    An operator call becomes several nodes. Nodes that compute only with numbers and shapes are the
    exporter's own: the count of elements in a variance, the scale of an attention.
    """

    taking: frozenset[str]
    values: frozenset[str]


def _operand_uses(model: "ir.Model") -> _OperandUses:
    """Return the names of the calls that read tensors in the model, and of the values that are
    computed from tensors.
    """
    taking: set[str] = set()
    values: set[str] = set()
    for node in model.graph.all_nodes():
        call = fx_node_name(node)
        inputs = [value for value in node.inputs if value is not None]
        operands = [value for value in inputs if _is_passed_to_call(value, call)]
        if operands:
            taking.add(call)
        passed = inputs[:1] if node.op_type == "CastLike" else inputs
        if node.op_type not in ("Shape", "Size") and any(
            value in operands or value.name in values for value in passed
        ):
            values.update(value.name or "" for value in node.outputs)
    return _OperandUses(frozenset(taking), frozenset(values))


def _is_passed_to_call(value: "ir.Value", call: str) -> bool:
    """Return True if a value is passed to the operator call, False if the exporter wrote it for
    the call.

    The exporter writes equal numbers once, for all calls that need them.
    """
    made = value.producer()
    if made is None:
        maker = value.meta.get(MAKER)
        return maker is None or (maker != call and value.name == maker)
    maker = fx_node_name(made)
    return maker != call and (made.op_type != "Constant" or value.name == maker)


def _is_model_computation(node: "ir.Node", uses: _OperandUses) -> bool:
    """Return True if an ONNX node is computation of the model, False if it is arithmetic of the
    exporter.

    A call without tensors creates a table (a `linspace`): the exporter's are the numbers in it.
    """
    if fx_node_name(node) in uses.taking:
        return any(value.name in uses.values for value in node.outputs)
    return any(value.shape is None or len(value.shape) > 0 for value in node.outputs)


def _unknown_shape_count(model: "ir.Model") -> int:
    """Return the number of values in an ONNX model whose shape is unknown or symbolic."""
    return sum(
        value.shape is None or any(not isinstance(extent, int) for extent in value.shape)
        for node in model.graph.all_nodes()
        for value in node.outputs
    )


def _drop_invented_biases(program: "ONNXProgram") -> None:
    """Remove the bias input of each ONNX convolution that has no bias in the PyTorch program."""
    biased = {node.name for node in program_operator_nodes(program) if _has_convolution_bias(node)}
    unbiased = {node.name for node in program_operator_nodes(program)} - biased
    for node in program.model.graph.all_nodes():
        if node.op_type not in {"Conv", "ConvTranspose"} or len(node.inputs) < 3:
            continue
        if fx_node_name(node) in unbiased:
            node.replace_input_with(2, None)


def program_operator_nodes(program: "ONNXProgram") -> Iterator[Any]:
    """Yield all FX nodes of the decomposed program, those of its subgraphs included."""
    import torch

    for module in program.exported_program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from module.graph.nodes


def program_nodes_by_graph(program: "ONNXProgram") -> dict[tuple[str | None, str], Any]:
    """Return the FX nodes of the decomposed program by the name of their ONNX graph and their own
    name.

    Nodes of different subgraphs may have the same name. The exporter names the graph of a
    submodule after its path; the name of the main graph is "" here. Under None is some node of
    the name, for a release of PyTorch that names graphs differently.
    """
    import torch

    nodes: dict[tuple[str | None, str], Any] = {}
    for path, module in program.exported_program.graph_module.named_modules():
        if isinstance(module, torch.fx.GraphModule):
            graph = path.replace(".", "__")
            for node in module.graph.nodes:
                nodes[graph, node.name] = node
                nodes[None, node.name] = node
    return nodes


def find_program_node(
    nodes: Mapping[tuple[str | None, str], Any], node: "ir.Node", graph_name: str | None
) -> Any:
    """Return the FX node for which a node of an ONNX graph of this name was written, None if it is
    unknown; `nodes` is the result of `program_nodes_by_graph`.
    """
    name = fx_node_name(node)
    candidates = (nodes.get((graph, name)) for graph in (graph_name, "", None))
    return next((known for known in candidates if known is not None), None)


def _has_convolution_bias(node: Any) -> bool:
    """Return True if the FX node of a convolution has a bias argument (the third)."""
    return len(node.args) > 2 and node.args[2] is not None


def _fill_fake_weights(model: "ir.Model") -> None:
    """Give each weight that has no data zeros that take no memory, since constant folding reads
    them.
    """
    import numpy as np
    import onnx_ir as ir

    for value in model.graph.initializers.values():
        raw = getattr(value.const_value, "raw", None)
        if not _has_numbers(raw):
            zeros = np.broadcast_to(np.zeros((), value.dtype.numpy()), value.shape.numpy())
            value.const_value = ir.Tensor(zeros, dtype=value.dtype, name=value.name)


def _has_non_float_type(value: "ir.Value") -> bool:
    """Return True if an ONNX value has a known type that is not a floating point type."""
    return value.dtype is not None and not value.dtype.is_floating_point()


def _is_small_or_integer(value: "ir.Value") -> bool:
    """Return True if an ONNX value is of integers, or has few elements."""
    if _has_non_float_type(value):
        return True
    extents = list(value.shape) if value.shape is not None else []
    size = 1
    for extent in extents:
        size *= extent if isinstance(extent, int) else _SMALL + 1
    return value.shape is not None and size <= _SMALL


def fx_node_name(node: "ir.Node") -> str:
    """Return the name of the FX node for which an ONNX node was written; "" if unknown."""
    match = re.match(r"%(\w+)", node.metadata_props.get(_FX_NODE, ""))
    return match[1] if match else ""


def weight_names(program: "ONNXProgram") -> frozenset[str]:
    """Return the names of a program's parameters and buffers."""
    exported = program.exported_program
    return frozenset((*exported.state_dict, *exported.constants))


def _names_of_buffers_and_valueless_constants(program: "ONNXProgram") -> frozenset[str]:
    """Return the names of buffers, which a model may overwrite, and of constants without
    values.
    """
    exported = program.exported_program
    constants = exported.constants.items()
    empty = (name for name, tensor in constants if not _has_numbers(tensor))
    return frozenset((*exported.graph_signature.buffers, *empty))


def _has_numbers(tensor: Any) -> bool:
    """Return True if a tensor is neither fake nor on the device "meta"."""
    return not getattr(tensor, "is_meta", False) and not is_fake_tensor(tensor)


def parameter_aliases(program: Any, model: "nn.Module") -> dict[str, str]:
    """Return for each other name that a parameter has in the program its name in the model.

    torch.export knows a parameter by its name, and treats one in a list of the model, or in a
    function's closure, as a constant. Both share memory, and are read in the same way: that of the
    program's own copy, or of the model, to which a function holds a reference. In a module around
    the model all names are longer.
    """
    stored, prefix = program.state_dict, f"{WITHIN}."
    names = {_tensor_memory_key(parameter): name for name, parameter in model.named_parameters()}
    own = {name: name.removeprefix(prefix) for name in stored}
    names |= {
        _tensor_memory_key(stored[name]): own[name] for name in program.graph_signature.parameters
    }
    constants = {name: _tensor_memory_key(stored) for name, stored in program.constants.items()}
    longer = {name: plain for name, plain in own.items() if name != plain}
    known = {name: names[memory] for name, memory in constants.items() if memory in names}
    return {**longer, **known}


def non_parameter_leaves(program: Any, index: ModuleIndex) -> IsInputByLeafName:
    """Return the names of tensors with `requires_grad` that are not parameters of the program:
    with True for an input, False for a stored tensor.

    They are inputs, buffers and plain tensors with `requires_grad`, and parameters of modules in a
    list of the model or in a function's closure, which an export treats as constants.
    """
    signature = program.graph_signature
    names = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    provided = {
        node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")
    }
    graded = {name for name, value in provided.items() if getattr(value, "requires_grad", False)}
    stored = {name for at, name in names.items() if at in graded}
    additional = {
        _tensor_memory_key(parameter)
        for row, module in zip(index.module_descriptions, index.module_objects, strict=True)
        for parameter in module.parameters(recurse=False)
        if not row.names and parameter.requires_grad
    }
    stored |= {
        name
        for name, tensor in program.constants.items()
        if _tensor_memory_key(tensor) in additional
    }
    inputs = dict.fromkeys(graded.intersection(signature.user_inputs), True)
    return inputs | {name.removeprefix(f"{WITHIN}."): False for name in stored}


def with_sparse_marks(graph: Graph, program: Any, calls: dict[str, Call]) -> Graph:
    """Return the graph with a mark at each node that has a sparse operand or result.

    ONNX has no sparse types.

    `calls` are operator calls by the name of their node in the program.
    """
    layouts = {
        node: str(getattr(node.meta.get("val"), "layout", "")) for node in program.graph.nodes
    }
    marked = {
        calls[node.name].key
        for node in layouts
        if node.name in calls
        and any(layouts[at].startswith("torch.sparse") for at in (node, *node.all_input_nodes))
    }
    return with_node_marks(graph, marked, sparse=True) if marked else graph


def _tensor_memory_key(tensor: Any) -> Any:
    """Return a key that tensors of the same memory, shape and strides have in common; the object's
    id if there is no memory.
    """
    try:
        index = tensor.untyped_storage()._cdata
    except (AttributeError, RuntimeError, NotImplementedError):
        return id(tensor)
    return index, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


# The places of inputs whose value says how much there is to do, where no shape does, and of those
# that say what becomes of a shape that a tool has got wrong.
_VALUES_ASKED = {
    "DFT": (1, 2), "STFT": (3,), "Slice": (1, 2, 3, 4), "Squeeze": (1,), "Unsqueeze": (1,),
    "Reshape": (1,), "NonMaxSuppression": (2,), "TopK": (1,),
}  # fmt: skip
_COUNTS = ("INT32", "INT64")
_MOST_NUMBERS = 1 << 16


class Origins(msgspec.Struct, frozen=True):
    """The origins of nodes: the operator call of each, its module, and the names of weights.

    `calls` are operator calls by graph node name, `paths` the module path by call key, `names`
    the undecomposed operator by the decomposed one, `opset` the operator sets of the program,
    `schemas` its calls of operators of PyTorch (see `program_nodes_by_graph`), `unread` the stored
    tensors whose numbers are not known.
    """

    calls: dict[str, Call]
    paths: dict[str, str]
    names: dict[str, str]
    weights: frozenset[str]
    opset: dict[str, int]
    schemas: Mapping[tuple[str | None, str], Any] = {}
    unread: frozenset[str] = frozenset()


def to_graph(program: "ONNXProgram", calls: dict[str, Call], paths: dict[str, str]) -> Graph:
    """Return the graph of an ONNX program, each node with the key of its operator call.

    The caller sets the name and the size of the model.

    `calls` are operator calls by graph node name, `paths` the module path by call key. The nodes
    in a body have no call of their own: they belong to that of the node that holds it.
    """
    model = program.model
    origins = Origins(
        calls,
        paths,
        origin_operator_names(program.exported_program),
        weight_names(program),
        dict(model.opset_imports),
        program_nodes_by_graph(program),
        _names_of_buffers_and_valueless_constants(program),
    )
    return Graph(
        name="",
        nodes=_convert_graph_nodes(model.graph, origins),
        inputs=_onnx_value_specs(model.graph.inputs, origins, "input"),
        outputs=_onnx_value_specs(model.graph.outputs, origins, "output"),
        params=0,
        opset=origins.opset,
    )


def model_input_names(program: "ONNXProgram") -> list[str]:
    """Return the names of the ONNX program's inputs, stored tensors excluded."""
    inputs = program.model.graph.inputs
    return [value.name or "" for value in inputs if not value.is_initializer()]


def _convert_graph_nodes(
    graph: "ir.Graph",
    origins: Origins,
    inside: bool = False,
    depending: bool = False,
) -> tuple[Node, ...]:
    """Return the nodes of an ONNX graph as nodes of this package, with their bodies.

    Nodes without a call of their own are `depending` on the values of inputs, or not.
    """
    nodes = []
    for number, node in enumerate(graph):
        call = None if inside else origins.calls.get(origins.names.get(fx_node_name(node), ""))
        depends = call.depends_on_inputs if call else depending
        domain = "" if node.domain in {"", "ai.onnx"} else node.domain
        op = Op(domain, node.op_type, node.version or origins.opset.get(node.domain, 1))
        known = domain == DOMAIN
        schema = find_program_node(origins.schemas, node, graph.name) if known else None
        nodes.append(
            Node(
                key=node.name or f"{node.op_type}_{number}",
                op=op,
                inputs=tuple(
                    _onnx_value_spec(v, origins) if v is not None else None for v in node.inputs
                ),
                outputs=tuple(
                    _onnx_value_spec(v, origins) if _is_output_made(v) else None
                    for v in node.outputs
                ),
                attrs={**schema_defaults(schema, op), **_node_attributes(node)},
                values=_constant_input_values(node) or _foreign_operand_values(node, origins),
                call=call.key if call else "",
                path=origins.paths.get(call.key, "") if call else "",
                bodies=_subgraph_bodies(node, origins, depends),
                trips=_scan_trip_count(node),
                depends_on_inputs=depends,
                training=TrainingAnnotation(checkpoint=call.checkpoint if call else None),
                operand_names=schema_operand_names(schema, len(node.inputs)),
            )
        )
    return tuple(nodes)


def _constant_input_values(node: "ir.Node") -> dict[int, tuple[int, ...]]:
    """Return the integers of an ONNX node's constant inputs on which its work or shape depends, by
    position of the input.
    """
    from onnx_ir.convenience import get_const_tensor

    asked = () if node.domain else _VALUES_ASKED.get(node.op_type, ())
    provided = {index: node.inputs[index] for index in asked if index < len(node.inputs)}
    known = {
        index: get_const_tensor(value) for index, value in provided.items() if value is not None
    }
    return {
        index: tuple(map(int, numbers.numpy().flat))
        for index, numbers in known.items()
        if numbers is not None
    }


def _foreign_operand_values(node: "ir.Node", origins: Origins) -> dict[int, tuple[int, ...]]:
    """Return the integers of the constant operands of another library's operator, by position: a
    formula may read how long packed sequences are.

    The model writes these numbers itself. Its buffers, and large tensors, are not among them.
    """
    from onnx_ir.convenience import get_const_tensor

    if node.domain != DOMAIN or node.op_type.startswith(OWN):
        return {}
    values: dict[int, tuple[int, ...]] = {}
    for index, value in enumerate(node.inputs):
        if value is None or value.dtype is None or value.name in origins.unread:
            continue
        if value.dtype.name not in _COUNTS or value.shape is None or len(value.shape) > 1:
            continue
        numbers = get_const_tensor(value)
        if numbers is not None and numbers.size <= _MOST_NUMBERS:
            values[index] = tuple(map(int, numbers.numpy().flat))
    return values


def _subgraph_bodies(node: "ir.Node", origins: Origins, depending: bool) -> tuple[Graph, ...]:
    """Return the subgraphs of an ONNX node (If, Loop or Scan) as graphs of this package.

    Their nodes depend on the inputs where the node does.
    """
    bodies = []
    for name, attribute in node.attributes.items():
        if attribute.type.name != "GRAPH":
            continue
        body = attribute.as_graph()
        bodies.append(
            Graph(
                name=name,
                nodes=_convert_graph_nodes(body, origins, inside=True, depending=depending),
                inputs=_onnx_value_specs(body.inputs, origins),
                outputs=_onnx_value_specs(body.outputs, origins),
                params=0,
                opset=origins.opset,
            )
        )
    return tuple(bodies)


def _scan_trip_count(node: "ir.Node") -> int | None:
    """Return the number of iterations of a Scan; None for another node or if it is unknown."""
    if node.op_type != "Scan" or node.domain:
        return None
    shape = node.inputs[-1].shape if node.inputs and node.inputs[-1] is not None else None
    first = shape[0] if shape else None
    return first if isinstance(first, int) else None


def _is_output_made(value: "ir.Value") -> bool:
    """Return True if an ONNX node makes this output; False if the optional output is left out."""
    known = value.dtype is not None or value.shape is not None
    return bool(value.name) and (known or bool(value.uses()) or value.is_graph_output())


def _onnx_value_specs(
    values: Iterable["ir.Value"], origins: Origins, role: str = ""
) -> tuple[TensorSpec, ...]:
    """Return name, dtype, shape and role of each ONNX value."""
    return tuple(_onnx_value_spec(value, origins, role) for value in values)


def _onnx_value_spec(value: "ir.Value", origins: Origins, role: str = "") -> TensorSpec:
    """Return name, dtype, shape (None if unknown) and role of an ONNX value."""
    if not role and value.is_initializer():
        role = "parameter" if value.name in origins.weights else "constant"
    shape = tuple(value.shape) if value.shape is not None else None
    known = shape is not None and all(isinstance(extent, int) for extent in shape)
    dtype = value.dtype.name.lower() if value.dtype is not None else ""
    dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    return TensorSpec(value.name or "", dtype, shape if known else None, role)


def _node_attributes(node: "ir.Node") -> dict[str, Attribute]:
    """Return an ONNX node's attributes as Python values by name, for a Dropout with its training
    mode.
    """
    attributes = {
        name: value
        for name, attribute in node.attributes.items()
        if (value := _plain_attribute_value(attribute)) is not None
    }
    if (
        node.op_type == "Dropout"
        and not node.domain
        and (mode := _dropout_training_mode(node)) is not None
    ):
        attributes["training_mode"] = mode
    return attributes


def _dropout_training_mode(node: "ir.Node") -> int | None:
    """Return the constant input `training_mode` of a Dropout as 0 or 1; None if it is not
    constant.
    """
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    known = mode.const_value if mode is not None else None
    return int(known.numpy().item()) if known is not None else None


def _plain_attribute_value(attribute: "ir.Attr") -> Attribute | None:
    """Return the numbers or the text of an ONNX attribute as a Python value; None for a graph or a
    tensor.
    """
    value = attribute.value
    if isinstance(value, list | tuple):
        plain = [item for item in value if isinstance(item, int | float | str)]
        # mypy takes the members for a mixture; ONNX's lists hold one kind
        return tuple(plain) if len(plain) == len(value) else None  # type: ignore[return-value]
    return value if isinstance(value, int | float | str | bytes) else None
