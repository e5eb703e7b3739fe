"""Each operation of OpenVINO's opsets 1 to 16 as nodes of ai.onnx, whose formulas are known.

Operands have the same order of axes in both. An operation that has no operator in ONNX, or needs
the value of an operand that the file computes, is named and not counted.
Source: https://docs.openvino.ai/2025/documentation/openvino-ir-format/operation-sets.html
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from crossflops.frontends.openvino.reading import LayerPort
from crossflops.frontends.openvino.recurrent import write_recurrent_cell, write_recurrent_sequence
from crossflops.frontends.openvino.writer import INT64, IrToOnnxWriter, onnx_type_number

Write: TypeAlias = Callable[[IrToOnnxWriter], None]
_MOST = (1 << 63) - 1  # the end of a slice that has none


def _single_node_writer(kind: str, operands: int = 1, **attributes: float | int | str) -> Write:
    """Return a function that writes an operation as one ONNX node of the operator `kind`, with the
    first operands of the operation as its inputs.
    """

    def write_single_node(writer: IrToOnnxWriter) -> None:
        """Write the ONNX node of the operation."""
        writer.add_result_node(kind, writer.operand_value_names()[:operands], **attributes)

    return write_single_node


def _node_pair_writer(first: str, second: str, operands: int = 1) -> Write:
    """Return a function that writes an operation as two ONNX nodes, `second` of the result of
    `first`.
    """

    def write_node_pair(writer: IrToOnnxWriter) -> None:
        """Write both ONNX nodes of the operation."""
        writer.add_result_node(
            second, [writer.add_node(first, writer.operand_value_names()[:operands])]
        )

    return write_node_pair


# Products.


def _window_attributes(writer: IrToOnnxWriter) -> dict[str, Any]:
    """Return the strides, dilations and padding of a convolution or pool as attributes of an ONNX
    node.
    """
    attributes: dict[str, Any] = {}
    for name, own in (("strides", "strides"), ("dilations", "dilations")):
        if values := writer.integers_attribute(name):
            attributes[own] = values
    automatic = {"same_upper": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}.get(
        writer.text_attribute("auto_pad").lower()
    )
    if automatic:
        attributes["auto_pad"] = automatic
    elif pads := (
        *writer.integers_attribute("pads_begin"),
        *writer.integers_attribute("pads_end"),
    ):
        attributes["pads"] = pads
    return attributes


class GroupedFilters(NamedTuple):
    """The filters of a grouped convolution as ONNX has them, and the number of groups."""

    value: str
    groups: int


def _merge_group_filters(writer: IrToOnnxWriter) -> GroupedFilters | None:
    """Return the filters of a grouped convolution in the shape that ONNX requires, and the number
    of groups; None if a size is open.

    [G, M/G, C/G, k...] -> [M, C/G, k...], transposed [G, C/G, M/G, k...] -> [C, M/G, k...].
    """
    groups, rows, *rest = writer.operand_port(1).dims
    if min(writer.operand_port(1).dims) < 0:
        return None
    shape = writer.add_integer_constant((groups * rows, *rest))
    return GroupedFilters(
        writer.add_node("Reshape", [writer.operand_value_name(1), shape]), groups
    )


def _convolution_writer(has_groups: bool) -> Write:
    """Return a function that writes ONNX nodes for a convolution."""

    def write_convolution(writer: IrToOnnxWriter) -> None:
        """Write ONNX nodes for Conv of X [N, C, ...] with W [M, C/group, k...]."""
        weight, groups = writer.operand_value_name(1), 1
        if has_groups:
            filters = _merge_group_filters(writer)
            if filters is None:
                writer.add_uncounted_node()
                return
            weight, groups = filters
        writer.add_result_node(
            "Conv",
            [writer.operand_value_name(0), weight],
            group=groups,
            **_window_attributes(writer),
        )

    return write_convolution


def _conv_transpose_writer(has_groups: bool) -> Write:
    """Return a function that writes ONNX nodes for a transposed convolution."""

    def write_conv_transpose(writer: IrToOnnxWriter) -> None:
        """Write ONNX nodes for ConvTranspose of X [N, C, ...] with W [C, M/group, k...]."""
        attributes = _window_attributes(writer)
        weight, groups = writer.operand_value_name(1), 1
        if has_groups:
            filters = _merge_group_filters(writer)
            if filters is None:
                writer.add_uncounted_node()
                return
            weight, groups = filters
        if writer.has_operand(2):
            sizes = writer.constant_integers(2)
            if sizes is None:
                writer.add_uncounted_node()
                return
            attributes["output_shape"] = sizes
            attributes.pop("pads", None)
        elif padding := writer.integers_attribute("output_padding"):
            attributes["output_padding"] = padding
        writer.add_result_node(
            "ConvTranspose", [writer.operand_value_name(0), weight], group=groups, **attributes
        )

    return write_conv_transpose


def _write_deformable(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for DeformableConvolution: X, offsets, filters, and a mask."""
    groups = {
        "group": writer.integer_attribute("group", 1),
        "offset_group": writer.integer_attribute("deformable_group", 1),
    }
    x, offsets, weight = (writer.operand_value_name(at) for at in range(3))
    mask = writer.operand_value_name(3)
    writer.add_result_node(
        "DeformConv", [x, weight, offsets, "", mask], **groups, **_window_attributes(writer)
    )


def _add_swap_of_last_axes(writer: IrToOnnxWriter, at: int) -> str:
    """Add a Transpose that swaps the last two axes of operand `at`; return the name
    of its result.
    """
    rank = writer.operand_rank(at)
    if rank < 2:
        return writer.operand_value_name(at)
    order = (*range(rank - 2), rank - 1, rank - 2)
    return writer.add_node("Transpose", [writer.operand_value_name(at)], perm=order)


