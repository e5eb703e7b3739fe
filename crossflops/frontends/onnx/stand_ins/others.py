"""Write substitute nodes for operators with simple output shapes, and for ai.onnx.ml."""

from collections.abc import Callable, Mapping, Sequence
from math import prod

from crossflops.frontends.onnx.stand_ins.draft import (
    BOOL,
    FLOAT,
    INT8,
    INT64,
    STRING,
    SubstituteDraft,
)


def write_unfold_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of UnfoldTensor: windows of
    `size` as a new last axis.
    """
    dims, size, step = draft.shape(0), draft.integer("size"), draft.integer("step", 1)
    dim = draft.integer("dim", -1)
    if dims is not None and -len(dims) <= dim < len(dims) and step > 0:
        left = list(dims)
        left[dim] = max((left[dim] - size) // step + 1, 0)
        draft.add_filled_tensor((*left, size), draft.output(0), draft.dtype(0))


def write_crop_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of Crop: [N, C, H, W] without
    its border, or `scale`.

    https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/providers/cpu/tensor/crop.h
    """
    dims, border, scale = draft.shape(0), draft.integers("border"), draft.integers("scale")
    if dims is not None and len(dims) == 4 and len(border) == 4:
        left, top, right, bottom = border
        size = scale or (dims[2] - top - bottom, dims[3] - left - right)
        draft.add_filled_tensor((*dims[:2], *size), draft.output(0), draft.dtype(0))


def write_rfft_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of Rfft: n real -> n // 2 + 1
    complex elements, or n.
    """
    dims = draft.shape(0)
    if dims:
        last = dims[-1] // 2 + 1 if draft.integer("onesided", 1) else dims[-1]
        draft.add_filled_tensor((*dims[:-1], last, 2), draft.output(0), draft.dtype(0))


def write_irfft_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of Irfft: m complex -> 2 * (m
    - 1) real elements, or m.
    """
    dims = draft.shape(0)
    if dims is not None and len(dims) >= 2:
        last = 2 * (dims[-2] - 1) if draft.integer("onesided", 1) else dims[-2]
        draft.add_filled_tensor((*dims[:-2], last), draft.output(0), draft.dtype(0))


def write_pair_distances_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of CDist: [M, K] and [N, K]
    -> [M, N].
    """
    left, right = draft.shape(0), draft.shape(1)
    if left is not None and right is not None and len(left) == len(right) == 2:
        draft.add_filled_tensor((left[0], right[0]), draft.output(0), draft.dtype(0))


def write_all_finite_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of IsAllFinite:
    one boolean.
    """
    draft.add_filled_tensor((), draft.output(0), BOOL)


def write_restored_padding_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers RestorePadding's output shape: [tokens, H],
    offsets [B, S] -> [B, S, H].
    """
    tokens, offsets = draft.shape(0), draft.shape(1)
    if tokens is not None and offsets is not None and len(tokens) == len(offsets) == 2:
        draft.add_filled_tensor((*offsets, tokens[1]), draft.output(0), draft.dtype(0))


def write_grid_sample_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers GridSample's output shape: [N, C, H, W] at [N,
    h, w, 2] -> [N, C, h, w].
    """
    data, grid = draft.shape(0), draft.shape(1)
    if data is None or grid is None or len(data) != len(grid):
        return
    last = draft.node.domain != "com.microsoft"
    dims = (data[0], *grid[1:-1], data[-1]) if last else (*data[:2], *grid[1:-1])
    draft.add_filled_tensor(dims, draft.output(0), draft.dtype(0))


