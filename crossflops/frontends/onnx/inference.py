"""Run ONNX's shape inference in another process, so that its crash or hang is an error message."""

import os
import re
import struct
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from crossflops.errors import CrossflopsWarning, NormalizeError, TargetError
from crossflops.frontends.onnx.binding import bind_input_sizes
from crossflops.frontends.onnx.forms import first_operand_error
from crossflops.frontends.onnx.loops import levels_of_all_graphs
from crossflops.frontends.onnx.types import graph_value_types
from crossflops.frontends.onnx.values import FLOATS, MATRIX, SEQUENCE, Value
from crossflops.ir.graph import Graph, Op, TensorSpec
from crossflops.load import beside, read_onnx_model
from crossflops.load.beside import OnnxHelperProcess
from crossflops.load.protobuf import SCHEMA, look_up_schema_or_version, parse_model_proto
from crossflops.operators import find_operator_rule

# Wall time: a busy machine gives a child a tenth of a processor.
_SECONDS, _SECONDS_PER_BYTE = 10.0, 5e-6
_NO_MEMORY = "bad_alloc"  # what C++ calls it
_UNKNOWN = r"node name (.*?)\. No opset import for domain (\S*?) ?optype (\w+)"
_HINT = "store shapes in the file with onnx.shape_inference, or export the model again"


class _Attempt(NamedTuple):
    """Options of shape inference: whether a contradiction is an error, whether it follows values.

    Values are followed through concatenated vectors of any length: where that takes too much
    memory, shapes are inferred without it.
    """

    strict: bool
    follow: bool


def infer_onnx_shapes(model: Any, strict: bool = True) -> Any:
    """Return the model with all shapes that ONNX infers from its inputs and small constants.

    It runs in a forked child with limits on time and memory, where the system has fork. An error
    that strict inference finds becomes a warning, and the shapes that could be inferred are kept.
    Raises TargetError where the file does not say which operator version it uses, NormalizeError
    when inference crashes or takes too long.
    """
    data = model.SerializeToString()
    message, contradiction = "", ""
    for attempt in (_Attempt(strict, True), _Attempt(False, True), _Attempt(False, False)):
        answer = _infer_in_limited_process(data, attempt)
        if answer[:1] == b"+":
            if contradiction:
                what = f"shape inference: {_shorten_message(contradiction)}"
                warnings.warn(what, category=CrossflopsWarning, stacklevel=2)
            return parse_model_proto(answer[1:])
        message = answer[1:].decode(errors="replace").strip()
        if attempt.strict and _NO_MEMORY not in message:
            contradiction = _contradiction_text(message)
        if unknown := re.search(_UNKNOWN, message):
            node, domain, operator = unknown.groups()
            raise TargetError(
                f"node {node!r} ({operator}): the file does not declare the opset version of "
                f"the domain {domain or 'ai.onnx'}",
                "export the file again, or add the domain and its version to opset_import",
            )
    imports = {opset.domain: opset.version for opset in model.opset_import}
    if wrong := first_operand_error(model.graph, imports):
        raise wrong
    raise NormalizeError(f"the shapes cannot be inferred: {message}", _HINT)


# What following values says of a model that can run. ONNX takes small whole numbers for sizes, in
# vectors alone, and objects to the sum of a vector and a matrix of indices, which broadcast
# (onnx/defs/math/defs.cc: MathOpDataPropagator; operands that do not are "Incompatible
# dimensions"), and it reads tables of indices, whose numbers were left out here.
_NO_CONTRADICTION = re.compile(r"\] (Invalid rank for|Data size mismatch\..* elements 0 ?$)")


def _contradiction_text(message: str) -> str:
    """Return the part of an error message that says the model contradicts itself, or ""."""
    begin, *errors = re.split(r"(?=\(op_type:)", message)
    kept = [error for error in errors if not _NO_CONTRADICTION.search(error)]
    return begin + "".join(kept) if kept or not errors else ""


def strict_inference_objection(model: Any) -> str:
    """Return the error message of ONNX's strict shape inference, or "" if it has none."""
    data = model.SerializeToString()
    attempt = _Attempt(strict=True, follow=True)
    try:
        answer = _infer_in_limited_process(data, attempt)
    except NormalizeError:
        return ""
    message = answer[1:].decode(errors="replace") if answer[:1] == b"-" else ""
    return "" if _NO_MEMORY in message else message.strip()


def _shorten_message(message: str) -> str:
    """Return a message on one line, cut to 300 characters."""
    return " ".join(message.split())[:300]


