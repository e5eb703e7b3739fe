"""Build a training step of a JAX model as a function: forward, and back from the loss.

Which outputs a loss is made of is told by the derivative of the loss for each alone.
"""

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from crossflops.errors import InputError
from crossflops.frontends.converted import trainable_parameter_names
from crossflops.frontends.frontend import Source
from crossflops.frontends.jax.record.function import (
    Pure,
    array_names_in_tree,
    isolating_jax_cache,
    to_pure_function,
)
from crossflops.ir.trace import Module, Setting, StepSetting
from crossflops.ir.training import matches_weight_pattern


def with_jax_gradients(pure: Pure, modules: Iterable[Module], step: StepSetting) -> Pure:
    """Return the model with the gradients of its trained arrays as additional outputs.

    These begin as ones at the outputs of the loss, which are those of their sum: the loss does no
    work of its own here. Arrays that a function closes over become arguments.
    """
    import jax
    import jax.numpy as jnp

    pure = pure if jax.tree.leaves(pure.weights) else _with_closure_arrays_as_weights(pure)
    leaves, tree = jax.tree.flatten((pure.weights, pure.specs))
    names = (*array_names_in_tree(pure.weights), *pure.names)
    chosen = _trainable_array_names(names, len(pure.names), modules, step)
    indices = [
        index
        for index, leaf in enumerate(leaves)
        if names[index] in chosen and jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]

    def outputs_and_gradients(provided: Any, *arrays: Any) -> Any:
        """Return the model's outputs, and the gradients of its trained arrays."""
        every = jax.tree.leaves((provided, arrays))

        def loss_outputs_and_all_outputs(graded: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            """Return the outputs of the loss, and all outputs, for these trained arrays."""
            filled = list(every)
            for index, array in zip(indices, graded, strict=True):
                filled[index] = array
            weights, own = jax.tree.unflatten(tree, filled)
            outputs = jax.tree.leaves(pure.weighted(weights, *own))
            return _jax_loss_outputs(outputs, step), outputs

        ends, back, outputs = jax.vjp(
            loss_outputs_and_all_outputs, [every[index] for index in indices], has_aux=True
        )
        return outputs, back([jnp.ones_like(end) for end in ends])

    return replace(pure, weighted=outputs_and_gradients)


def _trainable_array_names(
    names: Sequence[str], inputs: int, modules: Iterable[Module], step: StepSetting
) -> set[str]:
    """Return the names of the weights or inputs that a training step trains."""
    rows = tuple(modules)
    if any(row.params for row in rows):
        return trainable_parameter_names(rows, step) & set(names[: len(names) - inputs])
    provided = names[len(names) - inputs :]
    return {
        name
        for name in provided
        if any(matches_weight_pattern(name, pattern) for pattern in step.trainable)
    }


def _jax_loss_outputs(outputs: Sequence[Any], step: StepSetting) -> list[Any]:
    """Return the float outputs of which the loss is the sum."""
    import jax.numpy as jnp

    reached = step.reached or (True,) * len(outputs)
    pairs = zip(outputs, reached, strict=True)
    return [end for end, is_reached in pairs if is_reached and jnp.issubdtype(end, jnp.inexact)]


def _with_closure_arrays_as_weights(pure: Pure) -> Pure:
    """Return the function with the float arrays that it closes over as its weights."""
    import jax

    with isolating_jax_cache():
        closed, shapes = jax.make_jaxpr(pure.function, return_shape=True)(*pure.specs)
    names = list(pure.array_names(closed.consts))
    weights = {
        name: jax.ShapeDtypeStruct(array.shape, array.dtype)
        for name, array in zip(names, closed.consts, strict=True)
        if name
    }

    def run_with_constants(weights: Any, *arrays: Any) -> Any:
        """Run the traced program with the weights instead of its constants."""
        pairs = zip(names, closed.consts, strict=True)
        stored = [weights[name] if name else array for name, array in pairs]
        results = jax.core.eval_jaxpr(closed.jaxpr, stored, *jax.tree.leaves(arrays))
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return replace(pure, weighted=run_with_constants, weights=weights)


# Which outputs a loss is made of.

_HINT = "give a callable that maps the model's outputs to one number"
_FROM_OUTPUTS = "compute the loss from float outputs of the model, without stop_gradient"


def jax_loss_dependence(
    source: Source, loss: Callable[[Any], Any], setting: Setting
) -> tuple[bool, ...]:
    """Return for each output, flattened in order, whether the loss depends on it.

    Nothing runs: JAX differentiates on shapes (jax/_src/interpreters/ad.py, jvp_jaxpr). Raises
    InputError where the loss raises, and for one that is not a number or depends on no output.
    """
    import jax
    import jax.numpy as jnp

    model = to_pure_function(source.model, source.args, source.kwargs, setting.training)
    outputs, tree = jax.tree.flatten(jax.eval_shape(model.function, *model.specs))

    def loss_value(*arrays: Any) -> Any:
        """Return the loss of the model's outputs, given as flat arguments."""
        return loss(jax.tree.unflatten(tree, arrays))

    try:
        with isolating_jax_cache():
            closed = jax.make_jaxpr(loss_value)(*outputs)
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise InputError(f"the loss raised {type(error).__name__}: {text}", _HINT) from error
    if [aval.size for aval in closed.out_avals] != [1]:
        shapes = ", ".join(str(aval.shape) for aval in closed.out_avals)
        shown = f"has results of the shapes {shapes}" if shapes else "has no result"
        raise InputError(f"the loss {shown}, but must be one number", _HINT)
    derive = importlib.import_module("jax._src.interpreters.ad").jvp_jaxpr
    graded = [jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in outputs]
    alone = [[index == other for other in range(len(outputs))] for index in range(len(outputs))]
    reached_by = tuple(
        is_graded and any(derive(closed, provided, False)[1])
        for is_graded, provided in zip(graded, alone, strict=True)
    )
    if not any(reached_by):
        raise InputError("the loss depends on no output of the model", _FROM_OUTPUTS)
    return reached_by
