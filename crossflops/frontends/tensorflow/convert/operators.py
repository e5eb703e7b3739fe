"""List the operations of a frozen graph as calls, and find the nodes written for each."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from crossflops.frontends.converted import (
    ConvertedOperation,
    has_known_cost,
    with_notes_of_source_operations,
)
from crossflops.frontends.tensorflow.convert.branches import COPY
from crossflops.frontends.tensorflow.convert.converter import DOMAIN
from crossflops.frontends.tensorflow.record.layers import RECURRENT, LayerTable
from crossflops.ir.graph import Graph, Node, Op, TensorSpec
from crossflops.ir.trace import Call, Scalar
from crossflops.ir.training import gradient_call_key, rerun_call_key

# They hold or hand on what others made, and no counter says anything of them.
_SILENT = ("Const", "Placeholder", "NoOp", "Identity")
_HANDED_ON = ("Reshape", "Squeeze", "Identity", "Transpose")
_LIFTED = ("ExpandDims", "Reshape")  # a row of a convolution in one dimension
CALLS = ("StatefulPartitionedCall", "PartitionedCall")  # as of Keras' grouped convolutions
_NOTES = re.compile(r"^_|^T$|^T[a-z]+$")
_BODY = re.compile(r"/(?:body|cond|then|else)/_\d+/")


def computing_operations(graph: Any) -> list[Any]:
    """Return the operations of a frozen graph that compute or move values, in their order."""
    return [op for op in graph.get_operations() if op.type not in _SILENT]


def operation_calls(graph: Any, layers: LayerTable) -> tuple[Call, ...]:
    """Return the operations of a frozen graph as calls, within calls of their layers."""
    by_key: dict[str, Call] = {"(model)": _module_scope_call("(model)", None, 0, layers)}
    operators: list[Call] = []
    loops, branches = loop_operation_names(graph), branch_operation_names(graph)
    for op in computing_operations(graph):
        scope, module = layers.operation_scope(op.name)
        parent = _layer_call_key(scope, module, layers, by_key)
        stored = {"in_loop": op.name in loops, "in_branch": op.name in branches, "gradient": False}
        operators.append(_operator_call(op, parent, module, stored, layers))
    below: dict[str, list[Call]] = {}
    for operator in operators:
        below.setdefault(operator.parent or "", []).append(operator)
    order: list[Call] = []
    for key, call in by_key.items():
        order += [call, *below.get(key, ())]
    return tuple(order)


def _layer_call_key(scope: str, module: int, layers: LayerTable, by_key: dict[str, Call]) -> str:
    """Return the key of the call of a layer by its name scope; add the call if it is new."""
    if not scope:
        return "(model)"
    if scope not in by_key:
        parent = _layer_call_key(*layers.parent_scope(scope), layers, by_key)
        by_key[scope] = _module_scope_call(scope, parent, module, layers)
    return scope


def _module_scope_call(key: str, parent: str | None, module: int, layers: LayerTable) -> Call:
    """Return the module call of a layer."""
    return Call(
        key=key,
        parent=parent,
        level="module",
        target=layers.rows[module].bases[0],
        module=module,
        via="call",
    )


# Settings of a call that are no attributes of its operation.
_OF_CALLS = ("in_loop", "in_branch", "gradient", "cut", "after", "layer")


def _operator_call(
    op: Any, parent: str, module: int, stored: Mapping[str, Scalar], layers: LayerTable
) -> Call:
    """Return the operator call of a TensorFlow operation, with its settings and its layer."""
    layer = layers.layer_kind(module, op.name)
    inputs = tuple(_operation_inputs(op))
    outputs = tuple(
        _operation_tensor_spec(f"output_{n}", tensor) for n, tensor in enumerate(op.outputs)
    )
    return Call(
        key=op.name,
        parent=parent,
        level="operator",
        target=op.type,
        module=module,
        settings={
            **_operation_settings(op),
            **stored,
            "cut": _is_cut_into_blocks(op),
            "after": _kind_of_first_input_producer(op, layer),
            "layer": layer,
        },
        inputs=inputs,
        outputs=outputs,
    )


def _kind_of_first_input_producer(op: Any, layer: str) -> str:
    """Return what made an operation's first input: "convolution", "product", "recurrent" or ""."""
    if layer == RECURRENT:
        return "recurrent"
    maker = op.inputs[0].op if op.inputs else None
    while maker is not None and maker.type in _HANDED_ON and maker.inputs:
        maker = maker.inputs[0].op
    kind = maker.type if maker is not None else ""
    if kind.startswith(("Conv", "DepthwiseConv", "BatchToSpace")) or kind in CALLS:
        return "convolution"
    return "product" if "MatMul" in kind or kind == "Einsum" else ""


