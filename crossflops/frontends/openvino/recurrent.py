"""The recurrent layers of OpenVINO as those of ONNX, which have the time in front of the batch."""

from typing import Any

from crossflops.frontends.openvino.writer import IrToOnnxWriter

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _onnx_recurrent_operator(writer: IrToOnnxWriter) -> str:
    """Return the ONNX operator for the current layer, such as "LSTM" for LSTMSequence."""
    return writer.current_layer.kind.removesuffix("Sequence").removesuffix("Cell")


def _add_onnx_bias(writer: IrToOnnxWriter, value: str, at: int, kind: str, units: int) -> str:
    """Add nodes that change a bias of OpenVINO [D, gates*H] to that of ONNX, which has one part
    for W and one for R; return its name.

    A GRU that resets behind its product has one row more, which is the bias of R alone.
    """
    if not units or not value:
        return ""
    if writer.flag_attribute("linear_before_reset") and kind == "GRU":
        axes, ends = writer.add_integer_constant((-1,)), writer.add_integer_constant((2 * units,))
        rows = writer.add_node("Slice", [value, writer.add_integer_constant((0,)), ends, axes])
        return writer.add_node("Concat", [value, rows], axis=-1)
    return writer.add_node("Concat", [value, value], axis=-1)


def _recurrent_attributes(writer: IrToOnnxWriter, kind: str) -> dict[str, Any]:
    """Return the attributes of the ONNX node for the current recurrent layer."""
    attributes: dict[str, Any] = {
        "hidden_size": writer.integer_attribute("hidden_size"),
        "direction": writer.text_attribute("direction", "forward"),
    }
    if kind == "GRU":
        attributes["linear_before_reset"] = int(writer.flag_attribute("linear_before_reset"))
    if writer.float_attribute("clip"):
        attributes["clip"] = writer.float_attribute("clip")
    names = [
        name.strip() for name in writer.text_attribute("activations").split(",") if name.strip()
    ]
    if names:
        both = 2 if attributes["direction"] == "bidirectional" else 1
        attributes["activations"] = [name.capitalize() for name in names] * both
    return attributes


def write_recurrent_sequence(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for a recurrent layer over a sequence, with inputs X [B, T, I], states [B,
    D, H], lengths, W, R and a bias, in this order.

    Its results are Y [B, D, T, H], and the last states [B, D, H]. Lengths that follow from shapes
    are those of X.
    """
    kind = _onnx_recurrent_operator(writer)
    states = 2 if kind == "LSTM" else 1
    swap: dict[str, Any] = {"perm": (1, 0, 2)}
    x = writer.add_node("Transpose", [writer.operand_value_name(0)], **swap)
    before = [
        writer.add_node("Transpose", [writer.operand_value_name(1 + at)], **swap)
        for at in range(states)
    ]
    lengths = ""
    if writer.operand_depends_on_data(1 + states):
        lengths = writer.add_node("Cast", [writer.operand_value_name(1 + states)], to=6)
    w, r, b = (writer.operand_value_name(2 + states + at) for at in range(3))
    bias = _add_onnx_bias(writer, b, 4 + states, kind, writer.integer_attribute("hidden_size"))
    results = [f"{writer.result_name(at)}:time-first" for at in range(1 + states)]
    operands = [x, w, r, bias, lengths, *before]
    writer.add_node(kind, operands, results, **_recurrent_attributes(writer, kind))
    writer.add_node("Transpose", results[:1], [writer.result_name()], perm=(2, 1, 0, 3))
    for at in range(states):
        writer.add_node("Transpose", [results[1 + at]], [writer.result_name(1 + at)], **swap)


def write_recurrent_cell(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for one step of a recurrent layer, with inputs X [B, I], states [B, H], W,
    R and a bias; its results are the next states.
    """
    kind = _onnx_recurrent_operator(writer)
    states = 2 if kind == "LSTM" else 1
    first = writer.add_integer_constant((0,))

    def add_leading_axis(value: str) -> str:
        """Return a value with an axis of one in front: the time, or the direction."""
        return writer.add_node("Unsqueeze", [value, first]) if value else ""

    x = add_leading_axis(writer.operand_value_name(0))
    before = [add_leading_axis(writer.operand_value_name(1 + at)) for at in range(states)]
    w, r, b = (add_leading_axis(writer.operand_value_name(1 + states + at)) for at in range(3))
    bias = _add_onnx_bias(writer, b, 3 + states, kind, writer.integer_attribute("hidden_size"))
    results = [f"{writer.result_name(at)}:with-direction" for at in range(states)]
    attributes = _recurrent_attributes(writer, kind)
    writer.add_node(kind, [x, w, r, bias, "", *before], ["", *results], **attributes)
    for at in range(states):
        writer.add_node("Squeeze", [results[at], first], [writer.result_name(at)])
