"""Run the verb `export`: write a normalized and counted model to a file that is not a report."""

import tempfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from crossflops.bench.agreement import compare_with_onnxruntime
from crossflops.bench.session import import_onnxruntime
from crossflops.errors import InputError
from crossflops.frontends import (
    Source,
    build_model_program,
    normalize,
    reject_unsupported_no_grad,
    require_frontend,
)
from crossflops.frontends.conversion import announcing_converter
from crossflops.frontends.onnx import OnnxFile
from crossflops.ir.agreement import Agreement
from crossflops.ir.graph import Graph, Node
from crossflops.ir.ledger import CountedNode, UncountedNode
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets.request import Request

if TYPE_CHECKING:
    from crossflops.frontends.onnx.noted_parameters import ParameterNotes

Format: TypeAlias = Literal["onnx", "model-explorer"]
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "model-explorer": ".json"}


class FileRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to write a model: see `crossflops.verbs.api.export`."""

    to: Format
    file: Path
    annotate: bool = False
    unit: Literal["macs", "flops"] = "macs"
    verify: bool = False


class Files(list[Path]):
    """The files that were written; `agreement` is the result of `verify` for the first of them."""

    agreement: Agreement | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the paths and the agreement as plain values."""
        return {
            "files": [str(path) for path in self],
            "agreement": msgspec.to_builtins(self.agreement),
        }


def export_request(request: Request, requested: FileRequest) -> Files:
    """Write the model or its counts to a file; return the written files, with --verify also how
    well the file agrees with the model.

    Returns the files that were written.
    """
    _check_export_options(requested)
    request.refuse_unused_options()
    source = request.source()
    reject_unsupported_no_grad(source, request.setting)
    if isinstance(source.model, OnnxFile):
        if requested.verify:
            raise InputError(
                "--verify compares a file with its model, but TARGET is an ONNX file",
                "give the model that the file was exported from",
            )
        return Files(_export_onnx_file(source, request.setting, requested))
    if requested.verify:
        import_onnxruntime()
    ran = (
        require_frontend(source.model).run_and_measure_rounding(source, request.setting)
        if requested.verify
        else None
    )
    files = Files(_export_from_model(source, request.setting, requested))
    if requested.to == "onnx":
        _warn_if_unloadable(files[0])
    if ran is not None:
        files.agreement = compare_with_onnxruntime(files[0], ran)
    return files


def _warn_if_unloadable(file: Path) -> None:
    """Warn if the exported ONNX file cannot be loaded by a runtime."""
    from crossflops.export.loading import describe_unloadable
    from crossflops.frontends.onnx.binding import warn_about_file
    from crossflops.load import read_onnx_model

    if sentence := describe_unloadable(read_onnx_model(str(file))):
        warn_about_file(str(file), sentence)


def _check_export_options(requested: FileRequest) -> None:
    """Raise InputError if options of `export` do not fit the format, such as a wrong suffix."""
    to, file = requested.to, requested.file
    if to not in SUFFIXES:
        raise InputError(f"unknown format {to!r}", f"choose one of {', '.join(SUFFIXES)}")
    if file.suffix.lower() != SUFFIXES[to]:
        raise InputError(
            f"-o {file} must end in {SUFFIXES[to]}", "give a file name that ends in this suffix"
        )
    if requested.annotate and to != "onnx":
        raise InputError(
            f"--annotate applies only to --to onnx; {to} always has the counts",
            "leave out --annotate, or write --to onnx",
        )
    if requested.verify and to != "onnx":
        raise InputError(
            f"--verify applies only to --to onnx; {to} is not a model that can run",
            "leave out --verify, or write --to onnx",
        )
    if requested.unit != "macs" and to == "onnx":
        raise InputError(
            "--unit has no effect on --to onnx, which always has MACs and FLOPs",
            "leave out --unit",
        )


def _counts_per_node(graph: Graph) -> Iterator[tuple[Node, Sequence[CountedNode | UncountedNode]]]:
    """Yield (node, counts of it and of the nodes inside it) for each node of the graph."""
    for node in graph.nodes:
        yield node, count(msgspec.structs.replace(graph, nodes=(node,))).counts


