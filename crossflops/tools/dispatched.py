"""What is computed of an operator's positional arguments, as it reaches a dispatch mode.

Two tools have these formulas: torch/utils/flop_counter.py, and ptflops' aten_ops.py.
"""

from math import prod

from crossflops.rules.conditions import Site


def product(call: Site) -> int:
    """n(A) x B.shape[-1].

    mm_flop and bmm_flop; matmul_flop and bmm_flop of ptflops.
    """
    return prod(call.shape("0")) * call.shape("1")[-1]


def added_product(call: Site) -> int:
    """rows x in x out of input + A B, of each matrix.

    addmm_flop, baddbmm_flop.
    """
    return prod(call.shape("1")) * call.shape("2")[-1]


def convolution(call: Site) -> int:
    """x.shape[0] x n(w) x prod(y.shape[2:]), x in place of y when transposed.

    conv_flop_count.
    """
    source, weight = call.shape("0"), call.shape("1")
    positions = source if call.settings["6"] else (call.result.shape or ())
    return source[0] * prod(weight) * prod(positions[2:])
