"""What ptflops' backend "aten" computes of an operator's positional arguments: aten_ops.py."""

from math import prod

from crossflops.conventions.formulas.contraction import Formula, result_of, shape_of
from crossflops.core.trace import Call, Module


def product(call: Call, module: Module) -> int:
    """n(A) x B.shape[-1]. matmul_flop, bmm_flop."""
    if call.arity not in {0, 2}:
        raise ValueError(f"two operands, not {call.arity}")
    return prod(shape_of(call, "0")) * shape_of(call, "1")[-1]


def added_product(call: Call, module: Module) -> int:
    """rows x in x out of input + A B. addmm_flop."""
    return prod(shape_of(call, "1")) * shape_of(call, "2")[1]


def added(call: Call, module: Module) -> int:
    """rows x out of input + A B, whatever beta is. addmm_flop."""
    return shape_of(call, "1")[0] * shape_of(call, "2")[1]


def convolution(call: Call, module: Module) -> int:
    """x.shape[0] x n(w) x prod(y.shape[2:]), x in place of y when transposed. conv_flop_count."""
    source, weight = shape_of(call, "0"), shape_of(call, "1")
    positions = source if call.settings["6"] else (result_of(call).shape or ())
    return source[0] * prod(weight) * prod(positions[2:])


def convolution_bias(call: Call, module: Module) -> int:
    """x.shape[0] x prod(y.shape[1:]), if there is a bias. conv_flop_count."""
    shape = result_of(call).shape or ()
    return shape_of(call, "0")[0] * prod(shape[1:]) if call.input("2") else 0


FORMULAS: dict[str, Formula] = {
    "ptflops_aten.product": product,
    "ptflops_aten.added_product": added_product,
    "ptflops_aten.added": added,
    "ptflops_aten.convolution": convolution,
    "ptflops_aten.convolution_bias": convolution_bias,
}
