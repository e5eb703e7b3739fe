"""The shapes of every module: what its first call took and gave, and its own parameters."""

from collections.abc import Iterable

import msgspec

from crossflops.ir.graph import Graph
from crossflops.ir.tensor import TensorSpec
from crossflops.ir.trace import Call, Trace
from crossflops.report.report import ModuleShapes, Report, Shape
from crossflops.report.tables import around
from crossflops.report.view import beneath


def with_shapes(report: Report, graph: Graph, trace: Trace) -> Report:
    """The report with the shapes of each of its modules.

    They are those of the first call, where calls were recorded; else of the tensors that cross
    the border of the module in the graph.
    """
    known = _of_calls(trace) or _of_graph(graph)
    weights = {row.path: {p.name: p.shape for p in row.params} for row in trace.modules}
    none = ModuleShapes()
    rows = (
        msgspec.structs.replace(
            row,
            shapes=msgspec.structs.replace(
                known.get(row.path, none),
                **({"weights": weights[row.path]} if weights.get(row.path) else {}),
            ),
        )
        for row in report.modules
    )
    return msgspec.structs.replace(report, modules=tuple(rows))


def _of_calls(trace: Trace) -> dict[str, ModuleShapes]:
    paths = {row.id: row.path for row in trace.modules}
    first: dict[str, Call] = {}
    for call in trace.calls:
        if call.level == "module":
            first.setdefault(paths[call.module], call)
    return {
        path: ModuleShapes(inputs=_shapes(call.inputs), outputs=_shapes(call.outputs))
        for path, call in first.items()
    }


def _of_graph(graph: Graph) -> dict[str, ModuleShapes]:
    """What is read inside a module and made outside, and the other way round, in their order."""
    inside: dict[str, dict[str, TensorSpec]] = {}
    reads: dict[str, dict[str, TensorSpec]] = {}
    readers: dict[str, list[str]] = {}
    params: dict[str, dict[str, tuple[int, ...]]] = {}
    for node in graph.nodes:
        named = {spec.name: spec for spec in node.inputs if spec is not None}
        for name in named:
            readers.setdefault(name, []).append(node.path)
        params.setdefault(node.path, {}).update(
            (name, spec.shape or ()) for name, spec in named.items() if spec.role == "parameter"
        )
        for path in around(node.path):
            reads.setdefault(path, {}).update(named)
            made = {spec.name: spec for spec in node.outputs if spec is not None}
            inside.setdefault(path, {}).update(made)
    last = {spec.name for spec in graph.outputs}
    return {
        path: ModuleShapes(
            inputs=_shapes(
                spec
                for name, spec in specs.items()
                if name not in inside[path] and spec.role not in ("parameter", "constant")
            ),
            outputs=_shapes(
                spec
                for name, spec in inside[path].items()
                if name in last or any(not beneath(at, path) for at in readers.get(name, ()))
            ),
            weights=params.get(path, {}),
        )
        for path, specs in reads.items()
    }


def _shapes(specs: Iterable[TensorSpec]) -> tuple[Shape, ...]:
    return tuple(spec.shape for spec in specs)
