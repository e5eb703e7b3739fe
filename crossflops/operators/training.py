"""The cost of losses, and of the steps of optimizers in ONNX."""

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    float_attribute,
    has_input,
    input_element_count,
    input_spec,
    spec_shape,
    string_attribute,
)
from crossflops.operators.gradient import Gradient, OperandPositions, no_gradient
from crossflops.operators.normalization import log_softmax_cost, log_softmax_gradient_cost
from crossflops.operators.operands import (
    equal_shapes_constraint,
    first_problem_constraint,
    input_label,
    input_shape_or_raise,
    single_number_constraint,
    sizes_constraint,
)
from crossflops.operators.rule import TRAINING, Constraint, OperandProblem, Operators

operator = Operators()


def _optimizer_element_count(node: Node, kinds: int) -> int:
    """Return the number of elements that an optimizer node updates; its inputs from 2 on are
    `kinds` groups of tensors.
    """
    count, rest = divmod(len(node.inputs) - 2, kinds)
    if rest or count < 0:
        raise ValueError(f"{node.op} has {len(node.inputs)} inputs, not 2 + {kinds}n")
    return sum(input_element_count(node, 2 + index) for index in range(count))


def _optimizer_constraint(kinds: int) -> Constraint:
    """Return a constraint on an optimizer node: each tensor, its gradient and its moments (`kinds`
    groups) have one shape.
    """

    def optimizer_shape_problem(node: Node) -> OperandProblem:
        """Return why the inputs of the optimizer do not have equal shapes per tensor; "" if
        nothing is wrong.
        """
        count = (len(node.inputs) - 2) // kinds
        similar = (
            equal_shapes_constraint(*range(2 + at, len(node.inputs), count)) for at in range(count)
        )
        return first_problem_constraint(single_number_constraint(0, 1), *similar)(node)

    return optimizer_shape_problem


@operator(
    "Momentum",
    "n(X)*(4 muls, 3 adds); nesterov: mul, add",
    domain=TRAINING,
    requires=_optimizer_constraint(3),
    backward=no_gradient,
)
def momentum_step_cost(node: Node) -> Cost:
    """Return the cost of the optimizer step Momentum: G' = norm*X + G; V = alpha*V + beta*G'; X =
    X - R*V.

    4 muls, 3 adds per element; nesterov X = X - R*(G' + alpha*V): a mul and an add more.
    inputs X..., G..., V... The factor of beta in the first step is not looked at.
    https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Momentum.html
    """
    ahead = 1 if string_attribute(node, "mode") == "nesterov" else 0
    return Cost(muls=4 + ahead, adds=3 + ahead) * _optimizer_element_count(node, 3)


@operator(
    "Adagrad",
    "n(X)*(3 muls, 4 adds, sqrt, div) + (div, add, mul)",
    domain=TRAINING,
    requires=_optimizer_constraint(3),
    backward=no_gradient,
)
def adagrad_step_cost(node: Node) -> Cost:
    """Return the cost of the optimizer step Adagrad: G' = norm*X + G; H = H + G'*G'; X = X - r*G'
    / (sqrt(H) + epsilon).

    3 muls, 4 adds, sqrt, div per element; once r = R / (1 + T*decay). inputs X..., G..., H...
    https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Adagrad.html
    """
    step = Cost(divs=1, adds=1, muls=1)
    return Cost(muls=3, adds=4, specials=1, divs=1) * _optimizer_element_count(node, 3) + step


@operator(
    "Adam",
    "n(X)*(7 muls, 5 adds, sqrt, div); norm_coefficient_post: n(X) muls",
    domain=TRAINING,
    requires=_optimizer_constraint(4),
    backward=no_gradient,
)
def onnx_adam_cost(node: Node) -> Cost:
    """Return the cost of the optimizer step Adam: G' = norm*X + G; V = a*V + (1-a)*G'; H = b*H +
    (1-b)*G'*G'; X -= r*V/(sqrt(H)+eps).

    7 muls, 5 adds, sqrt, div per element; norm_coefficient_post a mul more. What is once per
    step is not counted. inputs X..., G..., V..., H...
    https://onnx.ai/onnx/operators/onnx_aionnxpreviewtraining_Adam.html
    """
    post = 1 if float_attribute(node, "norm_coefficient_post", 0.0) != 0 else 0
    return Cost(muls=7 + post, adds=5, specials=1, divs=1) * _optimizer_element_count(node, 4)


