"""Freeze a training step of a TensorFlow model: forward, and back from the loss.

Which outputs a loss is made of is told by its gradients in a graph.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from crossflops.errors import InputError, NormalizeError
from crossflops.frontends.converted import trainable_parameter_names
from crossflops.frontends.frontend import Source
from crossflops.frontends.tensorflow.convert.gradients import argument_names
from crossflops.frontends.tensorflow.convert.own_gradients import CUSTOM
from crossflops.frontends.tensorflow.load.messages import short_error_text
from crossflops.frontends.tensorflow.load.quiet import quieting_tensorflow
from crossflops.frontends.tensorflow.record.freezing import freeze_variables
from crossflops.frontends.tensorflow.record.layers import LayerTable
from crossflops.frontends.tensorflow.record.recomputation import supporting_keyword_tensors
from crossflops.frontends.tensorflow.record.tracing import TracedFunction, trace_tensorflow_model
from crossflops.ir.trace import Setting, StepSetting
from crossflops.ir.training import matches_weight_pattern
from crossflops.load.payload import NUMBER
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute


def freeze_training_step(traced: TracedFunction, layers: LayerTable, step: StepSetting) -> Any:
    """Return the frozen graph of a training step: outputs, and gradients of the weights.

    These begin as ones at the outputs of the loss, which are those of their sum: the loss does no
    work of its own here. Operations of the forward pass keep their names. Raises NormalizeError.
    """
    variables = list(_variables_to_train(traced.function, layers, step))
    both = _forward_and_backward(
        traced, step, _trained_argument_positions(traced.function, layers, step)
    )
    graph = traced.function.graph
    if not _has_inner_variable_reads(graph):
        return _freeze_step_function(partial(both, variables), traced)
    if _has_own_gradients(graph):  # which may ask for variables
        with suppress(NormalizeError):
            return _freeze_step_function(partial(both, variables), traced)
    stored = [variable for variable in graph.variables if variable.dtype.is_floating]

    def run_with_constant_variables(*provided: Any, **named: Any) -> Any:
        """Return the outputs and gradients, with the variables read as constants."""
        read = {id(variable): _variable_constant(variable) for variable in stored}
        with _replacing_variables(read):
            return both([read[id(variable)] for variable in variables], *provided, **named)

    return _freeze_step_function(run_with_constant_variables, traced)


def _has_own_gradients(graph: Any) -> bool:
    """Return whether a graph, or a function in it, has a custom gradient."""
    definition = graph.as_graph_def()
    bodies = (definition.node, *(stored.node_def for stored in definition.library.function))
    return any(CUSTOM in node.attr for nodes in bodies for node in nodes)


def _has_inner_variable_reads(graph: Any) -> bool:
    """Return whether a loop, a branch or a called function in a graph reads a variable.

    TensorFlow does not freeze the gradients of such a read.
    """
    import tensorflow as tf

    def has_function_attribute(op: Any) -> bool:
        """Return whether an operation has functions among its attributes."""
        values = op.node_def.attr.values()
        return any(value.WhichOneof("value") == "func" or value.list.func for value in values)

    return any(
        tensor.dtype == tf.resource
        for op in graph.get_operations()
        if has_function_attribute(op)
        for tensor in op.inputs
    )


def _freeze_step_function(step: Callable[..., Any], traced: TracedFunction) -> Any:
    """Return the frozen graph of a training step. Raises NormalizeError without a gradient."""
    import tensorflow as tf

    try:
        function = tf.function(step, autograph=False)
        with supporting_keyword_tensors():
            concrete = function.get_concrete_function(*traced.args, **traced.kwargs)
    except Exception as error:
        raise NormalizeError(
            "TensorFlow cannot differentiate the model: "
            f"{type(error).__name__}: {short_error_text(error)}",
            "compute its gradients with tf.GradientTape to see the whole traceback",
        ) from error
    return freeze_variables(concrete, lowers_control_flow=True).graph


def _variable_constant(variable: Any) -> Any:
    """Return a constant with a variable's shape and dtype that repeats one number."""
    import tensorflow as tf

    return tf.constant(NUMBER, variable.dtype, variable.shape)


