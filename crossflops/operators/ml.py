"""The cost of ai.onnx.ml operators: preparation of features, linear models, kernel machines,
decision trees.

Their weights are attributes. A lookup in a table (a label, a category, a key of a map) is counted
as data movement: the operators say what is found, not how it is searched.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    input_element_count,
    input_spec,
    integer_attribute,
    reduction_operation_count,
    spec_shape,
    string_attribute,
)
from crossflops.operators.gradient import (
    first_operand_backward,
    movement_backward,
    no_gradient,
    scatter_add_backward,
)
from crossflops.operators.movement import movement_cost
from crossflops.operators.normalization import softmax_cost
from crossflops.operators.operands import (
    input_label,
    input_shape,
    input_shape_or_raise,
    rank_constraint,
    shapes_of_inputs,
)
from crossflops.operators.pointwise import COMPARE, formula_per_output_element
from crossflops.operators.rule import ML, Exactness, OperandProblem, Operators

FITTED = "scikit-learn fits it without gradients"
operator = Operators(ML, backward=FITTED)

_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def integer_list_attribute(node: Node, name: str) -> tuple[int, ...]:
    """Return an attribute that is a list of integers; () if it is missing."""
    value = node.attrs.get(name, ())
    if not isinstance(value, tuple):
        raise ValueError(f"attribute {name!r} of {node.op} is not a list")
    return tuple(int(item) for item in value)


def list_attribute_length(node: Node, name: str) -> int:
    """Return the number of items of an attribute that is a list; 0 if it is missing."""
    value = node.attrs.get(name, ())
    if not isinstance(value, tuple):
        raise ValueError(f"attribute {name!r} of {node.op} is not a list")
    return len(value)


def class_label_count(node: Node, *names: str) -> int:
    """Return the number of classes: the length of the first of these attributes that the
    node has.
    """
    return next((count for name in names if (count := list_attribute_length(node, name))), 0)


def input_row_count(node: Node) -> int:
    """Return the number of rows of the input X [N, C]; 1 for a vector."""
    dims = spec_shape(input_spec(node, 0), at_least=1)
    if len(dims) > 2:
        raise ValueError(f"X of {node.op} has rank {len(dims)}, but at most 2 is supported")
    return dims[0] if len(dims) == 2 else 1


def input_feature_count(node: Node) -> int:
    """Return the number of columns of the input X [N, C], or the length of a vector."""
    return spec_shape(input_spec(node, 0), at_least=1)[-1]


def post_transform_cost(node: Node, rows: int, columns: int) -> Cost:
    """Return the cost of the node's post_transform of rows * columns scores: a softmax per row, a
    special per score, or nothing.

    LOGISTIC is a sigmoid, PROBIT the inverse of the normal distribution: a special each.
    """
    config = node.attrs.get("post_transform", "NONE")
    if isinstance(config, bytes):
        config = config.decode(errors="replace")
    if isinstance(config, int) and 0 <= config < len(_TRANSFORMS):
        config = _TRANSFORMS[config]
    if config not in _TRANSFORMS:
        raise ValueError(f"the post_transform {config!r} of {node.op} is not supported")
    if config == "NONE":
        return ZERO
    if config.startswith("SOFTMAX"):
        return softmax_cost(rows * columns, rows)
    return Cost(specials=rows * columns)


def _scaler_length_constraint(node: Node) -> OperandProblem:
    """Return why offset or scale has neither one number nor one for each feature; "" if nothing is
    wrong.
    """
    dims = input_shape(node, 0)
    for name in ("offset", "scale"):
        count = list_attribute_length(node, name)
        features = dims[min(1, len(dims) - 1)] if dims else 0
        if dims and count not in (0, 1, features):
            has = f"{input_label(node, 0, 'X')} has {features} features"
            return f"{has}, but attribute {name!r} has {count} numbers"
    return ""


@operator(
    "Scaler",
    "offset: n subs; scale: n muls",
    requires=_scaler_length_constraint,
    backward=first_operand_backward(
        lambda node: Cost(
            muls=input_element_count(node) if list_attribute_length(node, "scale") else 0
        )
    ),
)
def scaler_cost(node: Node) -> Cost:
    """Return the cost of Scaler, (X - offset) * scale: a sub and a mul per element, each if its
    attribute is given.

    https://onnx.ai/onnx/operators/onnx_aionnxml_Scaler.html
    """
    shifted, scaled = (
        1 if list_attribute_length(node, name) else 0 for name in ("offset", "scale")
    )
    return Cost(adds=shifted, muls=scaled) * input_element_count(node)


@operator(
    "Normalizer",
    "MAX: n-m compares; L1: n compares, n-m adds; L2: n muls, n-m adds, m sqrts; n divs",
    requires=rank_constraint(0, (1, 2)),
)
def normalizer_cost(node: Node) -> Cost:
    """Return the cost of Normalizer: each row divided by its largest value, its sum of |x|, or the
    root of its sum of squares.

    MAX: n - m compares; L1: n compares (abs), n - m adds; L2: n muls, n - m adds, m roots;
    n divs. X [N, C], m = N.
    https://onnx.ai/onnx/operators/onnx_aionnxml_Normalizer.html
    """
    count, rows = input_element_count(node), input_row_count(node)
    combined, name = reduction_operation_count(count, rows), string_attribute(node, "norm", "MAX")
    if name == "MAX":
        return Cost(compares=combined, divs=count)
    if name == "L1":
        return Cost(compares=count, adds=combined, divs=count)
    if name == "L2":
        return Cost(muls=count, adds=combined, specials=rows, divs=count)
    raise ValueError(f"the norm {name!r} of Normalizer is not supported")


# Operators that look up, move or name values. What yields maps moves nothing that has a size.


def _equal_rows_constraint(node: Node) -> OperandProblem:
    """Return why the inputs of FeatureVectorizer do not have the same number of rows; "" if
    nothing is wrong.
    """
    widths = node.attrs.get("inputdimensions")
    if isinstance(widths, tuple) and len(widths) != len(node.inputs):
        return (
            f"attribute 'inputdimensions' has {len(widths)} numbers for {len(node.inputs)} inputs"
        )
    rows = {dims[0] if len(dims) > 1 else 1 for dims in shapes_of_inputs(node) if dims}
    return (
        f"its inputs have {sorted(rows)} rows, but must have the same number"
        if len(rows) > 1
        else ""
    )


_LOOKUP = "0: lookup"
operator(
    "FeatureVectorizer", _LOOKUP, requires=_equal_rows_constraint, backward=movement_backward
)(movement_cost)
operator(("LabelEncoder", "OneHotEncoder", "CategoryMapper"), _LOOKUP, backward=no_gradient)(
    movement_cost
)
operator("ArrayFeatureExtractor", _LOOKUP, traffic="gather", backward=scatter_add_backward)(
    movement_cost
)
operator(("CastMap", "DictVectorizer", "ZipMap"), _LOOKUP, traffic="view", backward=no_gradient)(
    movement_cost
)
operator("Binarizer", "n compares: X > threshold", backward=no_gradient)(
    formula_per_output_element(COMPARE)
)
operator("Imputer", "n compares: X == replaced_value", backward=movement_backward)(
    formula_per_output_element(COMPARE)
)


# Linear models and support vector machines.


def _linear_scores_cost(node: Node, scores: int) -> Cost:
    """Return the cost of `scores` linear scores for each row: a MAC per feature and score, and an
    add for the intercept.
    """
    columns = input_feature_count(node)
    if list_attribute_length(node, "coefficients") != scores * columns:
        raise ValueError(
            f"{node.op} has {list_attribute_length(node, 'coefficients')} "
            f"coefficients, not {scores}x{columns}"
        )
    adds = scores if list_attribute_length(node, "intercepts") else 0
    return Cost(macs=scores * columns, adds=adds) * input_row_count(node)


def _linear_coefficients_constraint(node: Node) -> OperandProblem:
    """Return why the coefficients of a linear model do not fit its features; "" if nothing is
    wrong.
    """
    dims, count = input_shape(node, 0), list_attribute_length(node, "coefficients")
    columns = max(list_attribute_length(node, "intercepts"), integer_attribute(node, "targets", 1))
    if not dims or count >= columns * dims[-1]:
        return ""
    has = f"{input_label(node, 0, 'X')} has {dims[-1]} features"
    return f"{has}, but there are {count} coefficients for {columns} columns of scores"


def _class_labels_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the labels, or "" if nothing is: one for each column of scores."""
    columns = list_attribute_length(node, "intercepts")
    names = class_label_count(node, "classlabels_ints", "classlabels_strings")
    if not names or names >= columns:
        return ""
    return f"attribute 'intercepts' has {columns} numbers, but there are {names} class labels"


