"""Convert a fitted estimator to ONNX by skl2onnx, and correct what skl2onnx writes wrongly."""

import contextlib
import importlib
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec

from crossflops.errors import InputError, NormalizeError
from crossflops.frontends.boosting.trees import BoostedTrees
from crossflops.frontends.frontend import require_packages
from crossflops.frontends.sklearn.boosted import (
    BOOSTED,
    DOMAIN,
    registering_boosted_models,
    tree_output_specs,
    tree_source_operations,
)
from crossflops.frontends.sklearn.chains import registering_chains
from crossflops.frontends.sklearn.interpolation import writing_isotonic_as_interpolation
from crossflops.frontends.sklearn.lost_settings import last_pipeline_step
from crossflops.ir.graph import ConversionAnnotation, Node, Op, TensorSpec
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patching_attribute
from crossflops.threads import filter_warnings

# What skl2onnx refuses although nothing in it changes the prediction.

_IDENTITY = ("passthrough", None)


def estimator_behind_search(estimator: Any) -> Any:
    """Return the estimator, or the best one of a search if skl2onnx cannot convert the search."""
    from skl2onnx._supported_operators import sklearn_operator_name_map

    while type(estimator) not in sklearn_operator_name_map and hasattr(
        estimator, "best_estimator_"
    ):
        estimator = estimator.best_estimator_
    return estimator


@contextmanager
def adapting_estimators_to_skl2onnx(
    estimators: Iterable[Any], trees: Mapping[int, BoostedTrees] = {}
) -> Iterator[None]:
    """Return a context in which skl2onnx can convert these estimators, which are restored after.

    `trees` are those of the models of other libraries among them, by the id of the model.

    Steps of a pipeline that pass their input through are left out, a search is replaced by its
    best estimator, and the `transform` of a vote is hidden, since the vote predicts.
    """
    with ExitStack() as stack:
        stack.enter_context(_writing_bools_as_integers())
        stack.enter_context(_fixing_kmeans_bias())
        estimators = list(estimators)
        stack.enter_context(registering_boosted_models(estimators, trees))
        stack.enter_context(registering_chains(estimators))
        stack.enter_context(_writing_only_transform_results(estimators))
        for estimator in estimators:
            for name, value in _attributes_to_set(estimator):
                stack.enter_context(
                    patching_attribute(estimator, name, value, inventory.ESTIMATORS)
                )
        yield


