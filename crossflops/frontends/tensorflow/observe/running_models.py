"""Prepare a TensorFlow model to be timed in TensorFlow itself."""

from typing import Any

from crossflops.frontends.frontend import RUN, RunnableModel, Source
from crossflops.frontends.tensorflow.record.tracing import trace_tensorflow_model
from crossflops.ir.trace import Setting


def prepare_tensorflow_run(source: Source, threads: int, setting: Setting) -> RunnableModel:
    """Return the traced model with random inputs, ready to be timed or profiled."""
    import tensorflow as tf

    function = trace_tensorflow_model(
        source.model, source.args, source.kwargs, setting.training
    ).function
    explicit = function.inputs[: len(function.inputs) - len(function.captured_inputs)]
    tensors = [_random_tensor(tf, spec) for spec in explicit]

    def run_tensorflow_model_once() -> None:
        """Run the model once, and wait for its results."""
        for result in tf.nest.flatten(function._call_flat(tensors, function.captured_inputs)):
            if hasattr(result, "numpy"):
                result.numpy()

    def write_profile(runs: int, path: str) -> None:
        """Run the model several times, and write TensorFlow's profile of it to a folder."""
        tf.profiler.experimental.start(path)
        for step in range(runs):
            with tf.profiler.experimental.Trace(RUN, step_num=step, _r=1):
                run_tensorflow_model_once()
        tf.profiler.experimental.stop()

    config = "concrete tf.function, results copied out"
    return RunnableModel(
        run_tensorflow_model_once, f"tensorflow {tf.__version__}", "cpu", config, write_profile
    )


def _random_tensor(tf: Any, spec: Any) -> Any:
    """Return a tensor with this spec: normally distributed floats, or zeros of other dtypes."""
    if spec.dtype.is_floating:
        return tf.random.stateless_normal(spec.shape, (0, 0), dtype=spec.dtype)
    return tf.zeros(spec.shape, spec.dtype)