_ROWS = rank_constraint(0, (1, 2))


@operator(
    "LinearClassifier",
    "N*C*E MACs; intercepts: N*E adds; N*(classes-1) compares; post_transform",
    requires=(_ROWS, _linear_coefficients_constraint, _class_labels_constraint),
)
def linear_classifier_cost(node: Node) -> Cost:
    """Return the cost of LinearClassifier: scores X * W + b, then the search for the largest score
    of each row.

    E columns of weights, one of them enough for two classes. N * (classes - 1) compares,
    post_transform of N*E scores. X [N, C].
    https://onnx.ai/onnx/operators/onnx_aionnxml_LinearClassifier.html
    """
    columns, rows = input_feature_count(node), input_row_count(node)
    scores = list_attribute_length(node, "coefficients") // columns if columns else 0
    classes = class_label_count(node, "classlabels_ints", "classlabels_strings")
    chosen = Cost(compares=max(classes - 1, 0) * rows)
    return _linear_scores_cost(node, scores) + chosen + post_transform_cost(node, rows, scores)


@operator(
    "LinearRegressor",
    "N*C*targets MACs; intercepts: N*targets adds; post_transform",
    requires=(_ROWS, _linear_coefficients_constraint),
)
def linear_regressor_cost(node: Node) -> Cost:
    """Return the cost of LinearRegressor, X * W + b: a MAC per row, feature and target, and an add
    for the intercept.

    X [N, C], Y [N, targets]; post_transform of N*targets scores.
    https://onnx.ai/onnx/operators/onnx_aionnxml_LinearRegressor.html
    """
    targets = integer_attribute(node, "targets", 1)
    return _linear_scores_cost(node, targets) + post_transform_cost(
        node, input_row_count(node), targets
    )


