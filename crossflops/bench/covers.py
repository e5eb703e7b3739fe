"""Match the kernels that ran with the counted nodes that they compute, and build the table of
both.

First the graph that a runtime made is read, and which value of the counted graph each of its
values is. Every node then belongs to the first kernel whose result depends on it. A kernel whose
result is unknown is taken together with the one that reads it.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crossflops.bench.kernels import KernelTime, KernelTimes
from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost, CountedNode, Ledger, UncountedNode
from crossflops.load.protobuf import parse_model_proto
from crossflops.report.bench import Aside, BenchPeak, KernelProfile, KernelRow


class ExecutedNode(NamedTuple):
    """A node that runs. `bodies` are its subgraphs, by attribute."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bodies: Mapping[str, "ExecutedGraph"] = {}


class ExecutedGraph(NamedTuple):
    """Nodes in an order in which they can run, and the values that exist from the start."""

    nodes: tuple[ExecutedNode, ...]
    stored: frozenset[str]

    def all_nodes(self) -> Iterator[ExecutedNode]:
        """Yield all nodes of the graph, each before the nodes in its subgraphs."""
        for node in self.nodes:
            yield node
            for body in node.bodies.values():
                yield from body.all_nodes()


def read_executed_graph(path: str | Path) -> ExecutedGraph:
    """Return the optimized graph that onnxruntime saved to a file. Raises TargetError."""
    return to_executed_graph(parse_model_proto(Path(path).read_bytes()).graph)


def to_executed_graph(graph: Any) -> ExecutedGraph:
    """Return an ONNX GraphProto as an executed graph, with its subgraphs."""
    stored = {tensor.name for tensor in graph.initializer}
    stored |= {tensor.values.name for tensor in graph.sparse_initializer}
    return ExecutedGraph(tuple(map(_to_executed_node, graph.node)), frozenset(stored))


def _to_executed_node(node: Any) -> ExecutedNode:
    """Return an ONNX NodeProto as a node of an executed graph, with its subgraphs."""
    return ExecutedNode(
        name=node.name,
        op=node.op_type,
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        bodies={
            attr.name: to_executed_graph(attr.g) for attr in node.attribute if attr.HasField("g")
        },
    )


def name_executed_nodes(
    executed: ExecutedGraph, kernels: Iterable[tuple[str, str]]
) -> ExecutedGraph:
    """Return the executed graph with a name for each unnamed node: that of a kernel of its
    operator in the profile.

    The profiler calls those by operator and a number that no file has. Those of one operator ran
    in the order in which they stand, if they are as many.
    """
    known = {node.name for node in executed.all_nodes() if node.name}
    strays: dict[str, list[str]] = {}
    for name, op in kernels:
        if name not in known:
            strays.setdefault(op, []).append(name)
    tally = Counter(node.op for node in executed.all_nodes() if not node.name)
    return _fill_node_names(
        executed, {op: iter(names) for op, names in strays.items() if len(names) == tally[op]}
    )


def guess_executed_graph(
    nodes: Iterable[Node], kernels: Iterable[tuple[str, str]]
) -> ExecutedGraph:
    """Return the graph that onnxruntime ran, as far as the (name, operator) pairs of its kernels
    show it.
    """
    by_key = {node.key: node for node in nodes}
    made = {spec.name for node in by_key.values() for spec in node.outputs if spec}

    def output_names_of_kernel(name: str) -> tuple[str, ...]:
        """Return the output names of the kernel with this name, from the counted node that the
        name refers to.
        """
        value = name.removesuffix("_nchwc")
        if value != name and value in made:
            return (value,)
        like = by_key.get(value) or by_key.get(value.removeprefix("fused ").partition("/")[0])
        return tuple(spec.name for spec in like.outputs if spec) if like is not None else ()

    ran = tuple(ExecutedNode(name, op, (), output_names_of_kernel(name)) for name, op in kernels)
    return ExecutedGraph(ran, frozenset())


def _fill_node_names(graph: ExecutedGraph, names: Mapping[str, Iterator[str]]) -> ExecutedGraph:
    """Return the graph with a name for each unnamed node: the next one of `names` for its
    operator, else its output's name.
    """

    def with_node_names(node: ExecutedNode) -> ExecutedNode:
        """Return a copy of the node in which it and the nodes of its subgraphs have names, made
        where there was none.
        """
        name = node.name or next(names[node.op], "") if node.op in names else node.name
        bodies = {key: _fill_node_names(body, names) for key, body in node.bodies.items()}
        return node._replace(name=name or node.outputs[0], bodies=bodies)

    return graph._replace(nodes=tuple(with_node_names(node) for node in graph.nodes))


