"""Find dead nodes of a file: a run executes them, but no output depends on them.

A node in a body is needed where it is needed in any of the runs: what a loop carries is, where
its last value is used or something that is needed in the body reads it. The same holds of a loop
that was unrolled: a run does all that the body does. A function is looked at once for each set of
its results that some call uses.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from crossflops.ir.graph import Graph, Node, TensorSpec

_RUN = re.compile(r"\[\d+\]")  # of a loop that was unrolled: Gemm_1@Loop_1[0]
_SCAN_WITHOUT_LENGTHS = 9  # version of the operator set from which Scan takes no sequence_lens


def mark_dead_nodes(graph: Graph, outputs: Iterable[str]) -> Graph:
    """Return the graph with marks on dead nodes, on which none of these outputs depends."""
    needed = set(outputs)
    if _is_every_node_needed(graph.nodes, needed):  # as in most files
        return graph
    nodes = _LivenessWalk().mark_nodes(graph.nodes, needed)
    return msgspec.structs.replace(graph, nodes=nodes)


def _is_every_node_needed(nodes: Sequence[Node], needed: set[str]) -> bool:
    """Return whether it is certain that no node is dead; False also if a node has bodies.

    If some node were dead, then no node would read the results of the last dead one.
    """
    read = set(needed)
    for node in nodes:
        if node.bodies:
            return False
        read.update([spec.name for spec in node.inputs if spec is not None])
    for node in nodes:
        for spec in node.outputs:
            if spec is not None and spec.name in read:
                break
        else:
            return False
    return True


def without_dead_nodes(graph: Graph) -> Graph:
    """Return the graph without its dead nodes; its field `whole` has the graph with them."""
    nodes = _Pruning().without_dead(graph.nodes)
    if nodes is graph.nodes:
        return graph
    return msgspec.structs.replace(graph, nodes=nodes, whole=graph)


class _HolderForm(NamedTuple):
    """The inputs that a node with bodies always needs, and the values that its bodies carry.

    `always` are the indices of inputs that it always needs; `carried` values begin among its
    inputs at index `first`, among those of its body at `first_inside`, and among the body's
    outputs at `given`. A loop's body has a condition before these.
    """

    always: frozenset[int]
    carried: int = 0
    first: int = 0
    first_inside: int = 0
    given: int = 0
    has_all: bool = False

    def body_outputs_needed(self, body: Graph, indices: frozenset[int]) -> frozenset[int]:
        """Return the positions of the body's outputs that make these results of the node."""
        if self.has_all:
            return frozenset(range(len(body.outputs)))
        return frozenset((*range(self.given), *(self.given + index for index in indices)))

    def positions_of_carried_values(self, body: Graph, read: set[str]) -> frozenset[int]:
        """Return the positions of the carried values that are among the names a body reads."""
        indices = (index - self.first_inside for index in _positions_of_names(body.inputs, read))
        return frozenset(index for index in indices if 0 <= index < self.carried)


def _form_of_node_with_bodies(node: Node) -> _HolderForm:
    """Return how a node with bodies (Loop, Scan, If, a call) passes values in and out of them."""
    kind, inputs = node.op.type if not node.op.domain else "", len(node.inputs)
    if node.choice == "function":
        return _HolderForm(frozenset())
    if kind == "Loop":
        return _HolderForm(frozenset((0, 1)), inputs - 2, 2, 2, 1)
    if kind == "Scan":
        first = 0 if node.op.since >= _SCAN_WITHOUT_LENGTHS else 1
        sliced = node.attrs.get("num_scan_inputs")
        carried = inputs - first - (sliced if isinstance(sliced, int) else 0)
        return _HolderForm(
            frozenset((*range(first), *range(first + carried, inputs))), carried, first
        )
    return _HolderForm(frozenset(range(inputs)), has_all=kind not in ("If", "SequenceMap"))


