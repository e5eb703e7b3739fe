"""Decide sizes and paths that depend on data, in TensorFlow or JAX, by one run of the model.

The converter traces shapes. A mask leaves sizes open, a `while_loop` its iterations, a `cond` its
branch. The converted model, with its weights and inputs, is run once; see docs/adr/0021.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from crossflops.errors import CrossflopsError, NormalizeError, ValuesNeededError
from crossflops.frontends.conversion import announcing_no_converter
from crossflops.frontends.frontend import Run
from crossflops.ir.graph import Graph, Node
from crossflops.ir.measurement import Observation
from crossflops.ir.trace import Trace
from crossflops.load.order import node_subgraphs
from crossflops.load.protobuf import parse_model_proto

Runnable: TypeAlias = tuple[bytes, Mapping[str, Any]]  # an ONNX model, and arrays by input name
_DRAWING = ("RandomUniform", "RandomNormal", "Multinomial", "Bernoulli")
_LONGEST = 300  # letters of a message
_DRAWS = "the model draws random numbers: another run may have other sizes"


class DecidableConversion(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a conversion, in which a run may decide sizes and branches.

    `observed` has the run's observations, `undecided` the graph that was made without them.
    """

    trace: Trace
    graph: Graph | None = None
    observed: Observation | None = None
    undecided: Graph | None = None

    @property
    def current_graph(self) -> Graph:
        """The graph, which an earlier pass must have built."""
        assert self.graph is not None
        return self.graph


_Conversion = TypeVar("_Conversion", bound=DecidableConversion)


def decide_unknown_sizes_by_run(
    state: _Conversion,
    read: Callable[[_Conversion], _Conversion],
    runnable: Callable[[], Runnable],
    run: Run | None,
) -> _Conversion:
    """Return the converted model; if sizes or branches are unknown, one run decides them.

    `read` makes graph and calls, with the observations that the state has; `runnable` makes the
    model with its weights, and raises NormalizeError where there are none.
    """
    alone = read(state)
    graph = alone.current_graph
    if run is None or not any(map(_is_undetermined, _separately_counted_nodes(graph.nodes))):
        return alone
    try:
        data, feeds = runnable()
        with announcing_no_converter():
            values = run(_without_nonstandard_nodes(data), feeds)
        made = read(msgspec.structs.replace(state, observed=values, undecided=graph))
    except ValuesNeededError:
        raise
    except Exception as error:  # whatever it is: a run that was not asked for costs no count
        return _with_trace_fields(
            alone, notes=(f"sizes that depend on data are unknown: {_run_error_text(error)}",)
        )
    if not any(
        node.depends_on_inputs for node in _separately_counted_nodes(made.current_graph.nodes)
    ):
        return alone
    draws = any(
        node.op.type.startswith(_DRAWING) for node in _separately_counted_nodes(graph.nodes)
    )
    return _with_trace_fields(made, runtime=values.runtime, notes=(_DRAWS,) if draws else ())


def mark_nodes_decided_by_run(state: _Conversion) -> _Conversion:
    """Return the state with marks on nodes whose size or branch only the run decided."""
    if state.undecided is None:
        return state
    keys = set(_keys_of_undetermined_nodes(state.undecided.nodes))
    graph = state.current_graph
    marked = msgspec.structs.replace(graph, nodes=_mark_nodes_with_keys(graph.nodes, keys))
    return msgspec.structs.replace(state, graph=marked)


def _with_trace_fields(state: _Conversion, **fields: Any) -> _Conversion:
    """Return the conversion's state with these fields of its trace set."""
    return msgspec.structs.replace(state, trace=msgspec.structs.replace(state.trace, **fields))


def _run_error_text(error: Exception) -> str:
    """Return the error of a run as one line of text, shortened if it is long."""
    if isinstance(error, CrossflopsError):
        return f"{error.message} ({error.hint})"
    return " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]


def _mark_nodes_with_keys(
    nodes: tuple[Node, ...], keys: set[str], inside: bool = False
) -> tuple[Node, ...]:
    """Return the nodes with marks: those with a key in `keys` depend on values of the inputs."""
    marked = []
    for node in nodes:
        depends = not _is_undetermined(node) and (inside or node.key.partition("@")[0] in keys)
        below = tuple(
            msgspec.structs.replace(
                body,
                nodes=_mark_nodes_with_keys(
                    body.nodes, keys, inside or (depends and _is_control_flow(node))
                ),
            )
            for body in node.bodies
        )
        marked.append(msgspec.structs.replace(node, bodies=below, depends_on_inputs=depends))
    return tuple(marked)


def _keys_of_undetermined_nodes(nodes: Iterable[Node]) -> Iterator[str]:
    """Yield the keys of nodes whose size, iterations, branch or input shape is unknown."""
    for node in _separately_counted_nodes(nodes):
        if _is_undetermined(node) or any(
            tensor and tensor.shape is None for tensor in node.inputs
        ):
            yield node.key.partition("@")[0]


def _is_undetermined(node: Node) -> bool:
    """Return whether a node's output size, number of iterations or branch is unknown."""
    if not node.op.domain and node.op.type in ("Loop", "Scan") and node.trips is None:
        return True
    if _is_control_flow(node) and node.op.type == "If" and not node.choice:
        return True
    return any(tensor is not None and tensor.shape is None for tensor in node.outputs)


def _is_control_flow(node: Node) -> bool:
    """Return whether a node is one of ONNX's `If`, `Loop` or `Scan`."""
    return not node.op.domain and node.op.type in ("If", "Loop", "Scan")


def _separately_counted_nodes(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield the nodes that are counted by themselves, also those in their bodies."""
    for node in nodes:
        if node.is_operation_of_model:
            yield node
            for body in node.bodies:
                yield from _separately_counted_nodes(body.nodes)


def _without_nonstandard_nodes(data: bytes) -> bytes:
    """Return the ONNX model without nonstandard operators and without nodes that need them.

    Its outputs are then the remaining values that no node reads. Raises NormalizeError where none
    remains.
    """
    from onnx import defs

    model = parse_model_proto(data)
    lost: set[str] = set()
    for node in list(model.graph.node):
        stored = list(_node_and_body_nodes(node))
        reads = {name for inner in stored for name in inner.input}
        if not reads.isdisjoint(lost) or any(
            inner.domain or not defs.has(inner.op_type) for inner in stored
        ):
            lost.update(node.output)
            model.graph.node.remove(node)
    if not lost:
        return data
    if not model.graph.node:
        raise NormalizeError(
            "ONNX does not support any operation of the model",
            "leave out the tools that read ONNX files; `crossflops count` lists the operations",
        )
    read = {
        name
        for node in model.graph.node
        for stored in _node_and_body_nodes(node)
        for name in stored.input
    }
    made = [name for node in model.graph.node for name in node.output if name]
    del model.graph.output[:]
    for name in made:
        if name not in read:
            model.graph.output.add(name=name)
    return bytes(model.SerializeToString())


def _node_and_body_nodes(node: Any) -> Iterator[Any]:
    """Yield an ONNX node and all nodes in its subgraphs, at any depth."""
    yield node
    for body in node_subgraphs(node):
        for inner in body.node:
            yield from _node_and_body_nodes(inner)
