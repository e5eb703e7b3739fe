"""Where the gradients of a PyTorch model are cut: by `detach`, and under `torch.no_grad`.

The exporter drops both. A call knows whether gradients were on when it began; a tensor that was
detached on its way from one call to the next is followed in the exported program.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from crossflops.ir.graph import Graph, Node
from crossflops.ir.trace import Call

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

_DETACHES = ("aten.detach.", "aten.detach_.", "aten.detach_copy.")
# By the key of the call that made it, or "=" and the name of a parameter: is it detached?
_Sources = dict[str, bool]


def with_cuts(graph: Graph, program: "ExportedProgram", operators: Mapping[str, Call]) -> Graph:
    """The graph, each node with the places of inputs through which no gradient flows.

    `operators` are the calls by the name of their node in the program.
    """
    calls = {call.key: call for call in operators.values()}
    cut = {key for key, call in calls.items() if not call.grad}
    present = {node.call for node in graph.nodes}
    edges = _detached(program, operators, present)
    if not cut and not edges:
        return graph
    made = {spec.name: node.call for node in graph.nodes for spec in node.outputs if spec}

    def severed(node: Node) -> tuple[int, ...]:
        if node.call in cut or _detaches(calls.get(node.call)):
            return tuple(range(len(node.inputs)))
        return tuple(
            place
            for place, spec in enumerate(node.inputs)
            if spec is not None and (made.get(spec.name, f"={spec.name}"), node.call) in edges
        )

    nodes = (msgspec.structs.replace(node, severed=severed(node)) for node in graph.nodes)
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def _detaches(call: Call | None) -> bool:
    return call is not None and call.target.startswith(_DETACHES)


def _detached(
    program: "ExportedProgram", operators: Mapping[str, Call], present: set[str]
) -> set[tuple[str, str]]:
    """Pairs of calls between which every path detaches. Calls without nodes hand on what they get.

    A call that takes a tensor both ways, as it is and detached, is in no pair.
    """
    parameters = dict(program.graph_signature.inputs_to_parameters)
    reached: dict[fx.Node, _Sources] = {}
    edges: set[tuple[str, str]] = set()
    for node in program.graph.nodes:
        if node.op == "placeholder":
            known = parameters.get(node.name)
            reached[node] = {f"={known}": False} if known else {}
            continue
        sources = _merged([reached.get(argument, {}) for argument in node.all_input_nodes])
        call = operators.get(node.name)
        if call is not None and call.key in present:
            edges |= {(source, call.key) for source, detached in sources.items() if detached}
            sources = {call.key: False}
        if _detaches(call):
            sources = dict.fromkeys(sources, True)
        reached[node] = sources
    return edges


def _merged(many: list[_Sources]) -> _Sources:
    merged: _Sources = {}
    for sources in many:
        for source, detached in sources.items():
            merged[source] = merged.get(source, True) and detached
    return merged
