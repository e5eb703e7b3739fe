"""Models of XGBoost, LightGBM and CatBoost inside an estimator of scikit-learn.

skl2onnx writes each of them as one node of its own domain, which stands for the nodes that
`frontends/boosting` reads from the model. So a model has the same count alone and in a pipeline.
The node has shapes but no thresholds and leaf values, and no runtime can run it.
"""

import importlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from crossflops.frontends.boosting import FRONTEND as BOOSTING
from crossflops.frontends.boosting.graph import read_boosted_trees, tree_nodes_and_result
from crossflops.frontends.boosting.trees import BoostedTrees
from crossflops.ir.graph import Node, TensorSpec
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patch_owner, patching_items

DOMAIN, BOOSTED = "crossflops.boosting", "BoostedTrees"
# what skl2onnx may ask of a classifier; its outputs are a label and an array in any case
_OPTIONS = {
    "zipmap": [True, False, "columns"],
    "nocl": [True, False],
    "output_class_labels": [False, True],
    "raw_scores": [True, False],
}


def read_trees_of_parts(estimators: Iterable[Any]) -> dict[int, BoostedTrees]:
    """Return the trees of each fitted estimator that is of one of the three libraries, by its id.

    An ensemble also has the estimator that it fitted copies of, which has no trees. Raises
    InputError or NormalizeError for trees that cannot be counted.
    """
    return {
        id(estimator): read_boosted_trees(estimator)
        for estimator in estimators
        if BOOSTING.recognizes(estimator) and _is_fitted(estimator)
    }


def _is_fitted(model: Any) -> bool:
    """Return whether a model of one of the three libraries is fitted."""
    question = getattr(model, "is_fitted", None) or getattr(model, "__sklearn_is_fitted__", None)
    return bool(question()) if callable(question) else True


@contextmanager
def registering_boosted_models(
    estimators: Iterable[Any], trees: Mapping[int, BoostedTrees]
) -> Iterator[None]:
    """Return a context in which skl2onnx writes these models with trees as one node each.

    What the user registered for their classes, such as a converter of onnxmltools, is set aside
    for the context.
    """
    kinds = {type(estimator) for estimator in estimators if id(estimator) in trees}
    if not kinds:
        yield
        return

    def set_output_types(operator: Any) -> None:
        """Set the types of the outputs of an operator: [rows], [rows, classes] of a classifier,
        [rows, targets] of a regressor.
        """
        _set_output_types(operator, trees[id(operator.raw_operator)])

    registered: Any = importlib.import_module("skl2onnx.common._registration")
    converter = registered.RegisteredConverter(_write_boosted_node, _OPTIONS)
    names = {kind: f"{DOMAIN}.{kind.__module__}.{kind.__qualname__}" for kind in kinds}
    tables = (
        (inventory.ESTIMATOR_NAMES, names),
        (inventory.ESTIMATOR_CONVERTERS, dict.fromkeys(names.values(), converter)),
        (inventory.ESTIMATOR_SHAPES, dict.fromkeys(names.values(), set_output_types)),
        (inventory.ESTIMATOR_PARSERS, dict.fromkeys(kinds, _declare_boosted_operator)),
    )
    with ExitStack() as stack:
        for declared, items in tables:
            table = original_attribute(patch_owner(declared), declared.names[0], declared)
            stack.enter_context(patching_items(table, items, declared))
        yield


def _is_boosted_classifier(model: Any) -> bool:
    """Return whether a model of one of the three libraries gives labels and probabilities."""
    return hasattr(type(model), "predict_proba")


def _declare_boosted_operator(
    scope: Any, model: Any, inputs: list[Any], custom_parsers: Any = None
) -> list[Any]:
    """Return the outputs of a new operator of skl2onnx for a boosted model."""
    del custom_parsers
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common.data_types import Int64TensorType, guess_tensor_type

    operator = scope.declare_local_operator(sklearn_operator_name_map[type(model)], model)
    operator.inputs = inputs
    kind = guess_tensor_type(inputs[0].type)
    outputs = {"variable": kind}
    if _is_boosted_classifier(model):
        outputs = {"label": Int64TensorType(), "probabilities": kind}
    for name, type_ in outputs.items():
        operator.outputs.append(scope.declare_local_variable(name, type_))
    return list(operator.outputs)


def _set_output_types(operator: Any, trees: BoostedTrees) -> None:
    """Set the types of the outputs of an operator of skl2onnx for a boosted model."""
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType, guess_tensor_type

    model = operator.raw_operator
    rows = operator.inputs[0].get_first_dimension()
    scores = guess_tensor_type(operator.inputs[0].type)
    *labels, values = operator.outputs
    for label in labels:
        is_number = getattr(model.classes_, "dtype", np.dtype(int)).kind in "iufb"
        label.set_type((Int64TensorType if is_number else StringTensorType)([rows]))
    values.set_type(type(scores)([rows, _output_width(model, trees)]))


def _output_width(model: Any, trees: BoostedTrees) -> int:
    """Return the number of columns of a model's probabilities, or of its predictions."""
    return max(trees.outputs, trees.classes if _is_boosted_classifier(model) else 1)


def _write_boosted_node(scope: Any, operator: Any, container: Any) -> None:
    """Add the node of a boosted model to a container of skl2onnx.

    Its attributes have the types and the columns of its outputs, which ONNX cannot infer.
    """
    from skl2onnx.common.data_types import guess_proto_type

    container.add_node(
        BOOSTED,
        [value.full_name for value in operator.inputs],
        [value.full_name for value in operator.outputs],
        name=scope.get_unique_operator_name(BOOSTED),
        op_domain=DOMAIN,
        op_version=1,
        output_types=[guess_proto_type(value.type) for value in operator.outputs],
        columns=operator.outputs[-1].type.shape[1],
    )


def tree_output_specs(node: Any, rows: int | None) -> Iterator[tuple[str, int, list[Any]]]:
    """Yield (name, ONNX type, shape) of each output of a node that skl2onnx wrote for a boosted
    model.
    """
    from onnx.helper import get_node_attr_value

    for name, kind in zip(node.output, get_node_attr_value(node, "output_types"), strict=True):
        is_last = name == node.output[-1]
        yield name, kind, [rows, get_node_attr_value(node, "columns")] if is_last else [rows]


def tree_source_operations(node: Node, trees: BoostedTrees) -> tuple[Node, ...] | None:
    """Return the nodes that a boosted model has alone, for the rows that a node reads; None if
    the shape of the rows is unknown.
    """
    data = node.inputs[0]
    shape = None if data is None else data.shape
    if (
        data is None
        or shape is None
        or len(shape) != 2
        or not all(isinstance(size, int) for size in shape)
    ):
        return None
    rows = TensorSpec(data.name, "float32", shape)
    return tuple(tree_nodes_and_result(trees, rows)[0])
