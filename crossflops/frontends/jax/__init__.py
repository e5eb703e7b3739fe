"""Turn a JAX function or a Flax module into an ONNX graph, and a trace of its equations.

In: a callable with shapes. Out: a `Graph`, a `Trace` of equations (and of XLA's instructions,
where these are to be observed) and the bytes of an ONNX model.
May import: frontends, load, operators, ir, patches, errors.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.frontend import (
    Frontend,
    ModelRun,
    Program,
    Recording,
    Run,
    RunnableModel,
    ShapeTracedFrontend,
    Source,
    require_packages,
)
from crossflops.frontends.inputs import PLAIN, Arguments, to_call_arguments
from crossflops.ir.graph import Graph, TensorSpec
from crossflops.ir.trace import Setting
from crossflops.ir.training import OwnBackwards


class Jax(ShapeTracedFrontend):
    """The frontend of JAX functions and Flax modules, traced on shapes and converted by
    jax2onnx.
    """

    name = "jax"
    title = "JAX"
    models = ("JAX",)
    extra = "jax"
    packages = ("jax", "jaxlib", "flax", "jax2onnx")
    converter = "jax2onnx"
    converted_by = "jax2onnx.to_onnx"
    versions = (("jax", "jax"), ("flax", "flax"))
    runtime = "jax"
    traces_into_folder = True
    has_control = True
    knows_trained = True
    takes_parameters = True

    def recognizes(self, value: object) -> bool:
        """Return whether a value is a module of Flax NNX or Equinox, or a Keras model on JAX."""
        from crossflops.frontends.jax.kinds import (
            is_equinox_module,
            is_flax_module,
            is_jax_keras_model,
        )

        return is_flax_module(value) or is_equinox_module(value) or is_jax_keras_model(value)

    def may_be_model(self, value: object) -> bool:
        """Return whether a value is callable while JAX is imported: perhaps a JAX function."""
        return "jax" in sys.modules and callable(value)

    def is_model_function(self, value: object) -> bool:
        """Return whether a function was made by JAX or is defined in a module that imports it."""
        from crossflops.frontends.jax.kinds import is_defined_with_jax, is_jax_transformed_function

        return is_jax_transformed_function(value) or is_defined_with_jax(value)

    def require_packages_for(self, model: Any) -> None:
        """Raise MissingExtraError if JAX or jax2onnx is not installed."""
        require_packages(("jax", "jax2onnx"), "read a JAX model", self.extra)

    def batch_for_model(self, model: Any, values: Any) -> Any:
        """Return the inputs without what the function or module does not take."""
        from crossflops.frontends.batches import fit_batch_to_model

        return fit_batch_to_model(model, values, type(model).__name__)

    def placeholder_for_spec(self, spec: TensorSpec) -> Any:
        """Return the jax.ShapeDtypeStruct (no values) of an input with this spec."""
        import jax
        import jax.numpy as jnp

        return jax.ShapeDtypeStruct(spec.shape, jnp.dtype(spec.dtype))

    def placeholder_for_array(self, array: Any) -> Any:
        """Return the jax.ShapeDtypeStruct (shape and dtype, no values) of this array."""
        import jax

        return jax.ShapeDtypeStruct(array.shape, array.dtype)

    def placeholders_for_inputs(self, values: Any) -> Arguments:
        """Return (args, kwargs) with a jax.ShapeDtypeStruct for each array, also in lists.

        Plain numbers, texts and None are kept: the model is traced for them. Raises InputError for
        other values.
        """
        import jax

        args, kwargs = jax.tree.map(self._placeholder_of_value, to_call_arguments(values))
        return args, kwargs

    def with_axis_size(self, tensor: Any, axis: int, size: int) -> Any:
        """Return the jax.ShapeDtypeStruct with another size along an axis."""
        import jax

        shape = (*tensor.shape[:axis], size, *tensor.shape[axis + 1 :])
        return jax.ShapeDtypeStruct(shape, tensor.dtype)

    def _placeholder_of_value(self, value: Any) -> Any:
        """Return the shape and dtype of an input, or a plain value itself. Raises InputError."""
        if isinstance(value, PLAIN):
            return value
        try:
            return self.placeholder_for_array(value)
        except (AttributeError, TypeError) as error:
            raise InputError(
                f"an input is a {type(value).__name__}, which has no shape and type",
                "give an array or a jax.ShapeDtypeStruct",
            ) from error

    def record(
        self,
        source: Source,
        setting: Setting,
        views: Sequence[Setting],
        runs: Callable[[], Any] | None,
    ) -> Recording:
        """Return the recording of the model as a function of arrays; it is not run."""
        from crossflops.frontends.jax.program import record_jax_model

        seen = record_jax_model(source.model, source.args, source.kwargs, setting)
        return Recording(source, setting, tuple(views), detail=seen)

    def convert(self, recording: Recording, run: Run | None) -> Program:
        """Return the ONNX model as bytes, its graph, and a trace with calls of XLA's programs."""
        from crossflops.frontends.jax.program import convert_jax_model

        return convert_jax_model(recording.source, recording.detail, recording.views, run)

    def convert_with_weights(self, source: Source, setting: Setting) -> tuple[bytes, Graph]:
        """Return the ONNX model with its weights as bytes, and its graph."""
        from crossflops.frontends.jax.program import convert_with_weights

        return convert_with_weights(source, setting)

    def loss_reached_outputs(
        self, source: Source, loss: Callable[[Any], Any], setting: Setting
    ) -> tuple[bool, ...]:
        """Return for each output whether the loss depends on it, by JAX's derivatives."""
        from crossflops.frontends.jax.observe.training_step import jax_loss_dependence

        return jax_loss_dependence(source, loss, setting)

    def custom_backward_costs(self, source: Source, setting: Setting) -> OwnBackwards:
        """Return the cost of the backward pass of each function with a custom derivative."""
        from crossflops.frontends.jax.train.own_backward import jax_custom_backward_costs

        return jax_custom_backward_costs(source, setting)

    def limit_threads(self, threads: int) -> None:
        """Limit this process to `threads` CPUs, since XLA starts one thread for each CPU."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])

    def prepare_run(self, source: Source, threads: int, setting: Setting) -> RunnableModel:
        """Return the model compiled by jax.jit, ready to be timed or profiled."""
        from crossflops.frontends.jax.observe.running_models import prepare_jax_run

        return prepare_jax_run(source, threads, setting)

    def run_and_measure_rounding(self, source: Source, setting: Setting) -> ModelRun:
        """Run the model; return its inputs, outputs, and how much rounding changes them."""
        from crossflops.frontends.jax.observe.outputs import run_jax_and_measure_rounding

        return run_jax_and_measure_rounding(source, setting)


FRONTEND: Frontend = Jax()
