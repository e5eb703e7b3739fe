"""The sizes that a .tflite file leaves open, where the inputs have a batch of 1.

A converter writes 1 for every open size, which is right for the batch itself, and wrong where an
operator merges the batch with other axes: Reshape to [-1, K] of [batch, T, K] has T rows. Sizes
are followed from there on, until they are those of the file again.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import TypeAlias

import msgspec
import numpy as np

from crossflops.errors import NormalizeError
from crossflops.frontends.tflite.reading import TfliteOperator, TfliteSubgraph, TfliteTensor

Shape: TypeAlias = tuple[int, ...]
_FIXED = (
    "convert the model with fixed sizes: tf.lite.TFLiteConverter.from_concrete_functions of a "
    "function with a batch of 1"
)
_SAME = {
    *("ABS", "CAST", "CEIL", "COS", "DEQUANTIZE", "ELU", "EXP", "FLOOR", "GELU", "HARD_SWISH"),
    *("LEAKY_RELU", "LOG", "LOGICAL_NOT", "LOGISTIC", "LOG_SOFTMAX", "L2_NORMALIZATION", "NEG"),
    *("QUANTIZE", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ROUND", "RSQRT", "SIGN"),
    *("SIN", "SOFTMAX", "SQRT", "SQUARE", "TANH", "ZEROS_LIKE"),
}
_BROADCAST = {
    *("ADD", "ADD_N", "DIV", "EQUAL", "FLOOR_DIV", "FLOOR_MOD", "GREATER", "GREATER_EQUAL"),
    *("LESS", "LESS_EQUAL", "LOGICAL_AND", "LOGICAL_OR", "MAXIMUM", "MINIMUM", "MUL"),
    *("NOT_EQUAL", "POW", "PRELU", "SELECT", "SELECT_V2", "SQUARED_DIFFERENCE", "SUB"),
}
_REDUCTIONS = {
    *("MEAN", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "SUM"),
}
_RESHAPES = {"BITCAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE"}


def with_inferred_sizes(subgraph: TfliteSubgraph) -> TfliteSubgraph:
    """Return the subgraph with the sizes that its file leaves open, for inputs as they are stored.

    Raises NormalizeError for a size that cannot be followed.
    """
    tensors = list(subgraph.tensors)
    altered: set[int] = set()
    for operator in subgraph.operators:
        known = _constant_values(operator, tensors)
        if known is not None:
            index = operator.outputs[0]
            values = tuple(int(value) for value in known.ravel())
            tensors[index] = msgspec.structs.replace(
                tensors[index], values=values, shape=known.shape
            )
            continue
        is_affected = altered.intersection(operator.inputs)
        opened = any(tensors[at].open_axes for at in operator.outputs if at >= 0)
        if not is_affected and not (opened and _may_merge_axes(operator)):
            continue
        for at in operator.outputs:
            shape = _result_shape(operator, tensors, tensors[at])
            if shape is None:
                raise NormalizeError(
                    f"the file does not fix the sizes of {tensors[at].name!r}, and crossflops "
                    f"cannot infer them for {operator.kind}",
                    _FIXED,
                )
            if shape != tensors[at].shape:
                tensors[at] = msgspec.structs.replace(tensors[at], shape=shape)
                altered.add(at)
    return msgspec.structs.replace(subgraph, tensors=tuple(tensors))


def _may_merge_axes(operator: TfliteOperator) -> bool:
    """Return whether an operator may merge the axes of its operand."""
    return operator.kind in _RESHAPES or operator.kind == "FULLY_CONNECTED"


def _result_shape(
    operator: TfliteOperator, tensors: list[TfliteTensor], result: TfliteTensor
) -> Shape | None:
    """Return the shape of a result by those of the operands, None if it is not known."""
    shapes = [tensors[at].shape for at in operator.inputs if at >= 0]
    if operator.kind in _SAME:
        return shapes[0]
    if operator.kind in _BROADCAST:
        return tuple(np.broadcast_shapes(*shapes))
    if operator.kind in _RESHAPES:
        return _reshape_shape(prod(shapes[0]), _reshape_target_shape(operator, tensors, result))
    if operator.kind in _REDUCTIONS:
        return _reduction_shape(operator, tensors)
    rule = _RULES.get(operator.kind)
    return None if rule is None else rule(operator, tensors, result)


def _reshape_target_shape(
    operator: TfliteOperator, tensors: list[TfliteTensor], result: TfliteTensor
) -> Shape:
    """Return the shape that a reshape requests, with -1 for each open size."""
    values = tensors[operator.inputs[1]].values if len(operator.inputs) > 1 else None
    if operator.kind == "RESHAPE" and values is not None:
        return values
    return tuple(-1 if at in result.open_axes else size for at, size in enumerate(result.shape))


def _reshape_shape(elements: int, target: Shape) -> Shape | None:
    """Return the shape with these sizes and this number of elements; one of the sizes may be open.

    Several open ones are known if all of them can only be 1.
    """
    opened = [at for at, size in enumerate(target) if size < 0]
    others = prod(size for size in target if size >= 0)
    if not others or elements % others:
        return target if not elements and not opened else None
    rest = elements // others
    if (len(opened) > 1 and rest != 1) or (not opened and rest != 1):
        return None
    return tuple(rest if size < 0 else size for size in target)


# Whole numbers that are worked out of shapes: what a reshape asks for.


def _constant_values(operator: TfliteOperator, tensors: list[TfliteTensor]) -> np.ndarray | None:
    """Return the numbers that an operator makes of known ones, None if it makes others."""
    rule = _ARITHMETIC.get(operator.kind)
    if rule is None or len(operator.outputs) != 1:
        return None
    if operator.kind == "SHAPE":
        return np.array(tensors[operator.inputs[0]].shape)
    provided = [tensors[at] for at in operator.inputs if at >= 0]
    if any(tensor.values is None for tensor in provided):
        return None
    if tensors[operator.outputs[0]].dtype not in ("int32", "int64"):
        return None
    arrays = [np.array(tensor.values).reshape(tensor.shape) for tensor in provided]
    return np.asarray(rule(operator, arrays))


def _slice_values(operator: TfliteOperator, arrays: list[np.ndarray]) -> np.ndarray:
    """Return STRIDED_SLICE of a list, whose bounds may be open (BeginMask, EndMask)."""
    data, begin, end, step = arrays
    first = None if operator.option_value("BeginMask") else int(begin[0])
    last = None if operator.option_value("EndMask") else int(end[0])
    if operator.option_value("ShrinkAxisMask"):
        return np.asarray(data[int(begin[0])])
    return np.asarray(data[first : last : int(step[0])])


_ARITHMETIC: Mapping[str, Callable[[TfliteOperator, list[np.ndarray]], np.ndarray]] = {
    "ADD": lambda operator, arrays: arrays[0] + arrays[1],
    "CAST": lambda operator, arrays: arrays[0],
    "CONCATENATION": lambda operator, arrays: np.concatenate(arrays),
    "GATHER": lambda operator, arrays: arrays[0][arrays[1]],
    "MUL": lambda operator, arrays: arrays[0] * arrays[1],
    "PACK": lambda operator, arrays: np.stack(arrays),
    "REDUCE_PROD": lambda operator, arrays: np.prod(arrays[0]),
    "SHAPE": lambda operator, arrays: arrays[0],
    "STRIDED_SLICE": _slice_values,
    "SUB": lambda operator, arrays: arrays[0] - arrays[1],
}


def _reduction_shape(operator: TfliteOperator, tensors: list[TfliteTensor]) -> Shape | None:
    """Return the shape of a reduction along known axes."""
    shape, axes = tensors[operator.inputs[0]].shape, tensors[operator.inputs[1]].values
    if axes is None:
        return None
    along = {axis % len(shape) for axis in axes}
    if operator.option_value("KeepDims", False):
        return tuple(1 if at in along else size for at, size in enumerate(shape))
    return tuple(size for at, size in enumerate(shape) if at not in along)


def _fully_connected_shape(
    operator: TfliteOperator, tensors: list[TfliteTensor], result: TfliteTensor
) -> Shape | None:
    """Return the shape of FULLY_CONNECTED, which may keep the axes in front of the last."""
    shape, (units, inner) = (tensors[at].shape for at in operator.inputs[:2])
    if operator.option_value("KeepNumDims", False):
        return (*shape[:-1], units)
    return (prod(shape) // max(inner, 1), units)


def _transpose_shape(
    operator: TfliteOperator, tensors: list[TfliteTensor], result: TfliteTensor
) -> Shape | None:
    """Return the shape of TRANSPOSE with a known order of axes."""
    shape, order = tensors[operator.inputs[0]].shape, tensors[operator.inputs[1]].values
    return None if order is None else tuple(shape[axis] for axis in order)


def _product_shape(
    operator: TfliteOperator, tensors: list[TfliteTensor], result: TfliteTensor
) -> Shape | None:
    """Return the shape of BATCH_MATMUL."""
    first, second = (tensors[at].shape for at in operator.inputs[:2])
    rows = first[-1] if operator.option_value("AdjX", False) else first[-2]
    columns = second[-2] if operator.option_value("AdjY", False) else second[-1]
    return (*np.broadcast_shapes(first[:-2], second[:-2]), rows, columns)


_RULES: Mapping[
    str, Callable[[TfliteOperator, list[TfliteTensor], TfliteTensor], Shape | None]
] = {
    "BATCH_MATMUL": _product_shape,
    "FULLY_CONNECTED": _fully_connected_shape,
    "SHAPE": lambda operator, tensors, result: result.shape,
    "TRANSPOSE": _transpose_shape,
}
