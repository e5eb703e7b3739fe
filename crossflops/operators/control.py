"""What operators that hold a body require of their operands; what they cost is in the body."""

from collections.abc import Mapping
from types import MappingProxyType

from crossflops.ir.graph import Node
from crossflops.operators.access import integer
from crossflops.operators.operands import dims_of, ints, label, single
from crossflops.operators.rule import Constraint


def scanned(node: Node) -> str:
    """Scan: all inputs that are scanned have as many elements along their scan axes."""
    count = integer(node, "num_scan_inputs")
    places = range(len(node.inputs) - count, len(node.inputs))
    axes = ints(node, "scan_input_axes") or (0,) * count
    first: tuple[int, int] | None = None
    for place, axis in zip(places, axes, strict=False):
        dims = dims_of(node, place)
        if dims is None or not -len(dims) <= axis < len(dims):
            continue
        if first is None:
            first = place, dims[axis]
        elif dims[axis] != first[1]:
            has = f"{label(node, place)} has {dims[axis]} at axis {axis}"
            return f"{has}, and {first[1]} is needed beside {label(node, first[0])}"
    return ""


REQUIRES: Mapping[str, tuple[Constraint, ...]] = MappingProxyType(
    {"If": (single(0),), "Loop": (single(0, 1),), "Scan": (scanned,)}
)
