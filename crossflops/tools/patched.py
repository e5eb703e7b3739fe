"""What tools that replace PyTorch's functions have in common: DeepSpeed's profiler and calflops.

Both put a function of their own in the place of torch.nn.functional.linear and many more, which
computes an amount from the arguments and goes on to the original. What a model captured before is
not seen. Every module that is registered, by its `__call__`, adds up what was called within it.
Recurrent layers are hooked instead, by their exact class. calflops is a copy of the profiler of
2023; the rules below are those on which all of them agree.
"""

import msgspec

_PADDED = "conv.output-size-recomputed"
_BROADCAST = "matmul.broadcast-batch-lost"


def functional(*names: str) -> tuple[str, ...]:
    """Functions of torch.nn.functional."""
    return tuple(f"torch.nn.functional.{name}" for name in names)


def by_rank(name: str) -> tuple[str, ...]:
    """A function of torch.nn.functional for one, two and three axes."""
    return functional(*(f"{name}{rank}d" for rank in (1, 2, 3)))


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One replaced function, or a family of them. `core` formulas give MACs, others operations.

    `source` is the tool's own function, which `fails` on some arguments that PyTorch's takes.
    """

    name: str
    cause: str
    targets: tuple[str, ...]
    formula: str | None
    source: str
    core: bool = False
    fails: bool = False


def core(name: str, cause: str, targets: tuple[str, ...], formula: str, source: str) -> Rule:
    """A rule for contraction work."""
    return Rule(name=name, cause=cause, targets=targets, formula=formula, source=source, core=True)


def part(
    name: str,
    cause: str,
    targets: tuple[str, ...],
    formula: str,
    source: str,
    fails: bool = False,
) -> Rule:
    """A rule for all other work."""
    return Rule(
        name=name, cause=cause, targets=targets, formula=formula, source=source, fails=fails
    )


CONVOLUTION, TRANSPOSED = by_rank("conv"), by_rank("conv_transpose")
MATMUL = ("torch.matmul", "torch.Tensor.matmul")
ADDMM = ("torch.addmm", "torch.Tensor.addmm", "torch.baddbmm")
RESAMPLED = functional("interpolate", "upsample")
ARITHMETIC = ("torch.add", "torch.Tensor.add", "torch.mul", "torch.Tensor.mul")

PRODUCTS = (
    core("linear", _BROADCAST, functional("linear"), "patched.linear", "_linear_flops_compute"),
    core("convolution", _PADDED, CONVOLUTION, "patched.convolution", "_conv_flops_compute"),
    core("matmul", _BROADCAST, MATMUL, "patched.matmul", "_matmul_flops_compute"),
    core("addmm", _BROADCAST, ADDMM, "patched.addmm", "_addmm_flops_compute"),
)
# counted in FLOPs alone
EINSUM = core(
    "einsum", "einsum.path-estimate", ("torch.einsum",), "patched.einsum", "_einsum_flops_compute"
)
ACTIVATIONS = (
    part("relu", "act.relu", functional("relu"), "patched.elements", "_relu_flops_compute"),
    part(
        "piecewise", "act.piecewise-other", functional("prelu", "leaky_relu", "relu6"),
        "patched.elements", "_leaky_relu_flops_compute",
    ),
    part(
        "transcendental", "act.transcendental", functional("elu", "silu", "gelu"),
        "patched.elements", "_gelu_flops_compute",
    ),
    part(
        "softmax", "softmax", functional("softmax"), "patched.elements", "_softmax_flops_compute"
    ),
)  # fmt: skip
NORMS = (
    part(
        "batch_norm", "norm.batch", functional("batch_norm"), "patched.batch_norm",
        "_batch_norm_flops_compute",
    ),
    *(
        part(f"{kind}_norm", f"norm.{kind}", functional(f"{kind}_norm"), "patched.norm",
             f"_{kind}_norm_flops_compute")
        for kind in ("layer", "group", "instance")
    ),
)  # fmt: skip
POOLS = tuple(
    part(kind, cause, targets, "patched.pooled", "_pool_flops_compute", fails=True)
    for kind, cause, targets in (
        ("average", "pool.avg", by_rank("avg_pool")),
        ("maximum", "pool.max", by_rank("max_pool")),
        ("adaptive", "pool.adaptive", by_rank("adaptive_avg_pool") + by_rank("adaptive_max_pool")),
    )
)
PARTS = (
    part(
        "convolution.bias", "bias.conv", CONVOLUTION, "patched.convolution_bias",
        "_conv_flops_compute",
    ),
    part("addmm.input", "bias.linear", ADDMM, "patched.addmm_input", "_addmm_flops_compute"),
    part(
        "einsum.odd", EINSUM.cause, EINSUM.targets, "patched.einsum_odd",
        "_einsum_flops_compute",
    ),
    part(
        "arithmetic", "elementwise.add-function", ARITHMETIC, "patched.broadcast",
        "_elementwise_flops_compute",
    ),
    *ACTIVATIONS, *NORMS, *POOLS,
)  # fmt: skip


def resampling(tool: str) -> tuple[Rule, ...]:
    """The rules for F.interpolate and F.upsample, by a tool's own formulas."""
    return tuple(
        part(
            f"resampling.{kind}", cause, RESAMPLED, f"{tool}.{kind}", "_upsample_flops_compute",
            fails=True,
        )
        for kind, cause in (("copied", "upsample.nearest"), ("interpolated", "upsample.linear"))
    )  # fmt: skip
