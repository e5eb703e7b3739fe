"""An ONNX file -> its graph, and the table of the modules that its nodes tell of."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from crossflops.errors import NormalizeError, OperandError, TargetError
from crossflops.frontends.onnx import binding, functions, loops, shapes
from crossflops.frontends.onnx.binding import OnnxFile, shown, warn
from crossflops.frontends.onnx.functions import Calls
from crossflops.frontends.onnx.graph import Reading, check_operands, to_graph, without_notes
from crossflops.frontends.onnx.liveness import leave_out_dead, mark_dead
from crossflops.frontends.onnx.modules import NodePlace, table, with_parameters
from crossflops.frontends.onnx.shapes import ImpossibleShapeError, InferenceRequest, infer_shapes
from crossflops.frontends.onnx.types import Type
from crossflops.ir.graph import Control, Graph, Node, TensorSpec
from crossflops.ir.measurement import Observation
from crossflops.ir.trace import Setting, Trace
from crossflops.load import beside, decoded, read
from crossflops.load.protobuf import decode_error, newest, parse
from crossflops.operators import rule
from crossflops.threads import filter_warnings

if TYPE_CHECKING:
    from crossflops.frontends.onnx.noted_parameters import ParameterNotes

_REPORT = (
    "the conversion to ONNX failed, not the model: please report it, with a model that shows it"
)
_STORED_APART = 4  # the first version of ONNX's IR in which an initializer need not be an input


def normalize(file: OnnxFile, setting: Setting) -> tuple[Graph, Trace]:
    """The graph of a file, and a trace without calls: a file does not say who called what.

    Modules are those that torch.onnx notes, else those that node names with slashes tell of,
    else the root alone. Raises TargetError, InputError, NormalizeError.
    """
    normalized = _normalized(lambda: read(file.path), file, setting, has_dead=True)
    beside.done()
    return normalized


def of_bytes(
    data: bytes,
    name: str,
    setting: Setting,
    control: Control = Control(),
    seen: Observation | None = None,
) -> tuple[Graph, Trace]:
    """As `normalize`, of a model that was converted to ONNX in memory, with definite shapes.

    Raises NormalizeError for what would be wrong with a file: its user has none to mend.
    """
    file = OnnxFile(path=name, control=control, seen=seen)
    try:
        return _normalized(lambda: decoded(data), file, setting, has_dead=False)
    except (TargetError, OperandError) as error:
        message = f"the graph that was made of {name} cannot be read: {error.message}"
        raise NormalizeError(message, _REPORT) from error


class Opened:
    """A file that was read once, to be normalized at many sizes. Raises TargetError."""

    def __init__(self, file: OnnxFile) -> None:
        self._file = file
        self._bytes: bytes = read(file.path).SerializeToString()

    def at(self, dims: Mapping[str, int], setting: Setting) -> tuple[Graph, Trace]:
        """The graph with these dimensions. Raises InputError, NormalizeError, TargetError."""
        file = msgspec.structs.replace(self._file, dims=dims)
        return _normalized(lambda: parse(self._bytes), file, setting, has_dead=True)


def _normalized(
    model: Callable[[], Any], file: OnnxFile, setting: Setting, has_dead: bool
) -> tuple[Graph, Trace]:
    """`model` reads the model anew: nobody else may hold it, so that it is gone when it can be.

    What is dead is looked for where the graph is not that of a program, whose own calls say so.
    """
    try:
        graph, trace = _found(model(), file, setting, has_dead)
        if file.seen is None:
            return leave_out_dead(graph), trace
        without_run = msgspec.structs.replace(file, seen=None)
        with filter_warnings("ignore"):
            alone, _ = _found(model(), without_run, setting, has_dead)
        return leave_out_dead(shapes.marked(graph, alone)), trace
    except (RecursionError, decode_error()) as error:
        message = "functions, loops and branches lie too deep within one another"
        raise TargetError(message, "inline the functions with onnx.inliner") from error


class _Start(NamedTuple):
    """What inference starts from, beside the model. Nothing here holds a part of that."""

    bound: dict[str, int]
    kept: bool
    opset: dict[str, int]
    editions: dict[str, dict[str, int]]
    wanted: InferenceRequest
    placed: list[NodePlace] | None


def _read_notes(model: Any, path: str) -> "ParameterNotes | None":
    """Return what an export noted of its parameters; few files have metadata at all."""
    if not model.metadata_props:
        return None
    from crossflops.frontends.onnx.noted_parameters import noted_parameters

    return noted_parameters(model, path)


def _found(model: Any, file: OnnxFile, setting: Setting, has_dead: bool) -> tuple[Graph, Trace]:
    notes = _read_notes(model, file.path)
    bound, kept, opset, editions, wanted, placed = _start(model, file)
    ran = shapes.types(file.seen)
    restore: Callable[[Graph], Graph] | None = None
    if not file.inlined:
        from crossflops.frontends.onnx.kept import loops_of, with_loops  # of tools alone

        restore = partial(with_loops, loops=loops_of(model.graph))
    try:
        inferred, types = infer_shapes(model, bound, wanted, kept, ran)
    except ImpossibleShapeError as error:
        check_operands(error.key, error.node, error.types, Reading(opset, editions, *wanted))
        raise
    del model  # what was inferred is read anew, and as large
    opset |= {o.domain: o.version for o in inferred.opset_import}
    name = inferred.graph.name or Path(file.path).stem
    there = Reading(opset, editions, *wanted)
    graph, places, weights = to_graph(inferred, types, name, bound, there, placed)
    empty(file.path, graph)
    if notes is None:
        modules = with_parameters(table(places, name), graph, weights)
    else:
        from crossflops.frontends.onnx.noted_parameters import noted_places, with_noted

        rows = table([*places, *noted_places(notes)], name)
        graph, modules = with_noted(graph, rows, notes)
    if has_dead:
        graph = mark_dead(graph, [output.name for output in inferred.graph.output])
    graph = restore(graph) if restore else graph
    return graph, Trace(calls=(), modules=modules, setting=setting)


def _start(model: Any, file: OnnxFile) -> _Start:
    """The model made ready for inference, in place, and what that starts from."""
    before = _declared(model)
    bound = binding.bind(model.graph, file.dims, file.specs, file.path)
    kept = all(map(_holds, before, _declared(model)))
    # ONNX's inference looks only from this version on at what is stored and is no input, which
    # onnxruntime allows in any.
    model.ir_version = max(model.ir_version, _STORED_APART)
    local = functions.local(model)
    opset = {o.domain: o.version for o in model.opset_import}
    newer(file.path, opset)
    editions: dict[str, dict[str, int]] = {}
    apart = bool(local) and not (
        file.inlined and functions.expanded_size(model, local) <= functions.LIMIT
    )
    if not apart:
        editions = functions.inline(model, local)
    graphs = [
        ("", model.graph),
        *((f"{function.name}/", function) for function in local.values() if apart),
    ]
    held = loops.holders(graphs)
    wanted = InferenceRequest(*loops.named(held, file.control), flat=not (held or apart))
    if file.seen is not None:
        wanted = shapes.asked_or_seen(model.graph, wanted, file.seen)
    if apart:
        wanted = _with_calls(model, local, opset, wanted)
    placed = without_notes(model.graph) if wanted.flat else None
    return _Start(bound, kept, opset, editions, wanted, placed)


def _with_calls(
    model: Any,
    local: dict[functions.Identity, Any],
    opset: dict[str, int],
    wanted: InferenceRequest,
) -> InferenceRequest:
    """The functions as they are called: to be counted once for each kind of call."""
    copies = {
        key: type(function).FromString(function.SerializeToString())
        for key, function in local.items()
    }
    del model.functions[:]

    def infer(unit: Any) -> tuple[Any, dict[str, Type]]:
        return infer_shapes(unit, {}, nested, trusted=False)

    nested = wanted._replace(calls=Calls(copies, opset, infer))
    return nested


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


# What a count of a file should be read with: sizes that it overrides, results that are empty.

_MOST = 5  # results that are named


def newer(path: str, opset: Mapping[str, int]) -> None:
    """Warn of operators of a later version than the installed onnx knows."""
    for domain, version in opset.items():
        last = newest(domain)
        if last and version > last:
            subject = f"version {version} of the operators of {domain or 'ai.onnx'}"
            warn(path, f"{subject} is not known here: they are counted as of version {last}")


def empty(path: str, graph: Graph) -> None:
    """Warn of inputs without elements, and of results that are empty though no operand is."""
    for spec in graph.inputs:
        if _is_empty(spec):
            warn(path, f"input {spec.name!r} is empty, {shown(spec.shape)}: so is what follows")
    for number, (key, spec) in enumerate(_results(graph)):
        if number == _MOST:
            warn(path, f"results of more nodes than these {_MOST} are empty")
            return
        warn(path, f"result {spec.name!r} of node {key!r} is empty, {shown(spec.shape)}")


def _results(graph: Graph) -> Iterator[tuple[str, TensorSpec]]:
    """Of nodes that compute with numbers from an input; an empty list of sizes is none."""
    for node in graph.nodes:
        for spec in node.outputs:
            if (
                _is_empty(spec)
                and spec is not None
                and "float" in spec.dtype
                and not node.constant
                and not any(map(_is_empty, node.inputs))
                and _can_run(node)
            ):
                yield node.key, spec


def _can_run(node: Node) -> bool:
    """Whether the node takes its operands: what it does not take is refused, not warned of."""
    known = rule(node.op)
    try:
        if known is not None:
            known.check(node)
    except OperandError:
        return False
    return True


def _is_empty(spec: TensorSpec | None) -> bool:
    return spec is not None and spec.shape is not None and 0 in spec.shape
