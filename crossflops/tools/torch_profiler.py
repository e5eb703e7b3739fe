"""Define the convention of torch.profiler with `with_flops=True`: it counts seven operators,
whatever calls them.

It sees every operator that goes through the dispatcher, also those that composite operators and
kernels call inside: a linear layer is `aten::addmm`, the gates of a GRU are `aten::mul` and
`aten::add`. Source: torch/csrc/profiler/util.cpp (`saveExtraArgs`, `computeFlops`).
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from crossflops.ir.training import BEGUN, GRADIENTS, SCORES
from crossflops.rules.conditions import Condition, Site, in_body, recorded_as
from crossflops.rules.rule import Tool, with_formula
from crossflops.tools.replaced_functions import Arguments

_SOURCE = "torch/csrc/profiler/util.cpp: computeFlops"
_SAME, _BEGUN = "graph.export-decomposition", "backward.checkpoint-begun"
_POLICY = "backward.checkpoint"

tool = Tool(
    "torch-profiler",
    edition="2.13",
    verified=("2.13.0",),
    prints="FLOPs",
    per_mac=2,
    level="event",
    unseen="op.unregistered-zero",
    counts_dead_work=True,
    source=_SOURCE,
    step="runs",
)
called = tool.rules("operator", source=_SOURCE)
# torch/autograd/profiler_util.py: EventList._remove_dup_nodes leaves the outermost of each name.
begun = tool.rules(
    "event",
    recorded_as("not called by an operator of the same name", repeated=False),
    source=_SOURCE,
)


def _profiler_setting_pair(call: Site, name: str) -> tuple[int, int]:
    """Return a setting for two axes as (first, second); a single integer applies to both."""
    value = call.settings[name]
    if isinstance(value, list):
        return int(value[0]), int(value[-1])
    if not isinstance(value, int):
        raise TypeError(f"{name} of {call.key} is {value!r}")
    return value, value


# An event has no stride: the operator that the model called has.
# What a checkpoint begins to run again, and stops in, is an event with all of its FLOPs.
@called.contraction(f"{BEGUN}aten.conv2d.default", cause=_BEGUN, name="conv2d.begun")
@called.contraction("aten.conv2d.default", cause="conv.unbatched-axis", name="conv2d")
@with_formula(
    "N Ho Wo Kh Kw Ci Co / g, with Ho = (H + 2 p - d (k - 1) - 1) // s + 1; 0 unless H is axis 3"
)
def profiler_convolution_macs(call: Site) -> int:
    """Return the MACs that torch.profiler counts for conv2d; 0 for an input without a batch axis.

    A convolution without a batch has three axes, and counts nothing.
    """
    return _profiler_window_macs(
        call.shape("input"),
        call.shape("weight"),
        [_profiler_setting_pair(call, name) for name in ("stride", "padding", "dilation")],
        call.settings.get("groups", 1),
    )


# In the body of a custom operator no operator tells the stride: the function does.
@tool.rules("function", in_body(), source=_SOURCE).contraction(
    "torch.nn.functional.conv2d",
    "torch.conv2d",
    cause="conv.unbatched-axis",
    name="conv2d.body",
    formula="N Ho Wo Kh Kw Ci Co / g; 0 if padding is a text",
)
def profiler_custom_operator_convolution_macs(call: Site) -> int:
    """Return the MACs that torch.profiler counts for conv2d in the body of a custom operator; 0 if
    its padding is a text such as "same".
    """
    provided = Arguments(call, "conv")
    stride, padding, dilation = (
        provided.value(name, default)
        for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    if isinstance(padding, str):
        return 0
    windows = [_pair_of_numbers(value) for value in (stride, padding, dilation)]
    shapes = provided.shape("input"), provided.shape("weight")
    return _profiler_window_macs(*shapes, windows, provided.number("groups", 1))


def _pair_of_numbers(value: Any) -> tuple[int, int]:
    """Return a value for two axes as (first, second); a single number applies to both."""
    return (int(value[0]), int(value[-1])) if isinstance(value, list) else (int(value),) * 2


def _profiler_window_macs(
    source: tuple[int, ...],
    weight: tuple[int, ...],
    windows: Sequence[tuple[int, int]],
    groups: Any,
) -> int:
    """Return the MACs of a two-dimensional convolution from the shapes of input and weight; 0 if
    the input does not have four axes.

    `windows` are the pairs of stride, padding and dilation.
    """
    if len(source) != 4:
        return 0
    stride, padding, dilation = windows
    positions = prod(
        (extent + 2 * pad - dilate * (kernel - 1) - 1) // step + 1
        for extent, kernel, step, pad, dilate in zip(
            source[2:], weight[2:], stride, padding, dilation, strict=True
        )
    )
    product = source[0] * positions * prod(weight[2:]) * source[1] * weight[0]
    return product // groups if isinstance(groups, int) else product


def _product_factor_shapes(call: Site) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of the two factors of a matrix product; for addmm and baddbmm these are
    the second and third operands.
    """
    index = 1 if "add" in call.target else 0
    return call.shape(str(index)), call.shape(str(index + 1))


