"""Which outputs of a JAX model a loss is made of, by the derivative of the loss for each alone."""

import importlib
from collections.abc import Callable
from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.frontend import Source
from crossflops.frontends.jax.model import apart, pure
from crossflops.ir.trace import Setting

_HINT = "give a callable that takes what the model returns, and returns one number"


def reached(source: Source, loss: Callable[[Any], Any], setting: Setting) -> tuple[bool, ...]:
    """Of each output, flat and in their order, whether the loss depends on it.

    Nothing runs: JAX tells on shapes (jax/_src/interpreters/ad.py, jvp_jaxpr). Raises InputError
    where the loss raises, and for one that is no number or depends on no output.
    """
    import jax
    import jax.numpy as jnp

    model = pure(source.model, source.args, source.kwargs, setting.training)
    outputs, tree = jax.tree.flatten(jax.eval_shape(model.function, *model.specs))

    def number(*arrays: Any) -> Any:
        return loss(jax.tree.unflatten(tree, arrays))

    try:
        with apart():
            closed = jax.make_jaxpr(number)(*outputs)
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise InputError(f"the loss raised {type(error).__name__}: {text}", _HINT) from error
    if [aval.size for aval in closed.out_avals] != [1]:
        shapes = ", ".join(str(aval.shape) for aval in closed.out_avals)
        raise InputError(f"the loss is an array of {shapes}, and no number", _HINT)
    derive = importlib.import_module("jax._src.interpreters.ad").jvp_jaxpr
    graded = [jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in outputs]
    alone = [[place == other for other in range(len(outputs))] for place in range(len(outputs))]
    reached_by = tuple(
        is_graded and any(derive(closed, given, False)[1])
        for is_graded, given in zip(graded, alone, strict=True)
    )
    if not any(reached_by):
        raise InputError("the loss depends on no output of the model", _HINT)
    return reached_by
