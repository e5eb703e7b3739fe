"""Linear models and support vector machines, whose weights are attributes."""

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops.access import integer, text
from crossflops.ops.ml.tables import features_of, integers, labels, length, post_transform, rows_of
from crossflops.ops.operands import dims_of, label, rank
from crossflops.ops.rule import ML, Entry, Exactness, entry


def _linear(node: Node, scores: int) -> Cost:
    """N rows meet `scores` columns of weights: N*C*E MACs, intercepts N*E adds."""
    columns = features_of(node)
    if length(node, "coefficients") != scores * columns:
        raise ValueError(
            f"{node.op} has {length(node, 'coefficients')} coefficients, not {scores}x{columns}"
        )
    adds = scores if length(node, "intercepts") else 0
    return Cost(macs=scores * columns, adds=adds) * rows_of(node)


def linear_classifier(node: Node) -> Cost:
    """LinearClassifier: scores X * W + b, N*C*E MACs, N*E adds; then the largest.

    E columns of weights, one of them enough for two classes. N * (classes - 1) compares,
    post_transform of N*E scores. X [N, C].
    https://onnx.ai/onnx/operators/onnx_aionnxml_LinearClassifier.html
    """
    columns, rows = features_of(node), rows_of(node)
    scores = length(node, "coefficients") // columns if columns else 0
    classes = labels(node, "classlabels_ints", "classlabels_strings")
    chosen = Cost(compares=max(classes - 1, 0) * rows)
    return _linear(node, scores) + chosen + post_transform(node, rows, scores)


def linear_regressor(node: Node) -> Cost:
    """LinearRegressor: Y = X * W + b; N*C*targets MACs, intercepts N*targets adds.

    X [N, C], Y [N, targets]; post_transform of N*targets scores.
    https://onnx.ai/onnx/operators/onnx_aionnxml_LinearRegressor.html
    """
    targets = integer(node, "targets", 1)
    return _linear(node, targets) + post_transform(node, rows_of(node), targets)


def kernel(node: Node, columns: int) -> Cost:
    """K(x, v) of one row and one support vector of C features.

    LINEAR x*v: C MACs. POLY (gamma*x*v + c)^d: C MACs, mul, add, pow. SIGMOID
    tanh(gamma*x*v + c): C MACs, mul, add, tanh. RBF exp(-gamma*|x - v|^2): C subs, C muls,
    C - 1 adds, mul, exp.
    """
    name = text(node, "kernel_type", "LINEAR")
    if name == "LINEAR":
        return Cost(macs=columns)
    if name in ("POLY", "SIGMOID"):
        return Cost(macs=columns, muls=1, adds=1, specials=1)
    if name == "RBF":
        return Cost(adds=columns + max(columns - 1, 0), muls=columns + 1, specials=1)
    raise ValueError(f"the kernel {name!r} of {node.op} is not known")


def svm_classifier(node: Node) -> Cost:
    """SVMClassifier: V kernels per row, then E*(E-1)/2 decisions between two classes.

    A decision sums the vectors of its two classes: (E-1)*V MACs, an add of rho and a compare
    (a vote) each; the most votes E - 1 compares. prob_a: a mul, an add and a sigmoid per
    decision; the coupling of these iterates and is not counted. Without vectors_per_class a
    linear model: rows of coefficients. X [N, C], support_vectors V*C.
    https://onnx.ai/onnx/operators/onnx_aionnxml_SVMClassifier.html
    """
    rows, columns = rows_of(node), features_of(node)
    per_class = integers(node, "vectors_per_class")
    if not per_class:
        return _scored_classes(node, rows, columns)
    classes, vectors = len(per_class), sum(per_class)
    if length(node, "support_vectors") != vectors * columns:
        raise ValueError(f"{node.op} does not have {vectors}x{columns} support vectors")
    decisions = classes * (classes - 1) // 2
    voted = Cost(macs=(classes - 1) * vectors, adds=decisions, compares=decisions)
    graded = Cost(muls=1, adds=1, specials=1) * decisions if length(node, "prob_a") else Cost()
    each = kernel(node, columns) * vectors + voted + graded
    return (each + Cost(compares=max(classes - 1, 0))) * rows + post_transform(node, rows, classes)


