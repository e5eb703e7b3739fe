"""Explain the difference between the native number of parameters and a tool's number, for a model
or for a file.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import msgspec

from crossflops.ir.graph import Node, TensorSpec
from crossflops.ir.profile import Amount
from crossflops.ir.reconciliation import ParamsExplanation, ParamsReconciliation
from crossflops.ir.trace import Module, Parameter, Trace, subtree_parameters
from crossflops.reconcile.walk import OTHER_FILE
from crossflops.rules.rule import Parameters

_TORCH_NN = "torch.nn.modules."
_HOLDERS = ("torch.nn.modules.module.", "torch.nn.modules.container.")
AGAIN = "params.counted-again"


class _Tensor(msgspec.Struct, frozen=True):
    """A stored parameter, its full name, and the first module that has it."""

    name: str
    holder: Module
    parameter: Parameter


def reconcile_parameters(
    rules: Parameters, trace: Trace, reported: Amount | None = None
) -> ParamsReconciliation:
    """Return the explanation of a tool's number of parameters of a model, by causes; without
    `reported`, of the number that its rules predict.
    """
    tensors = _tensors_by_storage(trace)
    times = _times_counted_by_storage(rules, trace)
    grouped: dict[str, list[_Tensor]] = {}
    amounts: dict[str, int] = {}
    for storage, tensor in tensors.items():
        more = times.get(storage, 0) - 1
        if more:
            cause = AGAIN if more > 0 else _omission_cause(rules, trace, tensor)
            grouped.setdefault(cause, []).append(tensor)
            amounts[cause] = amounts.get(cause, 0) + more * tensor.parameter.numel
    for cause, amount in (rules.extra(trace) if rules.extra else {}).items():
        amounts[cause] = amounts.get(cause, 0) + amount
    native = sum(tensor.parameter.numel for tensor in tensors.values())
    predicted = native + sum(amounts.values())
    return ParamsReconciliation(
        ours=native,
        theirs=predicted if reported is None else reported,
        predicted=predicted,
        explanations=tuple(
            ParamsExplanation(
                cause=cause,
                amount=amount,
                parameters=tuple(tensor.name for tensor in grouped.get(cause, ())),
                reference=rules.reference,
            )
            for cause, amount in sorted(amounts.items())
            if amount
        ),
    )


def _tensors_by_storage(trace: Trace) -> dict[int, _Tensor]:
    """Return {storage: parameter}, each storage once, under the first name that it has in the
    model.
    """
    by_storage: dict[int, _Tensor] = {}
    for row in trace.modules:
        for parameter in row.params:
            name = f"{row.path}.{parameter.name}" if row.path else parameter.name
            by_storage.setdefault(parameter.storage, _Tensor(name, row, parameter))
    return by_storage


def _times_counted_by_storage(rules: Parameters, trace: Trace) -> dict[int, int]:
    """Return {storage: how often the tool counts it}; a storage that it does not count is
    missing.
    """
    if rules.modules:
        return _times_counted_below_rules(rules, trace)
    if rules.leaves:
        return _times_counted_in_leaves(rules, trace)
    return {
        parameter.storage: 1
        for row in trace.modules
        if row.names
        for parameter in row.params
        if parameter.trainable or not rules.trainable
    }


def _times_counted_below_rules(rules: Parameters, trace: Trace) -> dict[int, int]:
    """Return {storage: how often it is counted} for a tool that counts all parameters below
    modules with a rule, once for each chain of parents.
    """
    called = _ids_of_called_modules(trace)
    times_of: dict[int, int] = {}
    for module in _outermost_ruled_modules(rules, trace.modules):
        if rules.called and module not in called:
            continue
        for inner in subtree_parameters(module, trace.modules):
            times_of[inner.storage] = times_of.get(inner.storage, 0) + 1
    return times_of


def _times_counted_in_leaves(rules: Parameters, trace: Trace) -> dict[int, int]:
    """Return {storage: how often it is counted} for a tool that counts the parameters of modules
    without children, once for each module.
    """
    called = _ids_of_called_modules(trace)
    times_of: dict[int, int] = {}
    for row in trace.modules:
        if row.names and not row.children and (row.id in called or not rules.called):
            for parameter in row.params:
                times_of[parameter.storage] = times_of.get(parameter.storage, 0) + 1
    return times_of


def _outermost_ruled_modules(rules: Parameters, modules: tuple[Module, ...]) -> Iterator[int]:
    """Yield the ids of modules with a rule that are not below another one, once for each chain of
    parents.
    """
    todo = [0]
    while todo:
        for child in dict.fromkeys(child for _, child in modules[todo.pop()].children):
            if modules[child].bases[0] in rules.modules:
                yield child
            else:
                todo.append(child)


def _ids_of_called_modules(trace: Trace) -> frozenset[int]:
    """Return the ids of the modules that were called in the traced run."""
    return frozenset(
        call.module for call in trace.calls if call.level == "module" and call.via == "call"
    )


def _omission_cause(rules: Parameters, trace: Trace, tensor: _Tensor) -> str:
    """Return the id of the cause why a tool does not count this parameter."""
    holder = tensor.holder
    if not holder.names:
        return "params.unregistered"
    if rules.trainable and not tensor.parameter.trainable:
        return "params.frozen"
    if rules.leaves:
        return "params.nonleaf" if holder.children else "params.uncalled"
    if holder.bases[0] in rules.modules:
        return "params.root" if holder.id == 0 else "params.uncalled"
    return "params.no-rule" if _is_torch_layer(holder) else "params.bare"


def _is_torch_layer(module: Module) -> bool:
    """Return whether the module's class is a layer of torch.nn or derived from one; containers are
    not layers.
    """
    return any(
        base.startswith(_TORCH_NN) and not base.startswith(_HOLDERS) for base in module.bases
    )


# From our number of parameters to that of a tool that adds up the initializers of a file.

EXPORTED = "params.exported"
NO_INITIALIZER = "params.no-initializer"
_STATISTICS, _UNUSED, _CONSTANT = "params.statistics", "params.unused", "params.constant"
_PACKED = "params.packed"


class Stock(msgspec.Struct, frozen=True, kw_only=True):
    """The stored tensors of an ONNX file.

    `initializers` are those of its graph, `nodes` the nodes that stand in it, `weights` the
    elements of stored tensors that are weights, by name. `params` are the parameters of the model
    that it was exported from, where that is known, else as many as its weights have.
    """

    initializers: tuple[TensorSpec, ...]
    nodes: tuple[Node, ...]
    weights: Mapping[str, int]
    params: int


def reconcile_stored_parameters(
    rules: Parameters, native_value: int, stock: Stock, reported: Amount | None = None
) -> ParamsReconciliation:
    """Return the explanation of a tool's number of parameters of an ONNX file, by causes; without
    `reported`, of the number that its rules predict.
    """
    users = _users_by_tensor_name(stock.nodes)
    by_name = {
        spec.name: _elements_counted_by_tool(rules, spec)
        for spec in stock.initializers
        if rules.stored == "all" or spec.name in users
    }
    booked: dict[str, dict[str, int]] = {
        OTHER_FILE: {"": stock.params - native_value},
        EXPORTED: {"": sum(stock.weights.values()) - stock.params},
    }
    for name, native in stock.weights.items():
        amount = by_name.get(name, 0)
        cause = _PACKED if amount else NO_INITIALIZER
        booked.setdefault(cause, {})[name] = amount - native
    for name, amount in by_name.items():
        if name not in stock.weights:
            booked.setdefault(_cause_of_stored_tensor(users.get(name, ())), {})[name] = amount
    predicted = sum(by_name.values())
    return ParamsReconciliation(
        ours=native_value,
        theirs=predicted if reported is None else reported,
        predicted=predicted,
        explanations=tuple(
            _parameter_explanation(cause, amounts, rules.reference)
            for cause, amounts in sorted(booked.items())
            if sum(amounts.values())
        ),
    )


def _parameter_explanation(
    cause: str, amounts: Mapping[str, int], reference: str
) -> ParamsExplanation:
    """Return the explanation for one cause: the sum of `amounts` and the tensor names in it."""
    return ParamsExplanation(
        cause=cause,
        amount=sum(amounts.values()),
        parameters=tuple(name for name, amount in amounts.items() if name and amount),
        reference=reference,
    )


def _elements_counted_by_tool(rules: Parameters, spec: TensorSpec) -> int:
    """Return the number of elements that the tool counts for a tensor; some tools count a scalar
    as 0 elements.
    """
    return prod(spec.shape) if spec.shape else rules.scalar


def _users_by_tensor_name(nodes: Sequence[Node]) -> dict[str, list[tuple[str, int]]]:
    """Return {tensor name: (operator type, input position) of each node that reads it}."""
    by_initializer: dict[str, list[tuple[str, int]]] = {}
    for node in nodes:
        for index, spec in enumerate(node.inputs):
            if spec is not None and spec.name:
                by_initializer.setdefault(spec.name, []).append((node.op.type, index))
    return by_initializer


def _cause_of_stored_tensor(users: Sequence[tuple[str, int]]) -> str:
    """Return the id of the cause why a file stores a tensor that is not a parameter; `users` are
    the operators that read it.
    """
    if not users:
        return _UNUSED
    normed = all(operator == "BatchNormalization" and index > 2 for operator, index in users)
    return _STATISTICS if normed else _CONSTANT
