"""The score and value products of attention in a graph, and what a causal mask leaves of them.

Attention over Sq queries and St keys costs B H Sq St (D + Dv) MACs. A causal mask leaves of the
Sq x St scores the part 1 - Sq / (2 St): half of a square (the diagonal is taken as half, as
Megatron-LM, MaxText and FlashAttention's benchmark do), nearly all of them for one new token.
A sliding window of W leaves min(W, St) of St keys. Tools count the full square in most cases.
"""

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import TypeAlias

import msgspec

from crossflops.hardware.roofline.dataflow import scopes
from crossflops.ir.graph import Graph, Node, TensorSpec

_FUSED = ("Attention", "FlexAttention")
_PRODUCTS = ("MatMul", "Einsum", "FusedMatMul")
# what may stand between a product and the softmax, and between the softmax and a product
_BETWEEN = frozenset(
    (
        *("Mul", "Div", "Add", "Sub", "Where", "Cast", "CastLike", "Identity", "Dropout", "Tanh"),
        *("Reshape", "Expand", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Max", "IsNaN"),
    )
)
_MASKS = ("Add", "Where", "Sub")


class AttentionScores(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of one attention, and whether it is causal as far as the graph tells.

    `causal` is "declared", "masked" (a mask whose values are not read) or "no".
    """

    queries: int
    keys: int
    causal: str
    window: int = 0

    @property
    def may_halve(self) -> bool:
        """Whether half of the square may be masked out: declared so, or a masked square."""
        return self.causal == "declared" or (self.causal == "masked" and self.queries == self.keys)

    def left(self, half: bool, window: int | None = None) -> Fraction:
        """The share of the full work that is left by the causal mask, or by a window of keys."""
        width = window or self.window
        part = Fraction(1)
        if width and width < self.keys:
            return Fraction(width, self.keys)
        if half and self.may_halve and self.queries <= self.keys:
            part -= Fraction(self.queries, 2 * self.keys)
        return part


Walk: TypeAlias = Callable[[Node], Iterable[Node]]


def scores(graph: Graph) -> dict[str, AttentionScores]:
    """The nodes that are score or value products of an attention, by their key in the ledger."""
    products: dict[str, AttentionScores] = {}
    for prefix, scope in scopes(graph):
        for node, sizes in (*_whole(scope), *_in_pieces(scope)):
            products[prefix + node.key] = sizes
    return products


def _whole(graph: Graph) -> Iterator[tuple[Node, AttentionScores]]:
    """Attention that is one node: Q [B, H, Sq, D] or [B, Sq, H D], keys alike, past keys 4."""
    for node in graph.nodes:
        shapes = [spec.shape if spec else None for spec in node.inputs]
        if node.op.type not in _FUSED or node.op.domain == "com.microsoft" or len(shapes) < 3:
            continue
        query, key = shapes[0], shapes[1]
        past = shapes[4] if len(shapes) > 4 else None
        if query is None or key is None or len(query) < 3:
            continue
        total = key[-2] + (past[2] if past else 0)
        left, masked = node.attrs.get("left_window_size", -1), len(shapes) > 3 and shapes[3]
        causal = "declared" if node.attrs.get("is_causal") else "masked" if masked else "no"
        window = left + 1 if isinstance(left, int) and left >= 0 else 0
        yield node, AttentionScores(queries=query[-2], keys=total, causal=causal, window=window)


def _in_pieces(graph: Graph) -> Iterator[tuple[Node, AttentionScores]]:
    """Two products around a softmax over the keys, both of whose operands are computed."""
    makers = {spec.name: node for node in graph.nodes for spec in node.outputs if spec}
    users: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for spec in node.inputs:
            if spec is not None:
                users.setdefault(spec.name, []).append(node)
    fixed = _fixed(graph)

    def before(node: Node) -> Iterator[Node]:
        return (makers[spec.name] for spec in node.inputs if spec and spec.name in makers)

    def behind(node: Node) -> Iterator[Node]:
        return (user for spec in node.outputs if spec for user in users.get(spec.name, ()))

    for node in graph.nodes:
        shape = node.outputs[0].shape if node.outputs and node.outputs[0] else None
        if node.op.type != "Softmax" or shape is None or len(shape) < 3:
            continue
        above, between = _products(node, before, fixed)
        below, _ = _products(node, behind, fixed)
        if above and below:
            masked = any(passed.op.type in _MASKS for passed in between)
            sizes = AttentionScores(
                queries=shape[-2], keys=shape[-1], causal="masked" if masked else "no"
            )
            yield from ((product, sizes) for product in (*above, *below))


def _products(start: Node, step: Walk, fixed: set[str]) -> tuple[list[Node], list[Node]]:
    """The products that are reached through pointwise nodes alone, and these nodes."""
    products: list[Node] = []
    passed: dict[str, Node] = {}
    waiting = [start]
    while waiting:
        for node in step(waiting.pop()):
            if node.op.type in _PRODUCTS:
                if not any(spec and _is_fixed(spec, fixed) for spec in node.inputs[:2]):
                    products.append(node)
            elif node.op.type in _BETWEEN and node.key not in passed:
                passed[node.key] = node
                waiting.append(node)
    return products, list(passed.values())


def _fixed(graph: Graph) -> set[str]:
    """Values that depend on weights and constants alone."""
    fixed: set[str] = set()
    for node in graph.nodes:
        if not node.bodies and all(_is_fixed(spec, fixed) for spec in node.inputs if spec):
            fixed |= {spec.name for spec in node.outputs if spec}
    return fixed


def _is_fixed(spec: TensorSpec, fixed: set[str]) -> bool:
    return spec.role in ("parameter", "constant") or spec.name in fixed
