"""List the estimators in a fitted one as modules, with their paths, parameters and nodes."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec

from crossflops.frontends.boosting import FRONTEND as BOOSTING
from crossflops.frontends.boosting.graph import parameters_of_trees
from crossflops.frontends.boosting.trees import BoostedTrees
from crossflops.ir.graph import Graph, Node
from crossflops.ir.trace import Module, Parameter

_NAMED = ("steps", "transformer_list", "transformers_", "named_estimators_")


class Part(msgspec.Struct, frozen=True):
    """An estimator inside a fitted one, and its path from there, "" for the root itself.

    `named` is whether the user gave it its name; otherwise the path is its location:
    "estimators.0".
    """

    path: str
    estimator: Any
    named: bool


def estimator_parts(root: Any) -> list[Part]:
    """Return the estimator and all fitted estimators in it, parents first, without repetitions."""
    found_parts = [Part("", root, True)]
    known = {id(root)}
    for part in found_parts:
        for name, estimator, named in _child_estimators(part.estimator):
            if id(estimator) not in known:
                known.add(id(estimator))
                word = name.replace(".", "_") if named else name
                found_parts.append(Part(f"{part.path}.{word}".lstrip("."), estimator, named))
    return found_parts


def _child_estimators(estimator: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield (name, estimator, whether the user chose the name) of the direct children."""
    attributes = vars(estimator)
    for attribute in _NAMED:
        value = attributes.get(attribute, ())
        pairs = value.items() if isinstance(value, Mapping) else value
        for name, stored, *_ in pairs:
            if _is_estimator(stored):
                yield str(name), stored, True
    if BOOSTING.recognizes(estimator):
        return  # the booster in it is the same model
    if hasattr(estimator, "get_support"):
        return  # a selection: what chose the features is asked no more
    for attribute, value in attributes.items():
        if attribute.startswith("_") or (attribute.endswith("_") and attribute not in _NAMED):
            yield from _estimators_in(attribute.strip("_"), value)


def _is_estimator(value: object) -> bool:
    """Return whether a value is an estimator of scikit-learn, or a model of trees of another
    library.
    """
    from sklearn.base import BaseEstimator

    return isinstance(value, BaseEstimator) or BOOSTING.recognizes(value)