def write_pre_mix_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers HyperConnectionPreMix's shape: [..., C, H] or
    [..., C * H] -> [..., H].
    """
    dims, branches = draft.shape(0), draft.integer("num_branches")
    if dims is not None and len(dims) > 1:
        left = (*dims[:-1], dims[-1] // branches) if branches > 0 else (*dims[:-2], dims[-1])
        draft.add_filled_tensor(left, draft.output(0), draft.dtype(0))


def write_gated_delta_net_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers GatedDeltaNet's output shapes: the result, and
    the state [B, Hv, dv, dk].
    """
    query, state = draft.shape(0), draft.shape(6)
    if draft.input(2):
        draft.add_node("Identity", (draft.input(2),), draft.output(0))
    elif query is not None and state is not None:
        draft.add_filled_tensor((*query[:-1], *state[1:3]), draft.output(0), draft.dtype(0))
    if draft.output(1) and draft.input(6):
        draft.add_node("Identity", (draft.input(6),), draft.output(1))


def write_order_quantization_shape(draft: SubstituteDraft) -> None:
    """Add to the draft a Cast to the output dtype of QuantizeWithOrder or DequantizeWithOrder."""
    there = draft.node.op_type == "QuantizeWithOrder"
    draft.add_cast(draft.input(0), draft.output(0), INT8 if there else draft.integer("to", 1))


def write_conv_with_state_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers CausalConvWithState's output shapes: state [B,
    C, (k - 1) * dilation].
    """
    draft.add_node("Identity", (draft.input(0),), draft.output(0))
    dims, weight = draft.shape(0), draft.shape(1)
    if not draft.output(1) or dims is None or weight is None or draft.integer("state_window"):
        return
    steps = (weight[-1] - 1) * draft.integer("dilation", 1)
    if draft.integer("channels_last"):
        draft.add_filled_tensor((dims[0], steps, *dims[2:]), draft.output(1), draft.dtype(0))
    elif len(dims) == 3:
        draft.add_filled_tensor((*dims[:2], steps), draft.output(1), draft.dtype(0))


_OTHERS_WRITERS: Mapping[str, Callable[[SubstituteDraft], None]] = {
    "UnfoldTensor": write_unfold_shape,
    "Crop": write_crop_shape,
    "Rfft": write_rfft_shape,
    "Irfft": write_irfft_shape,
    "CDist": write_pair_distances_shape,
    "IsAllFinite": write_all_finite_shape,
    "RestorePadding": write_restored_padding_shape,
    "GridSample": write_grid_sample_shape,
    "HyperConnectionPreMix": write_pre_mix_shape,
    "GatedDeltaNet": write_gated_delta_net_shape,
    **dict.fromkeys(("QuantizeWithOrder", "DequantizeWithOrder"), write_order_quantization_shape),
    "CausalConvWithState": write_conv_with_state_shape,
}


# Stand-ins for operators of ai.onnx.ml whose shapes ONNX's own inference leaves open.
#
# It has no rule for some of them, and gives no shape for others. The shapes are those that
# onnxruntime makes (onnxruntime/core/providers/cpu/ml).

_FIRST_OF_SHAPE = 9  # the opset that brought ConstantOfShape


def _write_filled_output(
    draft: SubstituteDraft, index: int, dims: Sequence[int], dtype: int = FLOAT
) -> None:
    """Add to the draft a tensor of this shape as the node's output at `index`, in any version of
    ai.onnx.
    """
    output = draft.output(index)
    if not output:
        return
    if draft.opset >= _FIRST_OF_SHAPE:
        draft.add_filled_tensor(dims, output, dtype)
    elif dtype == FLOAT:
        draft.add_node("RandomNormal", (), output, shape=tuple(dims))
    else:
        draft.add_cast(draft.add_node("RandomNormal", (), shape=tuple(dims)), output, dtype)


def _sample_row_count(draft: SubstituteDraft) -> int | None:
    """Return the number of rows of input X: N of [N, C], 1 of [C], or None if unknown."""
    dims = draft.shape(0)
    if not dims or len(dims) > 2:
        return None
    return dims[0] if len(dims) == 2 else 1


def write_ml_elementwise_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of an elementwise operator of
    ai.onnx.ml.
    """
    if draft.node.op_type in ("Scaler", "Normalizer"):
        draft.add_cast(draft.input(0), draft.output(0), FLOAT)
    else:
        draft.add_node("Identity", (draft.input(0),), draft.output(0))


