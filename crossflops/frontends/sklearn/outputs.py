"""Run an estimator, and return the results of its methods as the outputs of its file."""

import copy
import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from crossflops.errors import InputError
from crossflops.frontends.frontend import ModelRun, Source
from crossflops.frontends.rounding import (
    make_random_array,
    measure_rounding_changes,
    randomly_rounded_array,
)
from crossflops.frontends.sklearn.converter import estimator_behind_search
from crossflops.frontends.sklearn.estimators import estimator_parts
from crossflops.frontends.sklearn.graph import estimator_program
from crossflops.frontends.sklearn.lost_settings import last_pipeline_step
from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Setting
from crossflops.load.protobuf import parse_model_proto
from crossflops.threads import filter_warnings

_SKIP = "leave out --verify"
_FLOATS = "fc"


def run_estimator_and_measure_rounding(source: Source, setting: Setting) -> ModelRun:
    """Run an estimator; return its inputs, outputs as in its file, and changes by rounding.

    The methods run again with inputs, and arrays of the estimators, rounded differently by up to a
    step of the type of the file. Raises InputError.
    """
    model = source.model
    data, graph, _ = estimator_program(model, source.args, source.kwargs, setting)
    tensors = {spec.name: spec for spec in graph.outputs}
    specs = [tensors.get(output.name) for output in parse_model_proto(data).graph.output]
    named = {**{str(index): spec for index, spec in enumerate(source.args)}, **source.kwargs}
    if any(spec.dtype == "string" for spec in named.values()):
        raise InputError("--verify is not possible: the model has text inputs", _SKIP)
    values = _estimator_input_values(source, list(named.values()))

    def outputs_of_estimator_methods(estimator: Any, provided: list[Any]) -> list[Any]:
        """Return the results of the estimator's methods on these inputs, one for each output."""
        rows = _method_argument(source.kwargs, provided)
        with filter_warnings("ignore"):
            return [_method_output(estimator, rows, spec) for spec in specs]

    def outputs_of_rounded_arrays(generator: Any) -> list[Any]:
        """Return the outputs with inputs and learned arrays that are rounded differently."""
        provided = [randomly_rounded_array(value, generator) for value in values]
        return outputs_of_estimator_methods(_with_rounded_arrays(model, generator), provided)

    try:
        outputs = outputs_of_estimator_methods(model, values)
    except InputError:
        raise
    except Exception as error:  # whatever it is, it does not run on these
        raise InputError(
            f"in the run of --verify, the model raised {type(error).__name__}: {error}",
            "give inputs that the model accepts with --inputs FILE.npz, or leave out --verify",
        ) from error
    return measure_rounding_changes(
        values, outputs, [False] * len(outputs), outputs_of_rounded_arrays
    )


def _estimator_input_values(source: Source, specs: list[TensorSpec]) -> list[Any]:
    """Return the values of the inputs in order: those of the caller, or random ones."""
    if source.arrays is None:
        return [make_random_array(spec.shape or (), np.dtype(spec.dtype)) for spec in specs]
    args, kwargs = source.arrays
    provided = [*args, *kwargs.values()]
    if len(provided) == 1 and hasattr(provided[0], "columns"):
        provided = [provided[0][name] for name in provided[0].columns]
    return [
        np.asarray(value, spec.dtype).reshape(spec.shape)
        for value, spec in zip(provided, specs, strict=True)
    ]


def _method_argument(columns: Mapping[str, TensorSpec], values: list[Any]) -> Any:
    """Return the argument of an estimator's methods: one array, or a frame of named columns."""
    if not columns:
        return values[0]
    try:
        pandas: Any = importlib.import_module("pandas")
    except ImportError as error:
        raise InputError(
            "a model with named columns needs a pandas DataFrame, but pandas is not installed",
            "pip install pandas",
        ) from error
    return pandas.DataFrame(
        {name: value[:, 0] for name, value in zip(columns, values, strict=True)}
    )


def _method_output(model: Any, rows: Any, spec: TensorSpec | None) -> Any:
    """Return the estimator's result for an output of its file. Raises InputError."""
    if spec is None:
        raise InputError(
            f"the file of {type(model).__name__} returns lists of arrays, which --verify "
            "cannot compare",
            _SKIP,
        )
    method, index = _method_and_result_index(model, spec.name)
    result = getattr(model, method)(rows) if method else None
    result = result[index] if isinstance(result, tuple) else result
    if result is None or isinstance(result, list):
        raise InputError(
            f"no method of {type(model).__name__} returns the output {spec.name!r} of its file",
            _SKIP,
        )
    array = np.asarray(result.toarray() if hasattr(result, "toarray") else result)
    if spec.dtype == "string":
        array = array.astype(object)
    elif array.dtype.kind != "O":
        array = array.astype(spec.dtype)
    elements = np.prod(spec.shape) if spec.shape is not None else 0
    if method == "decision_function" and elements == 2 * array.size:
        array = _scores_of_both_classes(model, array)
    return array.reshape(spec.shape) if elements == array.size else array


def _scores_of_both_classes(model: Any, scores: Any) -> Any:
    """Return two-class scores as skl2onnx writes them: one column is the other one negated.

    For support vectors the first class has the score that the second one has elsewhere
    (skl2onnx/operator_converters/support_vector_machines.py).
    """
    is_first = type(last_pipeline_step(estimator_behind_search(model))).__name__ in (
        "SVC",
        "NuSVC",
    )
    return np.stack([scores, -scores] if is_first else [-scores, scores], axis=-1)


def _method_and_result_index(model: Any, name: str) -> tuple[str, int]:
    """Return (method, index in its result) for an output of the file; method "" if none.

    skl2onnx/_parse.py names outputs so.
    """
    from sklearn.base import is_regressor
    from sklearn.feature_selection import SelectorMixin

    last = last_pipeline_step(estimator_behind_search(model))
    if name in ("label", "GPmean"):
        return "predict", 0
    if name == "probabilities":
        methods = ("predict_proba", "decision_function")
        return next((method for method in methods if hasattr(model, method)), ""), 0
    if name == "scores":
        return ("decision_function" if hasattr(model, "decision_function") else "transform"), 0
    if name in ("distance", "index"):
        return "kneighbors", ("distance", "index").index(name)
    if is_regressor(last) and not isinstance(last, SelectorMixin):
        return "predict", 0
    return ("transform" if hasattr(model, "transform") else ""), 0


def _with_rounded_arrays(model: Any, generator: Any) -> Any:
    """Return a copy of an estimator with its float arrays as float32, rounded randomly."""
    other = copy.deepcopy(model)
    for part in estimator_parts(other):
        stored = vars(part.estimator)
        for name, value in list(stored.items()):
            if isinstance(value, np.ndarray) and value.dtype.kind in _FLOATS:
                narrow = np.asarray(value, np.float32)
                stored[name] = randomly_rounded_array(narrow, generator).astype(value.dtype)
    return other
