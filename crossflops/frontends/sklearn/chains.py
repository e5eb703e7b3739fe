"""Chains of estimators and regressions of a scaled target, which skl2onnx cannot convert.

Each estimator of a chain reads the features and what those before it predicted. Source:
sklearn/multioutput.py and sklearn/compose/_target.py.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patch_owner, patching_items

_OPTIONS = {"zipmap": [True, False, "columns"], "nocl": [True, False]}


@contextmanager
def registering_chains(estimators: Iterable[Any]) -> Iterator[None]:
    """Return a context in which skl2onnx converts the chains and regressions of scaled targets
    among these estimators. What the user registered for their classes is left as it is.
    """
    known = importlib.import_module("skl2onnx._supported_operators").sklearn_operator_name_map
    converters = {
        kind: converter
        for kind in map(type, estimators)
        if kind not in known and (converter := _WRITERS.get(kind.__name__)) is not None
    }
    if not converters:
        yield
        return
    registered: Any = importlib.import_module("skl2onnx.common._registration")
    names = {kind: f"crossflops.{kind.__name__}" for kind in converters}
    tables: tuple[tuple[Any, Mapping[Any, Any]], ...] = (
        (inventory.ESTIMATOR_NAMES, names),
        (
            inventory.ESTIMATOR_CONVERTERS,
            {
                names[kind]: registered.RegisteredConverter(write, _OPTIONS)
                for kind, write in converters.items()
            },
        ),
        (inventory.ESTIMATOR_SHAPES, dict.fromkeys(names.values(), _set_target_types)),
        (inventory.ESTIMATOR_PARSERS, dict.fromkeys(converters, _declare_chain_operator)),
    )
    with ExitStack() as stack:
        for declared, items in tables:
            table = original_attribute(patch_owner(declared), declared.names[0], declared)
            stack.enter_context(patching_items(table, items, declared))
        yield


def _declare_chain_operator(
    scope: Any, model: Any, inputs: list[Any], custom_parsers: Any = None
) -> list[Any]:
    """Return the one output, [rows, targets], of a new operator of skl2onnx."""
    del custom_parsers
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common.data_types import guess_tensor_type

    operator = scope.declare_local_operator(sklearn_operator_name_map[type(model)], model)
    operator.inputs = inputs
    output = scope.declare_local_variable("variable", guess_tensor_type(inputs[0].type))
    operator.outputs.append(output)
    return list(operator.outputs)


def _set_target_types(operator: Any) -> None:
    """Set the type of the output of an operator: [rows, targets]."""
    from skl2onnx.common.data_types import guess_tensor_type

    targets = len(getattr(operator.raw_operator, "estimators_", (None,)))
    rows = operator.inputs[0].get_first_dimension()
    kind = type(guess_tensor_type(operator.inputs[0].type))
    operator.outputs[0].set_type(kind([rows, targets]))


def _write_chain(scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes of a chain: each estimator on the features and the predictions so far, then
    the predictions in the order of the targets.
    """
    from skl2onnx.algebra.onnx_ops import OnnxConcat, OnnxGather

    model, opset = operator.raw_operator, container.target_opset
    rows = operator.inputs[0]
    predictions: list[Any] = []
    for estimator in model.estimators_:
        features = (
            OnnxConcat(rows, *predictions, axis=1, op_version=opset) if predictions else rows
        )
        predictions.append(_predicted_column(estimator, features, operator, container))
    together = OnnxConcat(*predictions, axis=1, op_version=opset)
    order = np.argsort(np.asarray(model.order_)).astype(np.int64)
    outputs = OnnxGather(
        together, order, axis=1, op_version=opset, output_names=[operator.outputs[0]]
    )
    outputs.add_to(scope=scope, container=container)


def _predicted_column(estimator: Any, features: Any, operator: Any, container: Any) -> Any:
    """Return the operator of an estimator's predictions as a column of floats.

    Raises NotImplementedError for a chain that passes probabilities on.
    """
    from skl2onnx.algebra.onnx_operator import OnnxSubEstimator
    from skl2onnx.algebra.onnx_ops import OnnxCast, OnnxReshape
    from skl2onnx.common.data_types import guess_proto_type, guess_tensor_type

    opset = container.target_opset
    if getattr(operator.raw_operator, "chain_method_", "predict") != "predict":
        raise NotImplementedError("it has no converter for a chain_method other than 'predict'")
    is_classifier = hasattr(estimator, "classes_")
    options = {"options": {"zipmap": False}} if is_classifier else {}
    made = OnnxSubEstimator(estimator, features, op_version=opset, **options)
    column = OnnxReshape(
        made[0] if is_classifier else made, np.array([-1, 1], np.int64), op_version=opset
    )
    if not is_classifier:
        return column
    kind = guess_proto_type(guess_tensor_type(operator.inputs[0].type))
    return OnnxCast(column, to=kind, op_version=opset)


def _write_scaled_target(scope: Any, operator: Any, container: Any) -> None:
    """Add the nodes of a regression of a scaled target: the prediction, and its scaling back.

    Raises NotImplementedError for a target that is transformed in another way.
    """
    from skl2onnx.algebra.onnx_ops import OnnxAdd, OnnxIdentity, OnnxMul
    from skl2onnx.common.data_types import DoubleTensorType, guess_tensor_type

    model, opset = operator.raw_operator, container.target_opset
    scaler = model.transformer_
    if type(scaler).__name__ != "StandardScaler":
        raise NotImplementedError(
            f"it has no converter for {type(scaler).__name__}.inverse_transform of a target"
        )
    result = _predicted_column(model.regressor_, operator.inputs[0], operator, container)
    is_double = isinstance(guess_tensor_type(operator.inputs[0].type), DoubleTensorType)
    dtype = np.float64 if is_double else np.float32
    for kind, values in ((OnnxMul, scaler.scale_), (OnnxAdd, scaler.mean_)):
        if values is not None:
            result = kind(result, np.asarray(values, dtype)[None], op_version=opset)
    result = OnnxIdentity(result, op_version=opset, output_names=[operator.outputs[0]])
    result.add_to(scope=scope, container=container)


_WRITERS: Mapping[str, Callable[[Any, Any, Any], None]] = {
    "ClassifierChain": _write_chain,
    "RegressorChain": _write_chain,
    "TransformedTargetRegressor": _write_scaled_target,
}
