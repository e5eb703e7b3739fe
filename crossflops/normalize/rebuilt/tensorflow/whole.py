"""A module rebuilt from an ONNX model -> the graph of what it does, and its operations."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from crossflops.core.graph import Graph, Node
from crossflops.core.trace import Call, Setting, Trace
from crossflops.load.protobuf import parse
from crossflops.normalize import onnx_file
from crossflops.normalize.digest import digest
from crossflops.normalize.onnx_file.modules import Place, table
from crossflops.normalize.rebuilt.tensorflow.module import OnnxModule, scopes
from crossflops.normalize.rebuilt.tensorflow.parts import part
from crossflops.normalize.tensorflow.layers import KINDS, Layers
from crossflops.normalize.tensorflow.links import CONTRACTIONS

MADE = "onnx."  # before the type of a node that no operation stands for


class NodeLayers(Layers):
    """The modules of the model that was rebuilt, and the node that every operation stands for."""

    def __init__(self, model: OnnxModule) -> None:
        paths, nodes = model.program.paths, parse(model.program.data).graph.node
        self.rows = table([Place(((path, ""),)) for path in paths.values() if path], model.name)
        self._ids = {row.path: row.id for row in self.rows}
        self._types = {node.name: node.op_type for node in nodes}
        self._nodes = {scope: name for name, scope in scopes(paths).items()}
        self._paths = paths

    def node(self, name: str) -> str | None:
        """The node in whose scope an operation is."""
        while name:
            name = name.rpartition("/")[0]
            if name in self._nodes:
                return self._nodes[name]
        return None

    def of(self, name: str) -> tuple[str, int]:
        """The module of an operation, whose path is its scope."""
        return self.home(self.node(name) or "")

    def home(self, node: str) -> tuple[str, int]:
        """The module of a node."""
        path = self._paths.get(node, "")
        return path, self._ids[path]

    def around(self, scope: str) -> tuple[str, int]:
        """The module around a module."""
        path = scope.rpartition(".")[0]
        return path, self._ids[path]

    def kind(self, module: int, name: str) -> str:
        """The operator that was written out, where it is of a kind that has a name."""
        return KINDS.get(self._types.get(self.node(name) or "", ""), "")


def program(model: OnnxModule, seen: Any, setting: Setting) -> tuple[bytes, Graph, Trace]:
    """As `normalize.tensorflow.whole.program`, of a rebuilt module that was recorded."""
    data = model.program.data
    graph, _ = onnx_file.of_bytes(data, model.name, setting)
    calls: dict[str, list[Call]] = {}
    for call in seen.trace.calls:
        if call.storey == "operator" and (name := seen.layers.node(call.key)):
            calls.setdefault(name, []).append(call)
    made: list[Call] = []
    nodes = tuple(
        one
        for node in graph.nodes
        for one in _linked(node, calls.get(node.key, []), seen.layers, made)
    )
    graph = msgspec.structs.replace(graph, nodes=nodes, name=model.name)
    graph = msgspec.structs.replace(graph, digest=digest(graph))
    held: dict[str, list[str]] = {}
    for node in nodes:
        held.setdefault(node.call, []).append(node.key)
    every = tuple(
        msgspec.structs.replace(call, nodes=tuple(held.get(call.key, ())))
        for call in (*seen.trace.calls, *made)
    )
    return data, graph, msgspec.structs.replace(seen.trace, calls=every)


def _linked(
    node: Node, calls: Iterable[Call], layers: NodeLayers, made: list[Call]
) -> Iterator[Node]:
    """The node at its operation. One that multiplies in several is as many nodes."""
    calls = list(calls)
    path, module = layers.home(node.key)
    products = [call for call in calls if call.target in CONTRACTIONS]
    if len(products) > 1:
        for number, call in enumerate(products):
            yield msgspec.structs.replace(part(node, call, f"{node.key}/{number}"), path=path)
        return
    found = next(iter(products or calls), None)
    if found is None:
        found = Call(
            key=f"{node.key} ({MADE})",
            parent=None,
            storey="operator",
            target=f"{MADE}{node.op.type}",
            module=module,
            outputs=tuple(spec for spec in node.outputs if spec is not None),
        )
        made.append(found)
    yield msgspec.structs.replace(node, call=found.key, path=path)
