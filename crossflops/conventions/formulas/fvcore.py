"""What fvcore's handles compute, from fvcore/nn/jit_handles.py."""

import numpy as np

from crossflops.conventions.formulas.contraction import Formula, input_elements, shape_of
from crossflops.conventions.formulas.contraction import einsum as exact_einsum
from crossflops.core.trace import Call, Module


def matmul(call: Call, module: Module) -> int:
    """prod(A) x B[-1]: batch axes that only B has are lost. jit_handles.py: matmul_flop_jit."""
    first, second = shape_of(call, "self"), shape_of(call, "other", "mat2")
    if len(second) < 2:
        raise LookupError(f"{call.key}: fvcore fails on a product with a vector")
    product = second[-1]
    for extent in first:
        product *= extent
    return product


def einsum(call: Call, module: Module) -> int:
    """Exact for two equations, else half of what numpy.einsum_path prints (four digits).

    jit_handles.py: einsum_flop_jit.
    """
    equation = str(call.settings["equation"]).replace(" ", "")
    letters = dict.fromkeys(letter for letter in equation if letter.isalpha())
    names = {ord(letter): 97 + place for place, letter in enumerate(letters)}
    if equation.translate(names) in {"abc,abd->acd", "abc,adc->adb"}:
        return exact_einsum(call, module)
    arrays = [np.broadcast_to(np.zeros(()), spec.shape or ()) for spec in call.inputs]
    printed = np.einsum_path(equation.translate(names), *arrays, optimize="optimal")[1]
    line = next(row for row in printed.split("\n") if "optimized flop" in row.lower())
    return int(float(line.split(":")[-1]) // 2)


def normalized_elements(call: Call, module: Module) -> int:
    """n(x). fvcore asserts an input of 2 to 5 axes. jit_handles.py: norm_flop_counter."""
    if not 2 <= len(call.inputs[0].shape or ()) <= 5:
        raise LookupError(f"{call.key}: fvcore asserts that a norm's input has 2 to 5 axes")
    return input_elements(call, module)


FORMULAS: dict[str, Formula] = {
    "fvcore.matmul": matmul,
    "fvcore.einsum": einsum,
    "fvcore.normalized_elements": normalized_elements,
}
