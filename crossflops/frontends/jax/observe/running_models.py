"""Prepare a JAX model to be timed in JAX itself."""

from typing import Any

from crossflops.frontends.frontend import RUN, RunnableModel, Source
from crossflops.frontends.jax.kinds import is_module
from crossflops.frontends.jax.record.function import pure
from crossflops.ir.trace import Setting


def prepare_jax_run(source: Source, threads: int, setting: Setting) -> RunnableModel:
    """Return the model compiled by jax.jit with weights and random inputs, ready to run."""
    import jax

    function = pure(source.model, source.args, source.kwargs, setting.training)
    stored: Any = function.weights
    if is_module(source.model):
        from flax import nnx

        stored = nnx.split(source.model)[1]
    weights = jax.tree.map(_fill_shape, stored)
    arrays = [_fill_shape(spec) for spec in function.specs]
    jitted = jax.jit(function.weighted)

    def run_jitted_once() -> None:
        """Run the compiled model once, and wait for its results."""
        jax.block_until_ready(jitted(weights, *arrays))

    def trace(runs: int, path: str) -> None:
        """Run the model several times, and write JAX's profile of it to a folder."""
        with jax.profiler.trace(path):
            for step in range(runs):
                with jax.profiler.StepTraceAnnotation(RUN, step_num=step):
                    run_jitted_once()

    platform = jax.devices()[0].platform
    return RunnableModel(
        run_jitted_once, f"jax {jax.__version__}", platform, "jax.jit, block_until_ready", trace
    )


def _fill_shape(array: Any) -> Any:
    """Return an array itself; for a shape alone, an array of random floats or zeros."""
    import jax
    import numpy as np

    if not isinstance(array, jax.ShapeDtypeStruct):
        return array
    if jax.numpy.issubdtype(array.dtype, jax.numpy.floating):
        values = np.random.default_rng(0).standard_normal(array.shape)
        return jax.numpy.asarray(values, array.dtype)
    return jax.numpy.zeros(array.shape, array.dtype)
