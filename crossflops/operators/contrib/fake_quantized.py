"""The cost of quantization to few bits with a real result, as QONNX, FINN and Brevitas write it
into files.

A value is rounded to what an integer of so many bits can hold, and stays a real number.
"""

import re
from collections.abc import Callable

from crossflops.ir.graph import Node
from crossflops.ir.ledger import Cost
from crossflops.operators.access import (
    input_element_count,
    input_spec,
    spec_shape,
    string_attribute,
)
from crossflops.operators.gradient import QUANTIZED, first_operand_backward
from crossflops.operators.operands import sizes_constraint
from crossflops.operators.rule import BREVITAS, FINN, QONNX, Operators

operator = Operators(QONNX, backward=QUANTIZED)

_PAGES = "https://github.com/fastmachinelearning/qonnx/blob/main/docs/qonnx-custom-ops/"
_STRAIGHT = first_operand_backward(lambda node: Cost(muls=input_element_count(node)))

_NAMES = {"BIPOLAR": "int1", "BINARY": "int1", "TERNARY": "int2"}


def _input_bits_precision(index: int) -> Callable[[Node], str]:
    """Return a function that gives the precision of a node's result, such as "int4", from the
    input with the number of bits.
    """

    def precision_from_constant_bits(node: Node) -> str:
        """Return "intN" for the constant number N of bits in the input; "" if it is not
        constant.
        """
        bits = node.values.get(index, ())
        return f"int{bits[0]}" if len(bits) == 1 and bits[0] > 0 else ""

    return precision_from_constant_bits


def _target_dtype_precision(node: Node) -> str:
    """Return the precision that the attribute `out_dtype` names, such as "int4"; "" for
    a float.
    """
    name = string_attribute(node, "out_dtype", "FLOAT32").upper()
    full = re.fullmatch(r"U?INT(\d+)", name)
    return f"int{full[1]}" if full else _NAMES.get(name, "")


for domain in (QONNX, FINN, BREVITAS):

    @operator(
        ("Quant", "IntQuant"),
        "n(x)*(div, add, round, 2 compares, sub, mul)",
        domain=domain,
        page=f"{_PAGES}quant_op.md",
        backward=_STRAIGHT,
        stores=_input_bits_precision(3),
        numbers=(3,),
    )
    def qonnx_quant_cost(node: Node) -> Cost:
        """Return the cost of Quant, (clip(round(x / scale + zero_point)) - zero_point) * scale,
        per element.
        """
        return Cost(divs=1, adds=2, specials=1, compares=2, muls=1) * input_element_count(node)

    @operator(
        "BipolarQuant",
        "n(x)*(compare, mul)",
        domain=domain,
        page=f"{_PAGES}bipolar_quant_op.md",
        backward=_STRAIGHT,
        stores=lambda _node: "int1",
    )
    def qonnx_bipolar_quant_cost(node: Node) -> Cost:
        """Return the cost of BipolarQuant, scale where x >= 0 and -scale elsewhere: a compare and
        a mul per element.
        """
        return Cost(compares=1, muls=1) * input_element_count(node)

    @operator(
        "Trunc",
        "n(x)*(2 divs, add, 2 rounds, sub, mul)",
        domain=domain,
        page=f"{_PAGES}trunc_op.md",
        backward=_STRAIGHT,
        stores=_input_bits_precision(4),
        numbers=(4,),
    )
    def qonnx_trunc_cost(node: Node) -> Cost:
        """Return the cost of Trunc, (floor(round(x / scale + zero_point) / 2^bits) - zero_point) *
        scale, per element.
        """
        return Cost(divs=2, adds=2, specials=2, muls=1) * input_element_count(node)

    @operator(
        "MultiThreshold",
        "n(x)*T compares, n(x)*T adds; n(x)*(mul, add)",
        domain=domain,
        page=f"{_PAGES}multithreshold.md",
        stores=_target_dtype_precision,
        requires=sizes_constraint("x thresholds[_,T]"),
    )
    def multi_threshold_cost(node: Node) -> Cost:
        """Return the cost of MultiThreshold, scale * (number of T thresholds that x reaches) +
        bias, per element.
        """
        steps = spec_shape(input_spec(node, 1), rank=2)[1]
        return Cost(compares=steps, adds=steps + 1, muls=1) * input_element_count(node)
