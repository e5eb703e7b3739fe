"""The functions that ptflops' backend "pytorch" replaces: pytorch_engine.py: patch_functional.

A replaced function is seen where it is called by its attribute; what it counts is not divided.
"""

from math import prod
from typing import Any

from crossflops.ir.profile import Amount
from crossflops.rules.conditions import (
    VMAP,
    Condition,
    Site,
    by_name,
    of_complex,
    output_elements,
    under,
)
from crossflops.rules.rule import Rules

_OPS = "ptflops/pytorch_ops.py"
_AGAIN, _IN_ATTENTION = "functional.double-counted", "attention.double-counted"
_replaced: dict[str, Any] = {"again": _AGAIN, "in_total_only": True}
functional = Rules("function", by_name(), source=f"{_OPS}: FUNCTIONAL_MAPPING", **_replaced)
tensors = Rules("function", by_name(), source=f"{_OPS}: TENSOR_OPS_MAPPING", **_replaced)


# Functions of torch.nn.functional.


def _named(*names: str) -> tuple[str, ...]:
    return tuple(f"torch.nn.functional.{name}" for name in names)


def given_elements(call: Site) -> int:
    """n(input).

    _numel_functional_flops_hook.
    """
    return prod(call.shape("0", "input"))


for cause, names in (
    ("act.relu", ("relu",)),
    ("act.piecewise-other", ("prelu", "relu6")),
    ("act.transcendental", ("elu", "gelu", "silu")),
    ("pool.max", tuple(f"{kind}max_pool{d}d" for kind in ("", "adaptive_") for d in (1, 2, 3))),
    ("pool.avg", tuple(f"avg_pool{d}d" for d in (1, 2, 3))),
    ("pool.adaptive", tuple(f"adaptive_avg_pool{d}d" for d in (1, 2, 3))),
):
    functional.adds(_named(*names), cause=cause, name=f"F.{cause}")(given_elements)
functional.adds(_named("softmax"), cause="softmax", name="F.softmax", again=_IN_ATTENTION)(
    given_elements
)


def _mode(nearest: bool) -> Condition:
    """Whether the mode of the interpolation begins with "nearest"."""

    def holds(site: Site) -> bool:
        mode = site.settings.get("mode", site.settings.get("3", "nearest"))
        return str(mode).startswith("nearest") == nearest

    return Condition('in a mode "nearest"' if nearest else "in any other mode", holds)


# `upsample` calls `interpolate`, which is counted too.
@functional.adds(_named("upsample"), cause=_AGAIN, name="F.upsample")
@functional.adds(
    _named("interpolate"),
    _mode(nearest=False),
    cause="upsample.linear",
    name="F.interpolate.linear",
)
@functional.adds(
    _named("interpolate"),
    _mode(nearest=True),
    cause="upsample.nearest",
    name="F.interpolate.nearest",
)
def interpolation(call: Site) -> Amount:
    """prod(size) x N C, or n(input) x scale ^ axes: a float where the scale is one.

    Scales that are given as a tuple are cut off to integers before they are multiplied.
    _interpolate_functional_flops_hook.
    """
    shape = call.shape("0", "input")
    axes = len(shape) - 2
    if axes < 1:
        raise ValueError("an input without spatial axes")
    size = call.settings.get("size", call.settings.get("1"))
    if isinstance(size, list):
        return prod(map(int, size)) * prod(shape[:2])
    if isinstance(size, int | float):
        return prod([int(size)] * axes) * prod(shape[:2])
    scale = call.settings.get("scale_factor", call.settings.get("2"))
    is_tuple = {"scale_factor", "2"}.isdisjoint(call.call.lists)  # the power of a list fails
    if isinstance(scale, list) and len(scale) == axes and is_tuple:
        return prod(shape) * prod(map(int, scale))
    if not isinstance(scale, int | float):
        raise TypeError(f"scale_factor is {scale!r}")
    amount: Amount = prod(shape) * scale**axes
    return amount


# Functions of torch and methods of tensors.


def _methods(*names: str) -> tuple[str, ...]:
    return tuple(f"{owner}.{name}" for name in names for owner in ("torch", "torch.Tensor"))


_ADDED, _ELEMENTWISE = (*_methods("addmm"), "torch.baddbmm"), _methods("mul", "add")


def product(call: Site) -> int:
    """n(A) x B.shape[-1].

    _matmul_tensor_flops_hook.
    """
    return prod(call.shape("0", "input")) * call.shape("1", "other")[-1]


def added_product(call: Site) -> int:
    """n(A) x B.shape[-1] of input + A B.

    _addmm_tensor_flops_hook.
    """
    return prod(call.shape("1", "mat1")) * call.shape("2", "mat2")[-1]


for name, targets, formula in (
    ("product", _methods("matmul", "mm", "bmm"), product),
    ("added_product", _ADDED, added_product),
):
    for suffix, cause, conditions in (
        (".vmapped", "function.vmap", (under(VMAP),)),
        (".complex", "contraction.complex", (of_complex(),)),
        ("", "matmul.broadcast-batch-lost", ()),
    ):
        tensors.contraction(
            targets, *conditions, cause=cause, name=f"{name}{suffix}", again=_IN_ATTENTION
        )(formula)


@tensors.adds(_ADDED, cause="bias.linear", again=_IN_ATTENTION)
def added(call: Site) -> int:
    """n(input) of input + A B, unless beta is 0.

    _addmm_tensor_flops_hook.
    """
    return prod(call.shape("0", "input")) if call.settings.get("beta", 1) else 0


tensors.adds(_ELEMENTWISE, cause="elementwise.add-function", name="elementwise")(output_elements)


@tensors.adds(_ELEMENTWISE, cause="elementwise.broadcast-shape", name="elementwise.misaligned")
def elementwise_misaligned(call: Site) -> int:
    """The product of the extents, broadcast from the left, minus n(y).

    _elementwise_tensor_flops_hook. Raises LookupError without two operands.
    """
    shapes = [spec.shape for spec in call.inputs if spec.name in {"0", "1", "input", "other"}]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        raise LookupError(f"{call.key} has operands of unknown shape")
    widest = max(map(len, known), default=0)
    padded = [(*shape, *(1,) * (widest - len(shape))) for shape in known]
    # an extent of 0 is smaller than the 1 that stands for a missing one
    aligned = prod(int(max(extents)) for extents in zip(*padded, strict=True))
    return aligned - call.result.numel
