"""Turn a TensorFlow or Keras model into an ONNX graph, and a trace of its operations."""

from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

import msgspec
import numpy as np

from crossflops.frontends.converted import parameter_size_fields, require_weights_fit_in_file
from crossflops.frontends.decided import Runnable
from crossflops.frontends.frontend import Run, Source
from crossflops.frontends.tensorflow.convert.converter import DOMAIN
from crossflops.frontends.tensorflow.convert.gradients import make_names_unique
from crossflops.frontends.tensorflow.convert.operators import computing_operations, operation_calls
from crossflops.frontends.tensorflow.convert.own_gradients import custom_gradient_uses
from crossflops.frontends.tensorflow.convert.tensorflow_only_operations import (
    with_tensorflow_results_as_inputs,
)
from crossflops.frontends.tensorflow.load.function import (
    function_arguments,
    is_rebuilt_from_onnx,
    may_have_constant_weights,
)
from crossflops.frontends.tensorflow.load.quiet import quieting_tensorflow
from crossflops.frontends.tensorflow.load.uninitialized import require_variable_values
from crossflops.frontends.tensorflow.passes import (
    PIPELINE,
    TO_BYTES,
    TO_FILE,
    TensorFlowConversion,
)
from crossflops.frontends.tensorflow.record.freezing import freeze_variables
from crossflops.frontends.tensorflow.record.layers import (
    KerasLayers,
    LayerTable,
    NamedLayers,
    function_variables,
)
from crossflops.frontends.tensorflow.record.tracing import TracedFunction, trace_tensorflow_model
from crossflops.ir.graph import Graph
from crossflops.ir.measurement import Observation
from crossflops.ir.trace import Parameter, Setting, Trace


@quieting_tensorflow()
def make_tensorflow_program(
    source: Source, setting: Setting, run: Run | None = None
) -> tuple[bytes, Graph, Trace]:
    """Record and convert a model; return its ONNX model as bytes, its graph and its trace."""
    seen = record_frozen_model(source.model, source.args, source.kwargs, setting)
    return convert_frozen_model(source, seen, setting, run)


@quieting_tensorflow()
def convert_frozen_model(
    source: Source, seen: "FrozenModel", setting: Setting, run: Run | None = None
) -> tuple[bytes, Graph, Trace]:
    """Return the ONNX model of a recorded model as bytes, its graph, and its trace.

    Large weights are in the ONNX model by shape alone. The source's `control` names nodes of the
    ONNX model; its `arrays` are the values of the inputs, where there are any, on which `run` runs
    parts that depend on them.

    The graph is made from the frozen function with loops and branches whole, the operator calls
    are those of the frozen graph as TensorFlow runs it, with loops lowered. Raises NormalizeError
    where the model cannot be converted.
    """
    model, control = source.model, source.control
    if is_rebuilt_from_onnx(model):
        rebuilt: tuple[bytes, Graph, Trace] = model.graph_of_recorded_run(seen, setting)
        return rebuilt

    def run_with_tensorflow_results(data: bytes, feeds: Mapping[str, Any]) -> Observation:
        """Run the ONNX model; return what the run showed, with its inputs as known values."""
        assert run is not None
        observed = run(data, feeds)
        # what TensorFlow has made is an input of the run, and a result in the graph
        return msgspec.structs.replace(observed, values={**observed.inputs, **observed.values})

    made = PIPELINE.run(
        TensorFlowConversion(
            traced=seen.traced,
            trace=seen.trace,
            name=seen.name,
            control=control,
            run=run_with_tensorflow_results if run is not None else None,
            runnable=partial(_runnable_model_and_inputs, source, seen.traced),
            lowered=seen.operation_graph,
            lowered_function=seen.function,
            layers=seen.layers,
            owns=custom_gradient_uses(seen.operation_graph),
            sizes=_parameter_sizes(model, seen),
        )
    )
    return made.data, made.current_graph, made.trace