@with_formula("n(A) / K x n(B), A [n, K] and B [K, p]; an addition to the product counts nothing")
def profiler_product_macs(call: Site) -> int:
    """Return the MACs that torch.profiler counts for mm and addmm: rows of the first factor x
    elements of the second.
    """
    first, second = _product_factor_shapes(call)
    return prod(first[:-1]) * prod(second)


@with_formula("n(A) / (K b) x n(B), A [b, n, K] and B [b, K, p]; an addition counts nothing")
def profiler_batch_product_macs(call: Site) -> int:
    """Return the MACs that torch.profiler counts for bmm and baddbmm: rows of one matrix of the
    first factor x all elements of the second.
    """
    first, second = _product_factor_shapes(call)
    return prod(first[1:-1]) * prod(second)


def _is_from_begun_recomputation(call: Site) -> bool:
    """Return whether the observed call belongs to an operator at which a checkpoint stops its
    recomputation.
    """
    return any(call.trace.calls_by_key[key].target.startswith(BEGUN) for key in call.call.of)


def _is_repeated_in_checkpoint(call: Site) -> bool:
    """Return whether the observed call is recorded as run twice and comes from a checkpoint."""
    of_checkpoint = (call.trace.calls_by_key[key].checkpoint is not None for key in call.call.of)
    return call.settings.get("twice") is True and any(of_checkpoint)


for name, formula in (
    ("mm", profiler_product_macs),
    ("addmm", profiler_product_macs),
    ("bmm", profiler_batch_product_macs),
    ("baddbmm", profiler_batch_product_macs),
):
    stopped = Condition("where a checkpoint stops recomputing", _is_from_begun_recomputation)
    # Its dispatch mode takes an operator and runs it: these are two events.
    twice = Condition("in a checkpoint that has a policy", _is_repeated_in_checkpoint)
    begun.contraction(f"aten::{name}", stopped, cause=_BEGUN, name=f"{name}.stopped")(formula)
    begun.contraction(f"aten::{name}", twice, cause=_POLICY, name=f"{name}.twice")(formula)
    begun.contraction(f"aten::{name}", cause=_SAME, name=name)(formula)


@begun.adds("aten::mul", cause="elementwise.add-function", name="mul")
@begun.adds("aten::add", cause="elementwise.add-function", name="add")
@with_formula("n(x), x the first operand, for any shape of the result")
def profiler_elementwise_operations(call: Site) -> int:
    """Return the operations that torch.profiler counts for mul and add: the number of elements of
    the first operand.
    """
    return prod(call.shape("0"))


called.misses(
    "string-padding",
    *(f"aten.conv{rank}d.padding" for rank in (1, 2, 3)),
    cause="conv.string-padding-unsupported",
)
called.misses(
    "other-convolutions",
    *("aten.conv1d.default", "aten.conv3d.default"),
    *("aten.conv_transpose*", "aten.convolution.default"),
    cause="conv.dim-unsupported",
)
for name, operator, cause in (
    ("attention", "aten.scaled_dot_product_attention.default", "attention.sdpa"),
    ("recurrent", "aten.lstm.*", "rnn.fused"),
):
    called.misses(name, operator, f"{GRADIENTS}{operator}", cause=cause)

# A training step: products of the backward pass are events like any, and count.
called.misses("convolution-backward", f"{GRADIENTS}aten.conv*", cause="conv.backward-unsupported")
tool.rules("event", source=_SOURCE).hides(
    "fused-attention-backward", "aten::_scaled_dot_product_*_backward", cause="attention.sdpa"
)
called.misses("scores-again", f"{SCORES}*", cause="backward.attention-recomputed")

CONVENTIONS = (tool.convention,)
