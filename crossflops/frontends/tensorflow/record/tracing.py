"""Trace a TensorFlow model on inputs of definite shapes to one concrete function."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from crossflops.errors import CrossflopsError, InputError, error_location, error_remedy
from crossflops.frontends.tensorflow.load.function import call_to_trace, is_keras_layer
from crossflops.frontends.tensorflow.load.messages import short_error_text
from crossflops.frontends.tensorflow.record.freezing import has_variable_writes
from crossflops.frontends.tensorflow.record.layers import recording_scopes
from crossflops.frontends.tensorflow.record.recomputation import supporting_keyword_tensors


class TracedFunction(msgspec.Struct, frozen=True):
    """A concrete function with definite input shapes, and the Keras layer of each name scope.

    `scopes` are by the name scope that was open while the layer ran. `called` is the traced
    function, called on `args` and `kwargs`.
    """

    function: Any
    scopes: dict[str, Any]
    called: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def trace_tensorflow_model(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], training: bool
) -> TracedFunction:
    """Return the model traced on inputs of these shapes. Raises InputError.

    `args` and `kwargs` hold tf.TensorSpec.
    """
    function, args, kwargs = call_to_trace(model, args, dict(kwargs), training)
    concrete = _trace_function(function, args, kwargs)
    if is_keras_layer(model) and has_variable_writes(concrete.function):
        concrete = _trace_function(_without_variable_writes(function), args, kwargs)
    return concrete


def _trace_function(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> TracedFunction:
    """Return the function traced on these inputs. Raises InputError if that fails."""
    import tensorflow as tf

    scopes: dict[str, Any] = {}
    try:
        with recording_scopes(scopes), supporting_keyword_tensors():
            return TracedFunction(
                tf.function(function, autograph=False).get_concrete_function(*args, **kwargs),
                scopes,
                function,
                args,
                kwargs,
            )
    except CrossflopsError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            f"the model raised {type(error).__name__}: "
            f"{short_error_text(error)}{error_location(error)}",
            error_remedy(
                error, "check the number, the names, the shapes and the types of --input"
            ),
        ) from error


def _without_variable_writes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function without its writes to variables of Keras.

    A state (stateful recurrent layers, moving averages in training, seeds of random layers) has no
    frozen form. Variables must exist already: a stateless scope creates none.
    """
    import keras

    def run_without_storing_states(*provided: Any, **named: Any) -> Any:
        """Run the function, without storing new states of Keras variables."""
        with keras.StatelessScope():
            return function(*provided, **named)

    return run_without_storing_states
