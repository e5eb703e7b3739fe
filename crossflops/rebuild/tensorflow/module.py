"""A module of TensorFlow operations that computes an ONNX model, and the graph of its recorded
run.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from crossflops.errors import CrossflopsError, NormalizeError
from crossflops.frontends.converted import with_graph_identity
from crossflops.frontends.onnx import OnnxFile, functions, reading
from crossflops.frontends.onnx.binding import bind_input_sizes, inputs_given_by_caller
from crossflops.frontends.onnx.modules import NodePlace, build_module_table
from crossflops.frontends.onnx.types import attribute_values
from crossflops.frontends.tensorflow.convert.operators import CONTRACTIONS
from crossflops.frontends.tensorflow.record.layers import KINDS, LayerScope, LayerTable
from crossflops.ir.graph import Attribute, Graph, Node, Op, TensorSpec
from crossflops.ir.trace import Call, Setting, Trace
from crossflops.load import decode_onnx_model, read_onnx_model
from crossflops.load.order import onnx_node_label
from crossflops.load.payload import ELEMENT_TYPES
from crossflops.load.protobuf import parse_model_proto, schema_since_version
from crossflops.rebuild.nodes import (
    READ_IT,
    inline_function_bodies,
    opset_versions,
    reject_unbuildable_nodes,
    standard_domain,
)
from crossflops.rebuild.tensorflow import elementwise, products, shapes
from crossflops.rebuild.tensorflow.given import NodeInputs, Rule, UnfitError

# One short rule for each operator of ONNX: how it is written in TensorFlow.
RULES: dict[str, Rule] = {**products.RULES, **elementwise.RULES, **shapes.RULES}

_SMALL = 64  # elements: a shape, a scale. More floats are work, which is not folded
_LARGE = 1 << 20
_CONTRACTIONS = ("Attention", "Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul")
_OF_SHAPES = ("Shape", "Size")
_SPREADING = ("ConstantOfShape", "Expand", "Tile")
_PAYLOADS = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")


class RebuiltProgram(msgspec.Struct, frozen=True):
    """An ONNX model as bytes, with definite sizes and named nodes, and the module path of each
    node.

    Weights may be known by shape alone: they are zeros. `paths` are the modules of the nodes.
    """

    data: bytes
    paths: Mapping[str, str]


class OnnxModule(tf.Module):
    """A module that runs the rules' operations for each node in a name scope of its own.

    A scope is the path of the module and the name of the node, so that a tool that counts
    operations by name counts nodes and modules. Raises NormalizeError where a rule does not fit.
    """

    is_rebuilt_by_crossflops = True  # what the frontend of TensorFlow asks

    def __init__(self, program: RebuiltProgram, name: str) -> None:
        super().__init__(name=re.sub(r"\W", "_", f"m{name}" if name[:1].isdigit() else name))
        self.program = program

    def __reduce__(self) -> Any:
        """Return what pickle needs to build the model again: its class and arguments."""
        return OnnxModule, (self.program, self.name)

    def graph_of_recorded_run(self, seen: Any, setting: Setting) -> tuple[bytes, Graph, Trace]:
        """Return the ONNX bytes, the graph and the trace of a recorded run of this module."""
        return onnx_module_program(self, seen, setting)

    def layers(self) -> LayerTable:
        """Return the table that assigns TensorFlow operations to the ONNX nodes for which they
        were written.
        """
        return NodeLayers(self)

    def __call__(self, *inputs: Any) -> Any:
        """Return the outputs by position, for inputs by position."""
        model = parse_model_proto(self.program.data)
        run = _Run(model, unique_name_scopes(self.program.paths))
        names = [tensor.name for tensor in inputs_given_by_caller(model.graph)]
        run.values.update(zip(names, map(tf.convert_to_tensor, inputs), strict=True))
        for node in model.graph.node:
            run.run_node(node)
        return [tf.identity(run.tensor(value.name)) for value in model.graph.output]


def unique_name_scopes(paths: Mapping[str, str]) -> dict[str, str]:
    """Return a unique TensorFlow name scope for every node, by the name of the node."""
    by_node: dict[str, str] = {}
    taken: set[str] = set()
    for name, path in paths.items():
        scope = "/".join(_valid_name_scope(part) for part in (*path.split("."), name) if part)
        while scope.lower() in taken:
            scope += "_"
        taken.add(scope.lower())
        by_node[name] = scope
    return by_node


def _valid_name_scope(name: str) -> str:
    """Return the name with characters that a TensorFlow name scope does not allow
    replaced by "_".
    """
    word = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)
    return word if re.match(r"[A-Za-z0-9]", word) else f"n{word}"


class _Run:
    """One pass over the nodes. Values that follow from sizes alone are computed here and make no
    operation.
    """

    def __init__(self, model: Any, names: Mapping[str, str]) -> None:
        self._opset = opset_versions(model)
        self._scopes = names
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self._known: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        for name, tensor in self._stored.items():
            if (value := _tensor_elements(tensor)) is not None and _may_be_size_list(value):
                self._known[name] = value

    def tensor(self, name: str) -> Any:
        """Return the TensorFlow tensor with this name; a known value becomes a constant."""
        if name not in self.values:
            known = self._known.get(name)
            stored = self._stored.get(name)
            self.values[name] = _tensor_constant(stored) if known is None else tf.constant(known)
        return self.values[name]

    def run_node(self, node: Any) -> None:
        """Run the TensorFlow operations of one node, and record its results. Raises NormalizeError
        if no rule fits.
        """
        label = f"{node.op_type} {node.name}"
        try:
            if node.op_type == "Constant":
                results = [_constant_node_value(node)]
            else:
                results = self._constant_results(node) or self._run_in_name_scope(node)
        except CrossflopsError:
            raise
        except UnfitError as error:
            message = f"{label} {error} cannot be rebuilt in TensorFlow"
            raise NormalizeError(message, READ_IT) from error
        except Exception as error:  # TensorFlow refuses in many ways
            text = " ".join(str(error).split())[:200]
            message = f"{label} cannot be rebuilt in TensorFlow: {type(error).__name__}: {text}"
            raise NormalizeError(message, READ_IT) from error
        for name, value in zip(node.output, results, strict=False):
            if isinstance(value, np.ndarray):
                self._known[name] = value
            elif name:
                self.values[name] = value

    def _run_in_name_scope(self, node: Any) -> list[Any]:
        """Run the TensorFlow operations of an ONNX node in its name scope, and return
        its results.
        """
        with tf.name_scope(f"{self._scopes[node.name]}/"):
            inputs = [self.tensor(name) if name else None for name in node.input]
            results = RULES[node.op_type](self._node_inputs(node, inputs))
        return results if isinstance(results, list) else [results]

    def _node_inputs(self, node: Any, inputs: list[Any]) -> NodeInputs:
        """Return what the rule of an ONNX node gets: inputs, known values, attributes
        and version.
        """
        domain = standard_domain(node.domain)
        version = schema_since_version(domain, node.op_type, self._opset.get(domain, 1))
        return NodeInputs(
            inputs,
            [self._known.get(name) for name in node.input],
            {**attribute_values(node.attribute), **_attribute_arrays(node)},
            len(node.output),
            version,
        )

    def _constant_results(self, node: Any) -> list[Any] | None:
        """Return the results of a node as arrays if they follow from known values and are no
        counted work; else None.
        """
        sizes = node.op_type in _OF_SHAPES
        if not sizes and any(name and name not in self._known for name in node.input):
            return None
        if node.op_type in _CONTRACTIONS or self._makes_large_tensor(node):
            return None
        with tf.init_scope():
            provided = [
                self.tensor(name) if sizes else tf.constant(self._known[name]) if name else None
                for name in node.input
            ]
            results = RULES[node.op_type](self._node_inputs(node, provided))
            arrays = [
                tensor.numpy() for tensor in (results if isinstance(results, list) else [results])
            ]
        arrays = [np.asarray(array) for array in arrays]
        return arrays if all(map(_may_be_size_list, arrays)) else None

    def _makes_large_tensor(self, node: Any) -> bool:
        """Return whether a node would make a large tensor from a few numbers, as Expand does."""
        if node.op_type not in _SPREADING:
            return False
        return prod(int(number) for number in self._known[node.input[-1]].ravel()) > _LARGE


def _may_be_size_list(array: Any) -> bool:
    """Return whether an array can be a list of sizes: it has few elements, or elements that are
    not floats.
    """
    return bool(array.size <= _SMALL or array.dtype.kind in "iub")


def _tensor_elements(tensor: Any) -> Any:
    """Return the elements of an ONNX tensor as an array, or None if they are not stored in it."""
    from onnx import numpy_helper

    there = any(getattr(tensor, name) for name in _PAYLOADS) or 0 in tensor.dims
    return np.asarray(numpy_helper.to_array(tensor)) if there else None


def _tensor_constant(tensor: Any) -> Any:
    """Return an ONNX tensor as a TensorFlow constant; zeros if its elements are not stored. Raises
    UnfitError for texts.
    """
    value = _tensor_elements(tensor)
    name = ELEMENT_TYPES.get(tensor.data_type, "")
    try:
        dtype = tf.as_dtype(name)
    except TypeError as error:
        raise UnfitError(f"of the type {name}") from error
    if dtype == tf.string:
        raise UnfitError("of texts")
    return (
        tf.constant(0, dtype, tuple(tensor.dims)) if value is None else tf.constant(value, dtype)
    )


def _attribute_arrays(node: Any) -> dict[str, Any]:
    """Return the attributes of a node that are tensors as arrays, by name."""
    by_name = {
        attribute.name: _tensor_elements(attribute.t)
        for attribute in node.attribute
        if attribute.HasField("t")
    }
    return {name: value for name, value in by_name.items() if value is not None}


def _constant_node_value(node: Any) -> Any:
    """Return the value of a Constant node: an array if it is small, else a TensorFlow constant."""
    if not node.attribute:
        raise UnfitError("without a value")
    attribute = node.attribute[0]
    if attribute.HasField("t"):
        value = _tensor_elements(attribute.t)
        return (
            _tensor_constant(attribute.t)
            if value is None or not _may_be_size_list(value)
            else value
        )
    kinds: dict[str, Any] = {"value_float": np.float32, "value_floats": np.float32}
    value = attribute_values(node.attribute).get(attribute.name)
    if value is None or "string" in attribute.name:
        raise UnfitError(f"of the kind {attribute.name}")
    return np.asarray(value, kinds.get(attribute.name, np.int64))


# An ONNX model from wherever it was counted -> one whose every operator has a rule, and names.

_INTO = "TensorFlow function"
_BESIDE = ("Constant",)


def rebuild_program(model: Any, paths: Mapping[str, str]) -> RebuiltProgram:
    """Return the module description (bytes and module path of each node) of an ONNX model, which
    is changed in place.

    `paths` are the known modules by the names of nodes. Raises NormalizeError, naming an operator
    that has no rule.
    """
    reject_unbuildable_nodes(model, _INTO)
    functions.inline_function_calls(model, functions.local_functions(model))
    reject_unbuildable_nodes(model, _INTO)
    for number, node in enumerate(model.graph.node):
        node.name = onnx_node_label(node, number)
    made = {value: node.name for node in model.graph.node for value in node.output if value}
    model = _inline_ruleless_bodies(model)
    if lacking := _operators_without_rule(model):
        name = min(lacking)
        version = opset_versions(model).get(name.rpartition(".")[0], 1)
        raise NormalizeError(
            f"{name} of opset {version} cannot be converted into operations of TensorFlow", READ_IT
        )
    placed = _node_module_paths(model, made, paths)  # which names the nodes
    return RebuiltProgram(data=model.SerializeToString(), paths=placed)


def _inline_ruleless_bodies(model: Any) -> Any:
    """Return the model in which operators without a rule are replaced by their ONNX function
    bodies. Raises NormalizeError.
    """
    try:
        return inline_function_bodies(model, _operators_without_rule)
    except Exception as error:  # the types of a body's values do not follow
        message = f"no {_INTO} can be rebuilt: {' '.join(str(error).split())[:200]}"
        raise NormalizeError(message, READ_IT) from error


def _operators_without_rule(model: Any) -> set[str]:
    """Return the names of the operators in the model that have no rule for TensorFlow."""
    return {
        f"{standard_domain(node.domain)}.{node.op_type}".lstrip(".")
        for node in model.graph.node
        if standard_domain(node.domain) or node.op_type not in (*RULES, *_BESIDE)
    }


def _node_module_paths(
    model: Any, made: Mapping[str, str], paths: Mapping[str, str]
) -> dict[str, str]:
    """Return the module path of every node by its name; a node from a function body has the path
    of the node it replaces.

    The nodes of a body replace the node in order, and the last of them makes its result.
    """
    by_name: dict[str, str] = {}
    origin = ""
    for number, node in reversed(list(enumerate(model.graph.node))):
        origin = next((made[value] for value in node.output if value in made), origin)
        if node.name != origin or origin in by_name:
            node.name = f"{origin}/{node.op_type}_{number}"
        by_name[node.name] = paths.get(origin, "")
    return dict(reversed(by_name.items()))


def model_of_file_without_weight_values(file: OnnxFile) -> Any:
    """Return the ONNX model of a file without the values of its weights, with the requested input
    sizes.

    Raises TargetError, InputError.
    """
    model = read_onnx_model(file.path)
    bind_input_sizes(model.graph, file.dims, file.specs, file.path)
    if file.dims or file.specs:
        del model.graph.value_info[:]  # of other sizes, perhaps
    return model


def model_of_bytes_without_weight_values(data: bytes) -> Any:
    """Return the ONNX model in these bytes without the values of its weights."""
    return decode_onnx_model(data)


def model_of_ir_without_weight_values(model: Any) -> Any:
    """Return an onnx_ir model as an ONNX model without the values of its large weights."""
    import onnx_ir as ir

    stored = {name: value.const_value for name, value in model.graph.initializers.items()}
    try:
        for name, tensor in stored.items():
            if tensor is not None and tensor.nbytes > 1024:
                model.graph.initializers[name].const_value = ir.ExternalTensor(
                    "weights", 0, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name
                )
        proto = ir.serde.serialize_model(model)
    finally:
        for name, tensor in stored.items():
            model.graph.initializers[name].const_value = tensor
    return model_of_bytes_without_weight_values(proto.SerializeToString())


# A node of ONNX for an operation of TensorFlow that multiplies, of the shapes that it has.

Shape = tuple[int, ...]


def make_product_node(node: Node, call: Call, key: str) -> Node:
    """Return an ONNX node for one TensorFlow product, if a node was written as several
    products.
    """
    provided = {spec.name: spec.shape or () for spec in call.inputs}
    out, attributes = call.outputs[0].shape or (), dict[str, Attribute]()
    shapes: tuple[Shape, ...]
    if call.target.startswith(("Conv", "Depthwise")):
        back = "Backprop" in call.target
        name = "ConvTranspose" if back else "Conv"
        data = _channels_first_shape(provided["out_backprop" if back else "input"])
        weights = provided["filter"]
        shapes = (data, _onnx_weight_shape(weights, call.target))
        out = _channels_first_shape(out)
        attributes = {"group": 1 if back else data[1] // shapes[1][1]}
    elif call.target == "Einsum":
        name, shapes = "Einsum", tuple(provided.values())
        attributes = {"equation": str(call.settings["equation"])}
    else:
        name, flags = "MatMul", (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))
        shapes = tuple(
            (*shape[:-2], shape[-1], shape[-2]) if any(map(call.settings.get, names)) else shape
            for shape, names in zip(provided.values(), flags, strict=True)
        )
    dtype = call.outputs[0].dtype
    return msgspec.structs.replace(
        node,
        key=key,
        op=Op("", name, 13),
        inputs=tuple(TensorSpec(f"{key}:{at}", dtype, shape) for at, shape in enumerate(shapes)),
        outputs=(TensorSpec(key, dtype, out),),
        attrs=attributes,
        call=call.key,
    )


def _channels_first_shape(shape: Shape) -> Shape:
    """Return a shape (batch, ..., channels) in the order (batch, channels, ...)."""
    return (shape[0], shape[-1], *shape[1:-1])


def _onnx_weight_shape(shape: Shape, target: str) -> Shape:
    """Return the shape of a TensorFlow filter in the order of ONNX: (out, in, kernel...)."""
    *kernel, first, second = shape
    if target.startswith("Depthwise"):
        return (first * second, 1, *kernel)
    return (second, first, *kernel)


# A module rebuilt from an ONNX model -> the graph of what it does, and its operations.

MADE = "onnx."  # before the type of a node that no operation stands for


class NodeLayers(LayerTable):
    """The modules of the rebuilt model, and the node that each operation was written for."""

    def __init__(self, model: OnnxModule) -> None:
        paths, nodes = model.program.paths, parse_model_proto(model.program.data).graph.node
        self.rows = build_module_table(
            [NodePlace(((path, ""),)) for path in paths.values() if path], model.name
        )
        self._ids = {row.path: row.id for row in self.rows}
        self._types = {node.name: node.op_type for node in nodes}
        self._nodes = {scope: name for name, scope in unique_name_scopes(paths).items()}
        self._paths = paths

    def node_of_operation(self, name: str) -> str | None:
        """Return the name of the ONNX node in whose name scope the operation `name` is,
        or None.
        """
        while name:
            name = name.rpartition("/")[0]
            if name in self._nodes:
                return self._nodes[name]
        return None

    def operation_scope(self, name: str) -> LayerScope:
        """Return (path, id) of the module to which an operation belongs, from its name scope."""
        return self.module_of_node(self.node_of_operation(name) or "")

    def module_of_node(self, node: str) -> LayerScope:
        """Return (path, id) of the module to which the ONNX node with this name belongs."""
        path = self._paths.get(node, "")
        return LayerScope(path, self._ids[path])

    def parent_scope(self, scope: str) -> LayerScope:
        """Return (path, id) of the module that contains the module at the path `scope`."""
        path = scope.rpartition(".")[0]
        return LayerScope(path, self._ids[path])

    def layer_kind(self, module: int, name: str) -> str:
        """Return the kind of the layer to which the operation `name` belongs, by its ONNX
        operator; "" if it has none.
        """
        return KINDS.get(self._types.get(self.node_of_operation(name) or "", ""), "")


def onnx_module_program(
    model: OnnxModule, seen: Any, setting: Setting
) -> tuple[bytes, Graph, Trace]:
    """Return the ONNX bytes, the graph and the trace of a recorded run of a rebuilt module."""
    data = model.program.data
    graph, _ = reading.normalize_onnx_bytes(data, model.name, setting)
    calls: dict[str, list[Call]] = {}
    for call in seen.trace.calls:
        if call.level == "operator" and (name := seen.layers.node_of_operation(call.key)):
            calls.setdefault(name, []).append(call)
    made: list[Call] = []
    nodes = tuple(
        call
        for node in graph.nodes
        for call in _link_product_node(node, calls.get(node.key, []), seen.layers, made)
    )
    graph = with_graph_identity(msgspec.structs.replace(graph, nodes=nodes), model.name)
    stored: dict[str, list[str]] = {}
    for node in nodes:
        stored.setdefault(node.call, []).append(node.key)
    every = tuple(
        msgspec.structs.replace(call, nodes=tuple(stored.get(call.key, ())))
        for call in (*seen.trace.calls, *made)
    )
    return data, graph, msgspec.structs.replace(seen.trace, calls=every)


def _link_product_node(
    node: Node, calls: Iterable[Call], layers: NodeLayers, made: list[Call]
) -> Iterator[Node]:
    """Yield the node linked to its TensorFlow operation; a node computed by several products
    becomes one node for each of them.
    """
    calls = list(calls)
    path, module = layers.module_of_node(node.key)
    products = [call for call in calls if call.target in CONTRACTIONS]
    if len(products) > 1:
        for number, call in enumerate(products):
            yield msgspec.structs.replace(
                make_product_node(node, call, f"{node.key}/{number}"), path=path
            )
        return
    linked = next(iter(products or calls), None)
    if linked is None:
        linked = Call(
            key=f"{node.key} ({MADE})",
            parent=None,
            level="operator",
            target=f"{MADE}{node.op.type}",
            module=module,
            outputs=tuple(spec for spec in node.outputs if spec is not None),
        )
        made.append(linked)
    yield msgspec.structs.replace(node, call=linked.key, path=path)
