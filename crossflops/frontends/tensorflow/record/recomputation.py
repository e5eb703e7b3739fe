"""Let tf.recompute_grad take functions that are called with keyword arguments.

Keras calls a layer so in a `keras.RematScope`. TensorFlow takes names in eager mode alone
(tensorflow/python/ops/custom_gradient.py: _graph_mode_decorator); in a graph the same function is
run here with its tensors by position.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute


def supporting_keyword_tensors() -> AbstractContextManager[object]:
    """Return a context in which tf.recompute_grad supports keyword arguments."""
    import tensorflow as tf

    recompute = tf.recompute_grad

    def recompute_grad_with_keyword_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function recomputed in its backward pass, which takes keyword tensors too."""

        def call_with_tensors_as_positional(*args: Any, **named: Any) -> Any:
            """Call the recomputed function with its keyword tensors as positional ones."""
            tensors = {name: value for name, value in named.items() if _contains_tensors(value)}
            plain = {name: value for name, value in named.items() if name not in tensors}

            def call_with_tensors_as_keywords(*provided: Any) -> Any:
                """Call the original function with its keyword tensors as keywords again."""
                by_name = dict(zip(tensors, provided[len(args) :], strict=True))
                return function(*provided[: len(args)], **by_name, **plain)

            return recompute(call_with_tensors_as_keywords)(*args, *tensors.values())

        return call_with_tensors_as_positional

    return patching_attribute(
        tf, "recompute_grad", recompute_grad_with_keyword_tensors, inventory.RECOMPUTATION
    )


def _contains_tensors(value: Any) -> bool:
    """Return whether a value is a tensor, or a structure that has one in it."""
    import tensorflow as tf

    return any(tf.is_tensor(part) for part in tf.nest.flatten(value))
