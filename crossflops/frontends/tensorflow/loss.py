"""Which outputs of a TensorFlow model a loss is made of, by its gradients in a graph."""

from collections.abc import Callable
from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.frontend import Source
from crossflops.frontends.tensorflow.model import shortened, traced
from crossflops.frontends.tensorflow.quiet import quiet
from crossflops.ir.trace import Setting

_HINT = "give a callable that takes what the model returns, and returns one number"


@quiet()
def reached(source: Source, loss: Callable[[Any], Any], setting: Setting) -> tuple[bool, ...]:
    """Of each output, flat and in their order, whether the loss depends on it; nothing runs.

    Raises InputError where the loss raises, and for one that is no number or depends on no output.
    """
    import tensorflow as tf

    function = traced(source.model, source.args, source.kwargs, setting.training).function
    with tf.Graph().as_default():
        results = tf.nest.map_structure(
            lambda spec: tf.compat.v1.placeholder(spec.dtype, spec.shape),
            function.structured_outputs,
        )
        try:
            value = tf.convert_to_tensor(loss(results))
        except Exception as error:
            message = f"the loss raised {type(error).__name__}: {shortened(error)}"
            raise InputError(message, _HINT) from error
        if value.shape.num_elements() != 1:
            raise InputError(f"the loss is a tensor of {value.shape}, and no number", _HINT)
        outputs = tf.nest.flatten(results)
        gradients = [tf.gradients(value, one_output)[0] for one_output in outputs]
    if all(gradient is None for gradient in gradients):
        raise InputError("the loss depends on no output of the model", _HINT)
    return tuple(gradient is not None for gradient in gradients)
