"""An ONNX file -> its graph, and the table of the modules that its nodes tell of."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import TargetError
from crossflops.frontends.onnx import binding, functions, loops, notices, shapes
from crossflops.frontends.onnx.file import OnnxFile
from crossflops.frontends.onnx.functions import Calls
from crossflops.frontends.onnx.graph import Reading, check_operands, to_graph
from crossflops.frontends.onnx.modules import table, with_parameters
from crossflops.frontends.onnx.shapes import Asked, ImpossibleShapeError, infer_shapes
from crossflops.frontends.onnx.types import Type
from crossflops.ir.graph import Control, Graph
from crossflops.ir.measurement import Observation
from crossflops.ir.trace import Setting, Trace
from crossflops.load import decoded, read
from crossflops.load.protobuf import decode_error, parse

_STORED_APART = 4  # the first version of ONNX's IR in which an initializer need not be an input


def normalize(file: OnnxFile, setting: Setting) -> tuple[Graph, Trace]:
    """The graph of a file, and a trace without calls: a file does not say who called what.

    Modules are those that torch.onnx notes, else those that node names with slashes tell of,
    else the root alone. Raises TargetError, InputError, NormalizeError.
    """
    return _normalized(read(file.path), file, setting)


def of_bytes(
    data: bytes,
    name: str,
    setting: Setting,
    control: Control = Control(),
    seen: Observation | None = None,
) -> tuple[Graph, Trace]:
    """As `normalize`, of a model in memory whose shapes are definite."""
    file = OnnxFile(path=name, control=control, seen=seen)
    return _normalized(decoded(data), file, setting)


class Opened:
    """A file that was read once, to be normalized at many sizes. Raises TargetError."""

    def __init__(self, file: OnnxFile) -> None:
        self._file = file
        self._bytes: bytes = read(file.path).SerializeToString()

    def at(self, dims: Mapping[str, int], setting: Setting) -> tuple[Graph, Trace]:
        """The graph with these dimensions. Raises InputError, NormalizeError, TargetError."""
        file = msgspec.structs.replace(self._file, dims=dims)
        return _normalized(parse(self._bytes), file, setting)


def _normalized(model: Any, file: OnnxFile, setting: Setting) -> tuple[Graph, Trace]:
    try:
        if file.seen is None:
            return _found(model, file, setting)
        copy = type(model).FromString(model.SerializeToString())
        graph, trace = _found(model, file, setting)
        with warnings.catch_warnings(action="ignore"):
            alone, _ = _found(copy, msgspec.structs.replace(file, seen=None), setting)
        return shapes.marked(graph, alone), trace
    except (RecursionError, decode_error()) as error:
        what = "functions, loops and branches lie too deep within one another"
        raise TargetError(what, "inline the functions with onnx.inliner") from error


def _found(model: Any, file: OnnxFile, setting: Setting) -> tuple[Graph, Trace]:
    before = _declared(model)
    bound = binding.bind(model.graph, file.dims, file.specs, file.path)
    kept = all(map(_holds, before, _declared(model)))
    # ONNX's inference looks only from this version on at what is stored and is no input, which
    # onnxruntime allows in any.
    model.ir_version = max(model.ir_version, _STORED_APART)
    local = functions.local(model)
    opset = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import}
    notices.newer(file.path, opset)
    editions: dict[str, dict[str, int]] = {}
    apart = bool(local) and not (
        file.inlined and functions.expanded_size(model, local) <= functions.LIMIT
    )
    if not apart:
        editions = functions.inline(model, local)
    graphs = [("", model.graph), *((f"{one.name}/", one) for one in local.values() if apart)]
    asked = Asked(*loops.named(graphs, file.control))
    if file.seen is not None:
        asked = shapes.asked_or_seen(model.graph, asked, file.seen)
    if apart:
        asked = _with_calls(model, local, opset, asked)
    seen = shapes.types(file.seen)
    try:
        model, types = infer_shapes(model, bound, asked, kept, seen)
    except ImpossibleShapeError as error:
        check_operands(error.key, error.node, error.types, Reading(opset, editions, *asked))
        raise
    opset |= {o.domain: o.version for o in model.opset_import if o.domain != "ai.onnx"}
    name = model.graph.name or Path(file.path).stem
    graph, places = to_graph(model, types, name, bound, Reading(opset, editions, *asked))
    notices.empty(file.path, graph)
    modules = with_parameters(table(places, name), graph)
    return graph, Trace(calls=(), modules=modules, setting=setting)


def _with_calls(
    model: Any, local: dict[functions.Identity, Any], opset: dict[str, int], asked: Asked
) -> Asked:
    """The functions as they are called: to be counted once for each kind of call."""
    copies = {key: type(one).FromString(one.SerializeToString()) for key, one in local.items()}
    del model.functions[:]

    def infer(unit: Any) -> tuple[Any, dict[str, Type]]:
        return infer_shapes(unit, {}, whole, trusted=False)

    whole = asked._replace(calls=Calls(copies, opset, infer))
    return whole


def _declared(model: Any) -> list[list[int | None]]:
    """The sizes of each input that are numbers, None for the others."""
    return [
        [
            dim.dim_value if dim.WhichOneof("value") == "dim_value" else None
            for dim in value.type.tensor_type.shape.dim
        ]
        for value in binding.model_inputs(model.graph)
    ]


def _holds(declared: list[int | None], bound: list[int | None]) -> bool:
    """Whether an input has every size that was declared; of one without a shape there is none."""
    return len(declared) <= len(bound) and all(map(_same, declared, bound))


def _same(declared: int | None, bound: int | None) -> bool:
    return declared in (None, bound)