def _is_cut_into_blocks(op: Any) -> bool:
    """Return whether an operation's input is an image cut into pieces (dilated convolution)."""
    maker = op.inputs[0].op if op.inputs else None
    while maker is not None and maker.type in _LIFTED and maker.inputs:
        maker = maker.inputs[0].op
    return maker is not None and maker.type == "SpaceToBatchND"


def _operation_inputs(op: Any) -> Iterator[TensorSpec]:
    """Yield the spec of each input of an operation, named after the operation's argument."""
    values = iter(op.inputs)
    for argument in op.op_def.input_arg:
        if not (argument.number_attr or argument.type_list_attr):
            yield _operation_tensor_spec(argument.name, next(values))
            continue
        listed = op.get_attr(argument.number_attr or argument.type_list_attr)
        for number in range(listed if isinstance(listed, int) else len(listed)):
            yield _operation_tensor_spec(f"{argument.name}_{number}", next(values))


def _operation_argument_names(specs: Sequence[TensorSpec]) -> tuple[str, ...]:
    """Return the names of the arguments of an operation; all tensors of a list have the name of
    the list.
    """
    known = {spec.name for spec in specs}
    lists = (spec.name.rpartition("_") for spec in specs)
    return tuple(
        name if number.isdecimal() and f"{name}_0" in known else f"{name}{line}{number}"
        for name, line, number in lists
    )


def _operation_tensor_spec(name: str, tensor: Any) -> TensorSpec:
    """Return the spec of a tensor under this name; its shape is None if a size is unknown."""
    shape = tuple(tensor.shape.as_list()) if tensor.shape.is_fully_defined() else None
    return TensorSpec(name, tensor.dtype.base_dtype.name, shape)


def _operation_settings(op: Any) -> dict[str, Scalar]:
    """Return an operation's attributes by name that are numbers, texts or lists of numbers."""
    settings: dict[str, Scalar] = {}
    for name, value in op.node_def.attr.items():
        if _NOTES.match(name):
            continue
        kind = value.WhichOneof("value")
        if kind == "s":
            settings[name] = value.s.decode(errors="replace")
        elif kind in ("i", "f", "b"):
            settings[name] = getattr(value, kind)
        elif kind == "list" and (value.list.i or value.list.f):
            settings[name] = list(value.list.i or value.list.f)
    return settings


def loop_operation_names(graph: Any) -> frozenset[str]:
    """Return the names of a graph's operations that are inside loops."""
    todo = [op for op in graph.get_operations() if op.type == "Enter"]
    inside: set[str] = set()
    while todo:
        op = todo.pop()
        if op.name in inside or op.type == "Exit":
            continue
        inside.add(op.name)
        todo += [reader for tensor in op.outputs for reader in tensor.consumers()]
        todo += op._control_outputs  # constants in a loop hang on it by order alone
    return frozenset(inside)


def branch_operation_names(graph: Any) -> frozenset[str]:
    """Return the names of a graph's operations that are inside conditional branches.

    The Switch of a loop reads its LoopCond, and the Merge of a loop has a NextIteration.
    """
    depths: dict[str, int] = {}
    todo = [(op, 0) for op in graph.get_operations() if _begins_conditional(op)]
    while todo:
        op, enclosing = todo.pop()
        depth = enclosing + _begins_conditional(op) - _ends_conditional(op)
        if depth <= depths.get(op.name, 0):
            continue
        depths[op.name] = depth
        readers = [reader for tensor in op.outputs for reader in tensor.consumers()]
        todo += [(reader, depth) for reader in (*readers, *op._control_outputs)]
    return frozenset(depths)


