"""ONNX forms of operators whose form in PyTorch's exporter computes something else.

The exporter (onnxscript's torchlib) ignores arguments of some operators, as `training` of a batch
normalization and `label_smoothing` of a cross entropy, and writes others so that no runtime takes
them. Each function here takes the arguments of its operator in their order.
"""

from collections.abc import Callable
from typing import Any

from onnxscript.onnx_opset import opset23


def mended() -> dict[Any, Callable[..., Any]]:
    """Return the forms by operator."""
    import torch

    aten = torch.ops.aten
    return {
        aten._native_batch_norm_legit_functional.default: batch_norm,
        aten._native_batch_norm_legit.default: batch_norm,
        aten._native_batch_norm_legit.no_stats: batch_norm_without_statistics,
        aten.native_batch_norm.default: batch_norm,
        aten.instance_norm.default: instance_norm,
        aten.cross_entropy_loss.default: cross_entropy,
    }


def constant(number: float, like: Any) -> Any:
    """A number of the type of a tensor."""
    import onnx_ir as ir

    return opset23.Constant(value=ir.tensor(number, dtype=like.dtype))


def integers(*numbers: int) -> Any:
    """A list of integers, as axes and shapes are given."""
    return opset23.Constant(value_ints=list(numbers))


# Normalizations in training, by the statistics of the batch.


