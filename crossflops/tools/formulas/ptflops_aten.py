"""What ptflops' backend "aten" adds for biases, of positional arguments: aten_ops.py."""

from math import prod

from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import Formula, result_of, shape_of


def added(call: Call, module: Module) -> int:
    """rows x out of input + A B, whatever beta is. addmm_flop."""
    return shape_of(call, "1")[0] * shape_of(call, "2")[1]


def convolution_bias(call: Call, module: Module) -> int:
    """x.shape[0] x prod(y.shape[1:]), if there is a bias. conv_flop_count."""
    shape = result_of(call).shape or ()
    return shape_of(call, "0")[0] * prod(shape[1:]) if call.input("2") else 0


FORMULAS: dict[str, Formula] = {
    "ptflops_aten.added": added,
    "ptflops_aten.convolution_bias": convolution_bias,
}
