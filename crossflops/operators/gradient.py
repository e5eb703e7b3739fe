"""The cost of one node's backward pass: work for each operand whose gradient is requested.

A contraction that is linear in each operand, C = A B, has dA = dC B^T and dB = A^T dC: its forward
MACs once more for each operand that needs a gradient (Griewank and Walther, Evaluating
Derivatives, chapter 3; PyTorch, tools/autograd/derivatives.yaml: mm, convolution). The formulas of
all others are those of derivatives.yaml, from what the forward pass keeps; a broadcast operand
sums n(Y) gradients to its own size, n(Y) - n(X) adds.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    has_input,
    input_element_count,
    output_element_count,
    reduction_operations,
)


class Gradient(msgspec.Struct, frozen=True):
    """The work of one backward pass through a node.

    Attributes:
        operands: The work for the gradient of each input that is wanted, by its place; in a
            formula of one's own by its name.
        inner: The work for values between inputs and outputs, which serves several inputs (the
            states of a recurrent layer, the scores of attention).
        recomputed: Forward work that is done again.
        doubt: Where a size that is not known was assumed.

    Example:
        >>> import crossflops
        >>> product = crossflops.Cost(macs=64)
        >>> work = crossflops.Gradient({"x": product, "w": product}, recomputed=product)
        >>> sum(cost.macs for cost in work.operands.values()) + work.recomputed.macs
        192
    """

    operands: Mapping[Any, Cost]
    inner: Cost = ZERO
    recomputed: Cost = ZERO
    doubt: str = ""


Wanted: TypeAlias = frozenset[int]
# Of a node, the places whose gradients are wanted (one at least) and its forward work.
Backward: TypeAlias = Callable[[Node, Wanted, Cost], Gradient]
NOT_YET = "its backward pass has no formula yet"
FUSED = "onnxruntime fuses it, and it has no formula yet: count the model before fusion"
QUANTIZED = "whole numbers have no gradient: count the model as it was before it was quantized"


def no_gradient(_node: Node, _wanted: Wanted, _forward: Cost) -> Gradient:
    """Return no gradient work: the result does not depend on its operands in a differentiable
    way.
    """
    return Gradient({})


def each_operand(*digits: int, bias: int | None = None) -> Backward:
    """Return a backward function for a contraction that is linear in these operands: its forward
    MACs again for each.

    The gradient of a bias sums those of the results: n(Y) - n(B) adds.
    """

    def backward(node: Node, requested: Wanted, forward: Cost) -> Gradient:
        """Return the backward cost of products: the forward MACs per factor, and the bias sum."""
        work = {index: Cost(macs=forward.macs) for index in digits if index in requested}
        if bias is not None and bias in requested:
            work[bias] = broadcast_sum_cost(node, bias)
        return Gradient(work)

    return backward


def broadcast_sum_cost(node: Node, index: int) -> Cost:
    """Return the adds that sum the gradients of n(Y) results to those of a smaller operand."""
    return Cost(
        adds=reduction_operations(output_element_count(node), input_element_count(node, index))
    )


def elementwise_backward(*work: Cost) -> Backward:
    """Return a backward function with this much work for each element of the result, and the sum
    over broadcast axes.

    `work` has an entry for each operand; the last one holds for all further operands.
    """

    def backward(node: Node, requested: Wanted, _forward: Cost) -> Gradient:
        """Return the backward cost: `work` per result element, plus sums over broadcast axes."""
        return Gradient(
            {
                index: work[min(index, len(work) - 1)] * output_element_count(node)
                + broadcast_sum_cost(node, index)
                for index in requested
            }
        )

    return backward


def per_input(work: Cost = ZERO) -> Backward:
    """Return a backward function with this much work for each element of an operand."""

    def backward(node: Node, requested: Wanted, _forward: Cost) -> Gradient:
        """Return the backward cost: `work` per element of each requested input."""
        return Gradient({index: work * input_element_count(node, index) for index in requested})

    return backward


def moves_back(_node: Node, requested: Wanted, _forward: Cost) -> Gradient:
    """Return no cost for the gradient, which is only moved back or selected."""
    return Gradient(dict.fromkeys(requested, ZERO))


def sums_back(node: Node, requested: Wanted, _forward: Cost) -> Gradient:
    """Return the gradient work: an element that was copied sums the gradients of its copies, n(Y)
    - n(X) adds.
    """
    return Gradient({index: broadcast_sum_cost(node, index) for index in requested})


def scatters_back(node: Node, requested: Wanted, _forward: Cost) -> Gradient:
    """Return the gradient work: every result's gradient is added into zeros, n(Y) adds for the
    data.
    """
    return Gradient({index: Cost(adds=output_element_count(node)) for index in requested})


def first_operand_backward(work: Callable[[Node], Cost]) -> Backward:
    """Return a backward function with this work for the first operand, the only one with a
    gradient.
    """

    def backward(node: Node, requested: Wanted, _forward: Cost) -> Gradient:
        """Return the backward cost `work` if the first input needs a gradient."""
        return Gradient({0: work(node)} if 0 in requested else {})

    return backward


def linear_map_backward(node: Node, requested: Wanted, forward: Cost) -> Gradient:
    """Return the gradient work of a linear map with fixed weights: its transpose costs as much as
    the map.
    """
    return Gradient(dict.fromkeys(requested, forward))


def present(node: Node, *digits: int) -> bool:
    """Return whether one of these inputs is present."""
    return any(has_input(node, index) for index in digits)
