"""The modules that the nodes of an exported program (torch.export) came from."""

import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from crossflops.core.graph import Graph, Node
from crossflops.core.trace import Call, Module, Trace


def placed(model: Any, graph: Graph, trace: Trace) -> tuple[Graph, Trace]:
    """The graph of an exported module with its nodes in the modules of the source model.

    `module()` of a program runs everything in one place, and what it was exported from stands in
    the notes (`nn_module_stack`) of its nodes. These are matched by order; where the operators are
    not the same ones, all stays as it is. Calls keep the one module that tools see.
    """
    fx = sys.modules.get("torch.fx")
    if fx is None or not isinstance(model, fx.GraphModule):
        return graph, trace
    calls = [call for call in trace.calls if call.storey == "operator"]
    stacks = list(_stacks(model, calls))
    if len(stacks) != len(calls):
        return graph, trace
    homes = {call.key: stack for call, stack in zip(calls, stacks, strict=True)}
    rows = _table(trace.modules, stacks)
    ids = {row.path: number for number, row in enumerate(rows)}
    moved = {row.id: ids[row.path] for row in trace.modules}
    graph = msgspec.structs.replace(
        graph,
        name=rows[0].class_name,
        nodes=tuple(_in_module(node, homes) for node in graph.nodes),
    )
    trace = msgspec.structs.replace(
        trace,
        calls=tuple(_renumbered(call, moved) for call in trace.calls),
        observed=tuple(_renumbered(call, moved) for call in trace.observed),
        modules=tuple(
            msgspec.structs.replace(
                row,
                id=number,
                children=tuple((name, moved[child]) for name, child in row.children),
            )
            for number, row in enumerate(rows)
        ),
    )
    return graph, trace


def _renumbered(call: Call, moved: dict[int, int]) -> Call:
    return msgspec.structs.replace(call, module=moved.get(call.module, call.module))


Stack = tuple[tuple[str, str], ...]  # path and class of the modules around a node, the root first


def _stacks(model: Any, calls: list[Call]) -> Iterator[Stack]:
    """The modules around each operator call, as far as the program's nodes are the same ones."""
    nodes = (
        node
        for node in model.graph.nodes
        if node.op == "call_function" and hasattr(node.target, "_schema")
    )
    for call in calls:
        node = next(nodes, None)
        if node is None or str(node.target) != call.target:
            return
        stack = (node.meta.get("nn_module_stack") or {}).values()
        yield tuple((str(path), _name(kind)) for path, kind in stack)


def _name(kind: Any) -> str:
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"


def _in_module(node: Node, homes: dict[str, Stack]) -> Node:
    stack = homes.get(node.call)
    return msgspec.structs.replace(node, path=stack[-1][0]) if stack else node


def _table(rows: tuple[Module, ...], stacks: list[Stack]) -> list[Module]:
    """The modules with the names of their classes in the source model; those without numbers, too.

    The class that tools see stays among the bases. A module that is new stands behind its
    siblings.
    """
    classes = {path: kind for stack in stacks for path, kind in stack}
    found = [
        msgspec.structs.replace(row, bases=(f"exported.{classes[row.path]}", *row.bases))
        if row.path in classes
        else row
        for row in rows
    ]
    known = {row.path for row in rows}
    for path, kind in classes.items():
        if path not in known:
            above = path.rpartition(".")[0]
            places = [at for at, row in enumerate(found) if _within(row.path, above)]
            found.insert(max(places) + 1, _row(path, kind))
    return found


def _within(path: str, above: str) -> bool:
    return not above or path == above or path.startswith(f"{above}.")


def _row(path: str, kind: str) -> Module:
    return Module(
        id=-1,
        names=(path,),
        bases=(f"exported.{kind}",),
        params=(),
        children=(),
        training=False,
        settings={},
    )
