"""Read and write notes in a file on the parameters of the model that it was exported from.

What a file stores does not tell them: a weight behind a node without an ONNX form feeds no known
input, a constant that a converter made up feeds one, complex weights are twice as many real
numbers, and a parameter that no output depends on is not in the file. So an export writes one
entry into the metadata of the model, `crossflops.parameters`, in JSON:

    {"version": 1, "tensors": "<digest>", "packed": [0, 0], "idle": 0, "modules":
     [["fc", "torch.nn.modules.linear.Linear", [["weight", 0, "float32", [10, 512]]]]]}

A row is a module that holds parameters: its path, its class, and of each parameter its name, a
number (two with the same one are one tensor), type and shape. `packed` are the elements and the
bytes that quantized modules hold beside these, `idle` the parameters of experts that a token does
not choose.

`tensors` is a digest of what the file stores: types and shapes of all weights that nodes read, in
no order and without their names. Shape inference, another order, other names and external data
leave them as they are; a program that folds, adds, removes or quantizes weights does not, and
then the entry is not used.
"""

from collections.abc import Iterator
from math import prod
from typing import Any

import msgspec

from crossflops.frontends.converted import hash_text, parameter_size_fields
from crossflops.frontends.onnx.binding import warn_about_file
from crossflops.frontends.onnx.modules import NodePlace
from crossflops.ir.graph import Graph
from crossflops.ir.trace import Module, Parameter, Trace
from crossflops.load.payload import ELEMENT_TYPES, tensor_dims_problem

KEY = "crossflops.parameters"
_VERSION = 1
_KINDS = ("float", "bfloat", "complex", "int8", "uint8", "int4", "uint4", "int2", "uint2")
_ML = "ai.onnx.ml"  # whose operators store their weights in lists


class NotedParameter(msgspec.Struct, frozen=True, array_like=True):
    """A noted parameter of a module."""

    name: str
    storage: int
    dtype: str
    shape: tuple[int, ...]


class NotedModule(msgspec.Struct, frozen=True, array_like=True):
    """A noted module with its own parameters."""

    path: str
    class_name: str
    parameters: tuple[NotedParameter, ...]


class ParameterNotes(msgspec.Struct, frozen=True, kw_only=True):
    """All notes on parameters in a file."""

    version: int
    tensors: str
    modules: tuple[NotedModule, ...]
    packed: tuple[int, int] = (0, 0)
    idle: int = 0


def note_parameters(graph: Graph, trace: Trace) -> ParameterNotes:
    """Return the notes to write into an ONNX file on the parameters of a counted model."""
    stored = parameter_size_fields(trace.modules)
    return ParameterNotes(
        version=_VERSION,
        tensors="",
        modules=tuple(_module_note(module) for module in trace.modules if module.params),
        packed=(graph.params - stored["params"], graph.param_bytes - stored["param_bytes"]),
        idle=graph.idle_params,
    )


def _module_note(module: Module) -> NotedModule:
    """Return the note of a module: its path, its class and its own parameters."""
    rows = [
        NotedParameter(stored.name, stored.storage, stored.dtype, stored.shape)
        for stored in module.params
    ]
    return NotedModule(module.path, module.bases[0] if module.bases else "", tuple(rows))


def notes_text_with_digest(notes: ParameterNotes, model: Any) -> str:
    """Return the notes as JSON text, with a digest of the weights in the ONNX model."""
    signed = msgspec.structs.replace(notes, tensors=tensors_digest(model))
    return msgspec.json.encode(signed).decode()


def tensors_digest(model: Any) -> str:
    """Return a hash of the types and shapes of all weights that a ModelProto's nodes read."""
    return hash_text(
        "\n".join(sorted(f"{dtype} {shape}" for dtype, shape in _weight_types_and_shapes(model)))
    )


def _weight_types_and_shapes(model: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (element type, shape) of each stored weight that has more than one element."""
    levels = [model.graph, *model.functions]
    read = {value.name for value in model.graph.output}
    stored: list[Any] = []
    while levels:
        level = levels.pop()
        stored += getattr(level, "initializer", ())
        for node in level.node:
            read.update(node.input)
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield from _weight_type_and_shape(attribute.t)
                if attribute.HasField("g"):
                    levels.append(attribute.g)
                levels += attribute.graphs
                if node.domain == _ML and attribute.floats:
                    yield "float32", (len(attribute.floats),)
    for tensor in stored:
        if tensor.name in read:
            yield from _weight_type_and_shape(tensor)


def _weight_type_and_shape(tensor: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (element type, shape) of a stored tensor if it is a weight of several elements."""
    dtype, shape = ELEMENT_TYPES.get(tensor.data_type, ""), tuple(tensor.dims)
    if dtype.startswith(_KINDS) and prod(shape) > 1:
        yield dtype, shape


# What a file says of its parameters, and whether that still holds.


def read_parameter_notes(model: Any, path: str) -> ParameterNotes | None:
    """Return the notes on parameters in a ModelProto, or None if missing or outdated.

    Warns of outdated or unreadable notes.
    """
    text = next((entry.value for entry in model.metadata_props if entry.key == KEY), None)
    if text is None:
        return None
    then = "all stored weights are counted as parameters"
    try:
        notes = msgspec.json.decode(text, type=ParameterNotes)
    except (msgspec.MsgspecError, RecursionError):
        notes = None
    if notes is None or notes.version != _VERSION or not _is_possible(notes):
        warn_about_file(
            path, f"the notes of crossflops on parameters in this file cannot be read; {then}"
        )
        return None
    if notes.tensors != tensors_digest(model):
        warn_about_file(path, f"the weights were changed after crossflops wrote the file; {then}")
        return None
    return notes


def _is_possible(notes: ParameterNotes) -> bool:
    """Return whether the noted counts are not negative and the noted shapes are valid."""
    shapes = (row.shape for module in notes.modules for row in module.parameters)
    return min(*notes.packed, notes.idle) >= 0 and not any(map(tensor_dims_problem, shapes))


def parameter_places(notes: ParameterNotes) -> list[NodePlace]:
    """Return a NodePlace (path and class) for each module with noted parameters."""
    return [NodePlace(((row.path, row.class_name),)) for row in notes.modules]


def with_noted_parameters(
    graph: Graph, modules: tuple[Module, ...], notes: ParameterNotes
) -> tuple[Graph, tuple[Module, ...]]:
    """Return the graph and the table of modules of a file, both with the noted parameters."""
    by_path: dict[str, list[Parameter]] = {}
    for module in notes.modules:
        by_path.setdefault(module.path, []).extend(
            Parameter(row.name, row.shape, row.storage, row.dtype) for row in module.parameters
        )
    modules = tuple(
        msgspec.structs.replace(row, params=tuple(by_path.get(row.path, ()))) for row in modules
    )
    stored = parameter_size_fields(modules)
    elements, nbytes = notes.packed
    sized = msgspec.structs.replace(
        graph,
        params=stored["params"] + elements,
        param_bytes=stored["param_bytes"] + nbytes,
        param_bytes_by_type=stored["param_bytes_by_type"],
        idle_params=notes.idle,
    )
    return sized, modules
