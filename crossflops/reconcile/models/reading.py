"""A counted graph as its contractions in their order, and the operations that follow each."""

from collections import Counter
from collections.abc import Iterator
from math import prod

import msgspec

from crossflops.frontends.onnx.parameters import held
from crossflops.ir.cost import ZERO
from crossflops.ir.graph import Graph, Node
from crossflops.ir.ledger import Counted, Ledger
from crossflops.ir.trace import Trace
from crossflops.reconcile.models.contractions import WEIGHTED, Contraction, contractions

# Which node of a graph holds how many of the model's parameters.


def holdings(graph: Graph, trace: Trace) -> dict[str, int]:
    """Elements of parameters by the key of the node that is the first to use them.

    Of a file every stored weight is a parameter. A model whose modules say what theirs are has
    other stored tensors too, such as the statistics of a batch normalization: there a tensor
    counts that is as large as a parameter of the node's module, or else of any other.
    """
    held_by = held(graph.nodes)
    stored = {
        parameter.storage: (module.path, parameter.numel)
        for module in reversed(trace.modules)
        for parameter in module.params
    }
    if not stored:
        return {key: sum(sizes.values()) for key, sizes in held_by.items()}
    return dict(_budgeted(graph, held_by, Counter(stored.values())))


def _budgeted(
    graph: Graph, held_by: dict[str, dict[str, int]], budget: Counter[tuple[str, int]]
) -> Iterator[tuple[str, int]]:
    """The tensors of every node that are parameters, by their sizes."""
    paths = {node.key: node.path for node in graph.nodes}
    counts: Counter[str] = Counter()
    strays: list[tuple[str, int]] = []
    for key, sizes in held_by.items():
        for size in sizes.values():
            if budget[paths[key], size] > 0:
                budget[paths[key], size] -= 1
                counts[key] += size
            else:
                strays.append((key, size))
    anywhere: Counter[int] = Counter()
    for (_, size), times in budget.items():
        anywhere[size] += times
    for key, size in strays:
        if anywhere[size] > 0:
            anywhere[size] -= 1
            counts[key] += size
    yield from counts.items()


_MOVERS = (
    "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast", "Dropout",
)  # fmt: skip
FIRST = -1  # the owner of what comes before the first contraction


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """Work beside the contractions, or parameters that are held beside them.

    `owner` is the place of the contraction that it follows; of work on constants alone, of the
    one that it is made for. `size` is the number of elements of its result.
    """

    node: str
    path: str
    op: str
    size: int
    flops: int
    params: int
    owner: int
    constant: bool = False


class AlignableModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as the alignment sees it.

    `batch` and `places` are the first axis of the first input, and all the others but the
    channels'. `rest` are parameters that no node uses.
    """

    contractions: tuple[Contraction, ...]
    operations: tuple[Operation, ...]
    macs: int
    flops: int
    params: int
    rest: int
    uncounted: int
    batch: int
    inputs: tuple[tuple[int, ...], ...]


def layers(graph: Graph, trace: Trace, ledger: Ledger) -> AlignableModel:
    """Read a counted model. What the contractions and operations hold adds up to its totals."""
    reader = _Reader(graph, holdings(graph, trace))
    for count in ledger.counts:
        if isinstance(count, Counted):
            reader.read(count)
        else:  # it may hold parameters all the same
            reader.read(Counted(node=count.node, cost=ZERO, formula="", precision=""))
    contractions, beside = reader.finished()
    held = sum(count.params for count in contractions) + sum(count.params for count in beside)
    return AlignableModel(
        contractions=contractions,
        operations=beside,
        macs=ledger.total.macs,
        flops=ledger.total.flops,
        params=graph.params,
        rest=graph.params - held,
        uncounted=len(ledger.uncounted),
        batch=_batch(graph),
        inputs=tuple(spec.shape or () for spec in graph.inputs),
    )


def _batch(graph: Graph) -> int:
    shape = graph.inputs[0].shape if graph.inputs else None
    return shape[0] if shape and len(shape) > 1 and shape[0] else 1


class _Reader:
    """Goes through the counts once, and remembers which contraction each value came from."""

    def __init__(self, graph: Graph, held: dict[str, int]) -> None:
        self._held = held
        self._batch = _batch(graph)
        self._constant = frozenset(
            spec.name for node in graph.nodes if node.constant for spec in node.outputs if spec
        )
        self._found: list[Contraction] = []
        self._beside: list[Operation] = []
        self._owners: dict[str, int] = {}
        self._bare: dict[str, int] = {}  # values that are a contraction's result, moved at most
        # Values made of constants -> the place in _beside of what made them, and its inputs.
        self._makers: dict[str, tuple[int, tuple[str, ...]]] = {}

    def read(self, count: Counted) -> None:
        """Take in the next node."""
        node = count.node
        owner = max(
            (self._owners.get(spec.name, FIRST) for spec in node.inputs if spec), default=FIRST
        )
        if count.cost.macs:
            self._contraction(count)
            return
        if self._is_bias(count):
            owner = self._add_bias(count)
        else:
            self._operation(count, owner, count.cost.flops, self._held.pop(node.key, 0))
            self._pass_on(node)
        self._own(node, owner)

    def _contraction(self, count: Counted) -> None:
        node, held = count.node, self._held.pop(count.node.key, 0)
        parts = contractions(node, count.cost.macs, count.times, self._batch, self._constant)
        beyond = count.cost.flops - 2 * count.cost.macs
        for place, part in enumerate(parts):
            adds = min(beyond, part.outer * part.batch * part.places) if part.bias else 0
            beyond -= adds
            last = place == len(parts) - 1
            own = held if last else min(held, part.stored)
            bias = min(part.bias, own) if own != part.stored else 0
            held -= own
            self._found.append(
                msgspec.structs.replace(part, adds=adds, weights=own - bias, bias_params=bias)
            )
        owner = len(self._found) - 1
        self._operation(count, owner, beyond, 0)
        self._own(node, owner)
        if not beyond and not parts[-1].bias:
            self._bare |= {spec.name: owner for spec in node.outputs[:1] if spec}

    def _operation(self, count: Counted, owner: int, flops: int, params: int) -> None:
        node = count.node
        if count.node.constant:
            maker = len(self._beside), tuple(spec.name for spec in node.inputs if spec)
            self._makers |= {spec.name: maker for spec in node.outputs if spec}
        elif not flops and not params:
            return
        spec = node.outputs[0] if node.outputs else None
        self._beside.append(
            Operation(
                node=node.key,
                path=node.path,
                op=str(node.op),
                size=prod(spec.shape or ()) if spec else 0,
                flops=flops,
                params=params,
                owner=owner,
                constant=node.constant,
            )
        )

    def _own(self, node: Node, owner: int) -> None:
        """The results belong to the owner, and so does what was computed for it beforehand."""
        if not node.constant:
            self._owners |= {spec.name: owner for spec in node.outputs if spec}
            todo = [spec.name for spec in node.inputs if spec]
            while todo:
                maker = self._makers.pop(todo.pop(), None)
                if maker is not None:
                    place, sources = maker
                    made = self._beside[place]
                    self._beside[place] = msgspec.structs.replace(made, owner=owner)
                    todo += sources

    def _pass_on(self, node: Node) -> None:
        source = node.inputs[0] if node.inputs else None
        if node.op.type in _MOVERS and source is not None and source.name in self._bare:
            place = self._bare[source.name]
            self._bare |= {spec.name: place for spec in node.outputs[:1] if spec}

    def _is_bias(self, count: Counted) -> bool:
        """Whether it adds a stored number for each output channel to a contraction's result."""
        return count.node.op.type == "Add" and self._biased(count.node) is not None

    def _biased(self, node: Node) -> tuple[int, int] | None:
        """The place of the contraction, and the elements that are added to its result."""
        for mine, other in ((0, 1), (1, 0)):
            spec, added = node.inputs[mine], node.inputs[other]
            place = self._bare.get(spec.name) if spec else None
            if place is None or added is None or added.shape is None:
                continue
            fixed = added.role in ("parameter", "constant") or added.name in self._constant
            contraction = self._found[place]
            if fixed and contraction.kind == WEIGHTED and prod(added.shape) == contraction.outer:
                return place, contraction.outer
        return None

    def _add_bias(self, count: Counted) -> int:
        known = self._biased(count.node)
        assert known is not None
        place, size = known
        contraction = self._found[place]
        self._found[place] = msgspec.structs.replace(
            contraction,
            bias=size,
            adds=count.cost.flops,
            bias_params=self._held.pop(count.node.key, 0),
        )
        return place

    def finished(self) -> tuple[tuple[Contraction, ...], tuple[Operation, ...]]:
        """What was read. Parameters of nodes that are in no ledger are left out."""
        kept = (operation for operation in self._beside if operation.flops or operation.params)
        return tuple(self._found), tuple(kept)
