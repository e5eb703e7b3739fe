"""What DeepSpeed's profiler computes, deepspeed/profiling/flops_profiler/profiler.py of 0.19.8."""

from math import prod

from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import Formula
from crossflops.tools.formulas.patched import path_cost
from crossflops.tools.formulas.patched_arguments import Arguments, bound, extents
from crossflops.tools.formulas.patched_resampling import asked, by_mode, scales, source


def transposed(call: Call, module: Module) -> int:
    """N x Ci x Co/g x prod(k) x prod(i). _conv_trans_flops_compute."""
    given = bound(call)
    _positions(given)  # which it computes, and may fail at, whether there is a bias or not
    shape, weight = given.shape("input"), given.shape("weight")
    return shape[0] * shape[1] * prod(weight[1:]) * prod(shape[2:])


def transposed_bias(call: Call, module: Module) -> int:
    """N x Co x prod(o) with a bias, o the output's extents. _conv_trans_flops_compute."""
    given = bound(call)
    if not given.has("bias"):
        return 0
    channels = given.shape("weight")[1] * given.number("groups", 1)
    return channels * given.shape("input")[0] * prod(_positions(given))


def _positions(given: Arguments) -> tuple[int, ...]:
    """(i - 1) s - 2 p + d (k - 1) + p_out + 1 for each axis."""
    strides, paddings = extents(given, "stride", 1), extents(given, "padding", 0)
    dilations, more = extents(given, "dilation", 1), extents(given, "output_padding", 0)
    kernel = given.shape("weight")[2:]
    return tuple(
        (extent - 1) * strides[axis]
        - 2 * paddings[axis]
        + dilations[axis] * (kernel[axis] - 1)
        + more[axis]
        + 1
        for axis, extent in enumerate(given.shape("input")[2:])
    )


def attention(call: Call, module: Module) -> int:
    """n(q) Sk + n(q)/D Sk Dv, q, k and v the first three positional inputs. _attn_flops_compute.

    Raises LookupError when they go by keyword.
    """
    shapes = [spec.shape for name in "012" if (spec := call.input(name)) is not None]
    if len(shapes) < 3 or None in shapes:
        raise LookupError("the tool's function takes q, k and v by position")
    query, key, value = (shape or () for shape in shapes)
    return prod(query) * key[-2] + prod(query[:-1]) * key[-2] * value[-1]


def resized(call: Call) -> int:
    """prod(size) where a size is given, without batch and channels; else n(x) prod(scale).

    _upsample_flops_compute.
    """
    given, size = source(call), asked(call)
    if size is not None:
        return size
    scale = scales(call)
    if isinstance(scale, list):
        return int(given.numel * prod(scale))
    return int(given.numel * scale ** (len(given.shape or ()) - 2))


def einops_einsum(call: Call, module: Module) -> int:
    """What numpy.einsum_path prints, for the last argument. _einops_einsum_flops_compute."""
    return path_cost(call, place=len(call.inputs))


FORMULAS: dict[str, Formula] = {
    f"deepspeed.{formula.__name__}": formula
    for formula in (transposed, transposed_bias, attention, einops_einsum)
} | by_mode("deepspeed", resized)