def _begins_conditional(op: Any) -> bool:
    """Return whether an operation is the Switch that begins a conditional, not a loop."""
    return op.type in ("Switch", "_SwitchN") and op.inputs[1].op.type != "LoopCond"


def _ends_conditional(op: Any) -> bool:
    """Return whether an operation is the Merge that ends a conditional, not a loop."""
    return op.type == "Merge" and all(tensor.op.type != "NextIteration" for tensor in op.inputs)


def operation_name_in_function(name: str) -> str:
    """Return an operation's name without the names of functions that it was inlined from.

    "lstm/while/body/_1/lstm/while/MatMul" is "lstm/while/MatMul" in the body.
    """
    return _BODY.split(name)[-1]


# Which operation of TensorFlow's an ONNX node came from: by names, and by neighbourhood.
#
# tf2onnx gives a node the name of its operation, or that with a counter behind it ("MatMul__12"),
# or where it fuses two the name of the second, or one of its own ("LSTM__34").

MADE = "tf2onnx."  # before the type of a node that no operation accounts for
CONTRACTIONS = (
    "Conv2D", "Conv3D", "DepthwiseConv2dNative", "Conv2DBackpropInput", "Conv3DBackpropInputV2",
    "MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", *CALLS,
)  # fmt: skip
_PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "LSTM", "GRU", "RNN")
# The converter puts these in with names that it makes of those of their neighbours.
_MOVERS = ("Transpose", "Cast", "Squeeze", "Unsqueeze", "Reshape", "Identity")
_COUNTER = re.compile(r"(_Gemm)?(__\d+)+$")
_BRANCH = re.compile(rf"^.*_(?:true|false|branch\d+)_\d+(?:{COPY}\d+)*_")
_RUN = re.compile(r"\[\d+\]")  # of a loop that was unrolled
_RUN_OF = re.compile(r"^.*\[\d+\]/")
_FARTHEST = 400  # operations that a search looks at: a loop has some dozens


class Links:
    """A search for the operation behind each node; a contraction has one node if possible."""

    def __init__(self, frozen: Any, origins: Mapping[str, str] = {}) -> None:
        """Take a frozen graph, and the operation names that nodes were made for."""
        self._origins = origins
        self._ops: dict[str, Any] = {}
        for op in computing_operations(frozen):
            self._ops.setdefault(op.name, op)
            self._ops.setdefault(operation_name_in_function(op.name), op)
        self._taken: set[str] = set()

    def operation_name(self, node: Node) -> str | None:
        """Return the name of the TensorFlow operation that a node was written for, or None."""
        if (written := self.origin_operation(node)) is not None:
            return written
        if node.op.type in _MOVERS:
            own = self._ops.get(node.key.partition("@")[0])
            return str(own.name) if own is not None else None
        names = [node.key, *_operation_names(node.outputs)]
        if (call := self._origin_call(names)) is not None:
            return str(call.name)
        named = list(self._operations_by_name(names))
        if node.op.domain or node.op.type not in _PRODUCTS:
            return named[0].name if named else None
        fed = list(self._operations_by_name(_operation_names(node.inputs)))
        candidates = (
            # a loop that was unrolled has a node for each of its steps
            next((op for op in named if op.type in CONTRACTIONS), None)
            or next(
                (op for op in fed if op.type in CONTRACTIONS and op.name not in self._taken), None
            )
            or self._nearest_contraction_without_node(named, _operand_makers)
            or self._nearest_contraction_without_node(fed, _direct_readers)
        )
        if candidates is None:
            return named[0].name if named else None
        self._taken.add(candidates.name)
        return str(candidates.name)

    def origin_operation(self, node: Node) -> str | None:
        """Return the name of the operation that tf2onnx recorded for a node, or None.

        A node of an operation that it left unchanged has the operation's name.
        """
        name = _RUN_OF.sub("", _BRANCH.sub("", node.key.partition("@")[0]))
        own = name if node.op.domain == DOMAIN else None
        op = self._ops.get(self._origins.get(name) or own or "")
        return str(op.name) if op is not None else None

    def _origin_call(self, names: Iterable[str]) -> Any:
        """Return the call of a function from whose body a node comes, or None."""
        for name in names:
            parts = name.partition("@")[0].split("/")
            for index, part in enumerate(parts):
                op = (
                    self._ops.get("/".join(parts[: index + 1])) if part.startswith(CALLS) else None
                )
                if op is not None and op.type in CALLS:
                    return op
        return None

    def _operations_by_name(self, names: Iterable[str]) -> Iterator[Any]:
        """Yield the operations that these names of nodes mean, without suffixes of tf2onnx."""
        for name in names:
            name = _BRANCH.sub("", name.partition("@")[0])  # the rest is of an unrolled loop
            for candidate in (name, _COUNTER.sub("", name)):
                if candidate in self._ops:
                    yield self._ops[candidate]
                    break

    def _nearest_contraction_without_node(
        self, begin: list[Any], step: Callable[[Any], list[Any]]
    ) -> Any:
        """Return the contraction without a node that is the fewest steps away, or None."""
        todo, seen = list(begin), {op.name for op in begin}
        for op in todo:
            if op.type in CONTRACTIONS and op.name not in self._taken:
                return op
            if len(seen) > _FARTHEST:
                return None
            more = [neighbour for neighbour in step(op) if neighbour.name not in seen]
            seen.update(neighbour.name for neighbour in more)
            todo += more
        return None


