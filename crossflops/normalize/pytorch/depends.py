"""Which operators of an exported program would be others, or of other sizes, for other values."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from crossflops.core.trace import Call
from crossflops.normalize.pytorch.specs import specs
from crossflops.normalize.pytorch.valued import asks_for_values

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram


# Of every operator that gives tensors, in order: its name, and whether a size of it is open.
Known: TypeAlias = list[tuple[str, bool]]


def open_sizes(program: "ExportedProgram") -> Known:
    """Which operators of a program that was exported without values have to do with open sizes."""
    return [(str(node.target), _touches(node, _is_open)) for node in _operators(program)]


def marked(
    program: "ExportedProgram", calls: dict[str, Call], known: Known | None
) -> dict[str, Call]:
    """The calls by node name, with those marked that depend on values.

    `known` are the open sizes of the same program, exported without values: then nothing but sizes
    depends on them. Without it a path was chosen by a value that was read, and everything behind
    this place depends on it.
    """
    operators = list(_operators(program))
    same = known is not None and [name for name, _ in known] == [str(o.target) for o in operators]
    if known is not None and same:
        pairs = zip(operators, known, strict=True)
        depending = {node.name for node, (_, is_open) in pairs if is_open}
    else:
        depending = _by_order(program)
    return {
        name: msgspec.structs.replace(call, depends_on_inputs=True) if name in depending else call
        for name, call in calls.items()
    }


def _operators(program: "ExportedProgram") -> Iterator["fx.Node"]:
    """Those that give tensors: what asks for numbers and checks them differs by the export."""
    for node in program.graph.nodes:
        if node.op == "call_function" and any(specs((node.meta.get("val"),))):
            yield node


def _is_open(node: "fx.Node") -> bool:
    return any(tensor.shape is None for tensor in specs((node.meta.get("val"),)))


def _touches(node: "fx.Node", test: Callable[["fx.Node"], bool]) -> bool:
    """Whether this holds for the result of an operator or for something that it takes."""
    return test(node) or any(map(test, node.all_input_nodes))


def _by_order(program: "ExportedProgram") -> set[str]:
    sized: set[fx.Node] = set()
    found: set[str] = set()
    read = False
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        if _has_open_size(node, sized):
            sized.add(node)
        if read or _touches(node, sized.__contains__):
            found.add(node.name)
        read = read or _reads(node.target) or _is_item(node)
    return found


def _reads(operator: Any) -> bool:
    """Whether the operator hands a value to Python."""
    import torch

    return torch.Tag.data_dependent_output in getattr(operator, "tags", ())


def _is_item(node: "fx.Node") -> bool:
    return str(node.target).startswith("aten.item.")


def _has_open_size(node: "fx.Node", sized: set["fx.Node"]) -> bool:
    """Whether the result's size may depend on values: it is asked of them, or inherited.

    What an operator that could work in place gives for a tensor of a fixed size has that size.
    """
    if asks_for_values(node.target) and not _takes_places(node):
        return not _reads(node.target)
    if not any(source in sized for source in node.all_input_nodes):
        return False
    shape = getattr(node.meta.get("val"), "shape", None)
    if shape is not None and not len(shape):
        return False
    first = node.args[0] if node.args else None
    if first is None or not _in_place(node.target) or not hasattr(first, "meta"):
        return True
    return first in sized or shape != getattr(first.meta["val"], "shape", ())


def _takes_places(node: "fx.Node") -> bool:
    """Whether it is `index` by numbers of places and no mask: the result is as large as these."""
    import torch

    if node.target is not torch.ops.aten.index.Tensor:
        return False
    given: Any = node.args[1]
    places = [place for place in given if hasattr(place, "meta")]
    return all(place.meta["val"].dtype not in {torch.bool, torch.uint8} for place in places)


def _in_place(operator: Any) -> bool:
    """Whether the operator works in place, or has a twin that does."""
    import torch

    schema = getattr(operator, "_schema", None)
    if schema is None:
        return False
    namespace, _, name = schema.name.partition("::")
    return bool(schema.is_mutable) or hasattr(getattr(torch.ops, namespace), f"{name}_")
