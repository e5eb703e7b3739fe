"""Random numbers: no operator fixes a generator, so what follows one is counted: estimates.

A generator gives a number in [0, 1) for free. A normal number is made of two by Box and Muller:
sqrt(-2 * log(u)) * cos(2 * pi * v).
"""

from crossflops.core.cost import Cost
from crossflops.core.graph import Node
from crossflops.ops.access import folded, out_size, shape, size, source
from crossflops.ops.operands import rank
from crossflops.ops.pointwise import COMPARE, per_element
from crossflops.ops.rule import Entry, entry, estimated

UNIFORM = Cost(muls=1, adds=1)
NORMAL = Cost(muls=4, specials=3, adds=1)


def multinomial(node: Node) -> Cost:
    """Multinomial: B rows of C log-probabilities become running sums, which are searched.

    n(input) exps, B*(C-1) adds; per sample a mul and ceil(log2 C) compares. input [B, C].
    https://onnx.ai/onnx/operators/onnx__Multinomial.html
    """
    rows, classes = shape(source(node, 0), rank=2)
    search = Cost(muls=1, compares=max(classes - 1, 0).bit_length())
    return Cost(specials=size(node), adds=folded(size(node), rows)) + search * out_size(node)


_UNIFORM = "n(output)*(mul, add) after a generator that is not counted"
_NORMAL = "n(output)*(log, sqrt, cos, 4 muls, add) after a generator that is not counted"

ENTRIES: tuple[Entry, ...] = (
    *(
        entry(name, per_element(UNIFORM), _UNIFORM, doubt=estimated)
        for name in ("RandomUniform", "RandomUniformLike")
    ),
    *(
        entry(name, per_element(NORMAL), _NORMAL, doubt=estimated)
        for name in ("RandomNormal", "RandomNormalLike")
    ),
    entry(
        "Bernoulli",
        per_element(UNIFORM + COMPARE),
        f"{_UNIFORM}; n(output) compares",
        since=15,
        doubt=estimated,
    ),
    entry(
        "Multinomial",
        multinomial,
        "n(input) exps, B*(C-1) adds, n(output)*(mul, ceil(log2 C) compares)",
        since=7,
        doubt=estimated,
        requires=rank(0, 2),
    ),
)
