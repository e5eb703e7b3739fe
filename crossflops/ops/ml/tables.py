"""Reading the operators of ai.onnx.ml, whose models stand in their attributes."""

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import shape, source
from crossflops.ops.activation import softmax_cost

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
