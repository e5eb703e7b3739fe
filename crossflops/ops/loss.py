"""Losses, whose equations their operators fix."""

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import given, shape, size, source, text
from crossflops.ops.activation import log_softmax_cost
from crossflops.ops.operands import dims_of, label, sizes
from crossflops.ops.rule import Entry, entry


def negative_log_likelihood(node: Node) -> Cost:
    """NegativeLogLikelihoodLoss: l = -weight[target] * input[target] for each of m targets.

    m negations; weight: m muls; ignore_index: m compares. sum: m - 1 adds. mean: m - 1 adds
    and a div, and where weights or ignored targets make it a weighted one, m - 1 adds more.
    input [N, C, d...], target [N, d...].
    https://onnx.ai/onnx/operators/onnx__NegativeLogLikelihoodLoss.html
    """
    targets, ignoring = size(node, 1), "ignore_index" in node.attrs
    weighted = targets if given(node, 2) else 0
    each = Cost(adds=targets, muls=weighted, compares=targets if ignoring else 0)
    return each + _reduced(node, targets, bool(weighted) or ignoring)


def _reduced(node: Node, count: int, weighted: bool) -> Cost:
    reduction, joined = text(node, "reduction", "mean"), Cost(adds=max(count - 1, 0))
    if reduction == "none":
        return ZERO
    if reduction == "sum":
        return joined
    return joined * (2 if weighted else 1) + Cost(divs=1)


def softmax_cross_entropy(node: Node) -> Cost:
    """SoftmaxCrossEntropyLoss: LogSoftmax over the classes, then NegativeLogLikelihoodLoss.

    scores [N, C, d...], labels [N, d...]; n(labels) groups.
    https://onnx.ai/onnx/operators/onnx__SoftmaxCrossEntropyLoss.html
    """
    shape(source(node, 0), at_least=2)
    return log_softmax_cost(size(node), size(node, 1)) + negative_log_likelihood(node)


def _one_target_each(node: Node) -> str:
    """input [N, C, d...] and target [N, d...]."""
    data, target = dims_of(node, 0), dims_of(node, 1)
    if data is None or target is None:
        return ""
    if len(data) < 2:
        return f"{label(node, 0)} has rank {len(data)}, and needs at least 2"
    if data[:1] + data[2:] == target:
        return ""
    return f"{label(node, 1)} is not {label(node, 0)} without its axis 1"


_TARGETS = (_one_target_each, sizes("input[N,C,...] target weight[C]"))

_LOSS = (
    "m negations; weight: m muls; ignore_index: m compares; sum: m-1 adds; "
    "mean: m-1 adds, 1 div, weighted 2(m-1) adds; m = n(target)"
)

ENTRIES: tuple[Entry, ...] = (
    entry(
        "NegativeLogLikelihoodLoss",
        negative_log_likelihood,
        _LOSS,
        since=12,
        requires=_TARGETS,
    ),
    entry(
        "SoftmaxCrossEntropyLoss",
        softmax_cross_entropy,
        f"n-m compares, n subs, n exps, n-m adds, m logs, n subs; {_LOSS}",
        since=12,
        requires=_TARGETS,
    ),
)