def svm_kernel_cost(node: Node, columns: int) -> Cost:
    """Return the cost of the kernel function K(x, v) of one row and one support vector, by the
    node's kernel_type.

    LINEAR x*v: C MACs. POLY (gamma*x*v + c)^d: C MACs, mul, add, pow. SIGMOID tanh(gamma*x*v + c):
    C MACs, mul, add, tanh. RBF exp(-gamma*|x - v|^2): C subs, C muls, C - 1 adds, mul, exp.
    """
    name = string_attribute(node, "kernel_type", "LINEAR")
    if name == "LINEAR":
        return Cost(macs=columns)
    if name in ("POLY", "SIGMOID"):
        return Cost(macs=columns, muls=1, adds=1, specials=1)
    if name == "RBF":
        return Cost(adds=columns + max(columns - 1, 0), muls=columns + 1, specials=1)
    raise ValueError(f"the kernel {name!r} of {node.op} is not supported")


def svm_probability_exactness(node: Node) -> Exactness:
    """Return "estimate" if probabilities of more than two classes are found by iteration, which is
    not counted; else "exact".
    """
    return "estimate" if list_attribute_length(node, "prob_a") else "exact"


def _support_vectors_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the support vectors, or "" if nothing is: as many features as a
    row.
    """
    per_class = integer_list_attribute(node, "vectors_per_class")
    names = class_label_count(node, "classlabels_ints", "classlabels_strings")
    if per_class and names and len(per_class) != names:
        return f"attribute 'vectors_per_class' has {len(per_class)} numbers for {names} classes"
    vectors = sum(per_class) or integer_attribute(node, "n_supports", 0)
    dims, count = input_shape(node, 0), list_attribute_length(node, "support_vectors")
    if not dims or not vectors or count == vectors * dims[-1]:
        return ""
    has = f"{input_label(node, 0, 'X')} has {dims[-1]} features"
    return f"{has}, but the {vectors} stored support vectors have {count // vectors}"


_KERNEL = "LINEAR: C MACs; POLY, SIGMOID: C MACs, mul, add, special; RBF: 2C-1 adds, C+1 muls, exp"


@operator(
    "SVMClassifier",
    f"N*(V kernels + (E-1)*V MACs + E(E-1)/2*(add, compare) + E-1 compares); {_KERNEL}",
    doubt=svm_probability_exactness,
    requires=(_ROWS, _support_vectors_constraint),
)
def svm_classifier_cost(node: Node) -> Cost:
    """Return the cost of SVMClassifier: V kernels per row, then E*(E-1)/2 decisions between two of
    E classes.

    A decision sums the vectors of its two classes: (E-1)*V MACs, an add of rho and a compare
    (a vote) each; the most votes E - 1 compares. prob_a: a mul, an add and a sigmoid per
    decision; the coupling of these iterates and is not counted. Without vectors_per_class a
    linear model: rows of coefficients. X [N, C], support_vectors V*C.
    https://onnx.ai/onnx/operators/onnx_aionnxml_SVMClassifier.html
    """
    rows, columns = input_row_count(node), input_feature_count(node)
    per_class = integer_list_attribute(node, "vectors_per_class")
    if not per_class:
        return _svm_class_scores_cost(node, rows, columns)
    classes, vectors = len(per_class), sum(per_class)
    if list_attribute_length(node, "support_vectors") != vectors * columns:
        raise ValueError(f"{node.op} does not have {vectors}x{columns} support vectors")
    decisions = classes * (classes - 1) // 2
    voted = Cost(macs=(classes - 1) * vectors, adds=decisions, compares=decisions)
    graded = (
        Cost(muls=1, adds=1, specials=1) * decisions
        if list_attribute_length(node, "prob_a")
        else Cost()
    )
    row = svm_kernel_cost(node, columns) * vectors + voted + graded
    return (row + Cost(compares=max(classes - 1, 0))) * rows + post_transform_cost(
        node, rows, classes
    )


def _svm_class_scores_cost(node: Node, rows: int, columns: int) -> Cost:
    """Return the cost of a linear SVM's scores: one kernel and one add per row and class."""
    classes = class_label_count(node, "classlabels_ints", "classlabels_strings")
    if list_attribute_length(node, "coefficients") != classes * columns:
        raise ValueError(f"{node.op} does not have {classes}x{columns} coefficients")
    row = (svm_kernel_cost(node, columns) + Cost(adds=1)) * classes
    return (row + Cost(compares=max(classes - 1, 0))) * rows + post_transform_cost(
        node, rows, classes
    )


