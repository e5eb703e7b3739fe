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
    reduction_operation_count,
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


OperandPositions: TypeAlias = frozenset[int]
# Of a node, the places whose gradients are wanted (one at least) and its forward work.
Backward: TypeAlias = Callable[[Node, OperandPositions, Cost], Gradient]
NOT_YET = "its backward pass has no formula yet"
FUSED = (
    "the operator was fused by onnxruntime and has no formula yet: count the model before fusion"
)
QUANTIZED = "integers have no gradient: count the model before quantization"


def no_gradient(_node: Node, _wanted: OperandPositions, _forward: Cost) -> Gradient:
    """Return a gradient without work, for an operator whose result cannot be differentiated."""
    return Gradient({})


def product_backward(*digits: int, bias: int | None = None) -> Backward:
    """Return a backward function of a product of these operands: the gradient of each costs the
    MACs of the forward pass.

    The gradient of a bias sums those of the results: n(Y) - n(B) adds.
    """

    def gradient_of_factors(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
        """Return the cost of the gradients: for each requested factor the forward MACs, for the
        bias the sum over results.
        """
        work = {index: Cost(macs=forward.macs) for index in digits if index in requested}
        if bias is not None and bias in requested:
            work[bias] = broadcast_sum_cost(node, bias)
        return Gradient(work)

    return gradient_of_factors


def broadcast_sum_cost(node: Node, index: int) -> Cost:
    """Return the cost of summing the gradient of n(Y) results to the size n of the operand at
    `index`: n(Y) - n adds.
    """
    return Cost(
        adds=reduction_operation_count(
            output_element_count(node), input_element_count(node, index)
        )
    )


def elementwise_backward(*work: Cost) -> Backward:
    """Return a backward function with this cost per element of the result for each operand, plus
    sums over broadcast axes.

    `work` has an entry for each operand; the last one holds for all further operands.
    """

    def gradient_per_result_element(
        node: Node, requested: OperandPositions, _forward: Cost
    ) -> Gradient:
        """Return the cost of the gradients: `work` per element of the result, plus sums over
        broadcast axes.
        """
        return Gradient(
            {
                index: work[min(index, len(work) - 1)] * output_element_count(node)
                + broadcast_sum_cost(node, index)
                for index in requested
            }
        )

    return gradient_per_result_element


def backward_per_input_element(work: Cost = ZERO) -> Backward:
    """Return a backward function with this cost per element of each operand."""

    def gradient_per_input_element(
        node: Node, requested: OperandPositions, _forward: Cost
    ) -> Gradient:
        """Return the cost of the gradients: `work` per element of each requested operand."""
        return Gradient({index: work * input_element_count(node, index) for index in requested})

    return gradient_per_input_element


def movement_backward(_node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return gradients without work: their elements are only moved or selected."""
    return Gradient(dict.fromkeys(requested, ZERO))


def sum_of_copies_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradients of copied elements: each sums the gradients of its copies,
    n(Y) - n(X) adds.
    """
    return Gradient({index: broadcast_sum_cost(node, index) for index in requested})


def scatter_add_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradients of selected elements: an add for each element of the
    result, into zeros.
    """
    return Gradient({index: Cost(adds=output_element_count(node)) for index in requested})


def first_operand_backward(work: Callable[[Node], Cost]) -> Backward:
    """Return a backward function with this cost for the first operand, the only one with a
    gradient.
    """

    def gradient_of_first_operand(
        node: Node, requested: OperandPositions, _forward: Cost
    ) -> Gradient:
        """Return the cost `work(node)` for the gradient of the first operand, if it is
        requested.
        """
        return Gradient({0: work(node)} if 0 in requested else {})

    return gradient_of_first_operand


def linear_map_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradient of a linear map with fixed weights: as much as the map
    itself.
    """
    return Gradient(dict.fromkeys(requested, forward))


def has_any_input(node: Node, *digits: int) -> bool:
    """Return whether the node is given one of the inputs at these indices."""
    return any(has_input(node, index) for index in digits)