def _runnable_model_and_inputs(source: Source, traced: TracedFunction) -> Runnable:
    """Return an ONNX model with its weights as bytes, and the values of its inputs by name."""
    import tensorflow as tf

    require_variable_values(traced.function.graph.variables)
    made, provided = TO_BYTES.run(TensorFlowConversion(traced=traced, weighted=True)), {}
    if source.arrays is not None:
        values = tf.nest.flatten(function_arguments(source.model, *source.arrays, training=False))
        names = [tensor.name for tensor in traced.function.inputs]
        provided = {
            name: np.asarray(value)
            for name, value in zip(names, values, strict=False)
            if not isinstance(value, tf.TensorSpec)
        }
    return with_tensorflow_results_as_inputs(
        made.data, DOMAIN, made.whole, traced.function, provided
    )


@quieting_tensorflow()
def convert_with_weights(source: Source, setting: Setting) -> tuple[bytes, Graph]:
    """Return the ONNX model with its weights as bytes, and its graph.

    Raises NormalizeError as `make_tensorflow_program` does, InputError for weights that no such
    file can hold.
    """
    seen = record_frozen_model(source.model, source.args, source.kwargs, setting)
    function = seen.traced.function
    require_variable_values(function.graph.variables)
    require_weights_fit_in_file(
        sum(stored.dtype.size * prod(stored.shape) for stored in function_variables(function))
    )
    made = TO_FILE.run(
        TensorFlowConversion(
            traced=seen.traced,
            trace=seen.trace,
            name=seen.name,
            control=source.control,
            lowered=seen.operation_graph,
            weighted=True,
        )
    )
    return made.data, made.current_graph


class FrozenModel(msgspec.Struct, frozen=True):
    """A model as TensorFlow would run it: traced and frozen, with a trace of its operations.

    `operation_graph` is the graph of the frozen `function`.
    """

    name: str
    traced: TracedFunction
    function: Any
    layers: LayerTable
    trace: Trace

    @property
    def operation_graph(self) -> Any:
        """The graph as TensorFlow runs it: loops and branches are Enter, Merge, Switch, ..."""
        return self.function.graph


@quieting_tensorflow()
def record_frozen_model(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting
) -> FrozenModel:
    """Return the model traced on inputs of these shapes, and frozen.

    The trace has its operations, which is all that a prediction needs. Raises InputError where
    the model does not take these inputs, NormalizeError where it cannot be frozen.
    """
    traced_model = trace_tensorflow_model(model, args, kwargs, setting.training)
    function = freeze_variables(traced_model.function, lowers_control_flow=True)
    frozen = function.graph
    layers = layer_table_of(model, traced_model, frozen)
    trace = Trace(
        calls=operation_calls(frozen, layers),
        modules=layers.rows,
        setting=setting,
        framework="tensorflow",
        loops_alike=True,
    )
    return FrozenModel(_tensorflow_model_name(model), traced_model, function, layers, trace)


def _tensorflow_model_name(model: Any) -> str:
    """Return the name of a model; without one "SavedModel" or the name of its class."""
    own = getattr(model, "name", "")
    if isinstance(own, str) and own:
        return own
    return "SavedModel" if hasattr(model, "signatures") else type(model).__name__


def layer_table_of(model: Any, traced_model: TracedFunction, frozen: Any) -> LayerTable:
    """Return the module table of a model: Keras layers, or modules in operation names."""
    if is_rebuilt_from_onnx(model):
        rows: LayerTable = model.layers()
        return rows
    if hasattr(model, "_flatten_layers"):
        return KerasLayers(model, traced_model.scopes)
    layers = NamedLayers(
        [op.name for op in computing_operations(frozen)], _tensorflow_model_name(model)
    )
    stored = function_variables(traced_model.function)
    names = make_names_unique(variable.name.partition(":")[0] for variable in stored)
    layers.weights = {id(variable): name for name, variable in zip(names, stored, strict=True)}
    own = tuple(
        Parameter(name, tuple(variable.shape), number, variable.dtype.name, variable.trainable)
        for number, (name, variable) in enumerate(zip(names, stored, strict=True))
    )
    layers.rows = (msgspec.structs.replace(layers.rows[0], params=own), *layers.rows[1:])
    return layers


def _parameter_sizes(model: Any, seen: FrozenModel) -> dict[str, Any]:
    """Return fields of a graph: number and bytes of a model's parameters; {} if unknown.

    Empty for a graph that was frozen already: its constants were variables. The constants of a
    function are not parameters (a matrix of a transform, a window).
    """
    rows = seen.trace.modules
    return (
        {}
        if may_have_constant_weights(model) and not any(row.params for row in rows)
        else parameter_size_fields(rows)
    )
