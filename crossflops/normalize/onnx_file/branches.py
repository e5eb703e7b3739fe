"""The branch of an If that runs, where that is known, and what its results look like."""

from collections.abc import Mapping
from typing import Any

from crossflops.load.order import bodies
from crossflops.normalize.onnx_file.control import RAN
from crossflops.normalize.onnx_file.loops import Level, body_of, declare, holds, is_control, level
from crossflops.normalize.onnx_file.types import of_graph
from crossflops.normalize.onnx_file.whole_numbers import scalar

BRANCHES = ("then_branch", "else_branch")


def chosen_branch(node: Any, around: Level, asked: Mapping[str, str]) -> str:
    """The attribute of the one branch that is asked for, ran or is certain; "" for both."""
    if node.name in asked:
        side = asked[node.name].removeprefix(RAN)
        return "" if side == "sum" else f"{side}_branch"
    condition = scalar(around.values.get(node.input[0])) if node.input else None
    return "" if condition is None else BRANCHES[0 if condition else 1]


def decide(graph: Any, asked: Mapping[str, str], outer: Level | None = None) -> bool:
    """Give the results of every If whose branch is known their shape; whether there is any.

    Inference gives a result the sizes that both branches agree on, and leaves the others open.
    """
    if not any(holds(node, "If") for node in graph.node):
        return False
    around = level(graph, outer)
    changed = False
    for node in graph.node:
        chosen = chosen_branch(node, around, asked) if is_control(node, "If") else ""
        body = body_of(node, chosen) if chosen else None
        inside = of_graph(body) if body is not None else {}
        for place, result in enumerate(body.output if body is not None else ()):
            found = inside.get(result.name)
            if found is not None and found.shape is not None:
                changed |= declare(around, node.output, place, found.shape, found.dtype)
        for one in bodies(node):
            changed |= decide(one, asked, around)
    return changed
