"""calflops, a copy of DeepSpeed's profiler of 2023, and what it has beside the rules they share.

It replaces neither the operator @ nor mm, bmm and scaled_dot_product_attention, divides a
transposed convolution by its groups twice, and adds up the tree of modules along every path.
Sources: calflops/pytorch_ops.py, calflops/calculate_pipline.py, calflops/utils.py.
"""

from crossflops.ir.convention import Parameters
from crossflops.tools import patched
from crossflops.tools.patched import core, part
from crossflops.tools.patched_editions import pair

_PRODUCTS = (
    *patched.PRODUCTS,
    core(
        "transposed", "conv.transpose-groups", patched.TRANSPOSED, "calflops.transposed",
        "_conv_trans_flops_compute",
    ),
)  # fmt: skip
_PARTS = (
    *patched.PARTS,
    part(
        "transposed.bias", "bias.conv", patched.TRANSPOSED, "calflops.transposed_bias",
        "_conv_trans_flops_compute",
    ),
    *patched.resampling("calflops"),
    part(
        "arithmetic.aligned", "elementwise.broadcast-shape", patched.ARITHMETIC,
        "calflops.misaligned", "_elementwise_flops_compute",
    ),
)  # fmt: skip

CONVENTIONS = pair(
    "calflops",
    "0.3.2",
    "calflops/pytorch_ops.py",
    _PRODUCTS,
    _PARTS,
    times="child_paths",
    hooked_times="child_paths",
    parameters=Parameters(
        trainable=True, reference="calflops/calculate_pipline.py: reset_flops_calculate"
    ),
)