@operator(
    "SVMRegressor",
    f"N*(V kernels + V MACs + add); one_class: N compares; {_KERNEL}",
    requires=(_ROWS, _support_vectors_constraint),
)
def svm_regressor_cost(node: Node) -> Cost:
    """Return the cost of SVMRegressor, sum of coefficient * K(x, v) + rho: V kernels, V MACs and
    an add per row.

    An add of rho; one_class a compare. Without n_supports a linear model, one kernel.
    X [N, C], support_vectors V*C.
    https://onnx.ai/onnx/operators/onnx_aionnxml_SVMRegressor.html
    """
    rows, columns = input_row_count(node), input_feature_count(node)
    vectors = integer_attribute(node, "n_supports", 0)
    if vectors and list_attribute_length(node, "support_vectors") != vectors * columns:
        raise ValueError(f"{node.op} does not have {vectors}x{columns} support vectors")
    summed = Cost(macs=vectors) + svm_kernel_cost(node, columns) * (vectors or 1)
    last = Cost(adds=1, compares=1 if integer_attribute(node, "one_class", 0) else 0)
    return (summed + last) * rows + post_transform_cost(node, rows, 1)


# Tree ensembles: a row goes from the root of every tree to one of its leaves.


TreeNodeKey: TypeAlias = tuple[int, int]
Children: TypeAlias = Mapping[TreeNodeKey, tuple[TreeNodeKey, ...]]

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")  # the numbers 0 to 3 in version 5


class Forest(NamedTuple):
    """The number of trees, and the sums of their comparisons from root to leaf: to the nearest and
    to the furthest leaves.
    """

    trees: int
    shallow: int
    deep: int


def tree_depths(roots: Iterable[TreeNodeKey], children: Children) -> Forest:
    """Return the depths of the trees with these roots, from the children of their inner nodes.

    A node without children is a leaf.

    Raises ValueError when a node is among its own descendants.
    """
    near: dict[TreeNodeKey, int] = {}
    far: dict[TreeNodeKey, int] = {}
    trees = tuple(roots)
    for node in _tree_nodes_children_first(trees, children):
        below = children.get(node, ())
        near[node] = 1 + min(near[child] for child in below) if below else 0
        far[node] = 1 + max(far[child] for child in below) if below else 0
    return Forest(len(trees), sum(near[node] for node in trees), sum(far[node] for node in trees))