def _export_onnx_file(
    source: Source,
    setting: Setting,
    requested: FileRequest,
    parameters: "ParameterNotes | None" = None,
) -> list[Path]:
    """Write an ONNX file as annotated ONNX or as data for a viewer; return the paths of the
    written files.
    """
    from crossflops.export.onnx_file import (
        copy_model_with_notes,
        data_locations,
        iterate_file_nodes,
        main_graph_field,
        mapping_onnx_file,
        model_explorer_node_data,
        notes_of_file,
    )
    from crossflops.files import write_file
    from crossflops.load import read_onnx_model

    origin = source.model.path
    model = read_onnx_model(origin)
    notes = {}
    if requested.to == "onnx" and not requested.annotate:
        _reject_size_options(source)
    else:
        with mapping_onnx_file(origin) as data:
            nodes = list(iterate_file_nodes(data, main_graph_field(data)))
        notes = notes_of_file(_counts_per_node(normalize(source, setting)[0]), nodes, model)
    if requested.to == "onnx":
        return copy_model_with_notes(
            origin, requested.file, notes, data_locations(model), parameters
        )
    write_file(requested.file, model_explorer_node_data(notes.values(), requested.unit))
    return [requested.file]


def _reject_size_options(source: Source) -> None:
    """Raise InputError for --input, --dim, --trips or --branch, which have no effect on a copy of
    the file.
    """
    file = source.model
    sized = {"--input": file.specs, "--dim": file.dims, "--trips or --branch": file.control}
    for flag, value in sized.items():
        if value:
            raise InputError(
                f"{flag} has no effect on a copy of the file", "add --annotate to write counts"
            )


def _export_from_model(source: Source, setting: Setting, requested: FileRequest) -> list[Path]:
    """Write a model of a framework as ONNX or as data for a viewer; return the paths of the
    written files.
    """
    from crossflops.export.onnx_file import model_explorer_node_data, notes_of_graph
    from crossflops.export.program import save_program
    from crossflops.files import write_file
    from crossflops.frontends.onnx.noted_operations import note_operations
    from crossflops.frontends.onnx.noted_parameters import note_parameters

    frontend = require_frontend(source.model)
    if requested.to == "onnx":
        _require_weight_values(source.model)
    model, graph, trace = build_model_program(source, setting)
    if model is None and requested.to == "onnx":
        raise InputError(
            f"a model of {frontend.title} cannot be written as ONNX",
            "convert it with a converter to ONNX (tf2onnx for TFLite), or write viewer data: "
            "--to model-explorer",
        )
    parameters = note_parameters(graph, trace)
    if frontend.converted_by and requested.to == "onnx":
        with announcing_converter(frontend.converter):
            model, graph = frontend.convert_with_weights(source, setting)
    if isinstance(model, bytes) and (requested.to == "onnx" or not frontend.converted_by):
        noted = note_operations(model, graph)
        return _export_from_onnx_bytes(noted, setting, requested, parameters)
    is_asked = requested.annotate or requested.to != "onnx"
    notes = notes_of_graph(_counts_per_node(graph)) if is_asked else {}
    if requested.to == "onnx":
        frontend.add_bodies_of_foreign_operators(model)
        return save_program(model, requested.file, notes, parameters)
    write_file(requested.file, model_explorer_node_data(notes.values(), requested.unit))
    return [requested.file]


def _export_from_onnx_bytes(
    model: bytes, setting: Setting, file_request: FileRequest, parameters: "ParameterNotes"
) -> list[Path]:
    """Write an ONNX model, made by a converter, as ONNX or as data for a viewer; return the paths
    of the written files.
    """
    with tempfile.TemporaryDirectory(prefix="crossflops-") as scratch:
        file = Path(scratch, "model.onnx")
        file.write_bytes(model)
        converted = Source(OnnxFile(path=str(file)), (), {})
        return _export_onnx_file(converted, setting, file_request, parameters)


def _require_weight_values(model: Any) -> None:
    """Raise InputError if a parameter or a buffer of the model is on the meta device, so that it
    has no values to write.
    """
    lists = [getattr(model, name, None) for name in ("named_parameters", "named_buffers")]
    tensors = chain.from_iterable(named() for named in lists if named is not None)
    without_values = [name for name, tensor in tensors if tensor.is_meta]
    if without_values:
        raise InputError(
            f"the model has no values to write: {without_values[0]!r} is on the meta device",
            "build the model on a device with values, such as cpu",
        )