def _operation_names(specs: Iterable[Any]) -> list[str]:
    """Return the names of the operations that make these tensors."""
    return [spec.name.partition(":")[0] for spec in specs if spec is not None]


def _operand_makers(op: Any) -> list[Any]:
    """Return the operations that make the inputs of an operation."""
    return [tensor.op for tensor in op.inputs]


def _direct_readers(op: Any) -> list[Any]:
    """Return the operations that read the outputs of an operation."""
    return [reader for tensor in op.outputs for reader in tensor.consumers()]


def link_operations(
    graph: Graph,
    calls: tuple[Call, ...],
    frozen: Any,
    layers: LayerTable,
    origins: Mapping[str, str] = {},
) -> tuple[Graph, tuple[Call, ...]]:
    """Return the graph with each node's call and module, and the calls with their nodes.

    A node that the converter made itself (a layout transposition, say) gets a call of its own,
    whose target says so.
    """
    links = Links(frozen, origins)
    keys = {call.key: call for call in calls}
    made: dict[str, Call] = {}
    nodes: dict[str, list[str]] = {}

    def with_call_and_module_of_operation(node: Node, enclosing: str) -> Node:
        """Return a node with the call and module of its operation; list it under the call."""
        name = links.operation_name(node)
        call = keys.get(name or "") or (
            made.get(enclosing) or keys.get(enclosing) if enclosing else None
        )
        if call is None:
            call = made[f"{node.key} ({MADE})"] = _converter_call(node, layers)
        nodes.setdefault(call.key, []).append(node.key)
        bodies = tuple(
            msgspec.structs.replace(
                body,
                nodes=tuple(
                    with_call_and_module_of_operation(node, call.key) for node in body.nodes
                ),
            )
            for body in node.bodies
        )
        path = layers.rows[call.module].path
        is_left = node.op.domain == DOMAIN and len(node.inputs) == len(call.inputs)
        names = _operation_argument_names(call.inputs) if is_left else ()
        return msgspec.structs.replace(
            node,
            call=call.key,
            path=path,
            bodies=bodies,
            operand_names=names or node.operand_names,
        )

    nodes_of_graph = tuple(with_call_and_module_of_operation(node, "") for node in graph.nodes)
    graph = msgspec.structs.replace(graph, nodes=nodes_of_graph)
    every = tuple(
        msgspec.structs.replace(call, nodes=tuple(nodes[call.key])) if call.key in nodes else call
        for call in (*calls, *made.values())
    )
    return graph, every


def count_nodes_as_operations(
    graph: Graph, calls: Iterable[Call], frozen: Any, origins: Mapping[str, str]
) -> Graph:
    """Return the graph with nodes counted as the operation that they were written for."""
    meant = _operation_finder(Links(frozen, origins), {call.key: call for call in calls})
    return msgspec.structs.replace(
        graph, nodes=with_notes_of_source_operations(graph.nodes, meant)
    )


