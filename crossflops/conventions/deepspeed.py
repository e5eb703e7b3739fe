"""DeepSpeed's flops profiler, and what it has beside the rules that it shares (`patched`).

Source: deepspeed/profiling/flops_profiler/profiler.py.
"""

from crossflops.conventions import patched
from crossflops.conventions.patched import core, functional, part
from crossflops.conventions.patched_editions import pair
from crossflops.core.convention import Parameters

_SOURCE = "deepspeed/profiling/flops_profiler/profiler.py"
_MORE_MATMUL = (
    "torch.Tensor.__matmul__", "torch.mm", "torch.Tensor.mm", "torch.bmm", "torch.Tensor.bmm",
)  # fmt: skip

_PRODUCTS = (
    *patched.PRODUCTS,
    core(
        "matmul.more", "matmul.broadcast-batch-lost", _MORE_MATMUL, "patched.matmul",
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

CONVENTIONS = pair(
    "deepspeed",
    "0.19.8",
    _SOURCE,
    _PRODUCTS,
    _PARTS,
    times=None,
    hooked_times="registered",
    parameters=Parameters(reference=f"{_SOURCE}: reset_profile"),
)
