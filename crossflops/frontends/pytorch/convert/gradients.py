"""The places in a PyTorch model through which no gradient flows: at `detach`, and under
`torch.no_grad`.

The exporter drops both. A call knows whether gradients were on when it began; a tensor that was
detached on its way from one call to the next is followed in the exported program. So is one that
was changed in place meanwhile: for gradients it is what it was, a parameter as before.
"""

from collections import defaultdict
from collections.abc import Collection, Container, Hashable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from crossflops.frontends.pytorch.convert.exporter import DOMAIN
from crossflops.frontends.pytorch.record.operators import (
    HOOKED,
    is_detaching_call,
    is_gradient_requested,
    is_third_party_operator,
    write_and_return_node,
    write_argument_nodes,
)
from crossflops.frontends.pytorch.record.recorder import CUSTOM
from crossflops.ir.graph import (
    START_MISSING,
    TURNED,
    UNSURE,
    Attribute,
    Graph,
    Node,
    Op,
    TensorSpec,
)
from crossflops.ir.trace import Call

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

_HOOK = "a hook receives its gradient; the work of the hook is not counted"
_FOLDED = (
    "an operand is computed from constants with a gradient; the gradients of these "
    "constants are not counted"
)
_HANDED_OUT = "the output of a reentrant checkpoint is detached; counted as if it were attached"
_VIEWED = "an input is a view created under no_grad; its gradient may be computed and discarded"
_HANDING_ON = ("add", "clone", "contiguous", "to", "_to_copy")  # a gradient, as it is
_BROADCAST = "aten.broadcast_tensors.default"
_CDIST, _EUCLIDEAN = "aten.cdist.default", Op(DOMAIN, "aten._euclidean_dist.default", 1)
_BILINEAR, _TRILINEAR = "aten.bilinear.default", Op(DOMAIN, "aten._trilinear.default", 1)
# As PyTorch calls it for rows b, outputs o, and the elements i and j of both inputs: x1 [b, i],
# weight [o, i, j] and x2 [b, j], each without the other axes of b, o, i, j.
_ROWS_BY_OUTPUTS = {"expand1": (1, 3), "expand2": (0,), "expand3": (1, 2), "sumdim": (2, 3)}
_NOWHERE = ("", 0)
# By the key of the call that made it, or "=" and the name of a parameter: for each way in which a
# value comes from there, whether it is detached on that way.
_DetachmentBySource = dict[str, tuple[bool, ...]]
_DetachmentByCallPair = dict[
    tuple[str, str], tuple[bool, ...]
]  # by two calls: the ways from one to the other


def mark_detached_inputs(
    graph: Graph, program: "ExportedProgram", operators: Mapping[str, Call]
) -> Graph:
    """Return the graph with marks at the inputs of nodes, and at its outputs, through which no
    gradient flows.

    `operators` are the calls by the name of their node in the program, without those in custom
    functions that detach: their backward pass is another.
    """
    calls = {call.key: call for call in operators.values()}
    cut = {key for key, call in calls.items() if not call.grad}
    writers = (node for node in program.graph.nodes if _is_third_party_write(node))
    cut |= {
        operators[node.name].key for node in writers if not _returns_more_than_written_tensor(node)
    }
    present = {node.call for node in graph.nodes}
    ways, outputs = _gradient_paths(program, operators, present)
    detached = {pair: flags for pair, flags in ways.items() if any(flags)}
    ends = outputs if len(outputs) == len(graph.outputs) else ()
    if not cut and not detached and not any(ends):
        return graph
    indices = _positions_of_detached_inputs(graph, detached)
    nodes = []
    for node in graph.nodes:
        begun = {index for index, spec in node.training.past.items() if spec.name in graph.starts}
        severed = tuple(index for index in indices.get(node.key, ()) if index not in begun)
        if node.call in cut or is_detaching_call(calls.get(node.call)):
            severed = tuple(range(len(node.inputs)))
        nodes.append(node.with_training(severed=severed))
    missing = tuple(index for index, is_cut in enumerate(ends) if is_cut)
    return msgspec.structs.replace(graph, nodes=tuple(nodes), severed=missing)


