"""Operators of ai.onnx that ONNX has dropped, and those that have no rule yet, and why."""

from collections.abc import Mapping
from types import MappingProxyType

from crossflops.ir.cost import Cost
from crossflops.ir.graph import Node
from crossflops.operators.movement import moved
from crossflops.operators.normalization import (
    layer_normalization,
    mean_variance_normalization,
    rms_normalization,
    scaled,
)
from crossflops.operators.operands import dims_of, ints, label
from crossflops.operators.pointwise import COMPARE, per_element
from crossflops.operators.rule import ADDED, EXTINCT, Entry, entry

# Name, work per output element, equation.
_POINTWISE: tuple[tuple[str, Cost, str], ...] = (
    ("Affine", Cost(muls=1, adds=1), "alpha * X + beta"),
    ("ImageScaler", Cost(muls=1, adds=1), "scale * X + bias of the channel"),
    ("Scale", Cost(muls=1), "scale * X"),
    ("ScaledTanh", Cost(muls=2, specials=1), "alpha * tanh(beta * X)"),
    ("ParametricSoftplus", Cost(muls=2, specials=2, adds=1), "alpha * log(exp(beta * X) + 1)"),
    ("ThresholdedRelu", COMPARE, "X > alpha ? X : 0"),
)


def _bordered(node: Node) -> str:
    """Crop: a border of four sizes in the picture [N, C, H, W]."""
    dims, border = dims_of(node, 0), ints(node, "border") or ()
    if dims is None or not border or (len(dims) == 4 == len(border)):
        inside = not dims or all(
            size >= before + after
            for size, before, after in zip(dims[:1:-1], border, border[2:], strict=False)
        )
        return "" if inside else f"{label(node, 0)} is smaller than its border"
    return f"{label(node, 0)} has rank {len(dims)}, the border {len(border)} sizes: 4 are needed"


def _biased(node: Node) -> str:
    """ImageScaler: a bias for each channel of [N, C, H, W]."""
    dims, bias = dims_of(node, 0), node.attrs.get("bias")
    if dims is None or not isinstance(bias, tuple) or (len(dims) > 3 and dims[1] == len(bias)):
        return ""
    return f"{label(node, 0)} needs rank 4 and the {len(bias)} channels of attribute 'bias'"


_REQUIRES = {"ImageScaler": _biased}

ENTRIES: tuple[Entry, ...] = (
    *(
        entry(
            name,
            per_element(work),
            f"n(Y)*work of Y = {equation}",
            page=EXTINCT,
            requires=_REQUIRES.get(name, ()),
        )
        for name, work, equation in _POINTWISE
    ),
    entry(
        "Crop",
        moved,
        "0: data movement",
        page=EXTINCT,
        traffic="gather",
        requires=_bordered,
    ),
    entry("DynamicSlice", moved, "0: data movement", page=EXTINCT, traffic="gather"),
    entry("GivenTensorFill", moved, "0: known values", page=EXTINCT),
    entry(
        "MeanVarianceNormalization",
        mean_variance_normalization,
        "2(n-m) adds, 2m divs, n+m squares, m*(sub, sqrt, add), n*(sub, div)",
        page=EXTINCT,
    ),
    entry(
        "LayerNormalization",
        layer_normalization,
        "n-m adds, m divs, n subs, n muls, n-m adds, m divs, m*(add, sqrt, div), n muls; "
        "scale: n muls; B: n adds; m = dims before axis",
        page=ADDED,
        requires=scaled,
    ),
    entry(
        "SimplifiedLayerNormalization",
        rms_normalization,
        "n muls, n-m adds, m divs, m*(add, sqrt), n divs; scale: n muls; m = dims before axis",
        page=ADDED,
        requires=scaled,
    ),
    entry("MemcpyFromHost", moved, "0: data movement", page=ADDED),
    entry("MemcpyToHost", moved, "0: data movement", page=ADDED),
)


# Operators that have no rule yet, and why: each is uncounted, never zero.
#
# An operator of ai.onnx stands here by its name, one of another domain by domain and name.

_CONTROL = "the node costs nothing by itself: its body is counted, run by run"
_TEXT = "text and media are not counted"
_GENERATION = "how long it generates depends on data"
_FOREIGN = "the model of another program is inside"
_CHOSEN = "which keys take part depends on data"
_TOKENS = "bookkeeping of tokens is not counted"
_PLUGIN = "a plugin of TensorRT, whose equation is not in its schema"
_BLOCKS = "the block floating point format belongs to one device"


def _microsoft(reason: str, *names: str) -> dict[str, str]:
    return {f"com.microsoft.{name}": reason for name in names}


NOT_YET: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("If", "Loop", "Scan", "SequenceMap"), _CONTROL),
        **dict.fromkeys(("ImageDecoder", "RegexFullMatch", "StringConcat"), _TEXT),
        **dict.fromkeys(("StringNormalizer", "StringSplit", "TfIdfVectorizer"), _TEXT),
        **dict.fromkeys(("DisentangledAttention_TRT", "EfficientNMS_TRT"), _PLUGIN),
        **dict.fromkeys(("MultilevelCropAndResize_TRT", "PyramidROIAlign_TRT"), _PLUGIN),
        "GRUUnit": "it was dropped before it had a specification",
        "ai.onnx.preview.training.Gradient": "what is differentiated is another part of the graph",
        **_microsoft(_GENERATION, "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"),
        **_microsoft(_FOREIGN, "EPContext", "Snpe"),
        **_microsoft(_TEXT, "Tokenizer", "WordConvEmbedding", "MurmurHash3"),
        **_microsoft(_TOKENS, "BifurcationDetector", "NGramRepeatBlock"),
        **_microsoft(_TOKENS, "NGramHashMapping", "VarlenNGramHashMapping"),
        **_microsoft(_CHOSEN, "DynamicSparseAttention", "SparsePagedAttention"),
        **_microsoft(_CHOSEN, "SparseAttentionIndexer", "PackedSparseAttentionIndexer"),
        **_microsoft(
            "how many tokens attend globally depends on data",
            "LongformerAttention",
            "QOrderedLongformerAttention",
        ),
        **_microsoft("whether keys come from the cache depends on data", "DecoderAttention"),
        **_microsoft(_BLOCKS, "QuantizeBFP", "DequantizeBFP"),
        **_microsoft("its attention has no equation in the specification", "AttnLSTM"),
    }
)
