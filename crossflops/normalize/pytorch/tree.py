"""Frames and operators as one list of calls, and the calls linked to the nodes they became."""

import msgspec

from crossflops.core.graph import Graph
from crossflops.core.trace import Call
from crossflops.normalize.pytorch.recorder import Frame


def tree(frames: list[Frame], operators: dict[str, Call]) -> tuple[Call, ...]:
    """Frames and operators as one list, parents first.

    Functions go that contain neither an operator nor a module.
    """
    by_parent: dict[str, list[Call]] = {}
    for call in operators.values():
        by_parent.setdefault(call.parent or "", []).append(call)
    modules = [frame.key for frame in frames if frame.storey == "module"]
    wanted = _with_all_around(frames, [*by_parent, *modules])
    found: list[Call] = []
    for frame in frames:
        if frame.key in wanted:
            found.append(_call(frame))
            found.extend(by_parent.get(frame.key, ()))
    return tuple(found)


def _with_all_around(frames: list[Frame], keys: list[str]) -> set[str]:
    parents = {frame.key: frame.parent for frame in frames}
    found: set[str] = set()
    for key in keys:
        around: str | None = key
        while around is not None and around not in found:
            found.add(around)
            around = parents[around]
    return found


def _call(frame: Frame) -> Call:
    return msgspec.convert(
        {field: getattr(frame, field) for field in frame.__struct_fields__},
        Call,
        from_attributes=True,
    )


def linked(calls: tuple[Call, ...], graph: Graph) -> tuple[Call, ...]:
    """The calls, each with the keys of its nodes."""
    nodes: dict[str, list[str]] = {}
    for node in graph.nodes:
        nodes.setdefault(node.call, []).append(node.key)
    return tuple(
        msgspec.structs.replace(call, nodes=tuple(nodes[call.key])) if call.key in nodes else call
        for call in calls
    )