@contextmanager
def _replacing_variables(tensors: Mapping[int, Any]) -> Iterator[None]:
    """Return a context in which reading a variable gives the tensor for its id.

    Functions of the model (tf.function) are traced anew, as they know the variables already.
    """
    import tensorflow as tf
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
    from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

    before, call = BaseResourceVariable._read_variable_op, Function.__call__

    def read_replaced_variable(self: Any, *provided: Any, **named: Any) -> Any:
        """Return the tensor that replaces this variable, or its own value if no tensor does."""
        if id(self) not in tensors:
            return before(self, *provided, **named)
        return tf.identity(tensors[id(self)], name="ReadVariableOp")

    def call_retraced_copy(self: Any, *provided: Any, **named: Any) -> Any:
        """Call a copy of a traced function, which is traced again."""
        return call(self._clone(None), *provided, **named)

    with (
        patching_attribute(
            BaseResourceVariable,
            "_read_variable_op",
            read_replaced_variable,
            inventory.VARIABLE_READS,
        ),
        patching_attribute(Function, "__call__", call_retraced_copy, inventory.FUNCTION_CALLS),
    ):
        yield


def _variables_to_train(function: Any, layers: LayerTable, step: StepSetting) -> Iterator[Any]:
    """Yield the float variables of a traced function that a training step trains."""
    chosen = trainable_parameter_names(layers.rows, step)
    for variable in function.graph.variables:
        if variable.dtype.is_floating and layers.weights.get(id(variable)) in chosen:
            yield variable


def _trained_argument_positions(function: Any, layers: LayerTable, step: StepSetting) -> list[int]:
    """Return the positions of arguments that are trained; [] if the model has parameters."""
    if any(row.params for row in layers.rows):
        return []
    return [
        index
        for index, name in enumerate(argument_names(function))
        if any(matches_weight_pattern(name, pattern) for pattern in step.trainable)
    ]


def _forward_and_backward(
    traced: TracedFunction, step: StepSetting, indices: Iterable[int]
) -> Callable[..., Any]:
    """Return a function that gives outputs, and gradients of weights and of these inputs."""
    import tensorflow as tf

    def outputs_and_gradients(weights: Sequence[Any], *provided: Any, **named: Any) -> Any:
        """Return the model's outputs, and the gradients of the loss that exist."""
        inputs = tf.nest.flatten((provided, named))
        watched = [*weights, *(inputs[index] for index in indices)]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for stored in watched:
                tape.watch(stored)
            outputs = traced.called(*provided, **named)
        ends = _loss_outputs(tf.nest.flatten(outputs), step)
        ones = [tf.ones_like(end) for end in ends]
        gradients = tape.gradient(ends, watched, output_gradients=ones) if ends else []
        return outputs, [gradient for gradient in gradients if gradient is not None]

    return outputs_and_gradients


def _loss_outputs(outputs: Sequence[Any], step: StepSetting) -> list[Any]:
    """Return the float outputs of which the loss is the sum."""
    reached = step.reached or (True,) * len(outputs)
    pairs = zip(outputs, reached, strict=True)
    return [
        end
        for end, is_reached in pairs
        if is_reached and (end.dtype.is_floating or end.dtype.is_complex)
    ]


# Which outputs a loss is made of.

_HINT = "give a callable that maps the model's outputs to one number"
_FROM_OUTPUTS = "compute the loss from float outputs of the model, without tf.stop_gradient"


@quieting_tensorflow()
def loss_dependence_flags(
    source: Source, loss: Callable[[Any], Any], setting: Setting
) -> tuple[bool, ...]:
    """Return for each output, flattened in order, whether the loss depends on it.

    Raises InputError where the loss raises, and for one that is not a number or depends on no
    output.
    """
    import tensorflow as tf

    function = trace_tensorflow_model(
        source.model, source.args, source.kwargs, setting.training
    ).function
    with tf.Graph().as_default():
        results = tf.nest.map_structure(
            lambda spec: tf.compat.v1.placeholder(spec.dtype, spec.shape),
            function.structured_outputs,
        )
        try:
            value = tf.convert_to_tensor(loss(results))
        except Exception as error:
            message = f"the loss raised {type(error).__name__}: {short_error_text(error)}"
            raise InputError(message, _HINT) from error
        if value.shape.num_elements() != 1:
            raise InputError(
                f"the loss is a tensor of {value.shape}, but must be one number", _HINT
            )
        outputs = tf.nest.flatten(results)
        gradients = [tf.gradients(value, one_output)[0] for one_output in outputs]
    if all(gradient is None for gradient in gradients):
        raise InputError("the loss depends on no output of the model", _FROM_OUTPUTS)
    return tuple(gradient is not None for gradient in gradients)
