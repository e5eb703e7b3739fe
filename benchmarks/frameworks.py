"""Counts of JAX and TensorFlow models in one process, beside the framework's own trace.

    python benchmarks/frameworks.py                 all models
    python benchmarks/frameworks.py jax-attention   those named

A count and a trace take turns, after one count of another model. All times are CPU seconds of
one process, and medians. Each model's framework is imported when its row begins.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import crossflops

Work = tuple[Callable[[], object], Callable[[], object]]  # a count and a trace
HEAD = "| model | count | trace | count of trace |"


def main() -> int:
    """Measure what is asked for, and print a table of Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(f"{HEAD}\n|{'---|' * 4}", flush=True)
    for name in options.models or MODELS:
        print(measured_row(name, options.runs), flush=True)
    return 0


def measured_row(name: str, runs: int) -> str:
    """Return a line of the table."""
    count, trace = MODELS[name]()
    count(), trace()
    counts, traces = zip(*((seconds(count), seconds(trace)) for _ in range(runs)), strict=True)
    usual_count, usual_trace = statistics.median(counts), statistics.median(traces)
    return f"| {name} | {usual_count:.2f} | {usual_trace:.2f} | {usual_count / usual_trace:.2f} |"


def seconds(run: Callable[[], object]) -> float:
    """Return the CPU seconds of a run."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def jax_work(model: Any, shape: tuple[int, ...]) -> Work:
    """Return the count of a module of Flax, and `jax.make_jaxpr` of it."""
    import jax
    from flax import nnx

    image = jax.numpy.zeros(shape)
    graph, state = nnx.split(model)

    def trace() -> object:
        return jax.make_jaxpr(lambda stored, x: nnx.merge(graph, stored)(x))(state, image)

    return lambda: crossflops.count(model, image), trace


def jax_convolutions() -> Work:
    """Return the work of 16 convolutions with batch norms and additions."""
    from flax import nnx

    class Block(nnx.Module):  # type: ignore[misc]  # flax has no types
        def __init__(self, width: int, rngs: nnx.Rngs) -> None:
            self.conv = nnx.Conv(width, width, (3, 3), use_bias=False, rngs=rngs)
            self.norm = nnx.BatchNorm(width, use_running_average=True, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return x + nnx.relu(self.norm(self.conv(x)))

    rngs = nnx.Rngs(0)
    return jax_work(nnx.Sequential(*(Block(64, rngs) for _ in range(16))), (1, 56, 56, 64))


def jax_attention() -> Work:
    """Return the work of six layers of a transformer."""
    from flax import nnx

    class Layer(nnx.Module):  # type: ignore[misc]  # flax has no types
        def __init__(self, width: int, rngs: nnx.Rngs) -> None:
            self.first, self.second = (nnx.LayerNorm(width, rngs=rngs) for _ in range(2))
            self.attention = nnx.MultiHeadAttention(4, width, decode=False, rngs=rngs)
            self.wide = nnx.Linear(width, 4 * width, rngs=rngs)
            self.narrow = nnx.Linear(4 * width, width, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = x + self.attention(self.first(x))
            return x + self.narrow(nnx.gelu(self.wide(self.second(x))))

    rngs = nnx.Rngs(0)
    return jax_work(nnx.Sequential(*(Layer(256, rngs) for _ in range(6))), (1, 64, 256))


def keras_mobilenet() -> Work:
    """Return the count of MobileNetV2 of Keras, and its concrete function."""
    import keras
    import tensorflow as tf

    model, shape = keras.applications.MobileNetV2(weights=None), (1, 224, 224, 3)
    image = np.zeros(shape, np.float32)

    def trace() -> object:
        function = tf.function(lambda x: model(x, training=False))
        return function.get_concrete_function(tf.TensorSpec(shape))

    return lambda: crossflops.count(model, image), trace


MODELS: dict[str, Callable[[], Work]] = {
    "jax-convolutions": jax_convolutions,
    "jax-attention": jax_attention,
    "keras-mobilenet_v2": keras_mobilenet,
}


if __name__ == "__main__":
    sys.exit(main())