def _estimators_in(name: str, value: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield (name, estimator, False) for each estimator in an attribute, also in lists; False says
    that it is not one step of a sequence.
    """
    if _is_estimator(value):
        yield name, value, False
        return
    for index, item in enumerate(_attribute_items(value)):
        if _is_estimator(item):
            yield f"{name}.{index}", item, False
        elif type(item).__module__.startswith("sklearn.calibration"):  # with its calibrators
            for attribute, stored in vars(item).items():
                yield from _estimators_in(f"{name}.{index}.{attribute}", stored)


def _attribute_items(value: Any) -> list[Any]:
    """Return the items of a list, a tuple or an object array, or [] for any other value."""
    if isinstance(value, list | tuple):
        return list(value)
    if getattr(getattr(value, "dtype", None), "kind", "") == "O":
        return list(value.ravel())
    return []


# The parameters of an estimator: the floats that fitting stored, and that prediction reads.
#
# Coefficients and intercepts, means and scales, components, support vectors, the examples that
# neighbours keep, the thresholds and leaf values of trees. Labels, indices of features, how a tree
# branches, and figures about the training are none.

# Fitted floats that tell of the training, or of which another attribute was made.
_NAMES = """
    explained_variance_ explained_variance_ratio_ singular_values_ singular_ noise_variance_
    feature_importances_ loss_curve_ validation_scores_ validation_score_ train_score_
    scores_ score_ pvalues_
    estimator_errors_ oob_score_ oob_scores_ oob_improvement_ oob_prediction_
    oob_decision_function_ ranking_ inertia_ variances_ cv_results_ cv_values_ mse_path_
    data_min_ data_max_ data_range_ max_abs_ X_offset_ X_scale_
    class_count_ class_weight_ feature_count_ feature_all_ category_count_
    C_ Cs_ l1_ratio_ l1_ratios_ alphas_ cv_alphas_ lambda_ lambdas_path_ sigma_ dual_gap_
    coef_path_ coefs_paths_ criterion_ errors_ error_
    covariances_ precisions_ covariance_ weight_concentration_ mean_precision_
    mean_precision_prior_ mean_prior_ degrees_of_freedom_ covariance_prior_ lower_bounds_
    x_weights_ y_weights_ x_loadings_ y_loadings_ x_rotations_ y_rotations_ x_scores_ y_scores_
    classes_ categories_ y_train_ L_ outlier_label_ negative_outlier_factor_
"""
_FIGURES = frozenset(_NAMES.split())
# Of some classes only: `StandardScaler.transform` divides by scale_, `GaussianNB` reads var_.
_FIGURES_OF = {
    "StandardScaler": {"var_"},
    "_BinMapper": {"bin_thresholds_"},
    "LinearDiscriminantAnalysis": {"means_", "priors_", "xbar_", "scalings_"},
}
_PRIVATE = (
    "_baseline_prediction",
    "_fit_X",
    "_y",
    "_probA",
    "_probB",
    "_x_mean",
    "_y_mean",
    "_x_std",
)
_SCALARS = ("intercept_", "offset_", "a_", "b_", "global_")


def estimator_parameters(
    estimator: Any, storage_number: Callable[[Any], int]
) -> Iterator[Parameter]:
    """Yield the parameters (arrays of floats) of an estimator, without those of its children.

    `storage_number` returns the same number for the same array.
    """
    left_out = _FIGURES | _FIGURES_OF.get(type(estimator).__name__, set())
    for name, value in vars(estimator).items():
        public = name.endswith("_") and not name.startswith("_") and name not in left_out
        if public or name in _PRIVATE:
            yield from _float_array_parameters(name, value, storage_number)
    tree = getattr(estimator, "tree_", None)
    if hasattr(tree, "children_left"):
        yield from _tree_parameters(tree, storage_number)
    for index, predictor in enumerate(_flatten_lists(getattr(estimator, "_predictors", ()))):
        yield from _histogram_parameters(f"_predictors.{index}", predictor, storage_number)


def _float_array_parameters(
    name: str, value: Any, storage_number: Callable[[Any], int]
) -> Iterator[Parameter]:
    """Yield a parameter for each array of floats in an attribute, also in lists."""
    data = value.data if hasattr(value, "tocsr") else value  # of a sparse matrix what is stored
    kind = getattr(getattr(data, "dtype", None), "kind", "")
    if kind in ("f", "c") and (data.ndim or name in _SCALARS):
        yield Parameter(name, tuple(data.shape), storage_number(value), data.dtype.name)
    elif isinstance(value, float) and name in _SCALARS and value:
        yield Parameter(name, (), storage_number(value), "float64")
    elif isinstance(value, list | tuple) or kind == "O":
        for index, item in enumerate(value if kind != "O" else value.ravel()):
            if hasattr(item, "dtype"):
                yield from _float_array_parameters(f"{name}.{index}", item, storage_number)


def _tree_parameters(tree: Any, storage_number: Callable[[Any], int]) -> Iterator[Parameter]:
    """Yield the parameters of a decision tree: thresholds of inner nodes, values of leaves."""
    inner = tree.children_left != tree.children_right
    leaves = int((~inner).sum())
    threshold, value = tree.threshold, tree.value
    yield Parameter(
        "tree_.threshold", (int(inner.sum()),), storage_number(tree), threshold.dtype.name
    )
    shape = (leaves, *value.shape[1:])
    yield Parameter("tree_.value", shape, storage_number((tree, "value")), value.dtype.name)


def _flatten_lists(value: Any) -> Iterator[Any]:
    """Yield the items of nested lists, in their order."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flatten_lists(item)
    else:
        yield value


def _histogram_parameters(
    name: str, tree: Any, storage_number: Callable[[Any], int]
) -> Iterator[Parameter]:
    """Yield the parameters of a histogram-based tree: thresholds of inner nodes, leaf values."""
    leaves = int(tree.nodes["is_leaf"].sum())
    stored = {"num_threshold": len(tree.nodes) - leaves, "value": leaves}
    for field, length in stored.items():
        dtype = tree.nodes.dtype[field].name
        yield Parameter(f"{name}.{field}", (length,), storage_number((tree, field)), dtype)


def _tree_model_parameters(
    model: Any, trees: BoostedTrees, storage_number: Callable[[Any], int]
) -> Iterator[Parameter]:
    """Yield the parameters of a model of another library: its thresholds and leaf values."""
    for parameter in parameters_of_trees(trees):
        number = storage_number((model, parameter.name))
        yield msgspec.structs.replace(parameter, storage=number)


def place_in_modules(graph: Graph, owners: Mapping[str, str]) -> Graph:
    """Return the graph with the module path of each node, which `owners` has by node name."""
    nodes = tuple(_place_in_module(node, owners, "") for node in graph.nodes)
    return msgspec.structs.replace(graph, nodes=nodes)


def _place_in_module(node: Node, owners: Mapping[str, str], enclosing: str) -> Node:
    """Return the node with its module path; nodes in its bodies have that of the node."""
    path = owners.get(node.key, enclosing)
    bodies = tuple(
        msgspec.structs.replace(
            body, nodes=tuple(_place_in_module(node, {}, path) for node in body.nodes)
        )
        for body in node.bodies
    )
    return msgspec.structs.replace(node, path=path, bodies=bodies)


def list_modules(
    inside: list[Part], with_nodes: Collection[str], trees: Mapping[int, BoostedTrees]
) -> tuple[Module, ...]:
    """Return the module table, root first: estimators that have a name or nodes, and parents.

    `trees` are those of the models of other libraries, by the id of the model.
    """
    kept = {""}
    for path in (part.path for part in inside if part.named or part.path in with_nodes):
        kept.update(_path_and_ancestors(path))
    classes = {part.path: type(part.estimator).__name__ for part in inside}
    paths = ["", *sorted((path for path in kept if path), key=_module_sort_key(inside))]
    ids = {path: number for number, path in enumerate(paths)}
    params = _parameters_by_module(inside, kept, trees)
    children: dict[str, list[tuple[str, int]]] = {path: [] for path in paths}
    for path in paths[1:]:
        above, _, name = path.rpartition(".")
        children[above].append((name, ids[path]))
    return tuple(
        Module(
            id=ids[path],
            names=(path,),
            bases=(classes.get(path, ""),),
            params=tuple(params.get(path, ())),
            children=tuple(children[path]),
            training=False,
            settings={},
        )
        for path in paths
    )


def _module_sort_key(inside: list[Part]) -> Callable[[str], list[int]]:
    """Return a sort key for module paths: parents first, then in the order of `inside`."""
    order: dict[str, int] = {}
    for number, part in enumerate(inside):
        for path in _path_and_ancestors(part.path):
            order.setdefault(path, number)
    return lambda path: [order[above] for above in _path_and_ancestors(path)]


def _path_and_ancestors(path: str) -> list[str]:
    """Return a dotted path and its ancestors, outermost first: "a", "a.b", "a.b.c"."""
    words = path.split(".")
    return [".".join(words[:end]) for end in range(1, len(words) + 1)]


def _parameters_by_module(
    inside: list[Part], kept: set[str], trees: Mapping[int, BoostedTrees]
) -> dict[str, list[Parameter]]:
    """Return the parameters of each module by its path; an array is in one module only."""
    numbers: dict[Any, int] = {}
    stored: list[Any] = []  # what has a number must not be freed, or its id would be another's

    def storage_number_of_array(value: Any) -> int:
        """Return the storage number of an array (or a tuple); the same object has one number."""
        stored.append(value)
        key = tuple(map(id, value)) if isinstance(value, tuple) else id(value)
        return numbers.setdefault(key, len(numbers))

    by_path: dict[str, list[Parameter]] = {}
    taken: set[int] = set()
    for part in inside:
        owner = part.path
        while owner not in kept:
            owner = owner.rpartition(".")[0]
        prefix = part.path.removeprefix(owner).lstrip(".")
        known = trees.get(id(part.estimator))
        if known is None:
            parameters = estimator_parameters(part.estimator, storage_number_of_array)
        else:
            parameters = _tree_model_parameters(part.estimator, known, storage_number_of_array)
        for parameter in parameters:
            if parameter.storage in taken:
                continue
            taken.add(parameter.storage)
            name = f"{prefix}.{parameter.name}".lstrip(".")
            by_path.setdefault(owner, []).append(msgspec.structs.replace(parameter, name=name))
    return by_path
