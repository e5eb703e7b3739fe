"""Each operator of TFLite as nodes of ai.onnx, whose formulas are known.

TFLite has images with their channels last, and ONNX in front: a node has the sizes in the order of
its own operator, and nothing is transposed. Sources: tensorflow/lite/schema/schema.fbs, and the
reference kernels in tensorflow/lite/kernels.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias

from crossflops.frontends.tflite.writer import TfliteToGraphWriter
from crossflops.ir.graph import Attribute, TensorSpec

Write: TypeAlias = Callable[[TfliteToGraphWriter], None]
_RELU, _RELU_N1_TO_1, _RELU6, _TANH, _SIGN_BIT = 1, 2, 3, 4, 5  # ActivationFunctionType
_SAME = 0  # Padding


def channels_first_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape with its last axis behind the first: (N, H, W, C) -> (N, C, H, W)."""
    return (shape[0], shape[-1], *shape[1:-1])


def _write_activation_and_quantization(
    writer: TfliteToGraphWriter, value: TensorSpec, shape: Sequence[int] | None = None
) -> None:
    """Write the fused activation of a value, and the quantized result.

    The bounds of a quantized activation are those to which its result is clipped anyway.
    """
    activation = writer.current_operator.option_value("FusedActivationFunction")
    result = writer.result_before_quantization(shape)
    clips = activation in (_RELU, _RELU_N1_TO_1, _RELU6) and writer.is_quantized()
    if value.name != result.name and not clips:
        _write_activation(writer, activation, value, result)
    writer.add_quantize_node()


def _value_before_activation(
    writer: TfliteToGraphWriter, shape: Sequence[int] | None = None
) -> TensorSpec:
    """Return the value before the fused activation: the result itself if there is none."""
    activation = writer.current_operator.option_value("FusedActivationFunction")
    clips = activation in (_RELU, _RELU_N1_TO_1, _RELU6) and writer.is_quantized()
    result = writer.result_before_quantization(shape)
    if not activation or clips:
        return result
    return writer.temporary_value(result.shape or ())


def _write_activation(
    writer: TfliteToGraphWriter, activation: int, value: TensorSpec, result: TensorSpec
) -> None:
    """Write an activation by its number in the schema."""
    if activation == _RELU:
        writer.add_node("Relu", (value,), (result,))
    elif activation == _RELU6:
        writer.add_node("Clip", (value,), (result,), {"min": 0.0, "max": 6.0})
    elif activation == _RELU_N1_TO_1:
        writer.add_node("Clip", (value,), (result,), {"min": -1.0, "max": 1.0})
    elif activation == _TANH:
        writer.add_node("Tanh", (value,), (result,))
    elif activation == _SIGN_BIT:
        writer.add_node("Less", (value,), (result,))
    else:
        writer.add_node(f"ACTIVATION_{activation}", (value,), (result,), domain="tflite")


# Products.


def _window_attributes(writer: TfliteToGraphWriter, dims: str) -> dict[str, Attribute]:
    """Return strides, dilations and padding of a window along the axes, such as "HW"."""
    option = writer.current_operator.option_value
    attrs: dict[str, Attribute] = {
        "strides": tuple(int(option(f"Stride{axis}", 1)) for axis in dims),
        "auto_pad": "SAME_UPPER" if option("Padding") == _SAME else "VALID",
    }
    dilations = tuple(int(option(f"Dilation{axis}Factor", 1)) for axis in dims)
    if any(step != 1 for step in dilations):
        attrs["dilations"] = dilations
    return attrs


def _write_convolution(
    writer: TfliteToGraphWriter, data: tuple[int, ...], weight: tuple[int, ...]
) -> None:
    """Write a convolution of data [N, C, ...] with a weight [M, C/group, k...]."""
    bias = writer.input_spec(2) if writer.has_input(2) else None
    out = channels_first_shape(writer.output_tensor().shape)
    attrs = _window_attributes(writer, "HW" if len(data) == 4 else "DHW")
    attrs["group"] = data[1] // max(weight[1], 1)
    value = _value_before_activation(writer, out)
    operands = (writer.input_spec(0, data), writer.input_spec(1, weight), bias)
    writer.add_node("Conv", operands, (value,), attrs)
    _write_activation_and_quantization(writer, value, out)