def mark_products_with_other_gradient(graph: Graph, operators: Mapping[str, Call]) -> Graph:
    """Return the graph with marks at matrix products whose gradient PyTorch computes by another
    operator (`cdist`, `bilinear`).
    """
    calls = {call.key: call for call in operators.values()}
    products: dict[str, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.op.type == "MatMul" and node.call in calls:
            products[node.call].append(node)
    derived: dict[str, Node] = {}
    for call, nodes in products.items():
        if calls[call].target == _CDIST:
            derived |= {node.key: msgspec.structs.replace(node, op=_EUCLIDEAN) for node in nodes}
        elif calls[call].target == _BILINEAR and len(nodes) == 2:
            derived |= _bilinear_gradient_nodes(calls[call], *nodes)
    if not derived:
        return graph
    nodes_ = (node.with_training(derived_as=derived.get(node.key)) for node in graph.nodes)
    return msgspec.structs.replace(graph, nodes=tuple(nodes_))


def _bilinear_gradient_nodes(call: Call, first: Node, second: Node) -> dict[str, Node]:
    """Return for both products of a bilinear layer, by node key, the operator by which PyTorch
    differentiates them.

    The exporter multiplies x1 [..., i] with the weight as a matrix, and the result with x2.
    Source: bilinear in aten/src/ATen/native/Linear.cpp.
    """
    x1, x2, weight = (spec.shape or () for spec in call.inputs[:3])
    rows = prod(x1[:-1])
    shapes = (rows, x1[-1]), weight, (rows, x2[-1])
    result = TensorSpec("", first.outputs[0].dtype if first.outputs[0] else "", (rows, weight[0]))

    def trilinear_node(node: Node, *names: str) -> Node:
        """Return a trilinear node with these names of operands and the result of the layer."""
        operands = zip(names, shapes, strict=True)
        inputs = tuple(TensorSpec(name, result.dtype, shape) for name, shape in operands)
        attrs: dict[str, Attribute] = {**_ROWS_BY_OUTPUTS, "unroll_dim": 1}
        return Node(key=node.key, op=_TRILINEAR, inputs=inputs, outputs=(result,), attrs=attrs)

    taken = [spec.name if spec is not None else "" for spec in (*first.inputs, *second.inputs)]
    return {
        first.key: trilinear_node(first, taken[0], taken[1], ""),
        second.key: trilinear_node(second, "", "", taken[3]),
    }


def mark_gradient_starts(graph: Graph, operators: Mapping[str, Call]) -> Graph:
    """Return the graph with a mark at the last node of each call whose result starts to have a
    gradient.
    """
    calls = {call.key: call for call in operators.values()}
    last = {node.call: node.key for node in graph.nodes if node.call in calls}
    starts = {key for call, key in last.items() if calls[call].starts}
    if not starts:
        return graph
    nodes = (node.with_training(starts=node.key in starts) for node in graph.nodes)
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def add_gradient_starts_without_nodes(
    graph: Graph, program: "ExportedProgram", operators: Mapping[str, Call]
) -> Graph:
    """Return the graph with `starts` set: the values at which a gradient starts although no node
    of the graph makes them.

    These are gradients of inputs, of constants, which the export folds, and of detached values,
    which have a name of their own. Nodes that read one in another form are marked.
    """
    present = {node.call for node in graph.nodes}
    inputs = (node for node in program.graph.nodes if node.op == "placeholder")
    starts = {node.name: True for node in inputs if is_gradient_requested(node)}
    lost = {call.key for call in operators.values() if call.starts} - present
    if not lost:
        return msgspec.structs.replace(graph, starts=starts) if starts else graph
    plain = {
        name: msgspec.structs.replace(call, target="") if call.key in lost else call
        for name, call in operators.items()
    }
    ways: _DetachmentByCallPair = {}
    gradient_sources(program, plain, present | lost, ways)
    stored_value = _constants_with_gradients(program, operators, lost, present)
    signature = program.graph_signature
    stored = {*signature.inputs_to_parameters.values(), *signature.inputs_to_buffers.values()}
    plainly = {pair for pair, flags in ways.items() if not all(flags)}
    made = {spec.name: node.call for node in graph.nodes for spec in node.outputs if spec}
    leaves = _values_detached_by_lost_source(program, operators, lost, present)
    known: set[tuple[str, str]] = set()
    nodes = []
    for node in graph.nodes:
        past, why = dict(node.training.past), node.training.own_backward
        for index, spec in enumerate(node.inputs):
            if spec is None:
                continue
            value = stored_value.get(spec.name) or stored_value.get((node.call, spec.shape))
            made_there = spec.role and spec.name not in stored
            if value is not None and made_there and value.dtype == spec.dtype:
                known |= {(source, node.call) for source in value.sources}
                starts[spec.name] = False
                why = why if value.whole else _FOLDED
            origin = made.get(spec.name, f"={spec.name}")
            for source in leaves.get(origin, ()):
                taken = ways.get((source, node.call), ())
                uses = sum(other is not None and other.name == spec.name for other in node.inputs)
                alone = (origin, node.call) not in plainly and uses <= len(taken)
                if taken and not any(taken) and alone:
                    known.add((source, node.call))
                    name = f"{spec.name} ({source})"
                    starts[name] = True
                    past[index] = msgspec.structs.replace(spec, name=name)
        nodes.append(node.with_training(past=past, own_backward=why))
    cut = {call.key for call in operators.values() if not call.grad}
    takers = {
        taker
        for (source, taker), flags in ways.items()
        if source in lost and not all(flags) and (source, taker) not in known
    }
    graph = msgspec.structs.replace(graph, nodes=tuple(nodes), starts=starts)
    return _with_reason_at_calls(graph, takers - cut, START_MISSING)


def _values_detached_by_lost_source(
    program: "ExportedProgram",
    operators: Mapping[str, Call],
    lost_calls: set[str],
    present: set[str],
) -> dict[str, set[str]]:
    """Return for each source of gradients the keys of the `lost_calls` that detach its value
    or copy an input. A lost call starts gradients and has no node.

    A source is the key of a call, or "=" and the name of an input.
    """
    parameters = dict(program.graph_signature.inputs_to_parameters)
    roots: dict[fx.Node, str] = {}
    leaves: dict[str, set[str]] = {}
    for node in program.graph.nodes:
        call, provided = operators.get(node.name), _gradient_argument_nodes(node)
        if node.op == "placeholder":
            roots[node] = f"={parameters.get(node.name, node.name)}"
        elif call is not None and call.key in present:
            roots[node] = call.key
        elif call is not None and len(provided) == 1 and provided[0] in roots:
            root = roots[provided[0]]
            hands_on = _passes_gradient_unchanged(provided[0], node)
            if call.key in lost_calls and (
                is_detaching_call(call) or (hands_on and root.startswith("="))
            ):
                leaves.setdefault(root, set()).add(call.key)
            elif hands_on:
                roots[node] = root
    return leaves


class _FoldedConstant(NamedTuple):
    """A constant that is made of the `sources`, which have gradients; `whole` is True if it passes
    its gradient on unchanged.
    """

    sources: frozenset[str]
    whole: bool
    dtype: str


def _constants_with_gradients(
    program: "ExportedProgram",
    operators: Mapping[str, Call],
    lost_calls: set[str],
    present: set[str],
) -> dict[Hashable, _FoldedConstant]:
    """Return the constants with gradients that are made of results of `lost_calls`, by name
    and by (key of the call that reads one, shape).

    They are keyed by the name of a value of the program, which PyTorch reuses where it decomposes
    an operator: so also by the call that reads one, with its shape.
    """
    stored: dict[Hashable, _FoldedConstant] = {}
    for node in program.graph.nodes:
        call = operators.get(node.name)
        if call is None:
            continue
        provided = [
            stored[argument.name]
            for argument in _gradient_argument_nodes(node)
            if argument.name in stored
        ]
        if call.key in present:
            for argument in _gradient_argument_nodes(node):
                if argument.name in stored:
                    shape = tuple(argument.meta["val"].shape)
                    stored[call.key, shape] = stored[argument.name]
            continue
        made = node.meta.get("val")
        if not hasattr(made, "dtype") or not (made.is_floating_point() or made.is_complex()):
            continue
        dtype = str(made.dtype).removeprefix("torch.")
        if call.key in lost_calls:
            stored[node.name] = _FoldedConstant(frozenset({call.key}), True, dtype)
        elif provided and not is_detaching_call(call) and call.grad:
            full = (
                len(provided) == 1
                and provided[0].whole
                and _passes_gradient_unchanged(_gradient_argument_nodes(node)[0], node)
            )
            sources = frozenset().union(*(value.sources for value in provided))
            stored[node.name] = _FoldedConstant(sources, full, dtype)
    return stored


def _passes_gradient_unchanged(operand: "fx.Node", node: "fx.Node") -> bool:
    """Return True if the `operand` gets the gradient of the node's result unchanged,
    element by element.
    """
    packet = getattr(node.target, "overloadpacket", None)
    plain = getattr(packet, "__name__", "") in _HANDING_ON and "alpha" not in node.kwargs
    taken, made = (value.meta.get("val") for value in (operand, node))
    if not hasattr(taken, "numel") or not hasattr(made, "numel"):
        return False  # what only asserts makes nothing, and some operators make several tensors
    same = bool(taken.numel() == made.numel())
    return same and (plain or _is_view_of_first_argument(node))


def mark_readers_of_hooked_weights(graph: Graph, names: Collection[str]) -> Graph:
    """Return the graph with a mark at each node that reads one of these parameters, which have a
    gradient hook.
    """
    return _with_reason_at_weight_readers(graph, names, _HOOK)


def mark_readers_of_changed_weights(graph: Graph, names: Collection[str]) -> Graph:
    """Return the graph with a mark at each node that reads one of these parameters, which were
    frozen or made trainable during the run.
    """
    return _with_reason_at_weight_readers(graph, names, TURNED)


def _with_reason_at_weight_readers(graph: Graph, names: Collection[str], reason: str) -> Graph:
    """Return the graph with `reason`, why the gradient is not counted, at each node that reads one
    of these weights.
    """
    nodes = (
        node.with_training(own_backward=reason)
        if any(spec is not None and spec.role and spec.name in names for spec in node.inputs)
        else node
        for node in graph.nodes
    )
    return msgspec.structs.replace(graph, nodes=tuple(nodes)) if names else graph


def mark_hooked_tensors(
    graph: Graph, program: "ExportedProgram", operators: Mapping[str, Call]
) -> Graph:
    """Return the graph with a mark at each node whose gradient a hook of a tensor may change."""
    hooked = [node for node in program.graph.nodes if HOOKED in (node.meta.get("custom") or {})]
    if not hooked:
        return graph
    origins = gradient_sources(program, operators, {node.call for node in graph.nodes})
    calls = {call for node in hooked for call in origins[node]}
    return _with_reason_at_calls(graph, calls, _HOOK)


def mark_reentrant_checkpoint_outputs(
    graph: Graph, program: "ExportedProgram", operators: Mapping[str, Call]
) -> Graph:
    """Return the graph with a mark at each node whose result is a detached output of a reentrant
    checkpoint.
    """
    handed = [node for node in program.graph.nodes if _is_checkpoint_output(node, operators)]
    if not handed:
        return graph
    origins = gradient_sources(program, operators, {node.call for node in graph.nodes})
    calls = {call for node in handed for call in origins[node]}
    return _with_reason_at_calls(graph, calls, _HANDED_OUT)


def mark_readers_of_no_grad_views(
    graph: Graph, program: "ExportedProgram", operators: Mapping[str, Call]
) -> Graph:
    """Return the graph with a mark at each node that reads a view made under `torch.no_grad()` of
    a tensor with gradient.

    Where the viewed tensor requires a gradient, the view does as well, and is a leaf: PyTorch
    computes a gradient for it that goes nowhere, which is part of no sum here. Source:
    torch/csrc/autograd/variable.h (as_view, CreationMeta::NO_GRAD_MODE).
    """
    parameters = program.graph_signature.inputs_to_parameters
    graded: set[fx.Node] = set()  # what may require a gradient
    leaves: set[fx.Node] = set()  # such views
    takers: set[str] = set()
    for node in program.graph.nodes:
        call, provided = operators.get(node.name), _gradient_argument_nodes(node)
        if node.op == "placeholder":
            graded |= {node} if node.name in parameters else set()
        elif call is None:  # one of several results
            graded |= {node} if graded.intersection(provided) else set()
            leaves |= {node} if leaves.intersection(provided) else set()
        elif call.grad:
            graded |= set() if is_detaching_call(call) else {node}
            takers |= {call.key} if leaves.intersection(provided) else set()
            leaves |= (
                {node}
                if _is_view_of_first_argument(node) and leaves.intersection(provided)
                else set()
            )
        elif (
            _is_view_of_first_argument(node)
            and not is_detaching_call(call)
            and graded.intersection(provided[:1])
        ):
            graded.add(node)
            leaves.add(node)
    return _with_reason_at_calls(graph, takers, _VIEWED) if takers else graph


def _with_reason_at_calls(graph: Graph, calls: Container[str], reason: str) -> Graph:
    """Return the graph with `reason`, why the gradient is not counted, at each node of these
    calls.
    """
    nodes = (
        node.with_training(own_backward=reason) if node.call in calls else node
        for node in graph.nodes
    )
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def _is_checkpoint_output(node: "fx.Node", operators: Mapping[str, Call]) -> bool:
    """Return True if a node detaches a result of a reentrant checkpoint that is used outside of
    the checkpoint.
    """
    call = operators.get(node.name)
    if call is None or not is_detaching_call(call) or call.checkpoint is None:
        return False
    if call.checkpoint.kind != "reentrant":
        return False
    takers = [operators.get(user.name) for user in node.users]
    inside = [
        taker is not None and _is_inside_checkpoint(taker, call.checkpoint.number)
        for taker in takers
    ]
    return not all(inside)


def _is_inside_checkpoint(call: Call, checkpoint_number: int) -> bool:
    """Return True if a call is inside the checkpoint with this number, at any depth."""
    checkpoint = call.checkpoint
    while checkpoint is not None and checkpoint.number != checkpoint_number:
        checkpoint = checkpoint.around
    return checkpoint is not None


def restore_overwritten_inputs(
    graph: Graph, program: "ExportedProgram", operators: Mapping[str, Call]
) -> Graph:
    """Return the graph in which a node that read a tensor after it was overwritten without
    gradients reads the old value instead: autograd sends the gradient there.

    What a custom autograd function returns keeps its gradient, which the function's own backward
    pass takes, however its forward pass wrote it.
    """
    present = {node.call for node in graph.nodes}
    written, taken, sources = _trace_in_place_writes(program, operators, present)
    if not written:
        return graph
    made = {
        spec.name: (node.call, behind)
        for node in graph.nodes
        for behind, spec in enumerate(reversed(node.outputs))
        if spec
    }
    last = {node.call: node.outputs[0] for node in graph.nodes}
    nodes = []
    for node in graph.nodes:
        past = {}
        for index, spec in enumerate(node.inputs):
            maker, behind = made.get(spec.name, _NOWHERE) if spec else _NOWHERE
            function = _outermost_custom_function_key(maker)
            is_result = bool(function) and function != _outermost_custom_function_key(node.call)
            bases = () if is_result or maker == node.call else written.get(maker, ())
            base = bases[-1 - behind] if behind < len(bases) else None
            if spec is not None and base is not None and base in taken.get(node.call, ()):
                source = sources.get(base, base)
                weight = msgspec.structs.replace(spec, name=source[1:], role="parameter")
                blank = msgspec.structs.replace(spec, name=f"{spec.name}/past", role="constant")
                past[index] = weight if source.startswith("=") else last.get(source, blank)
        past = {**node.training.past, **past}
        nodes.append(node.with_training(past=past) if past else node)
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def _outermost_custom_function_key(call: str) -> str:
    """Return the key of the outermost custom autograd function that runs a call, "" if none."""
    parts = call.split("/")
    own = next((i for i, part in enumerate(parts) if part.startswith(CUSTOM)), None)
    return "" if own is None else "/".join(parts[: own + 1])


class _TensorOverwrites(NamedTuple):
    """In-place writes without gradients: by call, the values before the write that get gradients.

    Those values are the last results of the call. `read_values` has, by call, the values that it
    reads for gradients, each as "=" and the name of a parameter or as the call that made it.
    `value_of_result` has, by call, the value of the graph that its result is: that of a copy is
    what it copies, that of new zeros is "".
    """

    overwritten_values: dict[str, tuple[str, ...]]
    read_values: dict[str, set[str]]
    value_of_result: dict[str, str]


def _trace_in_place_writes(
    program: "ExportedProgram", operators: Mapping[str, Call], calls_with_nodes: set[str]
) -> _TensorOverwrites:
    """Return which values the calls of the program overwrite in place without gradients, and which
    values they read.
    """
    parameters = dict(program.graph_signature.inputs_to_parameters)
    bases: dict[fx.Node, str] = {}
    detached: set[fx.Node] = set()
    makers: dict[fx.Node, str] = {}
    written: dict[str, tuple[str, ...]] = {}
    taken: dict[str, set[str]] = {}
    sources: dict[str, str] = {}
    for node in program.graph.nodes:
        call, arguments = operators.get(node.name), _gradient_argument_nodes(node)
        first = arguments[0] if arguments else None
        if node.op == "placeholder" and node.name in parameters:
            bases[node] = makers[node] = f"={parameters[node.name]}"
        if call is None or first is None:
            continue
        passes = "" if _makes_tensor_without_gradient(call) else makers.get(first, "")
        makers[node] = sources[call.key] = call.key if call.key in calls_with_nodes else passes
        taken[call.key] = {
            bases[provided]
            for provided in arguments
            if provided in bases and provided not in detached
        }
        changes = _is_in_place_call(call) and (not call.grad or first in detached)
        if changes and first in bases:
            copied = call.key not in calls_with_nodes and len(arguments) > 1
            written[makers.get(arguments[1], "") if copied else call.key] = (bases[first],)
        if _is_third_party_write(node):
            written[call.key] = tuple(bases.get(base, "") for base in write_argument_nodes(node))
            bases[node] = bases.get(write_and_return_node(node), "")
            continue
        bases[node] = (
            bases.get(first, "") if changes or _is_view_of_first_argument(node) else call.key
        )
        if is_detaching_call(call) or (
            first in detached and (changes or _is_view_of_first_argument(node))
        ):
            detached.add(node)
    changed = {call: own for call, own in written.items() if call and any(own)}
    return _TensorOverwrites(changed, taken, sources)


def _makes_tensor_without_gradient(call: Call) -> bool:
    """Return whether a call makes a tensor from the form of its operand alone: no gradient.

    Source: PyTorch, tools/autograd/derivatives.yaml (output_differentiability: [False]).
    """
    name = call.target.removeprefix("aten.").partition(".")[0]
    return name.startswith("new_") or name.endswith("_like")


def _is_third_party_write(node: "fx.Node") -> bool:
    """Return True if a node calls an operator of another library that writes in place, which
    autograd does not notice.

    Source: torch/_library/custom_ops.py (`_register_mutation_version_bump`).
    """
    target: Any = node.target
    return is_third_party_operator(node) and bool(target._schema.is_mutable)


def _returns_more_than_written_tensor(node: "fx.Node") -> bool:
    """Return True if an operator that writes in place returns more than the written tensor."""
    target: Any = node.target
    return bool(target._schema.returns) and write_and_return_node(node) is None


def _is_in_place_call(call: Call) -> bool:
    """Return True if the operator of a call changes its operand in place: its name ends in `_`."""
    name = call.target.removeprefix("aten.").partition(".")[0]
    return name.endswith("_") and not name.endswith("__")


def _is_view_of_first_argument(node: "fx.Node") -> bool:
    """Return True if the result of a node is a view of its first argument."""
    schema = getattr(node.target, "_schema", None)
    alias = schema.arguments[0].alias_info if schema and schema.arguments else None
    return alias is not None and not alias.is_write


def _positions_of_detached_inputs(
    graph: Graph, detached: _DetachmentByCallPair
) -> dict[str, tuple[int, ...]]:
    """Return for each node, by its key, the positions of its inputs that are detached from
    autograd; UNSURE for an unknown position.

    Where a call reads a value both directly and detached, its arguments and the inputs of its
    nodes have the same order. The index is UNSURE where their numbers differ.
    """
    made = {spec.name: node.call for node in graph.nodes for spec in node.outputs if spec}
    taken: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for node in graph.nodes:
        for index, spec in enumerate(node.inputs):
            if spec is not None:
                pair = made.get(spec.name, f"={spec.name}"), node.call
                taken.setdefault(pair, []).append((node.key, index))
    cut: dict[str, tuple[int, ...]] = {}
    for pair, flags in detached.items():
        uses = taken.get(pair, [])
        if all(flags):
            flags = (True,) * len(uses)
        known = len(flags) == len(uses)
        for (key, index), is_cut in zip(
            uses, flags if known else (True,) * len(uses), strict=True
        ):
            if is_cut:
                cut[key] = (*cut.get(key, ()), index if known else UNSURE)
    return cut


class _GradientPaths(NamedTuple):
    """The ways of gradients from call to call, and for each output if it is detached on all."""

    ways: _DetachmentByCallPair
    are_outputs_detached: tuple[bool, ...]


def _gradient_paths(
    program: "ExportedProgram", operators: Mapping[str, Call], calls_with_nodes: set[str]
) -> _GradientPaths:
    """Return the ways of gradients from call to call, and for each output if it is detached on
    every way.

    Calls without nodes pass on their inputs.
    """
    ways: _DetachmentByCallPair = {}
    reached = gradient_sources(program, operators, calls_with_nodes, ways)
    names = {node.name: node for node in program.graph.nodes}
    provided = [names.get(name) for name in program.graph_signature.user_outputs]
    results = [reached.get(node, {}) for node in provided if node is not None]
    are_detached = tuple(bool(flags) and all(map(all, flags.values())) for flags in results)
    return _GradientPaths(ways, are_detached)


def gradient_sources(
    program: "ExportedProgram",
    operators: Mapping[str, Call],
    calls_with_nodes: Container[str],
    ways: _DetachmentByCallPair | None = None,
) -> "dict[fx.Node, _DetachmentBySource]":
    """Return for each FX node the calls and parameters from which its value comes, each with a
    flag for each way: True if it is detached on that way.
    """
    parameters = dict(program.graph_signature.inputs_to_parameters)
    reached: dict[fx.Node, _DetachmentBySource] = {}
    ways = {} if ways is None else ways
    together: dict[Any, Any] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            reached[node] = {f"={parameters.get(node.name, node.name)}": (False,)}
            continue
        before = _merge_gradient_sources(
            [reached.get(argument, {}) for argument in _gradient_argument_nodes(node)]
        )
        full = node.args[0] if "getitem" in getattr(node.target, "__name__", "") else None
        if full in together:  # each of its results is one of what it takes
            before = reached.get(together[full][node.args[1]], {})
        call = operators.get(node.name)
        if call is not None and call.key not in calls_with_nodes and call.target == _BROADCAST:
            together[node] = node.args[0]
        if call is not None and call.key in calls_with_nodes:
            for source, flags in before.items():
                ways[source, call.key] = ways.get((source, call.key), ()) + flags
            before = {call.key: (False,)}
        if is_detaching_call(call) and not _is_checkpoint_output(node, operators):
            before = {source: (True,) * len(flags) for source, flags in before.items()}
        reached[node] = before
    return reached


def _gradient_argument_nodes(node: "fx.Node") -> list["fx.Node"]:
    """Return the FX nodes among the arguments of a node, in order; a node that occurs twice is
    listed twice.
    """
    from torch.fx.node import map_arg

    operands: list[fx.Node] = []
    map_arg((node.args, node.kwargs), operands.append)  # PyTorch's own walk, in C++
    return operands


def _merge_gradient_sources(maps: list[_DetachmentBySource]) -> _DetachmentBySource:
    """Return one map of gradient sources with the flags of all maps."""
    merged: _DetachmentBySource = {}
    for sources in maps:
        for source, flags in sources.items():
            merged[source] = merged.get(source, ()) + flags
    return merged
