"""A TensorFlow or Keras model -> an ONNX graph and the trace of the operations in its graph.

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
    OnShapes,
    Program,
    Ready,
    Recording,
    Run,
    Source,
)
from crossflops.frontends.inputs import Arguments, to_call_arguments
from crossflops.frontends.named import Library, Named
from crossflops.ir.graph import Graph, TensorSpec
from crossflops.ir.trace import Setting
from crossflops.ir.training import OwnBackwards


class TensorFlow(OnShapes):
    """Models of Keras and TensorFlow, traced on shapes, frozen, and converted by tf2onnx."""

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

    def libraries(self) -> tuple[Library, ...]:
        """keras.applications."""
        from crossflops.frontends.tensorflow.load.applications import LIBRARIES

        return LIBRARIES

    def recognizes(self, value: object) -> bool:
        """Whether TensorFlow or Keras made this."""
        from crossflops.frontends.tensorflow.kinds import is_model

        return is_model(value)

    def is_function(self, value: object) -> bool:
        """Whether this is a plain function of tensors, by what it names."""
        from crossflops.frontends.tensorflow.kinds import is_function

        return is_function(value)

    def model_and_inputs(self, value: Any, inputs: Any) -> tuple[Any, Any] | None:
        """A plain function as a tf.function, where it is one of tensors of TensorFlow."""
        from crossflops.frontends.tensorflow.kinds import is_of_tensors

        if not is_of_tensors(value, inputs):
            return None
        return import_module("tensorflow").function(value), None

    def usual_input(self, model: Any) -> Named | None:
        """See `usual.usual_input`."""
        if not {"keras", "tensorflow"} & sys.modules.keys():
            return None
        from crossflops.frontends.tensorflow.load.usual import usual_input

        return usual_input(model)

    def reads(self, target: str) -> bool:
        """Whether this is a file of Keras or TensorFlow, or the folder of a SavedModel."""
        from crossflops.frontends.tensorflow.kinds import is_path

        return is_path(target)

    def read(self, target: str, arguments: Mapping[str, object], allow_pickle: bool) -> Any:
        """See `reading.read_tensorflow_model`."""
        if arguments:
            raise TargetError(f"{target} is a model already", "leave --arg out")
        from crossflops.frontends.tensorflow.load.reading import read_tensorflow_model

        return read_tensorflow_model(target, allow_pickle)

    def building(self) -> AbstractContextManager[None]:
        """TensorFlow's log lines are kept off stderr, also while it is imported."""
        from crossflops.frontends.tensorflow.load.quiet import quiet

        return quiet()

    @contextmanager
    def hollow(self, sure: bool) -> Iterator[None]:
        """Weights of Keras have no memory, where it is imported and runs on TensorFlow."""
        if sure and find_spec("keras") is not None:
            import_module("keras")
        if "keras.src.backend.tensorflow.core" not in sys.modules:
            yield
            return
        from crossflops.frontends.tensorflow.load.uninitialized import omitting_initial_weights

        with omitting_initial_weights():
            yield

    def require(self, model: Any) -> None:
        """See `function.require_tensorflow`."""
        with self.building():
            from crossflops.frontends.tensorflow.load.function import require_tensorflow

            require_tensorflow()

    def placeholder(self, spec: TensorSpec) -> Any:
        """A tf.TensorSpec."""
        import tensorflow as tf

        return tf.TensorSpec(spec.shape, spec.dtype, None if spec.name.isdigit() else spec.name)

    def shape_of(self, array: Any, name: str | None = None) -> Any:
        """A tf.TensorSpec."""
        import tensorflow as tf

        return tf.TensorSpec(array.shape, array.dtype, name)

    def shapes(self, values: Any) -> Arguments:
        """Return what stands for tensors, arrays or specs, also in lists and dicts.

        Raises InputError for a value without a shape, and for a size that is left open:
        TensorFlow's profiler counts 0 where the batch is None, and says nothing.
        """
        args, kwargs = to_call_arguments(values)
        named = {name: self._shape(value, name) for name, value in kwargs.items()}
        return tuple(map(self._shape, args)), named

    def _shape(self, value: Any, name: str | None = None) -> Any:
        if isinstance(value, Mapping):
            return {key: self._shape(stored, str(key)) for key, stored in value.items()}
        if isinstance(value, list | tuple) and all(hasattr(stored, "shape") for stored in value):
            return [self._shape(stored) for stored in value]
        try:
            spec = self.shape_of(value, name)
        except (AttributeError, TypeError, ValueError) as error:
            raise InputError(
                f"an input is a {type(value).__name__}, which has no shape and type",
                "give a tensor, an array or a tf.TensorSpec",
            ) from error
        if not spec.shape.is_fully_defined():
            raise InputError(
                f"the input has the shape {spec.shape}, which is not definite",
                "give a number for every size, the batch too",
            )
        return spec

    def fits(self, source: Source, setting: Setting) -> None:
        """Traces the model, and lets Keras number its layers from the start again."""
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
        """Trace the model and freeze it: `program.record_frozen_model`. Runs show nothing more."""
        from crossflops.frontends.tensorflow.program import record_frozen_model

        seen = record_frozen_model(source.model, source.args, source.kwargs, setting)
        return Recording(source, setting, tuple(views), detail=seen)

    def convert(self, recording: Recording, run: Run | None) -> Program:
        """Convert the frozen graph: see `program.convert_frozen_model`."""
        from crossflops.frontends.tensorflow.program import convert_frozen_model

        return convert_frozen_model(recording.source, recording.detail, recording.setting, run)

    def with_weights(self, source: Source, setting: Setting) -> tuple[bytes, Graph]:
        """See `program.with_weights`."""
        from crossflops.frontends.tensorflow.load.function import is_rebuilt
        from crossflops.frontends.tensorflow.program import with_weights

        if is_rebuilt(source.model):
            return super().with_weights(source, setting)
        return with_weights(source, setting)

    def loss_reached_outputs(
        self, source: Source, loss: Callable[[Any], Any], setting: Setting
    ) -> tuple[bool, ...]:
        """By the gradients of the loss in a graph."""
        from crossflops.frontends.tensorflow.observe.training_step import loss_dependence_flags

        return loss_dependence_flags(source, loss, setting)

    def own_backwards(self, source: Source, setting: Setting) -> OwnBackwards:
        """By the programs of their gradients."""
        from crossflops.frontends.tensorflow.train.own_backward import tensorflow_own_backwards

        return tensorflow_own_backwards(source, setting)

    def limit_threads(self, threads: int) -> None:
        """TensorFlow reads how many threads it takes once, when it starts."""
        os.environ["TF_NUM_INTRAOP_THREADS"] = str(threads)
        os.environ["TF_NUM_INTEROP_THREADS"] = "1"

    def ready(self, source: Source, threads: int, setting: Setting) -> Ready:
        """The concrete function: see `running_models.tensorflow_runner`."""
        from crossflops.frontends.tensorflow.observe.running_models import tensorflow_runner

        return tensorflow_runner(source, threads, setting)

    def outputs(self, source: Source, setting: Setting) -> ModelRun:
        """See `outputs.run_tensorflow_outputs`."""
        from crossflops.frontends.tensorflow.observe.outputs import run_tensorflow_outputs

        return run_tensorflow_outputs(source, setting)


FRONTEND: Frontend = TensorFlow()
