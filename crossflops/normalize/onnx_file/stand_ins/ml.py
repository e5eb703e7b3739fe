"""Stand-ins for operators of ai.onnx.ml whose shapes ONNX's own inference leaves open.

It has no rule for some of them, and gives no shape for others. The shapes are those that
onnxruntime makes (onnxruntime/core/providers/cpu/ml).
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod

from crossflops.normalize.onnx_file.stand_ins.draft import FLOAT, INT64, STRING, Draft

_FIRST_OF_SHAPE = 9  # the opset that brought ConstantOfShape


def _filled(draft: Draft, place: int, dims: Sequence[int], dtype: int = FLOAT) -> None:
    """An output of that shape, in opsets of any age."""
    output = draft.output(place)
    if not output:
        return
    if draft.opset >= _FIRST_OF_SHAPE:
        draft.filled(dims, output, dtype)
    elif dtype == FLOAT:
        draft.put("RandomNormal", (), output, shape=tuple(dims))
    else:
        draft.cast(draft.put("RandomNormal", (), shape=tuple(dims)), output, dtype)


def _rows(draft: Draft) -> int | None:
    """N of X [N, C]; X [C] is one row."""
    dims = draft.shape(0)
    if not dims or len(dims) > 2:
        return None
    return dims[0] if len(dims) == 2 else 1


def same(draft: Draft) -> None:
    """Scaler and Normalizer give floats, Imputer and Binarizer what they take."""
    if draft.node.op_type in ("Scaler", "Normalizer"):
        draft.cast(draft.input(0), draft.output(0), FLOAT)
    else:
        draft.put("Identity", (draft.input(0),), draft.output(0))


def columns(targets: Callable[[Draft], int]) -> Callable[[Draft], None]:
    """A regressor: so many columns for each row of X."""

    def write(draft: Draft) -> None:
        rows = _rows(draft)
        if rows is not None:
            _filled(draft, 0, (rows, targets(draft)))
        elif draft.shape(0) is None:  # any column, so many times: floats of the shape to come
            first = draft.cast(draft.input(0), "", FLOAT)
            places = draft.ints((0,) * targets(draft))
            draft.put("Gather", (first, places), draft.output(0), axis=1)

    return write


def classes(scores: Callable[[Draft, int], int]) -> Callable[[Draft], None]:
    """A classifier: a label for each row of X, and scores by the number of classes."""

    def write(draft: Draft) -> None:
        rows = _rows(draft)
        texts = draft.length("classlabels_strings")
        numbers = draft.length("classlabels_ints") or draft.length("classlabels_int64s")
        if rows is None or not texts + numbers:
            return
        _filled(draft, 0, (rows,), STRING if texts else INT64)
        _filled(draft, 1, (rows, scores(draft, texts or numbers)))

    return write


def _decisions(draft: Draft, classes: int) -> int:
    """Scores of SVMClassifier (svmclassifier.cc): of pairs of classes, where no probability."""
    pairs = draft.integers("vectors_per_class") and not draft.length("prob_a")
    return classes * (classes - 1) // 2 if pairs and classes > 2 else classes


def vectorizer(draft: Draft) -> None:
    """FeatureVectorizer: the columns of all inputs side by side, as floats."""
    parts = [draft.cast(name, "", FLOAT) for name in draft.node.input]
    draft.put("Concat", parts, draft.output(0), axis=1)


def extractor(draft: Draft) -> None:
    """ArrayFeatureExtractor: indices into the last axis; X [n] is one row."""
    dims, places = draft.shape(0), draft.shape(1)
    if dims and places is not None:
        _filled(draft, 0, (*(dims[:-1] or (1,)), prod(places)), draft.dtype(0))
    elif dims:
        flat = draft.put("Reshape", (draft.input(1), draft.ints((-1,))))
        found = draft.put("Gather", (draft.input(0), flat), axis=len(dims) - 1)
        shape = draft.ints((*(dims[:-1] or (1,)), -1))
        draft.put("Reshape", (found, shape), draft.output(0))


WRITERS: Mapping[str, Callable[[Draft], None]] = {
    **dict.fromkeys(("Scaler", "Normalizer", "Imputer", "Binarizer"), same),
    "LinearRegressor": columns(lambda draft: draft.integer("targets", 1)),
    "SVMRegressor": columns(lambda draft: 1),
    "TreeEnsembleRegressor": columns(lambda draft: draft.integer("n_targets", 1)),
    "SVMClassifier": classes(_decisions),
    **dict.fromkeys(("LinearClassifier", "TreeEnsembleClassifier"), classes(lambda _, n: n)),
    "FeatureVectorizer": vectorizer,
    "ArrayFeatureExtractor": extractor,
}
