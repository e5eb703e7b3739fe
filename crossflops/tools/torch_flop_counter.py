"""Define the convention of torch.utils.flop_counter.FlopCounterMode: 2 FLOPs per MAC of the
operators that reach its dispatch mode.

It stands below the operators that the model calls: a fused CPU kernel for which it has no formula
counts nothing, and whether there is one depends on the setting. Source: the wheel's
torch/utils/flop_counter.py (`flop_registry`, `FlopCounterMode._count_flops`).
"""

from math import prod

from crossflops.ir.training import SCORES
from crossflops.rules.conditions import Condition, Site, of_complex, recorded_as
from crossflops.rules.rule import Teaching, Tool, with_formula

_SOURCE = "torch/utils/flop_counter.py"
_SAME = "graph.export-decomposition"

tool = Tool(
    "torch-flop-counter",
    edition="2.13",
    verified=("2.13.0",),
    prints="FLOPs",
    per_mac=2,
    level="dispatch",
    unseen="op.unregistered-zero",
    counts_dead_work=True,
    source=_SOURCE,
    step="runs",
    teaching=Teaching(
        mechanism="custom_mapping of FlopCounterMode",
        takes="operator",
        level="operator",
        source=f"{_SOURCE}: FlopCounterMode",
    ),
)
dispatched = tool.rules("dispatch", source=_SOURCE)

# What is computed of an operator's positional arguments, as it reaches a dispatch mode: ptflops'
# aten_ops.py has the same formulas.


@with_formula("n(A) x B.shape[-1]")
def flop_counter_product_macs(call: Site) -> int:
    """Return the MACs that the tool counts for mm and bmm: number of elements of the first operand
    x last axis of the second.

    mm_flop and bmm_flop; matmul_flop and bmm_flop of ptflops.
    """
    return prod(call.shape("0")) * call.shape("1")[-1]


@with_formula("rows x in x out of input + A B, of each matrix")
def flop_counter_addmm_macs(call: Site) -> int:
    """Return the MACs that the tool counts for addmm (input + A B): number of elements of A x last
    axis of B.

    addmm_flop, baddbmm_flop.
    """
    return prod(call.shape("1")) * call.shape("2")[-1]


@with_formula("x.shape[0] x n(w) x prod(y.shape[2:]), x instead of y when transposed")
def flop_counter_convolution_macs(call: Site) -> int:
    """Return the MACs that the tool counts for a convolution: batch size x number of weight
    elements x output positions (input positions if it is transposed).

    conv_flop_count.
    """
    source, weight = call.shape("0"), call.shape("1")
    positions = source if call.settings["6"] else (call.result.shape or ())
    return source[0] * prod(weight) * prod(positions[2:])


for name, cause, kernels in (
    (
        "native-attention-module",
        "attention.module-fastpath",
        ("_native_multi_head_attention", "_transformer_encoder_layer_fwd"),
    ),
    (
        "cpu-flash-attention",
        "attention.sdpa",
        (
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention_for_cpu_backward",
        ),
    ),
    ("mkldnn-lstm", "rnn.fused", ("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward")),
    ("vector-products", "op.unregistered-zero", ("mv", "addmv", "dot", "vdot", "_trilinear")),
):
    dispatched.hides(
        name,
        tuple(f"aten.{kernel}.*" for kernel in kernels),
        cause=cause,
        source=f"{_SOURCE}: flop_registry has no formula for aten.{kernels[0]}",
    )

# The branches of a condition have a cause of their own: the recording of what is dispatched adds
# them, as the tool does. So have products of complex numbers, which count like those of real ones.
for name, formula, function, operators in (
    ("product", flop_counter_product_macs, "mm_flop, bmm_flop", ("aten.mm.*", "aten.bmm.*")),
    (
        "added",
        flop_counter_addmm_macs,
        "addmm_flop, baddbmm_flop",
        ("aten.addmm.*", "aten.baddbmm.*"),
    ),
):
    for suffix, cause, conditions in (
        (".branch", "control.branch", (recorded_as("in a branch", branch=True),)),
        (".complex", "contraction.complex", (of_complex(),)),
        ("", _SAME, ()),
    ):
        dispatched.contraction(
            operators,
            *conditions,
            cause=cause,
            name=f"{name}{suffix}",
            source=f"{_SOURCE}: {function}",
        )(formula)

dispatched.contraction(
    "aten.convolution.*",
    "aten._convolution.*",
    cause=_SAME,
    name="convolution",
    source=f"{_SOURCE}: conv_flop",
)(flop_counter_convolution_macs)


# A training step: `output_mask` says which operands of a convolution have a gradient.


@with_formula(
    "B x n(w) x prod(dy.shape[2:]) for dx, and x.shape[1] x n(dy) x prod(w.shape[2:]) for dw"
)
def flop_counter_convolution_backward_macs(call: Site) -> int:
    """Return the MACs that the tool counts for the backward pass of a convolution: those of the
    input gradient plus those of the weight gradient, each only if it is computed.

    conv_backward_flop. Of a transposed convolution x and dy change places. In a grouped one
    x.shape[1] is `groups` x w.shape[1]: dw is so many times what it costs.
    """
    outer, source, weight = (call.shape(index) for index in "012")
    mask = call.settings["10"]
    if not isinstance(mask, list):
        raise TypeError(f"the output mask of {call.key} is {mask!r}")
    first, second = (outer, source) if call.settings["7"] else (source, outer)
    of_input = outer[0] * prod(weight) * prod(second[2:])
    of_weight = first[1] * prod(second) * prod(weight[2:])
    return of_input * bool(mask[0]) + of_weight * bool(mask[1])


for suffix, cause, conditions in (
    ("", _SAME, (Condition("of one group", lambda call: call.settings.get("9") == 1),)),
    (".grouped", "conv.grouped-weight-gradient", ()),
):
    dispatched.contraction(
        "aten.convolution_backward.*",
        *conditions,
        cause=cause,
        name=f"convolution-backward{suffix}",
        source=f"{_SOURCE}: conv_backward_flop",
    )(flop_counter_convolution_backward_macs)

tool.rules("operator", source=_SOURCE).misses(
    "scores-again", f"{SCORES}*", cause="backward.attention-recomputed"
)

CONVENTIONS = (tool.convention,)