def _tree_nodes_children_first(
    roots: tuple[TreeNodeKey, ...], children: Children
) -> Iterable[TreeNodeKey]:
    """Yield every node of the trees once, after all nodes below it. Raises ValueError
    for a cycle.
    """
    done: set[TreeNodeKey] = set()
    open_: set[TreeNodeKey] = set()
    todo = list(roots)
    while todo:
        node = todo[-1]
        if node in done:
            todo.pop()
            continue
        ahead = [child for child in children.get(node, ()) if child not in done]
        if node in open_ and any(child in open_ for child in ahead):
            raise ValueError(f"node {node[1]} of tree {node[0]} is its own descendant")
        if not ahead:
            todo.pop()
            done.add(node)
            yield node
        else:
            open_.add(node)
            todo.extend(ahead)


def forest_from_tables(node: Node) -> Forest:
    """Return the trees of TreeEnsembleClassifier or TreeEnsembleRegressor, read from their node
    tables.
    """
    names = ("treeids", "nodeids", "truenodeids", "falsenodeids")
    columns = [integer_list_attribute(node, f"nodes_{name}") for name in names]
    modes = node.attrs.get("nodes_modes", ())
    if not isinstance(modes, tuple) or len({len(modes), *map(len, columns)}) != 1:
        raise ValueError(f"the node tables of {node.op} are not equally long")
    children = {
        (tree, key): ((tree, yes), (tree, no))
        for tree, key, yes, no, mode in zip(*columns, modes, strict=True)
        if mode not in ("LEAF", b"LEAF")
    }
    nodes = list(zip(columns[0], columns[1], strict=True))
    known, below = set(nodes), {child for pair in children.values() for child in pair}
    if not below <= known:
        raise ValueError(f"a branch of {node.op} leads to a node that does not exist")
    return tree_depths([key for key in nodes if key not in below], children)


def forest_from_roots(node: Node) -> Forest:
    """Return the trees of TreeEnsemble, read from its root list and its tables of inner nodes.

    A tree that is a single leaf is written as a node whose two branches are the same leaf.
    """
    names = ("truenodeids", "trueleafs", "falsenodeids", "falseleafs")
    columns = [integer_list_attribute(node, f"nodes_{name}") for name in names]
    if len({len(column) for column in columns}) != 1:
        raise ValueError(f"the node tables of {node.op} are not equally long")
    rows = enumerate(zip(*columns, strict=True))
    children = {(0, i): ((leaf, yes), (other, no)) for i, (yes, leaf, no, other) in rows}
    roots = integer_list_attribute(node, "tree_roots")
    inner = {child for pair in children.values() for child in pair if child[0] == 0}
    if not inner | {(0, root) for root in roots} <= set(children):
        raise ValueError(f"a branch of {node.op} leads to a node that does not exist")
    return tree_depths([(0, root) for root in roots], children)


def _forest_of_node(node: Node) -> Forest:
    """Return the decision trees of a node, by the form of its operator."""
    return forest_from_roots(node) if node.op.type == "TreeEnsemble" else forest_from_tables(node)


def _leaf_value_counts(node: Node, kind: str) -> dict[int, list[int]]:
    """Return, by tree, how many values each leaf with values adds to the result; `kind` names the
    attributes.

    Leaves without values are left out.
    """
    per_leaf: dict[TreeNodeKey, int] = {}
    trees, leaves = (
        integer_list_attribute(node, f"{kind}_treeids"),
        integer_list_attribute(node, f"{kind}_nodeids"),
    )
    for leaf in zip(trees, leaves, strict=False):
        per_leaf[leaf] = per_leaf.get(leaf, 0) + 1
    values: dict[int, list[int]] = {}
    for (tree, _), count in per_leaf.items():
        values.setdefault(tree, []).append(count)
    return values


def _sum_of_largest_leaf_value_counts(node: Node, kind: str) -> int:
    """Return the sum, over all trees, of the most values that one leaf adds to the result."""
    return sum(max(counts) for counts in _leaf_value_counts(node, kind).values())


def tree_ensemble_exactness(node: Node) -> Exactness:
    """Return "exact" if all leaves of each tree have the same depth and number of values; else
    "bound", since data choose the leaf.
    """
    forest = _forest_of_node(node)
    kind = {"TreeEnsembleClassifier": "class", "TreeEnsembleRegressor": "target"}.get(node.op.type)
    even = kind is None or all(
        len(set(depths)) == 1 for depths in _leaf_value_counts(node, kind).values()
    )
    return "exact" if even and forest.shallow == forest.deep else "bound"


