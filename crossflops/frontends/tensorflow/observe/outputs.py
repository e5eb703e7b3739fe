"""Run a TensorFlow model, and return its inputs and outputs as arrays."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from crossflops.errors import InputError
from crossflops.frontends.frontend import ModelRun, Source
from crossflops.frontends.rounding import (
    make_random_array,
    measure_rounding_changes,
    randomly_rounded_array,
)
from crossflops.frontends.tensorflow.load.function import function_arguments
from crossflops.frontends.tensorflow.load.messages import short_error_text
from crossflops.frontends.tensorflow.load.quiet import quieting_tensorflow
from crossflops.frontends.tensorflow.load.uninitialized import require_variable_values
from crossflops.frontends.tensorflow.record.freezing import freeze_variables
from crossflops.frontends.tensorflow.record.tracing import trace_tensorflow_model
from crossflops.ir.trace import Setting

_DRAWING = ("Random", "Multinomial", "RngReadAndSkip", "TruncatedNormal")


@quieting_tensorflow()
def run_tensorflow_and_measure_rounding(source: Source, setting: Setting) -> ModelRun:
    """Run the model; return inputs, outputs, which are random, and changes by rounding.

    Its frozen graph runs with weights and inputs that differ by one rounding. Raises InputError.
    """
    import tensorflow as tf

    function = trace_tensorflow_model(
        source.model, source.args, source.kwargs, setting.training
    ).function
    require_variable_values(function.graph.variables)
    frozen = freeze_variables(function, lowers_control_flow=False, keeps_weights=True)
    if any(tensor.dtype.name in ("resource", "string") for tensor in frozen.inputs):
        raise InputError(
            "--verify is not possible: the model has lookup tables or text inputs",
            "leave out --verify",
        )
    values = _tensorflow_input_values(source, frozen)
    try:
        results = function._call_flat(list(map(tf.constant, values)), function.captured_inputs)
    except tf.errors.OpError as error:
        raise InputError(
            f"in the run of --verify, the model raised {type(error).__name__}: "
            f"{short_error_text(error)}",
            "give inputs that the model accepts with --inputs FILE.npz, or leave out --verify",
        ) from error
    outputs = [result.numpy() for result in tf.nest.flatten(results, expand_composites=True)]
    drawn = [_is_random_output(tensor) for tensor in frozen.outputs]
    return measure_rounding_changes(
        values, outputs, drawn, lambda by: _run_rounded(frozen, values, by)
    )


def _tensorflow_input_values(source: Source, frozen: Any) -> list[Any]:
    """Return the values of the inputs in order: those of the caller, or random ones."""
    import tensorflow as tf

    if source.arrays is not None:
        provided = tf.nest.flatten(
            function_arguments(source.model, *source.arrays, training=False)
        )
        tensors = [value for value in provided if hasattr(value, "shape")]
        if len(tensors) == len(frozen.inputs):
            return [
                np.asarray(value, spec.dtype.as_numpy_dtype)
                for value, spec in zip(tensors, frozen.inputs, strict=True)
            ]
    return [
        make_random_array(spec.shape.as_list(), spec.dtype.as_numpy_dtype)
        for spec in frozen.inputs
    ]


def _run_rounded(frozen: Any, values: list[Any], generator: Any) -> list[Any]:
    """Return the outputs of a frozen function whose constants and inputs are rounded in another
    way.
    """
    import tensorflow as tf

    graph_def = frozen.graph.as_graph_def()
    for node in graph_def.node:
        tensor = node.attr["value"].tensor
        if node.op == "Const" and tf.as_dtype(tensor.dtype).is_floating:
            rounded = randomly_rounded_array(tf.make_ndarray(tensor), generator)
            tensor.CopyFrom(tf.make_tensor_proto(rounded))
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        feeds = {
            spec.name: randomly_rounded_array(value, generator)
            for spec, value in zip(frozen.inputs, values, strict=True)
        }
        with tf.compat.v1.Session(graph=graph) as session:
            results: list[Any] = session.run([out.name for out in frozen.outputs], feeds)
    return list(map(np.asarray, results))


def _is_random_output(output: Any) -> bool:
    """Return whether a tensor depends on an operation that draws random numbers."""
    functions = {
        stored.signature.name: stored for stored in output.graph.as_graph_def().library.function
    }
    todo, known = [output.op], {output.op.name}
    for op in todo:
        if any(
            word in kind
            for kind in _operation_kinds_inside(op.node_def, functions)
            for word in _DRAWING
        ):
            return True
        makers = [tensor.op for tensor in op.inputs if tensor.op.name not in known]
        known.update(maker.name for maker in makers)
        todo += makers
    return False


def _operation_kinds_inside(node: Any, functions: dict[str, Any]) -> Iterator[str]:
    """Yield the type of an operation, and of all operations in functions that it calls."""
    yield node.op
    for attribute in node.attr.values():
        for stored in (attribute.func, *attribute.list.func):
            if stored.name in functions:
                for inner in functions[stored.name].node_def:
                    yield from _operation_kinds_inside(inner, functions)
