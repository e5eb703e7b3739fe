"""What prepares features, and how the operators of ai.onnx.ml are read.

A lookup in a table (a label, a category, a key of a map) is counted as data movement: the
operators say what is found, not how it is searched.
"""

from crossflops.ir.cost import ZERO, Cost
from crossflops.ir.graph import Node
from crossflops.operators.access import folded, shape, size, source, text
from crossflops.operators.movement import moved
from crossflops.operators.operands import dims_of, label, operands, rank
from crossflops.operators.pointwise import COMPARE, per_element, softmax_cost
from crossflops.operators.rule import ML, Operators

operator = Operators(ML)

# Reading the operators of ai.onnx.ml, whose models stand in their attributes.


_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def integers(node: Node, name: str) -> tuple[int, ...]:
    """An attribute that is a list of integers, () when it is missing."""
    value = node.attrs.get(name, ())
    if not isinstance(value, tuple):
        raise ValueError(f"attribute {name!r} of {node.op} is not a list")
    return tuple(int(item) for item in value)


def length(node: Node, name: str) -> int:
    """Number of items of an attribute that is a list, 0 when it is missing."""
    value = node.attrs.get(name, ())
    if not isinstance(value, tuple):
        raise ValueError(f"attribute {name!r} of {node.op} is not a list")
    return len(value)


def labels(node: Node, *names: str) -> int:
    """Number of classes, from the first of these attributes that is there."""
    return next((count for name in names if (count := length(node, name))), 0)


def rows_of(node: Node) -> int:
    """Number of rows of X [N, C]; X [C] is one row."""
    dims = shape(source(node, 0), at_least=1)
    if len(dims) > 2:
        raise ValueError(f"X of {node.op} has rank {len(dims)} where at most 2 is needed")
    return dims[0] if len(dims) == 2 else 1


def features_of(node: Node) -> int:
    """Number of columns of X [N, C] or [C]."""
    return shape(source(node, 0), at_least=1)[-1]


def post_transform(node: Node, rows: int, columns: int) -> Cost:
    """What becomes of n = rows * columns scores: softmax per row, or n specials, or nothing.

    LOGISTIC is a sigmoid, PROBIT the inverse of the normal distribution: a special each.
    """
    how = node.attrs.get("post_transform", "NONE")
    if isinstance(how, bytes):
        how = how.decode(errors="replace")
    if isinstance(how, int) and 0 <= how < len(_TRANSFORMS):
        how = _TRANSFORMS[how]
    if how not in _TRANSFORMS:
        raise ValueError(f"the post_transform {how!r} of {node.op} is not known")
    if how == "NONE":
        return ZERO
    if how.startswith("SOFTMAX"):
        return softmax_cost(rows * columns, rows)
    return Cost(specials=rows * columns)


def _one_per_feature(node: Node) -> str:
    """An offset and a scale for every feature, or one for all."""
    dims = dims_of(node, 0)
    for name in ("offset", "scale"):
        count = length(node, name)
        features = dims[min(1, len(dims) - 1)] if dims else 0
        if dims and count not in (0, 1, features):
            has = f"{label(node, 0, 'X')} has {features} features"
            return f"{has}, and attribute {name!r} has {count} numbers"
    return ""


@operator("Scaler", "offset: n subs; scale: n muls", requires=_one_per_feature)
def scaler(node: Node) -> Cost:
    """Scaler: Y = (X - offset) * scale; n subs, n muls, each where its attribute is there.

    https://onnx.ai/onnx/operators/onnx_aionnxml_Scaler.html
    """
    shifted, scaled = (1 if length(node, name) else 0 for name in ("offset", "scale"))
    return Cost(adds=shifted, muls=scaled) * size(node)


@operator(
    "Normalizer",
    "MAX: n-m compares; L1: n compares, n-m adds; L2: n muls, n-m adds, m sqrts; n divs",
    requires=rank(0, (1, 2)),
)
def normalizer(node: Node) -> Cost:
    """Normalizer: each row divided by its largest value, sum of |x| or root of squares.

    MAX: n - m compares; L1: n compares (abs), n - m adds; L2: n muls, n - m adds, m roots;
    n divs. X [N, C], m = N.
    https://onnx.ai/onnx/operators/onnx_aionnxml_Normalizer.html
    """
    count, rows = size(node), rows_of(node)
    combined, name = folded(count, rows), text(node, "norm", "MAX")
    if name == "MAX":
        return Cost(compares=combined, divs=count)
    if name == "L1":
        return Cost(compares=count, adds=combined, divs=count)
    if name == "L2":
        return Cost(muls=count, adds=combined, specials=rows, divs=count)
    raise ValueError(f"the norm {name!r} of Normalizer is not known")


# Operators that look up, move or name values. What yields maps moves nothing that has a size.


def _same_rows(node: Node) -> str:
    """FeatureVectorizer: as many rows in every input [N, F]; a vector is one row."""
    widths = node.attrs.get("inputdimensions")
    if isinstance(widths, tuple) and len(widths) != len(node.inputs):
        return (
            f"attribute 'inputdimensions' has {len(widths)} numbers for {len(node.inputs)} inputs"
        )
    rows = {dims[0] if len(dims) > 1 else 1 for dims in operands(node) if dims}
    return (
        f"its inputs have {sorted(rows)} rows, and need the same number" if len(rows) > 1 else ""
    )


_LOOKUP = "0: lookup"
operator("FeatureVectorizer", _LOOKUP, requires=_same_rows)(moved)
operator(("LabelEncoder", "OneHotEncoder", "CategoryMapper"), _LOOKUP)(moved)
operator("ArrayFeatureExtractor", _LOOKUP, traffic="gather")(moved)
operator(("CastMap", "DictVectorizer", "ZipMap"), _LOOKUP, traffic="view")(moved)
operator("Binarizer", "n compares: X > threshold")(per_element(COMPARE))
operator("Imputer", "n compares: X == replaced_value")(per_element(COMPARE))
