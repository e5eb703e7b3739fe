"""The operators of an exported program, before decomposition, as calls."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from crossflops.frontends.pytorch.load.tensors import (
    plain_json_value,
    torch_tensor_spec,
    torch_tensor_specs,
)
from crossflops.frontends.pytorch.record.checkpoints import (
    is_saved_by_policy,
    operator_kept_values,
)
from crossflops.frontends.pytorch.record.dropped_operators import DroppedOperator, DroppedOperators
from crossflops.frontends.pytorch.record.recorder import Frame
from crossflops.ir.graph import Checkpoint, TensorSpec
from crossflops.ir.trace import Call, Scalar, Trace

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

MARK = "crossflops"
OWN = ("aten.", "prim.", "prims.")  # operators of PyTorch, whose kernels call no Python
GENERATOR = "crossflops generator"
UNGRADED = "crossflops ungraded"  # stands at operators that the model calls without gradients
CHECKPOINT = "crossflops checkpoint"  # stands at operators that the model calls in a checkpoint
_STARTS = "crossflops starts"  # stands at nodes whose result is made to require gradients
HOOKED = "crossflops hooked"  # stands at nodes whose result has a hook for its gradient

_DETACHES = ("aten.detach.", "aten.detach_.", "aten.detach_copy.")


def is_detaching_call(call: Call | None) -> bool:
    """Return True if a call's operator detaches a tensor from autograd."""
    return call is not None and call.target.startswith(_DETACHES)


def operator_calls(
    program: "ExportedProgram",
    frames: list[Frame],
    checkpoints: Mapping[int, Checkpoint],
    policies: Mapping[int, Any],
) -> dict[str, Call]:
    """Return the operator calls of a program by the name of their FX node, in order.

    `checkpoints` are those of the model by their numbers, and `policies` give what each saves.
    """
    nodes = [node for node in program.graph.nodes if _is_operator(node)]
    varying = _input_dependent_nodes(program)
    needed = _nodes_that_depend_on(program, lambda node: node.op == "output")
    stored = _nodes_that_depend_on(
        program, lambda node: node.op == "output" or _writes_model_state(node)
    )
    seen: Counter[str] = Counter()
    calls: dict[str, Call] = {}
    for node in nodes:
        frame, custom = frames[frame_number_of_node(node) or 0], node.meta.get("custom") or {}
        checkpoint = checkpoints.get(custom.get(CHECKPOINT, 0)) or frame.checkpoint
        name = f"{frame.key}/{_operator_or_function_name(node)}"
        seen[name] += 1
        calls[node.name] = Call(
            key=name if seen[name] == 1 else f"{name}@{seen[name]}",
            parent=frame.key,
            level="operator",
            target=_operator_or_function_name(node),
            module=frame.module,
            ordinal=seen[name],
            settings=_operator_settings(node),
            keyword_only=_defaults_of_keyword_only_arguments(node),
            inputs=_operator_input_specs(node),
            outputs=tuple(torch_tensor_specs(node.meta.get("val"))),
            live=node in needed,
            stored=node in stored and node not in needed,
            constant=node not in varying,
            grad=frame.grad and UNGRADED not in custom,
            starts=is_gradient_requested(node),
            checkpoint=checkpoint and _checkpoint_at_node(checkpoint, node, policies),
        )
    return calls


def calls_of_dropped_operators(
    dropped: DroppedOperators, calls: Mapping[str, Call]
) -> tuple[Call, ...]:
    """Return a call for each dropped operator, whose parent is the call from which it was made.

    `calls` are the calls of the model's own operators, by the names of their nodes.
    """
    return tuple(
        Call(
            key=f"{calls[name].key}/{_operator_or_function_name(operator)}",
            parent=calls[name].key,
            level="operator",
            target=_operator_or_function_name(operator),
            module=calls[name].module,
            settings=_operator_settings(operator),
            inputs=_operator_input_specs(operator),
            outputs=tuple(torch_tensor_specs(operator.meta.get("val"))),
            live=False,
            checkpoint=calls[name].checkpoint,
        )
        for name, operator in dropped.operators_with_origin()
        if name in calls
    )


def _checkpoint_at_node(
    checkpoint: Checkpoint, node: "fx.Node", policies: Mapping[int, Any]
) -> Checkpoint:
    """Return the checkpoint with the facts of a node in it: which values it keeps, and if the
    policy saves its result.
    """
    policy = policies.get(checkpoint.number)
    saved = is_saved_by_policy(policy, node) if policy else False
    return replace(checkpoint, keeps=operator_kept_values(node), saved=saved)


