"""The graph that a runtime made, and which value of the counted graph each of its values is."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crossflops.ir.graph import Node
from crossflops.load.protobuf import parse


class Executed(NamedTuple):
    """A node that runs. `bodies` are its subgraphs, by attribute."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bodies: Mapping[str, "ExecutedGraph"] = {}


class ExecutedGraph(NamedTuple):
    """Nodes in an order in which they can run, and the values that are there from the start."""

    nodes: tuple[Executed, ...]
    stored: frozenset[str]

    def everywhere(self) -> Iterator[Executed]:
        """The nodes, and those in their subgraphs."""
        for node in self.nodes:
            yield node
            for body in node.bodies.values():
                yield from body.everywhere()


def read(path: str | Path) -> ExecutedGraph:
    """The graph that onnxruntime saved. Raises TargetError."""
    return level(parse(Path(path).read_bytes()).graph)


def level(graph: Any) -> ExecutedGraph:
    """A GraphProto. A node without a name has none here: see `named`."""
    stored = {tensor.name for tensor in graph.initializer}
    stored |= {tensor.values.name for tensor in graph.sparse_initializer}
    return ExecutedGraph(tuple(map(_node, graph.node)), frozenset(stored))


def _node(node: Any) -> Executed:
    return Executed(
        name=node.name,
        op=node.op_type,
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        bodies={attr.name: level(attr.g) for attr in node.attribute if attr.HasField("g")},
    )


def named(executed: ExecutedGraph, kernels: Iterable[tuple[str, str]]) -> ExecutedGraph:
    """The graph with names for the nodes without one, from the kernels (name, operator) that ran.

    The profiler calls those by operator and a number that no file has. Those of one operator ran
    in the order in which they stand, if they are as many.
    """
    known = {node.name for node in executed.everywhere() if node.name}
    strays: dict[str, list[str]] = {}
    for name, op in kernels:
        if name not in known:
            strays.setdefault(op, []).append(name)
    tally = Counter(node.op for node in executed.everywhere() if not node.name)
    return _filled(
        executed, {op: iter(names) for op, names in strays.items() if len(names) == tally[op]}
    )


def guessed(nodes: Iterable[Node], kernels: Iterable[tuple[str, str]]) -> ExecutedGraph:
    """What can be told of a graph that is not there, from the names of the kernels alone."""
    by_key = {node.key: node for node in nodes}
    made = {spec.name for node in by_key.values() for spec in node.outputs if spec}

    def outputs(name: str) -> tuple[str, ...]:
        value = name.removesuffix("_nchwc")
        if value != name and value in made:
            return (value,)
        like = by_key.get(value) or by_key.get(value.removeprefix("fused ").partition("/")[0])
        return tuple(spec.name for spec in like.outputs if spec) if like is not None else ()

    ran = tuple(Executed(name, op, (), outputs(name)) for name, op in kernels)
    return ExecutedGraph(ran, frozenset())


def _filled(graph: ExecutedGraph, names: Mapping[str, Iterator[str]]) -> ExecutedGraph:
    def fill(node: Executed) -> Executed:
        name = node.name or next(names[node.op], "") if node.op in names else node.name
        bodies = {key: _filled(body, names) for key, body in node.bodies.items()}
        return node._replace(name=name or node.outputs[0], bodies=bodies)

    return graph._replace(nodes=tuple(fill(node) for node in graph.nodes))


# The graph that was counted, as a question: what does a value depend on, and who makes it?

# What these give depends on the shape of their input: they run before it is there, or never.
_OF_SHAPES = ("Shape", "Size")
_DEEP = 16  # nodes between the first and the last of what one kernel does


