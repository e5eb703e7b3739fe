"""Autocast inside a model: the casts that it makes are written out, for the export to see.

While the model is traced autocast is in force, so every operator has the type in which it really
computes; the casts of its inputs are made beneath it, and would be lost with the context.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from crossflops.ir.trace import Call

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

# Operators that are there to change a type.
_CONVERSIONS = ("aten.to.", "aten._to_copy.", "aten.type_as.", "aten.copy", "aten._assert")


def write_out_casts(program: "ExportedProgram", calls: dict[str, Call]) -> dict[str, Call]:
    """Cast the inputs of each operator that computes in another type than they have.

    The program is changed. Returns `calls` with the casts in it, by node name: each belongs to
    the operator call that it serves.
    """
    found = dict(calls)
    for node in list(program.graph.nodes):
        for place in _miscast(node):
            cast = _cast(program, node, place)
            node.replace_input_with(place, cast)
            if node.name in calls:
                found[cast.name] = calls[node.name]
    program.graph_module.recompile()
    return found


def _miscast(node: "fx.Node") -> Iterator["fx.Node"]:
    """The floating inputs of an operator that autocast gives it in another type."""
    import torch

    given = [node.meta.get("val"), *node.args, *node.kwargs.values()]
    chosen = any(isinstance(value, torch.dtype) for value in given)
    if node.op != "call_function" or chosen or str(node.target).startswith(_CONVERSIONS):
        return
    dtype = _float_type(node)
    inputs = {one: kind for one in node.all_input_nodes if (kind := _float_type(one)) is not None}
    if dtype is None or not inputs or dtype in _promoted(list(inputs.values())):
        return
    yield from (one for one, kind in inputs.items() if kind != dtype)


def _promoted(kinds: list[Any]) -> set[Any]:
    """What comes of these types by themselves: one of them, or what they promote to."""
    import torch

    result = kinds[0]
    for kind in kinds[1:]:
        result = torch.promote_types(result, kind)
    return {result}


def _float_type(node: "fx.Node") -> Any:
    """The type of a tensor of floating-point numbers (of the first, where there are several)."""
    import torch

    value = node.meta.get("val")
    value = value[0] if isinstance(value, list | tuple) and value else value
    floating = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.dtype if isinstance(value, torch.Tensor) and floating else None


def _cast(program: "ExportedProgram", node: "fx.Node", source: "fx.Node") -> "fx.Node":
    import torch

    dtype = _float_type(node)
    with program.graph.inserting_before(node):
        cast = program.graph.call_function(
            torch.ops.aten._to_copy.default, (source,), {"dtype": dtype}
        )
    cast.meta = {**node.meta, "val": source.meta["val"].to(dtype)}
    return cast
