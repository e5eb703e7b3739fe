"""Other equations in place of one."""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple


class Equal(NamedTuple):
    """A function of the arrays of an equation that computes the same.

    `own`: its equations are in the program of the model. Otherwise they are in none, and what
    only moves values among them is the converter's.
    """

    function: Callable[..., Any]
    own: bool = False


def inlined(ctx: Any, eqn: Any, instead: Equal, ours: dict[int, Any]) -> None:
    """Lower other equations in place of one; `ours` gets those that are in no program."""
    import jax
    import numpy as np

    control: Any = importlib.import_module("jax2onnx.plugins.jax.lax._control_flow_utils")
    given = [jax.ShapeDtypeStruct(one.aval.shape, one.aval.dtype) for one in eqn.invars]
    closed = jax.make_jaxpr(instead.function)(*given)
    if not instead.own:
        ours.update((id(one), one) for one in closed.jaxpr.eqns)
    for variable, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        ctx.bind_const_for_var(variable, np.asarray(value))
    for inner, outer in zip(closed.jaxpr.invars, eqn.invars, strict=True):
        ctx.bind_value_for_var(inner, ctx.get_value_for_var(outer))
    control.lower_jaxpr_eqns(ctx, closed.jaxpr, source=eqn.primitive.name)
    for outer, inner in zip(eqn.outvars, closed.jaxpr.outvars, strict=True):
        ctx.bind_value_for_var(outer, ctx.get_value_for_var(inner))