class Origin:
    """The nodes of one level of a graph, by what they make."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.by_key = {node.key: node for node in nodes}
        self.maker = {spec.name: node for node in nodes for spec in node.outputs if spec}

    def needs(self, node: Node) -> tuple[str, ...]:
        """The values that a node needs, those that its bodies take from around them included."""
        if node.op.type in _OF_SHAPES and not node.op.domain:
            return ()
        return tuple(dict.fromkeys(_read(node)))

    def behind(self, name: str) -> Iterator[Node]:
        """The nodes on which a value depends, the nearest first, not deeper than a kernel is."""
        ring, reached = deque([(name, 0)]), {name}
        while ring:
            at, deep = ring.popleft()
            node = self.maker.get(at)
            if node is None:
                continue
            yield node
            for needed in self.needs(node) if deep < _DEEP else ():
                if needed not in reached:
                    reached.add(needed)
                    ring.append((needed, deep + 1))

    def depends(self, name: str, on: str) -> bool:
        """Whether a value is another, or is made of it within one kernel."""
        made_by = self.maker.get(on)
        return name == on or any(node is made_by for node in self.behind(name))

    @property
    def twins(self) -> list[Node]:
        """The nodes that do what an earlier one does, on the same values."""
        same: dict[str, str] = {}
        first: dict[object, Node] = {}
        repeated = []
        for node in self.nodes:
            given = tuple(same.get(spec.name, spec.name) if spec else "" for spec in node.inputs)
            same_work = (node.op, given, repr(sorted(node.attrs.items())), len(node.outputs))
            earlier = first.setdefault(same_work, node)
            if earlier is node or node.bodies or not given or node.op.type.startswith("Random"):
                continue
            repeated.append(node)
            for mine, theirs in zip(node.outputs, earlier.outputs, strict=True):
                if mine and theirs:
                    same[mine.name] = same.get(theirs.name, theirs.name)
        return repeated


def _read(node: Node) -> Iterator[str]:
    yield from (spec.name for spec in node.inputs if spec)
    for body in node.bodies:
        made = {spec.name for spec in body.inputs}
        made |= {spec.name for inner_node in body.nodes for spec in inner_node.outputs if spec}
        inner: Iterable[str] = (spec.name for spec in body.outputs)
        yield from (name for name in inner if name not in made)
        for inner_node in body.nodes:
            yield from (name for name in _read(inner_node) if name not in made)


# Which value of the counted graph a value of the executed graph is.
#
# onnxruntime keeps the name of what a fused kernel makes, but not where it changes the layout of
# tensors: those get names of their own. What these are is known from the kernel's own name, and
# from what reads them.

_NCHWC = "_nchwc"  # nchwc_transformer.cc names a kernel after what it makes, and appends this
_MOVING = (
    *("ReorderInput", "ReorderOutput", "Reshape", "Transpose", "Cast", "Identity", "Flatten"),
    *("Squeeze", "Unsqueeze", "MemcpyFromHost", "MemcpyToHost"),
)
_PREFIXES = ("Fused", "QLinear", "Nhwc", "Dynamic", "Integer")
_SAME = {"Gemm": "MatMul", "MatMulInteger": "MatMul", "QGemm": "MatMul", "ConvInteger": "Conv"}


def aliases(origin: Origin, level: ExecutedGraph) -> dict[str, str]:
    """Values of the executed level -> values of the counted one, as far as it is known.

    A value that both have under one name is itself. Others are, the surest first: what the node
    of the same name and operator makes; what the like operator reads that its reader stands for;
    behind a reader that only moves data, what that one makes; what its kernel is named after.
    """
    known = dict(_by_name(origin, level))
    for node in reversed(level.nodes):
        _from_reader(origin, level, node, known)
    for node in level.nodes:
        inside = _named_after(origin, node)
        if inside and node.outputs and node.outputs[0] not in known:
            known[node.outputs[0]] = inside
    return known


def moves(op: str) -> bool:
    """Whether a kernel only moves data."""
    return op in _MOVING


def kind(op: str) -> str:
    """The operator without what the runtime says of how it does it: FusedConv is a Conv."""
    for prefix in _PREFIXES:
        op = op.removeprefix(prefix)
    return _SAME.get(op, op)


def _by_name(origin: Origin, level: ExecutedGraph) -> Iterator[tuple[str, str]]:
    for node in level.nodes:
        like = origin.by_key.get(node.name)
        made = like.outputs if like is not None and like.op.type == node.op else ()
        for place, name in enumerate(node.outputs):
            if name in origin.maker:
                yield name, name
            elif place < len(made) and (spec := made[place]) is not None:
                yield name, spec.name


def _named_after(origin: Origin, node: Executed) -> str | None:
    """A value that is made within the kernel, told by its name."""
    name = node.name.removesuffix(_NCHWC)
    if name != node.name and name in origin.maker:
        return name
    like = origin.by_key.get(name) or origin.by_key.get(name.partition("/")[0])
    made = like.outputs if like is not None else ()
    return made[0].name if made and made[0] is not None else None


def _from_reader(
    origin: Origin, level: ExecutedGraph, node: Executed, known: dict[str, str]
) -> None:
    """What a node reads, from what it makes."""
    made = next((known[name] for name in node.outputs if name in known), None)
    start = _named_after(origin, node) or made
    unknown = [
        place
        for place, name in enumerate(node.inputs)
        if name and name not in known and name not in level.stored and name not in origin.maker
    ]
    if start is None or not unknown:
        return
    like = _like(origin, node, start)
    for place in unknown:
        if like is not None and place < len(like.inputs) and like.inputs[place] is not None:
            spec = like.inputs[place]
            if place == 0 or len(like.inputs) == len(node.inputs):
                assert spec is not None
                known[node.inputs[place]] = spec.name
        elif place == 0 and moves(node.op):
            known[node.inputs[0]] = start


def _like(origin: Origin, node: Executed, start: str) -> Node | None:
    """The nearest node behind a value that has the operator of the kernel."""
    if moves(node.op):  # one of many: only if it makes the very value
        maker = origin.maker.get(start)
        return maker if maker is not None and maker.op.type == node.op else None
    wanted = kind(node.op)
    return next((node for node in origin.behind(start) if kind(node.op.type) == wanted), None)
