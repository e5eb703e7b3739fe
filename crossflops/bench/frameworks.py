"""A model made ready to run in its own framework: one call is one run, done when it returns."""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from crossflops.errors import InputError
from crossflops.frontends import Source
from crossflops.frontends.frameworks import framework_of, is_pytorch
from crossflops.ir.trace import Setting

_OF = {"tensorflow": "keras", "jax": "jax"}  # by the folder in normalize
_RUN = "model_run"  # how onnxruntime calls a run in its profiles, too


class Ready(NamedTuple):
    """A model that can be run: in what, where, and what is timed. `trace` runs it and writes one.

    `trace(runs, path)` returns the file, or None where the framework writes a folder of its own.
    """

    once: Callable[[], None]
    runtime: str
    device: str
    how: str
    trace: Callable[[int, str], str | None]


def ready(source: Source, runtime: str, threads: int, setting: Setting) -> Ready:
    """The model in its own framework, which has to be `runtime`. Raises InputError."""
    model = source.model
    own = "torch" if is_pytorch(model) else _OF.get(framework_of(model) or "", "none of them")
    if own != runtime:
        raise InputError(
            f"--runtime {runtime} cannot run this model, whose own framework is {own}",
            f"give --runtime {own}" if own in _READY else "leave --runtime out",
        )
    return _READY[runtime](source, threads, setting)


def bound(runtime: str, threads: int) -> None:
    """Let a framework that is not imported yet take so many threads, no more.

    TensorFlow reads them once, when it starts; XLA takes as many as it sees CPUs.
    """
    if runtime == "keras":
        os.environ["TF_NUM_INTRAOP_THREADS"] = str(threads)
        os.environ["TF_NUM_INTEROP_THREADS"] = "1"
    if runtime == "jax" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def _torch(source: Source, threads: int, setting: Setting) -> Ready:
    import torch

    model, args, kwargs = source.model, source.args, source.kwargs
    torch.set_num_threads(threads)
    model.train(setting.training)
    weights = [*model.parameters(), *model.buffers()]
    device = weights[0].device if weights else torch.device("cpu")
    sync: Callable[[], Any] = {
        "cuda": torch.cuda.synchronize,
        "mps": lambda: torch.mps.synchronize(),
    }.get(device.type, lambda: None)

    def once() -> None:
        with torch.set_grad_enabled(setting.grad):
            model(*args, **kwargs)
        sync()

    def trace(runs: int, path: str) -> str:
        from torch import profiler

        kinds = [profiler.ProfilerActivity.CPU]
        kinds += [profiler.ProfilerActivity.CUDA] if device.type == "cuda" else []
        with profiler.profile(activities=kinds, record_shapes=True, profile_memory=True) as found:
            for _ in range(runs):
                with profiler.record_function(_RUN):
                    once()
        found.export_chrome_trace(path)
        return path

    how = f"module(*inputs), {_mode(setting)}{', synchronized' if device.type != 'cpu' else ''}"
    return Ready(once, f"torch {torch.__version__}", device.type, how, trace)


def _mode(setting: Setting) -> str:
    return f"{'train' if setting.training else 'eval'}, {'grad' if setting.grad else 'no grad'}"


def _keras(source: Source, threads: int, setting: Setting) -> Ready:
    import tensorflow as tf

    from crossflops.frontends.tensorflow.model import traced

    found = traced(source.model, source.args, source.kwargs, setting.training)
    function = found.function
    explicit = function.inputs[: len(function.inputs) - len(function.captured_inputs)]
    tensors = [_filled(tf, one) for one in explicit]

    def once() -> None:
        for one in tf.nest.flatten(function._call_flat(tensors, function.captured_inputs)):
            if hasattr(one, "numpy"):
                one.numpy()

    def trace(runs: int, path: str) -> None:
        tf.profiler.experimental.start(path)
        for step in range(runs):
            with tf.profiler.experimental.Trace(_RUN, step_num=step, _r=1):
                once()
        tf.profiler.experimental.stop()

    how = "concrete tf.function, results copied out"
    return Ready(once, f"tensorflow {tf.__version__}", "cpu", how, trace)


def _filled(tf: Any, spec: Any) -> Any:
    if spec.dtype.is_floating:
        return tf.random.stateless_normal(spec.shape, (0, 0), dtype=spec.dtype)
    return tf.zeros(spec.shape, spec.dtype)


def _jax(source: Source, threads: int, setting: Setting) -> Ready:
    import jax

    from crossflops.frontends.jax.kinds import is_module
    from crossflops.frontends.jax.model import pure

    found = pure(source.model, source.args, source.kwargs, setting.training)
    held: Any = found.weights
    if is_module(source.model):
        from flax import nnx

        held = nnx.split(source.model)[1]
    weights = jax.tree.map(_array, held)
    arrays = [_array(one) for one in found.specs]
    function = jax.jit(found.weighted)

    def once() -> None:
        jax.block_until_ready(function(weights, *arrays))

    def trace(runs: int, path: str) -> None:
        with jax.profiler.trace(path):
            for step in range(runs):
                with jax.profiler.StepTraceAnnotation(_RUN, step_num=step):
                    once()

    platform = jax.devices()[0].platform
    return Ready(once, f"jax {jax.__version__}", platform, "jax.jit, block_until_ready", trace)


def _array(one: Any) -> Any:
    """An array as it is; of a shape alone, random floats or zeros."""
    import jax
    import numpy as np

    if not isinstance(one, jax.ShapeDtypeStruct):
        return one
    if jax.numpy.issubdtype(one.dtype, jax.numpy.floating):
        values = np.random.default_rng(0).standard_normal(one.shape)
        return jax.numpy.asarray(values, one.dtype)
    return jax.numpy.zeros(one.shape, one.dtype)


_READY: Mapping[str, Callable[[Source, int, Setting], Ready]] = {
    "torch": _torch,
    "keras": _keras,
    "jax": _jax,
}
