"""Turn a TensorFlow or Keras model into an ONNX graph, and a trace of its operations.

In: a model with shapes. Out: a `Graph`, a `Trace` of the frozen graph's operations, and the bytes
of an ONNX model.
May import: frontends, load, ir, patches, errors.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from crossflops.errors import InputError, TargetError
from crossflops.frontends.frontend import (
    Frontend,
    ModelRun,
    Program,
    Recording,
    Run,
    RunnableModel,
    ShapeTracedFrontend,
    Source,
)
from crossflops.frontends.inputs import Arguments, to_call_arguments
from crossflops.frontends.named import Library, NamedModel
from crossflops.ir.graph import Graph, TensorSpec
from crossflops.ir.trace import Setting
from crossflops.ir.training import OwnBackwards


class TensorFlow(ShapeTracedFrontend):
    """The frontend of Keras and TensorFlow models, traced on shapes, frozen, and converted by
    tf2onnx.
    """

    name = "tensorflow"
    title = "TensorFlow"
    models = ("Keras", "TensorFlow")
    extra = "tensorflow"
    packages = ("tensorflow", "keras", "tf2onnx")
    converter = "tf2onnx"
    converted_by = "python -m tf2onnx.convert"
    versions = (("tensorflow", "tensorflow"), ("keras", "keras"))
    suffixes = (".keras", ".h5", ".pb")
    runtime = "keras"
    traces_into_folder = True
    has_control = True
    knows_trained = True
    takes_parameters = True

    def model_libraries(self) -> tuple[Library, ...]:
        """Return the libraries with models by name: keras.applications alone."""
        from crossflops.frontends.tensorflow.load.applications import LIBRARIES

        return LIBRARIES

    def recognizes(self, value: object) -> bool:
        """Return whether the value is a model, layer or function of TensorFlow or Keras."""
        if not {"keras", "tensorflow"} & sys.modules.keys():
            return False
        from crossflops.frontends.tensorflow.kinds import is_tensorflow_model

        return is_tensorflow_model(value)

    def is_model_function(self, value: object) -> bool:
        """Return whether a value is a plain function of tensors, by the names in its code."""
        from crossflops.frontends.tensorflow.kinds import is_tensor_function_without_keras

        return is_tensor_function_without_keras(value)

    def model_and_inputs(self, value: Any, inputs: Any) -> tuple[Any, Any] | None:
        """Return a plain function of tensors as a tf.function, and None; None for other values."""
        from crossflops.frontends.tensorflow.kinds import is_plain_tensor_function

        if not is_plain_tensor_function(value, inputs):
            return None
        return import_module("tensorflow").function(value), None

    def default_input(self, model: Any, sizes: Mapping[str, int] = {}) -> NamedModel | None:
        """Return the default inputs that a model itself declares, or None if it declares none."""
        if not {"keras", "tensorflow"} & sys.modules.keys():
            return None
        from crossflops.frontends.tensorflow.load.default_inputs import default_keras_input

        return default_keras_input(model, sizes)

    def can_read(self, target: str) -> bool:
        """Return whether a target is a file of Keras or TensorFlow, or a SavedModel folder."""
        if target.endswith(".onnx") and os.path.isfile(target):
            return False  # most files, which need none of this frontend
        from crossflops.frontends.tensorflow.kinds import is_tensorflow_file

        return is_tensorflow_file(target)

    def read_model(self, target: str, arguments: Mapping[str, object], allow_pickle: bool) -> Any:
        """Return the model in a Keras file, SavedModel or frozen graph. Raises TargetError."""
        if arguments:
            raise TargetError(
                f"{target} is a saved model, so --arg cannot be used", "leave out --arg"
            )
        from crossflops.frontends.tensorflow.load.reading import read_tensorflow_model

        return read_tensorflow_model(target, allow_pickle)

    def building_model(self) -> AbstractContextManager[None]:
        """Return a context in which TensorFlow's log lines are not written to stderr."""
        from crossflops.frontends.tensorflow.load.quiet import quieting_tensorflow

        return quieting_tensorflow()

    @contextmanager
    def building_model_without_values(self, is_own_model: bool) -> Iterator[None]:
        """Return a context in which large weights of new Keras models take no memory."""
        if is_own_model and find_spec("keras") is not None:
            import_module("keras")
        if "keras.src.backend.tensorflow.core" not in sys.modules:
            yield
            return
        from crossflops.frontends.tensorflow.load.uninitialized import omitting_initial_weights

        with omitting_initial_weights():
            yield

    def require_packages_for(self, model: Any) -> None:
        """Raise an error without TensorFlow or tf2onnx, or if Keras has another backend."""
        with self.building_model():
            from crossflops.frontends.tensorflow.load.function import require_tensorflow

            require_tensorflow()

    def batch_for_model(self, model: Any, values: Any) -> Any:
        """Return the inputs without the labels and weights behind the inputs of a Keras model, as
        Keras takes a batch in `fit`.
        """
        from crossflops.frontends.batches import inputs_of_keras_batch

        return inputs_of_keras_batch(model, values)

    def placeholder_for_spec(self, spec: TensorSpec) -> Any:
        """Return the tf.TensorSpec (shape and dtype without values) of an input with this spec."""
        import tensorflow as tf

        return tf.TensorSpec(spec.shape, spec.dtype, None if spec.name.isdigit() else spec.name)

    def placeholder_for_array(self, array: Any, name: str | None = None) -> Any:
        """Return the tf.TensorSpec (shape and dtype without values) of this array."""
        import tensorflow as tf

        return tf.TensorSpec(array.shape, array.dtype, name)

    def placeholders_for_inputs(self, values: Any) -> Arguments:
        """Return a tf.TensorSpec for each input: a tensor, array or spec, or a list or dict.

        Raises InputError for a value without a shape, and for an open size: TensorFlow's profiler
        counts 0 where the batch is None, and gives no warning.
        """
        args, kwargs = to_call_arguments(values)
        named = {name: self._placeholder_of_value(value, name) for name, value in kwargs.items()}
        return tuple(map(self._placeholder_of_value, args)), named

    def with_axis_size(self, tensor: Any, axis: int, size: int) -> Any:
        """Return the tf.TensorSpec with another size along an axis."""
        import tensorflow as tf

        shape = (*tensor.shape[:axis], size, *tensor.shape[axis + 1 :])
        return tf.TensorSpec(shape, tensor.dtype, tensor.name)

    def _placeholder_of_value(self, value: Any, name: str | None = None) -> Any:
        """Return the tf.TensorSpec of an input, or a list or dict of them. Raises InputError."""
        if isinstance(value, Mapping):
            return {
                key: self._placeholder_of_value(stored, str(key)) for key, stored in value.items()
            }
        if isinstance(value, list | tuple) and all(hasattr(stored, "shape") for stored in value):
            return [self._placeholder_of_value(stored) for stored in value]
        try:
            spec = self.placeholder_for_array(value, name)
        except (AttributeError, TypeError, ValueError) as error:
            raise InputError(
                f"an input is a {type(value).__name__}, which has no shape and type",
                "give a tensor, an array or a tf.TensorSpec",
            ) from error
        if not spec.shape.is_fully_defined():
            raise InputError(
                f"the input has the shape {spec.shape}, in which a size is unknown",
                "give a number for every size, including the batch",
            )
        return spec

    def check_inputs(self, source: Source, setting: Setting) -> None:
        """Raise InputError if the model cannot be traced; then reset Keras's layer numbers."""
        from crossflops.frontends.tensorflow.record.tracing import trace_tensorflow_model

        try:
            trace_tensorflow_model(source.model, source.args, source.kwargs, setting.training)
        finally:
            keras = sys.modules.get("keras")
            if keras is not None:
                keras.utils.clear_session()

    def record(
        self,
        source: Source,
        setting: Setting,
        views: Sequence[Setting],
        runs: Callable[[], Any] | None,
    ) -> Recording:
        """Return the recording of the model traced and frozen; it is not run."""
        from crossflops.frontends.tensorflow.program import record_frozen_model

        seen = record_frozen_model(source.model, source.args, source.kwargs, setting)
        return Recording(source, setting, tuple(views), detail=seen)

    def convert(self, recording: Recording, run: Run | None) -> Program:
        """Return the ONNX model as bytes, its graph, and a trace of the operations."""
        from crossflops.frontends.tensorflow.program import convert_frozen_model

        return convert_frozen_model(recording.source, recording.detail, recording.setting, run)

    def convert_with_weights(self, source: Source, setting: Setting) -> tuple[bytes, Graph]:
        """Return the ONNX model with its weights as bytes, and its graph."""
        from crossflops.frontends.tensorflow.load.function import is_rebuilt_from_onnx
        from crossflops.frontends.tensorflow.program import convert_with_weights

        if is_rebuilt_from_onnx(source.model):
            return super().convert_with_weights(source, setting)
        return convert_with_weights(source, setting)

    def loss_reached_outputs(
        self, source: Source, loss: Callable[[Any], Any], setting: Setting
    ) -> tuple[bool, ...]:
        """Return for each output whether the loss depends on it, by TensorFlow's gradients."""
        from crossflops.frontends.tensorflow.observe.training_step import loss_dependence_flags

        return loss_dependence_flags(source, loss, setting)

    def custom_backward_costs(self, source: Source, setting: Setting) -> OwnBackwards:
        """Return the cost of the backward pass of each custom gradient function in the model."""
        from crossflops.frontends.tensorflow.train.own_backward import (
            tensorflow_custom_backward_costs,
        )

        return tensorflow_custom_backward_costs(source, setting)

    def limit_threads(self, threads: int) -> None:
        """Set TensorFlow's number of threads by environment variables, before it is imported."""
        os.environ["TF_NUM_INTRAOP_THREADS"] = str(threads)
        os.environ["TF_NUM_INTEROP_THREADS"] = "1"

    def prepare_run(self, source: Source, threads: int, setting: Setting) -> RunnableModel:
        """Return the traced model, ready to be timed or profiled."""
        from crossflops.frontends.tensorflow.observe.running_models import prepare_tensorflow_run

        return prepare_tensorflow_run(source, threads, setting)

    def run_and_measure_rounding(self, source: Source, setting: Setting) -> ModelRun:
        """Run the model; return its inputs, outputs, and how much rounding changes them."""
        from crossflops.frontends.tensorflow.observe.outputs import (
            run_tensorflow_and_measure_rounding,
        )

        return run_tensorflow_and_measure_rounding(source, setting)


FRONTEND: Frontend = TensorFlow()
