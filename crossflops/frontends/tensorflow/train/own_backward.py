"""Build and count the program of each custom gradient by itself."""

from typing import Any, NamedTuple

from crossflops.errors import CrossflopsError
from crossflops.frontends.frontend import Source
from crossflops.frontends.own_gradients import backward_cost_of_graph, unknown_custom_backward_cost
from crossflops.frontends.tensorflow.convert.own_gradients import (
    OwnGradient,
    custom_gradient_uses,
    gradient_closure_variables,
)
from crossflops.frontends.tensorflow.load.messages import short_error_text
from crossflops.frontends.tensorflow.load.quiet import quieting_tensorflow
from crossflops.frontends.tensorflow.program import make_tensorflow_program
from crossflops.frontends.tensorflow.record.freezing import freeze_variables
from crossflops.frontends.tensorflow.record.tracing import trace_tensorflow_model
from crossflops.ir.trace import Setting
from crossflops.ir.training import OwnBackward, OwnBackwards

_MOVES = ("Placeholder", "Identity", "ReadVariableOp", "Const", "NoOp")


@quieting_tensorflow()
def tensorflow_custom_backward_costs(source: Source, setting: Setting) -> OwnBackwards:
    """Return the cost of the backward pass of each custom gradient function that is followed."""
    function = trace_tensorflow_model(
        source.model, source.args, source.kwargs, setting.training
    ).function
    frozen = freeze_variables(function, lowers_control_flow=True).graph
    return tuple(
        _custom_gradient_backward_cost(own)
        for own in custom_gradient_uses(frozen)
        if not own.unfollowed
    )


class _Program(NamedTuple):
    """A custom gradient as a model to count, and the positions of operands with a gradient.

    None means a gradient that only passes its inputs on.
    """

    source: Source | None
    graded: tuple[int, ...]


def _custom_gradient_backward_cost(own: OwnGradient) -> OwnBackward:
    """Return the cost of the backward pass of one custom gradient function."""
    try:
        made = _gradient_program(own)
        if made.source is None:
            return unknown_custom_backward_cost(own.name, made.graded, "")
        graph = make_tensorflow_program(made.source, Setting(grad=False))[1]
        names = [spec.name for spec in graph.outputs]
        return backward_cost_of_graph(own.name, graph, dict(zip(made.graded, names, strict=True)))
    except CrossflopsError as error:
        reason = error.message
    except Exception as error:  # code of the model, or a graph that cannot be taken apart
        reason = f"{type(error).__name__}: {short_error_text(error)}"
    return unknown_custom_backward_cost(
        own.name, range(own.operands), f"its backward pass: {reason}"
    )


def _gradient_program(own: OwnGradient) -> _Program:
    """Return a custom gradient as a function of the gradients of its results and saved values."""
    import tensorflow as tf
    from tensorflow.python.framework.func_graph import FuncGraph
    from tensorflow.python.framework.ops import gradient_registry

    results = [
        t
        for t in tf.nest.flatten(gradient_closure_variables(own.gradient)["result"])
        if tf.is_tensor(t)
    ]
    with results[0].graph.as_default():
        graph = FuncGraph("gradient")
        with graph.as_default():
            provided = [tf.compat.v1.placeholder(t.dtype, t.shape) for t in results]
            made = gradient_registry.lookup(own.gradient)(None, *provided)[own.results :]
            ends = [
                (index, tf.identity(tf.convert_to_tensor(gradient)))
                for index, gradient in enumerate(made)
                if gradient is not None
            ]
    graded = tuple(index for index, _ in ends)
    if all(op.type in _MOVES for op in _operations_needed_for([end for _, end in ends])):
        return _Program(None, graded)
    inputs = [*provided, *_values_from_outside(graph)]
    definition, names = graph.as_graph_def(), [end.name for _, end in ends]

    def gradients_of_values(*values: Any) -> Any:
        """Return the gradients that the custom gradient computes from these values."""
        stored = {tensor.name: value for tensor, value in zip(inputs, values, strict=True)}
        return tf.graph_util.import_graph_def(
            definition, input_map=stored, return_elements=names, name=""
        )

    specs = tuple(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs)
    return _Program(Source(tf.function(gradients_of_values, autograph=False), specs, {}), graded)


def _values_from_outside(graph: Any) -> list[Any]:
    """Return the tensors, and the reads of variables, that a graph takes from outside."""
    import tensorflow as tf

    taken = [stored for _, stored in graph.captures]
    tensors = [stored for stored in taken if stored.dtype != tf.resource]
    read = {reader.name: reader for stored in taken for reader in stored.consumers()}
    return [
        *tensors,
        *(op.outputs[0] for op in read.values() if op.type == "ReadVariableOp"),
    ]


def _operations_needed_for(tensors: list[Any]) -> list[Any]:
    """Return the operations on which these tensors depend, with those that make them."""
    known: dict[str, Any] = {}
    todo = [tensor.op for tensor in tensors]
    while todo:
        op = todo.pop()
        if op.name not in known:
            known[op.name] = op
            todo += [tensor.op for tensor in op.inputs]
    return list(known.values())
