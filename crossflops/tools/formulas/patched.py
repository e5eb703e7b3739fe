"""What DeepSpeed's profiler and calflops compute alike when one of PyTorch's functions is called.

Sources: deepspeed/profiling/flops_profiler/profiler.py, calflops/pytorch_ops.py.
"""

from math import prod

import numpy as np

from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import Formula
from crossflops.tools.formulas.patched_arguments import Arguments, bound, extents


def linear(call: Call, module: Module) -> int:
    """n(x) x W[0]. _linear_flops_compute."""
    given = bound(call)
    return prod(given.shape("input")) * given.shape("weight")[0]


def linear_nested(call: Call, module: Module) -> int:
    """The same of a nested tensor, whose numel() has no padding. _linear_flops_compute."""
    given = bound(call)
    return left(call) * given.shape("input")[-1] * given.shape("weight")[0]


def left(call: Call) -> int:
    """The positions of padded sequences that are left in a nested tensor."""
    if call.rows is None:
        raise ValueError(f"{call.key} has rows of lengths that nobody knows")
    return call.rows


def convolution(call: Call, module: Module) -> int:
    """N x Ci x Co/g x prod(k) x prod(o), o computed from padding, stride and dilation.

    _conv_flops_compute, which asserts that the second axis of the input has the channels: so an
    unbatched input ends it.
    """
    given = bound(call)
    source, weight = given.shape("input"), given.shape("weight")
    groups = given.number("groups", 1)
    if weight[1] * groups != source[1]:
        raise ValueError("the tool asserts that the second axis of the input has the channels")
    per_position = prod(weight[2:]) * source[1] * (weight[0] // groups)
    return per_position * source[0] * prod(positions(given))


def convolution_bias(call: Call, module: Module) -> int:
    """N x Co x prod(o) with a bias, o as in the convolution. _conv_flops_compute."""
    given = bound(call)
    if not given.has("bias"):
        return 0
    return given.shape("weight")[0] * given.shape("input")[0] * prod(positions(given))


def positions(given: Arguments) -> tuple[int, ...]:
    """(i + 2 p - (d (k - 1) + 1)) // s + 1 for each axis.

    "same" is taken for a padding of d (k - 1) // 2 on both sides, one short if that is odd.
    """
    source, kernel = given.shape("input")[2:], given.shape("weight")[2:]
    strides, dilations = extents(given, "stride", 1), extents(given, "dilation", 1)
    padding = given.value("padding", 0)
    if padding == "same":
        paddings = tuple(d * (k - 1) // 2 for d, k in zip(dilations, kernel, strict=False))
    else:
        paddings = extents(given, "padding", 0) if padding != "valid" else (0,) * len(source)
    return tuple(
        (extent + 2 * paddings[axis] - (dilations[axis] * (kernel[axis] - 1) + 1)) // strides[axis]
        + 1
        for axis, extent in enumerate(source)
    )


def matmul(call: Call, module: Module) -> int:
    """prod(A) x B[-1]: batch axes that only B has are lost. _matmul_flops_compute."""
    given = bound(call, as_function="matmul")
    return prod(given.shape("input")) * given.shape("other")[-1]


def addmm(call: Call, module: Module) -> int:
    """prod(A) x B[-1] of input + A B. _addmm_flops_compute, _tensor_addmm_flops_compute."""
    given = _added(call)
    return prod(given.shape("mat1")) * given.shape("mat2")[-1]


def addmm_input(call: Call, module: Module) -> int:
    """n(input) of input + A B, before it is broadcast. _addmm_flops_compute."""
    return prod(_added(call).shape("input", "self"))


def _added(call: Call) -> Arguments:
    by_method = call.target == "torch.Tensor.addmm" or call.target.endswith("baddbmm")
    return bound(call, as_function="tensor_addmm" if by_method else "addmm")


def einsum(call: Call, module: Module) -> int:
    """Half of what numpy.einsum_path prints, in whole MACs. _einsum_flops_compute."""
    return path_cost(call) // 2


def einsum_odd(call: Call, module: Module) -> int:
    """What is left of numpy.einsum_path's cost after its whole MACs: 1 if it is odd."""
    return path_cost(call) % 2


def path_cost(call: Call, place: int = 0) -> int:
    """The "optimized FLOP count" that numpy.einsum_path prints with four digits.

    `place` is that of the equation. Raises LookupError where the tool's function cannot be called
    so: with the operands in one list, or with lists of axes in place of an equation.
    """
    equation = call.settings.get(str(place))
    if not isinstance(equation, str) or any("." in spec.name for spec in call.inputs):
        raise LookupError("the tool's function takes an equation and its operands")
    equation = equation.replace(" ", "")
    letters = dict.fromkeys(letter for letter in equation if letter.isalpha())
    names = {ord(letter): 97 + number for number, letter in enumerate(letters)}
    arrays = [np.broadcast_to(np.zeros(()), spec.shape or ()) for spec in call.inputs]
    printed = np.einsum_path(equation.translate(names), *arrays, optimize="optimal")[1]
    line = next(row for row in printed.split("\n") if "optimized flop" in row.lower())
    return int(float(line.rpartition(":")[2]))


def elements(call: Call, module: Module) -> int:
    """n(x). _relu_flops_compute and its like, _softmax_flops_compute."""
    return prod(bound(call).shape("input"))


def elements_dropped(call: Call, module: Module) -> int:
    """Elements of the input that a padding mask covers, which numel() of a nested one lacks."""
    shape = bound(call).shape("input")
    return prod(shape) - left(call) * shape[-1]


def pooled(call: Call, module: Module) -> int:
    """n(x). _pool_flops_compute, which has no argument `output_size`."""
    return prod(bound(call, as_function="pool").shape("input"))


def batch_norm(call: Call, module: Module) -> int:
    """2 n(x) with weights and n(x) without; by the batch's statistics 5 and 4.

    _batch_norm_flops_compute.
    """
    given = bound(call)
    statistics = 3 if given.value("training", False) else 0
    return (statistics + (2 if given.has("weight") else 1)) * prod(given.shape("input"))


def norm(call: Call, module: Module) -> int:
    """5 n(x) with weights and 4 n(x) without. _layer_norm_flops_compute and its like."""
    given = bound(call)
    return (5 if given.has("weight") else 4) * prod(given.shape("input"))


def norm_dropped(call: Call, module: Module) -> int:
    """5 or 4 for each of these elements. _layer_norm_flops_compute."""
    return (5 if bound(call).has("weight") else 4) * elements_dropped(call, module)


def broadcast(call: Call, module: Module) -> int:
    """Elements of the result of adding or multiplying. _elementwise_flops_compute."""
    shapes = operands(call)
    return prod(np.broadcast_shapes(*shapes))


def operands(call: Call) -> list[tuple[int, ...]]:
    """The shapes of the one or two tensors of an addition or a multiplication."""
    given = bound(call)
    return [given.shape(name) for name in ("input", "other") if given.spec(name) is not None]


FORMULAS: dict[str, Formula] = {
    f"patched.{formula.__name__}": formula
    for formula in (
        linear, linear_nested, convolution, convolution_bias, matmul, addmm, addmm_input, einsum,
        einsum_odd,
        elements, elements_dropped, pooled, batch_norm, norm, norm_dropped, broadcast,
    )
}  # fmt: skip
