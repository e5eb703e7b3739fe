"""What calflops 0.3.2 computes otherwise than DeepSpeed does today, calflops/pytorch_ops.py."""

from math import prod

from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import Formula
from crossflops.tools.formulas.patched import broadcast, operands, positions
from crossflops.tools.formulas.patched_arguments import bound
from crossflops.tools.formulas.patched_resampling import asked, by_mode, scales, source


def transposed(call: Call, module: Module) -> int:
    """N x Ci x (Co/g // g) x prod(k) x prod(i): divided by the groups a second time.

    _conv_trans_flops_compute.
    """
    given = bound(call)
    positions(given)  # which it computes, and may fail at, whether there is a bias or not
    shape, weight = given.shape("input"), given.shape("weight")
    filters = weight[1] // given.number("groups", 1)
    return shape[0] * shape[1] * filters * prod(weight[2:]) * prod(shape[2:])


def transposed_bias(call: Call, module: Module) -> int:
    """N x Co/g x prod(o) with a bias, o the extents of a convolution that is not transposed.

    _conv_trans_flops_compute.
    """
    given = bound(call)
    if not given.has("bias"):
        return 0
    return given.shape("weight")[1] * given.shape("input")[0] * prod(positions(given))


def misaligned(call: Call, module: Module) -> int:
    """What aligning two shapes to the left, not to the right, adds. _elementwise_flops_compute."""
    shapes = operands(call)
    if len(shapes) < 2:
        return 0
    rank = max(map(len, shapes))
    first, second = ((*shape, *(1,) * (rank - len(shape))) for shape in shapes)
    return prod(map(max, first, second)) - broadcast(call, module)


def resized(call: Call) -> int:
    """prod(size) where a size is given, without batch and channels; else n(x), without the scale.

    _upsample_flops_compute. A scale for each axis ends the tool with a TypeError unless they are
    a tuple and as many as samples: it takes the length of the input, its batch, for its rank.
    """
    given, size = source(call), asked(call)
    if size is not None:
        return size
    scale = scales(call)
    tuples = not {"scale_factor", "2"} & set(call.lists)
    if isinstance(scale, list) and not (tuples and len(scale) == (given.shape or (0,))[0]):
        raise LookupError("the tool raises the scales to a power")
    return given.numel


FORMULAS: dict[str, Formula] = {
    f"calflops.{formula.__name__}": formula
    for formula in (transposed, transposed_bias, misaligned)
} | by_mode("calflops", resized)
