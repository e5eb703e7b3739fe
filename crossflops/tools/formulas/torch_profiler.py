"""What torch.profiler computes from an operator's arguments, in MACs where it multiplies by 2.

From torch/csrc/profiler/util.cpp (`saveExtraArgs`, `computeFlops`).
"""

from math import prod

from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import Formula, shape_of


def convolution(call: Call, module: Module) -> int:
    """N Ho Wo Kh Kw Ci Co / g, with Ho = (H + 2 p - d (k - 1) - 1) // s + 1; 0 unless H is axis 3.

    A convolution without a batch has three axes, and counts nothing.
    """
    source, weight = shape_of(call, "input"), shape_of(call, "weight")
    if len(source) != 4:
        return 0
    stride, padding, dilation = (_pair(call, name) for name in ("stride", "padding", "dilation"))
    groups = call.settings.get("groups", 1)
    out = [
        (source[axis + 2] + 2 * padding[axis] - dilation[axis] * (weight[axis + 2] - 1) - 1)
        // stride[axis]
        + 1
        for axis in (0, 1)
    ]
    whole = source[0] * prod(out) * prod(weight[2:]) * source[1] * weight[0]
    return whole // groups if isinstance(groups, int) else whole


def product(call: Call, module: Module) -> int:
    """n(A) / K x n(B), A [n, K] and B [K, p]: mm."""
    return _product(call, 0)


def added_product(call: Call, module: Module) -> int:
    """n(A) / K x n(B) of the second and the third operand: addmm. The addition counts nothing."""
    return _product(call, 1)


def batched_product(call: Call, module: Module) -> int:
    """n(A) / (K b) x n(B), A [b, n, K] and B [b, K, p]: bmm."""
    return _product(call, 0, batched=True)


def added_batched_product(call: Call, module: Module) -> int:
    """n(A) / (K b) x n(B) of the second and the third operand: baddbmm."""
    return _product(call, 1, batched=True)


def first_elements(call: Call, module: Module) -> int:
    """n(x), x the first operand, whatever the shape of the result."""
    return prod(shape_of(call, "0"))


def _product(call: Call, place: int, batched: bool = False) -> int:
    first, second = shape_of(call, str(place)), shape_of(call, str(place + 1))
    if not first or not first[-1] or (batched and not first[0]):
        return 0
    return prod(first[1:-1] if batched else first[:-1]) * prod(second)


def _pair(call: Call, name: str) -> tuple[int, int]:
    value = call.settings[name]
    if isinstance(value, list):
        return int(value[0]), int(value[-1])
    if not isinstance(value, int):
        raise TypeError(f"{name} of {call.key} is {value!r}")
    return value, value


FORMULAS: dict[str, Formula] = {
    "torch_profiler.convolution": convolution,
    "torch_profiler.product": product,
    "torch_profiler.added_product": added_product,
    "torch_profiler.batched_product": batched_product,
    "torch_profiler.added_batched_product": added_batched_product,
    "torch_profiler.first_elements": first_elements,
}
