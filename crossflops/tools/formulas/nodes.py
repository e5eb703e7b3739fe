"""Amounts that clauses of the node level name: pure functions of one graph node.

A formula raises ValueError where a shape that it needs is not known: the convention says nothing
about that node, which is then named.
"""

from collections.abc import Callable
from math import prod

from crossflops.ir.graph import Graph, Node
from crossflops.ir.tensor import TensorSpec
from crossflops.tools.formulas.contraction import einsum_pairs

NodeFormula = Callable[[Node], int]
View = Callable[[Graph], Graph]


def results(node: Node) -> int:
    """n(Y), Y the first output."""
    return prod(_shape(_at(node.outputs, 0)))


def scattered(node: Node) -> int:
    """Results of a transposed convolution that a product reaches: min(n(Y), n(X)/C x M x prod(k)).

    X [N, C, d...], W [C, M/group, k...], Y [N, M, o...]. With a stride above the kernel some
    results are the bias alone.
    """
    source, out = _shape(_at(node.inputs, 0)), _shape(_at(node.outputs, 0))
    window = prod(_shape(_at(node.inputs, 1))[2:])
    positions = prod(source) // source[1] if source[1] else 0
    return min(prod(out), positions * out[1] * window)


def attended(node: Node) -> int:
    """B Hq Sq (St + Dv): a sum for every score, and for every element of the result.

    Q [B, Hq, Sq, D] or [B, Sq, Hq*D], K and V alike, past keys [B, Hkv, Sp, D]; St = Skv + Sp.
    """
    query, key = _heads(node, 0), _heads(node, 1)
    past = _shape(node.inputs[4])[2] if len(node.inputs) > 4 and node.inputs[4] else 0
    return prod(query[:3]) * (key[2] + past) + prod(query[:3]) * _heads(node, 2)[3]


def gates(node: Node) -> int:
    """D T B g H: a sum for every gate of every unit in every step.

    X [T, B, I], R [D, g*H, H]: x and h meet their weights in one sum.
    """
    first, second, _ = _shape(_at(node.inputs, 0))
    directions, rows, _ = _shape(_at(node.inputs, 2))
    return first * second * directions * rows


def contracted(node: Node) -> int:
    """The results of every pair of operands of an Einsum that sums, pairs from left to right."""
    equation = node.attrs.get("equation")
    if not isinstance(equation, str):
        raise ValueError("Einsum without an equation")
    pairs, extents = einsum_pairs(equation, [_shape(spec) for spec in node.inputs])
    return sum(prod(extents[x] for x in kept) for pair, kept in pairs if len(kept) < len(pair))


def _heads(node: Node, index: int) -> tuple[int, ...]:
    dims = _shape(_at(node.inputs, index))
    if len(dims) == 4:
        return dims
    heads = node.attrs.get("kv_num_heads" if index else "q_num_heads")
    if len(dims) != 3 or not isinstance(heads, int) or heads <= 0:
        raise ValueError(f"{node.op} does not say how its heads are laid out")
    return dims[0], heads, dims[1], dims[2] // heads


def _at(specs: tuple[TensorSpec | None, ...], index: int) -> TensorSpec | None:
    return specs[index] if index < len(specs) else None


def _shape(spec: TensorSpec | None) -> tuple[int, ...]:
    if spec is None or spec.shape is None:
        raise ValueError("a shape is not known")
    return spec.shape


NODE_FORMULAS: dict[str, NodeFormula] = {
    "node.results": results,
    "node.scattered": scattered,
    "node.attended": attended,
    "node.gates": gates,
    "node.contracted": contracted,
}
