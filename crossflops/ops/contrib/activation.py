"""Activations that onnxruntime fuses: alone, behind a bias, or at the end of another operator."""

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import axis_of, given, number, out_size, shape, size, source
from crossflops.ops.activation import ACTIVATIONS, softmax_cost
from crossflops.ops.operands import broadcasting, equal, rank, sizes
from crossflops.ops.pointwise import ADD, MUL, SPECIAL
from crossflops.ops.rule import MICROSOFT, Entry, entry

# 0.5 * X * (1 + erf(X / sqrt(2))), and 0.5 * X * (1 + tanh(c * (X + 0.044715 * X^3))).
GELU = Cost(divs=1, specials=1, adds=1, muls=2)
GELU_TANH = Cost(specials=2, adds=2, muls=4)
SILU = SPECIAL + MUL
SOFTPLUS = Cost(specials=2, adds=1)

# Work per element of the functions that an attribute `activation` may name.
NAMED: Mapping[str, Cost] = MappingProxyType(
    {
        **{name.lower(): work for name, _, work, _ in ACTIVATIONS},
        **dict.fromkeys(("sigmoid", "tanh"), SPECIAL),
        **dict.fromkeys(("silu", "swish"), SILU),
        **dict.fromkeys(("", "none", "identity", "linear"), ZERO),
        "affine": Cost(muls=1, adds=1),
        "scaledtanh": Cost(muls=2, specials=1),
        "clip": Cost(compares=2),
        "gelu": GELU,
    }
)


def named(node: Node, attribute: str = "activation", default: str = "") -> Cost:
    """Work per element of the activation that the attribute names. ValueError if unknown."""
    value = node.attrs.get(attribute, default)
    name = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    if name.lower() not in NAMED:
        raise ValueError(f"the activation {name!r} of {node.op} is not known")
    return NAMED[name.lower()]


def gelu(node: Node) -> Cost:
    """Gelu: Y = 0.5 * X * (1 + erf(X / sqrt(2))): div, erf, add, 2 muls."""
    return GELU * out_size(node)


def bias_gelu(node: Node) -> Cost:
    """BiasGelu: Gelu of A + B; n adds."""
    return (GELU + ADD) * out_size(node)


def fast_gelu(node: Node) -> Cost:
    """FastGelu: Gelu by tanh: pow, tanh, 2 adds, 4 muls; bias n adds."""
    return (GELU_TANH + (ADD if given(node, 1) else ZERO)) * out_size(node)


def quick_gelu(node: Node) -> Cost:
    """QuickGelu: Y = X * sigmoid(alpha * X): sigmoid, 2 muls; 1 mul when alpha = 1."""
    scaled = MUL if number(node, "alpha", 1.702) != 1 else ZERO
    return (SILU + scaled) * out_size(node)


def scaled_silu(node: Node) -> Cost:
    """ScaledSiLU: Z = scale * X, Y = Z * sigmoid(Z): sigmoid, mul; a mul when scale != 1."""
    scaled = given(node, 1) or number(node, "alpha", 1.0) != 1
    return (SILU + (MUL if scaled else ZERO)) * out_size(node)


def bias_split_gelu(node: Node) -> Cost:
    """BiasSplitGelu: X + bias is halved, Y = left * Gelu(right); n(X) adds, n(Y)*(Gelu, mul).

    X [N, S, D], bias [D], Y [N, S, D / 2].
    """
    return ADD * size(node) + (GELU + MUL) * out_size(node)


def bias_softmax(node: Node) -> Cost:
    """BiasSoftmax: softmax of data + bias over the dimensions from `axis` on; n adds."""
    dims = shape(source(node, 0))
    count, groups = prod(dims), prod(dims[: axis_of(node, len(dims), 1)])
    return Cost(adds=count) + softmax_cost(count, groups)


def bias_dropout(node: Node) -> Cost:
    """BiasDropout in inference: data + bias + residual; n adds for each of the two.

    Raises ValueError when training_mode is an input, since its value is not known.
    """
    if given(node, 4):
        raise ValueError(f"whether {node.op} drops depends on the value of training_mode")
    return ADD * (out_size(node) * (2 if given(node, 2) else 1))


def bias_add(node: Node) -> Cost:
    """BiasAdd: Y = X + bias + skip; 2 n adds."""
    return Cost(adds=2) * out_size(node)


_DROPPED = "n adds; residual: n adds; inference"

ENTRIES: tuple[Entry, ...] = (
    entry("Gelu", gelu, "n(Y)*(div, erf, add, 2 muls)", domain=MICROSOFT),
    entry(
        "BiasGelu",
        bias_gelu,
        "n(C)*(div, erf, 2 adds, 2 muls)",
        domain=MICROSOFT,
        requires=sizes("A[...,H] B[H]"),
    ),
    entry(
        "FastGelu",
        fast_gelu,
        "n(Y)*(pow, tanh, 2 adds, 4 muls); bias: n(Y) adds",
        domain=MICROSOFT,
        requires=sizes("X[...,H] bias[H]"),
    ),
    entry(
        "QuickGelu",
        quick_gelu,
        "n(Y)*(sigmoid, mul); alpha != 1: n(Y) muls",
        domain=MICROSOFT,
    ),
    entry(
        "ScaledSiLU",
        scaled_silu,
        "n(Y)*(sigmoid, mul); scale: n(Y) muls",
        domain=MICROSOFT,
        requires=rank(1, 0),
    ),
    entry(
        "BiasSplitGelu",
        bias_split_gelu,
        "n(X) adds, n(Y)*(div, erf, add, 3 muls)",
        domain=MICROSOFT,
        requires=sizes("X[N,S,D] bias[D]"),
    ),
    entry(
        "BiasSoftmax",
        bias_softmax,
        "n adds, n-m compares, n subs, n exps, n-m adds, n divs; m = dims before axis",
        domain=MICROSOFT,
        requires=broadcasting(0, 1),
    ),
    entry(
        "BiasAdd",
        bias_add,
        "2n(Y) adds",
        domain=MICROSOFT,
        requires=sizes("X[N,S,C] bias[C] skip[N,S,C]"),
    ),
    entry(
        "BiasDropout",
        bias_dropout,
        _DROPPED,
        domain=MICROSOFT,
        requires=(broadcasting(0, 1), equal(0, 2)),
    ),
    entry(
        "BitmaskBiasDropout",
        bias_dropout,
        _DROPPED,
        domain=MICROSOFT,
        requires=(broadcasting(0, 1), equal(0, 2)),
    ),
)
