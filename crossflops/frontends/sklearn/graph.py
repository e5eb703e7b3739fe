"""Turn a fitted estimator into an ONNX graph, and a table of its steps as modules."""

from collections.abc import Mapping
from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.sklearn.passes import PIPELINE, EstimatorConversion
from crossflops.ir.graph import Graph, TensorSpec
from crossflops.ir.trace import Setting, Trace


def estimator_program(
    model: Any, args: tuple[TensorSpec, ...], kwargs: Mapping[str, TensorSpec], setting: Setting
) -> tuple[bytes, Graph, Trace]:
    """Return an estimator's ONNX model as bytes, its graph, and a trace with its modules.

    Modules are the steps of pipelines and the members of ensembles, as far as skl2onnx makes nodes
    of their own for them; the parameters of the others are those of the enclosing module. No calls
    are recorded. Raises InputError for inputs of another width than in fitting, NormalizeError
    where skl2onnx fails.
    """
    if setting.training:
        raise InputError(
            "--train-mode can be used only with models that have a training mode",
            "leave out --train-mode",
        )
    _check_estimator_inputs(model, args, kwargs)
    trace = Trace(calls=(), modules=(), setting=setting, framework="sklearn")
    made = PIPELINE.run(EstimatorConversion(model=model, args=args, kwargs=kwargs, trace=trace))
    return made.data, made.current_graph, made.trace


def _check_estimator_inputs(
    model: Any, args: tuple[TensorSpec, ...], kwargs: Mapping[str, TensorSpec]
) -> None:
    """Raise InputError if X has another number of columns than in fitting."""
    wide = getattr(model, "n_features_in_", None)
    hint = f"give the shape of its rows, such as --input 1x{wide or 'FEATURES'}"
    if not args and not kwargs:
        raise InputError("the shape of the model's input is missing", hint)
    provided = [*args, *kwargs.values()]
    if len(provided) == 1 and wide is not None:
        dims = provided[0].shape or ()
        if len(dims) != 2 or dims[1] != wide:
            shown = f"has the shape {'x'.join(map(str, dims))}" if dims else "is a scalar"
            raise InputError(
                f"the model was fitted on {wide} features, but the input {shown}", hint
            )
