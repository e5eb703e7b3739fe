"""Write substitute nodes for gradients, losses and optimizers in onnxruntime's training graphs."""

from collections.abc import Callable, Mapping

from crossflops.frontends.onnx.stand_ins.draft import BOOL, INT64, SubstituteDraft


def shape_writer_like_inputs(*sources: int | None) -> Callable[[SubstituteDraft], None]:
    """Return a function that gives output i the shape of input sources[i] (None: no output)."""

    def write_outputs_shaped_like_inputs(draft: SubstituteDraft) -> None:
        """Add to the draft an Identity for each output, of the input whose shape it has."""
        for index, source in enumerate(sources):
            if source is not None and draft.output(index) and draft.input(source):
                draft.add_node("Identity", (draft.input(source),), draft.output(index))

    return write_outputs_shaped_like_inputs


def write_convolution_gradient_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the shapes of a convolution's gradients: of X,
    W and bias.
    """
    shape_writer_like_inputs(1, 2)(draft)
    dims = draft.shape(0)
    if draft.output(2) and dims is not None and len(dims) > 1:
        draft.add_filled_tensor((dims[1],), draft.output(2), draft.dtype(0))


def gradient_shape_writer(index: int, gradient: int) -> Callable[[SubstituteDraft], None]:
    """Return a function that adds a gradient whose shape is the value of input `index`."""

    def write_gradient_shape_from_input_value(draft: SubstituteDraft) -> None:
        """Add to the draft a tensor whose shape is the value of an input, in the dtype of the
        gradient.
        """
        filled = draft.add_node("ConstantOfShape", (draft.input(index),))
        draft.add_cast(filled, draft.output(0), draft.dtype(gradient))

    return write_gradient_shape_from_input_value


def write_training_loss_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers a loss's output shapes: one number or one per
    label, log-probabilities.
    """
    if draft.text("reduction") == "none":
        labels = draft.shape(1)
        if labels is not None:
            draft.add_filled_tensor(labels, draft.output(0), draft.dtype(0))
    else:
        draft.add_filled_tensor((), draft.output(0), draft.dtype(0))
    if draft.output(1):
        draft.add_node("Identity", (draft.input(0),), draft.output(1))


def write_training_sum_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of ReduceSumTraining:
    ReduceSum of opset 13 or later.
    """
    names = ("keepdims", "noop_with_empty_axes")
    inputs = [name for name in draft.node.input if name]
    if draft.opset >= 13:
        draft.add_node_with_attributes("ReduceSum", inputs, draft.output(0), names)


def write_training_concat_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers ConcatTraining's output shapes: the whole, and
    a length for each part.
    """
    draft.add_node_with_attributes("Concat", list(draft.node.input), draft.output(0), ("axis",))
    if draft.output(1):
        draft.add_filled_tensor((len(draft.node.input),), draft.output(1), INT64)


def write_training_split_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shapes of SplitTraining: Split of
    opset 13 or later.
    """
    if draft.opset >= 13:
        draft.add_node_with_attributes("Split", list(draft.node.input), draft.output(0), ("axis",))
        draft.add_outputs(list(draft.node.output)[1:])


def write_lamb_optimizer_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers LambOptimizer's output shapes: the step, and
    each tensor as its input.
    """
    shape_writer_like_inputs(4, *range(5, len(draft.node.input)))(draft)


def write_mixed_precision_scale_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers MixedPrecisionScale's output shapes: each
    tensor, in the dtype `to`.
    """
    for index in range(len(draft.node.output)):
        if draft.output(index) and not draft.integer("fuse_outputs"):
            draft.add_cast(draft.input(index + 1), draft.output(index), draft.integer("to", 1))


def write_single_number_shape(draft: SubstituteDraft) -> None:
    """Add to the draft a tensor of one number as the output, in the dtype of input 0."""
    draft.add_filled_tensor((), draft.output(0), draft.dtype(0))


def write_is_finite_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of IsFinite: a boolean for
    each element.
    """
    draft.add_cast(draft.input(0), draft.output(0), BOOL)


def write_gradient_accumulator_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers InPlaceAccumulatorV2's output shapes: a
    boolean, and the buffer.
    """
    draft.add_filled_tensor((1,), draft.output(0), BOOL)
    shape_writer_like_inputs(None, 0)(draft)


WRITERS: Mapping[str, Callable[[SubstituteDraft], None]] = {
    **dict.fromkeys(
        (
            *("ReluGrad", "LeakyReluGrad", "SigmoidGrad", "TanhGrad", "AbsGrad", "SinGrad"),
            *("GeluGrad", "FastGeluGrad", "QuickGeluGrad", "BiasGeluGrad_dX"),
            *("BiasFastGeluGrad_dX", "SoftmaxGrad", "SoftmaxGrad_13", "LogSoftmaxGrad"),
            *("LogSoftmaxGrad_13", "DropoutGrad", "BitmaskDropoutGrad", "TrainableDropoutGrad"),
            *("FakeQuantGrad", "InPlaceAccumulator", "ZeroGradient", "ScaledSum", "MegatronF"),
            *("MegatronG", "HorovodAllReduce", "NcclAllReduce", "YieldOp"),
        ),
        shape_writer_like_inputs(0),
    ),
    **dict.fromkeys(("ConvGrad", "ConvTransposeGrad"), write_convolution_gradient_shape),
    **dict.fromkeys(
        ("LayerNormalizationGrad", "BatchNormalizationGrad"), shape_writer_like_inputs(1, 2, 2)
    ),
    **dict.fromkeys(
        ("SimplifiedLayerNormalizationGrad", "T5LayerNormalizationGrad"),
        shape_writer_like_inputs(1, 2),
    ),
    "InvertibleLayerNormalizationGrad": shape_writer_like_inputs(1, 2, 3),
    "BatchNormInternal": shape_writer_like_inputs(0, 3, 4, 3, 4),
    "DivGrad": shape_writer_like_inputs(1, 2),
    "ReshapeGrad": shape_writer_like_inputs(0),
    "GatherGrad": gradient_shape_writer(0, 2),
    "GatherElementsGrad": gradient_shape_writer(1, 0),
    "GatherNDGrad": gradient_shape_writer(0, 2),
    "SliceGrad": gradient_shape_writer(1, 0),
    **dict.fromkeys(
        (
            *("SoftmaxCrossEntropyLossGrad", "SoftmaxCrossEntropyLossInternalGrad"),
            *("SoftmaxCrossEntropyGrad", "SparseSoftmaxCrossEntropyGrad"),
        ),
        shape_writer_like_inputs(1),
    ),
    **dict.fromkeys(
        (
            *("SoftmaxCrossEntropyLossInternal", "SoftmaxCrossEntropy"),
            "SparseSoftmaxCrossEntropy",
        ),
        write_training_loss_shape,
    ),
    "ReduceSumTraining": write_training_sum_shape,
    "ConcatTraining": write_training_concat_shape,
    "SplitTraining": write_training_split_shape,
    "SGDOptimizer": shape_writer_like_inputs(1, 2),
    "AdamOptimizer": shape_writer_like_inputs(1, 4, 5, 2, 3, 6),
    "LambOptimizer": write_lamb_optimizer_shape,
    "MixedPrecisionScale": write_mixed_precision_scale_shape,
    **dict.fromkeys(("ReduceAllL2", "All"), write_single_number_shape),
    "IsFinite": write_is_finite_shape,
    "InPlaceAccumulatorV2": write_gradient_accumulator_shape,
}