def _is_operator(node: "fx.Node") -> bool:
    """Return True if an FX node calls an operator other than `getitem`."""
    # A getitem only picks one of several results.
    return node.op == "call_function" and "getitem" not in getattr(node.target, "__name__", "")


def frame_number_of_node(node: "fx.Node") -> int | None:
    """Return the number of the recorded frame in which an FX node was traced; None if it has no
    mark.
    """
    mark: int | None = (node.meta.get("custom") or {}).get(MARK)
    return mark


def is_gradient_requested(node: "fx.Node") -> bool:
    """Return True if the model requests the gradient of an FX node's result."""
    return _STARTS in (node.meta.get("custom") or {})


def mark_gradient_request(tensor: Any) -> None:
    """Mark the traced node of a tensor as a start of gradients, because the model requests its
    gradient.
    """
    set_tensor_node_mark(tensor, _STARTS, lambda _: True)


def mark_gradient_hooks(results: Any) -> None:
    """Mark the traced nodes of all tensors in `results`: a hook may change their gradients."""
    import torch
    from torch.utils._pytree import tree_leaves

    for leaf in tree_leaves(results):
        if isinstance(leaf, torch.Tensor):
            set_tensor_node_mark(leaf, HOOKED, lambda _: True)


def set_tensor_node_mark(tensor: Any, name: str, value: Callable[[Any], Any]) -> None:
    """Set the mark `name` at the traced node of a tensor to `value(old mark)`."""
    from torch._functorch._aot_autograd.functional_utils import from_fun
    from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot

    mode = get_proxy_mode()
    slot = mode and get_proxy_slot(from_fun(tensor), mode.tracer, None)
    if slot:
        meta = slot.proxy.node.meta
        marks = meta.get("custom") or {}
        meta["custom"] = {**marks, name: value(marks.get(name))}


def generator_state_of_node(node: "fx.Node", states: Sequence[Any]) -> Any:
    """Return the state of the random generator that a node used; None for PyTorch's default
    generator.
    """
    number = (node.meta.get("custom") or {}).get(GENERATOR)
    return None if number is None else states[number]


def _operator_or_function_name(node: "fx.Node | DroppedOperator") -> str:
    """Return the full name of an operator, such as "aten.add.Tensor", or the name of a function.

    The address of a function changes with the run.
    """
    if hasattr(node.target, "_schema"):
        return str(node.target)
    return str(getattr(node.target, "__name__", node.target))


def _schema_arguments(node: "fx.Node | DroppedOperator") -> list[tuple[str, Any]]:
    """Return (schema name or position, value) for each argument of an FX call."""
    schema = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema else []
    placed = [
        (names[index] if index < len(names) else str(index), value)
        for index, value in enumerate(node.args)
    ]
    return placed + list(node.kwargs.items())


def _operator_input_specs(node: "fx.Node | DroppedOperator") -> tuple[TensorSpec, ...]:
    """Return the specs of the tensors among an FX call's arguments, named as in the operator's
    schema.
    """
    inputs: list[TensorSpec] = []
    for name, value in _schema_arguments(node):
        values = value if isinstance(value, list | tuple) else [value]
        for index, item in enumerate(values):
            tensor = item.meta.get("val") if hasattr(item, "meta") else None
            if hasattr(tensor, "shape"):
                inputs.append(
                    torch_tensor_spec(name if values[0] is value else f"{name}.{index}", tensor)
                )
    return tuple(inputs)


def _operator_settings(node: "fx.Node | DroppedOperator") -> dict[str, Scalar]:
    """Return the plain arguments of an operator by name, with default values of those that are
    left out.
    """
    schema = getattr(node.target, "_schema", None)
    settings: dict[str, Scalar] = {}
    for argument in schema.arguments if schema else ():
        if argument.has_default_value() and plain_json_value(argument.default_value) is not None:
            settings[argument.name] = plain_json_value(argument.default_value)
    for name, value in _schema_arguments(node):
        if plain_json_value(value) is not None:
            settings[name] = plain_json_value(value)
    return settings


