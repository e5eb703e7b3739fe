"""Layers with bodies, If, Loop and TensorIterator, as If, Loop and Scan of ONNX.

A body of OpenVINO gets all its values by its Parameters; one of ONNX reads outer values by name,
which is what a Parameter that no run changes becomes.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from crossflops.frontends.openvino.reading import IrNet
from crossflops.frontends.openvino.writer import INT64, IrToOnnxWriter, onnx_type_number
from crossflops.load.protobuf import onnx_message_module

WriteNet = Callable[[IrToOnnxWriter], None]
_BRANCHES = {"then": "then_branch", "else": "else_branch"}


def write_layer_with_bodies(writer: IrToOnnxWriter, write_net: WriteNet) -> None:
    """Write ONNX nodes for the current layer, an If, Loop or TensorIterator; `write_net` writes
    the layers of a body.
    """
    if writer.current_layer.kind == "If":
        _write_if(writer, write_net)
        return
    ports = _Ports.from_layer(writer)
    if not ports.is_known:
        writer.add_uncounted_node()
    elif writer.current_layer.kind == "Loop":
        _write_loop(writer, write_net, ports)
    else:
        _write_scan(writer, write_net, ports)


def _body_writer(
    writer: IrToOnnxWriter, net: IrNet, outer_values: Mapping[int, str], tag: str
) -> IrToOnnxWriter:
    """Return a new writer for a body of the current layer; `outer_values` has the outer value that
    each Parameter of the body gets.
    """
    name = f"{writer.prefix}{writer.current_layer.name}/{tag}"
    graph = onnx_message_module().GraphProto(name=name)
    return IrToOnnxWriter(net, graph, writer.weights, outer_values, f"{name}/", writer.storage)


def _add_body_output(body: IrToOnnxWriter, layer: int, axis: int | None = None) -> None:
    """Add the input of a Result layer to the outputs of the body; if `axis` is given, without this
    axis of size 1, along which the loop joins the outputs.
    """
    result = body.layers[layer]
    body.start_nodes_of_layer(result)
    value = body.operand_value_name(0)
    if axis is None:
        value = body.add_node("Identity", [value])
    else:
        value = body.add_node("Squeeze", [value, body.add_integer_constant((axis,))])
    body.graph.output.add(name=value)


def _write_if(writer: IrToOnnxWriter, write_net: WriteNet) -> None:
    """Write ONNX nodes for If with both branches."""
    bodies: dict[str, Any] = {}
    for tag, attribute in _BRANCHES.items():
        rows = writer.current_layer.maps.get(f"{tag}_port_map", ())
        outer_values = {
            int(row["internal_layer_id"]): writer.operand_value_name(int(row["external_port_id"]))
            for kind, row in rows
            if kind == "input"
        }
        body = _body_writer(writer, writer.current_layer.bodies[f"{tag}_body"], outer_values, tag)
        write_net(body)
        result_layers = {
            int(row["external_port_id"]): int(row["internal_layer_id"])
            for kind, row in rows
            if kind == "output"
        }
        for port in sorted(result_layers):
            _add_body_output(body, result_layers[port])
        bodies[attribute] = body.graph
    results = [writer.result_name(at) for at in range(len(writer.current_layer.outputs))]
    writer.add_node("If", [writer.operand_value_name(0)], results, **bodies)


class _Ports(NamedTuple):
    """The ports of a loop, and the layers of its body to which they lead.

    `states` are (input of the layer, Parameter, Result), `sliced` (input, Parameter, axis, whether
    backwards), `kept` the input by Parameter, `joined` (output, Result, axis), `last` (output,
    Result). `step` is the Parameter that has the number of the run, `goes_on` the Result that says
    whether there is another one.
    """

    states: list[tuple[int, int, int]]
    sliced: list[tuple[int, int, int, bool]]
    kept: dict[int, int]
    joined: list[tuple[int, int, int]]
    last: list[tuple[int, int]]
    step: int | None
    goes_on: int | None
    is_known: bool

    @classmethod
    def from_layer(cls, writer: IrToOnnxWriter) -> "_Ports":
        """Return which inputs and outputs of the current loop belong to which layers
        of its body.
        """
        layer = writer.current_layer
        rows = layer.maps.get("port_map", ())
        back = {
            int(row["to-layer"]): int(row["from-layer"])
            for _, row in layer.maps.get("back_edges", ())
        }
        ports = cls([], [], {}, [], [], None, None, True)
        at_input = {port.number: at for at, port in enumerate(layer.inputs)}
        at_output = {port.number: at for at, port in enumerate(layer.outputs)}
        for kind, row in rows:
            outer, inner = int(row["external_port_id"]), int(row["internal_layer_id"])
            purpose = row.get("purpose", "")
            if purpose == "current_iteration":
                ports = ports._replace(step=inner)
            if purpose == "execution_condition":
                ports = ports._replace(goes_on=inner)
            if outer < 0:
                continue
            if "axis" in row and abs(int(row.get("part_size", "1"))) != 1:
                ports = ports._replace(is_known=False)
            if kind == "output" and "axis" in row:
                ports.joined.append((at_output[outer], inner, int(row["axis"])))
            elif kind == "output":
                ports.last.append((at_output[outer], inner))
            elif "axis" in row:
                is_backwards = int(row.get("stride", "1")) < 0
                ports.sliced.append((at_input[outer], inner, int(row["axis"]), is_backwards))
            elif inner in back:
                ports.states.append((at_input[outer], inner, back[inner]))
            else:
                ports.kept[inner] = at_input[outer]
        ends = {result for _, _, result in ports.states}
        follows = all(result in ends for _, result in ports.last)
        return ports._replace(is_known=ports.is_known and follows)

    def final_state_results(self, writer: IrToOnnxWriter) -> Iterator[str]:
        """Yield for each state of the loop the name of the result that has its last value; "" if
        no result has it.
        """
        outputs = {result: at for at, result in self.last}
        for _, _, result in self.states:
            yield writer.result_name(outputs[result]) if result in outputs else ""


def _add_body_input(body: IrToOnnxWriter, name: str) -> str:
    """Add an input to the graph of a loop's body, with the prefix of the body before its name;
    return the full name.
    """
    value = f"{body.prefix}{name}"
    body.graph.input.add(name=value)
    return value


def _write_scan(writer: IrToOnnxWriter, write_net: WriteNet, ports: _Ports) -> None:
    """Write an ONNX Scan for a TensorIterator: each run takes one element of every sliced input
    along its axis.
    """
    if not ports.sliced:
        writer.add_uncounted_node()
        return
    outer_values = {inner: writer.operand_value_name(at) for inner, at in ports.kept.items()}
    body = _body_writer(writer, writer.current_layer.bodies["body"], outer_values, "body")
    first = body.net.layers[0]
    for number, (_, inner, _) in enumerate(ports.states):
        body.set_body_parameter(inner, _add_body_input(body, f"state.{number}"))
    slices = [_add_body_input(body, f"slice.{number}") for number in range(len(ports.sliced))]
    body.start_nodes_of_layer(first)
    for value, (_, inner, axis, _) in zip(slices, ports.sliced, strict=True):
        body.set_body_parameter(
            inner, body.add_node("Unsqueeze", [value, body.add_integer_constant((axis,))])
        )
    write_net(body)
    for _, _, result in ports.states:
        _add_body_output(body, result)
    for _, result, axis in ports.joined:
        _add_body_output(body, result, axis)
    backwards = [int(row[3]) for row in ports.sliced]
    operands = [writer.operand_value_name(row[0]) for row in (*ports.states, *ports.sliced)]
    results = [
        *ports.final_state_results(writer),
        *(writer.result_name(at) for at, _, _ in ports.joined),
    ]
    attributes: dict[str, Any] = {
        "body": body.graph,
        "num_scan_inputs": len(slices),
        "scan_input_axes": [row[2] for row in ports.sliced],
        "scan_input_directions": backwards,
    }
    if ports.joined:
        attributes["scan_output_axes"] = [row[2] for row in ports.joined]
    writer.add_node("Scan", operands, results, **attributes)


def _write_loop(writer: IrToOnnxWriter, write_net: WriteNet, ports: _Ports) -> None:
    """Write an ONNX Loop: a count, a condition and states; each run reads its element of a sliced
    input by the number of the run.
    """
    outer_values = {inner: writer.operand_value_name(at) for inner, at in ports.kept.items()}
    body = _body_writer(writer, writer.current_layer.bodies["body"], outer_values, "body")
    step, _ = _add_body_input(body, "step"), _add_body_input(body, "goes_on")
    body.start_nodes_of_layer(body.net.layers[0])
    for number, (_, inner, _) in enumerate(ports.states):
        body.set_body_parameter(inner, _add_body_input(body, f"state.{number}"))
    for at, inner, axis, _ in ports.sliced:
        taken = body.add_node("Gather", [writer.operand_value_name(at), step], axis=axis)
        body.set_body_parameter(
            inner, body.add_node("Unsqueeze", [taken, body.add_integer_constant((axis,))])
        )
    if ports.step is not None:
        port = body.layers[ports.step].outputs[0]
        run = step
        if port.dims:
            run = body.add_node("Reshape", [step, body.add_integer_constant((1,))])
        if onnx_type_number(port.precision) != INT64:
            run = body.add_node("Cast", [run], to=onnx_type_number(port.precision))
        body.set_body_parameter(ports.step, run)
    write_net(body)
    if ports.goes_on is None:
        writer.add_uncounted_node()
        return
    _add_body_output(body, ports.goes_on)
    for _, _, result in ports.states:
        _add_body_output(body, result)
    for _, result, axis in ports.joined:
        _add_body_output(body, result, axis)
    trips = writer.constant_integers(0)
    count = "" if trips is not None and trips[0] < 0 else writer.operand_as_int64(0, vector=False)
    joined = [f"{writer.result_name(at)}:runs-first" for at, _, _ in ports.joined]
    operands = [
        count,
        writer.operand_value_name(1),
        *(writer.operand_value_name(at) for at, _, _ in ports.states),
    ]
    writer.add_node(
        "Loop", operands, [*ports.final_state_results(writer), *joined], body=body.graph
    )
    for value, (at, _, axis) in zip(joined, ports.joined, strict=True):
        rank = len(writer.current_layer.outputs[at].dims)
        order = (*range(1, axis + 1), 0, *range(axis + 1, rank))
        writer.add_node("Transpose", [value], [writer.result_name(at)], perm=order)
