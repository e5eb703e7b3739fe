"""What TensorFlow's profiler computes for one operation of a graph.

From tensorflow/python/profiler/internal/flops_registry.py and tensorflow/python/ops/nn_ops.py.
Where a shape is not definite the registered function raises ValueError, which the profiler takes
for 0 (tensorflow/python/profiler/tfprof_logger.py: _get_logged_ops); so do the formulas here.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, cast

from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import Formula

Shape = tuple[int, ...]


class _OpenShapeError(Exception):
    """A shape is not definite."""


def _input(call: Call, place: int) -> Shape:
    shape = call.inputs[place].shape
    if shape is None:
        raise _OpenShapeError
    return shape


def _result(call: Call) -> Shape:
    shape = call.outputs[0].shape
    if shape is None:
        raise _OpenShapeError
    return shape


def _zero_if_open(amount: Callable[[Call], int]) -> Formula:
    def formula(call: Call, module: Module) -> int:
        try:
            return amount(call)
        except _OpenShapeError:
            return 0

    formula.__doc__ = amount.__doc__
    return formula


def convolution(call: Call) -> int:
    """n(out) x filter area x filter[in], which is one group's. nn_ops.py: _calc_conv_flops."""
    _input(call, 0)
    return prod(_input(call, 1)[:-1]) * prod(_result(call))


def depthwise(call: Call) -> int:
    """n(out) x filter height x width. nn_ops.py: _calc_depthwise_conv_flops."""
    _input(call, 0)
    return prod(_input(call, 1)[:2]) * prod(_result(call))


def matmul(call: Call) -> int:
    """K x n(out), K an axis of the first operand. flops_registry.py: _calc_mat_mul_flops."""
    first = _input(call, 0)
    # a batched product has adj_x instead of transpose_a, which is not looked at
    return first[-2 if call.settings.get("transpose_a") else -1] * prod(_result(call))


def _transposed(call: Call) -> int:
    """int(2 n(out) n(filter) / (out channels x strides)), a division of floats."""
    out, weights = _result(call), _input(call, 1)
    strides = cast(Sequence[int], call.settings["strides"])
    return int(2 * prod(out) * prod(weights) / (out[-1] * (strides[1] * strides[2])))


def transposed_convolution(call: Call) -> int:
    """Half of what is booked. flops_registry.py: _conv_2d_backprop_input_flops."""
    return _transposed(call) // 2


def transposed_odd(call: Call) -> int:
    """The operation by which it is more than twice a whole number: 0 or 1."""
    return _transposed(call) % 2


def elementwise(call: Call) -> int:
    """n(out); 2 for SquaredDifference, 4 for RsqrtGrad. _binary_per_element_op_flops."""
    weight = {"SquaredDifference": 2, "RsqrtGrad": 4}.get(call.target, 1)
    return weight * prod(_result(call))


def unary(call: Call) -> int:
    """n(in); 2 for Rsqrt, 5 for Softmax; L2Loss 3n - 1. _unary_op_flops, _l2_loss_flops."""
    elements = prod(_input(call, 0))
    if call.target == "L2Loss":
        return 3 * elements - 1
    return {"Rsqrt": 2, "Softmax": 5}.get(call.target, 1) * elements


def reduction(call: Call) -> int:
    """n(in) - n(out), and n(in) for Mean. flops_registry.py: _reduction_op_flops."""
    elements = prod(_input(call, 0))
    results = prod(_result(call))
    return elements if call.target == "Mean" else elements - results


def sum_of_many(call: Call) -> int:
    """(k - 1) n(in), k inputs. flops_registry.py: _add_n_flops."""
    return (len(call.inputs) - 1) * prod(_input(call, 0)) if call.inputs else 0


def pooling(call: Call) -> int:
    """Window x n(out). flops_registry.py: _pool_flops."""
    return prod(cast(Sequence[int], call.settings["ksize"])) * prod(_result(call))


def dilation(call: Call) -> int:
    """2 n(out) x filter height x width. nn_ops.py: _calc_dilation2d_flops."""
    return 2 * depthwise(call)


def backward(call: Call) -> int:
    """Gradients of pools and of filters; flops_registry.py has a function for each."""
    if call.target == "Conv2DBackpropFilter":
        image, weights = _input(call, 0), _result(call)
        strides = cast(Sequence[int], call.settings["strides"])
        return int(2 * prod(image) * prod(weights) / (image[-1] * (strides[1] * strides[2])))
    window = prod(cast(Sequence[int], call.settings["ksize"]))
    per_element = 2 * window if call.target == "AvgPoolGrad" else window + 1
    return per_element * prod(_input(call, 1))


def arithmetic(call: Call) -> int:
    """Whichever of the rules for elementwise operations and reductions the operation has."""
    return KINDS[call.target](call)


UNARY = ("Reciprocal", "Square", "Rsqrt", "Log", "Neg", "AssignSub", "AssignAdd", "L2Loss")
BINARY = (
    "Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "Pow", "RsqrtGrad",
    "SquaredDifference", "GreaterEqual", "Greater", "LessEqual", "Less", "Equal", "NotEqual",
)  # fmt: skip
REDUCTIONS = ("Mean", "Sum", "ArgMax", "ArgMin", "BiasAddGrad")
KINDS: dict[str, Callable[[Call], int]] = {
    **dict.fromkeys(UNARY, unary),
    **dict.fromkeys(BINARY, elementwise),
    **dict.fromkeys(REDUCTIONS, reduction),
    "AddN": sum_of_many,
}

_AMOUNTS: dict[str, Any] = {
    "convolution": convolution,
    "depthwise": depthwise,
    "matmul": matmul,
    "transposed_convolution": transposed_convolution,
    "transposed_odd": transposed_odd,
    "input_elements": unary,
    "arithmetic": arithmetic,
    "pooling": pooling,
    "dilation": dilation,
    "backward": backward,
}
FORMULAS: dict[str, Formula] = {
    f"tensorflow.{name}": _zero_if_open(amount) for name, amount in _AMOUNTS.items()
}
