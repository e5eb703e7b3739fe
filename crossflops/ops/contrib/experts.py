"""Mixtures of experts: each token meets the k experts that a router chose for it."""

from math import prod
from typing import NamedTuple

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import folded, given, integer, positive, shape, size, source, text
from crossflops.ops.activation import softmax_cost
from crossflops.ops.contrib.activation import NAMED
from crossflops.ops.operands import dims_of, label, rank, sizes
from crossflops.ops.pointwise import ADD, MUL
from crossflops.ops.rule import MICROSOFT, Entry, Exactness, entry

MIXTURES = (f"{MICROSOFT}.MoE", f"{MICROSOFT}.QMoE")


class Places(NamedTuple):
    """At which inputs the weights, biases and scales of the three layers are."""

    weights: tuple[int, int, int]
    biases: tuple[int, int, int]


_PLAIN = Places((2, 4, 6), (3, 5, 7))
_PACKED = Places((2, 5, 8), (4, 7, 10))


class Experts(NamedTuple):
    """E experts of H inputs; fc1 has F outputs, I of them after a fused gate; k of them chosen."""

    tokens: int
    chosen: int
    total: int
    hidden: int
    first: int
    inner: int
    third: bool

    @property
    def weights(self) -> int:
        """Weights of one expert: fc1 [F, H], fc2 [H, I] and, where there is one, fc3 [I, H]."""
        return self.hidden * (self.first + self.inner + (self.inner if self.third else 0))


def experts(node: Node) -> Experts:
    """The sizes of a MoE (or QMoE, whose weights are packed along their last dimension)."""
    places = _PACKED if node.op.type == "QMoE" else _PLAIN
    dims = shape(source(node, 0), at_least=2)
    count, first, _ = shape(source(node, places.weights[0]), rank=3)
    fused = integer(node, "swiglu_fusion", 0) != 0
    if fused and first % 2:
        raise ValueError(f"fc1 of {node.op} has {first} rows, which do not halve")
    return Experts(
        tokens=prod(dims[:-1]),
        chosen=positive(node, "k", 1),
        total=count,
        hidden=dims[-1],
        first=first,
        inner=first // 2 if fused else first,
        third=given(node, places.weights[2]),
    )


def parameters(node: Node) -> tuple[int, int]:
    """Weights and biases of all experts, and the most of them that can be active in one call.

    Each of the tokens chooses k: at most min(E, tokens * k) experts take part.
    """
    sizes = experts(node)
    one = sizes.weights + _biases(node, sizes)
    return sizes.total * one, _active(sizes) * one


def _active(sizes: Experts) -> int:
    return min(sizes.total, sizes.tokens * sizes.chosen)


def _biases(node: Node, sizes: Experts) -> int:
    """Biases of one expert."""
    places = _PACKED if node.op.type == "QMoE" else _PLAIN
    widths = (sizes.first, sizes.hidden, sizes.inner)
    return sum(w for w, i in zip(widths, places.biases, strict=True) if given(node, i))


def mixture(node: Node) -> Cost:
    """MoE: the sum over the k chosen experts of w_e * fc2(activation(fc1(x)) [* fc3(x)]).

    tokens*k*(H*F + I*H [+ H*I]) MACs, the active ones; biases F, H and I adds; activation per
    inner unit, swiglu (sigmoid, 2 muls; alpha, beta, a limit one mul, add, 3 compares each);
    routing: a softmax of router_probs [tokens, E], the k largest, tokens*k normalizing divs and
    k - 1 adds; the sum tokens*H (k muls, k - 1 adds).
    """
    sizes = experts(node)
    one = (
        Cost(macs=sizes.weights, adds=_biases(node, sizes))
        + _activation(node, sizes) * sizes.inner
    )
    mixed = Cost(muls=sizes.chosen, adds=max(sizes.chosen - 1, 0)) * (sizes.tokens * sizes.hidden)
    return one * (sizes.tokens * sizes.chosen) + mixed + _routing(node, sizes)


def _activation(node: Node, sizes: Experts) -> Cost:
    """Work per inner unit of an expert."""
    name = text(node, "activation_type", "relu").lower()
    if name == "swiglu":
        alpha = MUL if node.attrs.get("activation_alpha", 1.0) != 1 else ZERO
        beta = ADD if node.attrs.get("activation_beta", 0.0) != 0 else ZERO
        limit = Cost(compares=3) if "swiglu_limit" in node.attrs else ZERO
        return Cost(specials=1, muls=2) + alpha + beta + limit
    if name not in NAMED:
        raise ValueError(f"the activation {name!r} of {node.op} is not known")
    return NAMED[name] + (MUL if sizes.third else ZERO)