def _attributes_to_set(estimator: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each attribute that is set while the estimator is converted."""
    if getattr(estimator, "flatten_transform", False):
        yield "flatten_transform", False
    steps = getattr(estimator, "steps", None)
    if isinstance(steps, list):
        kept = [
            (name, estimator_behind_search(step)) for name, step in steps if step not in _IDENTITY
        ]
        same = len(kept) == len(steps) and all(
            step is other for (_, step), (_, other) in zip(kept, steps, strict=True)
        )
        if kept and not same:
            yield "steps", kept


@contextmanager
def _writing_only_transform_results(estimators: list[Any]) -> Iterator[None]:
    """Return a context in which skl2onnx writes only `transform` results of steps that transform.

    skl2onnx/_parse.py returns the labels of clusters as well, or only these; `transform` gives
    their distances. For a classifier it has labels and probabilities, and no `transform`.
    """
    parse: Any = importlib.import_module("skl2onnx._parse")
    pipelines: Any = importlib.import_module("skl2onnx.operator_converters.pipelines")
    before = original_attribute(parse, "_parse_sklearn", inventory.PARSERS)
    asked = {id(step) for step in _estimators_that_transform(estimators)}

    def transform_outputs_of_step(scope: Any, model: Any, *provided: Any, **named: Any) -> Any:
        """Return the outputs of a step; of a cluster step that transforms only distances."""
        outputs = before(scope, model, *provided, **named)
        if id(model) not in asked or len(outputs) == 1 or hasattr(model, "steps"):
            return outputs
        if not hasattr(model, "cluster_centers_"):
            raise NotImplementedError(f"it has no converter for {type(model).__name__}.transform")
        return outputs[1:]

    def has_zipmap_option(step: Any) -> bool:
        """Return whether a step is a classifier, or a pipeline of one, with option "zipmap"."""
        return bool(classifies(step)) and (
            hasattr(step, "steps") or _has_conversion_option(step, "zipmap")
        )

    classifies = original_attribute(pipelines, "is_classifier", inventory.PIPELINE_OPTIONS)
    with (
        patching_attribute(parse, "_parse_sklearn", transform_outputs_of_step, inventory.PARSERS),
        patching_attribute(
            pipelines, "_parse_sklearn", transform_outputs_of_step, inventory.PIPELINE_PARSERS
        ),
        # of a pipeline in another estimator the option is given to every classifier
        patching_attribute(
            pipelines, "is_classifier", has_zipmap_option, inventory.PIPELINE_OPTIONS
        ),
    ):
        yield


def _estimators_that_transform(estimators: list[Any]) -> list[Any]:
    """Return the estimators whose `transform` is called by a pipeline or a union."""
    asked: list[Any] = []
    for estimator in estimators:
        steps = [estimator_behind_search(step) for _, step in getattr(estimator, "steps", ())]
        asked += steps[:-1]
        if any(estimator is other for other in asked):
            asked += steps[-1:]
        asked += [step for _, step, *_ in getattr(estimator, "transformer_list", ())]
        asked += [step for _, step, *_ in getattr(estimator, "transformers_", ())]
    return [step for step in asked if hasattr(step, "transform")]


@contextmanager
def _writing_bools_as_integers() -> Iterator[None]:
    """Return a context in which ONNX nodes get integers for bools in lists of attributes.

    skl2onnx/common/tree_ensemble.py gives nodes_missing_value_tracks_true as truth values.
    """
    from skl2onnx.common import _container

    make_node = original_attribute(_container, "make_node", inventory.NODES)

    def make_node_with_integers(*provided: Any, **attributes: Any) -> Any:
        """Return the node of ONNX's `make_node`, with bools in lists of attributes as integers."""
        return make_node(
            *provided, **{name: _bools_to_integers(value) for name, value in attributes.items()}
        )

    with patching_attribute(_container, "make_node", make_node_with_integers, inventory.NODES):
        yield


@contextmanager
def _fixing_kmeans_bias() -> Iterator[None]:
    """Return a context in which skl2onnx's products of KMeans fit any number of rows.

    skl2onnx/operator_converters/k_means.py writes a zero for every row where it adds one for every
    cluster: ONNX accepts that only for as many rows as there are clusters, and for one.
    """
    module: Any = importlib.import_module("skl2onnx.operator_converters.k_means")
    gemm = original_attribute(module, "OnnxGemm", inventory.CLUSTERS)

    def gemm_with_one_zero(rows: Any, centers: Any, zeros: Any, **attributes: Any) -> Any:
        """Return a Gemm of rows and centers whose bias is one zero, for any number of rows."""
        return gemm(rows, centers, zeros[:1], **attributes)

    with patching_attribute(module, "OnnxGemm", gemm_with_one_zero, inventory.CLUSTERS):
        yield


def _bools_to_integers(value: Any) -> Any:
    """Return a list with bools as a list of integers, and any other value unchanged."""
    if isinstance(value, list | tuple) and any(isinstance(item, bool) for item in value):
        return [int(item) for item in value]
    return value


# What skl2onnx writes that the estimator does not compute, told by the estimator itself.

SOLVE = "Solve"  # which skl2onnx leaves to a runtime of its own
INTERPOLATE = "interpolate.interp1d"  # of SciPy
_LINEAR = "LinearClassifier"
_VALUES = ("WhiteKernel", "ConstantKernel")


@contextmanager
def recording_kernels_without_work(names: set[str]) -> Iterator[None]:
    """Return a context that adds to `names` the nodes of Gaussian process kernels without work.

    A WhiteKernel between two sets of rows is 0, a ConstantKernel one number: skl2onnx makes their
    shape as a product of two vectors of zeros (operator_converters/_gp_kernels.py).
    """
    indices = [
        importlib.import_module(f"skl2onnx.operator_converters.{name}")
        for name in ("_gp_kernels", "gaussian_process")
    ]
    kind = importlib.import_module("skl2onnx.algebra.onnx_operator").OnnxOperator
    convert, add = indices[0].convert_kernel, kind.add_to
    marked: dict[int, Any] = {}

    def convert_kernel_and_mark_without_work(
        kernel: Any, rows: Any, *more: Any, **named: Any
    ) -> Any:
        """Return the operator of a kernel; mark operators of kernels that multiply nothing."""
        result = convert(kernel, rows, *more, **named)
        if type(kernel).__name__ in _VALUES:
            provided = {id(operand) for operand in (rows, named.get("x_train"), *more)}
            marked.update(
                (id(operator), operator) for operator in _kernel_operators(result, provided, kind)
            )
        return result

    def add_nodes_and_record_marked(
        self: Any, scope: Any, container: Any, *more: Any, **named: Any
    ) -> Any:
        """Add an operator's nodes; if the operator is marked, record the name of the last node."""
        before = len(container.nodes)
        result = add(self, scope, container, *more, **named)
        if id(self) in marked and len(container.nodes) > before:
            names.add(container.nodes[-1].name)
        return result

    with (
        patching_attribute(
            indices[0],
            "convert_kernel",
            convert_kernel_and_mark_without_work,
            inventory.GAUSSIAN_KERNELS,
        ),
        patching_attribute(
            indices[1],
            "convert_kernel",
            convert_kernel_and_mark_without_work,
            inventory.GAUSSIAN_PROCESSES,
        ),
        patching_attribute(kind, "add_to", add_nodes_and_record_marked, inventory.OPERATORS),
    ):
        yield


def _kernel_operators(root: Any, provided: set[int], kind: type) -> Iterator[Any]:
    """Yield the operator `root` and all operators that it reads, except the `provided` ones."""
    todo = [root]
    while todo:
        value = todo.pop()
        if isinstance(value, kind) and id(value) not in provided:
            yield value
            todo += getattr(value, "inputs", None) or ()


def count_as_estimator_computes(
    node: Node,
    makers: Mapping[str, Any],
    empty: Collection[str],
    points: Mapping[str, int],
    trees: Mapping[int, BoostedTrees] = {},
) -> Node:
    """Return a node counted as the estimator's own computation, if ONNX's differs from that.

    `makers` are the estimators by the names of the nodes that were made for them, `empty` the
    nodes for which it computes nothing, such as those of kernels that multiply nothing. `points`
    are the numbers of thresholds by the nodes that return interpolated values, `trees` those of
    the models of other libraries by the id of the model.
    """
    if (node.op.domain, node.op.type) == (DOMAIN, BOOSTED):
        operations = tree_source_operations(node, trees[id(makers[node.key])])
        return node if operations is None else _with_source_operations(node, *operations)
    if node.key in empty:
        return _with_source_operations(node)
    if node.key in points:
        attrs = {"points": points[node.key]}
        called = msgspec.structs.replace(node, op=Op("scipy", INTERPOLATE, 1), attrs=attrs)
        return _with_source_operations(node, called)
    if node.op.type == SOLVE:
        called = msgspec.structs.replace(node, op=Op("scipy", "linalg.solve", 1))
        return _with_source_operations(node, called)
    rows = getattr(getattr(makers.get(node.key), "coef_", None), "shape", ())
    if node.op.type != _LINEAR or not rows or (len(rows) > 1 and rows[0] != 1):
        return node
    return _with_source_operations(node, _with_one_weight_column(node, rows[-1]))


def _with_source_operations(node: Node, *operations: Node) -> Node:
    """Return a copy of a node that is counted as these operations instead of itself."""
    return msgspec.structs.replace(node, conversion=ConversionAnnotation(stands_for=operations))


def _with_one_weight_column(node: Node, features: int) -> Node:
    """Return a two-class linear classifier's node with one column of weights, not two.

    skl2onnx/operator_converters/linear_classifier.py writes it a second time, negated.
    """
    columns = {"coefficients": features, "intercepts": 1}
    attrs = {
        name: value[: columns[name]] if name in columns and isinstance(value, tuple) else value
        for name, value in node.attrs.items()
    }
    return msgspec.structs.replace(node, attrs=attrs)


_ML, _OLDER_ML = "ai.onnx.ml", 3  # some converters know no newer one
_Converted = TypeVar("_Converted")
_LONGEST = 160  # letters of what skl2onnx says, which may print whole trees
# what of skl2onnx takes which type
_TYPES = {
    "float32": "FloatTensorType",
    "float64": "DoubleTensorType",
    "bool": "BooleanTensorType",
    "int64": "Int64TensorType",
    "int32": "Int32TensorType",
    "string": "StringTensorType",
    "float16": "Float16TensorType",
    "int8": "Int8TensorType",
    "int16": "Int16TensorType",
    "uint8": "UInt8TensorType",
}


def skl2onnx_input_types(
    args: tuple[TensorSpec, ...], kwargs: Mapping[str, TensorSpec]
) -> list[tuple[str, Any]]:
    """Return (name, skl2onnx's type) of each input. Raises InputError if it has none."""
    return [(name, _skl2onnx_type(spec)) for name, spec in _estimator_inputs(args, kwargs).items()]


def convert_with_retry_at_older_opset(
    convert: Callable[[dict[str, int] | None], _Converted],
    model: Any,
    parts: list[Any],
    trees: Mapping[int, BoostedTrees] = {},
) -> _Converted:
    """Return convert(opset) with skl2onnx's default opset, or an older one if that fails.

    `convert` gets these sets, None for skl2onnx's default. `parts` are all estimators in the
    model, `trees` those of models of other libraries among them by their id. Raises
    NormalizeError where it fails.
    """
    try:
        with adapting_estimators_to_skl2onnx(parts, trees):
            return convert(None)
    except Exception as error:  # converters fail in as many ways as there are estimators
        why = _conversion_error_text(error)
        if _ML in str(error):
            with contextlib.suppress(Exception), adapting_estimators_to_skl2onnx(parts, trees):
                return convert({"": _newest_opset(), _ML: _OLDER_ML})
        raise NormalizeError(
            f"skl2onnx cannot convert {type(model).__name__}: {why}",
            "give a model of estimators that skl2onnx.supported_converters() lists",
        ) from error


def _conversion_error_text(error: Exception) -> str:
    """Return the message of an error of skl2onnx on one line, shortened."""
    text = f"{type(error).__name__}: {error}"
    if type(error).__name__ == "MissingShapeCalculator":
        match = re.search(r"for type '<class '([^']*)'>'", str(error))
        text = f"it has no converter for {match[1]}" if match else text
    return textwrap.shorten(text, _LONGEST, placeholder=" ...")


class WrittenEstimator(NamedTuple):
    """An ONNX model of an estimator, and by node name the id of the estimator behind the node.

    `empty` are the nodes in which the estimator computes nothing, `points` the numbers of
    thresholds by the nodes that return interpolated values.
    """

    model: Any
    makers: Mapping[str, int]
    empty: Collection[str]
    points: Mapping[str, int]


def write_estimator_onnx(
    model: Any, types: list[tuple[str, Any]], parts: list[Any], opset: dict[str, int] | None
) -> WrittenEstimator:
    """Return the estimator converted to ONNX, with probabilities as arrays (no ZipMap)."""
    import skl2onnx

    model = estimator_behind_search(model)
    made: dict[str, int] = {}
    empty: set[str] = set()
    points: dict[str, int] = {}
    options = {
        id(part): {"zipmap": False} for part in parts if _has_conversion_option(part, "zipmap")
    }
    for step in _steps_with_raw_scores(parts):
        options.setdefault(id(step), {})["raw_scores"] = True
    with (
        filter_warnings("ignore"),
        _recording_estimator_of_each_node(made),
        recording_kernels_without_work(empty),
        writing_isotonic_as_interpolation(points, empty),
    ):
        converted = skl2onnx.convert_sklearn(
            model,
            name=type(model).__name__,
            initial_types=types,
            options=options,
            target_opset=opset,
        )
    _replace_softmax_by_logistic(converted.graph, {id(part): part for part in parts}, made)
    return WrittenEstimator(converted, made, frozenset(empty), points)


def _replace_softmax_by_logistic(
    graph: Any, estimators: Mapping[int, Any], makers: Mapping[str, int]
) -> None:
    """Replace the softmax of a two-class discriminant by the logistic function, in place.

    skl2onnx/operator_converters/linear_classifier.py takes the softmax of the score and its
    negative, which is the logistic of twice the score.
    """
    for node in graph.node:
        maker: Any = estimators.get(makers.get(node.name, 0))
        if type(maker).__name__ != "LinearDiscriminantAnalysis" or len(maker.classes_) > 2:
            continue
        if node.op_type == "Softmax":
            node.op_type = "Sigmoid"
            del node.attribute[:]
        for attribute in node.attribute:
            if attribute.name == "post_transform" and attribute.s == b"SOFTMAX":
                attribute.s = b"LOGISTIC"


def remove_unread_nodes(graph: Any) -> None:
    """Remove the nodes of a graph whose results neither a node nor an output reads, in place."""
    read = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if read.intersection(node.output):
            kept.append(node)
            read |= set(node.input)
    kept.reverse()
    if len(kept) < len(graph.node):
        del graph.node[:]
        graph.node.extend(kept)


def declare_shapes(graph: Any, types: list[tuple[str, Any]]) -> None:
    """Declare shapes that ONNX cannot infer (TfIdfVectorizer, Solve, and models of trees of other
    libraries) in a graph, in place.

    onnx/docs/Operators.md, TfIdfVectorizer: Y [rows, max(ngram_indexes) + 1], one for every entry.
    Solve of skl2onnx: L [n, n], B [n, rows] -> X [n, rows].
    """
    from onnx import TensorProto
    from onnx.helper import get_node_attr_value, make_tensor_value_info

    rows = next((declared.shape[0] for _, declared in types if declared.shape), None)
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "TfIdfVectorizer":
            kind, shape = (
                TensorProto.FLOAT,
                [rows, max(get_node_attr_value(node, "ngram_indexes")) + 1],
            )
        elif node.op_type == SOLVE and node.input[0] in stored:
            matrix = stored[node.input[0]]
            kind, shape = matrix.data_type, [matrix.dims[0], rows]
        elif node.domain == DOMAIN:
            declared = tree_output_specs(node, rows)
            graph.value_info.extend(make_tensor_value_info(*spec) for spec in declared)
            continue
        else:
            continue
        graph.value_info.append(make_tensor_value_info(node.output[0], kind, shape))


def _newest_opset() -> int:
    """Return the newest version of ai.onnx that skl2onnx was tested with."""
    from skl2onnx import get_latest_tested_opset_version

    return int(get_latest_tested_opset_version())


def _estimator_inputs(
    args: tuple[TensorSpec, ...], kwargs: Mapping[str, TensorSpec]
) -> dict[str, TensorSpec]:
    """Return the specs of the inputs by name; positional ones are named X, X1, ..."""
    return {**{f"X{index or ''}": spec for index, spec in enumerate(args)}, **kwargs}


def _skl2onnx_type(spec: TensorSpec) -> Any:
    """Return skl2onnx's type for an input of this dtype and shape. Raises InputError."""
    from skl2onnx.common import data_types

    name = _TYPES.get(spec.dtype)
    if name is None or not hasattr(data_types, name):
        raise InputError(
            f"skl2onnx does not support inputs of the type {spec.dtype}",
            f"write one of: {', '.join(_TYPES)}",
        )
    return getattr(data_types, name)(list(spec.shape or ()))


def _steps_with_raw_scores(parts: list[Any]) -> Iterator[Any]:
    """Yield last steps of pipelines in calibrated classifiers, whose raw scores are needed.

    For a single estimator skl2onnx sets this option itself, and a pipeline does not pass options
    on (skl2onnx/operator_converters/calibrated_classifier_cv.py, pipelines.py).
    """
    for part in parts:
        for calibrated in getattr(part, "calibrated_classifiers_", ()):
            step = last_pipeline_step(calibrated.estimator)
            has_scores = step is not calibrated.estimator and hasattr(step, "decision_function")
            if has_scores and _has_conversion_option(step, "raw_scores"):
                yield step


def _has_conversion_option(estimator: Any, option: str) -> bool:
    """Return whether skl2onnx has an option, such as "zipmap", for the class of an estimator.

    A pipeline would pass the option on to its last step, whatever that is.
    """
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common._registration import get_converter

    if hasattr(estimator, "steps"):
        return False
    alias = sklearn_operator_name_map.get(type(estimator))
    try:
        return alias is not None and option in (get_converter(alias).get_allowed_options() or ())
    except ValueError:  # there is none
        return False


@contextmanager
def _recording_estimator_of_each_node(made: dict[str, int]) -> Iterator[None]:
    """Return a context that adds to `made` the id of the estimator behind each node, by name.

    skl2onnx/common/_topology.py: `Topology.call_converter` runs the converter of one operator,
    which adds nodes to a container and may declare operators for its parts (a helper has no
    estimator of its own: it works for the one that declared it).
    """
    from skl2onnx.common._topology import Scope, Topology

    convert, declare = Topology.call_converter, Scope.declare_local_operator
    owners: dict[int, int] = {}
    running: list[int | None] = []

    def convert_and_record_estimator(
        self: Any, operator: Any, container: Any, **options: Any
    ) -> None:
        """Convert an operator, and record its estimator for each node that this adds."""
        estimator = operator.raw_operator
        owner = owners.get(id(operator), id(estimator) if estimator is not None else None)
        before = len(container.nodes)
        running.append(owner)
        try:
            convert(self, operator, container, **options)
        finally:
            running.pop()
        if owner is not None:
            made.update((node.name, owner) for node in container.nodes[before:])

    def declare_operator_of_running_estimator(self: Any, type: str, raw_model: Any = None) -> Any:
        """Return a new operator of skl2onnx, owned by the estimator that is being converted."""
        operator = declare(self, type, raw_model)
        if running and running[-1] is not None and raw_model is None:
            owners[id(operator)] = running[-1]
        return operator

    with (
        patching_attribute(
            Topology, "call_converter", convert_and_record_estimator, inventory.CONVERTERS
        ),
        patching_attribute(
            Scope,
            "declare_local_operator",
            declare_operator_of_running_estimator,
            inventory.SCOPES_OF_ESTIMATORS,
        ),
    ):
        yield


# What has to hold before an estimator can be converted: skl2onnx is there, and it is fitted.


def require_fitted_estimator(model: Any) -> None:
    """Raise MissingExtraError without skl2onnx, and InputError if the estimator is not fitted."""
    require_packages(("skl2onnx",), "convert a model of scikit-learn", "sklearn")
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise InputError(
            f"{type(model).__name__} is not fitted, so it has no weights to count",
            "call .fit(X, y) on the estimator before it is counted",
        ) from error
    except TypeError:  # what has no fit needs none
        pass
