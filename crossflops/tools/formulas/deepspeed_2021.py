"""What DeepSpeed's profiler computed in 2021, deepspeed/profiling/flops_profiler/profiler.py.

0.3.13 and 0.5.0 agree. Its convolutions know two spatial axes: on one axis they fail, of three
they take the last two of the kernel and the first two of the output.
"""

from math import prod

from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import Formula
from crossflops.tools.formulas.patched_arguments import Arguments, bound
from crossflops.tools.formulas.patched_resampling import asked, by_mode, scales, source


def convolution(call: Call, module: Module) -> int:
    """N x Ci x Co/g x prod(k) x prod(o), k the last two axes and o the first. _conv_flops_compute.

    An unbatched input ends it: the second axis must have the channels.
    """
    given = bound(call)
    shape, weight = given.shape("input"), given.shape("weight")
    groups = given.number("groups", 1)
    if weight[1] * groups != shape[1]:
        raise ValueError("the tool asserts that the second axis of the input has the channels")
    per_position = prod(weight[-2:]) * shape[1] * (weight[0] // groups)
    return per_position * shape[0] * prod(_positions(given))


def transposed(call: Call, module: Module) -> int:
    """N x Ci x (Ci // g) x prod(k) x prod(i): the first axis of the weight taken for Co.

    _conv_trans_flops_compute.
    """
    given = bound(call)
    _positions(given)  # which it computes, and fails at, whether there is a bias or not
    shape, weight = given.shape("input"), given.shape("weight")
    filters = weight[0] // given.number("groups", 1)
    return shape[0] * shape[1] * filters * prod(weight[-2:]) * prod(shape[2:])


def bias(call: Call, module: Module) -> int:
    """N x W[0] x prod(o) with a bias, o as in a convolution that is not transposed."""
    given = bound(call)
    if not given.has("bias"):
        return 0
    return given.shape("weight")[0] * given.shape("input")[0] * prod(_positions(given))


def _positions(given: Arguments) -> tuple[int, int]:
    """(i + 2 p - (d (k - 1) + 1)) // s + 1 for two axes."""
    extents, kernel = given.shape("input")[2:], given.shape("weight")[-2:]
    stride, padding, dilation = (
        _two(given, name, default)
        for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    first, second = (
        (extents[axis] + 2 * padding[axis] - (dilation[axis] * (kernel[axis] - 1) + 1))
        // stride[axis]
        + 1
        for axis in (0, 1)
    )
    return first, second


def _two(given: Arguments, name: str, default: int) -> list[int]:
    if given.is_list(name):
        raise TypeError(f"the tool's function takes {name} as a tuple, not as a list")
    value = given.value(name, default)
    return (
        [int(one) for one in value]
        if isinstance(value, list)
        else 2 * [given.number(name, default)]
    )


def elements(call: Call, module: Module) -> int:
    """n(x) of an activation with at most one more argument. _relu_flops_compute."""
    return prod(bound(call, as_function="relu").shape("input"))


def resized(call: Call) -> int:
    """prod(size) where a size is given, without batch and channels; else n(x).

    _upsample_flops_compute, which fails on a single number, be it a size or a scale.
    """
    given, size = source(call), asked(call)
    if size is not None:
        if not isinstance(call.settings.get("size", call.settings.get("1")), list):
            raise LookupError("the tool's function takes a size for each axis")
        return size
    scale = scales(call)
    if not isinstance(scale, list) or len(scale) != (given.shape or (0,))[0]:
        raise LookupError("the tool's function takes as many scales as samples")
    return given.numel


FORMULAS: dict[str, Formula] = {
    "deepspeed@2021.convolution": convolution,
    "deepspeed@2021.transposed": transposed,
    "deepspeed@2021.bias": bias,
    "deepspeed@2021.elements": elements,
} | by_mode("deepspeed@2021", resized)