# The graph that was counted, as a question: what does a value depend on, and who makes it?

# What these give depends on the shape of their input: they run before it is there, or never.
_OF_SHAPES = ("Shape", "Size")
_DEEP = 16  # nodes between the first and the last of what one kernel does


class Origin:
    """The nodes of one level of a graph, by the values that they make."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.by_key = {node.key: node for node in nodes}
        self.maker = {spec.name: node for node in nodes for spec in node.outputs if spec}

    def values_read_by(self, node: Node) -> tuple[str, ...]:
        """Return the names of the values that a node and its bodies read; () for Shape
        and Size.
        """
        if node.op.type in _OF_SHAPES and not node.op.domain:
            return ()
        return tuple(dict.fromkeys(_values_read_by_node(node)))

    def value_ancestors(self, name: str) -> Iterator[Node]:
        """Yield the nodes from which a value is computed, the nearest first, up to a fixed
        distance.
        """
        ring, reached = deque([(name, 0)]), {name}
        while ring:
            at, deep = ring.popleft()
            node = self.maker.get(at)
            if node is None:
                continue
            yield node
            for needed in self.values_read_by(node) if deep < _DEEP else ():
                if needed not in reached:
                    reached.add(needed)
                    ring.append((needed, deep + 1))

    @property
    def duplicate_nodes(self) -> list[Node]:
        """The nodes that compute the same as an earlier node, from the same values."""
        same: dict[str, str] = {}
        first: dict[object, Node] = {}
        repeated = []
        for node in self.nodes:
            provided = tuple(
                same.get(spec.name, spec.name) if spec else "" for spec in node.inputs
            )
            same_work = (node.op, provided, repr(sorted(node.attrs.items())), len(node.outputs))
            earlier = first.setdefault(same_work, node)
            if earlier is node or node.bodies or not provided or node.op.type.startswith("Random"):
                continue
            repeated.append(node)
            for own, second in zip(node.outputs, earlier.outputs, strict=True):
                if own and second:
                    same[own.name] = same.get(second.name, second.name)
        return repeated


def _values_read_by_node(node: Node) -> Iterator[str]:
    """Yield the names of the values that a node reads, and those that its bodies read from
    outside.
    """
    yield from (spec.name for spec in node.inputs if spec)
    for body in node.bodies:
        made = {spec.name for spec in body.inputs}
        made |= {spec.name for inner_node in body.nodes for spec in inner_node.outputs if spec}
        inner: Iterable[str] = (spec.name for spec in body.outputs)
        yield from (name for name in inner if name not in made)
        for inner_node in body.nodes:
            yield from (name for name in _values_read_by_node(inner_node) if name not in made)


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


def map_executed_to_counted_values(origin: Origin, level: ExecutedGraph) -> dict[str, str]:
    """Return the name of the counted value that equals an executed value, by the name of the
    executed value.

    A value that both have under one name is itself. Others are, the surest first: what the node
    of the same name and operator makes; what the like operator reads that its reader stands for;
    behind a reader that only moves data, what that one makes; what its kernel is named after.
    """
    known = dict(_pair_values_by_name(origin, level))
    for node in reversed(level.nodes):
        _add_counted_values_of_inputs(origin, level, node, known)
    for node in level.nodes:
        inside = _value_from_node_name(origin, node)
        if inside and node.outputs and node.outputs[0] not in known:
            known[node.outputs[0]] = inside
    return known


def is_data_movement(op: str) -> bool:
    """Return whether the kernels of this operator only move data."""
    return op in _MOVING


def base_operator_type(op: str) -> str:
    """Return the ONNX operator that a runtime's operator is based on: "Conv" for "FusedConv"."""
    for prefix in _PREFIXES:
        op = op.removeprefix(prefix)
    return _SAME.get(op, op)


def _pair_values_by_name(origin: Origin, level: ExecutedGraph) -> Iterator[tuple[str, str]]:
    """Yield pairs of names of equal values: (executed value, counted value), by equal value names
    or equal node names.
    """
    for node in level.nodes:
        like = origin.by_key.get(node.name)
        made = like.outputs if like is not None and like.op.type == node.op else ()
        for index, name in enumerate(node.outputs):
            if name in origin.maker:
                yield name, name
            elif index < len(made) and (spec := made[index]) is not None:
                yield name, spec.name