def _defaults_of_keyword_only_arguments(node: "fx.Node") -> dict[str, Scalar | None]:
    """Return {name: the default of the schema, None without one} of the arguments of a third-party
    operator that it takes by keyword alone and that the call gives.
    """
    if not is_third_party_operator(node):
        return {}
    provided = {name for name, _ in _schema_arguments(node)}
    operator: Any = node.target
    return {
        argument.name: plain_json_value(argument.default_value)
        if argument.has_default_value()
        else None
        for argument in operator._schema.arguments
        if argument.kwarg_only and argument.name in provided
    }


def _input_dependent_nodes(program: "ExportedProgram") -> set["fx.Node"]:
    """Return the FX nodes whose value depends on an input of the model."""
    inputs = set(program.graph_signature.user_inputs)
    varying: set[fx.Node] = set()
    for node in program.graph.nodes:
        if node.op == "placeholder":
            if node.name in inputs:
                varying.add(node)
        elif any(
            seen in varying
            for argument in node.all_input_nodes
            for seen in _tensor_and_its_bases(argument)
        ):
            varying.add(node)
            # What is written in place varies from here on.
            if _is_mutating_node(node):
                varying.update(_tensors_written_and_their_bases(node))
    return varying


def _nodes_that_depend_on(
    program: "ExportedProgram", is_source: "Callable[[fx.Node], bool]"
) -> set["fx.Node"]:
    """Return the FX nodes for which `is_source` is true, and those whose value or write they use,
    directly or through other nodes.
    """
    reaching: set[fx.Node] = set()
    for node in reversed(program.graph.nodes):
        reaches = is_source(node) or node in reaching
        if not reaches and _is_mutating_node(node):
            reaches = any(base in reaching for base in _tensors_written_and_their_bases(node))
        if reaches:
            reaching.add(node)
            # What is read through a view may have been written through another one.
            reaching.update(
                seen
                for argument in node.all_input_nodes
                for seen in _tensor_and_its_bases(argument)
            )
    return reaching


def _tensors_written_and_their_bases(node: "fx.Node") -> list["fx.Node"]:
    """Return the FX nodes of the tensors that an operator writes in place, and of those that they
    are views of.
    """
    return [
        seen for argument in write_argument_nodes(node) for seen in _tensor_and_its_bases(argument)
    ]


def write_argument_nodes(node: "fx.Node") -> list["fx.Node"]:
    """Return the FX nodes of the tensors that an operator writes in place, each once."""
    from torch.fx import Node

    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    names = {
        item.name for item in schema.arguments if item.alias_info and item.alias_info.is_write
    }
    provided = (value for name, value in _schema_arguments(node) if name in names)
    flat = (item for value in provided for item in (value if isinstance(value, list) else [value]))
    return [item for item in dict.fromkeys(flat) if isinstance(item, Node)]


def write_and_return_node(node: "fx.Node") -> "fx.Node | None":
    """Return the FX node of the tensor that an operator both writes in place and returns; None if
    there is none.
    """
    from torch.fx import Node

    schema: Any = getattr(node.target, "_schema", None)
    if schema is None or len(schema.returns) != 1:
        return None
    alias = schema.returns[0].alias_info
    if alias is None or not alias.is_write:
        return None
    same = {
        item.name
        for item in schema.arguments
        if item.alias_info and item.alias_info.before_set == alias.before_set
    }
    provided = (value for name, value in _schema_arguments(node) if name in same)
    return next((value for value in provided if isinstance(value, Node)), None)


def is_third_party_operator(node: "fx.Node") -> bool:
    """Return True if the operator of an FX node is not one of PyTorch's own."""
    from torch._ops import OpOverload

    return isinstance(node.target, OpOverload) and not str(node.target).startswith(OWN)


def _writes_model_state(node: "fx.Node") -> bool:
    """Return True if a node writes into a weight, a buffer or an input of the model.

    For `self.buffer = value` the export makes a copy of its own, under the mark of the value.
    """
    if not _is_mutating_node(node) or not any(
        base.op == "placeholder" for base in _tensors_written_and_their_bases(node)
    ):
        return False
    source = node.all_input_nodes[-1]
    made_up = _operator_or_function_name(node) == "aten.copy_.default" and frame_number_of_node(
        node
    ) == frame_number_of_node(source)
    return not made_up


def _tensor_and_its_bases(tensor: "fx.Node") -> list["fx.Node"]:
    """Return the FX node of a tensor, then those of which it is a view or an in-place result."""
    views: list[fx.Node] = [tensor]
    while _returns_alias_of_argument(views[-1]) and views[-1].all_input_nodes:
        views.append(views[-1].all_input_nodes[0])
    return views


