"""Operators whose tensors have types that do not go together.

An export runs on tensors without values, and lets a product of integers and floats pass that
PyTorch refuses when it runs. Under autocast such a trace is right: the model itself has to say.
"""

from crossflops.ir.trace import Call, Trace

# Operators that refuse operands of two types, by the names of these operands.
_STRICT = {
    "aten.linear.default": ("input", "weight"),
    "aten.matmul.default": ("self", "other"),
    "aten.mm.default": ("self", "mat2"),
    "aten.bmm.default": ("self", "mat2"),
    "aten.addmm.default": ("mat1", "mat2"),
    "aten.baddbmm.default": ("batch1", "batch2"),
}


def mixed(trace: Trace) -> Call | None:
    """The first call of an operator that refuses its operands' types, or None."""
    for call in trace.calls:
        operands = [call.input(name) for name in _STRICT.get(call.target, ())]
        if len({one.dtype for one in operands if one is not None}) > 1:
            return call
    return None
