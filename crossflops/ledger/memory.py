"""The memory of nodes and of a model: bytes moved, arithmetic intensity, peak of activations.

The byte model is the unfused one of the ledger: every node reads its inputs (the same tensor once)
and writes its outputs, weights are read once by each node that uses them, and nothing stays in a
cache between two nodes. It is told in bytes or in elements.

    memory access cost   = bytes read + bytes written, and the same in elements
    arithmetic intensity = FLOPs / memory access cost
    peak of activations  = the largest sum of bytes alive while a node runs
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.graph import Graph, Node, TensorSpec
from crossflops.ir.ledger import Intensity, Ledger, Memory
from crossflops.operators import find_operator_rule
from crossflops.operators.rule import OperatorRule

TensorSize: TypeAlias = Callable[[TensorSpec], int]


def tensor_bytes(spec: TensorSpec) -> int:
    """Return the size of a tensor in bytes."""
    return spec.nbytes


def element_count_of_spec(spec: TensorSpec) -> int:
    """Return the number of elements of a tensor."""
    return spec.numel


def amount_read_and_written(
    known: OperatorRule, node: Node, works: bool, size: TensorSize = tensor_bytes
) -> tuple[int, int]:
    """Return how much a node reads and writes, as (read, written), in the unit of `size` (bytes by
    default).

    A folded node reads its scales alone, and writes nothing.
    "view" and "alias" move nothing, unless the node works: Dropout is one in inference only.
    "gather" reads its index inputs (all but the first) and as much data as it writes; of the
    `tables` of a "touch" as much is read as the first output has.
    """
    if known.moved is not None:
        return _formula_amount_read_and_written(known.moved(node), node, size)
    if node.folded:
        return _sum_distinct_tensors(node.inputs[1:], size), 0
    if known.traffic in ("view", "alias") and not works:
        return 0, 0
    written = _sum_distinct_tensors(node.outputs, size)
    if known.traffic == "gather":
        return written + _sum_distinct_tensors(node.inputs[1:], size), written
    if not known.tables:
        return _sum_distinct_tensors(node.inputs, size), written
    read = [spec for i, spec in enumerate(node.inputs) if i not in known.tables]
    tables = [i for i in known.tables if i < len(node.inputs) and node.inputs[i] is not None]
    return _sum_distinct_tensors(read, size) + len(tables) * _sum_distinct_tensors(
        node.outputs[:1], size
    ), written


def _formula_amount_read_and_written(
    byte_counts: tuple[int, int], node: Node, size: TensorSize
) -> tuple[int, int]:
    """Return (read, written) of a formula that gives bytes, converted to the unit of `size`.

    A formula says how many bytes move, and not of which elements: they are taken for such as the
    first operand has.
    """
    first = next((spec for spec in (*node.inputs, *node.outputs) if spec is not None), None)
    if size is tensor_bytes or first is None or not first.shape or not first.nbytes:
        return byte_counts
    return byte_counts[0] * size(first) // first.nbytes, byte_counts[1] * size(
        first
    ) // first.nbytes


def _sum_distinct_tensors(specs: Sequence[TensorSpec | None], size: TensorSize) -> int:
    """Return the sum of `size(tensor)` over the tensors that are not None, each name once."""
    if len(specs) == 1 and specs[0] is not None:
        return size(specs[0])
    return sum({spec.name: size(spec) for spec in specs if spec is not None}.values())


class Peak(msgspec.Struct, frozen=True):
    """The most bytes alive at once, the node of that moment, and the tensors of unknown size."""

    nbytes: int
    node: str
    unsized: int


def memory_of_graph(graph: Graph, ledger: Ledger) -> Memory:
    """Return the memory figures of a counted graph; uncounted nodes add no traffic."""
    read, written = _elements_read_and_written(ledger)
    cost = ledger.total
    moved = cost.bytes_read + cost.bytes_written
    highest = activation_peak_of_graph(graph)
    return Memory(
        access_bytes=moved,
        access_elements=read + written,
        elements_read=read,
        elements_written=written,
        intensity=Intensity(cost.flops, moved),
        peak_activation_bytes=highest.nbytes,
        peak_node=highest.node,
        unsized=highest.unsized,
        param_bytes=graph.param_bytes,
        access_bytes_by_type=_bytes_read_and_written_by_type(ledger),
        param_bytes_by_type=_parameter_bytes_by_type(graph),
    )


def _parameter_bytes_by_type(graph: Graph) -> dict[str, int] | UnsetType:
    """Return the bytes of the parameters by element type; UNSET if a type is unknown or the sum
    does not fit.
    """
    by_type = dict(graph.param_bytes_by_type)
    is_known = "" not in by_type and sum(by_type.values()) == graph.param_bytes
    return by_type if is_known else UNSET


def _bytes_read_and_written_by_type(ledger: Ledger) -> dict[str, int]:
    """Return the bytes that the counted nodes read and write together, by element type."""
    by_type: dict[str, int] = {}
    for counted in ledger.counted:
        for node in counted.node.source_operations:
            known = find_operator_rule(node.op)
            if known is None or node.bodies:
                continue
            specs = (*node.inputs, *node.outputs)
            types = list(dict.fromkeys(spec.storage_dtype for spec in specs if spec is not None))
            if len(types) == 1 and node is counted.node:  # as most nodes: no need to look again
                moved_bytes = counted.cost.bytes_read + counted.cost.bytes_written
                if moved_bytes:
                    by_type[types[0]] = by_type.get(types[0], 0) + moved_bytes
                continue
            for dtype in types:
                moved = amount_read_and_written(
                    known, node, counted.cost.flops > 0, _byte_size_if_of_type(dtype)
                )
                if any(moved):
                    by_type[dtype] = by_type.get(dtype, 0) + sum(moved) * counted.times
    return by_type


def _byte_size_if_of_type(dtype: str) -> TensorSize:
    """Return a function that gives the bytes of a tensor stored in the type `dtype`, and 0 for any
    other.
    """
    return lambda spec: spec.nbytes if spec.storage_dtype == dtype else 0


def _elements_read_and_written(ledger: Ledger) -> tuple[int, int]:
    """Return the numbers of tensor elements that the counted nodes read and write, as (read,
    written).
    """
    read = written = 0
    for counted in ledger.counted:
        for node in counted.node.source_operations:
            known = find_operator_rule(node.op)
            if known is not None and not node.bodies:
                more = amount_read_and_written(
                    known, node, counted.cost.flops > 0, element_count_of_spec
                )
                read += more[0] * counted.times
                written += more[1] * counted.times
    return read, written


def activation_peak_of_graph(graph: Graph) -> Peak:
    """Return the peak of a graph: the most bytes of activations alive at once while the nodes run
    in their order.

    While node i runs, alive are: the inputs of the graph, from first to last (the caller holds
    them); every result made by a node up to i that i or a later node reads, or that the graph
    returns; and all that i itself makes, read or not. Nothing is computed in place. A result of
    an aliasing node (see `Rule`) is its first input: no bytes, and both live as long as either is
    read. Parameters, constants and what is computed from them alone are apart. While a node with
    bodies runs, the peak of its largest body is alive besides; what a body reads from around it
    counts as read by the node. Operands and results of a function are those of its call.
    """
    functions: dict[int, Peak] = {}
    for body in _distinct_functions(graph):
        separate = frozenset(spec.name for spec in (*body.inputs, *body.outputs))
        functions[id(body)] = _peak_of_graph(body, separate, functions)
    return _peak_of_graph(graph, frozenset(), functions)


def _distinct_functions(graph: Graph) -> list[Graph]:
    """Return the body of each called local function once, after the functions that it calls."""
    functions: list[Graph] = []
    visited: set[int] = set()
    todo = [(graph, False, False)]  # what to look at, whether it is a function, whether it is done
    while todo:
        body, function, done = todo.pop()
        if done:
            functions += [body] if function else []
        elif id(body) not in visited:
            visited.add(id(body))
            todo.append((body, function, True))
            for node in body.nodes:
                called = node.choice == "function"
                todo += [(inner, called, False) for inner in node.bodies]
    return functions


def _peak_of_graph(graph: Graph, separate: frozenset[str], functions: dict[int, Peak]) -> Peak:
    """Return the peak of activations of a graph. Tensors in `separate` have no bytes here;
    `functions` has the peaks of called functions, by id of the body.
    """
    owner, constant = _memory_sharing(graph, separate)
    inside = [
        _peaks_of_bodies(node, constant, functions) if node.bodies else [] for node in graph.nodes
    ]
    unsized = sum(inner.unsized for bodies in inside for inner in bodies)
    last = _last_reader_index_by_tensor(graph, owner)
    end = len(graph.nodes)
    # Bytes that come alive at a place, and those that have gone there.
    born, gone = [0] * (end + 1), [0] * (end + 2)
    for index, spec in _maker_indices_and_activation_tensors(graph, owner, constant):
        if spec.shape is None or not spec.dtype:
            unsized += 1
            continue
        dies = end if spec.role == "input" else max(index, last.get(spec.name, index))
        nbytes = spec.nbytes
        born[index] += nbytes
        gone[dies + 1] += nbytes
    alive, best = 0, Peak(born[0] if not graph.nodes else 0, "", unsized)
    for index, (node, bodies) in enumerate(zip(graph.nodes, inside, strict=True)):
        alive += born[index] - gone[index]
        now = alive + max(inner.nbytes for inner in bodies) if bodies else alive
        if now > best.nbytes:
            best = Peak(now, node.key, unsized)
    return best


def _peaks_of_bodies(
    node: Node, separate: frozenset[str], functions: dict[int, Peak]
) -> list[Peak]:
    """Return the peak of activations of each body of a node.

    Operands and results of a function belong to its caller.
    """
    if node.choice != "function":
        return [_peak_of_graph(body, separate, functions) for body in node.bodies]
    (body,) = node.bodies
    return [functions[id(body)]]


class MemorySharing(NamedTuple):
    """The tensor whose memory each alias shares, by the name of the alias, and the names of
    constant tensors.
    """

    owner_by_alias: dict[str, str]
    constants: frozenset[str]


def _memory_sharing(graph: Graph, separate: frozenset[str]) -> MemorySharing:
    """Return which tensors share the memory of another one, and which are constant."""
    owner: dict[str, str] = {}
    constant = set(separate)
    for node in graph.nodes:
        names = [spec.name for spec in node.outputs if spec is not None]
        source = node.inputs[0] if node.inputs else None
        if node.constant:
            constant.update(names)
        elif (
            source is not None
            and names
            and (
                node.folded
                or ((known := find_operator_rule(node.op)) and known.traffic == "alias")
            )
        ):
            owner[names[0]] = owner.get(source.name, source.name)
            if source.role in ("parameter", "constant") or source.name in constant:
                constant.add(names[0])
    return MemorySharing(owner, frozenset(constant))


def _maker_indices_and_activation_tensors(
    graph: Graph, owner: Mapping[str, str], constant: frozenset[str]
) -> Iterator[tuple[int, TensorSpec]]:
    """Yield the tensors that take memory of their own, each with the index of the node that makes
    it (0 for inputs).

    They are the inputs, and the results that are neither aliases nor constant.
    """
    for spec in graph.inputs:
        if spec.name not in constant:
            yield 0, msgspec.structs.replace(spec, role="input")
    for index, node in enumerate(graph.nodes):
        for made in node.outputs:
            if made is not None and made.name not in constant and made.name not in owner:
                yield index, made


def _last_reader_index_by_tensor(graph: Graph, owner: Mapping[str, str]) -> dict[str, int]:
    """Return the index of the last node that reads a tensor, by its name; the number of nodes for
    outputs of the graph.
    """
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for name in _names_that_node_reads(node):
            last[owner.get(name, name)] = index
    for spec in graph.outputs:
        last[owner.get(spec.name, spec.name)] = len(graph.nodes)
    return last


def _names_that_node_reads(node: Node) -> Iterable[str]:
    """Return the names of the tensors that a node reads, also those that its bodies read from
    outside.
    """
    names = [spec.name for spec in node.inputs if spec is not None]
    return [*names, *_names_that_bodies_read(node)] if node.bodies else names


def _names_that_bodies_read(node: Node) -> Iterator[str]:
    """Yield the names of the tensors from outside that the bodies of a node read."""
    for body in node.bodies if node.choice != "function" else ():  # it sees its operands alone
        defined: set[str] = {spec.name for spec in body.inputs}
        for inner in body.nodes:
            yield from (name for name in _names_that_node_reads(inner) if name not in defined)
            defined.update(spec.name for spec in inner.outputs if spec is not None)
        yield from (name for name in _present_tensor_names(body.outputs) if name not in defined)


def _present_tensor_names(specs: Iterable[TensorSpec | None]) -> Iterator[str]:
    """Yield the names of these tensors, without None."""
    return (spec.name for spec in specs if spec is not None)