def _loss_targets_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the target, or "" if nothing is: one for each position of the
    input [N, C, d...].
    """
    data, target = input_shape_or_raise(node, 0), input_shape_or_raise(node, 1)
    if len(data) < 2:
        return f"{input_label(node, 0)} has rank {len(data)}, but needs at least 2"
    if data[:1] + data[2:] == target:
        return ""
    return f"{input_label(node, 1)} is not {input_label(node, 0)} without its axis 1"


_TARGETS = (_loss_targets_constraint, sizes_constraint("input[N,C,...] target weight[C]"))

_LOSS = (
    "m negations; weight: m muls; ignore_index: m compares; sum: m-1 adds; "
    "mean: m-1 adds, 1 div, weighted 2(m-1) adds; m = n(target)"
)


# Losses, whose equations their operators fix.


def _negative_log_likelihood_backward(
    node: Node, requested: OperandPositions, _forward: Cost
) -> Gradient:
    """Return the cost of the gradient of a negative log-likelihood loss.

    dX = -weight[target] dl at each target, and 0 elsewhere (ATen/native/LossNLL.cpp).

    m negations; weight: m muls; ignore_index: m compares; mean: a div, by the sum of the forward
    pass.
    """
    targets = input_element_count(node, 1)
    work = Cost(
        adds=targets,
        muls=targets if has_input(node, 2) else 0,
        compares=targets if "ignore_index" in node.attrs else 0,
        divs=1 if string_attribute(node, "reduction", "mean") == "mean" else 0,
    )
    return Gradient(dict.fromkeys(requested & {0}, work))


def _softmax_cross_entropy_backward(
    node: Node, requested: OperandPositions, forward: Cost
) -> Gradient:
    """Return the cost of the gradient of a softmax cross-entropy: of the likelihood and of
    LogSoftmax, whose result is stored.
    """
    work = _negative_log_likelihood_backward(node, requested, forward).operands
    softened = log_softmax_gradient_cost(input_element_count(node), input_element_count(node, 1))
    return Gradient({index: cost + softened for index, cost in work.items()})


@operator(
    "NegativeLogLikelihoodLoss",
    _LOSS,
    since=12,
    requires=_TARGETS,
    backward=_negative_log_likelihood_backward,
)
def negative_log_likelihood_cost(node: Node) -> Cost:
    """Return the cost of NegativeLogLikelihoodLoss, -weight[target] * input[target] for each
    target, and its reduction.

    m negations; weight: m muls; ignore_index: m compares. sum: m - 1 adds. mean: m - 1 adds
    and a div, and where weights or ignored targets make it a weighted one, m - 1 adds more.
    input [N, C, d...], target [N, d...].
    https://onnx.ai/onnx/operators/onnx__NegativeLogLikelihoodLoss.html
    """
    targets, ignoring = input_element_count(node, 1), "ignore_index" in node.attrs
    weighted = targets if has_input(node, 2) else 0
    work = Cost(adds=targets, muls=weighted, compares=targets if ignoring else 0)
    return work + _loss_reduction_cost(node, targets, bool(weighted) or ignoring)


def _loss_reduction_cost(node: Node, count: int, weighted: bool) -> Cost:
    """Return the cost of reducing `count` losses by the node's reduction: none, sum or mean."""
    reduction, joined = string_attribute(node, "reduction", "mean"), Cost(adds=max(count - 1, 0))
    if reduction == "none":
        return ZERO
    if reduction == "sum":
        return joined
    return joined * (2 if weighted else 1) + Cost(divs=1)


@operator(
    "SoftmaxCrossEntropyLoss",
    f"n-m compares, n subs, n exps, n-m adds, m logs, n subs; {_LOSS}",
    since=12,
    requires=_TARGETS,
    backward=_softmax_cross_entropy_backward,
)
def softmax_cross_entropy_cost(node: Node) -> Cost:
    """Return the cost of SoftmaxCrossEntropyLoss: LogSoftmax over the classes, then
    NegativeLogLikelihoodLoss.

    scores [N, C, d...], labels [N, d...]; n(labels) groups.
    https://onnx.ai/onnx/operators/onnx__SoftmaxCrossEntropyLoss.html
    """
    spec_shape(input_spec(node, 0), at_least=2)
    return log_softmax_cost(
        input_element_count(node), input_element_count(node, 1)
    ) + negative_log_likelihood_cost(node)
