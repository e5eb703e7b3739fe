"""Remove unused states of `while` loops from a JAX program; JAX does so only for `scan`.

A state that no result depends on, and that the condition does not read, is computed in vain. XLA
takes such states out of a loop when it compiles the program, which every run does.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute


@contextmanager
def dropping_dead_loop_states() -> Iterator[None]:
    """Return a context in which JAX's dead code elimination drops states of `while` loops."""
    from jax._src.interpreters import partial_eval
    from jax.lax import while_p

    rules = {**partial_eval.dce_rules, while_p: _without_dead_states}
    with patching_attribute(partial_eval, "dce_rules", rules, inventory.DEAD_STATES):
        yield


def _without_dead_states(
    used_results: Sequence[bool], equation: Any
) -> tuple[list[bool], Any | None]:
    """Return which operands a `while` loop needs, and the loop without dead states or None.

    Args:
        used_results: for each state whether something behind the loop reads it.
        equation: the loop; it has effects where one of its parts has.
    """
    from jax._src.interpreters import partial_eval
    from jax.extend.core import ClosedJaxpr

    if equation.effects:
        return [True] * len(equation.invars), equation
    if not any(used_results):
        return [False] * len(equation.invars), None
    params = equation.params
    of_condition, of_body = params["cond_nconsts"], params["body_nconsts"]
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    _, read = partial_eval.dce_jaxpr(condition.jaxpr, [True])
    needed = _either_is_true(used_results, read[of_condition:])
    while True:
        _, read = partial_eval.dce_jaxpr(body.jaxpr, needed)
        more = _either_is_true(needed, read[of_body:])
        if more == needed:
            break
        needed = more
    kept_condition, used_by_condition = partial_eval.dce_jaxpr(
        condition.jaxpr, [True], instantiate=[*[False] * of_condition, *needed]
    )
    kept_body, used_by_body = partial_eval.dce_jaxpr(
        body.jaxpr, needed, instantiate=[*[False] * of_body, *needed]
    )
    constants = [*used_by_condition[:of_condition], *used_by_body[:of_body]]
    used = [*constants, *needed]
    loop = equation.replace(
        invars=[
            variable for variable, is_used in zip(equation.invars, used, strict=True) if is_used
        ],
        outvars=[
            state for state, is_used in zip(equation.outvars, needed, strict=True) if is_used
        ],
        params=params
        | {
            "cond_nconsts": sum(used_by_condition[:of_condition]),
            "cond_jaxpr": ClosedJaxpr(kept_condition, condition.consts),
            "body_nconsts": sum(used_by_body[:of_body]),
            "body_jaxpr": ClosedJaxpr(kept_body, body.consts),
        },
    )
    return used, loop


def _either_is_true(left: Sequence[bool], right: Sequence[bool]) -> list[bool]:
    """Return for each position whether either list is true there."""
    return [any(pair) for pair in zip(left, right, strict=True)]