def _infer_in_limited_process(data: bytes, attempt: _Attempt) -> bytes:
    """Return "+" and the inferred model, or "-" and an error, from another, limited process."""
    if not hasattr(os, "fork"):
        return beside.infer_model_shapes(data, *attempt)
    early = beside.take_inference_process()
    if early is None:
        # all are made once, before there are two of us
        look_up_schema_or_version(SCHEMA, "", "Identity", 1)
    other = early or OnnxHelperProcess(lambda: beside.infer_shapes_within_limits(data, *attempt))
    if early:
        early.send_inference_request(data, *attempt)
    find_operator_rule(
        Op("", "Identity", 1)
    )  # which imports all operators, while the child is at work
    seconds = _SECONDS + _SECONDS_PER_BYTE * len(data)
    answer = None
    try:
        answer = other.receive_answer(seconds)
    finally:
        status = 0 if answer and early else other.wait_for_exit_status(kill_first=answer is None)
    if answer is None:
        raise NormalizeError(f"shape inference takes longer than {seconds:.0f} s", _HINT)
    if not answer:
        config = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "no answer"
        raise NormalizeError(f"shape inference crashed ({config})", _HINT)
    return answer


# What onnx.shape_inference alone tells of a file, in its strict mode: some tools know no more.

ShapesByName = Mapping[str, tuple[int, ...]]


def strict_shapes_by_name(
    path: str, dims: Mapping[str, int], specs: Sequence[TensorSpec]
) -> dict[str, tuple[int, ...]] | None:
    """Return shapes by value name as strict inference gives them (0: unknown), or None on errors.

    The file's own declarations of inner values are ignored, as by tools that infer afresh. `dims`
    and `specs` bind the sizes of its inputs.
    """
    import onnx

    model: Any = read_onnx_model(path)
    bind_input_sizes(model.graph, dims, specs, path)
    del model.graph.value_info[:]
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError:
        return None
    graph = inferred.graph
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.value_info, *graph.input, *graph.output)
    }


def with_shapes_by_name(graph: Graph, shapes: ShapesByName) -> Graph:
    """Return the graph with these shapes by name; values without one are None in its nodes."""
    nodes = tuple(
        msgspec.structs.replace(
            node,
            inputs=_with_strict_shapes(node.inputs, shapes),
            outputs=_with_strict_shapes(node.outputs, shapes),
        )
        for node in graph.nodes
    )
    return msgspec.structs.replace(graph, nodes=nodes)


def _with_strict_shapes(
    specs: tuple[TensorSpec | None, ...], shapes: ShapesByName
) -> tuple[TensorSpec | None, ...]:
    """Return the specs with these shapes by name; None for a value without such a shape."""
    return tuple(
        spec
        if spec is None or spec.role in ("parameter", "constant")
        else msgspec.structs.replace(spec, shape=shapes[spec.name])
        if spec.name in shapes
        else None
        for spec in specs
    )


# Sizes that are known, told to the inference where it does not follow how they were computed.

# Operators whose result has a shape that the values of their inputs say, and the first of these.
SIZED = {
    **dict.fromkeys(("ConstantOfShape", "Range"), 0),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"), 0),
    **dict.fromkeys(("AffineGrid", "CenterCropPad", "Col2Im", "DFT", "MaxUnpool"), 1),
    **dict.fromkeys(("OneHot", "STFT", "TopK", "Upsample"), 1),
    **dict.fromkeys(("Expand", "Pad", "Reshape", "Resize", "Slice", "Split", "Tile"), 1),
    **dict.fromkeys(("Squeeze", "Unsqueeze", "ReduceMean", "ReduceSum"), 1),  # their axes
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMin", "ReduceProd"), 1),
    **dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"), 1),
}
PIN = "#known"  # the end of the name of a constant that `pin` adds
_FORMATS = {6: "i", 7: "q"}  # TensorProto.INT32 and INT64
_KINDS = {**dict.fromkeys(_FORMATS, ""), **FLOATS}  # of the values of a type that is pinned


def store_known_sizes(graph: Any) -> bool:
    """Store known sizes as constants where inference needs them, in place; return whether any was.

    Such a constant has the name of the value, followed by `PIN`.
    """
    pinned = False
    for enclosing in levels_of_all_graphs(graph):
        types = graph_value_types(enclosing.graph)
        for node in enclosing.graph.node:
            first = SIZED.get(node.op_type)
            if first is None or node.domain:
                continue
            if all(enclosing.shapes.get(name) is not None for name in node.output if name):
                continue
            for index, name in enumerate(node.input[first:], first):
                value = enclosing.values.get(name)
                kind = types[name].dtype if name in types else 7
                if value is None or value.rank in (SEQUENCE, MATRIX):
                    continue
                if _KINDS.get(kind) != value.kind:
                    continue
                if name.endswith(PIN) or (
                    node.op_type == "Split" and min(value.items, default=0) < 0
                ):
                    continue  # a branch that never runs may hold what no tensor can have
                node.input[index] = f"{name}{PIN}"
                store_constant(enclosing.graph, node.input[index], kind, value)
                pinned = True
    return pinned


def store_constant(graph: Any, name: str, kind: int, value: Value) -> None:
    """Add a small value to a graph as a stored tensor of this name and element type."""
    form = value.kind or _FORMATS[kind]
    graph.initializer.add(
        name=name,
        data_type=kind,
        dims=[len(value.items)] * value.rank,
        raw_data=struct.pack(f"<{len(value.items)}{form}", *value.items),
    )