def _value_from_node_name(origin: Origin, node: ExecutedNode) -> str | None:
    """Return the name of the counted value to which the name of an executed node refers,
    or None.
    """
    name = node.name.removesuffix(_NCHWC)
    if name != node.name and name in origin.maker:
        return name
    like = origin.by_key.get(name) or origin.by_key.get(name.partition("/")[0])
    made = like.outputs if like is not None else ()
    return made[0].name if made and made[0] is not None else None


def _add_counted_values_of_inputs(
    origin: Origin, level: ExecutedGraph, node: ExecutedNode, known: dict[str, str]
) -> None:
    """Add to `known` the counted values that equal the inputs of an executed node, derived from
    its outputs.
    """
    made = next((known[name] for name in node.outputs if name in known), None)
    start = _value_from_node_name(origin, node) or made
    unknown = [
        index
        for index, name in enumerate(node.inputs)
        if name and name not in known and name not in level.stored and name not in origin.maker
    ]
    if start is None or not unknown:
        return
    like = _nearest_same_operator(origin, node, start)
    for index in unknown:
        if like is not None and index < len(like.inputs) and like.inputs[index] is not None:
            spec = like.inputs[index]
            if index == 0 or len(like.inputs) == len(node.inputs):
                assert spec is not None
                known[node.inputs[index]] = spec.name
        elif index == 0 and is_data_movement(node.op):
            known[node.inputs[0]] = start


def _nearest_same_operator(origin: Origin, node: ExecutedNode, start: str) -> Node | None:
    """Return the nearest counted node that leads to the value `start` and has the operator of the
    executed node, or None.
    """
    if is_data_movement(node.op):  # one of many: only if it makes the very value
        maker = origin.maker.get(start)
        return maker if maker is not None and maker.op.type == node.op else None
    requested = base_operator_type(node.op)
    return next(
        (
            node
            for node in origin.value_ancestors(start)
            if base_operator_type(node.op.type) == requested
        ),
        None,
    )


class Cover(NamedTuple):
    """Kernels that are taken together, and the keys of the nodes that they stand for.

    Nodes in bodies have the key of the holder before theirs, as in a ledger; those of `whole`
    stand for all that is in them, too.
    """

    kernels: tuple[str, ...]
    keys: tuple[str, ...]
    whole: tuple[str, ...] = ()


class Covers(NamedTuple):
    """All kernels, and the nodes that no kernel stands for.

    `folded` were computed when the model was loaded, `merged` do what another node does, `left`
    are the others: nothing that was executed depends on them.
    """

    kernels: tuple[Cover, ...]
    folded: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def match_nodes_to_kernels(
    nodes: tuple[Node, ...], level: ExecutedGraph, prefix: str = ""
) -> Covers:
    """Return which counted nodes the executed kernels compute, with those in loop and branch
    bodies.
    """
    work = _Claims(nodes, level)
    groups = work.kernel_groups()
    joined: list[Cover] = []
    inner: list[Covers] = []
    for kernels, claimed in groups:
        complete = []
        for node in claimed:
            holder = next((k for k in kernels if k.bodies and k.op == node.op.type), None)
            if node.bodies and holder is not None:
                inner += _match_body_nodes(node, holder, f"{prefix}{node.key}/")
            elif node.bodies:
                complete.append(f"{prefix}{node.key}")
        names, keys = tuple(k.name for k in kernels), (f"{prefix}{n.key}" for n in claimed)
        joined.append(Cover(names, tuple(keys), tuple(complete)))
    level_covers = Covers(
        tuple(joined), *(_prefix_node_keys(prefix, part) for part in work.nodes_without_kernel())
    )
    every = (level_covers, *inner)
    return Covers(
        tuple(kernel for part in every for kernel in part.kernels),
        tuple(key for part in every for key in part.folded),
        tuple(key for part in every for key in part.merged),
        tuple(key for part in every for key in part.left),
    )