def _operation_finder(
    links: Links, calls: Mapping[str, Call]
) -> Callable[[Node], tuple[str, ConvertedOperation] | None]:
    """Return a function that gives a node's TensorFlow operation, if its cost is known.

    An unrolled loop has the nodes of its body once for each run.
    """

    def source_operation_of_node(node: Node) -> tuple[str, ConvertedOperation] | None:
        """Return (key, operation) that a node was written for, or None if its cost is unknown."""
        name = links.origin_operation(node)
        call = calls.get(name or "")
        if call is None or not has_known_cost(DOMAIN, call.target):
            return None
        if "TensorList" in call.target and node.op.domain != DOMAIN:
            return None  # handles have no sizes, the tensors that stand in their place have
        run = node.key.partition("@")[2] + "".join(_RUN.findall(node.key))
        op = Op(DOMAIN, call.target, 1)
        inputs, outputs = call.inputs, call.outputs
        if node.op == op:  # as it was left, with the shapes that a run has shown
            inputs, outputs = (
                _fill_missing_shapes(inputs, node.inputs),
                _fill_missing_shapes(outputs, node.outputs),
            )
        settings = {n: value for n, value in call.settings.items() if n not in _OF_CALLS}
        names = _operation_argument_names(inputs)
        return f"{name}@{run}", ConvertedOperation(op, inputs, outputs, settings, names)

    return source_operation_of_node


def _fill_missing_shapes(
    specs: Iterable[TensorSpec], others: Iterable[TensorSpec | None]
) -> tuple[TensorSpec, ...]:
    """Return the specs; a missing shape is taken from the spec at this position in `others`."""
    pairs = zip(specs, others, strict=False)
    return tuple(
        msgspec.structs.replace(spec, shape=other.shape) if spec.shape is None and other else spec
        for spec, other in pairs
    )


def _converter_call(node: Node, layers: LayerTable) -> Call:
    """Return a call for a node that belongs to no operation: the converter added it."""
    names = [node.key, *_operation_names(node.outputs), *_operation_names(node.inputs)]
    made_by = next(
        (layer for name in names if (layer := layers.operation_scope(name))[0]), ("", 0)
    )
    return Call(
        key=f"{node.key} ({MADE})",
        parent=None,
        level="operator",
        target=f"{MADE}{node.op.type}",
        module=made_by[1],
        assumed=False,
        outputs=tuple(spec for spec in node.outputs if spec is not None),
    )


# A training step: the operations of the backward pass join those of the forward pass.

_NUMBERED = re.compile(r"(?:_\d+)?/(body|cond|then|else)/_\d+/")
_OF_BODY = "/gradients/"
_TAPE = "gradient_tape/"  # tensorflow/python/eager/backprop.py: _gradient_function
# The operations that make gradients of those of a type, beside such that multiply in any.
_BACKWARD = {
    "Conv2D": ("Conv2DBackpropInput", "Conv2DBackpropFilter"),
    "Conv3D": ("Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"),
    "DepthwiseConv2dNative": (
        "DepthwiseConv2dNativeBackpropInput",
        "DepthwiseConv2dNativeBackpropFilter",
    ),
    "Conv2DBackpropInput": ("Conv2D", "Conv2DBackpropFilter"),
    "Conv3DBackpropInputV2": ("Conv3D", "Conv3DBackpropFilterV2"),
    **{kind: (kind,) for kind in ("MatMul", "Einsum", *CALLS)},
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2"), ("BatchMatMul", "BatchMatMulV2")),
    "BatchMatMulV3": ("BatchMatMulV3", "BatchMatMulV2"),
}


