"""Turn a fitted estimator of scikit-learn into an ONNX graph, with its steps as modules.

In: an estimator with the shape of X. Out: a `Graph`, a `Trace` of modules without calls, and the
bytes of an ONNX model.
May import: frontends, load, ir, patches, errors, threads.
"""

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossflops.errors import InputError
from crossflops.frontends.frontend import (
    Frontend,
    ModelRun,
    Program,
    Recording,
    Run,
    ShapeTracedFrontend,
    Source,
)
from crossflops.frontends.inputs import Arguments, to_call_arguments
from crossflops.frontends.named import NamedModel
from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Setting


class Sklearn(ShapeTracedFrontend):
    """The frontend of fitted estimators, converted by skl2onnx with their weights."""

    name = "sklearn"
    title = "scikit-learn"
    models = ("scikit-learn",)
    extra = "sklearn"
    packages = ("sklearn", "skl2onnx", "joblib")
    converter = "skl2onnx"
    versions = (("skl2onnx", "scikit-learn"), ("skl2onnx", "skl2onnx"))
    suffixes = (".joblib",)
    pickles = {".joblib": "is a pickle"}

    def recognizes(self, value: object) -> bool:
        """Return whether the value is an estimator of scikit-learn, such as a pipeline."""
        base = sys.modules.get("sklearn.base")
        kind = getattr(base, "BaseEstimator", None)
        return kind is not None and isinstance(value, kind)

    def default_input(self, model: Any, sizes: Mapping[str, int] = {}) -> NamedModel | None:
        """Return rows of as many numbers as the estimator was fitted on; None for one that was
        fitted on named columns or on texts.
        """
        if not self.recognizes(model) or getattr(model, "feature_names_in_", None) is not None:
            return None
        features = getattr(model, "n_features_in_", None)
        if not isinstance(features, int):
            return None
        rows = (sizes.get("batch", 1), features)
        return NamedModel(
            model=model,
            specs=(TensorSpec("0", "float32", rows, "input"),),
            origin="the features on which it was fitted",
            sizes=("batch",),
        )

    def unpickle_model(self, path: Path) -> Any:
        """Return the object in a file that `joblib.dump` wrote; this runs the code in the file."""
        return importlib.import_module("joblib").load(path)

    def require_packages_for(self, model: Any) -> None:
        """Raise an error if skl2onnx is not installed, or if the estimator is not fitted."""
        from crossflops.frontends.sklearn.converter import require_fitted_estimator

        require_fitted_estimator(model)

    def placeholder_for_spec(self, spec: TensorSpec) -> TensorSpec:
        """Return the spec itself, which is the placeholder of an input here."""
        return spec

    def placeholder_for_array(self, array: Any, name: str = "X") -> TensorSpec:
        """Return the shape and the dtype of an array as a TensorSpec. Raises InputError."""
        if isinstance(array, TensorSpec):
            return array
        try:
            shape = tuple(map(int, array.shape))
            return TensorSpec(name, _column_dtype_name(array.dtype), shape, "input")
        except (AttributeError, TypeError, ValueError) as error:
            raise InputError(
                f"an input is a {type(array).__name__}, which has no shape and type",
                "give X as an array, or as texts: ['1x4']",
            ) from error

    def placeholders_for_inputs(self, values: Any) -> Arguments:
        """Return specs of the inputs: of an array X, or of each column of a data frame or a dict.

        Raise InputError for other values.
        """
        if isinstance(values, Mapping):
            return (), {
                str(name): self.placeholder_for_array(v, str(name)) for name, v in values.items()
            }
        if hasattr(values, "columns") and hasattr(values, "dtypes"):
            rows = (len(values), 1)
            kinds = zip(values.columns, values.dtypes, strict=True)
            return (), {
                str(name): TensorSpec(str(name), _column_dtype_name(kind), rows)
                for name, kind in kinds
            }
        if isinstance(values, list):
            import numpy as np

            return (self.placeholder_for_array(np.asarray(values)),), {}
        args, kwargs = to_call_arguments(values)
        named = {name: self.placeholder_for_array(value, name) for name, value in kwargs.items()}
        return tuple(map(self.placeholder_for_array, args)), named

    def convert(self, recording: Recording, run: Run | None) -> Program:
        """Return the estimator as bytes of an ONNX model, its graph and a trace of modules."""
        from crossflops.frontends.sklearn.graph import estimator_program

        source = recording.source
        return estimator_program(source.model, source.args, source.kwargs, recording.setting)

    def run_and_measure_rounding(self, source: Source, setting: Setting) -> ModelRun:
        """Run the estimator; return its inputs, outputs, and how much rounding changes them."""
        from crossflops.frontends.sklearn.outputs import run_estimator_and_measure_rounding

        return run_estimator_and_measure_rounding(source, setting)


def _column_dtype_name(dtype: Any) -> str:
    """Return the dtype name of a column (NumPy, pandas); "string" if it is not of numbers."""
    kind = getattr(dtype, "kind", "O")
    return str(dtype.name) if kind in "fiub" else "string"


FRONTEND: Frontend = Sklearn()
