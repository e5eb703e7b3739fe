"""What prepares features: scaling, encoding, and what only moves or names values.

A lookup in a table (a label, a category, a key of a map) is counted as data movement: the
operators say what is found, not how it is searched.
"""

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops.access import folded, size, text
from crossflops.ops.ml.tables import length, rows_of
from crossflops.ops.movement import moved
from crossflops.ops.operands import dims_of, label, operands, rank
from crossflops.ops.pointwise import COMPARE, per_element
from crossflops.ops.rule import ML, Entry, Traffic, entry

# Name and traffic of operators that look up, move or name values. What yields maps moves nothing
# that has a size.
_MOVES: tuple[tuple[str, Traffic], ...] = (
    *(("FeatureVectorizer", "touch"), ("LabelEncoder", "touch"), ("OneHotEncoder", "touch")),
    *(("CategoryMapper", "touch"), ("ArrayFeatureExtractor", "gather")),
    *(("CastMap", "view"), ("DictVectorizer", "view"), ("ZipMap", "view")),
)


def scaler(node: Node) -> Cost:
    """Scaler: Y = (X - offset) * scale; n subs, n muls, each where its attribute is there.

    https://onnx.ai/onnx/operators/onnx_aionnxml_Scaler.html
    """
    shifted, scaled = (1 if length(node, name) else 0 for name in ("offset", "scale"))
    return Cost(adds=shifted, muls=scaled) * size(node)


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


_REQUIRES = {"FeatureVectorizer": _same_rows}

ENTRIES: tuple[Entry, ...] = (
    *(
        entry(
            name,
            moved,
            "0: lookup",
            domain=ML,
            traffic=traffic,
            requires=_REQUIRES.get(name, ()),
        )
        for name, traffic in _MOVES
    ),
    entry(
        "Scaler",
        scaler,
        "offset: n subs; scale: n muls",
        domain=ML,
        requires=_one_per_feature,
    ),
    entry(
        "Normalizer",
        normalizer,
        "MAX: n-m compares; L1: n compares, n-m adds; L2: n muls, n-m adds, m sqrts; n divs",
        domain=ML,
        requires=rank(0, (1, 2)),
    ),
    entry("Binarizer", per_element(COMPARE), "n compares: X > threshold", domain=ML),
    entry("Imputer", per_element(COMPARE), "n compares: X == replaced_value", domain=ML),
)