def _routing(node: Node, sizes: Experts) -> Cost:
    """Softmax over the experts, then the largest, k times, among those that are left."""
    logits = size(node, 1)
    passes = sum(max(sizes.total - 1 - turn, 0) for turn in range(sizes.chosen))
    cost = softmax_cost(logits, sizes.tokens) + Cost(compares=passes * sizes.tokens)
    if integer(node, "normalize_routing_weights", 0):
        chosen = sizes.tokens * sizes.chosen
        cost += Cost(adds=folded(chosen, sizes.tokens), divs=chosen)
    return cost


def quantized_mixture(node: Node) -> Cost:
    """QMoE: as MoE; the weights of every expert that may be active are dequantized once.

    At most min(E, tokens*k) experts: (sub, mul) per weight.
    """
    sizes = experts(node)
    return mixture(node) + (MUL + ADD) * (_active(sizes) * sizes.weights)


def shared_experts(node: Node) -> Exactness:
    """A bound where several tokens may choose the same experts: these are unpacked once."""
    sizes = experts(node)
    return "exact" if _active(sizes) == min(sizes.total, sizes.chosen) else "bound"


def _routed(node: Node) -> str:
    """The router says something of every token."""
    data, probs = dims_of(node, 0), dims_of(node, 1)
    if data is None or probs is None or probs[0] == prod(data[:-1]):
        return ""
    return f"{label(node, 1, 'router_probs')} has {probs[0]} rows for {prod(data[:-1])} tokens"


def _layers(node: Node) -> str:
    """Tokens meet the router, and the layers of an expert each other, whichever way they lie."""
    data, first = dims_of(node, 0), dims_of(node, 2)
    if data is None or first is None:
        return ""
    if wrong := _routed(node):
        return wrong
    hidden, count = data[-1], first[0]
    if hidden not in first[1:]:
        return f"{label(node, 2, 'fc1')} has no axis of the {hidden} of {label(node, 0)}"
    wide = first[1] if first[2] == hidden else first[2]
    inner = wide // 2 if integer(node, "swiglu_fusion", 0) else wide
    layer = {(count, hidden, inner), (count, inner, hidden)}
    for index, fitting in ((3, {(count, wide)}), (4, layer), (5, {(count, hidden)}), (6, layer)):
        dims = dims_of(node, index)
        if dims is not None and dims not in fitting:
            needed = " or ".join("x".join(map(str, one)) for one in sorted(fitting))
            return f"{label(node, index)} needs to be {needed}"
    return ""


def _packed(node: Node) -> str:
    """Weights of few bits lie several in a byte along what is contracted, H and I.

    fc1 [E, F, H / pack] and its scales [E, F, ...], fc2 [E, H, I / pack] and its scales
    [E, H, ...]; F is I, or 2 I where two layers are fused.
    """
    data, first, second = dims_of(node, 0), dims_of(node, 2), dims_of(node, 5)
    pack = 8 // positive(node, "expert_weight_bits", 4)
    if data is None or first is None or second is None or len(second) != 3:
        return ""
    hidden, inner = data[-1], second[2] * pack
    wide = 2 * inner if integer(node, "swiglu_fusion", 0) else inner
    for index, fitting in (
        (2, (first[0], wide, -(-hidden // pack))),
        (5, (first[0], hidden, second[2])),
        (3, (first[0], wide)),
        (6, (first[0], hidden)),
    ):
        dims = dims_of(node, index)
        rest = 3 if index in (3, 6) else len(fitting)
        if dims is not None and (dims[: len(fitting)] != fitting or len(dims) > rest):
            return f"{label(node, index)} needs to be {'x'.join(map(str, fitting))}"
    return f"{label(node, 0)} has {hidden}, no multiple of {pack}" if hidden % pack else ""


_MIXTURE = (
    "tokens*k*(H*F + I*H [+ H*I]) MACs; biases: adds; tokens*k*I*activation; softmax of the "
    "router, k largest: compares; normalized: tokens*k divs; sum: tokens*H*(k muls, k-1 adds)"
)

ENTRIES: tuple[Entry, ...] = (
    entry(
        "MoE",
        mixture,
        _MIXTURE,
        domain=MICROSOFT,
        requires=(rank(0, (2, 3)), sizes("input[...,H] router_probs[_,E] fc1[E,_,_]"), _layers),
    ),
    entry(
        "QMoE",
        quantized_mixture,
        f"{_MIXTURE}; dequantize: min(E, tokens*k)*weights*(sub, mul)",
        domain=MICROSOFT,
        doubt=shared_experts,
        requires=(
            rank(0, (2, 3)),
            sizes("input[...,H] router_probs[_,E] fc1[E,_,_] fc1_scales[E,...] bias fc2[E,_,_]"),
            _routed,
            _packed,
        ),
    ),
)