def _returns_alias_of_argument(node: "fx.Node") -> bool:
    """Return True if an operator's result shares memory with an argument, as its schema says."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(result.alias_info is not None for result in schema.returns)


def _is_mutating_node(node: "fx.Node") -> bool:
    """Return True if an operator changes an argument in place, as its schema says."""
    schema = getattr(node.target, "_schema", None)
    return bool(schema is not None and schema.is_mutable)


# Operators whose tensors have types that do not go together. An export runs on tensors without
# values, and lets a product of integers and floats pass that PyTorch refuses when it runs. Under
# autocast such a trace is right: the model itself has to say.

# Operators that refuse operands of two types, by the names of these operands.
_STRICT = {
    "aten.linear.default": ("input", "weight"),
    "aten.matmul.default": ("self", "other"),
    "aten.mm.default": ("self", "mat2"),
    "aten.bmm.default": ("self", "mat2"),
    "aten.addmm.default": ("mat1", "mat2"),
    "aten.baddbmm.default": ("batch1", "batch2"),
}


def first_call_with_type_mismatch(trace: Trace) -> Call | None:
    """Return the first call whose operands have different dtypes although the operator needs equal
    ones; None if there is none.
    """
    for call in trace.calls:
        operands = [call.input(name) for name in _STRICT.get(call.target, ())]
        if len({operand.dtype for operand in operands if operand is not None}) > 1:
            return call
    return None


# Autocast inside a model: the casts that it makes are written out, for the export to see.

# Operators that are there to change a type.
_CONVERSIONS = ("aten.to.", "aten._to_copy.", "aten.type_as.", "aten.copy", "aten._assert")


def insert_autocast_casts(program: "ExportedProgram", calls: dict[str, Call]) -> dict[str, Call]:
    """Insert the casts that autocast makes into the program; return the calls by node name, those
    of casts included.

    The program is changed. Returns `calls` including the casts, by node name: each belongs to the
    operator call that it serves.
    """
    written = dict(calls)
    for node in list(program.graph.nodes):
        for index in _operands_to_cast(node):
            cast = _insert_float_cast(program, node, index)
            node.replace_input_with(index, cast)
            if node.name in calls:
                written[cast.name] = calls[node.name]
    program.graph_module.recompile()
    return written


def _operands_to_cast(node: "fx.Node") -> Iterator["fx.Node"]:
    """Yield the operands of a node that autocast casts to another float dtype."""
    import torch

    provided = [node.meta.get("val"), *node.args, *node.kwargs.values()]
    chosen = any(isinstance(value, torch.dtype) for value in provided)
    if node.op != "call_function" or chosen or str(node.target).startswith(_CONVERSIONS):
        return
    dtype = _float_dtype_of_result(node)
    inputs = {
        argument: kind
        for argument in node.all_input_nodes
        if (kind := _float_dtype_of_result(argument)) is not None
    }
    if dtype is None or not inputs or dtype in _promote_dtypes(list(inputs.values())):
        return
    yield from (argument for argument, kind in inputs.items() if kind != dtype)


def _promote_dtypes(kinds: list[Any]) -> set[Any]:
    """Return the dtype to which PyTorch promotes these dtypes, as a set of one."""
    import torch

    result = kinds[0]
    for kind in kinds[1:]:
        result = torch.promote_types(result, kind)
    return {result}


def _float_dtype_of_result(node: "fx.Node") -> Any:
    """Return the float dtype of a node's result (the first of several); None if it is no float
    tensor.
    """
    import torch

    value = node.meta.get("val")
    value = value[0] if isinstance(value, list | tuple) and value else value
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.dtype if isinstance(value, torch.Tensor) and floating else None


def _insert_float_cast(
    program: "ExportedProgram", node: "fx.Node", source: "fx.Node"
) -> "fx.Node":
    """Insert a cast of `source` to the float dtype of `node` before it; return the new node."""
    import torch

    dtype = _float_dtype_of_result(node)
    with program.graph.inserting_before(node):
        cast = program.graph.call_function(
            torch.ops.aten._to_copy.default, (source,), {"dtype": dtype}
        )
    cast.meta = {**node.meta, "val": source.meta["val"].to(dtype)}
    return cast
