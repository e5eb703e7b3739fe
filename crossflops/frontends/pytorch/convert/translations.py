"""Translations to ONNX of operators that PyTorch's exporter translates wrongly.

The exporter (onnxscript's torchlib) ignores arguments of some operators, as `training` of a batch
normalization and `label_smoothing` of a cross entropy, and writes others so that no runtime takes
them. Each function here takes the arguments of its operator in their order.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from onnxscript.onnx_opset import opset23

from crossflops.frontends.pytorch.convert.exporter import opaque_node_translation


@functools.cache
def replacement_translations() -> dict[Any, Callable[..., Any]]:
    """Return our functions that translate operators to ONNX which the exporter translates wrongly,
    by PyTorch operator.
    """
    import torch

    aten = torch.ops.aten
    resized = (
        aten.upsample_linear1d.default,
        aten.upsample_bilinear2d.default,
        aten.upsample_trilinear3d.default,
        aten.upsample_bicubic2d.default,
        aten._upsample_bilinear2d_aa.default,
        aten._upsample_bicubic2d_aa.default,
    )
    return {
        **{operator: functools.partial(write_resize, operator) for operator in resized},
        aten.avg_pool2d.default: functools.partial(write_average_pool, 2),
        aten.avg_pool3d.default: functools.partial(write_average_pool, 3),
        aten.multinomial.default: write_multinomial,
        aten.histc.default: write_histogram,
        aten.copy.default: write_copy,
        aten.elu.default: write_elu,
        aten.hamming_window.default: write_hamming_window,
        aten._linalg_det.default: write_determinant,
        aten._native_batch_norm_legit_functional.default: write_batch_norm,
        aten._native_batch_norm_legit.default: write_batch_norm,
        aten._native_batch_norm_legit.no_stats: write_batch_norm_without_statistics,
        aten.native_batch_norm.default: write_batch_norm,
        aten.instance_norm.default: write_instance_norm,
        aten.cross_entropy_loss.default: write_cross_entropy,
        aten.multilabel_margin_loss.default: write_multilabel_margin_loss,
        aten.scaled_dot_product_attention.default: write_attention,
    }


def write_constant_like(number: float, like: Any) -> Any:
    """Write an ONNX constant, a number in the dtype of the tensor `like`; return it."""
    import onnx_ir as ir

    return opset23.Constant(value=ir.tensor(number, dtype=like.dtype))


def write_integer_list(*numbers: int) -> Any:
    """Write an ONNX constant, a list of integers such as axes or a shape; return it."""
    return opset23.Constant(value_ints=list(numbers))


# Attention: what a runtime takes as a mask, and dropout in training.


def write_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Write ONNX nodes for attention, softmax(scale Q K^T + mask) V, with dropout in training;
    return the result.

    With dropout, the exporter adds a boolean mask as numbers, and writes dropout as in inference.
    Without, onnxruntime needs a row of the mask for every query, and a scale above 0.
    https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html

    Raises AssertionError for operands of other than four axes, as the exporter's form does.
    """
    from torch.onnx._internal.exporter._torchlib.ops import nn

    if not dropout_p and (scale is None or scale > 0):
        mask = _write_expanded_mask(attn_mask, query)
        exported = nn.aten_scaled_dot_product_attention_23
        return exported(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)
    if not len(query.shape) == len(key.shape) == len(value.shape) == 4:
        raise AssertionError("only 4D query, key, and value are supported")
    mask = nn._causal_attention_mask(query, key, opset23) if is_causal else attn_mask
    if enable_gqa and query.shape[1] != key.shape[1]:
        key, value = nn._attention_repeat_kv_for_group_query(query, key, value, opset23)
    scale = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    root = math.sqrt(abs(scale))
    columns = opset23.Mul(
        opset23.Transpose(key, perm=[0, 1, 3, 2]), write_constant_like(root, query)
    )
    rows = opset23.Mul(query, write_constant_like(math.copysign(root, scale), query))
    scores = opset23.MatMul(rows, columns)
    if mask is not None:
        scores = opset23.Add(scores, _write_mask_as_summand(mask, query))
    weights = opset23.Softmax(scores, axis=-1)
    if dropout_p:
        ratio, training = opset23.Constant(value_float=dropout_p), _write_true()
        weights, _ = opset23.Dropout(weights, ratio, training)
    return opset23.MatMul(weights, value)


