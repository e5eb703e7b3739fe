"""Memory traffic of a step, under a named byte model and number formats.

Three models, each a sum over the nodes i of a graph that depend on its input. Nodes that do not
(a transposed weight, a folded scale) run once, before the step; what they make is a weight.

unfused         sum_i (read_i + written_i)
                every node reads its inputs, the same tensor once, and writes its outputs.
                Nothing stays in a cache between two nodes; each node that uses a weight reads it.
weights-once    W + sum over caches (read + appended)
                each weight is read once in a step, whatever the batch, and each cache read and
                appended to; activations, inputs and outputs stay on the chip. Two users of one
                weight share it; of a table that is looked up, the rows that are taken.
fused-ideal     weights-once + inputs + outputs of the model, once each
                as if the whole model were one kernel with room for all that is between.

A cache is an input that an output continues: `present = Concat(past, new)`, a scatter into it, or
an attention operator with past and present. It is read as a whole and only what is new is written.

In training each of the k passes moves what the forward pass does: the gradient of the input reads
dY and W and writes dX, that of the weight reads X and dY and writes dW, which for a contraction is
the forward pass's X + W + Y again. For other nodes it is an estimate: 3 x 2 elements of a ReLU
are really 5, of a batch norm on batch statistics 8. The optimizer's own traffic is not in it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import TypeAlias

import msgspec

from crossflops.errors import UnknownNameError
from crossflops.hardware.dataflow import Flow, Portion, trace_element_flow
from crossflops.hardware.devices.peaks import EMULATIONS
from crossflops.hardware.expert_reads import expert_read_shares, expert_weights
from crossflops.ir.graph import Graph, Node, TensorSpec
from crossflops.ir.ledger import CountedNode, Ledger
from crossflops.ir.roofline import ByteModel, Load
from crossflops.ledger.memory import TensorSize, amount_read_and_written
from crossflops.operators import find_operator_rule

# How many bits an element takes when a model runs in another precision than it is written in.

# Precision of a run -> bits of an element in memory. TF32 is a format of the matrix unit alone.
BITS = {
    "fp64": 64,
    "fp32": 32,
    "tf32": 32,
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "int8": 8,
    "fp6": 6,
    "fp4": 4,
    "int4": 4,
}
# Element type of a graph -> precision of the catalogue.
PRECISIONS = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int8": "int8",
    "int4": "int4",
    "float4e2m1": "fp4",
    "float6e2m3": "fp6",
    "float6e3m2": "fp6",
    **dict.fromkeys(("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"), "fp8"),
}
_RESTATED = frozenset(("float64", "float32", "float16", "bfloat16"))


class Formats(msgspec.Struct, frozen=True, kw_only=True):
    """The precisions in which values are stored in memory; "" means that of the graph.

    Weights and caches are kept as the activations unless they have a precision of their own.
    Integers, and floats of 8 bits or fewer, stay as they are stored.
    """

    activations: str = ""
    weights: str = ""
    cache: str = ""

    def __post_init__(self) -> None:
        for name in filter(None, (self.activations, self.weights, self.cache)):
            if storage_precision(name) not in BITS:
                raise UnknownNameError(
                    f"the number of bytes per element of {name!r} is unknown",
                    f"choose one of {', '.join(BITS)}",
                )

    def format_of_weights(self) -> str:
        """Return the precision in which weights are stored; "" for that of the graph."""
        return self.weights or self.activations

    def format_of_caches(self) -> str:
        """Return the precision in which caches are stored; "" for that of the graph."""
        return self.cache or self.activations


def storage_precision(precision: str) -> str:
    """Return the precision in which values of a precision are stored: "fp32" if emulated, else the
    name without its suffix.

    >>> storage_precision("fp16_vector"), storage_precision("fp8"), storage_precision("bf16x3")
    ('fp16', 'fp8', 'fp32')
    """
    return "fp32" if precision in EMULATIONS else precision.partition("_")[0]


def tensor_byte_count(spec: TensorSpec, precision: str) -> int:
    """Return the bytes of a tensor if its floats are stored in `precision` ("": as in the
    graph).
    """
    return elements_to_bytes(spec, spec.numel, precision)


def elements_to_bytes(spec: TensorSpec, elements: int, precision: str) -> int:
    """Return the bytes of a number of elements of a tensor if its floats are stored in
    `precision`; 4-bit types are packed.
    """
    if precision and spec.storage_dtype in _RESTATED:
        return (elements * BITS[storage_precision(precision)] + 7) // 8
    if elements == spec.numel:
        return spec.nbytes
    return TensorSpec("", spec.storage_dtype, (elements,)).nbytes


def precision_of_node_peak(counted: str, ran: str) -> str:
    """Return the precision by whose peak the time of a node is bounded.

    `counted` is that of the count ("float32", "float32xint4": data first), `ran` that of the
    run. Floats run as asked; a node whose data are integers runs in these, and one whose weights
    alone are narrow computes in the precision of its data. A name of the catalogue is kept.
    """
    if counted in BITS:
        return counted
    data = counted.partition("x")[0]
    if ran and (not data or data in _RESTATED):
        return ran
    return PRECISIONS.get(data, ran or data)


# Which node pays for what a fused run moves: every source once, at the first that works on it.

Split: TypeAlias = tuple[int, int, int]  # bytes of weights, of caches, of activations

_WEIGHTS, _CACHE, _ACTIVATIONS = range(3)


class _Bill:
    """The bytes charged to each node, and the elements of each source that no node has read
    yet.
    """

    def __init__(self, flow: Flow, formats: Formats) -> None:
        self.flow, self.formats = flow, formats
        self.left = {
            name: spec.numel for name, spec in flow.specs.items() if spec.shape is not None
        }
        self.reader: dict[str, str] = {}
        self.pieces: set[tuple[str, str]] = set()
        self.rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])

    def charge_source(self, key: str, source: str, part: Portion) -> None:
        """Charge a node for the elements of a source (weight or input) that no node has read
        yet.
        """
        self.reader.setdefault(source, key)
        if (source, part.piece) in self.pieces:
            return
        self.pieces.add((source, part.piece))
        taken = min(part.elements, self.left.get(source, 0))
        if taken:
            self.left[source] -= taken
            self.charge_elements(key, self.flow.specs[source], taken)

    def charge_elements(self, key: str, spec: TensorSpec, elements: int) -> None:
        """Add the bytes of elements of a tensor to those of a node, as weights, cache or
        activations.
        """
        if self.flow.is_weight(spec):
            index, kept = _WEIGHTS, self.formats.format_of_weights()
        elif self.flow.is_cache(spec):
            index, kept = _CACHE, self.formats.format_of_caches()
        else:
            index, kept = _ACTIVATIONS, self.formats.activations
        self.rows[key][index] += elements_to_bytes(spec, elements, kept)


def node_byte_charges(
    graph: Graph, flow: Flow, formats: Formats, shares: Mapping[str, Fraction], *, ends: bool
) -> Mapping[str, Split]:
    """Return for each node, by its key, the bytes of weights, of caches and of activations that it
    is charged with in a fused run: each source once.

    A weight, a cache or an input is charged to the first node that works on it, directly or
    through nodes that only move data, as far as that one reads of it; the rest to those after it.
    Of experts' weights a node reads its one of the `shares`. An output is charged to the node
    that works it out. Where no node works on what it moves, the
    first that moves it pays.
    """
    bill = _Bill(flow, formats)
    pasts = {cache.past for cache in flow.caches}
    inputs = {spec.name for spec in graph.inputs}
    for node in graph.nodes:
        if node.constant or node.key in flow.moves:
            continue
        for source, part in _node_source_reads(node, flow, shares):
            if flow.is_integer_constant(flow.specs[source]):
                continue
            if ends or source in pasts or source not in inputs:
                bill.charge_source(node.key, source, part)
    for cache in flow.caches:
        payer = bill.reader.get(cache.past, flow.maker.get(cache.present, ""))
        bill.charge_elements(payer, flow.specs[cache.past], cache.new)
    if ends:
        _charge_outputs(graph, bill)
    return {key: (row[0], row[1], row[2]) for key, row in bill.rows.items()}


def _charge_outputs(graph: Graph, bill: _Bill) -> None:
    """Add to `bill` the bytes of writing the outputs of the graph, and of reading what they only
    move.
    """
    presents = {cache.present for cache in bill.flow.caches}
    for spec in graph.outputs:
        key = bill.flow.maker.get(spec.name)
        if key is None or spec.name in presents or bill.flow.is_weight(spec):
            continue
        for source, part in bill.flow.source_portions(spec).items():
            bill.charge_source(key, source, part)
        kept = bill.formats.activations
        bill.rows[key][_ACTIVATIONS] += (
            tensor_byte_count(spec, kept) if spec.shape is not None else 0
        )


def _node_source_reads(
    node: Node, flow: Flow, shares: Mapping[str, Fraction]
) -> Iterator[tuple[str, Portion]]:
    """Yield (source, elements that the node reads of it) for each weight and input that a node
    reads.
    """
    if _has_only_empty_outputs(node):
        return
    share = shares.get(node.key)
    routed = {spec.name for spec in expert_weights(node)} if share is not None else ()
    for spec in {spec.name: spec for spec in node.inputs if spec is not None}.values():
        for source, part in flow.source_portions(spec).items():
            if share is not None and spec.name in routed:
                part = Portion(round(part.elements * share), f"{part.piece} of chosen experts")
            yield source, part
    for body in node.bodies if node.choice != "function" else ():
        for inner in body.nodes:
            yield from _node_source_reads(inner, flow, shares)


def _has_only_empty_outputs(node: Node) -> bool:
    """Return True if all outputs of a node are empty tensors."""
    results = [spec for spec in node.outputs if spec is not None]
    return bool(results) and all(spec.shape is not None and 0 in spec.shape for spec in results)


FORMULAS: Mapping[str, str] = {
    "unfused": "every node reads its inputs and writes its outputs",
    "weights-once": "each weight once per step, and the reads and writes of caches",
    "fused-ideal": "weights once, caches, and the inputs and outputs of the model",
    "given": "given, not counted",
}


def node_loads(
    graph: Graph,
    ledger: Ledger,
    model: ByteModel,
    formats: Formats,
    scale: Fraction = Fraction(1),
) -> tuple[Load, ...]:
    """Return for each node its MACs and FLOPs, and the bytes that it moves under a byte model.

    `ledger` is that of the whole nodes of the graph for the fused models, and may go into the
    bodies of loops and functions for the unfused one. A pass over `scale` times as many examples
    reads more of the experts' weights; the rest is that of the graph. Uncounted nodes are left
    out; the caller says so. Raises ValueError for a model that does not exist.
    """
    if model not in ("unfused", "weights-once", "fused-ideal"):
        raise ValueError(model)
    flowing = trace_element_flow(graph, ledger)
    shares = expert_read_shares(graph, scale)
    if model == "unfused":
        rows = (
            _unfused_node_load(count, flowing, formats, shares)
            for count in _input_dependent_counts(ledger)
        )
        return tuple(row for row in rows if row.bytes or row.operations)
    split = node_byte_charges(graph, flowing, formats, shares, ends=model == "fused-ideal")
    rows = (
        _build_node_load(count, flowing, *split.get(count.node.key, (0, 0, 0)))
        for count in _input_dependent_counts(ledger)
    )
    return tuple(row for row in rows if row.bytes or row.operations)


def _input_dependent_counts(ledger: Ledger) -> Iterable[CountedNode]:
    """Return the counted nodes that depend on inputs of the graph."""
    return (count for count in ledger.counted if not count.node.constant)


def _build_node_load(
    count: CountedNode, flow: Flow, weights: int, cache: int, activations: int
) -> Load:
    """Build the load of a node: its MACs and FLOPs, and the given bytes of weights, caches and
    activations.
    """
    return Load(
        node=count.node.key,
        op=str(count.node.op),
        path=count.node.path,
        precision=count.precision,
        macs=count.cost.macs - count.constant_cost.macs,
        operations=count.cost.flops - count.constant_cost.flops,
        weights=weights,
        cache=cache,
        activations=activations,
        weighted=any(map(flow.is_layer_result, count.node.inputs)),
    )


def _unfused_node_load(
    count: CountedNode, flow: Flow, formats: Formats, shares: Mapping[str, Fraction]
) -> Load:
    """Return the load of a node that reads all its inputs from memory and writes all its
    outputs.
    """
    node = next(iter(count.node.source_operations), None)
    known = find_operator_rule(node.op) if node is not None else None
    # a body's nodes have rows of their own
    if node is None or known is None or node.bodies or _has_only_empty_outputs(node):
        return _build_node_load(count, flow, 0, 0, 0)
    works = count.cost.flops > 0
    constant, runs = count.node.constant_runs
    share = shares.get(node.key, Fraction(1))
    routed = {spec.name for spec in expert_weights(node)} if share < 1 else ()

    def bytes_moved_by_all_runs(size: TensorSize) -> int:
        """Return the bytes that all runs of the node move, where `size` gives the bytes of one
        tensor.
        """
        return (
            sum(amount_read_and_written(known, node, works, size))
            * count.times
            * (runs - constant)
            // runs
        )

    def read_bytes_if_weight(spec: TensorSpec) -> int:
        """Return the bytes of a weight, of experts only the share that is read; 0 for another
        tensor.
        """
        if not flow.is_weight(spec):
            return 0
        stored = tensor_byte_count(spec, formats.format_of_weights())
        return round(stored * share) if spec.name in routed else stored

    def bytes_if_cache(spec: TensorSpec) -> int:
        """Return the bytes of a tensor that holds elements of a cache; 0 for another tensor."""
        return tensor_byte_count(spec, formats.format_of_caches()) if flow.is_cache(spec) else 0

    def bytes_if_activation(spec: TensorSpec) -> int:
        """Return the bytes of a tensor that is neither a weight nor in a cache; 0 for another
        tensor.
        """
        separate = flow.is_weight(spec) or flow.is_cache(spec)
        return 0 if separate else tensor_byte_count(spec, formats.activations)

    return _build_node_load(
        count,
        flow,
        bytes_moved_by_all_runs(read_bytes_if_weight),
        bytes_moved_by_all_runs(bytes_if_cache),
        bytes_moved_by_all_runs(bytes_if_activation),
    )
