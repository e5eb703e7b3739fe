"""An OpenVINO IR file -> an ONNX model without weights, and from it the graph and its modules."""

import warnings
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import CrossflopsWarning, InputError
from crossflops.frontends.converted import with_graph_identity
from crossflops.frontends.onnx.binding import OnnxFile
from crossflops.frontends.onnx.reading import normalize_written_model
from crossflops.frontends.openvino.control import write_layer_with_bodies
from crossflops.frontends.openvino.file import OpenvinoFile
from crossflops.frontends.openvino.operators import write_layer_nodes
from crossflops.frontends.openvino.reading import IrLayer, IrNet, read_ir_model
from crossflops.frontends.openvino.writer import (
    DOMAIN,
    OPSET,
    IrToOnnxWriter,
    layers_in_run_order,
    onnx_type_number,
)
from crossflops.ir.graph import Control, Graph, TensorSpec
from crossflops.ir.trace import Setting, Trace
from crossflops.load.protobuf import onnx_message_module
from crossflops.load.validation import validate_and_sort_model

_CONTROL = ("If", "Loop", "TensorIterator")
_IR_VERSION = 11
_VIEWS = ("Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def build_openvino_graph(
    file: OpenvinoFile, control: Control, setting: Setting
) -> tuple[Graph, Trace]:
    """Return the graph of a file, and its modules. Raises TargetError, InputError."""
    if setting.training:
        raise InputError(
            "--train-mode has no effect on a file of OpenVINO, which is only for inference",
            "leave out --train-mode",
        )
    net = read_ir_model(Path(file.path))
    model, storage = write_net_as_onnx_model(net, file)
    _warn_of_variables(net)
    described = OnnxFile(path=file.path, specs=file.specs, control=control)
    made = [model]
    del model
    graph, trace = normalize_written_model(made.pop, described, setting)
    graph = _retype_weights(graph, dict(storage)) if storage else graph
    graph = with_graph_identity(graph, graph.name) if storage else graph
    return graph, msgspec.structs.replace(trace, framework="openvino")


def _retype_weights(graph: Graph, types: dict[str, str]) -> Graph:
    """Return the graph with weights in the types in which the file stores them; `types` has these
    types by name of the converted weight, and gets the names of moved weights too.

    Kernels convert a weight as they read it.
    """

    def with_stored_weight_type(spec: TensorSpec | None) -> TensorSpec | None:
        """Return the tensor's spec with the type in which the file stores it, if that is known."""
        if spec is None or spec.name not in types:
            return spec
        return msgspec.structs.replace(spec, dtype=types[spec.name])

    nodes = []
    for node in graph.nodes:
        results = [spec.name for spec in node.outputs if spec is not None]
        data = node.inputs[0].name if node.inputs and node.inputs[0] is not None else ""
        converts = bool(results) and results[0] in types
        if node.op.type in _VIEWS and data in types:
            types[results[0]] = types[data]
        nodes.append(
            msgspec.structs.replace(
                node,
                inputs=tuple(map(with_stored_weight_type, node.inputs)),
                outputs=tuple(map(with_stored_weight_type, node.outputs)),
                bodies=tuple(_retype_weights(body, types) for body in node.bodies),
                folded=node.folded or converts,
            )
        )
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def write_net_as_onnx_model(net: IrNet, file: OpenvinoFile) -> tuple[Any, dict[str, str]]:
    """Return a file's model as an ONNX model, and by name the types in which the file stores
    weights that it converts.
    """
    model = onnx_message_module().ModelProto(ir_version=_IR_VERSION)
    model.opset_import.add(domain="", version=OPSET)
    model.opset_import.add(domain=DOMAIN, version=1)
    model.graph.name = net.name or Path(file.path).stem
    writer = IrToOnnxWriter(net, model.graph, file.weights)
    _write_layers(writer)
    validate_and_sort_model(model)
    return model, writer.storage


def _write_layers(writer: IrToOnnxWriter) -> None:
    """Write all layers of a model or a body."""
    is_body = bool(writer.prefix)
    for layer in layers_in_run_order(writer.net):
        writer.start_nodes_of_layer(layer)
        if layer.kind == "Parameter":
            if not is_body:
                _add_model_input(writer, layer)
        elif layer.kind == "Const":
            writer.store_constant()
        elif layer.kind in ("Result", "Assign"):
            if not is_body:
                _add_model_output(writer)
        elif layer.kind in _CONTROL and layer.bodies:
            write_layer_with_bodies(writer, _write_layers)
        else:
            write_layer_nodes(writer)
            if not is_body:
                writer.declare_result_shapes()


def _add_model_input(writer: IrToOnnxWriter, layer: IrLayer) -> None:
    """Add an input to the ONNX model, with the sizes that the file fixes."""
    value = writer.graph.input.add(name=writer.result_name())
    tensor = value.type.tensor_type
    tensor.elem_type = (
        onnx_type_number(layer.data.get("element_type", layer.outputs[0].precision)) or 1
    )
    written = layer.data.get("shape", "")
    if "..." in written:
        return  # the number of axes is open
    tensor.shape.SetInParent()
    for word in written.split(",") if written.strip() else ():
        dim = tensor.shape.dim.add()
        if word.strip().isdecimal():
            dim.dim_value = int(word)


def _add_model_output(writer: IrToOnnxWriter) -> None:
    """Add an output to the ONNX model: the input of a Result layer, or the value that a variable
    stores.
    """
    value = writer.operand_value_name(0)
    taken = {output.name for output in writer.graph.output}
    stored = {tensor.name for tensor in writer.graph.initializer}
    provided = {tensor.name for tensor in writer.graph.input}
    if value in taken | stored | provided:
        value = writer.add_node("Identity", [value])
    writer.graph.output.add(name=value)


def _warn_of_variables(net: IrNet) -> None:
    """Warn that the variables of the model are counted with their initial values."""
    count = sum(layer.kind == "ReadValue" for layer in net.layers)
    if count:
        warnings.warn(
            f"the model keeps {count} variable{'s' * (count > 1)} between its runs: the "
            "first run is counted, which begins with their initial values",
            CrossflopsWarning,
            stacklevel=2,
        )