def _write_true() -> Any:
    """Write an ONNX constant of the boolean true; return it."""
    import onnx_ir as ir

    return opset23.Constant(value=ir.tensor(True))


def _write_expanded_mask(mask: Any, query: Any) -> Any:
    """Write an ONNX node that gives an attention mask one row for each query; return the mask,
    unchanged if it has them.
    """
    if mask is None or len(mask.shape) < 2 or mask.shape[-2] != 1 or query.shape[-2] == 1:
        return mask
    rows = [*mask.shape[:-2], query.shape[-2], mask.shape[-1]]
    return opset23.Expand(mask, write_integer_list(*rows)) if _are_static_sizes(rows) else mask


def _are_static_sizes(sizes: Sequence[Any]) -> bool:
    """Return True if all sizes are integers, none symbolic."""
    return all(isinstance(size, int) for size in sizes)


def _write_mask_as_summand(mask: Any, query: Any) -> Any:
    """Write ONNX nodes that make a boolean mask 0 where it is true, else minus infinity; return
    it, another mask as it is.
    """
    import onnx_ir as ir

    if mask.dtype != ir.DataType.BOOL:
        return mask
    return opset23.Where(
        mask, write_constant_like(0.0, query), write_constant_like(-math.inf, query)
    )


# Normalizations in training, by the statistics of the batch.


