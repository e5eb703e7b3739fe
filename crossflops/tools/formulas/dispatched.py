"""What is computed of an operator's positional arguments, as it reaches a dispatch mode.

Two tools have these formulas: torch/utils/flop_counter.py, and ptflops' aten_ops.py.
"""

from math import prod

from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import Formula, result_of, shape_of


def product(call: Call, module: Module) -> int:
    """n(A) x B.shape[-1]. mm_flop and bmm_flop; matmul_flop and bmm_flop of ptflops."""
    if call.arity not in {0, 2}:
        raise ValueError(f"two operands, not {call.arity}")
    return prod(shape_of(call, "0")) * shape_of(call, "1")[-1]


def added_product(call: Call, module: Module) -> int:
    """rows x in x out of input + A B, of each matrix. addmm_flop, baddbmm_flop."""
    return prod(shape_of(call, "1")) * shape_of(call, "2")[-1]


def convolution(call: Call, module: Module) -> int:
    """x.shape[0] x n(w) x prod(y.shape[2:]), x in place of y when transposed. conv_flop_count."""
    source, weight = shape_of(call, "0"), shape_of(call, "1")
    positions = source if call.settings["6"] else (result_of(call).shape or ())
    return source[0] * prod(weight) * prod(positions[2:])


FORMULAS: dict[str, Formula] = {
    "dispatched.product": product,
    "dispatched.added_product": added_product,
    "dispatched.convolution": convolution,
}