def batch_norm(
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Return what `native_batch_norm` does: y, what the backward pass keeps, the new statistics.

    In training the result of the exporter is that of inference. The running statistics of ONNX
    are those of PyTorch but for the factor n / (n - 1) of the variance. Where there are none, a
    momentum of 1 says that those which ONNX asks for stay as they are.
    https://pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html
    """
    from onnxscript.function_libs.torch_lib.ops.core import aten__native_batch_norm_legit_functional

    if not training:
        given = (x, weight, bias, mean, variance, False, momentum, eps)
        return aten__native_batch_norm_legit_functional(*given)
    tracked = mean is not None and variance is not None
    of_channels = opset23.Shape(x, start=1, end=2)
    zeros = opset23.Expand(constant(0.0, x), of_channels)
    ones = opset23.Expand(constant(1.0, x), of_channels)
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
    return y, *_saved(x, eps), new_mean, new_variance


def _saved(x: Any, eps: float) -> tuple[Any, Any]:
    """The mean and 1 / sqrt(variance + eps) by channel, which the backward pass is given."""
    axes = integers(*(axis for axis in range(len(x.shape)) if axis != 1))
    centred = opset23.Sub(x, opset23.ReduceMean(x, axes))
    variance = opset23.ReduceMean(opset23.Mul(centred, centred), axes, keepdims=0)
    deviation = opset23.Sqrt(opset23.Add(variance, constant(eps, x)))
    return opset23.ReduceMean(x, axes, keepdims=0), opset23.Reciprocal(deviation)


def batch_norm_without_statistics(
    x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    """As `batch_norm`, of `_native_batch_norm_legit.no_stats`, which has three results."""
    return batch_norm(x, weight, bias, None, None, training, momentum, eps)[:3]


def instance_norm(
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
    """With running statistics, a batch normalization of one item with N C channels, as it runs.

    The exporter leaves out the running statistics where those of the input are used.
    Source: aten/src/ATen/native/Normalization.cpp (instance_norm).
    """
    from onnxscript.function_libs.torch_lib.ops.core import aten_instance_norm

    if not use_input_stats or mean is None or variance is None:
        given = (x, weight, bias, mean, variance, use_input_stats, momentum, eps, cudnn_enabled)
        return aten_instance_norm(*given)
    items = opset23.Shape(x, start=0, end=1)
    whole = opset23.Concat(integers(1, -1), opset23.Shape(x, start=2), axis=0)
    rows = (
        None if row is None else opset23.Tile(row, items) for row in (weight, bias, mean, variance)
    )
    y = batch_norm(opset23.Reshape(x, whole), *rows, True, momentum, eps)[0]
    return opset23.Reshape(y, opset23.Shape(x))


# Losses.

_MEAN, _SUM = 1, 2  # at::Reduction


def cross_entropy(
    x: Any,
    target: Any,
    weight: Any = None,
    reduction: int = _MEAN,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """Return -log softmax(x)[target], with smoothed labels or probabilities of classes, too.

    x [N, C, d...] or [C]. Written as PyTorch runs it, where the exporter's form lacks something.
    Source: aten/src/ATen/native/LossNLL.cpp (cross_entropy_loss).
    """
    from onnxscript.function_libs.torch_lib.ops.nn import aten_cross_entropy_loss

    single = len(x.shape) == 1
    if single:
        first = integers(0)
        x, target = opset23.Unsqueeze(x, first), opset23.Unsqueeze(target, first)
    if target.dtype.is_floating_point():
        loss = _of_probabilities(x, target, weight, reduction, label_smoothing)
    elif label_smoothing:
        loss = _of_smoothed_labels(x, target, weight, reduction, ignore_index, label_smoothing)
    else:
        loss = aten_cross_entropy_loss(x, target, weight, reduction, ignore_index)
    return opset23.Squeeze(loss, integers(0)) if single and reduction not in (_MEAN, _SUM) else loss


def _by_class(weight: Any, axes: int) -> Any:
    """The weights of classes along the second of so many axes."""
    return opset23.Reshape(weight, integers(1, -1, *[1] * (axes - 2)))


def _of_probabilities(x: Any, target: Any, weight: Any, reduction: int, smoothing: float) -> Any:
    """- sum of target log softmax(x); the mean is by the number of targets."""
    classes = x.shape[1]
    if smoothing:
        kept = opset23.Mul(target, constant(1.0 - smoothing, target))
        target = opset23.Add(kept, constant(smoothing / classes, target))
    terms = opset23.Mul(opset23.LogSoftmax(x, axis=1), target)
    if weight is not None:
        terms = opset23.Mul(terms, _by_class(weight, len(x.shape)))
    if reduction not in (_MEAN, _SUM):
        return opset23.Neg(opset23.ReduceSum(terms, integers(1), keepdims=0))
    loss = opset23.Neg(opset23.ReduceSum(terms, keepdims=0))
    if reduction == _SUM:
        return loss
    elements = 1
    for extent in x.shape:
        elements *= extent
    return opset23.Div(loss, constant(elements / classes, x))


def _of_smoothed_labels(
    x: Any, target: Any, weight: Any, reduction: int, ignore_index: int, smoothing: float
) -> Any:
    """(1 - s) nll + s / C * the loss of all classes alike."""
    named = {_MEAN: "mean", _SUM: "sum"}.get(reduction, "none")
    logs = opset23.LogSoftmax(x, axis=1)
    likelihood = opset23.NegativeLogLikelihoodLoss(
        logs, target, weight, ignore_index=ignore_index, reduction=named
    )
    weighed = logs if weight is None else opset23.Mul(logs, _by_class(weight, len(x.shape)))
    ignored = opset23.Equal(target, constant(ignore_index, target))
    terms = opset23.Neg(opset23.ReduceSum(weighed, integers(1), keepdims=0))
    alike = opset23.Where(ignored, constant(0.0, x), terms)
    if reduction in (_MEAN, _SUM):
        alike = opset23.ReduceSum(alike, keepdims=0)
    if reduction == _MEAN:
        alike = opset23.Div(alike, _total_weight(x, target, weight, ignored))
    kept = opset23.Mul(likelihood, constant(1.0 - smoothing, x))
    return opset23.Add(kept, opset23.Mul(alike, constant(smoothing / x.shape[1], x)))


def _total_weight(x: Any, target: Any, weight: Any, ignored: Any) -> Any:
    """How many targets count, or the sum of their weights."""
    if weight is None:
        return opset23.ReduceSum(opset23.CastLike(opset23.Not(ignored), x), keepdims=0)
    valid = opset23.Where(ignored, constant(0, target), target)
    weights = opset23.Where(ignored, constant(0.0, x), opset23.Gather(weight, valid))
    return opset23.ReduceSum(weights, keepdims=0)
