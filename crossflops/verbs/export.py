"""The verb `export`: a model normalized and counted -> a file that is no report."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from crossflops.errors import InputError
from crossflops.frontends import Source, normalize, program, require
from crossflops.frontends.onnx import OnnxFile
from crossflops.ir.graph import Graph, Node
from crossflops.ir.ledger import Counted, Uncounted
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets.request import asked_for

Format: TypeAlias = Literal["onnx", "model-explorer"]
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "model-explorer": ".json"}


def export(
    target: Any,
    inputs: Any = (),
    *,
    to: Format,
    file: str | Path,
    annotate: bool = False,
    unit: Literal["macs", "flops"] = "macs",
    inputs_file: str | None = None,
    setting: Setting = Setting(),
    arguments: Mapping[str, object] | None = None,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
    allow_pickle: bool = False,
) -> list[Path]:
    """Write the normalized model ("onnx") or node data ("model-explorer"); returns the files.

    Of a PyTorch model "onnx" is the graph that is counted, with its weights; of an ONNX file a
    copy, in which nothing is changed but the metadata of the nodes with `annotate`. The model is
    not counted where no count is asked for. Raises InputError for what does not go together.
    """
    path = _checked(to, Path(file), annotate)
    request = asked_for(
        target, inputs, inputs_file, setting, arguments,
        allow_pickle=allow_pickle, dims=dims, trips=trips, branches=branches,
    )  # fmt: skip
    source = request.source()
    own = _export_file if isinstance(source.model, OnnxFile) else _export_model
    return own(source, setting, to, path, annotate, unit)


def _checked(to: Format, path: Path, annotate: bool) -> Path:
    if to not in SUFFIXES:
        raise InputError(f"there is no format {to!r}", f"formats are {', '.join(SUFFIXES)}")
    if path.suffix.lower() != SUFFIXES[to]:
        raise InputError(f"{path} does not end in {SUFFIXES[to]}", "give a name that does")
    if annotate and to != "onnx":
        raise InputError(f"--annotate is for onnx: {to} has the counts anyway", "leave it out")
    return path


def _counts(graph: Graph) -> Iterator[tuple[Node, Sequence[Counted | Uncounted]]]:
    """Every node with the counts of itself and all in it, functions that others share included."""
    for node in graph.nodes:
        yield node, count(msgspec.structs.replace(graph, nodes=(node,))).counts


def _export_file(
    source: Source,
    setting: Setting,
    to: Format,
    path: Path,
    annotate: bool,
    unit: Literal["macs", "flops"],
) -> list[Path]:
    from crossflops.export import copy_model, node_data, notes_of_file
    from crossflops.export.files import write
    from crossflops.export.onnx_file import data_locations, graph_of, nodes_of, opened
    from crossflops.load import read

    origin = source.model.path
    model = read(origin)
    notes = {}
    if annotate or to != "onnx":
        with opened(origin) as data:
            nodes = list(nodes_of(data, graph_of(data)))
        notes = notes_of_file(_counts(normalize(source, setting)[0]), nodes, model)
    if to == "onnx":
        return copy_model(origin, path, notes, data_locations(model))
    write(path, node_data(notes.values(), unit))
    return [path]


def _export_model(
    source: Source,
    setting: Setting,
    to: Format,
    path: Path,
    annotate: bool,
    unit: Literal["macs", "flops"],
) -> list[Path]:
    from crossflops.export import node_data, notes_of_graph, save_program
    from crossflops.export.files import write

    frontend = require(source.model)
    if to == "onnx" and frontend.converted_by:
        raise InputError(
            f"a {frontend.title} model is converted without its weights",
            f"write the file with {frontend.converted_by}, and export that",
        )
    if to == "onnx":
        _require_weights(source.model)
    model, graph, _ = program(source, setting)
    if isinstance(model, bytes) and not frontend.converted_by:
        return _export_converted(model, setting, to, path, annotate, unit)
    notes = notes_of_graph(_counts(graph))
    if to == "onnx":
        return save_program(model, path, notes if annotate else {})
    write(path, node_data(notes.values(), unit))
    return [path]


def _export_converted(
    model: bytes,
    setting: Setting,
    to: Format,
    path: Path,
    annotate: bool,
    unit: Literal["macs", "flops"],
) -> list[Path]:
    """By way of the file that the converter makes, which has all its numbers."""
    with tempfile.TemporaryDirectory(prefix="crossflops-") as scratch:
        file = Path(scratch, "model.onnx")
        file.write_bytes(model)
        converted = Source(OnnxFile(path=str(file)), (), {})
        return _export_file(converted, setting, to, path, annotate, unit)


def _require_weights(model: Any) -> None:
    named = model.named_parameters() if hasattr(model, "named_parameters") else ()
    hollow = [name for name, one in named if one.is_meta]
    if hollow:
        raise InputError(
            f"the model has no weights to write: {hollow[0]!r} is on the meta device",
            "build the model on a device that holds numbers",
        )