def regressor_shape_writer(
    targets: Callable[[SubstituteDraft], int],
) -> Callable[[SubstituteDraft], None]:
    """Return a function that adds nodes with a regressor's output shape (rows, targets)."""

    def write_regressor_shape(draft: SubstituteDraft) -> None:
        """Add nodes to the draft from which ONNX infers the output shape of a regressor: (rows,
        targets).
        """
        rows = _sample_row_count(draft)
        if rows is not None:
            _write_filled_output(draft, 0, (rows, targets(draft)))
        elif draft.shape(0) is None:  # any column, so many times: floats of the shape to come
            first = draft.add_cast(draft.input(0), "", FLOAT)
            indices = draft.add_integers((0,) * targets(draft))
            draft.add_node("Gather", (first, indices), draft.output(0), axis=1)

    return write_regressor_shape


def classifier_shape_writer(
    scores: Callable[[SubstituteDraft, int], int],
) -> Callable[[SubstituteDraft], None]:
    """Return a function that adds nodes with the shapes of a classifier's labels and scores."""

    def write_classifier_shape(draft: SubstituteDraft) -> None:
        """Add nodes to the draft from which ONNX infers the shapes of a classifier's labels
        (rows,) and scores (rows, scores).
        """
        rows = _sample_row_count(draft)
        texts = draft.list_length("classlabels_strings")
        numbers = draft.list_length("classlabels_ints") or draft.list_length("classlabels_int64s")
        if rows is None or not texts + numbers:
            return
        _write_filled_output(draft, 0, (rows,), STRING if texts else INT64)
        _write_filled_output(draft, 1, (rows, scores(draft, texts or numbers)))

    return write_classifier_shape


def _svm_score_count(draft: SubstituteDraft, classes: int) -> int:
    """Return the number of an SVMClassifier's scores: one per class, or per pair of classes."""
    pairs = draft.integers("vectors_per_class") and not draft.list_length("prob_a")
    return classes * (classes - 1) // 2 if pairs and classes > 2 else classes


def write_vectorizer_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of FeatureVectorizer: the
    columns of all inputs.
    """
    parts = [draft.add_cast(name, "", FLOAT) for name in draft.node.input]
    draft.add_node("Concat", parts, draft.output(0), axis=1)


def write_extractor_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers ArrayFeatureExtractor's output shape: chosen
    elements of the last axis.
    """
    dims, indices = draft.shape(0), draft.shape(1)
    if dims and indices is not None:
        _write_filled_output(draft, 0, (*(dims[:-1] or (1,)), prod(indices)), draft.dtype(0))
    elif dims:
        flat = draft.add_node("Reshape", (draft.input(1), draft.add_integers((-1,))))
        gathered = draft.add_node("Gather", (draft.input(0), flat), axis=len(dims) - 1)
        shape = draft.add_integers((*(dims[:-1] or (1,)), -1))
        draft.add_node("Reshape", (gathered, shape), draft.output(0))


_ML_WRITERS: Mapping[str, Callable[[SubstituteDraft], None]] = {
    **dict.fromkeys(("Scaler", "Normalizer", "Imputer", "Binarizer"), write_ml_elementwise_shape),
    "LinearRegressor": regressor_shape_writer(lambda draft: draft.integer("targets", 1)),
    "SVMRegressor": regressor_shape_writer(lambda draft: 1),
    "TreeEnsembleRegressor": regressor_shape_writer(lambda draft: draft.integer("n_targets", 1)),
    "SVMClassifier": classifier_shape_writer(_svm_score_count),
    **dict.fromkeys(
        ("LinearClassifier", "TreeEnsembleClassifier"), classifier_shape_writer(lambda _, n: n)
    ),
    "FeatureVectorizer": write_vectorizer_shape,
    "ArrayFeatureExtractor": write_extractor_shape,
}


WRITERS: Mapping[str, Callable[[SubstituteDraft], None]] = {**_OTHERS_WRITERS, **_ML_WRITERS}