class _LivenessWalk:
    """A walk over a graph from the last node to the first, which marks dead nodes."""

    def __init__(self) -> None:
        """Begin with no dead nodes known for any graph."""
        self._marked: dict[tuple[int, frozenset[int]], tuple[Graph, set[str]]] = {}
        self._dead: dict[int, Graph] = {}
        self._read: list[Graph] = []  # what is known by its id must not go

    def mark_nodes(self, nodes: Sequence[Node], needed: set[str]) -> tuple[Node, ...]:
        """Return the nodes, dead ones marked; add the names that others read to `needed`."""
        while True:
            marked = []
            for node in reversed(nodes):
                indices = _positions_of_names(node.outputs, needed)
                if not indices:
                    node = self._as_dead_node(node)
                elif node.bodies:
                    node = self._mark_dead_nodes_in_bodies(node, indices, needed)
                else:
                    needed.update(spec.name for spec in node.inputs if spec is not None)
                marked.append(node)
            more = _results_live_elsewhere(marked)
            if not more:
                return tuple(reversed(marked))
            needed |= more

    def _as_dead_node(self, node: Node) -> Node:
        """Return a copy of the node that is marked as dead, with all nodes in its bodies."""
        bodies = []
        for body in node.bodies:
            if id(body) not in self._dead:
                self._read.append(body)
                nodes = []
                for inner in body.nodes:
                    nodes.append(self._as_dead_node(inner))
                self._dead[id(body)] = msgspec.structs.replace(body, nodes=tuple(nodes))
            bodies.append(self._dead[id(body)])
        return msgspec.structs.replace(node, dead=True, bodies=tuple(bodies))

    def _mark_dead_nodes_in_bodies(
        self, node: Node, indices: frozenset[int], needed: set[str]
    ) -> Node:
        """Return a node with bodies with marks on dead nodes in them; these results are needed."""
        form = _form_of_node_with_bodies(node)
        states = frozenset(index for index in indices if index < form.carried)
        while True:
            bodies, outer, more = [], set[str](), states
            for body in node.bodies:
                results = form.body_outputs_needed(body, indices | states)
                marked, read = self._mark_dead_nodes_in_body(
                    body, results, node.choice == "function"
                )
                bodies.append(marked)
                more |= form.positions_of_carried_values(body, read)
                outer |= read
            if more == states:
                break
            states = more
        arguments: Iterable[int] = ()
        if node.choice == "function":
            arguments = _positions_of_names(node.bodies[0].inputs, outer)
            outer = set()
        carried = (form.first + index for index in states)
        needed.update(_names_at_positions(node.inputs, (*form.always, *carried, *arguments)))
        needed |= outer.difference(*(_spec_names(body.inputs) for body in node.bodies))
        return _with_bodies(node, tuple(bodies))

    def _mark_dead_nodes_in_body(
        self, body: Graph, indices: frozenset[int], called: bool
    ) -> tuple[Graph, set[str]]:
        """Return a body with marks on dead nodes, and the outer names that it reads.

        Bodies are walked once for each set of results, since a loop walks its own several times. A
        called function gets the names of these results in its own name where a part of it is dead.
        """
        key = id(body), indices
        if key not in self._marked:
            self._read.append(body)
            read = set(_names_at_positions(body.outputs, indices))
            nodes = self.mark_nodes(body.nodes, read)
            made = {spec.name for node in nodes for spec in node.outputs if spec is not None}
            marked = body
            if not _are_same(nodes, body.nodes):
                results = ", ".join(_names_at_positions(body.outputs, sorted(indices)))
                name = f"{body.name}({results})" if called else body.name
                marked = msgspec.structs.replace(body, nodes=nodes, name=name)
            self._marked[key] = marked, read - made
        return self._marked[key]


class _Pruning:
    """A copy of a graph without dead nodes; a body shared by several nodes stays shared."""

    def __init__(self) -> None:
        """Begin with no pruned bodies."""
        self._bodies: dict[int, Graph] = {}

    def without_dead(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Return the nodes without dead ones, also in their bodies."""
        kept = []
        for node in nodes:
            if node.dead:
                continue
            if node.bodies:
                for body in node.bodies:
                    if id(body) not in self._bodies:
                        inner = self.without_dead(body.nodes)
                        same = inner is body.nodes
                        self._bodies[id(body)] = (
                            body if same else msgspec.structs.replace(body, nodes=inner)
                        )
                node = _with_bodies(node, tuple([self._bodies[id(body)] for body in node.bodies]))
            kept.append(node)
        return nodes if _are_same(kept, nodes) else tuple(kept)


def _results_live_elsewhere(nodes: Sequence[Node]) -> set[str]:
    """Return the results of dead nodes whose copy in another run of the loop is not dead."""
    copies = [node for node in nodes if "@" in node.key]
    live = {_RUN.sub("", node.key) for node in copies if not node.dead}
    dead = (node for node in copies if node.dead and _RUN.sub("", node.key) in live)
    return {name for node in dead for name in _spec_names(node.outputs)}


def _with_bodies(node: Node, bodies: tuple[Graph, ...]) -> Node:
    """Return the node with these bodies; the same object if they are its bodies already."""
    if _are_same(bodies, node.bodies):
        return node
    return msgspec.structs.replace(node, bodies=bodies)


def _are_same(new: Sequence[object], old: Sequence[object]) -> bool:
    """Return whether two sequences have the same objects (by identity) in the same order."""
    return len(new) == len(old) and all(a is b for a, b in zip(new, old, strict=True))


def _positions_of_names(specs: Sequence[TensorSpec | None], names: set[str]) -> frozenset[int]:
    """Return the positions of the tensors whose name is among these names."""
    return frozenset(
        index for index, spec in enumerate(specs) if spec is not None and spec.name in names
    )


def _names_at_positions(specs: Sequence[TensorSpec | None], indices: Iterable[int]) -> list[str]:
    """Return the names of the tensors at these positions, without omitted tensors."""
    chosen = (specs[index] for index in indices if index < len(specs))
    return [spec.name for spec in chosen if spec is not None]


def _spec_names(specs: Iterable[TensorSpec | None]) -> set[str]:
    """Return the names of the tensors, without empty names."""
    return {spec.name for spec in specs if spec is not None and spec.name}