def _scored_classes(node: Node, rows: int, columns: int) -> Cost:
    """One kernel and one add of rho per class."""
    classes = labels(node, "classlabels_ints", "classlabels_strings")
    if length(node, "coefficients") != classes * columns:
        raise ValueError(f"{node.op} does not have {classes}x{columns} coefficients")
    each = (kernel(node, columns) + Cost(adds=1)) * classes
    return (each + Cost(compares=max(classes - 1, 0))) * rows + post_transform(node, rows, classes)


def svm_regressor(node: Node) -> Cost:
    """SVMRegressor: Y = sum of coefficient * K(x, v) + rho; V kernels and V MACs per row.

    An add of rho; one_class a compare. Without n_supports a linear model, one kernel.
    X [N, C], support_vectors V*C.
    https://onnx.ai/onnx/operators/onnx_aionnxml_SVMRegressor.html
    """
    rows, columns = rows_of(node), features_of(node)
    vectors = integer(node, "n_supports", 0)
    if vectors and length(node, "support_vectors") != vectors * columns:
        raise ValueError(f"{node.op} does not have {vectors}x{columns} support vectors")
    summed = Cost(macs=vectors) + kernel(node, columns) * (vectors or 1)
    last = Cost(adds=1, compares=1 if integer(node, "one_class", 0) else 0)
    return (summed + last) * rows + post_transform(node, rows, 1)


def coupling_iterates(node: Node) -> Exactness:
    """Probabilities of more than two classes are found by iteration: an estimate."""
    return "estimate" if length(node, "prob_a") else "exact"


def _enough_weights(node: Node) -> str:
    """A coefficient for every feature, in each column of scores."""
    dims, count = dims_of(node, 0), length(node, "coefficients")
    columns = max(length(node, "intercepts"), integer(node, "targets", 1))
    if not dims or count >= columns * dims[-1]:
        return ""
    has = f"{label(node, 0, 'X')} has {dims[-1]} features"
    return f"{has}, and there are {count} coefficients for {columns} columns of scores"


def _named_classes(node: Node) -> str:
    """A label for every column of scores."""
    columns = length(node, "intercepts")
    names = labels(node, "classlabels_ints", "classlabels_strings")
    if not names or names >= columns:
        return ""
    return f"attribute 'intercepts' has {columns} numbers, and there are {names} labels of classes"


def _known_features(node: Node) -> str:
    """Support vectors of as many features as a row has."""
    per_class = integers(node, "vectors_per_class")
    names = labels(node, "classlabels_ints", "classlabels_strings")
    if per_class and names and len(per_class) != names:
        return f"attribute 'vectors_per_class' has {len(per_class)} numbers for {names} classes"
    vectors = sum(per_class) or integer(node, "n_supports", 0)
    dims, count = dims_of(node, 0), length(node, "support_vectors")
    if not dims or not vectors or count == vectors * dims[-1]:
        return ""
    has = f"{label(node, 0, 'X')} has {dims[-1]} features"
    return f"{has}, and {vectors} support vectors of {count // vectors} are stored"


_ROWS = rank(0, (1, 2))
_KERNEL = "LINEAR: C MACs; POLY, SIGMOID: C MACs, mul, add, special; RBF: 2C-1 adds, C+1 muls, exp"

ENTRIES: tuple[Entry, ...] = (
    entry(
        "LinearClassifier",
        linear_classifier,
        "N*C*E MACs; intercepts: N*E adds; N*(classes-1) compares; post_transform",
        domain=ML,
        requires=(_ROWS, _enough_weights, _named_classes),
    ),
    entry(
        "LinearRegressor",
        linear_regressor,
        "N*C*targets MACs; intercepts: N*targets adds; post_transform",
        domain=ML,
        requires=(_ROWS, _enough_weights),
    ),
    entry(
        "SVMClassifier",
        svm_classifier,
        f"N*(V kernels + (E-1)*V MACs + E(E-1)/2*(add, compare) + E-1 compares); {_KERNEL}",
        domain=ML,
        doubt=coupling_iterates,
        requires=(_ROWS, _known_features),
    ),
    entry(
        "SVMRegressor",
        svm_regressor,
        f"N*(V kernels + V MACs + add); one_class: N compares; {_KERNEL}",
        domain=ML,
        requires=(_ROWS, _known_features),
    ),
)