def _prefix_node_keys(prefix: str, nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the keys of the nodes, each with the prefix before it."""
    return tuple(f"{prefix}{node.key}" for node in nodes)


def _match_body_nodes(node: Node, holder: ExecutedNode, prefix: str) -> Iterator[Covers]:
    """Yield, for each body of a node, which of its counted nodes the executed kernels compute."""
    for body in node.bodies:
        if body.name in holder.bodies:
            yield match_nodes_to_kernels(body.nodes, holder.bodies[body.name], prefix)


class NodesWithoutKernel(NamedTuple):
    """Nodes that no kernel computes: folded constants, duplicates of other nodes, and others."""

    folded: list[Node]
    duplicates: list[Node]
    others: list[Node]


class _Claims:
    """The claims of one level: which kernel claimed which node."""

    def __init__(self, nodes: tuple[Node, ...], level: ExecutedGraph) -> None:
        self._origin = Origin(nodes)
        self._level = level
        self._names: Mapping[str, str] = map_executed_to_counted_values(self._origin, level)
        self._open = {id(node): node for node in nodes}  # two nodes may bear one name
        self._folded: list[Node] = []
        made = set(self._names.values())
        self._merged = [
            self._open.pop(id(node))
            for node in self._origin.duplicate_nodes
            if not any(spec and spec.name in made for spec in node.outputs)
        ]
        for name in sorted(level.stored):
            self._folded += self._claim_nodes(name, None)

    def kernel_groups(self) -> Iterator[tuple[list[ExecutedNode], list[Node]]]:
        """Yield groups of kernels, in their order, each with the counted nodes that they compute
        together.
        """
        waiting: dict[str, list[ExecutedNode]] = {}  # by a value of unknown origin
        for kernel in self._level.nodes:
            together = [kernel]
            for name in kernel.inputs:
                together = waiting.pop(name, []) + together
            known = [self._names[name] for name in kernel.outputs if name in self._names]
            if known or not kernel.outputs:
                claimed = [node for name in known for node in self._claim_nodes(name, kernel)]
                yield together, claimed
            else:
                waiting[kernel.outputs[0]] = together
        for left in waiting.values():
            yield left, []

    def nodes_without_kernel(self) -> NodesWithoutKernel:
        """Return the nodes that no kernel computes."""
        left = list(self._open.values())
        folded = [node for node in left if node.constant]
        others = [node for node in left if not node.constant]
        return NodesWithoutKernel(self._folded + folded, self._merged, others)

    def _claim_nodes(self, name: str, kernel: ExecutedNode | None) -> list[Node]:
        """Return the nodes that lead to a value and belong to no kernel yet; they now belong to
        this kernel.

        What depends on no input is not the work of a kernel that only reads it: it was computed
        when the model was loaded.
        """
        claimed: list[Node] = []
        maker = self._origin.maker.get(name)
        constant = maker is not None and maker.constant
        todo = [name]
        while todo:
            node = self._origin.maker.get(todo.pop())
            if node is None or self._open.pop(id(node), None) is None:
                continue
            if node.constant and not constant and kernel is not None:
                self._folded.append(node)
            else:
                claimed.append(node)
            todo += self._origin.values_read_by(node)
        return claimed


# The time of kernels and the cost of nodes, in one table.

_INTEGERS = ("QLinear", "Integer", "QGemm", "QAttention")  # in the names of their operators
_FOLDED = "computed when the model was loaded"
_MERGED = "done once for several nodes"
_SILENT = "no event of the trace shows that they ran"
_LEFT = "removed by an optimization: nothing that ran depends on them"


class _Counts:
    """The counts of a ledger, each to be taken once."""

    def __init__(self, ledger: Ledger) -> None:
        self._open: dict[str, deque[CountedNode | UncountedNode]] = defaultdict(deque)
        for count in ledger.counts:
            self._open[count.node.key].append(count)

    def take_counts(
        self, keys: Iterable[str], with_inner_counts: Iterable[str] = ()
    ) -> list[CountedNode | UncountedNode]:
        """Remove and return the counts with these keys, and all counts inside the nodes
        of `with_inner_counts`.
        """
        inside = tuple(f"{key}/" for key in with_inner_counts)
        taken = [self._open[key].popleft() for key in keys if self._open.get(key)]
        for key in [key for key in self._open if inside and key.startswith(inside)]:
            taken += self._open.pop(key)
        return taken

    def remaining_counts(self) -> list[CountedNode | UncountedNode]:
        """Return the counts that were not removed."""
        return [count for counts in self._open.values() for count in counts]


def build_kernel_profile(
    timed: KernelTimes, joined: Covers, ledger: Ledger, peak: BenchPeak | None, source: str
) -> KernelProfile:
    """Return the table of kernels: seconds, counted nodes, MACs, FLOPs and FLOP/s of each.

    The MACs of all rows and of what stands aside are those of the ledger, whatever was joined to
    what: every count is taken once.
    """
    counts, times = _Counts(ledger), {kernel.name: kernel for kernel in timed.kernels}
    rows: list[KernelRow] = []
    silent: list[CountedNode | UncountedNode] = []
    for cover in joined.kernels:
        counted = counts.take_counts(cover.keys, cover.whole)
        if taken := [times.pop(name) for name in cover.kernels if name in times]:
            rows.append(_build_kernel_row(taken, counted, peak))
        else:
            silent += counted
    rows += [
        _build_kernel_row([kernel], [], peak) for kernel in times.values()
    ]  # in no graph that was joined
    asides = [
        (_SILENT, silent),
        (_FOLDED, counts.take_counts(joined.folded, joined.folded)),
        (_MERGED, counts.take_counts(joined.merged, joined.merged)),
        (_LEFT, [*counts.take_counts(joined.left, joined.left), *counts.remaining_counts()]),
    ]
    named = sum(row.seconds for row in rows if row.nodes)
    every = sum(row.seconds for row in rows)
    return KernelProfile(
        source=source,
        runs=timed.runs,
        run_seconds=timed.run_seconds,
        outside_seconds=timed.run_seconds - every,
        named_seconds=named,
        added_seconds=every - named,
        kernels=tuple(rows),
        aside=tuple(_build_row_without_kernel(why, counted) for why, counted in asides if counted),
    )


def _build_kernel_row(
    kernels: list[KernelTime], counts: list[CountedNode | UncountedNode], peak: BenchPeak | None
) -> KernelRow:
    """Return the row of kernels that were matched together: seconds, nodes, MACs, FLOPs, bytes,
    FLOP/s, share of the peak.
    """
    cost, precision = _total_kernel_cost(counts), _contraction_precisions(counts)
    seconds = sum(kernel.seconds for kernel in kernels)
    rate = 2 * cost.macs / seconds if cost.macs and seconds > 0 else None
    most = None if peak is None else peak.rates.get(_kernel_precision(precision, kernels))
    return KernelRow(
        kernel=" + ".join(kernel.name for kernel in kernels),
        op=" + ".join(dict.fromkeys(kernel.op for kernel in kernels)),
        seconds=seconds,
        calls=max((kernel.calls for kernel in kernels), default=0.0),
        nodes=tuple(count.node.key for count in counts),
        does=_operator_list_text(counts),
        macs=cost.macs,
        flops=cost.flops,
        bytes=cost.bytes_read + cost.bytes_written,
        precision=precision,
        rate=rate,
        share=rate / most if rate and most else None,
    )


def _kernel_precision(precision: str, kernels: Iterable[KernelTime]) -> str:
    """Return the precision in which a kernel computes: float32 if the operands are integers but
    its operator is not.
    """
    integers = any(mark in kernel.op for kernel in kernels for mark in _INTEGERS)
    return "float32" if "float" not in precision and precision and not integers else precision


def _operator_list_text(counts: list[CountedNode | UncountedNode]) -> str:
    """Return the operators of the nodes as text, such as "Conv + 2 Relu"."""
    tally: dict[str, int] = {}
    for count in reversed(counts):
        tally[str(count.node.op)] = tally.get(str(count.node.op), 0) + 1
    return " + ".join(name if times == 1 else f"{times} {name}" for name, times in tally.items())


def _total_kernel_cost(counts: Iterable[CountedNode | UncountedNode]) -> Cost:
    """Return the sum of the costs of the counted nodes."""
    return sum((count.cost for count in counts if isinstance(count, CountedNode)), ZERO)


def _contraction_precisions(counts: Iterable[CountedNode | UncountedNode]) -> str:
    """Return the precisions of the nodes that have MACs, joined by ", "."""
    able = (count for count in counts if isinstance(count, CountedNode) and count.cost.macs)
    return ", ".join(dict.fromkeys(count.precision for count in able))


def _build_row_without_kernel(why: str, counts: list[CountedNode | UncountedNode]) -> Aside:
    """Return the row of nodes that no kernel computes: the reason `why`, their keys, MACs and
    FLOPs.
    """
    cost = _total_kernel_cost(counts)
    keys = tuple(count.node.key for count in counts)
    return Aside(why=why, nodes=keys, macs=cost.macs, flops=cost.flops)
