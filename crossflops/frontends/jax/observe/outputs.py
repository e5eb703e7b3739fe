"""Run a JAX model, and return its inputs and outputs as arrays."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from crossflops.errors import InputError, error_location
from crossflops.frontends.frontend import ModelRun, Source
from crossflops.frontends.jax.record.function import (
    Pure,
    isolating_jax_cache,
    random_key_to_words,
    to_pure_function,
)
from crossflops.frontends.rounding import (
    make_random_array,
    measure_rounding_changes,
    randomly_rounded_array,
)
from crossflops.ir.trace import Setting

_DRAWING = ("random_bits", "threefry2x32", "rng_bit_generator", "rng_uniform")


def run_jax_and_measure_rounding(source: Source, setting: Setting) -> ModelRun:
    """Run the model; return inputs, outputs, which are random, and changes by rounding.

    Further runs have weights and inputs that differ by one rounding. Raises InputError.
    """
    import jax

    function = to_pure_function(
        source.model, source.args, source.kwargs, setting.training, valued=True
    )
    values = _jax_input_values(source, function)

    def jax_outputs_as_numpy(values: list[Any], weights: Any) -> list[Any]:
        """Return the outputs of the JAX function on these inputs and weights, as NumPy arrays."""
        results = function.weighted(weights, *map(jax.numpy.asarray, values))
        return [np.asarray(random_key_to_words(result)) for result in jax.tree.leaves(results)]

    stored = _called_module_weights(function)

    def outputs_of_rounded_arrays(generator: Any) -> list[Any]:
        """Return the outputs with inputs and weights that are rounded differently."""
        weights = jax.tree.map(
            lambda leaf: (
                randomly_rounded_array(leaf, generator) if hasattr(leaf, "dtype") else leaf
            ),
            stored,
        )
        return jax_outputs_as_numpy(
            [randomly_rounded_array(value, generator) for value in values], weights
        )

    with isolating_jax_cache():
        try:
            outputs = jax_outputs_as_numpy(values, stored)
        except Exception as error:  # whatever it is, it does not run on these
            raise InputError(
                f"in the run of --verify, the model raised {type(error).__name__}: "
                f"{error}{error_location(error)}",
                "give inputs that the model accepts with --inputs FILE.npz, or leave out --verify",
            ) from error
        return measure_rounding_changes(
            values,
            list(map(_complex_as_pairs, outputs)),
            _is_random_by_output(function),
            outputs_of_rounded_arrays,
        )


def _called_module_weights(function: Pure) -> Any:
    """Return the weights of the module that a function calls."""
    return function.function.args[0]  # type: ignore[attr-defined]


def _complex_as_pairs(array: Any) -> Any:
    """Return complex numbers as pairs of their parts, as jax2onnx writes them."""
    return np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array


def _jax_input_values(source: Source, function: Pure) -> list[Any]:
    """Return the values of the inputs in order: those of the caller, or random ones."""
    import jax

    if source.arrays is not None:
        shapes = jax.tree.leaves((source.args, dict(source.kwargs)))
        pairs = zip(shapes, jax.tree.leaves(source.arrays), strict=True)
        provided = [value for spec, value in pairs if isinstance(spec, jax.ShapeDtypeStruct)]
        return [np.asarray(random_key_to_words(value)) for value in provided]
    return [make_random_array(spec.shape, spec.dtype) for spec in function.specs]


def _is_random_by_output(function: Pure) -> list[bool]:
    """Return for each output whether it depends on random numbers."""
    import jax
    from jax.interpreters import partial_eval

    jaxpr = jax.make_jaxpr(function.function)(*function.specs).jaxpr
    indices = range(len(jaxpr.outvars))
    needed = (
        partial_eval.dce_jaxpr(jaxpr, [index == own for index in indices])[0] for own in indices
    )
    return [any(name in _DRAWING for name in _primitive_names(program)) for program in needed]


def _primitive_names(jaxpr: Any) -> Iterator[str]:
    """Yield the names of the primitives in a JAX program, also in nested programs."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for stored in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(stored, "jaxpr", stored)
                if hasattr(inner, "eqns"):
                    yield from _primitive_names(inner)
