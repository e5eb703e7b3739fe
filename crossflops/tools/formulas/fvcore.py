"""What fvcore's handles compute of a traced node, from fvcore/nn/jit_handles.py.

Tensors are named as in the schema of the operator. Where a handler asserts or fails, the formula
raises LookupError.
"""

from collections.abc import Iterable
from math import prod

import numpy as np

from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import Formula, input_elements, result_of, shape_of


def addmm(call: Call, module: Module) -> int:
    """n x m x p of [n, m] and [m, p], the second and the third operand. addmm_flop_jit."""
    first, second = shape_of(call, "mat1"), shape_of(call, "mat2")
    if len(first) != 2 or len(second) != 2:
        raise LookupError("fvcore asserts matrices of two axes")
    return prod(first) * second[1]


def bmm(call: Call, module: Module) -> int:
    """b x n x m x p of [b, n, m] and [b, m, p]. bmm_flop_jit."""
    return prod(shape_of(call, "self")) * shape_of(call, "mat2")[-1]


def linear(call: Call, module: Module) -> int:
    """n(x) x the first axis of W: of a vector that is the number of inputs. linear_flop_jit."""
    return prod(shape_of(call, "input")) * shape_of(call, "weight")[0]


def matmul(call: Call, module: Module) -> int:
    """prod(A) x B[-1]: batch axes that only B has are lost. matmul_flop_jit."""
    first, second = shape_of(call, "self"), shape_of(call, "other", "mat2")
    if len(second) < 2:
        raise LookupError("fvcore fails on a product with a vector")
    return prod(first) * second[-1]


def convolution(call: Call, module: Module) -> int:
    """x[0] x n(W) x prod(y[2:]), x in the place of y when transposed. conv_flop_jit."""
    source, weight = shape_of(call, "input"), shape_of(call, "weight")
    shape = source if call.settings["transposed"] else result_of(call).shape
    if shape is None:
        raise LookupError("the result has no shape")
    return source[0] * prod(weight) * prod(shape[2:])


def einsum(call: Call, module: Module) -> int:
    """Exact for two equations, else half of what numpy.einsum_path prints (four digits).

    einsum_flop_jit. NumPy's errors (capital letters among them, which become others) are its own.
    """
    equation = str(call.settings["equation"]).replace(" ", "")
    letters = dict.fromkeys(letter for letter in equation if letter.isalpha())
    names = {ord(letter): 97 + place for place, letter in enumerate(letters)}
    shapes = [spec.shape for spec in call.inputs if spec.name.startswith("tensors.")]
    known = equation.translate(names)
    if known in {"abc,abd->acd", "abc,adc->adb"}:
        (n, c, t), last = shapes[0] or (), shapes[-1] or ()
        return n * c * t * last[-1 if known.endswith("acd") else 1]
    return _path(known, shapes)


def _path(equation: str, shapes: Iterable[tuple[int, ...] | None]) -> int:
    arrays = [np.broadcast_to(np.zeros(()), shape or ()) for shape in shapes]
    printed = np.einsum_path(equation, *arrays, optimize="optimal")[1]
    line = next(row for row in printed.split("\n") if "optimized flop" in row.lower())
    return int(float(line.split(":")[-1]) // 2)


def contraction(call: Call, module: Module) -> int:
    """What the handle of the node computes, whichever it is. flop_count.py."""
    amount = _HANDLES[call.target](call, module)
    return int(amount)


def normalized_elements(call: Call, module: Module) -> int:
    """n(x). fvcore asserts an input of 2 to 5 axes. norm_flop_counter."""
    if not 2 <= len(shape_of(call, "input")) <= 5:
        raise LookupError("fvcore asserts that a norm's input has 2 to 5 axes")
    return input_elements(call, module)


_HANDLES: dict[str, Formula] = {
    "aten::_convolution": convolution,
    "aten::linear": linear,
    "aten::addmm": addmm,
    "aten::bmm": bmm,
    "aten::matmul": matmul,
    "aten::mm": matmul,
    "aten::einsum": einsum,
}
FORMULAS: dict[str, Formula] = {
    "fvcore.addmm": addmm,
    "fvcore.bmm": bmm,
    "fvcore.linear": linear,
    "fvcore.matmul": matmul,
    "fvcore.convolution": convolution,
    "fvcore.einsum": einsum,
    "fvcore.contraction": contraction,
    "fvcore.normalized_elements": normalized_elements,
}
