"""Causes of attention: fused kernels, rules of its modules, products that are booked again."""

from crossflops.core.convention import Cause

CAUSES = (
    Cause(
        id="attention.sdpa",
        title="score and value products of attention",
        page="scaled_dot_product_attention is one operator, for which the tool has no rule or of "
        "which the fused kernel that the CPU runs is unknown to it. B x H x Sq x Sk x (D + Dv) "
        "MACs are missing.",
        recognise="The missing amount grows with the square of the sequence.",
        references=("pytorch/pytorch#195460", "Lyken17/pytorch-OpCounter#197"),
    ),
    Cause(
        id="attention.module-fastpath",
        title="attention modules in one fused kernel",
        page="In evaluation without gradients PyTorch runs nn.MultiheadAttention, and a whole "
        "nn.TransformerEncoderLayer, as one native operator, for which the tool has no formula: "
        "projections and products are all missing. Hooks on the modules of an encoder layer "
        "switch that layer's path off, so tools with hooks and tools without see different "
        "executions of one model. With gradients enabled the path is not taken.",
        recognise="The tool's number changes between torch.no_grad() and gradients.",
        references=("pytorch/pytorch#195460",),
    ),
    Cause(
        id="attention.double-counted",
        title="attention by a rule, and its products once more",
        page="The tool has a rule for nn.MultiheadAttention and also replaces the functions that "
        "it calls when weights are asked for (bmm, baddbmm, softmax): both are booked.",
        recognise="need_weights=False changes the tool's number.",
    ),
    Cause(
        id="attention.rule",
        title="attention by a rule of its sizes",
        page="The tool computes the work of an attention module from the lengths and sizes of "
        "query, key and value alone: keys and values of another size are projected by a square "
        "of that size, and tokens that the module adds itself are not there.",
        recognise="The difference vanishes with kdim = vdim = embed_dim and without add_bias_kv.",
    ),
    Cause(
        id="attention.scale-or-softmax",
        title="scaling and softmax of attention",
        page="The multiplication of the scores by 1/sqrt(D) and the softmax over them, which a "
        "rule for attention adds to its products, are in the total.",
        recognise="The amount is a multiple of B x H x Sq x Sk.",
    ),
)