def _write_matmul(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for MatMul, either factor of which may be transposed."""
    factors = [
        _add_swap_of_last_axes(writer, at)
        if writer.flag_attribute(name)
        else writer.operand_value_name(at)
        for at, name in enumerate(("transpose_a", "transpose_b"))
    ]
    writer.add_result_node("MatMul", factors)


def _write_attention(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for ScaledDotProductAttention of Q, K, V [..., L, E], with a mask and a
    scale.
    """
    if writer.operand_rank(0) not in (3, 4):
        writer.add_uncounted_node()
        return
    is_flat = writer.operand_rank(0) == 3
    operands = [writer.operand_value_name(at) for at in range(3)]
    if is_flat:  # a batch without heads
        axes = writer.add_integer_constant((1,))
        operands = [writer.add_node("Unsqueeze", [value, axes]) for value in operands]
    mask = writer.operand_value_name(3) if writer.has_operand(3) and writer.operand_rank(3) else ""
    if mask and is_flat and writer.operand_rank(3) == 3:
        mask = writer.add_node("Unsqueeze", [mask, writer.add_integer_constant((1,))])
    attributes: dict[str, Any] = {"is_causal": int(writer.flag_attribute("causal"))}
    if writer.has_operand(4) and (scale := writer.constant_numbers(4)):
        attributes["scale"] = float(scale[0])
    if not is_flat:
        writer.add_result_node("Attention", [*operands, mask], **attributes)
        return
    heads = writer.add_node("Attention", [*operands, mask], **attributes)
    writer.add_result_node("Squeeze", [heads, writer.add_integer_constant((1,))])


# Pools, reductions, resampling.


def _write_max_pool(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for MaxPool; from opset 8 on its second result has the indices of the
    maxima.
    """
    attributes = _window_attributes(writer) | {"kernel_shape": writer.integers_attribute("kernel")}
    attributes["ceil_mode"] = int(
        writer.text_attribute("rounding_type", "floor").startswith("ceil")
    )
    if len(writer.current_layer.outputs) < 2:
        writer.add_result_node("MaxPool", [writer.operand_value_name(0)], **attributes)
    elif writer.result_type_number(1) == INT64:
        results = [writer.result_name(), writer.result_name(1)]
        writer.add_node("MaxPool", [writer.operand_value_name(0)], results, **attributes)
    else:
        indices = f"{writer.result_name(1)}:int64"
        writer.add_node(
            "MaxPool",
            [writer.operand_value_name(0)],
            [writer.result_name(), indices],
            **attributes,
        )
        writer.add_node(
            "Cast", [indices], [writer.result_name(1)], to=writer.result_type_number(1)
        )


def _write_average_pool(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for AvgPool."""
    attributes = _window_attributes(writer) | {"kernel_shape": writer.integers_attribute("kernel")}
    attributes["ceil_mode"] = int(
        writer.text_attribute("rounding_type", "floor").startswith("ceil")
    )
    attributes["count_include_pad"] = int(not writer.flag_attribute("exclude-pad", True))
    writer.add_result_node("AveragePool", [writer.operand_value_name(0)], **attributes)


def _adaptive_pool_writer(kind: str) -> Write:
    """Return a function that writes ONNX nodes for an adaptive pool, whose input sizes must be
    multiples of its result sizes.
    """

    def write_adaptive_pool(writer: IrToOnnxWriter) -> None:
        """Write the pool if all its windows have one size; otherwise add a node that
        is uncounted.
        """
        area, sizes = writer.operand_port(0).dims[2:], writer.constant_integers(1)
        if sizes is None or len(writer.current_layer.outputs) > 1:
            writer.add_uncounted_node()
        elif set(sizes) == {1}:
            writer.add_result_node(f"Global{kind}", [writer.operand_value_name(0)])
        elif min(area) > 0 and not any(
            side % size for side, size in zip(area, sizes, strict=True)
        ):
            steps = tuple(side // size for side, size in zip(area, sizes, strict=True))
            writer.add_result_node(
                kind, [writer.operand_value_name(0)], kernel_shape=steps, strides=steps
            )
        else:
            writer.add_uncounted_node()

    return write_adaptive_pool


def _axes_reduction_writer(kind: str) -> Write:
    """Return a function that writes ONNX nodes for a reduction along the axes of the
    second input.
    """

    def write_axes_reduction(writer: IrToOnnxWriter) -> None:
        """Write ONNX nodes for the reduction."""
        # of a vector all axes, for which ONNX needs none: sizes are computed so
        axes = [writer.operand_as_int64(1)] if writer.operand_rank(0) != 1 else []
        keeps = int(writer.flag_attribute("keep_dims"))
        writer.add_result_node(kind, [writer.operand_value_name(0), *axes], keepdims=keeps)

    return write_axes_reduction


_RESIZE_MODES = {
    "nearest": "nearest", "linear": "linear", "linear_onnx": "linear", "cubic": "cubic",
    "bilinear_pillow": "linear", "bicubic_pillow": "cubic",
}  # fmt: skip


def _write_interpolate(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Interpolate: sizes or scales of some axes; of the first version always
    sizes.
    """
    mode = _RESIZE_MODES.get(writer.text_attribute("mode"), "linear")
    if writer.current_layer.opset in ("opset1", "opset2", "opset3"):
        axes, by_scales, sizes_at, scales_at = writer.integers_attribute("axes"), False, 1, 1
    else:
        by_scales = writer.text_attribute("shape_calculation_mode") == "scales"
        is_newest = writer.current_layer.opset not in (
            "opset4",
            "opset5",
            "opset6",
            "opset7",
            "opset8",
            "opset9",
            "opset10",
        )
        sizes_at, scales_at = (1, 1) if is_newest else (1, 2)
        at = 2 if is_newest else 3
        axes_read = (
            writer.constant_integers(at)
            if writer.has_operand(at)
            else tuple(range(writer.operand_rank(0)))
        )
        if axes_read is None:
            writer.add_uncounted_node()
            return
        axes = axes_read
    attributes: dict[str, Any] = {"mode": mode, "axes": axes}
    if writer.flag_attribute("antialias"):
        attributes["antialias"] = 1
    if by_scales:
        scales = writer.operand_value_name(scales_at)
        if onnx_type_number(writer.operand_port(scales_at).precision) != 1:
            scales = writer.add_node("Cast", [scales], to=1)
        writer.add_result_node("Resize", [writer.operand_value_name(0), "", scales], **attributes)
    else:
        operands = [writer.operand_value_name(0), "", "", writer.operand_as_int64(sizes_at)]
        writer.add_result_node("Resize", operands, **attributes)


# Norms and functions of elements.


def _write_mvn(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for MVN, (X - mean) / deviation, or the mean alone where it says so."""
    if writer.has_operand(1):
        axes = writer.constant_integers(1)
    elif across := writer.integers_attribute("reduction_axes"):
        axes = across
    else:
        first = 1 if writer.flag_attribute("across_channels") else 2
        axes = tuple(range(first, writer.operand_rank(0)))
    if axes is None:
        writer.add_uncounted_node()
        return
    axes = tuple(axis % writer.operand_rank(0) for axis in axes)
    if writer.flag_attribute("normalize_variance", True):
        writer.add_result_node(
            "MeanVarianceNormalization", [writer.operand_value_name(0)], axes=axes
        )
        return
    mean = writer.add_node(
        "ReduceMean", [writer.operand_value_name(0), writer.add_integer_constant(axes)], keepdims=1
    )
    writer.add_result_node("Sub", [writer.operand_value_name(0), mean])


def _write_l2_normalization(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for NormalizeL2: X divided by the root of the sum of its squares along some
    axes.
    """
    axes = writer.constant_integers(1)
    if axes is not None and len(axes) == 1:
        writer.add_result_node(
            "LpNormalization", [writer.operand_value_name(0)], axis=axes[0], p=2
        )
        return
    norm = writer.add_node(
        "ReduceL2", [writer.operand_value_name(0), writer.operand_as_int64(1)], keepdims=1
    )
    writer.add_result_node("Div", [writer.operand_value_name(0), norm])


def _write_batch_norm(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for BatchNormInference; its first version has the data behind the scale and
    the shift.
    """
    data, scale, shift = (
        (0, 1, 2)
        if writer.current_layer.opset not in ("opset1", "opset2", "opset3", "opset4")
        else (2, 0, 1)
    )
    operands = [writer.operand_value_name(at) for at in (data, scale, shift, 3, 4)]
    writer.add_result_node("BatchNormalization", operands)


def _write_group_norm(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for GroupNormalization as the normalization of each group, times a scale,
    plus a shift.

    ONNX infers no shape for its own operator.
    """
    data, groups = writer.operand_value_name(0), writer.integer_attribute("num_groups", 1)
    grouped = writer.add_node("Reshape", [data, writer.add_integer_constant((0, groups, -1))])
    normal = writer.add_node("MeanVarianceNormalization", [grouped], axes=(2,))
    full = writer.add_node("Reshape", [normal, writer.add_node("Shape", [data])])
    shape = writer.add_integer_constant((-1, *(1 for _ in range(writer.operand_rank(0) - 2))))
    scale, shift = (
        writer.add_node("Reshape", [writer.operand_value_name(at), shape]) for at in (1, 2)
    )
    writer.add_result_node("Add", [writer.add_node("Mul", [full, scale]), shift])


def _write_lrn(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for LRN over neighbouring channels."""
    writer.add_result_node(
        "LRN", [writer.operand_value_name(0)], size=writer.integer_attribute("size", 1)
    )


def _write_rms(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for RMS, x / sqrt(mean(x^2)) times a scale, over the last axis."""
    writer.add_result_node("RMSNormalization", writer.operand_value_names()[:2], axis=-1)


def _write_clamp(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Clamp between two numbers."""
    dtype = onnx_type_number(writer.operand_port(0).precision)
    if dtype in (1, 10, 11, 16):
        bounds = [
            writer.add_float_constant(writer.float_attribute(name), dtype)
            for name in ("min", "max")
        ]
    else:
        bounds = [
            writer.add_integer_constant((writer.integer_attribute(name),), dtype, scalar=True)
            for name in ("min", "max")
        ]
    writer.add_result_node("Clip", [writer.operand_value_name(0), *bounds])


def _write_gelu(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Gelu, by tanh if it is approximate."""
    form = "tanh" if writer.text_attribute("approximation_mode").lower() == "tanh" else "none"
    writer.add_result_node("Gelu", [writer.operand_value_name(0)], approximate=form)


def _write_swish(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Swish: x times the logistic function of x, or of beta x."""
    inner = writer.operand_value_name(0)
    if writer.has_operand(1) and writer.constant_numbers(1) != (1.0,):
        inner = writer.add_node("Mul", [inner, writer.operand_value_name(1)])
    writer.add_result_node(
        "Mul", [writer.operand_value_name(0), writer.add_node("Sigmoid", [inner])]
    )


def _write_prelu(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for PRelu, whose slope is one for each channel or for all."""
    slope, rank = writer.operand_value_name(1), writer.operand_rank(0)
    if writer.operand_rank(1) == 1 and rank > 2 and writer.operand_port(1).dims != (1,):
        shape = (-1, *(1 for _ in range(rank - 2)))
        slope = writer.add_node("Reshape", [slope, writer.add_integer_constant(shape)])
    writer.add_result_node("PRelu", [writer.operand_value_name(0), slope])


def _write_squared_difference(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for SquaredDifference."""
    difference = writer.add_node("Sub", writer.operand_value_names()[:2])
    writer.add_result_node("Mul", [difference, difference])


def _softmax_writer(kind: str) -> Write:
    """Return a function that writes ONNX nodes for a softmax along its axis."""

    def write_softmax_along_axis(writer: IrToOnnxWriter) -> None:
        """Write ONNX nodes for the softmax."""
        writer.add_result_node(
            kind, [writer.operand_value_name(0)], axis=writer.integer_attribute("axis", 1)
        )

    return write_softmax_along_axis


def _write_elu(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Elu."""
    writer.add_result_node(
        "Elu", [writer.operand_value_name(0)], alpha=writer.float_attribute("alpha", 1.0)
    )


def _write_fake_quantize(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for FakeQuantize as QuantizeLinear and DequantizeLinear: kernels read what
    is between.

    More than 256 levels take 16 bits, at most 16 levels 4 bits.
    """
    levels = writer.integer_attribute("levels", 256)
    bounds = writer.constant_numbers(1)
    signed = bounds is None or min(bounds) < 0
    number = {(4, True): 22, (4, False): 21, (8, True): 3, (8, False): 2}.get(
        (4 if levels <= 16 else 8, signed), 3
    )
    if levels > 256:
        number = 5 if signed else 4
    dtype = onnx_type_number(writer.operand_port(0).precision)
    scale = writer.add_float_constant(1.0, dtype)
    zero = writer.add_zero_of_type("zero", number)
    quantized = writer.add_node("QuantizeLinear", [writer.operand_value_name(0), scale, zero])
    writer.add_result_node("DequantizeLinear", [quantized, scale, zero])


def _write_type_promotion(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for ConvertPromoteTypes: both operands in the type that their
    results have.
    """
    for at in range(2):
        to = writer.result_type_number(at)
        if to:
            writer.add_node(
                "Cast", [writer.operand_value_name(at)], [writer.result_name(at)], to=to
            )
        else:
            writer.add_node("Identity", [writer.operand_value_name(at)], [writer.result_name(at)])


# Weights that are stored in another type than the one they are computed in.


def _write_convert(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Convert; if its operand is a stored weight, record the type in which
    the file stores it.
    """
    writer.add_result_node("Cast", [writer.operand_value_name(0)], to=writer.result_type_number())
    stored = writer.weights_of.get(writer.operand_value_name(0))
    if stored and writer.result_type_number() in _FLOAT_TYPES:
        writer.storage[writer.result_name()] = stored


_FLOAT_TYPES = (1, 10, 11, 16)  # TensorProto.DataType
_VIEWS = ("Convert", "Reshape", "Squeeze", "Transpose", "Unsqueeze")


def _source_of_scaled_weight(writer: IrToOnnxWriter) -> LayerPort | None:
    """Return the layer and the port of the stored integers q if the current layer computes a
    compressed weight (q - zero) * scale; None otherwise.
    """
    layer = writer.operand_maker(0)
    if layer is not None and layer.kind == "Subtract":
        source = writer.net.edges.get((layer.number, layer.inputs[0].number))
        layer = writer.layers.get(source[0]) if source else None
    if layer is None or layer.kind != "Convert":
        return None
    source = writer.net.edges.get((layer.number, layer.inputs[0].number))
    stored = writer.layers.get(source[0]) if source else None
    if source is None or stored is None or stored.kind != "Const":
        return None
    is_packed = stored.data.get("element_type") in _COMPRESSED
    return source if is_packed and writer.operand_constant(1) is not None else None


_COMPRESSED = ("i8", "u8", "i4", "u4", "u2", "nf4", "f8e4m3", "f8e5m2", "f4e2m1")


def _write_multiply(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Multiply; for the scale of a compressed weight a DequantizeLinear."""
    source = _source_of_scaled_weight(writer)
    if source is None:
        writer.add_result_node("Mul", writer.operand_value_names()[:2])
        return
    dtype = writer.result_type_number()
    stored = writer.values[source]
    writer.add_result_node("DequantizeLinear", [stored, writer.add_float_constant(1.0, dtype)])
    writer.weights_of[writer.result_name()] = writer.constant_types[stored]


# Movement of data.


def _write_reshape(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Reshape; a 0 of its shape is the size of the operand if
    it is special.
    """
    allow = int(not writer.flag_attribute("special_zero"))
    writer.add_result_node(
        "Reshape", [writer.operand_value_name(0), writer.operand_as_int64(1)], allowzero=allow
    )


def _write_transpose(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Transpose; without an order the axes are reversed."""
    order = writer.constant_integers(1)
    if order is None:
        writer.add_uncounted_node()
    elif order:
        writer.add_result_node("Transpose", [writer.operand_value_name(0)], perm=order)
    else:
        writer.add_result_node("Transpose", [writer.operand_value_name(0)])


def _axis_insertion_or_removal_writer(kind: str) -> Write:
    """Return a function that writes ONNX nodes for an operation that adds or removes axes."""

    def write_axis_insertion_or_removal(writer: IrToOnnxWriter) -> None:
        """Write the ONNX node that adds or removes the axes."""
        axes = [writer.operand_as_int64(1)] if writer.has_operand(1) else []
        writer.add_result_node(kind, [writer.operand_value_name(0), *axes])

    return write_axis_insertion_or_removal


def _write_concat(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Concat along an axis."""
    writer.add_result_node(
        "Concat", writer.operand_value_names(), axis=writer.integer_attribute("axis")
    )


def _axis_from_constant_input(writer: IrToOnnxWriter, at: int, default: int = 0) -> int | None:
    """Return the axis that input `at` gives as a constant, `default` if it is omitted, None if it
    is computed.
    """
    values = writer.constant_integers(at) if writer.has_operand(at) else (default,)
    return values[0] if values else None


def _write_split(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Split into equal parts."""
    axis = _axis_from_constant_input(writer, 1)
    if axis is None:
        writer.add_uncounted_node()
        return
    results = [writer.result_name(at) for at in range(len(writer.current_layer.outputs))]
    writer.add_node(
        "Split", [writer.operand_value_name(0)], results, axis=axis, num_outputs=len(results)
    )


def _write_variadic_split(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for VariadicSplit; one length may be -1, which is the remaining size."""
    axis, lengths = _axis_from_constant_input(writer, 1), writer.constant_integers(2)
    if axis is None:
        writer.add_uncounted_node()
        return
    results = [writer.result_name(at) for at in range(len(writer.current_layer.outputs))]
    fixed = tuple(port.dims[axis] if port.dims else -1 for port in writer.current_layer.outputs)
    parts: list[int | str] = list(lengths or writer.vector_elements(2))
    if not parts and min(fixed) >= 0:
        parts = list(fixed)
    if -1 in parts:
        at = axis % writer.operand_rank(0)
        rest = writer.add_node("Shape", [writer.operand_value_name(0)], start=at, end=at + 1)
        for part in (part for part in parts if part != -1):
            taken = writer.add_integer_constant((part,)) if isinstance(part, int) else part
            rest = writer.add_node("Sub", [rest, taken])
        parts = [rest if part == -1 else part for part in parts]
    sizes = _add_vector(writer, parts) if parts else writer.operand_as_int64(2)
    writer.add_node("Split", [writer.operand_value_name(0), sizes], results, axis=axis)


def _write_gather(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Gather along an axis; axes of a batch have indices of their own."""
    axis, batch = _axis_from_constant_input(writer, 2), writer.integer_attribute("batch_dims")
    if axis is None:
        writer.add_uncounted_node()
        return
    indices = writer.operand_value_name(1)
    if onnx_type_number(writer.operand_port(1).precision) not in (6, INT64):
        indices = writer.add_node("Cast", [indices], to=INT64)
    if not batch:
        writer.add_result_node("Gather", [writer.operand_value_name(0), indices], axis=axis)
        return
    if axis % writer.operand_rank(0) != batch % writer.operand_rank(1):
        writer.add_uncounted_node()
        return
    indices = writer.operand_as_int64(1, vector=False)
    last = writer.add_node("Unsqueeze", [indices, writer.add_integer_constant((-1,))])
    writer.add_result_node(
        "GatherND", [writer.operand_value_name(0), last], batch_dims=batch % writer.operand_rank(1)
    )


def _write_gather_nd(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for GatherND."""
    operands = [writer.operand_value_name(0), writer.operand_as_int64(1, vector=False)]
    writer.add_result_node("GatherND", operands, batch_dims=writer.integer_attribute("batch_dims"))


def _write_gather_elements(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for GatherElements."""
    writer.add_result_node(
        "GatherElements", writer.operand_value_names()[:2], axis=writer.integer_attribute("axis")
    )


def _write_scatter_elements(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for ScatterElementsUpdate along an axis; a reduction adds, multiplies or
    compares.
    """
    axis = _axis_from_constant_input(writer, 3)
    names = {"sum": "add", "prod": "mul", "min": "min", "max": "max"}
    reduction = names.get(writer.text_attribute("reduction"), "none")
    if axis is None or writer.text_attribute("reduction") == "mean":
        writer.add_uncounted_node()
        return
    operands = writer.operand_value_names()[:3]
    writer.add_result_node("ScatterElements", operands, axis=axis, reduction=reduction)


def _write_scatter_nd(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for ScatterNDUpdate."""
    names = {"sum": "add", "prod": "mul", "min": "min", "max": "max"}
    reduction = names.get(writer.text_attribute("reduction"), "none")
    operands = [
        writer.operand_value_name(0),
        writer.operand_as_int64(1, vector=False),
        writer.operand_value_name(2),
    ]
    writer.add_result_node("ScatterND", operands, reduction=reduction)


def _write_scatter(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for ScatterUpdate along the first axis."""
    if _axis_from_constant_input(writer, 3) != 0:
        writer.add_uncounted_node()
        return
    indices = writer.operand_as_int64(1, vector=False)
    last = writer.add_node("Unsqueeze", [indices, writer.add_integer_constant((-1,))])
    writer.add_result_node(
        "ScatterND", [writer.operand_value_name(0), last, writer.operand_value_name(2)]
    )


def _write_pad(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Pad by a value, or by elements of the operand."""
    modes = {"constant": "constant", "edge": "edge", "reflect": "reflect", "symmetric": "reflect"}
    pads = writer.add_node(
        "Concat", [writer.operand_as_int64(1), writer.operand_as_int64(2)], axis=0
    )
    operands = [writer.operand_value_name(0), pads]
    mode = modes.get(writer.text_attribute("pad_mode"), "constant")
    if mode == "constant" and writer.has_operand(3):
        operands.append(writer.operand_value_name(3))
    writer.add_result_node("Pad", operands, mode=mode)


def _write_tile(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Tile; fewer repeats than axes are those of the last axes."""
    repeats, rank = writer.constant_integers(1), writer.operand_rank(0)
    if repeats is not None and len(repeats) < rank:
        sizes = writer.add_integer_constant((*(1 for _ in range(rank - len(repeats))), *repeats))
    else:
        sizes = writer.operand_as_int64(1)
    writer.add_result_node("Tile", [writer.operand_value_name(0), sizes])


def _write_broadcast(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Broadcast to a shape; explicit axes are those of a vector
    or a scalar.
    """
    data, rank = writer.operand_value_name(0), writer.operand_rank(0)
    if (
        writer.has_operand(2)
        and writer.text_attribute("mode", "numpy").lower() == "explicit"
        and rank
    ):
        axes = writer.constant_integers(2)
        count = writer.operand_port(1).dims[0] if writer.operand_port(1).dims else -1
        if axes is None or count < 0:
            writer.add_uncounted_node()
            return
        free = tuple(axis for axis in range(count) if axis not in axes)
        if free:
            data = writer.add_node("Unsqueeze", [data, writer.add_integer_constant(free)])
    writer.add_result_node("Expand", [data, writer.operand_as_int64(1)])


def _write_shape_of(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for ShapeOf, in int64 or int32."""
    if writer.result_type_number() == INT64:
        writer.add_result_node("Shape", [writer.operand_value_name(0)])
    else:
        writer.add_result_node(
            "Cast",
            [writer.add_node("Shape", [writer.operand_value_name(0)])],
            to=writer.result_type_number(),
        )


def _write_range(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Range, whose operands have the type of its result."""
    to = writer.result_type_number()
    operands = [
        writer.operand_value_name(at)
        if onnx_type_number(writer.operand_port(at).precision) == to
        else writer.add_node("Cast", [writer.operand_value_name(at)], to=to)
        for at in range(3)
    ]
    operands = [
        writer.add_node("Reshape", [value, writer.add_integer_constant(())])
        if writer.operand_rank(at)
        else value
        for at, value in enumerate(operands)
    ]
    writer.add_result_node("Range", operands)


def _write_slice(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Slice of data between starts and ends, in steps, along axes."""
    data, starts, ends, steps = (
        writer.operand_value_name(0),
        *(writer.operand_as_int64(at) for at in (1, 2, 3)),
    )
    axes = [writer.operand_as_int64(4)] if writer.has_operand(4) else [""]
    writer.add_result_node("Slice", [data, starts, ends, *axes, steps])


def _vector_element(writer: IrToOnnxWriter, at: int, index: int) -> int | str:
    """Return element `index` of the vector at input `at`: a number, or the name of a value of one
    element if it is computed.
    """
    known = writer.constant_integers(at)
    if known is not None:
        return known[index]
    vector = writer.operand_as_int64(at)
    return writer.add_node("Gather", [vector, writer.add_integer_constant((index,))], axis=0)


def _add_vector(writer: IrToOnnxWriter, items: list[int | str]) -> str:
    """Add nodes that make a vector of these numbers and values; return its name."""
    numbers = [item for item in items if isinstance(item, int)]
    if len(numbers) == len(items):
        return writer.add_integer_constant(numbers)
    parts = [
        writer.add_integer_constant((item,)) if isinstance(item, int) else item for item in items
    ]
    return writer.add_node("Concat", parts, axis=0)


def _write_strided_slice(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for StridedSlice: its masks say which bounds are free, and which axes come
    or go.
    """
    count = (
        writer.operand_port(1).dims[0]
        if writer.operand_port(1).dims
        else len(writer.constant_integers(1) or (0,))
    )
    masks = {
        name: (*writer.integers_attribute(f"{name}_mask"), *(0 for _ in range(count)))
        for name in ("begin", "end", "new_axis", "shrink_axis", "ellipsis")
    }
    rank = writer.operand_rank(0)
    starts: list[int | str] = []
    ends: list[int | str] = []
    steps: list[int | str] = []
    axes: list[int] = []
    added: list[int] = []
    dropped: list[int] = []
    axis = result_axis = 0  # of the operand, of the result before axes are dropped
    for index in range(count):
        if masks["ellipsis"][index]:
            later = range(index + 1, count)
            kept = rank - axis - sum(1 for other in later if not masks["new_axis"][other])
            axis, result_axis = axis + kept, result_axis + kept
            continue
        if masks["new_axis"][index]:
            added.append(result_axis)
            result_axis += 1
            continue
        step = _vector_element(writer, 3, index) if writer.has_operand(3) else 1
        backwards = isinstance(step, int) and step < 0
        if masks["shrink_axis"][index]:
            first = _vector_element(writer, 1, index)
            if isinstance(first, int):
                last: int | str = first + 1 if first != -1 else _MOST
            else:
                last = writer.add_node("Add", [first, writer.add_integer_constant((1,))])
            dropped.append(result_axis)
            step = 1
        else:
            first = _MOST if backwards else 0
            if not masks["begin"][index]:
                first = _vector_element(writer, 1, index)
            last = -_MOST if backwards else _MOST
            if not masks["end"][index]:
                last = _vector_element(writer, 2, index)
        starts.append(first)
        ends.append(last)
        steps.append(step)
        axes.append(axis)
        axis, result_axis = axis + 1, result_axis + 1
    value = writer.operand_value_name(0)
    if axes:
        bounds = [_add_vector(writer, items) for items in (starts, ends)]
        where = writer.add_integer_constant(axes)
        value = writer.add_node("Slice", [value, *bounds, where, _add_vector(writer, steps)])
    if added:
        value = writer.add_node("Unsqueeze", [value, writer.add_integer_constant(added)])
    if dropped:
        value = writer.add_node("Squeeze", [value, writer.add_integer_constant(dropped)])
    writer.add_result_node("Identity", [value])


def _write_one_hot(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for OneHot; its last two operands are the on value and the off value."""
    flat = writer.add_integer_constant((1,))
    pair = [writer.add_node("Reshape", [writer.operand_value_name(at), flat]) for at in (3, 2)]
    values = writer.add_node("Concat", pair, axis=0)
    operands = [writer.operand_value_name(0), writer.operand_as_int64(1), values]
    writer.add_result_node("OneHot", operands, axis=writer.integer_attribute("axis", -1))


def _write_top_k(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for TopK along an axis; the indices may be int32."""
    attributes: dict[str, Any] = {
        "axis": writer.integer_attribute("axis"),
        "largest": int(writer.text_attribute("mode", "max") == "max"),
        "sorted": int(writer.text_attribute("sort", "value") != "none"),
    }
    operands = [writer.operand_value_name(0), writer.operand_as_int64(1)]
    is_int64 = len(writer.current_layer.outputs) < 2 or writer.result_type_number(1) == INT64
    indices = writer.result_name(1) if is_int64 else f"{writer.result_name(1)}:int64"
    writer.add_node("TopK", operands, [writer.result_name(), indices], **attributes)
    if not is_int64:
        writer.add_node(
            "Cast", [indices], [writer.result_name(1)], to=writer.result_type_number(1)
        )


def _write_cum_sum(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for CumSum along an axis."""
    attributes = {
        "exclusive": int(writer.flag_attribute("exclusive")),
        "reverse": int(writer.flag_attribute("reverse")),
    }
    writer.add_result_node("CumSum", writer.operand_value_names()[:2], **attributes)


def _block_movement_writer(kind: str) -> Write:
    """Return a function that writes ONNX nodes for DepthToSpace or SpaceToDepth of images."""

    def write_block_movement(writer: IrToOnnxWriter) -> None:
        """Write the ONNX node; for data of another rank than 4 add a node that is uncounted."""
        if writer.operand_rank(0) != 4:
            writer.add_uncounted_node()
            return
        attributes: dict[str, Any] = {"blocksize": writer.integer_attribute("block_size", 1)}
        if kind == "DepthToSpace":
            attributes["mode"] = "CRD" if writer.text_attribute("mode") == "depth_first" else "DCR"
        writer.add_result_node(kind, [writer.operand_value_name(0)], **attributes)

    return write_block_movement


def _write_shape_preserving_movement(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for an operation that moves elements and keeps the shape, such as
    ReverseSequence.
    """
    order = tuple(range(writer.operand_rank(0)))
    writer.add_result_node("Transpose", [writer.operand_value_name(0)], perm=order)


def _write_grid_sample(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for GridSample."""
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(writer.text_attribute("mode"), "nearest")
    attributes = {
        "mode": mode,
        "align_corners": int(writer.flag_attribute("align_corners")),
        "padding_mode": writer.text_attribute("padding_mode", "zeros"),
    }
    writer.add_result_node("GridSample", writer.operand_value_names()[:2], **attributes)


def _write_roi_align(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for ROIAlign of regions into a grid."""
    attributes: dict[str, Any] = {
        "output_height": writer.integer_attribute("pooled_h", 1),
        "output_width": writer.integer_attribute("pooled_w", 1),
        "sampling_ratio": writer.integer_attribute("sampling_ratio"),
        "spatial_scale": writer.float_attribute("spatial_scale", 1.0),
        "mode": writer.text_attribute("mode", "avg"),
    }
    operands = [
        writer.operand_value_name(0),
        writer.operand_value_name(1),
        writer.operand_as_int64(2),
    ]
    writer.add_result_node("RoiAlign", operands, **attributes)


def _write_einsum(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for Einsum of an equation."""
    writer.add_result_node(
        "Einsum", writer.operand_value_names(), equation=writer.text_attribute("equation")
    )


def _write_read_value(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for ReadValue, as in the first run: it reads the initial value of the
    variable.
    """
    if writer.has_operand(0):
        writer.add_result_node("Identity", [writer.operand_value_name(0)])
    else:
        writer.add_uncounted_node()


def _write_non_zero(writer: IrToOnnxWriter) -> None:
    """Write ONNX nodes for NonZero."""
    if writer.result_type_number() == INT64:
        writer.add_result_node("NonZero", [writer.operand_value_name(0)])
    else:
        writer.add_result_node(
            "Cast",
            [writer.add_node("NonZero", [writer.operand_value_name(0)])],
            to=writer.result_type_number(),
        )


_UNARY = {
    "Abs": "Abs", "Acos": "Acos", "Acosh": "Acosh", "Asin": "Asin", "Asinh": "Asinh",
    "Atan": "Atan", "Atanh": "Atanh", "BitwiseNot": "BitwiseNot", "Ceiling": "Ceil", "Cos": "Cos",
    "Cosh": "Cosh", "Erf": "Erf", "Exp": "Exp", "Floor": "Floor", "HSigmoid": "HardSigmoid",
    "HSwish": "HardSwish", "HardSigmoid": "HardSigmoid", "Identity": "Identity", "IsInf": "IsInf",
    "IsNaN": "IsNaN", "Log": "Log", "LogicalNot": "Not", "Mish": "Mish", "Negative": "Neg",
    "ReLU": "Relu", "Relu": "Relu", "Round": "Round", "Selu": "Selu", "Sigmoid": "Sigmoid",
    "Sign": "Sign",
    "Sin": "Sin", "Sinh": "Sinh", "SoftPlus": "Softplus", "SoftSign": "Softsign", "Sqrt": "Sqrt",
    "Tan": "Tan", "Tanh": "Tanh",
}  # fmt: skip
_BINARY = {
    "Add": "Add", "BitwiseAnd": "BitwiseAnd", "BitwiseOr": "BitwiseOr",
    "BitwiseXor": "BitwiseXor", "Divide": "Div", "Equal": "Equal", "FloorMod": "Mod",
    "Greater": "Greater", "GreaterEqual": "GreaterOrEqual", "Less": "Less",
    "LessEqual": "LessOrEqual", "LogicalAnd": "And", "LogicalOr": "Or", "LogicalXor": "Xor",
    "Maximum": "Max", "Minimum": "Min", "Mod": "Mod", "Power": "Pow",
    "Subtract": "Sub",
}  # fmt: skip
_REDUCTIONS = {
    "ReduceL1": "ReduceL1", "ReduceL2": "ReduceL2", "ReduceLogicalAnd": "ReduceMin",
    "ReduceLogicalOr": "ReduceMax", "ReduceMax": "ReduceMax", "ReduceMean": "ReduceMean",
    "ReduceMin": "ReduceMin", "ReduceProd": "ReduceProd", "ReduceSum": "ReduceSum",
}  # fmt: skip
WRITERS: Mapping[str, Write] = {
    **{name: _single_node_writer(kind) for name, kind in _UNARY.items()},
    **{name: _single_node_writer(kind, 2) for name, kind in _BINARY.items()},
    **{name: _axes_reduction_writer(kind) for name, kind in _REDUCTIONS.items()},
    **dict.fromkeys(("LSTMSequence", "GRUSequence", "RNNSequence"), write_recurrent_sequence),
    **dict.fromkeys(("LSTMCell", "GRUCell", "RNNCell"), write_recurrent_cell),
    "AdaptiveAvgPool": _adaptive_pool_writer("AveragePool"),
    "AdaptiveMaxPool": _adaptive_pool_writer("MaxPool"),
    "AvgPool": _write_average_pool,
    "BatchNormInference": _write_batch_norm,
    "Broadcast": _write_broadcast,
    "Clamp": _write_clamp,
    "Concat": _write_concat,
    "Convert": _write_convert,
    "ConvertLike": _single_node_writer("CastLike", 2),
    "ConvertPromoteTypes": _write_type_promotion,
    "Convolution": _convolution_writer(False),
    "ConvolutionBackpropData": _conv_transpose_writer(False),
    "CumSum": _write_cum_sum,
    "DeformableConvolution": _write_deformable,
    "DepthToSpace": _block_movement_writer("DepthToSpace"),
    "Einsum": _write_einsum,
    "Elu": _write_elu,
    "FakeQuantize": _write_fake_quantize,
    "Gather": _write_gather,
    "GatherElements": _write_gather_elements,
    "GatherND": _write_gather_nd,
    "Gelu": _write_gelu,
    "GridSample": _write_grid_sample,
    "GroupConvolution": _convolution_writer(True),
    "GroupConvolutionBackpropData": _conv_transpose_writer(True),
    "GroupNormalization": _write_group_norm,
    "Interpolate": _write_interpolate,
    "LRN": _write_lrn,
    "LogSoftmax": _softmax_writer("LogSoftmax"),
    "MVN": _write_mvn,
    "MatMul": _write_matmul,
    "MaxPool": _write_max_pool,
    "Multiply": _write_multiply,
    "NonZero": _write_non_zero,
    "NormalizeL2": _write_l2_normalization,
    "NotEqual": _node_pair_writer("Equal", "Not", 2),
    "OneHot": _write_one_hot,
    "PRelu": _write_prelu,
    "Pad": _write_pad,
    "RMS": _write_rms,
    "ROIAlign": _write_roi_align,
    "Range": _write_range,
    "ReadValue": _write_read_value,
    "Reshape": _write_reshape,
    "Reverse": _write_shape_preserving_movement,
    "ReverseSequence": _write_shape_preserving_movement,
    "Roll": _write_shape_preserving_movement,
    "ScaledDotProductAttention": _write_attention,
    "ScatterElementsUpdate": _write_scatter_elements,
    "ScatterNDUpdate": _write_scatter_nd,
    "ScatterUpdate": _write_scatter,
    "Select": _single_node_writer("Where", 3),
    "ShapeOf": _write_shape_of,
    "ShuffleChannels": _write_shape_preserving_movement,
    "Slice": _write_slice,
    "SoftMax": _softmax_writer("Softmax"),
    "Softmax": _softmax_writer("Softmax"),
    "SpaceToDepth": _block_movement_writer("SpaceToDepth"),
    "Split": _write_split,
    "SquaredDifference": _write_squared_difference,
    "Squeeze": _axis_insertion_or_removal_writer("Squeeze"),
    "StridedSlice": _write_strided_slice,
    "Swish": _write_swish,
    "Tile": _write_tile,
    "TopK": _write_top_k,
    "Transpose": _write_transpose,
    "Unsqueeze": _axis_insertion_or_removal_writer("Unsqueeze"),
    "VariadicSplit": _write_variadic_split,
}
_STANDARD = re.compile(r"opset\d+$")
_INTERNAL = ("RMS",)


def write_layer_nodes(writer: IrToOnnxWriter) -> None:
    """Write the ONNX nodes of the writer's current layer; for an unknown operation, a node that is
    uncounted.
    """
    layer = writer.current_layer
    known = _STANDARD.match(layer.opset) is not None or layer.kind in _INTERNAL
    write = WRITERS.get(layer.kind) if known else None
    (write or IrToOnnxWriter.add_uncounted_node)(writer)
    if layer.kind in _VIEWS and (stored := writer.weights_of.get(writer.operand_value_name(0))):
        writer.weights_of[writer.result_name()] = stored