def write_batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Write ONNX nodes for `native_batch_norm`; return y, mean and 1 / deviation for the backward
    pass, and new running statistics.

    In training the result of the exporter is that of inference. Without running statistics, a
    momentum of 1 keeps those that ONNX needs unchanged.
    https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html
    """
    from onnxscript.function_libs.torch_lib.ops.core import (
        aten__native_batch_norm_legit_functional,
    )

    if not training:
        provided = (x, weight, bias, mean, variance, False, momentum, eps)
        return aten__native_batch_norm_legit_functional(*provided)
    tracked = mean is not None and variance is not None
    of_channels = opset23.Shape(x, start=1, end=2)
    zeros = opset23.Expand(write_constant_like(0.0, x), of_channels)
    ones = opset23.Expand(write_constant_like(1.0, x), of_channels)
    y, new_mean, new_variance = opset23.BatchNormalization(
        x,
        ones if weight is None else weight,
        zeros if bias is None else bias,
        mean if tracked else zeros,
        variance if tracked else ones,
        epsilon=eps,
        momentum=1.0 - momentum if tracked else 1.0,
        training_mode=1,
    )
    if tracked:
        new_variance = _write_running_variance(x, variance, new_variance, 1.0 - momentum)
    return y, *_write_batch_statistics(x, eps), new_mean, new_variance


def _write_running_variance(x: Any, old: Any, new: Any, momentum: float) -> Any:
    """Write ONNX nodes for the new running variance of a batch norm, divided by n - 1 instead of
    n; return it.

    A model that does not use it has no such nodes.
    """
    elements = math.prod(x.shape) // x.shape[1]
    kept = opset23.Mul(old, write_constant_like(momentum, old))
    batch = opset23.Sub(new, kept)
    return opset23.Add(
        kept, opset23.Mul(batch, write_constant_like(elements / max(elements - 1, 1), old))
    )


def _write_batch_statistics(x: Any, eps: float) -> tuple[Any, Any]:
    """Write ONNX nodes for the mean and for 1 / sqrt(variance + eps) of each channel; return
    both.
    """
    axes = write_integer_list(*(axis for axis in range(len(x.shape)) if axis != 1))
    centred = opset23.Sub(x, opset23.ReduceMean(x, axes))
    variance = opset23.ReduceMean(opset23.Mul(centred, centred), axes, keepdims=0)
    deviation = opset23.Sqrt(opset23.Add(variance, write_constant_like(eps, x)))
    return opset23.ReduceMean(x, axes, keepdims=0), opset23.Reciprocal(deviation)


def write_batch_norm_without_statistics(
    x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    """Write ONNX nodes for a batch norm without running statistics; return y, mean and 1 /
    deviation.
    """
    return write_batch_norm(x, weight, bias, None, None, training, momentum, eps)[:3]


def write_instance_norm(
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """Write ONNX nodes for an instance norm; return the result. With running statistics it is a
    batch norm over N C channels.

    It has N C channels.

    The exporter leaves out the running statistics where those of the input are used. Source:
    aten/src/ATen/native/Normalization.cpp (instance_norm).
    """
    from onnxscript.function_libs.torch_lib.ops.core import aten_instance_norm

    if not use_input_stats or mean is None or variance is None:
        provided = (x, weight, bias, mean, variance, use_input_stats, momentum, eps, cudnn_enabled)
        return aten_instance_norm(*provided)
    items, channels, *indices = x.shape
    weight, bias, mean, variance = (
        None
        if row is None
        else _set_dtype_and_shape(
            opset23.Tile(row, write_integer_list(items)), row, items * channels
        )
        for row in (weight, bias, mean, variance)
    )
    flat = 1, items * channels, *indices
    rows = _set_dtype_and_shape(opset23.Reshape(x, write_integer_list(*flat)), x, *flat)
    y = write_batch_norm(rows, weight, bias, mean, variance, True, momentum, eps)[0]
    return opset23.Reshape(y, opset23.Shape(x))


def _set_dtype_and_shape(value: Any, like: Any, *shape: int) -> Any:
    """Set the dtype of `like` and this shape at an ONNX value; return the value."""
    import onnx_ir as ir

    value.dtype, value.shape = like.dtype, ir.Shape(shape)
    return value


# Losses.

_MEAN, _SUM = 1, 2  # at::Reduction
_TRUTH = 9  # TensorProto.BOOL


def write_cross_entropy(
    x: Any,
    target: Any,
    weight: Any = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """Write ONNX nodes for the cross entropy, -log softmax(x)[target], also with smoothed labels;
    return the loss.

    x [N, C, d...] or [C]. It is written as PyTorch runs it, where the exporter's form is
    incomplete. Source: aten/src/ATen/native/LossNLL.cpp (cross_entropy_loss).
    """
    from onnxscript.function_libs.torch_lib.ops.nn import aten_cross_entropy_loss

    single, of_shares = len(x.shape) == 1, target.dtype.is_floating_point()
    if single:
        first = write_integer_list(0)
        x, target = opset23.Unsqueeze(x, first), opset23.Unsqueeze(target, first)
    if of_shares:
        loss = _write_probability_cross_entropy(x, target, weight, reduction, label_smoothing)
    elif label_smoothing:
        loss = _write_label_smoothing_loss(
            x, target, weight, reduction, ignore_index, label_smoothing
        )
    else:
        loss = aten_cross_entropy_loss(x, target, weight, reduction, ignore_index)
    by_label = reduction not in (_MEAN, _SUM)
    return opset23.Squeeze(loss, write_integer_list(0)) if single and by_label else loss


def _write_reshaped_class_weights(weight: Any, axes: int) -> Any:
    """Write an ONNX node that reshapes class weights [C] to [1, C, 1, ...] with `axes` axes;
    return them.
    """
    return opset23.Reshape(weight, write_integer_list(1, -1, *[1] * (axes - 2)))


def _write_probability_cross_entropy(
    x: Any, target: Any, weight: Any, reduction: int, smoothing: float
) -> Any:
    """Write ONNX nodes for the cross entropy with probabilities as target, -sum of target log
    softmax(x); return the loss.
    """
    classes = x.shape[1]
    if smoothing:
        kept = opset23.Mul(target, write_constant_like(1.0 - smoothing, target))
        target = opset23.Add(kept, write_constant_like(smoothing / classes, target))
    terms = opset23.Mul(opset23.LogSoftmax(x, axis=1), target)
    if weight is not None:
        terms = opset23.Mul(terms, _write_reshaped_class_weights(weight, len(x.shape)))
    if reduction not in (_MEAN, _SUM):
        return opset23.Neg(opset23.ReduceSum(terms, write_integer_list(1), keepdims=0))
    loss = opset23.Neg(opset23.ReduceSum(terms, keepdims=0))
    if reduction == _SUM:
        return loss
    elements = 1
    for extent in x.shape:
        elements *= extent
    return opset23.Div(loss, write_constant_like(elements / classes, x))


def _write_label_smoothing_loss(
    x: Any, target: Any, weight: Any, reduction: int, ignore_index: int, smoothing: float
) -> Any:
    """Write ONNX nodes for the cross entropy with smoothed labels, (1 - s) nll + s / C * loss of
    all classes; return it.
    """
    named = {_MEAN: "mean", _SUM: "sum"}.get(reduction, "none")
    logs = opset23.LogSoftmax(x, axis=1)
    likelihood = opset23.NegativeLogLikelihoodLoss(
        logs, target, weight, ignore_index=ignore_index, reduction=named
    )
    weighed = (
        logs
        if weight is None
        else opset23.Mul(logs, _write_reshaped_class_weights(weight, len(x.shape)))
    )
    ignored = opset23.Equal(target, write_constant_like(ignore_index, target))
    terms = opset23.Neg(opset23.ReduceSum(weighed, write_integer_list(1), keepdims=0))
    similar = opset23.Where(ignored, write_constant_like(0.0, x), terms)
    if reduction in (_MEAN, _SUM):
        similar = opset23.ReduceSum(similar, keepdims=0)
    if reduction == _MEAN:
        similar = opset23.Div(similar, _write_total_target_weight(x, target, weight, ignored))
    kept = opset23.Mul(likelihood, write_constant_like(1.0 - smoothing, x))
    return opset23.Add(kept, opset23.Mul(similar, write_constant_like(smoothing / x.shape[1], x)))


def _write_total_target_weight(x: Any, target: Any, weight: Any, ignored: Any) -> Any:
    """Write ONNX nodes for the number of targets that are not ignored, or the sum of their
    weights; return it.
    """
    if weight is None:
        return opset23.ReduceSum(opset23.CastLike(opset23.Not(ignored), x), keepdims=0)
    valid = opset23.Where(ignored, write_constant_like(0, target), target)
    weights = opset23.Where(ignored, write_constant_like(0.0, x), opset23.Gather(weight, valid))
    return opset23.ReduceSum(weights, keepdims=0)


def write_multilabel_margin_loss(x: Any, target: Any, reduction: int = _MEAN) -> Any:
    """Write ONNX nodes for the multilabel margin loss of each row, reduced as `reduction` says;
    return the loss.

    For each row: the sum of max(0, 1 - (x[label] - x[other])) / classes.

    x [N, C] or [C]. Labels end at the first -1; PyTorch's decomposition has a term for each
    position behind that, too. Source: aten/src/ATen/native/LossMultiLabelMargin.cpp.
    """
    classes, second, last = int(x.shape[-1]), write_integer_list(1), write_integer_list(2)
    if len(x.shape) == 1:
        x, target = (opset23.Unsqueeze(value, write_integer_list(0)) for value in (x, target))
    indices, nothing = write_integer_list(*range(classes)), write_constant_like(-1, target)
    ends = opset23.Where(
        opset23.Equal(target, nothing), indices, write_constant_like(classes, target)
    )
    is_label = opset23.Less(indices, opset23.ReduceMin(ends, second, keepdims=1))
    labels = opset23.Where(is_label, target, nothing)
    chosen = opset23.CastLike(opset23.Equal(opset23.Unsqueeze(labels, last), indices), target)
    is_chosen = opset23.Cast(opset23.ReduceMax(chosen, second, keepdims=1), to=_TRUTH)
    of_labels = opset23.GatherElements(
        x, opset23.Where(is_label, target, write_constant_like(0, target)), axis=1
    )
    gaps = opset23.Sub(write_constant_like(1.0, x), opset23.Unsqueeze(of_labels, last))
    terms = opset23.Relu(opset23.Add(gaps, opset23.Unsqueeze(x, second)))
    others = opset23.Where(is_chosen, write_constant_like(0.0, x), terms)
    kept = opset23.Where(opset23.Unsqueeze(is_label, last), others, write_constant_like(0.0, x))
    loss = opset23.ReduceSum(kept, write_integer_list(1, 2), keepdims=0)
    loss = opset23.Div(loss, write_constant_like(float(classes), x))
    if reduction == _MEAN:
        return opset23.ReduceMean(loss, keepdims=0)
    if reduction == _SUM:
        return opset23.ReduceSum(loss, keepdims=0)
    return loss  # [1] of a single row, as torch.export has it: a run of PyTorch gives []


# Pools, sizes that change, and numbers that are drawn.


def write_average_pool(
    axes: int,
    x: Any,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """Write ONNX nodes for average pooling over the last `axes` axes, or for window sums /
    `divisor_override`; return the result.

    With a divisor: the mean over all positions of a window, padded ones too, times their number
    over the divisor. Source: aten/src/ATen/native/cpu/AvgPoolKernel.cpp.
    """
    from onnxscript.function_libs.torch_lib.ops import nn

    if divisor_override is None:
        pool = nn.aten_avg_pool2d if axes == 2 else nn.aten_avg_pool3d
        return pool(x, kernel, stride, padding, ceil_mode, count_include_pad)
    kernel = _repeat_number_per_axis(kernel, axes)
    stride = _repeat_number_per_axis(stride, axes) or kernel
    before = _repeat_number_per_axis(padding, axes)
    sizes = list(x.shape)[-axes:]
    after = [
        _pooling_end_padding(*index, ceil_mode)
        for index in zip(sizes, kernel, stride, before, strict=True)
    ]
    single = len(x.shape) == axes + 1
    batch = opset23.Unsqueeze(x, write_integer_list(0)) if single else x
    padded = opset23.Pad(
        batch, write_integer_list(0, 0, *before, 0, 0, *after), write_constant_like(0.0, x)
    )
    means = opset23.AveragePool(padded, kernel_shape=kernel, strides=stride)
    result = opset23.Mul(means, write_constant_like(math.prod(kernel) / divisor_override, x))
    return opset23.Squeeze(result, write_integer_list(0)) if single else result


def _repeat_number_per_axis(numbers: Sequence[int], axes: int) -> list[int]:
    """Return one number for each axis: a single number is repeated."""
    return list(numbers) * axes if len(numbers) == 1 else list(numbers)


def _pooling_end_padding(size: int, kernel: int, stride: int, before: int, ceil_mode: bool) -> int:
    """Return the number of elements by which an axis is padded at its end for the last pooling
    window.
    """
    steps = size + 2 * before - kernel
    count = (-(-steps // stride) if ceil_mode else steps // stride) + 1
    if (count - 1) * stride >= size + before:
        count -= 1
    return max((count - 1) * stride + kernel - size - before, before)


def write_resize(
    operator: Any, x: Any, size: Sequence[int], align_corners: bool, *scales: Any
) -> Any:
    """Write ONNX nodes for an interpolation to a size, by the given scales if they differ from it;
    return the result.

    Two cases that ONNX lacks stay opaque nodes: scales that lead to another size, and aligned
    corners with antialiasing. Source: aten/src/ATen/native/UpSample.h (area_pixel_compute_scale).
    """
    from onnxscript.function_libs.torch_lib.ops import nn

    smooth = str(operator).endswith("_aa.default")
    provided = list(zip(list(x.shape)[2:], size, scales, strict=False))
    changes = any(old != new for old, new in zip(x.shape[2:], size, strict=True))
    if smooth and align_corners and changes:
        return opaque_node_translation(operator)(x, size, align_corners, *scales)
    separate = any(
        scale is not None and not math.isclose(old * scale, new) for old, new, scale in provided
    )
    if align_corners or not separate:
        form = getattr(nn, f"aten_{str(operator).removeprefix('aten.').removesuffix('.default')}")
        return form(x, write_integer_list(*size), align_corners)
    factors = [new / old if scale is None else scale for old, new, scale in provided]
    if any(math.floor(old * scale) != new for old, new, scale in provided if scale is not None):
        return opaque_node_translation(operator)(x, size, align_corners, *scales)
    return opset23.Resize(
        x,
        None,
        opset23.Constant(value_floats=[1.0, 1.0, *factors]),
        None,
        mode="cubic" if "bicubic" in str(operator) else "linear",
        coordinate_transformation_mode="pytorch_half_pixel",
        antialias=int(smooth),
        exclude_outside=int(smooth),
        cubic_coeff_a=-0.5 if smooth else -0.75,
    )


def write_copy(x: Any, source: Any, non_blocking: bool = False) -> Any:
    """Write ONNX nodes for `copy_`, the source in the dtype and the shape of x; return the result.

    The exporter leaves the result the smaller shape.
    """
    provided = opset23.CastLike(source, x)
    if list(source.shape) == list(x.shape):
        return provided
    return opset23.Expand(provided, opset23.Shape(x))


def write_elu(x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    """Write ONNX nodes for `elu`, scale * x above 0 and an exponential below; return the
    result.

    The exporter scales x above 0 by both factors, and multiplies where they are 1, too.
    """
    if input_scale == 1:
        result = opset23.Elu(x, alpha=float(alpha))
    else:
        below = opset23.Elu(
            opset23.Mul(x, write_constant_like(input_scale, x)), alpha=float(alpha)
        )
        result = opset23.Where(opset23.Greater(x, write_constant_like(0.0, x)), x, below)
    return result if scale == 1 else opset23.Mul(result, write_constant_like(scale, x))


def write_hamming_window(window_length: int, dtype: int = 1, **options: Any) -> Any:
    """Write ONNX nodes for PyTorch's Hamming window, 0.54 - 0.46 cos(2 pi i / n); return it.

    The window of ONNX has other factors, 25/46 and 21/46.
    """
    import onnx_ir as ir

    kind = 1 if dtype is None or dtype < 0 else int(dtype)
    hann = opset23.HannWindow(opset23.Constant(value_int=window_length), output_datatype=kind)
    share, least = (
        opset23.Constant(value=ir.tensor(number, dtype=ir.DataType(kind)))
        for number in (0.92, 0.08)
    )
    return opset23.Add(opset23.Mul(hann, share), least)


def write_determinant(x: Any) -> Any:
    """Write the ONNX node for the determinant; return (determinant, x, x), in which x replaces the
    two factors for the backward pass.
    """
    return opset23.Det(x), opset23.Identity(x), opset23.Identity(x)


def write_multinomial(x: Any, count: int, replacement: bool = False, generator: Any = None) -> Any:
    """Write ONNX nodes for `multinomial`, `count` random indices of each row drawn by its weights;
    return the indices.

    With replacement as the exporter writes it. Without, the largest of weight / exponential, as
    PyTorch draws them. Source: aten/src/ATen/native/Distributions.cpp (multinomial).
    """
    from onnxscript.function_libs.torch_lib.ops.core import aten_multinomial

    if replacement:
        return aten_multinomial(x, count, replacement)
    drawn = opset23.Neg(opset23.Log(opset23.RandomUniformLike(x)))
    _, indices = opset23.TopK(opset23.Div(x, drawn), write_integer_list(count), axis=-1)
    return indices


def write_histogram(x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """Write ONNX nodes for `histc` as the exporter does, also of integers; return the histogram.

    Accelerators take integers, and so do models on the meta device: they are compared as floats.
    """
    import onnx_ir as ir
    from onnxscript.function_libs.torch_lib.ops.core import aten_histc

    kind = x.dtype
    if kind is None or not kind.is_integer():
        return aten_histc(x, bins, min, max)
    numbers = opset23.Cast(x, to=int(ir.DataType.FLOAT))
    numbers.type, numbers.shape = ir.TensorType(ir.DataType.FLOAT), x.shape
    return opset23.Cast(aten_histc(numbers, bins, min, max), to=int(kind))
