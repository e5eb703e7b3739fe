"""DeepSpeed's flops profiler: of today, and of 2021, which stands behind published figures.

Today it has two numbers. What it has beside the rules that it shares with calflops (`patched`)
stands below. In 2021 it had one, called MACs, in which biases, activations, norms, pools and the
elements of a softmax count as well; it replaced functions of torch.nn.functional alone, so
products of attention are not in it. 3139.93 GMACs were published so for BERT-Large.
Source: deepspeed/profiling/flops_profiler/profiler.py.
"""

import msgspec

from crossflops.ir.convention import Convention, Parameters
from crossflops.tools import patched
from crossflops.tools.patched import core, functional, part
from crossflops.tools.patched_editions import GATES, RECURRENT_BIAS, Edition, pair

_SOURCE = "deepspeed/profiling/flops_profiler/profiler.py"
_BROADCAST = "matmul.broadcast-batch-lost"
_MORE_MATMUL = (
    "torch.Tensor.__matmul__", "torch.mm", "torch.Tensor.mm", "torch.bmm", "torch.Tensor.bmm",
)  # fmt: skip

_PRODUCTS = (
    *patched.PRODUCTS,
    core(
        "matmul.more", _BROADCAST, _MORE_MATMUL, "patched.matmul",
        "_matmul_flops_compute",
    ),
    core(
        "transposed", "conv.transpose-groups", patched.TRANSPOSED, "deepspeed.transposed",
        "_conv_trans_flops_compute",
    ),
    core(
        "attention", "attention.sdpa", functional("scaled_dot_product_attention"),
        "deepspeed.attention", "_attn_flops_compute",
    ),
)  # fmt: skip
_PARTS = (
    *patched.PARTS,
    part(
        "transposed.bias", "bias.conv", patched.TRANSPOSED, "deepspeed.transposed_bias",
        "_conv_trans_flops_compute",
    ),
    *patched.resampling("deepspeed"),
    # einops calls torch.einsum, which is replaced as well
    part(
        "einops", "functional.double-counted", ("einops.einsum",), "deepspeed.einops_einsum",
        "_einops_einsum_flops_compute", fails=True,
    ),
)  # fmt: skip

_IN_2021 = (
    core("linear", _BROADCAST, functional("linear"), "patched.linear", "_linear_flops_compute"),
    core(
        "convolution", "conv.output-size-recomputed", patched.CONVOLUTION,
        "deepspeed@2021.convolution", "_conv_flops_compute",
    ),
    core(
        "transposed", "conv.transpose-groups", patched.TRANSPOSED, "deepspeed@2021.transposed",
        "_conv_trans_flops_compute",
    ),
)  # fmt: skip
_PARTS_IN_2021 = (
    part(
        "bias", "bias.conv", (*patched.CONVOLUTION, *patched.TRANSPOSED), "deepspeed@2021.bias",
        "_conv_flops_compute",
    ),
    part(
        "relu", "act.relu", functional("relu"), "deepspeed@2021.elements", "_relu_flops_compute"
    ),
    part(
        "piecewise", "act.piecewise-other", functional("prelu", "leaky_relu", "relu6"),
        "deepspeed@2021.elements", "_relu_flops_compute",
    ),
    part(
        "elu", "act.transcendental", functional("elu"), "deepspeed@2021.elements",
        "_relu_flops_compute",
    ),
    *(
        part(rule.name, rule.cause, rule.targets, "input_elements", rule.source)
        for rule in patched.POOLS
    ),
    *patched.resampling("deepspeed@2021"),
)  # fmt: skip


def _in_2021() -> Convention:
    """Hooks were set once more for each path to a module, and the tree of modules summed so."""
    edition = Edition("deepspeed@2021", _SOURCE, "child_paths", "child_paths_squared")
    batch_norm, softmax = (
        next(rule for rule in patched.PARTS if rule.name == name)
        for name in ("batch_norm", "softmax")
    )
    clauses = (
        *map(edition.function, _IN_2021),
        *map(edition.function, _PARTS_IN_2021),
        edition.function(msgspec.structs.replace(batch_norm, formula="input_elements"), factor=2),
        edition.function(softmax),
        *edition.recurrent(GATES, RECURRENT_BIAS),
        *edition.unseen(_IN_2021),
    )
    trained = Parameters(trainable=True, reference=f"{_SOURCE}: reset_profile")
    found = edition.convention("deepspeed", "2021", 1, "MACs", clauses, trained)
    return msgspec.structs.replace(found, verified=("0.3.13", "0.5.0"))


CONVENTIONS = (
    *pair(
        "deepspeed",
        "0.19.8",
        _SOURCE,
        _PRODUCTS,
        _PARTS,
        times="among_modules",
        hooked_times="among_modules",
        parameters=Parameters(reference=f"{_SOURCE}: reset_profile"),
    ),
    _in_2021(),
)