def _write_conv_2d(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for CONV_2D: X [N, H, W, C], W [M, h, w, C/group]."""
    weight = writer.input_tensor(1).shape
    shape = channels_first_shape(writer.input_tensor(0).shape)
    _write_convolution(writer, shape, channels_first_shape(weight))


def _write_depthwise(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for DEPTHWISE_CONV_2D: X [N, H, W, C], W [1, h, w, C * multiplier]."""
    _, height, width, channels = writer.input_tensor(1).shape
    shape = channels_first_shape(writer.input_tensor(0).shape)
    _write_convolution(writer, shape, (channels, 1, height, width))


def _write_conv_3d(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for CONV_3D: X [N, D, H, W, C], W [d, h, w, C/group, M]."""
    *kernel, depth, out = writer.input_tensor(1).shape
    shape = channels_first_shape(writer.input_tensor(0).shape)
    _write_convolution(writer, shape, (out, depth, *kernel))


def _write_transposed_convolution(writer: TfliteToGraphWriter, weight: tuple[int, ...]) -> None:
    """Write a transposed convolution: inputs are a shape, W, X and a bias; W is [C, M, k...]."""
    data = channels_first_shape(writer.input_tensor(2).shape)
    out = channels_first_shape(writer.output_tensor().shape)
    attrs = _window_attributes(writer, "HW" if len(data) == 4 else "DHW")
    attrs["output_shape"] = out[2:]
    bias = writer.input_spec(3) if writer.has_input(3) else None
    value = _value_before_activation(writer, out)
    operands = (writer.input_spec(2, data), writer.input_spec(1, weight), bias)
    writer.add_node("ConvTranspose", operands, (value,), attrs)
    _write_activation_and_quantization(writer, value, out)


def _write_transpose_conv(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for TRANSPOSE_CONV: W [M, h, w, C]."""
    out, *kernel, depth = writer.input_tensor(1).shape
    _write_transposed_convolution(writer, (depth, out, *kernel))


def _write_conv_3d_transpose(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for CONV_3D_TRANSPOSE: W [d, h, w, M, C]."""
    *kernel, out, depth = writer.input_tensor(1).shape
    _write_transposed_convolution(writer, (depth, out, *kernel))


def _write_fully_connected(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for FULLY_CONNECTED: rows of X times W [N, K], for any axes of X."""
    out, inner = writer.input_tensor(1).shape
    rows = writer.input_tensor(0).numel // max(inner, 1)
    value = _value_before_activation(writer, (rows, out))
    bias = writer.input_spec(2) if writer.has_input(2) else None
    operands = (writer.input_spec(0, (rows, inner)), writer.input_spec(1), bias)
    writer.add_node("Gemm", operands, (value,), {"transB": 1})
    _write_activation_and_quantization(writer, value, (rows, out))


def _write_batch_matmul(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for BATCH_MATMUL: either factor may be transposed (AdjX, AdjY)."""
    factors = []
    for position, flag in enumerate(("AdjX", "AdjY")):
        *batch, rows, columns = writer.input_tensor(position).shape
        turned = bool(writer.current_operator.option_value(flag, False))
        order = (columns, rows) if turned else (rows, columns)
        factors.append(writer.input_spec(position, (*batch, *order)))
    writer.add_node("MatMul", factors, (writer.result_before_quantization(),))
    writer.add_quantize_node()


# Recurrent layers, as the products and the gates that they consist of.


def _write_lstm_gate(
    writer: TfliteToGraphWriter, x: TensorSpec, h: TensorSpec, position: int, units: int, bias: int
) -> TensorSpec:
    """Write x W^T + h R^T + b of one gate, W at `position` and R four inputs behind it."""
    rows = (x.shape or (0,))[0]
    first, second = writer.temporary_value((rows, units)), writer.temporary_value((rows, units))
    added = writer.input_spec(bias) if writer.has_input(bias) else None
    writer.add_node("Gemm", (x, writer.input_spec(position), added), (first,), {"transB": 1})
    writer.add_node("Gemm", (h, writer.input_spec(position + 4)), (second,), {"transB": 1})
    total = writer.temporary_value((rows, units))
    writer.add_node("Add", (first, second), (total,))
    return total


def _write_sequence_lstm(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for UNIDIRECTIONAL_SEQUENCE_LSTM: x [B, T, I] (or [T, B, I]), four gates
    of U units.

    i, f, g, o = x W^T + h R^T + b; c = f * c + i * g; h = o * tanh(c), then its projection. A
    coupled input gate is 1 - f. Peepholes add c * p to a gate.
    """
    *steps, inputs = writer.input_tensor(0).shape
    units = writer.input_tensor(2).shape[0]
    size = writer.input_tensor(6).shape[1]  # of the state: smaller than U if it is projected
    rows = prod(steps)
    if any(writer.has_input(position) for position in range(20, 24)):
        _write_unknown(writer)  # normalizes its gates
        return
    x, h = writer.input_spec(0, (rows, inputs)), writer.temporary_value((rows, size))
    writer.add_node("Identity", (writer.input_spec(0),), (h,))  # the state of the step before
    cell = writer.temporary_value((rows, units))
    writer.add_node("Identity", (writer.input_spec(0),), (cell,))
    gates = {}
    for name, position in zip("ifgo", range(1, 5), strict=True):
        if name == "i" and not writer.has_input(position):
            continue
        gates[name] = _write_lstm_gate(writer, x, h, position, units, 11 + position)
    for name, position in zip("ifo", range(9, 12), strict=True):
        if writer.has_input(position) and name in gates:
            part, total = (
                writer.temporary_value((rows, units)),
                writer.temporary_value((rows, units)),
            )
            writer.add_node("Mul", (cell, writer.input_spec(position)), (part,))
            writer.add_node("Add", (gates[name], part), (total,))
            gates[name] = total
    for name in gates:
        result = writer.temporary_value((rows, units))
        writer.add_node("Tanh" if name == "g" else "Sigmoid", (gates[name],), (result,))
        gates[name] = result
    if "i" not in gates:
        gates["i"] = writer.temporary_value((rows, units))
        writer.add_node("Sub", (None, gates["f"]), (gates["i"],))
    parts = [writer.temporary_value((rows, units)) for _ in range(4)]
    writer.add_node("Mul", (gates["f"], cell), (parts[0],))
    writer.add_node("Mul", (gates["i"], gates["g"]), (parts[1],))
    writer.add_node("Add", (parts[0], parts[1]), (parts[2],))
    writer.add_node("Tanh", (parts[2],), (parts[3],))
    projected = writer.has_input(16)
    value = (
        writer.temporary_value((rows, units)) if projected else writer.result_before_quantization()
    )
    writer.add_node("Mul", (gates["o"], parts[3]), (value,))
    if projected:
        bias = writer.input_spec(17) if writer.has_input(17) else None
        writer.add_node(
            "Gemm",
            (value, writer.input_spec(16), bias),
            (writer.result_before_quantization(),),
            {"transB": 1},
        )
    writer.add_quantize_node()


def _write_svdf(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for SVDF: x [B, I] times F filters, then F filters over M steps, summed by
    rank.

    B*F*I MACs, B*F*M MACs; sums over the rank, and a bias for each of F / rank units.
    """
    batch = writer.input_tensor(0).shape[0]
    filters, steps = writer.input_tensor(2).shape
    units = writer.output_tensor().shape[-1]
    first = writer.temporary_value((batch, filters))
    writer.add_node("Gemm", (writer.input_spec(0), writer.input_spec(1)), (first,), {"transB": 1})
    past, out = (
        writer.temporary_value((filters, batch, steps)),
        writer.temporary_value((filters, batch, 1)),
    )
    writer.add_node("Identity", (first,), (past,))  # the results of the last M steps
    writer.add_node("MatMul", (past, writer.input_spec(2, (filters, steps, 1))), (out,))
    value = out
    if filters != units:
        value = writer.temporary_value((units, batch, 1))
        writer.add_node("ReduceSum", (out,), (value,))
    if writer.has_input(3):
        added = writer.temporary_value((batch, units))
        writer.add_node(
            "Add",
            (TensorSpec(value.name, value.dtype, (batch, units)), writer.input_spec(3)),
            (added,),
        )
        value = added
    activation = writer.current_operator.option_value("FusedActivationFunction")
    if activation:
        _write_activation(writer, activation, value, writer.result_before_quantization())
    else:
        writer.add_node("Identity", (value,), (writer.result_before_quantization(),))
    writer.add_quantize_node()


# Windows, reductions and functions of elements.


def _pool_writer(kind: str, **more: Attribute) -> Write:
    """Return a function that writes graph nodes for a pool, whose window is in its options."""

    def write_pool(writer: TfliteToGraphWriter) -> None:
        """Write a pool of X [N, H, W, C]."""
        option = writer.current_operator.option_value
        attrs = _window_attributes(writer, "HW")
        attrs |= {
            "kernel_shape": (int(option("FilterHeight")), int(option("FilterWidth"))),
            **more,
        }
        out = channels_first_shape(writer.output_tensor().shape)
        value = _value_before_activation(writer, out)
        data = writer.input_spec(0, channels_first_shape(writer.input_tensor(0).shape))
        writer.add_node(kind, (data,), (value,), attrs)
        _write_activation_and_quantization(writer, value, out)

    return write_pool


def _elementwise_writer(kind: str, operands: int = 1, **attrs: Attribute) -> Write:
    """Return a function that writes graph nodes for an operator that computes each element from
    its operands.
    """

    def write_elementwise_node(writer: TfliteToGraphWriter) -> None:
        """Write a node with these operands, and its fused activation."""
        value = _value_before_activation(writer)
        inputs = [
            writer.input_spec(at)
            for at in range(min(operands, len(writer.current_operator.inputs)))
        ]
        writer.add_node(kind, inputs, (value,), attrs)
        _write_activation_and_quantization(writer, value)

    return write_elementwise_node


def _composition_writer(first: str, second: str, operands: int = 1, twice: bool = False) -> Write:
    """Return a function that writes graph nodes for an operator that is one function of another's
    result.
    """

    def write_function_of_function(writer: TfliteToGraphWriter) -> None:
        """Write the nodes of both functions; with `twice` the second reads the result of the first
        as both operands.
        """
        middle = writer.temporary_value(writer.output_tensor().shape)
        writer.add_node(first, [writer.input_spec(at) for at in range(operands)], (middle,))
        writer.add_node(
            second,
            (middle, middle) if twice else (middle,),
            (writer.result_before_quantization(),),
        )
        writer.add_quantize_node()

    return write_function_of_function


def _reduction_writer(kind: str) -> Write:
    """Return a function that writes graph nodes for a reduction along the axes of its second
    input.
    """

    def write_reduction(writer: TfliteToGraphWriter) -> None:
        """Write the reduction of the first input."""
        axes = writer.constant_input_values(1)
        attrs: dict[str, Attribute] = {
            "keepdims": int(bool(writer.current_operator.option_value("KeepDims")))
        }
        if axes is not None:
            attrs["axes"] = axes
        writer.add_node(
            kind, (writer.input_spec(0),), (writer.result_before_quantization(),), attrs
        )
        writer.add_quantize_node()

    return write_reduction


def _arg_search_writer(kind: str) -> Write:
    """Return a function that writes graph nodes for ARG_MAX or ARG_MIN along the axis of its
    second input.
    """

    def write_arg_max_or_min(writer: TfliteToGraphWriter) -> None:
        """Write one ArgMax or ArgMin node along the axis."""
        axis = (writer.constant_input_values(1) or (-1,))[0]
        result = writer.value_of_tensor(writer.current_operator.outputs[0])
        writer.add_node(kind, (writer.input_spec(0),), (result,), {"axis": axis, "keepdims": 0})

    return write_arg_max_or_min


def _write_top_k(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for TOPK_V2 along the last axis."""
    results = [writer.value_of_tensor(at) for at in writer.current_operator.outputs]
    writer.add_node(
        "TopK", (writer.input_spec(0), writer.input_spec(1, (1,))), results, {"axis": -1}
    )


def _write_softmax(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for SOFTMAX along the last axis; a beta other than 1 multiplies its
    elements.
    """
    data = writer.input_spec(0)
    if writer.current_operator.option_value("Beta", 1.0) != 1.0:
        scaled = writer.temporary_value(data.shape or ())
        writer.add_node("Mul", (data, None), (scaled,))
        data = scaled
    writer.add_node("Softmax", (data,), (writer.result_before_quantization(),), {"axis": -1})
    writer.add_quantize_node()


def _write_gelu(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for GELU, by tanh if it is approximate."""
    form = "tanh" if writer.current_operator.option_value("Approximate", False) else "none"
    writer.add_node(
        "Gelu",
        (writer.input_spec(0),),
        (writer.result_before_quantization(),),
        {"approximate": form},
    )
    writer.add_quantize_node()


def _write_response_normalization(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for LOCAL_RESPONSE_NORMALIZATION over 2 * radius + 1 channels."""
    shape = channels_first_shape(writer.input_tensor(0).shape)
    size = 2 * int(writer.current_operator.option_value("Radius")) + 1
    writer.add_node(
        "LRN",
        (writer.input_spec(0, shape),),
        (writer.result_before_quantization(shape),),
        {"size": size},
    )


def _resize_writer(mode: str) -> Write:
    """Return a function that writes graph nodes for a resized image."""

    def write_resized_image(writer: TfliteToGraphWriter) -> None:
        """Write the resize of X [N, H, W, C] along H and W."""
        data = writer.input_spec(0, channels_first_shape(writer.input_tensor(0).shape))
        result = writer.result_before_quantization(
            channels_first_shape(writer.output_tensor().shape)
        )
        writer.add_node("Resize", (data,), (result,), {"mode": mode})
        writer.add_quantize_node()

    return write_resized_image


# Movement of data, and copies in another type.


def _data_movement_writer(kind: str, *positions: int, data: int = 0, **attrs: Attribute) -> Write:
    """Return a function that writes graph nodes for an operator whose results are elements of its
    operand `data`.
    """

    def write_data_movement(writer: TfliteToGraphWriter) -> None:
        """Write one node, of the operator's kind, that moves data."""
        results = [writer.value_of_tensor(at) for at in writer.current_operator.outputs]
        inputs = [writer.input_spec(at) for at in (data, *positions) if writer.has_input(at)]
        writer.add_node(kind, inputs, results, attrs)

    return write_data_movement


def _write_reshape(writer: TfliteToGraphWriter) -> None:
    """Write an operator that gives the same elements another shape."""
    writer.add_node(
        "Reshape",
        (writer.input_spec(0),),
        (writer.value_of_tensor(writer.current_operator.outputs[0]),),
    )


def _write_concatenation(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for CONCATENATION along an axis."""
    inputs = [
        writer.input_spec(at)
        for at in range(len(writer.current_operator.inputs))
        if writer.has_input(at)
    ]
    axis = int(writer.current_operator.option_value("Axis"))
    writer.add_node(
        "Concat",
        inputs,
        (writer.value_of_tensor(writer.current_operator.outputs[0]),),
        {"axis": axis},
    )


def _write_pack(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for PACK, which joins tensors of one shape."""
    inputs = [writer.input_spec(at) for at in range(len(writer.current_operator.inputs))]
    if all(spec.shape == () for spec in inputs):  # numbers, which Concat does not join
        inputs = [TensorSpec(spec.name, spec.dtype, (1,), spec.role) for spec in inputs]
    writer.add_node(
        "Concat",
        inputs,
        (writer.value_of_tensor(writer.current_operator.outputs[0]),),
        {"axis": 0},
    )


def _split_writer(data: int) -> Write:
    """Return a function that writes graph nodes for an operator that divides its operand `data`
    into its results.
    """

    def write_slice_of_each_result(writer: TfliteToGraphWriter) -> None:
        """Write a Slice node for each result of the operator."""
        for at in writer.current_operator.outputs:
            writer.add_node("Slice", (writer.input_spec(data),), (writer.value_of_tensor(at),))

    return write_slice_of_each_result


def _write_gather(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for GATHER along an axis."""
    axis = int(writer.current_operator.option_value("Axis"))
    operands = (writer.input_spec(0), writer.input_spec(1))
    writer.add_node(
        "Gather",
        operands,
        (writer.value_of_tensor(writer.current_operator.outputs[0]),),
        {"axis": axis},
    )


def _write_quantize(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for QUANTIZE, also of numbers that have another scale."""
    writer.add_node(
        "QuantizeLinear",
        (writer.input_spec(0),),
        (writer.value_of_tensor(writer.current_operator.outputs[0]),),
    )


def _write_dequantize(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for DEQUANTIZE; a constant is read as it is stored, since kernels read it
    so.
    """
    source, result = writer.current_operator.inputs[0], writer.current_operator.outputs[0]
    if writer.tensor_or_copied_constant(source).stored:
        writer.replace_by_constant(result, source)
    elif writer.tensor_or_copied_constant(source).quantized:
        writer.add_node(
            "DequantizeLinear", (writer.input_spec(0), None), (writer.value_of_tensor(result),)
        )
    else:
        writer.add_node("Cast", (writer.input_spec(0),), (writer.value_of_tensor(result),))


def _write_densify(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for DENSIFY: the sparse constant is read wherever its dense form is."""
    writer.replace_by_constant(
        writer.current_operator.outputs[0], writer.current_operator.inputs[0]
    )


def _write_unknown(writer: TfliteToGraphWriter) -> None:
    """Write an operator without a formula: it is named, and is not counted."""
    operator = writer.current_operator
    inputs = [writer.value_of_tensor(at) if at >= 0 else None for at in operator.inputs]
    outputs = [writer.value_of_tensor(at) if at >= 0 else None for at in operator.outputs]
    writer.add_node(operator.kind, inputs, outputs, domain="tflite")


def _write_square(writer: TfliteToGraphWriter) -> None:
    """Write graph nodes for SQUARE as a product of the operand with itself."""
    writer.add_node(
        "Mul", (writer.input_spec(0), writer.input_spec(0)), (writer.result_before_quantization(),)
    )
    writer.add_quantize_node()


_UNARY = {
    "ABS": "Abs", "CEIL": "Ceil", "COS": "Cos", "ELU": "Elu", "EXP": "Exp", "FLOOR": "Floor",
    "HARD_SWISH": "HardSwish", "LEAKY_RELU": "LeakyRelu", "LOG": "Log", "LOGICAL_NOT": "Not",
    "LOGISTIC": "Sigmoid", "NEG": "Neg", "RELU": "Relu", "ROUND": "Round", "SIGN": "Sign",
    "SIN": "Sin", "SQRT": "Sqrt", "TANH": "Tanh",
}  # fmt: skip
_BINARY = {
    "ADD": "Add", "BITWISE_XOR": "BitwiseXor", "DIV": "Div", "EQUAL": "Equal",
    "FLOOR_MOD": "Mod", "GREATER": "Greater", "GREATER_EQUAL": "GreaterOrEqual", "LESS": "Less",
    "LESS_EQUAL": "LessOrEqual", "LOGICAL_AND": "And", "LOGICAL_OR": "Or", "MAXIMUM": "Max",
    "MINIMUM": "Min", "MUL": "Mul", "POW": "Pow", "PRELU": "PRelu", "RIGHT_SHIFT": "BitShift",
    "SUB": "Sub",
}  # fmt: skip
_REDUCTIONS = {
    "MEAN": "ReduceMean", "REDUCE_ALL": "ReduceMin", "REDUCE_ANY": "ReduceMax",
    "REDUCE_MAX": "ReduceMax", "REDUCE_MIN": "ReduceMin", "REDUCE_PROD": "ReduceProd",
    "SUM": "ReduceSum",
}  # fmt: skip
_MOVES = {
    "BATCH_TO_SPACE_ND": "Transpose", "BROADCAST_TO": "Expand", "CAST": "Cast",
    "DEPTH_TO_SPACE": "Transpose", "DYNAMIC_UPDATE_SLICE": "Expand", "MIRROR_PAD": "Pad",
    "PAD": "Pad", "PADV2": "Pad", "REVERSE_V2": "Transpose", "SLICE": "Slice",
    "SPACE_TO_BATCH_ND": "Transpose", "SPACE_TO_DEPTH": "Transpose",
    "STRIDED_SLICE": "Slice", "TILE": "Expand", "TRANSPOSE": "Transpose",
    "ZEROS_LIKE": "Expand",
}  # fmt: skip
WRITERS: Mapping[str, Write] = {
    **{name: _elementwise_writer(kind) for name, kind in _UNARY.items()},
    **{name: _elementwise_writer(kind, 2) for name, kind in _BINARY.items()},
    **{name: _reduction_writer(kind) for name, kind in _REDUCTIONS.items()},
    **{name: _data_movement_writer(kind) for name, kind in _MOVES.items()},
    **dict.fromkeys(("BITCAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE"), _write_reshape),
    "ADD_N": _elementwise_writer("Sum", 10**6),
    "ARG_MAX": _arg_search_writer("ArgMax"),
    "ARG_MIN": _arg_search_writer("ArgMin"),
    "AVERAGE_POOL_2D": _pool_writer("AveragePool"),
    "BATCH_MATMUL": _write_batch_matmul,
    "CONCATENATION": _write_concatenation,
    "CONV_2D": _write_conv_2d,
    "CONV_3D": _write_conv_3d,
    "CONV_3D_TRANSPOSE": _write_conv_3d_transpose,
    "CUMSUM": _elementwise_writer("CumSum", 2),
    "DENSIFY": _write_densify,
    "DEPTHWISE_CONV_2D": _write_depthwise,
    "DEQUANTIZE": _write_dequantize,
    "EMBEDDING_LOOKUP": _data_movement_writer("Gather", 0, data=1),
    "FILL": _data_movement_writer("Expand", data=1),
    "FLOOR_DIV": _composition_writer("Div", "Floor", 2),
    "FULLY_CONNECTED": _write_fully_connected,
    "GATHER": _write_gather,
    "GATHER_ND": _data_movement_writer("GatherND", 1),
    "GELU": _write_gelu,
    "L2_NORMALIZATION": _elementwise_writer("LpNormalization", p=2, axis=-1),
    "L2_POOL_2D": _pool_writer("LpPool", p=2),
    "LOCAL_RESPONSE_NORMALIZATION": _write_response_normalization,
    "LOG_SOFTMAX": _elementwise_writer("LogSoftmax", axis=-1),
    "MAX_POOL_2D": _pool_writer("MaxPool"),
    "NOT_EQUAL": _composition_writer("Equal", "Not", 2),
    "PACK": _write_pack,
    "QUANTIZE": _write_quantize,
    "RANK": _data_movement_writer("Shape"),
    "RELU6": _elementwise_writer("Clip", min=0.0, max=6.0),
    "RELU_0_TO_1": _elementwise_writer("Clip", min=0.0, max=1.0),
    "RELU_N1_TO_1": _elementwise_writer("Clip", min=-1.0, max=1.0),
    "RESIZE_BILINEAR": _resize_writer("linear"),
    "RESIZE_NEAREST_NEIGHBOR": _resize_writer("nearest"),
    "RSQRT": _composition_writer("Sqrt", "Reciprocal"),
    "SELECT": _data_movement_writer("Where", 1, 2),
    "SELECT_V2": _data_movement_writer("Where", 1, 2),
    "SHAPE": _data_movement_writer("Shape"),
    "SOFTMAX": _write_softmax,
    "SPLIT": _split_writer(1),
    "SPLIT_V": _split_writer(0),
    "SQUARE": _write_square,
    "SQUARED_DIFFERENCE": _composition_writer("Sub", "Mul", 2, twice=True),
    "SVDF": _write_svdf,
    "TOPK_V2": _write_top_k,
    "TRANSPOSE_CONV": _write_transpose_conv,
    "UNPACK": _split_writer(0),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _write_sequence_lstm,
}


def write_operator_nodes(writer: TfliteToGraphWriter) -> None:
    """Write the nodes of the writer's operator; one without a formula is named."""
    operator = writer.current_operator
    write = None if operator.is_custom else WRITERS.get(operator.kind)
    (write or _write_unknown)(writer)
