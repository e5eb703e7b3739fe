"""Mark gradients by the equations of a JAX program: stopped, unknown or recomputed.

Sources: jax/_src/ad_checkpoint.py, jax/_src/custom_derivatives.py.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from crossflops.frontends.jax.convert.lowering import Equation
from crossflops.frontends.jax.convert.own_gradients import KINDS, REFUSED, STOPPED, OwnFunction
from crossflops.frontends.own_gradients import Application, with_own_gradient_functions
from crossflops.ir.graph import Checkpoint, Graph, Node

_CHECKPOINTS = ("remat2", "checkpoint")
_LOOP = "JAX has no gradient of a loop whose length depends on data"
_OWN = "in {}, which has a custom derivative; counted as if JAX differentiated it ({})"
_REFUSED = "JAX has no gradient of {}, so the model cannot be differentiated"


def mark_gradient_stops_and_recomputed_nodes(
    graph: Graph, equations: Sequence[Equation], origins: Mapping[str, int]
) -> Graph:
    """Return the graph with marks on nodes that stop gradients or are recomputed."""

    def with_gradient_marks_of_equation(node: Node, enclosing: int | None) -> Node:
        """Return a node, and those in its bodies, with the marks of their equations."""
        number = origins.get(node.key.partition("@")[0], enclosing)
        bodies = tuple(
            msgspec.structs.replace(
                body,
                nodes=tuple(with_gradient_marks_of_equation(node, number) for node in body.nodes),
            )
            for body in node.bodies
        )
        marks = _gradient_mark_fields(node, number, equations)
        return msgspec.structs.replace(node.with_training(**marks), bodies=bodies)

    return msgspec.structs.replace(
        graph, nodes=tuple(with_gradient_marks_of_equation(node, None) for node in graph.nodes)
    )


def _gradient_mark_fields(
    node: Node, number: int | None, equations: Sequence[Equation]
) -> dict[str, Any]:
    """Return the training fields of a node by name: checkpoint, own_backward, severed.

    A checkpoint in another one runs again with it and once more by itself, which is not modelled.
    """
    fields: dict[str, Any] = {}
    enclosing = [] if number is None else list(_enclosing_equations(number, equations))
    checkpoints = [index for index in enclosing if equations[index].primitive in _CHECKPOINTS]
    if checkpoints:
        saved = any(equations[index].saved for index in enclosing)
        fields["checkpoint"] = Checkpoint(
            checkpoints[-1] + 1,
            "needed" if len(checkpoints) == 1 else "unknown",
            "saved" if saved else "results",
        )
    owns = [equations[index] for index in enclosing if equations[index].is_own]
    if owns and owns[-1].unfollowed:
        kind = KINDS[owns[-1].primitive]
        fields["own_backward"] = _OWN.format(kind, owns[-1].unfollowed)
    for index in enclosing:
        equation = equations[index]
        if equation.primitive == "stop_gradient" or equation.ungraded == STOPPED:
            fields["severed"] = tuple(range(len(node.inputs)))
        if equation.primitive == "while":
            fields["own_backward"] = _LOOP
        if equation.ungraded == REFUSED:
            fields["own_backward"] = _REFUSED.format(equation.primitive)
    return fields


def _enclosing_equations(number: int, equations: Sequence[Equation]) -> Iterator[int]:
    """Yield the numbers of an equation and of the equations around it, innermost first."""
    index: int | None = number
    while index is not None:
        yield index
        index = equations[index].around


def with_custom_derivative_functions(
    graph: Graph,
    applied: Iterable[OwnFunction],
    origins: Mapping[str, int],
    equations: Sequence[Equation],
) -> Graph:
    """Return the graph with its functions that have a custom derivative."""

    def node_keys_of_equation(number: int) -> frozenset[str]:
        """Return the keys of all nodes that were written for an equation or one inside it."""
        return frozenset(
            node.key
            for node in graph.nodes
            if (origin := origins.get(node.key.partition("@")[0])) is not None
            and number in _enclosing_equations(origin, equations)
        )

    return with_own_gradient_functions(
        graph,
        (
            Application(
                name=own.name,
                kind=own.kind,
                home=own.home,
                given=own.given,
                inside=node_keys_of_equation(own.number),
            )
            for own in applied
        ),
    )
