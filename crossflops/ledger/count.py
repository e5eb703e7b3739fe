"""Count a graph: every node gets a cost, or the reason why it has none.

With it goes the precision that a contraction runs in: how its operands are stored, not what
carries them. A runtime folds DequantizeLinear, and the shuffling behind it, into the kernel of the
contraction. So an operand is as precise as what was dequantized, and only one that a node computed
in floats is a float. Two operands of one precision give its name ("int8"); of two, both are named,
data first ("float32xint4"). Signs are left out: uint8 is called int8.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

from crossflops.errors import OperandError
from crossflops.ir.graph import NO_CONVERSION, Graph, Node, TensorSpec
from crossflops.ir.ledger import ZERO, Cost, CountedNode, Exactness, Ledger, UncountedNode
from crossflops.ledger.memory import amount_read_and_written
from crossflops.operators import find_operator_rule, find_unruled_operator, missing_rule_reason
from crossflops.operators.rule import OperatorRule, check_node_operands

CountOrRuns: TypeAlias = "CountedNode | UncountedNode | _FunctionRuns"
Counts: TypeAlias = tuple[CountOrRuns, ...]
PrecisionByTensor = Mapping[str, str]
_MOST_RUNS = 2048  # as a power of two: loops in loops multiply to numbers too long to print
_WHY = {"constant": "the condition is constant", "asked": "as asked", "seen": "as it ran"}
_BRANCHES, _LOOPS = ("If",), ("Loop", "Scan", "SequenceMap")


def count(graph: Graph) -> Ledger:
    """Return the ledger of a graph: a count for every node, with the nodes inside loops, branches
    and functions.

    A node without a rule, or with an unknown shape that its rule needs, is uncounted and says so.
    Bytes are those of the unfused model: each node reads its inputs, the same tensor once, and
    writes its outputs.

    The nodes of a body stand behind the node that holds it, with its key before theirs, and cost
    what all its runs cost: a Loop, a Scan or a SequenceMap runs its body `trips` times, an If one
    of its branches. The node itself costs nothing more, and says what was done. A function that
    several nodes share stands at the end, once, with what all of its runs cost.
    """
    work = _GraphCounter()
    return Ledger(
        graph.digest, tuple(work.flat_counts(tuple(work.counts_of_nodes(graph.nodes, {}))))
    )


def count_dead(graph: Graph) -> tuple[CountedNode | UncountedNode, ...]:
    """Return the counts of the dead nodes of a graph, whose results no output needs."""
    if graph.whole is None:
        return ()
    work = _GraphCounter()
    counts = tuple(work.counts_of_nodes(graph.whole.nodes, {}))
    return tuple(counted for counted in work.flat_counts(counts) if counted.node.dead)


def count_nodes_with_their_bodies(graph: Graph) -> Ledger:
    """Return a ledger with one count for each node of a graph, which includes its loop, branch and
    function bodies.

    What has no count inside a node is left out of that node's. A tool looks at a graph so, with
    sizes that it believes and that no run may have: operands are not held against each other.
    """
    return Ledger(
        graph.digest, tuple(_count_node_with_bodies(graph, node) for node in graph.nodes)
    )


def _count_node_with_bodies(graph: Graph, node: Node) -> CountedNode | UncountedNode:
    """Return one count for a node together with its bodies, or the reason why it is uncounted."""
    if node.dead:
        return _zero_count(node, "0: no output depends on it", exact=True)
    if not node.bodies:
        return count_node(node, checked=False)
    itself, *inside = count(msgspec.structs.replace(graph, nodes=(node,))).counts
    if isinstance(itself, UncountedNode):
        return itself
    counts = (itself, *(count for count in inside if not count.node.dead))
    constant = sum((c.constant_cost for c in counts if isinstance(c, CountedNode)), ZERO)
    return msgspec.structs.replace(itself, cost=_sum_of_costs(counts), constant_part=constant)


def count_node(
    node: Node, stored: Mapping[str, str] = {}, checked: bool = True
) -> CountedNode | UncountedNode:
    """Return the cost of one graph node by the formula of its operator, or an `UncountedNode` with
    the reason if there is no formula, or if a shape is unknown or invalid. A node with subgraphs
    is uncounted here.

    Raises OperandError where it is `checked` and cannot take its operands.
    """
    if not node.is_operation_of_model:
        return _count_source_operations(node, stored, checked)
    if node.bodies:
        return UncountedNode(
            node, f"{node.op}: a node with a body can be counted only as a part of its graph"
        )
    known = find_operator_rule(node.op)
    if known is None:
        closed = f", and {node.closed}" if node.closed else ""
        return UncountedNode(node, missing_rule_reason(node.op) + closed)
    if checked:
        known.check_operands(node)
    try:
        work = known.formula(node)
        contracted = precision_of_contraction(node, stored) if work.macs else ""
        return CountedNode(
            node=node,
            cost=_with_bytes(work, *amount_read_and_written(known, node, works=work != ZERO)),
            formula=known.equation,
            precision=contracted or precision_of_computation(known.operand, node),
            exactness=_exactness_with_sparsity(node, known.exactness(node)),
            constant_part=_cost_of_constant_operands(known, node, work),
        )
    except ValueError as error:
        return UncountedNode(node, str(error))
    except (ArithmeticError, LookupError, TypeError, AttributeError) as error:
        reason = (
            f"its attributes or shapes are not valid for {node.op} ({type(error).__name__}: "
            f"{error})"
        )
        return UncountedNode(node, reason)


def _cost_of_constant_operands(known: OperatorRule, node: Node, work: Cost) -> Cost:
    """Return the part of a node's cost that depends on constant operands alone, summed over its
    runs.
    """
    if known.constant_part is None:
        return ZERO
    part = known.constant_part
    return sum((part(node, indices, work) * runs for runs, indices in node.varying_inputs), ZERO)


def _count_source_operations(
    node: Node, stored: Mapping[str, str], checked: bool
) -> CountedNode | UncountedNode:
    """Return the count of the framework operations for which a converter wrote this node.

    What the node multiplies itself, beyond that, is the converter's.
    """
    itself = msgspec.structs.replace(node.with_source_arguments, conversion=NO_CONVERSION)
    if itself.bodies:
        work = _GraphCounter()
        macs = _sum_of_costs(
            tuple(work.flat_counts(tuple(work.counts_of_nodes((itself,), stored))))
        ).macs
    else:
        macs = _sum_of_costs((count_node(itself, stored, checked),)).macs
    operations = node.conversion.stands_for or ()
    counts = [count_node(operation, checked=checked) for operation in operations]
    for counted in counts:
        if isinstance(counted, UncountedNode):
            return UncountedNode(node, counted.reason)
    known = [counted for counted in counts if isinstance(counted, CountedNode)]
    cost = _sum_of_costs(known)
    return CountedNode(
        node=node,
        cost=cost,
        formula=" + ".join(counted.formula for counted in known) or "0: part of another operation",
        precision=known[0].precision if known else "",
        exactness=_exactness_with_sparsity(node, known[0].exactness if known else "exact"),
        converter_macs=macs - cost.macs,
    )


def _exactness_with_sparsity(node: Node, on_dense: Exactness) -> Exactness:
    """Return the exactness of a count: "bound" instead of "exact" if the node has sparse operands.

    Shapes do not tell how much a sparse operand stores.
    """
    return "bound" if node.sparse and on_dense == "exact" else on_dense


def _node_cost_key(node: Node) -> tuple[Any, ...]:
    """Return a key made of operator, attributes and shapes: nodes with equal keys have equal
    costs.

    It says which tensors are the same, but not their names.
    """
    indices: dict[str, int] = {}
    specs = [
        spec
        and (
            indices.setdefault(spec.name, len(indices)),
            spec.dtype,
            spec.shape,
            spec.role,
            spec.storage,
        )
        for spec in (*node.inputs, *node.outputs)
    ]
    provided = len(node.inputs), repr(node.attrs), tuple(node.values.items()), node.varying_inputs
    return (node.op, provided, node.objection, node.sparse, node.folded, *specs)


class _FunctionRuns(NamedTuple):
    """A number of runs of a function, among the counts of its caller."""

    body: Graph
    precisions: tuple[str, ...]
    times: int

    @property
    def body_and_precisions_key(self) -> tuple[int, tuple[str, ...]]:
        """The identity of the function body and its operands' precisions; runs with equal keys
        have equal counts.
        """
        return id(self.body), self.precisions


class BranchSize(NamedTuple):
    """The work of a branch, in the order in which branches are compared."""

    macs: int
    flops: int
    uncounted_nodes: int


class _GraphCounter:
    """The counting of nodes, and of every function once for all of its runs."""

    def __init__(self) -> None:
        self._functions: dict[tuple[int, tuple[str, ...]], Counts] = {}
        self._alike: dict[Any, CountedNode] = {}

    def counts_of_nodes(
        self, nodes: Iterable[Node], outer: PrecisionByTensor
    ) -> Iterator[CountOrRuns]:
        """Yield the counts of these nodes and their bodies; `outer` has the precisions of
        dequantized values made before them, by name.
        """
        stored = dict(outer)
        for node in nodes:
            if not node.bodies or not node.is_operation_of_model:
                stored |= precision_of_results(node, stored)
                yield self._count_with_cache(node, stored)
            elif node.choice == "function":
                (body,) = node.bodies
                provided = tuple(stored.get(spec.name, "") if spec else "" for spec in node.inputs)
                what = "by its body" if node.opened else f"calls {body.name}"
                yield _zero_count(node, what, exact=True)
                yield _FunctionRuns(body, provided, 1)
            elif not node.op.domain and node.op.type in (*_LOOPS, *_BRANCHES):
                yield from self._count_control_flow(node, stored)
            elif find_operator_rule(node.op) is not None:
                yield from self._counts_of_node_and_bodies_run_once(node, stored)
            else:
                yield UncountedNode(node, missing_rule_reason(node.op))

    def _count_with_cache(
        self, node: Node, stored: PrecisionByTensor
    ) -> CountedNode | UncountedNode:
        """Return the count of a node without bodies; reuse the count of an equal node."""
        if stored or not node.is_operation_of_model:
            return count_node(node, stored)
        similar = _node_cost_key(node)
        known = self._alike.get(similar)
        if known is not None:
            return msgspec.structs.replace(known, node=node)
        counted = count_node(node)
        if isinstance(counted, CountedNode):
            self._alike[similar] = counted
        return counted

    def _count_control_flow(self, node: Node, stored: PrecisionByTensor) -> Counts:
        """Return the counts of a loop or an If with its bodies. Raises OperandError if it, or a
        node in it, has invalid operands.
        """
        inside = self._counts_of_loop if node.op.type in _LOOPS else self._counts_of_if
        counts = inside(node, stored)
        known = find_unruled_operator(node.op)
        check_node_operands(node, known.requires if known else ())
        return counts

    def _counts_of_node_and_bodies_run_once(
        self, node: Node, stored: PrecisionByTensor
    ) -> Iterator[CountOrRuns]:
        """Yield the count of a node and the counts of the nodes in its bodies, each of which runs
        once.
        """
        yield count_node(msgspec.structs.replace(node, bodies=()), stored)
        for body in node.bodies:
            yield from _counts_within_holder(node, self.counts_of_nodes(body.nodes, stored), 1)

    def flat_counts(self, counts: Counts) -> Iterator[CountedNode | UncountedNode]:
        """Yield all counts one by one; the body of a shared function comes once, times the number
        of its runs.
        """
        order: list[_FunctionRuns] = []
        self._append_functions_callees_first(counts, order, set())
        times: Counter[tuple[int, tuple[str, ...]]] = Counter()
        for count in counts:
            if isinstance(count, _FunctionRuns):
                times[count.body_and_precisions_key] += count.times
            else:
                yield count
        for runs in reversed(order):  # callers come first
            for count in self._counts_of_one_function_run(runs):
                if isinstance(count, _FunctionRuns):
                    times[count.body_and_precisions_key] += (
                        times[runs.body_and_precisions_key] * count.times
                    )
                else:
                    yield _repeat_count(
                        count,
                        f"{runs.body.name}/{count.node.key}",
                        times[runs.body_and_precisions_key],
                    )

    def _append_functions_callees_first(
        self, counts: Counts, order: list[_FunctionRuns], seen: set[Any]
    ) -> None:
        """Append each shared function to `order` after the functions that it calls."""
        for count in counts:
            if isinstance(count, _FunctionRuns) and count.body_and_precisions_key not in seen:
                seen.add(count.body_and_precisions_key)
                self._append_functions_callees_first(
                    self._counts_of_one_function_run(count), order, seen
                )
                order.append(count)

    def _counts_of_one_function_run(self, runs: _FunctionRuns) -> Counts:
        """Return the counts of one run of a shared function's body, computed at the first request
        only.
        """
        if runs.body_and_precisions_key not in self._functions:
            names = (spec.name for spec in runs.body.inputs)
            stored = {n: p for n, p in zip(names, runs.precisions, strict=False) if n and p}
            self._functions[runs.body_and_precisions_key] = tuple(
                self.counts_of_nodes(runs.body.nodes, stored)
            )
        return self._functions[runs.body_and_precisions_key]

    def _counts_of_loop(self, node: Node, stored: PrecisionByTensor) -> Counts:
        """Return the counts of a loop and its body times its iterations; one uncounted node if
        their number is unknown.
        """
        if node.trips is None:
            reason = f"the number of iterations depends on data: give --trips {node.key}=N"
            return (UncountedNode(node, f"{node.op}: {reason}"),)
        return (
            _zero_count(node, f"{node.trips} x the body", exact=True),
            *_counts_within_holder(
                node, self.counts_of_nodes(node.bodies[0].nodes, stored), node.trips
            ),
        )

    def _counts_of_if(self, node: Node, stored: PrecisionByTensor) -> Counts:
        """Return the counts of an If and of the branch that it runs; if that is not known, of the
        larger branch.

        The branch with more MACs, with more FLOPs where these are equal, and with more uncounted
        nodes where these are, too; unless a constant condition or the caller chooses.
        """
        if len(node.bodies) < 2 and node.choice not in _WHY:
            return (UncountedNode(node, f"{node.op}: a branch is missing in the file"),)
        if len(node.bodies) > 1 and not node.choice:
            return self._counts_of_larger_branch(node, stored)
        branches = [tuple(self.counts_of_nodes(body.nodes, stored)) for body in node.bodies]
        names = [body.name for body in node.bodies]
        if node.choice == "sum":
            stored_value = _zero_count(node, f"the sum of {' and '.join(names)}", exact=False)
            both = (count for counts in branches for count in _upper_bound_counts(counts))
            return (stored_value, *_counts_within_holder(node, both, 1))
        why, exact = _WHY[node.choice], node.choice in ("constant", "seen")
        stored_value = _zero_count(node, f"{names[0]}: {why}", exact)
        return (
            stored_value,
            *_counts_within_holder(
                node, branches[0] if exact else _upper_bound_counts(branches[0]), 1
            ),
        )

    def _counts_of_larger_branch(self, node: Node, stored: PrecisionByTensor) -> Counts:
        """Return the counts of an If and of its larger branch, as an upper bound, and the
        uncounted nodes of its other branches, which may be larger.

        Raises OperandError if none of them can run.
        """
        counted: dict[str, tuple[Counts, BranchSize]] = {}
        obstacle: OperandError | None = None
        for body in node.bodies:
            try:
                counts = tuple(self.counts_of_nodes(body.nodes, stored))
                counted[body.name] = counts, self._branch_size(counts)
            except OperandError as error:
                obstacle = error
        if not counted and obstacle is not None:
            raise obstacle
        largest = max(counted, key=lambda name: counted[name][1])
        sizes = ", ".join(_branch_text(name, size) for name, (_, size) in counted.items())
        missing = [
            count
            for name, (counts, _) in counted.items()
            for count in (self.flat_counts(counts) if name != largest else ())
            if isinstance(count, UncountedNode) and not count.node.dead
        ]
        which = f"the larger of {sizes}"
        if obstacle is not None:
            which = f"in the other branch, {obstacle.message}"
        return (
            _zero_count(node, f"{largest}: {which}", exact=False),
            *_counts_within_holder(node, _upper_bound_counts(counted[largest][0]), 1),
            *_counts_within_holder(node, missing, 1),
        )

    def _branch_size(self, counts: Counts) -> BranchSize:
        """Return the MACs, the FLOPs and the number of uncounted nodes of these counts."""
        inner = tuple(self.flat_counts(counts))
        total = _sum_of_costs(count for count in inner if not count.node.dead)
        uncounted = sum(isinstance(count, UncountedNode) for count in inner)
        return BranchSize(total.macs, total.flops, uncounted)


def _branch_text(name: str, size: BranchSize) -> str:
    """Return the name of a branch with its work, and with the number of its uncounted nodes."""
    text = f"{name} {size.macs} MACs {size.flops} FLOPs"
    if not size.uncounted_nodes:
        return text
    plural = "s" if size.uncounted_nodes > 1 else ""
    return f"{text} without {size.uncounted_nodes} uncounted node{plural}"


def _zero_count(node: Node, formula: str, exact: bool) -> CountedNode:
    """Return a count of zero operations for a node, with `formula` as the reason."""
    return CountedNode(
        node=node,
        cost=ZERO,
        formula=formula,
        precision="",
        exactness="exact" if exact else "bound",
    )


def _upper_bound_counts(counts: Counts) -> Counts:
    """Return the counts with the exactness "bound" instead of "exact", because their branch may
    not run.
    """
    return tuple(
        msgspec.structs.replace(count, exactness="bound")
        if isinstance(count, CountedNode) and count.exactness == "exact"
        else count
        for count in counts
    )


def _counts_within_holder(holder: Node, counts: Iterable[CountOrRuns], times: int) -> Counts:
    """Return the counts of nodes inside the node `holder`, times `times`, with the key of `holder`
    before theirs.
    """
    return tuple(_count_of_repetitions(holder, count, times) for count in counts)


def _count_of_repetitions(holder: Node, count: CountOrRuns, times: int) -> CountOrRuns:
    """Return the count of a node inside `holder`, times `times`, with the holder's key, and its
    call and path where it has none.
    """
    if isinstance(count, _FunctionRuns):
        return count._replace(times=count.times * times)
    node = msgspec.structs.replace(
        count.node,
        call=count.node.call or holder.call,
        path=count.node.path or holder.path,
        constant=count.node.constant or holder.constant,
    )
    return _repeat_count(
        msgspec.structs.replace(count, node=node), f"{holder.key}/{node.key}", times
    )


def _repeat_count(
    count: CountedNode | UncountedNode, key: str, times: int
) -> CountedNode | UncountedNode:
    """Return a count with its amounts multiplied by `times`, under a new node key."""
    node = msgspec.structs.replace(count.node, key=key)
    if times.bit_length() > _MOST_RUNS:
        return UncountedNode(node, f"it runs more than 2^{_MOST_RUNS} times")
    if isinstance(count, UncountedNode):
        return UncountedNode(node, count.reason)
    formula = count.formula if times == 1 else f"{times} x ({count.formula})"
    return msgspec.structs.replace(
        count,
        node=node,
        cost=count.cost * times,
        formula=formula,
        times=count.times * times,
        converter_macs=count.converter_macs * times,
        constant_part=count.constant_part * times if count.constant_part != ZERO else ZERO,
    )


def _sum_of_costs(counts: Iterable[CountedNode | UncountedNode]) -> Cost:
    """Return the sum of the costs of the counted nodes; uncounted ones add nothing."""
    return sum((count.cost for count in counts if isinstance(count, CountedNode)), ZERO)


def _with_bytes(work: Cost, read: int, written: int) -> Cost:
    """Return a copy of the cost with these numbers of bytes read and written."""
    return msgspec.structs.replace(work, bytes_read=read, bytes_written=written)


# The precision that a contraction runs in.


def precision_of_results(node: Node, known: Mapping[str, str]) -> dict[str, str]:
    """Return the precision of a node's results by name, if it differs from their element type; {}
    otherwise.

    `known` are the precisions of dequantized values so far.
    """
    data = node.inputs[0] if node.inputs else None
    if data is None:
        return {}
    quantizing = find_operator_rule(node.op)
    if node.op.type == "DequantizeLinear":
        precision = data.dtype
    elif quantizing is not None and quantizing.stores and (few := quantizing.stores(node)):
        precision = few
    elif data.name in known and (moving := find_operator_rule(node.op)) and moving.keeps:
        parts = node.inputs if node.op.type == "Concat" else node.inputs[:1]
        precisions = {known.get(part.name) for part in parts if part is not None}
        if len(precisions) > 1:  # it joins values of several precisions
            return {}
        precision = known[data.name]
    else:
        return {}
    return {spec.name: precision for spec in node.outputs if spec is not None}


def precision_of_contraction(node: Node, known: Mapping[str, str]) -> str:
    """Return the precision in which the operands of a contraction are stored, such as "int8"; ""
    if none is known.

    Its operands are those that its rule names; what it packs into bytes has a precision beside.
    """
    contracting = find_operator_rule(node.op)
    indices = contracting.contracts if contracting else (0, 1)
    chosen = range(len(node.inputs)) if indices is None else indices
    specs = [node.inputs[index] for index in chosen if index < len(node.inputs)]
    names = [known.get(spec.name, spec.dtype) for spec in specs if spec is not None]
    packed = contracting.packed(node) if contracting and contracting.packed else ""
    return _join_precisions([*names, packed])


def _join_precisions(names: Iterable[str]) -> str:
    """Return the distinct element types joined by "x", such as "float32xint4"; unsigned types
    appear as signed ones.
    """
    unsigned = [name.removeprefix("u") if name.startswith("uint") else name for name in names]
    return "x".join(dict.fromkeys(name for name in unsigned if name))


def precision_of_computation(operand: int, node: Node) -> str:
    """Return the element type in which a node computes: that of its input `operand`, else of its
    first tensor.
    """
    first = node.inputs[operand] if operand < len(node.inputs) else None
    specs: tuple[TensorSpec | None, ...] = (first, *node.inputs, *node.outputs)
    return next((spec.dtype for spec in specs if spec is not None), "")
