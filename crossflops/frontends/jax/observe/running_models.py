"""A JAX model that is timed in JAX itself."""

from typing import Any

from crossflops.frontends.frontend import RUN, RunnableModel, Source
from crossflops.frontends.jax.kinds import is_module
from crossflops.frontends.jax.record.function import pure
from crossflops.ir.trace import Setting


def prepare_jax_run(source: Source, threads: int, setting: Setting) -> RunnableModel:
    """Return the jitted function called on its weights and on arrays of its shapes."""
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
        """Write a JAX profile of several runs of the compiled model to a path."""
        with jax.profiler.trace(path):
            for step in range(runs):
                with jax.profiler.StepTraceAnnotation(RUN, step_num=step):
                    run_jitted_once()

    platform = jax.devices()[0].platform
    return RunnableModel(
        run_jitted_once, f"jax {jax.__version__}", platform, "jax.jit, block_until_ready", trace
    )


def _fill_shape(array: Any) -> Any:
    """Return an array unchanged; for a shape alone, random floats or zeros."""
    import jax
    import numpy as np

    if not isinstance(array, jax.ShapeDtypeStruct):
        return array
    if jax.numpy.issubdtype(array.dtype, jax.numpy.floating):
        values = np.random.default_rng(0).standard_normal(array.shape)
        return jax.numpy.asarray(values, array.dtype)
    return jax.numpy.zeros(array.shape, array.dtype)
