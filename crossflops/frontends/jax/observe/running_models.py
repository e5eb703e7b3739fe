"""Prepare a JAX model to be timed in JAX itself."""

from typing import Any

from crossflops.frontends.frontend import RUN, RunnableModel, Source
from crossflops.frontends.jax.kinds import is_flax_module
from crossflops.frontends.jax.record.function import to_pure_function
from crossflops.ir.trace import Setting


def prepare_jax_run(source: Source, threads: int, setting: Setting) -> RunnableModel:
    """Return the model compiled by jax.jit with weights and random inputs, ready to run."""
    import jax

    function = to_pure_function(source.model, source.args, source.kwargs, setting.training)
    stored: Any = function.weights
    if is_flax_module(source.model):
        from flax import nnx

        stored = nnx.split(source.model)[1]
    weights = jax.tree.map(_array_or_random_values, stored)
    arrays = [_array_or_random_values(spec) for spec in function.specs]
    jitted = jax.jit(function.weighted)

    def run_jitted_once() -> None:
        """Run the compiled model once, and wait for its results."""
        jax.block_until_ready(jitted(weights, *arrays))

    def write_profile(runs: int, path: str) -> None:
        """Run the model several times, and write JAX's profile of it to a folder."""
        with jax.profiler.trace(path):
            for step in range(runs):
                with jax.profiler.StepTraceAnnotation(RUN, step_num=step):
                    run_jitted_once()

    platform = jax.devices()[0].platform
    return RunnableModel(
        run_jitted_once,
        f"jax {jax.__version__}",
        platform,
        "jax.jit, block_until_ready",
        write_profile,
    )


def _array_or_random_values(array: Any) -> Any:
    """Return an array itself; for a shape alone, an array of random floats or zeros."""
    import jax
    import numpy as np

    if not isinstance(array, jax.ShapeDtypeStruct):
        return array
    if jax.numpy.issubdtype(array.dtype, jax.numpy.floating):
        values = np.random.default_rng(0).standard_normal(array.shape)
        return jax.numpy.asarray(values, array.dtype)
    return jax.numpy.zeros(array.shape, array.dtype)