def _tree_features_constraint(node: Node) -> OperandProblem:
    """Return why a tree reads a feature that X does not have; "" if nothing is wrong."""
    dims = input_shape_or_raise(node, 0)
    requested = node.attrs.get("nodes_featureids")
    modes = node.attrs.get("nodes_modes")
    if not isinstance(requested, tuple):
        return ""
    kinds = modes if isinstance(modes, tuple) else ("",) * len(requested)
    features = [feature for feature, kind in zip(requested, kinds, strict=False) if kind != "LEAF"]
    most = max((feature for feature in features if isinstance(feature, int)), default=-1)
    if most < dims[1]:
        return ""
    return f"{input_label(node, 0, 'X')} has {dims[1]} features, but a node reads feature {most}"


_OPERANDS = (rank_constraint(0, 2), _tree_features_constraint)
_WALK = "N*(sum over trees of the largest depth) compares"


@operator(
    "TreeEnsembleClassifier",
    f"{_WALK}; N*(leaf entries) adds; N*(E-1) compares; post_transform",
    doubt=tree_ensemble_exactness,
    requires=_OPERANDS,
    backward=no_gradient,
)
def tree_classifier_cost(node: Node) -> Cost:
    """Return the largest cost of TreeEnsembleClassifier: per row a compare at each level of each
    tree, then the sum of leaves.

    Each tree then adds what its leaf says, at most its longest leaf, N adds; base_values N * E
    adds; the largest score N * (E - 1) compares; post_transform of N * E scores. X [N, F].
    https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleClassifier.html
    """
    rows = input_row_count(node)
    classes = class_label_count(node, "classlabels_int64s", "classlabels_strings")
    based = classes if {"base_values", "base_values_as_tensor"} & set(node.attrs) else 0
    row = Cost(
        compares=_forest_of_node(node).deep + max(classes - 1, 0),
        adds=_sum_of_largest_leaf_value_counts(node, "class") + based,
    )
    return row * rows + post_transform_cost(node, rows, classes)


@operator(
    "TreeEnsembleRegressor",
    f"{_WALK}; N*(leaf entries) adds or compares; AVERAGE: divs; post_transform",
    doubt=tree_ensemble_exactness,
    requires=_OPERANDS,
    backward=no_gradient,
)
def tree_regressor_cost(node: Node) -> Cost:
    """Return the largest cost of TreeEnsembleRegressor: per row a compare at each level of each
    tree, then the combined leaves.

    Then the leaves' values are combined by aggregate_function, base_values and post_transform
    follow as in the classifier. X [N, F], Y [N, n_targets].
    https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleRegressor.html
    """
    rows = input_row_count(node)
    targets = integer_attribute(node, "n_targets", 1)
    based = targets if {"base_values", "base_values_as_tensor"} & set(node.attrs) else 0
    walk = Cost(compares=_forest_of_node(node).deep, adds=based)
    config = string_attribute(node, "aggregate_function", "SUM")
    joined = _leaf_aggregation_cost(
        node, config, _sum_of_largest_leaf_value_counts(node, "target"), targets
    )
    return (walk + joined) * rows + post_transform_cost(node, rows, targets)


@operator(
    "TreeEnsemble",
    f"{_WALK}; N*trees adds or compares; AVERAGE: divs; post_transform",
    since=5,
    doubt=tree_ensemble_exactness,
    requires=_OPERANDS,
    backward=no_gradient,
)
def tree_ensemble_cost(node: Node) -> Cost:
    """Return the largest cost of TreeEnsemble: per row a compare at each level of each tree, then
    one value per tree combined.

    The values are combined by aggregate_function (0 AVERAGE, 1 SUM, 2 MIN, 3 MAX), then
    post_transform. X [N, F], Y [N, n_targets].
    https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html
    """
    rows, forest = input_row_count(node), _forest_of_node(node)
    targets, number = (
        integer_attribute(node, "n_targets", 1),
        integer_attribute(node, "aggregate_function", 1),
    )
    config = _AGGREGATES[number] if number in range(4) else str(number)
    joined = _leaf_aggregation_cost(node, config, forest.trees, targets)
    return (Cost(compares=forest.deep) + joined) * rows + post_transform_cost(node, rows, targets)


def _leaf_aggregation_cost(node: Node, mode: str, values: int, targets: int) -> Cost:
    """Return the cost of combining `values` leaf values to `targets` results by SUM, AVERAGE, MIN
    or MAX.
    """
    if mode not in _AGGREGATES:
        raise ValueError(f"the aggregate_function {mode!r} of {node.op} is not supported")
    if mode in ("MIN", "MAX"):
        return Cost(compares=values)
    return Cost(adds=values, divs=targets if mode == "AVERAGE" else 0)