def training_step_calls(
    forward: tuple[Call, ...], graph: Any, layers: LayerTable
) -> tuple[Call, ...]:
    """Return the forward calls, then the gradient calls, of a training step's graph.

    A product there names the operator calls whose gradients it computes. Operations of the forward
    pass have the shapes of that graph.
    """
    of_step = {
        _common_operation_name(call.key): call
        for call in operation_calls(graph, layers)
        if call.level == "operator"
    }
    multiplying = [call for call in forward if call.target in _BACKWARD]
    known, used = {_common_operation_name(call.key) for call in forward}, _operations_in_use(graph)
    more = (
        msgspec.structs.replace(
            call,
            settings={**call.settings, "gradient": True},
            live=call.key in used,
            of=tuple(_training_work_keys(call, multiplying)) if call.key in used else (),
        )
        for name, call in of_step.items()
        if name not in known
    )
    return (*_forward_calls_of_step(of_step, forward), *more)


def _operations_in_use(graph: Any) -> set[str]:
    """Return the names of the operations on which the outputs of a graph depend.

    tf.recompute_grad ties the gradients of all its arguments together by one, requested or not.
    """
    todo = list(graph.outputs)
    used = {tensor.name: tensor.op.name for tensor in todo}
    for tensor in todo:
        op = tensor.op
        read = [op.inputs[tensor.value_index]] if op.type == "IdentityN" else op.inputs
        todo += [provided for provided in read if provided.name not in used]
        used.update((provided.name, provided.op.name) for provided in read)
    return set(used.values())


def _common_operation_name(name: str) -> str:
    """Return an operation's name without TensorFlow's numbers for inlined functions.

    It also numbers a loop anew whose body passes values to the gradients. A call of a function is
    stateful where that reads variables, which are constants here.
    """
    return _NUMBERED.sub(r"/\1/", name).replace(*CALLS)


def _forward_calls_of_step(of_step: Mapping[str, Call], forward: Iterable[Call]) -> Iterator[Call]:
    """Yield the forward calls with the shapes that they have in the training step's graph."""
    for call in forward:
        if (there := of_step.get(_common_operation_name(call.key))) is not None:
            yield msgspec.structs.replace(
                there, key=call.key, parent=call.parent, module=call.module, nodes=call.nodes
            )
        elif call.level != "operator" or call.target.startswith(MADE):
            yield call


def _training_work_keys(call: Call, multiplying: Iterable[Call]) -> Iterator[str]:
    """Yield keys of the gradients or recomputations that a call of a training step may be.

    A gradient has the name of its operation. A recomputed operation (tf.recompute_grad) has a name
    of its own: it is found by its type and sizes.
    """
    name = call.key.removeprefix(_TAPE)
    above = [stored for stored in multiplying if call.target in _BACKWARD[stored.target]]
    if name != call.key or _OF_BODY in name:
        named = (stored for stored in above if _is_gradient_of_name(name, stored.key))
        stored = next(named, None)
        similar = (
            [stored] if stored else [other for other in above if _has_fitting_sizes(call, other)]
        )
        yield from (gradient_call_key(stored.key) for stored in similar)
    else:
        similar = [stored for stored in multiplying if stored.target == call.target]
        yield from (
            rerun_call_key(stored.key)
            for stored in similar
            if _float_sizes(stored) == _float_sizes(call)
        )


def _has_fitting_sizes(gradient: Call, call: Call) -> bool:
    """Return whether the sizes of a gradient's tensors are all among those of a forward call."""
    return bool(known := _float_sizes(gradient)) and known <= _float_sizes(call)


def _float_sizes(call: Call) -> Counter[int]:
    """Return how often each number of elements occurs among a call's float tensors."""
    floats = (spec for spec in (*call.inputs, *call.outputs) if "int" not in spec.dtype)
    return Counter(spec.numel for spec in floats if spec.shape is not None)


def _is_gradient_of_name(gradient: str, name: str) -> bool:
    """Return whether a gradient operation has the name of this forward operation.

    By name in the gradient of a function or a loop: tensorflow/python/ops/gradients_util.py.
    """
    if _OF_BODY in gradient:
        own = gradient.rpartition(_OF_BODY)[2].rpartition("_grad/")[0]
        return f"/{operation_name_in_function(name)}".endswith(f"/{own}")
    return _is_in_scope(name, gradient.rpartition("/")[0])


def _is_in_scope(name: str, scope: str) -> bool:
    """Return whether an operation's name is in this name scope, or equal to it."""
    return f"{name}/".startswith(f"{scope}/")
