"""From our number of parameters to that of a tool that adds up the initializers of a file."""

from collections.abc import Mapping, Sequence
from math import prod

import msgspec

from crossflops.core.convention import Parameters
from crossflops.core.graph import Node
from crossflops.core.profile import Amount
from crossflops.core.reconciliation import ParamsExplanation, ParamsReconciliation
from crossflops.core.tensor import TensorSpec

EXPORTED = "params.exported"
NO_INITIALIZER = "params.no-initializer"
_STATISTICS, _UNUSED, _CONSTANT = "params.statistics", "params.unused", "params.constant"
_PACKED = "params.packed"


class Stock(msgspec.Struct, frozen=True, kw_only=True):
    """What a file stores.

    `initializers` are those of its graph, `nodes` the nodes that stand in it, `weights` the
    elements of what counts natively as a parameter, by the name of the tensor. `apart` is the
    cause of the file having other parameters than the model that is counted.
    """

    initializers: tuple[TensorSpec, ...]
    nodes: tuple[Node, ...]
    weights: Mapping[str, int]
    apart: str


def reconcile_stored(
    rules: Parameters, ours: int, stock: Stock, theirs: Amount | None = None
) -> ParamsReconciliation:
    """Explain a tool's number, initializer by initializer. Without one it is what is predicted."""
    users = _users(stock.nodes)
    found = {
        spec.name: _elements(rules, spec)
        for spec in stock.initializers
        if rules.stored == "all" or spec.name in users
    }
    booked: dict[str, dict[str, int]] = {
        stock.apart: {"": sum(stock.weights.values()) - ours},
    }
    for name, native in stock.weights.items():
        amount = found.get(name, 0)
        cause = _PACKED if amount else NO_INITIALIZER
        booked.setdefault(cause, {})[name] = amount - native
    for name, amount in found.items():
        if name not in stock.weights:
            booked.setdefault(_cause(users.get(name, ())), {})[name] = amount
    predicted = sum(found.values())
    return ParamsReconciliation(
        ours=ours,
        theirs=predicted if theirs is None else theirs,
        predicted=predicted,
        explanations=tuple(
            _explanation(cause, amounts, rules.reference)
            for cause, amounts in sorted(booked.items())
            if sum(amounts.values())
        ),
    )


def _explanation(cause: str, amounts: Mapping[str, int], reference: str) -> ParamsExplanation:
    return ParamsExplanation(
        cause=cause,
        amount=sum(amounts.values()),
        parameters=tuple(name for name, amount in amounts.items() if name and amount),
        reference=reference,
    )


def _elements(rules: Parameters, spec: TensorSpec) -> int:
    """The product of the extents; of no axes what the tool takes that to be."""
    return prod(spec.shape) if spec.shape else rules.scalar


def _users(nodes: Sequence[Node]) -> dict[str, list[tuple[str, int]]]:
    """The operators that take a tensor, and at which places."""
    found: dict[str, list[tuple[str, int]]] = {}
    for node in nodes:
        for place, spec in enumerate(node.inputs):
            if spec is not None and spec.name:
                found.setdefault(spec.name, []).append((node.op.type, place))
    return found


def _cause(users: Sequence[tuple[str, int]]) -> str:
    """Why a tensor is stored that is no parameter."""
    if not users:
        return _UNUSED
    normed = all(operator == "BatchNormalization" and place > 2 for operator, place in users)
    return _STATISTICS if normed else _CONSTANT
