"""Names and defaults of the operands of one call, from the schema of its PyTorch operator."""

from collections.abc import Iterator
from typing import Any

from crossflops.ir.graph import Attribute, Op
from crossflops.operators import is_counted_by_package


def schema_operand_names(call: Any, tensor_count: int) -> tuple[str, ...]:
    """Return for each tensor in a call the name of its argument in the operator's schema, in
    order; () if their number is not `tensor_count`.

    Each tensor of a list bears the name of the list. () where they are not as many as
    `tensor_count`, which is what the node that was written for the call has.
    """
    named = tuple(name for name, value in _call_arguments(call) for _ in _tensors_in(value))
    return named if len(named) == tensor_count else ()


def schema_defaults(call: Any, op: Op) -> dict[str, Attribute]:
    """Return the default values of the plain arguments that a call leaves out, by name; {} for an
    operator with a rule.

    Those of operators that have a rule here are what their rule knows, and are left out.
    """
    if not _has_schema(call) or is_counted_by_package(op):
        return {}
    provided = {name for name, _ in _call_arguments(call)}
    defaults: dict[str, Attribute] = {}
    for argument in call.target._schema.arguments:
        value = argument.default_value if argument.has_default_value() else None
        if argument.name in provided:
            continue
        if isinstance(value, bool | int | float | str):
            defaults[argument.name] = value
        elif isinstance(value, list) and all(isinstance(v, int | float | str) for v in value):
            defaults[argument.name] = tuple(value)
    return defaults


def _has_schema(call: Any) -> bool:
    """Return True if there is an FX call and its target is an operator with a schema."""
    return call is not None and hasattr(call.target, "_schema")


def _call_arguments(call: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each argument that a call has, in the order of the schema."""
    if not _has_schema(call):
        return
    for index, argument in enumerate(call.target._schema.arguments):
        if argument.name in call.kwargs:
            yield argument.name, call.kwargs[argument.name]
        elif index < len(call.args):
            yield argument.name, call.args[index]


def _tensors_in(value: Any) -> Iterator[Any]:
    """Yield each FX node in an argument, or in a list of them, whose value is a tensor."""
    import torch

    for item in value if isinstance(value, list | tuple) else (value,):
        if isinstance(item, torch.fx.Node):
            entry = item.meta.get("val")
            if isinstance(entry, torch.Tensor):
                yield item
