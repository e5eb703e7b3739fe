"""Function bodies for recurrent layers that ONNX has no operator for: projected states, packed
sequences.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from crossflops.frontends.pytorch.convert.function_bodies.writer import (
    Body,
    OnnxBodyWriter,
    OpaqueNode,
)


class _Cell(NamedTuple):
    """A recurrent layer in one direction: its kind, and its weights as they are multiplied with
    rows.
    """

    kind: str
    into: Any
    again: Any
    biases: Sequence[Any]
    projection: Any


def _write_lstm_step(
    write: OnnxBodyWriter, cell: _Cell, fed: Any, states: Sequence[Any]
) -> list[Any]:
    """Write ONNX nodes for an LSTM step, c' = f c + i g, h' = W_hr (o tanh(c')); return [h',
    c'].
    """
    hidden, memory = states
    sums = write("Add", fed, _write_input_product(write, hidden, cell.again, cell.biases[1:]))
    i, f, g, o = write.append_with_results(4, "Split", sums, axis=-1, num_outputs=4)
    kept = write("Mul", write("Sigmoid", f), memory)
    taken = write("Mul", write("Sigmoid", i), write("Tanh", g))
    new = write("Add", kept, taken)
    shown = write("Mul", write("Sigmoid", o), write("Tanh", new))
    if cell.projection is not None:
        shown = write("MatMul", shown, cell.projection)
    return [shown, new]


def _write_gru_step(
    write: OnnxBodyWriter, cell: _Cell, fed: Any, states: Sequence[Any]
) -> list[Any]:
    """Write ONNX nodes for a GRU step, n = tanh(x + r (W_hn h + b_hn)), h' = n + z (h - n); return
    [h'].
    """
    back = _write_input_product(write, states[0], cell.again, cell.biases[1:])
    fed_gates = write.append_with_results(3, "Split", fed, axis=-1, num_outputs=3)
    back_gates = write.append_with_results(3, "Split", back, axis=-1, num_outputs=3)
    r, z = (write("Sigmoid", write("Add", fed_gates[gate], back_gates[gate])) for gate in (0, 1))
    new = write("Tanh", write("Add", fed_gates[2], write("Mul", r, back_gates[2])))
    return [write("Add", new, write("Mul", z, write("Sub", states[0], new)))]


def _write_simple_rnn_step(
    write: OnnxBodyWriter, cell: _Cell, fed: Any, states: Sequence[Any]
) -> list[Any]:
    """Write ONNX nodes for a step of a simple RNN, tanh or relu of input plus state product;
    return [state].
    """
    function = "Relu" if "relu" in cell.kind else "Tanh"
    sums = write("Add", fed, _write_input_product(write, states[0], cell.again, cell.biases[1:]))
    return [write(function, sums)]


_STEPS: Mapping[str, tuple[int, Callable[..., list[Any]]]] = {  # states, and what a step does
    "aten.lstm.input": (2, _write_lstm_step),
    "aten.lstm.data": (2, _write_lstm_step),
    "aten.gru.data": (1, _write_gru_step),
    "aten.rnn_tanh.data": (1, _write_simple_rnn_step),
    "aten.rnn_relu.data": (1, _write_simple_rnn_step),
}


def _write_input_product(
    write: OnnxBodyWriter, rows: Any, weight: Any, bias: Sequence[Any]
) -> Any:
    """Write ONNX nodes for rows @ weight, plus the bias if there is one; return the result."""
    product = write("MatMul", rows, weight)
    return write("Add", product, bias[0]) if bias else product


def _write_unpacked_recurrent_layer(
    write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]
) -> list[Any] | None:
    """Write ONNX nodes for a recurrent layer on sequences [T, B, I] of equal length; return its
    results.

    https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html
    """
    turned = bool(node.settings.get("batch_first"))
    rows = write("Transpose", x[0], perm=[1, 0, 2]) if turned else x[0]
    output, *states = _write_recurrent_layers(write, node, rows, x[1:], None)
    return [write("Transpose", output, perm=[1, 0, 2]) if turned else output, *states]


def _write_packed_recurrent_layer(
    write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]
) -> list[Any] | None:
    """Write ONNX nodes for a recurrent layer on packed sequences, which are padded, run and packed
    again; return its results.
    """
    (steps,), batch = node.operands[1].shape, node.operands[2].shape[1]
    sizes = write.append_column_reshape(x[1])
    mask = write("Less", write.append_range(batch), sizes)
    flat = write("Reshape", mask, write.constant_integers(-1))
    counts = write("CumSum", write.append_int64_cast(flat), write.constant_integer(0))
    first, step = write.constant_integer(0), write.constant_integer(1)
    rows = write("Gather", x[0], write("Max", write("Sub", counts, step), first), axis=0)
    padded = write("Reshape", rows, write.constant_integers(steps, batch, -1))
    there = write("Unsqueeze", mask, write.constant_integers(2))
    output, *states = _write_recurrent_layers(write, node, padded, x[2:], there)
    width = node.results[0].shape[-1]
    flat_output = write("Reshape", output, write.constant_integers(steps * batch, width))
    return [write("Compress", flat_output, flat, axis=0), *states]


def _write_recurrent_layers(
    write: OnnxBodyWriter,
    node: OpaqueNode,
    rows: Any,
    provided: Sequence[Any],
    is_row_present: Any,
) -> list[Any]:
    """Write ONNX nodes for all layers of a recurrent network; return [last output, final states].

    `is_row_present` masks the steps that a sequence does not have.
    """
    settings, number = node.settings, _STEPS[node.op_type][0]
    directions = 2 if settings["bidirectional"] else 1
    layers = int(settings["num_layers"])
    first, weights = provided[:number], provided[number:]
    per_cell = len(weights) // (layers * directions)
    last: list[list[Any]] = [[] for _ in first]
    for layer in range(layers):
        outputs = []
        for way in range(directions):
            run = layer * directions + way
            cell = _write_cell_weights(write, node, weights[run * per_cell : (run + 1) * per_cell])
            start = [
                write("Gather", state, write.constant_integer(run), axis=0) for state in first
            ]
            *ends, output = _write_recurrent_scan(
                write, node, cell, rows, start, way, is_row_present
            )
            outputs.append(output)
            for kept, end in zip(last, ends, strict=True):
                kept.append(write("Unsqueeze", end, write.constant_integers(0)))
        rows = write("Concat", *outputs, axis=-1)
        if settings.get("train") and settings.get("dropout") and layer < layers - 1:
            rows = _write_dropout(write, rows, float(settings["dropout"]))
    return [rows, *(write("Concat", *kept, axis=0) for kept in last)]


def _write_dropout(write: OnnxBodyWriter, rows: Any, probability: float) -> Any:
    """Write the ONNX node for a dropout in training mode with this `probability`; return
    the result.
    """
    import onnx_ir as ir

    training = write("Cast", write.constant_integer(1), to=int(ir.DataType.BOOL))
    return write("Dropout", rows, write.constant_float_like(probability, rows), training)


def _write_cell_weights(write: OnnxBodyWriter, node: OpaqueNode, weights: Sequence[Any]) -> _Cell:
    """Return the weights of a recurrent cell, with its matrices transposed by ONNX nodes."""
    into, again, *rest = weights
    biases = rest[:2] if node.settings["has_biases"] else []

    def write_transpose(matrix: Any) -> Any:
        """Write the ONNX node for the transpose of a matrix; return the result."""
        return write("Transpose", matrix, perm=[1, 0])

    projects = rest[len(biases) :]
    projection = write_transpose(projects[0]) if projects else None
    return _Cell(node.op_type, write_transpose(into), write_transpose(again), biases, projection)


def _write_recurrent_scan(
    write: OnnxBodyWriter,
    node: OpaqueNode,
    cell: _Cell,
    rows: Any,
    start: Sequence[Any],
    direction: int,
    is_row_present: Any,
) -> list[Any]:
    """Write an ONNX Scan of a recurrent cell over all steps; return [final states, outputs of all
    steps].
    """
    import onnx_ir as ir

    kind, truth = ir.TensorType(node.operands[0].dtype), ir.TensorType(ir.DataType.BOOL)
    inner = write.new_loop_body_writer()
    states = [ir.Value(name=write.new_name(), type=kind) for _ in start]
    fed = ir.Value(name=write.new_name(), type=kind)
    runs = [] if is_row_present is None else [ir.Value(name=write.new_name(), type=truth)]
    new = _STEPS[cell.kind][1](inner, cell, fed, states)
    if runs:
        new = [inner("Where", runs[0], *pair) for pair in zip(new, states, strict=True)]
    results = [*new, inner("Identity", new[0])]
    for result in results:
        result.type = kind
    body = ir.Graph([*states, fed, *runs], results, nodes=inner.nodes, name="step")
    scanned = [
        _write_input_product(write, rows, cell.into, cell.biases[:1]),
        *([is_row_present] if runs else []),
    ]
    return write.append_with_results(
        len(results), "Scan", *start, *scanned,
        num_scan_inputs=len(scanned), scan_input_directions=[direction] * len(scanned),
        scan_output_directions=[direction], body=body,
    )  # fmt: skip


def _write_packed_sequences(
    write: OnnxBodyWriter, node: OpaqueNode, x: Sequence[Any]
) -> list[Any]:
    """Write ONNX nodes that pack sequences [T, B, ...]; return [rows by step, number of sequences
    in each step].

    https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_padded_sequence.html
    """
    rows, lengths = x
    axes = len(node.operands[0].shape)
    if node.settings.get("batch_first"):
        rows = write("Transpose", rows, perm=[1, 0, *range(2, axes)])
    steps = node.results[1].shape[0]
    mask = write("Less", write.append_column_reshape(write.append_range(steps)), lengths)
    used = write(
        "Slice",
        rows,
        write.constant_integers(0),
        write.constant_integers(steps),
        write.constant_integers(0),
    )
    flat = write("Reshape", used, write.constant_integers(-1, *node.results[0].shape[1:]))
    packed = write("Compress", flat, write("Reshape", mask, write.constant_integers(-1)), axis=0)
    sizes = write(
        "ReduceSum", write.append_int64_cast(mask), write.constant_integers(1), keepdims=0
    )
    return [packed, sizes]


BODIES: Mapping[str, Body] = {
    "aten.lstm.input": _write_unpacked_recurrent_layer,
    **dict.fromkeys(
        ("aten.lstm.data", "aten.gru.data", "aten.rnn_tanh.data", "aten.rnn_relu.data"),
        _write_packed_recurrent_layer,
    ),
    "aten._pack_padded_sequence.default": _write_packed_sequences,
}
